//! What a load says while it goes on: a bar for people, events for machines.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use umbel_load::{Counts, Part, Progress};

use crate::units::grouped;

/// How often the bar moves.
const BAR_EVERY: Duration = Duration::from_millis(100);
/// How often machines are told.
const EVENT_EVERY: Duration = Duration::from_secs(1);

/// How much there is to do, in what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Bytes(u64),
    Rows(u64),
    Unknown,
}

impl Whole {
    fn of(parts: &[Part]) -> Self {
        let sum = |of: fn(&Part) -> Option<u64>| parts.iter().map(of).sum::<Option<u64>>();
        match (sum(|part| part.bytes), sum(|part| part.rows)) {
            (Some(bytes), _) => Self::Bytes(bytes),
            (None, Some(rows)) => Self::Rows(rows),
            (None, None) => Self::Unknown,
        }
    }

    /// How much is done, and of how much.
    fn done(self, counts: &Counts) -> Option<(u64, u64)> {
        match self {
            Self::Bytes(whole) => Some((counts.bytes.min(whole), whole)),
            Self::Rows(whole) => Some(((counts.keys + counts.nulls).min(whole), whole)),
            Self::Unknown => None,
        }
    }
}

/// Shows a load from its beginning to its end.
pub(crate) struct Show {
    bar: ProgressBar,
    is_json: bool,
    whole: Whole,
    begun: Instant,
    before: Counts,
    next_event: Instant,
}

impl Show {
    /// A load of these parts, of which so much was done earlier.
    pub(crate) fn new(parts: &[Part], before: Counts, is_json: bool) -> Self {
        let whole = Whole::of(parts);
        let template = match whole {
            Whole::Unknown => "{spinner} {msg}",
            _ => "{wide_bar} {percent} %, {msg}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let length = whole.done(&before).map_or(0, |(_, whole)| whole);
        let bar = if is_json { ProgressBar::hidden() } else { ProgressBar::new(length).with_style(style) };
        let begun = Instant::now();
        Self { bar, is_json, whole, begun, before, next_event: begun + EVENT_EVERY }
    }

    /// Shows how it goes until `is_over`.
    pub(crate) fn follow(&mut self, progress: &Progress, is_over: impl Fn() -> bool) {
        while !is_over() {
            self.look(progress);
            std::thread::sleep(BAR_EVERY);
        }
        self.bar.finish_and_clear();
    }

    fn look(&mut self, progress: &Progress) {
        let counts = progress.counts();
        let (rate, left) = (self.rate(&counts), self.left(&counts));
        if let Some(why) = progress.take_trouble() {
            match self.is_json {
                true => event(&json!({ "event": "retry", "why": why })),
                false => self.bar.println(format!("umbel: {why}; trying again")),
            }
        }
        if self.is_json {
            if Instant::now() >= self.next_event {
                self.next_event += EVENT_EVERY;
                let mut told = counted(&counts);
                told["event"] = "progress".into();
                told["keys_per_second"] = (rate.round() as u64).into();
                told["seconds_left"] = left.map(|left| left.as_secs()).into();
                told["retries"] = progress.retries().into();
                event(&told);
            }
            return;
        }
        if let Some((done, _)) = self.whole.done(&counts) {
            self.bar.set_position(done);
        }
        let left = left.map_or(String::new(), |left| format!(", {} left", rough(left)));
        let keys = grouped(counts.keys.into());
        self.bar.set_message(format!("{keys} keys, {} a second{left}", grouped(rate as u128)));
        self.bar.tick();
    }

    fn rate(&self, counts: &Counts) -> f64 {
        counts.keys.saturating_sub(self.before.keys) as f64 / self.begun.elapsed().as_secs_f64().max(1e-3)
    }

    /// How long the rest takes if it goes on as it did so far.
    fn left(&self, counts: &Counts) -> Option<Duration> {
        let (done, whole) = self.whole.done(counts)?;
        let (before, _) = self.whole.done(&self.before)?;
        let now = done.checked_sub(before).filter(|now| *now > 0)?;
        Some(self.begun.elapsed().mul_f64((whole - done) as f64 / now as f64))
    }

    /// Seconds since it began, and keys a second.
    pub(crate) fn pace(&self, counts: &Counts) -> (f64, f64) {
        (self.begun.elapsed().as_secs_f64(), self.rate(counts))
    }
}

/// Counts as machines read them.
pub(crate) fn counted(counts: &Counts) -> Value {
    json!({ "keys": counts.keys, "added": counts.added, "nulls": counts.nulls, "bytes": counts.bytes })
}

/// One line for machines.
pub(crate) fn event(told: &Value) {
    println!("{told}");
}

/// `12 s`, `5 min`, `3 h`.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_the_whole_decides_what_is_shown() {
        let part = |bytes, rows| Part { name: String::new(), bounds: String::new(), bytes, rows };
        assert_eq!(Whole::of(&[part(Some(5), None), part(Some(6), None)]), Whole::Bytes(11));
        assert_eq!(Whole::of(&[part(None, Some(5)), part(None, Some(6))]), Whole::Rows(11));
        assert_eq!(Whole::of(&[part(None, Some(5)), part(None, None)]), Whole::Unknown);
        let counts = Counts { keys: 8, nulls: 4, bytes: 20, added: 0 };
        assert_eq!(Whole::Bytes(11).done(&counts), Some((11, 11)));
        assert_eq!(Whole::Rows(20).done(&counts), Some((12, 20)));
    }
}
