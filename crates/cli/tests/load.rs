//! `umbel load` as people type it: into a real server, killed on the way, and with everything that may be wrong.

#[path = "faults/server.rs"]
#[allow(dead_code, reason = "the tests of faults use all of it")]
mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::Server;
use umbel_client::Server as Api;

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that commands run in, and that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("umbel-cli-load-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(server: &Server, folder: &Path, arguments: &[&str]) -> Command {
    command_of("load", server, folder, arguments)
}

fn command_of(name: &str, server: &Server, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.arg(name).args(arguments).args(["--server", &server.url()]).current_dir(folder);
    command.stdin(Stdio::null());
    command
}

fn load(server: &Server, folder: &Folder, arguments: &[&str]) -> Output {
    command(server, &folder.0, arguments).output().unwrap()
}

/// The last event of a load that succeeds.
fn done(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asks the server itself.
struct Asked {
    api: Api,
    runtime: tokio::runtime::Runtime,
}

impl Asked {
    fn new(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { api: Api::new(&server.url(), None).unwrap(), runtime }
    }

    fn post(&self, path: String, body: &Value) -> Value {
        self.runtime.block_on(self.api.post(path, body, PATIENCE)).unwrap()
    }

    fn make(&self, body: &Value) {
        self.post("/v1/filters".to_owned(), body);
    }

    fn filter(&self, name: &str) -> Value {
        self.runtime.block_on(self.api.get(Api::path(name, ""))).unwrap()
    }

    /// How often each key is there, exactly.
    fn verify(&self, name: &str, keys: &[String]) -> Vec<u64> {
        let counts = keys.chunks(5_000).flat_map(|keys| {
            let told = self.post(Api::path(name, "verify"), &json!({ "keys": keys }));
            told["counts"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect::<Vec<_>>()
        });
        counts.collect()
    }
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("https://example.org/{number}")).collect()
}

#[test]
fn a_file_becomes_a_filter_of_the_right_size() {
    let (server, folder, keys) = (Server::new(), Folder::new("file"), keys(45_000));
    let asked = Asked::new(&server);
    folder.write("keys.txt", &(keys.join("\n") + "\n\n"));
    let counted = done(&load(&server, &folder, &["urls", "keys.txt", "--count", "--json"]));
    assert_eq!((counted["keys"].as_u64(), counted["nulls"].as_u64()), (Some(45_000), Some(1)));
    let distinct = counted["distinct"].as_u64().unwrap();
    assert!((43_500..=45_000).contains(&distinct), "{counted}");
    let said = complaint(&load(&server, &folder, &["urls", "keys.txt"]));
    assert!(said.contains("no filter urls") && said.contains("--create"), "{said}");
    let told =
        done(&load(&server, &folder, &["urls", "keys.txt", "--create", "--error", "0.0001", "--json"]));
    assert_eq!((told["event"].as_str(), told["keys"].as_u64()), (Some("done"), Some(45_000)), "{told}");
    let filter = asked.filter("urls");
    assert!(filter["capacity"].as_u64().unwrap() >= 66_000, "{filter}");
    assert!(asked.verify("urls", &keys).iter().all(|count| *count == 1));
    assert_eq!(folder.files(), ["keys.txt"], "nothing is left beside it");
    let again = load(&server, &folder, &["urls", "keys.txt"]);
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(text.contains("45,000 keys from keys.txt into urls: 0 were new, 1 rows without a key"), "{text}");
}

#[test]
fn a_filter_that_is_too_small_grows_once_to_the_size_that_the_source_needs() {
    let (server, folder) = (Server::new(), Folder::new("once"));
    let asked = Asked::new(&server);
    folder.write("keys.txt", &keys(200_000).join("\n"));
    let growth = |name: &str| {
        let told = asked.runtime.block_on(asked.api.get(Api::path(name, "growth"))).unwrap();
        (told["capacity"].as_u64().unwrap(), told["history"].as_array().unwrap().len())
    };
    asked.make(&json!({ "name": "told", "capacity": 200_000, "error": 0.001 }));
    done(&load(&server, &folder, &["told", "keys.txt", "--json"]));
    let (capacity, steps) = growth("told");
    assert!((290_000..=310_000).contains(&capacity) && steps == 1, "{capacity}, {steps}");
    // Where the total is not known, or is not to count, it grows by its factor.
    for (name, source) in [("streamed", "-"), ("left", "keys.txt")] {
        asked.make(&json!({ "name": name, "capacity": 200_000, "error": 0.001 }));
        let mut command = command(&server, &folder.0, &[name, source, "--anyway", "--json"]);
        let keys = std::fs::File::open(folder.0.join("keys.txt")).unwrap();
        done(&command.stdin(Stdio::from(keys)).output().unwrap());
        let end = Instant::now() + PATIENCE;
        while growth(name).1 == 0 {
            assert!(Instant::now() < end, "{name} does not grow");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(growth(name).0, 400_000, "{name}");
    }
}

#[test]
fn a_packed_file_becomes_a_filter_of_the_right_size() {
    let (server, folder) = (Server::new(), Folder::new("packed"));
    let mut packed = flate2::write::GzEncoder::new(
        std::fs::File::create(folder.0.join("a.ndjson.gz")).unwrap(),
        flate2::Compression::default(),
    );
    for key in keys(300_000) {
        writeln!(packed, "{{\"method\":\"GET\",\"url\":\"{key}\"}}").unwrap();
    }
    packed.finish().unwrap();
    done(&load(&server, &folder, &["urls", "a.ndjson.gz", "--field", "url", "--create", "--json"]));
    let growth = Asked::new(&server);
    let growth = growth.runtime.block_on(growth.api.get(Api::path("urls", "growth"))).unwrap();
    let capacity = growth["capacity"].as_u64().unwrap();
    assert!((405_000..=500_000).contains(&capacity), "{growth}");
    assert_eq!(growth["history"], json!([]), "it was made in its size");
}

#[test]
fn every_kind_of_file_and_standard_input() {
    let (server, folder) = (Server::new(), Folder::new("kinds"));
    let asked = Asked::new(&server);
    for family in ["murmur3", "xxh3", "redisson"] {
        asked.make(&json!({ "name": family, "capacity": 10_000, "error": 0.001, "family": family }));
        folder.write("a.csv", "id,mail\n1,csv@a\n2,\n");
        folder.write("a.ndjson", "{\"user\": {\"mail\": \"json@a\"}}\n");
        folder.write("b.ndjson", "{\"user\": {\"mail\": \"json\\u00e9\"}}\n");
        let told = done(&load(&server, &folder, &[family, "a.csv", "--column", "id,mail", "--json"]));
        assert_eq!((told["keys"].as_u64(), told["nulls"].as_u64()), (Some(1), Some(1)));
        done(&load(&server, &folder, &[family, "*.ndjson", "--field", "user.mail", "--json"]));
        let mut child = command(&server, &folder.0, &[family, "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"from stdin\n\xff\xfe\n").unwrap();
        assert!(child.wait().unwrap().success());
        let expected = ["1:csv@a", "json@a", "jsoné", "from stdin"].map(str::to_owned);
        assert_eq!(asked.verify(family, &expected), [1, 1, 1, 1], "{family}");
        assert_eq!(asked.filter(family)["items"], 5);
    }
}

/// Waits until something has arrived, and kills.
fn kill_half_way(mut child: Child, asked: &Asked, more_than: u64) {
    let end = Instant::now() + PATIENCE;
    while asked.filter("urls")["items"].as_u64().unwrap() <= more_than {
        assert!(Instant::now() < end && child.try_wait().unwrap().is_none(), "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_load_that_was_killed_goes_on_and_counts_no_key_twice() {
    let (server, folder, keys) = (Server::new(), Folder::new("killed"), keys(120_000));
    let asked = Asked::new(&server);
    asked.make(&json!({ "name": "urls", "capacity": 200_000, "error": 0.001, "kind": "counting" }));
    for (number, keys) in keys.chunks(30_000).enumerate() {
        folder.write(&format!("{number}.txt"), &keys.join("\n"));
    }
    let arguments = ["urls", "?.txt", "--rate", "40000", "--lanes", "3", "--json"];
    for more_than in [0, 40_000] {
        let child = command(&server, &folder.0, &arguments).stdout(Stdio::null()).spawn().unwrap();
        kill_half_way(child, &asked, more_than);
        assert!(folder.files().iter().any(|name| name.ends_with(".checkpoint")), "{:?}", folder.files());
    }
    let output = load(&server, &folder, &["urls", "?.txt", "--lanes", "2", "--json"]);
    let resumed: Value =
        serde_json::from_slice(output.stdout.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!(resumed["event"], "resume", "{resumed}");
    assert_eq!(done(&output)["keys"], 120_000);
    assert!(asked.verify("urls", &keys).iter().all(|count| *count == 1));
    assert_eq!(folder.files().len(), 4, "{:?}", folder.files());
}

#[test]
fn a_rebuild_that_was_killed_goes_on_while_the_filter_is_used() {
    let (server, folder, keys) = (Server::new(), Folder::new("rebuilt"), keys(120_000));
    let asked = Asked::new(&server);
    for kind in ["bloom", "counting"] {
        asked.make(&json!({ "name": kind, "capacity": 50_000, "error": 0.001, "kind": kind }));
        let add = |keys: &[&str]| asked.post(Api::path(kind, "add"), &json!({ "keys": keys }));
        let check =
            |key: &str| asked.post(Api::path(kind, "check"), &json!({ "keys": [key] }))["answers"][0].clone();
        add(&["gone", "stays"]);
        folder.write("source.txt", &(keys.join("\n") + "\nstays\n"));
        let arguments = [kind, "source.txt", "--rate", "40000", "--json"];
        let rebuild = |arguments: &[&str]| {
            let mut command = command_of("rebuild", &server, &folder.0, arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut child = rebuild(&arguments);
        let filled = || {
            let told = asked.runtime.block_on(asked.api.get(Api::path(kind, "rebuild")));
            told.ok().and_then(|told| told["items"].as_u64()).unwrap_or(0)
        };
        let end = Instant::now() + PATIENCE;
        while filled() < 10_000 {
            assert!(Instant::now() < end && child.try_wait().unwrap().is_none(), "nothing arrives");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Until the end, the filter is what it was.
        assert_eq!((check("gone"), check(&keys[0])), (json!("maybe"), json!("absent")), "{kind}");
        add(&["meanwhile"]);
        let output = rebuild(&[kind, "source.txt", "--json"]).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("\"begun_before\":true") && text.contains("\"resume\""), "{text}");
        let told = done(&output);
        assert_eq!(
            (told["event"].as_str(), told["keys"].as_u64()),
            (Some("switched"), Some(120_001)),
            "{told}"
        );
        assert!(asked.filter(kind)["capacity"].as_u64().unwrap() >= 150_000);
        assert!(asked.verify(kind, &keys).iter().all(|count| *count == 1), "{kind}");
        let others = ["stays", "meanwhile", "gone"].map(str::to_owned);
        assert_eq!(asked.verify(kind, &others), [1, 1, 0], "{kind}");
        // Nothing takes the place of a full filter.
        folder.write("empty.txt", "\n");
        let said = complaint(&rebuild(&[kind, "empty.txt"]).wait_with_output().unwrap());
        assert!(said.contains("holds 0 keys") && said.contains("--anyway"), "{said}");
        // It waits until it is told how to go on, or given up.
        assert!(said.contains("--abort gives it up"), "{said}");
        let is_begun = || asked.runtime.block_on(asked.api.get(Api::path(kind, "rebuild"))).is_ok();
        assert!(is_begun());
        let given_up = done(&rebuild(&[kind, "--abort", "--json"]).wait_with_output().unwrap());
        assert_eq!((given_up["event"].as_str(), is_begun()), (Some("aborted"), false), "{given_up}");
        let said = complaint(&rebuild(&[kind, "--abort"]).wait_with_output().unwrap());
        assert!(said.contains(&format!("no rebuild of {kind} was begun")), "{said}");
        assert_eq!(check("stays"), json!("maybe"));
        done(&rebuild(&[kind, "empty.txt", "--anyway", "--json"]).wait_with_output().unwrap());
        assert_eq!(check("stays"), json!("absent"));
    }
    assert_eq!(folder.files().len(), 2, "{:?}", folder.files());
}

/// Nobody can tell a source that says nothing to stop.
#[test]
fn whoever_stops_it_twice_need_not_wait_for_the_source() {
    let (server, folder) = (Server::new(), Folder::new("twice"));
    Asked::new(&server).make(&json!({ "name": "urls", "capacity": 1_000, "error": 0.001 }));
    for arguments in [&["urls", "-"][..], &["urls", "-", "--count"]] {
        let mut command = command(&server, &folder.0, arguments);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let silent = child.stdin.take();
        // One that does not listen yet would end at once.
        std::thread::sleep(Duration::from_secs(2));
        let process = child.id().to_string();
        for is_over in [false, true] {
            assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
            std::thread::sleep(Duration::from_secs(1));
            let ended = child.try_wait().unwrap();
            if ended.is_some() != is_over {
                let _ = child.kill();
            }
            assert_eq!(ended.map(|status| status.code()), is_over.then_some(Some(130)), "{arguments:?}");
        }
        drop(silent);
    }
}

#[test]
fn what_is_wrong_is_said_before_it_begins() {
    let (server, folder) = (Server::new(), Folder::new("wrong"));
    let asked = Asked::new(&server);
    folder.write("keys.txt", &keys(30_000).join("\n"));
    folder.write("a.csv", "id,mail\n1,x\n");
    asked.make(&json!({ "name": "small", "capacity": 1_000, "error": 0.01, "growth": 1.0 }));
    for (arguments, words) in [
        (&["small", "keys.txt"][..], &["too many for small", "1,000", "45,000", "--resize"][..]),
        (&["small", "keys.txt", "--anyway"], &["goes on from there"]),
        (&["small", "nothing.txt"], &["nothing.txt"]),
        (&["small", "a.csv"], &["--column"]),
        (&["small", "a.csv", "--column", "email"], &["\"email\"", "id, mail"]),
        (&["small", "keys.txt", "--table", "t"], &["for databases"]),
        (&["small", "keys.txt", "--set", "s"], &["for Redis"]),
        (&["small", "keys.txt", "--message", "key"], &["for Kafka"]),
        (&["small", "redis://127.0.0.1:1", "--column", "c"], &["for files and tables"]),
        (&["small", "redis://127.0.0.1:1", "--table", "t"], &["for databases"]),
        (&["small", "keys.txt", "--lanes", "0"], &["lanes"]),
        (&["small", "oracle:x", "--table", "t"], &["for databases"]),
    ] {
        let said = complaint(&load(&server, &folder, arguments));
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    }
    let told = load(&server, &folder, &["small", "keys.txt", "--resize", "--restart"]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    assert_eq!(asked.filter("small")["capacity"], 45_000);
}
