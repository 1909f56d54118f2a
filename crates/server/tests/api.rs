//! The HTTP API, as its users see it.

mod common;

use common::{Door, start, start_with};
use serde_json::{Value, json};

#[test]
fn filters_are_made_described_changed_and_dropped() {
    let door = Door::open(start());
    let new = json!({ "name": "a/b c", "capacity": 1000, "error": 0.01, "kind": "counting", "growth": 1.5 });
    let (status, head, body) =
        door.ask("POST", "/v1/filters", &["content-type: application/json"], new.to_string().as_bytes());
    assert_eq!(status, 201, "{body}");
    assert!(head.to_lowercase().contains("location: /v1/filters/a%2fb%20c"), "{head}");
    let made: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&made["kind"], &made["growth"], &made["retain"]),
        (&json!("counting"), &json!(1.5), &json!(true))
    );
    assert_eq!(door.post("/v1/filters", &new).0, 409, "it is there");
    // Redis clients see the same filter.
    assert_eq!(door.running.connect().ask("CF.ADD \"a/b c\" x"), ":1\r\n");
    assert_eq!(door.get("/v1/filters/a%2Fb%20c").1["items"], 1);

    let (status, resized) = door.post("/v1/filters/a%2Fb%20c/resize", &json!({ "capacity": 5000 }));
    assert_eq!((status, &resized["capacity"], &resized["items"]), (200, &json!(5000), &json!(1)));
    let (status, fitted) = door.post("/v1/filters/a%2Fb%20c/resize", &json!({ "fit": true }));
    assert_eq!((status, &fitted["capacity"], &fitted["items"]), (200, &json!(1000), &json!(1)));
    let (status, _) = door.post("/v1/filters/a%2Fb%20c/resize", &json!({ "fit": true, "capacity": 5000 }));
    assert_eq!(status, 400);
    let (status, refused) = door.post("/v1/filters/a%2Fb%20c/resize", &json!({ "capacity": 0 }));
    assert_eq!(status, 409, "{refused}");

    door.post("/v1/filters", &json!({ "name": "b", "capacity": 1000, "error": 0.01, "kind": "counting" }));
    door.post("/v1/filters/b/add", &json!({ "keys": ["x", "y"] }));
    let merged = door.post("/v1/filters/a%2Fb%20c/merge", &json!({ "from": ["b"] }));
    assert_eq!(merged.0, 200, "{}", merged.1);
    let (_, checked) = door.post("/v1/filters/a%2Fb%20c/check", &json!({ "keys": ["x", "y", "z"] }));
    assert_eq!(checked["answers"], json!(["maybe", "maybe", "absent"]));
    assert_eq!(door.post("/v1/filters/b/clear", &json!({})).1["items"], 0);

    let (_, page) = door.get("/v1/filters?limit=1");
    assert_eq!((&page["filters"][0]["name"], &page["next"]), (&json!("a/b c"), &json!("a/b c")));
    let (_, page) = door.get("/v1/filters?limit=1&after=a%2Fb%20c");
    assert_eq!((&page["filters"][0]["name"], &page["next"]), (&json!("b"), &Value::Null));
    assert_eq!(door.get("/v1/filters?prefix=z").1["filters"], json!([]));

    assert_eq!(door.delete("/v1/filters/a%2Fb%20c"), 204);
    assert_eq!(door.delete("/v1/filters/a%2Fb%20c"), 404);
    assert_eq!(door.get("/v1/filters/a%2Fb%20c").0, 404);
}

#[test]
fn keys_come_as_json_and_as_lines() {
    let door = Door::open(start());
    door.post("/v1/filters", &json!({ "name": "c", "capacity": 100_000, "error": 1e-6, "kind": "counting" }));
    let (status, added) =
        door.post("/v1/filters/c/add", &json!({ "keys": ["alice", { "base64": "/wA=" }, "alice"] }));
    assert_eq!((status, &added["keys"], &added["answers"]), (200, &json!(3), &json!([true, true, false])));
    assert_eq!(door.running.connect().ask("CF.EXISTS c \"\\xff\\x00\""), ":1\r\n");
    // What was acknowledged is seen by whoever asks for its position.
    let after = added["position"].as_str().unwrap();
    let (_, checked) = door.post("/v1/filters/c/check", &json!({ "keys": ["alice", "bob"], "after": after }));
    assert_eq!(checked["answers"], json!(["maybe", "absent"]));
    assert_eq!(
        door.post("/v1/filters/c/verify", &json!({ "keys": ["alice", "bob"] })).1["counts"],
        json!([2, 0])
    );
    // The same request again has no second effect.
    let twice = json!({ "keys": ["carol"], "session": 7, "sequence": 1 });
    assert_eq!(door.post("/v1/filters/c/add", &twice).1["added"], 1);
    assert_eq!(door.post("/v1/filters/c/add", &twice).1["added"], 1);
    assert_eq!(door.post("/v1/filters/c/verify", &json!({ "keys": ["carol"] })).1["counts"], json!([1]));
    let (_, removed) = door.post("/v1/filters/c/remove", &json!({ "keys": ["carol", "dave"] }));
    assert_eq!((&removed["removed"], &removed["answers"]), (&json!(1), &json!([true, false])));

    // Far more lines than go into one batch, with empty ones and another system's ends among them.
    let many: String = (0..50_000).map(|number| format!("key {number}\r\n\n")).collect();
    let (status, added) = door.lines("/v1/filters/c/add", many.as_bytes());
    assert_eq!((status, &added["keys"], &added["added"]), (200, &json!(50_000), &json!(50_000)), "{added}");
    let (_, checked) = door.lines("/v1/filters/c/check", b"key 0\nkey 49999\nkey 50000");
    assert_eq!((&checked["maybe"], &checked["absent"]), (&json!(2), &json!(1)));
    let (_, removed) = door.lines("/v1/filters/c/remove", b"key 0\nkey 50000\n");
    assert_eq!(removed["removed"], 1);

    // A fixed filter takes what it has room for and says how much that was.
    door.post("/v1/filters", &json!({ "name": "full", "capacity": 100, "error": 0.001, "growth": 1 }));
    let (status, refused) = door.lines("/v1/filters/full/add", many.as_bytes());
    let taken = refused["error"]["keys_taken"].as_u64().unwrap();
    assert!(status == 409 && (90..=110).contains(&taken), "{refused}");
    assert_eq!(door.post("/v1/filters/full/remove", &json!({ "keys": ["a"] })).0, 409);
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let door = Door::open(start());
    door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.01 }));
    for (path, body) in [
        ("/v1/filters", json!({ "name": "g", "capacity": 0, "error": 0.01 })),
        ("/v1/filters", json!({ "name": "g", "capacity": 10, "error": 2.0 })),
        ("/v1/filters", json!({ "name": "", "capacity": 10, "error": 0.1 })),
        ("/v1/filters", json!({ "name": "g", "capacity": 10, "error": 0.1, "colour": "red" })),
        ("/v1/filters", json!({ "name": "g", "capacity": 10, "error": 0.1, "kind": "cuckoo" })),
        ("/v1/filters", json!({ "name": "g", "capacity": 10, "error": 0.1, "buckets": 3 })),
        ("/v1/filters/f/add", json!({ "keys": "a" })),
        ("/v1/filters/f/add", json!([["a"], null, null])),
        ("/v1/filters/f/add", json!({ "keys": [{ "base64": "YQ==", "hex": "61" }] })),
        ("/v1/filters/f/merge", json!({ "from": ["nothing"] })),
        ("/v1/tokens", json!({ "scope": "read", "filters": "a\nb" })),
        ("/v1/filters/f/add", json!({ "keys": [{ "base64": "*" }] })),
        ("/v1/filters/f/add", json!({ "keys": ["a"], "session": 1 })),
        ("/v1/filters/f/check", json!({ "keys": ["a"], "after": "yesterday" })),
        ("/v1/tokens", json!({ "scope": "everything" })),
    ] {
        let (status, fault) = door.post(path, &body);
        assert_eq!(status, 400, "{path} {body}: {fault}");
        assert!(fault["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{fault}");
    }
    assert_eq!(door.get("/v1/filters?limit=0").0, 400);
    assert_eq!(door.get("/v1/elsewhere").0, 404);
    let (status, head, _) = door.ask("PUT", "/v1/filters", &[], b"");
    assert!(status == 405 && head.to_lowercase().contains("allow: "), "{head}");
    // More than one request may bring.
    let (status, _, fault) = door.ask("POST", "/v1/filters/f/add", &["content-length: 17000000"], b"");
    assert_eq!(status, 413, "{fault}");
}

#[test]
fn tokens_and_users_have_their_rights_and_no_more() {
    let door = Door::open(start_with(common::new_folder(), |config| {
        config.password = Some(umbel_server::digest::Digest::of(b"secret"));
    }));
    let filter = json!({ "name": "urls", "capacity": 1000, "error": 0.01 });
    assert_eq!(door.post("/v1/filters", &filter).0, 401);
    // "default:wrong", "default:secret"
    assert_eq!(door.post_as("/v1/filters", &filter, &["authorization: Basic ZGVmYXVsdDp3cm9uZw=="]).0, 401);
    let root = "authorization: Basic ZGVmYXVsdDpzZWNyZXQ=";
    assert_eq!(door.post_as("/v1/filters", &filter, &[root]).0, 201);
    let token = |body: Value| {
        let (status, made) = door.post_as("/v1/tokens", &body, &[root]);
        assert_eq!(status, 201, "{made}");
        (
            format!("authorization: Bearer {}", made["token"].as_str().unwrap()),
            made["id"].as_str().unwrap().to_owned(),
        )
    };
    let keys = json!({ "keys": ["a"] });
    let (reader, id) = token(json!({ "scope": "read", "filters": "url*" }));
    let (writer, _) = token(json!({ "scope": "write", "filters": "other*" }));
    let (gone, _) = token(json!({ "scope": "admin", "expires_in_seconds": 0 }));
    assert_eq!(door.post_as("/v1/filters/urls/check", &keys, &[&reader]).0, 200);
    assert_eq!(door.post_as("/v1/filters/urls/add", &keys, &[&reader]).0, 403);
    assert_eq!(door.post_as("/v1/tokens", &json!({ "scope": "admin" }), &[&writer]).0, 403);
    assert_eq!(door.post_as("/v1/filters/urls/add", &keys, &[&writer]).0, 403, "another filter");
    assert_eq!(door.post_as("/v1/filters/other/add", &keys, &[&writer]).0, 404, "it may, but there is none");
    assert_eq!(door.post_as("/v1/filters/urls/check", &keys, &[&gone]).0, 401);
    let forged = format!("{}0", &reader[..reader.len() - 1]);
    if forged != reader {
        assert_eq!(door.post_as("/v1/filters/urls/check", &keys, &[&forged]).0, 401);
    }
    assert_eq!(door.ask("DELETE", &format!("/v1/tokens/{id}"), &[root], b"").0, 204);
    assert_eq!(door.post_as("/v1/filters/urls/check", &keys, &[&reader]).0, 401, "it was revoked");
}

#[test]
fn limited_token_makes_no_unlimited_one() {
    let door = Door::open(start_with(common::new_folder(), |config| {
        config.password = Some(umbel_server::digest::Digest::of(b"secret"));
    }));
    // "default:secret"
    let root = "authorization: Basic ZGVmYXVsdDpzZWNyZXQ=";
    let make = |body: &Value, by: &str| door.post_as("/v1/tokens", body, &[by]);
    let bearer = |made: &Value| format!("authorization: Bearer {}", made["token"].as_str().unwrap());
    let (_, unlimited) = make(&json!({ "scope": "admin" }), root);
    let (_, made) =
        make(&json!({ "scope": "admin", "filters": "public:*", "expires_in_seconds": 3600 }), root);
    let limited = bearer(&made);

    for filters in ["*", "**", "public*", "private", "*public:*", "?ublic:*"] {
        for scope in ["admin", "write", "read"] {
            let (status, fault) = make(&json!({ "scope": scope, "filters": filters }), &limited);
            assert_eq!(
                (status, &fault["error"]["code"]),
                (403, &json!("forbidden")),
                "{scope} {filters}: {fault}"
            );
        }
    }
    assert_eq!(make(&json!({ "scope": "admin" }), &limited).0, 403, "all filters, if none are named");
    let longer = json!({ "scope": "read", "filters": "public:a", "expires_in_seconds": 7200 });
    let (status, fault) = make(&longer, &limited);
    assert!(status == 403 && fault.to_string().contains("7200"), "{fault}");

    let (status, mine) = make(&json!({ "scope": "admin", "filters": "public:news:*" }), &limited);
    assert_eq!(status, 201, "{mine}");
    assert_eq!(mine["expires_ms"], made["expires_ms"], "it ends with the one that made it");
    let listed = |by: &str| -> Vec<Value> {
        let (_, _, body) = door.ask("GET", "/v1/tokens", &[by], b"");
        let list: Value = serde_json::from_str(&body).unwrap();
        let mut ids: Vec<_> =
            list["tokens"].as_array().unwrap().iter().map(|token| token["id"].clone()).collect();
        ids.sort_by_key(Value::to_string);
        ids
    };
    let ids = |all: &[&Value]| {
        let mut ids: Vec<_> = all.iter().map(|token| token["id"].clone()).collect();
        ids.sort_by_key(Value::to_string);
        ids
    };
    assert_eq!(listed(root), ids(&[&unlimited, &made, &mine]));
    assert_eq!(listed(&limited), ids(&[&made, &mine]));
    assert_eq!(listed(&bearer(&mine)), ids(&[&mine]));
    let revoke = |token: &Value, by: &str| {
        door.ask("DELETE", &format!("/v1/tokens/{}", token["id"].as_str().unwrap()), &[by], b"").0
    };
    assert_eq!(revoke(&unlimited, &limited), 403);
    assert_eq!(revoke(&made, &bearer(&mine)), 403);
    assert_eq!(listed(root).len(), 3);
    assert_eq!((revoke(&mine, &limited), revoke(&mine, &limited)), (204, 404));
}

/// The same over RESP: no user gets what its maker does not hold, and no user is changed or seen that holds more.
#[test]
fn limited_users_stay_limited() {
    let server = start_with(common::new_folder(), |config| {
        config.password = Some(umbel_server::digest::Digest::of(b"secret"));
    });
    let login = |name: &str, password: &str| {
        let mut client = server.connect();
        assert_eq!(client.ask(&format!("AUTH {name} {password}")), "+OK\r\n");
        client
    };
    let mut root = login("default", "secret");
    for (name, rules) in
        [("alice", "~public:* +@all"), ("bob", "~* -@all +@admin +@connection"), ("carol", "~* +@all")]
    {
        assert_eq!(root.ask(&format!("ACL SETUSER {name} on >pw {rules}")), "+OK\r\n");
    }
    for name in ["alice", "bob"] {
        let mut client = login(name, "pw");
        for command in [
            "ACL SETUSER eve on >pw ~* +@all",
            "ACL SETUSER eve on >pw ~* +@read",
            "ACL SETUSER carol >mine",
            "ACL SETUSER carol off",
            "ACL SETUSER default nopass",
            "ACL DELUSER carol",
            "ACL GETUSER carol",
            "ACL DRYRUN carol GET x",
            "CONFIG SET requirepass \"\"",
            "CONFIG SET slowlog-max-len 5 password mine",
        ] {
            let reply = client.ask(command);
            let expected = if command.contains("DRYRUN") { "-" } else { "-NOPERM" };
            assert!(reply.starts_with(expected), "{name}: {command}: {reply}");
        }
        // Their own rights they may have again, change and see.
        let own = client.ask(&format!("ACL GETUSER {name}"));
        assert!(own.starts_with('*') || own.starts_with('%'), "{own}");
        let (users, list) = (client.ask("ACL USERS"), client.ask("ACL LIST"));
        for said in [&users, &list] {
            assert!(
                said.contains(name) && !said.contains("carol") && !said.contains("default"),
                "{name}: {said}"
            );
        }
    }
    let mut alice = login("alice", "pw");
    assert_eq!(alice.ask("ACL SETUSER dave on >pw ~public:d* +@read"), "+OK\r\n");
    assert_eq!(alice.ask("ACL DELUSER dave"), ":1\r\n");
    for command in ["ACL LOG", "ACL SAVE"] {
        assert!(alice.ask(command).starts_with("-NOPERM"), "{command}");
    }
    assert!(root.ask("ACL USERS").contains("carol"));
    drop(login("carol", "pw"));
}

/// Names, sizes and counts of filters are shown to those who may ask for them.
#[test]
fn lists_show_what_the_caller_may_see() {
    let door = Door::open(start_with(common::new_folder(), |config| {
        config.password = Some(umbel_server::digest::Digest::of(b"secret"));
    }));
    // "default:secret"
    let root = "authorization: Basic ZGVmYXVsdDpzZWNyZXQ=";
    let mut client = door.running.connect();
    assert_eq!(client.ask("AUTH secret"), "+OK\r\n");
    client.ask("ACL SETUSER alice on >pw ~public:* +@all");
    for name in ["public:a", "public:b", "private"] {
        client.ask(&format!("BF.ADD {name} x"));
    }
    client.ask("CONFIG SET slowlog-log-slower-than 0");
    client.ask("BF.ADD private y");
    let (_, made) = door.post_as("/v1/tokens", &json!({ "scope": "read", "filters": "public:*" }), &[root]);
    let token = format!("authorization: Bearer {}", made["token"].as_str().unwrap());
    // "alice:pw"
    let alice = "authorization: Basic YWxpY2U6cHc=".to_owned();

    assert_eq!(door.fetch("/metrics", &[]).status, 401);
    assert_eq!(door.fetch("/metrics", &["authorization: Bearer umbel_x_y"]).status, 401);
    assert_eq!((door.fetch("/healthz", &[]).status, door.fetch("/readyz", &[]).status), (200, 200));
    for (who, sees_all) in [(&token, false), (&alice, false), (&root.to_owned(), true)] {
        let page = door.fetch("/metrics", &[who]);
        let text = String::from_utf8(page.body.clone()).unwrap();
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, Some("text/plain; version=0.0.4; charset=utf-8"))
        );
        assert!(text.contains("umbel_filter_items{filter=\"public:a\"} 1\n"), "{text}");
        assert!(text.contains("\numbel_connections_open 1\n"), "{text}");
        assert_eq!(text.contains("private"), sees_all, "{text}");
        let filters = String::from_utf8(door.fetch("/v1/filters", &[who]).body).unwrap();
        assert_eq!((filters.contains("public:b"), filters.contains("private")), (true, sees_all));
    }
    assert_eq!(door.fetch("/v1/slowlog", &[&alice]).status, 403, "it has keys of all filters");
    assert_eq!(door.fetch("/v1/slowlog", &[root]).status, 200);

    let mut some = door.running.connect();
    assert_eq!(some.ask("AUTH alice pw"), "+OK\r\n");
    for (command, count) in [("UMBEL.LIST", 2), ("KEYS *", 2), ("SCAN 0 COUNT 100", 2), ("SCAN 0 COUNT 1", 0)]
    {
        let (own, all) = (some.ask(command), client.ask(command));
        assert!(!own.contains("private"), "{command}: {own}");
        if count > 0 {
            assert_eq!(own.matches("public:").count(), count, "{command}: {own}");
            assert!(all.contains("private"), "{command}: {all}");
        }
    }
    for _ in 0..50 {
        assert!(some.ask("RANDOMKEY").contains("public:"));
    }
    for command in ["SLOWLOG GET", "MONITOR", "FLUSHALL", "FLUSHDB"] {
        assert!(some.ask(command).starts_with("-NOPERM"), "{command}");
    }
    assert!(client.ask("SLOWLOG GET -1").contains("private"));
    assert_eq!(client.ask("EXISTS private public:a public:b"), ":3\r\n");
    assert_eq!(client.ask("FLUSHALL"), "+OK\r\n");

    // Without a password, this machine may see everything.
    let open = Door::open(start());
    open.running.connect().ask("BF.ADD urls x");
    let page = String::from_utf8(open.fetch("/metrics", &[]).body).unwrap();
    assert!(page.contains("umbel_filter_items{filter=\"urls\"} 1\n"), "{page}");
}
