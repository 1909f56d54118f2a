use proptest::prelude::*;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A trend of looks, each so long after the one before and with so many items.
fn seen(looks: &[(u64, u64)]) -> Trend {
    let mut trend = Trend::default();
    looks.iter().for_each(|(seconds, items)| trend.note(Duration::from_secs(*seconds), *items));
    trend
}

/// Looks every second at a filter that has so many items after so many seconds.
fn watched(seconds: u64, items: impl Fn(u64) -> u64) -> Trend {
    let mut trend = Trend::default();
    (0..=seconds).for_each(|second| trend.note(Duration::from_secs(1), items(second)));
    trend
}

#[test]
fn a_filter_that_fills_evenly_is_full_when_it_is() {
    // Ten thousand a day, with 910,000 of a million in it after a day: nine days are left, and no more until it grows.
    let mut trend = Trend::default();
    for minute in 0..=24 * 60 {
        trend.note(Duration::from_secs(60), 900_000 + minute * 10_000 / (24 * 60));
    }
    let forecast = trend.forecast(910_000, 800_000, 1_000_000).unwrap();
    let When::In(full) = forecast.full else { panic!("{forecast:?}") };
    assert!((full.as_secs_f64() / DAY.as_secs_f64() - 9.0).abs() < 0.05, "{full:?}");
    assert_eq!(forecast.due, When::Now);
    assert!((forecast.rate.items_after(910_000, DAY) - 920_000.0).abs() < 100.0);
}

#[test]
fn too_little_says_nothing_and_a_filter_that_rests_is_never_full() {
    assert_eq!(watched(20, |second| second).forecast(20, 80, 100), None);
    let rests = watched(3600, |_| 50).forecast(50, 80, 100).unwrap();
    assert_eq!((rests.due, rests.full, rests.full_at_earliest), (When::Never, When::Never, When::Never));
    let emptied = watched(3600, |second| 10_000 - second).forecast(6400, 8000, 10_000).unwrap();
    assert_eq!((emptied.rate.median, emptied.full), (-1.0, When::Never));
    assert_eq!(watched(3600, |second| second).forecast(100, 80, 100).unwrap().full, When::Now);
}

#[test]
fn one_load_does_not_speak_for_the_days_after_it() {
    // A million keys in the first minute, and then one a second.
    let trend = watched(4 * 3600, |second| second.min(60) * 16_667 + second.saturating_sub(60));
    let rate = trend.rate().unwrap();
    assert!((0.9..1.2).contains(&rate.median), "{rate:?}");
}

#[test]
fn a_cleared_filter_begins_anew() {
    let mut trend = watched(3600, |second| second * 100);
    trend.note(Duration::from_secs(1), 0);
    assert_eq!(trend.rate(), None);
    (1..=60).for_each(|second| trend.note(Duration::from_secs(1), second));
    assert_eq!(trend.rate().unwrap().median, 1.0);
}

#[test]
fn a_restart_costs_nothing_and_the_time_without_a_server_does_not_count() {
    let before = watched(3600, |second| second * 5);
    let mut after = Trend::of(before.samples());
    // The first look of the next process knows of no look before it.
    after.note(Duration::ZERO, 3600 * 5);
    assert_eq!(after.rate().unwrap().median, 5.0);
    (1..=600).for_each(|second| after.note(Duration::from_secs(1), (3600 + second) * 5));
    assert_eq!(after.rate().unwrap().median, 5.0);
}

proptest! {
    #[test]
    fn memory_is_bounded_and_samples_are_looks(gaps in prop::collection::vec(0..40_000_u64, 1..600)) {
        let (mut trend, mut now, mut looks) = (Trend::default(), 0, Vec::new());
        for (number, gap) in gaps.iter().enumerate() {
            // The first look begins the time.
            now += if number == 0 { 0 } else { *gap };
            looks.push(Sample { watched: Duration::from_secs(now), items: number as u64 });
            trend.note(Duration::from_secs(*gap), number as u64);
            prop_assert!(trend.samples.len() <= TREND_SAMPLES_MAX);
        }
        let kept: Vec<Sample> = trend.samples().collect();
        prop_assert!(kept.iter().all(|sample| looks.contains(sample)));
        prop_assert!(kept.windows(2).all(|pair| pair[0].watched < pair[1].watched));
        prop_assert_eq!(Trend::of(kept.clone()).samples().collect::<Vec<_>>(), kept);
    }

    #[test]
    fn what_grows_evenly_is_known_exactly(rate in 0..1_000_000_u64, gaps in prop::collection::vec(10..5000_u64, 4..200)) {
        let (mut looks, mut items) = (Vec::new(), 1_000_000_000);
        for gap in gaps {
            items += gap * rate;
            looks.push((gap, items));
        }
        let known = seen(&looks).rate().unwrap();
        prop_assert!((known.median - rate as f64).abs() <= rate as f64 * 1e-9, "{known:?}, not {rate}");
        prop_assert!(known.high - known.low <= rate as f64 * 1e-9, "{known:?}");
    }

    #[test]
    fn a_rate_lies_between_the_slowest_and_the_fastest_that_was_seen(
        looks in prop::collection::vec((10..100_u64, 1_000_000..1_900_000_u64), 4..40),
    ) {
        // As many as are kept without thinning: the oracle knows all of them.
        let known = seen(&looks).rate().unwrap();
        let slopes = looks.windows(2).map(|pair| (pair[1].1 as f64 - pair[0].1 as f64) / pair[1].0 as f64);
        let (least, most) = slopes.fold((f64::MAX, f64::MIN), |(least, most), slope| (slope.min(least), slope.max(most)));
        // Sums and quotients are rounded.
        let (least, most) = (least - 1e-6, most + 1e-6);
        prop_assert!(least <= known.low && known.low <= known.median, "{known:?} of {least} to {most}");
        prop_assert!(known.median <= known.high && known.high <= most, "{known:?} of {least} to {most}");
    }

    #[test]
    fn the_day_that_was_foretold_comes(
        rate in 1..10_000_u64, ahead in 1..1_000_000_u64, begun in 0..1_000_000_u64,
    ) {
        let items = |second: u64| begun + second * rate;
        let trend = watched(600, items);
        let capacity = items(600) + ahead;
        let When::In(time) = trend.forecast(items(600), 0, capacity).unwrap().full else { panic!("not yet full") };
        // A simulation of the seconds that follow reaches the capacity in that second.
        let full = (600..).find(|second| items(*second) >= capacity).unwrap() - 600;
        prop_assert!((time.as_secs_f64().ceil() - full as f64).abs() <= 1.0, "{time:?}, not {full} seconds");
    }
}
