//! Own adds: visible at once, kept until the centre has them, done once.

use std::time::Duration;

use umbel_client::{Answer, Error, Strategy, blocking};
use umbel_filter::Spec;

use crate::world::{Centre, Folder, all_maybe, keys, open, open_after_drop, reached, strategies, until};

#[tokio::test(flavor = "multi_thread")]
async fn own_adds_are_visible_at_once_and_come_to_everybody() {
    for strategy in strategies() {
        let centre = Centre::start();
        centre.create(Spec::bloom(10_000, 0.001)).await;
        let (one, other) = (open(centre.options(strategy)).await, open(centre.options(strategy)).await);
        one.add(&keys(0..3_000)).await.unwrap();
        all_maybe(&one, 0..3_000);
        let token = one.flush().await.unwrap();
        assert_eq!(one.status().spooled_keys, 0);
        reached(&other, &token).await;
        all_maybe(&other, 0..3_000);
        let (answer, position) = other.contains_with_position("key 1");
        assert_eq!(answer, Answer::Maybe);
        assert!(position.expect("an answer has one").includes(&token));
        reached(&one, &token).await;
        all_maybe(&one, 0..3_000);
        assert!(matches!(one.remove(&["key 1"]).await, Err(Error::Invalid(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_survives_restarts_and_counts_nothing_twice() {
    for strategy in strategies() {
        let mut centre = Centre::start();
        centre.create(Spec::counting(50_000, 0.001)).await;
        let folder = Folder::new();
        let options = || centre_options(&centre, strategy, &folder);
        // A window that never ends: what was added is only on the disk when it is closed.
        let replica = open(options().window(Duration::from_secs(3_600))).await;
        replica.add(&keys(0..1_000)).await.unwrap();
        replica.add(&keys(0..10)).await.unwrap();
        assert_eq!(replica.status().spooled_keys, 1_010);
        replica.close().await.unwrap();
        drop(replica);
        assert_eq!(centre.counts(0..1).await, [0]);

        // Dropped in the middle of sending, several times.
        for round in 0..5_u64 {
            let replica = open_after_drop(&options()).await;
            all_maybe(&replica, 0..1_000);
            replica.add(&keys(1_000 + round * 100..1_100 + round * 100)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(3 * round)).await;
            // As a crash would: nothing is told to end.
            drop(replica);
        }

        // Cut off, it goes on taking keys.
        let replica = open_after_drop(&options()).await;
        replica.flush().await.unwrap();
        centre.stop();
        replica.add(&keys(2_000..2_500)).await.unwrap();
        replica.remove(&keys(1_000..1_100)).await.unwrap();
        all_maybe(&replica, 2_000..2_500);
        drop(replica);
        let replica = open_after_drop(&centre_options(&centre, strategy, &folder)).await;
        assert_eq!(replica.status().spooled_keys, 600);
        all_maybe(&replica, 2_000..2_500);
        centre.start_again();
        let token = replica.flush().await.unwrap();
        reached(&replica, &token).await;
        assert_eq!(centre.counts(0..10).await, [2; 10]);
        assert_eq!(centre.counts(10..1_000).await, [1; 990]);
        assert_eq!(centre.counts(1_000..1_100).await, [0; 100]);
        assert_eq!(centre.counts(1_100..1_500).await, [1; 400]);
        assert_eq!(centre.counts(2_000..2_500).await, [1; 500]);
        all_maybe(&replica, 2_000..2_500);
    }
}

fn centre_options(centre: &Centre, strategy: Strategy, folder: &Folder) -> umbel_client::Options {
    centre.options(strategy).folder(folder.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_wait_for_the_centre() {
    let centre = Centre::start();
    centre.create(Spec::counting(10_000, 0.0001)).await;
    centre.add(0..100).await;
    let replica = open(centre.options(Strategy::delta())).await;
    replica.remove(&keys(0..50)).await.unwrap();
    reached(&replica, &replica.flush().await.unwrap()).await;
    assert!(keys(0..50).iter().all(|key| replica.contains(key) == Answer::Absent));
    all_maybe(&replica, 50..100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_gathers_and_what_is_too_much_is_refused() {
    let mut centre = Centre::start();
    centre.create(Spec::bloom(100_000, 0.001)).await;
    let window = Duration::from_millis(200);
    let replica = open(centre.options(Strategy::delta()).window(window).spool_keys_max(5_000)).await;
    for round in 0..20 {
        replica.add(&keys(round * 10..round * 10 + 10)).await.unwrap();
    }
    assert_eq!(replica.status().spooled_keys, 200, "the window is not over");
    until(&replica, "all are sent", || replica.status().spooled_keys == 0).await;
    centre.stop();
    replica.add(&keys(0..5_000)).await.unwrap();
    let refused = replica.add(&["one more"]).await.unwrap_err();
    assert_eq!(refused.to_string(), "5000 keys wait for the centre; at most 5000 may");
    centre.start_again();
    replica.flush().await.unwrap();
    replica.add(&["one more"]).await.unwrap();
}

#[test]
fn all_of_it_works_without_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let centre = Centre::start();
    runtime.block_on(centre.create(Spec::counting(1_000, 0.001)));
    let replica = blocking::Replica::open(centre.options(Strategy::push())).unwrap();
    replica.add(&["a", "b"]).unwrap();
    assert_eq!(replica.contains_batch(&["a", "b", "c"]), [Answer::Maybe, Answer::Maybe, Answer::Absent]);
    replica.remove(&["a"]).unwrap();
    let token = replica.flush().unwrap();
    replica.reached(&token).unwrap();
    assert_eq!((replica.contains("a"), replica.contains("b")), (Answer::Absent, Answer::Maybe));
    replica.close().unwrap();
    assert_eq!(replica.contains("b"), Answer::Maybe);
    assert!(matches!(replica.add(&["c"]), Err(Error::Closed)));
}

/// Keys that wait for a filter are for the one that was filled to take its place, once each: also those that were sent before, those
/// of which nobody knows whether they were, and those that waited for several fillings.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_wait_are_not_lost_when_the_filter_is_filled_anew() {
    for strategy in strategies() {
        let centre = Centre::start();
        centre.create(Spec::counting(50_000, 0.001)).await;
        let folder = Folder::new();
        let options = || centre_options(&centre, strategy, &folder);
        let waiting = || options().window(Duration::from_secs(3_600));
        let replica = open(options()).await;
        replica.add(&keys(0..100)).await.unwrap();
        replica.flush().await.unwrap();
        replica.close().await.unwrap();
        // A copy that is there when another filter takes the place of its own, and one that is closed meanwhile.
        for (round, is_open) in [true, false, true].into_iter().enumerate() {
            let first = 1_000 * (round as u64 + 1);
            let replica = open_after_drop(&waiting()).await;
            replica.add(&keys(first..first + 100)).await.unwrap();
            if !is_open {
                replica.close().await.unwrap();
            }
            centre.rebuild(first + 500..first + 501).await;
            let replica = if is_open { replica } else { open_after_drop(&waiting()).await };
            let new = format!("key {}", first + 500);
            until(&replica, &new, || replica.contains(&new) == Answer::Maybe).await;
            all_maybe(&replica, first..first + 100);
            replica.close().await.unwrap();
            drop(replica);
            // What is not sent is there after one more restart, and after one more filling.
            if round == 2 {
                centre.rebuild(first + 501..first + 502).await;
                centre.rebuild(first + 502..first + 503).await;
            }
            let replica = open_after_drop(&options()).await;
            let token = replica.flush().await.unwrap();
            reached(&replica, &token).await;
            assert_eq!(replica.status().refused_keys, 0, "{}: {:#?}", strategy.name(), replica.status());
            all_maybe(&replica, first..first + 100);
            assert_eq!(centre.counts(first..first + 100).await, [1; 100], "{} {round}", strategy.name());
            replica.close().await.unwrap();
        }
        // Dropped in the middle of sending while it is filled anew: some keys were sent, of which nobody heard.
        for round in 0..6_u64 {
            let first = 10_000 + round * 1_000;
            centre.begin_rebuild(first + 500..first + 501).await;
            let replica = open_after_drop(&options()).await;
            replica.add(&keys(first..first + 100)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2 * round)).await;
            drop(replica);
            centre.finish_rebuild().await;
            let replica = open_after_drop(&options()).await;
            replica.flush().await.unwrap();
            assert_eq!(centre.counts(first..first + 100).await, [1; 100], "{} {round}", strategy.name());
            replica.close().await.unwrap();
        }
    }
}
