//! `umbel bench` against Redis itself, which has bits and no filters.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A server in a folder of its own; it ends with the test.
struct Redis {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Redis {
    fn start(settings: &[&str]) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Below the ports that the system hands out by itself, so that none of these is taken meanwhile.
        let first = 20_000 + (std::process::id() % 1_000) as u16 * 10;
        let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
        let port = ports.take(1_000).find(free).unwrap();
        let folder = std::env::temp_dir().join(format!("umbel-bench-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&folder)
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { process, port, folder };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        redis
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a command as a line, which servers take too, and gives the beginning of the reply.
    fn ask(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut reply = [0; 512];
        let bytes = stream.read(&mut reply).unwrap();
        String::from_utf8_lossy(&reply[..bytes]).trim_end().to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn bench(url: &str, arguments: &[&str]) -> Output {
    let quick = ["bench", "--url", url, "--capacity", "20K", "--rounds", "2"];
    Command::new(env!("CARGO_BIN_EXE_umbel")).args(quick).args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn two_servers_are_compared_case_by_case() {
    let (a, b) = (Redis::start(&[]), Redis::start(&[]));
    let svg = a.folder.join("cpu.svg");
    let output = bench(
        &a.url(),
        &["--peer", &b.url(), "--seconds", "0.3", "--threads", "2", "--json", "--svg", svg.to_str().unwrap()],
    );
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let results = report["results"].as_array().unwrap();
    assert_eq!((results.len(), report["faults"].as_u64()), (8, Some(0)), "{report}");
    for (server, redis) in report["servers"].as_array().unwrap().iter().zip([&a, &b]) {
        assert_eq!(
            (server["commands"].as_str(), server["url"].as_str()),
            (Some("bits"), Some(&*redis.url()))
        );
        assert_eq!(server["pid"].as_u64(), Some(u64::from(redis.process.id())));
    }
    for row in results {
        let number = |side: &str, name: &str| row[side][name].as_f64().unwrap_or_else(|| panic!("{row}"));
        for side in ["a", "b"] {
            assert!(number(side, "items_per_second") > 1_000.0, "{row}");
            assert!(number(side, "cpu_us_per_item") > 0.0, "{row}");
            let [p50, p99, p999] = ["p50_us", "p99_us", "p999_us"].map(|name| number(side, name));
            assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{row}");
        }
        let ratio = number("a", "items_per_second") / number("b", "items_per_second");
        assert!((number("ratio", "items_per_second") - ratio).abs() < 1e-9, "{row}");
        if row["case"] == "exists" || row["case"] == "mexists" {
            assert!((45.0..70.0).contains(&number("a", "ones_percent")), "{row}");
        }
    }
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("MEXISTS of 100") && drawn.contains("EXISTS, pipeline 64"), "{drawn}");
    assert_eq!((a.ask("DBSIZE"), b.ask("DBSIZE")), (":0".to_owned(), ":0".to_owned()), "something was left");
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn requests_are_sent_on_schedule() {
    let redis = Redis::start(&[]);
    let output =
        bench(&redis.url(), &["--rate", "500", "--seconds", "2", "--cases", "exists,madd", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    for (row, keys) in report["results"].as_array().unwrap().iter().zip([1.0, 100.0]) {
        let number = |name: &str| row["a"][name].as_f64().unwrap_or_else(|| panic!("{row}"));
        // The last request of a round is sent before its end, so the rate is a little more, or less on a busy machine.
        assert!((400.0..510.0).contains(&(number("items_per_second") / keys)), "{row}");
        assert!(number("p50_us") <= number("p999_us") && number("p999_us") <= number("max_us"), "{row}");
    }
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn a_stall_is_charged_to_every_request_that_was_due() {
    let redis = Redis::start(&["--enable-debug-command", "yes"]);
    let url = redis.url();
    let bench = std::thread::spawn(move || {
        bench(&url, &["--rate", "500", "--seconds", "4", "--cases", "exists", "--json"])
    });
    std::thread::sleep(Duration::from_millis(700));
    redis.ask("DEBUG SLEEP 1");
    let output = bench.join().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let row = &json(&output)["results"][0]["a"];
    // A quarter of the requests of both rounds came due in that second; a generator that waits would have seen one slow request.
    assert!(row["p99_us"].as_f64().unwrap() > 800_000.0, "{row}");
    assert!(row["p50_us"].as_f64().unwrap() < 200_000.0, "{row}");
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn passwords_are_asked_for_and_given() {
    let redis = Redis::start(&["--requirepass", "p@ss"]);
    let quick = ["--seconds", "0.1", "--cases", "exists", "--pipeline", "1"];
    let output = bench(&redis.url(), &quick);
    assert!(!output.status.success() && said(&output).contains("NOAUTH"), "{}", said(&output));
    let output = bench(&redis.url(), &[&quick[..], &["--password", "wrong"]].concat());
    assert!(!output.status.success() && said(&output).contains("AUTH"), "{}", said(&output));
    let output = bench(&redis.url(), &[&quick[..], &["--user", "default", "--password", "p@ss"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let output = bench(&format!("redis://:p%40ss@127.0.0.1:{}/3", redis.port), &quick);
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("one SETBIT or GETBIT"));
}

#[test]
#[ignore = "needs redis-server; `cargo xtask test` installs it"]
fn errors_and_wrong_answers_make_it_fail() {
    let redis = Redis::start(&[]);
    let output = bench(&redis.url(), &["--commands", "bf"]);
    assert!(!output.status.success() && said(&output).contains("no BF commands"), "{}", said(&output));

    assert_eq!(redis.ask("ACL SETUSER blind on >x ~* +@all -getbit"), "+OK");
    let quick = ["--seconds", "0.2", "--cases", "exists,mexists", "--json"];
    let output = bench(&format!("redis://blind:x@127.0.0.1:{}", redis.port), &quick);
    let (report, said_then) = (json(&output), said(&output));
    assert!(!output.status.success() && said_then.contains("replies were errors"), "{said_then}");
    assert!(said_then.contains("NOPERM") && report["faults"].as_u64().unwrap() > 0, "{said_then}");

    // Somebody takes the keys away while they are looked up.
    let (is_over, redis) = (AtomicBool::new(false), &redis);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                redis.ask("DEL umbel-bench:20000");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let output = bench(&redis.url(), &quick);
        is_over.store(true, Ordering::Relaxed);
        output
    });
    assert!(!output.status.success() && said(&output).contains("wrong answer 0"), "{}", said(&output));
}
