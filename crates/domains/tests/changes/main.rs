//! Records that come and go, and a filter that ends up exactly right: with many threads, and with a drain that dies at every step.
//! The same in every database; those that are servers have to be started: `cargo xtask planes`.
#![cfg(feature = "sqlite")]

#[cfg(all(feature = "mysql", feature = "postgres"))]
#[path = "../../../adapters/tests/common/mod.rs"]
#[expect(clippy::disallowed_methods, reason = "real servers are waited for in real time")]
mod common;
mod databases;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use databases::{Database, Sqlite, User};
use tokio::sync::Notify;
use umbel_core::clock::ManualClock;
use umbel_core::definition::Growth;
use umbel_core::engine::{Answer, Engine, Handle, NewFilter, Settings, Sharding};
use umbel_core::entry::Request;
use umbel_core::log::MemoryLog;
use umbel_core::random::{Random, SeededRandom};
use umbel_domains::changes::{Batch, Counting, Drain, Effect, Outbox, SqliteOutbox, Table};
use umbel_domains::{EngineFilter, Error, Hot, HotSettings, Result};
use umbel_filter::{Family, Hasher, Spec};

struct World {
    database: Box<dyn Database>,
    log: Arc<MemoryLog>,
    blobs: Arc<object_store::memory::InMemory>,
}

impl World {
    fn new(database: impl Database) -> Self {
        Self { database: Box::new(database), log: Arc::new(MemoryLog::new(2)), blobs: Arc::default() }
    }

    fn user(&self) -> Arc<dyn User> {
        self.database.user()
    }

    fn rows(&self) -> BTreeSet<String> {
        self.database.rows()
    }

    async fn engine(&self) -> Arc<Engine> {
        let builder = Engine::builder(Settings { slots: 4, ..Settings::default() });
        let builder = builder.with_log(Arc::clone(&self.log) as _).with_blobs(Arc::clone(&self.blobs) as _);
        Arc::new(builder.open().await.unwrap())
    }
}

/// A small filter with many keys for each of its lines, so that keys collide; in one slot, or in all.
async fn create(engine: &Engine, name: &str, sharding: Sharding) -> Arc<Handle> {
    let spec = Spec::counting(128, 0.2);
    engine.create(NewFilter { sharding, growth: Growth::Fixed, ..NewFilter::new(name, spec) }).await.unwrap()
}

fn filter(engine: &Arc<Engine>) -> Arc<EngineFilter> {
    Arc::new(EngineFilter::new(Arc::clone(engine), "records"))
}

async fn counts(engine: &Engine, keys: &[String]) -> Vec<u64> {
    let filter = engine.filter("records").unwrap();
    let keys: Vec<_> = keys.iter().map(|key| filter.hasher().fingerprint(key.as_bytes())).collect();
    engine.verify(&filter, &keys).await.unwrap()
}

#[tokio::test]
async fn the_filter_follows_the_records() {
    follows(Sqlite::new("follows")).await;
}

async fn follows(database: impl Database) {
    let world = World::new(database);
    let (engine, outbox) = (world.engine().await, world.user());
    create(&engine, "records", Sharding::Whole).await;
    let hasher = Hasher::new(Family::Murmur3, None).unwrap();
    let hot = Arc::new(Hot::new(HotSettings::default(), hasher, Arc::new(ManualClock::default())));
    let drain = Drain::new(Arc::clone(&outbox) as _, filter(&engine)).forgetting(hot);
    assert_eq!(
        (outbox.put("a"), outbox.put("a"), outbox.put("b")),
        (Effect::Added, Effect::Changed, Effect::Added)
    );
    assert!(outbox.erase("b") && !outbox.erase("b"));
    assert_eq!(outbox.waiting(), 4);
    assert_eq!(drain.run().await.unwrap(), 4);
    assert_eq!((outbox.waiting(), drain.run().await.unwrap()), (0, 0));
    let keys = ["a", "b", "c"].map(str::to_owned);
    assert_eq!(counts(&engine, &keys).await, [1, 0, 0]);
    // What is rolled back never was.
    outbox.put_in_vain("c");
    assert_eq!(outbox.put("c"), Effect::Added);
    // Somebody has loaded the table meanwhile, and so the filter holds keys twice, or although they are gone.
    let handle = engine.filter("records").unwrap();
    let again: Vec<_> = keys.iter().map(|key| handle.hasher().fingerprint(key.as_bytes())).collect();
    engine.add(&handle, &again).await.unwrap();
    assert!(outbox.erase("a") && outbox.put("b") == Effect::Added);
    drain.run().await.unwrap();
    assert_eq!(counts(&engine, &keys).await, [0, 1, 1]);
    assert_eq!(handle.contains(again[1]), Answer::Maybe);
    // A database that was restored from a copy counts its batches anew.
    world.database.run("UPDATE umbel_drain SET batch = 0");
    assert!(outbox.erase("b") && outbox.put("a") == Effect::Added);
    drain.run().await.unwrap();
    assert_eq!(counts(&engine, &keys).await, [1, 0, 1]);
    let bloom = EngineFilter::new(Arc::clone(&engine), "bloom");
    assert!(matches!(bloom.counts(&[]).await, Err(Error::Retry(_))), "there is no such filter");
    engine.create(NewFilter::new("bloom", Spec::bloom(100, 0.1))).await.unwrap();
    assert!(matches!(bloom.counts(&[]).await, Err(Error::Invalid(_))), "nothing can be erased from it");
}

#[test]
fn keys_are_noted_as_the_table_has_them() {
    let database = Sqlite::new("noted");
    let connection = database.connection();
    connection
        .execute_batch(
            "CREATE TABLE numbers (number INTEGER PRIMARY KEY); CREATE TABLE raw (key BLOB UNIQUE)",
        )
        .unwrap();
    let outbox = SqliteOutbox::of(connection, &SeededRandom::new(1)).unwrap();
    let (numbers, raw) = (Table::new("numbers", "number").unwrap(), Table::new("raw", "key").unwrap());
    outbox
        .change(|transaction| {
            assert_eq!(numbers.put(transaction, b"007", &[])?, Added);
            assert_eq!(numbers.put(transaction, b"7", &[])?, Changed);
            assert!(numbers.erase(transaction, b"07")?);
            assert_eq!(raw.put(transaction, &[0xff, 0], &[])?, Added);
            assert!(raw.erase(transaction, &[0xff, 0])? && !raw.erase(transaction, b"' OR 1=1 --")?);
            Ok(())
        })
        .unwrap();
    let batch = outbox.claim().unwrap().unwrap();
    let keys: Vec<_> = batch.changes.iter().map(|change| (&change.key[..], change.effect)).collect();
    let raw: &[u8] = &[0xff, 0];
    use Effect::{Added, Changed, Erased};
    assert_eq!(keys, [(&b"7"[..], Added), (b"7", Changed), (b"7", Erased), (raw, Added), (raw, Erased)]);
    assert_eq!(outbox.claim().unwrap().unwrap(), batch, "what was claimed stays as it is");
    assert!(Table::new("", "a").is_err() && Table::new("a\0", "b").is_err());
}

/// Dies at one of many places.
#[derive(Debug, Default)]
struct Bomb {
    at: usize,
    passed: AtomicUsize,
    exploded: Notify,
    has_exploded: AtomicBool,
}

impl Bomb {
    fn explodes(&self) -> bool {
        let explodes = self.passed.fetch_add(1, Ordering::SeqCst) == self.at;
        if explodes {
            self.has_exploded.store(true, Ordering::SeqCst);
            self.exploded.notify_one();
        }
        explodes
    }

    async fn pass(&self) {
        if self.explodes() {
            std::future::pending::<()>().await;
        }
    }

    fn pass_or_fail(&self) -> Result<()> {
        if self.explodes() { Err(Error::Retry("boom".into())) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct Mined<T>(T, Arc<Bomb>);

impl Outbox for Mined<Arc<dyn User>> {
    fn claim(&self) -> Result<Option<Batch>> {
        self.1.pass_or_fail()?;
        let claimed = self.0.claim()?;
        self.1.pass_or_fail()?;
        Ok(claimed)
    }

    fn finish(&self, number: u64) -> Result<()> {
        self.1.pass_or_fail()?;
        self.0.finish(number)?;
        self.1.pass_or_fail()
    }
}

#[async_trait]
impl Counting for Mined<Arc<EngineFilter>> {
    async fn add(&self, keys: &[Vec<u8>], request: Request) -> Result<()> {
        self.1.pass().await;
        let done = self.0.add(keys, request).await;
        self.1.pass().await;
        done
    }

    async fn remove(&self, keys: &[Vec<u8>], request: Request) -> Result<()> {
        self.1.pass().await;
        let done = self.0.remove(keys, request).await;
        self.1.pass().await;
        done
    }

    async fn counts(&self, keys: &[Vec<u8>]) -> Result<Vec<u64>> {
        self.1.pass().await;
        let counts = self.0.counts(keys).await;
        self.1.pass().await;
        counts
    }

    async fn sync(&self) -> Result<()> {
        self.1.pass().await;
        let synced = self.0.sync().await;
        self.1.pass().await;
        synced
    }
}

#[tokio::test]
async fn a_drain_that_dies_at_any_step_loses_nothing_and_does_nothing_twice() {
    dies(Sqlite::new).await;
}

async fn dies<D: Database>(new: impl Fn(&str) -> D) {
    for (sharding, restarts) in
        [(Sharding::Whole, false), (Sharding::Everywhere, false), (Sharding::Everywhere, true)]
    {
        let mut deaths = 0;
        loop {
            let world = World::new(new(&format!("dies-{sharding:?}-{restarts}-{deaths}")));
            let (mut engine, outbox) = (world.engine().await, world.user());
            create(&engine, "records", sharding).await;
            for key in ["a", "b", "x", "y"] {
                outbox.put(key);
            }
            Drain::new(Arc::clone(&outbox) as _, filter(&engine)).run().await.unwrap();
            outbox.erase("a");
            outbox.put("b");
            outbox.put("c");
            outbox.put("d");
            outbox.erase("d");
            outbox.erase("x");
            let bomb = Arc::new(Bomb { at: deaths, ..Bomb::default() });
            let mined = Arc::new(Mined(filter(&engine), Arc::clone(&bomb)));
            let drain = Drain::new(Arc::new(Mined(Arc::clone(&outbox), Arc::clone(&bomb))), mined);
            tokio::select! {
                _ = drain.run() => {}
                () = bomb.exploded.notified() => {}
            }
            drop(drain);
            // Life goes on before another drain comes: what was about to be removed is there again, and the other way round.
            if deaths % 2 == 1 {
                outbox.put("a");
                outbox.erase("c");
            }
            if restarts {
                drop(engine);
                engine = world.engine().await;
            }
            Drain::new(world.user(), filter(&engine)).run().await.unwrap();
            let keys = ["a", "b", "c", "d", "x", "y"].map(str::to_owned);
            let rows = world.rows();
            let expected: Vec<u64> = keys.iter().map(|key| u64::from(rows.contains(key))).collect();
            assert_eq!(counts(&engine, &keys).await, expected, "death {deaths}, {sharding:?}, {restarts}");
            let handle = engine.filter("records").unwrap();
            assert_eq!((handle.held(), outbox.waiting()), (rows.len() as u64, 0), "death {deaths}");
            if !bomb.has_exploded.load(Ordering::SeqCst) {
                break;
            }
            deaths += 1;
        }
        println!("{sharding:?}, restarts: {restarts}: died at {deaths} places");
        assert!(deaths >= 12, "{deaths}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_threads_on_colliding_keys_end_exact() {
    threads(Sqlite::new).await;
}

async fn threads<D: Database>(new: impl Fn(&str) -> D) {
    const THREADS: u64 = 8;
    const CHANGES: usize = 250;
    for sharding in [Sharding::Whole, Sharding::Everywhere] {
        let world = Arc::new(World::new(new(&format!("threads-{sharding:?}"))));
        let engine = world.engine().await;
        create(&engine, "records", sharding).await;
        let drain = Drain::new(world.user(), filter(&engine));
        let keys: Vec<String> = (0..48).map(|number| format!("record {number}")).collect();
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (world, keys) = (Arc::clone(&world), keys.clone());
                std::thread::spawn(move || {
                    let (outbox, random) = (world.user(), SeededRandom::new(thread));
                    let [mut added, mut changed, mut erased] = [0_u64; 3];
                    for _ in 0..CHANGES {
                        let number = random.next();
                        let key = &keys[(number >> 8) as usize % keys.len()];
                        if number % 2 == 0 {
                            match outbox.put(key) {
                                Effect::Added => added += 1,
                                _ => changed += 1,
                            }
                        } else {
                            erased += u64::from(outbox.erase(key));
                        }
                    }
                    [added, changed, erased]
                })
            })
            .collect();
        let mut told = 0;
        while !writers.iter().all(std::thread::JoinHandle::is_finished) {
            told += drain.run().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let mut sums = [0; 3];
        for writer in writers {
            sums.iter_mut().zip(writer.join().unwrap()).for_each(|(sum, more)| *sum += more);
        }
        told += drain.run().await.unwrap();
        let [added, changed, erased] = sums;
        assert_eq!(told, added + changed + erased);
        let rows = world.rows();
        println!(
            "{sharding:?}: {added} added, {changed} changed, {erased} erased, {} left, {told} told",
            rows.len()
        );
        assert_eq!(rows.len() as u64, added - erased);
        let expected: Vec<u64> = keys.iter().map(|key| u64::from(rows.contains(key))).collect();
        assert_eq!(counts(&engine, &keys).await, expected);
        // The array is that of a filter which has never seen anything but the rows that are left.
        let (filter, fresh) = (engine.filter("records").unwrap(), create(&engine, "fresh", sharding).await);
        let left: Vec<_> = rows.iter().map(|key| filter.hasher().fingerprint(key.as_bytes())).collect();
        engine.add(&fresh, &left).await.unwrap();
        assert_eq!((filter.held(), fresh.held()), (rows.len() as u64, rows.len() as u64));
        let strangers =
            (0..20_000).map(|number| filter.hasher().fingerprint(format!("stranger {number}").as_bytes()));
        let strangers: Vec<_> = strangers.collect();
        let said =
            |handle: &Handle| strangers.iter().filter(|key| handle.contains(**key) == Answer::Maybe).count();
        assert_eq!(said(&filter), said(&fresh));
        assert!(strangers.iter().all(|key| filter.contains(*key) == fresh.contains(*key)));
        if matches!(sharding, Sharding::Whole) {
            // With all keys in it, strangers are taken for some of them: so keys share counters, and what was erased could take others along.
            let crowded = create(&engine, "crowded", sharding).await;
            let all: Vec<_> = keys.iter().map(|key| filter.hasher().fingerprint(key.as_bytes())).collect();
            engine.add(&crowded, &all).await.unwrap();
            assert!(said(&crowded) > 0, "keys should collide here");
        }
    }
}
