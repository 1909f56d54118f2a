//! A live server and clients that mean harm, or know no better.
//!
//! Afterwards the server answers rightly and its memory is bounded. `UMBEL_FUZZ_SEED` and `UMBEL_FUZZ_ROUNDS` repeat a run. Tests with thousands of
//! connections are ignored otherwise; `cargo xtask test` runs them.

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Chance, Client, Running, Value, encode, number_or, resident_bytes, seed, start_small};
use umbel_server::commands::table::{Row, TABLE};
use umbel_server::config::ROWS;

/// The one command that is not sent: it ends the server, which is what it is for. `DEBUG SLEEP` is sent and refused, because `DEBUG`
/// is off; it would hold up nobody but its own connection. What others do to the server, [`settle`] undoes.
const SKIPPED: [&str; 1] = ["shutdown"];

/// Waits until the server has done all that was asked of it, and undoes what keeps others out: pauses, settings, rights.
fn settle(server: &Running) {
    let node = &server.node;
    let undo = || {
        let live = ROWS.iter().filter(|row| row.live).map(|row| (row.name, row.default));
        node.config.set(&live.collect::<Vec<_>>()).expect("the defaults are allowed");
        let rules = ["reset", "on", "nopass", "~*", "&*", "+@all"];
        node.acl.set_user(None, "default", &rules).expect("rules as in the beginning");
        let config = node.config.load();
        node.slowlog.set(config.slowlog_threshold_us, config.slowlog_length as usize);
    };
    let begin = Instant::now();
    loop {
        undo();
        let mut client = server.connect();
        // Somebody may still kill it, or pause everybody again.
        let sent = client.stream.write_all(&encode(&["CLIENT", "UNPAUSE"]));
        let is_answered = sent.is_ok() && client.try_value() == Some(Value::Simple("OK".into()));
        if is_answered && node.clients.len() == 1 {
            // Nobody else is there who could change anything.
            return undo();
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{} connections do not end", node.clients.len());
        drop(client);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The server still answers, and rightly.
fn check_answers(server: &Running, chance: &mut Chance) {
    let mut client = server.connect();
    assert_eq!(client.value_of("PING"), Value::Simple("PONG".into()));
    let item = chance.next().to_string();
    let key = format!("probe {}", chance.next());
    assert_eq!(client.call(&["BF.ADD", &key, &item]).truth(), Some(true));
    assert_eq!(client.call(&["BF.EXISTS", &key, &item]).truth(), Some(true));
    assert_eq!(client.call(&["BF.EXISTS", &key, "something else"]).truth(), Some(false));
    assert_eq!(client.call(&["DEL", &key]), Value::Integer(1));
}

fn random_bytes(chance: &mut Chance, most: u64) -> Vec<u8> {
    (0..chance.below(most)).map(|_| chance.next() as u8).collect()
}

/// A word as commands have them, or as they should not.
fn word(chance: &mut Chance) -> Vec<u8> {
    const WORDS: [&str; 64] = [
        "key",
        "key",
        "key",
        "other",
        "other",
        "ITEMS",
        "CAPACITY",
        "ERROR",
        "NONSCALING",
        "EXPANSION",
        "NOCREATE",
        "BUCKETSIZE",
        "MAXITERATIONS",
        "MATCH",
        "COUNT",
        "TYPE",
        "*",
        "[a-",
        "0",
        "1",
        "-1",
        "2",
        "3",
        "100",
        "255",
        "256",
        "65535",
        "65536",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551615",
        "0.01",
        "0.5",
        "1.0",
        "1e-300",
        "1e308",
        "nan",
        "inf",
        "-inf",
        "",
        " ",
        "ON",
        "OFF",
        "SKIP",
        "ID",
        "ADDR",
        "NX",
        "XX",
        "GT",
        "LT",
        "REPLACE",
        "ABSTTL",
        "AUTH",
        "SETNAME",
        "LIB-NAME",
        "SESSION",
        "SEQUENCE",
        "POSITION",
        "FAMILY",
        "LAYOUT",
        "guava",
    ];
    match chance.below(10) {
        0 => random_bytes(chance, 40),
        1 => vec![b'x'; chance.below(3000) as usize],
        _ => chance.of(&WORDS).as_bytes().to_vec(),
    }
}

const RULES: [&str; 14] = [
    "on",
    "off",
    "nopass",
    "resetpass",
    ">secret",
    "<secret",
    "~*",
    "%R~k*",
    "resetkeys",
    "+@all",
    "-@all",
    "+bf.add",
    "-client|kill",
    "reset",
];
const KILLS: [&str; 7] = ["ID", "TYPE", "USER", "ADDR", "LADDR", "SKIPME", "MAXAGE"];

fn command_of(row: &Row, chance: &mut Chance) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = row.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
    let wanted = if chance.one_in(4) { chance.below(12) as usize } else { row.arity.unsigned_abs().into() };
    let more = if row.arity < 0 { chance.below(6) as usize } else { 0 };
    while words.len() < wanted + more {
        // These look for certain words before they look at others.
        let special: Option<&str> = match row.name {
            "config|set" if words.len().is_multiple_of(2) => Some(chance.of(ROWS).name),
            "acl|setuser" if words.len() == 2 => Some(*chance.of(&["default", "key", "other"])),
            "acl|setuser" => Some(*chance.of(&RULES)),
            "client|kill" if words.len().is_multiple_of(2) => Some(*chance.of(&KILLS)),
            _ => None,
        };
        let usual = word(chance);
        words
            .push(special.filter(|_| !chance.one_in(4)).map_or(usual, |special| special.as_bytes().to_vec()));
    }
    words
}

fn any_command(chance: &mut Chance) -> Vec<Vec<u8>> {
    loop {
        let row = chance.of(TABLE);
        if !SKIPPED.contains(&row.name) {
            return command_of(row, chance);
        }
    }
}

/// Something that a client should not send, or in no such way.
fn attack(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = Vec::new();
    match chance.below(8) {
        0 => bytes = random_bytes(chance, 5000),
        1 => {
            // A valid command with a few bytes changed.
            bytes = encode(&any_command(chance));
            for _ in 0..=chance.below(4) {
                let at = chance.below(bytes.len() as u64) as usize;
                match chance.below(3) {
                    0 => bytes[at] = chance.next() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, chance.next() as u8),
                }
                if bytes.is_empty() {
                    break;
                }
            }
        }
        2 => {
            let count = *chance.of(&[
                "1000000000",
                "1048577",
                "1048576",
                "-1",
                "0",
                "-0",
                "+1",
                "99999999999999999999",
                "1e3",
                "",
                "9223372036854775807",
            ]);
            let tag = *chance.of(&["*", "*1\r\n$", "*2\r\n$3\r\nfoo\r\n$", "$", "%", "~", ">", "="]);
            bytes.extend_from_slice(format!("{tag}{count}\r\n").as_bytes());
            bytes.extend(random_bytes(chance, 100));
        }
        3 => {
            // Half a command; the connection ends after it.
            bytes = encode(&any_command(chance));
            bytes.truncate(chance.below(bytes.len() as u64) as usize);
        }
        4 => {
            // Nesting: nothing nests, so the second level is an error already.
            let depth = chance.below(100_000);
            bytes.extend((0..depth).flat_map(|_| *b"*1\r\n"));
        }
        5 => {
            let tail = random_bytes(chance, 300);
            for _ in 0..chance.below(50) {
                bytes.extend(encode(&any_command(chance)));
            }
            bytes.extend(tail);
            bytes.extend(encode(&["PING"]));
        }
        6 => {
            // Inline commands, with quotes that may be open.
            for _ in 0..chance.below(20) {
                let words = any_command(chance);
                let quote = *chance.of(&["", "\"", "'"]);
                let line: Vec<Vec<u8>> =
                    words.iter().map(|word| [quote.as_bytes(), word, quote.as_bytes()].concat()).collect();
                bytes.extend(line.join(&b' '));
                bytes.extend_from_slice(b"\r\n");
            }
        }
        _ => {
            for _ in 0..=chance.below(20) {
                bytes.extend(encode(&any_command(chance)));
            }
        }
    }
    bytes
}

/// Sends bytes in pieces, and reads what comes, as long as something does.
fn throw(server: &Running, bytes: &[u8], chance: &mut Chance) {
    let Ok(mut stream) = TcpStream::connect(server.address()) else { panic!("the server accepts nobody") };
    stream.set_read_timeout(Some(Duration::from_millis(5))).expect("a limit of time");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a limit of time");
    let pieces = if chance.one_in(4) { 1 + chance.below(20) as usize } else { 1 };
    for piece in bytes.chunks(bytes.len().div_ceil(pieces).max(1)) {
        if stream.write_all(piece).is_err() {
            // It was cut off: that is an answer too.
            return;
        }
    }
    match chance.below(4) {
        0 => return,
        1 => drop(stream.shutdown(Shutdown::Write)),
        _ => {}
    }
    let mut buffer = [0; 64 << 10];
    while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
}

#[test]
fn garbage_does_no_harm() {
    let rounds = number_or("UMBEL_FUZZ_ROUNDS", 3000);
    let mut chance = Chance::new(seed("UMBEL_FUZZ_SEED"));
    let server = start_small(2);
    check_answers(&server, &mut chance);
    let before = resident_bytes();
    let mut sent = 0;
    for round in 0..rounds {
        let bytes = attack(&mut chance);
        sent += bytes.len();
        throw(&server, &bytes, &mut chance);
        if round % 25 == 24 {
            settle(&server);
            check_answers(&server, &mut chance);
        }
    }
    settle(&server);
    check_answers(&server, &mut chance);
    let grown = resident_bytes().saturating_sub(before);
    println!("rounds {rounds}, {sent} bytes sent, memory grew by {} KiB", grown >> 10);
    // The engine may hold 256 MiB of filters; everything else has to be small.
    assert!(grown < 384 << 20, "{grown} bytes more than before");
}

#[test]
fn every_command_takes_anything() {
    let rounds = number_or("UMBEL_FUZZ_ROUNDS", 3000) / 100;
    let mut chance = Chance::new(seed("UMBEL_FUZZ_SEED"));
    let server = start_small(1);
    let mut sent = 0;
    for row in TABLE.iter().filter(|row| !SKIPPED.contains(&row.name)) {
        for _ in 0..rounds {
            let bytes = encode(&command_of(row, &mut chance));
            sent += 1;
            throw(&server, &bytes, &mut chance);
        }
        settle(&server);
        check_answers(&server, &mut chance);
    }
    println!("{sent} commands of {} kinds", TABLE.len() - SKIPPED.len());
}

/// What once broke RedisBloom, and what is like it.
#[test]
fn known_attacks_are_refused() {
    let server = start_small(1);
    let mut chance = Chance::new(1);
    let mut client = server.connect();
    client.value_of("BF.MADD bloom a b c");
    client.value_of("CF.INSERT cuckoo ITEMS a b c");
    let refused = [
        "CF.RESERVE new 1000 BUCKETSIZE 0",
        "CF.RESERVE new 1000 BUCKETSIZE 256",
        "CF.RESERVE new 1000 BUCKETSIZE 9223372036854775807",
        "CF.RESERVE new 1000 MAXITERATIONS 0",
        "CF.RESERVE new 1000 MAXITERATIONS 65536",
        "CF.RESERVE new 1000 EXPANSION -1",
        "CF.RESERVE new 1000 EXPANSION 32769",
        "CF.RESERVE new 1000 EXPANSION 18446744073709551615",
        "CF.RESERVE new 9223372036854775807",
        "CF.RESERVE new 9223372036854775808",
        "CF.RESERVE new 18446744073709551615",
        "CF.RESERVE new -1",
        "CF.RESERVE new 4611686018427387904 BUCKETSIZE 255",
        "CF.INSERT new CAPACITY 9223372036854775807 ITEMS a",
        "CF.INSERT new CAPACITY -5 ITEMS a",
        "BF.RESERVE new 0.01 9223372036854775807",
        "BF.RESERVE new 0.01 9223372036854775808",
        "BF.RESERVE new 0.01 18446744073709551615",
        "BF.RESERVE new 1e-300 100000000000",
        "BF.RESERVE new 0.0 1000",
        "BF.RESERVE new -0.1 1000",
        "BF.RESERVE new nan 1000",
        "BF.RESERVE new 0.01 1000 EXPANSION 9223372036854775807",
        "BF.INSERT new CAPACITY 9223372036854775807 ITEMS a",
        "BF.INSERT new ERROR 1e-300 CAPACITY 9223372036854775807 ITEMS a",
        "BF.SCANDUMP bloom -1",
        "CF.SCANDUMP cuckoo -1",
        "BF.LOADCHUNK bloom 0 x",
        "BF.LOADCHUNK new 1 x",
        "BF.LOADCHUNK new 9223372036854775807 x",
        "BF.LOADCHUNK new -9223372036854775808 x",
        "CF.LOADCHUNK cuckoo 0 x",
        "CF.LOADCHUNK cuckoo 9223372036854775807 x",
        "CF.LOADCHUNK cuckoo -9223372036854775808 x",
        "CF.LOADCHUNK cuckoo 100000 x",
        "CF.LOADCHUNK new 1 x",
        "CF.LOADCHUNK new 1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "CF.LOADCHUNK new 2 x",
        "RESTORE new 0 x",
        "RESTORE new -1 x",
    ];
    for line in refused {
        let reply = client.value_of(line);
        assert!(reply.error().is_some(), "{line}: {reply:?}");
        assert_eq!(client.value_of("EXISTS new"), Value::Integer(0), "{line} left something behind");
        check_answers(&server, &mut chance);
    }
    let all = client.value_of("BF.MEXISTS bloom a b c");
    assert!(matches!(&all, Value::Array(all) if all.iter().all(|one| one.truth() == Some(true))), "{all:?}");
    assert_eq!(client.value_of("CF.EXISTS cuckoo b").truth(), Some(true));
}

/// What a browser sends when a page on another website says `fetch(url, {method: "POST", body})`.
#[test]
fn web_page_runs_no_commands() {
    let server = start_small(1);
    let mut client = server.connect();
    client.value_of("BF.ADD victim x");
    let curl = "POST / HTTP/1.1\r\nHost: umbel\r\nContent-Length: 30\r\n\r\n";
    let firefox = "POST / HTTP/1.1\r\nHost: localhost:6380\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
        Accept: */*\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nContent-Type: text/plain;charset=UTF-8\r\n\
        Content-Length: 30\r\nOrigin: http://example.org\r\nConnection: keep-alive\r\nSec-Fetch-Mode: no-cors\r\n\r\n";
    let body = "BF.ADD fromweb x\r\nDEL victim\r\n";
    // Some proxies change the request line and leave the head.
    for head in [curl, firefox, "PATCH / HTTP/1.1\r\n\r\n", "Host: umbel\r\n"] {
        let mut page = server.connect();
        page.stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut said = String::new();
        // The server may close before it has read everything.
        let _ = page.stream.read_to_string(&mut said);
        assert_eq!(said.lines().count(), 1, "{head}: {said}");
        assert!(said.starts_with("-ERR Protocol error: this is an HTTP request"), "{head}: {said}");
        assert_eq!(client.value_of("EXISTS victim fromweb"), Value::Integer(1), "{head}");
    }
    assert!(client.ask("GET victim").contains("unknown command"), "a command of Redis stays a command");
}

/// Chunks of filters, changed a little and put back: refused or taken, but never more than that.
#[test]
fn crafted_chunks_do_no_harm() {
    let mut chance = Chance::new(seed("UMBEL_FUZZ_SEED"));
    let server = start_small(1);
    let mut client = server.connect();
    client.value_of("BF.RESERVE bloom 0.01 1000");
    client.value_of("BF.MADD bloom a b c");
    client.value_of("CF.INSERT cuckoo ITEMS a b c");
    let mut tried = 0;
    for (family, key) in [("BF", "bloom"), ("CF", "cuckoo")] {
        let mut chunks = Vec::new();
        let mut iterator = 0;
        while let Value::Array(pair) = client.value_of(&format!("{family}.SCANDUMP {key} {iterator}")) {
            let (Value::Integer(next), Value::Bulk(data)) = (&pair[0], &pair[1]) else { break };
            if *next == 0 {
                break;
            }
            iterator = *next;
            chunks.push((iterator, data.clone()));
        }
        if chunks.is_empty() {
            println!("{family}.SCANDUMP gives nothing yet");
        }
        for _ in 0..if chunks.is_empty() { 0 } else { 300 } {
            tried += 1;
            client.value_of("DEL crafted");
            for (iterator, data) in &chunks {
                let mut data = data.clone();
                let mut iterator = *iterator;
                for _ in 0..chance.below(6) {
                    match chance.below(4) {
                        0 if !data.is_empty() => {
                            let at = chance.below(data.len() as u64) as usize;
                            let any = chance.next() as u8;
                            data[at] = *chance.of(&[0, 1, 0x7f, 0x80, 0xff, any]);
                        }
                        1 => data.truncate(chance.below(data.len() as u64 + 1) as usize),
                        2 => data.extend(random_bytes(&mut chance, 20)),
                        _ => {
                            iterator = *chance.of(&[
                                0,
                                1,
                                2,
                                -1,
                                i64::MIN,
                                i64::MAX,
                                iterator,
                                iterator.wrapping_add(1),
                            ]);
                        }
                    }
                }
                let iterator = iterator.to_string();
                let name = format!("{family}.LOADCHUNK");
                client.call(&[name.as_bytes(), b"crafted", iterator.as_bytes(), &data]);
            }
            client.value_of(&format!("{family}.MEXISTS crafted a b c d e f"));
            client.value_of(&format!("{family}.ADD crafted g"));
            client.value_of(&format!("{family}.INFO crafted"));
        }
        check_answers(&server, &mut chance);
    }
    if let Value::Bulk(dump) = client.value_of("DUMP bloom") {
        for _ in 0..300 {
            tried += 1;
            let mut dump = dump.clone();
            let at = chance.below(dump.len() as u64) as usize;
            dump[at] ^= 1 << chance.below(8);
            let reply = client.call(&[b"RESTORE".as_slice(), b"crafted", b"0", &dump]);
            assert!(reply.error().is_some(), "a dump with a changed bit is taken: {reply:?}");
        }
    }
    println!("{tried} crafted filters");
    check_answers(&server, &mut chance);
}

#[test]
fn what_is_only_announced_takes_no_memory() {
    let server = start_small(1);
    let mut chance = Chance::new(1);
    for (bytes, error) in [
        ("*1000000000\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*2\r\n$3\r\nfoo\r\n$536870913\r\n", "ERR Protocol error: invalid bulk length"),
        ("*1\r\n$-5\r\n", "ERR Protocol error: invalid bulk length"),
        ("*1\r\n*1\r\n", "ERR Protocol error: expected '$', got '*'"),
        ("PING \"open\r\n", "ERR Protocol error: unbalanced quotes in request"),
    ] {
        let mut client = server.connect();
        client.write(bytes.as_bytes());
        assert_eq!(client.value(), Value::Error(error.into()), "{bytes:?}");
        assert_eq!(client.try_value(), None, "the connection ends after {bytes:?}");
    }
    let before = resident_bytes();
    let mut announced: Vec<Client> = (0..500).map(|_| server.connect()).collect();
    for client in &mut announced {
        client.write(b"*1048576\r\n$8\r\nBF.MADD \r\n$536870912\r\nx");
    }
    check_answers(&server, &mut chance);
    let grown = resident_bytes().saturating_sub(before);
    println!("500 connections announced 256 GiB and took {} KiB", grown >> 10);
    assert!(grown < 32 << 20, "{grown} bytes for what was only announced");
}

#[test]
fn what_says_nothing_takes_no_memory() {
    let server = start_small(1);
    let before = resident_bytes();
    for nothing in ["\n", "*0\r\n"] {
        let mut client = server.connect();
        client.write(nothing.repeat((64 << 20) / nothing.len()).as_bytes());
        client.write(b"PING\r\n");
        assert_eq!(client.value(), Value::Simple("PONG".into()), "after much of {nothing:?}");
        let grown = resident_bytes().saturating_sub(before);
        println!("64 MiB of {nothing:?} took {} KiB", grown >> 10);
        assert!(grown < 32 << 20, "{grown} bytes for {nothing:?}");
    }
}

/// Writes as much as the server takes, for a while, and reads nothing. Gives the bytes that were written.
fn push(stream: &mut TcpStream, bytes: &[u8], time: Duration) -> usize {
    stream.set_nonblocking(true).expect("a mode");
    let end = Instant::now() + time;
    let mut written = 0;
    while Instant::now() < end {
        // A write may end within a command; the next one goes on there.
        match stream.write(&bytes[written % bytes.len()..]) {
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("cut off: {error}"),
        }
    }
    written
}

fn look_ups(items: usize) -> Vec<u8> {
    let mut words = vec!["BF.MEXISTS".to_owned(), "filter".to_owned()];
    words.extend((0..items).map(|number| format!("item {number}")));
    encode(&words)
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let server = start_small(1);
    let mut chance = Chance::new(1);
    server.connect().value_of("BF.ADD filter x");
    let before = resident_bytes();
    let mut client = server.connect();
    let written = push(&mut client.stream, &look_ups(1000), Duration::from_secs(3));
    let grown = resident_bytes().saturating_sub(before);
    println!("{written} bytes were taken from one who does not read, memory grew by {} KiB", grown >> 10);
    assert!(grown < 32 << 20, "{grown} bytes for one who does not read");
    check_answers(&server, &mut chance);
}

/// Replies that no client reads have one budget; connections beyond it are closed, and the others are served.
#[test]
fn unread_replies_share_one_budget() {
    const LIMIT: u64 = 64 << 20;
    let server = start_small(2);
    let node = &server.node;
    node.config.set(&[("all_output_bytes_max", "64MiB")]).unwrap();
    let mut client = server.connect();
    assert_eq!(client.ask("UMBEL.CREATE large 20000000 0.01 LAYOUT guava FAMILY murmur3"), "+OK\r\n");
    assert_eq!(client.ask("BF.ADD large x"), ":1\r\n");
    // Files for Guava are as long as the array.
    let export = ["UMBEL.EXPORT", "large", "FORMAT", "guava"];
    let mut silent: Vec<_> = (0..8).map(|_| server.connect()).collect();
    silent.iter_mut().for_each(|client| client.write(&encode(&export)));
    let begin = Instant::now();
    // Two of them fit.
    while node.clients.overrun.load(Ordering::Relaxed) < 6 {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} bytes are unread", node.clients.unread());
        assert_eq!(client.ask("BF.EXISTS large x"), ":1\r\n");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(node.clients.unread() <= LIMIT, "{} bytes are unread", node.clients.unread());
    drop(silent);
    while node.clients.len() > 1 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(node.clients.unread(), 0);
    // One that reads gets all of it.
    let whole = client.call(&export);
    assert!(matches!(&whole, Value::Bulk(bytes) if bytes.len() > 20 << 20), "a whole filter");
}

/// As many files as the system allows.
fn raise_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }).expect("more files");
    most
}

/// Where the connections of the process that holds them go.
const HELD: &str = "UMBEL_HOSTILE_ADDRESS";
const IDLE: usize = 10_000;

/// Not a test of its own: the other end of many connections, in a process that may have as many files again.
#[test]
#[ignore = "started by `ten_thousand_idle_connections`"]
fn holds_connections() {
    let Ok(address) = std::env::var(HELD) else { return };
    raise_files();
    let mut idle = Vec::with_capacity(IDLE);
    while idle.len() < IDLE {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").expect("sent");
        let mut pong = [0; 7];
        stream.read_exact(&mut pong).expect("a reply");
        assert_eq!(&pong, b"+PONG\r\n", "connection {}", idle.len());
        idle.push(stream);
    }
    println!("held");
    // They are held until the process that started this one lets go.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[ignore = "takes 10,000 connections; `cargo xtask test` runs it"]
fn ten_thousand_idle_connections() {
    assert!(raise_files() > IDLE as u64 + 100, "the system allows too few files");
    let server = start_small(2);
    let mut chance = Chance::new(1);
    check_answers(&server, &mut chance);
    std::thread::sleep(Duration::from_millis(100));
    let before = resident_bytes();
    let mut holder = Command::new(std::env::current_exe().expect("this program"))
        .args(["holds_connections", "--exact", "--ignored", "--nocapture"])
        .env(HELD, server.address().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let said = BufReader::new(holder.stdout.take().expect("its output"));
    let mut lines = said.lines().map_while(Result::ok);
    // The line begins with the test's name.
    assert!(lines.any(|line| line.ends_with("held")), "connections were refused");
    let each = resident_bytes().saturating_sub(before) / IDLE as u64;
    println!("{IDLE} idle connections, {each} bytes each");
    assert!(each < 8 << 10, "{each} bytes for each idle connection");
    // One too many is told so.
    let mut client = server.connect();
    assert_eq!(client.try_value(), Some(Value::Error("ERR max number of clients reached".into())));
    drop(holder.stdin.take());
    // It has more to say, and fails if nobody listens.
    lines.for_each(drop);
    assert!(holder.wait().expect("its end").success());
    std::thread::sleep(Duration::from_millis(500));
    check_answers(&server, &mut chance);
}

/// Connections that were busy once must not keep what they needed then.
#[test]
#[ignore = "takes much memory; `cargo xtask test` runs it"]
fn a_thousand_connections_after_large_pipelines() {
    const CONNECTIONS: usize = 1000;
    raise_files();
    let server = start_small(2);
    let mut chance = Chance::new(1);
    server.connect().value_of("BF.ADD filter x");
    let pipeline = look_ups(1000).repeat(20);
    let before = resident_bytes();
    let mut idle = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut client = server.connect();
        client.write(&pipeline);
        for _ in 0..20 {
            assert!(matches!(client.value(), Value::Array(answers) if answers.len() == 1000));
        }
        // This side keeps a buffer too, which is not the server's.
        idle.push(client.stream);
    }
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
    println!("{CONNECTIONS} connections idle after 20,000 look-ups each, {each} bytes each");
    assert!(each < 16 << 10, "{each} bytes for each connection that was busy once");
    check_answers(&server, &mut chance);
    drop(idle);
}

#[test]
#[ignore = "takes much memory; `cargo xtask test` runs it"]
fn a_thousand_connections_that_do_not_read() {
    const CONNECTIONS: usize = 1000;
    raise_files();
    let server = start_small(2);
    let mut chance = Chance::new(1);
    server.connect().value_of("BF.ADD filter x");
    let before = resident_bytes();
    let pipeline = look_ups(1000);
    let mut streams: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(server.address()).expect("a connection")).collect();
    let mut written = 0;
    for _ in 0..3 {
        for stream in &mut streams {
            stream.set_nonblocking(true).expect("a mode");
            // Whole commands or parts of them: it is the pressure that counts.
            for _ in 0..200 {
                match stream.write(&pipeline) {
                    Ok(more) => written += more,
                    Err(_) => break,
                }
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
    println!("{CONNECTIONS} connections that do not read sent {written} bytes; {each} bytes each");
    assert!(each < 768 << 10, "{each} bytes for each connection that does not read");
    check_answers(&server, &mut chance);
    drop(streams);
}
