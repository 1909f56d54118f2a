//! Streams of which the head was damaged, so that they look like refusals: what says why has an end, and a stream has none.

use std::time::{Duration, Instant};

use serde_json::json;
use umbel_client::{Answer, Options, Replica, Server as Api};

use crate::proxy::{Proxy, Trouble};
use crate::server::Server;
use crate::{AGREED, FILTER, STALE_AFTER, runtime, strategies};

/// How long a replica may take to follow again: the longest pause between two tries, and some more.
const AGAIN_WITHIN: Duration = Duration::from_secs(20);

/// A replica, and its own way to the server.
struct Follower {
    name: &'static str,
    replica: Replica,
    proxy: Proxy,
}

impl Follower {
    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + AGAIN_WITHIN;
        while !is_so(self) {
            assert!(Instant::now() < end, "{} {what}: {:?}", self.name, self.replica.status());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Its stream ends, and the next one says that it is none.
    async fn deny(&self) {
        self.proxy.make(Trouble::Cut);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.proxy.make(Trouble::Deny);
        self.until("asked for no stream", |follower| follower.proxy.denials() > 0).await;
        // The head has gone out, and the replica waits for what it takes for a reason.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.proxy.make(Trouble::None);
    }

    async fn has(&self, key: &str) {
        self.until("stands still", |follower| follower.replica.contains(key) == Answer::Maybe).await;
        println!("{}: streams denied {}, follows again", self.name, self.proxy.denials());
    }
}

#[test]
fn a_stream_is_not_waited_for_as_a_refusal() {
    runtime().block_on(async {
        let server = Server::new();
        let api = Api::new(&server.url(), None).unwrap();
        let post = async |path: String, body| api.post(path, &body, Duration::from_secs(30)).await.unwrap();
        for filter in [FILTER, AGREED] {
            let new = json!({ "name": filter, "capacity": 2_000, "error": 0.0001, "kind": "counting" });
            post("/v1/filters".to_owned(), new).await;
        }
        post(Api::path(AGREED, "switch"), json!({})).await;
        let mut followers = Vec::new();
        for (name, strategy, window) in strategies().into_iter().filter(|(name, ..)| *name != "pull") {
            let proxy = Proxy::start(server.http_port()).await;
            let filter = if name == "strong" { AGREED } else { FILTER };
            let options = Options::new(proxy.url(), filter, strategy).stale_after(STALE_AFTER).window(window);
            followers.push(Follower { name, replica: Replica::open(options).await.unwrap(), proxy });
        }
        for follower in &followers {
            follower.deny().await;
        }
        for filter in [FILTER, AGREED] {
            post(Api::path(filter, "add"), json!({ "keys": ["after"] })).await;
        }
        post(Api::path(AGREED, "switch"), json!({ "timeout_ms": 20_000 })).await;
        for follower in &followers {
            follower.has("after").await;
            follower.replica.close().await.unwrap();
        }
    });
}
