//! Filters of other systems, recorded from the originals: same answers for every key, and the same bytes when the same
//! keys are added here.

mod common;

use common::{fixture, manifest, numbers, read};
use serde_json::Value;
use umbel_filter::format::{guava, redisbloom, redisson};
use umbel_filter::{Filter, Layout, Limits, Spec};

fn item(i: u64) -> Vec<u8> {
    format!("item:{i}").into_bytes()
}

fn long(i: u64) -> Vec<u8> {
    i.to_le_bytes().to_vec()
}

fn add(filter: &Filter, keys: impl Iterator<Item = Vec<u8>>) {
    keys.for_each(|key| {
        filter.insert(key).unwrap();
    });
}

/// Every key that was put in is there, and of the others just those that the original mistook.
fn check_answers(filter: &Filter, key: fn(u64) -> Vec<u8>, items: u64, false_positives: &Value) {
    assert!((0..items).all(|i| filter.contains(key(i))));
    let ours: Vec<u64> = (100_000..120_000).filter(|i| filter.contains(key(*i))).collect();
    assert_eq!(ours, numbers(false_positives));

    let keys: Vec<Vec<u8>> = (0..items).chain(100_000..120_000).map(key).collect();
    let mut answers = Vec::new();
    filter.contains_batch(&keys, &mut answers);
    assert!(keys.iter().zip(&answers).all(|(key, answer)| filter.contains(key) == *answer));
}

#[test]
fn guava_filters_answer_as_guava_does() {
    let recorded = manifest("guava");
    assert_eq!(recorded.len(), 5);
    for entry in recorded {
        let bytes = read(&format!("guava/{}", entry["file"].as_str().unwrap()));
        let filter = guava::read(&bytes[..], &Limits::default()).unwrap();
        let key = if entry["funnel"] == "longFunnel" { long } else { item };
        let items = entry["items"].as_u64().unwrap();
        check_answers(&filter, key, items, &entry["false_positives"]);

        let mut written = Vec::new();
        guava::write(&filter, &mut written).unwrap();
        assert_eq!(written, bytes);

        // The same keys added to a filter of our own give the same bytes.
        let layout = if entry["strategy_ordinal"] == 0 { Layout::Guava32 } else { Layout::Guava };
        let (capacity, error) =
            (entry["expected_insertions"].as_u64().unwrap(), entry["fpp"].as_f64().unwrap());
        let ours = Filter::new(&Spec::hosted(layout, capacity, error), &Limits::default()).unwrap();
        add(&ours, (0..items).map(key));
        let mut written = Vec::new();
        guava::write(&ours, &mut written).unwrap();
        assert_eq!(written, bytes, "{}", entry["file"]);
    }
}

#[test]
fn redisson_filters_answer_as_redisson_does() {
    let recorded = manifest("redisson");
    assert_eq!(recorded.len(), 2);
    for entry in recorded {
        let config = redisson::Config {
            size: entry["size"].as_u64().unwrap(),
            hash_iterations: entry["hashIterations"].as_u64().unwrap() as u32,
            expected_insertions: entry["expectedInsertions"].as_u64().unwrap(),
            false_probability: entry["falseProbability"].as_f64().unwrap(),
        };
        let bytes = read(&format!("redisson/{}", entry["file"].as_str().unwrap()));
        let filter = redisson::read(&config, &bytes[..], &Limits::default()).unwrap();
        let items = entry["items"].as_u64().unwrap();
        check_answers(&filter, item, items, &entry["false_positives"]);
        assert_eq!(redisson::config(&filter).unwrap(), config);

        let spec = Spec::hosted(Layout::Redisson, config.expected_insertions, config.false_probability);
        let ours = Filter::new(&spec, &Limits::default()).unwrap();
        assert_eq!(redisson::config(&ours).unwrap(), config);
        add(&ours, (0..items).map(item));
        for filter in [&filter, &ours] {
            let mut written = Vec::new();
            redisson::write(filter, &mut written).unwrap();
            // Redis cuts zeros off the end that were never written.
            assert_eq!(written.len() as u64, config.size.div_ceil(8));
            assert!(written[bytes.len()..].iter().all(|byte| *byte == 0));
            assert_eq!(written[..bytes.len()], bytes);
        }
    }
}

/// Records of a recorded SCANDUMP: cursor, length, data.
fn records(name: &str) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(fixture(name)).unwrap();
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap());
        let (cursor, length) = (word(0), word(8) as usize);
        records.push((cursor, rest[16..16 + length].to_vec()));
        rest = &rest[16 + length..];
    }
    records
}

#[test]
fn redisbloom_filters_answer_as_redisbloom_does() {
    for (name, items, spec) in [
        ("rb_nonscaling", 9000, Spec::hosted(Layout::RedisBloom { expansion: None }, 10_000, 0.001)),
        ("rb_default", 250, Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 100, 0.01)),
    ] {
        let recorded = records(&format!("redisbloom/{name}.scandump"));
        let mut loader = redisbloom::Loader::new(&recorded[0].1, &Limits::default()).unwrap();
        for (cursor, chunk) in &recorded[1..] {
            loader.load(*cursor, chunk).unwrap();
        }
        let loaded = loader.finish().unwrap();
        assert_eq!(*loaded.spec(), spec);
        let entry = manifest("redisbloom").into_iter().find(|entry| entry["name"] == name).unwrap();
        check_answers(&loaded, item, items, &entry["fp_in_item_100000_119999"]);

        // A chain of our own grows the same links and sets the same bits.
        let ours = Filter::new(&spec, &Limits::default()).unwrap();
        add(&ours, (0..items).map(item));
        for filter in [loaded, ours] {
            let written: Vec<_> = redisbloom::chunks(&filter).map(Result::unwrap).collect();
            assert_eq!(written, recorded, "{name}");
        }
    }
}

#[test]
fn a_chain_that_may_not_grow_refuses_when_full() {
    let spec = Spec::hosted(Layout::RedisBloom { expansion: None }, 50, 0.01);
    let filter = Filter::new(&spec, &Limits::default()).unwrap();
    let keys: Vec<_> = (0..100).map(item).collect();
    let mut new = Vec::new();
    let error = filter.insert_batch(&keys, &mut new).unwrap_err();
    assert!(error.to_string().contains("50"), "{error}");
    assert_eq!(new.iter().filter(|new| **new).count(), 50);
    assert!(keys[..new.len()].iter().all(|key| filter.contains(key)));
    assert!(filter.insert(&keys[0]).is_ok(), "what is there can be added again");
}

#[test]
fn a_chain_grows_within_its_limits_and_keeps_every_key() {
    let spec = Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 100, 0.01);
    let limits = Limits { filter_bytes_max: 10_000, chain_links_max: 100 };
    let mut filter = Filter::new(&spec, &limits).unwrap();
    let mut added = 0;
    let error = loop {
        match filter.insert(item(added)) {
            Ok(_) => added += 1,
            Err(error) => break error,
        }
    };
    assert!(added > 1000 && error.to_string().contains("limit"), "{added}: {error}");
    assert!((0..added).all(|i| filter.contains(item(i))));
    filter.clear().unwrap();
    assert!(!(0..added).any(|i| filter.contains(item(i))));
    assert!(filter.insert(item(0)).unwrap());
}
