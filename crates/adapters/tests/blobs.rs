//! Object stores against a real server: races, parts, ranges, long listings.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{Service, elsewhere, fresh, passed, service};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use umbel_adapters::Url;
use umbel_core::Error;
use umbel_core::limits::UPLOAD_PART_BYTES;

async fn open_blobs(url: &str) -> Result<umbel_adapters::Opened<dyn ObjectStore>, Error> {
    umbel_adapters::open_blobs(&Url::parse(url)?).await
}

fn create() -> PutOptions {
    PutOptions { mode: PutMode::Create, ..PutOptions::default() }
}

async fn races(service: &Service, store: &Arc<dyn ObjectStore>) {
    for round in 0..20 {
        let path = Path::from(format!("race/{round}"));
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let (store, path) = (Arc::clone(store), path.clone());
                tokio::spawn(async move {
                    match store.put_opts(&path, PutPayload::from(format!("{task}")), create()).await {
                        Ok(_) => Some(task),
                        Err(StoreError::AlreadyExists { .. }) => None,
                        Err(error) => panic!("{error}"),
                    }
                })
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            winners.extend(task.await.unwrap());
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let held = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(held, winners[0].to_string());
    }
    passed(service, "blobs", "conditional put", "20 races of 16, one winner each");
}

async fn parts_and_ranges(service: &Service, store: &Arc<dyn ObjectStore>) {
    let path = Path::from("parts/large");
    let mut upload = store.put_multipart(&path).await.unwrap();
    let part = |number: u8| Bytes::from(vec![number; UPLOAD_PART_BYTES]);
    for number in 0..3 {
        upload.put_part(part(number).into()).await.unwrap();
    }
    upload.put_part(Bytes::from_static(b"the end").into()).await.unwrap();
    assert!(matches!(store.head(&path).await, Err(StoreError::NotFound { .. })), "not before it is complete");
    upload.complete().await.unwrap();
    let length = 3 * UPLOAD_PART_BYTES as u64 + 7;
    assert_eq!(store.head(&path).await.unwrap().size, length);
    let edge = UPLOAD_PART_BYTES as u64;
    let ranges = [0..1, edge - 2..edge + 2, length - 3..length];
    let read = store.get_ranges(&path, &ranges).await.unwrap();
    assert_eq!(read, [&[0_u8][..], &[0, 0, 1, 1], b"end"]);
    let whole = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert!(whole.len() as u64 == length && whole[..UPLOAD_PART_BYTES] == part(0)[..]);
    let called = Arc::clone(store);
    elsewhere(async move {
        let path = Path::from("parts/elsewhere");
        let mut upload = called.put_multipart(&path).await.unwrap();
        upload.put_part(Bytes::from_static(b"elsewhere").into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(called.get(&path).await.unwrap().bytes().await.unwrap(), "elsewhere");
        let listed: Vec<_> = called.list(Some(&Path::from("parts"))).try_collect().await.unwrap();
        assert_eq!(listed.len(), 2);
    });
    passed(service, "blobs", "other runtimes", "put, read and listed under one without timers and sockets");
    let mut abandoned = store.put_multipart(&Path::from("parts/abandoned")).await.unwrap();
    abandoned.put_part(part(9).into()).await.unwrap();
    abandoned.abort().await.unwrap();
    assert!(matches!(store.head(&Path::from("parts/abandoned")).await, Err(StoreError::NotFound { .. })));
    passed(service, "blobs", "parts and ranges", format!("{length} bytes in 4 parts, 3 ranges"));
}

async fn long_listings(service: &Service, store: &Arc<dyn ObjectStore>) {
    for number in 0..1100 {
        store.put(&Path::from(format!("list/{number:04}")), PutPayload::from("x")).await.unwrap();
    }
    let prefix = Path::from("list");
    let listed: Vec<_> = store.list(Some(&prefix)).try_collect().await.unwrap();
    let mut names: Vec<_> = listed.iter().map(|object| object.location.to_string()).collect();
    names.sort();
    assert_eq!(names, (0..1100).map(|number| format!("list/{number:04}")).collect::<Vec<_>>());
    let from = Path::from("list/1049");
    let rest: Vec<_> = store.list_with_offset(Some(&prefix), &from).try_collect().await.unwrap();
    assert_eq!(rest.len(), 50);
    store.delete(&from).await.unwrap();
    assert!(matches!(store.get(&from).await, Err(StoreError::NotFound { .. })));
    passed(service, "blobs", "listing", "1,100 objects");
}

async fn speaks_s3(service: &Service) {
    let opened = open_blobs(&service.bucket()).await.unwrap();
    println!("{}", opened.about);
    let store = opened.plane;
    let left: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert!(left.is_empty(), "opening it left {left:?}");
    races(service, &store).await;
    parts_and_ranges(service, &store).await;
    long_listings(service, &store).await;
    let url = format!("s3://{}?region=us-east-1&endpoint=http://{}", fresh("nowhere"), service.address());
    let outcome = open_blobs(&url).await.map(drop);
    assert!(matches!(outcome, Err(Error::Invalid(_) | Error::Retry(_))), "{outcome:?}");
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
    races(&service, &store).await;
    parts_and_ranges(&service, &store).await;
    long_listings(&service, &store).await;
    copies_and_folders(&store).await;
}

async fn copies_and_folders(store: &Arc<dyn ObjectStore>) {
    for name in ["f/a", "f/b/1", "f/b/2", "f/c/d/e", "fa"] {
        store.put(&Path::from(name), PutPayload::from(name)).await.unwrap();
    }
    let listed = store.list_with_delimiter(Some(&Path::from("f"))).await.unwrap();
    let names = |paths: &[Path]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&listed.common_prefixes), ["f/b", "f/c"]);
    assert_eq!(
        names(&listed.objects.iter().map(|object| object.location.clone()).collect::<Vec<_>>()),
        ["f/a"]
    );
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
