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
        assert!(replicas.iter().any(|replica| replica["strategy"] == strategy), "{shown}");
        copy.close();
        let shown = status(&server);
        assert!(shown["replicas"].as_array().unwrap().is_empty(), "it said that it ends: {shown}");
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
    let mut stream = Copy::open(&server, &["--strategy", "delta"]);
    stream.comes_to("b", "maybe");
    let said = umbel(&server, &["rollback", "urls", "--to", &first]);
    assert!(said.contains("is the current one"), "{said}");
    assert!(said.contains("the server's own answers follow the log and are not rolled back"), "{said}");
    for copy in [&mut copy, &mut stream] {
        copy.comes_to("b", "absent");
    }
    // An age alone would call them fresh: they are shown as pinned, with what they lack, and equal to that version.
    let is_shown = |shown: &str| {
        let rows = shown.lines().filter(|line| {
            line.contains(&format!("pinned at {first}, lacks 1 items"))
                && line.contains(&format!("equal to {first}"))
        });
        rows.count() == 2
    };
    let end = Instant::now() + Duration::from_secs(30);
    let shown = loop {
        let shown = umbel(&server, &["status", "urls"]);
        if is_shown(&shown) {
            break shown;
        }
        assert!(Instant::now() < end, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(shown.contains(&format!("current {first} (pinned)")), "{shown}");
    assert!(shown.contains("the server's own answers follow the log"), "{shown}");
    umbel(&server, &["rollback", "urls", "--newest"]);
    for copy in [&mut copy, &mut stream] {
        copy.comes_to("b", "maybe");
    }
    stream.close();
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
    assert!(said.contains("of 3 registered strong replicas had it"), "{said}");
    let shown = status(&server);
    assert_eq!(shown["versions"]["pinned"], false, "nothing is pinned for others: {shown}");
    for copy in &mut strong {
        copy.comes_to("b", "maybe");
        assert_eq!(copy.ask("nobody's"), "absent");
    }
    // They go back together too, and others with them; a pin that is released leaves them where they are.
    let said = umbel(&server, &["rollback", "urls", "--to", &first]);
    assert!(said.contains("strong replicas switched to it together"), "{said}");
    for copy in &mut strong {
        copy.comes_to("b", "absent");
    }
    let said = umbel(&server, &["rollback", "urls", "--newest"]);
    assert!(said.contains(&format!("strong replicas stay at version {first}")), "{said}");
    // One that is killed still counts, and two of three are enough; when another one is, they are not.
    let mut killed = Vec::new();
    for (left, of_left) in [(2, true), (1, false)] {
        let mut copy = strong.pop().unwrap();
        copy.process.kill().unwrap();
        copy.process.wait().unwrap();
        killed.push(copy);
        // Something to publish: what was published before, the killed one may have had.
        let mut writer = Copy::open(&server, &[]);
        writer.tell(&format!("+when {left} are left"));
        writer.close();
        let said = run(&server, &["publish", "urls", "--strong", "--timeout", "5s"]);
        assert_eq!(said.status.success(), of_left, "{left} of 3: {said:?}");
        let why = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(of_left || why.contains("1 of 3 ready, 2 needed"), "{why}");
    }
    let shown = status(&server);
    let ids: Vec<String> = shown["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["strategy"] == "strong")
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 3, "{shown}");
    for id in ids {
        umbel(&server, &["replica", "urls", "--forget", &id]);
    }
    // The one that runs is known again, and is all of them.
    let end = Instant::now() + Duration::from_secs(30);
    while status(&server)["registered"] != 1 {
        assert!(Instant::now() < end, "{}", status(&server));
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = umbel(&server, &["publish", "urls", "--strong", "--pin", "--timeout", "20s"]);
    assert!(said.contains("1 of 1 registered") && said.contains("it is pinned"), "{said}");
    assert_eq!(status(&server)["versions"]["pinned"], true);
    strong.into_iter().for_each(Copy::close);
    assert_eq!(status(&server)["registered"], 0, "without a folder it does not come back, and says so");
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
