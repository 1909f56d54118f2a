//! Replicas of every strategy while their server is killed, what they send and get is cut, delayed, truncated, doubled and damaged, and
//! their clocks jump: what they say is written down and checked afterwards.

mod checker;
mod clocks;
mod partitions;
mod proxy;
#[allow(dead_code, reason = "other tests use the rest of it")]
mod server;
mod streams;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use umbel_client::{Answer, Options, Replica, Server as Api, Strategy};

use checker::{Acknowledged, Asked, History, check};
use proxy::{Proxy, Trouble};
use server::Server;

/// How old a copy may be that says "absent".
const STALE_AFTER: Duration = Duration::from_millis(1500);
const FILTER: &str = "seen";
/// The same keys, for replicas that have to agree. To publish for them pins a version, and others would follow that pin.
const AGREED: &str = "agreed";

fn number_or(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A small generator of chance, so that a run can be repeated by its seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn strategies() -> Vec<(&'static str, Strategy, Duration)> {
    vec![
        ("pull", Strategy::pull(Duration::from_millis(300)), Duration::ZERO),
        ("push", Strategy::push(), Duration::ZERO),
        ("notify", Strategy::Notify { interval: Duration::from_secs(1) }, Duration::ZERO),
        ("delta", Strategy::delta(), Duration::ZERO),
        ("window", Strategy::delta(), Duration::from_millis(200)),
        ("strong", Strategy::strong(), Duration::ZERO),
    ]
}

struct World {
    server: Mutex<Server>,
    proxy: Proxy,
    history: History,
    started: Instant,
    ended: AtomicBool,
    keys: AtomicU64,
}

impl World {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The API without the proxy in between.
    fn api(&self) -> Api {
        Api::new(&self.server.lock().unwrap().url(), None).unwrap()
    }
}

/// Adds keys at the centre, again and again until they are acknowledged.
async fn write(world: Arc<World>, session: u64) {
    for sequence in 1.. {
        if world.is_over() {
            return;
        }
        let first = world.keys.fetch_add(3, Ordering::Relaxed);
        let keys: Vec<String> = (first..first + 3).map(|key| format!("key {key}")).collect();
        let body = json!({ "keys": keys, "session": session, "sequence": sequence });
        let add = async |filter| {
            world.api().post(Api::path(filter, "add"), &body, Duration::from_secs(2)).await.is_ok()
        };
        loop {
            if add(FILTER).await && add(AGREED).await {
                let at = world.now();
                world.history.acknowledged(keys.iter().map(|key| Acknowledged { key: key.clone(), at }));
                break;
            }
            if world.is_over() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Publishes for strong replicas, and notes which keys each publish must have.
async fn publish(world: Arc<World>) {
    while !world.is_over() {
        let begun = world.now();
        let body = json!({ "timeout_ms": 3_000 });
        let switched = world.api().post(Api::path(AGREED, "switch"), &body, Duration::from_secs(20)).await;
        if switched.is_ok() {
            world.history.switched(begun, world.now());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Asks a replica for keys that were acknowledged, and for some that never were.
async fn ask(world: Arc<World>, replica: Replica, name: &'static str, seed: u64) {
    let mut chance = Chance(seed);
    while !world.is_over() {
        if let Some(key) = world.history.some_key(chance.next()) {
            let at = world.now();
            let answer = replica.contains(&key);
            world.history.asked(Asked { strategy: name, key, at, answer });
        }
        tokio::time::sleep(Duration::from_micros(500 + chance.below(3_000))).await;
    }
}

/// Adds keys through a replica, which are visible there at once and at the centre in the end.
async fn add_here(world: Arc<World>, replica: Replica, number: usize) {
    let mut count = 0;
    while !world.is_over() {
        let key = format!("own {number} {count}");
        replica.add(&[&key]).await.unwrap();
        assert_eq!(replica.contains(&key), Answer::Maybe, "its own add");
        world.history.own(key);
        count += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kills the server so often, and makes all other trouble in between.
async fn make_trouble(world: Arc<World>, seed: u64, kills: u64) -> String {
    let mut chance = Chance(seed);
    let mut killed = 0;
    while killed < kills {
        tokio::time::sleep(Duration::from_millis(300 + chance.below(1_500))).await;
        match chance.below(9) {
            0 | 1 => {
                let again = Arc::clone(&world);
                let pause = Duration::from_millis(chance.below(500));
                tokio::task::spawn_blocking(move || {
                    let mut server = again.server.lock().unwrap();
                    server.kill();
                    std::thread::sleep(pause);
                    server.start();
                })
                .await
                .unwrap();
                killed += 1;
            }
            2 => world.proxy.make(Trouble::Cut),
            3 => world.proxy.make(Trouble::Delay(Duration::from_millis(chance.below(2_500)))),
            4 => world.proxy.make(Trouble::Truncate(chance.below(20_000))),
            5 => world.proxy.make(Trouble::Hold),
            6 => world.proxy.make(Trouble::Double(1 + chance.below(8))),
            7 => world.proxy.make(Trouble::Flip(1 + chance.below(30))),
            _ => world.proxy.make(Trouble::None),
        }
    }
    format!("kills {killed}")
}

/// Damages what goes through, for so long, and lets some of it through in between.
async fn damage(world: Arc<World>, seed: u64, time: Duration) -> String {
    let (mut chance, end) = (Chance(seed), Instant::now() + time);
    while Instant::now() < end {
        world.proxy.make(Trouble::Flip(2 + chance.below(20)));
        tokio::time::sleep(Duration::from_millis(500 + chance.below(1_000))).await;
        world.proxy.make(Trouble::None);
        tokio::time::sleep(Duration::from_millis(chance.below(500))).await;
    }
    let flips = world.proxy.flips();
    for subject in ["chunks", "versions", "feed", "heartbeats", "notices"] {
        assert!(flips.contains_key(subject), "nothing of {subject} was damaged: {flips:?}");
    }
    format!("damaged for {time:?}")
}

/// Waits until every copy that follows the log is the centre's.
async fn settle(world: &World, replicas: &[(&'static str, Replica)]) {
    let end = Instant::now() + Duration::from_secs(60);
    for (name, replica) in replicas {
        replica.flush().await.unwrap();
        while Instant::now() < end && replica.status().spooled_keys > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(replica.status().spooled_keys, 0, "{name}");
    }
    let own = world.history.own_keys();
    for keys in own.chunks(10_000) {
        let body = json!({ "keys": keys });
        let counted = world.api().post(Api::path(FILTER, "verify"), &body, Duration::from_secs(30)).await;
        let counts = counted.unwrap()["counts"].as_array().unwrap().clone();
        let mut wrong = keys.iter().zip(&counts).filter(|(_, count)| **count != 1);
        let troubles = || replicas.iter().filter_map(|(_, replica)| replica.status().last_error);
        let first = wrong.next();
        assert!(
            first.is_none(),
            "{first:?} and {} more; {:?}",
            wrong.count(),
            troubles().collect::<Vec<_>>()
        );
    }
    let body = json!({ "timeout_ms": 20_000 });
    world.api().post(Api::path(AGREED, "switch"), &body, Duration::from_secs(60)).await.unwrap();
    for (name, replica) in replicas {
        let all = world.history.all_keys(*name != "strong");
        loop {
            let missing = all.iter().filter(|key| replica.contains(key) != Answer::Maybe).count();
            if missing == 0 {
                break;
            }
            assert!(Instant::now() < end, "{name}: {missing} of {} keys, {:?}", all.len(), replica.status());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Replicas of every strategy, and those who add, publish and ask, while there is trouble. What they said is looked through in the end.
async fn live_through<F: Future<Output = String>>(
    each: usize,
    seed: u64,
    trouble: impl FnOnce(Arc<World>) -> F,
) {
    let server = Server::new();
    let proxy = Proxy::start(server.http_port()).await;
    let world = Arc::new(World {
        proxy,
        server: Mutex::new(server),
        history: History::default(),
        started: Instant::now(),
        ended: AtomicBool::new(false),
        keys: AtomicU64::new(0),
    });
    for filter in [FILTER, AGREED] {
        let new = json!({ "name": filter, "capacity": 2_000, "error": 0.0001, "kind": "counting" });
        world.api().post("/v1/filters", &new, Duration::from_secs(5)).await.unwrap();
    }
    world.api().post(Api::path(AGREED, "switch"), &json!({}), Duration::from_secs(30)).await.unwrap();
    let folders = std::env::temp_dir().join(format!("umbel-faults-{}-{seed}", std::process::id()));
    let (mut replicas, mut tasks) = (Vec::new(), Vec::new());
    for (name, strategy, window) in strategies() {
        for number in 0..each {
            let filter = if name == "strong" { AGREED } else { FILTER };
            let options = Options::new(world.proxy.url(), filter, strategy)
                .folder(folders.join(format!("{name}-{number}")))
                .stale_after(STALE_AFTER)
                .window(window);
            let replica = Replica::open(options).await.unwrap();
            let asking = ask(Arc::clone(&world), replica.clone(), name, seed + replicas.len() as u64);
            tasks.push(tokio::spawn(asking));
            if name == "window" {
                tasks.push(tokio::spawn(add_here(Arc::clone(&world), replica.clone(), number)));
            }
            replicas.push((name, replica));
        }
    }
    tasks.extend((1..=4).map(|session| tokio::spawn(write(Arc::clone(&world), session))));
    tasks.push(tokio::spawn(publish(Arc::clone(&world))));
    let made = trouble(Arc::clone(&world)).await;
    world.proxy.make(Trouble::None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.ended.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    settle(&world, &replicas).await;
    let summary = check(&world.history, STALE_AFTER);
    let wrong_chunks: u64 = replicas.iter().map(|(_, replica)| replica.status().chunks_wrong).sum();
    println!(
        "{made}, replicas {}, connections cut {}, requests doubled {}, pieces doubled {}, bits flipped {:?}, chunks thrown away \
         {wrong_chunks}; {summary}",
        replicas.len(),
        world.proxy.cuts(),
        world.proxy.doubled_requests(),
        world.proxy.doubled_pieces(),
        world.proxy.flips(),
    );
    assert_eq!(summary.wrong, 0, "{summary}");
    for (_, replica) in &replicas {
        replica.close().await.unwrap();
    }
    drop(replicas);
    let _ = std::fs::remove_dir_all(folders);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

#[test]
fn acknowledged_adds_are_never_absent_past_the_promise() {
    let (kills, each) = (number_or("UMBEL_TEST_KILLS", 3), number_or("UMBEL_TEST_REPLICAS", 2) as usize);
    let seed = number_or("UMBEL_TEST_SEED", 1);
    runtime().block_on(live_through(each, seed, |world| make_trouble(world, seed, kills)));
}

#[test]
fn damaged_bytes_are_never_believed() {
    let each = number_or("UMBEL_TEST_REPLICAS", 2) as usize;
    let seed = number_or("UMBEL_TEST_SEED", 1) + 1_000;
    let time = Duration::from_secs(number_or("UMBEL_TEST_DAMAGE_SECONDS", 10));
    runtime().block_on(live_through(each, seed, |world| damage(world, seed, time)));
}
