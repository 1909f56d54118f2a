//! Lookups that end with the record, compared with sets; sources that are down, slow or wrong; real SQLite and real HTTP.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Exact, record};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use umbel_domains::source::{Relation, SqlRecords, Wanted, WebRecords};
use umbel_domains::{Answer, Catalog, Domain, Error, Origin, Record, Source, Value};

const SECOND: Duration = Duration::from_secs(1);

fn domain(name: &str) -> Domain {
    Domain::new(name).unwrap()
}

/// A domain with records, and with keys that its filter mistakes for theirs.
fn with(name: &str, records: &[&str], mistaken: &[&str]) -> (Domain, Exact) {
    let (held, source) = (Exact::of(&[records, mistaken].concat()), Exact::of(records));
    (domain(name).held(held.arc()).source(source.arc()), source)
}

fn words(fetched: &umbel_domains::Fetched) -> Vec<(&str, &'static str)> {
    fetched.standings.iter().map(|standing| (&*standing.domain, standing.answer.word())).collect()
}

#[derive(Clone, Debug)]
struct Made {
    records: Vec<bool>,
    mistaken: Vec<bool>,
    is_down: bool,
    is_slow: bool,
    has_source: bool,
}

fn made() -> impl Strategy<Value = Made> {
    let keys = || prop::collection::vec(prop::bool::weighted(0.3), 8);
    (keys(), keys(), prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.8))
        .prop_map(|(records, mistaken, is_down, is_slow, has_source)| Made {
            records,
            mistaken,
            is_down,
            is_slow,
            has_source,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_fetch_finds_what_can_be_reached_and_never_denies_what_cannot(all in prop::collection::vec(made(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let name = |number: usize| format!("key {number}");
        let make = |number: usize| {
            let made = &all[number];
            let of = |which: &[bool]| -> Vec<String> {
                which.iter().enumerate().filter(|(_, is_there)| **is_there).map(|(key, _)| name(key)).collect()
            };
            let (records, mistaken) = (of(&made.records), of(&made.mistaken));
            let texts = |keys: &[String]| -> Vec<&'static str> { keys.iter().map(|key| &*key.clone().leak()).collect() };
            let (domain, source) = with(&number.to_string(), &texts(&records), &texts(&mistaken));
            source.set(|state| {
                state.is_down = made.is_down;
                state.delay = if made.is_slow { 60 * SECOND } else { SECOND / 100 };
            });
            if made.has_source { domain } else { Domain::new(&number.to_string()).unwrap().held(Exact::of(&texts(&[records, mistaken].concat())).arc()) }
        };
        let catalog = Catalog::new(make(0));
        (1..all.len()).for_each(|number| catalog.join(make(number)).unwrap());
        for key in 0..8 {
            let (fetched, took) = runtime.block_on(async {
                let before = tokio::time::Instant::now();
                (catalog.fetch(name(key), SECOND).await, before.elapsed())
            });
            prop_assert!(took < SECOND * 11 / 10, "{:?}", took);
            let can_tell = |made: &Made| made.has_source && !made.is_down && !made.is_slow;
            let has = |made: &Made| made.records[key] && can_tell(made);
            match &fetched.record {
                Some((domain, found)) => {
                    prop_assert!(has(&all[domain.parse::<usize>().unwrap()]));
                    prop_assert_eq!(&**found, &record(name(key).as_bytes()));
                    prop_assert!(!has(&all[0]) || &**domain == "0", "the local domain has it, and another one was asked");
                }
                None => prop_assert!(!all.iter().any(has)),
            }
            for standing in &fetched.standings {
                let made = &all[standing.domain.parse::<usize>().unwrap()];
                if standing.answer == Answer::Absent {
                    prop_assert!(!made.records[key], "{:?} has the record", standing.domain);
                }
                let may_have = made.records[key] || made.mistaken[key];
                if fetched.record.is_none() && made.has_source {
                    let expected = if may_have && !can_tell(made) { Answer::Unknown } else { Answer::Absent };
                    prop_assert_eq!(standing.answer, expected);
                }
            }
            if fetched.is_absent() {
                prop_assert!(!all.iter().any(|made| made.records[key]));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_false_positive_of_the_local_domain_leads_to_the_others() {
    let (local, _) = with("here", &["mine"], &["theirs", "nobodys"]);
    let (other, source) = with("there", &["theirs"], &["nobodys"]);
    let catalog = Catalog::new(local);
    catalog.join(other).unwrap();
    let mine = catalog.fetch("mine", SECOND).await;
    assert_eq!((words(&mine), &*mine.record.as_ref().unwrap().0), (vec![("here", "maybe")], "here"));
    let theirs = catalog.fetch("theirs", SECOND).await;
    assert_eq!(words(&theirs), [("there", "maybe"), ("here", "absent")]);
    assert!(theirs.standings.iter().all(|standing| standing.origin == Origin::Source));
    assert_eq!(&*theirs.record.unwrap().0, "there");
    assert!(catalog.fetch("nobodys", SECOND).await.is_absent());
    source.set(|state| state.is_down = true);
    let unknown = catalog.fetch("theirs", SECOND).await;
    assert_eq!(words(&unknown), [("there", "unknown"), ("here", "absent")]);
    assert!(!unknown.is_absent() && unknown.record.is_none());
    let failed: Vec<_> =
        unknown.steps.iter().filter_map(|step| step.failed.as_ref().map(Error::to_string)).collect();
    assert_eq!(failed, ["it is down"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_local_source_leaves_time_for_the_others() {
    let (local, slow) = with("here", &["a"], &[]);
    let (other, _) = with("there", &["a"], &[]);
    slow.set(|state| state.delay = 100 * SECOND);
    let catalog = Catalog::new(local);
    catalog.join(other).unwrap();
    let before = tokio::time::Instant::now();
    let fetched = catalog.fetch("a", SECOND).await;
    assert!(before.elapsed() < SECOND);
    assert_eq!(
        (words(&fetched), &*fetched.record.as_ref().unwrap().0),
        (vec![("there", "maybe"), ("here", "unknown")], "there")
    );
}

#[tokio::test(start_paused = true)]
async fn who_had_what_it_might_have_had_comes_first() {
    let catalog = Catalog::new(with("here", &[], &[]).0);
    catalog.join(with("a-mistaken", &[], &["x", "y"]).0).unwrap();
    catalog.join(with("b-right", &["x"], &["y"]).0).unwrap();
    assert_eq!(&*catalog.look("y")[0].domain, "a-mistaken");
    for _ in 0..3 {
        catalog.fetch("x", SECOND).await;
    }
    assert_eq!(&*catalog.look("y")[0].domain, "b-right");
}

#[tokio::test]
async fn records_come_from_sqlite() {
    let path = std::env::temp_dir().join(format!("umbel-domains-fetch-{}.db", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE records (number TEXT PRIMARY KEY, title TEXT)").unwrap();
    for number in 0..100 {
        connection
            .execute("INSERT INTO records VALUES (?1, ?2)", (format!("n{number}"), format!("title {number}")))
            .unwrap();
    }
    let wanted = Wanted::Row {
        table: Relation::table("records"),
        key: "number".into(),
        columns: vec!["title".into()],
    };
    let address = format!("sqlite:{}", path.display());
    assert!(SqlRecords::new(&address, wanted.clone(), 0).is_err());
    let source = Arc::new(SqlRecords::new(&address, wanted, 4).unwrap());
    let asked = (0..200).map(|number| {
        let source = Arc::clone(&source);
        tokio::spawn(async move { source.fetch(format!("n{number}").as_bytes()).await })
    });
    for (number, fetched) in asked.collect::<Vec<_>>().into_iter().enumerate() {
        match fetched.await.unwrap().unwrap() {
            Some(Record::Row(fields)) => assert_eq!(fields[0].value, Value::Text(format!("title {number}"))),
            other => assert!(other.is_none() && number >= 100),
        }
    }
    // A table that is gone is an error, and never "no such record".
    connection.execute_batch("DROP TABLE records").unwrap();
    assert!(source.fetch(b"n1").await.is_err());
    drop(source);
    let _ = std::fs::remove_file(path);
}

/// A server that answers by what stands in the path.
async fn web() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(0) | Err(_) => return,
                        Ok(more) => head.extend_from_slice(&buffer[..more]),
                    }
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
                let (status, body) = match line.split(' ').nth(1).unwrap_or_default() {
                    "/records/a%2Fb%20c" => ("200 OK", "the record"),
                    "/records/gone" => ("410 Gone", ""),
                    "/records/broken" => ("500 Internal Server Error", ""),
                    "/records/moved" => ("302 Found", ""),
                    "/records/forbidden" => ("403 Forbidden", ""),
                    "/records/hangs" => return tokio::time::sleep(Duration::from_secs(60)).await,
                    _ => ("404 Not Found", ""),
                };
                let length = body.len();
                let reply = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(reply.as_bytes()).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn records_come_over_http() {
    let (address, asked) = web().await;
    let source = WebRecords::new(&format!("http://{address}/records/{{key}}"), None, None).unwrap();
    let body = Record::Body { kind: Some("text/plain".into()), bytes: "the record".into() };
    assert_eq!(source.fetch(b"a/b c").await.unwrap(), Some(body));
    assert_eq!(source.fetch(b"nothing").await.unwrap(), None);
    assert_eq!(source.fetch(b"gone").await.unwrap(), None);
    for bad in ["broken", "moved", "forbidden"] {
        assert!(source.fetch(bad.as_bytes()).await.is_err(), "{bad}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 6);
    assert!(source.fetch(b"..").await.is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 6);
    let keys = ["a/b c", "nothing", "broken", "hangs"];
    let catalog = Catalog::new(domain("here").held(Exact::of(&[]).arc()));
    catalog.join(domain("web").held(Exact::of(&keys).arc()).source(Arc::new(source))).unwrap();
    let nobody = WebRecords::new("http://127.0.0.1:9/{key}", None, None).unwrap();
    catalog.join(domain("down").held(Exact::of(&["nothing"]).arc()).source(Arc::new(nobody))).unwrap();
    assert_eq!(&*catalog.fetch("a/b c", 5 * SECOND).await.record.unwrap().0, "web");
    assert_eq!(
        words(&catalog.fetch("nothing", 5 * SECOND).await),
        [("down", "unknown"), ("here", "absent"), ("web", "absent")]
    );
    assert_eq!(words(&catalog.fetch("broken", 5 * SECOND).await)[0], ("web", "unknown"));
    let before = tokio::time::Instant::now();
    assert_eq!(words(&catalog.fetch("hangs", SECOND / 2).await)[0], ("web", "unknown"));
    assert!(before.elapsed() < 2 * SECOND);
}
