//! Invariant: the measured error rate is within its statistical interval of the expected one, and the expected one at
//! capacity is at or under the declared one, for every kind, layout, family and number of shards.

mod common;

use umbel_filter::{Counter, Family, Filter, Fingerprint, Hasher, Kind, Layout, Limits, Plan, Secret, Spec};

/// Two-sided 99.9 %.
const DEVIATIONS: f64 = 3.29;

struct Sharded {
    plan: Plan,
    hasher: Hasher,
    shards: Vec<Filter>,
}

impl Sharded {
    fn new(spec: &Spec, shards: u32) -> Self {
        let secret = (spec.family == Family::Keyed).then_some(Secret(*b"not so secret..."));
        let plan = Plan::new(spec, shards).unwrap();
        let shard = |_| match spec.layout {
            Layout::RedisBloom { .. } => Filter::new(spec, &Limits::default()).unwrap(),
            _ => Filter::with_geometry(spec, plan.geometry, secret.as_ref(), &Limits::default()).unwrap(),
        };
        let hasher = Hasher::new(spec.family, secret.as_ref()).unwrap();
        Self { plan, hasher, shards: (0..shards).map(shard).collect() }
    }

    fn place(&self, number: u64) -> (&Filter, Fingerprint) {
        let key = self.hasher.fingerprint(format!("item:{number}").as_bytes());
        (&self.shards[key.slot(self.plan.shards) as usize], key)
    }

    fn insert(&self, number: u64) {
        let (shard, key) = self.place(number);
        shard.insert_fingerprint(key).unwrap();
    }

    fn contains(&self, number: u64) -> bool {
        let (shard, key) = self.place(number);
        shard.contains_fingerprint(key)
    }

    fn mean<T: Fn(&Filter) -> f64>(&self, of: T) -> f64 {
        self.shards.iter().map(of).sum::<f64>() / self.shards.len() as f64
    }
}

/// Redisson adds the same two words by turns, so its positions depend on each other and it errs up to twice as often as
/// a filter with independent positions (its own recorded answers show it: 18 of 20,000 where 10 are declared). An import
/// has to do the same.
fn bias(layout: Layout) -> f64 {
    if layout == Layout::Redisson { 1.2 } else { 0.0 }
}

fn check(spec: &Spec, shards: u32, probes: u64) {
    let filter = Sharded::new(spec, shards);
    let mut added = 0;
    for percent in [10, 50, 100] {
        let keys = spec.capacity * percent / 100;
        (added..keys).for_each(|number| filter.insert(number));
        added = keys;
        assert!((0..keys).all(|number| filter.contains(number)), "{spec:?}: an added key is absent");

        let wrong = (0..probes).filter(|number| filter.contains(1_000_000_000 + number)).count() as f64;
        let expected = filter.plan.geometry.error_with_shards(keys as f64, shards) * probes as f64;
        let interval = DEVIATIONS * expected.sqrt() + 3.0 + bias(spec.layout) * expected;
        let case = format!("{spec:?} over {shards} shards at {percent} %: {wrong} wrong of {probes}");
        assert!((wrong - expected).abs() <= interval, "{case}, expected {expected} +- {interval}");

        // The array's own estimates agree with what was put in and with what was measured.
        let cardinality = filter.mean(|shard| shard.stats().cardinality) * f64::from(shards);
        assert!(
            (cardinality / keys as f64 - 1.0).abs() < 0.02,
            "{case}: estimated {cardinality} of {keys} keys"
        );
        let estimated = filter.mean(|shard| shard.stats().error) * probes as f64;
        assert!((wrong - estimated).abs() <= interval, "{case}: estimated {estimated}");
    }
    // Hosted geometries are the originals', which round.
    let allowed = if spec.layout == Layout::Blocked { spec.error } else { spec.error * 1.05 };
    assert!(filter.plan.expected_error() <= allowed, "{spec:?}: {}", filter.plan.expected_error());
}

fn check_families(kind: Kind) {
    for family in Family::ALL {
        for shards in [1, 16, 256] {
            check(&Spec::bloom(100_000, 0.03).kind(kind).family(family), shards, 300_000);
        }
    }
}

#[test]
fn bits() {
    check_families(Kind::Bloom);
}

#[test]
fn four_bit_counters() {
    check_families(Kind::Counting(Counter::Nibble));
}

#[test]
fn eight_bit_counters() {
    check_families(Kind::Counting(Counter::Byte));
}

#[test]
fn strict_rates_with_several_lines_a_key() {
    for kind in [Kind::Bloom, Kind::Counting(Counter::Nibble), Kind::Counting(Counter::Byte)] {
        for (error, shards) in [(1e-3, 1), (1e-4, 1), (1e-4, 64), (1e-5, 16)] {
            let spec = Spec::bloom(60_000, error).kind(kind).family(Family::Xxh3);
            check(&spec, shards, (100.0 / error) as u64);
        }
    }
}

#[test]
fn loose_rates_and_small_filters() {
    for error in [0.5, 0.2, 0.1] {
        check(&Spec::bloom(50_000, error), 1, 200_000);
    }
    // A single small array is a matter of luck; many of them are not.
    for capacity in [1, 7, 50, 400] {
        let spec = Spec::bloom(capacity, 0.02).family(Family::Xxh3);
        let mut wrong = 0;
        let (filters, probes) = (200_u32, 2000_u32);
        for number in 0..filters {
            let filter = Filter::new(&spec, &Limits::default()).unwrap();
            for key in 0..capacity {
                filter.insert(format!("{number}/{key}")).unwrap();
            }
            wrong += (0..probes).filter(|probe| filter.contains(format!("{number}?{probe}"))).count();
        }
        let rate = wrong as f64 / f64::from(filters * probes);
        assert!(rate <= spec.error * 1.05, "{capacity}: {rate}");
    }
}

#[test]
fn hosted_layouts() {
    for layout in [Layout::Guava, Layout::Redisson, Layout::RedisBloom { expansion: None }] {
        for error in [0.03, 0.001] {
            check(&Spec::hosted(layout, 100_000, error), 1, 300_000);
        }
    }
    check(&Spec::hosted(Layout::Guava, 100_000, 0.03), 16, 300_000);
}

#[test]
fn a_grown_chain_stays_under_its_declared_rate() {
    let spec = Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 1000, 0.01);
    let filter = Filter::new(&spec, &Limits::default()).unwrap();
    (0..100_000).for_each(|i| {
        filter.insert(format!("item:{i}")).unwrap();
    });
    let wrong = (0..100_000).filter(|i| filter.contains(format!("other:{i}"))).count();
    assert!(wrong <= 1000, "{wrong}");
    let estimated = filter.stats().error * 100_000.0;
    assert!((wrong as f64 - estimated).abs() < DEVIATIONS * estimated.sqrt(), "{wrong} {estimated}");
}
