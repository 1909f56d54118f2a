//! A source is read into a sink, and people see how it goes: what loads and rebuilds have in common.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use umbel_filter::{Family, Hasher};
use umbel_load::limits::LANES_MAX;
use umbel_load::sink::ServerSink;
use umbel_load::{Counts, Loader, Options, Part, Progress, Source};

use super::STOPPED;
use super::show::{Show, event};
use crate::remote::{parse_time, runtime};
use crate::units::{grouped, parse_count};

/// How often somebody who waits for a signal looks whether all is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a source is read. Flatten it into a command's arguments.
#[derive(clap::Args)]
pub(crate) struct Reading {
    /// Parts that are read at the same time
    #[arg(long, default_value_t = 4, value_parser = parse_lanes)]
    pub(super) lanes: usize,
    /// Most keys a second
    #[arg(long, value_parser = parse_count, value_name = "KEYS")]
    rate: Option<u64>,
    /// How long server and source may be away before it gives up
    #[arg(long, default_value = "60s", value_parser = parse_time)]
    pub(super) patience: Duration,
    /// Where it is written down what has arrived; else a file in this folder
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Writes nothing down: killed, it begins anew
    #[arg(long, conflicts_with = "checkpoint")]
    no_checkpoint: bool,
    /// Begins anew, whatever was written down
    #[arg(long)]
    pub(crate) restart: bool,
    /// Events as JSON, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_lanes(text: &str) -> Result<usize, String> {
    let lanes = text.parse().ok().filter(|lanes| (1..=LANES_MAX).contains(lanes));
    lanes.ok_or_else(|| format!("lanes are 1 to {LANES_MAX}"))
}

/// What is read into what.
pub(crate) struct Fill<'a> {
    pub(crate) reading: &'a Reading,
    pub(crate) source: &'a dyn Source,
    pub(crate) sink: &'a ServerSink,
    /// What the keys go into, so that what was written down is not taken for another one's.
    pub(crate) target: String,
    /// Whether a key that comes twice counts twice.
    pub(crate) exactly_once: bool,
}

/// What came of it.
pub(crate) enum Filled {
    /// All keys have arrived: how many, in how many seconds, and how many a second.
    Whole { counts: Counts, seconds: f64, rate: f64 },
    /// Somebody stopped it from outside.
    Stopped,
}

impl Fill<'_> {
    /// Reads until all has arrived. Before it begins, unless it was begun earlier, `ready` may look at the parts and refuse.
    pub(crate) fn run(
        &self,
        ready: impl FnOnce(&[Part]) -> Result<(), Box<dyn Error>>,
    ) -> Result<Filled, Box<dyn Error>> {
        let Reading { lanes, rate, patience, restart, json, .. } = *self.reading;
        let options = Options {
            lanes,
            rate,
            patience,
            checkpoint: self.checkpoint()?,
            restart,
            exactly_once: self.exactly_once,
            target: self.target.clone(),
        };
        let is_kept = options.checkpoint.is_some() && self.source.is_resumable();
        let loader = Loader::new(self.source, self.sink, options)?;
        let (parts, before) = (loader.parts(), loader.resumed().unwrap_or_default());
        match loader.resumed() {
            None => ready(&parts)?,
            // What was begun had enough room when it began.
            Some(Counts { keys, .. }) if json => event(&json!({ "event": "resume", "keys": keys })),
            Some(Counts { keys, .. }) => {
                eprintln!("umbel: going on behind {} keys of an earlier run", grouped(keys.into()));
            }
        }
        let (progress, mut show) = (Progress::default(), Show::new(&parts, before, json));
        let outcome = watched(&progress, &mut show, || loader.run(&progress));
        let counts = progress.counts();
        let error = match outcome {
            Ok(_) => {
                let (seconds, rate) = show.pace(&counts);
                return Ok(Filled::Whole { counts, seconds, rate });
            }
            Err(error) => error,
        };
        let kept = if is_kept { "; the same command goes on from there" } else { "" };
        let what = format!("{error}: {} keys have arrived{kept}", grouped(counts.keys.into()));
        if json {
            event(&json!({ "event": "error", "message": what }));
        }
        if matches!(error, umbel_load::Error::Stopped) {
            eprintln!("umbel: {what}");
            return Ok(Filled::Stopped);
        }
        Err(what.into())
    }

    /// A name that the same source and target get again.
    fn checkpoint(&self) -> Result<Option<PathBuf>, Box<dyn Error>> {
        if self.reading.no_checkpoint || self.reading.checkpoint.is_some() {
            return Ok(self.reading.checkpoint.clone());
        }
        let what = format!("{}\n{}", self.source.identity(), self.target);
        let bytes = Hasher::new(Family::Xxh3, None)?.fingerprint(what.as_bytes()).to_bytes();
        let name: String = bytes[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(format!("umbel-load-{name}.checkpoint").into()))
    }
}

/// Does something in a thread of its own while it is shown how it goes, until somebody stops it. Whoever does so twice does not wait for it.
pub(super) fn watched<T: Send>(progress: &Progress, show: &mut Show, work: impl FnOnce() -> T + Send) -> T {
    let is_over = AtomicBool::new(false);
    let signals = runtime().ok();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let outcome = work();
            is_over.store(true, Ordering::Release);
            outcome
        });
        let watcher = scope.spawn(|| {
            let Some(runtime) = &signals else { return };
            runtime.block_on(async {
                let Ok(mut signals) = signal(SignalKind::interrupt()) else { return };
                let mut was_told = false;
                while !is_over.load(Ordering::Acquire) {
                    if timeout(LOOK_EVERY, signals.recv()).await.is_err() {
                        continue;
                    }
                    if std::mem::replace(&mut was_told, true) {
                        // A source that says nothing holds up whoever reads it. What has arrived is written down already, but for the
                        // last moments, which are sent again.
                        std::process::exit(STOPPED.into());
                    }
                    progress.stop();
                }
            });
        });
        show.follow(progress, || worker.is_finished());
        let outcome = worker.join();
        is_over.store(true, Ordering::Release);
        let _ = watcher.join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
