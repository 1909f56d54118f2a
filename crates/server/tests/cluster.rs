//! Several nodes in this process, on one log: any of them answers for all, some leave or are gone, and nothing that was acknowledged is lost.

mod common;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use umbel_core::clock::{Clock, SystemClock};
use umbel_core::cluster::Settings as Place;
use umbel_core::engine::{Engine, Settings};
use umbel_core::log::{Log, MemoryLog};
use umbel_core::registry::{EmbeddedRegistry, Registry};
use umbel_server::cluster::{Nodes, host, join, keep_place, leave};
use umbel_server::config::Config;
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
}

struct Running {
    node: Arc<Node>,
    nodes: Arc<Nodes>,
    server: Option<Server>,
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
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
            clock,
        }
    }

    /// Starts a node, as the server does.
    fn start(&self, name: &str) -> Running {
        // A port that is free now.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port");
        let place = Place {
            name: name.to_owned(),
            address: address.to_string(),
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
        let (nodes, kept, engine) = self.runtime.block_on(async {
            let membership =
                join(place, Arc::clone(&self.registry), Arc::clone(&self.clock)).await.expect(name);
            let keeping = keep_place(Arc::clone(&membership));
            let kept = self.runtime.spawn(async { _ = keeping.await });
            let clock = Arc::clone(&self.clock);
            let nodes = Nodes::new(membership, "test", SECRET, clock, self.runtime.handle().clone());
            let nodes = Arc::new(nodes);
            let builder = Engine::builder(settings)
                .with_log(Arc::clone(&self.log))
                .with_blobs(Arc::clone(&self.blobs))
                .with_cluster(Arc::clone(&nodes) as _, Arc::clone(&self.registry));
            (nodes, kept, builder.open().await.expect("an engine"))
        });
        let node = Node::new(engine, Config::default(), 1).expect("settings");
        let node = Arc::new(node.with_registry(Arc::clone(&self.registry)).with_cluster(Arc::clone(&nodes)));
        node.engine.start().expect("threads");
        let server = Server::start(&node, &[address], 1).expect("a server");
        let hosting =
            self.runtime.spawn(host(Arc::clone(&node), Arc::clone(&nodes), Arc::clone(&self.clock)));
        Running { node, nodes, server: Some(server), address, tasks: vec![kept, hosting] }
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
        if let Some(server) = self.server.take() {
            server.join().expect("all loops end well");
        }
        self.node.engine.stop();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
        self.end();
    }
}

/// Asks again while the server says that it may help.
fn insist(client: &mut Client, words: &[&str]) -> Value {
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
    assert_eq!(insist(&mut on_b, &["CF.EXISTS", "erasable", "x"]), Value::Integer(0));
    let error = on_a.value_of("UMBEL.MERGE large small-1");
    assert!(error.error().expect("it does not work").contains("does not work on a cluster yet"));
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
fn strangers_are_not_let_in() {
    let world = World::new();
    let a = world.start("a");
    let mut stranger = a.connect();
    for command in ["SUBMIT", "ASK", "VERIFY", "REACH", "COUNTS"] {
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
    for command in ["SUBMIT", "ASK", "VERIFY", "REACH", "COUNTS"] {
        let refused = peer.value_of(&format!("UMBEL.PEER {command} x"));
        assert!(refused.error().expect("refused").starts_with("INVALID"), "{refused:?}");
    }
}
