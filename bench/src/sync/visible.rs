//! From an acknowledged add until all of many replicas, in several processes, have it.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use umbel_client::{Answer, Replica};
use umbel_filter::Spec;

use super::centre::{Centre, key};
use super::{STRATEGIES, replica_options};
use crate::measure::Progress;
use crate::report::{Figure, Report};

const PROCESSES: usize = 5;
const REPLICAS_EACH: usize = 10;

/// A process with some replicas.
struct Followers {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Followers {
    fn start(server: &str, strategy: &str) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["sync", "--follow", server, "--strategy", strategy])
            .args(["--replicas", &REPLICAS_EACH.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipe = "a process without pipes";
        let (input, output) = (process.stdin.take().ok_or(pipe)?, process.stdout.take().ok_or(pipe)?);
        Ok(Self { process, input, output: BufReader::new(output) })
    }

    /// Waits for a word.
    fn said(&mut self) -> Result<(), Box<dyn Error>> {
        match self.output.read_line(&mut String::new())? {
            0 => Err("replicas ended early".into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        // They end with their input, or so.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn run(quick: bool, report: &mut Report, progress: &mut Progress) -> Result<(), Box<dyn Error>> {
    let (capacity, adds) = if quick { (1_000_000, 10) } else { (10_000_000, 100) };
    let centre = Centre::open(Spec::bloom(capacity, 0.001), capacity / 2)?;
    let mut next = capacity / 2;
    for strategy in STRATEGIES {
        progress.step(format!("visible everywhere: {strategy}"));
        if strategy == "strong" {
            // They need a version to begin with. It comes last: what is pinned for them, others follow too.
            centre.switch()?;
        }
        let started: Result<Vec<_>, _> =
            (0..PROCESSES).map(|_| Followers::start(&centre.url(), strategy)).collect();
        let mut all = started?;
        for followers in &mut all {
            followers.said()?;
        }
        // Strong switches wait for many; fewer of them say as much.
        let adds = if strategy == "strong" { adds / 5 } else { adds };
        let mut times = Vec::new();
        for _ in 0..adds {
            for followers in &mut all {
                writeln!(followers.input, "{}", key(next))?;
            }
            // They look for it before it is there.
            sleep(Duration::from_millis(20));
            centre.add(next..next + 1)?;
            let acknowledged = Instant::now();
            if strategy == "strong" {
                centre.switch()?;
            }
            for followers in &mut all {
                followers.said()?;
            }
            times.push(acknowledged.elapsed().as_secs_f64() * 1e3);
            next += 1;
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        let replicas = PROCESSES * REPLICAS_EACH;
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let what = format!("{strategy}: an add is in {replicas} replicas, {name}");
            report.figure(Figure::new("visible", what, at(share), "ms"))?;
        }
    }
    Ok(())
}

/// Follows with some replicas, and says a word when all of them have the key that was read.
pub(super) fn follow(server: &str, strategy: &str, replicas: usize) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut all = Vec::new();
    for _ in 0..replicas {
        all.push(runtime.block_on(Replica::open(replica_options(server, strategy)))?);
    }
    let mut output = std::io::stdout().lock();
    let has = |key: &str| all.iter().all(|replica: &Replica| replica.contains(key) == Answer::Maybe);
    // Strong replicas begin to answer when the centre lets them.
    while !has(&key(0)) {
        sleep(Duration::from_millis(5));
    }
    writeln!(output, "ready")?;
    output.flush()?;
    for line in std::io::stdin().lines() {
        let key = line?;
        while !has(&key) {
            sleep(Duration::from_micros(200));
        }
        writeln!(output, "{key}")?;
        output.flush()?;
    }
    Ok(())
}
