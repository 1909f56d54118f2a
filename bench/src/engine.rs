//! The engine on real files.
//!
//! Every part opens engines in folders of its own and removes them. Engines have the settings that users get, unless a
//! part says otherwise. What is compared is measured in turns, and times are medians of the turns.
//!
//! | module | what it measures |
//! | --- | --- |
//! | `adds` | adds a second through log and fold |
//! | `pauses` | how long an add or a lookup takes while something else goes on |
//! | `recovery` | how long it takes to open what another engine left |
//! | `projection` | how fast the next generation is built from the archive |
//! | `growth` | how much memory growth takes, in a process of its own |
//! | `snapshots` | how many bytes a checkpoint writes |
//! | `place` | folders and engines |

mod adds;
mod growth;
mod pauses;
mod place;
mod projection;
mod recovery;
mod snapshots;

use std::error::Error;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::How;
use crate::measure::Progress;
use crate::report::Report;
use place::Place;

pub(crate) const EXAMPLES: &str = "Examples:
  bench engine --quick                        everything in small sizes, a few minutes
  bench engine --part growth --part pauses    two parts in full size
  bench engine --folder /mnt/nvme --json      on another disk, one JSON object a line";

/// What `engine` is to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the files go; they are removed in the end [default: the system's folder for temporary files].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Only these parts.
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Measures growth to twice this number of keys in this process: how the benchmark calls itself.
    #[arg(long, hide = true)]
    growth_of: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Adds,
    Pauses,
    Recovery,
    Projection,
    Growth,
    Snapshots,
}

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    let place = Place::new(options.folder.as_deref())?;
    if let Some(keys) = options.growth_of {
        return growth::measure_here(&place, keys);
    }
    let mut progress = Progress::start();
    let mut report = Report::new(how.json);
    let parts = if options.part.is_empty() { Part::value_variants() } else { &options.part };
    for part in parts {
        let figures = match part {
            Part::Adds => adds::run(&place, how.quick, &mut progress),
            Part::Pauses => pauses::run(&place, how.quick, &mut progress),
            Part::Recovery => recovery::run(&place, how.quick, &mut progress),
            Part::Projection => projection::run(&place, how.quick, &mut progress),
            Part::Growth => growth::run(&place, how.quick, &mut progress),
            Part::Snapshots => snapshots::run(&place, how.quick, &mut progress),
        };
        progress.pause();
        report.figures(&figures?)?;
    }
    progress.step("done".to_owned());
    Ok(())
}
