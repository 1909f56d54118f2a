//! Copies: a version and what the log says later come to the filter itself, in any other process.

use std::sync::Arc;

use umbel_core::budget::Budget;
use umbel_core::copy::{Assembly, Copy, Taken};
use umbel_core::definition::Growth;
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Engine, Handle, NewFilter, Token};
use umbel_core::entry::{Entry, Request};
use umbel_core::fold::Means;
use umbel_core::log::Record;
use umbel_core::random::{Random, SeededRandom};
use umbel_core::{Error, Position};
use umbel_filter::{Fingerprint, Spec};

use crate::world::{block_on, everywhere, keys, log_on, open, open_on, reopened, settings};

fn means() -> Means {
    Means::new(Budget::new(1 << 30))
}

/// A copy of a filter as it is now, with what another one has already.
async fn copied(engine: &Engine, filter: &Arc<Handle>, before: Option<&Copy>) -> Copy {
    let behind = before.and_then(Copy::behind);
    let version = engine.publish_at_least(filter, behind.as_ref()).await.unwrap().version;
    let mut assembly = Assembly::new(version, &means()).unwrap();
    let all = assembly.missing().len();
    let reused = before.map_or(0, |before| assembly.reuse(before));
    assert_eq!(assembly.missing().len(), all - reused);
    for id in assembly.missing().collect::<Vec<_>>() {
        assert!(assembly.put(&engine.chunk(filter.id(), id).await.unwrap().unwrap()).unwrap());
    }
    assembly.finish(&means()).unwrap()
}

/// Folds a change in: packed, if it is wanted so and can be.
fn take(copy: &Copy, partition: u32, record: &Record, pack: bool) -> Result<Taken, Error> {
    let entry = Entry::decode(&record.entry).unwrap();
    match copy.shape().filter(|_| pack).and_then(|shape| shape.pack(&entry)) {
        Some(changes) => copy.apply_packed(partition, record.position, &changes),
        None => copy.apply(partition, record.position, &entry),
    }
}

/// Follows the log to its end. Every change comes twice, as it may, once packed and once not.
async fn follow(engine: &Engine, filter: &Arc<Handle>, copy: &Copy) -> Result<Taken, Error> {
    let (mut token, mut worst) = (copy.token(), Taken::Done);
    loop {
        let changes = engine.changes(filter, &token).await?;
        for turn in 0..2 {
            for (number, (partition, record)) in changes.records.iter().enumerate() {
                let taken = take(copy, *partition, record, number % 2 == turn)?;
                if taken != Taken::Done {
                    worst = taken;
                }
            }
        }
        changes.token.positions().for_each(|(partition, position)| copy.reach(partition, position));
        if changes.token == token {
            return Ok(worst);
        }
        token = changes.token;
    }
}

async fn assert_same(engine: &Engine, filter: &Arc<Handle>, copy: &Copy, what: &str) {
    assert_eq!(copy.digest(), engine.publish(filter).await.unwrap().digest(), "{what}");
    assert_eq!(copy.items(), filter.items(), "{what}");
}

/// All sorts of filters.
fn sorts() -> Vec<NewFilter> {
    let fixed = |new: NewFilter| NewFilter { growth: Growth::Fixed, ..new };
    let layered = |new: NewFilter| NewFilter { retain: false, ..new };
    vec![
        NewFilter::new("whole", Spec::bloom(2_000, 0.001)),
        everywhere("everywhere", Spec::bloom(2_000, 0.001)),
        NewFilter::new("counting", Spec::counting(2_000, 0.01)),
        everywhere("counting everywhere", Spec::counting(2_000, 0.01)),
        fixed(NewFilter::new("fixed", Spec::bloom(300, 0.01))),
        fixed(everywhere("fixed counting", Spec::counting(400, 0.01))),
        layered(NewFilter::new("layers", Spec::bloom(200, 0.01))),
        layered(NewFilter::new("counting layers", Spec::counting(200, 0.01))),
    ]
}

#[test]
fn a_copy_that_follows_is_the_filter() {
    let mut fetched_again = 0;
    let random = SeededRandom::new(23);
    for new in sorts() {
        let what = new.name.clone();
        block_on(async {
            let disk = MemoryDisk::default();
            let mut engine = open(&disk).await.unwrap();
            let mut filter = engine.create(new).await.unwrap();
            let mut copy = copied(&engine, &filter, None).await;
            let mut sequence = 0;
            for round in 0..120 {
                let first = random.next() % 3_000;
                let some = keys(first..first + random.next() % 40);
                let erasable = filter.is_erasable();
                match random.next() % 22 {
                    0..=8 => _ = engine.add(&filter, &some).await.unwrap(),
                    9 | 10 => {
                        // Again, as somebody does who heard nothing.
                        sequence += 1;
                        let request = Request { session: 7, sequence };
                        engine.add_as(&filter, &some, request).await.unwrap();
                        engine.add_as(&filter, &some, request).await.unwrap();
                    }
                    11..=14 if erasable => _ = engine.remove(&filter, &some).await.unwrap(),
                    15 if erasable => {
                        sequence += 1;
                        let request = Request { session: 7, sequence };
                        engine.remove_as(&filter, &some, request).await.unwrap();
                        engine.remove_as(&filter, &some, request).await.unwrap();
                    }
                    20 if erasable => _ = engine.add_absent(&filter, &some).await.unwrap(),
                    21 if erasable => {
                        sequence += 1;
                        let request = Request { session: 7, sequence };
                        engine.add_absent_as(&filter, &some, request).await.unwrap();
                        engine.add_absent_as(&filter, &some, request).await.unwrap();
                    }
                    16 => engine.maintain().await.map(drop).unwrap(),
                    17 if round % 3 == 0 => engine.clear(&filter).await.unwrap(),
                    18 => {
                        // Another filter's entries are none of its business.
                        let other =
                            engine.create(NewFilter::new("other", Spec::bloom(10, 0.1))).await.unwrap();
                        engine.add(&other, &some).await.unwrap();
                        engine.drop_filter(&other).await.unwrap();
                    }
                    19 => {
                        engine = reopened(engine, &disk).await;
                        filter = engine.filter(&what).unwrap();
                    }
                    _ => {}
                }
                if !random.next().is_multiple_of(3) {
                    continue;
                }
                match follow(&engine, &filter, &copy).await {
                    Ok(Taken::Done) if copy.behind().is_none() => {
                        assert_same(&engine, &filter, &copy, &what).await;
                    }
                    Ok(Taken::Done | Taken::NeedsVersion) | Err(Error::Trimmed { .. }) => {
                        copy = copied(&engine, &filter, Some(&copy)).await;
                        assert_eq!(follow(&engine, &filter, &copy).await.unwrap(), Taken::Done, "{what}");
                        assert_same(&engine, &filter, &copy, &what).await;
                        fetched_again += 1;
                    }
                    other => panic!("{what}: {other:?}"),
                }
            }
            engine.drop_filter(&filter).await.unwrap();
            assert!(engine.changes(&filter, &copy.token()).await.is_ok(), "{what}");
            assert_eq!(follow(&engine, &filter, &copy).await.unwrap(), Taken::Gone, "{what}");
            assert!(copy.is_gone());
        });
    }
    assert!(fetched_again > 10, "{fetched_again}");
}

#[test]
fn a_copy_that_saw_what_a_crash_took_begins_anew() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open_on(&disk, log_on(&disk).unwrap(), settings(), 1).await.unwrap();
        let filter = engine.create(NewFilter::new("f", Spec::counting(1_000, 0.01))).await.unwrap();
        engine.add(&filter, &keys(0..10)).await.unwrap();
        let copy = copied(&engine, &filter, None).await;
        // Nobody synced this.
        engine.remove(&filter, &keys(0..5)).await.unwrap();
        assert_eq!(follow(&engine, &filter, &copy).await.unwrap(), Taken::Done);
        assert!(!copy.contains(keys(0..1)[0]));
        drop(engine);
        let disk = disk.after_power_cut(3);

        let engine = open_on(&disk, log_on(&disk).unwrap(), settings(), 2).await.unwrap();
        let filter = engine.filter("f").unwrap();
        assert!(matches!(follow(&engine, &filter, &copy).await, Err(Error::Trimmed { .. })));
        let copy = copied(&engine, &filter, Some(&copy)).await;
        assert!(copy.contains(keys(0..1)[0]));
        engine.add(&filter, &keys(20..30)).await.unwrap();
        assert_eq!(follow(&engine, &filter, &copy).await.unwrap(), Taken::Done);
        assert_same(&engine, &filter, &copy, "after a power cut").await;
    });
}

#[test]
fn somebody_elses_changes_and_chunks_are_refused() {
    block_on(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let filter = engine.create(NewFilter::new("f", Spec::bloom(1_000_000, 0.001))).await.unwrap();
        engine.add(&filter, &keys(0..1_000)).await.unwrap();
        let version = engine.publish(&filter).await.unwrap();
        let mut assembly = Assembly::new(version, &means()).unwrap();
        assert!(!assembly.put(b"no chunk of it").unwrap());
        let id = assembly.missing().next().unwrap();
        let mut bytes = engine.chunk(filter.id(), id).await.unwrap().unwrap().to_vec();
        bytes[9] ^= 1;
        assert!(!assembly.put(&bytes).unwrap(), "a flipped bit makes it another chunk");
        assert!(matches!(assembly.finish(&means()), Err(Error::Retry(_))), "it is not whole");

        let copy = copied(&engine, &filter, None).await;
        let other = engine.create(NewFilter::new("other", Spec::bloom(1_000, 0.01))).await.unwrap();
        engine.add(&other, &keys(0..1)).await.unwrap();
        let (partition, record) =
            engine.changes(&other, &Token::default()).await.unwrap().records.pop().unwrap();
        let entry = Entry::decode(&record.entry).unwrap();
        assert!(matches!(copy.apply(partition, record.position, &entry), Err(Error::Invalid(_))));
        let own = Entry { filter: filter.id(), ..entry.clone() };
        assert!(matches!(copy.apply(77, record.position, &own), Err(Error::Invalid(_))));

        let shape = copy.shape().unwrap();
        let packed = |entry| shape.pack(entry).unwrap();
        let foreign = copy.apply_packed(partition, record.position, &packed(&entry));
        assert!(matches!(foreign, Err(Error::Invalid(_))), "{foreign:?}");
        assert!(matches!(copy.apply_packed(77, record.position, &packed(&own)), Err(Error::Invalid(_))));
        let small = copied(&engine, &other, None).await.shape().unwrap();
        let shapeless = copy.apply_packed(partition, record.position, &small.pack(&own).unwrap());
        assert!(matches!(shapeless, Err(Error::Corrupt(_))), "{shapeless:?}");
    });
}

#[test]
fn lookups_in_batches_say_the_same() {
    block_on(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        for new in [
            NewFilter::new("whole", Spec::bloom(5_000, 0.001)),
            everywhere("everywhere", Spec::bloom(5_000, 0.001)),
        ] {
            let filter = engine.create(new).await.unwrap();
            engine.add(&filter, &keys(0..5_000)).await.unwrap();
            let copy = copied(&engine, &filter, None).await;
            let asked: Vec<Fingerprint> = keys(4_000..8_000);
            let mut answers = Vec::new();
            copy.contains_batch(&asked, &mut answers);
            assert!(answers.iter().zip(&asked).all(|(answer, key)| *answer == copy.contains(*key)));
            assert_eq!(answers.iter().take(1_000).filter(|maybe| !**maybe).count(), 0);
        }
    });
}

#[test]
fn tokens_are_text() {
    let mut token = Token::default();
    token.see(0, Position::from_number(0x1f40));
    token.see(2, Position::from_number(u128::MAX));
    assert_eq!(token.to_string(), "0:1f40,2:ffffffffffffffffffffffffffffffff");
    assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
    assert_eq!("".parse::<Token>().unwrap(), Token::default());
    assert!(token.includes(&"0:1f40".parse().unwrap()) && !token.includes(&"0:1f41,2:0".parse().unwrap()));
    for bad in ["x", "0", "0:", "0:g", "-1:0", "0:1,1"] {
        assert!(bad.parse::<Token>().is_err(), "{bad}");
    }
}

#[test]
fn whoever_followed_a_server_that_is_put_back_to_an_older_copy_is_told_so() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(NewFilter::new("f", Spec::bloom(10_000, 0.001))).await.unwrap();
        engine.add(&filter, &keys(0..100)).await.unwrap();
        drop((engine, filter));
        let backup = disk.copied();

        let engine = open(&disk).await.unwrap();
        let filter = engine.filter("f").unwrap();
        let copy = copied(&engine, &filter, None).await;
        engine.add(&filter, &keys(100..200)).await.unwrap();
        assert_eq!(follow(&engine, &filter, &copy).await.unwrap(), Taken::Done);
        drop((engine, filter));

        // By now it has written more than what the copy has seen.
        let engine = reopened(open(&backup).await.unwrap(), &backup).await;
        let filter = engine.filter("f").unwrap();
        engine.add(&filter, &keys(1_000..2_000)).await.unwrap();
        let told = follow(&engine, &filter, &copy).await;
        assert!(matches!(told, Err(Error::Trimmed { .. })), "{told:?}");
        let copy = copied(&engine, &filter, Some(&copy)).await;
        assert_same(&engine, &filter, &copy, "taken anew").await;
    });
}
