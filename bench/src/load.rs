//! Loading: keys from where they are into a filter of a server, beside what simply reading them takes; and a filter that is filled anew
//! while it is used.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `places` | the sources: how they are made, read without Umbel, and named to `umbel load` |
//! | `sources` | a load from each of them, in turns with reading it |
//! | `rebuild` | lookups while a filter is rebuilt and added to |
//!
//! Server, loader and database are processes on this machine, and share its processors. The loader is `umbel` itself.

mod places;
mod rebuild;
mod sources;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::How;
use crate::link::{self, Link, spread};
use crate::measure::Progress;
use crate::process::{Ran, Server, watched};
use crate::report::Report;

pub(crate) const EXAMPLES: &str = "The umbel: `cargo build --release --features full`. A PostgreSQL: `cargo xtask services start postgres`; the table that is made there is dropped.
Examples:
  bench load --quick
  bench load --postgres postgres://umbel@127.0.0.1:5432/postgres --rows 10000000
  bench load --part rebuild --keys 100000000 --json";

/// What `load` is to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// The command, built with Parquet, SQLite and PostgreSQL.
    #[arg(long, value_name = "PATH", default_value = "target/release/umbel")]
    umbel: PathBuf,
    /// A database of PostgreSQL in which a table may be made.
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Rows of each source [default: 5,000,000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rows: Option<u64>,
    /// Keys of the filter that is rebuilt [default: 10,000,000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Where files are made; they are removed in the end [default: the system's folder for temporary files].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Only these parts.
    #[arg(long, value_enum)]
    part: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Sources,
    Rebuild,
}

const PART: &str = "load";
const FILTER: &str = "measured";
/// Keys that are looked for after a load.
const SAMPLE: u64 = 1000;
/// Megabytes that a loader may take, whatever the source holds.
const MEMORY_MAX: f64 = 300.0;

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = folder.join(format!("umbel-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = measure(options, how, &folder);
    // What cannot be removed is in a folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn measure(options: &Options, how: How, folder: &Path) -> Result<(), Box<dyn Error>> {
    let (mut report, mut progress) = (Report::new(how.json), Progress::start());
    let wanted = |part| options.part.is_empty() || options.part.contains(&part);
    let umbel = options.umbel.canonicalize();
    let umbel = umbel.map_err(|error| format!("{}: {error}", options.umbel.display()))?;
    progress.step("starting a server".to_owned());
    let mut server = Server::start(&umbel, folder, &[], None)?;
    server.wait()?;
    let subject = Subject { umbel, server, folder: folder.to_owned() };
    if wanted(Part::Sources) {
        let rows = options.rows.unwrap_or(if how.quick { 200_000 } else { 5_000_000 });
        let postgres = options.postgres.as_deref();
        sources::run(&subject, rows, postgres, how.quick, &mut report, &mut progress)?;
    }
    if wanted(Part::Rebuild) {
        let keys = options.keys.unwrap_or(if how.quick { 200_000 } else { 10_000_000 });
        rebuild::run(&subject, keys, how.quick, &mut report, &mut progress)?;
    }
    progress.step("done".to_owned());
    progress.pause();
    Ok(())
}

/// What is measured: a server, and the command that loads into it.
struct Subject {
    umbel: PathBuf,
    server: Server,
    folder: PathBuf,
}

impl Subject {
    /// Makes the filter anew, with room for so many keys, half as many more and some.
    fn make_filter(&self, keys: u64) -> Result<(), Box<dyn Error>> {
        let mut link = Link::open(self.server.port)?;
        link.ask(&["DEL", FILTER])?;
        link.ask(&["BF.RESERVE", FILTER, "0.001", &(keys + keys / 2 + SAMPLE).to_string()])?;
        Ok(())
    }

    /// Runs `umbel load` or `umbel rebuild`, and looks whether it has brought all keys.
    fn fill(&self, command: &str, place: &[String], keys: u64) -> Result<Ran, Box<dyn Error>> {
        let server = format!("http://127.0.0.1:{}", self.server.http_port);
        let ran = watched(
            Command::new(&self.umbel)
                .args([command, FILTER])
                .args(place)
                .args(["--json", "--server", &server])
                .current_dir(&self.folder),
            &self.folder.join("said"),
        )?;
        let told = ran.output.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let brought = told.filter_map(|told| told["keys"].as_u64()).next_back();
        if brought != Some(keys) {
            return Err(format!("umbel {command} brought {brought:?} keys of {keys}: {}", ran.output).into());
        }
        let sample = (0..SAMPLE).map(|number| spread(number) % keys);
        let answer = Link::open(self.server.port)?.ask(&link::command(b"BF.MEXISTS", FILTER, sample))?;
        if answer.hits != answer.all {
            return Err(format!("{} of {} keys are not there", answer.all - answer.hits, answer.all).into());
        }
        Ok(ran)
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
