//! The turn of a lane, and the requests that wait for it.

use std::future::poll_fn;
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::Notify;

use super::{Turn, all_or_none};
use crate::engine::part::{Applied, Split};
use crate::{Error, Result};

/// How often somebody looks again, some tens of nanoseconds each time, before it sleeps: whoever has the turn mostly needs a few
/// microseconds, and to be woken takes longer than that.
const LOOKS: usize = 100;
/// Requests with more keys than this are left to whoever brought them.
const KEYS_FOR_OTHERS: usize = 4096;
/// How often such a request may find the turn taken before it lines up for it.
const MISSES: usize = 8;

/// The turn and the queue before it.
///
/// Maintenance lines up for the turn. Requests do not: they lie in the queue, and are done by whoever has the turn. One that finds
/// the turn taken after it is in the queue can sleep, because whoever leaves the turn looks into the queue after that.
///
/// Large requests are done by none but their own: an event loop that adds a few keys must not spend milliseconds on somebody's bulk
/// load while lookups wait for it. They wait in a thread that has the time, and line up if they miss the turn too often.
#[derive(Debug)]
pub(in crate::engine) struct Turns {
    turn: tokio::sync::Mutex<Turn>,
    queue: Mutex<Vec<Arc<Ticket>>>,
}

/// The turn. When it is left, requests that are still in the queue are told.
pub(in crate::engine) struct Guard<'a> {
    // Dropped in this order: first the turn is free, then those who wait are woken.
    turn: tokio::sync::MutexGuard<'a, Turn>,
    _leave: Leave<'a>,
}

struct Leave<'a>(&'a Turns);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.waiting().iter().for_each(|ticket| ticket.changed.notify_one());
    }
}

impl Deref for Guard<'_> {
    type Target = Turn;

    fn deref(&self) -> &Turn {
        &self.turn
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Turn {
        &mut self.turn
    }
}

impl Turns {
    pub(super) fn new(turn: Turn) -> Self {
        Self { turn: tokio::sync::Mutex::new(turn), queue: Mutex::default() }
    }

    /// Waits for the turn, in the order of those who do.
    pub(in crate::engine) async fn lock(&self) -> Guard<'_> {
        Guard { turn: self.turn.lock().await, _leave: Leave(self) }
    }

    /// The turn of a lane that nobody else has.
    pub(in crate::engine) fn into_inner(self) -> Turn {
        self.turn.into_inner()
    }

    fn try_lock(&self) -> Option<Guard<'_>> {
        Some(Guard { turn: self.turn.try_lock().ok()?, _leave: Leave(self) })
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Ticket>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts requests into the queue.
    pub(super) fn queue(&self, tickets: Vec<Arc<Ticket>>) -> Queued<'_> {
        self.waiting().extend(tickets.iter().cloned());
        Queued { turns: self, tickets }
    }

    /// Waits until a request from the queue has its answer, which gives nothing, or until it can have the turn.
    pub(super) async fn unless_answered(&self, ticket: &Ticket) -> Option<Guard<'_>> {
        let look = || ticket.answer.get().is_none().then(|| self.try_lock());
        if let Some(turn) = look()? {
            return Some(turn);
        }
        // The same request may be free to go on in other lanes.
        pause().await;
        for _ in 0..LOOKS {
            if let Some(turn) = look()? {
                return Some(turn);
            }
            spin_loop();
        }
        let mut misses = 0;
        while !ticket.is_large() || misses < MISSES {
            if let Some(turn) = look()? {
                return Some(turn);
            }
            ticket.changed.notified().await;
            misses += 1;
        }
        Some(self.lock().await)
    }
}

/// One's own requests. If whoever brought them gives up, the large ones leave the queue: nobody else would do them.
pub(super) struct Queued<'a> {
    turns: &'a Turns,
    tickets: Vec<Arc<Ticket>>,
}

impl Queued<'_> {
    /// What came of each of them.
    pub(super) fn into_answers(mut self) -> Result<Vec<Applied>> {
        all_or_none(std::mem::take(&mut self.tickets).into_iter().map(Ticket::into_answer).collect())
    }
}

impl Deref for Queued<'_> {
    type Target = [Arc<Ticket>];

    fn deref(&self) -> &[Arc<Ticket>] {
        &self.tickets
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if self.tickets.iter().any(|ticket| ticket.is_large()) {
            self.turns.waiting().retain(|ticket| !ticket.is_large() || !is_among(&self.tickets, ticket));
        }
    }
}

fn is_among(own: &[Arc<Ticket>], ticket: &Arc<Ticket>) -> bool {
    own.iter().any(|one| Arc::ptr_eq(one, ticket))
}

/// Lets others of the same task go on.
async fn pause() {
    let mut paused = false;
    poll_fn(|context| {
        if paused {
            return Poll::Ready(());
        }
        paused = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A request and, when it is there, its answer.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) split: Split,
    pub(super) bytes: Bytes,
    answer: OnceLock<Result<Applied>>,
    /// It has its answer, or the turn was left without one.
    changed: Notify,
}

impl Ticket {
    pub(super) fn new(bytes: Bytes, split: Split) -> Arc<Self> {
        Arc::new(Self { split, bytes, answer: OnceLock::new(), changed: Notify::new() })
    }

    fn is_large(&self) -> bool {
        self.split.keys() > KEYS_FOR_OTHERS
    }

    /// Gives it its answer, unless it has one.
    pub(super) fn answer(&self, answer: Result<Applied>) {
        if self.answer.set(answer).is_ok() {
            self.changed.notify_one();
        }
    }

    pub(super) fn into_answer(self: Arc<Self>) -> Result<Applied> {
        let answer = match Arc::try_unwrap(self) {
            Ok(ticket) => ticket.answer.into_inner(),
            // Whoever did it has not let go of it yet.
            Err(ticket) => ticket.answer.get().cloned(),
        };
        answer.unwrap_or_else(given_up)
    }
}

/// Requests that were taken from the queue. If nobody goes on with them, they are told.
pub(super) struct Waiting(Vec<Arc<Ticket>>);

impl Waiting {
    /// Takes what waits, less large requests that are not among one's own.
    pub(super) fn take(turns: &Turns, own: &[Arc<Ticket>]) -> Self {
        let mut queue = turns.waiting();
        Self(queue.extract_if(.., |ticket| !ticket.is_large() || is_among(own, ticket)).collect())
    }
}

impl Deref for Waiting {
    type Target = [Arc<Ticket>];

    fn deref(&self) -> &[Arc<Ticket>] {
        &self.0
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let unanswered = self.0.iter().filter(|ticket| ticket.answer.get().is_none());
        unanswered.for_each(|ticket| ticket.answer(given_up()));
    }
}

fn given_up() -> Result<Applied> {
    Err(Error::Retry("whoever appended this gave up: it may be done or not".into()))
}

#[cfg(test)]
mod tests {
    use umbel_filter::Fingerprint;

    use super::*;
    use crate::Position;
    use crate::entry::{Entry, Operation, Request};

    fn ticket(keys: usize) -> Arc<Ticket> {
        let operation = Operation::Add(vec![Fingerprint { first: 1, second: 2 }; keys]);
        let entry = Entry { filter: 1, slot: 0, request: Request::default(), operation };
        Ticket::new(Bytes::new(), Split::new(entry, 0, 1, 1))
    }

    #[test]
    fn large_requests_are_taken_by_their_own_only_and_leave_with_them() {
        let turns = Turns::new(Turn { slots: Vec::new(), applied: Position::START, uncertain: false });
        let (small, large) = (ticket(KEYS_FOR_OTHERS), ticket(KEYS_FOR_OTHERS + 1));
        let own = turns.queue(vec![Arc::clone(&small), Arc::clone(&large)]);
        let taken = Waiting::take(&turns, &[]);
        assert!(taken.len() == 1 && Arc::ptr_eq(&taken[0], &small));
        assert!(Waiting::take(&turns, &[]).is_empty());
        let others = turns.queue(vec![ticket(KEYS_FOR_OTHERS + 1)]);
        assert!(Waiting::take(&turns, &others).iter().all(|ticket| Arc::ptr_eq(ticket, &others[0])));
        assert_eq!(turns.waiting().len(), 1, "the first of them is still there");
        drop(own);
        assert!(turns.waiting().is_empty());
    }
}
