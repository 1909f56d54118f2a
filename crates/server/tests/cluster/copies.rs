//! Copies of a cluster's filters: versions, snapshots and feeds, from any node, while nodes go away.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value as Json, json};
use umbel_client::{Options, Replica, Strategy};
use umbel_core::budget::Budget;
use umbel_core::copy::{Assembly, Copy};
use umbel_core::fold::Means;
use umbel_core::version::{ChunkId, Version};

use super::*;

impl Running {
    pub(super) fn door(&self) -> SocketAddr {
        self.chores.as_ref().expect("it runs").addresses()[0]
    }

    fn url(&self) -> String {
        format!("http://{}", self.door())
    }

    /// What a request gets: its status, and its body.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        ask_at(self.door(), method, path, body).expect("an answer")
    }

    /// The same as JSON, and again while the server says that it may help.
    pub(super) fn json(&self, method: &str, path: &str, body: &Json) -> (u16, Json) {
        let begun = Instant::now();
        loop {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let (status, answer) = self.ask(method, path, body.as_bytes());
            let answer =
                if answer.is_empty() { Json::Null } else { serde_json::from_slice(&answer).expect("JSON") };
            if status != 503 {
                return (status, answer);
            }
            assert!(begun.elapsed() < PATIENCE, "{answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn version(&self, filter: &str, which: &str) -> Version {
        let (status, bytes) = self.ask("GET", &format!("/v1/filters/{filter}/versions/{which}"), b"");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&bytes));
        Version::decode(&bytes, "a version").expect("a version")
    }

    pub(super) fn publish(&self, filter: &str) -> (u16, u64) {
        let (status, made) = self.json("POST", &format!("/v1/filters/{filter}/versions"), &Json::Null);
        (status, made["number"].as_u64().unwrap_or_else(|| panic!("{made}")))
    }
}

/// What a request to an address gets: its status, and its body.
pub(super) fn ask_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\naccept-encoding: identity\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let cut_off = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(cut_off)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut_off)?;
    Ok((status, answer.split_off(end + 4)))
}

/// A copy whose chunks come from one node after another.
fn copy_of(name: &str, version: Version, nodes: &[&Running]) -> Copy {
    let means = Means::new(Budget::new(1 << 30));
    let mut assembly = Assembly::new(version, &means).expect("a version");
    let missing: BTreeSet<ChunkId> = assembly.missing().collect();
    for (id, node) in missing.into_iter().zip(nodes.iter().cycle()) {
        let (status, chunk) = node.ask("GET", &format!("/v1/filters/{name}/chunks/{id}"), b"");
        assert!(status == 200 && assembly.put(&chunk).expect("a chunk"), "{status}");
    }
    assembly.finish(&means).expect("it is whole")
}

fn has_all(copy: &Copy, keys: &[String]) {
    let missing = keys.iter().filter(|key| !copy.contains(copy.hasher().fingerprint(key.as_bytes()))).count();
    assert_eq!(missing, 0, "of version {}", copy.version().number);
}

#[test]
fn versions_and_snapshots_come_from_any_node() {
    let mut world = World::new();
    world.config.versions_kept_for = Duration::ZERO;
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut on_a = a.connect();
    insist(&mut on_a, &["BF.RESERVE", "large", "0.001", "100000"]);
    insist(&mut on_a, &["BF.RESERVE", "small", "0.01", "1000"]);
    for name in ["large", "small"] {
        let all = [&a, &b, &c];
        let path = |rest: &str| format!("/v1/filters/{name}/{rest}");
        assert_eq!(a.ask("GET", &path("versions/latest"), b"").0, 404, "nobody has made one");
        insist(&mut b.connect(), &many("BF.MADD", name, &keys(0, 500)));
        assert_eq!(a.publish(name), (201, 1));
        assert_eq!(b.publish(name), (200, 1));
        insist(&mut on_a, &many("BF.MADD", name, &keys(500, 600)));
        assert_eq!(c.publish(name), (201, 2));
        for node in all {
            has_all(&copy_of(name, node.version(name, "1"), &all), &keys(0, 500));
            has_all(&copy_of(name, node.version(name, "latest"), &all), &keys(0, 600));
            let (_, listed) = node.json("GET", &path("versions"), &Json::Null);
            assert_eq!((listed["current"].as_u64(), &listed["pinned"]), (Some(2), &json!(false)));
        }
        // Back to the one before, and forward again.
        let (status, pinned) = b.json("PUT", &path("current"), &json!({ "version": 1, "expected": null }));
        assert_eq!((status, pinned["current"].as_u64()), (200, Some(1)), "{pinned}");
        for node in all {
            assert_eq!(node.version(name, "current").number, 1);
            let conflict = node.json("PUT", &path("current"), &json!({ "version": 2, "expected": null }));
            assert_eq!(conflict.0, 409, "{}", conflict.1);
        }
        assert_eq!(c.json("PUT", &path("current"), &json!({ "version": 77 })).0, 404);
        assert_eq!(c.json("PUT", &path("current"), &json!({ "version": null })).0, 200);
        assert_eq!(a.version(name, "current").number, 2);
        // Files for other languages.
        for format in ["native", "guava"] {
            let file = bytes(insist(&mut on_a, &["UMBEL.EXPORT", name, "FORMAT", format]));
            assert!(snapshot(all, name, format) == file, "{format} of {name}");
        }
        // Many versions, through all nodes: old ones go, with what was written for them alone.
        for number in 3..40 {
            let node = all[number % 3];
            insist(&mut on_a, &["BF.ADD", name, &format!("more-{number}")]);
            assert_eq!(node.publish(name), (201, number as u64));
        }
        let numbers = world.runtime.block_on(b.node.engine.versions(filter(&b, name))).expect("a list");
        assert_eq!(numbers, [&[1][..], &[32, 33, 34, 35, 36, 37, 38, 39]].concat(), "1 was pinned before");
        for number in numbers {
            has_all(&copy_of(name, c.version(name, &number.to_string()), &all), &keys(0, 500));
        }
    }
    let foreign = ["UMBEL.CREATE", "foreign", "1000", "0.01", "FAMILY", "redisbloom"];
    assert_eq!(insist(&mut on_a, &foreign), Value::Simple("OK".into()));
    insist(&mut on_a, &many("BF.MADD", "foreign", &keys(0, 500)));
    assert!(snapshot([&a, &b, &c], "foreign", "redisbloom").len() > 500);
    // What a node made is there without it.
    assert_eq!(c.publish("large").0, 200);
    c.kill();
    has_all(&copy_of("large", a.version("large", "latest"), &[&a, &b]), &keys(0, 600));
    insist(&mut on_a, &many("BF.MADD", "large", &keys(600, 700)));
    let (status, number) = b.publish("large");
    assert_eq!((status, number), (201, 40));
    has_all(&copy_of("large", a.version("large", "40"), &[&b, &a]), &keys(0, 700));
}

/// A file of a filter, which is the same from all nodes.
fn snapshot(nodes: [&Running; 3], name: &str, format: &str) -> Vec<u8> {
    let path = format!("/v1/filters/{name}/snapshot?format={format}");
    let [(status, file), others @ ..] = nodes.map(|node| node.ask("GET", &path, b""));
    assert_eq!(status, 200, "{format} of {name}: {}", String::from_utf8_lossy(&file));
    assert!(others.iter().all(|other| *other == (200, file.clone())), "{format} of {name}");
    file
}

pub(super) fn filter(node: &Running, name: &str) -> u64 {
    node.node.engine.filter(name).expect("it is known here").id()
}

fn all_maybe(replica: &Replica, keys: &[String]) {
    let answers = replica.contains_batch(keys);
    let missing = answers.iter().filter(|answer| **answer != Answer::Maybe).count();
    assert_eq!(missing, 0, "{:#?}", replica.status());
}

/// Waits until the replica has what is in a filter now.
fn catch_up(world: &World, replica: &Replica, node: &Running, name: &str) {
    let begun = Instant::now();
    let token = loop {
        let filter = node.node.engine.filter(name).expect("it is known here");
        match world.runtime.block_on(node.node.engine.publish(&filter)) {
            Ok(version) => break version.token(),
            Err(umbel_core::Error::Retry(_)) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("{error}"),
        }
    };
    let reached = async { tokio::time::timeout(PATIENCE, replica.reached(&token)).await };
    let reached = world.runtime.block_on(reached);
    assert!(matches!(reached, Ok(Ok(_))), "{token} is not reached: {:#?}", replica.status());
}

/// Every strategy follows a cluster, and goes on with other nodes when the one that it asks is gone in the middle of adds.
#[test]
fn replicas_follow_whichever_nodes_are_there() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut on_b = b.connect();
    insist(&mut on_b, &["BF.RESERVE", "large", "0.001", "100000"]);
    insist(&mut on_b, &["CF.RESERVE", "erasable", "100000"]);
    insist(&mut on_b, &many("BF.MADD", "large", &keys(0, 1000)));
    let interval = Duration::from_millis(200);
    let strategies = [Strategy::pull(interval), Strategy::notify(), Strategy::delta(), Strategy::push()];
    let open = |strategy, name: &str, nodes: [&Running; 3]| {
        let [first, rest @ ..] = nodes;
        let mut options = Options::new(first.url(), name, strategy);
        for node in rest {
            options = options.or_server(node.url());
        }
        world.runtime.block_on(Replica::open(options)).expect("a replica")
    };
    let replicas = strategies.map(|strategy| open(strategy, "large", [&a, &b, &c]));
    let counting = strategies.map(|strategy| open(strategy, "erasable", [&a, &c, &b]));
    for replica in &replicas {
        catch_up(&world, replica, &c, "large");
        all_maybe(replica, &keys(0, 1000));
    }
    // What is removed goes once, whoever is asked, and what was not there has no effect.
    let counted = |on: &mut Client, command: &str, from: usize, to: usize| {
        for key in keys(from, to) {
            let done = insist(on, &[command, "erasable", &key]);
            assert!(matches!(done, Value::Integer(_)), "{done:?}");
        }
    };
    counted(&mut on_b, "CF.ADD", 0, 60);
    counted(&mut on_b, "CF.ADD", 0, 30);
    counted(&mut c.connect(), "CF.DEL", 0, 100);
    for replica in &counting {
        catch_up(&world, replica, &b, "erasable");
        all_maybe(replica, &keys(0, 30));
        assert_eq!(replica.status().items, 30, "{:#?}", replica.status());
    }
    // A node is gone while others add.
    let (stop, mut last) = (AtomicBool::new(false), 1000);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            let (mut on_b, mut on_c, mut last) = (b.connect(), c.connect(), 1000);
            while !stop.load(Ordering::Relaxed) || last < 2000 {
                for client in [&mut on_b, &mut on_c] {
                    let answers = insist(client, &many("BF.MADD", "large", &keys(last, last + 20)));
                    assert!(answers.error().is_none(), "{answers:?}");
                    last += 20;
                }
            }
            last
        });
        std::thread::sleep(Duration::from_millis(300));
        a.kill();
        world.settle(&[&b, &c]);
        stop.store(true, Ordering::Relaxed);
        last = adding.join().expect("all were added");
    });
    counted(&mut on_b, "CF.ADD", 200, 250);
    counted(&mut c.connect(), "CF.DEL", 210, 260);
    for replica in &replicas {
        catch_up(&world, replica, &b, "large");
        all_maybe(replica, &keys(0, last));
        let absent = replica.contains_batch(&keys(1_000_000, 1_001_000));
        assert!(absent.iter().filter(|answer| **answer == Answer::Absent).count() > 950);
    }
    for replica in &counting {
        catch_up(&world, replica, &c, "erasable");
        assert_eq!(replica.status().items, 40, "{:#?}", replica.status());
        all_maybe(replica, &keys(200, 210));
    }
    // What a replica adds itself goes to whichever node is there, once.
    for (number, replica) in replicas.iter().enumerate() {
        let own = format!("own-{number}");
        world.runtime.block_on(async {
            replica.add(&[&own]).await.expect("taken");
            assert_eq!(replica.contains(&own), Answer::Maybe);
            tokio::time::timeout(PATIENCE, replica.flush()).await.expect("in time").expect("sent");
        });
        assert_eq!(insist(&mut on_b, &["BF.EXISTS", "large", &own]), Value::Integer(1));
    }
    // Whoever they talk to, one node knows all of them.
    for node in [&b, &c] {
        world.eventually("all replicas are known", || {
            let (_, listed) = node.json("GET", "/v1/filters/large/replicas", &Json::Null);
            listed["replicas"].as_array().is_some_and(|all| all.len() == 4)
        });
    }
}

/// Switches strong replicas to the filter as it is now, whatever becomes of nodes meanwhile.
fn switch(node: &Running) {
    let begun = Instant::now();
    loop {
        let (status, answer) = node.json("POST", "/v1/filters/f/switch", &json!({ "timeout_ms": 20_000 }));
        match status {
            201 => return,
            409 if begun.elapsed() < PATIENCE => {}
            _ => panic!("{status} {answer}"),
        }
    }
}

/// Strong replicas that ask different nodes answer from the same version, also while the node that looks after them is killed: what one has
/// said to be there, no other says to be absent after that.
#[test]
fn strong_replicas_of_several_nodes_never_go_back() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    insist(&mut a.connect(), &["BF.RESERVE", "f", "0.001", "100000"]);
    insist(&mut a.connect(), &["BF.ADD", "f", "key-0"]);
    switch(&b);
    let urls = [a.url(), b.url(), c.url()];
    let replicas: Vec<Replica> = (0..3)
        .map(|first| {
            let options = Options::new(&urls[first], "f", Strategy::strong());
            let options = options.or_server(&urls[(first + 1) % 3]).or_server(&urls[(first + 2) % 3]);
            world.runtime.block_on(Replica::open(options)).expect("a replica")
        })
        .collect();
    let all_have = |number: usize| {
        let key = format!("key-{number}");
        world.eventually(&key, || replicas.iter().all(|replica| replica.contains(&key) == Answer::Maybe));
    };
    all_have(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut newest, mut answers) = (0, [0_u64; 3]);
            while !stop.load(Ordering::Relaxed) {
                for replica in &replicas {
                    let known = replica.contains(format!("key-{newest}"));
                    assert_ne!(known, Answer::Absent, "key-{newest}: {:#?}", replica.status());
                    answers[known as usize] += 1;
                    if replica.contains(format!("key-{}", newest + 1)) == Answer::Maybe {
                        newest += 1;
                    }
                }
            }
            (newest, answers)
        });
        let mut nodes = vec![a, b, c];
        for number in 1..=5 {
            if number == 3 {
                let steward = nodes.iter().position(|node| node.node.engine.term_as_steward().is_some());
                nodes.remove(steward.expect("one looks after replicas")).kill();
            }
            let node = &nodes[number % nodes.len()];
            insist(&mut node.connect(), &["BF.ADD", "f", &format!("key-{number}")]);
            switch(node);
            all_have(number);
        }
        stop.store(true, Ordering::Relaxed);
        let (newest, answers) = reading.join().expect("nothing went back");
        assert_eq!(newest, 5, "{answers:?}");
    });
}
