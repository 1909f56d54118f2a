//! What RedisBloom cannot say, as bytes.

mod common;

use std::time::Duration;

use common::{Client, start, start_in};

/// The position in a reply of `UMBEL.ADD` or `UMBEL.EXISTS`.
fn position(reply: &str) -> String {
    reply.split("\r\n").nth(3).expect("a position").to_owned()
}

/// The bytes of a reply that is one bulk.
fn bulk(client: &mut Client, line: &str) -> Vec<u8> {
    client.write(format!("{line}\r\n").as_bytes());
    let reply = client.reply_bytes();
    let start = reply.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    assert_eq!(reply[0], b'$', "{}", String::from_utf8_lossy(&reply));
    reply[start..reply.len() - 2].to_vec()
}

#[test]
fn answers_have_positions_and_requests_are_done_once() {
    let server = start();
    let mut client = server.connect();
    assert_eq!(client.ask("UMBEL.CREATE c 1000 0.001 KIND counting"), "+OK\r\n");
    let added = client.ask("UMBEL.ADD c SESSION 7 SEQUENCE 1 ITEMS a b");
    assert!(added.ends_with("+answers\r\n*2\r\n:1\r\n:1\r\n"), "{added}");
    let again = client.ask("UMBEL.ADD c SESSION 7 SEQUENCE 1 ITEMS a b");
    assert!(again.ends_with("+answers\r\n*2\r\n:1\r\n:1\r\n"), "a retry is answered as before: {again}");
    assert_eq!(client.ask("UMBEL.VERIFY c a b x"), "*3\r\n:1\r\n:1\r\n:0\r\n", "a retry adds nothing");
    let after = position(&added);
    let reply = client.ask(&format!("UMBEL.EXISTS c AFTER {after} ITEMS a x"));
    assert!(reply.ends_with("*2\r\n+maybe\r\n+absent\r\n"), "{reply}");
    assert!(client.ask("UMBEL.EXISTS nothing ITEMS a").ends_with("*1\r\n+unknown\r\n"));
    assert!(client.ask(&format!("UMBEL.WAIT {after}")).starts_with('$'));
    assert!(client.ask("UMBEL.WAIT 0:ffffffffffffffff 20").starts_with("-TRYAGAIN"));
    let forever = client.ask("UMBEL.WAIT 0:ffffffffffffffff 18446744073709551615");
    assert_eq!(forever, "-ERR a wait takes 60000 milliseconds at most\r\n");
    assert!(client.ask("UMBEL.REMOVE c ITEMS a never").ends_with("*2\r\n:1\r\n:0\r\n"));
    assert_eq!(client.ask("UMBEL.VERIFY c a"), "*1\r\n:0\r\n");
    assert_eq!(client.ask("UMBEL.ADD c SESSION 7 ITEMS a"), "-ERR SESSION and SEQUENCE go together\r\n");
    assert!(client.ask("UMBEL.CREATE d 1000 0.001 KIND cuckoo").starts_with("-ERR kind cuckoo"));
    assert!(client.ask("UMBEL.CREATE huge 1000000000000 0.001").contains("bytes"), "more than there is");
}

#[test]
fn filters_change_their_size_and_are_united() {
    let server = start();
    let mut client = server.connect();
    for filter in ["a", "b"] {
        client.ask(&format!("BF.RESERVE {filter} 0.01 100"));
    }
    client.ask("BF.MADD a 1 2 3");
    client.ask("BF.MADD b 3 4");
    assert_eq!(client.ask("UMBEL.MERGE a b"), ":1\r\n");
    assert_eq!(client.ask("BF.MEXISTS a 1 2 3 4"), "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    assert_eq!(client.ask("UMBEL.RESIZE a CAPACITY 5000 ERROR 0.0001"), "+OK\r\n");
    assert_eq!(client.ask("BF.MEXISTS a 1 2 3 4"), "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    assert_eq!(client.ask("BF.INFO a CAPACITY"), "*1\r\n:5000\r\n");
    assert!(client.ask("UMBEL.RESIZE a CAPACITY 2").starts_with("-ERR the filter holds 4 items"));
    assert!(client.ask("UMBEL.STATS a").contains("+generation\r\n:1\r\n"));
    assert!(client.ask("UMBEL.RESIZE a CAPACITY 9000 FIT").starts_with("-ERR CAPACITY and FIT"));
    for _ in 0..2 {
        assert_eq!(client.ask("UMBEL.RESIZE a FIT"), "+OK\r\n");
        assert!(client.ask("BF.INFO a CAPACITY").contains(":1000\r\n"));
    }
    assert_eq!(client.ask("BF.MEXISTS a 1 2 3 4"), "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    assert_eq!(client.ask("UMBEL.CLEAR a"), "+OK\r\n");
    assert_eq!(client.ask("BF.EXISTS a 1"), ":0\r\n");
}

#[test]
fn filters_go_to_files_and_come_back() {
    let server = start();
    let mut client = server.connect();
    client.ask("BF.MADD a 1 2 3");
    for format in ["native", "guava"] {
        let file = bulk(&mut client, &format!("UMBEL.EXPORT a FORMAT {format}"));
        let name = format!("from-{format}");
        let words: [&[u8]; 6] =
            [b"UMBEL.IMPORT", name.as_bytes(), b"FORMAT", format.as_bytes(), b"DATA", &file];
        assert_eq!(client.send(&words), "+OK\r\n");
        assert_eq!(client.ask(&format!("BF.MEXISTS {name} 1 2 3 4")), "*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n");
        assert_eq!(client.ask(&format!("BF.ADD {name} 4")), ":1\r\n");
    }
    let mut dump = bulk(&mut client, "DUMP a");
    assert_eq!(client.send(&[b"RESTORE", b"a", b"0", &dump]), "-BUSYKEY Target key name already exists.\r\n");
    assert_eq!(client.send(&[b"RESTORE", b"r", b"100000", &dump]), "+OK\r\n");
    assert_eq!(client.ask("BF.MEXISTS r 1 2 3 4"), "*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n");
    assert_eq!(client.ask("TTL r"), ":100\r\n");
    client.ask("BF.ADD r 4");
    let words: [&[u8]; 5] = [b"RESTORE", b"r", b"0", &dump, b"REPLACE"];
    assert_eq!(client.send(&words), "+OK\r\n");
    assert_eq!(client.ask("BF.MEXISTS r 1 2 3 4"), "*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n");
    assert_eq!((client.ask("TTL r"), client.ask("DBSIZE")), (":-1\r\n".into(), ":4\r\n".into()));
    dump[20] ^= 1;
    let damaged = client.send(&[b"RESTORE", b"x", b"0", &dump]);
    assert_eq!(damaged, "-ERR DUMP payload version or checksum are wrong\r\n");
    assert_eq!(client.ask("EXISTS x"), ":0\r\n");
}

#[test]
fn names_and_times_survive_a_restart() {
    let mut server = start_in(common::new_folder());
    let mut client = server.connect();
    client.ask("BF.ADD a 1");
    client.ask("BF.ADD b 2");
    assert_eq!(client.ask("RENAMENX a b"), ":0\r\n");
    assert_eq!(client.ask("RENAME a b"), "+OK\r\n");
    assert_eq!(client.ask("EXISTS a b"), ":1\r\n");
    assert_eq!(client.ask("EXPIRE b 1000"), ":1\r\n");
    assert_eq!(client.ask("EXPIRE b 10 GT"), ":0\r\n");
    client.ask("BF.ADD short 1");
    assert_eq!(client.ask("PEXPIRE short 30"), ":1\r\n");
    assert_eq!(client.ask("RENAME nothing x"), "-ERR no such key\r\n");
    client.ask("UMBEL.CREATE w 1000 0.01 WINDOW 1h BUCKETS 6");
    assert_eq!(client.ask("BF.MADD w 1 2 1"), "*3\r\n:1\r\n:1\r\n:0\r\n");
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(client.ask("EXISTS short"), ":0\r\n");
    drop(client);
    let folder = server.stop();
    server = start_in(folder);
    let mut client = server.connect();
    assert_eq!(client.ask("BF.MEXISTS b 1 2"), "*2\r\n:1\r\n:0\r\n", "the one that was renamed");
    assert_eq!(client.ask("BF.MEXISTS w 1 2 3"), "*3\r\n:1\r\n:1\r\n:0\r\n");
    assert_eq!(client.ask("KEYS *"), "*2\r\n$1\r\nb\r\n$1\r\nw\r\n", "buckets are nobody's business");
    assert!(client.ask("TTL b").starts_with(":99") || client.ask("TTL b") == ":1000\r\n");
    assert_eq!(client.ask("PERSIST b"), ":1\r\n");
    assert_eq!(client.ask("TTL b"), ":-1\r\n");
}

/// The number behind a name in a reply of one level.
fn count(reply: &str, name: &str) -> u64 {
    let (_, rest) =
        reply.split_once(&format!("+{name}\r\n:")).unwrap_or_else(|| panic!("no {name} in {reply}"));
    rest.split("\r\n").next().expect("a line").parse().expect("a number")
}

#[test]
fn growth_is_told_with_its_reasons_and_survives_a_restart() {
    // A registry that outlives the process.
    let folder = common::new_folder();
    let server = common::start_with_registry(folder.clone());
    let mut client = server.connect();
    assert_eq!(client.ask("UMBEL.CREATE links 1000 0.01 EXPANSION 1.5 GROWAT 50"), "+OK\r\n");
    let told = client.ask("UMBEL.GROWTH links");
    assert!(told.contains("+at_percent\r\n:50\r\n") && told.contains("+factor\r\n$3\r\n1.5\r\n"), "{told}");
    assert!(told.contains("not known yet") && told.ends_with("+history\r\n*0\r\n"), "{told}");
    let items: String = (0..600).map(|number| format!(" {number}")).collect();
    client.ask(&format!("BF.MADD links{items}"));
    client.wait_until("UMBEL.STATS links", |stats| {
        stats.contains("+generation\r\n:1\r\n") && stats.contains("+growing\r\n:0\r\n")
    });
    assert_eq!(client.ask("UMBEL.RESIZE links CAPACITY 4000"), "+OK\r\n");
    let told = client.ask("UMBEL.GROWTH links");
    assert_eq!(count(&told, "capacity"), 4000);
    let [first, second] = told.split("+why\r\n").skip(1).collect::<Vec<_>>().try_into().expect("two steps");
    assert!(first.starts_with("$3\r\ndue\r\n"), "{first}");
    assert_eq!((count(first, "from_capacity"), count(first, "generation")), (1000, 1));
    assert!(count(first, "to_capacity") >= 1500 && (500..=600).contains(&count(first, "items")), "{first}");
    assert!(count(first, "took_ms") < 600_000, "it is over");
    assert!(second.starts_with("$5\r\nasked\r\n"), "{second}");
    assert_eq!((count(second, "to_capacity"), count(second, "items")), (4000, 600));

    // Otherwise, from here on; what cannot be is refused, and changes nothing.
    assert_eq!(client.ask("UMBEL.RESIZE links EXPANSION none GROWAT default"), "+OK\r\n");
    let told = client.ask("UMBEL.GROWTH links");
    assert!(told.contains("+at_percent\r\n:80\r\n") && told.contains("+factor\r\n$1\r\n1\r\n"), "{told}");
    for bad in ["EXPANSION 0.5", "EXPANSION much", "GROWAT 0", "GROWAT 101", "GROWAT"] {
        assert!(client.ask(&format!("UMBEL.RESIZE links {bad}")).starts_with("-ERR"), "{bad}");
    }
    assert!(client.ask("UMBEL.CREATE bad 1000 0.01 GROWAT 101").starts_with("-ERR growat 101"));
    drop(client);

    let server = common::start_with_registry(server.stop());
    let mut client = server.connect();
    let again = client.ask("UMBEL.GROWTH links");
    assert_eq!(again.split("+why\r\n").nth(1), told.split("+why\r\n").nth(1), "the history is the same");
    assert_eq!(again.matches("+why\r\n").count(), 2);
    assert!(again.contains("+at_percent\r\n:80\r\n") && again.contains("+factor\r\n$1\r\n1\r\n"), "{again}");
}

#[test]
fn a_rebuild_stands_in_the_history_of_the_filter_whose_place_it_took() {
    let server = start();
    let mut client = server.connect();
    client.ask("BF.RESERVE links 0.01 1000");
    client.ask("UMBEL.RESIZE links CAPACITY 2000");
    client.ask("UMBEL.GROWTH links");
    assert!(client.ask("UMBEL.REBUILD START links CAPACITY 3000").contains("filling"));
    client.ask("UMBEL.REBUILD ADD links ITEMS a b c");
    assert_eq!(client.ask("UMBEL.REBUILD FINISH links"), "+OK\r\n");
    let told = client.ask("UMBEL.GROWTH links");
    let steps: Vec<&str> = told.split("+why\r\n").skip(1).collect();
    assert!(steps[0].starts_with("$5\r\nasked\r\n") && steps[1].starts_with("$7\r\nrebuilt\r\n"), "{told}");
    assert_eq!((count(steps[1], "from_capacity"), count(steps[1], "to_capacity")), (2000, 3000));
}
