use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::engine::Role;
use crate::random::{Random, SeededRandom};
use crate::registry::{Change, EmbeddedRegistry, Expected, Lease, Listing, Registry, Versioned};

const LEASE: Duration = Duration::from_secs(5);
const PARTITIONS: u32 = 16;

fn record(name: &str, serves: &[u32]) -> Record {
    Record {
        name: name.to_owned(),
        instance: 7,
        address: format!("{name}.example:6380"),
        zone: String::new(),
        weight: 100,
        leaving: false,
        serves: serves.iter().copied().collect(),
        unreached: BTreeSet::new(),
        view: 0,
    }
}

fn view(nodes: Vec<Record>) -> View {
    View::new(nodes, PARTITIONS, 2, 1, None).unwrap()
}

fn everything() -> Vec<u32> {
    (0..PARTITIONS).collect()
}

#[test]
fn records_are_read_as_they_were_written() {
    let wide = Record {
        zone: "east-1".into(),
        leaving: true,
        view: u64::MAX,
        serves: [0, 63, 64, 4095].into_iter().collect(),
        unreached: [("b".to_owned(), 9), ("c-2".to_owned(), u64::MAX)].into(),
        ..record("a.b_c-1", &[])
    };
    for record in [record("a", &[]), wide] {
        assert_eq!(Record::decode("key", &record.encode()).unwrap(), record);
    }
    let text = String::from_utf8(record("a", &[3]).encode().to_vec()).unwrap();
    let wrong = [
        text.replace("format 1", "format 2"),
        text.replace("weight 100", "weight 0"),
        text.replace("name a\n", ""),
        format!("{text}name a\n"),
        text.replace("name a", "name a/b"),
        text.replace(":6380", ""),
        text.replace("leaving no", "leaving perhaps"),
        text.replace("0000000000000008", "08"),
        text.replace("0000000000000008", &vec!["0000000000000001"; 65].join(".")),
        text.replace("0000000000000008", "0000000000000008.0000000000000000"),
        text.replace("unreached -", "unreached b"),
        text.replace("unreached -", "unreached b:7"),
        text.replace("unreached -", &format!("unreached {}", unreached_words(65))),
        format!("{text}{}", "x".repeat(16 << 10)),
    ];
    for text in wrong {
        assert!(Record::decode("key", text.as_bytes()).is_err(), "{text}");
    }
    assert!(Record::decode("key", &[0xff]).is_err());
    // A later version may say more.
    assert!(Record::decode("key", format!("{text}colour blue\n").as_bytes()).is_ok());
}

proptest! {
    #[test]
    fn damaged_records_and_tables_do_no_harm(at in 0_usize..200, byte: u8) {
        let mut bytes = record("a", &[1, 2, 3]).encode().to_vec();
        let place = at % bytes.len();
        bytes[place] = byte;
        let _ = Record::decode("key", &bytes);
        let nodes = view(vec![record("a", &everything()), record("b", &everything())]);
        let mut bytes = Table::after(None, &nodes).encode().to_vec();
        let place = at % bytes.len();
        bytes[place] = byte;
        let _ = Table::decode(&bytes);
    }
}

#[test]
fn hosts_are_those_of_the_ring_that_serve_and_then_others() {
    let names = ["a", "b", "c"];
    let empty = view(names.map(|name| record(name, &[])).to_vec());
    assert!((0..PARTITIONS).all(|partition| empty.first(partition).is_none()));
    for partition in 0..PARTITIONS {
        let planned: Vec<&str> = empty.ring_hosts(partition).collect();
        assert_eq!(planned.len(), 2);
        let other = names.into_iter().find(|name| !planned.contains(name)).unwrap();
        let serving = |serving: &[&str]| {
            let nodes = names.map(|name| {
                record(name, if serving.contains(&name) { std::slice::from_ref(&partition) } else { &[] })
            });
            view(nodes.to_vec())
        };
        let hosts = |view: &View| view.hosts(partition).map(|node| node.name.clone()).collect::<Vec<_>>();
        assert_eq!(hosts(&serving(&[other])), [other]);
        assert_eq!(hosts(&serving(&[other, planned[1]])), [planned[1], other]);
        let all = serving(&names);
        assert_eq!(hosts(&all), [planned[0], planned[1], other]);
        assert!(all.may_release(other, partition) && !all.may_release(planned[1], partition));
        assert!(!serving(&[other, planned[0]]).may_release(other, partition));
        assert!(all.wanted(planned[0]).contains(&partition) && !all.wanted(other).contains(&partition));
    }
}

#[test]
fn who_leaves_is_wanted_nowhere_and_keeps_what_it_has_until_others_do() {
    let leaving = Record { leaving: true, ..record("a", &everything()) };
    let alone = view(vec![leaving.clone()]);
    assert!(alone.wanted("a").is_empty() && !alone.may_release("a", 0));
    assert_eq!(alone.first(0).unwrap().name, "a");
    let with = view(vec![leaving.clone(), record("b", &[3])]);
    assert_eq!(with.wanted("b"), everything());
    assert!(with.may_release("a", 3) && !with.may_release("a", 4));
    assert_eq!((with.first(3).unwrap().name.as_str(), with.first(4).unwrap().name.as_str()), ("b", "a"));
}

#[test]
fn a_view_is_settled_when_all_name_it() {
    let mut nodes = vec![record("a", &[1]), record("b", &[2])];
    let digest = view(nodes.clone()).digest();
    nodes[0].view = digest;
    assert!(!view(nodes.clone()).is_settled());
    nodes[1].view = digest;
    let settled = view(nodes.clone());
    assert!(settled.is_settled() && settled.digest() == digest);
    // What a node is about to say is not settled, even if nothing changes by it.
    assert!(!settled.with(nodes[0].clone()).unwrap().is_settled());
    nodes[1].instance += 1;
    assert!(!view(nodes.clone()).is_settled());
    nodes[1].name = "a".into();
    assert!(View::new(nodes, PARTITIONS, 2, 1, None).is_err());
}

fn unreached_words(count: u64) -> String {
    let words = (0..count).map(|number| format!("n{number}:{number:016x}"));
    words.collect::<Vec<_>>().join(" ")
}

/// Records of nodes that serve everything, with the connections that are reported as broken: by whom, about whom.
fn with_reports(names: &[&str], reports: &[(&str, &str)]) -> View {
    let nodes = names.iter().map(|name| {
        let of = reports.iter().filter(|(reporter, _)| reporter == name);
        let unreached = of.map(|(_, other)| ((*other).to_owned(), 7)).collect();
        Record { unreached, ..record(name, &everything()) }
    });
    view(nodes.collect())
}

fn isolated<'a>(view: &View, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().filter(|name| view.is_isolated(name)).collect()
}

#[test]
fn reports_isolate_the_node_that_the_others_do_not_reach() {
    let names = ["a", "b", "c"];
    let of = |reports: &[(&str, &str)]| isolated(&with_reports(&names, reports), &names);
    assert!(of(&[]).is_empty());
    // Cut off both ways, and as the others see it alone, and as it sees them alone.
    assert_eq!(of(&[("a", "c"), ("b", "c"), ("c", "a"), ("c", "b")]), ["c"]);
    assert_eq!(of(&[("b", "a"), ("c", "a")]), ["a"]);
    assert_eq!(of(&[("a", "b"), ("a", "c")]), ["a"]);
    // A pair: the last by name.
    assert_eq!(of(&[("a", "c")]), ["c"]);
    // All from each other: the first goes on.
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "a")]), ["b", "c"]);
    // Two halves: one of them goes on.
    let four = ["a", "b", "c", "d"];
    let halves = with_reports(&four, &[("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]);
    assert_eq!(isolated(&halves, &four), ["c", "d"]);
    // A report about a node that is not there, about an earlier process of one, and about the reporter itself.
    let mut nodes = vec![record("a", &[]), record("b", &[])];
    nodes[0].unreached = [("b".to_owned(), 6), ("z".to_owned(), 7), ("a".to_owned(), 7)].into();
    assert!(isolated(&view(nodes), &names).is_empty());
}

#[test]
fn isolated_nodes_are_wanted_nowhere_and_lead_what_no_other_node_serves() {
    let cut = with_reports(&["a", "b", "c"], &[("b", "a"), ("c", "a")]);
    assert!(cut.wanted("a").is_empty());
    assert_eq!(cut.wanted("b").len() + cut.wanted("c").len(), 2 * PARTITIONS as usize);
    for partition in 0..PARTITIONS {
        assert_ne!(cut.first(partition).unwrap().name, "a");
        assert_eq!(cut.hosts(partition).last().unwrap().name, "a");
        assert!(cut.may_release("a", partition));
    }
    let mut nodes = cut.nodes().to_vec();
    nodes[1].serves.remove(5);
    nodes[2].serves.remove(5);
    let cut = view(nodes);
    assert_eq!(cut.first(5).unwrap().name, "a");
    assert!(!cut.may_release("a", 5));
    // One connection is broken: the node that both ends reach leads everything that it serves.
    let pair = with_reports(&["a", "b", "c"], &[("a", "c")]);
    assert!((0..PARTITIONS).all(|partition| pair.first(partition).unwrap().name == "b"));
}

#[test]
fn tables_count_changes_of_members() {
    let one = Table::after(None, &view(vec![record("a", &[])]));
    let served = Table::after(Some(&one), &view(vec![record("a", &everything())]));
    let two = Table::after(Some(&served), &view(vec![record("a", &everything()), record("b", &[])]));
    assert_eq!((one.epoch, served.epoch, two.epoch), (1, 1, 2));
    assert_eq!(Table::decode(&two.encode()).unwrap(), two);
    assert!(Table::decode(b"format 1\nepoch 1\nmembers a\n0 1\n").is_err());
}

/// A registry, a clock, and nodes that do nothing by themselves.
struct World {
    clock: ManualClock,
    registry: Arc<EmbeddedRegistry>,
    random: SeededRandom,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1));
        let registry = Arc::new(EmbeddedRegistry::in_memory(Arc::new(clock.clone())));
        Self { clock, registry, random: SeededRandom::new(seed) }
    }

    async fn try_join(&self, name: &str) -> Result<Joining, crate::Error> {
        self.join_through(name, Arc::clone(&self.registry) as Arc<dyn Registry>).await
    }

    async fn join_through(&self, name: &str, registry: Arc<dyn Registry>) -> Result<Joining, crate::Error> {
        let settings = Settings {
            name: name.to_owned(),
            address: format!("{name}:6380"),
            zone: String::new(),
            weight: 100,
            lease: LEASE,
            partitions: PARTITIONS,
            copies: 2,
        };
        Membership::join(settings, registry, Arc::new(self.clock.clone()), &self.random).await
    }

    async fn join(&self, name: &str) -> Arc<Membership> {
        match self.try_join(name).await.unwrap() {
            Joining::Joined(membership) => membership,
            Joining::Taken(other) => panic!("{name} is taken: {other:?}"),
        }
    }
}

async fn settle(nodes: &[&Arc<Membership>]) {
    for _ in 0..4 {
        for node in nodes {
            node.look().await.unwrap();
        }
    }
    assert!(nodes.iter().all(|node| node.view().is_settled()));
}

fn firsts(nodes: &[&Arc<Membership>]) -> BTreeMap<u32, Vec<String>> {
    let mut firsts: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for node in nodes {
        for partition in 0..PARTITIONS {
            if node.role(partition) != Role::Other {
                firsts.entry(partition).or_default().push(node.name().to_owned());
            }
        }
    }
    firsts
}

#[tokio::test]
async fn one_of_the_nodes_is_first_and_another_when_it_is_gone() {
    let world = World::new(1);
    let (a, b) = (world.join("a").await, world.join("b").await);
    for partition in 0..PARTITIONS {
        a.serve(partition, true);
        b.serve(partition, true);
    }
    settle(&[&a, &b]).await;
    let both = firsts(&[&a, &b]);
    assert!(both.len() == PARTITIONS as usize && both.values().all(|firsts| firsts.len() == 1), "{both:?}");
    assert!(
        a.first_count() + b.first_count() == PARTITIONS as usize
            && a.first_count() > 0
            && b.first_count() > 0
    );
    let table = world.registry.get(TABLE).await.unwrap().unwrap();
    assert_eq!(Table::decode(&table.value).unwrap().members, ["a", "b"]);

    // b says nothing for longer than its lease.
    let term = |node: &Arc<Membership>| {
        let roles = (0..PARTITIONS).map(|partition| node.role(partition));
        roles.filter_map(|role| if let Role::First { term } = role { Some(term) } else { None }).max()
    };
    let before = term(&b).unwrap();
    for _ in 0..5 {
        world.clock.advance(LEASE / 4);
        a.keep_alive().await.unwrap();
    }
    assert!(firsts(&[&b]).is_empty());
    settle(&[&a]).await;
    assert_eq!(firsts(&[&a, &b]).len(), PARTITIONS as usize);
    assert_eq!(a.first_count(), PARTITIONS as usize);

    // It comes back, with what it had.
    b.keep_alive().await.unwrap();
    assert!(firsts(&[&b]).is_empty());
    settle(&[&b, &a]).await;
    assert_eq!(firsts(&[&a, &b]), both);
    assert!(term(&b).unwrap() > before);
    b.end().await.unwrap();
    // It does not come back by itself.
    assert!(b.look().await.is_err());
    assert!(firsts(&[&b]).is_empty());
    settle(&[&a]).await;
    assert_eq!(a.view().nodes().len(), 1);
}

/// A registry that lists nothing while it is told not to: its answer is on the way.
#[derive(Debug)]
struct SlowToList {
    inner: Arc<EmbeddedRegistry>,
    is_slow: AtomicBool,
}

#[async_trait]
impl Registry for SlowToList {
    async fn get(&self, name: &str) -> Result<Option<Versioned>, crate::Error> {
        self.inner.get(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Listing, crate::Error> {
        let listing = self.inner.list(prefix).await?;
        // The first listing shows that the record is gone; the one after the record's return is on its way.
        if self.is_slow.load(Ordering::Relaxed)
            && listing.entries.iter().any(|(name, _)| name.ends_with("/b"))
        {
            return Err(crate::Error::Retry("the listing is on its way".into()));
        }
        Ok(listing)
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change, crate::Error> {
        self.inner.put(name, value, expected, lease).await
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change, crate::Error> {
        self.inner.delete(name, expected).await
    }

    async fn changed(&self, prefix: &str, after: u64) -> Result<(), crate::Error> {
        self.inner.changed(prefix, after).await
    }

    async fn grant(&self, time: Duration) -> Result<Lease, crate::Error> {
        self.inner.grant(time).await
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool, crate::Error> {
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: Lease) -> Result<(), crate::Error> {
        self.inner.revoke(lease).await
    }
}

/// Between a node's return under a new lease and its first listing after that, the view from before is worth nothing (rule L3).
#[tokio::test]
async fn a_node_that_returns_does_not_trust_the_view_from_before() {
    let world = World::new(7);
    let registry =
        Arc::new(SlowToList { inner: Arc::clone(&world.registry), is_slow: AtomicBool::new(false) });
    let a = world.join("a").await;
    let joining = world.join_through("b", Arc::clone(&registry) as Arc<dyn Registry>).await.unwrap();
    let Joining::Joined(b) = joining else { panic!("b is taken") };
    for partition in 0..PARTITIONS {
        a.serve(partition, true);
        b.serve(partition, true);
    }
    settle(&[&a, &b]).await;
    assert!(b.settled_view().is_some());
    // b sleeps; a goes on without it and leads everything.
    for _ in 0..5 {
        world.clock.advance(LEASE / 4);
        a.keep_alive().await.unwrap();
    }
    assert!(b.settled_view().is_none());
    settle(&[&a]).await;
    assert_eq!(a.first_count(), PARTITIONS as usize);
    registry.is_slow.store(true, Ordering::Relaxed);
    assert!(matches!(b.look().await, Err(crate::Error::Retry(_))));
    assert!(b.is_valid(), "b has a lease again");
    assert!(b.settled_view().is_none(), "b trusts a view that was settled under the lease before");
    assert_eq!(b.first_count(), 0);
    registry.is_slow.store(false, Ordering::Relaxed);
    settle(&[&b, &a]).await;
    assert!(b.settled_view().is_some() && b.first_count() > 0);
}

/// Arguments of a put.
type Put = (String, Bytes, Expected, Option<Lease>);

/// A registry that does not answer puts while it is told not to: they are still on their way.
#[derive(Debug)]
struct SlowToPut {
    inner: Arc<EmbeddedRegistry>,
    is_slow: AtomicBool,
    late: Mutex<Vec<Put>>,
}

#[async_trait]
impl Registry for SlowToPut {
    async fn get(&self, name: &str) -> Result<Option<Versioned>, crate::Error> {
        self.inner.get(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Listing, crate::Error> {
        self.inner.list(prefix).await
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change, crate::Error> {
        if self.is_slow.load(Ordering::Relaxed) {
            self.late.lock().unwrap().push((name.to_owned(), value, expected, lease));
            return Err(crate::Error::Retry("the put is on its way".into()));
        }
        self.inner.put(name, value, expected, lease).await
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change, crate::Error> {
        self.inner.delete(name, expected).await
    }

    async fn changed(&self, prefix: &str, after: u64) -> Result<(), crate::Error> {
        self.inner.changed(prefix, after).await
    }

    async fn grant(&self, time: Duration) -> Result<Lease, crate::Error> {
        self.inner.grant(time).await
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool, crate::Error> {
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: Lease) -> Result<(), crate::Error> {
        self.inner.revoke(lease).await
    }
}

/// A node takes back what it wanted to say, and the record that says it arrives after that (rule V6).
#[tokio::test]
async fn late_put_does_not_make_a_second_leader() {
    let world = World::new(9);
    let registry = Arc::new(SlowToPut {
        inner: Arc::clone(&world.registry),
        is_slow: AtomicBool::new(false),
        late: Mutex::default(),
    });
    let joining = world.join_through("a", Arc::clone(&registry) as Arc<dyn Registry>).await.unwrap();
    let Joining::Joined(a) = joining else { panic!("a is taken") };
    let b = world.join("b").await;
    for partition in 0..PARTITIONS {
        a.serve(partition, true);
        b.serve(partition, true);
    }
    settle(&[&a, &b]).await;
    let led = (0..PARTITIONS).find(|partition| a.role(*partition) != Role::Other).unwrap();
    registry.is_slow.store(true, Ordering::Relaxed);
    a.serve(led, false);
    a.look().await.unwrap();
    registry.is_slow.store(false, Ordering::Relaxed);
    a.serve(led, true);
    a.look().await.unwrap();
    let late: Vec<Put> = std::mem::take(&mut *registry.late.lock().unwrap());
    assert!(!late.is_empty());
    for (name, value, expected, lease) in late {
        world.registry.put(&name, value, expected, lease).await.unwrap();
    }
    for _ in 0..4 {
        b.look().await.unwrap();
    }
    let leads = |node: &Arc<Membership>| node.role(led) != Role::Other;
    assert!(!(leads(&a) && leads(&b)), "a and b lead partition {led}");
    settle(&[&a, &b]).await;
    assert!(leads(&a) && !leads(&b));
}

#[tokio::test]
async fn a_lease_that_was_kept_late_begins_another_term() {
    let world = World::new(2);
    let a = world.join("a").await;
    a.serve(0, true);
    settle(&[&a]).await;
    let Role::First { term } = a.role(0) else { panic!("{:?}", a.role(0)) };
    world.clock.advance(LEASE / 2);
    a.keep_alive().await.unwrap();
    assert_eq!(a.role(0), Role::First { term });
    // Not yet over for the registry, but too near for the node.
    world.clock.advance(LEASE - LEASE / 20);
    assert_eq!(a.role(0), Role::Other);
    a.keep_alive().await.unwrap();
    assert!(matches!(a.role(0), Role::First { term: next } if next > term));
}

#[tokio::test]
async fn a_node_that_others_do_not_reach_stops_leading() {
    let world = World::new(8);
    let (a, b, c) = (world.join("a").await, world.join("b").await, world.join("c").await);
    let all = [&a, &b, &c];
    for partition in 0..PARTITIONS {
        all.iter().for_each(|node| node.serve(partition, true));
    }
    settle(&all).await;
    assert!(c.first_count() > 0);
    let unreached = |node: &Arc<Membership>| {
        let record = node.view().node(node.name()).unwrap().clone();
        BTreeSet::from([(record.name, record.instance)])
    };
    let of_c = unreached(&c);
    a.report_unreached(of_c.clone());
    b.report_unreached(of_c);
    settle(&all).await;
    assert!(c.is_isolated() && !a.is_isolated() && !b.is_isolated());
    assert_eq!(c.first_count(), 0);
    assert_eq!(a.first_count() + b.first_count(), PARTITIONS as usize);
    a.report_unreached(BTreeSet::new());
    b.report_unreached(BTreeSet::new());
    settle(&all).await;
    assert!(!c.is_isolated() && c.first_count() > 0);
}

#[tokio::test]
async fn a_name_is_of_one_node() {
    let world = World::new(3);
    let first = world.join("a").await;
    let Joining::Taken(other) = world.try_join("a").await.unwrap() else { panic!("two nodes called a") };
    assert_eq!(other.address, "a:6380");
    // When the first one's lease is over, the second has the name, and the first notices.
    world.clock.advance(LEASE * 2);
    let second = world.join("a").await;
    first.keep_alive().await.unwrap();
    assert!(first.look().await.is_err());
    assert!(first.lost().unwrap().contains("another node called a"));
    assert!(second.lost().is_none() && !first.is_valid() && second.is_valid());
    assert!(world.try_join("a/b").await.is_err());
}

#[tokio::test]
async fn whoever_is_asked_to_leave_does() {
    let world = World::new(4);
    let (a, b) = (world.join("a").await, world.join("b").await);
    set_leaving(&*world.registry, "b", true).await.unwrap();
    settle(&[&a, &b]).await;
    assert!(b.is_leaving() && !a.is_leaving());
    assert_eq!((a.view().wanted("a").len(), a.view().wanted("b").len()), (PARTITIONS as usize, 0));
    let (seen, table) = inspect(&*world.registry, PARTITIONS, 2).await.unwrap();
    assert_eq!((seen.nodes().len(), table.unwrap().epoch), (2, 2));
    set_leaving(&*world.registry, "b", false).await.unwrap();
    assert!(!is_leaving(&*world.registry, "b").await.unwrap());
    settle(&[&b, &a]).await;
    assert!(!b.is_leaving() && !a.view().wanted("b").is_empty());
    b.leave();
    settle(&[&b, &a]).await;
    assert!(b.is_leaving() && a.view().wanted("b").is_empty());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_named() {
    let world = World::new(5);
    let a = world.join("a").await;
    let junk = Bytes::from_static(b"junk");
    world.registry.put("cluster/nodes/b", junk, Expected::Anything, None).await.unwrap();
    let error = a.look().await.unwrap_err().to_string();
    assert!(error.contains("cluster/nodes/b"), "{error}");
}

/// Nodes that look, forget to look, sleep, serve and leave in any order: no partition ever has two first hosts, and when all come to rest
/// each has one.
#[tokio::test]
async fn there_are_never_two_first_hosts() {
    for seed in 0..60 {
        let world = World::new(seed);
        let chance = SeededRandom::new(seed ^ 0xabcd);
        let below = |most: u64| chance.next() % most;
        let mut nodes: Vec<Arc<Membership>> = Vec::new();
        for step in 0..400 {
            match below(12) {
                0 if nodes.len() < 5 => {
                    if let Joining::Joined(node) = world.try_join(&format!("n{}", below(6))).await.unwrap() {
                        nodes.push(node);
                    }
                }
                1 => world.clock.advance(Duration::from_millis(below(3000))),
                2 if !nodes.is_empty() && below(20) == 0 => {
                    let gone = nodes.swap_remove(below(nodes.len() as u64) as usize);
                    if below(2) == 0 {
                        gone.end().await.unwrap();
                    }
                }
                kind if !nodes.is_empty() => {
                    let node = &nodes[below(nodes.len() as u64) as usize];
                    match kind {
                        3 | 4 => node.serve(below(u64::from(PARTITIONS)) as u32, below(4) > 0),
                        5..8 => node.keep_alive().await.unwrap(),
                        _ => _ = node.look().await,
                    }
                }
                _ => {}
            }
            let all: Vec<_> = nodes.iter().collect();
            let firsts = firsts(&all);
            let twice = firsts.iter().find(|(_, hosts)| hosts.len() > 1);
            assert!(twice.is_none(), "seed {seed}, step {step}: {twice:?}");
        }
        nodes.retain(|node| node.lost().is_none());
        world.clock.advance(LEASE * 2);
        let mut all: Vec<_> = nodes.iter().collect();
        for node in &all {
            node.keep_alive().await.unwrap();
            let _ = node.look().await;
            (0..PARTITIONS).for_each(|partition| node.serve(partition, true));
        }
        all.retain(|node| node.lost().is_none());
        if !all.is_empty() {
            settle(&all).await;
            assert_eq!(firsts(&all).len(), PARTITIONS as usize, "seed {seed}");
        }
        assert!(world.clock.now() > Duration::ZERO);
    }
}

#[test]
fn sets_of_partitions_are_compared_and_cut() {
    let set = |all: &[u32]| all.iter().copied().collect::<Partitions>();
    let some = set(&[0, 63, 64, 200]);
    assert_eq!(Partitions::of(256, [200, 64, 0, 63, 0].into_iter()), some);
    assert_eq!(Partitions::of(64, std::iter::empty()), Partitions::default());
    assert!(some.has_all(&set(&[63, 200])) && some.has_all(&Partitions::default()));
    assert!(!some.has_all(&set(&[1])) && !some.has_all(&set(&[300])) && !set(&[0]).has_all(&some));
    assert_eq!(some.and(&set(&[1, 63, 300])), set(&[63]));
    assert_eq!(some.and(&set(&[1, 2])), Partitions::default());
}
