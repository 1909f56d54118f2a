//! The web console: its files, what they are told, and what is not taken from browsers.

mod common;

use std::io::Read;
use std::time::{Duration, Instant};

use common::{Door, start, start_with};
use serde_json::{Value, json};

#[test]
fn files_come_with_their_types_and_a_policy() {
    let door = Door::open(start());
    let page = door.fetch("/", &[]);
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let text = String::from_utf8(page.body.clone()).unwrap();
    let mut paths = vec!["/".to_owned()];
    // Whatever a file of it names is there, too.
    let mut queue = vec![("/".to_owned(), text)];
    while let Some((from, text)) = queue.pop() {
        let is_page = from == "/";
        let words = text
            .split(['"', '`'])
            .filter(|word| word.ends_with(".js") || word.ends_with(".css") || word.ends_with(".svg"));
        for word in words.filter(|word| word.starts_with("./") || word.starts_with("/console/")) {
            let path = format!("/console/{}", word.rsplit('/').next().unwrap());
            if paths.contains(&path) {
                continue;
            }
            let file = door.fetch(&path, &[]);
            assert_eq!(file.status, 200, "{path}, named by {from}");
            paths.push(path.clone());
            queue.push((path, String::from_utf8(file.body).unwrap()));
        }
        if is_page {
            assert!(!text_has_inline(&door), "nothing is inline");
        }
    }
    assert!(paths.len() > 20, "{paths:?}");
    for path in &paths {
        let file = door.fetch(path, &[]);
        let policy = file.header("content-security-policy").expect("a policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(file.header("referrer-policy"), Some("no-referrer"));
        let kind = file.header("content-type").expect("a type");
        let wanted = match path.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(kind, wanted, "{path}");
        let tag = format!("if-none-match: {}", file.header("etag").expect("a tag"));
        let again = door.fetch(path, &[&tag]);
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
        assert!(again.header("content-security-policy").is_some());
    }
    assert_eq!(door.fetch("/console/nothing.js", &[]).status, 404);
    assert_eq!(door.fetch("/console/..%2f..%2fCargo.toml", &[]).status, 404);
}

fn text_has_inline(door: &Door) -> bool {
    let page = String::from_utf8(door.fetch("/", &[]).body).unwrap();
    page.contains("style=")
        || page.contains(" onclick")
        || page.contains("<style")
        || page.contains("<script>")
}

#[test]
fn other_websites_are_refused_and_programs_are_not() {
    let door = Door::open(start());
    door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.01 }));
    let add = |head: &[&str]| {
        let head: Vec<&str> = head.iter().copied().chain(["content-type: text/plain"]).collect();
        door.request("POST", "/v1/filters/f/add", &head, b"a key")
    };
    // A form of another page needs no leave to send this.
    for head in [
        &["sec-fetch-site: cross-site"][..],
        &["sec-fetch-site: same-site", "origin: http://localhost:3000"],
        &["origin: https://evil.example"],
        &["origin: null"],
    ] {
        let refused = add(head);
        assert_eq!((refused.status, refused.code()), (403, "origin".to_owned()), "{head:?}");
    }
    assert_eq!(door.get("/v1/filters/f").1["items"], 0);
    // What asks by reading may change something, too: a version is published.
    let read = door.fetch("/v1/filters/f/versions/latest?max_age_ms=0", &["sec-fetch-site: cross-site"]);
    assert_eq!(read.status, 403);
    assert_eq!(door.fetch("/", &["sec-fetch-site: cross-site"]).status, 200, "a link to the console");
    assert_eq!(door.fetch("/v1/openapi.json", &["sec-fetch-site: cross-site"]).status, 200);
    for head in [&[][..], &["sec-fetch-site: same-origin"], &["origin: http://a"]] {
        assert_eq!(add(head).status, 200, "{head:?}");
    }
    assert_eq!(door.get("/v1/filters/f").1["items"], 1);
}

/// A request with another name for the server.
fn called(door: &Door, host: &str) -> u16 {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(door.address()).unwrap();
    stream
        .write_all(
            format!("GET /v1/filters HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap()
}

#[test]
fn a_name_that_was_made_to_stand_for_this_machine_is_refused() {
    let open =
        Door::open(start_with(common::new_folder(), |config| config.http_name = "umbel.example".into()));
    for host in
        ["localhost:6381", "127.0.0.1:6381", "[::1]:6381", "db1", "x.localhost:1", "umbel.example:6381"]
    {
        assert_eq!(called(&open, host), 200, "{host}");
    }
    assert_eq!(called(&open, "evil.example:6381"), 403);
    assert_eq!(called(&open, "127.0.0.1.evil.example"), 403);
    assert_eq!(open.fetch("/metrics", &["sec-fetch-site: cross-site"]).status, 403, "names of filters");
    let guarded = Door::open(start_with(common::new_folder(), |config| {
        config.password = Some(umbel_server::digest::Digest::of(b"secret"));
    }));
    assert_eq!(called(&guarded, "umbel.example"), 401, "a password does, whatever it is called");
}

#[test]
fn rights_are_those_of_the_token_and_secrets_are_not_told() {
    let door = Door::open(start_with(common::new_folder(), |config| {
        config.password = Some(umbel_server::digest::Digest::of(b"hunter2-hunter2"));
    }));
    // "default:hunter2-hunter2"
    let root = "authorization: Basic ZGVmYXVsdDpodW50ZXIyLWh1bnRlcjI=";
    for name in ["urls", "mails"] {
        let filter = json!({ "name": name, "capacity": 100, "error": 0.01, "growth": 1 });
        assert_eq!(door.post_as("/v1/filters", &filter, &[root]).0, 201);
    }
    let (_, made) = door.post_as("/v1/tokens", &json!({ "scope": "read", "filters": "urls" }), &[root]);
    let reader = format!("authorization: Bearer {}", made["token"].as_str().unwrap());
    for path in
        ["/v1/overview", "/v1/settings", "/v1/slowlog", "/v1/console/events", "/v1/plan?capacity=1&error=0.1"]
    {
        assert_eq!(door.fetch(path, &[]).status, 401, "{path}");
    }
    assert_eq!(door.fetch("/v1/settings", &[&reader]).status, 403);
    assert_eq!(door.fetch("/v1/slowlog", &[&reader]).status, 403);
    assert_eq!(door.fetch("/v1/plan?capacity=1000&error=0.1", &[&reader]).status, 200);
    let explain = |name: &str| {
        door.post_as(&format!("/v1/filters/{name}/explain"), &json!({ "key": "a" }), &[&reader]).0
    };
    assert_eq!((explain("urls"), explain("mails")), (200, 403));
    assert_eq!(door.fetch("/v1/filters/mails/history", &[&reader]).status, 403);
    // Both are full; a reader of one hears of that one only.
    for name in ["urls", "mails"] {
        let keys: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
        door.post_as(&format!("/v1/filters/{name}/add"), &json!({ "keys": keys }), &[root]);
    }
    let end = Instant::now() + Duration::from_secs(30);
    let told = |who: &str| {
        let alerts = door.fetch("/v1/overview", &[who]).json()["alerts"].clone();
        alerts.as_array().unwrap().iter().map(|alert| alert["filter"].clone()).collect::<Vec<Value>>()
    };
    while told(root).len() < 2 {
        assert!(Instant::now() < end, "{:?}", door.fetch("/v1/overview", &[root]).json());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(told(&reader), [json!("urls")]);

    let settings = door.fetch("/v1/settings", &[root]);
    let text = String::from_utf8(settings.body.clone()).unwrap();
    assert!(!text.contains("hunter2"), "a password is told");
    let password =
        settings.json()["settings"].as_array().unwrap().iter().find(|one| one["name"] == "password").cloned();
    assert_eq!(password.unwrap()["value"], "(hidden)");
}

#[test]
fn secrets_in_addresses_are_hidden() {
    let door = Door::open(start_with(common::new_folder(), |config| {
        config.log = Some(umbel_core::url::Url::parse("kafka://app:hunter2@broker/topic").unwrap());
    }));
    let text = door.ask("GET", "/v1/settings", &[], b"").2;
    assert!(text.contains("broker") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_key_is_explained_cell_by_cell() {
    let door = Door::open(start());
    for (name, more) in [
        ("blocked", json!({})),
        ("counted", json!({ "kind": "counting" })),
        ("strict", json!({ "error": 1e-6 })),
        ("guava", json!({ "layout": "guava" })),
        ("chain", json!({ "layout": "redisbloom" })),
        ("<b>\u{202e}\"'", json!({})),
    ] {
        let mut new = json!({ "name": name, "capacity": 1000, "error": 0.01 });
        new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(door.post("/v1/filters", &new).0, 201, "{new}");
        let path = format!("/v1/filters/{}", common_escaped(name));
        let explain = |key: Value| {
            let (status, told) = door.post(&format!("{path}/explain"), &json!({ "key": key }));
            assert_eq!(status, 200, "{told}");
            told
        };
        let before = explain(json!("a key"));
        assert_eq!(
            (&before["answer"], &before["arrays"][0]["maybe"]),
            (&json!("absent"), &json!(false)),
            "{name}"
        );
        door.post(&format!("{path}/add"), &json!({ "keys": ["a key", { "base64": "/wA=" }] }));
        let after = explain(json!("a key"));
        assert_eq!(
            (&after["answer"], &after["arrays"][0]["maybe"]),
            (&json!("maybe"), &json!(true)),
            "{name}"
        );
        assert_eq!(before["fingerprint"], after["fingerprint"]);
        assert!(after["slot"].as_u64() < after["slots"].as_u64());
        assert_eq!(explain(json!({ "base64": "/wA=" }))["answer"], "maybe");
        let touched = after["arrays"][0]["touched"].as_array().unwrap();
        match after["arrays"][0]["layout"].as_str().unwrap() {
            "blocked" => {
                assert_eq!(touched.len() as u64, after["arrays"][0]["banks"].as_u64().unwrap());
                let word = |line: &Value, index: usize| {
                    u64::from_str_radix(line["words"][index].as_str().unwrap(), 16).unwrap()
                };
                for (line, index) in touched.iter().flat_map(|line| (0..8).map(move |index| (line, index))) {
                    assert_ne!(word(line, index) >> line["cells"][index].as_u64().unwrap() & 1, 0, "{name}");
                }
            }
            _ => assert!(touched.iter().all(|bit| bit["set"] == true), "{name}"),
        }
    }
    assert_eq!(door.post("/v1/filters/none/explain", &json!({ "key": "a" })).0, 404);
    assert_eq!(door.post("/v1/filters/blocked/explain", &json!({ "key": 7 })).0, 400);
    assert_eq!(door.post("/v1/filters/blocked/explain", &json!({ "keys": ["a"] })).0, 400);
}

fn common_escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn samples_come_every_second_to_as_many_as_may_listen() {
    let door = Door::open(start());
    door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.01 }));
    let mut client = door.running.connect();
    let mut first = door.send("GET", "/v1/console/events", &[], b"");
    let mut text = String::new();
    let mut sample = |wanted: &dyn Fn(&Value) -> bool| -> Value {
        let end = Instant::now() + Duration::from_secs(30);
        let mut bytes = [0; 4096];
        loop {
            assert!(Instant::now() < end, "no such sample: {text}");
            let count = first.read(&mut bytes).expect("events");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            let lines: Vec<Value> = text
                .lines()
                .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
                .collect();
            if let Some(found) = lines.into_iter().rev().find(|line| wanted(line)) {
                return found;
            }
        }
    };
    // The rates of a filter count from the first sample that knows it.
    sample(&|sample| sample["filters"] == 1);
    for number in 0..50 {
        client.ask(&format!("BF.ADD f key{number}"));
        client.ask(&format!("BF.EXISTS f key{number}"));
    }
    let moved = sample(&|sample| sample["changed"][0]["items"].as_u64().is_some_and(|items| items > 40));
    assert_eq!(moved["changed"][0]["name"], "f");
    assert!(moved["adds_per_second"].as_f64().unwrap() > 0.0, "{moved}");
    assert_eq!(moved["health"], "serving");
    // 64 may listen, and a place comes back when somebody goes.
    let mut all: Vec<_> = (0..63).map(|_| door.send("GET", "/v1/console/events", &[], b"")).collect();
    for stream in &mut all {
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    }
    assert_eq!(door.fetch("/v1/console/events", &[]).status, 503);
    drop(all);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let mut head = [0; 12];
        door.send("GET", "/v1/console/events", &[], b"").read_exact(&mut head).unwrap();
        if &head == b"HTTP/1.1 200" {
            break;
        }
        assert!(Instant::now() < end, "no place came back");
        std::thread::sleep(Duration::from_millis(200));
    }
    let overview = door.get("/v1/overview").1;
    assert_eq!(
        (&overview["filters"], &overview["items"], &overview["cluster"]),
        (&json!(1), &json!(50), &Value::Null)
    );
    assert!(!overview["history"].as_array().unwrap().is_empty());
    assert_eq!(door.get("/v1/filters/f/history").0, 200);
}

#[test]
fn plans_and_slow_commands_are_told() {
    let door = Door::open(start());
    let (status, plan) =
        door.get("/v1/plan?capacity=30000000000&error=0.001&copies=2&node_memory_bytes=17179869184");
    assert_eq!(status, 200, "{plan}");
    assert!(plan["expected_error"].as_f64().unwrap() <= 0.001);
    assert!(plan["bits_per_key"].as_f64().unwrap() < 17.0 && plan["nodes"].as_u64().unwrap() > 8, "{plan}");
    let curve = plan["curve"].as_array().unwrap();
    let errors: Vec<f64> = curve.iter().map(|point| point["error"].as_f64().unwrap()).collect();
    assert!(errors.is_sorted() && errors.last() > errors.first(), "{errors:?}");
    for bad in [
        "capacity=0&error=0.1",
        "capacity=10&error=2",
        "capacity=10",
        "capacity=10&error=0.1&kind=cuckoo",
        "capacity=10&error=0.1&copies=99",
    ] {
        assert_eq!(door.get(&format!("/v1/plan?{bad}")).0, 400, "{bad}");
    }
    let mut client = door.running.connect();
    client.ask("CONFIG SET slowlog-log-slower-than 0");
    client.ask("BF.ADD \"<script>alert(1)</script>\" key");
    let (_, slow) = door.get("/v1/slowlog");
    let is_it =
        |entry: &Value| entry["words"][0] == "BF.ADD" && entry["words"][1] == "<script>alert(1)</script>";
    assert!(slow["entries"].as_array().unwrap().iter().any(is_it), "{slow}");
    assert_eq!(door.get("/v1/slowlog?count=0").0, 400);
    assert_eq!(door.get("/v1/cluster").0, 404, "it is none");
}
