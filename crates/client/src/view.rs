//! What answers: a copy, and own keys that are not in it yet. Both are changed together, so a lookup sees one moment by one load.

use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use umbel_core::copy::OnlyArray;
use umbel_filter::Fingerprint;

use crate::overlay::{self, Windows};
use crate::shared::Live;

/// One moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The copy, if there is one.
    pub(crate) live: Option<Arc<Live>>,
    /// Own keys.
    pub(crate) windows: Windows,
    /// Whether the filter was dropped.
    pub(crate) gone: bool,
    /// An array that answers alone, because nothing else has a say.
    pub(crate) alone: Option<OnlyArray>,
}

impl View {
    /// Whether a key was added here a short time ago.
    #[inline]
    pub(crate) fn has_own(&self, key: Fingerprint) -> bool {
        !self.windows.is_empty() && overlay::contains(&self.windows, key)
    }
}

/// The view that is, shared by those who look at it and those who change it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    newest: Arc<ArcSwap<View>>,
    /// Whether answers depend on the time, too: then no array answers alone.
    timed: bool,
}

/// A view that is kept from one look to the next: to see that it is still the newest takes one plain load.
pub(crate) type Kept = Cache<Arc<ArcSwap<View>>, Arc<View>>;

impl Views {
    pub(crate) fn new(timed: bool) -> Self {
        Self { newest: Arc::default(), timed }
    }

    #[inline]
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<View>> {
        self.newest.load()
    }

    pub(crate) fn keep(&self) -> Kept {
        Cache::new(Arc::clone(&self.newest))
    }

    /// Changes it; `change` may be called more than once if others change it, too.
    pub(crate) fn change(&self, change: impl Fn(&mut View)) {
        self.newest.rcu(|view| {
            let mut next = View::clone(view);
            change(&mut next);
            let others = self.timed || next.gone || !next.windows.is_empty();
            next.alone = next.live.as_ref().filter(|_| !others).and_then(|live| live.copy.only_array());
            next
        });
    }
}
