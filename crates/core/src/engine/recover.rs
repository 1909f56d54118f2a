//! Recovery: every slot from its newest whole checkpoint, then the log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::Shared;
use super::checkpoint::{Kept, manifest_name, put_new, read};
use super::lane::{Lane, Slot, Turn};
use super::manifest::Manifest;
use super::orphans::{number_of, orphans, remove_all};
use super::settings::Settings;
use super::stored::Stored;
use crate::archive::Run;
use crate::definition::Definition;
use crate::entry::{Entry, Operation, Request};
use crate::fields::{Fields, seal};
use crate::fold::{Means, Shard, State};
use crate::{Error, Position, Result};

/// The first bytes of the blob that describes a deployment.
pub const MAGIC: [u8; 8] = *b"\x89UMBDEP\n";
const VERSION: u16 = 1;
/// Slots that are recovered at the same time.
const AT_ONCE: usize = 16;
/// Partitions that are replayed at the same time: a log on an engine is mostly waited for.
const LANES_AT_ONCE: usize = 8;
const DEPLOYMENT: &str = "deployment";

/// The slots and partitions that a deployment was created with, if its blobs say so.
pub async fn created(blobs: &dyn ObjectStore) -> Result<Option<(u32, u32)>> {
    match blobs.head(&Path::from(DEPLOYMENT)).await {
        Ok(_) => Ok(Some(decode_deployment(&read(blobs, DEPLOYMENT).await?)?)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(Error::blob("cannot look for the deployment", &error)),
    }
}

/// Makes sure that the deployment has as many slots and partitions as it was created with.
pub(super) async fn check_deployment(blobs: &dyn ObjectStore, slots: u32, partitions: u32) -> Result<()> {
    let found = created(blobs).await?;
    create_or_compare(blobs, found, (slots, partitions)).await
}

/// Creates a deployment that was not found. Several nodes may try that at the same time: whoever is late takes what the first one made.
async fn create_or_compare(
    blobs: &dyn ObjectStore,
    mut found: Option<(u32, u32)>,
    wanted: (u32, u32),
) -> Result<()> {
    if found.is_none() {
        let Err(error) = put_new(blobs, DEPLOYMENT, encode_deployment(wanted)).await else { return Ok(()) };
        found = created(blobs).await?;
        if found.is_none() {
            return Err(error);
        }
    }
    match found {
        Some((slots, partitions)) if (slots, partitions) != wanted => Err(Error::Invalid(format!(
            "this deployment was created with {slots} slots and {partitions} partitions; \
             the settings say {} and {}",
            wanted.0, wanted.1
        ))),
        _ => Ok(()),
    }
}

fn encode_deployment((slots, partitions): (u32, u32)) -> Vec<u8> {
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(slots.to_le_bytes());
    bytes.extend(partitions.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// The slots and partitions of a deployment.
pub(super) fn decode_deployment(bytes: &[u8]) -> Result<(u32, u32)> {
    let mut fields = Fields::checked(bytes, DEPLOYMENT, MAGIC, VERSION)?;
    fields.u16()?;
    let sizes = (fields.u32()?, fields.u32()?);
    fields.end()?;
    Ok(sizes)
}

/// All slots as their checkpoints have them, by number.
pub(super) async fn recover_slots(
    blobs: &Arc<dyn ObjectStore>,
    settings: &Settings,
    means: &Means,
) -> Result<Vec<Slot>> {
    let listed: Vec<String> = blobs
        .list(Some(&Path::from("slots")))
        .map_ok(|blob| blob.location.to_string())
        .try_collect()
        .await
        .map_err(|error| Error::blob("cannot list blobs", &error))?;
    let mut by_slot: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for name in listed {
        let slot = name.split('/').nth(1).and_then(|slot| slot.parse().ok());
        by_slot.entry(slot.unwrap_or(u16::MAX)).or_default().push(name);
    }
    let recovered = (0..settings.slots as u16).map(|number| {
        let state = State::new(number, settings.slots, means.clone());
        let names = by_slot.remove(&number).unwrap_or_default();
        async move { recover_slot(blobs, state, &names, Counted::All).await }
    });
    let recovered: Vec<_> = recovered.collect();
    stream::iter(recovered).buffered(AT_ONCE).try_collect().await
}

/// Which checkpoints count.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    /// All: nobody else makes any, and what they do not need is removed.
    All,
    /// Those up to a number. Others may be making more, so nothing is removed.
    UpTo(u64),
}

/// A slot as its checkpoints have it, which are among the blobs of these names.
pub(super) async fn recover_slot(
    blobs: &Arc<dyn ObjectStore>,
    state: State,
    names: &[String],
    counted: Counted,
) -> Result<Slot> {
    let number = state.slot();
    let mut manifests: Vec<u64> = names.iter().filter_map(|name| number_of(name, ".manifest")).collect();
    if let Counted::UpTo(last) = counted {
        manifests.retain(|number| *number <= last);
    }
    manifests.sort_unstable();
    // Numbers that were begun are not used again, whether they were finished or not.
    let begun = names.iter().filter_map(|name| number_of(name, "")).max().unwrap_or(0);
    let mut first_error = None;
    let mut whole: Vec<Manifest> = Vec::new();
    let mut runs = Vec::new();
    for candidate in manifests.iter().rev() {
        let tried = async {
            let name = manifest_name(number, *candidate);
            let manifest = Manifest::decode(&read(&**blobs, &name).await?, &name)?;
            let mut runs = Vec::with_capacity(manifest.runs.len());
            for run in &manifest.runs {
                runs.push(Run::open(blobs, Path::from(run.as_str())).await?);
            }
            Ok::<_, Error>((manifest, runs))
        };
        match tried.await {
            Ok((manifest, opened)) => {
                if whole.is_empty() {
                    runs = opened;
                }
                // One that never counted may have a lower number and more of the log than the newest that does. It is not older then:
                // the log up to its position is still needed.
                if whole.first().is_none_or(|newest| manifest.position <= newest.position) {
                    whole.push(manifest);
                }
            }
            Err(error @ (Error::Corrupt(_) | Error::Invalid(_))) => {
                first_error.get_or_insert(error);
            }
            // The store is away or the disk broken: that says nothing about the checkpoint.
            Err(error) => return Err(error),
        }
        if whole.len() == 2 {
            break;
        }
    }
    let kept: Vec<Kept> = whole.iter().rev().map(Kept::of).collect();
    let whole_upto = kept.last().map_or(0, |kept| kept.number);
    let counted_upto = match counted {
        Counted::UpTo(last) if last != u64::MAX => last,
        _ => whole_upto,
    };
    if let Counted::All = counted {
        let (orphans, _) = orphans(names, &kept);
        remove_all(&**blobs, orphans).await;
    }
    // Where others may be making checkpoints, what they left is removed when one of this node's own counts.
    let unswept = if let Counted::All = counted { 1 } else { 0 };
    let Some(newest) = whole.into_iter().next() else {
        return match first_error {
            Some(error) => Err(error),
            None => Ok(Slot {
                state,
                last_entry: Position::START,
                runs,
                stored: HashMap::new(),
                kept,
                counted: counted_upto,
                is_shown: false,
                unswept,
            }),
        };
    };
    let mut stored = HashMap::new();
    let mut shards = Vec::new();
    for filter in newest.filters {
        let shard = Shard::cold(filter.definition, filter.first_run).following(filter.followed);
        shards.push((filter.id, shard));
        stored.insert(filter.id, filter.stored);
    }
    let state = state.restored(begun.max(newest.number), newest.position, &newest.sessions, shards)?;
    let last_entry = newest.last_entry;
    Ok(Slot { state, last_entry, runs, stored, kept, counted: counted_upto, is_shown: false, unswept })
}

/// The lanes of a log, by partition, with what checkpoints have of their slots.
pub(super) async fn lanes(shared: &Shared, slots: Vec<Vec<Slot>>) -> Result<Vec<Lane>> {
    let lanes = (0..).zip(slots).map(|(partition, mut slots)| async move {
        let start = start_of_replay(shared, partition, &mut slots).await?;
        Ok(Lane::new(partition, slots, start))
    });
    let lanes: Vec<_> = lanes.collect();
    stream::iter(lanes).buffered(LANES_AT_ONCE).try_collect().await
}

/// Where a lane goes on reading its log, once it is known that its slots lack nothing before that.
pub(super) async fn start_of_replay(shared: &Shared, partition: u32, slots: &mut [Slot]) -> Result<Position> {
    let first = slots.iter().map(|slot| slot.state.applied()).min().unwrap_or(Position::START);
    let oldest = shared.log.bounds(partition).await?.oldest;
    if first >= oldest {
        return Ok(first);
    }
    let missing =
        |what: String| Error::Corrupt(format!("partition {partition} of the log begins at {oldest}: {what}"));
    let Some(record) = shared.last_trimmed(partition).await?.filter(|record| record.upto >= oldest) else {
        return Err(missing("there is no record that it was trimmed so far".into()));
    };
    for slot in slots.iter_mut().filter(|slot| slot.state.applied() < oldest) {
        let number = slot.state.slot();
        let named = record.slots.iter().find(|(slot, _)| *slot == number).map(|(_, checkpoint)| *checkpoint);
        let have = slot.kept.last().map_or(0, |kept| kept.number);
        if named.is_none_or(|named| named > have) {
            let name = manifest_name(number, named.unwrap_or(0));
            return Err(missing(format!(
                "{name} or a later one is missing or damaged, and the log before it is gone"
            )));
        }
        slot.state.passed(oldest);
    }
    Ok(oldest)
}

impl Shared {
    /// Shows what checkpoints have, and folds what came after them.
    pub(super) async fn replay(&self) -> Result<()> {
        let replayed = self.lanes.iter().map(|lane| async move {
            let mut turn = lane.turn.lock().await;
            if turn.slots.is_empty() {
                return Ok(());
            }
            self.show_all(&mut turn)?;
            lane.catch_up(self, &mut turn).await
        });
        let replayed: Vec<_> = replayed.collect();
        stream::iter(replayed).buffer_unordered(LANES_AT_ONCE).try_collect().await
    }

    /// Loads arrays until all are in memory or there is no room for the next.
    pub(super) async fn load_all(&self) -> Result<()> {
        for lane in &self.lanes {
            for slot in &mut lane.turn.lock().await.slots {
                self.load_cold(slot).await?;
            }
        }
        Ok(())
    }

    /// Loads what there is room for of a slot.
    pub(super) async fn load_cold(&self, slot: &mut Slot) -> Result<()> {
        let shards = slot.state.shards().filter(|(_, shard)| shard.projection().is_none());
        let cold: Vec<u64> = shards.map(|(id, _)| id).collect();
        for id in cold {
            // Where there is no room, it comes back on demand.
            let wanted = slot.stored.get(&id).map_or(0, Stored::bytes);
            if self.means.budget.reserve(wanted, "").is_ok() {
                self.load_into(slot, id).await?;
            }
        }
        Ok(())
    }

    /// Lets readers see everything in the slots of a lane.
    pub(super) fn show_all(&self, turn: &mut Turn) -> Result<()> {
        self.directory.set_hosted(turn.slots.iter().map(|slot| slot.state.slot()), true);
        for slot in &mut turn.slots {
            slot.is_shown = true;
            let ids: Vec<u64> = slot.state.shards().map(|(id, _)| id).collect();
            ids.into_iter().try_for_each(|id| self.show(slot, id))?;
        }
        Ok(())
    }

    /// Finishes what could not be written into all slots, if there is something.
    pub(super) async fn finish(&self) -> Result<()> {
        if self.work.take_unfinished()
            && let Err(error) = self.reconcile().await
        {
            self.work.is_unfinished();
            return Err(error);
        }
        Ok(())
    }

    /// Finishes what a crash interrupted: a filter's home knows whether it is there, and all its slots take its newest definition. In a
    /// cluster, the first host of a slot sees to it.
    pub(super) async fn reconcile(&self) -> Result<()> {
        for handle in self.directory.unsorted() {
            self.drop_replaced(&handle.definition()).await?;
        }
        let mut entries: Vec<(u32, Entry)> = Vec::new();
        let mut made = Vec::new();
        for handle in self.directory.all() {
            let mut newest = handle.definition();
            let mut found = Vec::new();
            for number in handle.slots().filter(|number| self.is_first(self.lane(*number).partition)) {
                let mut turn = self.lane(number).turn.lock().await;
                let Some(slot) = turn.slot(self, number) else { continue };
                let definition =
                    slot.state.shard(handle.id()).map(|shard| Arc::new(shard.definition().clone()));
                // The home may have lost it: partitions of a log are synced one after another.
                if let Some(other) = definition.as_ref().filter(|other| other.generation > newest.generation)
                {
                    newest = Arc::clone(other);
                }
                found.push((number, definition));
            }
            // The home says what the filter is called; other slots need to know only that it is not being imported any more.
            let home = handle.definition();
            for (slot, definition) in found {
                let is_home = slot == home.home(self.settings.slots);
                // Without it in its home, the filter was dropped a moment ago.
                if is_home && definition.is_none() {
                    break;
                }
                if let Some(definition) = definition.as_ref().filter(|_| !is_home)
                    && (definition.growth != home.growth || definition.has_arrays() != home.has_arrays())
                {
                    // Whether it is filled is said to all slots before the home says what it is called.
                    let described = Definition { mirrors: definition.mirrors, ..definition.described(&home) };
                    let operation = Operation::Describe(described.encode()?);
                    let entry = Entry { filter: handle.id(), slot, request: Request::default(), operation };
                    entries.push((self.lane(slot).partition, entry));
                }
                let behind = |now: &Arc<Definition>| now.generation < newest.generation;
                if !definition.as_ref().is_none_or(behind) {
                    continue;
                }
                let mut define = |definition: &Definition| {
                    let operation = Operation::Define(definition.encode()?);
                    let entry = Entry { filter: handle.id(), slot, request: Request::default(), operation };
                    entries.push((self.lane(slot).partition, entry));
                    Ok::<_, Error>(())
                };
                // A filter is made in its first generation, and then gets the others.
                if definition.is_none() && newest.generation > 0 {
                    define(&Definition { generation: 0, ..(*newest).clone() })?;
                }
                define(&newest)?;
                if definition.is_none() {
                    made.push((self.lane(slot).partition, slot, handle.id()));
                }
            }
        }
        let mut homeless = Vec::new();
        for lane in self.lanes.iter().filter(|lane| self.is_first(lane.partition)) {
            for slot in &lane.turn.lock().await.slots {
                let shards = slot.state.shards().filter(|(id, _)| !self.directory.exists(*id));
                homeless.extend(shards.map(|(id, _)| (lane.partition, slot.state.slot(), id)));
            }
        }
        if !homeless.is_empty() {
            // A filter is in its home before it is anywhere else, but others may have put it there.
            self.prove_catalog().await?;
        }
        entries.extend(self.drops_of_homeless(homeless));
        self.submit_all(entries).await?;
        // A filter that was dropped meanwhile was dropped in these slots first.
        self.submit_all(self.drops_of_homeless(made).collect()).await
    }

    /// Entries that drop filters in slots, of those that have no home.
    fn drops_of_homeless(&self, slots: Vec<(u32, u16, u64)>) -> impl Iterator<Item = (u32, Entry)> {
        let is_homeless = |(_, _, filter): &(u32, u16, u64)| !self.directory.exists(*filter);
        slots.into_iter().filter(is_homeless).map(|(partition, slot, filter)| {
            (partition, Entry { filter, slot, request: Request::default(), operation: Operation::Drop })
        })
    }

    async fn submit_all(&self, entries: Vec<(u32, Entry)>) -> Result<()> {
        for applied in self.submit(entries).await? {
            if let Some(why) = applied.refused {
                return Err(Error::Retry(format!("a filter cannot be made whole: {why}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use umbel_filter::Spec;

    use super::*;
    use crate::engine::{Engine, NewFilter, Sharding};

    #[test]
    fn of_several_nodes_that_create_a_deployment_one_does() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let blobs = InMemory::new();
            // Both looked before either of them made it.
            for _ in 0..2 {
                create_or_compare(&blobs, None, (256, 8)).await.unwrap();
            }
            assert_eq!(created(&blobs).await.unwrap(), Some((256, 8)));
            let other = create_or_compare(&blobs, None, (256, 4)).await;
            assert!(matches!(other, Err(Error::Invalid(_))), "{other:?}");
        });
    }

    #[test]
    fn filters_that_are_dropped_while_all_are_made_whole_stay_dropped() {
        const ROUNDS: u32 = 2_000;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let log = Arc::new(crate::log::MemoryLog::new(4));
            let settings = Settings { slots: 16, ..Default::default() };
            let builder = Engine::builder(settings).with_log(log).with_blobs(Arc::new(InMemory::new()));
            let engine = Arc::new(builder.open().await.unwrap());
            let is_done = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let (other, done) = (Arc::clone(&engine), Arc::clone(&is_done));
            let whole = tokio::spawn(async move {
                let mut rounds = 0;
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    other.shared.reconcile().await.unwrap();
                    rounds += 1;
                    tokio::task::yield_now().await;
                }
                rounds
            });
            for round in 0..ROUNDS {
                // Some are in all slots, some in their home alone.
                let sharding = if round % 4 == 0 { Sharding::Everywhere } else { Sharding::Whole };
                let new = NewFilter::new(format!("f{round}"), Spec::bloom(10, 0.01));
                let filter = engine.create(NewFilter { sharding, ..new }).await.unwrap();
                engine.drop_filter(&filter).await.unwrap();
                assert!(engine.filter(&format!("f{round}")).is_none(), "round {round}");
            }
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
            assert!(whole.await.unwrap() > 0);
            assert!(engine.filters().is_empty(), "{:?}", engine.filters().len());
            for lane in &engine.shared.lanes {
                for slot in &lane.turn.lock().await.slots {
                    assert_eq!(slot.state.shards().count(), 0, "slot {}", slot.state.slot());
                }
            }
        });
    }

    #[test]
    fn a_checkpoint_with_more_of_the_log_than_the_newest_that_counts_is_not_the_older_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let blobs: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
            let state = State::new(3, 8, Means::new(crate::budget::Budget::new(1 << 20)));
            let mut names = Vec::new();
            // The one in the middle was written, and another node's counted before it could.
            for (number, position) in [(5, 50), (6, 90), (7, 70)] {
                let position = Position::from_number(position);
                let manifest = Manifest {
                    slot: 3,
                    number,
                    position,
                    last_entry: position,
                    sessions: state.sessions(),
                    runs: Vec::new(),
                    filters: Vec::new(),
                };
                names.push(manifest_name(3, number));
                put_new(&*blobs, &names[names.len() - 1], manifest.encode().unwrap()).await.unwrap();
            }
            let mut slot = recover_slot(&blobs, state, &names, Counted::UpTo(7)).await.unwrap();
            assert_eq!(slot.kept.iter().map(|kept| kept.number).collect::<Vec<_>>(), [5, 7]);
            // What comes after the newest one is folded from the log, which nobody may let go of.
            assert_eq!(slot.state.applied(), Position::from_number(70));
            slot.last_entry = Position::from_number(90);
            assert_eq!(slot.needs_log_after(), Some(Position::from_number(50)));
        });
    }
}
