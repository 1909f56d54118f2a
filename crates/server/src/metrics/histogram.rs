//! Latencies in buckets: eight for each doubling, so a percentile is at most an eighth too high.
//!
//! The unit is an eighth of a microsecond. So every power of two of microseconds is an edge, which is what Redis's
//! `LATENCY HISTOGRAM` reports and what Prometheus's buckets are made of.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const UNIT_NS: u64 = 125;
const UNITS_A_US: u64 = 8;
/// Longer ones (134 s) are in the last bucket.
const UNITS_MAX: u64 = 1 << 30;
const BUCKETS: usize = 224;

/// The bucket of a time. Bucket `i` has times over its lower edge and up to its upper one.
fn bucket(nanoseconds: u64) -> usize {
    let below = nanoseconds.div_ceil(UNIT_NS).clamp(1, UNITS_MAX) - 1;
    match below {
        0..8 => below as usize,
        _ => {
            let log = below.ilog2();
            8 * (log as usize - 2) + (below >> (log - 3) & 7) as usize
        }
    }
}

/// The upper edge of a bucket, in units.
fn edge(bucket: usize) -> u64 {
    match bucket {
        0..8 => bucket as u64 + 1,
        _ => (9 + bucket as u64 % 8) << (bucket / 8 - 1),
    }
}

/// Counts times. Fixed memory, taken when the first one comes.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: OnceLock<Box<[AtomicU64]>>,
    nanoseconds: AtomicU64,
}

impl Histogram {
    /// Counts a time, so many times.
    #[inline]
    pub fn record(&self, times: u64, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let buckets = self.buckets.get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        if let Some(count) = buckets.get(bucket(nanoseconds)) {
            count.fetch_add(times, Ordering::Relaxed);
        }
        self.nanoseconds.fetch_add(nanoseconds.saturating_mul(times), Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.buckets.get().into_iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
        self.nanoseconds.store(0, Ordering::Relaxed);
    }
}

/// What histograms came to.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    buckets: Vec<u64>,
    calls: u64,
    nanoseconds: u64,
}

impl Counts {
    /// Adds what a histogram has counted.
    pub fn add(&mut self, histogram: &Histogram) {
        let Some(buckets) = histogram.buckets.get() else { return };
        self.buckets.resize(BUCKETS, 0);
        for (sum, count) in self.buckets.iter_mut().zip(buckets) {
            let count = count.load(Ordering::Relaxed);
            *sum += count;
            // Not a counter of its own: so the calls are always the sum of the buckets.
            self.calls += count;
        }
        self.nanoseconds = self.nanoseconds.wrapping_add(histogram.nanoseconds.load(Ordering::Relaxed));
    }

    /// How many there were.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// The time within which this share of them (0 to 100) ended, rounded up to the edge of a bucket.
    pub fn percentile(&self, percent: f64) -> Duration {
        let wanted = (self.calls as f64 * percent.clamp(0.0, 100.0) / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(edge(index) * UNIT_NS);
            }
        }
        Duration::ZERO
    }

    /// How many took up to 2^`power` microseconds.
    pub fn up_to(&self, power: u32) -> u64 {
        let limit = UNITS_A_US << power.min(40);
        let within = self.buckets.iter().enumerate().take_while(|(index, _)| edge(*index) <= limit);
        within.map(|(_, count)| count).sum()
    }

    /// `LATENCY HISTOGRAM`: powers of two of microseconds and how many took up to that, where the number changes.
    pub fn powers(&self) -> Vec<(u64, u64)> {
        let mut powers = Vec::new();
        let mut before = 0;
        for power in 0..28 {
            let count = self.up_to(power);
            if count > before {
                powers.push((1 << power, count));
                before = count;
            }
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_its_bucket() {
        let mut below = 0;
        for index in 0..BUCKETS {
            let edge = edge(index);
            assert!(edge > below, "{index}");
            assert_eq!(bucket(below * UNIT_NS + 1), index);
            assert_eq!(bucket(edge * UNIT_NS), index);
            below = edge;
        }
        assert_eq!(below, UNITS_MAX);
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_an_eighth_off_at_most() {
        let histogram = Histogram::default();
        for microseconds in 1..=10_000 {
            histogram.record(1, Duration::from_micros(microseconds));
        }
        let mut counts = Counts::default();
        counts.add(&histogram);
        for percent in [0.01, 1.0, 50.0, 99.0, 99.9, 100.0] {
            let exact = percent * 100.0;
            let read = counts.percentile(percent).as_secs_f64() * 1e6;
            assert!(read >= exact * 0.999 && read <= exact * 1.126, "{percent}: {read}");
        }
        assert_eq!((counts.calls(), counts.total()), (10_000, Duration::from_micros(50_005_000)));
        assert_eq!((counts.up_to(0), counts.up_to(3), counts.up_to(10)), (1, 8, 1024));
        assert_eq!(counts.powers()[..3], [(1, 1), (2, 2), (4, 4)]);
        assert_eq!(counts.powers().last(), Some(&(16_384, 10_000)));
        assert_eq!(
            (Counts::default().percentile(50.0), Counts::default().powers().len()),
            (Duration::ZERO, 0)
        );
    }
}
