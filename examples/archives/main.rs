//! Three archives that do not share a database, and a reading room in which all of them can be asked: `cargo run --release --example archives`.
//!
//! ```text
//!  browser --> the page --> /v1/lookup of one archive --> its own filter, then copies of the others' filters, in memory
//!                                                     '--> the record: its own SQLite, or the server of the archive that has it
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `archive.rs` | one archive: an engine, its doors, its records in SQLite, its place among the others |
//! | `records.rs` | what the records are |
//! | `site.rs`, `page/` | the page, and what it asks for |
//!
//! Everything is in this process and in a folder that is removed at the end; a real deployment runs `umbel serve` in three places instead.

mod archive;
mod records;
mod site;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use umbel_core::clock::SystemClock;
use umbel_core::registry::{EmbeddedRegistry, Registry};

use archive::{Archive, Result};

const NAMES: [&str; 3] = ["lisbon", "oslo", "vienna"];

/// Three archives and a page to search them
#[derive(Parser)]
struct Arguments {
    /// Records of all archives together
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(3..=10_000_000))]
    records: u32,
    /// Port of the page; 0 is any that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Where the archives are; a folder of its own, which is removed at the end, if left out
    #[arg(long)]
    folder: Option<PathBuf>,
}

fn main() -> Result {
    let arguments = Arguments::parse();
    let own = std::env::temp_dir().join(format!("umbel-archives-{}", std::process::id()));
    let folder = arguments.folder.as_ref().unwrap_or(&own);
    let outcome = umbel::domains::runtime()?.block_on(run(&arguments, folder));
    if arguments.folder.is_none() {
        // What is left of it is in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&own);
    }
    outcome
}

async fn run(arguments: &Arguments, folder: &Path) -> Result {
    let begin = Instant::now();
    // Where archives find each other. On several machines that is etcd or ZooKeeper.
    let registry: Arc<dyn Registry> = Arc::new(EmbeddedRegistry::in_memory(Arc::new(SystemClock::default())));
    let mut archives = Vec::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        let archive = Archive::open(name, &folder.join(name), Arc::clone(&registry)).await?;
        archive.fill(records::of(number as u32, NAMES.len() as u32, arguments.records)).await?;
        println!(
            "{name:8}  {} records  HTTP http://{}  RESP {}",
            archive.records().await?,
            archive.http(),
            archive.resp()
        );
        archives.push(Arc::new(archive));
    }
    let site = site::serve(archives.clone(), arguments.port).await?;
    println!(
        "ready after {:.1} s: http://{site}/  (numbers are {} to {})",
        begin.elapsed().as_secs_f64(),
        records::FIRST,
        records::FIRST + arguments.records - 1
    );
    tokio::signal::ctrl_c().await?;
    for archive in &archives {
        archive.close().await?;
    }
    Ok(())
}
