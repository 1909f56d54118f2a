//! Blobs in a folder: what every object store does, and what this one keeps when its disk fails.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use proptest::prelude::*;
use umbel_core::blobs::{FolderStore, suite};
use umbel_core::disk::{Disk, DiskFile, Fault, Lock, MemoryDisk, RealDisk};

const FOLDER: &str = "/blobs";

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn open(disk: &MemoryDisk) -> FolderStore {
    FolderStore::new(Arc::new(disk.clone()), FOLDER)
}

fn at(name: &str) -> Location {
    Location::from(name)
}

/// Bytes in which every sector differs from its neighbours and from those of another `seed`.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 512 * 7 + at) as u8 ^ seed).collect()
}

async fn read(store: &dyn ObjectStore, name: &str) -> Result<Vec<u8>, Error> {
    Ok(store.get(&at(name)).await?.bytes().await?.to_vec())
}

async fn create(store: &dyn ObjectStore, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
    store.put_opts(&at(name), bytes.into(), PutMode::Create.into()).await.map(drop)
}

async fn upload(store: &dyn ObjectStore, name: &str, parts: Vec<Vec<u8>>) -> Result<(), Error> {
    let mut upload = store.put_multipart(&at(name)).await?;
    for part in parts {
        upload.put_part(part.into()).await?;
    }
    upload.complete().await.map(drop)
}

async fn listed(store: &dyn ObjectStore, prefix: Option<&str>) -> Vec<(String, u64)> {
    let prefix = prefix.map(at);
    let objects: Vec<ObjectMeta> = store.list(prefix.as_ref()).try_collect().await.unwrap();
    let mut objects: Vec<_> =
        objects.into_iter().map(|object| (object.location.to_string(), object.size)).collect();
    objects.sort();
    objects
}

async fn names(store: &dyn ObjectStore, prefix: Option<&str>) -> Vec<String> {
    listed(store, prefix).await.into_iter().map(|(name, _)| name).collect()
}

async fn delimited(store: &dyn ObjectStore, prefix: Option<&str>) -> (Vec<String>, Vec<String>) {
    let prefix = prefix.map(at);
    let result = store.list_with_delimiter(prefix.as_ref()).await.unwrap();
    let mut objects: Vec<_> = result.objects.iter().map(|object| object.location.to_string()).collect();
    let mut prefixes: Vec<_> = result.common_prefixes.iter().map(ToString::to_string).collect();
    objects.sort();
    prefixes.sort();
    (objects, prefixes)
}

async fn assert_missing(store: &dyn ObjectStore, name: &str) {
    let outcome = store.head(&at(name)).await;
    assert!(matches!(outcome, Err(Error::NotFound { .. })), "{store}: {name}: {outcome:?}");
}

async fn it_puts_and_gets(store: &dyn ObjectStore) {
    for (name, length) in [("p/empty", 0), ("p/small", 11), ("p/deep/er/large", 3_000_000)] {
        assert_missing(store, name).await;
        store.put(&at(name), bytes(length, 1).into()).await.unwrap();
        assert_eq!(read(store, name).await.unwrap(), bytes(length, 1), "{store}: {name}");
        assert_eq!(store.head(&at(name)).await.unwrap().size, length as u64);
    }
    let pieces = PutPayload::from_iter([&b"one "[..], b"", b"two"].map(bytes::Bytes::from_static));
    store.put(&at("p/small"), pieces).await.unwrap();
    assert_eq!(read(store, "p/small").await.unwrap(), b"one two");
    // A folder is no object, and nothing is below an object.
    assert_missing(store, "p").await;
    assert_missing(store, "p/small/below").await;
    // Names that need encoding come back as they were given.
    store.put(&at("p/ä % #*?/x y"), "odd".into()).await.unwrap();
    assert_eq!(names(store, Some("p/ä % #*?")).await, [at("p/ä % #*?/x y").to_string()]);
    assert_eq!(read(store, "p/ä % #*?/x y").await.unwrap(), b"odd");
}

async fn it_gets_ranges(store: &dyn ObjectStore) {
    let whole = bytes(2_500_000, 2);
    store.put(&at("r/object"), whole.clone().into()).await.unwrap();
    let get = async |range: GetRange| {
        let result = store.get_opts(&at("r/object"), GetOptions::new().with_range(Some(range))).await?;
        assert_eq!(result.meta.size, 2_500_000);
        let range = result.range.start as usize..result.range.end as usize;
        Ok::<_, Error>((range, result.bytes().await?))
    };
    let cases = [
        (GetRange::Bounded(0..1), 0..1),
        (GetRange::Bounded(5..1_048_581), 5..1_048_581),
        (GetRange::Bounded(2_499_999..9_000_000), 2_499_999..2_500_000),
        (GetRange::Offset(1_048_577), 1_048_577..2_500_000),
        (GetRange::Suffix(3), 2_499_997..2_500_000),
        (GetRange::Suffix(9_000_000), 0..2_500_000),
    ];
    for (wanted, expected) in cases {
        let (range, bytes) = get(wanted.clone()).await.unwrap();
        assert_eq!(range, expected, "{store}: {wanted}");
        assert!(bytes == whole[expected], "{store}: {wanted}");
    }
    for wanted in
        [GetRange::Bounded(7..7), GetRange::Bounded(2_500_000..2_500_001), GetRange::Offset(2_500_000)]
    {
        assert!(matches!(get(wanted).await, Err(Error::Generic { .. })), "{store}");
    }
    let two = store.get_ranges(&at("r/object"), &[3..9, 2_000_000..2_000_005]).await.unwrap();
    assert_eq!(two, [&whole[3..9], &whole[2_000_000..2_000_005]]);
    let any = GetOptions::new().with_if_match(Some("*"));
    assert!(store.get_opts(&at("r/object"), any).await.is_ok());
    let other = GetOptions::new().with_if_match(Some("another"));
    let outcome = store.get_opts(&at("r/object"), other).await;
    assert!(matches!(outcome, Err(Error::Precondition { .. })), "{store}");
}

async fn it_lists(store: &dyn ObjectStore) {
    for name in ["l/a", "l/ab/1", "l/ab/2", "l/ab/c/3", "l/abc", "l/b/c/d/4"] {
        store.put(&at(name), name.into()).await.unwrap();
    }
    let all = ["l/a", "l/ab/1", "l/ab/2", "l/ab/c/3", "l/abc", "l/b/c/d/4"];
    assert_eq!(names(store, Some("l")).await, all);
    assert_eq!(names(store, Some("l/ab")).await, ["l/ab/1", "l/ab/2", "l/ab/c/3"]);
    assert!(names(store, Some("l/a")).await.is_empty(), "{store}: an object is not below itself");
    assert!(names(store, Some("l/none/at/all")).await.is_empty());
    assert!(listed(store, None).await.contains(&("l/ab/c/3".into(), 8)));
    let offset = store.list_with_offset(Some(&at("l")), &at("l/ab/2"));
    assert_eq!(offset.try_collect::<Vec<_>>().await.unwrap().len(), 3);
    let strings = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(delimited(store, Some("l")).await, (strings(&["l/a", "l/abc"]), strings(&["l/ab", "l/b"])));
    assert_eq!(delimited(store, Some("l/b/c")).await, (vec![], strings(&["l/b/c/d"])));
    assert_eq!(delimited(store, Some("l/none")).await, (vec![], vec![]));
    assert!(delimited(store, None).await.1.contains(&"l".into()));
}

async fn it_deletes(store: &dyn ObjectStore) {
    for name in ["d/x/1", "d/x/2", "d/y/1"] {
        store.put(&at(name), name.into()).await.unwrap();
    }
    store.delete(&at("d/x/1")).await.unwrap();
    assert_missing(store, "d/x/1").await;
    assert_eq!(names(store, Some("d")).await, ["d/x/2", "d/y/1"]);
    // What is not there can be deleted, in a folder that is not there too.
    let locations = ["d/x/2", "d/x/1", "d/z/1"].map(|name| Ok(at(name)));
    let deleted = store.delete_stream(futures_util::stream::iter(locations).boxed());
    assert_eq!(deleted.try_collect::<Vec<_>>().await.unwrap(), ["d/x/2", "d/x/1", "d/z/1"].map(at));
    assert_eq!(delimited(store, Some("d")).await, (vec![], vec!["d/y".into()]));
    store.put(&at("d/x/1"), "again".into()).await.unwrap();
    assert_eq!(read(store, "d/x/1").await.unwrap(), b"again");
}

async fn it_overwrites_and_creates(store: &dyn ObjectStore) {
    create(store, "o/1", bytes(2000, 1)).await.unwrap();
    let conflict = create(store, "o/1", bytes(10, 2)).await;
    assert!(matches!(&conflict, Err(Error::AlreadyExists { path, .. }) if path == "o/1"), "{store}");
    assert_eq!(read(store, "o/1").await.unwrap(), bytes(2000, 1));
    store.put(&at("o/1"), bytes(10, 3).into()).await.unwrap();
    assert_eq!(read(store, "o/1").await.unwrap(), bytes(10, 3));
    store.delete(&at("o/1")).await.unwrap();
    create(store, "o/1", bytes(20, 4)).await.unwrap();
    assert_eq!(read(store, "o/1").await.unwrap(), bytes(20, 4));
}

async fn it_takes_parts(store: &dyn ObjectStore) {
    upload(store, "m/none", vec![]).await.unwrap();
    assert_eq!(read(store, "m/none").await.unwrap(), b"");
    // The order is that of the calls, not that of the work.
    let mut parts = store.put_multipart(&at("m/some")).await.unwrap();
    let first = parts.put_part(bytes(70_000, 1).into());
    let second = parts.put_part(bytes(30_000, 2).into());
    second.await.unwrap();
    first.await.unwrap();
    assert_missing(store, "m/some").await;
    parts.complete().await.unwrap();
    assert_eq!(read(store, "m/some").await.unwrap(), [bytes(70_000, 1), bytes(30_000, 2)].concat());
    upload(store, "m/some", vec![bytes(5, 3)]).await.unwrap();
    assert_eq!(read(store, "m/some").await.unwrap(), bytes(5, 3));
    let mut aborted = store.put_multipart(&at("m/some")).await.unwrap();
    aborted.put_part(bytes(50, 4).into()).await.unwrap();
    aborted.abort().await.unwrap();
    let mut dropped = store.put_multipart(&at("m/other")).await.unwrap();
    dropped.put_part(bytes(50, 5).into()).await.unwrap();
    assert_eq!(names(store, Some("m")).await, ["m/none", "m/some"]);
    drop(dropped);
    assert_eq!(read(store, "m/some").await.unwrap(), bytes(5, 3));
    assert_eq!(names(store, Some("m")).await, ["m/none", "m/some"]);
}

async fn it_copies(store: &dyn ObjectStore) {
    let missing = store.copy(&at("c/from"), &at("c/to")).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{store}");
    store.put(&at("c/from"), bytes(2_200_000, 1).into()).await.unwrap();
    store.copy_if_not_exists(&at("c/from"), &at("c/there/to")).await.unwrap();
    assert!(read(store, "c/there/to").await.unwrap() == bytes(2_200_000, 1));
    store.put(&at("c/from"), bytes(9, 2).into()).await.unwrap();
    let conflict = store.copy_if_not_exists(&at("c/from"), &at("c/there/to")).await;
    assert!(matches!(conflict, Err(Error::AlreadyExists { .. })), "{store}");
    store.copy(&at("c/from"), &at("c/there/to")).await.unwrap();
    store.copy(&at("c/from"), &at("c/from")).await.unwrap();
    assert_eq!(read(store, "c/there/to").await.unwrap(), bytes(9, 2));
    store.rename(&at("c/from"), &at("c/renamed")).await.unwrap();
    assert_eq!(names(store, Some("c")).await, ["c/renamed", "c/there/to"]);
}

async fn it_keeps_the_contract(store: &dyn ObjectStore) {
    assert!(listed(store, None).await.is_empty());
    it_puts_and_gets(store).await;
    it_gets_ranges(store).await;
    it_lists(store).await;
    it_deletes(store).await;
    it_overwrites_and_creates(store).await;
    it_takes_parts(store).await;
    it_copies(store).await;
}

/// What stores of others are held to, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_public_contract() {
    let folder = std::env::temp_dir().join(format!("umbel-blobs-suite-{}", std::process::id()));
    let stores: [Arc<dyn ObjectStore>; 3] = [
        Arc::new(InMemory::new()),
        Arc::new(open(&MemoryDisk::default())),
        Arc::new(FolderStore::new(Arc::new(RealDisk), &folder)),
    ];
    for store in stores {
        suite::all(&store).await;
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The same lines for all: the store in memory says what is right.
#[test]
fn it_does_what_an_object_store_does() {
    block_on(it_keeps_the_contract(&InMemory::new()));
    let folder = std::env::temp_dir().join(format!("umbel-blobs-{}", std::process::id()));
    for store in [open(&MemoryDisk::default()), FolderStore::new(Arc::new(RealDisk), &folder)] {
        block_on(it_keeps_the_contract(&store));
        assert_eq!(store.remove_leftovers().unwrap(), 0, "{store}: nothing is left behind");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_name_that_cannot_be_kept_is_refused() {
    let store = open(&MemoryDisk::default());
    for name in ["", "a.tmp", "a/0.tmp"] {
        let refused = |outcome: Result<(), Error>| {
            assert!(matches!(outcome, Err(Error::NotSupported { .. })), "{name}: {outcome:?}");
        };
        block_on(async {
            refused(store.put(&at(name), "x".into()).await.map(drop));
            refused(store.put_multipart(&at(name)).await.map(drop));
            refused(store.get(&at(name)).await.map(drop));
            refused(store.delete(&at(name)).await);
            store.put(&at("from"), "x".into()).await.unwrap();
            refused(store.copy(&at("from"), &at(name)).await);
        });
    }
    block_on(async {
        store.put(&at("folder.tmp/x"), "x".into()).await.unwrap();
        assert_eq!(names(&store, None).await, ["folder.tmp/x", "from"]);
        let update = PutMode::Update(UpdateVersion { e_tag: None, version: None });
        let outcome = store.put_opts(&at("from"), "x".into(), update.into()).await;
        assert!(matches!(outcome, Err(Error::NotImplemented { .. })), "{outcome:?}");
    });
}

#[test]
fn a_large_blob_is_read_piece_by_piece() {
    let store = open(&MemoryDisk::default());
    let whole = bytes(3 << 20 | 5, 1);
    block_on(async {
        store.put(&at("large"), whole.clone().into()).await.unwrap();
        let mut pieces = store.get(&at("large")).await.unwrap().into_stream();
        let mut read = pieces.try_next().await.unwrap().unwrap().to_vec();
        // One who reads keeps what it began with, whatever becomes of the object.
        store.put(&at("large"), "small now".into()).await.unwrap();
        store.delete(&at("large")).await.unwrap();
        while let Some(piece) = pieces.try_next().await.unwrap() {
            assert!(piece.len() <= 1 << 20);
            read.extend(piece);
        }
        assert!(read == whole);
        store.put(&at("large"), whole.into()).await.unwrap();
        let head = store.get_opts(&at("large"), GetOptions::new().with_head(true)).await.unwrap();
        assert_eq!((head.meta.size, head.bytes().await.unwrap().len()), (3 << 20 | 5, 0));
    });
}

#[test]
fn an_upload_with_a_hole_is_refused() {
    let disk = MemoryDisk::default();
    let store = open(&disk);
    block_on(async {
        let mut upload = store.put_multipart(&at("object")).await.unwrap();
        drop(upload.put_part(bytes(100, 1).into()));
        upload.put_part(bytes(100, 2).into()).await.unwrap();
        let error = upload.complete().await.unwrap_err().to_string();
        assert!(error.contains("only 100 of 200 bytes"), "{error}");
        assert!(upload.put_part("more".into()).await.is_err());
        assert!(upload.complete().await.is_err());
    });
    assert!(disk.files().is_empty());
}

/// Of many who create the same object one succeeds, and its bytes are the object's.
#[test]
fn one_of_many_creates_an_object() {
    for round in 0..20 {
        let slow = Arc::new(Recorder::default());
        let store = FolderStore::new(slow.clone(), FOLDER);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads = (0..8).map(|number| {
                let store = store.clone();
                scope.spawn(move || block_on(create(&store, "a/b", bytes(3000, number))))
            });
            threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = (0..8).filter(|number| outcomes[*number].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        let expected = bytes(3000, winners[0] as u8);
        assert!(block_on(read(&open(&slow.disk.after_power_cut(round)), "a/b")).unwrap() == expected);
        assert_eq!(slow.disk.files().len(), 1);
    }
}

/// The ways to put an object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Overwrite,
    Create,
    Parts,
    Copy,
}

impl Way {
    async fn put(self, store: &FolderStore, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
        match self {
            Self::Overwrite => store.put(&at(name), bytes.into()).await.map(drop),
            Self::Create => create(store, name, bytes).await,
            Self::Parts => upload(store, name, bytes.chunks(1000).map(<[u8]>::to_vec).collect()).await,
            Self::Copy => store.copy(&at("source"), &at(name)).await,
        }
    }
}

/// Every operation of the disk fails once, in every way to put an object, and then the power is cut. What was acknowledged is
/// there, and what was not is there whole or not at all.
#[test]
fn every_operation_of_the_disk_may_fail() {
    const NAME: &str = "some/where/object";
    let (old, new, other) = (bytes(2500, 1), bytes(3700, 2), bytes(900, 3));
    for way in [Way::Overwrite, Way::Create, Way::Parts, Way::Copy] {
        for (fault, existing) in
            [(Fault::Full, true), (Fault::Full, false), (Fault::Broken, true), (Fault::Broken, false)]
        {
            if existing && way == Way::Create {
                continue;
            }
            let mut refused = 0;
            for nth in 1.. {
                let disk = MemoryDisk::default();
                let store = open(&disk);
                block_on(store.put(&at("source"), new.clone().into())).unwrap();
                block_on(store.put(&at("some/other"), other.clone().into())).unwrap();
                if existing {
                    block_on(store.put(&at(NAME), old.clone().into())).unwrap();
                }
                let before = disk.operations();
                disk.fail_at(nth, fault);
                let outcome = block_on(way.put(&store, NAME, new.clone()));
                let what = format!("{way:?} with {fault:?} at {nth}");
                let check = |disk: &MemoryDisk, what: &str| {
                    let store = open(disk);
                    match block_on(read(&store, NAME)) {
                        Ok(read) if outcome.is_ok() => assert!(read == new, "{what}"),
                        Ok(read) => assert!(read == new || existing && read == old, "{what}"),
                        Err(Error::NotFound { .. }) => assert!(!existing && outcome.is_err(), "{what}"),
                        Err(error) => panic!("{what}: {error}"),
                    }
                    assert!(block_on(read(&store, "some/other")).unwrap() == other, "{what}");
                    assert!(block_on(read(&store, "source")).unwrap() == new, "{what}");
                    let expected = if block_on(store.head(&at(NAME))).is_ok() { 3 } else { 2 };
                    assert_eq!(block_on(listed(&store, None)).len(), expected, "{what}");
                };
                check(&disk, &what);
                for seed in 0..20 {
                    let rest = disk.after_power_cut(seed);
                    check(&rest, &format!("{what}, power cut {seed}"));
                    open(&rest).remove_leftovers().unwrap();
                    let left: Vec<_> =
                        rest.files().into_iter().filter(|(path, _)| path.extension().is_some()).collect();
                    assert!(left.is_empty(), "{left:?}");
                    check(&rest, &format!("{what}, power cut {seed}, cleaned"));
                    // The store works again, and what is put then is the object.
                    block_on(open(&rest).put(&at(NAME), old.clone().into())).unwrap();
                    let again = open(&rest.after_power_cut(seed + 1));
                    assert!(block_on(read(&again, NAME)).unwrap() == old, "{what}");
                }
                let Err(error) = outcome else {
                    assert!(disk.operations() - before < nth, "{what}: acknowledged in spite of the failure");
                    break;
                };
                refused += 1;
                let text = error.to_string();
                assert!(matches!(error, Error::Generic { store: "folder", .. }), "{what}: {text}");
                assert_eq!(text.contains("no space left"), fault == Fault::Full, "{what}: {text}");
                // When it is over, the same store goes on, unless the object was named in spite of the error.
                disk.mend();
                match block_on(way.put(&store, NAME, new.clone())) {
                    Ok(()) => {}
                    Err(Error::AlreadyExists { .. }) => assert_eq!(way, Way::Create, "{what}"),
                    Err(error) => panic!("{what}: {error}"),
                }
                for seed in 0..20 {
                    let rest = open(&disk.after_power_cut(seed));
                    assert!(block_on(read(&rest, NAME)).unwrap() == new, "{what}: after the second put");
                }
            }
            println!("{way:?} with {fault:?}: {refused} operations failed, nothing acknowledged was lost");
            assert!(refused >= 5);
        }
    }
}

#[test]
fn a_broken_operation_leaves_no_file_behind() {
    for way in [Way::Overwrite, Way::Create, Way::Parts, Way::Copy] {
        for nth in 1.. {
            let disk = MemoryDisk::default();
            let store = open(&disk);
            block_on(store.put(&at("source"), bytes(3000, 1).into())).unwrap();
            disk.fail_at(nth, Fault::Broken);
            let outcome = block_on(way.put(&store, "a/b", bytes(3000, 1)));
            let left: Vec<_> =
                disk.files().into_iter().filter(|(path, _)| path.extension().is_some()).collect();
            assert!(left.is_empty(), "{way:?} at {nth}: {left:?}");
            if outcome.is_ok() {
                break;
            }
        }
    }
}

/// A deletion that was acknowledged stays one, also when it came to nothing new.
#[test]
fn what_was_deleted_is_gone() {
    for nth in 1..=3 {
        let disk = MemoryDisk::default();
        let store = open(&disk);
        block_on(store.put(&at("a/b"), "x".into())).unwrap();
        disk.fail_at(nth, Fault::Broken);
        let outcome = block_on(store.delete(&at("a/b")));
        assert_eq!(outcome.is_err(), nth < 3);
        disk.mend();
        block_on(store.delete(&at("a/b"))).unwrap();
        for seed in 0..20 {
            assert!(block_on(listed(&open(&disk.after_power_cut(seed)), None)).is_empty());
        }
    }
}

#[test]
fn leftovers_are_removed_everywhere() {
    let disk = MemoryDisk::default();
    block_on(open(&disk).put(&at("a/b/c"), "kept".into())).unwrap();
    for path in ["/blobs/0.tmp", "/blobs/a/7.tmp", "/blobs/x/y/z/8.tmp", "/elsewhere/9.tmp"] {
        disk.create(Path::new(path)).unwrap();
    }
    let store = open(&disk);
    assert_eq!(block_on(names(&store, None)), ["a/b/c"]);
    assert_eq!(block_on(delimited(&store, None)), (vec![], vec!["a".into()]));
    assert_eq!(store.remove_leftovers().unwrap(), 3);
    assert_eq!(store.remove_leftovers().unwrap(), 0);
    let paths: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/blobs/a/b/c", "/elsewhere/9.tmp"].map(PathBuf::from));
    let missing = std::env::temp_dir().join("umbel-blobs-that-are-not-there");
    assert_eq!(FolderStore::new(Arc::new(RealDisk), missing).remove_leftovers().unwrap(), 0);
}

/// A disk that writes down which folders are made and synced, and takes its time to give a name, so that others may come
/// between.
#[derive(Debug, Default)]
struct Recorder {
    disk: MemoryDisk,
    calls: Mutex<Vec<String>>,
}

impl Recorder {
    fn record(&self, call: &str, folder: &Path) {
        self.calls.lock().unwrap().push(format!("{call} {}", folder.display()));
    }
}

impl Disk for Recorder {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.record("make", folder);
        self.disk.create_folder(folder)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }
    fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.folders(folder)
    }
    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.disk.lock(path)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.record("name", to);
        std::thread::sleep(std::time::Duration::from_millis(2));
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.record("sync", folder);
        self.disk.sync_folder(folder)
    }
    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        self.disk.free_bytes(folder)
    }
}

/// New folders are durable in those above them before an object is named in them, and only the first put pays for it.
#[test]
fn a_new_folder_is_durable_before_it_is_used() {
    for (folder, above) in [("/data/blobs", "/data"), ("blobs", ".")] {
        let disk = Arc::new(Recorder::default());
        let store = FolderStore::new(disk.clone(), folder);
        let calls = |name: &str| {
            block_on(store.put(&at(name), "x".into())).unwrap();
            std::mem::take(&mut *disk.calls.lock().unwrap())
        };
        let expected = |calls: &[&str]| {
            calls.iter().map(|call| call.replace('^', above).replace('@', folder)).collect::<Vec<_>>()
        };
        let first = ["make @/a/b", "sync ^", "sync @", "sync @/a", "name @/a/b/1", "sync @/a/b"];
        assert_eq!(calls("a/b/1"), expected(&first));
        assert_eq!(calls("a/b/2"), expected(&["name @/a/b/2", "sync @/a/b"]));
        assert_eq!(calls("a/3"), expected(&["name @/a/3", "sync @/a"]));
        assert_eq!(calls("a/c/4"), expected(&["make @/a/c", "sync @/a", "name @/a/c/4", "sync @/a/c"]));
        assert_eq!(calls("5"), expected(&["name @/5", "sync @"]));
    }
}

/// A folder whose sync failed is not taken for durable.
#[test]
fn a_folder_is_synced_until_it_succeeds() {
    for nth in 1..=3 {
        let disk = Arc::new(Recorder::default());
        let store = FolderStore::new(disk.clone(), FOLDER);
        disk.disk.fail_at(nth, Fault::Broken);
        block_on(store.put(&at("a/b/1"), "x".into())).unwrap_err();
        disk.calls.lock().unwrap().clear();
        block_on(store.put(&at("a/b/1"), "x".into())).unwrap();
        let synced = ["sync /", "sync /blobs", "sync /blobs/a"];
        let calls = disk.calls.lock().unwrap();
        assert_eq!(calls[1..=synced.len() + 1 - nth as usize], synced[nth as usize - 1..], "{nth}");
    }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Put { name: usize, length: usize, create: bool },
    Parts { name: usize, lengths: Vec<usize>, complete: bool },
    Delete { name: usize },
    Copy { from: usize, to: usize, create: bool },
    Range { name: usize, start: u64, length: u64 },
    Reopen,
    PowerCut { seed: u64 },
}

/// No name is a folder of another one.
const NAMES: [&str; 8] = ["a", "b/1", "b/2", "b/c/1", "b/c/d/e/1", "f/g/1", "f/h/1", "b.c"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..NAMES.len();
    let length = || prop_oneof![0..2000_usize, Just(512), Just(0)];
    let step = prop_oneof![
        4 => (name(), length(), any::<bool>())
            .prop_map(|(name, length, create)| Step::Put { name, length, create }),
        2 => (name(), prop::collection::vec(length(), 0..4), any::<bool>())
            .prop_map(|(name, lengths, complete)| Step::Parts { name, lengths, complete }),
        3 => name().prop_map(|name| Step::Delete { name }),
        2 => (name(), name(), any::<bool>()).prop_map(|(from, to, create)| Step::Copy { from, to, create }),
        2 => (name(), 0..1500_u64, 0..1500_u64)
            .prop_map(|(name, start, length)| Step::Range { name, start, length }),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(|seed| Step::PowerCut { seed }),
    ];
    prop::collection::vec(step, 0..40)
}

/// What a step gives: bytes, or the kind of the error.
async fn take(store: &dyn ObjectStore, number: usize, step: &Step) -> Result<Vec<u8>, String> {
    let payload = |length| bytes(length, number as u8);
    let outcome = match step {
        Step::Put { name, length, create: true } => {
            create(store, NAMES[*name], payload(*length)).await.map(|()| vec![])
        }
        Step::Put { name, length, .. } => {
            store.put(&at(NAMES[*name]), payload(*length).into()).await.map(|_| vec![])
        }
        Step::Parts { name, lengths, complete: true } => {
            let parts = lengths.iter().map(|length| payload(*length)).collect();
            upload(store, NAMES[*name], parts).await.map(|()| vec![])
        }
        Step::Parts { name, lengths, .. } => {
            let mut upload = store.put_multipart(&at(NAMES[*name])).await.unwrap();
            for length in lengths {
                upload.put_part(payload(*length).into()).await.unwrap();
            }
            Ok(vec![])
        }
        Step::Delete { name } => store.delete(&at(NAMES[*name])).await.map(|()| vec![]),
        Step::Copy { from, to, create: true } => {
            store.copy_if_not_exists(&at(NAMES[*from]), &at(NAMES[*to])).await.map(|()| vec![])
        }
        Step::Copy { from, to, .. } => store.copy(&at(NAMES[*from]), &at(NAMES[*to])).await.map(|()| vec![]),
        Step::Range { name, start, length } => {
            store.get_range(&at(NAMES[*name]), *start..start + length).await.map(|bytes| bytes.to_vec())
        }
        Step::Reopen | Step::PowerCut { .. } => Ok(vec![]),
    };
    outcome.map_err(|error| match error {
        Error::NotFound { path, .. } => format!("{path} is not there"),
        Error::AlreadyExists { path, .. } => format!("{path} is there"),
        Error::Generic { .. } => "generic".into(),
        other => panic!("{other}"),
    })
}

async fn contents(store: &dyn ObjectStore) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for (name, size) in listed(store, None).await {
        let bytes = store.get(&Location::parse(&name).unwrap()).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes.len() as u64, size);
        contents.insert(name, bytes.to_vec());
    }
    contents
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is done, the folder holds what the store in memory holds, which knows of no power cuts.
    #[test]
    fn a_folder_is_like_memory(steps in steps()) {
        block_on(async {
            let oracle = InMemory::new();
            let mut disk = MemoryDisk::default();
            let mut store = open(&disk);
            for (number, step) in steps.iter().enumerate() {
                match step {
                    Step::Reopen => store = open(&disk),
                    Step::PowerCut { seed } => {
                        disk = disk.after_power_cut(*seed);
                        store = open(&disk);
                        store.remove_leftovers().unwrap();
                    }
                    _ => {}
                }
                let (expected, outcome) = (take(&oracle, number, step).await, take(&store, number, step).await);
                prop_assert_eq!(outcome, expected, "{:?}", step);
                prop_assert_eq!(contents(&store).await, contents(&oracle).await, "{:?}", step);
                for prefix in [None, Some("a"), Some("b"), Some("b/c"), Some("f"), Some("none")] {
                    prop_assert_eq!(listed(&store, prefix).await, listed(&oracle, prefix).await);
                    prop_assert_eq!(delimited(&store, prefix).await, delimited(&oracle, prefix).await);
                }
            }
            Ok(())
        })?;
    }
}
