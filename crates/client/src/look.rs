use std::sync::Arc;

use arc_swap::Guard;
use umbel_core::engine::Answer;
use umbel_filter::{Fingerprint, Hasher};

use crate::shared::{Live, Shared};
use crate::view::View;

/// What a replica has at one moment. Whoever asks many replicas for the same keys hashes them once, and asks each by fingerprints.
///
/// The hasher is that of the copy which answers: a replica may come to a filter of another family between two questions. Take
/// one for each question, since it does not follow the centre.
#[derive(Clone, Debug)]
pub struct Look {
    shared: Arc<Shared>,
    view: Arc<View>,
    live: Arc<Live>,
}

impl Look {
    pub(crate) fn new(shared: &Arc<Shared>) -> Option<Self> {
        // Leave is looked at before the view: what is answered was allowed after the question came.
        if !shared.may_answer() {
            return None;
        }
        let view = Guard::into_inner(shared.views.load());
        let live = Arc::clone(view.live.as_ref()?);
        Some(Self { shared: Arc::clone(shared), view, live })
    }

    /// Hashes keys as the copy does.
    pub fn hasher(&self) -> &Hasher {
        self.live.copy.hasher()
    }

    /// Puts into `answers`, for each key, whether it may have been added: as
    /// [`Replica::contains_batch`](crate::Replica::contains_batch) says it.
    pub fn contains_batch(&self, keys: &[Fingerprint], answers: &mut Vec<Answer>) {
        self.shared.contains_batch_in(&self.view, &self.live, keys, answers);
    }
}
