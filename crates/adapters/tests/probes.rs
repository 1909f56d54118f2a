//! What engines lack is found out and said: servers that are set up otherwise than for the other tests.

mod common;

use std::time::Duration;

use common::{fresh, own, passed, service};
use umbel_adapters::{Durability, Plane, Report, Url};
use umbel_core::Error;

async fn probe(plane: Plane, url: &str) -> Result<Report, Error> {
    umbel_adapters::probe(plane, &Url::parse(url)?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis_says_what_its_aof_is_worth() {
    let Some(service) = service("redis") else { return };
    let server = own::start("exec redis-server --port {port} --bind 127.0.0.1 --dir {folder} --save ''", &[]);
    let address = format!("127.0.0.1:{}", server.port);
    let url = format!("redis://:secret@{address}/probe");
    // A server without passwords refuses one.
    let refused = probe(Plane::Registry, &url).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");

    let url = format!("redis://{address}/probe?partitions=2");
    let about = probe(Plane::Log, &url).await.unwrap().about;
    assert!(probe(Plane::Registry, "redis://127.0.0.1:1").await.is_err(), "nobody is there");
    assert_eq!(about.durability, Durability::Memory);
    assert!(about.to_string().contains("without AOF"), "{about}");
    let ready = format!("redis://{}/{}", service.address(), fresh("probe"));
    let report = probe(Plane::Registry, &ready).await.unwrap();
    assert_eq!(report.about.durability, Durability::Synced);
    assert!(report.held.iter().any(|(what, took)| *what == "compare-and-set" && *took > Duration::ZERO));
    passed(&service, "log", "probe", format!("\"{about}\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn nats_without_jetstream_is_told() {
    let Some(service) = service("nats") else { return };
    let program = std::env::var("UMBEL_SERVICES").unwrap() + "/python/bin/nats-server";
    let server = own::start(&format!("exec {program} -a 127.0.0.1 -p {{port}}"), &[]);
    let url = format!("nats://127.0.0.1:{}/probe?partitions=2&timeout_ms=2000", server.port);
    let why = probe(Plane::Log, &url).await.unwrap_err().to_string();
    assert!(why.contains("no JetStream"), "{why}");
    passed(&service, "log", "probe", format!("\"{why}\""));
}

/// What an acknowledgement is worth in NATS is known to its monitor alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn nats_says_when_it_syncs() {
    let Some(service) = service("nats") else { return };
    let program = std::env::var("UMBEL_SERVICES").unwrap() + "/python/bin/nats-server";
    let script = format!("exec {program} -c {{folder}}/nats.conf");
    let mut said = Vec::new();
    for (sync, durability) in
        [("always", Durability::Synced), ("\"45s\"", Durability::Window(Duration::from_secs(45)))]
    {
        let settings = format!(
            "host: 127.0.0.1\nport: {{port}}\nhttp: 127.0.0.1:{{port1}}\n\
             jetstream {{ store_dir: \"{{folder}}/data\", sync_interval: {sync} }}\n"
        );
        let server = own::start(&script, &[("nats.conf", &settings)]);
        let url = format!("nats://127.0.0.1:{}/probe?partitions=2&timeout_ms=2000", server.port);
        // Whoever does not know takes it for the worst.
        let about = probe(Plane::Log, &url).await.unwrap().about;
        assert_eq!(about.durability, Durability::Window(Duration::from_secs(120)), "{about}");
        assert!(about.lacks.contains("monitor="), "{about}");
        let about = probe(Plane::Log, &format!("{url}&monitor={}", server.port + 1)).await.unwrap().about;
        assert_eq!(about.durability, durability, "{about}");
        said.push(format!("\"{about}\""));
        let about = probe(Plane::Log, &format!("{url}&monitor=1")).await.unwrap().about;
        assert!(about.lacks.contains("its monitor does not say"), "{about}");
    }
    passed(&service, "log", "probe", said.join(", "));
}

/// A RabbitMQ whose streams are switched off, as they are in one that was older once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn rabbitmq_without_streams_is_told() {
    let Some(service) = service("rabbitmq") else { return };
    let script = own::rabbitmq("export RABBITMQ_FEATURE_FLAGS=quorum_queue");
    let files = [("rabbitmq.conf", "listeners.tcp.1 = 127.0.0.1:{port}\n"), ("plugins", "[].\n")];
    let server = own::start(&script, &files);
    let url = format!("rabbitmq://127.0.0.1:{}/probe?partitions=2&timeout_ms=5000", server.port);
    let error = probe(Plane::Log, &url).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    let why = error.to_string();
    assert!(why.contains("has no streams"), "{why}");
    passed(&service, "log", "probe", format!("\"{why}\""));
}
