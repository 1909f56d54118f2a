//! Lookups while the filter is built anew in another size, against lookups while nothing else happens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::control::Control;
use super::cpu::Process;
use super::request::{Case, Dialect, Operation, Target};
use super::side::{Pace, Sample, Side};
use super::table;

/// A server that takes less of a core than this has nothing left to do.
const IDLE_SHARE: f64 = 0.05;
/// How long it is waited for at most.
const SETTLE_SECONDS: u32 = 120;
/// How long lookups go on before somebody looks whether the filter still grows.
const STRETCH: Duration = Duration::from_millis(200);

/// What was found in all rounds together.
#[derive(Default)]
pub(crate) struct Growth {
    pub(crate) at_rest: Sample,
    pub(crate) growing: Sample,
    /// How long each change of size took.
    pub(crate) took: Vec<Duration>,
}

/// Measures lookups at rest for a while and then for as long as the filter takes to double, or to go back to its size, in turns.
pub(crate) fn measure(
    side: &mut Side,
    target: &Target,
    rounds: u32,
    at_rest: Duration,
) -> Result<Growth, String> {
    if side.dialect == Dialect::Bits {
        return Err(format!(
            "{}: bits do not grow; --growing needs a server with UMBEL.RESIZE",
            side.address
        ));
    }
    let case = Case { operation: Operation::Exists, pipeline: 1 };
    let mut found = Growth::default();
    for round in 0..rounds {
        let seed = u64::from(round) << 8;
        settle(side);
        join(&mut found.at_rest, side.measure(&case, target, Pace::Closed(at_rest), seed)?);
        let capacity = if round % 2 == 0 { 2 * target.capacity } else { target.capacity };
        let (begun, mut growing) = (Instant::now(), Sample::default());
        let (done, address) = (AtomicBool::new(false), side.address.clone());
        let outcome = std::thread::scope(|scope| {
            let resize = scope.spawn(|| {
                let resized = Control::connect(&address).and_then(|mut control| {
                    control.demand(&["UMBEL.RESIZE", &target.name, "CAPACITY", &capacity.to_string()])
                });
                done.store(true, Ordering::Release);
                resized.map(|()| begun.elapsed())
            });
            let mut stretch = 1;
            while !done.load(Ordering::Acquire) {
                join(&mut growing, side.measure(&case, target, Pace::Closed(STRETCH), seed + stretch)?);
                stretch += 1;
            }
            resize.join().unwrap_or_else(|_| Err("the thread that lets the filter grow has died".to_owned()))
        });
        found.took.push(outcome?);
        join(&mut found.growing, growing);
    }
    Ok(found)
}

/// Waits until the server has put away what came before, so that at rest means at rest.
fn settle(side: &Side) {
    for _ in 0..SETTLE_SECONDS {
        let time = || side.process.and_then(Process::time);
        let before = time();
        std::thread::sleep(Duration::from_secs(1));
        let Some(taken) = time().zip(before).map(|(after, before)| after.saturating_sub(before)) else {
            // It is on another machine: a few seconds have to do.
            std::thread::sleep(Duration::from_secs(4));
            return;
        };
        if taken.as_secs_f64() < IDLE_SHARE {
            return;
        }
    }
}

/// The first sample is that sample, because unknown times stay unknown when they are added up.
fn join(sum: &mut Sample, sample: Sample) {
    if sum.elapsed.is_zero() { *sum = sample } else { sum.merge(&sample) }
}

impl Growth {
    /// Lines for people.
    pub(crate) fn lines(&self, label: &str) -> String {
        let took: Vec<String> = self.took.iter().map(|took| format!("{:.1} s", took.as_secs_f64())).collect();
        let mut text = format!(
            "EXISTS on {label} while the filter changes its size ({} each), against EXISTS at rest\n",
            took.join(", ")
        );
        text.push_str(&format!("{:10} {:>12} {:>12} {:>8}\n", "", "at rest", "growing", "ratio"));
        for (name, rest, growing) in self.figures() {
            let ratio = growing / rest;
            text.push_str(&format!("{name:10} {rest:>12.0} {growing:>12.0} {ratio:>8.2}\n"));
        }
        text
    }

    /// Names with what was found at rest and while growing.
    pub(crate) fn figures(&self) -> Vec<(&'static str, f64, f64)> {
        table::LATENCIES
            .iter()
            .filter_map(|column| Some((column.head(), column.of(&self.at_rest)?, column.of(&self.growing)?)))
            .collect()
    }
}
