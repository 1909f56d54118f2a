//! Rollouts to replicas that are real: a version that is not well goes back by itself.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use umbel_client::{Answer, Options, Replica, Server, Strategy};
use umbel_filter::Spec;

use crate::world::{Centre, Folder, PATIENCE, all_maybe, open, until};

async fn ended(server: &Server) -> Value {
    let began = Instant::now();
    loop {
        let rollout = server.get(Server::path("f", "rollout")).await.unwrap();
        if rollout["state"] != "running" && rollout["state"] != "rolling_back" {
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
    assert!(why.contains("1 probe keys are absent that should be there: \"key 7\""), "{why}");
    let named = replicas.iter().any(|replica| {
        let status = replica.status();
        why.contains(&format!("{} ({})", status.id, status.strategy.name()))
    });
    assert!(named, "it says which replica, and how it follows: {why}");
    println!("rolled back: {why}");
    for replica in &replicas {
        until(replica, "it is back", || replica.status().version == Some(second)).await;
        all_maybe(replica, 0..1_100);
        assert_eq!(replica.contains("key 1150"), Answer::Absent, "of the version that went back");
        let refused =
            || replica.status().refused.is_some_and(|refused| refused.version == third && refused.why == why);
        until(replica, "it knows what was refused, and why", refused).await;
        assert_eq!(replica.status().pinned, Some(second));
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

/// What the server says of its replicas.
async fn listed(server: &Server) -> Vec<Value> {
    let listed = server.get(Server::path("f", "replicas")).await.unwrap();
    listed["replicas"].as_array().unwrap().clone()
}

/// Waits until the server says something of all replicas.
async fn all_are(server: &Server, count: usize, what: impl Fn(&Value) -> bool) {
    let began = Instant::now();
    loop {
        let listed = listed(server).await;
        if listed.len() == count && listed.iter().all(&what) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{listed:#?}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn publish(server: &Server) -> u64 {
    let made = server.post(Server::path("f", "versions"), &json!({}), PATIENCE).await.unwrap();
    made["number"].as_u64().unwrap()
}

async fn pin(server: &Server, version: Option<u64>) {
    server.put(Server::path("f", "current"), &json!({ "version": version })).await.unwrap();
}

/// All strategies that can be held at a version: those that follow versions, and those that follow the log.
fn held(centre: &Centre) -> Vec<Options> {
    let mut all: Vec<Options> = ["pull", "push", "notify", "delta", "window"]
        .into_iter()
        .map(|name| Options::named(centre.url(), "f", name, Duration::from_millis(100)).unwrap())
        .collect();
    all[2] = centre.options(Strategy::Notify { interval: Duration::from_millis(200) });
    all
}

/// A pin reaches every strategy: replicas go back, stay there whatever is added, say so, and follow again when it is released.
#[tokio::test(flavor = "multi_thread")]
async fn every_strategy_goes_back_to_a_pinned_version_and_stays_there() {
    let centre = Centre::start();
    centre.create(Spec::bloom(100_000, 1e-6)).await;
    centre.add(0..100).await;
    let server = Server::new(&centre.url(), None).unwrap();
    let first = publish(&server).await;
    let folders: Vec<Folder> = held(&centre).iter().map(|_| Folder::new()).collect();
    let options: Vec<Options> = held(&centre)
        .into_iter()
        .zip(&folders)
        .map(|(options, folder)| options.folder(folder.path()))
        .collect();
    let mut replicas = Vec::new();
    for options in &options {
        replicas.push(open(options.clone()).await);
    }
    centre.add(100..200).await;
    for replica in &replicas {
        until(replica, "it follows", || replica.contains("key 150") == Answer::Maybe).await;
        assert_eq!(replica.status().pinned, None);
    }

    pin(&server, Some(first)).await;
    let is_back = |replica: &Replica| {
        let status = replica.status();
        replica.contains("key 150") == Answer::Absent
            && status.pinned == Some(first)
            && status.version == Some(first)
    };
    for replica in &replicas {
        until(replica, "it went back", || is_back(replica)).await;
        all_maybe(replica, 0..100);
    }
    let is_held = |replica: &Value| {
        replica["state"] == "held"
            && replica["agrees"] == true
            && replica["serve"] == first
            && replica["lacks_items"] == 100
    };
    all_are(&server, replicas.len(), is_held).await;
    // The server's own answers are not rolled back, and what it takes reaches no replica; nor one that is opened now.
    centre.add(200..300).await;
    assert_eq!(centre.counts(150..151).await, [1]);
    replicas.push(open(centre.options(Strategy::delta())).await);
    let token = replicas[0].status().token;
    for _ in 0..2 {
        let beats = listed(&server).await;
        let ages: Vec<_> = beats.iter().map(|replica| replica["heard_ms"].clone()).collect();
        sleep(Duration::from_millis(600)).await;
        for replica in &replicas {
            assert!(is_back(replica), "{ages:?} {:#?}", replica.status());
            assert_eq!(replica.contains("key 250"), Answer::Absent, "{:#?}", replica.status());
            assert_eq!(replica.status().token, token, "it stays where it is");
        }
    }
    // Nor one that was away: its folder has what it had before the pin.
    let (delta, options) = (replicas.remove(3), options[3].clone());
    delta.close().await.unwrap();
    replicas.push(open(options).await);
    assert_eq!(replicas.last().unwrap().contains("key 150"), Answer::Absent);

    pin(&server, None).await;
    for replica in &replicas {
        until(replica, "it follows again", || replica.contains("key 250") == Answer::Maybe).await;
        all_maybe(replica, 0..300);
        assert_eq!(replica.status().pinned, None);
    }
    all_are(&server, replicas.len(), |replica| replica["state"] == "follows").await;
}

/// A rollout holds replicas that follow the log as it does others, and takes them back.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_reaches_every_strategy_and_one_absent_probe_key_sends_it_back() {
    let centre = Centre::start();
    centre.create(Spec::bloom(100_000, 0.01)).await;
    centre.add(0..100).await;
    let server = Server::new(&centre.url(), None).unwrap();
    let first = publish(&server).await;
    let mut replicas = Vec::new();
    for options in held(&centre) {
        replicas.push(open(options).await);
    }
    all_are(&server, replicas.len(), |replica| !replica["version"].is_null()).await;
    pin(&server, Some(first)).await;
    centre.add(100..200).await;
    let second =
        start(&server, json!({ "batch": 2, "probe_present": ["key 7"], "probe_absent": ["key 150"] })).await;
    let back = ended(&server).await;
    assert_eq!((&back["state"], &back["target"]), (&json!("rolled_back"), &json!(second)), "{back}");
    let why = back["why"].as_str().unwrap();
    assert!(why.contains("they were added: \"key 150\""), "{why}");
    // From now on no replica answers from it, at once and not only soon.
    for replica in &replicas {
        assert_eq!(replica.status().version, Some(first), "{:#?}", replica.status());
        assert_eq!(replica.contains("key 199"), Answer::Absent, "{:#?}", replica.status());
    }
    // Without that probe it goes to all of them, and holds them.
    let third =
        start(&server, json!({ "batch": 2, "probe_present": ["key 7"], "probe_absent": ["key 9999"] })).await;
    let done = ended(&server).await;
    assert_eq!((&done["state"], &done["target"]), (&json!("done"), &json!(third)), "{done}");
    centre.add(200..300).await;
    for replica in &replicas {
        all_maybe(replica, 0..200);
        assert_eq!(replica.status().pinned, Some(third), "{:#?}", replica.status());
    }
    all_are(&server, replicas.len(), |replica| replica["state"] == "held" && replica["agrees"] == true).await;
}
