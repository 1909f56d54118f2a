//! Two sides that are cut off from each other and go on adding; and requests that arrive twice. In the end all have the same, and each
//! key counts once.

use std::time::{Duration, Instant};

use serde_json::json;
use umbel_client::{Answer, Options, Replica, Server as Api, Strategy};

use crate::proxy::{Proxy, Trouble};
use crate::server::Server;
use crate::{Chance, FILTER, number_or, runtime};

/// Two replicas that add, each on its own way to the server.
struct Sides {
    api: Api,
    sides: Vec<(Replica, Proxy)>,
    keys: Vec<String>,
    _server: Server,
}

impl Sides {
    async fn new() -> Self {
        let server = Server::new();
        let api = Api::new(&server.url(), None).unwrap();
        let new = json!({ "name": FILTER, "capacity": 100_000, "error": 0.0001, "kind": "counting" });
        api.post("/v1/filters", &new, Duration::from_secs(5)).await.unwrap();
        let mut sides = Vec::new();
        for _ in 0..2 {
            let proxy = Proxy::start(server.http_port()).await;
            let options =
                Options::new(proxy.url(), FILTER, Strategy::delta()).window(Duration::from_millis(5));
            sides.push((Replica::open(options).await.unwrap(), proxy));
        }
        Self { api, sides, keys: Vec::new(), _server: server }
    }

    fn make(&self, trouble: Trouble) {
        self.sides.iter().for_each(|(_, proxy)| proxy.make(trouble));
    }

    /// A key on each side and one at the centre.
    async fn add(&mut self, cycle: u64) {
        for (number, (replica, _)) in self.sides.iter().enumerate() {
            let key = format!("side {number} cycle {cycle}");
            replica.add(&[&key]).await.unwrap();
            self.keys.push(key);
        }
        let key = format!("centre cycle {cycle}");
        let body = json!({ "keys": [key] });
        self.api.post(Api::path(FILTER, "add"), &body, Duration::from_secs(5)).await.unwrap();
        self.keys.push(key);
    }

    /// All have every key once, and the same bits; gives what stands for these.
    async fn agree(&self) -> String {
        let mut positions = Vec::new();
        for (replica, _) in &self.sides {
            positions.push(replica.flush().await.unwrap());
        }
        let (api, keys) = (&self.api, &self.keys);
        let counted =
            api.post(Api::path(FILTER, "verify"), &json!({ "keys": keys }), Duration::from_secs(30)).await;
        assert_eq!(counted.unwrap()["counts"], json!(vec![1; keys.len()]), "each key once");
        let published =
            api.post(Api::path(FILTER, "versions"), &json!({}), Duration::from_secs(30)).await.unwrap();
        let digest = published["digest"].as_str().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        for (replica, _) in &self.sides {
            for position in &positions {
                replica.reached(position).await.unwrap();
            }
            while replica.digest().await.unwrap().to_string() != digest {
                assert!(Instant::now() < end, "{:?}", replica.status());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert!(keys.iter().all(|key| replica.contains(key) == Answer::Maybe));
        }
        digest.to_owned()
    }

    fn sum(&self, count: impl Fn(&Proxy) -> u64) -> u64 {
        self.sides.iter().map(|(_, proxy)| count(proxy)).sum()
    }
}

#[test]
fn both_sides_of_a_partition_are_united() {
    let cycles = number_or("UMBEL_TEST_CYCLES", 100);
    runtime().block_on(async {
        let (mut world, mut chance) = (Sides::new().await, Chance(number_or("UMBEL_TEST_SEED", 1)));
        for cycle in 0..cycles {
            world.sides[chance.below(2) as usize].1.make(Trouble::Cut);
            world.add(cycle).await;
            tokio::time::sleep(Duration::from_millis(chance.below(15))).await;
            world.make(Trouble::None);
            tokio::time::sleep(Duration::from_millis(chance.below(15))).await;
        }
        let digest = world.agree().await;
        let (keys, cuts) = (world.keys.len(), world.sum(Proxy::cuts));
        println!("cycles {cycles}, keys {keys}, connections cut {cuts}; digests equal: {digest}");
    });
}

#[test]
fn what_arrives_twice_counts_once() {
    let cycles = number_or("UMBEL_TEST_CYCLES", 100);
    runtime().block_on(async {
        let (mut world, mut chance) = (Sides::new().await, Chance(number_or("UMBEL_TEST_SEED", 1)));
        world.make(Trouble::Double(2));
        for cycle in 0..cycles {
            world.add(cycle).await;
            tokio::time::sleep(Duration::from_millis(chance.below(30))).await;
        }
        let digest = world.agree().await;
        let (requests, pieces) = (world.sum(Proxy::doubled_requests), world.sum(Proxy::doubled_pieces));
        assert!(requests > cycles / 2 && pieces > 0, "{requests} requests and {pieces} pieces came twice");
        let keys = world.keys.len();
        println!(
            "keys {keys}, requests doubled {requests}, pieces of streams doubled {pieces}; each key once, digests equal: {digest}"
        );
    });
}
