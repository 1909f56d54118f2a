//! Rollouts, schedules and notices of a cluster: through any node, and on when the node that looks after them is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value as Json, json};

use super::copies::{ask_at, filter};
use super::*;

/// How long it takes until a node that begins to look after replicas knows all of them.
const GONE_AFTER: Duration = Duration::from_secs(3);

fn three_nodes() -> (World, Vec<Running>) {
    let mut world = World::new();
    world.config.replica_gone_after = GONE_AFTER;
    let nodes: Vec<Running> = ["a", "b", "c"].map(|name| world.start(name)).into();
    world.settle(&nodes.iter().collect::<Vec<_>>());
    (world, nodes)
}

/// Takes out the node that looks after replicas.
fn take_steward(world: &World, nodes: &mut Vec<Running>) -> Running {
    let find = |nodes: &[Running]| {
        let all: Vec<usize> =
            (0..nodes.len()).filter(|at| nodes[*at].node.engine.term_as_steward().is_some()).collect();
        (all.len() == 1).then(|| all[0])
    };
    world.eventually("one looks after replicas", || find(&nodes[..]).is_some());
    let at = find(&nodes[..]).expect("it did a moment ago");
    nodes.remove(at)
}

/// Replicas that say what a test wants them to say, each to a node of its own while that is there.
struct Fakes {
    doors: Mutex<Vec<SocketAddr>>,
    /// Whether they take what they are told to serve.
    obey: AtomicBool,
    /// Whether those in the first region lack a probe key.
    are_ill: AtomicBool,
    stop: AtomicBool,
    /// What each of them was told since somebody looked.
    told: Mutex<BTreeMap<usize, BTreeSet<u64>>>,
}

const FAKES: usize = 6;

impl Fakes {
    fn new(nodes: &[Running]) -> Self {
        Self {
            doors: Mutex::new(nodes.iter().map(Running::door).collect()),
            obey: AtomicBool::new(true),
            are_ill: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }

    /// Speaks for all of them until it is stopped.
    fn run(&self) {
        let mut has: [Option<u64>; FAKES] = [None; FAKES];
        let (mut digests, mut probes, mut sequence) = (BTreeMap::new(), vec![Json::Null; FAKES], 0);
        while !self.stop.load(Ordering::Relaxed) {
            for (number, version) in has.iter_mut().enumerate() {
                sequence += 1;
                let door = {
                    let doors = self.doors.lock().expect("nobody failed");
                    doors[number % doors.len()]
                };
                let region = if number % 2 == 0 { "eu" } else { "us" };
                let ill = region == "eu" && self.are_ill.load(Ordering::Relaxed);
                let probed = version.filter(|_| !probes[number].is_null()).map(|version| {
                    json!({ "id": probes[number], "version": version, "missing": u8::from(ill), "unexpected": 0 })
                });
                let digest = version.and_then(|version| digest(door, version, &mut digests));
                let says = json!({
                    "run": 1, "sequence": sequence, "strategy": "pull", "version": version, "digest": digest.unwrap_or_default(),
                    "labels": { "region": region }, "probed": probed,
                });
                let path = format!("/v1/filters/f/replicas/replica-{number}");
                let Ok((200, orders)) = ask_at(door, "PUT", &path, says.to_string().as_bytes()) else {
                    continue;
                };
                let orders: Json = serde_json::from_slice(&orders).expect("JSON");
                probes[number] = orders["probes"]["id"].clone();
                if let Some(serve) = orders["serve"].as_u64() {
                    self.told.lock().expect("nobody failed").entry(number).or_default().insert(serve);
                    if self.obey.load(Ordering::Relaxed) {
                        *version = Some(serve);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn forget(&self) {
        self.told.lock().expect("nobody failed").clear();
    }

    /// Who was told to serve a version, since it was forgotten.
    fn told_to_serve(&self, version: u64) -> Vec<usize> {
        let told = self.told.lock().expect("nobody failed");
        told.iter().filter(|(_, versions)| versions.contains(&version)).map(|(number, _)| *number).collect()
    }
}

/// The digest of a version, as a node tells it.
fn digest(door: SocketAddr, version: u64, known: &mut BTreeMap<u64, String>) -> Option<String> {
    if !known.contains_key(&version) {
        let (_, listed) = ask_at(door, "GET", "/v1/filters/f/versions", b"").ok()?;
        let listed: Json = serde_json::from_slice(&listed).ok()?;
        for version in listed["versions"].as_array()? {
            known.insert(version["number"].as_u64()?, version["digest"].as_str()?.to_owned());
        }
    }
    known.get(&version).cloned()
}

/// Ends what speaks for replicas, also if the test fails.
struct Ends<'a>(&'a Fakes);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

const ROLLOUT: &str = "/v1/filters/f/rollout";

/// The rollout as all of these nodes tell it, when it is so.
fn until(nodes: &[Running], what: &str, is_so: impl Fn(&Json) -> bool) -> Json {
    let last = Mutex::new(Json::Null);
    let look = || {
        nodes.iter().all(|node| {
            let (_, rollout) = node.json("GET", ROLLOUT, &Json::Null);
            let is_so = is_so(&rollout);
            *last.lock().expect("nobody failed") = rollout;
            is_so
        })
    };
    let begun = Instant::now();
    while !look() {
        assert!(begun.elapsed() < PATIENCE, "not so: {what}: {}", last.lock().expect("nobody failed"));
        std::thread::sleep(Duration::from_millis(20));
    }
    last.into_inner().expect("nobody failed")
}

fn start(node: &Running, plan: &Json) -> u64 {
    let (status, begun) = node.json("POST", ROLLOUT, &json!({ "plan": plan }));
    assert_eq!(status, 201, "{begun}");
    begun["target"].as_u64().expect("a version")
}

fn hold(node: &Running, paused: bool) {
    let (status, held) = node.json("PUT", ROLLOUT, &json!({ "paused": paused }));
    assert_eq!((status, &held["paused"]), (200, &json!(paused)), "{held}");
}

fn is(state: &'static str) -> impl Fn(&Json) -> bool {
    move |rollout| rollout["state"] == state
}

/// Nodes with a filter of which there is a version, and replicas that have it.
fn with_replicas(test: impl FnOnce(&World, &mut Vec<Running>, &Fakes, u64)) {
    let (world, mut nodes) = three_nodes();
    insist(&mut nodes[0].connect(), &["BF.RESERVE", "f", "0.001", "100000"]);
    insist(&mut nodes[1].connect(), &["BF.ADD", "f", "key-0"]);
    let (_, first) = nodes[2].publish("f");
    let fakes = Fakes::new(&nodes);
    std::thread::scope(|scope| {
        let _ends = Ends(&fakes);
        scope.spawn(|| fakes.run());
        world.eventually("all replicas are known", || {
            let (_, listed) = nodes[0].json("GET", "/v1/filters/f/replicas", &Json::Null);
            listed["replicas"].as_array().is_some_and(|all| all.len() == FAKES)
        });
        test(&world, &mut nodes, &fakes, first);
    });
}

#[test]
fn a_rollout_goes_through_any_node_is_held_and_goes_back() {
    with_replicas(|world, nodes, fakes, first| {
        let steward = take_steward(world, nodes);
        nodes.push(steward);
        let all = &nodes[..];
        let (one, other) = (&nodes[0], &nodes[1]);
        let plan = json!({ "by": "region", "order": ["eu"], "probe_present": ["key-0"] });
        insist(&mut one.connect(), &["BF.ADD", "f", "key-1"]);
        fakes.obey.store(false, Ordering::Relaxed);
        let second = start(one, &plan);
        assert_eq!(other.json("POST", ROLLOUT, &json!({})).0, 409, "one at a time");
        hold(other, true);
        fakes.obey.store(true, Ordering::Relaxed);
        let well =
            until(all, "the first group is well", |told| told["why"] == "group 1 of 2 is well: 3 replicas");
        assert_eq!((&well["stage"], &well["previous"]), (&json!(0), &json!(first)), "{well}");
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(fakes.told_to_serve(second), [0, 2, 4], "it is held");
        hold(one, false);
        until(all, "it is done", is("done"));
        world.eventually("all have it", || fakes.told_to_serve(second).len() == FAKES);
        for node in all {
            assert_eq!(node.version("f", "current").number, second);
        }

        // One whose probe key is missing goes back by itself, and the second group never hears of it.
        insist(&mut other.connect(), &["BF.ADD", "f", "key-2"]);
        fakes.are_ill.store(true, Ordering::Relaxed);
        let third = start(other, &plan);
        let back = until(all, "it goes back", is("rolled_back"));
        assert!(back["why"].as_str().is_some_and(|why| why.contains("probe keys are absent")), "{back}");
        fakes.are_ill.store(false, Ordering::Relaxed);
        assert_eq!(fakes.told_to_serve(third), [0, 2, 4]);
        // What was on its way when it went back may still come.
        for _ in 0..2 {
            fakes.forget();
            world.eventually("all are back", || fakes.told_to_serve(second).len() == FAKES);
        }
        assert!(fakes.told_to_serve(third).is_empty());

        // And one goes back because somebody wants it to; that may be said twice.
        fakes.obey.store(false, Ordering::Relaxed);
        insist(&mut other.connect(), &["BF.ADD", "f", "key-3"]);
        start(one, &plan);
        for node in [other, one] {
            let (status, back) = node.json("DELETE", ROLLOUT, &Json::Null);
            let is_back = back["state"] == "rolling_back" || back["state"] == "rolled_back";
            assert!(status == 200 && is_back, "{status} {back}");
        }
        until(all, "all have confirmed it", is("rolled_back"));
        assert_eq!(one.version("f", "current").number, second);
    });
}

/// Groups by how many there are: whoever takes over does not know at first which replicas there are, and tells none of them too much.
#[test]
fn another_node_goes_on_with_a_rollout() {
    with_replicas(|world, nodes, fakes, _| {
        let steward = take_steward(world, nodes);
        insist(&mut nodes[0].connect(), &["BF.ADD", "f", "key-1"]);
        fakes.obey.store(false, Ordering::Relaxed);
        let second = start(&nodes[0], &json!({ "batch": 2 }));
        hold(&nodes[1], true);
        fakes.obey.store(true, Ordering::Relaxed);
        let well =
            until(nodes, "the first group is well", |told| told["why"] == "group 1 of 3 is well: 2 replicas");
        let in_first = fakes.told_to_serve(second);
        assert_eq!(in_first.len(), 2, "{in_first:?}");
        *fakes.doors.lock().expect("nobody failed") = nodes.iter().map(Running::door).collect();
        steward.kill();
        let keeper = well["keeper"].clone();
        until(nodes, "another one looks after it", |told| told["keeper"] != keeper);
        // Until it knows all of them, and a while longer.
        std::thread::sleep(GONE_AFTER + Duration::from_millis(500));
        assert_eq!(fakes.told_to_serve(second), in_first);
        hold(&nodes[1], false);
        until(nodes, "it is done", is("done"));
        for node in &nodes[..] {
            assert_eq!(node.version("f", "current").number, second);
        }
        world.eventually("all have it", || fakes.told_to_serve(second).len() == FAKES);
    });
}

/// A filter is built anew every second. However nodes come and go, each time is done once, or again by another node if one was killed in it.
#[test]
fn a_schedule_is_kept_once_by_all_nodes() {
    let (world, mut nodes) = three_nodes();
    let made = json!({ "name": "f", "capacity": 1_000, "error": 0.01, "kind": "counting" });
    let (status, made) = nodes[0].json("POST", "/v1/filters", &made);
    assert_eq!(status, 201, "{made}");
    insist(&mut nodes[1].connect(), &["CF.ADD", "f", "key-0"]);
    let schedule = "/v1/filters/f/schedule";
    assert_eq!(nodes[1].json("GET", schedule, &Json::Null).0, 404);
    let before = generation(&nodes).expect("a filter");
    let (status, set) = nodes[1].json("PUT", schedule, &json!({ "cron": "* * * * * *" }));
    assert_eq!(status, 200, "{set}");
    let entry = format!("schedules/{:016x}", filter(&nodes[0], "f"));
    let (stop, times) = (AtomicBool::new(false), Mutex::new(BTreeMap::new()));
    let read = || {
        let found =
            world.runtime.block_on(world.registry.get(&entry)).expect("a registry").expect("a schedule");
        let schedule: Json = serde_json::from_slice(&found.value).expect("JSON");
        (schedule, found.version)
    };
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (schedule, _) = read();
                if let Some(last) = schedule["last_ms"].as_u64() {
                    let beginnings = schedule["under_way"]["beginnings"].as_u64().unwrap_or(0);
                    let mut times = times.lock().expect("nobody failed");
                    let most = times.entry(last).or_insert(0);
                    *most = beginnings.max(*most);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let done = || times.lock().expect("nobody failed").len();
        let more = |count: usize| {
            let wanted = done() + count;
            world.eventually("it is built anew", || done() >= wanted);
        };
        more(2);
        take_steward(&world, &mut nodes).kill();
        more(2);
        nodes.push(world.start("d"));
        more(2);
        // It is counted at a moment in which nobody is at it.
        let begun = Instant::now();
        loop {
            let (schedule, version) = read();
            if schedule["under_way"].is_null()
                && let Some(now) = generation(&nodes)
                && read().1 == version
            {
                let mut times = times.lock().expect("nobody failed");
                let last = schedule["last_ms"].as_u64().expect("it was done");
                // Whoever watches may not have come to see the last one.
                times.entry(last).or_insert(0);
                let of_times = times.range(..=last);
                let again: u64 = of_times.clone().map(|(_, beginnings)| beginnings.saturating_sub(1)).sum();
                let (built, times) = (now - before, of_times.count() as u64);
                println!("built {built} times at {times} times, {again} of them begun again");
                assert!((times..=times + again).contains(&built), "{built} for {times} and {again}");
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{schedule}");
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        watching.join().expect("it looked");
    });
    assert_eq!(nodes[0].json("DELETE", schedule, &Json::Null).0, 204);
    assert_eq!(insist(&mut nodes[0].connect(), &["CF.EXISTS", "f", "key-0"]), Value::Integer(1));
}

/// How often a filter was given a size, as the node knows that is first in the catalog.
fn generation(nodes: &[Running]) -> Option<u64> {
    let steward = nodes.iter().find(|node| node.node.engine.term_as_steward().is_some())?;
    Some(u64::from(steward.node.engine.filter("f")?.definition().generation))
}

#[test]
fn notices_reach_those_who_listen_at_other_nodes() {
    let (_world, nodes) = three_nodes();
    insist(&mut nodes[0].connect(), &["BF.RESERVE", "f", "0.001", "100000"]);
    insist(&mut nodes[0].connect(), &["BF.ADD", "f", "key-0"]);
    assert_eq!(nodes[0].publish("f"), (201, 1));
    insist(&mut nodes[0].connect(), &["BF.ADD", "f", "key-1"]);
    assert_eq!(nodes[0].publish("f"), (201, 2));
    let mut listening = TcpStream::connect(nodes[1].door()).expect("a connection");
    listening.set_read_timeout(Some(PATIENCE)).expect("a socket");
    listening.write_all(b"GET /v1/filters/f/notices HTTP/1.1\r\nhost: b\r\n\r\n").expect("sent");
    let mut lines = BufReader::new(listening).lines().map(|line| line.expect("a line"));
    let mut heard = |number: u64| {
        let wanted = format!("\"number\":{number}");
        lines.any(|line| line.starts_with("data: ") && line.contains(&wanted))
    };
    assert!(heard(2), "what the node finds itself");
    let (status, pinned) = nodes[2].json("PUT", "/v1/filters/f/current", &json!({ "version": 1 }));
    assert_eq!(status, 200, "{pinned}");
    assert!(heard(1), "what is pinned at another node");
}
