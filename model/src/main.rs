//! Checks all configurations of the model, and prints the outcome of each and every counterexample in words.

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use umbel_model::{
    Case, Configuration, Expectation, Outcome, Progress, Size, Subject, Verdict, cases, search, trace,
};

#[derive(Parser)]
#[command(
    name = "umbel-model",
    about = "Check the cluster's rules (docs/cluster-protocol.md) in all states of a model"
)]
struct Arguments {
    /// Check larger bounds, too: many minutes, and gigabytes of memory
    #[arg(long)]
    large: bool,
    /// Searches at a time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// States that one search may hold, each of about 120 bytes
    #[arg(long, default_value_t = 100_000_000)]
    states_max: usize,
    /// Do not print the counterexamples of the mutations
    #[arg(long)]
    brief: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cases = cases(if arguments.large { Size::Large } else { Size::Standard });
    let start = Instant::now();
    println!("Three nodes, two partitions, one entry, one lookup after its acknowledgement.");
    println!(
        "Bounds: e leases end, g gaps in a trust, w wishes to serve or not, r reports, l late records.\n"
    );
    println!("rule  subject  bounds               states  depth      time  verdict");
    let failed = check(&cases, &arguments);
    let time = start.elapsed();
    println!("\n{} configurations in {:.1} s, {failed} not as expected", cases.len(), time.as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Searches all cases, some at a time, and prints them in their order; says how many are not as expected.
fn check(cases: &[Case], arguments: &Arguments) -> usize {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(cases.iter().map(|_| None).collect());
    let printed = Mutex::new((0, 0));
    let work = || {
        while let Some((number, case)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            cases.get(number).map(|case| (number, case))
        } {
            let mut line = ProgressLine::new(&case.configuration);
            let outcome = search(&case.configuration, arguments.states_max, |progress| line.tell(progress));
            line.clear();
            let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            outcomes[number] = Some(outcome);
            let mut printed = printed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            while let Some(outcome) = outcomes.get_mut(printed.0).and_then(Option::take) {
                printed.1 += usize::from(!print(&cases[printed.0], &outcome, arguments.brief));
                printed.0 += 1;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(work);
        }
    });
    let (_, failed) = printed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failed
}

fn print(case: &Case, outcome: &Outcome, brief: bool) -> bool {
    let configuration = &case.configuration;
    let rule = configuration.mutation.map_or("all", |mutation| mutation.rule());
    let subject = subject(configuration);
    let bounds = &configuration.bounds;
    let bounds = format!(
        "e{} g{} w{} r{} l{}",
        bounds.ends, bounds.gaps, bounds.wishes, bounds.reports, bounds.strays
    );
    let verdict = match (&outcome.verdict, configuration.mutation) {
        (Verdict::Holds, None) => "holds".to_owned(),
        (Verdict::Holds, Some(mutation)) => format!("holds: {}", mutation.words()),
        (Verdict::Broken { fault, .. }, None) => format!("BROKEN: {fault}"),
        (Verdict::Broken { .. }, Some(mutation)) => format!("found: {}", mutation.words()),
        (Verdict::Unfinished, _) => "unfinished".to_owned(),
    };
    let Outcome { states, depth, time, .. } = outcome;
    println!(
        "{rule:4}  {subject:7}  {bounds} {states:12}  {depth:5}  {:6.1} s  {verdict}",
        time.as_secs_f64()
    );
    if !brief || case.expectation == Expectation::Holds {
        let trace = trace(configuration, &outcome.verdict);
        if !trace.is_empty() {
            println!("{trace}");
        }
    }
    let objection = case.objection(outcome);
    if let Some(objection) = &objection {
        println!("      NOT AS EXPECTED: {objection}");
    }
    objection.is_none()
}

fn subject(configuration: &Configuration) -> &'static str {
    match configuration.subject {
        Subject::Key => "key",
        Subject::Name => "name",
    }
}

/// One line on a terminal that says how far a search is.
struct ProgressLine {
    title: String,
    told: Option<Instant>,
}

impl ProgressLine {
    fn new(configuration: &Configuration) -> Self {
        let words = configuration.mutation.map_or("the rules hold", |mutation| mutation.words());
        Self { title: format!("{}: {words}", subject(configuration)), told: None }
    }

    fn tell(&mut self, Progress { states, waiting, depth }: Progress) {
        let is_due = self.told.is_none_or(|told| told.elapsed() > Duration::from_millis(200));
        if is_due && stderr().is_terminal() {
            self.told = Some(Instant::now());
            let _ =
                write!(stderr(), "\r\x1b[K{}: {states} states, {waiting} waiting, depth {depth}", self.title);
        }
    }

    fn clear(&self) {
        if self.told.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
