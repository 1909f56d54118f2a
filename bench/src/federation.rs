//! Lookups across domains: the record of a number, with filters in memory and without.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `world` | domains: databases behind a network, and their filters |
//! | `users` | people who ask at the same time |
//! | `filters` | what filters of many records take, and how fast they are asked |
//! | `chart` | a picture |
//!
//! The network is a pause before and after each question to another domain, while the connection is held, as it is in life. The local
//! database is asked without one. All ways to ask get the same numbers in the same order.

mod chart;
mod filters;
mod users;
mod world;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::How;
use crate::measure::Progress;
use crate::report::{Figure, Report, Target};
use users::{Asked, Way};
use world::World;

pub(crate) const EXAMPLES: &str = "Examples:
  bench federation --svg federation.svg
  bench federation --part users --domains 3,10 --users 10,100,1000
  bench federation --quick";

/// What `federation` is to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// How many domains there are.
    #[arg(long, value_delimiter = ',', default_value = "3,5,10", value_parser = clap::value_parser!(u16).range(2..=50))]
    domains: Vec<u16>,
    /// How many people ask at the same time.
    #[arg(long, value_delimiter = ',', default_value = "10,20,40,60,80,100,1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    users: Vec<u32>,
    /// Milliseconds to another domain and back.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    delay: u64,
    /// Where a picture is kept.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only these parts.
    #[arg(long, value_enum)]
    part: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Users,
    Memory,
    Lookups,
}

pub(crate) const PART: &str = "federation";

/// What was measured with so many domains and people, in one way.
pub(crate) struct Point {
    pub(crate) domains: u16,
    pub(crate) users: u32,
    pub(crate) way: Way,
    pub(crate) p50_ms: f64,
}

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    let (mut report, mut progress) = (Report::new(how.json), Progress::start());
    let wanted = |part| options.part.is_empty() || options.part.contains(&part);
    if wanted(Part::Users) {
        let points = ask(options, how, &mut report, &mut progress)?;
        if let Some(path) = &options.svg {
            std::fs::write(path, chart::draw(options.delay, &points))?;
        }
    }
    if wanted(Part::Memory) {
        filters::memory(how.quick, &mut report)?;
    }
    if wanted(Part::Lookups) {
        filters::lookups(how.quick, &mut report, &mut progress)?;
    }
    progress.step("done".to_owned());
    progress.pause();
    Ok(())
}

fn ask(
    options: &Options,
    how: How,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<Vec<Point>, Box<dyn Error>> {
    let (records, time) =
        if how.quick { (2_000, Duration::from_millis(500)) } else { (50_000, Duration::from_secs(5)) };
    let quick = ([3].as_slice(), [10, 100].as_slice());
    let (domains, users) = if how.quick { quick } else { (&*options.domains, &*options.users) };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().max_blocking_threads(1_024).enable_all().build()?;
    let mut points = Vec::new();
    for &domains in domains {
        progress.step(format!("{domains} databases of {records} records"));
        let world = World::make(domains, records, Duration::from_millis(options.delay))?;
        for &users in users {
            let mut conventional = f64::NAN;
            for way in Way::ALL {
                progress.step(format!("{domains} domains, {users} users, {}", way.name()));
                let asked = runtime.block_on(users::ask(&world, way, users, time));
                let Asked { p50_ms, p99_ms, per_second, found, answers } = asked;
                if way == Way::Everywhere {
                    conventional = p50_ms;
                }
                let what =
                    |figure: &str| format!("{domains} domains, {users} users, {}: {figure}", way.name());
                let mut p50 = Figure::new(PART, what("p50"), p50_ms, "ms");
                if way != Way::Everywhere {
                    let faster = conventional / p50_ms;
                    p50 = p50.against(1.0 / faster, "asking everywhere");
                    report.figure(
                        Figure::new(PART, what("times faster"), faster, "times")
                            .target(Target::AtLeast(10.0)),
                    )?;
                }
                report.figures(&[
                    p50,
                    Figure::new(PART, what("p99"), p99_ms, "ms"),
                    Figure::new(PART, what("answers"), per_second, "/s"),
                    Figure::new(PART, what("found"), 100.0 * found as f64 / answers.max(1) as f64, "%"),
                ])?;
                points.push(Point { domains, users, way, p50_ms });
            }
        }
    }
    Ok(points)
}
