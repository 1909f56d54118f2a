//! Versions: what is published can be put together again, by anybody who has the chunks.

use std::collections::HashSet;
use std::sync::Arc;

use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Engine, Handle, NewFilter, Token};
use umbel_core::version::{ChunkId, Version};
use umbel_core::{Error, Position};
use umbel_filter::{Filter, Limits, Spec};

use crate::world::{absent, block_on, everywhere, keys, open, reopened};

/// All arrays of a version, put together from its chunks.
async fn assembled(engine: &Engine, version: &Version) -> Vec<Filter> {
    let mut filters = Vec::new();
    for layer in version.shards.iter().flat_map(|shard| &shard.layers) {
        let mut filter = layer.empty(None, &Limits::default()).unwrap();
        for (number, id) in layer.chunks.iter().enumerate() {
            let Some(id) = id else { continue };
            let chunk = engine.chunk(version.filter, *id).await.unwrap().expect("it is there");
            layer.fill(&mut filter, number, &chunk).unwrap();
        }
        filters.push(filter);
    }
    filters
}

fn digests_of(handle: &Arc<Handle>) -> Vec<u128> {
    let projections = handle.slots().map(|slot| handle.projection(slot).expect("in memory"));
    projections.flat_map(|projection| projection.filters().map(Filter::digest).collect::<Vec<_>>()).collect()
}

#[test]
fn a_version_is_the_filter_as_it_was() {
    block_on(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let layers = NewFilter { retain: false, ..NewFilter::new("layers", Spec::counting(1_000, 0.01)) };
        for new in [
            NewFilter::new("whole", Spec::bloom(300_000, 0.001)),
            everywhere("everywhere", Spec::counting(10_000, 0.01)),
            layers,
        ] {
            let name = new.name.clone();
            let mut filter = engine.create(new).await.unwrap();
            let id = filter.id();
            assert_eq!(engine.versions(id).await.unwrap(), [0_u64; 0]);
            for number in 1..=3 {
                engine.add(&filter, &keys(number * 3_000..number * 3_000 + 3_000)).await.unwrap();
                if filter.is_erasable() {
                    engine.remove(&filter, &keys(number * 3_000..number * 3_000 + 10)).await.unwrap();
                }
                let version = engine.publish(&filter).await.unwrap();
                let then = digests_of(&filter);
                // What comes later is not in it.
                engine.add(&filter, &keys(number * 1_000_000..number * 1_000_000 + 100)).await.unwrap();
                let copies = assembled(&engine, &version).await;
                assert_eq!(copies.iter().map(Filter::digest).collect::<Vec<_>>(), then, "{name} {number}");
                assert_eq!((version.number, version.filter), (number, id));
                let bytes = version.encode().unwrap();
                assert_eq!(Version::decode(&bytes, "a version").unwrap(), version);
                assert!(
                    bytes.len() > 100 && Version::decode(&bytes[..bytes.len() - 1], "a version").is_err()
                );
            }
            engine = reopened(engine, &disk).await;
            assert_eq!(engine.versions(id).await.unwrap(), [1, 2, 3]);
            let (second, third) =
                (engine.version(id, 2).await.unwrap(), engine.version(id, 3).await.unwrap());
            assert_ne!(second.digest(), third.digest());
            // Without changes there is no other version.
            filter = engine.filter(&name).unwrap();
            let fourth = engine.publish(&filter).await.unwrap();
            assert_eq!(fourth.number, 4);
            assert_eq!(engine.publish(&filter).await.unwrap(), fourth);
            assert_eq!(absent(&engine, &filter, &keys(9_100..12_000)).await, 0);
        }
    });
}

#[test]
fn only_what_changed_is_new_and_only_what_is_needed_stays() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let large = engine.create(NewFilter::new("large", Spec::bloom(4_000_000, 0.001))).await.unwrap();
        engine.add(&large, &keys(0..100_000)).await.unwrap();
        let chunks = |version: &Version| version.chunks().collect::<HashSet<ChunkId>>();
        let first = engine.publish(&large).await.unwrap();
        engine.add(&large, &keys(200_000..200_001)).await.unwrap();
        let second = engine.publish(&large).await.unwrap();
        let fresh: Vec<_> = chunks(&second).difference(&chunks(&first)).copied().collect();
        assert!(
            chunks(&first).len() > 20 && fresh.len() == 1,
            "{} chunks, {} new",
            chunks(&first).len(),
            fresh.len()
        );

        let small = engine.create(NewFilter::new("small", Spec::bloom(1_000, 0.01))).await.unwrap();
        engine.add(&small, &keys(0..10)).await.unwrap();
        let of_small = engine.publish(&small).await.unwrap();
        // The chunk that the second version does not share goes with the first.
        assert_eq!(engine.keep_versions(large.id(), &[2]).await.unwrap(), 1);
        assert_eq!(engine.versions(large.id()).await.unwrap(), [2]);
        assert_eq!(assembled(&engine, &second).await.len(), second.shards.len());
        // A filter that is gone takes its versions with it.
        engine.drop_filter(&small).await.unwrap();
        assert_eq!(engine.keep_versions(large.id(), &[2]).await.unwrap(), chunks(&of_small).len());
        assert_eq!(engine.chunk(small.id(), of_small.chunks().next().unwrap()).await.unwrap(), None);
        assert!(engine.versions(small.id()).await.unwrap().is_empty());
    });
}

#[test]
fn wrong_chunks_are_refused() {
    block_on(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let filter = engine.create(NewFilter::new("f", Spec::bloom(1_000_000, 0.001))).await.unwrap();
        engine.add(&filter, &keys(0..10_000)).await.unwrap();
        let version = engine.publish(&filter).await.unwrap();
        let layer = &version.shards[0].layers[0];
        let mut array = layer.empty(None, &Limits::default()).unwrap();
        let mut chunk = engine.chunk(filter.id(), layer.chunks[0].unwrap()).await.unwrap().unwrap().to_vec();
        assert!(matches!(layer.fill(&mut array, 1, &chunk), Err(Error::Corrupt(_))), "another's place");
        assert!(layer.fill(&mut array, 0, &chunk).is_ok());
        chunk[100] ^= 1;
        assert!(matches!(layer.fill(&mut array, 0, &chunk), Err(Error::Corrupt(_))), "a flipped bit");
        assert!("0123".parse::<ChunkId>().is_err() && "G".repeat(64).parse::<ChunkId>().is_err());
        let name = layer.chunks[0].unwrap().to_string();
        assert_eq!(name.parse::<ChunkId>().unwrap(), layer.chunks[0].unwrap());
    });
}

#[test]
fn a_version_is_new_if_something_changed_or_somebody_needs_a_later_place() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let filter = engine.create(everywhere("f", Spec::bloom(10_000, 0.01))).await.unwrap();
        let mut seen = engine.add(&filter, &keys(0..100)).await.unwrap().token;
        let first = engine.publish_at_least(&filter, Some(&seen)).await.unwrap();
        assert!(first.is_new && first.version.includes(&seen) && first.version.number == 1);
        // The same keys again change nothing, but they are at a later place.
        let again = engine.add(&filter, &keys(0..100)).await.unwrap().token;
        let same = engine.publish_at_least(&filter, None).await.unwrap();
        assert_eq!((same.is_new, &same.version), (false, &first.version));
        assert!(!first.version.includes(&again));
        let later = engine.publish_at_least(&filter, Some(&again)).await.unwrap();
        assert!(later.is_new && later.version.includes(&again));
        assert_eq!((later.version.number, later.version.digest()), (2, first.version.digest()));
        // Other filters move the log on. That is in it, too, and in partitions without the filter it does not matter.
        let whole = engine.create(NewFilter::new("whole", Spec::bloom(1_000, 0.01))).await.unwrap();
        let other = engine.create(everywhere("other", Spec::bloom(1_000, 0.01))).await.unwrap();
        for round in 0..5 {
            engine.add(&other, &keys(round * 10..round * 10 + 10)).await.unwrap();
            seen = engine.token();
            for filter in [&filter, &whole] {
                let published = engine.publish_at_least(filter, Some(&seen)).await.unwrap();
                assert!(published.version.includes(&seen));
            }
        }
        // What nobody has written yet is waited for by somebody else.
        let mut far = Token::default();
        far.see(0, Position::from_number(u128::from(u64::MAX)));
        assert!(matches!(engine.publish_at_least(&filter, Some(&far)).await, Err(Error::Retry(_))));
        far.see(1_000, Position::START);
        assert!(engine.publish_at_least(&filter, Some(&far)).await.is_err());
        // Another description is another version.
        let before = engine.publish(&filter).await.unwrap();
        engine.expire(&filter, Some(u64::MAX / 2)).await.unwrap();
        let described = engine.publish(&filter).await.unwrap();
        assert_eq!((described.number, described.digest()), (before.number + 1, before.digest()));
    });
}

#[test]
fn little_is_read_to_publish_little() {
    block_on(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let large = engine.create(NewFilter::new("large", Spec::bloom(4_000_000, 0.001))).await.unwrap();
        engine.add(&large, &keys(0..100_000)).await.unwrap();
        let cost = async |what: &str| {
            let before = disk.operations();
            let version = engine.publish(&large).await.unwrap();
            println!("{what}: {} operations of the disk", disk.operations() - before);
            (disk.operations() - before, version)
        };
        let (whole, first) = cost("all of it").await;
        // Two checkpoints are kept, so it takes another one until there is nothing to write.
        engine.checkpoint().await.unwrap();
        let (nothing, same) = cost("nothing new").await;
        assert_eq!(same, first);
        engine.add(&large, &keys(200_000..200_001)).await.unwrap();
        let (little, second) = cost("one key").await;
        assert!(first.chunks().count() > 20 && nothing * 4 < whole && little * 2 < whole);
        assert_eq!(assembled(&engine, &second).await[0].digest(), digests_of(&large)[0]);

        // A chunk that was removed is not taken for one that is there.
        engine.keep_versions(large.id(), &[]).await.unwrap();
        assert_eq!(engine.chunk(large.id(), first.chunks().next().unwrap()).await.unwrap(), None);
        let third = engine.publish(&large).await.unwrap();
        assert_eq!((third.number, third.digest()), (1, second.digest()), "it begins anew");
        assert_eq!(assembled(&engine, &third).await[0].digest(), digests_of(&large)[0]);
    });
}
