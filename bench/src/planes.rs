//! Logs on engines against the embedded one: appends, their latency, reading back, and what the client's side costs.
//!
//! Every log gets the same entries from the same number of writers, in turns; figures are medians of the turns. What is measured
//! includes the server, which is likely to be on the same machine.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;
use umbel_adapters::open_log;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::entry::{Entry, Operation, Request};
use umbel_core::log::{Durability, FileLog, Log, Settings};
use umbel_core::url::Url;
use umbel_core::{Error as CoreError, Position};

use crate::How;
use crate::filters::keys::fingerprint;
use crate::measure::{Progress, median};
use crate::report::{Figure, Report};

pub(crate) const EXAMPLES: &str = "Engines are features of this benchmark: --features full, or kafka, nats, rabbitmq, redis.
`cargo xtask services start` provides servers; logs that are made there stay, so do not point this at a server that you need.
Examples:
  bench planes --quick                                             the embedded log alone
  bench planes --log kafka://127.0.0.1:9092 --log redis://127.0.0.1:6379
  bench planes --log nats://127.0.0.1:4222 --json                  one JSON object a line";

const PART: &str = "planes";
/// Keys of an entry: what a busy server appends at once.
pub(crate) const ENTRY_KEYS: u64 = 1000;
pub(crate) const PARTITIONS: u32 = 4;
/// Appends that wait for their answer at a time.
pub(crate) const WRITERS: u32 = 16;
/// Bytes that are asked for at once when reading back.
const READ_BYTES: usize = 4 << 20;
const ROUNDS: usize = 3;

/// What `planes` is to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the embedded log goes; it is removed in the end [default: the system's folder for temporary files].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// A log to measure, without a name: it gets one of its own.
    #[arg(long, value_name = "URL")]
    log: Vec<String>,
}

/// A log to be measured.
enum Subject {
    Embedded(Durability),
    Engine { url: String, name: String },
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Self::Embedded(Durability::Always) => "embedded, always synced".to_owned(),
            Self::Embedded(_) => "embedded, synced every 200 ms".to_owned(),
            Self::Engine { name, .. } => name.clone(),
        }
    }

    fn of_url(text: &str) -> Result<Self, Box<dyn Error>> {
        let url = Url::parse(text)?;
        if !url.path_or("").is_empty() {
            return Err(format!("{url} names a log; the benchmark makes one of its own").into());
        }
        Ok(Self::Engine { url: text.to_owned(), name: url.scheme().to_owned() })
    }

    async fn open(&self, folder: &std::path::Path) -> Result<Arc<dyn Log>, CoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Embedded(durability) => {
                let disk: Arc<dyn Disk> = Arc::new(RealDisk);
                let (durability, partitions) = (*durability, PARTITIONS);
                let settings =
                    Settings { durability, partitions, ..Settings::new(folder.join(number.to_string())) };
                Ok(Arc::new(FileLog::open(&disk, &settings)?))
            }
            Self::Engine { url, .. } => {
                let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
                let (host, parameters) = url.split_once('?').unwrap_or((url, ""));
                let host = host.trim_end_matches('/');
                let url = format!("{host}/umbel-bench-{time}-{number}?{parameters}");
                Ok(open_log(&Url::parse(&url)?.or_partitions(PARTITIONS)).await?.plane)
            }
        }
    }
}

/// What one turn came to.
struct Turn {
    appended_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    read_per_second: f64,
    append_cpu_us: f64,
    read_cpu_us: f64,
}

/// One of its figures.
type Of = fn(&Turn) -> f64;

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    let mut subjects = vec![Subject::Embedded(Durability::default()), Subject::Embedded(Durability::Always)];
    for url in &options.log {
        subjects.push(Subject::of_url(url)?);
    }
    let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = folder.join(format!("umbel-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = measure(how, &subjects, &folder);
    // What cannot be removed is in a folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn measure(how: How, subjects: &[Subject], folder: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (rounds, appends) = if how.quick { (1, 400) } else { (ROUNDS, 4000) };
    let mut progress = Progress::start();
    let mut report = Report::new(how.json);
    let mut turns: Vec<Vec<Turn>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (subject, turns) in subjects.iter().zip(&mut turns) {
            progress.step(format!("{}, turn {} of {rounds}", subject.name(), round + 1));
            turns.push(turn(&runtime, subject, folder, appends)?);
        }
    }
    progress.pause();
    let of = |turns: &[Turn], figure: Of| median(&turns.iter().map(figure).collect::<Vec<_>>());
    let Some(embedded) = turns.first() else { return Ok(()) };
    for (subject, turns) in subjects.iter().zip(&turns) {
        let figures: [(&str, Of, &str); 6] = [
            ("append", |turn| turn.appended_per_second, "keys/s"),
            ("append, p50", |turn| turn.p50_ms, "ms"),
            ("append, p99", |turn| turn.p99_ms, "ms"),
            ("read back", |turn| turn.read_per_second, "keys/s"),
            ("client's CPU an entry, append", |turn| turn.append_cpu_us, "us"),
            ("client's CPU an entry, read", |turn| turn.read_cpu_us, "us"),
        ];
        let figures: Vec<_> = figures
            .into_iter()
            .map(|(what, figure, unit)| {
                let value = of(turns, figure);
                Figure::new(PART, format!("{}: {what}", subject.name()), value, unit)
                    .against(value / of(embedded, figure), "embedded")
            })
            .collect();
        report.figures(&figures)?;
    }
    progress.step("done".to_owned());
    Ok(())
}

fn turn(
    runtime: &Runtime,
    subject: &Subject,
    folder: &std::path::Path,
    appends: u64,
) -> Result<Turn, Box<dyn Error>> {
    let log = runtime.block_on(subject.open(folder))?;
    // Connections and segments are made by the first appends.
    runtime.block_on(write(&log, u64::from(WRITERS) * 4))?;
    let (begin, cpu) = (Instant::now(), processor_time());
    let mut latencies = runtime.block_on(write(&log, appends))?;
    let (took, append_cpu) = (begin.elapsed(), processor_time() - cpu);
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let (begin, cpu) = (Instant::now(), processor_time());
    let entries = runtime.block_on(read(&*log))?;
    let (read_took, read_cpu) = (begin.elapsed(), processor_time() - cpu);
    let expected = latencies.len() as u64 + u64::from(WRITERS) * 4;
    if entries != expected {
        return Err(format!("{}: {entries} entries of {expected} were read back", subject.name()).into());
    }
    let each = |cpu: Duration, entries: u64| cpu.as_secs_f64() * 1e6 / entries as f64;
    Ok(Turn {
        appended_per_second: (latencies.len() as u64 * ENTRY_KEYS) as f64 / took.as_secs_f64(),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        read_per_second: (entries * ENTRY_KEYS) as f64 / read_took.as_secs_f64(),
        append_cpu_us: each(append_cpu, latencies.len() as u64),
        read_cpu_us: each(read_cpu, entries),
    })
}

/// Appends entries, each writer one after another, and gives how long each took.
pub(crate) async fn write(log: &Arc<dyn Log>, appends: u64) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let log = Arc::clone(log);
        let partition = writer % log.partitions();
        tasks.push(tokio::spawn(async move {
            let (mut latencies, mut read) = (Vec::new(), Position::START);
            for number in 0..appends / u64::from(WRITERS) {
                let first = (u64::from(writer) << 40) + number * ENTRY_KEYS;
                let keys = (first..first + ENTRY_KEYS).map(fingerprint).collect();
                let operation = Operation::Add(keys);
                let entry = Entry { filter: 1, slot: 0, request: Request::default(), operation }.encode()?;
                let begin = Instant::now();
                let appended = log.append_after(partition, vec![entry], read).await?;
                latencies.push(begin.elapsed());
                read = appended.positions.last().copied().unwrap_or(read);
            }
            Ok::<_, CoreError>(latencies)
        }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    Ok(latencies)
}

/// Reads everything, and gives how many entries there were.
async fn read(log: &dyn Log) -> Result<u64, CoreError> {
    let mut entries = 0;
    for partition in 0..log.partitions() {
        let mut after = Position::START;
        loop {
            let records = log.read(partition, after, READ_BYTES).await?;
            let Some(last) = records.last() else { break };
            after = last.position;
            entries += records.len() as u64;
        }
    }
    Ok(entries)
}

/// What all threads of this process have taken so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
