//! What replicas get from the server: changes as they come, versions in between, notices, and orders.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use common::{Door, new_folder, start, start_with, start_with_registry_and};
use serde_json::{Value, json};
use umbel_core::budget::Budget;
use umbel_core::copy::{Assembly, Copy, Taken};
use umbel_core::entry::Entry;
use umbel_core::feed::Frame;
use umbel_core::fold::Means;
use umbel_core::version::Version;

const PATIENCE: Duration = Duration::from_secs(30);

fn means() -> Means {
    Means::new(Budget::new(1 << 30))
}

fn door_with(filter: &Value) -> Door {
    let door = Door::open(start());
    assert_eq!(door.post("/v1/filters", filter).0, 201);
    door
}

fn add(door: &Door, from: u32, to: u32) -> String {
    let keys: Vec<String> = (from..to).map(|number| format!("key {number}")).collect();
    let (status, added) = door.post("/v1/filters/f/add", &json!({ "keys": keys }));
    assert_eq!(status, 200, "{added}");
    added["position"].as_str().expect("a position").to_owned()
}

fn publish(door: &Door) -> Version {
    let engine = &door.running.node.engine;
    let filter = engine.filter("f").expect("it is there");
    block_on(engine.publish(&filter)).expect("published")
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn copy_of(door: &Door, version: Version) -> Copy {
    let filter = version.filter;
    let mut assembly = Assembly::new(version, &means()).expect("a version");
    for id in assembly.missing().collect::<Vec<_>>() {
        let chunk = block_on(door.running.node.engine.chunk(filter, id)).expect("read").expect("there");
        assembly.put(&chunk).expect("good");
    }
    assembly.finish(&means()).expect("whole")
}

/// All frames of some bytes.
fn frames(bytes: &[u8]) -> Vec<Frame> {
    let (mut buffer, mut found) = (BytesMut::from(bytes), Vec::new());
    while let Some(frame) = Frame::take(&mut buffer).expect("good frames") {
        found.push(frame);
    }
    assert!(buffer.is_empty(), "a frame that is cut off");
    found
}

/// Puts frames into a copy; gives the worst that came of them.
fn put(copy: &Copy, frames: &[Frame]) -> Taken {
    let mut worst = Taken::Done;
    for frame in frames {
        match frame {
            Frame::Record { partition, record } => {
                let entry = Entry::decode(&record.entry).expect("an entry");
                let taken = copy.apply(*partition, record.position, &entry).expect("applied");
                if taken != Taken::Done {
                    worst = taken;
                }
            }
            Frame::Packed { partition, position, changes } => {
                copy.apply_packed(*partition, *position, changes).expect("applied");
            }
            Frame::Reached { partition, position } => copy.reach(*partition, *position),
            Frame::Version(_) | Frame::Chunk(_) => panic!("no version was asked for"),
        }
    }
    worst
}

fn poll(door: &Door, after: &str, wait_ms: u64) -> (u16, Vec<u8>) {
    let path = format!("/v1/filters/f/feed?after={after}&wait_ms={wait_ms}");
    let (status, _, body) = door.ask_bytes("GET", &path, &[], b"");
    (status, body)
}

/// A stream in chunks, as it comes.
struct Stream {
    reader: BufReader<TcpStream>,
    buffer: BytesMut,
}

impl Stream {
    fn open(door: &Door, path: &str) -> Self {
        let mut reader = BufReader::new(door.send("GET", path, &[], b""));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status");
        assert!(line.contains(" 200 "), "{line}");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("a head");
        }
        Self { reader, buffer: BytesMut::new() }
    }

    /// The next part of the body; nothing at its end.
    fn part(&mut self) -> Vec<u8> {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a length");
        let length = usize::from_str_radix(line.trim(), 16).expect("a length");
        let mut part = vec![0; length + 2];
        self.reader.read_exact(&mut part).expect("a part");
        part.truncate(length);
        part
    }

    fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::take(&mut self.buffer).expect("a good frame") {
                return Some(frame);
            }
            let part = self.part();
            if part.is_empty() {
                return None;
            }
            self.buffer.extend_from_slice(&part);
        }
    }
}

#[test]
fn a_copy_follows_by_asking_again_and_again() {
    let door = door_with(&json!({ "name": "f", "capacity": 10_000, "error": 0.001, "kind": "counting" }));
    add(&door, 0, 100);
    let copy = copy_of(&door, publish(&door));
    let begun = Instant::now();
    assert_eq!(put(&copy, &frames(&poll(&door, &copy.token().to_string(), 0).1)), Taken::Done);
    assert!(begun.elapsed() < PATIENCE);
    // It waits for what comes.
    let position = std::thread::scope(|scope| {
        let asked = scope.spawn(|| poll(&door, &copy.token().to_string(), 20_000).1);
        std::thread::sleep(Duration::from_millis(100));
        let position = add(&door, 100, 150);
        put(&copy, &frames(&asked.join().expect("an answer")));
        position
    });
    assert!(copy.token().includes(&position.parse().expect("a token")));
    // In half the bytes, if it says what its arrays look like.
    let position = add(&door, 150, 250);
    let whole = poll(&door, &copy.token().to_string(), 0).1;
    let packed = poll(&door, &format!("{}&shape={}", copy.token(), copy.shape().expect("a shape")), 0).1;
    assert!(packed.len() * 2 < whole.len(), "{} and {} bytes", packed.len(), whole.len());
    put(&copy, &frames(&packed));
    assert!(copy.token().includes(&position.parse().expect("a token")));
    put(&copy, &frames(&whole));
    assert_eq!(copy.digest(), publish(&door).digest());
    let removed = door.post("/v1/filters/f/remove", &json!({ "keys": ["key 3", "key 4", "nobody's"] }));
    assert_eq!(removed.1["removed"], 2);
    put(&copy, &frames(&poll(&door, &copy.token().to_string(), 0).1));
    assert_eq!(copy.digest(), publish(&door).digest());

    let (status, refused) = poll(&door, "0:zz", 0);
    assert_eq!(status, 400, "{}", String::from_utf8_lossy(&refused));
    assert_eq!(poll(&door, "", 61_000).0, 400, "nobody waits for so long");
    let (status, refused) = poll(&door, "&shape=1-1-0", 0);
    assert_eq!(status, 400, "{}", String::from_utf8_lossy(&refused));
    assert_eq!(door.get("/v1/filters/none/feed").0, 404);
}

#[test]
fn a_stream_brings_changes_and_versions() {
    let door = door_with(&json!({ "name": "f", "capacity": 1_000, "error": 0.01 }));
    add(&door, 0, 500);
    let version = publish(&door);
    let copy = copy_of(&door, version.clone());
    let path = format!("/v1/filters/f/feed?after={}&follow=true", copy.token());
    let mut stream = Stream::open(&door, &path);
    let position = add(&door, 500, 600).parse().expect("a token");
    while !copy.token().includes(&position) {
        let frame = stream.frame().expect("it goes on");
        assert_eq!(put(&copy, &[frame]), Taken::Done);
    }
    assert_eq!(copy.digest(), publish(&door).digest());

    // With versions: it grows, and what the reader lacks comes by itself.
    let shape = copy.shape().expect("a shape");
    let path = format!("{path}&versions=true&have={}&shape={shape}", version.number);
    let mut stream = Stream::open(&door, &path);
    add(&door, 600, 5_000);
    let mut live = Arc::new(copy);
    let (mut chunks, mut versions) = (Vec::new(), 0);
    let last = add(&door, 5_000, 5_001).parse().expect("a token");
    let begun = Instant::now();
    while versions == 0 || !live.token().includes(&last) || live.behind().is_some() {
        assert!(begun.elapsed() < PATIENCE, "{versions} versions");
        match stream.frame().expect("it goes on") {
            Frame::Chunk(chunk) => chunks.push(chunk),
            Frame::Version(bytes) => {
                let version = Version::decode(&bytes, "a version").expect("good");
                let mut assembly = Assembly::new(version, &means()).expect("a version");
                assembly.reuse(&live);
                for chunk in chunks.drain(..) {
                    assembly.put(&chunk).expect("good");
                }
                live = Arc::new(assembly.finish(&means()).expect("nothing is missing"));
                versions += 1;
            }
            frame => _ = put(&live, &[frame]),
        }
    }
    let filter = door.running.node.engine.filter("f").expect("there");
    block_on(async {
        while filter.is_behind() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    for number in 0..5_001 {
        assert!(live.contains(live.hasher().fingerprint(format!("key {number}").as_bytes())), "key {number}");
    }
    // The end of a filter is the end of the stream.
    assert_eq!(door.delete("/v1/filters/f"), 204);
    while stream.frame().is_some() {}
}

#[test]
fn notices_come_when_there_is_a_new_version() {
    let door = door_with(&json!({ "name": "f", "capacity": 1_000, "error": 0.01 }));
    let mut stream = Stream::open(&door, "/v1/filters/f/notices");
    let mut text = String::new();
    let mut numbers = Vec::new();
    for round in 0..3 {
        add(&door, round * 10, round * 10 + 10);
        while numbers.len() <= round as usize {
            text.push_str(&String::from_utf8(stream.part()).expect("text"));
            while let Some((event, rest)) = text.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                if event.contains("event: version") {
                    let data: Value = serde_json::from_str(data.expect("data")).expect("JSON");
                    numbers.push(data["number"].as_u64().expect("a number"));
                }
                text = rest.to_owned();
            }
        }
    }
    assert!(numbers.is_sorted() && numbers.len() >= 3, "{numbers:?}");
}

/// A replica that says what a test wants it to say.
struct Fake<'a> {
    door: &'a Door,
    id: String,
    strategy: &'static str,
    sequence: u64,
}

impl<'a> Fake<'a> {
    fn new(door: &'a Door, number: usize, strategy: &'static str) -> Self {
        Self { door, id: format!("replica-{number}"), strategy, sequence: 0 }
    }

    fn beat(&mut self, mut says: Value) -> Value {
        self.sequence += 1;
        says["strategy"] = self.strategy.into();
        says["run"] = 1.into();
        says["sequence"] = self.sequence.into();
        let (status, told) = self.door.put(&format!("/v1/filters/f/replicas/{}", self.id), &says);
        assert_eq!(status, 200, "{told}");
        told
    }
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it took too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_majority_switches_together() {
    let door = door_with(&json!({ "name": "f", "capacity": 1_000, "error": 0.01 }));
    add(&door, 0, 10);
    let mut replicas: Vec<_> = (0..3).map(|number| Fake::new(&door, number, "strong")).collect();
    for replica in &mut replicas {
        let told = replica.beat(json!({ "version": null }));
        assert_eq!((&told["serve"], &told["lease_ms"]), (&Value::Null, &json!(0)), "nothing was published");
    }
    let switch = |timeout_ms: u64| door.post("/v1/filters/f/switch", &json!({ "timeout_ms": timeout_ms }));
    let (status, refused) = switch(300);
    assert_eq!(status, 409, "nobody has it: {refused}");
    assert_eq!(replicas[0].beat(json!({ "version": null }))["serve"], Value::Null, "the old one goes on");

    let switched = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| switch(20_000));
        let staged = until(|| replicas[0].beat(json!({ "version": null }))["stage"].as_u64());
        let (status, refused) = switch(20_000);
        assert_eq!(status, 409, "two cannot publish at once: {refused}");
        replicas[0].beat(json!({ "version": null, "staged": staged }));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!publisher.is_finished(), "one of three is no majority");
        replicas[1].beat(json!({ "version": null, "staged": staged }));
        publisher.join().expect("an answer")
    });
    assert_eq!((switched.0, &switched.1["acknowledged"]), (201, &json!(2)), "{}", switched.1);
    let first = switched.1["number"].as_u64().expect("a number");
    for replica in &mut replicas {
        let told = replica.beat(json!({ "version": first }));
        assert_eq!(told["serve"], first, "the third is told, too, and has to fetch it");
        assert!(told["lease_ms"].as_u64() > Some(0));
    }

    // Nobody is told of the next one while somebody may answer from the last.
    add(&door, 10, 20);
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| switch(20_000));
        let staged = until(|| replicas[0].beat(json!({ "version": first }))["stage"].as_u64());
        for replica in &mut replicas[..2] {
            replica.beat(json!({ "version": first, "staged": staged }));
        }
        for replica in &mut replicas[..2] {
            until(|| {
                replica.beat(json!({ "version": first, "staged": staged }))["serve"].is_null().then_some(())
            });
            replica.beat(json!({ "version": null, "staged": staged }));
        }
        // The third is cut off: its lease has to end first.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!publisher.is_finished());
        let told = replicas[0].beat(json!({ "version": null, "staged": staged }));
        assert_eq!(told["serve"], Value::Null);
        let (status, switched) = publisher.join().expect("an answer");
        assert_eq!((status, &switched["number"]), (201, &json!(staged)), "{switched}");
        assert_eq!(replicas[0].beat(json!({ "version": staged }))["serve"], staged);
    });
    let (_, listed) = door.get("/v1/filters/f/replicas");
    assert_eq!(listed["replicas"].as_array().map(Vec::len), Some(3), "{listed}");
}

/// Publishes strongly while the replicas of the test take what they are told to stage.
fn switch_with(door: &Door, replicas: &mut [&mut Fake<'_>], timeout_ms: u64) -> (u16, Value) {
    std::thread::scope(|scope| {
        let body = json!({ "timeout_ms": timeout_ms });
        let publisher = scope.spawn(move || door.post("/v1/filters/f/switch", &body));
        let mut staged = vec![Value::Null; replicas.len()];
        while !publisher.is_finished() {
            for (replica, staged) in replicas.iter_mut().zip(&mut staged) {
                *staged = replica.beat(json!({ "version": null, "staged": staged }))["stage"].clone();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        publisher.join().expect("an answer")
    })
}

/// How a replica is shown.
fn state_of(door: &Door, id: &str) -> Value {
    let (_, listed) = door.get("/v1/filters/f/replicas");
    let all = listed["replicas"].as_array().expect("replicas");
    all.iter().find(|replica| replica["id"] == id).map_or(Value::Null, |replica| replica["state"].clone())
}

/// Two of three strong replicas are stopped: what is left is no majority, however long ago they were heard of, and after a restart too.
#[test]
fn a_majority_is_of_the_registered_replicas() {
    let gone_soon =
        |folder| start_with_registry_and(folder, |config| config.replica_gone_after = Duration::from_secs(1));
    let door = Door::open(gone_soon(new_folder()));
    assert_eq!(door.post("/v1/filters", &json!({ "name": "f", "capacity": 1_000, "error": 0.01 })).0, 201);
    add(&door, 0, 10);
    let mut replicas: Vec<_> = (0..3).map(|number| Fake::new(&door, number, "strong")).collect();
    let mut all: Vec<&mut Fake<'_>> = replicas.iter_mut().collect();
    let (status, switched) = switch_with(&door, &mut all, 20_000);
    assert_eq!((status, &switched["registered"]), (201, &json!(3)), "{switched}");
    add(&door, 10, 20);
    until(|| {
        replicas[0].beat(json!({ "version": null }));
        (state_of(&door, "replica-1") == "silent" && state_of(&door, "replica-2") == "silent").then_some(())
    });
    let refused = |door: &Door, left: &mut Fake<'_>| {
        let (status, refused) = switch_with(door, &mut [left], 300);
        let why = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 409 && why.contains("1 of 3 ready, 2 needed"), "{status} {refused}");
        assert!(why.contains("replica-1 (not heard of)") && why.contains("--forget"), "{why}");
    };
    refused(&door, &mut replicas[0]);
    drop(replicas);

    let door = Door::open(gone_soon(door.stop()));
    let mut left = Fake { sequence: 1_000, ..Fake::new(&door, 0, "strong") };
    left.beat(json!({ "version": null }));
    refused(&door, &mut left);
    // Those that are gone for good are forgotten by name, and the rest is enough.
    assert_eq!(door.delete("/v1/filters/f/replicas/replica-1"), 204);
    assert_eq!(door.delete("/v1/filters/f/replicas/replica-2"), 204);
    assert_eq!(door.delete("/v1/filters/f/replicas/replica-2"), 404);
    let (status, switched) = switch_with(&door, &mut [&mut left], 20_000);
    assert_eq!(
        (status, &switched["acknowledged"], &switched["registered"]),
        (201, &json!(1), &json!(1)),
        "{switched}"
    );
    // One that follows in another way under the same name is not strong any more.
    Fake { sequence: 2_000, ..Fake::new(&door, 0, "pull") }.beat(json!({ "version": null }));
    assert_eq!(door.get("/v1/filters/f/replicas").1["registered"], 0);
}

#[test]
fn what_strong_replicas_answer_from_and_what_is_pinned_are_two_values() {
    let door = door_with(&json!({ "name": "f", "capacity": 1_000, "error": 0.01 }));
    add(&door, 0, 10);
    let (mut strong, mut pull) = (Fake::new(&door, 0, "strong"), Fake::new(&door, 1, "pull"));
    let (status, switched) = switch_with(&door, &mut [&mut strong], 20_000);
    let first = switched["number"].clone();
    assert_eq!((status, &switched["pinned"]), (201, &Value::Null), "{switched}");
    assert_eq!(strong.beat(json!({ "version": first }))["serve"], first);
    assert_eq!(pull.beat(json!({ "version": first }))["serve"], Value::Null, "nothing is pinned for others");
    add(&door, 10, 20);
    assert_eq!(door.post("/v1/filters/f/versions", &json!({})).0, 201);
    let (_, listed) = door.get("/v1/filters/f/versions");
    assert_eq!(
        (&listed["current"], &listed["pinned"], &listed["strong"]),
        (&json!(2), &json!(false), &first)
    );
    // A pin holds the others, and a strong replica goes on with its version.
    let (status, pinned) = door.put("/v1/filters/f/current", &json!({ "version": 2 }));
    assert_eq!((status, &pinned["strong"]), (200, &first), "{pinned}");
    assert_eq!(strong.beat(json!({ "version": first }))["serve"], first);
    assert_eq!(pull.beat(json!({ "version": first }))["serve"], 2);
    add(&door, 20, 30);
    let (status, switched) = switch_with(&door, &mut [&mut strong], 20_000);
    assert_eq!((status, &switched["number"], &switched["pinned"]), (201, &json!(3), &json!(2)), "{switched}");
    assert_eq!(pull.beat(json!({ "version": 2 }))["serve"], 2, "the pin is as it was");
    // And back, all together, to a version that is there.
    let back = |number: u64| json!({ "timeout_ms": 20_000, "version": number });
    assert_eq!(door.post("/v1/filters/f/switch", &back(77)).0, 400);
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| door.post("/v1/filters/f/switch", &back(1)));
        let mut staged = Value::Null;
        while !publisher.is_finished() {
            staged = strong.beat(json!({ "version": null, "staged": staged }))["stage"].clone();
        }
        let (status, switched) = publisher.join().expect("an answer");
        assert_eq!((status, &switched["number"]), (201, &json!(1)), "{switched}");
    });
    assert_eq!(strong.beat(json!({ "version": 1 }))["serve"], 1);
}

#[test]
fn a_rollout_that_a_replica_cannot_follow_is_refused_at_once() {
    let door = door_with(&json!({ "name": "f", "capacity": 1_000, "error": 0.01 }));
    add(&door, 0, 10);
    publish(&door);
    let refused = || {
        let (status, refused) = door.post("/v1/filters/f/rollout", &json!({}));
        assert_eq!(status, 409, "{refused}");
        refused["error"]["message"].as_str().expect("a sentence").to_owned()
    };
    Fake::new(&door, 0, "strong").beat(json!({ "version": null }));
    let why = refused();
    assert!(why.contains("replica-0") && why.contains("--strong"), "{why}");
    // One of an earlier release, which does not say what it was told.
    let mut stream = Fake::new(&door, 1, "delta");
    stream.beat(json!({ "version": 1 }));
    let why = refused();
    assert!(why.contains("replica-1 (delta)") && why.contains("update them"), "{why}");
    assert!(door.get("/v1/filters/f/rollout").0 == 404, "none was begun");
    assert_eq!(door.get("/v1/filters/f/versions").1["pinned"], false);
    // Under a pin it is not called equal, although the version that it began with is.
    let version = publish(&door);
    assert_eq!(door.put("/v1/filters/f/current", &json!({ "version": version.number })).0, 200);
    let position = add(&door, 10, 20);
    let digest = version.digest().to_string();
    stream.beat(json!({ "version": version.number, "digest": digest, "token": position }));
    let (_, listed) = door.get("/v1/filters/f/replicas");
    let shown = listed["replicas"].as_array().expect("a list").iter().find(|one| one["id"] == "replica-1");
    let shown = shown.expect("it is there");
    assert_eq!((&shown["state"], &shown["agrees"]), (&json!("cannot_be_held"), &json!(false)), "{shown}");
    // One that can be held is a member like any other, and the strong one is named.
    assert_eq!(stream.beat(json!({ "version": version.number, "told": 0 }))["serve"], version.number);
    let (status, begun) = door.post("/v1/filters/f/rollout", &json!({}));
    assert_eq!((status, &begun["apart"]), (201, &json!(["replica-0"])), "{begun}");
}

/// "Rolled back" is said when each replica that had the version has said that it went back, or is gone.
#[test]
fn rolled_back_is_told_when_all_replicas_have_confirmed_it() {
    let door =
        Door::open(start_with(new_folder(), |config| config.replica_gone_after = Duration::from_secs(2)));
    assert_eq!(door.post("/v1/filters", &json!({ "name": "f", "capacity": 1_000, "error": 0.01 })).0, 201);
    add(&door, 0, 10);
    let first = publish(&door).number;
    let (mut one, mut other) = (Fake::new(&door, 0, "pull"), Fake::new(&door, 1, "pull"));
    add(&door, 10, 20);
    let rollout = || door.get("/v1/filters/f/rollout").1;
    // Both are heard of all the time, until one of them stops to speak with the version that is refused.
    let mut digest = String::new();
    let mut stays = |version: u64, digest: &str| {
        let told = one.beat(json!({ "version": version, "digest": digest }))["serve"].as_u64();
        other.beat(json!({ "version": told.unwrap_or(first), "digest": digest }));
        told
    };
    stays(first, &digest);
    let (status, begun) = door.post("/v1/filters/f/rollout", &json!({ "plan": { "pause_ms": 60_000 } }));
    assert_eq!(status, 201, "{begun}");
    let target = begun["target"].as_u64().expect("a version");
    digest.push_str(begun["digest"].as_str().expect("a digest"));
    until(|| (stays(target, &digest) == Some(target)).then_some(()));
    assert_eq!(door.json("DELETE", "/v1/filters/f/rollout", &Value::Null, &[]).1["state"], "rolling_back");
    // It goes on with the version although it is told to go back; the other one confirms.
    until(|| {
        stays(target, &digest);
        let now = rollout();
        assert_eq!(now["state"], "rolling_back", "a replica still has the version: {now}");
        (now["missing"] == json!(["replica-0"])).then_some(())
    });
    assert_eq!(door.post("/v1/filters/f/rollout", &json!({})).0, 409, "another one waits for that");
    // It says that it went back: then all have.
    let ended = until(|| {
        stays(first, &digest);
        Some(rollout()).filter(|rollout| rollout["state"] == "rolled_back")
    });
    assert_eq!((&ended["missing"], &ended["previous"]), (&json!([]), &json!(first)), "{ended}");
    let refused = one.beat(json!({ "version": first }))["refused"].clone();
    assert_eq!(refused, json!({ "version": target, "why": ended["why"] }));
}

#[test]
fn a_rollout_goes_group_by_group_and_back() {
    // Whoever has just been started waits so long before it knows all replicas.
    let door =
        Door::open(start_with(new_folder(), |config| config.replica_gone_after = Duration::from_secs(3)));
    assert_eq!(door.post("/v1/filters", &json!({ "name": "f", "capacity": 1_000, "error": 0.01 })).0, 201);
    add(&door, 0, 10);
    let first = publish(&door);
    let mut replicas: Vec<_> = (0..4).map(|number| Fake::new(&door, number, "pull")).collect();
    let region = |number: usize| if number < 2 { "eu" } else { "us" };
    // Each one takes what it is told, with its right digest unless a test wants otherwise.
    let follow = |replicas: &mut [Fake<'_>], wrong: Option<usize>| -> Vec<u64> {
        let mut told = Vec::new();
        for (number, replica) in replicas.iter_mut().enumerate() {
            let labels = json!({ "region": region(number) });
            let orders = replica.beat(json!({ "labels": labels, "version": null }));
            let serve = orders["serve"].as_u64().unwrap_or(first.number);
            let filter = door.running.node.engine.filter("f").expect("there");
            let version = block_on(door.running.node.engine.version(filter.id(), serve)).expect("there");
            let digest = if wrong == Some(number) && serve != first.number {
                "0".repeat(64)
            } else {
                version.digest().to_string()
            };
            let probed = json!({ "id": orders["probes"]["id"].as_u64().unwrap_or(0), "version": serve, "missing": 0, "unexpected": 0 });
            let says = json!({ "labels": labels, "version": serve, "digest": digest, "probed": probed });
            replica.beat(says);
            told.push(serve);
        }
        told
    };
    follow(&mut replicas, None);
    add(&door, 10, 20);
    let plan = json!({ "by": "region", "order": ["eu"], "pause_ms": 300, "probe_present": ["key 3"] });
    let (status, begun) = door.post("/v1/filters/f/rollout", &json!({ "plan": plan }));
    assert_eq!(status, 201, "{begun}");
    let target = begun["target"].as_u64().expect("a version");
    assert_eq!(door.post("/v1/filters/f/rollout", &json!({})).0, 409, "one at a time");
    let in_first = [target, target, first.number, first.number];
    until(|| (follow(&mut replicas, None) == in_first).then_some(()));
    until(|| (follow(&mut replicas, None) == [target; 4]).then_some(()));
    until(|| (door.get("/v1/filters/f/rollout").1["state"] == "done").then_some(()));
    assert_eq!(follow(&mut replicas, None), [target; 4]);

    add(&door, 20, 30);
    let (status, begun) =
        door.post("/v1/filters/f/rollout", &json!({ "plan": { "by": "region", "order": ["us"] } }));
    // While it is paused the first group keeps it, and the second gets nothing.
    assert_eq!(door.put("/v1/filters/f/rollout", &json!({ "paused": true })).1["paused"], true);
    let halfway = begun["target"].as_u64().expect("a version");
    until(|| {
        let told = follow(&mut replicas, None);
        assert_eq!(&told[..2], [target, target], "it is paused");
        (told[2..] == [halfway, halfway] && door.get("/v1/filters/f/rollout").1["well_ms"].is_u64())
            .then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(follow(&mut replicas, None)[..2], [target, target]);
    assert_eq!(door.get("/v1/filters/f/rollout").1["stage"], 0);
    assert_eq!(door.put("/v1/filters/f/rollout", &json!({ "paused": false })).1["paused"], false);
    assert_eq!(status, 201, "{begun}");
    until(|| {
        follow(&mut replicas, Some(3));
        (door.get("/v1/filters/f/rollout").1["state"] == "rolled_back").then_some(())
    });
    let (_, ended) = door.get("/v1/filters/f/rollout");
    assert!(ended["why"].as_str().is_some_and(|why| why.contains("checksum")), "{ended}");
    assert_eq!(follow(&mut replicas, None), [target; 4], "all are back");
    assert_eq!(door.put("/v1/filters/f/rollout", &json!({ "paused": true })).0, 409, "it has ended");
    for bad in [json!({ "percent": [50, 10] }), json!({ "batch": 0 }), json!({ "order": ["x"] })] {
        assert_eq!(door.post("/v1/filters/f/rollout", &json!({ "plan": bad })).0, 400);
    }
}

#[test]
fn hashed_keys_are_taken_as_they_are() {
    let door = door_with(&json!({ "name": "f", "capacity": 1_000, "error": 1e-6, "kind": "counting" }));
    let filter = door.running.node.engine.filter("f").expect("there");
    let bytes: Vec<u8> = (0..3_u8).flat_map(|key| filter.hasher().fingerprint(&[key]).to_bytes()).collect();
    let head = ["content-type: application/vnd.umbel.fingerprints"];
    for _ in 0..2 {
        let path = "/v1/filters/f/add?session=9&sequence=1";
        let (status, _, answer) = door.ask("POST", path, &head, &bytes);
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!((status, &answer["keys"], &answer["added"]), (200, &json!(3), &json!(3)));
    }
    let verified = door.post("/v1/filters/f/verify", &json!({ "keys": [{ "base64": "AA==" }] }));
    assert_eq!(verified.1["counts"], json!([1]), "once");
    assert_eq!(door.ask("POST", "/v1/filters/f/add", &head, &bytes[..40]).0, 400);
    assert_eq!(door.ask("POST", "/v1/filters/f/add?session=9", &head, &bytes).0, 400);
}

#[test]
fn a_filter_is_built_anew_by_the_clock() {
    let door = door_with(&json!({ "name": "f", "capacity": 1_000, "error": 0.01, "kind": "counting" }));
    add(&door, 0, 10);
    let path = "/v1/filters/f/schedule";
    assert_eq!(door.get(path).0, 404);
    assert_eq!(door.put(path, &json!({ "cron": "every day" })).0, 400);
    let (status, set) = door.put(path, &json!({ "cron": "0 3 * * *" }));
    assert_eq!(status, 200, "{set}");
    assert!(set["next_ms"].as_u64() > Some(0));
    // Six fields have seconds, too.
    let generation = || door.get("/v1/filters/f").1["generation"].as_u64().expect("a number");
    let before = generation();
    assert_eq!(door.put(path, &json!({ "cron": "* * * * * *" })).0, 200);
    until(|| (generation() > before && door.get(path).1["last_ms"].is_u64()).then_some(()));
    assert_eq!(door.delete(path), 204);
    let (_, checked) = door.post("/v1/filters/f/check", &json!({ "keys": ["key 3", "key 11"] }));
    assert_eq!(checked["answers"], json!(["maybe", "absent"]));
}

#[test]
fn a_feed_is_refused_to_copies_of_other_filters() {
    let door = Door::open(start());
    let make = || door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.001 }));
    let number = || format!("{:016x}", door.running.node.engine.filter("f").expect("it was made").id());
    let ask = |filter: &str| {
        let answer = door.fetch(&format!("/v1/filters/f/feed?filter={filter}"), &[]);
        (answer.status, answer.code())
    };
    let refused = |status: u16, code: &str| (status, code.to_owned());
    make();
    let first = number();
    assert_eq!(ask("nothing"), refused(400, "invalid"));
    door.post("/v1/filters/f/rebuild", &json!({}));
    door.post("/v1/filters/f/rebuild/add", &json!({ "keys": ["a"] }));
    assert_eq!(door.post("/v1/filters/f/rebuild/finish", &json!({})).0, 200);
    let second = number();
    assert_eq!(ask(&first), refused(410, "trimmed"), "it was filled to take its place");
    door.delete("/v1/filters/f");
    make();
    assert_eq!((ask(&first), ask(&second)), (refused(410, "replaced"), refused(410, "replaced")));
    assert_eq!(door.fetch(&format!("/v1/filters/f/feed?filter={}", number()), &[]).status, 200);
}

#[test]
fn what_replicas_of_a_filter_that_is_gone_said_is_forgotten() {
    let door =
        Door::open(start_with(new_folder(), |config| config.replica_gone_after = Duration::from_secs(1)));
    for _ in 0..3 {
        door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.001 }));
        Fake::new(&door, 0, "pull").beat(json!({ "version": null }));
        assert_eq!(door.delete("/v1/filters/f"), 204);
    }
    let known = || format!("{:?}", door.running.node);
    assert!(known().contains("replica-0"), "it was heard of");
    until(|| known().contains("replicas: Replicas(Mutex { data: {}").then_some(()));
}
