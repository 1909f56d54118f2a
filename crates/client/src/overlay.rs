//! Keys that were added here and are not in the copy yet: they are visible at once, without a lock on the way of a lookup.
//!
//! ```text
//!  add --> [ newest window ]   [ window that waits for the centre ]
//!            becomes the one that waits when there is none        dropped when the copy has all of its keys
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_core::engine::Token;
use umbel_filter::{Filter, Fingerprint, Limits, Spec};

use crate::view::Views;
use crate::{Error, Result};

/// Keys of the first window. Each that is needed besides has twice as many, so there are never more than a few.
const KEYS_MIN: u64 = 1 << 14;
const KEYS_MAX: u64 = 1 << 23;
/// Own keys that are mistaken for others must be far rarer than the filter's own errors.
const ERROR: f64 = 1e-6;
/// Requests that were answered and are not in the copy yet; beyond this, neighbours are put together.
const ACKNOWLEDGED_MAX: usize = 1024;

/// Windows, oldest first.
pub(crate) type Windows = Vec<Arc<Window>>;

#[derive(Debug, Default)]
pub(crate) struct Overlay {
    views: Views,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last ticket that was given out.
    ticket: u64,
    /// Keys in the newest window.
    keys: u64,
    /// Whether the newest window takes no more.
    closed: bool,
    /// Tickets up to which the centre has everything, and where.
    acknowledged: VecDeque<(u64, Token)>,
}

#[derive(Debug)]
pub(crate) struct Window {
    filter: Filter,
    capacity: u64,
    /// The last ticket of a key in it.
    last: AtomicU64,
}

impl Overlay {
    /// One whose windows are seen in views.
    pub(crate) fn new(views: Views) -> Self {
        Self { views, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes keys visible, if there are any, and hands on a ticket for them. Tickets are handed on in their order.
    pub(crate) fn add(&self, keys: &[Fingerprint], hand_on: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        let mut state = self.state();
        state.ticket += 1;
        if !keys.is_empty() {
            let window = self.window_for(&mut state, keys.len() as u64)?;
            let mut new = Vec::with_capacity(keys.len());
            let added = window.filter.insert_fingerprints(keys, &mut new);
            added.map_err(|error| Error::Invalid(error.to_string()))?;
            window.last.store(state.ticket, Ordering::Release);
            state.keys += keys.len() as u64;
        }
        hand_on(state.ticket)
    }

    /// The newest window, or one more if that has no room.
    fn window_for(&self, state: &mut State, keys: u64) -> Result<Arc<Window>> {
        let view = self.views.load();
        let mut capacity = KEYS_MIN;
        if let Some(newest) = view.windows.last() {
            if !state.closed && state.keys + keys <= newest.capacity {
                return Ok(Arc::clone(newest));
            }
            if !state.closed {
                capacity = (2 * newest.capacity).min(KEYS_MAX);
            }
        }
        let spec = Spec::bloom(capacity.max(keys), ERROR);
        let filter = Filter::new(&spec, &Limits::default());
        let filter = filter.map_err(|error| Error::Invalid(error.to_string()))?;
        let window = Arc::new(Window { filter, capacity: spec.capacity, last: AtomicU64::new(state.ticket) });
        self.views.change(|view| view.windows.push(Arc::clone(&window)));
        (state.keys, state.closed) = (0, false);
        Ok(window)
    }

    /// The centre has all keys up to a ticket: a copy that is at the position has them, too.
    pub(crate) fn acknowledge(&self, ticket: u64, position: Token) {
        let acknowledged = &mut self.state().acknowledged;
        if acknowledged.len() >= ACKNOWLEDGED_MAX {
            acknowledged.pop_back();
        }
        acknowledged.push_back((ticket, position));
    }

    /// Drops windows whose keys are in the copy, which includes some positions.
    pub(crate) fn settle(&self, includes: impl Fn(&Token) -> bool) {
        let mut state = self.state();
        let settled = state.acknowledged.iter().take_while(|(_, position)| includes(position)).count();
        let Some((ticket, _)) = state.acknowledged.drain(..settled).next_back() else { return };
        let waits = |window: &Arc<Window>| window.last.load(Ordering::Acquire) > ticket;
        let windows = self.views.load().windows.clone();
        let left = windows.iter().filter(|window| waits(window)).count();
        if left == 1 {
            // Nothing else waits: what comes from now on goes into another window, so that this one can end.
            state.closed = true;
        }
        if left != windows.len() {
            self.views.change(|view| view.windows.retain(waits));
        }
    }
}

/// Whether a key is in one of the windows.
#[inline]
pub(crate) fn contains(windows: &Windows, key: Fingerprint) -> bool {
    windows.iter().any(|window| window.filter.contains_fingerprint(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: std::ops::Range<u64>) -> Vec<Fingerprint> {
        let mix = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        numbers.map(|number| Fingerprint { first: mix(number), second: mix(number ^ 0x55) }).collect()
    }

    #[test]
    fn keys_are_visible_until_the_copy_has_them_and_windows_stay_few() {
        let views = Views::default();
        let overlay = Overlay::new(views.clone());
        let windows = || views.load().windows.clone();
        for ticket in 1..=2_000_u64 {
            let some = keys(ticket * 100..ticket * 100 + 100);
            overlay
                .add(&some, |given| {
                    assert_eq!(given, ticket);
                    Ok(())
                })
                .unwrap();
            assert!(some.iter().all(|key| contains(&windows(), *key)));
            // The copy is always ten behind, and now and then for long.
            if ticket % 500 > 100 {
                overlay.acknowledge(ticket - 10, Token::default());
                overlay.settle(|_| true);
            }
            let recent = keys((ticket - ticket.min(9)) * 100..ticket * 100 + 100);
            assert!(
                recent.iter().filter(|key| key.first != 0).skip(100).all(|key| contains(&windows(), *key))
            );
            assert!(windows().len() <= 8, "{}", windows().len());
        }
        overlay.acknowledge(2_000, Token::default());
        overlay.settle(|_| false);
        assert!(!windows().is_empty());
        overlay.settle(|_| true);
        assert!(windows().is_empty());
    }
}
