//! What engines lack is found out and said: servers that are set up otherwise than for the other tests.

mod common;

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{fresh, passed, service};
use umbel_adapters::{Durability, Plane, Report, Url};
use umbel_core::Error;

/// A server of one test. It ends with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on a port that is free, which stands in its arguments as `PORT`.
fn start(program: &str, arguments: &[&str]) -> (Server, String) {
    let port = (27_000..32_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
    let arguments = arguments.iter().map(|argument| argument.replace("PORT", &port.to_string()));
    let child =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server(child);
    let address = format!("127.0.0.1:{port}");
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < end, "{program} does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    (server, address)
}

async fn probe(plane: Plane, url: &str) -> Result<Report, Error> {
    umbel_adapters::probe(plane, &Url::parse(url)?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis_says_what_its_aof_is_worth() {
    let Some(service) = service("redis") else { return };
    let folder = std::env::temp_dir();
    let folder = folder.to_str().unwrap();
    let bare = ["--port", "PORT", "--bind", "127.0.0.1", "--dir", folder, "--save", ""];
    let (_server, address) = start("redis-server", &bare);
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
    let (_server, address) = start(&program, &["-a", "127.0.0.1", "-p", "PORT"]);
    let url = format!("nats://{address}/probe?partitions=2&timeout_ms=2000");
    let why = probe(Plane::Log, &url).await.unwrap_err().to_string();
    assert!(why.contains("no JetStream"), "{why}");
    passed(&service, "log", "probe", format!("\"{why}\""));
}
