//! Sessions: what a user would do, from beginning to end, with real servers, and printed as it happens. One that does not end as it should
//! ends with an error.

mod cluster;
mod fill;
mod link;
mod scale;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Subcommand;

use crate::cluster::Engines;
use crate::server::{binary, given};
use crate::step::{Failure, output};

/// What is shown.
#[derive(Subcommand)]
pub(crate) enum What {
    /// A filter that is rebuilt twice from a table of PostgreSQL, with kills in the middle, while an application goes on inserting
    Fill {
        /// Rows of the table in the beginning
        #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
        rows: u64,
        /// The command, if not the one that tests use, which is built without optimisations
        #[arg(long, value_name = "PATH")]
        umbel: Option<PathBuf>,
    },
    /// A cluster of which a node is killed and another one is added, while clients write and read; nothing that was acknowledged may be lost
    Cluster {
        /// What it stands on
        #[arg(long, value_enum, default_value_t = Engines::Redis)]
        engines: Engines,
        /// How many nodes, in the beginning
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=20))]
        nodes: u16,
        /// The command, if not one that is built for it, without optimisations
        #[arg(long, value_name = "PATH")]
        umbel: Option<PathBuf>,
    },
    /// A cluster with hundreds of millions of elements: whether memory, balance and error rate are what `umbel plan` says
    #[command(
        after_help = "With Redis as its log, everything is in Redis's memory until checkpoints have it: that is for small numbers.
Examples:
  cargo xtask session scale
  cargo xtask session scale --keys 2000000 --nodes 3 --engines redis"
    )]
    Scale {
        /// How many nodes
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=20))]
        nodes: u16,
        /// Elements that are added, and the capacity of the filter
        #[arg(long, default_value_t = 300_000_000, value_parser = clap::value_parser!(u64).range(1_000_000..=100_000_000_000))]
        keys: u64,
        /// The error rate of the filter
        #[arg(long, default_value_t = 0.001)]
        error: f64,
        /// What it stands on
        #[arg(long, value_enum, default_value_t = Engines::Kafka)]
        engines: Engines,
        /// The command, if not one that is built for it, with optimisations
        #[arg(long, value_name = "PATH")]
        umbel: Option<PathBuf>,
    },
}

pub(crate) fn run(what: &What) -> Result<(), Failure> {
    match what {
        What::Fill { rows, umbel } => {
            let umbel = match umbel {
                Some(path) => given(path)?,
                None => binary()?,
            };
            fill::run(&umbel, *rows)
        }
        What::Cluster { engines, nodes, umbel } => cluster::run(*engines, *nodes, umbel.as_deref()),
        What::Scale { nodes, keys, error, engines, umbel } => {
            let asked = scale::Asked { nodes: *nodes, keys: *keys, error: *error, engines: *engines };
            scale::run(&asked, umbel.as_deref())
        }
    }
}

/// Says what happens, with the seconds since the beginning.
struct Story(Instant);

impl Story {
    fn begin() -> Self {
        Self(Instant::now())
    }

    fn tell(&self, what: &str) {
        println!("{:8.1} s  {what}", self.0.elapsed().as_secs_f64());
    }

    /// Runs a command as somebody at a terminal would, and shows it with what it says, which is given back.
    fn show(&self, program: &Path, arguments: &[&str]) -> Result<String, Failure> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        self.tell(&format!("$ {name} {}", arguments.join(" ")));
        let said = output(Command::new(program).args(arguments))?;
        let said = String::from_utf8_lossy(&said).trim_end().to_owned();
        said.lines().for_each(|line| println!("            {line}"));
        Ok(said)
    }
}
