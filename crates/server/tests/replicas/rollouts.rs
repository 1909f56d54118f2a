//! Rollouts to replicas that are real: a version that is not well goes back by itself.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use umbel_client::{Answer, Replica, Server, Strategy};
use umbel_filter::Spec;

use crate::world::{Centre, PATIENCE, all_maybe, open, until};

async fn ended(server: &Server) -> Value {
    let began = Instant::now();
    loop {
        let rollout = server.get(Server::path("f", "rollout")).await.unwrap();
        if rollout["state"] != "running" {
            return rollout;
        }
        assert!(began.elapsed() < PATIENCE, "{rollout}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn start(server: &Server, plan: Value) -> u64 {
    let body = json!({ "plan": plan });
    let begun = server.post(Server::path("f", "rollout"), &body, PATIENCE).await.unwrap();
    begun["target"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_without_its_probe_key_is_rolled_back_by_itself() {
    let centre = Centre::start();
    centre.create(Spec::counting(10_000, 0.0001)).await;
    centre.add(0..1_000).await;
    let server = Server::new(&centre.url(), None).unwrap();
    let first = server.post(Server::path("f", "versions"), &json!({}), PATIENCE).await.unwrap();
    let first = first["number"].as_u64().unwrap();
    server.put(Server::path("f", "current"), &json!({ "version": first })).await.unwrap();
    let strategies = [
        Strategy::pull(Duration::from_millis(50)),
        Strategy::pull(Duration::from_millis(50)),
        Strategy::Notify { interval: Duration::from_millis(200) },
        Strategy::Notify { interval: Duration::from_millis(200) },
    ];
    let mut replicas: Vec<Replica> = Vec::new();
    for (number, strategy) in strategies.into_iter().enumerate() {
        let region = if number % 2 == 0 { "eu" } else { "us" };
        replicas.push(open(centre.options(strategy).label("region", region)).await);
    }
    let registered = async || {
        let listed = server.get(Server::path("f", "replicas")).await.unwrap();
        listed["replicas"].as_array().unwrap().len()
    };
    while registered().await < replicas.len() {
        sleep(Duration::from_millis(10)).await;
    }
    let by_region = |probe: &str| json!({ "by": "region", "order": ["eu"], "probe_present": [probe] });

    // A good one goes to all.
    centre.add(1_000..1_100).await;
    let second = start(&server, by_region("key 7")).await;
    let done = ended(&server).await;
    assert_eq!((&done["state"], &done["target"]), (&json!("done"), &json!(second)), "{done}");
    for replica in &replicas {
        until(replica, "it has the second", || replica.status().version == Some(second)).await;
        all_maybe(replica, 0..1_100);
    }

    // One that has lost a key goes back from the first group, and the second never sees it.
    centre.remove(7..8).await;
    centre.add(1_100..1_200).await;
    let third = start(&server, by_region("key 7")).await;
    let back = ended(&server).await;
    assert_eq!((&back["state"], &back["target"]), (&json!("rolled_back"), &json!(third)), "{back}");
    let why = back["why"].as_str().unwrap();
    assert!(why.contains("1 probe keys are absent that should be there"), "{why}");
    println!("rolled back: {why}");
    for replica in &replicas {
        until(replica, "it is back", || replica.status().version == Some(second)).await;
        all_maybe(replica, 0..1_100);
        assert_eq!(replica.contains("key 1150"), Answer::Absent, "of the version that went back");
    }
    for replica in [&replicas[1], &replicas[3]] {
        assert_eq!(
            replica.status().versions_taken,
            2,
            "the second group did not take it: {:#?}",
            replica.status()
        );
    }

    // Mended, it goes to all, although the last probes of these replicas failed.
    centre.add(7..8).await;
    let fourth = start(&server, by_region("key 7")).await;
    let done = ended(&server).await;
    assert_eq!(done["state"], "done", "{done}");
    for replica in &replicas {
        until(replica, "it has the fourth", || replica.status().version == Some(fourth)).await;
        all_maybe(replica, 0..1_200);
    }
}
