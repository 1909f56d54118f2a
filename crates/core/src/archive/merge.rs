//! Merging runs.

use std::sync::Arc;

use futures_util::future::try_join_all;
use object_store::ObjectStore;
use object_store::path::Path;
use umbel_filter::Fingerprint;

use super::page::Record;
use super::scan::Cursor;
use super::{Cover, Run, RunWriter, Tally};
use crate::limits::RUNS_MERGED_MAX;
use crate::{Error, Result};

/// Makes one run of several neighbours, given from the oldest to the newest.
///
/// `keep` says whether the fingerprints of a filter (its id comes second) are taken from an input (its place
/// comes first): those from before a filter was cleared or dropped are not. Nets are summed, and a sum of 0
/// is left out. If nothing older than the inputs exists, as `oldest_included` says, negative sums are left
/// out too, as they take nothing away.
pub async fn merge(
    store: &Arc<dyn ObjectStore>,
    inputs: &[Run],
    keep: impl Fn(usize, u64) -> bool,
    oldest_included: bool,
    path: Path,
) -> Result<Run> {
    let cover = joint_cover(inputs)?;
    let sections = plan(inputs, keep)?;
    let mut writer = RunWriter::create(store, path, cover)?;
    match merge_into(&mut writer, inputs, &sections, oldest_included).await {
        Ok(()) => writer.finish().await,
        Err(error) => {
            writer.abort().await;
            Err(error)
        }
    }
}

/// Reads all fingerprints of a filter from several runs in order, each once with its net over all of them.
///
/// The runs may come in any order, but each once. Nets of 0 are left out; in sections without counts all are
/// 1.
pub fn merged(inputs: &[Run], filter: u64) -> Result<NetScan> {
    merged_after(inputs, filter, None)
}

/// The same for those behind a fingerprint. What comes before it is not read.
pub fn merged_after(inputs: &[Run], filter: u64, after: Option<Fingerprint>) -> Result<NetScan> {
    check_number(inputs)?;
    let planned = plan(inputs, |_, other| other == filter)?.pop();
    let counted = planned.as_ref().is_some_and(|section| section.counted);
    let sources = planned.map_or(Vec::new(), |section| section.inputs);
    let cursors = sources.iter().map(|at| match after {
        None => Cursor::new(&inputs[*at], filter),
        Some(after) => Cursor::after(&inputs[*at], filter, after),
    });
    Ok(NetScan { merging: Merging::of(cursors.collect()), counted, after })
}

/// The fingerprints of one filter in several runs. [`merged`] gives it.
#[derive(Debug)]
pub struct NetScan {
    merging: Merging<Tally>,
    counted: bool,
    after: Option<Fingerprint>,
}

impl NetScan {
    /// The next fingerprints with their nets, which may be none, or nothing at the end.
    pub async fn next(&mut self) -> Result<Option<&[Tally]>> {
        let Self { merging, counted, after } = self;
        let Some(tallies) = merging.next().await? else { return Ok(None) };
        if let Some(after) = after {
            tallies.retain(|tally| tally.key > *after);
        }
        if !*counted {
            tallies.iter_mut().for_each(|tally| tally.net = 1);
        }
        Ok(Some(tallies))
    }
}

async fn merge_into(
    writer: &mut RunWriter,
    inputs: &[Run],
    sections: &[Planned],
    oldest_included: bool,
) -> Result<()> {
    for Planned { filter, counted, inputs: sources } in sections {
        writer.begin(*filter, *counted).await?;
        let sources = sources.iter().map(|at| &inputs[*at]);
        if *counted {
            let mut merging = Merging::<Tally>::new(sources, *filter);
            while let Some(tallies) = merging.next().await? {
                if oldest_included {
                    tallies.retain(|tally| tally.net > 0);
                }
                writer.push(tallies).await?;
            }
        } else {
            let mut merging = Merging::<Fingerprint>::new(sources, *filter);
            while let Some(keys) = merging.next().await? {
                writer.push_keys(keys).await?;
            }
        }
    }
    Ok(())
}

fn check_number(inputs: &[Run]) -> Result<()> {
    if inputs.len() > RUNS_MERGED_MAX {
        return Err(Error::Invalid(format!("{} runs to merge; at most {RUNS_MERGED_MAX}", inputs.len())));
    }
    Ok(())
}

/// What neighbours cover together.
fn joint_cover(inputs: &[Run]) -> Result<Cover> {
    check_number(inputs)?;
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else {
        return Err(Error::Invalid("no runs to merge".into()));
    };
    for pair in inputs.windows(2) {
        if pair[0].slot() != pair[1].slot() || pair[0].high() >= pair[1].low() {
            let (older, newer) = (pair[0].path(), pair[1].path());
            return Err(Error::Invalid(format!("{newer} is not a later run of the same slot than {older}")));
        }
    }
    Ok(Cover { low: first.low(), high: last.high(), slot: first.slot() })
}

/// A section of the result, and which inputs it comes from.
#[derive(Debug)]
struct Planned {
    filter: u64,
    counted: bool,
    inputs: Vec<usize>,
}

fn plan(inputs: &[Run], keep: impl Fn(usize, u64) -> bool) -> Result<Vec<Planned>> {
    let mut all: Vec<(u64, usize, bool)> = Vec::new();
    for (at, run) in inputs.iter().enumerate() {
        let kept = run.filters().filter(|(filter, _, _)| keep(at, *filter));
        all.extend(kept.map(|(filter, counted, _)| (filter, at, counted)));
    }
    all.sort_unstable();
    let mut sections: Vec<Planned> = Vec::new();
    for (filter, at, counted) in all {
        match sections.last_mut().filter(|section| section.filter == filter) {
            None => sections.push(Planned { filter, counted, inputs: vec![at] }),
            Some(section) if section.counted == counted => section.inputs.push(at),
            Some(section) => {
                let (one, other) = (inputs[section.inputs[0]].path(), inputs[at].path());
                return Err(Error::Invalid(format!(
                    "filter {filter} has counts in only one of {one} and {other}"
                )));
            }
        }
    }
    Ok(sections)
}

/// Merges one filter's sections of several runs.
#[derive(Debug)]
struct Merging<R> {
    cursors: Vec<Cursor>,
    lanes: Vec<Lane<R>>,
    out: Vec<R>,
}

impl<R: Record> Merging<R> {
    fn new<'a>(runs: impl Iterator<Item = &'a Run>, filter: u64) -> Self {
        Self::of(runs.map(|run| Cursor::new(run, filter)).collect())
    }

    fn of(cursors: Vec<Cursor>) -> Self {
        let lanes = cursors.iter().map(|_| Lane::default()).collect();
        Self { cursors, lanes, out: Vec::new() }
    }

    /// The next records, which the caller may change; nothing at the end.
    async fn next(&mut self) -> Result<Option<&mut Vec<R>>> {
        loop {
            let both = self.cursors.iter_mut().zip(&mut self.lanes);
            try_join_all(both.map(|(cursor, lane)| lane.refill(cursor))).await?;
            if self.lanes.iter().all(|lane| lane.ended) {
                return Ok(None);
            }
            step(&mut self.lanes, &mut self.out);
            // All of a chunk can cancel out.
            if !self.out.is_empty() {
                return Ok(Some(&mut self.out));
            }
        }
    }
}

/// One of the sorted inputs of a merge, as far as it was read.
#[derive(Debug)]
struct Lane<R> {
    records: Vec<R>,
    /// How many of them were taken.
    taken: usize,
    /// Whether nothing follows, and all were taken.
    ended: bool,
}

impl<R> Default for Lane<R> {
    fn default() -> Self {
        Self { records: Vec::new(), taken: 0, ended: false }
    }
}

impl<R: Record> Lane<R> {
    /// Reads on, if all that was read is taken.
    async fn refill(&mut self, cursor: &mut Cursor) -> Result<()> {
        if !self.ended && self.taken == self.records.len() {
            self.taken = 0;
            // An error leaves the lane empty, and the next call tries the same chunk again.
            self.ended = !cursor.fill(&mut self.records).await?;
        }
        Ok(())
    }
}

/// Takes all records whose keys no lane can bring again, combines them, and puts them in place of those in
/// `out`.
///
/// Lanes that have not ended hold something: each can go on right behind its last record, so the smallest of
/// those is as far as all are known. At least that lane is emptied.
fn step<R: Record>(lanes: &mut [Lane<R>], out: &mut Vec<R>) {
    out.clear();
    let known = lanes.iter().filter(|lane| !lane.ended).filter_map(|lane| lane.records.last());
    let Some(bound) = known.map(Record::order).min() else { return };
    for lane in lanes {
        let rest = &lane.records[lane.taken..];
        let within = rest.partition_point(|record| record.order() <= bound);
        out.extend_from_slice(&rest[..within]);
        lane.taken += within;
    }
    // The stable sort looks for stretches that are in order, one from each lane, and merges them without
    // branches.
    out.sort_by_key(Record::order);
    R::combine(out);
}

#[cfg(test)]
mod tests;
