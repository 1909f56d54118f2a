//! How many bytes a checkpoint writes, when everything is new and when little changed.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use umbel_core::engine::{NewFilter, Sharding};
use umbel_core::log::Durability;
use umbel_filter::Spec;

use super::place::{Place, block_on, fill};
use crate::measure::Progress;
use crate::report::Figure;

pub(super) fn run(
    place: &Place,
    quick: bool,
    progress: &mut Progress,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let capacity: u64 = if quick { 5_000_000 } else { 50_000_000 };
    let keys = capacity * 3 / 4;
    let mut figures = Vec::new();
    for (sharding, name) in [(Sharding::Everywhere, "sharded"), (Sharding::Whole, "whole")] {
        progress.step(format!("snapshots, {name} filter"));
        let home = place.home();
        let engine = home.open(Durability::Os)?;
        let spec = Spec::bloom(capacity, 0.001);
        let filter = block_on(engine.create(NewFilter { sharding, ..NewFilter::new(name, spec) }))?;
        let mut before = files(&home.blobs())?;
        let mut all = 0;
        let mut full = 0;
        for (added, changed) in [(keys, "all"), (keys / 1000, "0.1 %"), (100, "100")] {
            fill(&engine, &filter, all..all + added)?;
            all += added;
            block_on(engine.checkpoint())?;
            let after = files(&home.blobs())?;
            let written = |end: &str| -> u64 {
                let new = after.iter().filter(|(path, _)| !before.contains_key(*path));
                new.filter(|(path, _)| path.to_string_lossy().ends_with(end)).map(|(_, bytes)| bytes).sum()
            };
            let what = |what: &str| format!("{name}, {changed} of {} k keys new: {what}", keys / 1000);
            let bytes = written("");
            full = full.max(bytes);
            let figure = Figure::new("snapshots", what("all"), bytes as f64 / 1e6, "MB");
            figures.push(figure.against(bytes as f64 / full as f64, "full"));
            for (end, blobs) in [(".arrays", "arrays"), (".run", "archive"), (".manifest", "manifests")] {
                figures.push(Figure::new("snapshots", what(blobs), written(end) as f64 / 1e6, "MB"));
            }
            before = after;
        }
    }
    Ok(figures)
}

/// All files in a folder and those below it, with their sizes.
fn files(folder: &Path) -> io::Result<BTreeMap<PathBuf, u64>> {
    let mut found = BTreeMap::new();
    let mut to_visit = vec![folder.to_owned()];
    while let Some(folder) = to_visit.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                to_visit.push(entry.path());
            } else {
                found.insert(entry.path(), about.len());
            }
        }
    }
    Ok(found)
}
