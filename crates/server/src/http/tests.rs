use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

struct World {
    address: SocketAddr,
    state: Arc<Mutex<Result<(), String>>>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

async fn world(limits: Limits) -> World {
    let state = Arc::new(Mutex::new(Ok(())));
    let seen = Arc::clone(&state);
    let node = move || seen.lock().unwrap().clone();
    let router = router(Arc::new(node))
        .route("/slow", get(async || sleep(Duration::from_millis(300)).await))
        .route("/echo", axum::routing::post(async |body: String| body));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped = async { drop(stopped.await) };
    let server = tokio::spawn(serve(listener, None, router, limits, stopped));
    World { address, state, stop, server }
}

impl World {
    async fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = Vec::new();
        // A reset is an end as well.
        let _ended = stream.read_to_end(&mut reply).await;
        String::from_utf8(reply).unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await
    }
}

#[tokio::test]
async fn health_and_readiness_are_told() {
    let world = world(Limits::default()).await;
    assert!(world.get("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(world.get("/readyz").await.starts_with("HTTP/1.1 200"));
    *world.state.lock().unwrap() = Err("recovering: 3 of 256 slots".to_owned());
    let reply = world.get("/readyz").await;
    assert!(reply.starts_with("HTTP/1.1 503") && reply.ends_with("recovering: 3 of 256 slots\n"), "{reply}");
    assert!(world.get("/healthz").await.starts_with("HTTP/1.1 200"), "it lives nevertheless");
    assert!(world.get("/nothing").await.starts_with("HTTP/1.1 404"));
    let reply = world.send("POST /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 405"), "{reply}");
}

#[tokio::test]
async fn slow_and_large_requests_are_cut_off() {
    let head_timeout = Duration::from_millis(200);
    let stall_timeout = Duration::from_millis(600);
    let world = world(Limits { head_timeout, stall_timeout, body_bytes_max: 100, ..Limits::default() }).await;
    let begun = Instant::now();
    for request in [
        "",
        "GET /healthz HTTP/1.1\r\nhost: ",
        "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\nab",
    ] {
        let reply = world.send(request).await;
        assert!(!reply.contains("200 OK"), "{reply}");
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let reply = world.send(&format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000))).await;
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 431"), "{reply}");
    let body = "x".repeat(200);
    let reply = world
        .send(&format!(
            "POST /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 200\r\n\r\n{body}"
        ))
        .await;
    assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
    let reply = world.send("nonsense\r\n\r\n").await;
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 400"), "{reply}");
}

#[tokio::test]
async fn requests_that_say_their_length_twice_are_refused() {
    let world = world(Limits::default()).await;
    let (length, coding) = ("content-length: 5\r\n", "transfer-encoding: chunked\r\n");
    let post = "POST /echo HTTP/1.1\r\nhost: a\r\n";
    for (one, other) in [(length, coding), (coding, length), (length, length), (coding, coding)] {
        let body = "0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let reply = world.send(&format!("{post}{one}{other}\r\n{body}")).await;
        assert!(reply.starts_with("HTTP/1.1 400"), "{one}{other}{reply}");
        assert_eq!(reply.matches("HTTP/1.1").count(), 1, "{one}{other}{reply}");
    }
    // One of them is enough, for one request after another.
    let body = "content-length: 1\r\ncontent-length: 2\r\n\r\n";
    let sized = format!("{post}content-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("{post}{coding}\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let last = "GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let reply = world.send(&[&sized[..], &chunked, &sized, last].concat()).await;
    assert_eq!((reply.matches("HTTP/1.1 200").count(), reply.matches(body).count()), (4, 3), "{reply}");
}

#[tokio::test]
async fn health_has_connections_of_its_own() {
    let stall_timeout = Duration::from_millis(1500);
    let world =
        world(Limits { stall_timeout, connections_max: 2, reserved_max: 2, ..Limits::default() }).await;
    let mut slow = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head = "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\nab";
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    // One that says nothing leaves a reserved place to the other one.
    slow.push(TcpStream::connect(world.address).await.unwrap());
    let begun = Instant::now();
    for path in ["/healthz", "/readyz"] {
        let reply = world.get(path).await;
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("connection: close"), "{reply}");
    }
    let reply = world.get("/slow").await;
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("try again"), "{reply}");
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    // When the slow ones are cut off, there are places for everything.
    sleep(stall_timeout + Duration::from_millis(300)).await;
    assert!(world.get("/slow").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn answers_under_way_end_before_the_door_closes() {
    let world = world(Limits { head_timeout: Duration::from_secs(60), ..Limits::default() }).await;
    let _idle = TcpStream::connect(world.address).await.unwrap();
    let address = world.address;
    let slow = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).await.unwrap();
        reply
    });
    sleep(Duration::from_millis(100)).await;
    world.stop.send(()).unwrap();
    let begun = Instant::now();
    world.server.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "idle connections are not waited for");
    assert!(slow.await.unwrap().starts_with(b"HTTP/1.1 200"));
    assert!(TcpStream::connect(address).await.is_err());
}
