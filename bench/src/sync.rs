//! Copies in other processes: what travels, how soon it is there, and what lookups notice of it.
//!
//! | module | what it measures |
//! | --- | --- |
//! | `wire` | bytes that a change takes, by strategy |
//! | `visible` | from an acknowledged add until every one of many replicas has it |
//! | `lookups` | lookups in a replica: beside the bare filter, and while versions are swapped |
//! | `compression` | what compression saves of a filter's chunks |
//! | `centre`, `proxy` | the server, and a proxy that counts |

mod centre;
mod compression;
mod lookups;
mod proxy;
mod visible;
mod wire;

use std::error::Error;
use std::time::Duration;

use clap::{Args, ValueEnum};
use umbel_client::{Options as ReplicaOptions, Strategy};

use crate::How;
use crate::measure::Progress;
use crate::report::Report;

pub(crate) const EXAMPLES: &str = "Examples:
  bench sync --quick               everything in small sizes
  bench sync --part visible        one part in full size
  bench sync --json                one JSON object a line";

/// What `sync` is to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these parts.
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Follows a filter of this server with `--replicas` and says when it has the keys that it reads: how the benchmark calls itself.
    #[arg(long, hide = true)]
    follow: Option<String>,
    /// How those follow.
    #[arg(long, hide = true, default_value = "delta")]
    strategy: String,
    /// How many of them there are.
    #[arg(long, hide = true, default_value_t = 1)]
    replicas: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Wire,
    Visible,
    Lookups,
    Compression,
}

/// The filter that is followed.
const FILTER: &str = "followed";
/// How often those ask who ask.
const INTERVAL: Duration = Duration::from_millis(200);
const STRATEGIES: [&str; 6] = ["pull", "push", "notify", "delta", "window", "strong"];

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    if let Some(server) = &options.follow {
        return visible::follow(server, &options.strategy, options.replicas);
    }
    let mut report = Report::new(how.json);
    let mut progress = Progress::start();
    let wanted = |part| options.part.is_empty() || options.part.contains(&part);
    if wanted(Part::Wire) {
        wire::run(how.quick, &mut report, &mut progress)?;
    }
    if wanted(Part::Visible) {
        visible::run(how.quick, &mut report, &mut progress)?;
    }
    if wanted(Part::Lookups) {
        lookups::run(how.quick, &mut report, &mut progress)?;
    }
    if wanted(Part::Compression) {
        compression::run(how.quick, &mut report, &mut progress)?;
    }
    Ok(())
}

/// A replica that follows by a strategy's name.
fn replica_options(server: &str, strategy: &str) -> ReplicaOptions {
    let (strategy, window) = match strategy {
        "pull" => (Strategy::pull(INTERVAL), Duration::ZERO),
        "push" => (Strategy::push(), Duration::ZERO),
        "notify" => (Strategy::notify(), Duration::ZERO),
        "strong" => (Strategy::strong(), Duration::ZERO),
        "window" => (Strategy::delta(), INTERVAL),
        _ => (Strategy::delta(), Duration::ZERO),
    };
    ReplicaOptions::new(server, FILTER, strategy).window(window)
}
