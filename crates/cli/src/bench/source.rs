//! Which keys are asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;

use super::request::{Case, Dialect, Form, Target, below, mix};

/// Keys in one request while a filter is filled.
const FILL_KEYS: u64 = 1_000;

/// Writes one request after the other; every thread has its own.
pub(crate) struct Source<'a> {
    form: Form,
    keys: Keys<'a>,
    random: u64,
}

enum Keys<'a> {
    /// One half from `0..filled`, the other from `capacity..2 * capacity`, which nobody adds.
    Lookups { filled: u64, capacity: u64 },
    /// From `0..capacity`, so that a filter is never fuller than it was made for, however long it takes.
    Adds { filled: u64, capacity: u64 },
    /// `0..filled`, once.
    Fill { filled: u64, next: &'a AtomicU64, progress: &'a ProgressBar },
}

impl<'a> Source<'a> {
    pub(crate) fn new(dialect: Dialect, case: &Case, target: &Target, seed: u64) -> Self {
        let (filled, capacity, adds) = (target.filled, target.capacity, case.operation.adds());
        let keys = if adds { Keys::Adds { filled, capacity } } else { Keys::Lookups { filled, capacity } };
        Self { form: Form::new(dialect, adds, case.operation.keys(), target), keys, random: mix(seed) }
    }

    /// All keys that are to be there before anything is measured. `next` is shared by the threads.
    pub(crate) fn fill(
        dialect: Dialect,
        target: &Target,
        next: &'a AtomicU64,
        progress: &'a ProgressBar,
    ) -> Self {
        // A single key would be another command, with another reply.
        let keys = target.filled.clamp(2, FILL_KEYS) as usize;
        let form = Form::new(dialect, true, keys, target);
        Self { form, keys: Keys::Fill { filled: target.filled, next, progress }, random: 0 }
    }

    /// Keys in every request.
    pub(crate) fn keys(&self) -> usize {
        self.form.keys
    }

    /// Appends a request, and for each key what has to be answered; nothing when there is no more to ask.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, mut expect: impl FnMut(u8)) -> bool {
        let count = self.form.keys as u64;
        match self.keys {
            Keys::Fill { filled, next, progress } => {
                let first = next.fetch_add(count, Ordering::Relaxed);
                if first >= filled {
                    return false;
                }
                // The last request begins earlier, so that it is as long as the others.
                let first = first.min(filled.saturating_sub(count));
                self.form.begin(out);
                for key in first..first + count {
                    self.form.item(key, out);
                    expect(self.form.expected(false));
                }
                progress.inc(count);
            }
            Keys::Lookups { filled, capacity } => {
                self.form.begin(out);
                for _ in 0..count {
                    let word = self.word();
                    let is_there = word & 1 == 1 && filled > 0;
                    let key = if is_there { below(word, filled) } else { capacity + below(word, capacity) };
                    self.form.item(key, out);
                    expect(self.form.expected(is_there));
                }
            }
            Keys::Adds { filled, capacity } => {
                self.form.begin(out);
                for _ in 0..count {
                    let key = below(self.word(), capacity);
                    self.form.item(key, out);
                    expect(self.form.expected(key < filled));
                }
            }
        }
        true
    }

    fn word(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::{ANY, Operation};
    use super::*;

    fn target(filled: u64) -> Target {
        Target { name: "f".to_owned(), capacity: 10_000, filled, error: 0.001 }
    }

    /// The numbers of the keys in requests.
    fn keys(out: &[u8]) -> Vec<u64> {
        let text = std::str::from_utf8(out).unwrap();
        text.split("key:").skip(1).map(|key| key[..10].parse().unwrap()).collect()
    }

    #[test]
    fn a_fill_adds_every_key() {
        for filled in [0, 2, 999, 1_000, 1_001, 3_500] {
            let (target, next, progress) = (target(filled), AtomicU64::new(0), ProgressBar::hidden());
            let mut source = Source::fill(Dialect::Bloom, &target, &next, &progress);
            let (mut out, mut expected) = (Vec::new(), 0);
            while source.write(&mut out, |_| expected += 1) {}
            let mut keys = keys(&out);
            assert_eq!(keys.len(), expected);
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys, (0..filled).collect::<Vec<_>>());
        }
    }

    #[test]
    fn half_of_the_lookups_are_there() {
        let case = Case { operation: Operation::Mexists, pipeline: 1 };
        let mut source = Source::new(Dialect::Bloom, &case, &target(5_000), 1);
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        (0..100).for_each(|_| assert!(source.write(&mut out, |answer| expected.push(answer))));
        let there = expected.iter().filter(|answer| **answer == 1).count();
        assert!((4_700..5_300).contains(&there), "{there}");
        for (key, answer) in keys(&out).into_iter().zip(expected) {
            assert!(
                if answer == ANY { (10_000..20_000).contains(&key) } else { key < 5_000 },
                "{key}: {answer}"
            );
        }
    }

    #[test]
    fn adds_stay_within_the_capacity() {
        let case = Case { operation: Operation::Madd, pipeline: 1 };
        let mut source = Source::new(Dialect::Bits, &case, &target(5_000), 1);
        assert!(source.write(&mut Vec::new(), |answer| assert!(answer == 1 || answer == ANY)));
        let mut source = Source::new(Dialect::Bloom, &case, &target(5_000), 1);
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        (0..100).for_each(|_| assert!(source.write(&mut out, |answer| expected.push(answer))));
        for (key, answer) in keys(&out).into_iter().zip(expected) {
            assert!(key < 10_000 && (answer == 0) == (key < 5_000), "{key}: {answer}");
        }
    }
}
