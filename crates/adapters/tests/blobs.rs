//! Object stores against a real server: the contract, and what each of them has besides.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Service, elsewhere, fresh, passed, service};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload};
use umbel_adapters::Url;
use umbel_core::Error;
use umbel_core::blobs::suite;

async fn open_blobs(url: &str) -> Result<umbel_adapters::Opened<dyn ObjectStore>, Error> {
    umbel_adapters::open_blobs(&Url::parse(url)?).await
}

async fn contract(service: &Service, store: &Arc<dyn ObjectStore>) {
    let begin = Instant::now();
    suite::all(store).await;
    for case in suite::CASES {
        passed(service, "blobs", case, format!("contract, all in {:.1} s", begin.elapsed().as_secs_f64()));
    }
    let called = Arc::clone(store);
    elsewhere(async move {
        let path = Path::from("elsewhere/parts");
        let mut upload = called.put_multipart(&path).await.unwrap();
        upload.put_part(Bytes::from_static(b"elsewhere").into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(called.get(&path).await.unwrap().bytes().await.unwrap(), "elsewhere");
        let listed: Vec<_> = called.list(Some(&Path::from("elsewhere"))).try_collect().await.unwrap();
        assert_eq!(listed.len(), 1);
    });
    passed(service, "blobs", "other runtimes", "put, read and listed under one without timers and sockets");
}

/// A server that does not answer is an error in time, and no reason to open the store again.
async fn pauses(service: &Service, url: &str) {
    let more = if url.contains('?') { '&' } else { '?' };
    let store = open_blobs(&format!("{url}{more}timeout_ms=2000")).await.unwrap().plane;
    // What is put meanwhile may arrive at any time after that.
    let (path, other) = (Path::from("paused"), Path::from("meanwhile"));
    store.put(&path, PutPayload::from("before")).await.unwrap();
    service.pause();
    let begin = Instant::now();
    let outcomes =
        [store.get(&path).await.map(drop), store.put(&other, PutPayload::from("during")).await.map(drop)];
    let took = begin.elapsed();
    service.resume();
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let end = Instant::now() + Duration::from_secs(30);
    while store.put(&path, PutPayload::from("after")).await.is_err() {
        assert!(Instant::now() < end, "it does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "after");
    passed(service, "blobs", "pause", format!("failed in {:.1} s, then goes on", took.as_secs_f64() / 2.0));
}

async fn speaks_s3(service: &Service) {
    let url = service.bucket();
    let opened = open_blobs(&url).await.unwrap();
    println!("{}", opened.about);
    let store = opened.plane;
    let left: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert!(left.is_empty(), "opening it left {left:?}");
    contract(service, &store).await;
    pauses(service, &url).await;
    let url = format!("s3://{}?region=us-east-1&endpoint=http://{}", fresh("nowhere"), service.address());
    let outcome = open_blobs(&url).await.map(drop);
    assert!(matches!(outcome, Err(Error::Invalid(_) | Error::Retry(_))), "{outcome:?}");
}

/// No server is needed for it, so it is not in the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_one_process_s() {
    let folder = std::env::temp_dir().join(fresh("umbel-folder"));
    let url = format!("file://{}", folder.display());
    let store = open_blobs(&url).await.unwrap().plane;
    suite::all(&store).await;
    let second = open_blobs(&url).await.unwrap_err().to_string();
    assert!(second.contains("another process has it open"), "{second}");
    drop(store);
    let again = open_blobs(&url).await.unwrap().plane;
    assert!(again.head(&Path::from("ranges")).await.is_ok());
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn s3() {
    let Some(service) = service("s3") else { return };
    speaks_s3(&service).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn ceph() {
    let Some(service) = service("ceph") else { return };
    speaks_s3(&service).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis() {
    let Some(service) = service("redis") else { return };
    let url = format!("redis://{}/{}", service.address(), fresh("blobs"));
    let store = open_blobs(&url).await.unwrap().plane;
    contract(&service, &store).await;
    pauses(&service, &url).await;
    copies(&store).await;
}

async fn copies(store: &Arc<dyn ObjectStore>) {
    let (from, to) = (Path::from("f/a"), Path::from("g"));
    store.copy_if_not_exists(&from, &to).await.unwrap();
    assert_eq!(store.get(&to).await.unwrap().bytes().await.unwrap(), "f/a");
    let again = store.copy_if_not_exists(&from, &to).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists { .. })), "{again:?}");
    let nothing = store.copy(&Path::from("none"), &to).await;
    assert!(matches!(nothing, Err(StoreError::NotFound { .. })), "{nothing:?}");
    let empty = Path::from("empty");
    store.put(&empty, PutPayload::default()).await.unwrap();
    assert!(store.get(&empty).await.unwrap().bytes().await.unwrap().is_empty());
}
