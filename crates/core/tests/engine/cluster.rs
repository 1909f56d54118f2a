//! Several engines on one log: each answers for all, whoever hosts what, and whatever becomes of the others.

mod looks;
mod names;
mod orphans;
mod rebuilds;
mod threads;
mod trims;
mod versions;
mod wholes;
mod windows;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use umbel_core::clock::ManualClock;
use umbel_core::engine::{
    Answer, Applied, BlocksFrom, Cluster, Consistency, Engine, Handle, NewFilter, PartChanges, PartOf,
    Publication, Question, Role, Settings, Shape, Told,
};
use umbel_core::entry::Request;
use umbel_core::fold::Counts;
use umbel_core::log::{Log, MemoryLog};
use umbel_core::random::{Random, SeededRandom};
use umbel_core::registry::EmbeddedRegistry;
use umbel_core::version::VersionShard;
use umbel_core::{Error, Position, Result};
use umbel_filter::{Fingerprint, Spec};

use crate::world::{everywhere, key, keys, run};

const NODES: usize = 3;
const SLOTS: u32 = 8;
const PARTITIONS: u32 = 4;

/// Who is the first host of each partition, as of some version.
#[derive(Clone, Debug, Default, PartialEq)]
struct Table {
    version: u64,
    first: Vec<usize>,
}

/// The network and the registry of a cluster.
#[derive(Debug, Default)]
struct Town {
    engines: RwLock<Vec<Option<Arc<Engine>>>>,
    seats: Mutex<Vec<Knowledge>>,
    /// What was sent and may be sent again.
    sent: Mutex<Vec<(u32, Bytes)>>,
    table: Mutex<Table>,
    /// The rule that nodes break, so that it is known that tests find it.
    broken: Mutex<Option<names::Rule>>,
}

/// What a node knows of the others.
#[derive(Clone, Debug, Default)]
struct Knowledge {
    /// What it acts on.
    table: Table,
    /// The number of the listing that it acts on: of the table and of the nodes that had a lease.
    listing: u64,
    /// The listing that each node with a lease acted on when this one last looked.
    seen: Vec<Option<u64>>,
    has_lease: bool,
    /// Another one whenever it learned something.
    term: u64,
}

impl Knowledge {
    /// Whether all nodes act on the same.
    fn is_settled(&self) -> bool {
        self.seen.iter().flatten().all(|listing| *listing == self.listing)
    }
}

/// A node's place in the town.
#[derive(Debug)]
struct Seat {
    town: Arc<Town>,
    me: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Town {
    fn engine(&self, node: usize) -> Result<Arc<Engine>> {
        let engines = self.engines.read().unwrap();
        engines[node].clone().ok_or_else(|| Error::Retry(format!("node {node} is away")))
    }

    fn knows(&self, node: usize) -> Knowledge {
        lock(&self.seats)[node].clone()
    }

    /// A node learns what the registry says. It acts on it before others know that it does.
    fn learn(&self, node: usize) {
        let table = lock(&self.table).clone();
        let mut seats = lock(&self.seats);
        let had_lease = std::mem::replace(&mut seats[node].has_lease, true);
        let leases =
            seats.iter().enumerate().map(|(node, seat)| u64::from(seat.has_lease) << node).sum::<u64>();
        seats[node].listing = table.version << NODES | leases;
        let is_new = std::mem::replace(&mut seats[node].table, table.clone()) != table;
        let seen: Vec<_> = seats.iter().map(|seat| seat.has_lease.then_some(seat.listing)).collect();
        let seat = &mut seats[node];
        if is_new || !had_lease || seat.seen != seen {
            (seat.seen, seat.term) = (seen, seat.term + 1);
        }
    }

    /// Makes a node the first host of a partition.
    fn move_to(&self, partition: u32, node: usize) {
        let mut table = lock(&self.table);
        table.version += 1;
        table.first[partition as usize] = node;
    }
}

impl Seat {
    fn first(&self, partition: u32) -> usize {
        self.town.knows(self.me).table.first[partition as usize]
    }
}

#[async_trait]
impl Cluster for Seat {
    fn role(&self, partition: u32) -> Role {
        let mine = self.town.knows(self.me);
        let is_first = mine.table.first[partition as usize] == self.me;
        if mine.has_lease && mine.is_settled() && is_first {
            Role::First { term: mine.term }
        } else {
            Role::Other
        }
    }

    fn has_lease(&self) -> bool {
        self.town.knows(self.me).has_lease
    }

    async fn find(&self, catalog: u32, name: &str) -> Result<Option<(u64, Position)>> {
        self.town.engine(self.first(catalog))?.find_for_peer(name).await
    }

    fn term_as_confirmer(&self, _catalog: u32) -> Option<u64> {
        let (mine, broken) = (self.town.knows(self.me), *lock(&self.town.broken));
        let has_lease = mine.has_lease || broken == Some(names::Rule::NamesWithLease);
        let is_settled = mine.is_settled() || broken == Some(names::Rule::NamesInSettledView);
        let term = if broken == Some(names::Rule::NamesReadOnce) { 1 } else { mine.term };
        (has_lease && is_settled).then_some(term)
    }

    async fn confirm(&self, catalog: u32, position: Position) -> Result<()> {
        let mine = self.town.knows(self.me);
        if *lock(&self.town.broken) == Some(names::Rule::ChangesConfirmed) {
            return Ok(());
        }
        if !mine.has_lease || !mine.is_settled() {
            return Err(Error::Retry("not all nodes act on the same".into()));
        }
        for node in (0..NODES).filter(|node| mine.seen[*node].is_some()) {
            let engine = self.town.engine(node)?;
            let mut reached = engine.reach_for_peer(catalog, position).await;
            for _ in 0..10 {
                // The log was trimmed before it was read there: newer checkpoints are taken in.
                if !matches!(reached, Err(Error::Retry(_))) {
                    break;
                }
                let _ = engine.follow().await;
                reached = engine.reach_for_peer(catalog, position).await;
            }
            reached?;
        }
        Ok(())
    }

    async fn submit(&self, entries: Vec<(u32, Bytes)>, repeatable: bool) -> Result<Vec<Applied>> {
        let mut applied = Vec::new();
        if repeatable {
            lock(&self.town.sent).extend(entries.iter().cloned());
        }
        for (partition, entry) in entries {
            let first = self.town.engine(self.first(partition))?;
            applied.extend(first.submit_for_peer(vec![(partition, entry)]).await?);
        }
        Ok(applied)
    }

    async fn contains(&self, question: Question<'_>) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for (number, key) in question.keys.iter().enumerate() {
            let first = self.town.engine(self.first(question.partition(number)))?;
            answers.extend(first.contains_for_peer(question.filter, &[*key], question.after).await?);
        }
        Ok(answers)
    }

    async fn look(&self, question: Question<'_>, consistency: Consistency) -> Result<Told> {
        let mut all = Told::default();
        for (number, key) in question.keys.iter().enumerate() {
            let first = self.town.engine(self.first(question.partition(number)))?;
            let told = first.look_for_peer(question.filter, &[*key], question.after, consistency).await?;
            all.answers.extend(told.answers);
            told.position.positions().for_each(|(partition, position)| all.position.see(partition, position));
            all.age = all.age.max(told.age);
        }
        Ok(all)
    }

    async fn verify(&self, question: Question<'_>) -> Result<Vec<u64>> {
        let mut counts = Vec::new();
        for (number, key) in question.keys.iter().enumerate() {
            let first = self.town.engine(self.first(question.partition(number)))?;
            counts.extend(first.verify_for_peer(question.filter, &[*key]).await?);
        }
        Ok(counts)
    }

    async fn reach(&self, partition: u32, position: Position) -> Result<()> {
        let mine = self.town.knows(self.me);
        if !mine.has_lease {
            return Err(Error::Retry("no lease".into()));
        }
        if mine.is_settled() {
            return self.town.engine(self.first(partition))?.reach_for_peer(partition, position).await;
        }
        // Some other node may still think that it is the first.
        for node in (0..NODES).filter(|node| mine.seen[*node].is_some()) {
            match self.town.engine(node)?.reach_for_peer(partition, position).await {
                Err(Error::Moved(_)) => {}
                reached => reached?,
            }
        }
        Ok(())
    }

    async fn counts(&self, filter: u64, partitions: &[u32]) -> Result<Vec<Counts>> {
        let mut all = Vec::new();
        for partition in partitions {
            let first = self.town.engine(self.first(*partition))?;
            all.extend(first.counts_for_peer(filter, &[*partition]).await?);
        }
        Ok(all)
    }

    async fn keys(&self, part: PartOf, after: Option<Fingerprint>) -> Result<Vec<(Fingerprint, u32)>> {
        self.town.engine(self.first(part.partition))?.keys_for_peer(part, after).await
    }

    async fn shapes(&self, parts: &[PartOf], digested: bool) -> Result<Vec<Shape>> {
        let mut all = Vec::new();
        for part in parts {
            let first = self.town.engine(self.first(part.partition))?;
            all.extend(first.shapes_for_peer(&[*part], digested).await?);
        }
        Ok(all)
    }

    async fn blocks(&self, part: PartOf, from: BlocksFrom, bytes_max: usize) -> Result<Bytes> {
        self.town.engine(self.first(part.partition))?.blocks_for_peer(part, from, bytes_max).await
    }

    async fn publish(&self, parts: &[PartOf], publication: &Publication) -> Result<Vec<VersionShard>> {
        let mut all = Vec::new();
        for part in parts {
            let first = self.town.engine(self.first(part.partition))?;
            let mut made = first.publish_for_peer(&[*part], publication).await;
            for _ in 0..10 {
                // Another node made checkpoints before: they are taken over, and it is asked again.
                if !matches!(made, Err(Error::Moved(_) | Error::Retry(_))) {
                    break;
                }
                let _ = first.follow().await;
                made = first.publish_for_peer(&[*part], publication).await;
            }
            all.extend(made?);
        }
        Ok(all)
    }

    async fn changes(&self, filter: u64, after: &[(u32, Position)]) -> Result<Vec<PartChanges>> {
        let mut all = Vec::new();
        for place in after {
            let first = self.town.engine(self.first(place.0))?;
            let mut told = first.changes_for_peer(filter, &[*place]).await;
            if let Err(Error::Moved(_) | Error::Retry(_)) = told {
                // It is taken in anew, because the log that this node had to read was trimmed.
                let _ = first.follow().await;
                told = first.changes_for_peer(filter, &[*place]).await;
            }
            all.extend(told?);
        }
        Ok(all)
    }
}

/// What outlives every node.
struct World {
    town: Arc<Town>,
    log: Arc<MemoryLog>,
    blobs: Arc<InMemory>,
    /// The blobs as the engines see them.
    store: Arc<dyn ObjectStore>,
    registry: Arc<EmbeddedRegistry>,
    random: SeededRandom,
    /// Each node has its own.
    clocks: Vec<ManualClock>,
    checkpoint_bytes: u64,
}

impl World {
    async fn new(seed: u64) -> Self {
        let blobs = Arc::new(InMemory::new());
        Self::on(seed, Arc::clone(&blobs), blobs).await
    }

    async fn on(seed: u64, blobs: Arc<InMemory>, store: Arc<dyn ObjectStore>) -> Self {
        Self::with_checkpoints_after(1, seed, blobs, store).await
    }

    /// One in which so much comes before a checkpoint is due.
    async fn with_checkpoints_after(
        checkpoint_bytes: u64,
        seed: u64,
        blobs: Arc<InMemory>,
        store: Arc<dyn ObjectStore>,
    ) -> Self {
        let world = Self {
            town: Arc::default(),
            log: Arc::new(MemoryLog::new(PARTITIONS)),
            blobs,
            store,
            registry: Arc::new(EmbeddedRegistry::in_memory(Arc::new(ManualClock::default()))),
            random: SeededRandom::new(seed),
            clocks: (0..NODES).map(|_| ManualClock::default()).collect(),
            checkpoint_bytes,
        };
        *world.town.engines.write().unwrap() = vec![None; NODES];
        *lock(&world.town.seats) = vec![Knowledge::default(); NODES];
        *lock(&world.town.table) =
            Table { version: 1, first: (0..PARTITIONS).map(|p| p as usize % NODES).collect() };
        for node in 0..NODES {
            world.start(node).await.unwrap();
        }
        for partition in 0..PARTITIONS {
            let first = lock(&world.town.table).first[partition as usize];
            world.engine(first).host(partition).await.unwrap();
            world.engine((first + 1) % NODES).host(partition).await.unwrap();
        }
        world.everybody_learns();
        world
    }

    async fn start(&self, node: usize) -> Result<()> {
        self.start_on(node, Arc::clone(&self.log) as _).await
    }

    /// Starts a node that sees the log in another way than the others do.
    async fn start_on(&self, node: usize, log: Arc<dyn Log>) -> Result<()> {
        let seat = Arc::new(Seat { town: Arc::clone(&self.town), me: node });
        let settings = Settings {
            slots: SLOTS,
            sharded_above_bytes: 64 << 10,
            memory_bytes: 64 << 20,
            runs_max: 3,
            checkpoint_bytes: self.checkpoint_bytes,
            ..Settings::default()
        };
        let builder = Engine::builder(settings).with_log(log).with_blobs(Arc::clone(&self.store));
        let builder = builder.with_clock(Arc::new(self.clocks[node].clone()));
        let builder = builder.with_random(Arc::new(SeededRandom::new(self.random.next())));
        self.town.learn(node);
        let engine = builder.with_cluster(seat, Arc::clone(&self.registry) as _).open().await?;
        self.town.engines.write().unwrap()[node] = Some(Arc::new(engine));
        Ok(())
    }

    fn engine(&self, node: usize) -> Arc<Engine> {
        self.town.engine(node).unwrap()
    }

    fn below(&self, limit: usize) -> usize {
        (self.random.next() % limit as u64) as usize
    }

    /// The second host of each partition becomes the first, as far behind as it is.
    fn hand_over(&self) {
        for partition in 0..PARTITIONS {
            let first = lock(&self.town.table).first[partition as usize];
            self.town.move_to(partition, (first + 1) % NODES);
        }
        self.everybody_learns();
    }

    /// The same for those whose lease has not ended.
    fn those_with_leases_learn(&self) {
        for _ in 0..2 {
            (0..NODES).filter(|node| self.town.knows(*node).has_lease).for_each(|node| self.town.learn(node));
        }
    }

    /// All nodes that are there learn what the registry says, then who is there since, and then that all have learned it.
    fn everybody_learns(&self) {
        for _ in 0..3 {
            (0..NODES).filter(|node| self.town.engine(*node).is_ok()).for_each(|node| self.town.learn(node));
        }
    }
}

/// The filter of a name that is there. Where the catalog was trimmed before a node read it, newer checkpoints are taken in first.
async fn found(engine: &Engine, name: &str) -> Arc<Handle> {
    for _ in 0..10 {
        match engine.find(name).await {
            Err(Error::Retry(_)) => _ = engine.follow().await,
            found => return found.unwrap().unwrap(),
        }
    }
    panic!("the catalog cannot be read");
}

async fn absent(engine: &Engine, name: &str, keys: &[Fingerprint]) -> usize {
    let filter = found(engine, name).await;
    let answers = engine.contains(&filter, keys, None).await.unwrap();
    assert!(!answers.contains(&Answer::Unknown), "{answers:?}");
    answers.iter().filter(|answer| **answer == Answer::Absent).count()
}

#[test]
fn every_node_answers_for_all() {
    run(async {
        let world = World::new(1).await;
        let spec = Spec::bloom(10_000, 0.001);
        world.engine(0).create(NewFilter::new("small", spec)).await.unwrap();
        world.engine(1).create(everywhere("large", spec)).await.unwrap();
        let twice = world.engine(2).create(NewFilter::new("large", spec)).await;
        assert!(twice.unwrap_err().to_string().contains("there is a filter large already"));
        for node in 0..NODES {
            for name in ["small", "large"] {
                let engine = world.engine(node);
                let filter = engine.find(name).await.unwrap().unwrap();
                let own = keys(node as u64 * 1000..node as u64 * 1000 + 1000);
                let written = engine.add(&filter, &own).await.unwrap();
                assert!(written.answers.iter().filter(|new| **new == Some(true)).count() > 990);
                for other in 0..NODES {
                    assert_eq!(absent(&world.engine(other), name, &own).await, 0);
                    assert!(absent(&world.engine(other), name, &keys(100_000..101_000)).await > 990);
                }
            }
        }
        for node in 0..NODES {
            let engine = world.engine(node);
            let filter = engine.find("large").await.unwrap().unwrap();
            let counts = engine.counts(&filter).await.unwrap();
            assert!(counts.items.abs_diff(3000) < 10 && counts.held == 3000, "{counts:?}");
            assert!(engine.verify(&filter, &keys(0..3000)).await.unwrap().iter().all(|count| *count == 1));
        }
        world.engine(1).drop_filter(&world.engine(1).filter("large").unwrap()).await.unwrap();
        world.engine(0).follow().await.unwrap();
        assert!(world.engine(0).find("large").await.unwrap().is_none());
    });
}

#[test]
fn a_node_without_a_lease_acknowledges_nothing() {
    run(async {
        let world = World::new(2).await;
        let filter = world.engine(0).create(everywhere("seen", Spec::bloom(1000, 0.01))).await.unwrap();
        world.everybody_learns();
        // It sleeps, and others take over what it had.
        lock(&world.town.seats)[0].has_lease = false;
        for partition in 0..PARTITIONS {
            world.engine(1).host(partition).await.unwrap();
            world.town.move_to(partition, 1);
        }
        for node in [1, 2, 1] {
            world.town.learn(node);
        }
        let own = keys(0..100);
        let refused = world.engine(0).add(&filter, &own).await;
        assert!(matches!(refused, Err(Error::Retry(_))), "{refused:?}");
        // It may have been written all the same, and whoever reads the log knows.
        let answers = world.engine(0).contains(&filter, &keys(0..200), None).await.unwrap();
        assert!(answers[..100].contains(&Answer::Maybe));
        world.town.learn(0);
        world.engine(0).add(&filter, &own).await.unwrap();
        assert_eq!(absent(&world.engine(2), "seen", &own).await, 0);
    });
}

#[test]
fn what_comes_again_and_late_has_one_effect() {
    run(async {
        let world = World::new(4).await;
        world.engine(0).create(everywhere("seen", Spec::bloom(5000, 0.01))).await.unwrap();
        world.engine(1).create(NewFilter::new("a", Spec::bloom(100, 0.01))).await.unwrap();
        // Each of them is asked of a node that has to send it to others.
        for node in 0..NODES {
            let engine = world.engine(node);
            let seen = engine.find("seen").await.unwrap().unwrap();
            engine.add(&seen, &keys(0..1000)).await.unwrap();
            engine.clear(&seen).await.unwrap();
            engine.add(&seen, &keys(0..1000)).await.unwrap();
            let first = engine.find("a").await.unwrap().unwrap();
            engine.rename(&first, "b", false).await.unwrap();
            engine.rename(&first, "a", false).await.unwrap();
            engine.expire(&first, Some(u64::MAX - 1)).await.unwrap();
            engine.expire(&first, None).await.unwrap();
            let short = engine.create(NewFilter::new("short", Spec::bloom(100, 0.01))).await.unwrap();
            engine.drop_filter(&short).await.unwrap();
        }
        assert!(lock(&world.town.sent).len() > 20);
        // Nodes that slept do all of it once more.
        let again = std::mem::take(&mut *lock(&world.town.sent));
        for (partition, entry) in again {
            let first = lock(&world.town.table).first[partition as usize];
            world.engine(first).submit_for_peer(vec![(partition, entry)]).await.unwrap();
        }
        for node in 0..NODES {
            let engine = world.engine(node);
            engine.follow().await.unwrap();
            assert_eq!(absent(&engine, "seen", &keys(0..1000)).await, 0, "at {node}");
            for gone in ["b", "short"] {
                assert!(engine.find(gone).await.unwrap().is_none(), "{gone} at {node}");
            }
            let first = engine.find("a").await.unwrap().unwrap();
            assert_eq!(first.definition().expires, None, "at {node}");
        }
    });
}

#[test]
fn counts_are_whole_or_an_error_while_hosts_change() {
    run(async {
        let world = World::new(3).await;
        let filter = world.engine(0).create(everywhere("seen", Spec::counting(10_000, 0.001))).await.unwrap();
        world.engine(0).add(&filter, &keys(0..3000)).await.unwrap();
        let count = async |node: usize| {
            let engine = world.engine(node);
            let filter = engine.find("seen").await.unwrap().unwrap();
            engine.counts(&filter).await
        };
        // Whoever takes over has not read what was added.
        world.hand_over();
        for node in 0..NODES {
            assert_eq!(count(node).await.unwrap().held, 3000, "at {node}");
        }
        for step in 0..20 {
            // One node takes a partition over and knows it alone, or all but one do. Nobody is first then.
            let (partition, to) = (step % PARTITIONS, (step as usize * 7 + 1) % NODES);
            world.engine(to).host(partition).await.unwrap();
            world.town.move_to(partition, to);
            (0..NODES)
                .filter(|node| (*node == to) == (step % 2 == 0))
                .for_each(|node| world.town.learn(node));
            for node in 0..NODES {
                assert_eq!(count(node).await.unwrap().held, 3000, "step {step} at {node}");
            }
            if step % 3 == 0 {
                world.everybody_learns();
            }
        }
        // A partition without a host is no reason to count less.
        world.everybody_learns();
        let first = lock(&world.town.table).first[1];
        world.town.engines.write().unwrap()[first] = None;
        let asked = (first + 1) % NODES;
        assert!(matches!(count(asked).await, Err(Error::Retry(_))), "{:?}", count(asked).await);
        // Nor is one that its host has just let go of.
        world.start(first).await.unwrap();
        let told = count(asked).await;
        assert!(matches!(told, Err(Error::Moved(_))), "{told:?}");
    });
}

/// One of many lives of a cluster.
async fn life(seed: u64, steps: usize, broken: Option<names::Rule>) {
    let world = World::new(seed).await;
    *lock(&world.town.broken) = broken;
    let node = world.below(NODES);
    world.engine(node).create(everywhere("bloom", Spec::bloom(500, 0.01))).await.unwrap();
    world.engine(node).create(everywhere("counting", Spec::counting(400, 0.05))).await.unwrap();
    world.engine(node).create(NewFilter::new("small", Spec::counting(300, 0.05))).await.unwrap();
    // Of each filter, how often a key was added and not taken out; and keys of which that is not known.
    let mut held: HashMap<(&str, u64), u64> = HashMap::new();
    let mut unsure: HashMap<(&str, u64), bool> = HashMap::new();
    let names = ["bloom", "counting", "small"];
    let mut recent: Vec<(&str, Vec<u64>)> = Vec::new();
    let mut register = names::Register::default();
    for step in 0..steps {
        let node = world.below(NODES);
        match world.below(16) {
            0 => world.everybody_learns(),
            // Those that sleep do not.
            1 => world.those_with_leases_learn(),
            _ => {}
        }
        let Ok(engine) = world.town.engine(node) else {
            if world.below(3) == 0 {
                world.start(node).await.unwrap();
                for partition in 0..PARTITIONS {
                    if lock(&world.town.table).first[partition as usize] == node {
                        world.engine(node).host(partition).await.unwrap();
                    }
                }
            }
            continue;
        };
        // Mistakes show in what has just been done.
        let newest = recent.len().saturating_sub(3);
        let again = (world.below(3) > 0).then(|| recent.get(newest + world.below(3))).flatten();
        let (name, numbers) = again.cloned().unwrap_or_else(|| {
            let first = world.below(2000) as u64;
            let numbers = (first..first + 1 + world.below(8) as u64).collect();
            (names[world.below(names.len())], numbers)
        });
        let fingerprints: Vec<Fingerprint> = numbers.iter().map(|number| key(*number)).collect();
        let found = engine.find(name).await;
        match (world.below(30), found) {
            (23.., _) => register.step(&world, node, &engine, &format!("seed {seed}, step {step}")).await,
            (0..6, Ok(found)) => {
                recent.push((name, numbers.clone()));
                let filter = found.unwrap_or_else(|| panic!("seed {seed}, step {step}: {name} is not there"));
                match engine.add(&filter, &fingerprints).await {
                    Ok(_) => numbers.iter().for_each(|number| *held.entry((name, *number)).or_default() += 1),
                    Err(Error::Retry(_) | Error::Moved(_)) => {
                        numbers.iter().for_each(|number| _ = unsure.insert((name, *number), true));
                    }
                    Err(error) => panic!("seed {seed}, step {step}: {error}"),
                }
            }
            (6..8, Ok(Some(filter))) if name != "bloom" => {
                match engine.remove(&filter, &fingerprints).await {
                    Ok(written) => {
                        for (number, there) in numbers.iter().zip(written.answers) {
                            let count = held.entry((name, *number)).or_default();
                            if !unsure.contains_key(&(name, *number)) {
                                assert_eq!(
                                    there,
                                    Some(*count > 0),
                                    "seed {seed}, step {step}: {name} {number}"
                                );
                            }
                            *count = count.saturating_sub(u64::from(there == Some(true)));
                        }
                    }
                    Err(Error::Retry(_) | Error::Moved(_)) => {
                        numbers.iter().for_each(|number| _ = unsure.insert((name, *number), true));
                    }
                    Err(error) => panic!("seed {seed}, step {step}: {error}"),
                }
            }
            (22, Ok(Some(filter))) if name != "bloom" => {
                match engine.add_absent_as(&filter, &fingerprints, Request::default()).await {
                    Ok(written) => {
                        for (number, added) in numbers.iter().zip(written.answers) {
                            let count = held.entry((name, *number)).or_default();
                            if !unsure.contains_key(&(name, *number)) {
                                let what = format!("seed {seed}, step {step}: {name} {number}");
                                assert_eq!(added, Some(*count == 0), "{what}");
                            }
                            *count += u64::from(added == Some(true));
                        }
                    }
                    Err(Error::Retry(_) | Error::Moved(_)) => {
                        numbers.iter().for_each(|number| _ = unsure.insert((name, *number), true));
                    }
                    Err(error) => panic!("seed {seed}, step {step}: {error}"),
                }
            }
            (8..13, Ok(Some(filter))) => {
                let answers = match world.below(3) {
                    0 => engine
                        .look(&filter, &fingerprints, None, Consistency::Strong)
                        .await
                        .map(|told| told.answers),
                    _ => engine.contains(&filter, &fingerprints, None).await,
                };
                let Ok(answers) = answers else { continue };
                for (number, answer) in numbers.iter().zip(answers) {
                    let is_held = held.get(&(name, *number)).is_some_and(|count| *count > 0);
                    if is_held && !unsure.contains_key(&(name, *number)) {
                        assert_eq!(
                            answer,
                            Answer::Maybe,
                            "seed {seed}, step {step}: {name} {number} at {node}"
                        );
                    }
                }
            }
            (13, Ok(Some(filter))) => {
                let Ok(counts) = engine.verify(&filter, &fingerprints).await else { continue };
                for (number, count) in numbers.iter().zip(counts) {
                    let expected = held.get(&(name, *number)).copied().unwrap_or(0);
                    let expected = if name == "bloom" { expected.min(1) } else { expected };
                    if !unsure.contains_key(&(name, *number)) {
                        assert_eq!(count, expected, "seed {seed}, step {step}: {name} {number} at {node}");
                    }
                }
            }
            (14, _) => _ = engine.follow().await,
            (15..17, _) => _ = engine.maintain().await,
            (17..19, _) => {
                // Another node becomes the first host; not everybody hears of it at once.
                let partition = world.below(PARTITIONS as usize) as u32;
                if engine.host(partition).await.is_ok() {
                    world.town.move_to(partition, node);
                    world.town.learn(node);
                    if world.below(2) == 0 {
                        world.everybody_learns();
                    }
                }
            }
            (19, _) => {
                let is_first = |partition: &u32| lock(&world.town.table).first[*partition as usize] == node;
                let partition = world.below(PARTITIONS as usize) as u32;
                if !is_first(&partition) && partition != engine.catalog() && engine.hosts(partition) {
                    // Only when all know that it is not the first any more.
                    world.everybody_learns();
                    engine.release(partition).await.unwrap();
                }
            }
            (20, _) => match world.below(3) {
                0 => {
                    // It dies. What it was the first host of has none until it or another takes over.
                    world.town.engines.write().unwrap()[node] = None;
                    lock(&world.town.seats)[node].has_lease = false;
                }
                1 => lock(&world.town.seats)[node].has_lease = false,
                _ => world.everybody_learns(),
            },
            (21, Ok(Some(filter))) if world.below(5) == 0 => {
                // What is gathered from all nodes is what was acknowledged, each key as often as it is held.
                let union = NewFilter::new(format!("union {step}"), Spec::counting(3000, 0.01));
                let Ok(union) = engine.create(union).await else { continue };
                if engine.merge(&union, &[filter]).await.is_ok() {
                    let sure = held.iter().filter(|(at, _)| at.0 == name && !unsure.contains_key(*at));
                    let sure: Vec<(u64, u64)> = sure.map(|((_, number), count)| (*number, *count)).collect();
                    let asked: Vec<Fingerprint> = sure.iter().map(|(number, _)| key(*number)).collect();
                    let counts = engine.verify(&union, &asked).await.unwrap_or_default();
                    for ((number, count), told) in sure.into_iter().zip(counts) {
                        let count = if name == "bloom" { count.min(1) } else { count };
                        assert_eq!(told, count, "seed {seed}, step {step}: {name} {number} at {node}");
                    }
                }
                let _ = engine.drop_filter(&union).await;
            }
            _ => {}
        }
    }
    for node in 0..NODES {
        if world.town.engine(node).is_err() {
            world.start(node).await.unwrap();
        }
    }
    world.everybody_learns();
    let mut digests: HashMap<usize, u128> = HashMap::new();
    for partition in 0..PARTITIONS {
        let first = lock(&world.town.table).first[partition as usize];
        world.engine(first).host(partition).await.unwrap();
    }
    for node in 0..NODES {
        let engine = world.engine(node);
        // Generations are built where they answer first, and others follow the log.
        engine.maintain().await.unwrap();
    }
    for node in 0..NODES {
        // Whoever is behind what the others trimmed finds out some time, and then takes their checkpoints.
        for _ in 0..10 {
            let _ = world.engine(node).follow().await;
        }
    }
    for node in 0..NODES {
        for (slot, digest) in world.engine(node).digests().await.unwrap().into_iter().enumerate() {
            if digest != 0 {
                let known = *digests.entry(slot).or_insert(digest);
                assert_eq!(known, digest, "seed {seed}: slot {slot} differs at node {node}");
            }
        }
    }
    orphans::are_removed(&world, seed, 4).await;
    for node in 0..NODES {
        for ((name, number), _) in held.iter().filter(|(at, count)| **count > 0 && !unsure.contains_key(*at))
        {
            assert_eq!(
                absent(&world.engine(node), name, &[key(*number)]).await,
                0,
                "seed {seed}: {name} {number}"
            );
        }
    }
}

#[test]
fn many_lives_of_a_cluster() {
    let cases = std::env::var("UMBEL_CLUSTER_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let first = std::env::var("UMBEL_CLUSTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in first..first + cases {
        run(life(seed, 600, None));
    }
}
