//! Names at several nodes: what one node has acknowledged, every other node knows at once.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A client of each of three nodes.
fn clients(nodes: [&Running; 3]) -> [Client; 3] {
    nodes.map(Running::connect)
}

/// Two of them, another pair in each cycle.
fn pair(clients: &mut [Client; 3], cycle: usize) -> [&mut Client; 2] {
    let (one, other) = (cycle % 3, (cycle + 1 + cycle / 3 % 2) % 3);
    clients.get_disjoint_mut([one, other]).expect("two of them")
}

fn is_one(value: &Value) -> bool {
    *value == Value::Integer(1)
}

/// Does something that has to succeed.
fn done<W: AsRef<[u8]>>(client: &mut Client, words: &[W]) -> Value {
    let value = insist(client, words);
    assert!(value.error().is_none(), "{value:?}");
    value
}

/// How many of these cycles are wrong, and what the first wrong ones said.
fn wrong_in(cycles: usize, mut cycle: impl FnMut(usize) -> Result<(), String>) -> (usize, Vec<String>) {
    let wrong: Vec<String> = (0..cycles).filter_map(|number| cycle(number).err()).collect();
    (wrong.len(), wrong.into_iter().take(3).collect())
}

fn expect(what: &str, value: &Value, is_right: bool) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(format!("{what}: {value:?}")) }
}

#[test]
fn a_name_that_one_node_dropped_is_free_at_another() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut clients = clients([&a, &b, &c]);
    let wrong = wrong_in(500, |cycle| {
        let [one, other] = pair(&mut clients, cycle);
        let name = format!("reserved-{cycle}");
        done(one, &["BF.RESERVE", &name, "0.01", "100"]);
        // It knows the filter that is dropped.
        done(other, &["BF.EXISTS", &name, "x"]);
        done(one, &["DEL", &name]);
        let reserved = other.call(&["BF.RESERVE", &name, "0.01", "100"]);
        done(other, &["DEL", &name]);
        expect("BF.RESERVE", &reserved, reserved == Value::Simple("OK".into()))
    });
    assert_eq!(wrong.0, 0, "of 500 cycles: {:?}", wrong.1);
    let wrong = wrong_in(150, |cycle| {
        let [one, other] = pair(&mut clients, cycle);
        let name = format!("added-{cycle}");
        done(one, &["BF.ADD", &name, "x"]);
        done(other, &["BF.EXISTS", &name, "x"]);
        done(one, &["DEL", &name]);
        let added = other.call(&["BF.ADD", &name, "y"]);
        let there = done(one, &["BF.EXISTS", &name, "y"]);
        done(other, &["DEL", &name]);
        expect("BF.ADD", &added, is_one(&added)).and_then(|()| expect("BF.EXISTS", &there, is_one(&there)))
    });
    assert_eq!(wrong.0, 0, "of 150 cycles: {:?}", wrong.1);
    let wrong = wrong_in(100, |cycle| {
        let [one, other] = pair(&mut clients, cycle);
        let name = format!("dropped-{cycle}");
        done(one, &["CF.ADD", &name, "x"]);
        let there = other.call(&["EXISTS", &name]);
        done(one, &["DEL", &name]);
        let gone = other.call(&["EXISTS", &name]);
        expect("EXISTS", &there, is_one(&there))
            .and_then(|()| expect("EXISTS", &gone, gone == Value::Integer(0)))
    });
    assert_eq!(wrong.0, 0, "of 100 cycles: {:?}", wrong.1);
}

#[test]
fn what_one_node_renamed_or_made_is_so_at_another() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut clients = clients([&a, &b, &c]);
    let wrong = wrong_in(100, |cycle| {
        let [one, other] = pair(&mut clients, cycle);
        let (old, new) = (format!("old-{cycle}"), format!("new-{cycle}"));
        done(one, &["BF.RESERVE", &old, "0.01", "100"]);
        done(other, &["BF.ADD", &old, "x"]);
        done(one, &["RENAME", &old, &new]);
        let (gone, there) = (other.call(&["EXISTS", &old]), other.call(&["BF.EXISTS", &new, "x"]));
        done(one, &["DEL", &new]);
        expect("EXISTS of the old name", &gone, gone == Value::Integer(0))
            .and_then(|()| expect("BF.EXISTS", &there, is_one(&there)))
    });
    assert_eq!(wrong.0, 0, "of 100 cycles: {:?}", wrong.1);
    // One that takes the name of another one.
    let wrong = wrong_in(50, |cycle| {
        let [one, other] = pair(&mut clients, cycle);
        done(one, &["BF.RESERVE", "served", "0.0001", "100"]);
        done(other, &["BF.EXISTS", "served", "x"]);
        done(one, &["BF.RESERVE", "next", "0.0001", "100"]);
        done(one, &["BF.ADD", "next", "x"]);
        done(one, &["RENAME", "next", "served"]);
        let there = other.call(&["BF.EXISTS", "served", "x"]);
        done(one, &["DEL", "served"]);
        expect("BF.EXISTS", &there, is_one(&there))
    });
    assert_eq!(wrong.0, 0, "of 50 cycles: {:?}", wrong.1);
    let wrong = wrong_in(100, |cycle| {
        let [one, other] = pair(&mut clients, cycle);
        let name = format!("made-{cycle}");
        done(one, &["BF.RESERVE", &name, "0.01", "100"]);
        let size = other.value_of("DBSIZE");
        let keys = other.call(&["KEYS", &name]);
        let scanned = other.call(&["SCAN", "0", "COUNT", "1000", "MATCH", &name]);
        let listed = other.value_of("UMBEL.LIST");
        let bulk = Value::Bulk(name.clone().into());
        expect("DBSIZE", &size, size == Value::Integer(cycle as i64 + 1))?;
        expect("KEYS", &keys, keys == Value::Array(vec![bulk.clone()]))?;
        expect("SCAN", &scanned, format!("{scanned:?}").contains(&format!("{bulk:?}")))?;
        expect("UMBEL.LIST", &listed, format!("{listed:?}").contains(&format!("{bulk:?}")))
    });
    assert_eq!(wrong.0, 0, "of 100 cycles: {:?}", wrong.1);
}

#[test]
fn what_one_node_said_of_a_filter_is_so_at_another() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut clients = clients([&a, &b, &c]);
    let wrong = wrong_in(50, |cycle| {
        let [one, other] = pair(&mut clients, cycle);
        let name = &format!("f-{cycle}");
        done(one, &["BF.RESERVE", name, "0.01", "1000"]);
        done(other, &["BF.ADD", name, "old"]);
        done(one, &["PEXPIRE", name, "600000"]);
        let left = other.call(&["PTTL", name]);
        expect("PTTL", &left, matches!(left, Value::Integer(1..=600_000)))?;
        done(one, &["PERSIST", name]);
        let left = other.call(&["PTTL", name]);
        expect("PTTL", &left, left == Value::Integer(-1))?;
        done(one, &["UMBEL.RESIZE", name, "CAPACITY", "5000"]);
        let capacity = other.call(&["BF.INFO", name, "CAPACITY"]);
        expect("BF.INFO", &capacity, capacity == Value::Array(vec![Value::Integer(5000)]))?;
        // A filter that was filled again has the name, and nothing of what the other one had.
        done(one, &["UMBEL.REBUILD", "START", name, "ERROR", "0.00001"]);
        done(one, &["UMBEL.REBUILD", "FINISH", name, "FORCE"]);
        done(one, &["BF.ADD", name, "new"]);
        let new = other.call(&["BF.MEXISTS", name, "new", "old"]);
        expect("BF.MEXISTS", &new, new == Value::Array(vec![Value::Integer(1), Value::Integer(0)]))?;
        done(one, &["DEL", name]);
        Ok(())
    });
    assert_eq!(wrong.0, 0, "of 50 cycles: {:?}", wrong.1);
}

#[test]
fn a_drop_in_the_middle_of_adds_and_lookups_is_before_or_after_each_of_them() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let (is_over, mut on_a) = (AtomicBool::new(false), a.connect());
    std::thread::scope(|threads| {
        let words = [
            ["BF.ADD", "f", "x"].as_slice(),
            &["BF.MADD", "f", "x", "y"],
            &["BF.INSERT", "f", "ITEMS", "x", "z"],
            &["BF.EXISTS", "f", "x"],
            &["BF.MEXISTS", "f", "x", "y"],
            &["CF.ADD", "g", "x"],
            &["CF.EXISTS", "g", "x"],
            &["CF.DEL", "g", "x"],
            &["CF.COUNT", "g", "x"],
        ];
        let asked: Vec<_> = [&b, &c]
            .into_iter()
            .flat_map(|node| words.map(|words| (node.connect(), words)))
            .map(|(mut client, words)| {
                let is_over = &is_over;
                threads.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let value = client.call(words);
                        // A command that meets several drops may be told to try again, by the name of the filter.
                        let is_done = match value.error() {
                            None => true,
                            Some("Not found") => words[0] == "CF.DEL",
                            Some(error) => {
                                error.starts_with("TRYAGAIN the filter ")
                                    && error.ends_with("was dropped while the command ran: try it again")
                            }
                        };
                        assert!(is_done, "{words:?}: {value:?}");
                    }
                })
            })
            .collect();
        for _ in 0..200 {
            for name in ["f", "g"] {
                let dropped = on_a.call(&["DEL", name]);
                assert!(dropped.error().is_none(), "{dropped:?}");
            }
            if asked.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        asked.into_iter().for_each(|asked| asked.join().expect("right answers"));
    });
}

#[test]
fn a_node_that_answers_nobody_holds_a_change_up_until_it_is_isolated() {
    let world = World::new();
    let (a, b, mut c) = (world.start("a"), world.start("b"), world.start("c"));
    world.settle(&[&a, &b, &c]);
    let mut on_a = a.connect();
    assert_eq!(on_a.value_of("BF.RESERVE first 0.01 100"), Value::Simple("OK".into()));
    // It keeps its lease and answers nobody, until the others have agreed that it is isolated. If that takes too long, what was asked may
    // have been done, and that is what is said.
    c.end();
    let reserved = on_a.value_of("BF.RESERVE second 0.01 100");
    let is_open = |error: &str| error.starts_with("TRYAGAIN") && error.contains("may have been changed");
    assert!(reserved.error().is_none_or(is_open), "{reserved:?}");
    // Without its lease, nobody waits for it.
    c.kill();
    assert_eq!(on_a.value_of("BF.RESERVE third 0.01 100"), Value::Simple("OK".into()));
    let mut on_b = b.connect();
    for name in ["first", "second", "third"] {
        assert_eq!(done(&mut on_b, &["EXISTS", name]), Value::Integer(1), "{name}");
    }
    // And one that comes knows all of it.
    let d = world.start("d");
    let mut on_d = d.connect();
    assert_eq!(done(&mut on_d, &["DBSIZE"]), Value::Integer(3));
    assert_eq!(done(&mut on_a, &["DEL", "first"]), Value::Integer(1));
    assert_eq!(done(&mut on_d, &["EXISTS", "first"]), Value::Integer(0));
}
