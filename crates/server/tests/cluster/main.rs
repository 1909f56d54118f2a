//! Several nodes in this process, on one log: any of them answers for all, some leave or are gone, and nothing that was acknowledged is lost.

#[path = "../common/mod.rs"]
mod common;

mod copies;
mod cut;
mod names;
mod races;
mod rollouts;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use umbel_client::Router;
use umbel_core::clock::{Clock, SystemClock};
use umbel_core::cluster::Settings as Place;
use umbel_core::engine::{Answer, Engine, Settings};
use umbel_core::log::{Log, MemoryLog};
use umbel_core::registry::{EmbeddedRegistry, Registry};
use umbel_server::chores::Chores;
use umbel_server::cluster::{Nodes, host, join, keep_place, leave};
use umbel_server::config::Config;
use umbel_server::metrics::Page;
use umbel_server::node::Node;
use umbel_server::server::Server;

use common::{Client, Value};

const SECRET: &[u8] = b"a secret of all nodes";
const PARTITIONS: u32 = 8;
const LEASE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(60);

/// What nodes share.
struct World {
    runtime: Runtime,
    clock: Arc<dyn Clock>,
    log: Arc<dyn Log>,
    blobs: Arc<dyn ObjectStore>,
    registry: Arc<dyn Registry>,
    config: Config,
}

struct Running {
    node: Arc<Node>,
    nodes: Arc<Nodes>,
    server: Option<Server>,
    /// Its HTTP door.
    chores: Option<Chores>,
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
    cuts: Option<cut::Cuts>,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Self {
            runtime: runtime.expect("a runtime"),
            log: Arc::new(MemoryLog::new(PARTITIONS)),
            blobs: Arc::new(InMemory::new()),
            registry: Arc::new(EmbeddedRegistry::in_memory(Arc::clone(&clock))),
            config: Config::default(),
            clock,
        }
    }

    /// Starts a node, as the server does.
    fn start(&self, name: &str) -> Running {
        self.start_with(name, None)
    }

    /// The same with what can be cut between the node and the rest.
    fn start_with(&self, name: &str, cuts: Option<cut::Cuts>) -> Running {
        // A port that is free now.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port");
        let place = Place {
            name: name.to_owned(),
            address: cuts.as_ref().map_or(address, |cuts| cuts.advertised(address)).to_string(),
            zone: String::new(),
            weight: 100,
            lease: LEASE,
            partitions: PARTITIONS,
            copies: 2,
        };
        let settings = Settings {
            slots: 32,
            sharded_above_bytes: 64 << 10,
            memory_bytes: 256 << 20,
            ..Settings::default()
        };
        let log = cuts.as_ref().map_or_else(|| Arc::clone(&self.log), |cuts| cuts.log(&self.log));
        let shared = &self.registry;
        let registry = cuts.as_ref().map_or_else(|| Arc::clone(shared), |cuts| cuts.registry(shared));
        let (nodes, kept, engine) = self.runtime.block_on(async {
            let membership = join(place, Arc::clone(&registry), Arc::clone(&self.clock)).await.expect(name);
            let keeping = keep_place(Arc::clone(&membership));
            let kept = self.runtime.spawn(async { _ = keeping.await });
            let clock = Arc::clone(&self.clock);
            let nodes = Nodes::new(membership, "test", SECRET, clock, self.runtime.handle().clone());
            let nodes = Arc::new(nodes);
            let builder = Engine::builder(settings)
                .with_log(log)
                .with_blobs(Arc::clone(&self.blobs))
                .with_cluster(Arc::clone(&nodes) as _, Arc::clone(&registry));
            (nodes, kept, builder.open().await.expect("an engine"))
        });
        let node = Node::new(engine, self.config.clone(), 1).expect("settings");
        let node = Arc::new(node.with_registry(registry).with_cluster(Arc::clone(&nodes)));
        node.engine.start().expect("threads");
        let server = Server::start(&node, &[address], 1).expect("a server");
        let hosting =
            self.runtime.spawn(host(Arc::clone(&node), Arc::clone(&nodes), Arc::clone(&self.clock)));
        let chores = Chores::start(&[([127, 0, 0, 1], 0).into()]).expect("a port");
        chores.watch(&node, None);
        Running {
            node,
            nodes,
            server: Some(server),
            chores: Some(chores),
            address,
            tasks: vec![kept, hosting],
            cuts,
        }
    }

    fn eventually(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all know each other and have what they should.
    fn settle(&self, all: &[&Running]) {
        self.eventually("the nodes settle", || {
            all.iter().all(|one| {
                let view = one.nodes.membership().view();
                let is_served = (0..PARTITIONS).all(|partition| view.first(partition).is_some());
                view.is_settled() && view.nodes().len() == all.len() && is_served && one.nodes.ready().is_ok()
            })
        });
    }
}

impl Running {
    fn connect(&self) -> Client {
        Client::to(self.address)
    }

    /// Is gone at once, without a word to anybody.
    fn kill(mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
        self.end();
    }

    fn end(&mut self) {
        self.node.stop.stop();
        self.chores = None;
        if let Some(server) = self.server.take() {
            server.join().expect("all loops end well");
        }
        self.node.engine.stop();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cuts = None;
        self.tasks.drain(..).for_each(|task| task.abort());
        self.end();
    }
}

/// Asks again while the server says that it may help.
fn insist<W: AsRef<[u8]>>(client: &mut Client, words: &[W]) -> Value {
    let begun = Instant::now();
    loop {
        let value = client.call(words);
        match value.error() {
            Some(error) if error.starts_with("TRYAGAIN") || error.starts_with("CLUSTERDOWN") => {
                assert!(begun.elapsed() < PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(50));
            }
            _ => return value,
        }
    }
}

fn keys(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|number| format!("key-{number}")).collect()
}

fn many<'w>(command: &'w str, filter: &'w str, keys: &'w [String]) -> Vec<&'w str> {
    [command, filter].into_iter().chain(keys.iter().map(String::as_str)).collect()
}

fn all_there(client: &mut Client, filter: &str, keys: &[String]) {
    let answers = insist(client, &many("BF.MEXISTS", filter, keys));
    let Value::Array(answers) = &answers else { panic!("{answers:?}") };
    let missing = answers.iter().filter(|answer| **answer != Value::Integer(1)).count();
    assert_eq!((missing, answers.len()), (0, keys.len()), "of {filter}");
}

#[test]
fn any_node_answers_for_all() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let (mut on_a, mut on_b, mut on_c) = (a.connect(), b.connect(), c.connect());
    // One that is spread, and one that is whole.
    assert_eq!(insist(&mut on_a, &["BF.RESERVE", "large", "0.001", "100000"]), Value::Simple("OK".into()));
    assert_eq!(on_b.value_of("BF.RESERVE large 0.001 100000").error(), Some("ERR item exists"));
    let added = keys(0, 3000);
    for (client, part) in [&mut on_a, &mut on_b, &mut on_c].into_iter().zip(added.chunks(1000)) {
        let answers = insist(client, &many("BF.MADD", "large", part));
        assert_eq!(answers, Value::Array(vec![Value::Integer(1); 1000]));
    }
    for client in [&mut on_a, &mut on_b, &mut on_c] {
        all_there(client, "large", &added);
        assert_eq!(client.value_of("BF.CARD large"), Value::Integer(3000));
        assert_eq!(client.value_of("BF.EXISTS large nobody"), Value::Integer(0));
        assert_eq!(client.value_of("BF.EXISTS nothing nobody"), Value::Integer(0));
    }
    for number in 0..50 {
        let (filter, key) = (format!("small-{number}"), format!("key-{number}"));
        assert_eq!(insist(&mut on_b, &["BF.ADD", &filter, &key]), Value::Integer(1));
        assert_eq!(insist(&mut on_c, &["BF.EXISTS", &filter, &key]), Value::Integer(1), "{filter}");
        assert_eq!(insist(&mut on_a, &["BF.ADD", &filter, &key]), Value::Integer(0), "{filter}");
    }
    // What can be taken out is, wherever it was added.
    assert_eq!(insist(&mut on_a, &["CF.ADD", "erasable", "x"]), Value::Integer(1));
    assert_eq!(insist(&mut on_b, &["CF.COUNT", "erasable", "x"]), Value::Integer(1));
    assert_eq!(insist(&mut on_c, &["CF.DEL", "erasable", "x"]), Value::Integer(1));
    // One that does not keep its keys is asked where it is, too.
    let forgetful = "UMBEL.CREATE forgetful 100000 0.001 KIND counting RETAIN no SHARDS all";
    insist(&mut on_a, &forgetful.split(' ').collect::<Vec<_>>());
    for item in (0..40).map(|n| n.to_string()) {
        assert_eq!(insist(&mut on_a, &["CF.ADD", "forgetful", &item]), Value::Integer(1), "{item}");
        for asked in [&mut on_a, &mut on_b, &mut on_c] {
            assert_eq!(insist(asked, &["CF.COUNT", "forgetful", &item]), Value::Integer(1), "{item}");
        }
    }
    assert_eq!(insist(&mut on_b, &["CF.EXISTS", "erasable", "x"]), Value::Integer(0));
    assert_eq!(insist(&mut on_c, &["DEL", "large"]), Value::Integer(1));
    assert_eq!(insist(&mut on_a, &["EXISTS", "large"]), Value::Integer(0));
    assert!(on_a.ask("INFO cluster").contains("umbel_nodes:3"));
}

#[test]
fn nodes_that_are_killed_leave_or_join_lose_nothing() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut on_a = a.connect();
    insist(&mut on_a, &["BF.RESERVE", "f", "0.001", "100000"]);
    let mut added = Vec::new();
    let add = |client: &mut Client, added: &mut Vec<String>| {
        let more = keys(added.len(), added.len() + 200);
        let answers = insist(client, &many("BF.MADD", "f", &more));
        assert!(answers.error().is_none(), "{answers:?}");
        added.extend(more);
    };
    add(&mut on_a, &mut added);
    // Killed: until its lease is over, others are asked for what it had.
    c.kill();
    all_there(&mut on_a, "f", &added);
    add(&mut on_a, &mut added);
    all_there(&mut b.connect(), "f", &added);
    world.settle(&[&a, &b]);
    // Another one comes.
    let d = world.start("d");
    add(&mut on_a, &mut added);
    world.settle(&[&a, &b, &d]);
    all_there(&mut d.connect(), "f", &added);
    // One is drained: it has nothing but what every node has.
    assert_eq!(on_a.value_of("UMBEL.NODE DRAIN b"), Value::Simple("OK".into()));
    world.eventually("b is drained", || b.nodes.membership().serves().len() == 1);
    add(&mut b.connect(), &mut added);
    all_there(&mut b.connect(), "f", &added);
    // And one ends in good order.
    world.runtime.block_on(leave(&b.nodes, PATIENCE)).expect("it leaves");
    drop(b);
    world.settle(&[&a, &d]);
    for client in [&mut on_a, &mut d.connect()] {
        all_there(client, "f", &added);
        assert_eq!(client.value_of("BF.EXISTS f nobody"), Value::Integer(0));
        assert_eq!(client.value_of("BF.CARD f"), Value::Integer(added.len() as i64));
    }
}

#[test]
fn nobody_is_refused_for_what_others_ask() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settle(&[&a, &b]);
    insist(&mut a.connect(), &["BF.RESERVE", "f", "0.001", "100000"]);
    let added = keys(0, 400);
    insist(&mut a.connect(), &many("BF.MADD", "f", &added));
    let filter = a.node.engine.filter("f").expect("a filter");
    let partition =
        |key: &str| u32::from(filter.slot(filter.hasher().fingerprint(key.as_bytes()))) % PARTITIONS;
    // One partition has no host any more.
    let lost = partition("key-0");
    for one in [&a, &b] {
        one.tasks.last().expect("who takes partitions in").abort();
        one.nodes.membership().serve(lost, false);
    }
    world.eventually("nobody has it", || {
        [&a, &b].iter().all(|one| {
            let view = one.nodes.membership().view();
            view.is_settled() && view.first(lost).is_none()
        })
    });
    // Whoever asks at the same time for it, and for others: they come in the same turn of the loop.
    let mut clients: Vec<Client> = (0..20).map(|_| a.connect()).collect();
    let (mut refused, mut told) = (0, 0);
    for some in added.chunks(clients.len()) {
        for (client, key) in clients.iter_mut().zip(some) {
            client.write(format!("BF.EXISTS f {key}\r\n").as_bytes());
        }
        for (client, key) in clients.iter_mut().zip(some) {
            match client.value() {
                Value::Integer(1) => told += 1,
                value if partition(key) == lost => {
                    assert!(value.error().is_some_and(|error| error.starts_with("CLUSTERDOWN")), "{value:?}");
                    refused += 1;
                }
                value => panic!("{key}: {value:?}"),
            }
        }
    }
    let expected = added.iter().filter(|key| partition(key) == lost).count();
    assert_eq!((refused, told), (expected, added.len() - expected));
}

/// How many requests nodes have sent to each other.
fn passed_on(all: &[&Running]) -> u64 {
    let count = |one: &&Running| {
        let mut page = Page::default();
        one.nodes.collect(&mut page);
        let lines = page.finish();
        let lines = lines.lines().filter(|line| line.starts_with("umbel_peer_requests_total{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    all.iter().map(count).sum()
}

#[test]
fn a_client_that_routes_asks_those_who_have_it() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut on_a = a.connect();
    insist(&mut on_a, &["BF.RESERVE", "large", "0.001", "100000"]);
    insist(&mut on_a, &["BF.RESERVE", "small", "0.01", "100"]);
    insist(&mut on_a, &["CF.RESERVE", "erasable", "100000"]);
    let addresses = [format!("redis://{}", a.address), format!("redis://{}", b.address)];
    let router = Router::new(&addresses.each_ref().map(String::as_str)).expect("addresses");
    let (added, others) = (keys(0, 2000), keys(5000, 6000));
    world.runtime.block_on(async {
        // Routes, connections, and definitions that nodes learn of; each confirms a filter's name once, before its first add.
        for filter in ["large", "small", "erasable"] {
            router.contains(filter, &added).await.expect(filter);
            router.add(filter, &keys(9000, 9050)).await.expect(filter);
        }
        let before = passed_on(&[&a, &b, &c]);
        assert_eq!(router.add("large", &added).await.expect("added"), vec![true; 2000]);
        assert_eq!(router.contains("large", &added).await.expect("asked"), vec![Answer::Maybe; 2000]);
        let absent = router.contains("large", &others).await.expect("asked");
        assert!(absent.iter().filter(|answer| **answer == Answer::Absent).count() > 980);
        assert_eq!(router.add("small", &["x"]).await.expect("added"), [true]);
        assert_eq!(router.add("erasable", &["x", "y"]).await.expect("added"), [true, true]);
        assert_eq!(router.remove("erasable", &["x", "z"]).await.expect("removed"), [true, false]);
        let left = router.contains("erasable", &["x", "y"]).await.expect("asked");
        assert_eq!(left, [Answer::Absent, Answer::Maybe]);
        assert_eq!(passed_on(&[&a, &b, &c]), before, "a node was asked for what another one has");
        assert_eq!(router.contains("nothing", &["x"]).await.expect("asked"), [Answer::Unknown]);
        let refused = router.add("nothing", &["x"]).await;
        assert!(matches!(refused, Err(umbel_client::Error::Refused { status: 404, .. })), "{refused:?}");
    });
    all_there(&mut on_a, "large", &added);
    // One that it asks is gone: others are asked.
    b.kill();
    world.runtime.block_on(async {
        assert_eq!(router.contains("large", &added).await.expect("asked"), vec![Answer::Maybe; 2000]);
        router.add("large", &others).await.expect("added");
    });
    all_there(&mut on_a, "large", &others);
}

fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn whole_filters_go_through_any_node() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let (mut on_a, mut on_b, mut on_c) = (a.connect(), b.connect(), c.connect());
    let ok = Value::Simple("OK".into());
    let (first, second) = (keys(0, 2000), keys(1000, 3000));
    for (filter, keys) in [("one", &first), ("two", &second)] {
        assert_eq!(insist(&mut on_a, &["BF.RESERVE", filter, "0.001", "100000"]), ok);
        insist(&mut on_b, &many("BF.MADD", filter, keys));
    }
    // A union of what has parts on all nodes, and of what lives in one slot.
    let new = insist(&mut on_c, &["UMBEL.MERGE", "one", "two"]);
    assert!(matches!(new, Value::Integer(990..=1000)), "{new:?}");
    for client in [&mut on_a, &mut on_b, &mut on_c] {
        all_there(client, "one", &keys(0, 3000));
    }
    insist(&mut on_a, &["BF.ADD", "small", "x"]);
    assert_eq!(insist(&mut on_b, &["UMBEL.MERGE", "one", "small"]), Value::Integer(1));

    // Dumped here, restored there.
    let dump = bytes(insist(&mut on_a, &["DUMP", "one"]));
    assert_eq!(insist(&mut on_b, &[&b"RESTORE"[..], b"copy", b"0", &dump]), ok);
    let again = insist(&mut on_c, &[&b"RESTORE"[..], b"copy", b"0", &dump]);
    assert!(again.error().expect("it is there").starts_with("BUSYKEY"), "{again:?}");
    for client in [&mut on_a, &mut on_b, &mut on_c] {
        all_there(client, "copy", &keys(0, 3000));
        assert_eq!(client.value_of("BF.EXISTS copy nobody"), Value::Integer(0));
    }
    // In chunks, which one node takes.
    let mut cursor = 0;
    loop {
        let chunk = insist(&mut on_b, &["BF.SCANDUMP", "one", &cursor.to_string()]);
        let Value::Array(chunk) = chunk else { panic!("{chunk:?}") };
        let [Value::Integer(next), Value::Bulk(data)] = &chunk[..] else { panic!("{chunk:?}") };
        if *next == 0 {
            break;
        }
        cursor = *next;
        let load = [&b"BF.LOADCHUNK"[..], b"chunks", cursor.to_string().as_bytes(), data].map(<[u8]>::to_vec);
        assert_eq!(insist(&mut on_c, &load), ok);
    }
    all_there(&mut on_a, "chunks", &keys(0, 3000));
    // As a file of one array.
    let file = bytes(insist(&mut on_c, &["UMBEL.EXPORT", "one", "FORMAT", "native"]));
    let import = [&b"UMBEL.IMPORT"[..], b"file", b"FORMAT", b"native", b"DATA", &file];
    assert_eq!(insist(&mut on_a, &import), ok);
    all_there(&mut on_b, "file", &keys(0, 3000));
    assert_eq!(insist(&mut on_b, &["BF.EXISTS", "file", "nobody"]), Value::Integer(0));

    // A window takes keys anywhere.
    let made = ["UMBEL.CREATE", "recent", "1000", "0.01", "WINDOW", "1h", "BUCKETS", "6"];
    assert_eq!(insist(&mut on_a, &made), ok);
    for (number, client) in [&mut on_a, &mut on_b, &mut on_c].into_iter().enumerate() {
        let key = format!("key-{number}");
        assert_eq!(insist(client, &["BF.ADD", "recent", &key]), Value::Integer(1));
        assert_eq!(insist(client, &["BF.ADD", "recent", "key-0"]), Value::Integer(0));
    }
    for client in [&mut on_a, &mut on_b, &mut on_c] {
        all_there(client, "recent", &keys(0, 3));
        assert_eq!(insist(client, &["BF.CARD", "recent"]), Value::Integer(3));
        assert_eq!(insist(client, &["BF.EXISTS", "recent", "nobody"]), Value::Integer(0));
    }
}

#[test]
fn lookups_are_as_current_as_somebody_wants_and_figures_tell() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    insist(&mut a.connect(), &["BF.RESERVE", "f", "0.001", "100000"]);
    let added = keys(0, 500);
    insist(&mut b.connect(), &many("BF.MADD", "f", &added));
    for node in [&a, &b, &c] {
        let mut client = node.connect();
        for read in ["any", "current", "strong"] {
            let mut words = vec!["UMBEL.EXISTS", "f", "READ", read, "ITEMS"];
            words.extend(added.iter().map(String::as_str));
            let told = insist(&mut client, &words);
            let Value::Array(told) = &told else { panic!("{told:?}") };
            let [_, Value::Bulk(position), _, Value::Integer(age), _, Value::Array(answers)] = &told[..]
            else {
                panic!("{told:?}")
            };
            assert_eq!(position.iter().filter(|byte| **byte == b':').count(), PARTITIONS as usize);
            assert!(*age < 30_000, "{age}");
            if read != "any" {
                let maybe = Value::Simple("maybe".into());
                assert!(answers.len() == 500 && answers.iter().all(|answer| *answer == maybe), "{read}");
            }
        }
        let wrong = client.value_of("UMBEL.EXISTS f READ never ITEMS x");
        assert_eq!(wrong.error(), Some("ERR READ is any, current or strong"));
    }
    let mut page = Page::default();
    a.nodes.collect(&mut page);
    let page = page.finish();
    let hosted = a.node.engine.hosted();
    let count = |name: &str| page.lines().filter(|line| line.starts_with(name)).count();
    for family in ["first", "hosts", "age_seconds", "entries_total", "uncheckpointed_bytes"] {
        assert_eq!(count(&format!("umbel_partition_{family}{{")), hosted.len(), "{family}: {page}");
    }
    assert!(page.contains("umbel_partitions_without_host 0"), "{page}");
    assert!(count("umbel_peer_sent_bytes_total{peer=") >= 1, "{page}");
}

#[test]
fn strangers_are_not_let_in() {
    let world = World::new();
    let a = world.start("a");
    let mut stranger = a.connect();
    for command in [
        "SUBMIT", "ASK", "LOOK", "VERIFY", "REACH", "COUNTS", "KEYS", "SHAPES", "BLOCKS", "PUBLISH",
        "CHANGES", "NOTICE",
    ] {
        let refused = stranger.value_of(&format!("UMBEL.PEER {command} x"));
        assert!(refused.error().expect("refused").starts_with("NOAUTH"), "{refused:?}");
    }
    let wrong = stranger.value_of("UMBEL.PEER HELLO guess test b");
    assert!(wrong.error().expect("refused").starts_with("WRONGPASS"), "{wrong:?}");
    let secret = std::str::from_utf8(SECRET).expect("text");
    let mut other = a.connect();
    let wrong = other.call(&["UMBEL.PEER", "HELLO", secret, "another", "b"]);
    assert!(wrong.error().expect("refused").starts_with("WRONGPASS"), "{wrong:?}");
    // One of us that says nonsense is told so.
    let mut peer = a.connect();
    assert_eq!(peer.call(&["UMBEL.PEER", "HELLO", secret, "test", "b"]), Value::Simple("OK".into()));
    for command in [
        "SUBMIT", "ASK", "LOOK", "VERIFY", "REACH", "COUNTS", "KEYS", "SHAPES", "BLOCKS", "PUBLISH",
        "CHANGES", "NOTICE",
    ] {
        let refused = peer.value_of(&format!("UMBEL.PEER {command} x"));
        assert!(refused.error().expect("refused").starts_with("INVALID"), "{refused:?}");
    }
}
