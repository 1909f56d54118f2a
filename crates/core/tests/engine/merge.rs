//! Unions of filters, and what can be told of them.

use umbel_core::Error;
use umbel_core::disk::MemoryDisk;
use umbel_core::engine::NewFilter;
use umbel_filter::{Family, Filter, Layout, Limits, Spec};

use crate::world::{absent, everywhere, keys, open, reopened, run};

#[test]
fn a_union_holds_the_keys_of_all() {
    run(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        let bloom = engine.create(NewFilter::new("bloom", Spec::bloom(10_000, 0.01))).await.unwrap();
        let counting = engine.create(everywhere("counting", Spec::counting(10_000, 0.01))).await.unwrap();
        engine.add(&bloom, &keys(0..4_000)).await.unwrap();
        engine.add(&counting, &keys(3_000..6_000)).await.unwrap();
        engine.checkpoint().await.unwrap();
        engine.add(&bloom, &keys(4_000..5_000)).await.unwrap();
        engine.add(&counting, &keys(3_000..3_100)).await.unwrap();
        engine.remove(&counting, &keys(5_500..6_000)).await.unwrap();

        // They grow while they take in more than they were made for.
        let kinds = [Spec::bloom(100, 0.01), Spec::counting(100, 0.01)];
        for (number, spec) in kinds.into_iter().enumerate() {
            for (name, new) in [
                (format!("whole {number}"), NewFilter::new("", spec)),
                (format!("sharded {number}"), everywhere("", spec)),
                (format!("layers {number}"), NewFilter { retain: false, ..NewFilter::new("", spec) }),
            ] {
                let into = engine.create(NewFilter { name: name.clone(), ..new }).await.unwrap();
                let from = [bloom.clone(), into.clone(), counting.clone()];
                let new = engine.merge(&into, &from).await.unwrap();
                assert!(new.abs_diff(5_500) < 150, "{name}: {new}");
                assert_eq!(absent(&engine, &into, &keys(0..5_500)).await, 0, "{name}");
                assert!(absent(&engine, &into, &keys(100_000..110_000)).await > 9_700, "{name}");
                if into.definition().retain {
                    let counts = engine.verify(&into, &keys(0..6_000)).await.unwrap();
                    let expected = |n: u64| match (number, n) {
                        (_, 5_500..) => 0,
                        (0, _) => 1,
                        (_, _) => {
                            u64::from(n < 5_000)
                                + u64::from(n >= 3_000)
                                + u64::from((3_000..3_100).contains(&n))
                        }
                    };
                    assert!((0..).zip(counts).all(|(n, count)| count == expected(n)), "{name}");
                }
            }
        }
        engine = reopened(engine, &disk).await;
        for filter in engine.filters().iter().filter(|filter| filter.definition().name.contains(' ')) {
            assert_eq!(absent(&engine, filter, &keys(0..5_500)).await, 0);
        }
        let other = NewFilter::new("other", Spec::bloom(100, 0.01).family(Family::Xxh3));
        let other = engine.create(other).await.unwrap();
        let bloom = engine.filter("bloom").unwrap();
        assert!(matches!(engine.merge(&other, &[bloom]).await, Err(Error::Invalid(_))));
    });
}

#[test]
fn bits_are_joined_where_keys_are_not_known() {
    run(async {
        let disk = MemoryDisk::default();
        let mut engine = open(&disk).await.unwrap();
        for (number, layout) in [Layout::Blocked, Layout::Guava, Layout::Redisson].into_iter().enumerate() {
            let spec = Spec::hosted(layout, 20_000, 0.01);
            let name = |part: &str| format!("{part} {number}");
            for (part, some) in [("a", 0..5_000), ("b", 4_000..9_000)] {
                let mut filter = Filter::new(&spec, &Limits::default()).unwrap();
                filter.fill_fingerprints(&keys(some)).unwrap();
                engine.import(NewFilter::new(name(part), spec), filter).await.unwrap();
            }
            let [a, b] = ["a", "b"].map(|part| engine.filter(&name(part)).unwrap());
            let new = engine.merge(&a, &[b]).await.unwrap();
            assert!(new.abs_diff(4_000) < 200 && a.items().abs_diff(9_000) < 400, "{new}");
            let mut expected = Filter::new(&spec, &Limits::default()).unwrap();
            expected.fill_fingerprints(&keys(0..9_000)).unwrap();
            for _ in 0..2 {
                let a = engine.filter(&name("a")).unwrap();
                assert_eq!(engine.project(&a, spec).await.unwrap().digest(), expected.digest());
                engine = reopened(engine, &disk).await;
            }
        }
        let bare = |name: &str, spec| NewFilter { retain: false, ..NewFilter::new(name, spec) };
        let a = engine.filter("a 0").unwrap();
        for new in [
            bare("larger", Spec::bloom(30_000, 0.01)),
            bare("counting", Spec::counting(20_000, 0.01)),
            bare("guava", Spec::hosted(Layout::Guava, 20_000, 0.01)),
            NewFilter { retain: false, ..everywhere("sharded", Spec::bloom(20_000, 0.01)) },
            NewFilter::new("keeps its keys", Spec::bloom(20_000, 0.01)),
        ] {
            let into = engine.create(new).await.unwrap();
            let refused = engine.merge(&into, std::slice::from_ref(&a)).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{:?}", into.definition());
            assert_eq!(into.items(), 0);
        }
    });
}

#[test]
fn stats_are_near_the_truth() {
    run(async {
        let engine = open(&MemoryDisk::default()).await.unwrap();
        let chain = Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 1_000, 0.01);
        for (new, layers) in [
            (NewFilter::new("whole", Spec::bloom(3_000_000, 0.001)), 1),
            (everywhere("sharded", Spec::counting(200_000, 0.01)), 1),
            (NewFilter { retain: false, ..NewFilter::new("layers", Spec::bloom(1_000, 0.01)) }, 2),
            (NewFilter::new("chain", chain), 2),
        ] {
            let filter = engine.create(new).await.unwrap();
            for start in (0..4_000).step_by(500) {
                engine.add(&filter, &keys(start..start + 500)).await.unwrap();
            }
            let stats = filter.stats();
            assert!(stats.items.abs_diff(4_000) < 60, "{stats:?}");
            assert!(stats.capacity >= 4_000 && stats.bytes == filter.bytes(), "{stats:?}");
            assert!(stats.layers >= layers && stats.shards == filter.definition().shards, "{stats:?}");
            assert!(stats.is_resident && !stats.is_growing && stats.next_capacity.is_none());
            let wrong = 20_000 - absent(&engine, &filter, &keys(1_000_000..1_020_000)).await;
            let expected = stats.estimated_error * 20_000.0;
            assert!((wrong as f64 - expected).abs() < 30.0 + expected, "{wrong} of 20,000: {stats:?}");
            assert!(stats.fill > 0.0 && stats.fill < 0.6, "{stats:?}");
        }
    });
}
