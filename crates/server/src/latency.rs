//! Events that took long, by the millisecond.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::node::unix_time;

/// Samples of an event that are kept; Redis's own bound.
const SAMPLES_MAX: usize = 160;

/// What can take long. There are few of them, so nothing else bounds their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A command.
    Command,
    /// A command that is meant to be fast.
    FastCommand,
    /// A checkpoint that a client asked for.
    Checkpoint,
}

/// All of them, in the order of their numbers.
pub(crate) const EVENTS: [Event; 3] = [Event::Command, Event::FastCommand, Event::Checkpoint];

impl Event {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::FastCommand => "fast-command",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// The one of that name.
    pub(crate) fn find(name: &[u8]) -> Option<Self> {
        EVENTS.into_iter().find(|event| event.name().as_bytes() == name)
    }
}

/// When an event took how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// In seconds since 1970.
    pub(crate) at: u64,
    /// How long.
    pub(crate) took_ms: u64,
}

/// What is kept of an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// Oldest first, at most one a second.
    pub(crate) samples: VecDeque<Sample>,
    /// The longest of all times.
    pub(crate) most_ms: u64,
}

/// Events that took long.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// 0 while nobody wants to know.
    threshold_ms: AtomicU64,
    series: Mutex<[Series; EVENTS.len()]>,
}

impl Latency {
    fn series(&self) -> MutexGuard<'_, [Series; EVENTS.len()]> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long an event takes that is kept; 0 for none.
    pub(crate) fn threshold_ms(&self) -> u64 {
        self.threshold_ms.load(Ordering::Relaxed)
    }

    /// Keeps events that take so long; none if it is 0.
    pub(crate) fn set_threshold_ms(&self, threshold: u64) {
        self.threshold_ms.store(threshold, Ordering::Relaxed);
    }

    /// Notes how long something took.
    #[inline]
    pub(crate) fn record(&self, event: Event, took: Duration) {
        let threshold = self.threshold_ms();
        if threshold == 0 || took.as_millis() < u128::from(threshold) {
            return;
        }
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.keep(event, Sample { at: unix_time().as_secs(), took_ms });
    }

    fn keep(&self, event: Event, sample: Sample) {
        let mut all = self.series();
        let series = &mut all[event as usize];
        series.most_ms = series.most_ms.max(sample.took_ms);
        match series.samples.back_mut() {
            // Of one second the longest is kept.
            Some(last) if last.at == sample.at => last.took_ms = last.took_ms.max(sample.took_ms),
            _ => {
                if series.samples.len() >= SAMPLES_MAX {
                    series.samples.pop_front();
                }
                series.samples.push_back(sample);
            }
        }
    }

    /// What is kept of an event.
    pub(crate) fn of(&self, event: Event) -> Series {
        self.series()[event as usize].clone()
    }

    /// Forgets an event; gives whether there was something.
    pub(crate) fn forget(&self, event: Event) -> bool {
        let forgotten = std::mem::take(&mut self.series()[event as usize]);
        !forgotten.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_longest_of_a_second() {
        let latency = Latency::default();
        for took_ms in [5, 9, 7] {
            latency.keep(Event::Command, Sample { at: 1, took_ms });
        }
        latency.keep(Event::Command, Sample { at: 2, took_ms: 1 });
        let series = latency.of(Event::Command);
        assert_eq!(series.samples, [Sample { at: 1, took_ms: 9 }, Sample { at: 2, took_ms: 1 }]);
        assert_eq!(series.most_ms, 9);
        assert!(latency.forget(Event::Command) && !latency.forget(Event::Command));
    }

    #[test]
    fn is_bounded_and_off_in_the_beginning() {
        let latency = Latency::default();
        latency.record(Event::Command, Duration::from_secs(9));
        assert!(latency.of(Event::Command).samples.is_empty());
        (0..1000).for_each(|at| latency.keep(Event::Command, Sample { at, took_ms: 1 }));
        assert_eq!(latency.of(Event::Command).samples.len(), SAMPLES_MAX);
        latency.set_threshold_ms(3);
        latency.record(Event::FastCommand, Duration::from_millis(2));
        assert!(latency.of(Event::FastCommand).samples.is_empty());
        latency.record(Event::FastCommand, Duration::from_millis(3));
        assert_eq!(latency.of(Event::FastCommand).most_ms, 3);
    }
}
