//! What happened to the sizes of filters, for whoever keeps the history of it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::{Engine, Handle, Shared};
use crate::definition::Definition;
use crate::limits::STEPS_UNTAKEN_MAX;

/// A size of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Elements that it is made for.
    pub capacity: u64,
    /// Its error rate with as many.
    pub error: f64,
}

impl Size {
    pub(super) fn of(definition: &Definition) -> Self {
        Self { capacity: definition.spec.capacity, error: definition.spec.error }
    }
}

/// Why a filter gets another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is as full as it may be before it grows.
    Due,
    /// More is to be added than it has room for.
    Full,
    /// Somebody asked for it.
    Asked,
    /// So much was removed that counters which were stuck are worth being freed.
    Worn,
}

/// What happened to the size of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// Another size was defined, and is being built.
    Begun {
        /// The filter.
        filter: u64,
        /// The number of the new size.
        generation: u32,
        /// What it was.
        from: Size,
        /// What it becomes.
        to: Size,
        /// Items at that time.
        items: u64,
        /// Why.
        why: Why,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The newest size answers, in all slots that this node builds.
    Answers {
        /// The filter.
        filter: u64,
        /// The number of that size.
        generation: u32,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

/// Events that nobody took yet. Without anybody who takes them, the oldest go.
#[derive(Debug, Default)]
pub(super) struct Steps(Mutex<VecDeque<Event>>);

impl Steps {
    fn tell(&self, event: Event) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == STEPS_UNTAKEN_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }
}

impl Engine {
    /// What happened to the sizes of filters since somebody last took it.
    pub fn take_steps(&self) -> Vec<Event> {
        let mut events = self.shared.steps.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *events).into()
    }

    /// Whether this node decides about growth: a server by itself does, and one node of a cluster.
    pub fn is_steward(&self) -> bool {
        self.shared.is_steward()
    }

    /// How many items a filter has when it begins to grow; nothing if it does not grow by itself, or in another way.
    pub fn due_at(&self, filter: &Handle) -> Option<u64> {
        let definition = filter.definition();
        self.shared.grows(&definition).then(|| self.shared.due_at(&definition))
    }
}

impl Shared {
    /// A filter was given another size.
    pub(super) fn tell_begun(&self, handle: &Handle, now: &Definition, next: &Definition, why: Why) {
        self.steps.tell(Event::Begun {
            filter: handle.id(),
            generation: next.generation,
            from: Size::of(now),
            to: Size::of(next),
            items: handle.items_everywhere(),
            why,
            at_ms: self.clock.unix_millis(),
        });
    }

    /// The newest size of a filter answers.
    pub(super) fn tell_answers(&self, handle: &Handle) {
        let (filter, generation) = (handle.id(), handle.definition().generation);
        self.steps.tell(Event::Answers { filter, generation, at_ms: self.clock.unix_millis() });
    }
}
