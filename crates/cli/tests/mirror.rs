//! `umbel mirror` between two servers, of which the new one may lack something, be slow or be away.

#[path = "faults/server.rs"]
#[allow(dead_code, reason = "the tests of faults use all of it")]
mod server;

#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/redis.rs"]
mod redis;
#[path = "common/wire.rs"]
mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use redis::Redis;
use serde_json::{Value, json};
use server::Server;
use wire::{ask, ask_over, told};

/// How long something may take on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mirror that runs.
struct Mirror {
    process: Child,
    events: Receiver<Value>,
    /// Where clients are let in, if they are.
    address: String,
}

impl Mirror {
    fn start(old: &str, new: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
        command.args(["mirror", "--json", "--from", old, "--to", new]).args(more);
        let mut process =
            command.env_remove("REDISCLI_AUTH").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let event = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        let mut mirror = Self { process, events, address: String::new() };
        let begun = mirror.until(|event| event["event"] == "listening" || event["event"] == "following");
        mirror.address = begun["address"].as_str().unwrap().replace("redis://", "");
        mirror
    }

    /// One that lets clients in.
    fn proxy(old: &str, new: &str, more: &[&str]) -> Self {
        Self::start(old, new, &[&["--listen", "127.0.0.1:0"], more].concat())
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// The next event that is so.
    fn until(&self, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("an event");
            if is_so(&event) {
                return event;
            }
            assert!(Instant::now() < end, "not before this: {event}");
        }
    }

    fn until_compared(&self, commands: u64) {
        self.until(|event| event["compared"].as_u64().is_some_and(|compared| compared >= commands));
    }

    /// Ends it: its exit status and what it says in the end.
    fn end(mut self) -> (i32, Value) {
        let number = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
        let summary = self.until(|event| event["event"] == "summary");
        (self.process.wait().unwrap().code().unwrap(), summary)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn line(stream: &TcpStream, line: &str) -> String {
    let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
    String::from_utf8_lossy(&ask_over(stream, &words)).trim_end().to_owned()
}

#[test]
fn clients_get_the_old_servers_replies_and_the_new_one_learns_the_same() {
    let (old, new) = (Server::new(), Server::new());
    let mirror = Mirror::proxy(&old.redis_url(), &new.redis_url(), &[]);
    let client = mirror.connect();
    assert_eq!(line(&client, "BF.RESERVE links 0.001 100000"), "+OK");
    assert_eq!(line(&client, "BF.ADD links a"), ":1");
    assert_eq!(line(&client, "BF.ADD links a"), ":0");
    assert_eq!(line(&client, "BF.RESERVE links 0.001 100000").chars().next(), Some('-'), "both refuse it");
    assert_eq!(line(&client, "PING"), "+PONG");
    assert_eq!(line(&client, "CF.ADD erasable a"), ":1");
    assert_eq!(line(&client, "CF.DEL erasable a"), ":1");
    assert!(line(&client, "BF.INFO links").starts_with('*'), "it is not compared: sizes differ");
    // Binary items, of any length, and many requests before the first reply is read.
    let item = [&b"\x00\r\n\xff"[..], &vec![b'x'; 200_000]].concat();
    assert_eq!(ask_over(&client, &[b"BF.ADD", b"links", &item]), b":1\r\n");
    let request: String = (0..500)
        .map(|number| {
            let item = format!("item:{number}");
            format!("*3\r\n$6\r\nBF.ADD\r\n$5\r\nlinks\r\n${}\r\n{item}\r\n", item.len())
        })
        .collect();
    (&client).write_all(request.as_bytes()).unwrap();
    let mut replies = vec![0; 500 * 4];
    (&client).read_exact(&mut replies).unwrap();
    assert_eq!(replies, b":1\r\n".repeat(500));
    // A transaction, and the newer version of the protocol.
    assert_eq!(line(&client, "MULTI"), "+OK");
    assert_eq!(line(&client, "BF.ADD links in-a-transaction"), "+QUEUED");
    assert_eq!(line(&client, "PING"), "+QUEUED");
    assert_eq!(line(&client, "BF.EXISTS links in-a-transaction"), "+QUEUED");
    assert_eq!(line(&client, "EXEC"), "*3\r\n:1\r\n+PONG\r\n:1");
    let other = mirror.connect();
    (&other).write_all(b"HELLO 3\r\nBF.MEXISTS links a item:7 nothing\r\n").unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"*3\r\n#t\r\n#t\r\n#f\r\n") && !said.ends_with(b"*3\r\n:1\r\n:1\r\n:0\r\n") {
        let mut byte = [0];
        (&other).read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    let (status, summary) = mirror.end();
    assert_eq!((status, &summary["different"], &summary["missed"]), (0, &json!(0), &json!(0)), "{summary}");
    let commands = &summary["commands"];
    assert_eq!(
        commands["BF.ADD"],
        json!({ "compared": 504, "same": 504, "chance": 0, "different": 0 }),
        "{summary}"
    );
    // What people type is passed on, and not compared.
    assert_eq!((&commands["BF.EXISTS"]["same"], &commands["BF.MEXISTS"]), (&json!(1), &Value::Null));
    assert_eq!(commands["BF.INFO"], Value::Null);
    for item in [&b"a"[..], &item, b"item:499", b"in-a-transaction"] {
        assert_eq!(ask(&new.redis_url(), &[b"BF.EXISTS", b"links", item]), b":1\r\n");
    }
}

#[test]
fn a_key_that_the_new_server_lacks_is_found() {
    let (old, new) = (Server::new(), Server::new());
    for server in [&old, &new] {
        told(&server.redis_url(), "BF.RESERVE links 0.0001 100000");
        told(&server.redis_url(), "BF.MADD links a b c");
    }
    told(&old.redis_url(), "BF.MADD links lost-1 lost-2");
    let mirror = Mirror::proxy(&old.redis_url(), &new.redis_url(), &[]);
    let url = mirror.url();
    assert_eq!(told(&url, "BF.MEXISTS links a b nothing"), "*3\r\n:1\r\n:1\r\n:0");
    assert_eq!(told(&url, "BF.EXISTS links lost-1"), ":1", "the old server's word counts");
    let event = mirror.until(|event| event["event"] == "different");
    assert_eq!((&event["old"], &event["new"]), (&json!("1"), &json!("0")), "{event}");
    assert_eq!(event["command"], "BF.EXISTS links lost-1");
    assert_eq!(told(&url, "BF.ADD links lost-2"), ":0");
    let event = mirror.until(|event| event["event"] == "different");
    assert_eq!((&event["command"], &event["new"]), (&json!("BF.ADD links lost-2"), &json!("1")));
    let (status, summary) = mirror.end();
    assert_eq!((status, &summary["compared"], &summary["different"]), (3, &json!(3), &json!(2)), "{summary}");
    assert_eq!(
        summary["commands"]["BF.MEXISTS"],
        json!({ "compared": 1, "same": 1, "chance": 0, "different": 0 })
    );
}

/// Filters of which each mistakes a few keys for its own, and not the same ones.
#[test]
fn what_differs_by_chance_is_told_from_what_is_lost() {
    const KEYS: usize = 30_000;
    let (old, new) = (Server::new(), Server::new());
    // One grows again and again, the other never has to.
    told(&old.redis_url(), "BF.RESERVE links 0.01 1000");
    told(&new.redis_url(), "BF.RESERVE links 0.001 100000");
    let mirror = Mirror::proxy(&old.redis_url(), &new.redis_url(), &[]);
    let client = mirror.connect();
    for first in (0..KEYS).step_by(100) {
        let items: Vec<String> = (first..first + 100).map(|number| format!("key:{number}")).collect();
        if first % 3 == 0 {
            items.iter().for_each(|item| _ = line(&client, &format!("BF.ADD links {item}")));
        } else {
            line(&client, &format!("BF.MADD links {}", items.join(" ")));
        }
    }
    for number in 0..1000 {
        line(&client, &format!("BF.EXISTS links nothing:{number}"));
    }
    let mut seen = Vec::new();
    mirror.until(|event| {
        let adds = event["command"].as_str().and_then(|command| command.strip_prefix("BF.ADD links "));
        if let Some(item) = adds {
            assert_eq!(event["event"], "chance", "{event}");
            let said = [&event["old"], &event["new"]].map(|said| said.as_str().unwrap().to_owned());
            assert!(said == ["0", "1"] || said == ["1", "0"], "{event}");
            seen.push(item.to_owned());
        }
        event["compared"] == 11_200
    });
    assert!(!seen.is_empty(), "no key was mistaken");
    for item in &seen {
        for server in [&old, &new] {
            assert_eq!(told(&server.redis_url(), &format!("BF.EXISTS links {item}")), ":1", "{item}");
        }
    }
    let (status, summary) = mirror.end();
    assert_eq!((status, &summary["different"], &summary["missed"]), (0, &json!(0), &json!(0)), "{summary}");
    assert!(summary["chance"].as_u64().unwrap() >= seen.len() as u64, "{summary}");
    assert_eq!(summary["compared"], 11_200);

    // Now keys that only one has, and far more than are mistaken.
    let more: Vec<String> = (0..600).map(|number| format!("lost:{number}")).collect();
    told(&old.redis_url(), &format!("BF.MADD links {}", more.join(" ")));
    let mirror = Mirror::proxy(&old.redis_url(), &new.redis_url(), &[]);
    let client = mirror.connect();
    for item in more.iter().take(300) {
        line(&client, &format!("BF.EXISTS links {item}"));
    }
    more.iter().skip(300).for_each(|item| _ = line(&client, &format!("BF.ADD links {item}")));
    mirror.until_compared(600);
    let (status, summary) = mirror.end();
    assert_eq!((status, &summary["chance"]), (3, &json!(0)), "{summary}");
    assert!(summary["different"].as_u64().unwrap() > 550, "{summary}");
}

#[test]
fn a_new_server_that_is_away_holds_nobody_up() {
    let (old, mut new) = (Server::new(), Server::new());
    let mirror = Mirror::proxy(&old.redis_url(), &new.redis_url(), &[]);
    let client = mirror.connect();
    assert_eq!(line(&client, "BF.RESERVE links 0.0001 100000"), "+OK");
    mirror.until_compared(1);
    new.kill();
    for number in 0..2000 {
        assert_eq!(line(&client, &format!("BF.ADD links {number}")), ":1", "the old one answers");
    }
    mirror.until(|event| event["event"] == "missed");
    mirror.until(|event| event["missed"].as_u64().is_some_and(|missed| missed > 0));
    new.start();
    // From here on it is compared again, and lacks what it missed.
    loop {
        assert_eq!(line(&client, "BF.EXISTS links nothing"), ":0");
        if mirror.until(|event| event["event"] == "progress")["compared"].as_u64().unwrap() >= 2 {
            break;
        }
    }
    // One of them might be the old server's mistake, but not so many.
    for number in 0..2000 {
        assert_eq!(line(&client, &format!("BF.EXISTS links {number}")), ":1");
    }
    mirror.until(|event| event["event"] == "different");
    let (status, summary) = mirror.end();
    assert_eq!(status, 3, "{summary}");
    assert!(summary["missed"].as_u64().unwrap() > 0, "{summary}");
}

#[test]
fn what_the_old_server_shows_is_followed() {
    let (old, new) = (Server::new(), Server::new());
    told(&old.redis_url(), "BF.RESERVE links 0.0001 100000");
    told(&new.redis_url(), "BF.RESERVE links 0.0001 100000");
    told(&old.redis_url(), "BF.ADD links lost");
    let mirror = Mirror::start(&old.redis_url(), &new.redis_url(), &[]);
    let client = TcpStream::connect(old.redis_url().replace("redis://", "")).unwrap();
    let item = b"\x00 \"quoted\" \\ \r\n\xff";
    assert_eq!(ask_over(&client, &[b"BF.ADD", b"links", item]), b":1\r\n");
    for number in 0..300 {
        line(&client, &format!("BF.ADD links {number}"));
    }
    line(&client, "BF.INSERT links ITEMS x y");
    line(&client, "CF.ADD erasable a");
    line(&client, "CF.DEL erasable a");
    line(&client, "BF.EXISTS links nothing");
    mirror.until_compared(305);
    assert_eq!(ask(&new.redis_url(), &[b"BF.EXISTS", b"links", item]), b":1\r\n");
    assert_eq!(told(&new.redis_url(), "BF.MEXISTS links 0 299 x y"), "*4\r\n:1\r\n:1\r\n:1\r\n:1");
    line(&client, "BF.EXISTS links lost");
    let event = mirror.until(|event| event["event"] == "different");
    assert_eq!((&event["command"], &event["old"]), (&json!("BF.EXISTS links lost"), &json!("1")), "{event}");
    let (status, summary) = mirror.end();
    // What it asked itself was not taken for a client's.
    assert_eq!(
        (status, &summary["compared"], &summary["different"]),
        (3, &json!(306), &json!(1)),
        "{summary}"
    );
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn a_real_redis_is_mirrored_either_way() {
    let (old, new) = (Redis::start(&["--requirepass", "hunter2"]), Redis::start(&[]));
    let with_password = old.url().replace("redis://", "redis://:hunter2@");
    let wanted = ["--commands", "set,get,incr"];
    let mirror = Mirror::proxy(&with_password, &new.url(), &wanted);
    let client = mirror.connect();
    assert_eq!(line(&client, "SET a 1"), "+OK");
    assert_eq!(line(&client, "INCR a"), ":2");
    assert_eq!(line(&client, "GET a"), "$1\r\n2");
    mirror.until_compared(3);
    told(&new.url(), "SET a 5");
    assert_eq!(line(&client, "GET a"), "$1\r\n2");
    // It pushes messages, after which replies are not told apart any more; but they pass.
    assert!(line(&client, "SUBSCRIBE news").starts_with("*3"));
    let other = mirror.connect();
    assert_eq!(line(&other, "PUBLISH news hello"), ":1");
    let mut message = [0; 38];
    (&client).read_exact(&mut message).unwrap();
    assert!(message.ends_with(b"$5\r\nhello\r\n"), "{}", String::from_utf8_lossy(&message));
    let (status, summary) = mirror.end();
    assert_eq!((status, &summary["compared"], &summary["different"]), (3, &json!(4), &json!(1)), "{summary}");

    let mirror = Mirror::start(&with_password, &new.url(), &wanted);
    let client = TcpStream::connect(old.url().replace("redis://", "")).unwrap();
    assert_eq!(line(&client, "AUTH hunter2"), "+OK");
    assert_eq!(ask_over(&client, &[b"SET", b"followed", b"a\x00\"\\\n\xff"]), b"+OK\r\n");
    mirror.until(|event| event["unchecked"].as_u64().is_some_and(|unchecked| unchecked == 1));
    assert_eq!(ask(&new.url(), &[b"GET", b"followed"]), b"$6\r\na\x00\"\\\n\xff\r\n");
    let (status, summary) = mirror.end();
    assert_eq!((status, &summary["compared"]), (0, &json!(0)), "{summary}");
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn servers_behind_tls_are_mirrored_either_way() {
    let folder = std::env::temp_dir().join(format!("umbel-mirror-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in certificates::certificates() {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let files = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.join(name).display().to_string());
    let [cert, key, ca] = files.each_ref().map(String::as_str);
    let options = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca];
    let (old, new) = (Redis::start(&options), Redis::start(&options));
    let shown =
        format!("cert={}&key={}", folder.join("client.pem").display(), folder.join("client.key").display());
    let [old, new] = [&old, &new].map(|redis| {
        format!("{}?ca={ca}&{shown}", redis.url().replace("redis://127.0.0.1", "rediss://localhost"))
    });
    let mirror = Mirror::proxy(&old, &new, &["--commands", "set,get"]);
    let client = mirror.connect();
    assert_eq!(line(&client, "SET a 1"), "+OK", "clients need no TLS");
    assert_eq!(line(&client, "GET a"), "$1\r\n1");
    mirror.until_compared(2);
    // The same server is followed while it is used through the proxy.
    let follower = Mirror::start(&old, &new, &["--commands", "set"]);
    assert_eq!(line(&client, "SET b 2"), "+OK");
    follower.until(|event| event["unchecked"] == 1);
    assert_eq!(follower.end().0, 0);
    let (status, summary) = mirror.end();
    assert_eq!((status, &summary["same"], &summary["missed"]), (0, &json!(3), &json!(0)), "{summary}");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let new = Server::new();
    let run = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_umbel")).arg("mirror").args(arguments).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) = run(&["--from", "redis://127.0.0.1:1", "--to", &new.redis_url()]);
    assert!(status == 1 && said.contains("127.0.0.1:1"), "{said}");
    let taken = new.redis_url().replace("redis://", "");
    let (status, said) = run(&["--from", &new.redis_url(), "--listen", &taken]);
    assert!(status == 1 && said.contains(&taken), "{said}");
    let (status, said) = run(&["--from", "http://h", "--to", &new.redis_url()]);
    assert!(status == 2 && said.contains("http://"), "{said}");
}
