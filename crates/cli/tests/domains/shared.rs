//! Answers that servers keep together in a real Redis, which is stopped, killed and lied in.

#[path = "../../../domains/tests/common/mod.rs"]
mod exact;
#[path = "../common/redis.rs"]
mod redis;
#[path = "../common/wire.rs"]
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use exact::Exact;
use redis::Redis;
use serde_json::json;
use tokio::runtime::Handle;
use umbel_core::clock::SystemClock;
use umbel_core::url::Url;
use umbel_domains::{Catalog, Domain, Hot, HotSettings, Origin, RedisAnswers};
use umbel_filter::{Family, Hasher};
use wire::{ask, told};

use crate::deployment::{Deployment, PATIENCE};
use crate::{named, passed, service};

const SECOND: Duration = Duration::from_secs(1);

/// The filters and the records that all servers see: of a local domain and another one.
struct World {
    held: [Exact; 2],
    sources: [Exact; 2],
}

/// One server of several.
struct Server {
    catalog: Catalog,
    hot: Arc<Hot>,
}

impl World {
    fn new() -> Self {
        Self { held: [(); 2].map(|()| Exact::of(&[])), sources: [(); 2].map(|()| Exact::of(&[])) }
    }

    fn server(&self, redis: &Redis, found_for: Duration) -> Server {
        let url = Url::parse(&format!("{}/answers", redis.url())).unwrap();
        let store = Arc::new(RedisAnswers::open(&url, &Handle::current()).unwrap());
        let settings = HotSettings { bytes_max: 1 << 20, found_for, absent_for: found_for };
        let hasher = Hasher::new(Family::default(), None).unwrap();
        let hot = Hot::new(settings, hasher, Arc::new(SystemClock::default()));
        let hot = Arc::new(hot.sharing(store, "records", Handle::current()));
        let domain = |name: &str, number: usize| {
            Domain::new(name).unwrap().held(self.held[number].arc()).source(self.sources[number].arc())
        };
        let catalog = Catalog::new(domain("here", 0)).with_hot(Arc::clone(&hot));
        catalog.join(domain("there", 1)).unwrap();
        Server { catalog, hot }
    }

    fn set(&self, key: &str, is_in_filter: bool, is_in_source: bool) {
        for (place, is_there) in [(&self.held[1], is_in_filter), (&self.sources[1], is_in_source)] {
            let key = key.as_bytes().to_vec();
            place.set(|state| _ = if is_there { state.keys.insert(key) } else { state.keys.remove(&key) });
        }
    }
}

impl Server {
    /// Whether somebody has the record, and whether that was kept.
    async fn fetch(&self, key: &str) -> (bool, bool) {
        let fetched = self.catalog.fetch(key, SECOND).await;
        let is_kept = fetched.standings.iter().any(|standing| standing.origin == Origin::Cache);
        assert_eq!(fetched.is_absent(), fetched.record.is_none());
        (fetched.record.is_some(), is_kept)
    }
}

/// Waits until so many answers are in Redis.
async fn until_shared(redis: &Redis, answers: usize) {
    let end = Instant::now() + PATIENCE;
    while told(&redis.url(), "DBSIZE") != format!(":{answers}") {
        assert!(Instant::now() < end, "{} and not {answers}", told(&redis.url(), "DBSIZE"));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until answers go to Redis and come back.
async fn until_connected(world: &World, redis: &Redis, servers: &[&Server]) {
    for (number, server) in servers.iter().enumerate() {
        let end = Instant::now() + PATIENCE;
        let mut asked = 0;
        while told(&redis.url(), "DBSIZE") == ":0" {
            let key = format!("first {number} {asked}");
            world.set(&key, true, true);
            server.fetch(&key).await;
            asked += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(Instant::now() < end, "server {number} does not share");
        }
        assert_eq!(told(&redis.url(), "FLUSHALL"), "+OK");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis_shared_answers_are_as_good_as_those_in_memory() {
    let Some(service) = service("redis") else { return };
    let (world, redis) = (World::new(), Redis::start(&[]));
    let [one, other, third] = [(); 3].map(|()| world.server(&redis, 60 * SECOND));
    until_connected(&world, &redis, &[&one, &other, &third]).await;

    world.set("a", true, true);
    assert_eq!(one.fetch("a").await, (true, false));
    until_shared(&redis, 1).await;
    assert_eq!(other.fetch("a").await, (true, true), "it was fetched once for both");
    // That nobody has it is shared as well.
    world.set("mistaken", true, false);
    assert_eq!(one.fetch("mistaken").await, (false, false));
    until_shared(&redis, 2).await;
    assert_eq!(other.fetch("mistaken").await, (false, true));
    world.set("mistaken", true, true);
    other.hot.forget_key(b"mistaken");
    assert_eq!(other.fetch("mistaken").await, (true, false), "it was added, and this server told so");

    // What was changed is not believed any more by who was told, even if Redis never hears of it, or hears of the old one once more.
    let name = told(&redis.url(), "KEYS answers:records:*").lines().nth(2).unwrap().to_owned();
    assert!(name.starts_with("answers:records:"), "{name}");
    let key = Hasher::new(Family::default(), None).unwrap().fingerprint(b"a");
    let name = format!("answers:records:{:016x}{:016x}", key.first, key.second);
    let old = ask(&redis.url(), &[b"GET", name.as_bytes()]);
    let old = &old[old.windows(2).position(|end| end == b"\r\n").unwrap() + 2..old.len() - 2];
    other.hot.forget_key(b"a");
    let end = Instant::now() + PATIENCE;
    while told(&redis.url(), &format!("EXISTS {name}")) != ":0" {
        assert!(Instant::now() < end, "Redis was not told");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let put_back =
        || assert_eq!(ask(&redis.url(), &[b"SET", name.as_bytes(), old, b"PX", b"60000"]), b"+OK\r\n");
    put_back();
    assert_eq!(other.fetch("a").await, (true, false), "older than the change");
    put_back();
    assert_eq!(third.fetch("a").await, (true, true), "who was told nothing has it until its time is over");
    // A record that is erased is gone as soon as the filter says so, whatever is shared.
    world.set("a", false, false);
    put_back();
    for server in [&one, &other, &third] {
        assert_eq!(server.fetch("a").await, (false, false));
    }
    // Whatever else stands there is nothing.
    world.set("a", true, true);
    for bad in [&b"garbage"[..], b"", b"{}", &old[..old.len() - 1]] {
        let (set, name) = (&b"SET"[..], name.as_bytes());
        assert_eq!(ask(&redis.url(), &[set, name, bad]), b"+OK\r\n");
        third.hot.forget_key(b"a");
        assert_eq!(third.fetch("a").await, (true, false));
    }
    passed(
        &service,
        "answers",
        "shared",
        "with records and without; a changed or erased one is not believed",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis_shared_answers_do_not_get_older_by_being_passed_on() {
    let Some(service) = service("redis") else { return };
    let (world, redis) = (World::new(), Redis::start(&[]));
    let [one, other] = [(); 2].map(|()| world.server(&redis, 2 * SECOND));
    until_connected(&world, &redis, &[&one, &other]).await;
    world.set("a", true, true);
    let began = Instant::now();
    assert_eq!(one.fetch("a").await, (true, false));
    until_shared(&redis, 1).await;
    tokio::time::sleep((SECOND * 3 / 2).saturating_sub(began.elapsed())).await;
    let is_kept = other.fetch("a").await.1;
    assert!(is_kept || began.elapsed() > 2 * SECOND, "{:?}", began.elapsed());
    // Another half of a second, and both fetch it anew.
    tokio::time::sleep((2 * SECOND + SECOND / 10).saturating_sub(began.elapsed())).await;
    assert_eq!(other.fetch("a").await, (true, false));
    passed(&service, "answers", "their age", "goes with them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis_that_hangs_or_dies_holds_nobody_up() {
    const LOOKUPS: u32 = 200;
    let Some(service) = service("redis") else { return };
    let (world, redis) = (World::new(), Redis::start(&[]));
    let server = world.server(&redis, 60 * SECOND);
    until_connected(&world, &redis, &[&server]).await;
    let lookups = async |what: &str| {
        let mut times = Vec::new();
        for number in 0..LOOKUPS {
            let key = format!("{what} {number}");
            world.set(&key, true, number % 2 == 0);
            let began = Instant::now();
            assert_eq!(server.fetch(&key).await, (number % 2 == 0, false), "{key}");
            times.push(began.elapsed());
        }
        times.sort();
        (times.iter().sum::<Duration>(), times[times.len() / 2])
    };
    let (_, usual) = lookups("well").await;
    // What it may cost beside what lookups take on this machine now.
    let bound = 4 * usual + Duration::from_millis(5);
    redis.signal("-STOP");
    let (all, middle) = lookups("stopped").await;
    // One lookup waits, and the others of a second do not even try.
    assert!(middle < bound && all < LOOKUPS * bound, "{middle:?}, {all:?} for {LOOKUPS}; {usual:?} before");
    redis.signal("-CONT");
    let said =
        format!("a lookup takes {usual:?} with it; {middle:?} while it hangs, {LOOKUPS} of them {all:?}");
    drop(redis);
    let (gone, middle) = lookups("gone").await;
    assert!(middle < bound && gone < LOOKUPS * bound, "{middle:?}, {gone:?} for {LOOKUPS}; {usual:?} before");
    passed(&service, "answers", "hangs, dies", said);
}

/// The same by settings: two servers that fetch from a third one.
#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn redis_is_named_in_the_settings() {
    let Some(service) = service("redis") else { return };
    let redis = Redis::start(&[]);
    let mut all = ["north", "south", "west"].map(Deployment::new);
    let addresses = all.each_ref().map(|one| (one.name, one.url()));
    for one in &mut all {
        let settings = format!("{}kept_at = \"{}/shared\"\n", one.usual(), redis.url());
        one.start(&(settings + &named(&addresses, one.name)));
        one.make_filter(1_000);
    }
    // A domain that is only asked over the network says nothing against what is kept.
    all.iter().for_each(Deployment::has_copies);
    let [north, south, west] = all;
    // A busy machine may keep Redis from answering in its few milliseconds; then a lookup goes on without it, and another key is tried.
    let end = Instant::now() + PATIENCE;
    let is_shared = |key: &str| {
        west.add(key, "One of west");
        for one in [&north, &south] {
            one.comes_to(key, "", &[("north", "absent"), ("south", "absent"), ("west", "maybe")]);
        }
        let before = told(&redis.url(), "DBSIZE");
        let first = north.lookup(key, "?fetch=true");
        assert_eq!(
            (&first["record"]["domain"], &first["domains"][0]["from"]),
            (&json!("west"), &json!("source"))
        );
        // It is written behind the answer's back; whoever was refused leaves it alone for a second.
        let wait = Instant::now() + Duration::from_millis(1_500);
        while told(&redis.url(), "DBSIZE") == before && Instant::now() < wait {
            std::thread::sleep(Duration::from_millis(10));
        }
        let second = south.lookup(key, "?fetch=true");
        assert_eq!(second["record"], first["record"], "{second}");
        second["domains"][0]["from"] == "cache"
    };
    let mut keys = (1..).map(|number| format!("west-{number}"));
    let key = keys.find(|key| is_shared(key) || Instant::now() > end).unwrap();
    assert!(Instant::now() < end, "nothing is shared: {}", north.said());
    west.erase(&key);
    for one in [&north, &south] {
        one.comes_to(&key, "", &[("north", "absent"), ("south", "absent"), ("west", "absent")]);
        assert_eq!(one.lookup(&key, "?fetch=true")["absent"], true);
    }
    passed(&service, "answers", "of two servers", "what one has fetched the other one need not");

    let nobody = Deployment::new("north");
    for (address, why) in [("etcd://h/a", "redis://host/prefix"), ("redis://a,b/c", "a Redis is one")] {
        let settings = format!("{}kept_at = \"{address}\"\n", nobody.usual());
        let output = nobody.serve(&settings).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("kept_at") && said.contains(why), "{said}");
    }
}
