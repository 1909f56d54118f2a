//! Versions in a cluster: any node makes them, pins them and removes them, and those that count are whole, however late others are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join3;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use umbel_core::budget::Budget;
use umbel_core::copy::{Assembly, Copy, Taken};
use umbel_core::engine::{Current, Handle, Pin};
use umbel_core::entry::{Entry, Request};
use umbel_core::fold::Means;
use umbel_core::version::Version;

use super::*;
use crate::world::block_on;

fn means() -> Means {
    Means::new(Budget::new(1 << 30))
}

async fn copied(engine: &Engine, version: Version) -> Copy {
    let (filter, number) = (version.filter, version.number);
    let mut assembly = Assembly::new(version, &means()).unwrap();
    for id in assembly.missing().collect::<Vec<_>>() {
        let chunk = engine.chunk(filter, id).await.unwrap();
        let chunk = chunk.unwrap_or_else(|| panic!("chunk {id} of version {number} is gone"));
        assert!(assembly.put(&chunk).unwrap());
    }
    assembly.finish(&means()).unwrap()
}

async fn found(world: &World, node: usize, name: &str) -> Arc<Handle> {
    world.engine(node).find(name).await.unwrap().unwrap()
}

async fn blobs_under(world: &World, folder: &str) -> Vec<String> {
    let listed = world.blobs.list(Some(&Path::from(folder))).map_ok(|blob| blob.location.to_string());
    listed.try_collect().await.unwrap()
}

fn missing(copy: &Copy, keys: &[Fingerprint]) -> usize {
    keys.iter().filter(|key| !copy.contains(**key)).count()
}

#[test]
fn every_node_makes_and_reads_versions() {
    run(async {
        let world = World::new(51).await;
        world.engine(0).create(NewFilter::new("small", Spec::bloom(1000, 0.01))).await.unwrap();
        world.engine(1).create(everywhere("large", Spec::counting(2_000_000, 0.01))).await.unwrap();
        for name in ["small", "large"] {
            let mut numbers = Vec::new();
            for node in 0..NODES {
                let (engine, filter) = (world.engine(node), found(&world, node, name).await);
                let from = node as u64 * 100;
                engine.add(&filter, &keys(from..from + 100)).await.unwrap();
                let published = engine.publish_at_least(&filter, None).await.unwrap();
                assert!(published.is_new);
                numbers.push(published.version.number);
                for other in 0..NODES {
                    let engine = world.engine(other);
                    let again =
                        engine.publish_at_least(&found(&world, other, name).await, None).await.unwrap();
                    assert!(!again.is_new && again.version == published.version, "{name} at {other}");
                    assert_eq!(engine.versions(filter.id()).await.unwrap(), numbers);
                    let copy = copied(&engine, published.version.clone()).await;
                    assert_eq!(missing(&copy, &keys(0..from + 100)), 0);
                    assert!(copy.items() >= from + 99, "{}", copy.items());
                    assert_eq!(copy.digest(), published.version.digest());
                }
            }
            assert_eq!(numbers, [1, 2, 3]);
            // Of the next one, little is written.
            let (engine, filter) = (world.engine(0), found(&world, 0, name).await);
            let folder = format!("versions/{:016x}", filter.id());
            let before = blobs_under(&world, &folder).await.len();
            engine.add(&filter, &[key(7_000)]).await.unwrap();
            engine.publish(&filter).await.unwrap();
            assert_eq!(
                blobs_under(&world, &folder).await.len(),
                before + 2,
                "a chunk and the version of {name}"
            );
            // What is pinned stays, and what is one too many goes.
            let other = world.engine(1);
            let current = Current { version: Some(2), ..Current::default() };
            assert_eq!(
                other.pin_version(filter.id(), Some(2), Some(None), None).await.unwrap(),
                Pin::Done(current)
            );
            engine.keep_versions(filter.id(), &[]).await.unwrap();
            assert_eq!(other.versions(filter.id()).await.unwrap(), [2, 4]);
            assert_eq!(world.engine(2).current_version(filter.id()).await.unwrap(), current);
            assert_eq!(other.pin_version(filter.id(), Some(3), None, None).await.unwrap(), Pin::NoVersion);
            for number in [2, 4] {
                copied(&other, other.version(filter.id(), number).await.unwrap()).await;
            }
        }
        // With a filter, its versions go.
        let (engine, small) = (world.engine(2), found(&world, 2, "small").await);
        engine.drop_filter(&small).await.unwrap();
        let large = found(&world, 0, "large").await;
        world.engine(0).keep_versions(large.id(), &[]).await.unwrap();
        assert!(blobs_under(&world, &format!("versions/{:016x}", small.id())).await.is_empty());
        assert!(world.engine(1).versions(small.id()).await.unwrap().is_empty());
        assert_eq!(world.engine(1).versions(large.id()).await.unwrap(), [2, 4]);
    });
}

/// A store to which nodes come late: what they remove goes later than they think, and a version that is to be written may wait.
#[derive(Debug)]
struct Late {
    inner: Arc<InMemory>,
    random: Arc<SeededRandom>,
    /// What is to be removed by nodes that sleep.
    removed: Arc<Mutex<Vec<Path>>>,
    /// Whether the next version waits until everybody wakes up.
    waits: AtomicBool,
    awake: tokio::sync::Notify,
}

impl Late {
    /// Lets others go first.
    async fn dawdle(&self) {
        for _ in 0..self.random.next() % 3 {
            tokio::task::yield_now().await;
        }
    }

    /// All that was put off happens.
    async fn wake(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.awake.notify_waiters();
        let removed = std::mem::take(&mut *lock(&self.removed));
        for path in removed {
            let _ = self.inner.delete(&path).await;
        }
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a late store")
    }
}

type Stored<T> = object_store::Result<T>;

#[async_trait]
impl ObjectStore for Late {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Stored<PutResult> {
        self.dawdle().await;
        if path.as_ref().ends_with(".version") && self.waits.swap(false, Ordering::Relaxed) {
            self.awake.notified().await;
        }
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Stored<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Stored<GetResult> {
        self.dawdle().await;
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Stored<Vec<Bytes>> {
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Stored<Path>>) -> BoxStream<'static, Stored<Path>> {
        let is_late = !self.random.next().is_multiple_of(3);
        let (removed, inner) = (Arc::clone(&self.removed), Arc::clone(&self.inner));
        let delete = move |path: Stored<Path>| {
            let (removed, inner) = (Arc::clone(&removed), Arc::clone(&inner));
            async move {
                let path = path?;
                if is_late && path.as_ref().starts_with("versions/") {
                    lock(&removed).push(path.clone());
                } else {
                    inner.delete(&path).await?;
                }
                Ok(path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Stored<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Stored<ListResult> {
        self.dawdle().await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Stored<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// By the name of a filter and the number of a version, how many keys were acknowledged when somebody asked for it.
type Made<'a> = BTreeMap<(&'a str, u64), u64>;

/// Versions of a filter that count are whole, and have all that was acknowledged before somebody asked for them.
async fn are_whole(world: &World, node: usize, name: &str, made: &Made<'_>) {
    let (engine, filter) = (world.engine(node), found(world, node, name).await);
    for number in engine.versions(filter.id()).await.unwrap() {
        let copy = copied(&engine, engine.version(filter.id(), number).await.unwrap()).await;
        let keys = keys(0..made.get(&(name, number)).copied().unwrap_or(0));
        assert_eq!(missing(&copy, &keys), 0, "version {number} of {name}");
    }
}

/// The second host of each partition becomes the first, and has another one beside it.
async fn hosts_change(world: &World) {
    world.hand_over();
    for partition in 0..PARTITIONS {
        let first = lock(&world.town.table).first[partition as usize];
        world.engine((first + 1) % NODES).host(partition).await.unwrap();
    }
    for node in 0..NODES {
        let _ = world.engine(node).follow().await;
    }
}

async fn live(seed: u64) {
    let random = Arc::new(SeededRandom::new(seed));
    let inner = Arc::new(InMemory::new());
    let late = Arc::new(Late {
        inner: Arc::clone(&inner),
        random: Arc::clone(&random),
        removed: Arc::default(),
        waits: AtomicBool::new(false),
        awake: tokio::sync::Notify::new(),
    });
    let world = World::on(seed, inner, Arc::clone(&late) as _).await;
    world.engine(0).create(NewFilter::new("small", Spec::bloom(3000, 0.01))).await.unwrap();
    world.engine(1).create(everywhere("large", Spec::bloom(3000, 0.01))).await.unwrap();
    let mut added: BTreeMap<&str, u64> = BTreeMap::new();
    let mut made: Made<'_> = BTreeMap::new();
    let mut sleeping = Vec::new();
    for _ in 0..40 {
        let name = ["small", "large"][world.below(2)];
        let nodes = [world.below(NODES), world.below(NODES), world.below(NODES)];
        let engines = nodes.map(|node| world.engine(node));
        let count = added.entry(name).or_default();
        let filter = found(&world, nodes[0], name).await;
        match world.below(10) {
            0..=2 => {
                let more = keys(*count..*count + 20);
                engines[0].add(&filter, &more).await.unwrap();
                *count += 20;
            }
            3..=5 => {
                let other = found(&world, nodes[1], name).await;
                let numbers = engines[2].versions(filter.id()).await.unwrap();
                let kept: Vec<u64> = numbers.into_iter().filter(|_| world.below(3) == 0).collect();
                let one = engines[0].publish_at_least(&filter, None);
                let two = engines[1].publish_at_least(&other, None);
                let keep = engines[2].keep_versions(filter.id(), &kept);
                let (one, two, kept) = join3(one, two, keep).await;
                for published in [one, two] {
                    match published {
                        Ok(published) if published.is_new => {
                            made.insert((name, published.version.number), *count);
                        }
                        Ok(_) | Err(Error::Retry(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                // A version may be removed by another node while one looks what its versions need.
                assert!(matches!(kept, Ok(_) | Err(Error::Retry(_) | Error::Corrupt(_))), "{kept:?}");
            }
            6 => {
                // One who sleeps before its version is written.
                late.waits.store(true, Ordering::Relaxed);
                let engine = Arc::clone(&engines[0]);
                let publish = async move { engine.publish_at_least(&filter, None).await };
                let sleeper = tokio::spawn(publish);
                // It sleeps, or has ended: nothing was new.
                while late.waits.load(Ordering::Relaxed) && !sleeper.is_finished() {
                    tokio::task::yield_now().await;
                }
                late.waits.store(false, Ordering::Relaxed);
                sleeping.push((name, *count, sleeper));
            }
            7 => {
                let numbers = engines[1].versions(filter.id()).await.unwrap();
                let some = numbers.get(world.below(numbers.len() + 1)).copied();
                let pinned = engines[0].pin_version(filter.id(), some, None, None).await.unwrap();
                assert!(matches!(pinned, Pin::Done(_)), "{pinned:?}");
            }
            8 => {
                late.wake().await;
                for (name, count, sleeper) in sleeping.drain(..) {
                    match sleeper.await.unwrap() {
                        Ok(published) if published.is_new => {
                            made.insert((name, published.version.number), count);
                        }
                        Ok(_) | Err(Error::Retry(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            _ => {
                hosts_change(&world).await;
            }
        }
        are_whole(&world, nodes[2], name, &made).await;
    }
    late.wake().await;
    for (_, _, sleeper) in sleeping {
        let _ = sleeper.await.unwrap();
    }
    late.wake().await;
    for name in ["small", "large"] {
        are_whole(&world, 0, name, &made).await;
        // In the end nothing is left but what the versions need that count.
        let (engine, filter) = (world.engine(1), found(&world, 1, name).await);
        for round in 0..3 {
            engine.add(&filter, &[key(90_000 + round)]).await.unwrap();
            engine.publish(&filter).await.unwrap();
        }
        engine.keep_versions(filter.id(), &[]).await.unwrap();
        late.wake().await;
        engine.keep_versions(filter.id(), &[]).await.unwrap();
        late.wake().await;
        let mut needed = BTreeSet::new();
        let numbers = engine.versions(filter.id()).await.unwrap();
        for number in &numbers {
            let version = engine.version(filter.id(), *number).await.unwrap();
            needed.extend(version.chunks());
        }
        are_whole(&world, 2, name, &made).await;
        let left = blobs_under(&world, &format!("versions/{:016x}", filter.id())).await;
        let records = left.iter().filter(|name| name.ends_with(".version")).count();
        assert_eq!(records, numbers.len(), "{left:?}");
        assert!(left.len() - records >= needed.len());
        // A chunk can be there twice: it was needed no more when it was needed again.
        assert!(left.len() - records <= 2 * needed.len(), "{name}: {numbers:?} {left:?}");
    }
}

#[test]
fn versions_that_count_are_whole_however_late_others_are() {
    for seed in 0..60 {
        println!("seed {seed}");
        block_on(live(seed));
    }
}

/// Follows a filter through any node, and passes over what it has.
async fn follow(world: &World, name: &str, copy: &Copy, random: &SeededRandom) -> Result<Taken> {
    let (mut token, mut worst) = (copy.token(), Taken::Done);
    loop {
        let node = (random.next() % NODES as u64) as usize;
        let filter = found(world, node, name).await;
        let changes = world.engine(node).changes(&filter, &token).await?;
        // Each comes twice, as it may.
        for (partition, record) in changes.records.iter().chain(&changes.records) {
            let taken = copy.apply(*partition, record.position, &Entry::decode(&record.entry)?)?;
            worst = if taken == Taken::Done { worst } else { taken };
        }
        changes.token.positions().for_each(|(partition, position)| copy.reach(partition, position));
        if changes.token == token {
            return Ok(worst);
        }
        token = changes.token;
    }
}

/// A copy that follows the log through whichever node, while hosts change, has what the filter has: every change once.
#[test]
fn a_copy_that_follows_any_node_is_the_filter() {
    let mut followed = 0;
    for seed in 0..24 {
        println!("seed {seed}");
        run(async {
            let (world, random) = (World::new(seed).await, SeededRandom::new(seed));
            let spec = if seed % 2 == 0 { Spec::counting(4000, 0.01) } else { Spec::bloom(4000, 0.01) };
            let new = if seed % 4 < 2 { everywhere("f", spec) } else { NewFilter::new("f", spec) };
            world.engine(0).create(new).await.unwrap();
            let version = world.engine(1).publish(&found(&world, 1, "f").await).await.unwrap();
            let mut copy = copied(&world.engine(2), version).await;
            for sequence in 1..=40 {
                let node = world.below(NODES);
                let (engine, filter) = (world.engine(node), found(&world, node, "f").await);
                let first = random.next() % 1500;
                let some = keys(first..first + random.next() % 30);
                let request = Request { session: 9, sequence };
                match random.next() % 10 {
                    0..=3 => _ = engine.add(&filter, &some).await.unwrap(),
                    // What is not there has no effect, nor has what comes twice.
                    4 | 5 if filter.is_erasable() => {
                        for _ in 0..2 {
                            engine.remove_as(&filter, &some, request).await.unwrap();
                        }
                    }
                    6 => {
                        for _ in 0..2 {
                            engine.add_as(&filter, &some, request).await.unwrap();
                        }
                    }
                    7 => hosts_change(&world).await,
                    8 => {
                        for node in 0..NODES {
                            let _ = world.engine(node).checkpoint().await;
                            let _ = world.engine(node).follow().await;
                        }
                    }
                    _ => {}
                }
                match follow(&world, "f", &copy, &random).await {
                    Ok(Taken::Done) => followed += 1,
                    // A host that was not there all the time does not know: then a version does.
                    Ok(_) | Err(Error::Trimmed { .. }) => {
                        let version = engine.publish(&filter).await.unwrap();
                        copy = copied(&engine, version).await;
                    }
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            let (engine, filter) = (world.engine(0), found(&world, 0, "f").await);
            let version = engine.publish(&filter).await.unwrap();
            if let Ok(Taken::Done) = follow(&world, "f", &copy, &random).await {
                assert_eq!(copy.digest(), version.digest(), "seed {seed}");
                assert_eq!(copy.items(), engine.counts(&filter).await.unwrap().items, "seed {seed}");
            }
        });
    }
    assert!(followed > 500, "{followed} times the log was enough");
}
