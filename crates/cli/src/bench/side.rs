//! One of the two servers: its connections, and one measurement on it.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::control::{Commands, Control};
use super::cpu::Process;
use super::link::Tally;
use super::load::Worker;
use super::open::Schedule;
use super::request::{Case, Dialect, Target};
use super::source::Source;
use crate::resp::Address;

pub(crate) struct Side {
    pub(crate) label: &'static str,
    pub(crate) address: Address,
    pub(crate) product: Option<String>,
    pub(crate) dialect: Dialect,
    pub(crate) process: Option<Process>,
    control: Control,
    workers: Vec<Worker>,
}

/// How a case is run.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// As fast as replies come, for a time.
    Closed(Duration),
    Open(Schedule),
}

/// What a measurement found.
#[derive(Default)]
pub(crate) struct Sample {
    pub(crate) tally: Tally,
    pub(crate) elapsed: Duration,
    /// Processor time of the server.
    pub(crate) server: Option<Duration>,
    /// Processor time of this program.
    pub(crate) generator: Option<Duration>,
}

impl Sample {
    /// Joins another measurement of the same thing. A time that is unknown once is unknown.
    pub(crate) fn merge(&mut self, other: &Self) {
        let sum = |a: Option<Duration>, b: Option<Duration>| a.zip(b).map(|(a, b)| a + b);
        self.tally.merge(&other.tally);
        self.elapsed += other.elapsed;
        self.server = sum(self.server, other.server);
        self.generator = sum(self.generator, other.generator);
    }
}

impl Side {
    pub(crate) fn connect(
        label: &'static str,
        address: &Address,
        pid: Option<u32>,
        commands: Commands,
        connections: usize,
        threads: usize,
    ) -> Result<Self, String> {
        let mut control = Control::connect(address)?;
        let dialect = control.dialect(commands)?;
        let info = control.info()?;
        let process = pid.map(Process).or(info.process).filter(|process| process.time().is_some());
        if let (Some(pid), None) = (pid, process) {
            return Err(format!("there is no process {pid} whose time could be read"));
        }
        let share = |thread| connections / threads + usize::from(thread < connections % threads);
        let workers = (0..threads).map(|thread| Worker::connect(address, share(thread)));
        let workers = workers.collect::<Result<_, _>>()?;
        Ok(Self {
            label,
            address: address.clone(),
            product: info.product,
            dialect,
            process,
            control,
            workers,
        })
    }

    /// Makes the filter and adds the keys that lookups are to find.
    pub(crate) fn prepare(&mut self, target: &Target, progress: &ProgressBar) -> Result<(), String> {
        self.control.reserve(self.dialect, target)?;
        let (dialect, next) = (self.dialect, AtomicU64::new(0));
        let tally = in_threads(&mut self.workers, |_, worker| {
            let mut source = Source::fill(dialect, target, &next, progress);
            worker.closed(&mut source, 1, Duration::MAX)
        })?;
        match tally.faults.first {
            Some(first) => {
                Err(format!("{}: the filter could not be filled, beginning with: {first}", self.address))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn remove(&mut self, target: &Target) -> Result<(), String> {
        self.control.remove(target)
    }

    pub(crate) fn measure(
        &mut self,
        case: &Case,
        target: &Target,
        pace: Pace,
        seed: u64,
    ) -> Result<Sample, String> {
        let (dialect, process, own) = (self.dialect, self.process, Process::own());
        let times = || (process.and_then(Process::time), own.time());
        let ((server, generator), start) = (times(), Instant::now());
        let tally = in_threads(&mut self.workers, |thread, worker| {
            // Every thread has keys of its own; both servers are asked for the same ones.
            let seed = (seed << 16) + thread as u64;
            let mut source = Source::new(dialect, case, target, seed);
            match pace {
                Pace::Closed(duration) => worker.closed(&mut source, case.pipeline, duration),
                Pace::Open(schedule) => worker.open(&mut source, schedule),
            }
        })?;
        let elapsed = start.elapsed();
        let (server_end, generator_end) = times();
        let taken = |start: Option<Duration>, end: Option<Duration>| Some(end?.saturating_sub(start?));
        let (server, generator) = (taken(server, server_end), taken(generator, generator_end));
        Ok(Sample { tally, elapsed, server, generator })
    }
}

/// Lets all workers do something at once and adds up what they found.
fn in_threads(
    workers: &mut [Worker],
    run: impl Fn(usize, &mut Worker) -> Result<Tally, String> + Sync,
) -> Result<Tally, String> {
    let run = &run;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads = workers.iter_mut().enumerate();
        let threads: Vec<_> =
            threads.map(|(index, worker)| scope.spawn(move || run(index, worker))).collect();
        let gone = || Err("a thread of the generator has died".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
    });
    let mut sum = Tally::default();
    for outcome in outcomes {
        sum.merge(&outcome?);
    }
    Ok(sum)
}
