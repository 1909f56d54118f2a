//! Redis: names of keys and members of sets.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::Connection;
use umbel_load::engines::{Names, open_redis};
use umbel_load::{Batch, Bookmark, Error, Source};

use crate::common::{read, read_part, said, texts};
use crate::services::{Service, passed, service};

/// A database that nothing else uses.
const DATABASE: u32 = 9;

fn named(set: &str, pattern: &str) -> Names {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Names { set: text(set), pattern: text(pattern) }
}

fn keys(beginning: &str, count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("{beginning}{number}")).collect()
}

fn write(connection: &mut Connection, command: &str, keys: &BTreeSet<String>, rest: &[&str]) {
    let keys: Vec<_> = keys.iter().collect();
    for keys in keys.chunks(1000) {
        let mut pipe = redis::pipe();
        for key in keys {
            match command {
                "SET" => pipe.cmd("SET").arg(key).arg("1").ignore(),
                "DEL" => pipe.cmd("DEL").arg(key).ignore(),
                _ => pipe.cmd(command).arg(rest).arg(key).ignore(),
            };
        }
        pipe.query::<()>(connection).unwrap();
    }
}

/// What is read, of which some may come twice.
fn found(source: &dyn Source, is_resumed: bool) -> BTreeSet<String> {
    let (found, nulls, parts) = read(source, 4, is_resumed).unwrap();
    assert_eq!((nulls, parts), (0, 1));
    found.into_iter().collect()
}

fn names_and_members(address: &str, connection: &mut Connection) {
    let (urls, others) = (keys("url:", 30_000), keys("other:", 5_000));
    write(connection, "SET", &urls, &[]);
    write(connection, "SET", &others, &[]);
    let all: BTreeSet<_> = urls.union(&others).cloned().collect();
    let open = |set: &str, pattern: &str| open_redis(address, named(set, pattern)).unwrap();
    assert_eq!(open("", "").parts(1).unwrap()[0].rows, Some(35_000));
    assert_eq!(open("", "url:*").parts(1).unwrap()[0].rows, None);
    for is_resumed in [false, true] {
        assert!(found(&*open("", ""), is_resumed) == all, "all names");
        assert!(found(&*open("", "url:*"), is_resumed) == urls, "names that fit");
        assert!(found(&*open("", "nothing:*"), is_resumed).is_empty());
    }
    let (members, few) = (keys("é\n", 25_000), keys("", 12));
    write(connection, "SADD", &members, &["seen"]);
    write(connection, "SADD", &few, &["few"]);
    for is_resumed in [false, true] {
        assert!(found(&*open("seen", ""), is_resumed) == members, "members");
        assert!(found(&*open("seen", "*77"), is_resumed).len() == 250, "members that fit");
        assert_eq!(found(&*open("few", ""), is_resumed), few);
    }
    assert_eq!(open("seen", "").parts(9).unwrap()[0].rows, Some(25_000));
    redis::cmd("SADD").arg("bytes").arg(b"\xff\x00").query::<()>(connection).unwrap();
    let (source, mut batch) = (open("bytes", ""), Batch::default());
    source.open(&source.parts(1).unwrap()[0], None).unwrap().next(&mut batch).unwrap();
    assert_eq!(batch.keys().collect::<Vec<_>>(), [b"\xff\x00"]);
}

/// What is there all the while is seen, however the table of keys changes meanwhile.
fn keys_that_come_and_go(address: &str, connection: &mut Connection) {
    let (stay, go) = (keys("stay:", 20_000), keys("go:", 20_000));
    write(connection, "SET", &stay, &[]);
    write(connection, "SET", &go, &[]);
    let source = open_redis(address, named("", "[sgc]*:*")).unwrap();
    let part = &source.parts(1).unwrap()[0];
    let (mut batch, mut seen, mut step) = (Batch::default(), BTreeSet::new(), 0);
    let mut cursor = source.open(part, None).unwrap();
    while let Some(after) = cursor.next(&mut batch).unwrap() {
        seen.extend(texts(&batch));
        batch.clear();
        match step {
            0 => write(connection, "SET", &keys("come:", 100_000), &[]),
            1 => write(connection, "DEL", &go, &[]),
            2 => write(connection, "DEL", &keys("come:", 100_000), &[]),
            _ => {}
        }
        step += 1;
        cursor = source.open(part, Some(&after)).unwrap();
    }
    assert!(step > 3 && seen.is_superset(&stay), "{step} steps, {} keys", seen.len());
}

fn what_cannot_be_read(address: &str) {
    let open = |set: &str| open_redis(address, named(set, ""));
    assert!(said(open("nothing")).contains("no set \"nothing\""));
    assert!(said(open("url:1")).contains("but a string"));
    assert!(said(open_redis(&format!("{address}x"), named("", ""))).contains("\"9x\""));
    assert!(said(open_redis(&format!("{address}?partitions=2"), named("", ""))).contains("partitions"));
    let two = address.replacen("://", "://127.0.0.1:1,", 1);
    assert!(said(open_redis(&two, named("seen", ""))).contains("one server"));
    let away = open_redis("redis://127.0.0.1:1", named("", ""));
    assert!(matches!(away, Err(Error::Retry(_))));
    let source = open("seen").unwrap();
    let part = &source.parts(1).unwrap()[0];
    let bookmark = |text: &str| Bookmark::new(text).unwrap();
    // A number of a run that is over, as after a restart.
    for bad in ["", "5", "0123456789abcdef 5", "0123456789abcdef end"] {
        let outcome = source.open(part, Some(&bookmark(bad)));
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{bad}");
    }
    let other = umbel_load::Part { bounds: "elsewhere:1".into(), ..part.clone() };
    assert!(read_part(&*source, &other, false).is_err());
}

/// Its cursors mean something else then, so nothing may be read from one of before.
fn a_server_that_is_started_anew(address: &str, service: &Service) {
    let source = open_redis(address, named("", "url:*")).unwrap();
    let (part, mut batch) = (&source.parts(1).unwrap()[0], Batch::default());
    let mut cursor = source.open(part, None).unwrap();
    let after = cursor.next(&mut batch).unwrap().unwrap();
    assert!(source.open(part, Some(&after)).is_ok());
    service.kill();
    batch.clear();
    assert!(matches!(cursor.next(&mut batch), Err(Error::Retry(_))));
    service.start();
    connect(address);
    assert!(matches!(source.open(part, Some(&after)), Err(Error::Corrupt(_))));
}

/// A connection to a server that has read its data.
fn connect(address: &str) -> Connection {
    let end = Instant::now() + Duration::from_secs(30);
    let mut connection = redis::Client::open(address).unwrap().get_connection().unwrap();
    while let Err(error) = redis::cmd("DBSIZE").query::<u64>(&mut connection) {
        assert!(Instant::now() < end, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    connection
}

#[test]
#[ignore = "needs real servers; cargo xtask services start"]
fn redis() {
    let Some(service) = service("redis") else { return };
    let address = format!("redis://{}/{DATABASE}", service.address());
    let mut connection = connect(&address);
    redis::cmd("FLUSHDB").query::<()>(&mut connection).unwrap();
    names_and_members(&address, &mut connection);
    keys_that_come_and_go(&address, &mut connection);
    what_cannot_be_read(&address);
    a_server_that_is_started_anew(&address, &service);
    redis::cmd("FLUSHDB").query::<()>(&mut connect(&address)).unwrap();
    passed(
        &service,
        "keys",
        "names and members are read",
        "patterns, sets of any size; keys that come and go meanwhile; a restart is noticed",
    );
}
