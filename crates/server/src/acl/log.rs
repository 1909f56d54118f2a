//! `ACL LOG`: the last refusals. Like ones in short order are one entry with a count.

use std::collections::VecDeque;

/// Refusals within this time of the last like one are counted with it.
const GROUPED_MS: u64 = 60_000;
/// Names and keys that strangers chose are cut to this.
const OBJECT_BYTES_MAX: usize = 256;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A command.
    Command,
    /// A key.
    Key,
    /// A log in.
    Auth,
}

impl Reason {
    /// As Redis prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Auth => "auth",
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How often.
    pub count: u64,
    /// What was refused.
    pub reason: Reason,
    /// Where: `toplevel` or `multi`.
    pub context: &'static str,
    /// The command, the key, or `AUTH`.
    pub object: Vec<u8>,
    /// Who asked.
    pub username: String,
    /// The last client that did, as `CLIENT LIST` has it.
    pub client: String,
    /// A number of its own.
    pub id: u64,
    /// The first time, in milliseconds since 1970.
    pub created_ms: u64,
    /// The last time.
    pub updated_ms: u64,
}

impl Entry {
    /// How old it is, in seconds.
    pub fn age(&self, now_ms: u64) -> f64 {
        now_ms.saturating_sub(self.created_ms) as f64 / 1000.0
    }
}

/// The entries, newest first. Bounded.
#[derive(Debug)]
pub struct Log {
    entries: VecDeque<Entry>,
    length_max: usize,
    next: u64,
}

impl Log {
    pub(super) fn new(length_max: usize) -> Self {
        Self { entries: VecDeque::new(), length_max, next: 0 }
    }

    /// Keeps at most so many (`acllog-max-len`).
    pub fn resize(&mut self, length_max: usize) {
        self.length_max = length_max;
        self.entries.truncate(length_max);
    }

    /// Notes a refusal.
    pub fn record(
        &mut self,
        reason: Reason,
        context: &'static str,
        object: &[u8],
        username: &str,
        client: String,
        now_ms: u64,
    ) {
        let object = &object[..object.len().min(OBJECT_BYTES_MAX)];
        let username: String = username.chars().take(OBJECT_BYTES_MAX).collect();
        let like = |entry: &Entry| {
            entry.reason == reason
                && entry.context == context
                && entry.object == object
                && entry.username == username
                && now_ms.saturating_sub(entry.updated_ms) <= GROUPED_MS
        };
        // Only the newest are searched: a flood of refusals must not make each of them slow.
        let place = self.entries.iter().take(10).position(like);
        let entry = match place.and_then(|place| self.entries.remove(place)) {
            Some(known) => Entry { count: known.count + 1, client, updated_ms: now_ms, ..known },
            None => {
                let id = self.next;
                self.next += 1;
                let object = object.to_vec();
                Entry {
                    count: 1,
                    reason,
                    context,
                    object,
                    username,
                    client,
                    id,
                    created_ms: now_ms,
                    updated_ms: now_ms,
                }
            }
        };
        self.entries.push_front(entry);
        self.entries.truncate(self.length_max);
    }

    /// The newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
