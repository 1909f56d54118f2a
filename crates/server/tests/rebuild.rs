//! Filters that are filled anew while they are used, through both doors.

mod common;

use common::{Door, start, start_in};
use serde_json::{Value, json};

/// What a map has under a name, as it stands in the reply.
fn field<'a>(reply: &'a str, name: &str) -> &'a str {
    let mut lines = reply.split("\r\n").skip_while(|line| *line != format!("+{name}"));
    let value = lines.nth(1).unwrap_or_else(|| panic!("{name} is not in {reply}"));
    if value.starts_with('$') && value != "$-1" { lines.next().unwrap_or_default() } else { value }
}

#[test]
fn a_filter_is_filled_anew_by_commands() {
    let mut server = start_in(common::new_folder());
    let mut client = server.connect();
    assert_eq!(client.ask("UMBEL.CREATE c 1000 0.000001 KIND counting"), "+OK\r\n");
    client.ask("CF.INSERT c ITEMS a b stale");
    assert_eq!(client.ask("UMBEL.REBUILD STATUS c"), "-ERR no rebuild of this filter was begun\r\n");
    assert_eq!(client.ask("UMBEL.REBUILD START nothing"), "-ERR not found\r\n");
    let begun = client.ask("UMBEL.REBUILD START c CAPACITY 5000 ERROR 0.001");
    assert_eq!((field(&begun, "state"), field(&begun, "resumed")), ("filling", ":0"), "{begun}");
    let id = field(&begun, "id").to_owned();

    // The application goes on: what it adds and removes counts.
    assert_eq!(client.ask("CF.ADD c new"), ":1\r\n");
    assert_eq!(client.ask("CF.DEL c b"), ":1\r\n");
    let added = client.ask("UMBEL.REBUILD ADD c SESSION 3 SEQUENCE 1 ITEMS a b c");
    assert!(added.ends_with("+answers\r\n*3\r\n:1\r\n:0\r\n:1\r\n"), "{added}");
    assert!(client.ask("UMBEL.REBUILD ADD c ITEMS a new").ends_with("*2\r\n:0\r\n:0\r\n"));
    assert_eq!(client.ask("CF.EXISTS c c"), ":0\r\n", "the old one answers");
    assert_eq!(client.ask("KEYS *"), "*1\r\n$1\r\nc\r\n", "what is being filled is nobody's business");

    // A loader that was killed goes on, also with a server that was.
    drop(client);
    server = start_in(server.stop());
    let mut client = server.connect();
    let again = client.ask("UMBEL.REBUILD START c CAPACITY 5000 ERROR 0.001");
    assert_eq!((field(&again, "resumed"), field(&again, "id")), (":1", &id[..]), "{again}");
    assert!(client.ask("UMBEL.REBUILD START c CAPACITY 6000").contains("begun otherwise"));
    let status = client.ask("UMBEL.REBUILD STATUS c");
    assert_eq!((field(&status, "items"), field(&status, "filter_items")), (":3", ":3"), "{status}");
    assert_eq!((field(&status, "capacity"), field(&status, "failed")), (":5000", "$-1"), "{status}");

    assert!(
        client
            .ask(&format!("UMBEL.REBUILD FINISH c ID 0{}", &id[1..]))
            .starts_with("-ERR the rebuild that was begun")
    );
    assert_eq!(client.ask(&format!("UMBEL.REBUILD FINISH c ID {id}")), "+OK\r\n");
    assert_eq!(client.ask(&format!("UMBEL.REBUILD FINISH c ID {id}")), "+OK\r\n", "no answer came, say");
    assert!(client.ask("UMBEL.REBUILD FINISH c").contains("no rebuild"));
    assert_eq!(client.ask("UMBEL.VERIFY c a b c new stale"), "*5\r\n:1\r\n:0\r\n:1\r\n:1\r\n:0\r\n");
    assert_eq!(client.ask("CF.EXISTS c c"), ":1\r\n");
    assert_eq!(client.ask("DBSIZE"), ":1\r\n");

    client.ask("UMBEL.REBUILD START c");
    assert!(client.ask("UMBEL.REBUILD FINISH c").contains("holds 0 keys"));
    assert_eq!(client.ask("UMBEL.REBUILD ABORT c"), "+OK\r\n");
    assert_eq!(client.ask("CF.EXISTS c a"), ":1\r\n");
    client.ask("UMBEL.REBUILD START c");
    assert_eq!(client.ask("UMBEL.REBUILD FINISH c FORCE"), "+OK\r\n");
    assert_eq!(client.ask("CF.EXISTS c a"), ":0\r\n");
    assert!(client.ask("UMBEL.REBUILD START c KIND cuckoo").starts_with("-ERR kind cuckoo"));
    assert!(client.ask("UMBEL.REBUILD START c RETAIN no").contains("keys are kept"));
    assert!(client.ask("UMBEL.REBUILD FINISH c NOW").starts_with("-ERR unknown option"));
    assert!(client.ask("UMBEL.REBUILD HELP").contains("START <key>"));
    assert!(client.ask("UMBEL.REBUILD DANCE c").starts_with("-ERR unknown subcommand"));
}

#[test]
fn a_filter_is_filled_anew_over_http() {
    let door = Door::open(start());
    door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.001 }));
    door.post("/v1/filters/f/add", &json!({ "keys": ["a", "stale"] }));
    assert_eq!(door.get("/v1/filters/f/rebuild").0, 404);
    assert_eq!(door.delete("/v1/filters/f/rebuild"), 404);
    assert_eq!(door.post("/v1/filters/f/rebuild/add", &json!({ "keys": ["a"] })).0, 404);
    assert_eq!(door.post("/v1/filters/f/rebuild/finish", &json!({})).0, 404);
    assert_eq!(door.post("/v1/filters/none/rebuild", &json!({})).0, 404);
    assert_eq!(door.post("/v1/filters/f/rebuild", &json!({ "layout": "redisbloom" })).0, 400);
    assert_eq!(door.post("/v1/filters/f/rebuild", &json!({ "kind": "cuckoo" })).0, 400);
    assert_eq!(door.post("/v1/filters/f/rebuild", &json!({ "colour": "red" })).0, 400);

    let asked = json!({ "capacity": 200_000, "error": 0.0001, "kind": "counting" });
    let (status, begun) = door.post("/v1/filters/f/rebuild", &asked);
    assert_eq!(
        (status, &begun["state"], &begun["kind"]),
        (201, &json!("filling"), &json!("counting")),
        "{begun}"
    );
    assert_eq!(door.ask("POST", "/v1/filters/f/rebuild", &[], b"").0, 200, "it goes on, whatever it is");
    assert_eq!(door.post("/v1/filters/f/rebuild", &json!({ "capacity": 5 })).0, 409);
    door.post("/v1/filters/f/add", &json!({ "keys": ["new"] }));
    let lines: String = (0..20_000).map(|number| format!("row {number}\n")).collect();
    let (status, added) = door.lines("/v1/filters/f/rebuild/add", lines.as_bytes());
    assert_eq!((status, &added["keys"], &added["added"]), (200, &json!(20_000), &json!(20_000)), "{added}");
    let (_, added) = door.post("/v1/filters/f/rebuild/add", &json!({ "keys": ["row 1", "a", "new"] }));
    assert_eq!(added["answers"], json!([false, true, false]));
    let (_, progress) = door.get("/v1/filters/f/rebuild");
    assert_eq!((&progress["items"], &progress["filter_items"]), (&json!(20_002), &json!(3)), "{progress}");
    assert!(progress["began_ms"].as_u64().unwrap() > 0 && progress["fill"].as_f64().unwrap() > 0.0);
    assert_eq!(door.get("/v1/filters").1["filters"].as_array().map(Vec::len), Some(1));

    let id = json!({ "id": begun["id"] });
    let (status, finished) = door.post("/v1/filters/f/rebuild/finish", &id);
    assert_eq!(
        (status, &finished["items"], &finished["name"]),
        (200, &json!(20_002), &json!("f")),
        "{finished}"
    );
    assert_eq!(door.post("/v1/filters/f/rebuild/finish", &id).0, 200, "as often as it is asked");
    let keys = json!({ "keys": ["a", "new", "row 19999", "stale"] });
    assert_eq!(door.post("/v1/filters/f/verify", &keys).1["counts"], json!([1, 1, 1, 0]));

    // A source without rows never takes the place of a filter that has some, unless it is told to.
    door.post("/v1/filters/f/rebuild", &json!({}));
    let (status, refused) = door.post("/v1/filters/f/rebuild/finish", &json!({}));
    assert_eq!(status, 409, "{refused}");
    assert_eq!(door.delete("/v1/filters/f/rebuild"), 204);
    door.post("/v1/filters/f/rebuild", &json!({}));
    assert_eq!(door.post("/v1/filters/f/clear", &json!({})).0, 200);
    let (status, refused) = door.post("/v1/filters/f/rebuild/add", &json!({ "keys": ["a"] }));
    assert_eq!(status, 409, "{refused}");
    assert_eq!(door.get("/v1/filters/f/rebuild").1["state"], "failed");
    assert_eq!(door.post("/v1/filters/f/rebuild/finish", &json!({ "force": true })).0, 409);
    assert_eq!(door.delete("/v1/filters/f/rebuild"), 204);
}

/// Whoever keeps copies takes a version of the new filter; it is another one than those of the old.
#[test]
fn a_version_of_the_new_filter_can_be_made() {
    let door = Door::open(start());
    door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.001 }));
    door.post("/v1/filters/f/add", &json!({ "keys": ["a"] }));
    let (_, first) = door.post("/v1/filters/f/versions", &Value::Object(serde_json::Map::new()));
    door.post("/v1/filters/f/rebuild", &json!({}));
    door.post("/v1/filters/f/rebuild/add", &json!({ "keys": ["a", "b"] }));
    assert_eq!(door.post("/v1/filters/f/rebuild/finish", &json!({})).0, 200);
    let (status, second) = door.post("/v1/filters/f/versions", &json!({}));
    assert_eq!(status, 201, "{second}");
    assert_ne!(first["digest"], second["digest"], "{first} {second}");
    let (_, api) = door.get("/v1/openapi.json");
    for path in ["rebuild", "rebuild/add", "rebuild/finish"] {
        assert!(api["paths"].get(format!("/v1/filters/{{name}}/{path}")).is_some(), "{path}");
    }
}

/// Whoever did not hear whether a request was done sends it again, to the filter that has the name by then.
#[test]
fn a_request_that_is_sent_again_to_the_new_filter_counts_once() {
    let door = Door::open(start());
    let asked = json!({ "name": "f", "capacity": 1000, "error": 0.001, "kind": "counting" });
    assert_eq!(door.post("/v1/filters", &asked).0, 201);
    door.post("/v1/filters/f/rebuild", &json!({}));
    door.post("/v1/filters/f/rebuild/add", &json!({ "keys": ["of the source"] }));
    let send = |what: &str, sequence: u64, keys: &[&str]| {
        let request = json!({ "keys": keys, "session": 7, "sequence": sequence });
        let (status, done) = door.post(&format!("/v1/filters/f/{what}"), &request);
        assert_eq!(status, 200, "{done}");
    };
    let counts = || {
        let keys = json!({ "keys": ["a", "b", "c", "of the source"] });
        door.post("/v1/filters/f/verify", &keys).1["counts"].clone()
    };
    send("add", 1, &["a", "b", "b", "c"]);
    send("remove", 2, &["b"]);
    assert_eq!(door.post("/v1/filters/f/rebuild/finish", &json!({ "force": true })).0, 200);
    assert_eq!(counts(), json!([1, 1, 1, 1]));
    send("remove", 2, &["b"]);
    assert_eq!(counts(), json!([1, 1, 1, 1]), "it was done in the old one, and here with it");
    send("add", 3, &["c"]);
    assert_eq!(counts(), json!([1, 1, 2, 1]));
    send("add", 3, &["c"]);
    assert_eq!(counts(), json!([1, 1, 2, 1]));
}
