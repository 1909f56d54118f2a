//! Single faults, measured: what each must not do to the answers, and how long doors take until they work. The times are printed; a test
//! fails when a door does not come back while the fault lasts, however slow the machine is.

use std::time::Duration;

use crate::doors::{Asks, ask_all_doors};
use crate::faults::{Way, cut_follower, isolate, take_engines};
use crate::flood::flood;
use crate::history::{History, Summary};
use crate::nodes::{LEASE, Node, Nodes};
use crate::{all_know, cluster, engines, finish, hosts_agree};

/// How long nodes stay cut from each other, and a node from its engines.
const CUT: Duration = Duration::from_secs(15);
/// How long a door may take to answer once it can know that it has to refuse. An endless wait lasts as long as the cut.
const ANSWERED: Duration = Duration::from_secs(5);

/// All works again: the history is right, and every node knows every key.
fn mended(all: &mut Nodes, open: &[(String, Duration)], history: &History) -> Summary {
    all.network.heal();
    all.settle();
    finish(all, open, history);
    let summary = history.check();
    all_know(all, &history.last(), history);
    hosts_agree(all, history);
    summary
}

/// Prints how each door did.
fn print_doors(what: &str, all: &Nodes, asks: &Asks, grace: Duration) {
    for door in 0..all.nodes.len() {
        for (name, is_add) in [("adds", true), ("lookups", false)] {
            println!("{what}: node{}, {name}: {}", door + 1, asks.door(door, is_add, grace));
        }
    }
}

#[test]
#[ignore = "needs root, nft and engines: cargo xtask schedules"]
fn node_that_slept_acknowledges_only_what_others_know() {
    const TRIALS: usize = 8;
    const DELAY: Duration = Duration::from_millis(25);
    let start = History::new();
    let (mut all, _) = cluster(&start);
    let (mut acknowledged, mut wrong_keys, mut wrong_trials, mut wrong_for) = (0, 0, 0, Duration::ZERO);
    let mut first_wrong = None;
    for trial in 0..TRIALS {
        let history = History::new();
        let node = Node(trial % all.nodes.len());
        all.nodes[node.0].delay_registry(DELAY);
        let sleep = Duration::from_millis(500 + 300 * (trial as u64 % 4));
        let flooded = flood(&mut all, node, &format!("seen:slept:{trial}"), sleep, &history);
        all.nodes[node.0].delay_registry(Duration::ZERO);
        let summary = mended(&mut all, &flooded.open, &history);
        println!(
            "{}, {node:?} slept {:.1} s: acknowledged {}, answered absent by another node {} of them; {summary}",
            engines(),
            (LEASE + sleep).as_secs_f64(),
            flooded.acknowledged,
            summary.wrong_keys
        );
        acknowledged += flooded.acknowledged;
        wrong_keys += summary.wrong_keys;
        wrong_trials += usize::from(summary.wrong > 0);
        wrong_for = wrong_for.max(summary.wrong_for);
        first_wrong = first_wrong.or(summary.first_wrong);
    }
    println!(
        "{}, a node that sleeps with full sockets, its registry {} ms away: acknowledged {acknowledged}, answered absent by another node \
         {wrong_keys} of them, up to {} ms after the acknowledgement, in {wrong_trials} of {TRIALS} trials",
        engines(),
        DELAY.as_millis(),
        wrong_for.as_millis()
    );
    assert!(acknowledged > 0, "nothing was acknowledged: nothing was tested");
    assert_eq!(wrong_keys, 0, "{}", first_wrong.unwrap_or_default());
}

/// What is cut, and which doors reach no other node then.
type Cut = (&'static str, fn(&mut Nodes), &'static [usize]);

const CUTS: [Cut; 5] = [
    ("node3 from both others", |all| isolate(all, Node(2), Way::Both), &[2]),
    ("node3 unheard by both others", |all| isolate(all, Node(2), Way::Out), &[2]),
    ("node3 deaf to both others", |all| isolate(all, Node(2), Way::In), &[2]),
    ("node1 and node3 from each other", |all| pair(all, true), &[]),
    ("node1 unheard by node3", |all| pair(all, false), &[]),
];

fn pair(all: &mut Nodes, both_ways: bool) {
    let (one, other) = (all.nodes[0].number, all.nodes[2].number);
    all.network.wall(one, other);
    if both_ways {
        all.network.wall(other, one);
    }
}

#[test]
#[ignore = "needs root, nft and engines: cargo xtask schedules"]
fn doors_that_reach_a_majority_work_while_nodes_are_cut_from_each_other() {
    let start = History::new();
    let (mut all, _) = cluster(&start);
    let (mut wrong, mut failures) = (0, Vec::new());
    for (number, (what, cut, alone)) in CUTS.into_iter().enumerate() {
        let history = History::new();
        let asks = ask_all_doors(&mut all, &format!("seen:cut:{number}"), &history, CUT, cut, |all| {
            all.network.heal();
        });
        print_doors(what, &all, &asks, 2 * LEASE);
        for door in 0..all.nodes.len() {
            for is_add in [true, false] {
                let figures = asks.door(door, is_add, 2 * LEASE);
                let fails = match alone.contains(&door) {
                    true => figures.longest > ANSWERED,
                    false => figures.back.is_none(),
                };
                if fails {
                    let name = if is_add { "adds" } else { "lookups" };
                    failures.push(format!("{what}: node{}, {name}: {figures}", door + 1));
                }
            }
        }
        let summary = mended(&mut all, &asks.open, &history);
        println!("{what}: {summary}");
        wrong += summary.wrong;
    }
    println!(
        "{}, nodes cut from each other and not from engines, each for {} s, leases of {} s: doors that do not work {}, wrong answers {wrong}",
        engines(),
        CUT.as_secs(),
        LEASE.as_secs(),
        failures.len()
    );
    assert_eq!(wrong, 0);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "needs root, nft and engines: cargo xtask schedules"]
fn node_without_engines_answers_once_its_lease_is_over() {
    let (start, history) = (History::new(), History::new());
    let (mut all, _) = cluster(&start);
    let cut = |all: &mut Nodes| take_engines(all, Node(0));
    let asks = ask_all_doors(&mut all, "seen:engines", &history, CUT, cut, |all| all.network.heal());
    print_doors("node1 without engines", &all, &asks, LEASE);
    let longest = [true, false].map(|is_add| asks.door(0, is_add, LEASE).longest);
    let others_work = (1..all.nodes.len())
        .all(|door| [true, false].into_iter().all(|is_add| asks.door(door, is_add, LEASE).back.is_some()));
    let summary = mended(&mut all, &asks.open, &history);
    println!(
        "{}, node1 cut from its engines for {} s: after its lease's end an add waited up to {:.1} s, a lookup {:.1} s; {summary}",
        engines(),
        CUT.as_secs(),
        longest[0].as_secs_f64(),
        longest[1].as_secs_f64()
    );
    assert_eq!(summary.wrong, 0, "{}", summary.first_wrong.unwrap_or_default());
    assert!(
        longest.iter().all(|longest| *longest < ANSWERED),
        "requests at the door of node1 hang: {longest:?}"
    );
    assert!(others_work, "the doors of the other nodes do not work");
}

#[test]
#[ignore = "needs root, nft and an ensemble: cargo xtask schedules --engines zookeeper"]
fn node_whose_registry_follower_is_cut_off_answers_right() {
    const TRIALS: usize = 4;
    let start = History::new();
    let (mut all, _) = cluster(&start);
    if !all.engines.registry[0].has_followers() {
        println!("{}: its registry has no followers", engines());
        return;
    }
    let mut wrong = 0;
    for trial in 0..TRIALS {
        let history = History::new();
        let node = Node(trial % all.nodes.len());
        let mut server = None;
        let cut = |all: &mut Nodes| server = Some(cut_follower(all, node));
        let asks =
            ask_all_doors(&mut all, &format!("seen:follower:{trial}"), &history, 4 * LEASE, cut, |all| {
                all.network.heal();
            });
        let what = format!("{server:?} of {node:?} cut off");
        print_doors(&what, &all, &asks, LEASE);
        let summary = mended(&mut all, &asks.open, &history);
        println!("{what}: {summary}");
        wrong += summary.wrong;
        assert_eq!(wrong, 0, "{}", summary.first_wrong.unwrap_or_default());
    }
    println!(
        "{}, a follower of the registry's ensemble cut off, {TRIALS} times: wrong answers {wrong}",
        engines()
    );
}
