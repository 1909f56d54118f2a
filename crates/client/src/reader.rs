use std::fmt;
use std::sync::Arc;

use umbel_core::engine::Answer;

use crate::shared::{Shared, answer_of};
use crate::view::Kept;

/// Lookups of one thread, nearly as fast as in the bare filter: a reader looks for changes by a plain load, where
/// [`Replica::contains`](crate::Replica::contains) has to announce to all other threads what it looks at.
///
/// It keeps what it last looked at, old copies too, until it is asked again or dropped: give one to each thread that asks all the time.
///
/// ```no_run
/// # fn example(replica: &umbel_client::Replica, keys: &[String]) {
/// let mut reader = replica.reader();
/// let seen = keys.iter().filter(|key| reader.contains(key) != umbel_client::Answer::Absent).count();
/// # }
/// ```
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
    view: Kept,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("filter", &self.shared.options.filter).finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { view: shared.views.keep(), shared }
    }

    /// Whether a key may have been added: as [`Replica::contains`](crate::Replica::contains) says it.
    #[inline]
    pub fn contains(&mut self, key: impl AsRef<[u8]>) -> Answer {
        let key = key.as_ref();
        if let Some(array) = &self.view.load().alone {
            return answer_of(array.contains(key));
        }
        if !self.shared.may_answer() {
            return Answer::Unknown;
        }
        self.shared.contains_in(self.view.load(), key)
    }
}
