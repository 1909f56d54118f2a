//! Checkpoints: a slot as it was at one position, written while the slot goes on.
//!
//! ```text
//!  cut (a moment)      copy, block by block            put, read back, check        install (a moment)
//!  position, sessions  a change saves its block first  arrays, run, then manifest   runs, trim
//! ```
//!
//! The manifest comes last: until it is there, the checkpoint before it counts. Two are kept, and the log after the older one, so
//! that one damaged checkpoint loses nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use umbel_filter::{Fingerprint, block_sum};

use super::Shared;
use super::lane::Slot;
use super::manifest::{Manifest, StoredFilter};
use super::stored::{BlockAt, Stored, StoredLayer, block_header, header};
use crate::archive::{Cover, Run, RunWriter, Tally, tally};
use crate::definition::Definition;
use crate::fold::{Followed, Newest, Place, Projection};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::upload::Upload;
use crate::{Error, Position, Result};

/// Blocks that are copied while changes of the array wait: some ten microseconds.
const BLOCKS_AT_ONCE: usize = 2;
/// An array whose blocks are spread over more blobs than this is written anew.
const BLOBS_MAX: usize = 8;
/// Checkpoints that are kept.
const KEPT: usize = 2;

/// A checkpoint that is on disk.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) number: u64,
    pub(super) position: Position,
    pub(super) blobs: HashSet<Arc<str>>,
}

impl Kept {
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self { number: manifest.number, position: manifest.position, blobs: manifest.blobs().collect() }
    }
}

/// A slot as it was at a moment, of which the arrays are still to be copied.
struct Cut {
    slot: u16,
    number: u64,
    position: Position,
    last_entry: Position,
    sessions: Vec<u8>,
    runs: Vec<Run>,
    shards: Vec<ShardCut>,
}

struct ShardCut {
    id: u64,
    definition: Definition,
    first_run: u64,
    followed: Followed,
    parts: Vec<Arc<Newest>>,
    stored: Stored,
    live: Option<Live>,
}

/// What has to be copied of an array in memory.
struct Live {
    projection: Arc<Projection>,
    changed: Vec<Place>,
}

impl Live {
    /// The blocks are in a checkpoint that counts.
    fn stored(mut self) {
        self.changed.clear();
    }
}

/// Blocks of a checkpoint that failed or was given up are still to be written.
impl Drop for Live {
    fn drop(&mut self) {
        self.projection.end_copy();
        self.projection.mark_dirty(self.changed.drain(..));
    }
}

pub(super) fn folder(slot: u16) -> String {
    format!("slots/{slot:04}")
}

pub(super) fn manifest_name(slot: u16, number: u64) -> String {
    format!("{}/{number:012}.manifest", folder(slot))
}

impl Shared {
    /// Makes a checkpoint of a slot, unless there is nothing new for one. True if it made one.
    pub(super) async fn checkpoint(&self, number: u16) -> Result<bool> {
        let _busy = self.maintenance(number).lock().await;
        let made = self.checkpoint_alone(number).await;
        match made {
            Ok(true) => self.sweep_orphans(number).await,
            Ok(false) => {}
            // What it has written is nobody's.
            Err(_) => self.sweep_again(number).await,
        }
        made
    }

    /// The same for one who has the slot's maintenance.
    async fn checkpoint_alone(&self, number: u16) -> Result<bool> {
        let lane = self.lane(number);
        if !self.is_first(lane.partition) {
            return Ok(false);
        }
        let (cut, before) = {
            let mut turn = lane.turn.lock().await;
            if turn.uncertain {
                lane.catch_up(self, &mut turn).await?;
            }
            let position = turn.applied;
            let Some(slot) = turn.slot(self, number) else { return Ok(false) };
            if !slot.needs_checkpoint() {
                return Ok(false);
            }
            let before = slot.counted;
            (cut(slot, position), before)
        };
        let (manifest, run) = self.write_cut(&cut).await?;
        self.commit(number, before, manifest.number).await?;
        let mut turn = lane.turn.lock().await;
        let Some(slot) = turn.slot(self, number) else { return Ok(false) };
        slot.runs.extend(run);
        let forgotten = keep_newest(slot, &manifest);
        for (shard, filter) in cut.shards.into_iter().zip(manifest.filters) {
            let Some(now) = slot.state.shard_mut(shard.id) else {
                slot.stored.remove(&shard.id);
                continue;
            };
            now.archived(&shard.parts);
            // What was on disk all the time is where it was, and may be in memory now.
            if let Some(live) = shard.live {
                live.stored();
                slot.stored.insert(shard.id, filter.stored);
            }
        }
        drop(turn);
        self.remove(number, forgotten).await;
        Ok(true)
    }

    /// Writes everything of a cut, and the manifest last.
    async fn write_cut(&self, cut: &Cut) -> Result<(Manifest, Option<Run>)> {
        let arrays = self.write_arrays(cut, &self.blob_name(cut.slot, cut.number, "arrays")).await?;
        let run = self.write_run(cut, &self.blob_name(cut.slot, cut.number, "run")).await?;
        let runs = cut.runs.iter().chain(&run).map(|run| run.path().to_string()).collect();
        let filters = cut.shards.iter().zip(arrays).map(|(shard, stored)| StoredFilter {
            id: shard.id,
            definition: shard.definition.clone(),
            first_run: shard.first_run,
            followed: shard.followed.clone(),
            stored,
        });
        let manifest = Manifest {
            slot: cut.slot,
            number: cut.number,
            position: cut.position,
            last_entry: cut.last_entry,
            sessions: cut.sessions.clone(),
            runs,
            filters: filters.collect(),
        };
        self.write_manifest(&manifest).await?;
        Ok((manifest, run))
    }

    pub(super) async fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let name = manifest_name(manifest.slot, manifest.number);
        self.claimed()?;
        put_new(&*self.blobs, &name, manifest.encode()?).await
    }

    /// Copies the changed blocks into one blob, reads them back, and says where everything is then.
    async fn write_arrays(&self, cut: &Cut, blob: &str) -> Result<Vec<Stored>> {
        let name: Arc<str> = Arc::from(blob);
        let mut upload = Upload::new(Arc::clone(&self.blobs), Path::from(blob));
        let mut all = Vec::new();
        for shard in &cut.shards {
            let mut stored = shard.stored.clone();
            if let Some(live) = &shard.live {
                let mut blocks = live.projection.copied(BLOCKS_AT_ONCE);
                while !blocks.is_empty() {
                    for (place, bytes) in blocks {
                        let length = bytes.len() as u32;
                        let at = if bytes.iter().all(|byte| *byte == 0) {
                            None
                        } else {
                            let sum = block_sum(place.1 as u64, &bytes);
                            if upload.is_empty() {
                                upload.write(&header(cut.slot, cut.number)).await?;
                            }
                            upload.write(&block_header(shard.id, place, length, sum)).await?;
                            let offset = upload.write(&bytes).await?;
                            Some(BlockAt { blob: Arc::clone(&name), offset, length, sum })
                        };
                        stored.place(place, at);
                    }
                    blocks = live.projection.copied(BLOCKS_AT_ONCE);
                }
            }
            all.push(stored);
        }
        upload.finish().await?;
        for stored in &all {
            stored.check_blob(&*self.blobs, &name).await?;
        }
        Ok(all)
    }

    /// Archives what came since the last checkpoint, and reads it back.
    async fn write_run(&self, cut: &Cut, blob: &str) -> Result<Option<Run>> {
        if cut.shards.iter().all(|shard| shard.parts.is_empty()) {
            return Ok(None);
        }
        let cover = Cover { low: cut.number, high: cut.number, slot: cut.slot };
        let mut writer = RunWriter::create(&self.blobs, Path::from(blob), cover)?;
        for shard in cut.shards.iter().filter(|shard| !shard.parts.is_empty()) {
            match gather(&shard.parts) {
                Gathered::Keys(keys) => {
                    writer.begin(shard.id, false).await?;
                    writer.push_keys(&keys).await?;
                }
                Gathered::Tallies(tallies) => {
                    writer.begin(shard.id, true).await?;
                    writer.push(&tallies).await?;
                }
            }
        }
        let run = writer.finish().await?;
        run.verify().await?;
        Ok(Some(run))
    }

    /// Removes what no checkpoint needs any more. What is left by a failure is removed later.
    async fn remove(&self, slot: u16, forgotten: Forgotten) {
        if self.claimed().is_err() {
            return;
        }
        for number in forgotten.manifests {
            let _ = self.blobs.delete(&Path::from(manifest_name(slot, number))).await;
        }
        for blob in self.reading[usize::from(slot)].unread(forgotten.blobs) {
            let _ = self.blobs.delete(&Path::from(&*blob)).await;
        }
    }

    /// Merges runs of a slot into one, if there are many; true if it did.
    pub(super) async fn merge(&self, number: u16) -> Result<bool> {
        let _busy = self.maintenance(number).lock().await;
        let merged = self.merge_alone(number).await;
        if merged.is_err() {
            self.sweep_again(number).await;
        }
        merged
    }

    /// The same for one who has the slot's maintenance.
    async fn merge_alone(&self, number: u16) -> Result<bool> {
        let lane = self.lane(number);
        if !self.is_first(lane.partition) {
            return Ok(false);
        }
        let (runs, first, last, before, checkpoint) = {
            let mut turn = lane.turn.lock().await;
            let Some(slot) = turn.slot(self, number) else { return Ok(false) };
            let sizes: Vec<u64> = slot.runs.iter().map(Run::bytes).collect();
            let Some(first) = first_to_merge(&sizes, self.settings.runs_max) else { return Ok(false) };
            let Some(last) = slot.kept.last().map(|kept| kept.number) else { return Ok(false) };
            (slot.runs[first..].to_vec(), first, last, slot.counted, slot.state.begin_checkpoint())
        };
        // It becomes the newest checkpoint once more with other runs, so what counts is what was in it.
        let mut manifest = self.read_manifest(number, last).await?;
        let firsts: HashMap<u64, u64> =
            manifest.filters.iter().map(|filter| (filter.id, filter.first_run)).collect();
        let keep =
            |input: usize, filter: u64| firsts.get(&filter).is_some_and(|first| runs[input].high() >= *first);
        let name = self.blob_name(number, checkpoint, "run");
        let merged = crate::archive::merge(&self.blobs, &runs, keep, first == 0, Path::from(name)).await?;
        merged.verify().await?;
        manifest.number = checkpoint;
        manifest.runs.truncate(first);
        manifest.runs.push(merged.path().to_string());
        self.write_manifest(&manifest).await?;
        self.commit(number, before, checkpoint).await?;

        let mut turn = lane.turn.lock().await;
        let Some(slot) = turn.slot(self, number) else { return Ok(false) };
        slot.runs.truncate(first);
        slot.runs.push(merged);
        let forgotten = keep_newest(slot, &manifest);
        drop(turn);
        self.remove(number, forgotten).await;
        Ok(true)
    }

    /// Reads a manifest.
    pub(super) async fn read_manifest(&self, slot: u16, number: u64) -> Result<Manifest> {
        let name = manifest_name(slot, number);
        let bytes = read(&*self.blobs, &name).await?;
        Manifest::decode(&bytes, &name)
    }

    /// A name that no other attempt at the same checkpoint has.
    fn blob_name(&self, slot: u16, checkpoint: u64, what: &str) -> String {
        format!("{}/{checkpoint:012}-{:08x}.{what}", folder(slot), self.random.next() as u32)
    }
}

impl Slot {
    /// Whether there is something that the older of the kept checkpoints lacks: then the log before it is still needed.
    fn needs_checkpoint(&self) -> bool {
        let older = if self.kept.len() < KEPT { None } else { self.kept.first() };
        self.last_entry > older.map_or(Position::START, |kept| kept.position) || self.has_new_array()
    }

    /// Whether an array answers that no checkpoint has, as after a switch to another generation.
    fn has_new_array(&self) -> bool {
        self.state.shards().any(|(id, shard)| {
            let stored = self.stored.get(&id);
            shard
                .projection()
                .is_some_and(|projection| !stored.is_some_and(|stored| stored.is_of(projection)))
        })
    }

    /// Up to where the log is not needed for this slot.
    pub(super) fn needs_log_after(&self) -> Option<Position> {
        let older = if self.kept.len() < KEPT { None } else { self.kept.first() };
        let older = older.map_or(Position::START, |kept| kept.position);
        (self.last_entry > older).then_some(older)
    }
}

fn cut(slot: &mut Slot, position: Position) -> Cut {
    let number = slot.state.begin_checkpoint();
    let ids: Vec<u64> = slot.state.shards().map(|(id, _)| id).collect();
    let mut shards = Vec::with_capacity(ids.len());
    for id in ids {
        let before = slot.stored.get(&id).cloned().unwrap_or_default();
        let Some(shard) = slot.state.shard_mut(id) else { continue };
        let (stored, live) = match shard.projection() {
            None => (before, None),
            Some(projection) => {
                let (stored, live) = cut_array(projection, before);
                (stored, Some(live))
            }
        };
        let parts = shard.freeze();
        let (definition, first_run) = (shard.definition().clone(), shard.first_run());
        let followed = shard.followed().clone();
        shards.push(ShardCut { id, definition, first_run, followed, parts, stored, live });
    }
    let (sessions, runs) = (slot.state.sessions(), slot.runs.clone());
    Cut { slot: slot.state.slot(), number, position, last_entry: slot.last_entry, sessions, runs, shards }
}

fn cut_array(projection: &Arc<Projection>, before: Stored) -> (Stored, Live) {
    let changed = projection.take_dirty();
    let same = before.is_of(projection);
    let blobs: HashSet<_> = before.blobs().collect();
    let (changed, before) = if same && blobs.len() <= BLOBS_MAX {
        (changed, before)
    } else {
        let all = projection
            .filters()
            .enumerate()
            .flat_map(|(n, filter)| (0..filter.blocks()).map(move |b| (n, b)));
        (all.collect(), Stored::default())
    };
    let layers = projection.filters().enumerate().map(|(number, filter)| {
        let mut blocks = before.layers.get(number).map(|layer| layer.blocks.clone()).unwrap_or_default();
        blocks.resize(filter.blocks(), None);
        StoredLayer { outline: filter.outline(), blocks }
    });
    let stored = Stored {
        generation: projection.generation(),
        counts: projection.counts(),
        layers: layers.collect(),
        of: Arc::downgrade(projection),
    };
    projection.begin_copy(changed.iter().copied());
    (stored, Live { projection: Arc::clone(projection), changed })
}

enum Gathered {
    Keys(Vec<Fingerprint>),
    Tallies(Vec<Tally>),
}

/// Sorts what came since the last checkpoint.
fn gather(parts: &[Arc<Newest>]) -> Gathered {
    let (mut keys, mut nets) = (Vec::new(), Vec::new());
    let mut counted = false;
    for part in parts {
        match &**part {
            Newest::Keys(part) => keys.extend_from_slice(part),
            Newest::Nets(part) => {
                counted = true;
                nets.extend(part.iter().map(|(key, net)| Tally { key: *key, net: *net }));
            }
        }
    }
    if !counted {
        tally(&mut keys);
        return Gathered::Keys(keys);
    }
    nets.sort_unstable_by_key(|tally| tally.key);
    let sum = |group: &[Tally]| Tally { key: group[0].key, net: group.iter().map(|tally| tally.net).sum() };
    let summed = nets.chunk_by(|one, next| one.key == next.key).map(sum);
    Gathered::Tallies(summed.filter(|tally| tally.net != 0).collect())
}

/// What no checkpoint needs any more.
struct Forgotten {
    manifests: Vec<u64>,
    blobs: Vec<Arc<str>>,
}

/// Keeps a checkpoint as the newest of a slot, and says what is not needed any more.
fn keep_newest(slot: &mut Slot, manifest: &Manifest) -> Forgotten {
    slot.kept.push(Kept::of(manifest));
    slot.counted = manifest.number;
    let surplus = slot.kept.len().saturating_sub(KEPT);
    let surplus: Vec<Kept> = slot.kept.drain(..surplus).collect();
    let needed: HashSet<&Arc<str>> = slot.kept.iter().flat_map(|kept| &kept.blobs).collect();
    let mut blobs: HashSet<Arc<str>> = surplus.iter().flat_map(|kept| kept.blobs.iter().cloned()).collect();
    blobs.retain(|blob| !needed.contains(blob));
    Forgotten {
        manifests: surplus.iter().map(|kept| kept.number).collect(),
        blobs: blobs.into_iter().collect(),
    }
}

/// The oldest of the runs that are worth a merge, if there are too many: the newest two, and before them each that is at most twice as
/// large as all after it together. So a fingerprint is written about as often as the number of runs doubles.
fn first_to_merge(sizes: &[u64], runs_max: usize) -> Option<usize> {
    if sizes.len() <= runs_max.max(1) {
        return None;
    }
    let mut first = sizes.len() - 2;
    let mut after: u64 = sizes[first..].iter().sum();
    while first > 0 && sizes[first - 1] <= 2 * after {
        first -= 1;
        after += sizes[first];
    }
    Some(first)
}

/// Reads a blob at once.
pub(super) async fn read(blobs: &dyn ObjectStore, name: &str) -> Result<Bytes> {
    let read = match blobs.get(&Path::from(name)).await {
        Ok(found) if found.meta.size > MANIFEST_BYTES_MAX as u64 => {
            return Err(Error::Corrupt(format!("{name} has {} bytes, over the limit", found.meta.size)));
        }
        Ok(found) => found.bytes().await,
        Err(error) => Err(error),
    };
    read.map_err(|error| Error::blob(format!("cannot read {name}"), &error))
}

/// Puts a blob that must not be there yet, and reads it back.
pub(super) async fn put_new(blobs: &dyn ObjectStore, name: &str, bytes: Vec<u8>) -> Result<()> {
    let path = Path::from(name);
    let payload = PutPayload::from(bytes.clone());
    let put = blobs.put_opts(&path, payload, PutMode::Create.into()).await;
    put.map_err(|error| Error::blob(format!("cannot put {name}"), &error))?;
    let read = read(blobs, name).await?;
    if read != bytes {
        return Err(Error::Corrupt(format!("{name} reads otherwise than it was written")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_keep_the_number_of_runs_small_and_rarely_touch_large_ones() {
        assert_eq!(first_to_merge(&[100, 10, 1], 3), None);
        assert_eq!(first_to_merge(&[100, 10, 1, 1], 3), Some(2));
        assert_eq!(first_to_merge(&[1, 1, 1, 1], 3), Some(0));
        assert_eq!(first_to_merge(&[1000, 100, 10, 1], 3), Some(2));
        assert_eq!(first_to_merge(&[1000, 20, 10, 1], 3), Some(1));
        // However the sizes come, a merge leaves fewer runs.
        let mut sizes = Vec::new();
        let mut written = 0;
        for _ in 0..10_000 {
            sizes.push(1);
            while let Some(first) = first_to_merge(&sizes, 8) {
                let merged = sizes.drain(first..).sum();
                written += merged;
                sizes.push(merged);
            }
            assert!(sizes.len() <= 8);
        }
        assert!(written < 10_000 * 8, "each unit is written {} times", written / 10_000);
    }
}
