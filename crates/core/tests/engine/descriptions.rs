//! Names, times and labels of filters: they change without the filter.

use std::time::Duration;

use bytes::Bytes;
use umbel_core::Error;
use umbel_core::clock::{Clock, ManualClock};
use umbel_core::definition::Growth;
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Answer, NewFilter};
use umbel_filter::Spec;

use crate::world::{absent, everywhere, keys, open, open_at, reopened, run};

#[test]
fn a_filter_keeps_its_keys_under_every_name() {
    run(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        engine.create(NewFilter::new("whole 0", Spec::bloom(1_000, 0.01))).await.unwrap();
        engine.create(everywhere("sharded 0", Spec::counting(1_000, 0.01))).await.unwrap();
        for round in 0..8_u64 {
            for kind in ["whole", "sharded"] {
                let (old, new) = (format!("{kind} {round}"), format!("{kind} {}", round + 1));
                let filter = engine.filter(&old).unwrap();
                engine.add(&filter, &keys(round * 100..round * 100 + 100)).await.unwrap();
                engine.rename(&filter, &new, false).await.unwrap();
                assert!(engine.filter(&old).is_none());
                assert_eq!(engine.filter(&new).unwrap().id(), filter.id());
                assert_eq!(filter.definition().origin, format!("{kind} 0"));
                if round % 3 == 1 {
                    // All slots take the next size, whatever they think that the filter is called.
                    let error = filter.definition().spec.error / 2.0;
                    engine.resize(&filter, 1_000, error).await.unwrap();
                }
                // The old name is free, in the same home.
                let other = engine.create(NewFilter::new(&old, Spec::bloom(10, 0.01))).await.unwrap();
                assert_eq!(absent(&engine, &other, &keys(0..100)).await, 100);
                if round % 2 == 0 {
                    engine.drop_filter(&other).await.unwrap();
                } else {
                    engine.rename(&filter, &old, true).await.unwrap();
                    engine.rename(&filter, &new, false).await.unwrap();
                }
            }
            if round % 3 == 0 {
                engine.checkpoint().await.unwrap();
            }
            engine = reopened(engine, &disk).await;
            for kind in ["whole", "sharded"] {
                let filter = engine.filter(&format!("{kind} {}", round + 1)).unwrap();
                assert_eq!(absent(&engine, &filter, &keys(0..round * 100 + 100)).await, 0);
                let counts = engine.verify(&filter, &keys(0..round * 100 + 100)).await.unwrap();
                assert!(counts.iter().all(|count| *count == 1));
            }
            assert_eq!(engine.filters().len(), 2);
        }
    });
}

#[test]
fn a_name_belongs_to_one_filter() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let mut named = Vec::new();
        // Enough names that both lie in the same home and in others.
        for number in 0..16 {
            let (one, other) = (format!("one {number}"), format!("other {number}"));
            let first = engine.create(NewFilter::new(&one, Spec::bloom(10, 0.01))).await.unwrap();
            let second = engine.create(everywhere(&other, Spec::bloom(10, 0.01))).await.unwrap();
            for refused in [
                engine.rename(&first, &other, false).await,
                engine.rename(&first, "", false).await,
                engine.create(NewFilter::new(&other, Spec::bloom(10, 0.01))).await.map(drop),
            ] {
                assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            }
            engine.rename(&first, &one, false).await.unwrap();
            engine.rename(&first, &other, true).await.unwrap();
            assert_eq!(engine.filter(&other).unwrap().id(), first.id());
            let refused = engine.create(NewFilter::new(&other, Spec::bloom(10, 0.01))).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            assert!(matches!(engine.rename(&second, "new", false).await, Err(Error::Gone(_))));
            assert_eq!(second.contains(keys(0..1)[0]), Answer::Unknown);
            named.push((other, first.id()));
        }
        assert_eq!(engine.filters().len(), 16);
        // Partitions are replayed one after another: a filter may get its name before the one that had it is gone.
        let engine = reopened(engine, &disk).await;
        for (name, id) in named {
            assert_eq!(engine.filter(&name).map(|filter| filter.id()), Some(id), "{name}");
        }
        assert_eq!(engine.filters().len(), 16);
    });
}

#[test]
fn an_expired_filter_is_gone_from_that_millisecond_on() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let mut engine = open_at(&disk, &clock).await.unwrap();
        let short = NewFilter { expires: Some(500), ..everywhere("short", Spec::bloom(1_000, 0.01)) };
        let short = engine.create(short).await.unwrap();
        let long = engine.create(NewFilter::new("long", Spec::bloom(1_000, 0.01))).await.unwrap();
        engine.expire(&long, Some(800)).await.unwrap();
        engine.add(&short, &keys(0..10)).await.unwrap();
        clock.advance(Duration::from_millis(499));
        assert!(engine.filter("short").is_some());
        engine.maintain().await.unwrap();
        clock.advance(Duration::from_millis(1));
        assert!(engine.filter("short").is_none());
        assert_eq!(engine.filters().len(), 1);
        // Who still holds it may ask.
        assert_eq!(short.contains(keys(0..1)[0]), Answer::Maybe);
        assert!(engine.expire(&short, None).await.is_err(), "it is too late");
        let again = engine.create(NewFilter::new("short", Spec::bloom(1_000, 0.01))).await.unwrap();
        assert_eq!(absent(&engine, &again, &keys(0..10)).await, 10);
        drop(engine);
        engine = open_at(&disk, &clock).await.unwrap();
        assert_eq!(engine.filter("short").unwrap().id(), again.id());
        clock.advance(Duration::from_millis(400));
        assert!(engine.filter("long").is_none());
        let before = engine.budget().used();
        engine.maintain().await.unwrap();
        assert!(engine.budget().used() < before, "its memory is free");
        drop(engine);
        // Its time was over before this clock began, and yet it is not back.
        engine = open_at(&disk, &ManualClock::default()).await.unwrap();
        assert!(engine.filter("long").is_none());
        assert!(engine.filter("short").is_some());
        let kept = engine.filter("short").unwrap();
        engine.expire(&kept, Some(1)).await.unwrap();
        engine.expire(&kept, None).await.unwrap();
        drop(engine);
        engine = open_at(&disk, &clock).await.unwrap();
        engine.maintain().await.unwrap();
        assert!(engine.filter("short").is_some(), "it was given all the time there is");
    });
}

#[test]
fn labels_and_growth_are_remembered() {
    run(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let labels = Bytes::from_static(b"by=a door");
        let new = NewFilter { labels: labels.clone(), ..everywhere("f", Spec::bloom(400, 0.01)) };
        let filter = engine.create(new).await.unwrap();
        assert!(engine.label(&filter, Bytes::from(vec![0; 257])).await.is_err());
        engine.set_growth(&filter, Growth::Fixed).await.unwrap();
        for round in 0..3 {
            engine = reopened(engine, &disk).await;
            let filter = engine.filter("f").unwrap();
            let expected = if round == 0 { labels.clone() } else { Bytes::from(vec![round; 256]) };
            assert_eq!(filter.definition().labels, expected);
            engine.label(&filter, Bytes::from(vec![round + 1; 256])).await.unwrap();
            if round == 1 {
                engine.checkpoint().await.unwrap();
            }
        }
        let filter = engine.filter("f").unwrap();
        let written = engine.add(&filter, &keys(0..2_000)).await.unwrap();
        assert!(written.refused.is_some() && written.answers.iter().flatten().count() < 800);
        engine.set_growth(&filter, Growth::Percent(200)).await.unwrap();
        let written = engine.add(&filter, &keys(0..2_000)).await.unwrap();
        assert!(written.refused.is_none());
        assert_eq!(absent(&engine, &filter, &keys(0..2_000)).await, 0);
    });
}

#[test]
fn internal_names_are_not_shown() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let filter = engine.create(NewFilter::new("\u{1}hidden", Spec::bloom(10, 0.01))).await.unwrap();
        assert!(engine.filters().is_empty());
        engine.rename(&filter, "shown", false).await.unwrap();
        assert_eq!(engine.filters().len(), 1);
    });
}

#[test]
fn a_filter_expires_by_a_time_of_day_that_lasts() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        clock.advance(Duration::from_secs(1_000_000));
        let engine = open_at(&disk, &clock).await.unwrap();
        let filter = engine.create(NewFilter::new("f", Spec::bloom(100, 0.01))).await.unwrap();
        engine.expire(&filter, Some(clock.unix_millis() + 100_000)).await.unwrap();
        // An hour ahead, and corrected after a minute.
        clock.step(3_600_000);
        for _ in 0..6 {
            engine.maintain().await.unwrap();
            assert!(engine.filter("f").is_some());
            clock.advance(Duration::from_secs(10));
        }
        clock.step(-3_600_000);
        engine.maintain().await.unwrap();
        assert!(engine.filter("f").is_some());
        clock.advance(Duration::from_secs(40));
        assert!(engine.filter("f").is_none(), "its time is over");
        engine.maintain().await.unwrap();
        // A step that lasts is believed.
        let filter = engine.create(NewFilter::new("f", Spec::bloom(100, 0.01))).await.unwrap();
        engine.expire(&filter, Some(clock.unix_millis() + 3_600_000)).await.unwrap();
        clock.step(7_200_000);
        assert!(engine.filter("f").is_some());
        clock.advance(Duration::from_secs(600));
        assert!(engine.filter("f").is_none());
    });
}

#[test]
fn a_change_that_was_made_from_another_description_is_made_again() {
    run(async {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::default());
        let engine = open_at(&disk, &clock).await.unwrap();
        let filter = engine.create(NewFilter::new("f", Spec::bloom(100, 0.01))).await.unwrap();
        let set = engine.expire_if(&filter, Some(1_000), |has| has.is_some()).await.unwrap();
        assert!(!set && filter.definition().expires.is_none());
        assert!(engine.expire_if(&filter, Some(1_000), |has| has.is_none()).await.unwrap());
        engine.rename(&filter, "g", false).await.unwrap();
        let late = engine.rename_from(&filter, "f", "h", false).await;
        assert!(matches!(late, Err(Error::Invalid(_))), "{late:?}");
        assert!(engine.filter("g").is_some() && engine.filter("h").is_none());
        engine.set_growth(&filter, Growth::Fixed).await.unwrap();
        let definition = filter.definition();
        assert_eq!((definition.name.as_str(), definition.growth), ("g", Growth::Fixed));
        assert_eq!(definition.expires, Some(1_000));
    });
}
