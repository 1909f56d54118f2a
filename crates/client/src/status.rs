//! How a replica is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Deserialize;
use umbel_core::engine::Token;
use umbel_core::version::ChunkId;

use crate::options::Strategy;
use crate::shared::{Shared, lock};

/// A version that a rollout took back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Refused {
    /// Its number.
    pub version: u64,
    /// Which replica, by which strategy, had what trouble with it.
    pub why: String,
}

/// How a replica is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Who it is: kept in its folder.
    pub id: String,
    /// What the filter is called.
    pub filter: String,
    /// How it follows.
    pub strategy: Strategy,
    /// The version that the copy began with.
    pub version: Option<u64>,
    /// The digest of that version.
    pub digest: Option<ChunkId>,
    /// How much of the log the copy includes.
    pub token: Token,
    /// How much there was when the centre was last heard.
    pub centre: Option<Token>,
    /// Whether the copy has all that the centre had then; unknown if it was not heard.
    pub current: Option<bool>,
    /// Whether a change came that only a later version can bring.
    pub behind: bool,
    /// Elements of the copy.
    pub items: u64,
    /// Bytes of its arrays.
    pub bytes: u64,
    /// The version that the server holds this replica at, by a pin or a rollout: it stays there whatever is added, and `age` says how
    /// long ago the server confirmed that. None if it follows, and for strong replicas, which answer from the version that all of them
    /// switched to.
    pub pinned: Option<u64>,
    /// The version that the last rollout took back, if it did.
    pub refused: Option<Refused>,
    /// How long ago the copy was known to have all there was, or all that it is to have if it is pinned; none if it never was, as after
    /// a start without a server.
    pub age: Option<Duration>,
    /// Whether that is longer than the options allow, or the copy is cut off and the options do not allow that.
    pub stale: bool,
    /// Whether the way to the server is known to be broken, or was never tried: until the copy is confirmed.
    pub cut_off: bool,
    /// Whether the filter was dropped: everything is unknown.
    pub gone: bool,
    /// Whether it was rolled back and stays where it is.
    pub held: bool,
    /// Copies that answered so far, one after another.
    pub versions_taken: u64,
    /// Changes that came after versions.
    pub records_taken: u64,
    /// Chunks that came over the network.
    pub chunks_fetched: u64,
    /// Their bytes as they travelled, perhaps compressed.
    pub bytes_fetched: u64,
    /// Chunks that were there already.
    pub chunks_reused: u64,
    /// Chunks that had other bytes than their names say.
    pub chunks_wrong: u64,
    /// Own keys that the centre has not acknowledged.
    pub spooled_keys: usize,
    /// Own keys that the centre will never take.
    pub refused_keys: u64,
    /// What last went wrong, perhaps long ago.
    pub last_error: Option<String>,
}

impl Status {
    pub(crate) fn of(shared: &Shared) -> Self {
        let live = shared.live();
        let copy = live.as_ref().map(|live| &live.copy);
        let token = copy.map(umbel_core::copy::Copy::token).unwrap_or_default();
        let centre = lock(&shared.centre).clone();
        let counters = &shared.counters;
        // The centre counts partitions that the filter is not in.
        let includes = |centre: &Token| {
            token.positions().all(|(partition, position)| position >= centre.position(partition))
        };
        Self {
            id: shared.id.clone(),
            filter: shared.options.filter.clone(),
            strategy: shared.options.strategy,
            version: live.as_ref().map(|live| live.number()),
            digest: live.as_ref().map(|live| live.digest),
            current: centre.as_ref().map(includes),
            centre,
            behind: copy.is_some_and(|copy| copy.behind().is_some()),
            items: copy.map_or(0, umbel_core::copy::Copy::items),
            bytes: copy.map_or(0, umbel_core::copy::Copy::bytes),
            token,
            pinned: Some(shared.told())
                .filter(|told| *told != 0 && shared.options.strategy != Strategy::Strong),
            refused: lock(&shared.refused).clone(),
            age: shared.age(),
            stale: shared.is_stale(),
            cut_off: shared.is_cut_off(),
            gone: shared.is_gone(),
            held: shared.held.load(Ordering::Acquire),
            versions_taken: counters.versions.load(Ordering::Relaxed),
            records_taken: counters.records.load(Ordering::Relaxed),
            chunks_fetched: counters.fetched_chunks.load(Ordering::Relaxed),
            bytes_fetched: counters.fetched_bytes.load(Ordering::Relaxed),
            chunks_reused: counters.reused_chunks.load(Ordering::Relaxed),
            chunks_wrong: counters.wrong_chunks.load(Ordering::Relaxed),
            spooled_keys: counters.spooled_keys.load(Ordering::Acquire),
            refused_keys: counters.refused_keys.load(Ordering::Relaxed),
            last_error: shared.last_error(),
        }
    }
}
