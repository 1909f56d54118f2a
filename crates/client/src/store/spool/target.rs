//! Which filter keys are for.

use umbel_core::engine::DeploymentId;
use umbel_filter::Kind;

use crate::shared::Live;

/// The filter that keys are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) filter: u64,
    /// Its deployment, if it is known. A folder belongs to one, so it is not in the file.
    pub(super) deployment: Option<DeploymentId>,
    /// What all filters have in common of which each was filled to take the place of the one before: how they hash keys, and the name
    /// that the first one was made with.
    pub(super) line: String,
    /// Whether it was filled to take the place of another.
    pub(super) is_successor: bool,
    /// Whether a key that is given twice need be sent once only.
    pub(super) dedup: bool,
}

impl Target {
    /// The filter that a copy is of.
    pub(crate) fn of(live: &Live, deployment: Option<DeploymentId>) -> Self {
        let definition = live.copy.definition();
        Self {
            filter: live.copy.version().filter,
            deployment,
            line: format!("{} {}", definition.spec.family, definition.origin),
            is_successor: definition.mirrors.is_some_and(|mirror| mirror.is_filled),
            dedup: definition.spec.kind == Kind::Bloom,
        }
    }

    /// Whether keys that were for another filter are for this one now. That one may have been gone for long, and those between them
    /// too; a server decides in the same way whether what comes too late for a filter is for the one that has its name.
    pub(super) fn takes_place_of(&self, other: &Self) -> bool {
        let is_elsewhere = self.deployment.zip(other.deployment).is_some_and(|(here, there)| here != there);
        self.is_successor && self.line == other.line && !is_elsewhere
    }
}
