use super::*;
use crate::Counter;

/// The mixture itself: over every number of keys that one line can have, the chance that it has so many times the chance
/// that these use all eight cells.
fn line_error_by_mixture(keys: u32, lines: f64, cell_bits: u32) -> f64 {
    let (hit, miss) = ((1.0 / lines).ln(), f64::ln_1p(-1.0 / lines));
    let mut ln_choose = 0.0;
    let mut error = 0.0;
    for here in 0..=keys {
        let chance = f64::exp(ln_choose + f64::from(here) * hit + f64::from(keys - here) * miss);
        let cell_used = 1.0 - (1.0 - f64::from(cell_bits) / 64.0).powf(f64::from(here));
        error += chance * cell_used.powi(8);
        ln_choose += (f64::from(keys - here) / f64::from(here + 1)).ln();
    }
    error
}

#[test]
fn the_closed_form_is_the_mixture() {
    for cell_bits in [1, 4, 8] {
        for (keys, lines) in
            [(1_u32, 2.0), (10, 2.0), (100, 3.0), (1000, 31.0), (20_000, 600.0), (20_000, 5000.0)]
        {
            let (closed, mixture) =
                (line_error(keys.into(), lines, cell_bits), line_error_by_mixture(keys, lines, cell_bits));
            assert!(
                (closed - mixture).abs() < 1e-9 * mixture + 1e-12,
                "{cell_bits} bits, {keys} keys, {lines} lines: {closed} against {mixture}"
            );
        }
    }
}

fn specs() -> impl Iterator<Item = Spec> {
    let capacities = [1, 2, 10, 1000, 1_000_000, 4_294_967_296, 30_000_000_000, 1_000_000_000_000];
    let errors = [0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9];
    capacities.into_iter().flat_map(move |capacity| {
        errors.into_iter().flat_map(move |error| {
            [Kind::Bloom, Kind::Counting(Counter::Nibble), Kind::Counting(Counter::Byte)]
                .map(|kind| Spec::bloom(capacity, error).kind(kind))
        })
    })
}

#[test]
fn every_plan_holds_its_error_rate_and_wastes_little() {
    for spec in specs() {
        for shards in [1, 256] {
            let plan = Plan::new(&spec, shards).unwrap();
            assert!(plan.expected_error() <= spec.error, "{plan:?}: {}", plan.expected_error());
            // With a line fewer than half of it the plan would not hold: it is not oversized.
            let Geometry::Blocked { cell_bits, banks, lines } = plan.geometry else { panic!("{plan:?}") };
            if lines > 16 {
                let half = Geometry::Blocked { cell_bits, banks, lines: lines / 2 };
                assert!(half.error_with_shards(spec.capacity as f64, shards) > spec.error, "{plan:?}");
            }
        }
    }
}

#[test]
fn bits_a_key_stay_near_the_classic_formula() {
    for (error, most) in [(1e-2, 1.10), (1e-3, 1.10), (1e-4, 1.15), (1e-5, 1.15), (1e-6, 1.15), (1e-9, 1.15)]
    {
        for (capacity, shards) in [(1_000_000, 1), (100_000_000, 256), (30_000_000_000, 256)] {
            let plan = Plan::new(&Spec::bloom(capacity, error), shards).unwrap();
            let ratio = plan.bits_per_key() / plan.classic_bits_per_key();
            assert!(ratio <= most, "{error} {capacity} {shards}: {ratio}");
        }
    }
}

#[test]
fn capacity_and_error_invert_each_other() {
    for spec in specs().filter(|spec| spec.capacity >= 1_000_000) {
        let geometry = Geometry::for_spec(&spec, 1).unwrap();
        let capacity = geometry.capacity_at(spec.error).unwrap();
        let ratio = capacity as f64 / spec.capacity as f64;
        assert!((1.0..1.08).contains(&ratio), "{spec:?}: {capacity}");
        assert!(geometry.error_with(capacity as f64) <= spec.error);
    }
}

#[test]
fn capacities_of_hosted_layouts_are_what_they_claim() {
    for layout in [Layout::Guava, Layout::Redisson, Layout::RedisBloom { expansion: None }] {
        let geometry = Geometry::for_spec(&Spec::hosted(layout, 100_000, 0.01), 1).unwrap();
        let capacity = geometry.capacity_at(0.01).unwrap();
        assert!((98_000..102_000).contains(&capacity), "{layout}: {capacity}");
    }
}

/// Printed by the originals: Guava 31.1 and Redisson 4.7 in `fixtures/`, RedisBloom 8.10 there too.
#[test]
fn hosted_sizes_are_the_originals() {
    let size = |layout, capacity, error| {
        let Geometry::Classic { bits, hashes } =
            Geometry::for_spec(&Spec::hosted(layout, capacity, error), 1).unwrap()
        else {
            panic!("not classic")
        };
        (bits, hashes)
    };
    assert_eq!(size(Layout::Guava, 1000, 0.01), (150 * 64, 7));
    assert_eq!(size(Layout::Guava, 5000, 0.001), (1124 * 64, 10));
    assert_eq!(size(Layout::Redisson, 1000, 0.01), (9585, 7));
    assert_eq!(size(Layout::Redisson, 3000, 0.0005), (47_460, 11));
    assert_eq!(size(Layout::RedisBloom { expansion: None }, 10_000, 0.001), (143_808, 10));
}

#[test]
fn nonsense_is_refused_with_its_value() {
    for error in [0.0, -1.0, 1.0, 0.6, 1e-10, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let message = Plan::new(&Spec::bloom(1000, error), 1).unwrap_err().to_string();
        assert!(message.contains(&error.to_string()), "{message}");
        assert!(Geometry::for_spec(&Spec::bloom(10, 0.01), 1).unwrap().capacity_at(error).is_err());
    }
    for capacity in [0, 1_000_000_000_001, u64::MAX] {
        let message = Plan::new(&Spec::bloom(capacity, 0.01), 1).unwrap_err().to_string();
        assert!(message.contains(&capacity.to_string()), "{message}");
    }
    for shards in [0, 65_537, u32::MAX] {
        assert!(Plan::new(&Spec::bloom(1000, 0.01), shards).is_err());
    }
    assert!(
        Plan::new(&Spec::hosted(Layout::Guava, 10, 0.01).kind(Kind::Counting(Counter::Nibble)), 1).is_err()
    );
    assert!(Plan::new(&Spec::hosted(Layout::Guava, 10, 0.01).family(crate::Family::Xxh3), 1).is_err());
    assert!(Plan::new(&Spec::hosted(Layout::Redisson, 1_000_000_000, 0.01), 1).is_err());
    assert!(Plan::new(&Spec::hosted(Layout::RedisBloom { expansion: Some(0) }, 10, 0.01), 1).is_err());
}
