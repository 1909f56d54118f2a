//! Three deployments that are asked for each other's records: real processes, sockets and databases.

#[path = "../../../adapters/tests/common/mod.rs"]
mod common;
mod deployment;
#[cfg(feature = "redis")]
mod shared;

use std::time::{Duration, Instant};

use common::{Service, fresh, passed, service};
use deployment::{Deployment, PATIENCE};
use serde_json::{Value, json};

/// How long a lookup may take that was given a second, on a machine with much else to do.
const IN_TIME: Duration = Duration::from_secs(10);

/// Three deployments whose files name each other.
fn three() -> [Deployment; 3] {
    let mut all = ["north", "south", "west"].map(Deployment::new);
    let addresses = all.each_ref().map(|one| (one.name, one.url()));
    for one in &mut all {
        one.start(&(one.usual() + &named(&addresses, one.name)));
        one.make_filter(1_000);
        one.add(&format!("{}-1", one.name), &format!("The first of {}", one.name));
    }
    all.iter().for_each(Deployment::has_copies);
    all
}

fn named(addresses: &[(&str, String)], but: &str) -> String {
    let others = addresses.iter().filter(|(name, _)| *name != but);
    others.map(|(name, address)| format!("[domains.{name}]\naddress = \"{address}\"\n")).collect()
}

/// Why steps of a lookup came to nothing.
fn failures(told: &Value) -> String {
    told["steps"].as_array().unwrap().iter().filter_map(|step| step["failed"].as_str()).collect()
}

#[test]
fn a_record_is_found_wherever_it_is() {
    let [north, south, west] = three();
    for one in [&north, &south, &west] {
        one.comes_to("nothing", "", &[("north", "absent"), ("south", "absent"), ("west", "absent")]);
    }
    // From memory: the likeliest first, with how old it is.
    let told = south.lookup("north-1", "");
    assert_eq!(
        (&told["asked"], &told["absent"], &told["record"]),
        (&json!("south"), &json!(false), &Value::Null)
    );
    assert_eq!(told["domains"][0]["domain"], "north", "{told}");
    assert_eq!(
        (&told["domains"][0]["answer"], &told["domains"][0]["from"]),
        (&json!("maybe"), &json!("filter"))
    );
    assert!(told["domains"].as_array().unwrap().iter().all(|domain| domain["age_ms"].is_u64()), "{told}");
    // The local domain keeps others from being asked.
    assert_eq!(north.answers("north-1", ""), [("north".into(), "maybe".into())]);
    assert_eq!(south.answers("north-1", "?local=true"), [("south".into(), "absent".into())]);

    // The record, from another domain's database by way of its server; then from what was kept.
    let told = south.lookup("north-1", "?fetch=true");
    assert_eq!(told["record"]["domain"], "north", "{told}");
    assert_eq!(told["record"]["fields"][1], json!({ "column": "title", "value": "The first of north" }));
    assert_eq!(
        (&told["domains"][0]["from"], &told["steps"][0]["asked"]),
        (&json!("source"), &json!("source"))
    );
    let again = south.lookup("north-1", "?fetch=true");
    assert_eq!((&again["record"], &again["domains"][0]["from"]), (&told["record"], &json!("cache")));
    assert_eq!(again["steps"], json!([]));

    // A filter that has a key without a record is found out, here and there.
    north.post("/v1/filters/records/add", &json!({ "keys": ["false"] }));
    south.comes_to("false", "", &[("north", "maybe"), ("south", "absent"), ("west", "absent")]);
    for one in [&north, &south] {
        let told = one.lookup("false", "?fetch=true");
        assert_eq!((&told["absent"], &told["record"]), (&json!(true), &Value::Null), "{told}");
    }

    // Others hear of what is added and erased, also where it was kept that there is none.
    assert_eq!(west.lookup("new", "?fetch=true")["absent"], true);
    north.add("new", "A new one");
    west.comes_to("new", "", &[("north", "maybe"), ("south", "absent"), ("west", "absent")]);
    assert_eq!(west.lookup("new", "?fetch=true")["record"]["domain"], "north");
    north.erase("new");
    west.comes_to("new", "?fetch=true", &[("north", "absent"), ("south", "absent"), ("west", "absent")]);
    doors(&south);
}

/// The same through RESP and the command.
fn doors(south: &Deployment) {
    let told = south.resp(&["UMBEL.LOOKUP", "records", "north-1"]);
    assert!(
        told.starts_with("*8\r\n+absent\r\n:0\r\n+domains\r\n*3\r\n*8\r\n+domain\r\n$5\r\nnorth\r\n"),
        "{told}"
    );
    let told = south.resp(&["umbel.lookup", "records", "north-1", "fetch", "within", "5000"]);
    assert!(told.contains("+fields\r\n*6\r\n$6\r\nnumber\r\n$7\r\nnorth-1\r\n$5\r\ntitle\r\n"), "{told}");
    assert!(
        south.resp(&["UMBEL.LOOKUP", "records", "north-1", "LOCAL"]).starts_with("*8\r\n+absent\r\n:1\r\n")
    );
    for (words, why) in [
        (&["UMBEL.LOOKUP", "books", "a"][..], "-ERR there is no catalog books"),
        (&["UMBEL.LOOKUP", "records", "a", "SOON"], "-ERR unknown option"),
        (&["UMBEL.LOOKUP", "records", "a", "WITHIN", "0"], "-ERR WITHIN takes"),
        (&["UMBEL.HOTTEST", "records", "COUNT", "0"], "-ERR COUNT takes"),
        (&["UMBEL.HOTTEST", "books"], "-ERR there is no catalog"),
    ] {
        assert!(south.resp(words).starts_with(why), "{words:?}: {}", south.resp(words));
    }
    for (path, why) in [
        ("/v1/lookup/books/a", "there is no catalog books"),
        ("/v1/lookup/records/a?within_ms=0", "within_ms is 0"),
        ("/v1/lookup/records/a?soon=1", "soon"),
        ("/v1/lookup/records/hottest?count=9999", "count is 9999"),
    ] {
        assert!(south.get(path).unwrap_err().contains(why), "{path}: {:?}", south.get(path));
    }
    // Any key can be asked for: one that is no text, one that stands for another path, one that is too long.
    let any = |key: &Value| south.post("/v1/lookup/records", &json!({ "key": key }));
    assert_eq!(any(&json!({ "base64": "/wA=" }))["key"], json!({ "base64": "/wA=" }));
    assert_eq!(any(&json!("hottest"))["domains"].as_array().unwrap().len(), 3);

    for _ in 0..50 {
        south.lookup("west-1", "");
    }
    let hot = south.get("/v1/lookup/records/hottest?count=1").unwrap();
    assert_eq!(hot["keys"][0]["key"], "west-1", "{hot}");
    assert!(
        hot["keys"][0]["count"].as_u64().unwrap() >= 50 && hot["accesses"].as_u64().unwrap() > 50,
        "{hot}"
    );
    assert!(
        south.resp(&["UMBEL.HOTTEST", "records", "COUNT", "1"]).starts_with("*1\r\n*2\r\n$6\r\nwest-1\r\n:")
    );

    let output = south.umbel(&["lookup", "records", "north-1", "--fetch"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("north") && text.contains("The first of north"),
        "{text}"
    );
    let output = south.umbel(&["lookup", "records", "north-1", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["domains"][0]["answer"], "maybe");
    assert_eq!(south.umbel(&["lookup", "records", "nobody has it"]).status.code(), Some(1));
    let text = String::from_utf8(south.umbel(&["hottest", "records", "--count", "1"]).stdout).unwrap();
    assert!(text.contains("west-1"), "{text}");
}

#[test]
fn a_domain_that_hangs_or_dies_is_never_absent() {
    let [mut north, south, west] = three();
    north.add("old", "Long before");
    south.comes_to("old", "", &[("north", "maybe"), ("south", "absent"), ("west", "absent")]);

    // It hangs: whoever asks hears of it in time, and of the others as ever.
    north.signal("-STOP");
    let begin = Instant::now();
    let told = south.lookup("north-1", "?fetch=true");
    assert!(begin.elapsed() < IN_TIME, "{:?}", begin.elapsed());
    assert_eq!((&told["absent"], &told["record"]), (&json!(false), &Value::Null), "{told}");
    assert_eq!(
        told["domains"][0],
        json!({ "domain": "north", "answer": "unknown", "age_ms": told["domains"][0]["age_ms"], "from": "source" })
    );
    assert!(!failures(&told).is_empty(), "{told}");
    assert_eq!(south.lookup("west-1", "?fetch=true")["record"]["domain"], "west");
    // What is known of it gets too old to say that something is not there.
    south.comes_to(
        "nothing",
        "?within_ms=200",
        &[("north", "unknown"), ("south", "absent"), ("west", "absent")],
    );
    assert_eq!(south.umbel(&["lookup", "records", "nothing", "--within", "200ms"]).status.code(), Some(3));
    north.signal("-CONT");
    south.comes_to("nothing", "", &[("north", "absent"), ("south", "absent"), ("west", "absent")]);

    // It is killed, and comes back with all that was acknowledged.
    north.add("young", "Just before it was killed");
    south.comes_to("young", "", &[("north", "maybe"), ("south", "absent"), ("west", "absent")]);
    north.kill();
    let told = south.lookup("young", "?fetch=true");
    assert_eq!(
        (&told["absent"], &told["domains"][0]["answer"]),
        (&json!(false), &json!("unknown")),
        "{told}"
    );
    let settings = std::fs::read_to_string(north.folder.join("umbel.toml")).unwrap();
    north.start(&settings);
    north.add("last", "The last one");
    for one in [&south, &west] {
        one.comes_to("last", "", &[("north", "maybe"), ("south", "absent"), ("west", "absent")]);
        for key in ["old", "young"] {
            one.comes_to(key, "?fetch=true", &[("north", "maybe"), ("south", "absent"), ("west", "absent")]);
        }
    }
}

/// With settings that let a copy be as old as it likes: it is the broken connection that counts.
#[test]
fn killed_domain_is_unknown_once_its_connection_is_broken() {
    let mut all = ["north", "south"].map(Deployment::new);
    let addresses = all.each_ref().map(|one| (one.name, one.url()));
    for one in &mut all {
        let settings =
            one.usual().replace("stale_after = \"3s\"", "stale_after = \"1h\"\nabsent_for = \"1h\"");
        one.start(&(settings + &named(&addresses, one.name)));
        one.make_filter(1_000);
    }
    let [mut north, south] = all;
    south.has_copies();
    // A key that a filter has by mistake, found out and kept.
    north.post("/v1/filters/records/add", &json!({ "keys": ["false"] }));
    south.comes_to("false", "", &[("north", "maybe"), ("south", "absent")]);
    assert_eq!(south.lookup("false", "?fetch=true")["absent"], true);
    let told = south.lookup("false", "?fetch=true");
    assert!(told["absent"] == true && told["steps"] == json!([]), "it is kept: {told}");
    let output = south.umbel(&["lookup", "records", "nothing"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("absent everywhere, as of "), "{text}");

    north.kill();
    // What is answered before the end of the connection has come is as old as it says.
    south.comes_to("nothing", "?within_ms=200", &[("north", "unknown"), ("south", "absent")]);
    for _ in 0..50 {
        let answers = south.answers("nothing", "?within_ms=200");
        assert_eq!(answers, [("north".into(), "unknown".into()), ("south".into(), "absent".into())]);
        let told = south.lookup("false", "?fetch=true&within_ms=200");
        assert_eq!((&told["absent"], &told["record"]), (&json!(false), &Value::Null), "{told}");
    }
    assert_eq!(south.umbel(&["lookup", "records", "nothing", "--within", "200ms"]).status.code(), Some(3));

    let settings = std::fs::read_to_string(north.folder.join("umbel.toml")).unwrap();
    north.start(&settings);
    south.comes_to("nothing", "", &[("north", "absent"), ("south", "absent")]);
}

/// With the settings that nobody changed, by `kill -9` and by a domain that hangs.
#[test]
fn absent_is_never_older_than_stated() {
    let bound = Duration::from_secs(2);
    let mut all = ["north", "south"].map(Deployment::new);
    let addresses = all.each_ref().map(|one| (one.name, one.url()));
    for one in &mut all {
        let settings = one.usual().replace("stale_after = \"3s\"\n", "");
        one.start(&(settings + &named(&addresses, one.name)));
        one.make_filter(1_000);
    }
    let [mut north, south] = all;
    let until_unknown = || {
        let begin = Instant::now();
        loop {
            let asked_at = begin.elapsed();
            let told = south.lookup("nothing", "?within_ms=100");
            let north = told["domains"].as_array().unwrap().iter().find(|domain| domain["domain"] == "north");
            let north = north.unwrap();
            if north["answer"] == "unknown" {
                return;
            }
            // It had the domain's word not longer ago than stated, and no word came after the domain fell silent.
            assert!(asked_at <= bound, "absent {asked_at:?} after it fell silent: {told}");
            let age = Duration::from_millis(north["age_ms"].as_u64().unwrap());
            assert!(age <= bound + Duration::from_millis(1), "{told}");
        }
    };
    for _ in 0..2 {
        south.has_copies();
        north.signal("-STOP");
        until_unknown();
        north.signal("-CONT");
    }
    south.has_copies();
    north.kill();
    until_unknown();
}

#[test]
fn a_source_that_errs_is_not_known() {
    let [north, south, west] = three();
    south.comes_to("north-1", "", &[("north", "maybe"), ("south", "absent"), ("west", "absent")]);
    north.rows().execute_batch("ALTER TABLE records RENAME TO lost").unwrap();
    for one in [&south, &north] {
        let told = one.lookup("north-1", "?fetch=true");
        assert_eq!((&told["absent"], &told["record"]), (&json!(false), &Value::Null), "{told}");
        assert!(failures(&told).contains("records"), "{told}");
    }
    north.rows().execute_batch("ALTER TABLE lost RENAME TO records").unwrap();
    assert_eq!(west.lookup("north-1", "?fetch=true")["record"]["domain"], "north");
}

#[test]
fn a_domain_without_copies_is_asked_over_the_network() {
    let (mut north, mut south) = (Deployment::new("north"), Deployment::new("south"));
    north.start(&north.usual());
    north.make_filter(1_000);
    north.add("north-1", "The first of north");
    let ask = format!("[domains.north]\naddress = \"{}\"\nstrategy = \"ask\"\n", north.url());
    south.start(&(south.usual() + &ask));
    // The filter of its own is not there yet: nothing is known of it.
    assert_eq!(
        south.answers("nothing", ""),
        [("south".into(), "unknown".into()), ("north".into(), "absent".into())]
    );
    south.make_filter(50);
    let told = south.lookup("north-1", "");
    assert_eq!(told["domains"][0]["domain"], "north", "{told}");
    assert_eq!(
        (&told["domains"][0]["answer"], &told["domains"][0]["from"]),
        (&json!("maybe"), &json!("network"))
    );
    assert_eq!(south.lookup("north-1", "?fetch=true")["record"]["domain"], "north");
    north.kill();
    assert_eq!(
        south.answers("nothing", "?within_ms=300"),
        [("north".into(), "unknown".into()), ("south".into(), "absent".into())]
    );
}

#[test]
fn settings_that_cannot_be_are_refused_with_their_place() {
    let one = Deployment::new("north");
    let source = "source = { sql = \"sqlite:a.db\", table = \"records\", key = \"number\" }";
    for (settings, why) in [
        ("domain = \"north\"".to_owned(), "no table [catalogs.NAME]"),
        ("domain = \"no rth\"".to_owned(), "letters, digits"),
        ("[catalogs.records]".to_owned(), "catalogs is set, but domain is not"),
        ("domain_address = \"http://a:1\"".to_owned(), "domain_address is set, but domain is not"),
        ("domain = \"north\"\ncatalogs = 7".to_owned(), "umbel.toml:2: catalogs has to be tables"),
        ("domain = \"north\"\n[catalogs.records]\nfliter = \"a\"".to_owned(), "umbel.toml:3: \"fliter\" is nothing that catalogs.records has"),
        ("domain = \"north\"\n[catalogs.records]\nstrategy = \"strong\"".to_owned(), "it must be one of delta, push, pull, notify, ask"),
        ("domain = \"north\"\n[catalogs.records]\ndeadline = \"0\"".to_owned(), "catalogs.records.deadline is \"0\""),
        ("domain = \"north\"\n[catalogs.records]\nstrategy = \"pull\"\nstale_after = \"10s\"".to_owned(), "less than two intervals"),
        ("domain = \"north\"\n[catalogs.records]\nsource = { table = \"a\" }".to_owned(), "names neither sql nor http"),
        ("domain = \"north\"\n[catalogs.records]\nsource = { sql = \"sqlite:a\", table = \"a\" }".to_owned(), "needs table and key"),
        ("domain = \"north\"\n[catalogs.records]\nsource = { sql = \"sqlite:a\", query = \"SELECT 1\" }".to_owned(), "has :key in it"),
        ("domain = \"north\"\n[catalogs.records]\nsource = { http = \"http://a/\" }".to_owned(), "without {key}"),
        ("domain = \"north\"\n[catalogs.records]\nsource = { sql = \"oracle://a\", table = \"a\", key = \"b\" }".to_owned(), "catalogs.records.source: a database is sqlite:FILE"),
        (format!("domain = \"north\"\n[catalogs.records]\n{source}\n[domains.north]\naddress = \"http://a:1\""), "domains.north is this domain itself"),
        (format!("domain = \"north\"\n[catalogs.records]\n{source}\n[domains.south]"), "domains.south has no address"),
        (format!("domain = \"north\"\n[catalogs.records]\n{source}\n[domains.south]\naddress = \"south\""), "it must be an address such as http://"),
        (format!("domain = \"north\"\n[catalogs.records]\n{source}\n[domains.south]\naddress = \"http://a:1\"\ntoken_file = \"/no/such/file\""), "token_file /no/such/file"),
    ] {
        let output = one.serve(&settings).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{settings}\n{said}");
    }
}

/// Domains that find each other by a registry: they join while others run, vanish, come back and outlive a restart of the registry.
fn found_by(service: &Service, url: &str) {
    let mut all = ["north", "south", "west"].map(Deployment::new);
    let settings =
        |one: &Deployment| format!("domain_registry = \"{url}\"\ndomain_lease = \"2s\"\n{}", one.usual());
    for one in &mut all {
        let settings = settings(one);
        one.start(&settings);
        one.make_filter(1_000);
        one.add(&format!("{}-1", one.name), "a record");
    }
    let [north, south, west] = &mut all;
    north.comes_to("south-1", "", &[("north", "absent"), ("south", "maybe"), ("west", "absent")]);
    assert_eq!(north.lookup("west-1", "?fetch=true")["record"]["domain"], "west");
    // One that ends is still a domain, and comes back elsewhere than it was.
    south.end();
    north.comes_to(
        "nothing",
        "?within_ms=300",
        &[("north", "absent"), ("south", "unknown"), ("west", "absent")],
    );
    south.http_port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let again = settings(south);
    south.start(&again);
    north.comes_to("south-1", "?fetch=true", &[("north", "absent"), ("south", "maybe"), ("west", "absent")]);
    let domains = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_umbel"));
        command.args(["domains", "--domain-registry", url]).args(more).output().unwrap()
    };
    // A registry that was started again may still be reading its data, and hears of each domain a moment later.
    let listed = |expected: &[&str]| {
        let end = Instant::now() + PATIENCE;
        loop {
            let output = domains(&[]);
            let listed = String::from_utf8(output.stdout).unwrap();
            if output.status.success() && expected.iter().all(|word| listed.contains(word)) {
                return;
            }
            assert!(Instant::now() < end, "{listed}{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // Without the registry all goes on with those that are known.
    service.kill();
    west.add("west-2", "while the registry was away");
    north.comes_to("west-2", "", &[("north", "absent"), ("south", "absent"), ("west", "maybe")]);
    service.start();
    listed(&[]);
    west.end();
    let again = settings(west);
    west.start(&again);
    north.comes_to("west-2", "?fetch=true", &[("north", "absent"), ("south", "absent"), ("west", "maybe")]);
    // A domain that is gone for good is forgotten, and lookups leave it out; one that runs is not.
    listed(&[&south.url(), &west.url()]);
    assert!(!domains(&["--forget", "south"]).status.success());
    south.end();
    listed(&["nobody runs it", &west.url()]);
    assert!(domains(&["--forget", "south"]).status.success());
    north.comes_to("nothing", "", &[("north", "absent"), ("west", "absent")]);
    passed(service, "domains", "join, end, move, registry restarted", "3 domains, every lookup true");
}

#[test]
#[ignore = "needs cargo xtask services"]
fn etcd_tells_domains_of_each_other() {
    let Some(service) = service("etcd") else { return };
    found_by(&service, &format!("etcd://{}/{}", service.address(), fresh("domains")));
}

#[test]
#[ignore = "needs cargo xtask services"]
fn zookeeper_tells_domains_of_each_other() {
    let Some(service) = service("zookeeper") else { return };
    found_by(&service, &format!("zookeeper://{}/{}", service.address(), fresh("domains")));
}

#[test]
#[ignore = "needs cargo xtask services"]
fn redis_tells_domains_of_each_other() {
    let Some(service) = service("redis") else { return };
    found_by(&service, &format!("redis://{}/{}", service.address(), fresh("domains")));
}
