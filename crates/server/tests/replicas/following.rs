//! Copies follow: no add that was acknowledged is absent for longer than the strategy promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use umbel_client::{Answer, Server, Strategy};
use umbel_core::engine::{NewFilter, Sharding};
use umbel_filter::Spec;

use crate::world::{
    Centre, Folder, PATIENCE, all_maybe, keys, mostly_absent, open, reached, strategies, until,
};

const NOBODYS: std::ops::Range<u64> = 1_000_000..1_010_000;

#[tokio::test(flavor = "multi_thread")]
async fn every_strategy_follows_adds_and_growth() {
    for strategy in strategies() {
        for sharding in [Sharding::Whole, Sharding::Everywhere] {
            // Versions and changes each once with a shard in every slot, which takes thousands of syncs.
            if sharding == Sharding::Everywhere
                && matches!(strategy, Strategy::Push | Strategy::Notify { .. })
            {
                continue;
            }
            let centre = Centre::start();
            let new = NewFilter { sharding, ..NewFilter::new("f", Spec::bloom(2_000, 0.01)) };
            centre.engine().create(new).await.unwrap();
            centre.add(0..1_000).await;
            let folder = Folder::new();
            let replica = open(centre.options(strategy).folder(folder.path())).await;
            let mut last = 1_000;
            for round in 0..20 {
                // It grows on the way, several times.
                let token = centre.add(last..last + 500).await;
                last += 500;
                if round % 5 == 0 {
                    reached(&replica, &token).await;
                    all_maybe(&replica, 0..last);
                }
            }
            let token = centre.add(last..last + 1).await;
            reached(&replica, &token).await;
            all_maybe(&replica, 0..last + 1);
            mostly_absent(&replica, NOBODYS);
            let status = replica.status();
            assert!(status.age.is_some_and(|age| age < Duration::from_secs(30)), "{status:#?}");
            assert!(!status.stale && !status.gone && status.items >= 10_000, "{status:#?}");
            replica.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_and_clearings_arrive() {
    for strategy in strategies() {
        let centre = Centre::start();
        centre.create(Spec::counting(5_000, 0.001)).await;
        centre.add(0..1_000).await;
        let replica = open(centre.options(strategy)).await;
        all_maybe(&replica, 0..1_000);
        let token = centre.remove(0..500).await;
        reached(&replica, &token).await;
        all_maybe(&replica, 500..1_000);
        mostly_absent(&replica, 0..500);
        centre.engine().clear(&centre.filter()).await.unwrap();
        let token = centre.add(2_000..2_001).await;
        reached(&replica, &token).await;
        until(&replica, "it is empty", || replica.contains("key 700") == Answer::Absent).await;
        all_maybe(&replica, 2_000..2_001);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_never_miss_a_key_while_copies_take_each_others_place() {
    for strategy in strategies() {
        let centre = Centre::start();
        centre.create(Spec::bloom(1_000, 0.001)).await;
        centre.add(0..500).await;
        let folder = Folder::new();
        let replica = open(centre.options(strategy).folder(folder.path())).await;
        let (sure, stop) = (Arc::new(AtomicU64::new(500)), Arc::new(AtomicBool::new(false)));
        let readers: Vec<_> = (0..3_u64)
            .map(|reader| {
                let (replica, sure, stop) = (replica.clone(), Arc::clone(&sure), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let (mut number, mut own_reader) = (reader, replica.reader());
                    while !stop.load(Ordering::SeqCst) {
                        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(reader + 1);
                        let wanted = (number >> 33) % sure.load(Ordering::SeqCst);
                        let key = format!("key {wanted}");
                        let answers = [replica.contains(&key), own_reader.contains(&key)];
                        assert_eq!(answers, [Answer::Maybe; 2], "key {wanted}: {:#?}", replica.status());
                    }
                })
            })
            .collect();
        for round in 0..15 {
            let last = sure.load(Ordering::SeqCst);
            // Every other time it is this process that adds.
            if round % 2 == 0 {
                reached(&replica, &centre.add(last..last + 400).await).await;
            } else {
                replica.add(&keys(last..last + 400)).await.unwrap();
            }
            sure.store(last + 400, Ordering::SeqCst);
            sleep(Duration::from_millis(20)).await;
        }
        reached(&replica, &replica.flush().await.unwrap()).await;
        stop.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().expect("no key was missed"));
        assert!(replica.status().versions_taken > 1, "{:#?}", replica.status());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_and_comes_back_is_followed_again() {
    for strategy in strategies() {
        let mut centre = Centre::start();
        centre.create(Spec::bloom(10_000, 0.001)).await;
        centre.add(0..1_000).await;
        let replica = open(centre.options(strategy)).await;
        all_maybe(&replica, 0..1_000);
        centre.stop();
        until(&replica, "it noticed", || replica.status().last_error.is_some()).await;
        all_maybe(&replica, 0..1_000);
        mostly_absent(&replica, NOBODYS);
        centre.start_again();
        reached(&replica, &centre.add(1_000..2_000).await).await;
        all_maybe(&replica, 0..2_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_log_has_forgotten_comes_as_a_version() {
    for strategy in [Strategy::delta(), Strategy::push()] {
        let centre = Centre::start_with_small_log();
        centre.create(Spec::bloom(1_000_000, 0.001)).await;
        let before = centre.add(0..1_000).await;
        let folder = Folder::new();
        let options = centre.options(strategy).folder(folder.path());
        let replica = open(options.clone()).await;
        reached(&replica, &before).await;
        replica.close().await.unwrap();

        // While it is away, the log goes on, is archived and trimmed.
        let mut last = 1_000;
        let forgotten = loop {
            centre.add(last..last + 50_000).await;
            last += 50_000;
            for _ in 0..2 {
                centre.engine().checkpoint().await.unwrap();
            }
            let changes = centre.engine().changes(&centre.filter(), &before).await;
            match changes {
                Err(umbel_core::Error::Trimmed { .. }) => break last,
                changes => assert!(last < 900_000, "it is never trimmed: {:?}", changes.map(|_| ())),
            }
        };
        let after = centre.add(forgotten..forgotten + 100).await;
        let replica = open(options).await;
        reached(&replica, &after).await;
        all_maybe(&replica, 0..forgotten + 100);
        mostly_absent(&replica, NOBODYS);
        assert!(replica.status().versions_taken > 0, "{:#?}", replica.status());
        // From there on it follows as before.
        reached(&replica, &centre.add(forgotten + 100..forgotten + 200).await).await;
        all_maybe(&replica, forgotten + 100..forgotten + 200);
    }
}

/// Somebody who does not read what it is sent holds up nobody else, and not the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_stuck_blocks_nobody() {
    use std::io::Write;
    let centre = Centre::start();
    centre.create(Spec::bloom(1_000_000, 0.001)).await;
    centre.add(0..1_000).await;
    let mut stuck = Vec::new();
    for _ in 0..8 {
        let address = centre.url().trim_start_matches("http://").to_owned();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = "GET /v1/filters/f/feed?follow=true&versions=true HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        stuck.push(stream);
    }
    for strategy in [Strategy::push(), Strategy::delta()] {
        let replica = open(centre.options(strategy)).await;
        // More than sockets take for those who do not read.
        for round in 0..10 {
            let first = 1_000 + round * 50_000;
            let token = centre.add(first..first + 50_000).await;
            reached(&replica, &token).await;
        }
        all_maybe(&replica, 0..501_000);
    }
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_dropped_is_unknown_and_one_made_anew_is_another() {
    for strategy in strategies() {
        let centre = Centre::start();
        centre.create(Spec::bloom(1_000, 0.01)).await;
        centre.add(0..500).await;
        let folder = Folder::new();
        let options = match strategy {
            // Nobody tells it, so it has to ask.
            Strategy::Notify { .. } => {
                centre.options(Strategy::Notify { interval: Duration::from_millis(200) })
            }
            _ => centre.options(strategy),
        };
        let replica = open(options.folder(folder.path())).await;
        all_maybe(&replica, 0..500);
        centre.engine().drop_filter(&centre.filter()).await.unwrap();
        until(&replica, "it is gone", || replica.status().gone).await;
        assert_eq!(replica.contains("key 1"), Answer::Unknown);
        assert_eq!(replica.contains_batch(&["key 1", "no key"]), [Answer::Unknown; 2]);
        assert!(replica.status().last_error.unwrap().contains("dropped"));

        centre.create(Spec::bloom(3_000, 0.01)).await;
        let token = centre.add(5_000..5_100).await;
        until(&replica, "it is back", || !replica.status().gone).await;
        reached(&replica, &token).await;
        all_maybe(&replica, 5_000..5_100);
        mostly_absent(&replica, 0..500);
    }
}

/// Nobody tells it what happens to the filter while it is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_another_filter_has_when_a_copy_comes_back_is_that_filter() {
    for strategy in strategies() {
        for (is_restarted, is_renamed) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut centre = Centre::start();
            centre.create(Spec::bloom(1_000, 0.01)).await;
            centre.add(0..500).await;
            let folder = Folder::new();
            let options = centre.options(strategy).folder(folder.path());
            let mut replica = open(options.clone()).await;
            all_maybe(&replica, 0..500);
            if is_restarted {
                replica.close().await.unwrap();
            }
            centre.stop();
            centre.start_unseen();
            if is_renamed {
                centre.replace(Spec::bloom(3_000, 0.01)).await;
            } else {
                centre.engine().drop_filter(&centre.filter()).await.unwrap();
                centre.create(Spec::bloom(3_000, 0.01)).await;
            }
            centre.add(5_000..5_100).await;
            centre.stop();
            centre.start_again();
            if is_restarted {
                replica = open(options).await;
            }
            let way = format!("{}, restarted: {is_restarted}, renamed: {is_renamed}", strategy.name());
            let has = |key: &str| replica.contains(key) == Answer::Maybe;
            until(&replica, &way, || has("key 5000") && has("key 5099")).await;
            all_maybe(&replica, 5_000..5_100);
            mostly_absent(&replica, 0..500);
            // From there on it follows as before.
            reached(&replica, &centre.add(5_100..5_200).await).await;
            all_maybe(&replica, 5_000..5_200);
            replica.close().await.unwrap();
        }
    }
}

/// What was filled anew comes to a copy that was away, however much was filled before anybody changed the old one.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_was_filled_anew_is_followed() {
    for strategy in strategies() {
        let mut centre = Centre::start();
        centre.create(Spec::bloom(1_000_000, 0.01)).await;
        centre.add(0..500).await;
        let replica = open(centre.options(strategy)).await;
        for round in 1..3 {
            let first = round * 1_000_000;
            centre.stop();
            centre.start_unseen();
            // More than a reader of the log is given at once.
            centre.rebuild(first..first + 300_000).await;
            centre.stop();
            centre.start_again();
            let has = |number| replica.contains(format!("key {number}")) == Answer::Maybe;
            until(&replica, strategy.name(), || has(first) && has(first + 299_999)).await;
            mostly_absent(&replica, first - 1_000_000..first - 999_500);
            assert!(!replica.status().gone);
        }
    }
}

/// Whoever is told of versions hears of those of the filter that has the name now, without waiting for its slow timer.
#[tokio::test(flavor = "multi_thread")]
async fn notices_go_on_when_the_name_is_another_filters() {
    for round in 0..3 {
        let centre = Centre::start();
        centre.create(Spec::bloom(10_000, 0.001)).await;
        centre.add(0..500).await;
        let replica = open(centre.options(Strategy::Notify { interval: Duration::from_secs(3_600) })).await;
        reached(&replica, &centre.add(500..600).await).await;
        match round {
            0 => centre.rebuild(0..600).await,
            1 => centre.replace(Spec::bloom(10_000, 0.001)).await,
            _ => {
                let filter = centre.filter();
                centre.engine().rename(&filter, "elsewhere", false).await.unwrap();
                centre.create(Spec::bloom(10_000, 0.001)).await;
            }
        }
        for key in 1_000..1_003 {
            centre.add(key..key + 1).await;
            let key = format!("key {key}");
            until(&replica, &key, || replica.contains(&key) == Answer::Maybe).await;
        }
    }
}

/// Versions of every filter are numbered from one: leave to answer from the first is none to answer from that of another filter.
#[tokio::test(flavor = "multi_thread")]
async fn a_strong_copy_of_another_filter_does_not_answer() {
    let mut centre = Centre::start();
    let server = Server::new(&centre.url(), None).unwrap();
    let switch = async || {
        let made = server.post(Server::path("f", "switch"), &json!({}), PATIENCE).await.unwrap();
        made["number"].as_u64().unwrap()
    };
    centre.create(Spec::bloom(1_000, 0.01)).await;
    centre.add(0..500).await;
    let first = switch().await;
    let replica = open(centre.options(Strategy::strong())).await;
    until(&replica, "it has leave", || replica.contains("key 1") == Answer::Maybe).await;
    centre.stop();
    centre.start_unseen();
    centre.replace(Spec::bloom(3_000, 0.01)).await;
    centre.add(5_000..5_100).await;
    centre.stop();
    centre.start_again();
    assert_eq!(switch().await, first);
    until(&replica, "it has leave again", || replica.contains("key 5000") != Answer::Unknown).await;
    all_maybe(&replica, 5_000..5_100);
    mostly_absent(&replica, 0..500);
}
