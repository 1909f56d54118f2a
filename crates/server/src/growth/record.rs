//! What is known of one filter's growth, as it stands in the registry.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbel_core::definition::Definition;
use umbel_core::engine::{Event, Why};
use umbel_core::trend::{Sample, Trend};

/// Steps that are remembered of a filter: the newest.
const STEPS_MAX: usize = 64;

/// Why a filter has another size that nobody wrote down.
const UNSEEN: &str = "unseen";

/// What is known of a filter's growth.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(crate) struct Record {
    pub(crate) trend: Trend,
    /// The newest size that is known, if one is.
    size: Option<Size>,
    pub(crate) steps: VecDeque<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Size {
    generation: u32,
    capacity: u64,
    error: f64,
}

impl Size {
    fn of(definition: &Definition) -> Self {
        let (capacity, error) = (definition.spec.capacity, definition.spec.error);
        Self { generation: definition.generation, capacity, error }
    }
}

/// A size that a filter was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// The number of the size.
    pub(crate) generation: u32,
    /// `due`, `full`, `asked`, `worn`, `rebuilt`, or `unseen`: it was found at a start, and nobody had written down why.
    pub(crate) why: String,
    pub(crate) from_capacity: u64,
    pub(crate) from_error: f64,
    pub(crate) to_capacity: u64,
    pub(crate) to_error: f64,
    /// Items at that time.
    pub(crate) items: u64,
    /// When it was begun, in milliseconds since 1970.
    pub(crate) began_ms: u64,
    /// How long it took until the new size answered; nothing while it does not.
    pub(crate) took_ms: Option<u64>,
}

/// The same as text.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    /// Milliseconds for which the filter had been watched, and its items then.
    samples: Vec<(u64, u64)>,
    size: Option<Size>,
    steps: Vec<Step>,
}

impl From<Record> for Stored {
    fn from(record: Record) -> Self {
        let sample = |sample: Sample| (sample.watched.as_millis() as u64, sample.items);
        Self {
            samples: record.trend.samples().map(sample).collect(),
            size: record.size,
            steps: record.steps.into(),
        }
    }
}

impl From<Stored> for Record {
    fn from(stored: Stored) -> Self {
        let sample = |(watched, items): (u64, u64)| Sample { watched: Duration::from_millis(watched), items };
        let mut steps = VecDeque::from(stored.steps);
        steps.drain(..steps.len().saturating_sub(STEPS_MAX));
        Self { trend: Trend::of(stored.samples.into_iter().map(sample)), size: stored.size, steps }
    }
}

impl Record {
    /// Items at the newest sample.
    pub(crate) fn items(&self) -> u64 {
        self.trend.samples().last().map_or(0, |sample| sample.items)
    }

    fn push(&mut self, step: Step) {
        self.steps.push_back(step);
        if self.steps.len() > STEPS_MAX {
            self.steps.pop_front();
        }
    }

    /// Takes in what the engine tells.
    pub(crate) fn take(&mut self, event: Event) {
        match event {
            Event::Begun { generation, from, to, items, why, at_ms, .. } => {
                self.size = Some(Size { generation, capacity: to.capacity, error: to.error });
                // The log was looked at before the engine told of it.
                if self.steps.back().is_some_and(|last| last.why == UNSEEN && last.generation == generation) {
                    self.steps.pop_back();
                }
                let why = match why {
                    Why::Due => "due",
                    Why::Full => "full",
                    Why::Asked => "asked",
                    Why::Worn => "worn",
                };
                self.push(Step {
                    generation,
                    why: why.to_owned(),
                    from_capacity: from.capacity,
                    from_error: from.error,
                    to_capacity: to.capacity,
                    to_error: to.error,
                    items,
                    began_ms: at_ms,
                    took_ms: None,
                });
            }
            Event::Answers { generation, at_ms, .. } => self.answers(generation, at_ms),
        }
    }

    /// All sizes up to this one are over, or answer.
    fn answers(&mut self, generation: u32, at_ms: u64) {
        for step in self.steps.iter_mut().filter(|step| step.generation <= generation) {
            step.took_ms.get_or_insert(at_ms.saturating_sub(step.began_ms));
        }
    }

    /// Notes a size that the log has and nobody told: the process was killed between the two. Says whether there was one.
    pub(crate) fn catch_up(&mut self, definition: &Definition, is_behind: bool, now_ms: u64) -> bool {
        let now = Size::of(definition);
        let Some(known) = self.size.replace(now) else { return false };
        if known.generation >= now.generation {
            // Of two that came at once, the log's is newer.
            self.size = Some(if known.generation > now.generation { known } else { now });
            return false;
        }
        let (items, took_ms) = (self.items(), (!is_behind).then_some(0));
        self.push(Step {
            generation: now.generation,
            why: UNSEEN.to_owned(),
            from_capacity: known.capacity,
            from_error: known.error,
            to_capacity: now.capacity,
            to_error: now.error,
            items,
            began_ms: now_ms,
            took_ms,
        });
        true
    }

    /// The filter was filled anew, in another's place; the record is that of the other.
    pub(crate) fn rebuilt(&mut self, definition: &Definition, items: u64, began_ms: u64, now_ms: u64) {
        let now = Size::of(definition);
        let before = self.size.replace(now).unwrap_or(now);
        // What the other one had not finished, it never will.
        self.answers(u32::MAX, now_ms);
        self.push(Step {
            generation: now.generation,
            why: "rebuilt".to_owned(),
            from_capacity: before.capacity,
            from_error: before.error,
            to_capacity: now.capacity,
            to_error: now.error,
            items,
            began_ms,
            took_ms: Some(now_ms.saturating_sub(began_ms)),
        });
    }

    /// Takes in what another node wrote.
    pub(crate) fn merge(&mut self, other: Self) {
        let is_same = |one: &Step, other: &Step| {
            (one.generation, one.began_ms, one.why.as_str())
                == (other.generation, other.began_ms, other.why.as_str())
        };
        for step in other.steps {
            match self.steps.iter_mut().find(|own| is_same(own, &step)) {
                Some(own) => own.took_ms = own.took_ms.or(step.took_ms),
                None => self.steps.push_back(step),
            }
        }
        self.steps.make_contiguous().sort_by_key(|step| step.began_ms);
        self.steps.drain(..self.steps.len().saturating_sub(STEPS_MAX));
        if self.trend.rate().is_none() {
            self.trend = other.trend;
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_core::engine::Size as EngineSize;
    use umbel_filter::Spec;

    use super::*;

    fn begun(generation: u32, from: u64, to: u64, at_ms: u64) -> Event {
        let size = |capacity| EngineSize { capacity, error: 0.01 };
        let (from, to) = (size(from), size(to));
        Event::Begun { filter: 1, generation, from, to, items: from.capacity * 8 / 10, why: Why::Due, at_ms }
    }

    fn definition(generation: u32, capacity: u64) -> Definition {
        Definition { generation, ..Definition::new("f", Spec::bloom(capacity, 0.01)) }
    }

    /// What the next process reads.
    fn reread(record: &Record) -> Record {
        serde_json::from_slice(&serde_json::to_vec(record).unwrap()).unwrap()
    }

    #[test]
    fn steps_say_when_why_from_what_to_what_and_how_long() {
        let mut record = Record::default();
        assert!(!record.catch_up(&definition(0, 1000), false, 1));
        record.take(begun(1, 1000, 2000, 10_000));
        assert_eq!(record.steps[0].took_ms, None, "it is being built");
        record.take(Event::Answers { filter: 1, generation: 1, at_ms: 10_250 });
        let step = &reread(&record).steps[0];
        assert_eq!((step.from_capacity, step.to_capacity, step.items), (1000, 2000, 800));
        assert_eq!((step.why.as_str(), step.began_ms, step.took_ms), ("due", 10_000, Some(250)));
        assert!(!record.catch_up(&definition(1, 2000), false, 20_000), "all of it is known");
    }

    #[test]
    fn a_size_that_was_begun_before_a_kill_is_ended_after_it() {
        let mut record = Record::default();
        record.catch_up(&definition(0, 1000), false, 1);
        record.take(begun(1, 1000, 2000, 10_000));
        let mut next = reread(&record);
        next.take(Event::Answers { filter: 1, generation: 1, at_ms: 70_000 });
        assert_eq!(next.steps[0].took_ms, Some(60_000), "with the time that nothing ran");
    }

    #[test]
    fn a_size_that_nobody_wrote_down_is_noticed() {
        let mut record = Record::default();
        record.catch_up(&definition(0, 1000), false, 1);
        let mut next = reread(&record);
        assert!(next.catch_up(&definition(2, 4000), false, 50_000));
        let step = &next.steps[0];
        assert_eq!((step.generation, step.why.as_str()), (2, "unseen"));
        assert_eq!((step.from_capacity, step.to_capacity), (1000, 4000));
    }

    #[test]
    fn a_filter_that_took_anothers_place_goes_on_with_its_history() {
        let mut record = Record::default();
        record.catch_up(&definition(0, 1000), false, 1);
        record.take(begun(1, 1000, 2000, 10_000));
        record.rebuilt(&definition(0, 5000), 900, 20_000, 26_000);
        assert_eq!(record.steps[0].took_ms, Some(16_000), "it never was finished");
        let step = &record.steps[1];
        assert_eq!((step.why.as_str(), step.from_capacity, step.to_capacity), ("rebuilt", 2000, 5000));
        assert_eq!(step.took_ms, Some(6000));
        assert!(!record.catch_up(&definition(0, 5000), false, 30_000));
    }

    #[test]
    fn memory_is_bounded_and_others_steps_are_taken_in_once() {
        let mut record = Record::default();
        (0..200).for_each(|number| record.take(begun(number, 1000, 2000, u64::from(number))));
        assert_eq!((record.steps.len(), record.steps[0].generation), (STEPS_MAX, 136));
        record.merge(reread(&record));
        assert_eq!(record.steps.len(), STEPS_MAX);
        let mut other = Record::default();
        other.take(begun(300, 1, 2, 300));
        record.merge(other);
        assert_eq!((record.steps.len(), record.steps[STEPS_MAX - 1].generation), (STEPS_MAX, 300));
    }

    #[test]
    fn what_was_observed_survives_and_damage_is_bounded() {
        let mut record = Record::default();
        (0..1000).for_each(|second| record.trend.note(Duration::from_secs(1), second * 3));
        assert_eq!(
            reread(&record).trend.rate(),
            Some(umbel_core::trend::Rate { median: 3.0, low: 3.0, high: 3.0 })
        );
        let endless: Vec<(u64, u64)> = (0..100_000).map(|n| (n * 20_000, n)).collect();
        let text = serde_json::json!({ "samples": endless }).to_string();
        let read: Record = serde_json::from_str(&text).unwrap();
        assert!(read.trend.samples().count() <= umbel_core::limits::TREND_SAMPLES_MAX);
    }
}
