//! Runs give back what was written and merged, whatever pages it falls on.

#[path = "archive/damage.rs"]
mod damage;
#[path = "archive/support.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use proptest::prelude::*;
use support::{Model, Nets, Random, Watched, in_memory, key, scanned, tallies, write};
use umbel_core::Error;
use umbel_core::archive::{Cover, Run, RunWriter, Tally, describe, inspect, merge, merged, tally};
use umbel_core::limits::{RUNS_MERGED_MAX, UPLOAD_PART_BYTES};
use umbel_filter::Fingerprint;

fn cover(low: u64, high: u64) -> Cover {
    Cover { low, high, slot: 3 }
}

/// Runs a future to its end; that it can move between threads is part of what is tested.
fn wait<T>(future: impl Future<Output = T> + Send) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Models of neighbouring runs. Filters with odd ids have counts.
fn models(seed: u64, runs: usize, firsts: u64) -> Vec<Model> {
    let mut random = Random(seed);
    let mut model = || {
        let mut model = Model::new();
        for _ in 0..1 + random.below(4) {
            let filter = 1 + random.below(5);
            let count = [1, 203, 204, 205, 255, 256, 700, 2500][random.below(8) as usize];
            let nets = random.nets(filter % 2 == 1, count, firsts);
            if !nets.is_empty() {
                model.insert(filter, (filter % 2 == 1, nets));
            }
        }
        model
    };
    (0..runs).map(|_| model()).collect()
}

/// What several runs come to for a filter, from the naive side.
fn summed<'a>(models: impl Iterator<Item = &'a Model>, filter: u64) -> Nets {
    let mut sums = Nets::new();
    for (key, net) in models.filter_map(|model| model.get(&filter)).flat_map(|(_, nets)| nets) {
        *sums.entry(*key).or_default() += net;
    }
    if filter.is_multiple_of(2) {
        sums.values_mut().for_each(|net| *net = 1);
    }
    sums.retain(|_, net| *net != 0);
    sums
}

async fn agrees(run: &Run, model: &Model, random: &mut Random) {
    let sections: Vec<_> = run.filters().collect();
    let expected: Vec<_> =
        model.iter().map(|(filter, (counted, nets))| (*filter, *counted, nets.len() as u64)).collect();
    assert_eq!(sections, expected);
    for filter in 0..8 {
        let none = (false, Nets::new());
        let (counted, nets) = model.get(&filter).unwrap_or(&none);
        assert_eq!(run.records(filter), nets.len() as u64);
        assert_eq!(scanned(run, filter).await.unwrap(), tallies(nets));
        if !counted {
            let (mut scan, mut keys) = (run.scan(filter), Vec::new());
            while let Some(more) = scan.next_keys().await.unwrap() {
                keys.extend_from_slice(more);
            }
            assert!(keys.iter().eq(nets.keys()));
        }
        // Those that are there, neighbours that may not be, and strangers; in no order.
        let mut asked: Vec<Fingerprint> = nets.keys().copied().collect();
        asked.extend(nets.keys().map(|there| key(there.first, there.second ^ 1)));
        asked.extend((0..50).map(|_| key(random.next(), random.next())));
        asked.extend([key(0, 0), key(u64::MAX, u64::MAX)]);
        (1..asked.len()).for_each(|i| asked.swap(i, random.below(i as u64 + 1) as usize));
        let found = run.nets(filter, &asked).await.unwrap();
        let right: Vec<_> = asked.iter().map(|key| nets.get(key).map_or(0, |net| i64::from(*net))).collect();
        assert_eq!(found, right);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_and_merges_agree_with_maps(
        seed: u64,
        runs in 1usize..5,
        firsts in prop_oneof![Just(1u64), 2u64..20, Just(1 << 40)],
        oldest_included: bool,
        cleared in (0usize..4, 1u64..6),
    ) {
        wait(async {
            let (store, mut random) = (in_memory(), Random(seed));
            let models = models(seed, runs, firsts);
            let mut inputs = Vec::new();
            for (at, model) in models.iter().enumerate() {
                let at = at as u64;
                let written = write(&store, &format!("run-{at}"), cover(at * 10, at * 10 + 9), model).await;
                written.verify().await.unwrap();
                let opened = Run::open(&store, written.path().clone()).await.unwrap();
                assert_eq!(describe(&opened), describe(&written));
                agrees(&opened, model, &mut random).await;
                inputs.push(opened);
            }
            for filter in 0..8 {
                let (mut scan, mut all) = (merged(&inputs, filter).unwrap(), Vec::new());
                while let Some(more) = scan.next().await.unwrap() {
                    all.extend_from_slice(more);
                }
                assert_eq!(all, tallies(&summed(models.iter(), filter)));
            }
            // One filter was cleared after one of the runs.
            let keep = |input: usize, filter: u64| filter != cleared.1 || input > cleared.0;
            let result = merge(&store, &inputs, keep, oldest_included, Path::from("merged")).await.unwrap();
            let mut model = Model::new();
            for filter in 1..6 {
                let kept = models.iter().enumerate().filter(|(at, _)| keep(*at, filter));
                let mut nets = summed(kept.map(|(_, model)| model), filter);
                nets.retain(|_, net| !oldest_included || *net > 0);
                if !nets.is_empty() {
                    model.insert(filter, (filter % 2 == 1, nets));
                }
            }
            assert_eq!(result.cover(), cover(0, runs as u64 * 10 - 1));
            result.verify().await.unwrap();
            agrees(&result, &model, &mut random).await;
        });
    }

    #[test]
    fn a_tally_is_a_sorted_set(
        keys in prop::collection::vec((0u64..9, any::<u64>()), 0..300),
        again in 0usize..300,
    ) {
        let mut keys: Vec<_> = keys.into_iter().map(|(first, second)| key(first << 60, second)).collect();
        keys.extend_from_within(..again.min(keys.len()));
        let expected: Vec<_> = keys.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        tally(&mut keys);
        prop_assert_eq!(keys, expected);
    }
}

fn many_keys(count: usize) -> Vec<Fingerprint> {
    let mut random = Random(count as u64);
    let mut keys: Vec<_> = (0..count).map(|_| key(random.next(), random.next())).collect();
    tally(&mut keys);
    keys
}

#[tokio::test]
async fn large_runs_go_up_in_equal_parts() {
    // The header is the first page of the first part; pages end a page before, at and behind the end of a part.
    let part_pages = UPLOAD_PART_BYTES / 4096;
    for (pages, parts) in
        [(100, 0), (part_pages - 2, 2), (part_pages - 1, 2), (part_pages, 2), (2 * part_pages + 7, 3)]
    {
        let watched = Arc::new(Watched::default());
        let store: Arc<dyn ObjectStore> = watched.clone();
        let keys = many_keys(pages * 255 - 1);
        let mut writer = RunWriter::create(&store, Path::from("run"), cover(1, 1)).unwrap();
        writer.begin(8, false).await.unwrap();
        for piece in keys.chunks(100_000) {
            writer.push_keys(piece).await.unwrap();
        }
        let run = writer.finish().await.unwrap();
        let footer = run.bytes() - (pages as u64 + 1) * 4096;
        assert_eq!(footer, 32 + 32 + 8 * pages as u64 + 16);
        let sent = watched.parts();
        assert_eq!(sent.len(), parts, "{pages} pages");
        assert!(sent.iter().rev().skip(1).all(|bytes| *bytes == UPLOAD_PART_BYTES), "{sent:?}");
        run.verify().await.unwrap();
        let opened = inspect(&store, Path::from("run")).await.unwrap();
        assert_eq!(opened, describe(&run));
        assert_eq!((opened.sections[0].pages, opened.sections[0].records), (pages as u64, keys.len() as u64));

        // One key, one page; and only the pages that are needed for many.
        let (ranges, bytes) = (watched.ranges.load(Relaxed), watched.bytes.load(Relaxed));
        let asked: Vec<_> = keys.iter().copied().step_by(2551).collect();
        assert_eq!(run.nets(8, &asked).await.unwrap(), vec![1; asked.len()]);
        let ranges = watched.ranges.load(Relaxed) - ranges;
        let bytes = watched.bytes.load(Relaxed) - bytes;
        assert!(ranges <= asked.len() as u64 + 2, "{ranges} pages for {} keys", asked.len());
        assert_eq!(bytes, ranges * 4096);
    }
}

#[tokio::test]
async fn a_failed_upload_leaves_nothing() {
    for failing_part in [1, 2, 3] {
        let watched = Arc::new(Watched::default());
        watched.failing_part.store(failing_part, Relaxed);
        let store: Arc<dyn ObjectStore> = watched.clone();
        let mut writer = RunWriter::create(&store, Path::from("run"), cover(1, 1)).unwrap();
        writer.begin(8, false).await.unwrap();
        let mut failed = None;
        for piece in many_keys(1_200_000).chunks(50_000) {
            if let Err(error) = writer.push_keys(piece).await {
                failed = Some(error);
                break;
            }
        }
        if failed.is_some() {
            assert_eq!(watched.aborts.load(Relaxed), 1, "it does not wait for the writer's end");
            let again = writer.push_keys(&[key(u64::MAX, u64::MAX)]).await.unwrap_err();
            assert!(matches!(&again, Error::Invalid(why) if why.contains("failure")), "{again}");
        }
        let last = writer.finish().await.unwrap_err();
        let error = failed.unwrap_or(last);
        assert!(
            matches!(&error, Error::Retry(why) if why.contains("run") && why.contains("space")),
            "{error}"
        );
        assert_eq!((watched.uploads.load(Relaxed), watched.aborts.load(Relaxed)), (1, 1));
        assert!(store.head(&Path::from("run")).await.is_err());
    }
}

#[tokio::test]
async fn what_cannot_stand_in_a_run_is_refused() {
    let store = in_memory();
    assert!(matches!(RunWriter::create(&store, Path::from("run"), cover(2, 1)), Err(Error::Invalid(_))));
    let mut writer = RunWriter::create(&store, Path::from("run"), cover(1, 1)).unwrap();
    let one = |first, net| Tally { key: key(first, 0), net };
    let refuses =
        |result: umbel_core::Result<()>| assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    refuses(writer.push(&[one(1, 1)]).await);
    writer.begin(5, true).await.unwrap();
    writer.push(&[one(5, 1)]).await.unwrap();
    writer.push(&[]).await.unwrap();
    refuses(writer.push(&[one(5, 1)]).await);
    refuses(writer.push(&[one(4, 1)]).await);
    refuses(writer.push(&[one(6, 1), one(6, 1)]).await);
    refuses(writer.push(&[one(7, 1), one(6, 1)]).await);
    refuses(writer.push(&[one(6, 0)]).await);
    refuses(writer.push_keys(&[key(6, 0)]).await);
    writer.push(&[one(6, -4)]).await.unwrap();
    refuses(writer.begin(5, true).await);
    refuses(writer.begin(4, true).await);
    writer.begin(6, true).await.unwrap();
    writer.begin(7, false).await.unwrap();
    refuses(writer.push(&[one(1, 2)]).await);
    refuses(writer.push(&[one(1, -1)]).await);
    writer.push(&[one(1, 1)]).await.unwrap();
    let run = writer.finish().await.unwrap();
    assert_eq!(
        run.filters().collect::<Vec<_>>(),
        [(5, true, 2), (7, false, 1)],
        "what was refused changed nothing"
    );
    assert_eq!(scanned(&run, 5).await.unwrap(), [one(5, 1), one(6, -4)]);
    assert!(matches!(run.scan(5).next_keys().await, Err(Error::Invalid(_))));
    run.verify().await.unwrap();

    let empty = RunWriter::create(&store, Path::from("empty"), cover(1, 1)).unwrap().finish().await.unwrap();
    assert_eq!(inspect(&store, Path::from("empty")).await.unwrap(), describe(&empty));
    assert_eq!(empty.nets(1, &[key(1, 1)]).await.unwrap(), [0]);
    assert!(matches!(Run::open(&store, Path::from("nothing")).await, Err(Error::Corrupt(_))));
}

#[tokio::test]
async fn what_cannot_be_merged_is_refused() {
    let store = in_memory();
    let model = |counted| Model::from([(1, (counted, Nets::from([(key(1, 1), 1)])))]);
    let first = write(&store, "first", cover(1, 5), &model(true)).await;
    let second = write(&store, "second", cover(6, 6), &model(true)).await;
    let overlapping = write(&store, "overlapping", cover(5, 6), &model(true)).await;
    let elsewhere = write(&store, "elsewhere", Cover { slot: 4, ..cover(6, 6) }, &model(true)).await;
    let other_kind = write(&store, "other_kind", cover(6, 6), &model(false)).await;
    let merge = async |inputs: &[&Run]| {
        let inputs: Vec<Run> = inputs.iter().map(|run| (*run).clone()).collect();
        merge(&store, &inputs, |_, _| true, true, Path::from("merged")).await
    };
    for inputs in
        [&[][..], &[&first, &overlapping], &[&second, &first], &[&first, &elsewhere], &[&first, &other_kind]]
    {
        let error = merge(inputs).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    assert!(merged(&vec![first.clone(); RUNS_MERGED_MAX + 1], 1).is_err());
    let both = merge(&[&first, &second]).await.unwrap();
    assert_eq!((both.low(), both.high(), both.slot()), (1, 6, 3));
    assert_eq!(both.nets(1, &[key(1, 1), key(1, 2)]).await.unwrap(), [2, 0]);

    // A damaged input stops the merge, and nothing comes of it.
    store.delete(&Path::from("merged")).await.unwrap();
    let mut bytes = store.get(second.path()).await.unwrap().bytes().await.unwrap().to_vec();
    bytes[4096 + 100] ^= 1;
    store.put(second.path(), bytes.into()).await.unwrap();
    let error = merge(&[&first, &second]).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt(why) if why.starts_with("second at byte 4096")), "{error}");
    assert!(store.head(&Path::from("merged")).await.is_err());
}
