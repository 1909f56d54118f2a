//! Clocks that jump: forward, back, and over the time that a machine slept. Nothing is "absent" that the promise forbids.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;
use umbel_client::{Answer, Options, Replica, Server as Api};
use umbel_core::clock::{Clock, SystemClock};

use crate::proxy::{Proxy, Trouble};
use crate::server::Server;
use crate::{AGREED, FILTER, runtime, strategies};

const HOUR: i64 = 3_600;
/// How old a copy may be here: long enough that a busy machine keeps copies fresh.
const BOUND: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// The system's clock, some seconds before or after.
#[derive(Clone, Debug, Default)]
struct Jumping {
    clock: SystemClock,
    seconds: Arc<AtomicI64>,
}

impl Jumping {
    fn jump(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for Jumping {
    fn now(&self) -> Duration {
        // It begins late enough to go back.
        let seconds = 100 * HOUR + self.seconds.load(Ordering::SeqCst);
        self.clock.now() + Duration::from_secs(seconds.try_into().unwrap())
    }

    fn unix_millis(&self) -> u64 {
        self.now().as_millis() as u64
    }
}

struct World {
    api: Api,
    server: Server,
    proxy: Proxy,
}

impl World {
    async fn new(filter: &str) -> Self {
        let server = Server::new();
        let api = Api::new(&server.url(), None).unwrap();
        let new = json!({ "name": filter, "capacity": 10_000, "error": 0.0001 });
        api.post("/v1/filters", &new, PATIENCE).await.unwrap();
        let proxy = Proxy::start(server.http_port()).await;
        Self { api, server, proxy }
    }

    async fn add(&self, filter: &str, key: &str) {
        self.api.post(Api::path(filter, "add"), &json!({ "keys": [key] }), PATIENCE).await.unwrap();
    }
}

async fn until(replica: &Replica, what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "not so: {what}: {:#?}", replica.status());
        sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_copy_is_not_fresh_because_a_clock_jumps() {
    runtime().block_on(async {
        let world = World::new(FILTER).await;
        let mut replicas = Vec::new();
        for (name, strategy, window) in strategies().into_iter().filter(|(name, ..)| *name != "strong") {
            let clock = Jumping::default();
            let options = Options::new(world.proxy.url(), FILTER, strategy).window(window);
            let options = options.stale_after(BOUND).clock(Arc::new(clock.clone()));
            replicas.push((name, clock, Replica::open(options).await.unwrap()));
        }
        // Before the copies are cut off, and after: for each, the bound is two seconds of the world's time.
        for (round, (while_heard, while_cut)) in
            [(0, 0), (HOUR, 0), (-HOUR, 0), (0, HOUR), (0, -HOUR), (HOUR, -HOUR), (-HOUR, -HOUR)]
                .into_iter()
                .enumerate()
        {
            for (name, clock, replica) in &replicas {
                until(replica, &format!("{name} is fresh"), || !replica.status().stale).await;
                clock.jump(while_heard);
                until(replica, &format!("{name} is fresh again"), || !replica.status().stale).await;
                assert_eq!(replica.contains("nobody's"), Answer::Absent, "{name}");
            }
            world.proxy.make(Trouble::Hold);
            let key = format!("key {round}");
            world.add(FILTER, &key).await;
            let acknowledged = Instant::now();
            for (name, clock, replica) in &replicas {
                clock.jump(while_cut);
                if while_cut > 0 {
                    assert_eq!(replica.contains(&key), Answer::Unknown, "{name}, an hour later");
                }
            }
            sleep((BOUND + Duration::from_millis(5)).saturating_sub(acknowledged.elapsed())).await;
            for (name, _, replica) in &replicas {
                assert_eq!(
                    replica.contains(&key),
                    Answer::Unknown,
                    "{name}, jumps {while_heard} and {while_cut}"
                );
            }
            world.proxy.make(Trouble::None);
            for (name, _, replica) in &replicas {
                until(replica, &format!("{name} has it"), || replica.contains(&key) == Answer::Maybe).await;
            }
        }
    });
}

#[test]
fn a_lease_ends_in_time_whatever_the_clock_says() {
    runtime().block_on(async {
        // Back by an hour; forward by an hour, and back again; a machine that slept wakes up later by its own clock, too.
        for jumps in [&[-HOUR][..], &[HOUR, -HOUR], &[-10, -10, -10], &[0]] {
            let world = World::new(AGREED).await;
            world.api.post(Api::path(AGREED, "switch"), &json!({}), PATIENCE).await.unwrap();
            let clock = Jumping::default();
            let strong = umbel_client::Strategy::strong();
            let options = |url: String| Options::new(url, AGREED, strong);
            let cut_off = options(world.proxy.url()).clock(Arc::new(clock.clone()));
            let cut_off = Replica::open(cut_off).await.unwrap();
            let others = [
                Replica::open(options(world.server.url())).await.unwrap(),
                Replica::open(options(world.server.url())).await.unwrap(),
            ];
            for replica in others.iter().chain([&cut_off]) {
                until(replica, "it may answer", || replica.contains("key") == Answer::Absent).await;
            }
            world.add(AGREED, "key").await;
            world.proxy.make(Trouble::Hold);
            let mut jumps_left = jumps.iter();
            let body = json!({ "timeout_ms": 20_000 });
            let switch = async {
                let began = Instant::now();
                world.api.post(Api::path(AGREED, "switch"), &body, PATIENCE).await.unwrap();
                began.elapsed()
            };
            let jump = async {
                loop {
                    sleep(Duration::from_millis(300)).await;
                    cut_off.contains("key");
                    if let Some(seconds) = jumps_left.next() {
                        clock.jump(*seconds);
                    }
                }
            };
            let took = tokio::select! {
                took = switch => took,
                () = jump => unreachable!(),
            };
            // A majority has switched: whoever says that the key is absent now contradicts it.
            assert_eq!(cut_off.contains("key"), Answer::Unknown, "{jumps:?}: {:#?}", cut_off.status());
            for replica in &others {
                until(replica, "it has switched", || replica.contains("key") == Answer::Maybe).await;
            }
            world.proxy.make(Trouble::None);
            until(&cut_off, "it is back", || cut_off.contains("key") == Answer::Maybe).await;
            println!("jumps of {jumps:?} seconds: switched in {took:?} without a contradiction");
        }
    });
}
