//! The commands around the filters, as bytes.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{encode, field, new_folder, start, start_in, start_with};

#[test]
fn describes_commands() {
    let server = start();
    let mut client = server.connect();
    let add = "*10\r\n$6\r\nbf.add\r\n:3\r\n*4\r\n+write\r\n+denyoom\r\n+fast\r\n+module\r\n:1\r\n:1\r\n:1\r\n*3\r\n+@bloom\r\n+@write\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n";
    assert_eq!(client.ask("COMMAND INFO foo BF.ADD"), format!("*2\r\n$-1\r\n{add}"));
    assert!(
        client
            .ask("COMMAND INFO client|id")
            .starts_with("*1\r\n*10\r\n$9\r\nclient|id\r\n:2\r\n*3\r\n+noscript\r\n")
    );
    let count = client.ask("COMMAND COUNT").trim_start_matches(':').trim_end().to_owned();
    assert!(client.ask("COMMAND").starts_with(&format!("*{count}\r\n")));
    assert!(client.ask("COMMAND LIST").starts_with(&format!("*{count}\r\n")));
    assert_eq!(
        client.ask("COMMAND LIST FILTERBY ACLCAT transaction"),
        "*3\r\n$5\r\nmulti\r\n$4\r\nexec\r\n$7\r\ndiscard\r\n"
    );
    assert_eq!(
        client.ask("COMMAND LIST FILTERBY PATTERN module*"),
        "*2\r\n$6\r\nmodule\r\n$11\r\nmodule|list\r\n"
    );
    assert_eq!(client.ask("COMMAND LIST FILTERBY MODULE foo"), "*0\r\n");
    assert_eq!(client.ask("COMMAND LIST FILTERBY FOO x"), "-ERR syntax error\r\n");
    assert_eq!(client.ask("COMMAND GETKEYS del a b"), "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(client.ask("COMMAND GETKEYS memory usage a"), "*1\r\n$1\r\na\r\n");
    assert_eq!(client.ask("COMMAND GETKEYS foo"), "-ERR Invalid command specified\r\n");
    assert_eq!(client.ask("COMMAND GETKEYS ping"), "-ERR The command has no key arguments\r\n");
    assert_eq!(
        client.ask("COMMAND GETKEYS bf.add"),
        "-ERR Invalid number of arguments specified for command\r\n"
    );
    assert_eq!(client.ask("COMMAND DOCS foo"), "*0\r\n");
    client.ask("HELLO 3");
    assert!(client.ask("COMMAND INFO module").contains("*1\r\n*10\r\n$11\r\nmodule|list\r\n:2\r\n~2\r\n"));
    assert_eq!(client.ask("COMMAND DOCS foo"), "%0\r\n");
    assert!(client.ask("COMMAND DOCS ping").starts_with("%1\r\n$4\r\nping\r\n%3\r\n$7\r\nsummary\r\n"));
}

#[test]
fn informs_by_section() {
    let server = start();
    let mut client = server.connect();
    assert_eq!(client.ask("INFO foo"), "$0\r\n\r\n");
    assert_eq!(client.ask("INFO keyspace"), "$12\r\n# Keyspace\r\n\r\n");
    client.ask("BF.ADD f a");
    assert_eq!(client.ask("INFO keyspace"), "$44\r\n# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n\r\n");
    assert!(client.ask("INFO modules").contains("# Modules\r\nmodule:name=bf,ver=80200,"));
    let two = client.ask("INFO cpu REPLICATION");
    assert!(
        two.contains("\r\n# Replication\r\nrole:master\r\n") && two.contains("\r\n\r\n# CPU\r\n"),
        "{two}"
    );
    assert!(!client.ask("INFO").contains("# Commandstats"));
    let all = client.ask("INFO everything");
    assert!(all.contains("# Commandstats") && all.contains("# Latencystats"));
    assert_eq!(field(&all, "tcp_port"), server.address().port().to_string());
    assert_eq!(field(&all, "run_id").len(), 40);
    assert_eq!(field(&all, "filters"), "1");
    assert_eq!(field(&all, "slots"), "256");
    assert_ne!(field(&all, "used_memory_rss"), "0");
    client.ask("HELLO 3");
    assert!(client.ask("INFO keyspace").starts_with("=48\r\ntxt:# Keyspace\r\n"));
}

#[test]
fn counts_filters_that_were_asked_for() {
    let server = start();
    let mut client = server.connect();
    // Adds make what is missing, so they ask for nothing.
    client.ask("BF.ADD f a");
    client.ask("BF.EXISTS f a");
    client.ask("BF.MEXISTS f a b");
    client.ask("BF.EXISTS none a");
    client.ask("EXISTS f none f");
    client.ask("BF.INFO none");
    let stats = client.ask("INFO stats");
    assert_eq!((field(&stats, "keyspace_hits"), field(&stats, "keyspace_misses")), ("4", "3"));
    client.ask("CONFIG RESETSTAT");
    assert_eq!(field(&client.ask("INFO stats"), "keyspace_hits"), "0");
}

#[test]
fn a_name_means_what_it_means_now() {
    let server = start();
    let (mut asks, mut changes) = (server.connect(), server.connect());
    let mut exists = |name: &str| asks.send(&[b"BF.EXISTS", name.as_bytes(), b"a"]);
    changes.ask("BF.ADD f a");
    assert_eq!([exists("f"), exists("f")], [":1\r\n", ":1\r\n"]);
    changes.ask("RENAME f g");
    assert_eq!([exists("f"), exists("g"), exists("g")], [":0\r\n", ":1\r\n", ":1\r\n"]);
    changes.ask("BF.RESERVE f 0.01 100");
    changes.ask("RENAME f g");
    assert_eq!(exists("g"), ":0\r\n", "another filter has taken the name");
    changes.ask("BF.ADD g a");
    assert_eq!(exists("g"), ":1\r\n");
    changes.ask("DEL g");
    assert_eq!(exists("g"), ":0\r\n");
    changes.ask("CF.ADD g a");
    assert!(exists("g").starts_with("-WRONGTYPE"));
    changes.ask("BF.ADD e a");
    assert_eq!(exists("e"), ":1\r\n");
    changes.ask("PEXPIRE e 50");
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(exists("e"), ":0\r\n", "its time is over");
    changes.ask("BF.ADD h a");
    assert_eq!(exists("h"), ":1\r\n");
    changes.ask("DEL h");
    changes.ask("BF.ADD h b");
    // Whoever is refused in between has learned nothing of names.
    assert!(asks.send(&[b"CF.EXISTS", b"h", b"a"]).starts_with("-WRONGTYPE"));
    assert_eq!(asks.send(&[b"BF.EXISTS", b"h", b"a"]), ":0\r\n");
}

#[test]
fn pipelines_answer_as_single_commands_do() {
    let server = start();
    let mut client = server.connect();
    let lines = [
        "BF.ADD f a",
        "BF.ADD f b",
        "BF.ADD f a",
        "bf.add f c",
        "BF.EXISTS f a",
        "BF.EXISTS f x",
        "BF.EXISTS f b",
        "BF.EXISTS f",
        "BF.EXISTS f c",
        "BF.EXISTS g c",
        "BF.EXISTS g a",
        "BF.MEXISTS f a x",
        "BF.MEXISTS f b c",
        "CF.EXISTS f a",
        "CF.EXISTS f b",
        "BF.EXISTS f a",
        "BF.EXISTS f b c",
        "BF.EXISTS f b",
    ];
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let single: Vec<String> = words
        .iter()
        .map(|words| client.send(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(single[..7], [":1\r\n", ":1\r\n", ":0\r\n", ":1\r\n", ":1\r\n", ":0\r\n", ":1\r\n"]);
    client.ask("DEL f");
    let bytes: Vec<u8> = words.iter().flat_map(|words| encode(words)).collect();
    // However they arrive.
    for piece in [bytes.len(), 40, 7] {
        client.ask("DEL f");
        for piece in bytes.chunks(piece) {
            client.write(piece);
            if piece.len() < 40 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let replies: Vec<String> = lines.iter().map(|_| client.reply()).collect();
        assert_eq!(replies, single);
    }
}

#[test]
fn scans_see_what_stays() {
    let server = start();
    let mut client = server.connect();
    for number in 0..30 {
        client.ask(&format!("BF.RESERVE stay:{number} 0.01 10"));
    }
    client.ask("CF.RESERVE other 10");
    let (mut cursor, mut seen, mut rounds) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let reply = client.ask(&format!("SCAN {cursor} COUNT 4"));
        let bulks: Vec<&str> =
            reply.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with(['*', '$'])).collect();
        for key in &bulks[1..] {
            assert!(seen.insert((*key).to_owned()), "{key} twice");
        }
        // Filters come and go meanwhile.
        client.ask(&format!("BF.ADD coming:{rounds} a"));
        client.ask(&format!("DEL coming:{}", rounds - 1));
        rounds += 1;
        cursor = bulks[0].to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert!(rounds >= 8);
    assert_eq!(seen.iter().filter(|key| key.starts_with("stay:")).count(), 30);
    assert_eq!(client.ask("SCAN 0 COUNT 1000 MATCH stay:2?").matches("stay:2").count(), 10);
    assert_eq!(client.ask("SCAN 0 COUNT 1000 TYPE MBbloomCF"), "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nother\r\n");
    assert_eq!(client.ask("KEYS stay:[12]"), client.ask("KEYS stay:[1-2]"));
    assert_eq!(client.ask("KEYS oth*"), "*1\r\n$5\r\nother\r\n");
    assert!(client.ask("RANDOMKEY").starts_with('$'));
    client.ask("FLUSHALL");
    assert_eq!(client.ask("RANDOMKEY"), "$-1\r\n");
    for (line, error) in [
        ("SCAN x", "invalid cursor"),
        ("SCAN 0 COUNT 0", "syntax error"),
        ("SCAN 0 COUNT x", "value is not an integer or out of range"),
        ("SCAN 0 MATCH", "syntax error"),
        ("SCAN 0 FOO", "syntax error"),
    ] {
        assert_eq!(client.ask(line), format!("-ERR {error}\r\n"));
    }
}

#[test]
fn slow_commands_are_kept() {
    let server = start();
    let mut client = server.connect();
    assert_eq!(client.ask("SLOWLOG GET"), "*0\r\n");
    server.node.slowlog.set(0, 3);
    client.ask("CLIENT SETNAME me");
    client.ask("PING");
    let log = client.ask("SLOWLOG GET -1");
    assert!(log.starts_with("*2\r\n*6\r\n:1\r\n:"), "{log}");
    assert!(
        log.contains("*1\r\n$4\r\nPING\r\n")
            && log.contains("*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$2\r\nme\r\n")
    );
    assert_eq!(client.ask("SLOWLOG LEN"), ":3\r\n");
    assert_eq!(client.ask("SLOWLOG GET 1").matches("*6\r\n").count(), 1);
    server.node.slowlog.set(-1, 3);
    assert_eq!(client.ask("SLOWLOG RESET"), "+OK\r\n");
    assert_eq!(client.ask("SLOWLOG LEN"), ":0\r\n");
    assert_eq!(client.ask("SLOWLOG GET -2"), "-ERR count should be greater than or equal to -1\r\n");
}

#[test]
fn slow_commands_do_not_show_passwords() {
    let server = start();
    let mut client = server.connect();
    server.node.slowlog.set(0, 100);
    for line in [
        "AUTH hunter2",
        "HELLO 2 AUTH default hunter2",
        "ACL SETUSER somebody >hunter2",
        "CONFIG SET requirepass hunter2",
        "AUTH default hunter2",
        "CONFIG SET requirepass \"\"",
    ] {
        client.ask(line);
    }
    let log = client.ask("SLOWLOG GET -1");
    assert!(log.contains("SETUSER") && log.contains("requirepass") == log.contains("hunter2"), "{log}");
    assert!(!log.contains("hunter2") && log.contains("(redacted)"), "{log}");
}

#[test]
fn latency_is_watched_on_demand() {
    let server = start_with(new_folder(), |config| config.enable_debug_command = true);
    let mut client = server.connect();
    assert_eq!(client.ask("LATENCY LATEST"), "*0\r\n");
    assert!(client.ask("LATENCY DOCTOR").contains("Latency monitoring is disabled"));
    assert_eq!(client.ask("CONFIG SET latency-monitor-threshold 5"), "+OK\r\n");
    assert!(client.ask("LATENCY DOCTOR").contains("no latency spike was observed"));
    client.ask("DEBUG SLEEP 0.02");
    let latest = client.ask("LATENCY LATEST");
    assert!(latest.starts_with("*1\r\n*4\r\n$7\r\ncommand\r\n:"), "{latest}");
    assert!(client.ask("LATENCY HISTORY command").starts_with("*1\r\n*2\r\n:"));
    assert_eq!(client.ask("LATENCY HISTORY foo"), "*0\r\n");
    assert!(client.ask("LATENCY DOCTOR").contains("1. command: 1 latency spikes"));
    assert_eq!(client.ask("LATENCY RESET foo"), ":0\r\n");
    assert_eq!(client.ask("LATENCY RESET"), ":1\r\n");
    assert_eq!(client.ask("LATENCY HISTOGRAM foo"), "*0\r\n");
}

#[test]
fn debug_is_not_for_everybody() {
    let server = start();
    let mut client = server.connect();
    for line in ["DEBUG SLEEP 0", "DEBUG FOO", "DEBUG HELP"] {
        assert!(client.ask(line).starts_with(
            "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", "
        ));
    }
    drop(server);
    let server = start_with(new_folder(), |config| config.enable_debug_command = true);
    let mut client = server.connect();
    assert_eq!(client.ask("DEBUG SLEEP 0"), "+OK\r\n");
    client.ask("BF.ADD f a");
    client.ask("SAVE");
    assert_eq!(client.ask("DEBUG RELOAD"), "+OK\r\n");
    assert_eq!(client.ask("BF.EXISTS f a"), ":1\r\n");
    assert_eq!(client.ask("DEBUG FOO"), "-ERR unknown subcommand 'FOO'. Try DEBUG HELP.\r\n");
}

#[test]
fn memory_is_told() {
    let server = start();
    let mut client = server.connect();
    client.ask("BF.RESERVE f 0.001 1000000");
    let usage = client.ask("MEMORY USAGE f SAMPLES 0");
    let usage: u64 = usage.trim_start_matches(':').trim_end().parse().expect("a number");
    assert!(usage > 1_000_000, "{usage}");
    assert_eq!(client.ask("MEMORY USAGE g"), "$-1\r\n");
    assert_eq!(client.ask("MEMORY USAGE f SAMPLES x"), "-ERR value is not an integer or out of range\r\n");
    assert_eq!(client.ask("MEMORY USAGE f SAMPLES -1"), "-ERR syntax error\r\n");
    assert_eq!(client.ask("MEMORY USAGE f BAR 1"), "-ERR syntax error\r\n");
    assert!(client.ask("MEMORY STATS").starts_with("*36\r\n$14\r\npeak.allocated\r\n:"));
    assert!(client.ask("MEMORY DOCTOR").contains("Hi Sam, "));
    client.ask("HELLO 3");
    assert!(client.ask("MEMORY STATS").starts_with("%18\r\n$14\r\npeak.allocated\r\n:"));
}

#[test]
fn saves_and_comes_back() {
    let mut server = start();
    let mut client = server.connect();
    assert_eq!(client.ask("ROLE"), "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    assert!(client.ask("TIME").starts_with("*2\r\n$10\r\n"));
    assert!(client.ask("MODULE LIST").starts_with("*1\r\n*8\r\n$4\r\nname\r\n$2\r\nbf\r\n"));
    client.ask("BF.ADD f a");
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    assert!(client.ask("LASTSAVE").starts_with(':'));
    assert_eq!(client.ask("BGSAVE"), "+Background saving started\r\n");
    assert_eq!(client.ask("BGSAVE foo"), "-ERR syntax error\r\n");
    let begin = Instant::now();
    // It is counted a moment before the next one may begin.
    loop {
        let info = client.ask("INFO persistence");
        if field(&info, "rdb_saves") == "2" && field(&info, "rdb_bgsave_in_progress") == "0" {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "the checkpoint is not made");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.ask("SHUTDOWN FOO"), "-ERR syntax error\r\n");
    assert_eq!(client.ask("SHUTDOWN ABORT"), "-ERR No shutdown in progress.\r\n");
    client.write(b"SHUTDOWN SAVE\r\n");
    assert!(client.is_closed());
    server.join();
    let folder = server.stop();
    let server = start_in(folder);
    assert_eq!(server.connect().ask("BF.EXISTS f a"), ":1\r\n");
}
