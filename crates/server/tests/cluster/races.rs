//! Two nodes that are asked for the same thing at the same time: the order of the log decides, and one of them is told that it did it.

use std::sync::Barrier;

use super::*;

/// How long each node tries in turn, and how often.
const RACES: usize = 2_000;
const NAMES: usize = 150;

/// Lets both nodes answer the command of each round at the same time; gives the answers of each round.
fn race(
    nodes: [&Running; 2],
    rounds: usize,
    command: impl Fn(usize, usize) -> Vec<String> + Sync,
) -> Vec<[Value; 2]> {
    let barrier = Barrier::new(2);
    let ask = |node: usize| {
        let mut client = nodes[node].connect();
        let rounds = 0..rounds;
        let answers = rounds.map(|round| {
            let words = command(node, round);
            barrier.wait();
            client.call(&words)
        });
        answers.collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| ask(1));
        let first = ask(0);
        let second = second.join().expect("answers");
        first.into_iter().zip(second).map(|(first, second)| [first, second]).collect()
    })
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn knows(node: &Running, filter: &str) -> bool {
    node.node.engine.filter(filter).is_some()
}

/// Makes filters at one node, and waits until both know them.
fn make(world: &World, nodes: [&Running; 2], prefix: &str) {
    let mut client = nodes[0].connect();
    for round in 0..NAMES {
        let (filter, key) = (format!("{prefix}-{round}"), format!("key-{round}"));
        assert_eq!(insist(&mut client, &["BF.ADD", &filter, &key]), Value::Integer(1));
    }
    let last = format!("{prefix}-{}", NAMES - 1);
    world.eventually("both know the filters", || nodes.iter().all(|node| knows(node, &last)));
}

/// Waits until a name means the same filter, or none, on both nodes.
fn agreed(world: &World, nodes: [&Running; 2], names: &[String]) -> Vec<bool> {
    let id = |node: &Running, name: &String| node.node.engine.filter(name).map(|filter| filter.id());
    let told = |node: &Running| names.iter().map(|name| id(node, name)).collect::<Vec<_>>();
    world.eventually("both nodes know the same names", || told(nodes[0]) == told(nodes[1]));
    told(nodes[0]).iter().map(Option::is_some).collect()
}

fn ok(value: &Value) -> bool {
    *value == Value::Simple("OK".into())
}

#[test]
fn of_two_nodes_that_add_an_absent_key_one_adds_it() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settle(&[&a, &b]);
    let mut client = a.connect();
    for (filter, shards) in [("small", "one"), ("sharded", "all")] {
        let made = format!("UMBEL.CREATE {filter} 10000 0.0001 KIND counting SHARDS {shards}");
        assert!(ok(&insist(&mut client, &words(&made))), "{made}");
        world.eventually("both know it", || knows(&b, filter));
        for command in ["CF.ADDNX", "CF.INSERTNX"] {
            let answers = race([&a, &b], RACES, |_, round| match command {
                "CF.ADDNX" => words(&format!("CF.ADDNX {filter} {command}-{round}")),
                _ => words(&format!("CF.INSERTNX {filter} ITEMS {command}-{round} {command}-{round}")),
            });
            let (mut one, mut both, mut unsure, mut counts) = (0, 0, 0, 0);
            for (round, answers) in answers.iter().enumerate() {
                let added = answers.iter().map(|answer| match answer {
                    Value::Integer(added) => *added,
                    Value::Array(each) => {
                        assert_eq!(each[1], Value::Integer(0), "a key that is named twice is added once");
                        i64::from(each[0] == Value::Integer(1))
                    }
                    // It is not known whether it was added.
                    _ => 100,
                });
                let added: i64 = added.sum();
                let key = format!("{command}-{round}");
                let count = insist(&mut client, &["CF.COUNT", filter, &key]);
                match added {
                    1 => one += 1,
                    2 => both += 1,
                    0 => panic!("{filter}: nobody added {key}"),
                    _ => unsure += 1,
                }
                counts += i64::from(count != Value::Integer(1) && added < 100);
            }
            println!(
                "{command} {filter}: one 1: {one}, two: {both}, unsure: {unsure}; count not 1: {counts}"
            );
            assert_eq!((both, counts), (0, 0), "{command} {filter}");
            assert!(one > RACES * 9 / 10, "{one} of {RACES} were sure");
        }
    }
}

#[test]
fn of_two_nodes_that_make_a_filter_one_makes_it() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settle(&[&a, &b]);
    let capacity = |node: usize| [1_000, 5_000][node];
    let answers = race([&a, &b], NAMES, |node, round| {
        words(&format!("BF.RESERVE reserved-{round} 0.01 {}", capacity(node)))
    });
    for (round, answers) in answers.iter().enumerate() {
        let made: Vec<bool> = answers.iter().map(ok).collect();
        let name = [format!("reserved-{round}")];
        assert_eq!(agreed(&world, [&a, &b], &name), [true]);
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "{answers:?}");
        let loser = &answers[usize::from(made[0])];
        assert_eq!(loser.error(), Some("ERR item exists"), "round {round}");
        let spec = a.node.engine.filter(&name[0]).expect("it is there").definition().spec;
        assert_eq!(spec.capacity, capacity(usize::from(!made[0])), "round {round}");
    }
    // Made by adding to it: both keys are in the one that was made.
    let answers = race([&a, &b], NAMES, |node, round| {
        words(&format!("BF.INSERT inserted-{round} CAPACITY {} ITEMS key-{node}", capacity(node)))
    });
    for (round, answers) in answers.iter().enumerate() {
        let name = format!("inserted-{round}");
        assert_eq!(*answers, [(); 2].map(|()| Value::Array(vec![Value::Integer(1)])), "{name}");
        assert_eq!(agreed(&world, [&a, &b], std::slice::from_ref(&name)), [true]);
        for node in [&a, &b] {
            all_there(&mut node.connect(), &name, &keys(0, 2));
        }
    }
    // Of another kind: one is refused.
    let answers = race([&a, &b], NAMES, |node, round| {
        words(&format!("{} kinds-{round} key", ["BF.ADD", "CF.ADDNX"][node]))
    });
    for answers in &answers {
        let added = answers.iter().filter(|answer| **answer == Value::Integer(1)).count();
        let refused = answers.iter().filter_map(Value::error).filter(|why| why.contains("WRONGTYPE")).count();
        assert_eq!((added, refused), (1, 1), "{answers:?}");
    }
    // Only where it is there: it is there, or it is not.
    let answers = race([&a, &b], NAMES, |node, round| match node {
        0 => words(&format!("BF.RESERVE late-{round} 0.01 1000")),
        _ => words(&format!("BF.INSERT late-{round} NOCREATE ITEMS key-{round}")),
    });
    for (round, [made, added]) in answers.iter().enumerate() {
        assert!(ok(made), "{made:?}");
        if added.error().is_none() {
            all_there(&mut a.connect(), &format!("late-{round}"), &keys(round, round + 1));
        }
    }
}

#[test]
fn of_two_nodes_that_rename_a_filter_one_does() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settle(&[&a, &b]);
    let nodes = [&a, &b];
    // One name to two names.
    for command in ["RENAME", "RENAMENX"] {
        let from = format!("one-{command}");
        make(&world, nodes, &from);
        let answers = race(nodes, NAMES, |node, round| {
            words(&format!("{command} {from}-{round} {from}-to-{node}-{round}"))
        });
        for (round, answers) in answers.iter().enumerate() {
            let names = [0, 1].map(|node| format!("{from}-to-{node}-{round}"));
            let renamed: Vec<bool> =
                answers.iter().map(|answer| ok(answer) || *answer == Value::Integer(1)).collect();
            assert_eq!(renamed.iter().filter(|renamed| **renamed).count(), 1, "{command}: {answers:?}");
            let loser = &answers[usize::from(renamed[0])];
            assert_eq!(loser.error(), Some("ERR no such key"), "{command} {round}");
            assert_eq!(agreed(&world, nodes, &names), renamed, "{command} {round}");
            assert_eq!(agreed(&world, nodes, &[format!("{from}-{round}")]), [false]);
            all_there(&mut a.connect(), &names[usize::from(!renamed[0])], &keys(round, round + 1));
        }
    }
    // Two names to one.
    for command in ["RENAME", "RENAMENX"] {
        let (first, second) = (format!("two-{command}-0"), format!("two-{command}-1"));
        make(&world, nodes, &first);
        make(&world, nodes, &second);
        let answers = race(nodes, NAMES, |node, round| {
            words(&format!("{command} two-{command}-{node}-{round} target-{command}-{round}"))
        });
        let mut both = 0;
        for (round, answers) in answers.iter().enumerate() {
            let names = [
                format!("{first}-{round}"),
                format!("{second}-{round}"),
                format!("target-{command}-{round}"),
            ];
            let renamed: Vec<bool> =
                answers.iter().map(|answer| ok(answer) || *answer == Value::Integer(1)).collect();
            let there = agreed(&world, nodes, &names);
            assert!(there[2], "{command} {round}: {answers:?}");
            match renamed[..] {
                // One came after the other, and replaced what that one had renamed.
                [true, true] if command == "RENAME" => {
                    both += 1;
                    assert_eq!(there[..2], [false, false]);
                }
                [true, false] => assert_eq!(there[..2], [false, true], "{command} {round}: {answers:?}"),
                [false, true] => assert_eq!(there[..2], [true, false], "{command} {round}: {answers:?}"),
                _ => panic!("{command} {round}: {answers:?}"),
            }
            all_there(&mut b.connect(), &names[2], &keys(round, round + 1));
        }
        println!("{command} of two names to one: one after the other {both} times of {NAMES}");
    }
}

#[test]
fn of_two_changes_of_a_filter_at_two_nodes_none_undoes_the_other() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settle(&[&a, &b]);
    make(&world, [&a, &b], "changed");
    let answers = race([&a, &b], NAMES, |node, round| match node {
        0 => words(&format!("EXPIRE changed-{round} 1000")),
        _ => words(&format!("RENAME changed-{round} renamed-{round}")),
    });
    let mut set = 0;
    for (round, [expires, renamed]) in answers.iter().enumerate() {
        assert!(ok(renamed), "{renamed:?}");
        let names = [format!("changed-{round}"), format!("renamed-{round}")];
        assert_eq!(agreed(&world, [&a, &b], &names), [false, true], "round {round}: {expires:?}");
        let filter = a.node.engine.filter(&names[1]).expect("it is there");
        if *expires == Value::Integer(1) {
            set += 1;
            assert!(filter.definition().expires.is_some(), "round {round}: the expiry is gone");
        }
    }
    assert!(set > 0);
    // Of two that set an expiry where there is none, one does.
    make(&world, [&a, &b], "expiring");
    let answers = race([&a, &b], NAMES, |node, round| {
        words(&format!("EXPIRE expiring-{round} {} NX", [1_000, 2_000][node]))
    });
    for answers in answers {
        let set = answers.iter().filter(|answer| **answer == Value::Integer(1)).count();
        assert_eq!(set, 1, "{answers:?}");
    }
}
