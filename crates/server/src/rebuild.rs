//! Filters that are filled anew, for RESP and HTTP alike: how one is asked for, how far it is, how it takes the other's place.

use std::sync::Arc;

use umbel_core::engine::{Handle, Refill};
use umbel_core::{Error, Result};
use umbel_filter::{Kind, Layout};

use crate::node::Node;

/// How far a rebuild is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Progress {
    /// Its number, which is the filter's when it is finished.
    pub(crate) id: String,
    pub(crate) began_ms: u64,
    /// Why it cannot be finished, if it cannot.
    pub(crate) failed: Option<String>,
    /// Whether somebody began to finish it.
    pub(crate) is_filled: bool,
    /// Keys that it holds, and that the filter holds whose place it is to take.
    pub(crate) items: u64,
    pub(crate) filter_items: u64,
    pub(crate) capacity: u64,
    pub(crate) error: f64,
    pub(crate) kind: Kind,
    pub(crate) layout: Layout,
    pub(crate) retain: bool,
    pub(crate) bytes: u64,
    pub(crate) fill: f64,
}

impl Progress {
    /// In a word.
    pub(crate) fn state(&self) -> &'static str {
        match (&self.failed, self.is_filled) {
            (Some(_), _) => "failed",
            (None, true) => "finishing",
            (None, false) => "filling",
        }
    }
}

/// A number as both doors write it.
pub(crate) fn id_of(handle: &Handle) -> String {
    format!("{:016x}", handle.id())
}

/// How far a rebuild of a filter is.
pub(crate) async fn progress(node: &Node, filter: &Arc<Handle>, rebuild: &Arc<Handle>) -> Result<Progress> {
    let (definition, stats) = (rebuild.definition(), rebuild.stats());
    Ok(Progress {
        id: id_of(rebuild),
        began_ms: definition.mirrors.map_or(0, |mirror| mirror.began_ms),
        failed: node.engine.rebuild_failure(rebuild).await,
        is_filled: definition.mirrors.is_some_and(|mirror| mirror.is_filled),
        items: node.counts_of(rebuild).await?.items,
        filter_items: node.counts_of(filter).await?.items,
        capacity: definition.spec.capacity,
        error: definition.spec.error,
        kind: definition.spec.kind,
        layout: definition.spec.layout,
        retain: definition.retain,
        bytes: stats.bytes,
        fill: stats.fill,
    })
}

/// Begins a rebuild, or goes on with one; says also whether it was begun before.
pub(crate) async fn begin(node: &Node, filter: &Arc<Handle>, asked: &Refill) -> Result<(Progress, bool)> {
    let (rebuild, is_resumed) = node.engine.begin_rebuild(filter, asked).await?;
    Ok((progress(node, filter, &rebuild).await?, is_resumed))
}

/// Finishes the rebuild of a filter and gives what has its name then. Whoever says which rebuild is meant may ask again, and is told
/// the same if it was done.
pub(crate) async fn finish(
    node: &Node,
    filter: &Arc<Handle>,
    wanted: Option<&str>,
    force: bool,
) -> Result<Arc<Handle>> {
    if wanted.is_some_and(|wanted| wanted == id_of(filter)) {
        return Ok(Arc::clone(filter));
    }
    let begun = node.engine.rebuild_of(filter).await?;
    if let (Some(wanted), Some(begun)) = (wanted, &begun)
        && id_of(begun) != wanted
    {
        return Err(Error::Invalid(format!("the rebuild that was begun is {}, not {wanted}", id_of(begun))));
    }
    node.engine.finish_rebuild(filter, force).await
}
