//! The commands about copies, as people type them: `replica`, `status`, `publish`, `rollback` and `rollout`.

#[path = "faults/server.rs"]
#[allow(dead_code, reason = "the tests of faults use all of it")]
mod server;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::Server;
use umbel_client::Server as Api;

/// What a command prints, if it succeeds.
fn umbel(server: &Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn run(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(arguments).args(["--server", &server.url()]).output().unwrap()
}

fn status(server: &Server) -> Value {
    serde_json::from_str(&umbel(server, &["status", "urls", "--json"])).unwrap()
}

/// A copy that is asked line by line.
struct Copy {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Copy {
    fn open(server: &Server, more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_umbel"))
            .args(["replica", "urls", "--server", &server.url()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn ask(&mut self, key: &str) -> String {
        self.tell(key);
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    /// Asks until it answers so.
    fn comes_to(&mut self, key: &str, answer: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.ask(key) != answer {
            assert!(Instant::now() < end, "{key} is never {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends with its input.
    fn close(mut self) {
        drop(self.input);
        assert!(self.process.wait().unwrap().success());
    }
}

/// A filter with these keys.
fn with_filter(keys: &[&str]) -> Server {
    let server = Server::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api = Api::new(&server.url(), None).unwrap();
    let post = |path: String, body: Value| {
        runtime.block_on(api.post(path, &body, Duration::from_secs(10))).unwrap();
    };
    post("/v1/filters".to_owned(), json!({ "name": "urls", "capacity": 10_000, "error": 0.001 }));
    post(Api::path("urls", "add"), json!({ "keys": keys }));
    server
}

#[test]
fn every_strategy_of_the_table_can_be_typed() {
    let server = with_filter(&["a"]);
    for strategy in ["pull", "push", "notify", "delta", "window"] {
        let mut copy = Copy::open(&server, &["--strategy", strategy, "--interval", "200ms"]);
        copy.comes_to("a", "maybe");
        assert_eq!(copy.ask("nobody's"), "absent", "{strategy}");
        let key = format!("of {strategy}");
        copy.tell(&format!("+{key}"));
        assert_eq!(copy.ask(&key), "maybe", "own adds are there at once");
        let shown = status(&server);
        let replicas = shown["replicas"].as_array().unwrap();
        let followed = if strategy == "window" { "delta" } else { strategy };
        assert!(replicas.iter().any(|replica| replica["strategy"] == followed), "{shown}");
        copy.close();
    }
    // What one added has come to the centre, and from there to the next.
    let mut copy = Copy::open(&server, &[]);
    for strategy in ["pull", "push", "notify", "delta", "window"] {
        copy.comes_to(&format!("of {strategy}"), "maybe");
    }
    copy.close();
    let mut copy = Copy::open(&server, &["--positions"]);
    let answer = copy.ask("a");
    let position = answer.strip_prefix("maybe ").expect("a word and a position");
    assert!(position.contains(':'), "{answer}");
    copy.close();
    let table = umbel(&server, &["status"]);
    assert!(table.contains("urls") && table.contains("bloom"), "{table}");
}

#[test]
fn versions_are_published_taken_back_and_switched_to() {
    let server = with_filter(&["a"]);
    let first: Value = serde_json::from_str(&umbel(&server, &["publish", "urls", "--json"])).unwrap();
    let first = first["number"].to_string();
    let mut copy = Copy::open(&server, &["--strategy", "pull", "--interval", "100ms"]);
    copy.comes_to("a", "maybe");
    let mut writer = Copy::open(&server, &[]);
    writer.tell("+b");
    writer.close();
    copy.comes_to("b", "maybe");
    assert!(umbel(&server, &["rollback", "urls", "--to", &first]).contains("is the current one"));
    copy.comes_to("b", "absent");
    let shown = umbel(&server, &["status", "urls"]);
    assert!(shown.contains(&format!("current {first} (pinned)")), "{shown}");
    umbel(&server, &["rollback", "urls", "--newest"]);
    copy.comes_to("b", "maybe");
    copy.close();
    let nowhere = run(&server, &["rollback", "urls", "--to", "999999"]);
    assert!(!nowhere.status.success() && !nowhere.stderr.is_empty());

    let mut strong: Vec<_> = (0..3).map(|_| Copy::open(&server, &["--strategy", "strong"])).collect();
    assert_eq!(strong[0].ask("a"), "unknown", "nothing was agreed on yet");
    let end = Instant::now() + Duration::from_secs(30);
    while status(&server)["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["strategy"] == "strong")
        .count()
        < 3
    {
        assert!(Instant::now() < end, "three are not known");
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = umbel(&server, &["publish", "urls", "--strong", "--timeout", "20s"]);
    assert!(said.contains("of 3 replicas had it"), "{said}");
    for copy in &mut strong {
        copy.comes_to("b", "maybe");
        assert_eq!(copy.ask("nobody's"), "absent");
    }
    strong.into_iter().for_each(Copy::close);
}

#[test]
fn a_rollout_is_followed_to_its_end() {
    let server = with_filter(&["a"]);
    umbel(&server, &["publish", "urls"]);
    let interval = ["--strategy", "pull", "--interval", "100ms"];
    let mut copies: Vec<_> = ["eu", "us"]
        .into_iter()
        .map(|region| {
            Copy::open(&server, &[&interval[..], &["--label", &format!("region={region}")]].concat())
        })
        .collect();
    for copy in &mut copies {
        copy.comes_to("a", "maybe");
    }
    let groups = ["--by", "region", "--order", "eu,us", "--timeout", "20s"];
    let start = |more: &[&str]| run(&server, &[&["rollout", "start", "urls"], &groups[..], more].concat());
    // Behind the two come all others, of which there are none.
    let went = start(&["--probe-present", "a", "--probe-absent", "nobody's", "--follow"]);
    let said = String::from_utf8_lossy(&went.stdout).into_owned();
    assert!(went.status.success() && said.contains("done: group 3 of 3"), "{said}");
    let shown = umbel(&server, &["rollout", "status", "urls"]);
    assert!(shown.contains("done"), "{shown}");
    // A key that is not there: it goes back by itself, and the command fails.
    let went = start(&["--probe-present", "nobody's", "--follow", "--json"]);
    let last = String::from_utf8_lossy(&went.stdout).lines().last().map(str::to_owned).unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert!(!went.status.success() && last["state"] == "rolled_back", "{last}");
    // One that would wait for long is held, let go on, and sent back.
    assert!(start(&["--probe-present", "a", "--pause", "1h"]).status.success());
    for (what, said) in
        [("pause", "paused: group"), ("resume", "running: group"), ("abort", "rolled back: group")]
    {
        let shown = umbel(&server, &["rollout", what, "urls"]);
        assert!(shown.contains(said), "{shown}");
        if what == "pause" {
            let told: Value =
                serde_json::from_str(&umbel(&server, &["rollout", what, "urls", "--json"])).unwrap();
            assert_eq!((&told["state"], &told["paused"]), (&"running".into(), &true.into()), "{told}");
        }
    }
    let pinged = Command::new(env!("CARGO_BIN_EXE_umbel"))
        .args(["ping", "--json", "--url", &server.redis_url()])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&pinged.stdout).unwrap();
    assert_eq!((&told["answers"], &told["url"]), (&true.into(), &server.redis_url().into()));
    assert!(!run(&server, &["rollout", "pause", "urls"]).status.success(), "it has ended");
    copies.into_iter().for_each(Copy::close);
}
