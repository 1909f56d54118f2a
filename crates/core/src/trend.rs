//! How fast a filter fills and when it will be full: from few samples, in bounded memory, and without a clock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::TREND_SAMPLES_MAX;

/// Samples are at least so far apart.
const SPACING_MIN: Duration = Duration::from_secs(10);
/// And at most so far, when there are as many as are kept: they then reach back for twelve days.
const SPACING_MAX: Duration = Duration::from_secs(6 * 3600);
/// Fewer points than this are chance.
const POINTS_MIN: usize = 4;
/// What is further off is never.
const FAR: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// What a filter held in the course of the time in which somebody looked.
///
/// ```text
///  | | | | | | | |  full:  |   |   |   |  half of them stay, twice as far apart; from six hours on, the oldest goes
/// ```
///
/// Time is that in which the filter was watched, not that of a clock on the wall: a server that stands still for a night takes no keys
/// meanwhile, and says nothing about how fast they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Trend {
    samples: VecDeque<Sample>,
    spacing: Duration,
    /// The newest look, which need not be a sample.
    newest: Option<Sample>,
}

/// What a filter held at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// For how long it had been watched.
    pub watched: Duration,
    /// How many items it had.
    pub items: u64,
}

/// How fast a filter fills, in items a second. It may become emptier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The median of the slopes between all pairs of samples, so that a burst counts for no more than the time that it took.
    pub median: f64,
    /// A quarter of the slopes are less.
    pub low: f64,
    /// A quarter of the slopes are greater.
    pub high: f64,
}

/// When something will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It is so.
    Now,
    /// After this time.
    In(Duration),
    /// Not at this rate.
    Never,
}

/// When a filter will be full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// How fast it fills.
    pub rate: Rate,
    /// When it has so many items that it grows.
    pub due: When,
    /// When it has as many items as it is made for.
    pub full: When,
    /// The same if it fills as fast as it does in its fastest quarter.
    pub full_at_earliest: When,
    /// The same if it fills as slowly as it does in its slowest quarter.
    pub full_at_latest: When,
}

impl Default for Trend {
    fn default() -> Self {
        Self { samples: VecDeque::new(), spacing: SPACING_MIN, newest: None }
    }
}

impl Trend {
    /// Goes on with samples that were kept. Whatever cannot have come from [`samples`](Self::samples) is left out.
    pub fn of(samples: impl IntoIterator<Item = Sample>) -> Self {
        let mut trend = Self::default();
        for sample in samples.into_iter().take(TREND_SAMPLES_MAX) {
            if trend.newest.is_none_or(|newest| newest.watched < sample.watched) {
                trend.samples.push_back(sample);
                trend.newest = Some(sample);
            }
        }
        let gaps = trend.samples.iter().zip(trend.samples.iter().skip(1));
        let narrowest = gaps.map(|(one, next)| next.watched - one.watched).min();
        trend.spacing = narrowest.unwrap_or(SPACING_MIN).clamp(SPACING_MIN, SPACING_MAX);
        trend
    }

    /// What is kept, in order.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        self.samples.iter().copied()
    }

    /// Notes what the filter holds, so long after the look before.
    pub fn note(&mut self, passed: Duration, items: u64) {
        let watched = self.newest.map_or(Duration::ZERO, |newest| newest.watched.saturating_add(passed));
        // It was cleared: what was before says nothing any more.
        if self.newest.is_some_and(|newest| items < newest.items / 2) {
            self.samples.clear();
            self.spacing = SPACING_MIN;
        }
        let look = Sample { watched, items };
        self.newest = Some(look);
        if self.samples.back().is_none_or(|last| watched - last.watched >= self.spacing) {
            if self.samples.len() == TREND_SAMPLES_MAX {
                self.make_room();
            }
            self.samples.push_back(look);
        }
    }

    fn make_room(&mut self) {
        if self.spacing >= SPACING_MAX {
            self.samples.pop_front();
            return;
        }
        self.spacing = (self.spacing * 2).min(SPACING_MAX);
        let mut kept: Option<Duration> = None;
        let spacing = self.spacing;
        self.samples.retain(|sample| {
            let keeps = kept.is_none_or(|kept| sample.watched - kept >= spacing);
            if keeps {
                kept = Some(sample.watched);
            }
            keeps
        });
        // Looks that came late are as far apart already.
        if self.samples.len() == TREND_SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// How fast the filter fills; nothing if too little was seen of it.
    pub fn rate(&self) -> Option<Rate> {
        let points: Vec<Sample> = self
            .samples
            .iter()
            .chain(self.newest.iter().filter(|newest| self.samples.back() != Some(newest)))
            .copied()
            .collect();
        if points.len() < POINTS_MIN {
            return None;
        }
        let mut slopes = Vec::with_capacity(points.len() * (points.len() - 1) / 2);
        for (number, one) in points.iter().enumerate() {
            slopes.extend(points[number + 1..].iter().filter_map(|other| slope(*one, *other)));
        }
        slopes.sort_by(f64::total_cmp);
        let at = |share: usize| slopes.get((slopes.len() * share / 4).min(slopes.len().saturating_sub(1)));
        Some(Rate { median: *at(2)?, low: *at(1)?, high: *at(3)? })
    }

    /// When a filter will be full that is due for its next size with so many items, and full with as many as its capacity.
    pub fn forecast(&self, items: u64, due: u64, capacity: u64) -> Option<Forecast> {
        let rate = self.rate()?;
        Some(Forecast {
            rate,
            due: when(items, due, rate.median),
            full: when(items, capacity, rate.median),
            full_at_earliest: when(items, capacity, rate.high),
            full_at_latest: when(items, capacity, rate.low),
        })
    }
}

impl Rate {
    /// How many items there will be after some time, at this rate.
    pub fn items_after(&self, items: u64, time: Duration) -> f64 {
        (items as f64 + self.median * time.as_secs_f64()).max(0.0)
    }
}

/// Items a second between two samples; nothing if no time passed between them.
fn slope(one: Sample, other: Sample) -> Option<f64> {
    let seconds = other.watched.checked_sub(one.watched)?.as_secs_f64();
    (seconds > 0.0).then(|| (other.items as f64 - one.items as f64) / seconds)
}

/// When there will be so many items, at a rate.
fn when(items: u64, wanted: u64, rate: f64) -> When {
    let Some(missing) = wanted.checked_sub(items).filter(|missing| *missing > 0) else { return When::Now };
    let seconds = missing as f64 / rate;
    if rate <= 0.0 || seconds > FAR.as_secs_f64() {
        return When::Never;
    }
    When::In(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests;
