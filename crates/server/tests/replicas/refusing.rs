//! What is not taken, and what is not said.

use std::sync::Arc;
use std::time::Duration;

use umbel_client::{Answer, Error, Options, Replica, Strategy, WhenStale};
use umbel_core::clock::ManualClock;
use umbel_filter::{Family, Spec};

use crate::world::{Centre, Folder, all_maybe, open, reached, strategies, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_with_other_parameters_is_refused_with_both_definitions() {
    let centre = Centre::start();
    centre.create(Spec::bloom(1_000, 0.01)).await;
    let spec = Spec::bloom(1_000, 0.01);
    let folder = Folder::new();
    for (expected, word) in [
        (Spec::bloom(2_000, 0.01), "for 2000 elements"),
        (Spec::bloom(1_000, 0.001), "rate of 0.001"),
        (Spec::counting(1_000, 0.01), "counting"),
        (spec.family(Family::Xxh3), "xxh3"),
    ] {
        let options = centre.options(Strategy::delta()).folder(folder.path()).expect(expected);
        let refused = Replica::open(options).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(
            text.contains("bloom, blocked, murmur3, for 1000 elements at an error rate of 0.01;"),
            "{text}"
        );
        assert!(text.contains(word), "{text}");
    }
    let replica = open(centre.options(Strategy::delta()).folder(folder.path()).expect(spec)).await;
    // One that grew is still the one that was expected.
    reached(&replica, &centre.add(0..5_000).await).await;
    until(&replica, "it grew", || replica.status().version > Some(1)).await;
    all_maybe(&replica, 0..5_000);
    replica.close().await.unwrap();
    drop(replica);
    // A folder does not make it another.
    let options = centre.options(Strategy::delta()).folder(folder.path()).expect(Spec::counting(1_000, 0.01));
    assert!(matches!(Replica::open(options).await, Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_copy_does_not_say_absent() {
    for strategy in strategies() {
        for (instead, said) in [(WhenStale::Unknown, Answer::Unknown), (WhenStale::Maybe, Answer::Maybe)] {
            let mut centre = Centre::start();
            centre.create(Spec::bloom(1_000, 0.0001)).await;
            centre.add(0..100).await;
            let clock = ManualClock::default();
            clock.advance(Duration::from_secs(1_000));
            let options = centre.options(strategy).clock(Arc::new(clock.clone()));
            let replica = open(options.stale_after(Duration::from_secs(30)).when_stale(instead)).await;
            until(&replica, "it is fresh", || !replica.status().stale).await;
            assert_eq!(replica.contains("no key"), Answer::Absent);
            clock.advance(Duration::from_secs(31));
            // Alive, it notices soon that it has everything.
            until(&replica, "it is fresh again", || !replica.status().stale).await;
            centre.stop();
            until(&replica, "it noticed", || replica.status().last_error.is_some()).await;
            clock.advance(Duration::from_secs(31));
            assert!(replica.status().stale);
            assert_eq!((replica.contains("no key"), replica.contains("key 1")), (said, Answer::Maybe));
            assert_eq!(replica.contains_batch(&["no key", "key 1"]), [said, Answer::Maybe]);
            centre.start_again();
            until(&replica, "it is fresh in the end", || !replica.status().stale).await;
            assert_eq!(replica.contains("no key"), Answer::Absent);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_fails_its_probes_is_not_taken() {
    let centre = Centre::start();
    centre.create(Spec::counting(1_000, 0.001)).await;
    centre.add(0..100).await;
    let pull = Strategy::pull(Duration::from_millis(50));
    let lacks = centre.options(pull).probe_present("key 7").probe_present("no such key");
    let refused = Replica::open(lacks).await.unwrap_err().to_string();
    assert!(refused.contains("lacks the key no such key"), "{refused}");
    let mut has = centre.options(pull);
    for number in 0..50 {
        has = has.probe_absent(format!("key {number}"));
    }
    let refused = Replica::open(has).await.unwrap_err().to_string();
    assert!(refused.contains("50 of 50 keys that were never added"), "{refused}");

    let replica = open(centre.options(pull).probe_present("key 7")).await;
    let version = replica.status().version;
    centre.remove(7..8).await;
    until(&replica, "it refused", || replica.status().last_error.is_some()).await;
    assert_eq!(replica.status().version, version, "the one before goes on");
    all_maybe(&replica, 0..100);
    let token = centre.add(7..8).await;
    reached(&replica, &token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_opened_says_why() {
    let centre = Centre::start();
    let missing = Replica::open(centre.options(Strategy::delta())).await.unwrap_err();
    assert!(matches!(missing, Error::Refused { status: 404, .. }), "{missing:?}");
    let nobody = Options::new("http://127.0.0.1:1", "f", Strategy::delta());
    assert!(matches!(Replica::open(nobody).await, Err(Error::Unreachable(_))));
    let secure = Options::new("https://127.0.0.1:1", "f", Strategy::delta());
    assert!(matches!(Replica::open(secure).await, Err(Error::Unreachable(_))));

    centre.create(Spec::bloom(1_000_000, 0.001)).await;
    let small = Replica::open(centre.options(Strategy::delta()).memory_bytes_max(100_000)).await.unwrap_err();
    assert!(matches!(small, Error::Full(_)) && small.to_string().contains("at most 100000"), "{small}");

    let folder = Folder::new();
    let first = open(centre.options(Strategy::delta()).folder(folder.path())).await;
    let second = Replica::open(centre.options(Strategy::delta()).folder(folder.path())).await;
    assert!(matches!(second, Err(Error::Disk(_))), "one at a time");
    first.close().await.unwrap();

    // The second server of two is asked when the first does not answer.
    let options = Options::new("http://127.0.0.1:1", "f", Strategy::delta()).or_server(centre.url());
    let replica = open(options).await;
    reached(&replica, &centre.add(0..10).await).await;
}
