//! Filters that come from elsewhere and go there: import, dump, load, project.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::Either;
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::{Answer, Engine, Handle, Loader, NewFilter, Settings, is_dump};
use umbel_core::log::MemoryLog;
use umbel_core::random::{Random, SeededRandom};
use umbel_core::{Error, Result};
use umbel_filter::{Family, Filter, Fingerprint, Layout, Limits, Spec};

use crate::slow::SlowLog;
use crate::world::{
    PARTITIONS, absent, everywhere, keys, open, open_on, open_with, reopened, run, settings, settle,
};

fn specs() -> Vec<Spec> {
    let chain = Layout::RedisBloom { expansion: Some(2) };
    vec![
        Spec::bloom(40_000, 0.01),
        Spec::counting(20_000, 0.01),
        Spec::hosted(Layout::Guava, 40_000, 0.01),
        Spec::hosted(Layout::Guava32, 40_000, 0.01),
        Spec::hosted(Layout::Redisson, 40_000, 0.01),
        Spec::hosted(chain, 5_000, 0.01),
    ]
}

/// A filter with 30,000 keys, more than some were made for.
fn filled(spec: &Spec) -> Filter {
    let mut filter = Filter::new(spec, &Limits::default()).unwrap();
    filter.fill_fingerprints(&keys(0..30_000)).unwrap();
    filter
}

fn answers(filter: &Filter, keys: &[Fingerprint]) -> Vec<bool> {
    keys.iter().map(|key| filter.contains_fingerprint(*key)).collect()
}

async fn maybes(engine: &Engine, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Vec<bool> {
    let answers = engine.contains(filter, keys, None).await.unwrap();
    answers.into_iter().map(|answer| answer == Answer::Maybe).collect()
}

#[test]
fn an_imported_filter_answers_as_it_did_and_grows() {
    run(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let asked = [keys(0..2_000), keys(1_000_000..1_020_000)].concat();
        for (number, spec) in specs().iter().enumerate() {
            let filter = filled(spec);
            let expected = answers(&filter, &asked);
            let name = format!("imported {number}");
            let imported = engine.import(NewFilter::new(&name, *spec), filter).await.unwrap();
            assert_eq!(imported.definition().name, name);
            assert!(imported.items().abs_diff(30_000) < 3_000, "{spec:?}: {}", imported.items());
            assert_eq!(maybes(&engine, &imported, &asked).await, expected, "{spec:?}");
            if number % 2 == 0 {
                engine.checkpoint().await.unwrap();
            }
            engine = reopened(engine, &disk).await;
            let imported = engine.filter(&name).unwrap();
            assert_eq!(maybes(&engine, &imported, &asked).await, expected, "{spec:?} after a restart");
            let taken = engine.import(NewFilter::new(&name, *spec), filled(spec)).await;
            assert!(matches!(taken, Err(Error::Invalid(_))));

            for start in (30_000..90_000).step_by(10_000) {
                let written = engine.add(&imported, &keys(start..start + 10_000)).await.unwrap();
                assert!(written.refused.is_none());
            }
            engine = reopened(engine, &disk).await;
            let imported = engine.filter(&name).unwrap();
            assert_eq!(absent(&engine, &imported, &keys(0..90_000)).await, 0, "{spec:?} after it grew");
            assert!(absent(&engine, &imported, &keys(1_000_000..1_010_000)).await > 9_300, "{spec:?}");
            engine.drop_filter(&imported).await.unwrap();
        }
        assert!(engine.filters().is_empty());
        assert_eq!(engine.budget().used(), 0);
    });
}

#[test]
fn a_full_filter_stays_as_it_came_until_its_first_key() {
    let specs = [Spec::bloom(30_000, 0.01), Spec::hosted(Layout::Guava, 30_000, 0.01)];
    run(async {
        let disk = MemoryDisk::default();
        let log = Arc::new(SlowLog::new(Arc::new(MemoryLog::new(PARTITIONS))));
        let engine = open_on(&disk, log, settings(), 1).await.unwrap();
        for (number, spec) in specs.iter().enumerate() {
            let (name, filter) = (format!("full {number}"), filled(spec));
            let digest = filter.digest();
            // Growth gets its turn at every step of the import, as its thread does in a server.
            let background = async {
                loop {
                    engine.maintain().await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let import = pin!(engine.import(NewFilter::new(&name, *spec), filter));
            let imported = match futures_util::future::select(import, pin!(background)).await {
                Either::Left((imported, _)) => imported.unwrap(),
                Either::Right((never, _)) => never,
            };
            settle(&engine).await.unwrap();
            let exported = engine.project(&imported, *spec).await.unwrap();
            assert_eq!(exported.digest(), digest, "{spec:?} goes back as it came");
            assert_eq!(imported.definition().generation, 0);

            engine.add(&imported, &keys(30_000..31_000)).await.unwrap();
            settle(&engine).await.unwrap();
            assert!(imported.definition().spec.capacity > 30_000, "{spec:?}");
            assert_eq!(absent(&engine, &imported, &keys(0..31_000)).await, 0);
        }
    });
}

#[test]
fn an_import_without_memory_is_refused_before_anything_is_written() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open_with(&disk, Settings { memory_bytes: 40 << 10, ..settings() }).await.unwrap();
        let before = engine.token();
        let refused = engine.import(NewFilter::new("f", specs()[0]), filled(&specs()[0])).await.unwrap_err();
        assert!(matches!(&refused, Error::Retry(why) if why.contains("of 40960 are in use")), "{refused}");
        assert_eq!(engine.token(), before);
    });
}

type Chunks = Vec<(u64, Vec<u8>)>;

async fn dumped(engine: &Engine, filter: &Arc<Handle>) -> Chunks {
    let (mut chunks, mut cursor) = (Chunks::new(), 0);
    loop {
        let (next, bytes) = engine.dump(filter, cursor).await.unwrap();
        assert!(bytes.len() <= 4 << 20 && i64::try_from(next).is_ok());
        if next == 0 {
            assert!(bytes.is_empty());
            return chunks;
        }
        chunks.push((next, bytes.to_vec()));
        cursor = next;
    }
}

fn loaded(engine: &Engine, chunks: &Chunks) -> Result<Loader> {
    let (cursor, header) = &chunks[0];
    assert_eq!(*cursor, 1);
    let mut loader = Loader::new(header, engine)?;
    for (cursor, chunk) in &chunks[1..] {
        assert!(!loader.is_complete());
        loader.load(*cursor, chunk)?;
    }
    Ok(loader)
}

#[test]
fn a_dump_is_the_filter() {
    run(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let asked = [keys(0..2_000), keys(1_000_000..1_020_000)].concat();
        let mut makes: Vec<NewFilter> = specs().into_iter().map(|spec| NewFilter::new("", spec)).collect();
        makes.push(everywhere("", Spec::bloom(1_000_000, 0.0001)));
        makes.push(NewFilter { retain: false, ..everywhere("", Spec::counting(4_000, 0.01)) });
        for (number, new) in makes.into_iter().enumerate() {
            let (name, copy) = (format!("f{number}"), format!("copy {number}"));
            let source = engine.create(NewFilter { name, ..new }).await.unwrap();
            for start in (0..30_000).step_by(5_000) {
                engine.add(&source, &keys(start..start + 5_000)).await.unwrap();
            }
            engine.unload(&source).await.unwrap();
            let expected = maybes(&engine, &source, &asked).await;
            let chunks = dumped(&engine, &source).await;
            assert!(is_dump(&chunks[0].1) && !is_dump(&chunks[1].1));
            let loader = loaded(&engine, &chunks).unwrap();
            assert!(loader.is_complete());
            let restored = engine.import_loaded(&copy, loader).await.unwrap();
            assert_eq!(restored.items(), source.items());
            assert_eq!(restored.definition().shards, source.definition().shards);
            engine = reopened(engine, &disk).await;
            let restored = engine.filter(&copy).unwrap();
            assert_eq!(maybes(&engine, &restored, &asked).await, expected, "{:?}", restored.definition());
            engine.add(&restored, &keys(30_000..60_000)).await.unwrap();
            assert_eq!(absent(&engine, &restored, &keys(0..60_000)).await, 0);
            engine.drop_filter(&restored).await.unwrap();
        }
    });
}

#[test]
fn an_imported_filter_with_shards_can_be_cleared() {
    run(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let source = engine.create(everywhere("source", Spec::bloom(4_000, 0.01))).await.unwrap();
        engine.add(&source, &keys(0..2_000)).await.unwrap();
        let loader = loaded(&engine, &dumped(&engine, &source).await).unwrap();
        engine.import_loaded("copy", loader).await.unwrap();
        for _ in 0..2 {
            let copy = engine.filter("copy").unwrap();
            engine.clear(&copy).await.unwrap();
            assert_eq!(absent(&engine, &copy, &keys(0..2_000)).await, 2_000);
            engine.add(&copy, &keys(0..2_000)).await.unwrap();
            engine = reopened(engine, &disk).await;
            let copy = engine.filter("copy").unwrap();
            assert_eq!(absent(&engine, &copy, &keys(0..2_000)).await, 0);
        }
    });
}

#[test]
fn an_import_that_returned_survives_a_power_cut() {
    run(async {
        for seed in 0..20 {
            let disk = MemoryDisk::default();
            let engine = open(&disk).await.unwrap();
            let source = engine.create(everywhere("source", Spec::bloom(4_000, 0.01))).await.unwrap();
            engine.add(&source, &keys(0..2_000)).await.unwrap();
            let loader = loaded(&engine, &dumped(&engine, &source).await).unwrap();
            engine.import_loaded("copy", loader).await.unwrap();
            let engine = open(&disk.after_power_cut(seed)).await.unwrap();
            let copy = engine.filter("copy").unwrap();
            assert_eq!(absent(&engine, &copy, &keys(0..2_000)).await, 0, "seed {seed}");
        }
    });
}

#[test]
fn a_dump_ends_when_the_filter_changes_its_size() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        for retain in [true, false] {
            let name = format!("{retain}");
            let new = NewFilter { retain, ..NewFilter::new(name, Spec::bloom(4_000_000, 0.01)) };
            let filter = engine.create(new).await.unwrap();
            let (cursor, _) = engine.dump(&filter, 1).await.unwrap();
            engine.dump(&filter, cursor).await.unwrap();
            engine.resize(&filter, 5_000_000, 0.01).await.unwrap();
            let refused = engine.dump(&filter, cursor).await.unwrap_err().to_string();
            assert!(refused.contains("changed its size"), "{refused}");
            for odd in [2, 77, u64::MAX, u64::MAX >> 1, 1 << 40] {
                assert!(engine.dump(&filter, odd).await.is_err(), "{odd}");
            }
            engine.drop_filter(&filter).await.unwrap();
        }
    });
}

#[test]
fn damaged_dumps_are_refused() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let random = SeededRandom::new(7);
        let chain = Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 500, 0.01);
        for new in [everywhere("a", Spec::bloom(3_000, 0.01)), NewFilter::new("b", chain)] {
            let filter = engine.create(new).await.unwrap();
            engine.add(&filter, &keys(0..2_000)).await.unwrap();
            let chunks = dumped(&engine, &filter).await;
            for case in 0..4_000_u64 {
                let mut damaged = chunks.clone();
                let at = (random.next() % damaged.len() as u64) as usize;
                let chunk = &mut damaged[at].1;
                let byte = (random.next() % chunk.len() as u64) as usize;
                if case % 4 == 0 {
                    chunk.truncate(byte);
                } else {
                    chunk[byte] ^= 1 << (random.next() % 8);
                }
                assert!(loaded(&engine, &damaged).is_err(), "case {case}");
            }
            for case in 0..2_000_u64 {
                // Whoever damages it can make the sums right.
                let mut header = chunks[0].1.clone();
                for _ in 0..=case % 3 {
                    let byte = 8 + (random.next() % (header.len() as u64 - 12)) as usize;
                    header[byte] = random.next() as u8;
                }
                let end = header.len() - 4;
                let sum = crc32c::crc32c(&header[..end]).to_le_bytes();
                header[end..].copy_from_slice(&sum);
                if let Ok(mut loader) = Loader::new(&header, &engine) {
                    for (cursor, chunk) in &chunks[1..] {
                        let _ = loader.load(*cursor, chunk);
                        let _ = loader.load(random.next(), chunk);
                    }
                }
            }
            let mut loader = Loader::new(&chunks[0].1, &engine).unwrap();
            assert!(!loader.is_complete());
            assert!(loader.load(chunks[1].0 + 64, &chunks[1].1).is_err());
            assert!(matches!(engine.import_loaded("half", loader).await, Err(Error::Invalid(_))));
            assert!(engine.filter("half").is_none());
            engine.drop_filter(&filter).await.unwrap();
        }
        assert_eq!(engine.budget().used(), 0);
    });
}

#[test]
fn a_filter_is_projected_into_any_layout_of_its_family() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let source = engine.create(everywhere("source", Spec::counting(10_000, 0.01))).await.unwrap();
        engine.add(&source, &keys(0..5_000)).await.unwrap();
        engine.checkpoint().await.unwrap();
        engine.remove(&source, &keys(0..1_000)).await.unwrap();
        engine.add(&source, &keys(4_500..6_000)).await.unwrap();
        for spec in [
            Spec::hosted(Layout::Guava, 10_000, 0.001),
            Spec::bloom(10_000, 0.001),
            Spec::counting(10_000, 0.001),
        ] {
            let projected = engine.project(&source, spec).await.unwrap();
            assert_eq!(projected.spec(), &spec);
            // Nothing but the keys makes it what it is.
            let mut expected = Filter::new(&spec, &Limits::default()).unwrap();
            expected.fill_fingerprints(&keys(1_000..6_000)).unwrap();
            if spec.kind != umbel_filter::Kind::Bloom {
                expected.fill_fingerprints(&keys(4_500..5_000)).unwrap();
            }
            assert_eq!(projected.digest(), expected.digest(), "{spec:?}");
        }
        let other = engine.project(&source, Spec::bloom(10_000, 0.001).family(Family::Xxh3)).await;
        assert!(matches!(other, Err(Error::Invalid(_))));
        let small = engine.project(&source, Spec::bloom(4_000_000_000, 0.001)).await;
        assert!(matches!(small, Err(Error::Retry(_))), "{small:?}");

        let spec = Spec::hosted(Layout::Guava, 40_000, 0.01);
        let (filter, digest) = (filled(&spec), filled(&spec).digest());
        let imported = engine.import(NewFilter::new("imported", spec), filter).await.unwrap();
        assert_eq!(engine.project(&imported, spec).await.unwrap().digest(), digest);
        assert!(engine.project(&imported, Spec::bloom(40_000, 0.01)).await.is_err());
    });
}

/// Filters that are made at the same time do not all count on the same room.
#[test]
fn concurrent_creations_and_imports_stay_within_the_memory() {
    let settings = || Settings { memory_bytes: 4 << 20, ..settings() };
    let open = async || {
        let log = Arc::new(SlowLog::new(Arc::new(MemoryLog::new(PARTITIONS))));
        let blobs = Arc::new(object_store::memory::InMemory::new());
        Engine::builder(settings()).with_log(log).with_blobs(blobs).open().await.unwrap()
    };
    // About three MiB each.
    let spec = Spec::bloom(2_500_000, 0.01);
    run(async {
        let engine = open().await;
        for sharded in [false, true] {
            let made = (0..3).map(|number| {
                let name = format!("{sharded} {number}");
                engine.create(if sharded { everywhere(&name, spec) } else { NewFilter::new(name, spec) })
            });
            let made = futures_util::future::join_all(made).await;
            assert!(made.iter().any(Result::is_ok), "{made:?}");
            assert!(engine.budget().peak() <= engine.budget().limit(), "{} bytes", engine.budget().peak());
        }
    });
    run(async {
        let engine = open().await;
        let imported = (0..3).map(|number| {
            let array = Filter::new(&spec, &Limits::default()).unwrap();
            engine.import(NewFilter::new(format!("i {number}"), spec), array)
        });
        let imported = futures_util::future::join_all(imported).await;
        assert!(imported.iter().any(Result::is_ok), "{imported:?}");
        assert!(engine.budget().used() <= engine.budget().limit(), "{} bytes", engine.budget().used());
        // While one is filled, its first array and the one that it takes are both there for a moment.
        assert!(engine.budget().peak() <= 2 * engine.budget().limit(), "{} bytes", engine.budget().peak());
    });
}

#[test]
fn what_is_replaced_answers_until_the_other_one_is_whole() {
    run(async {
        let disk = MemoryDisk::default();
        let engine = open(&disk).await.unwrap();
        let source = engine.create(everywhere("source", Spec::bloom(4_000, 0.01))).await.unwrap();
        engine.add(&source, &keys(0..2_000)).await.unwrap();
        let old = engine.create(NewFilter::new("f", Spec::bloom(4_000, 0.01))).await.unwrap();
        engine.add(&old, &keys(5_000..7_000)).await.unwrap();
        let chunks = dumped(&engine, &source).await;
        let whole = || loaded(&engine, &chunks).unwrap();
        assert!(matches!(engine.restore_loaded("f", None, false, whole()).await, Err(Error::Invalid(_))));
        let half = loaded(&engine, &chunks[..1].to_vec()).unwrap();
        assert!(matches!(engine.restore_loaded("f", None, true, half).await, Err(Error::Invalid(_))));
        assert_eq!(absent(&engine, &engine.filter("f").unwrap(), &keys(5_000..7_000)).await, 0);
        let restored = engine.restore_loaded("f", Some(u64::MAX - 1), true, whole()).await.unwrap();
        assert_eq!(restored.definition().expires, Some(u64::MAX - 1));
        for engine in [engine, open(&disk.after_power_cut(1)).await.unwrap()] {
            let now = engine.filter("f").unwrap();
            assert_eq!(now.id(), restored.id());
            assert_eq!(absent(&engine, &now, &keys(0..2_000)).await, 0);
            assert_eq!(engine.filters().len(), 2, "the old one is gone, and nothing else is left");
        }
    });
}
