//! A cluster on machines of its own, on a network that breaks: nodes are killed, sleep, are cut off, have twins, while clients write
//! and read. Afterwards it is looked through what they were told, and all hosts of a slot have to be the same.

mod history;
mod network;
mod nodes;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use history::{Change, History, Look, Read, Summary};
use nodes::{LEASE, Nodes, Value, call, words};

const NODES: u8 = 3;
const WRITERS: u64 = 2;
const READERS: u64 = 3;
/// Keys of one request.
const BATCH: u64 = 10;
/// How long a request is tried anew.
const PATIENCE: Duration = Duration::from_secs(90);

/// Numbers from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// One of the nodes.
type Node = usize;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed(Node),
    /// For longer than the lease.
    Asleep(Node),
    /// Neither hears of the other.
    Apart(Node, Node),
    /// The second does not hear the first.
    Unheard(Node, Node),
    /// A node and Redis do not hear of each other.
    CutOff(Node),
    /// What it sends does not reach Redis.
    Mute(Node),
    /// What Redis sends does not reach it.
    Deaf(Node),
    RedisKilled,
    RedisAsleep,
    /// Another machine says that it is this node.
    Twin(Node),
    Drained(Node),
}

impl Fault {
    fn any(chance: &mut Chance) -> Self {
        let node = chance.below(NODES.into()) as Node;
        let other = (node + 1 + chance.below(u64::from(NODES) - 1) as Node) % Node::from(NODES);
        match chance.below(11) {
            0 => Self::Killed(node),
            1 => Self::Asleep(node),
            2 => Self::Apart(node, other),
            3 => Self::Unheard(node, other),
            4 => Self::CutOff(node),
            5 => Self::Mute(node),
            6 => Self::Deaf(node),
            7 => Self::RedisKilled,
            8 => Self::RedisAsleep,
            9 => Self::Twin(node),
            _ => Self::Drained(node),
        }
    }
}

/// Lets faults happen, one after the other or at once, and mends all of them.
fn break_things(all: &mut Nodes, faults: &[Fault], chance: &mut Chance) {
    let redis = all.redis.number;
    let (mut twins, mut asleep, mut drained) = (Vec::new(), Vec::new(), Vec::new());
    for fault in faults {
        let machine = |node: Node| node as u8 + 1;
        match *fault {
            Fault::Killed(node) => all.nodes[node].kill(),
            Fault::Asleep(node) if all.nodes[node].is_running() => {
                all.nodes[node].signal("-STOP");
                asleep.push(node);
            }
            Fault::Asleep(_) => {}
            Fault::Apart(node, other) => {
                all.network.wall(machine(node), machine(other));
                all.network.wall(machine(other), machine(node));
            }
            Fault::Unheard(node, other) => all.network.wall(machine(node), machine(other)),
            Fault::CutOff(node) => {
                all.network.wall(machine(node), redis);
                all.network.wall(redis, machine(node));
            }
            Fault::Mute(node) => all.network.wall(machine(node), redis),
            Fault::Deaf(node) => all.network.wall(redis, machine(node)),
            Fault::RedisKilled => {
                all.redis.kill();
                std::thread::sleep(Duration::from_millis(chance.below(1500)));
                all.start_redis();
            }
            Fault::RedisAsleep => {
                all.redis.signal("-STOP");
                std::thread::sleep(Duration::from_millis(chance.below(3000)));
                all.redis.signal("-CONT");
            }
            Fault::Twin(node) if twins.is_empty() => twins.push(all.start_twin(node)),
            Fault::Twin(_) => {}
            Fault::Drained(node) => {
                // A node that cannot be told goes on as it was.
                let _ = call(&all.nodes[node].address, &words("UMBEL.NODE DRAIN"));
                drained.push(node);
            }
        }
        std::thread::sleep(Duration::from_millis(chance.below(1500)));
    }
    std::thread::sleep(LEASE + Duration::from_millis(500 + chance.below(1500)));
    for node in asleep {
        // It may have been killed in its sleep.
        if all.nodes[node].is_running() {
            all.nodes[node].signal("-CONT");
        }
    }
    drop(twins);
    all.network.heal();
    for node in drained {
        let back = words(&format!("UMBEL.NODE UNDRAIN node{}", all.nodes[node].number));
        let told = |all: &Nodes| all.nodes.iter().any(|node| call(&node.address, &back).is_ok());
        let end = Instant::now() + PATIENCE;
        while !told(all) {
            assert!(Instant::now() < end, "nobody takes the drain back");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    all.settle();
    if faults.iter().any(|fault| matches!(fault, Fault::Twin(_))) {
        // Whoever lost its place to a twin may not have heard of it yet, and ends when it does.
        std::thread::sleep(2 * LEASE);
        all.settle();
    }
}

/// Asks one node after another until one does it; gives its reply.
fn insist(addresses: &[String], first: u64, words: &[String], history: &History) -> Value {
    let end = Instant::now() + PATIENCE;
    for address in addresses.iter().cycle().skip(first as usize % addresses.len()) {
        match call(address, words) {
            Ok(reply) => return reply,
            // What an error says besides that will not change.
            Err(why) => assert!(Instant::now() < end && !why.starts_with("-ERR"), "{words:?}: {why}"),
        }
        history.refused();
        std::thread::sleep(Duration::from_millis(50));
    }
    unreachable!("there are addresses");
}

fn position(reply: &Value) -> umbel_core::engine::Token {
    reply.field("position").text().parse().unwrap()
}

/// Adds keys for good.
fn add(addresses: &[String], history: &History, prefix: &str, chance: &mut Chance, number: u64) {
    let keys: Vec<String> = (0..BATCH).map(|key| format!("{prefix}:{number}:{key}")).collect();
    history.knows(&keys);
    let begun = history.now();
    let command = [words("UMBEL.ADD seen ITEMS"), keys.clone()].concat();
    let reply = insist(addresses, chance.next(), &command, history);
    let (done, position) = (history.now(), position(&reply));
    let change = |key| Change { key, adds: true, begun, done, position: position.clone() };
    history.changed(keys.into_iter().map(change));
}

/// Adds a key that is counted, takes it out, and adds it again, some times.
fn come_and_go(addresses: &[String], history: &History, session: u64, chance: &mut Chance, number: u64) {
    let key = format!("held:{session}:{number}");
    history.knows(std::slice::from_ref(&key));
    for step in 0..1 + chance.below(3) {
        let (adds, sequence) = (step % 2 == 0, number * 10 + step + 1);
        let name = if adds { "ADD" } else { "REMOVE" };
        let begun = history.now();
        let command = words(&format!("UMBEL.{name} held SESSION {session} SEQUENCE {sequence} ITEMS {key}"));
        let reply = insist(addresses, chance.next(), &command, history);
        assert_eq!(
            reply.field("answers").list(),
            [Value::Number(1)],
            "{command:?}: it was acknowledged, and gone"
        );
        let change =
            Change { key: key.clone(), adds, begun, done: history.now(), position: position(&reply) };
        history.changed([change].into_iter());
    }
}

fn look(addresses: &[String], history: &History, chance: &mut Chance) {
    let read = [Read::Any, Read::Current, Read::Strong][chance.below(3) as usize];
    // Of `any`, the position is that of all keys that were asked for.
    let mut keys = history.some_keys(chance.next(), if read == Read::Any { 1 } else { BATCH as usize });
    let Some(first) = keys.first() else { return };
    let is_held = first.starts_with("held");
    keys.retain(|key| key.starts_with("held") == is_held);
    let filter = if is_held { "held" } else { "seen" };
    let command = words(&format!("UMBEL.EXISTS {filter} READ {} ITEMS", format!("{read:?}").to_lowercase()));
    let address = &addresses[chance.below(addresses.len() as u64) as usize];
    let begun = history.now();
    let Ok(reply) = call(address, &[command, keys.clone()].concat()) else { return history.refused() };
    let (done, position) = (history.now(), position(&reply));
    let answers = reply.field("answers").list();
    assert_eq!(answers.len(), keys.len());
    // What is not known is no answer.
    let told = keys.into_iter().zip(answers).filter(|(_, answer)| answer.text() != "unknown");
    history.looked(told.map(|(key, answer)| Look {
        key,
        read,
        begun,
        done,
        is_there: answer.text() == "maybe",
        position: position.clone(),
    }));
}

/// Ends the clients' work, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Clients at work while things break, and for a moment after that.
fn schedule(all: &mut Nodes, seed: u64) -> (Vec<Fault>, History) {
    let mut chance = Chance(seed);
    let faults: Vec<Fault> = (0..1 + chance.below(3)).map(|_| Fault::any(&mut chance)).collect();
    let (history, stop) = (History::new(), AtomicBool::new(false));
    let addresses: Vec<String> = all.nodes.iter().map(|node| node.address.clone()).collect();
    let (addresses, history_ref, stop_ref) = (&addresses, &history, &stop);
    std::thread::scope(|scope| {
        let run = |client: u64, step: &(dyn Fn(&mut Chance, u64) + Sync)| {
            let mut chance = Chance(seed << 8 | client);
            let mut number = 0;
            while !stop_ref.load(Ordering::Relaxed) {
                step(&mut chance, number);
                number += 1;
            }
        };
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let prefix = format!("seen:{seed}:{writer}");
                run(writer, &|chance, number| add(addresses, history_ref, &prefix, chance, number));
            });
        }
        let session = seed << 16 | 1;
        scope.spawn(move || {
            run(100, &|chance, number| come_and_go(addresses, history_ref, session, chance, number));
        });
        for reader in 0..READERS {
            scope.spawn(move || run(200 + reader, &|chance, _| look(addresses, history_ref, chance)));
        }
        let _stops = Stop(stop_ref);
        std::thread::sleep(Duration::from_millis(500));
        break_things(all, &faults, &mut chance);
        std::thread::sleep(Duration::from_millis(500));
    });
    (faults, history)
}

/// Every node answers for all keys as they are in the end.
fn all_know(all: &Nodes, last: &HashMap<String, bool>, history: &History) {
    for filter in ["seen", "held"] {
        let keys: Vec<_> = last.iter().filter(|(key, _)| key.starts_with(filter)).collect();
        for node in &all.nodes {
            let own = std::slice::from_ref(&node.address);
            for some in keys.chunks(500) {
                let asked = some.iter().map(|(key, _)| (*key).clone());
                let command: Vec<_> =
                    words(&format!("UMBEL.EXISTS {filter} ITEMS")).into_iter().chain(asked).collect();
                let reply = insist(own, 0, &command, history);
                for ((key, is_there), answer) in some.iter().zip(reply.field("answers").list()) {
                    let expected = if **is_there { "maybe" } else { "absent" };
                    assert_eq!(answer.text(), expected, "{key} at machine {}", node.number);
                }
            }
        }
    }
}

/// All hosts of a slot have come to the same, and each slot has two.
fn hosts_agree(all: &Nodes, history: &History) {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut slots: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for node in &all.nodes {
            let reply = insist(std::slice::from_ref(&node.address), 0, &words("UMBEL.NODE DIGESTS"), history);
            for pair in reply.list().chunks(2) {
                slots.entry(format!("{:?}", pair[0])).or_default().push(pair[1].clone());
            }
        }
        let digest = |host: &Value| host.list().first().cloned();
        let agree =
            |hosts: &[Value]| hosts.len() >= 2 && hosts.iter().all(|host| digest(host) == digest(&hosts[0]));
        let differ = slots.iter().find(|(_, hosts)| !agree(hosts));
        let Some((slot, hosts)) = differ else { return };
        // One that was just taken in may still be on its way.
        assert!(Instant::now() < end, "slot {slot}: {hosts:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn number_from(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
#[ignore = "needs root, nft and redis-server: cargo xtask schedules"]
fn nothing_that_was_acknowledged_is_lost() {
    let (count, first) = (number_from("UMBEL_SCHEDULES", 3), number_from("UMBEL_SCHEDULE_SEED", 1));
    let mut all = Nodes::start(NODES);
    let start = History::new();
    let addresses: Vec<String> = all.nodes.iter().map(|node| node.address.clone()).collect();
    for make in ["seen 4000000 0.000001 SHARDS all", "held 200000 0.000001 KIND counting SHARDS all"] {
        insist(&addresses, 0, &words(&format!("UMBEL.CREATE {make}")), &start);
    }
    let (mut total, mut everything) = (Summary::default(), HashMap::new());
    for seed in first..first + count {
        let began = Instant::now();
        let (faults, history) = schedule(&mut all, seed);
        let (summary, last) = (history.check(), history.last());
        println!("seed {seed}: {faults:?}, {:.1} s; {summary}", began.elapsed().as_secs_f64());
        assert_eq!(summary.wrong, 0, "seed {seed}: {}", summary.first_wrong.unwrap_or_default());
        all_know(&all, &last, &history);
        hosts_agree(&all, &history);
        everything.extend(last);
        total.add(&summary);
    }
    all_know(&all, &everything, &start);
    println!(
        "schedules {count}, seeds from {first}; {total}; all {} keys are as they should be at every node, digests of all hosts are equal",
        everything.len()
    );
}
