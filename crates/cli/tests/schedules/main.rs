//! A cluster on machines of its own, on engines and a network that break: machines are killed, sleep, are cut off, have slow disks and
//! clocks that jump, while clients write and read. Afterwards it is looked through what they were told, and all hosts of a slot have to
//! be the same.

mod directed;
mod doors;
mod engines;
mod faults;
mod flood;
mod history;
mod machine;
mod names;
mod network;
mod nodes;
mod relay;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engines::{Engine, Engines};
use faults::{Fault, break_things};
use history::{Change, History, Look, Read, Summary};
use names::Names;
use nodes::{Node, Nodes, PATIENCE, Place, Value, call, words};

const NODES: u8 = 3;
const WRITERS: u64 = 2;
const READERS: u64 = 3;
/// Keys of one request.
const BATCH: u64 = 10;

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

/// Adds again what was not acknowledged, now that all works, so that it is known what is there.
fn finish(all: &Nodes, open: &[(String, Duration)], history: &History) {
    let addresses: Vec<String> = all.nodes.iter().map(|node| node.address.clone()).collect();
    for some in open.chunks(500) {
        let keys = some.iter().map(|(key, _)| key.clone());
        let command: Vec<String> = words("UMBEL.ADD seen ITEMS").into_iter().chain(keys).collect();
        let reply = insist(&addresses, 0, &command, history);
        let (done, position) = (history.now(), position(&reply));
        history.changed(some.iter().map(|(key, begun)| Change {
            key: key.clone(),
            adds: true,
            begun: *begun,
            done,
            position: position.clone(),
        }));
    }
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

/// Clients at work while things break, and for a moment after that. Says what broke, and how many calls slow disks held up.
fn schedule(all: &mut Nodes, seed: u64) -> (Vec<Fault>, usize, History) {
    let mut chance = Chance(seed);
    let any = |chance: &mut Chance| Fault::any(chance, all.nodes.len(), all.engines);
    let faults: Vec<Fault> = (0..1 + chance.below(3)).map(|_| any(&mut chance)).collect();
    let (history, stop) = (History::new(), AtomicBool::new(false));
    let addresses: Vec<String> = all.nodes.iter().map(|node| node.address.clone()).collect();
    let (addresses, history_ref, stop_ref) = (&addresses, &history, &stop);
    let held_up = std::thread::scope(|scope| {
        let run = |client: u64, step: &mut dyn FnMut(&mut Chance, u64)| {
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
                run(writer, &mut |chance, number| add(addresses, history_ref, &prefix, chance, number));
            });
        }
        let session = seed << 16 | 1;
        scope.spawn(move || {
            run(100, &mut |chance, number| come_and_go(addresses, history_ref, session, chance, number));
        });
        scope.spawn(move || {
            let mut names = Names::new(addresses, history_ref, format!("names:{seed}"));
            run(150, &mut |chance, _| names.step(chance));
        });
        for reader in 0..READERS {
            scope.spawn(move || run(200 + reader, &mut |chance, _| look(addresses, history_ref, chance)));
        }
        let _stops = Stop(stop_ref);
        std::thread::sleep(Duration::from_millis(500));
        let held_up = break_things(all, &faults, &mut chance, &format!("seen:{seed}"), history_ref);
        std::thread::sleep(Duration::from_millis(500));
        held_up
    });
    (faults, held_up, history)
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

/// Clocks that are set are seen by programs that run, or else nothing would be known of jumps.
fn clocks_can_be_set(all: &mut Nodes) {
    const AHEAD: i64 = 24 * 3600;
    let engines = all.engines.all().into_iter().filter(|engine| engine.has_clock()).map(Place::Engine);
    for place in engines.chain((0..all.nodes.len()).map(|node| Place::Node(Node(node)))).collect::<Vec<_>>() {
        let before = all.time_at(place).unwrap();
        all.machine(place).set_clock(AHEAD);
        let ahead = all.time_at(place).unwrap();
        all.machine(place).set_clock(0);
        assert!((AHEAD..AHEAD + 60).contains(&(ahead - before)), "{place:?}: from {before} to {ahead}");
    }
}

/// Disks that are slowed down are slow: calls of every engine that has one are held up.
fn disks_can_be_slow(all: &mut Nodes, addresses: &[String], history: &History) {
    let slow: Vec<Engine> = all.engines.all().into_iter().filter(|engine| engine.waits_for_disk()).collect();
    for engine in slow {
        let (place, end) = (Place::Engine(engine), Instant::now() + PATIENCE);
        loop {
            all.machine(place).brake(Duration::from_millis(100));
            std::thread::sleep(Duration::from_secs(1));
            add(addresses, history, &format!("seen:first:{engine:?}"), &mut Chance(0), 0);
            engine.write(&all.machine(place).address);
            if all.machine(place).release() > Some(0) {
                break;
            }
            assert!(Instant::now() < end, "no call of {engine:?} was held up");
        }
    }
}

fn engines() -> String {
    std::env::var("UMBEL_SCHEDULE_ENGINES").unwrap_or_else(|_| "redis".into())
}

/// A cluster with the filters that clients write to.
fn cluster(history: &History) -> (Nodes, Vec<String>) {
    let all = Nodes::start(NODES, Engines::named(&engines()));
    let addresses: Vec<String> = all.nodes.iter().map(|node| node.address.clone()).collect();
    for make in ["seen 4000000 0.000001 SHARDS all", "held 200000 0.000001 KIND counting SHARDS all"] {
        insist(&addresses, 0, &words(&format!("UMBEL.CREATE {make}")), history);
    }
    (all, addresses)
}

#[test]
#[ignore = "needs root, nft, strace and engines: cargo xtask schedules"]
fn nothing_that_was_acknowledged_is_lost() {
    let (count, first) = (number_from("UMBEL_SCHEDULES", 3), number_from("UMBEL_SCHEDULE_SEED", 1));
    let (engines, start) = (engines(), History::new());
    let (mut all, addresses) = cluster(&start);
    clocks_can_be_set(&mut all);
    disks_can_be_slow(&mut all, &addresses, &start);
    let (mut total, mut all_held_up, mut everything) = (Summary::default(), 0, start.last());
    for seed in first..first + count {
        let began = Instant::now();
        let (faults, held_up, history) = schedule(&mut all, seed);
        let (summary, last) = (history.check(), history.last());
        let took = began.elapsed().as_secs_f64();
        println!(
            "{engines}, seed {seed}: {faults:?}, {took:.1} s; {summary}; calls to disks held up {held_up}"
        );
        assert_eq!(summary.wrong, 0, "seed {seed}: {}", summary.first_wrong.unwrap_or_default());
        all_know(&all, &last, &history);
        hosts_agree(&all, &history);
        everything.extend(last);
        total.add(&summary);
        all_held_up += held_up;
    }
    all_know(&all, &everything, &start);
    println!(
        "{engines}: schedules {count}, seeds from {first}; {total}; calls to disks held up {all_held_up}; all {} keys are as they should be \
         at every node, digests of all hosts are equal",
        everything.len()
    );
}
