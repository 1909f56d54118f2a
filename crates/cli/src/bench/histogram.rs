//! Latencies and their percentiles, to one part in 128.

/// Every power of two has 128 buckets.
const SHIFT: u32 = 7;
const BUCKETS: usize = 1 << SHIFT;

/// Counts of values, which are nanoseconds here.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; bucket(u64::MAX) + 1], count: 0, max: 0 }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The smallest value that a share of all values does not exceed; nothing if there are none.
    pub(crate) fn percentile(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map(|index| middle(index).min(self.max))
    }

    pub(crate) fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }
}

fn bucket(value: u64) -> usize {
    if value < BUCKETS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - SHIFT;
    (shift as usize) * BUCKETS + (value >> shift) as usize
}

/// The middle of a bucket's values.
fn middle(bucket: usize) -> u64 {
    if bucket < 2 * BUCKETS {
        return bucket as u64;
    }
    let shift = bucket / BUCKETS - 1;
    let first = ((bucket - shift * BUCKETS) as u64) << shift;
    first + (1_u64 << shift) / 2
}

/// The middle of some numbers; of an even count, the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(values[values.len() / 2 - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        assert_eq!((bucket(0), bucket(127), bucket(128), bucket(255)), (0, 127, 128, 255));
        assert_eq!((bucket(256), bucket(257), bucket(258)), (256, 256, 257));
        for value in
            (0..64).flat_map(|shift| [1_u64 << shift, (1 << shift) + (1 << shift) / 3, (1 << shift) - 1])
        {
            let near = middle(bucket(value));
            assert!(near.abs_diff(value) as f64 <= value as f64 / 128.0, "{value}: {near}");
            assert_eq!(bucket(near), bucket(value));
        }
    }

    #[test]
    fn percentiles_are_those_of_a_sorted_list() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.percentile(0.5), histogram.max()), (None, None));
        let values: Vec<u64> = (1..=100_000_u64).map(|i| i * i % 1_000_003).collect();
        values.iter().for_each(|value| histogram.record(*value));
        let mut sorted = values.clone();
        sorted.sort_unstable();
        for share in [0.0, 0.001, 0.5, 0.99, 0.999, 1.0] {
            let exact = sorted[((share * 1e5_f64).ceil() as usize).max(1) - 1];
            let found = histogram.percentile(share).unwrap();
            assert!(found.abs_diff(exact) as f64 <= exact as f64 / 128.0, "{share}: {found}, not {exact}");
        }
        assert_eq!(histogram.max(), sorted.last().copied());
    }

    #[test]
    fn one_slow_request_in_a_thousand_is_seen_behind_the_999th() {
        let mut histogram = Histogram::default();
        (0..999).for_each(|_| histogram.record(100));
        histogram.record(5_000);
        assert_eq!((histogram.percentile(0.999), histogram.percentile(0.9991)), (Some(100), Some(5_000)));
        let mut sum = Histogram::default();
        sum.merge(&histogram);
        sum.merge(&histogram);
        assert_eq!((sum.count, sum.percentile(0.5), sum.max()), (2_000, Some(100), Some(5_000)));
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
