//! What Umbel needs of an object store, as tests for every implementation: call [`all`] with an empty one.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::limits::UPLOAD_PART_BYTES;

/// What [`all`] runs, for tables of what passed.
pub const CASES: [&str; 6] = [
    "one of many makes it",
    "objects are replaced and deleted",
    "parts become one object",
    "ranges are read",
    "listings go past a page",
    "folders are listed",
];

/// Objects of a listing that does not fit into one answer of S3, which has 1,000.
const MANY: usize = 1100;
/// Rounds of a race, and those who run.
const ROUNDS: usize = 20;
const RACERS: usize = 16;

/// Runs every test of the suite. Call it on a runtime that can spawn tasks.
///
/// # Panics
/// When the store does not do what it must.
pub async fn all(store: &Arc<dyn ObjectStore>) {
    one_of_many_makes_it(store).await;
    objects_are_replaced_and_deleted(&**store).await;
    parts_become_one_object(&**store).await;
    ranges_are_read(&**store).await;
    listings_go_past_a_page(&**store).await;
    folders_are_listed(&**store).await;
}

async fn put(store: &dyn ObjectStore, name: &str, text: &str) {
    store.put(&Path::from(name), PutPayload::from(text.to_owned())).await.expect("put");
}

async fn get(store: &dyn ObjectStore, name: &str) -> Bytes {
    store.get(&Path::from(name)).await.expect("get").bytes().await.expect("read")
}

async fn assert_missing(store: &dyn ObjectStore, name: &str) {
    let outcome = store.head(&Path::from(name)).await;
    assert!(matches!(outcome, Err(Error::NotFound { .. })), "{name}: {outcome:?}");
    let outcome = store.get(&Path::from(name)).await.map(drop);
    assert!(matches!(outcome, Err(Error::NotFound { .. })), "{name}: {outcome:?}");
}

/// A conditional put: of those who make an object at the same time one succeeds, and its bytes are there.
///
/// # Panics
/// When the store does not do what it must.
pub async fn one_of_many_makes_it(store: &Arc<dyn ObjectStore>) {
    for round in 0..ROUNDS {
        let name = format!("race/{round}");
        let tasks: Vec<_> = (0..RACERS)
            .map(|racer| {
                let (store, path) = (Arc::clone(store), Path::from(&*name));
                tokio::spawn(async move {
                    let payload = PutPayload::from(racer.to_string());
                    match store.put_opts(&path, payload, PutMode::Create.into()).await {
                        Ok(_) => Ok(Some(racer)),
                        Err(Error::AlreadyExists { .. }) => Ok(None),
                        Err(error) => Err(error),
                    }
                })
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            winners.extend(task.await.expect("a task").expect("put"));
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert_eq!(get(&**store, &name).await, winners[0].to_string());
    }
}

/// A put takes the place of what was there, a deleted object is gone, and may be made again.
///
/// # Panics
/// When the store does not do what it must.
pub async fn objects_are_replaced_and_deleted(store: &dyn ObjectStore) {
    let path = Path::from("one/object");
    assert_missing(store, "one/object").await;
    put(store, "one/object", "a").await;
    put(store, "one/object", "another").await;
    assert_eq!(get(store, "one/object").await, "another");
    assert_eq!(store.head(&path).await.expect("head").size, 7);
    store.delete(&path).await.expect("delete");
    assert_missing(store, "one/object").await;
    store.put_opts(&path, PutPayload::default(), PutMode::Create.into()).await.expect("made again");
    assert!(get(store, "one/object").await.is_empty());
}

/// What is uploaded in parts is there as a whole or not at all.
///
/// # Panics
/// When the store does not do what it must.
pub async fn parts_become_one_object(store: &dyn ObjectStore) {
    let part = |number: u8| Bytes::from(vec![number; UPLOAD_PART_BYTES]);
    let path = Path::from("parts/large");
    let mut upload = store.put_multipart(&path).await.expect("begin");
    for number in 0..3 {
        upload.put_part(part(number).into()).await.expect("a part");
    }
    upload.put_part(Bytes::from_static(b"the end").into()).await.expect("the last part");
    assert_missing(store, "parts/large").await;
    upload.complete().await.expect("complete");
    let whole = get(store, "parts/large").await;
    assert_eq!(whole.len(), 3 * UPLOAD_PART_BYTES + 7);
    for number in 0..3 {
        let at = usize::from(number) * UPLOAD_PART_BYTES;
        assert!(whole[at..at + UPLOAD_PART_BYTES] == part(number)[..], "part {number}");
    }
    let mut abandoned = store.put_multipart(&Path::from("parts/abandoned")).await.expect("begin");
    abandoned.put_part(part(9).into()).await.expect("a part");
    abandoned.abort().await.expect("abort");
    assert_missing(store, "parts/abandoned").await;
}

/// A range is read without the rest, also across the edge of two parts.
///
/// # Panics
/// When the store does not do what it must.
pub async fn ranges_are_read(store: &dyn ObjectStore) {
    let path = Path::from("ranges");
    let bytes = Bytes::from_iter((0..3 * 65_536_u32).map(|at| (at % 251) as u8));
    let half = bytes.len() / 2;
    let mut upload = store.put_multipart(&path).await.expect("begin");
    // Stores have a least size of parts, but for the last one.
    let first: Bytes = [Bytes::from(vec![0; UPLOAD_PART_BYTES]), bytes.slice(..half)].concat().into();
    upload.put_part(first.into()).await.expect("a part");
    upload.put_part(bytes.slice(half..).into()).await.expect("a part");
    upload.complete().await.expect("complete");
    let start = UPLOAD_PART_BYTES as u64;
    let end = start + bytes.len() as u64;
    let edge = start + half as u64;
    let ranges = [start..start + 1, edge - 2..edge + 2, end - 3..end, start + 1000..start + 9000];
    let read = store.get_ranges(&path, &ranges).await.expect("ranges");
    for (range, read) in ranges.iter().zip(read) {
        let within = (range.start - start) as usize..(range.end - start) as usize;
        assert!(read == bytes.slice(within), "{range:?}");
    }
}

/// A listing has every object once, however many there are, and can begin behind one of them.
///
/// # Panics
/// When the store does not do what it must.
pub async fn listings_go_past_a_page(store: &dyn ObjectStore) {
    let name = |number: usize| format!("list/{number:04}");
    for number in 0..MANY {
        put(store, &name(number), "x").await;
    }
    put(store, "listing", "its name begins with the same letters").await;
    let prefix = Path::from("list");
    let listed: Vec<_> = store.list(Some(&prefix)).try_collect().await.expect("list");
    let mut names: Vec<_> = listed.iter().map(|object| object.location.to_string()).collect();
    names.sort();
    assert_eq!(names, (0..MANY).map(name).collect::<Vec<_>>());
    assert!(listed.iter().all(|object| object.size == 1));
    let from = Path::from(name(MANY - 51));
    let rest: Vec<_> = store.list_with_offset(Some(&prefix), &from).try_collect().await.expect("list");
    assert_eq!(rest.len(), 50);
}

/// What lies deeper is summed up by the names of folders.
///
/// # Panics
/// When the store does not do what it must.
pub async fn folders_are_listed(store: &dyn ObjectStore) {
    for name in ["f/a", "f/b/1", "f/b/2", "f/c/d/e", "fa"] {
        put(store, name, name).await;
    }
    let listed = store.list_with_delimiter(Some(&Path::from("f"))).await.expect("list");
    let mut folders: Vec<_> = listed.common_prefixes.iter().map(ToString::to_string).collect();
    folders.sort();
    assert_eq!(folders, ["f/b", "f/c"]);
    let objects: Vec<_> = listed.objects.iter().map(|object| object.location.to_string()).collect();
    assert_eq!(objects, ["f/a"]);
}
