//! Who is connected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use crate::commands::table::Id;

/// Bytes of lines that wait for a client who watches others. One who does not read them is cut off.
const WATCHED_BYTES_MAX: usize = 4 << 20;

/// A connection, as others see it.
#[derive(Debug)]
pub struct Client {
    /// Its number; no other connection ever has it.
    pub id: u64,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Where it came to.
    pub local_address: SocketAddr,
    /// When it came.
    pub since: Instant,
    about: Mutex<About>,
    /// Milliseconds after `since` at which it last sent something.
    last_active: AtomicU64,
    last_command: AtomicU16,
    killed: AtomicBool,
    /// Whether it is shown what others do.
    pub(crate) watches: AtomicBool,
    watched: Mutex<Vec<u8>>,
    /// Bytes of replies that wait for it to read.
    unread: AtomicU64,
    waker: AtomicWaker,
}

/// What a client says of itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Who it is.
    pub user: String,
    /// Its library.
    pub library: String,
    /// The version of its library.
    pub library_version: String,
    /// Whether it speaks version 3 of the protocol.
    pub resp3: bool,
    /// How many commands it has collected, if any.
    pub collected: Option<usize>,
}

impl Client {
    /// What the client says of itself.
    pub fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the client does something now.
    pub(crate) fn is_active(&self, now: Instant) {
        let since = now.saturating_duration_since(self.since).as_millis() as u64;
        self.last_active.store(since, Ordering::Relaxed);
    }

    /// Notes what the client asks for.
    #[inline]
    pub(crate) fn runs(&self, command: Id) {
        self.last_command.store(command as u16, Ordering::Relaxed);
    }

    /// For how long it has sent nothing.
    pub fn idle(&self, now: Instant) -> Duration {
        let active = Duration::from_millis(self.last_active.load(Ordering::Relaxed));
        now.saturating_duration_since(self.since).saturating_sub(active)
    }

    /// The last command that it sent.
    pub fn last_command(&self) -> &'static str {
        let number = usize::from(self.last_command.load(Ordering::Relaxed));
        crate::commands::table::TABLE.get(number).map_or("NULL", |row| row.name)
    }

    /// What is known of it, as `CLIENT LIST` prints it.
    pub fn line(&self, now: Instant) -> String {
        let about = self.about();
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={} db=0 sub=0 psub=0 ssub=0 multi={} watch=0 qbuf=0 qbuf-free=0 \
             argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            about.name,
            now.saturating_duration_since(self.since).as_secs(),
            self.idle(now).as_secs(),
            if self.watches.load(Ordering::Relaxed) { "O" } else { "N" },
            about.collected.map_or(-1, |collected| collected as i64),
            self.last_command(),
            about.user,
            if about.resp3 { 3 } else { 2 },
            about.library,
            about.library_version,
        )
    }

    /// Whether it watches others.
    pub fn is_watching(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }

    /// Ends the connection.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the connection is to end.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Wakes this one when something changes.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Sends a line to a client who watches.
    fn show(&self, line: &[u8]) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() + line.len() > WATCHED_BYTES_MAX {
            drop(watched);
            return self.kill();
        }
        watched.extend_from_slice(line);
        drop(watched);
        self.waker.wake();
    }

    /// Takes the lines that wait.
    pub(crate) fn take_watched(&self) -> Vec<u8> {
        std::mem::take(&mut self.watched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether lines wait.
    pub(crate) fn has_watched(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
            && !self.watched.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// All connections.
#[derive(Debug, Default)]
pub struct Clients {
    last_id: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    watching: AtomicUsize,
    /// Connections that were ever made.
    pub received: AtomicU64,
    /// Connections that were one too many.
    pub rejected: AtomicU64,
    /// Connections that were closed because all together left too many replies unread.
    pub overrun: AtomicU64,
    /// Bytes of replies that wait for clients to read.
    unread: AtomicU64,
}

/// Replies that wait for a client to read.
#[derive(Debug)]
pub(crate) struct Unread<'c> {
    clients: &'c Clients,
    client: &'c Client,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.clients.release(self.client);
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a client in, unless there are so many already.
    pub fn enter(
        &self,
        address: SocketAddr,
        local_address: SocketAddr,
        now: Instant,
        most: usize,
    ) -> Option<Arc<Client>> {
        let mut all = self.lock();
        if all.len() >= most {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.received.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            local_address,
            since: now,
            about: Mutex::new(About { user: "default".into(), ..About::default() }),
            last_active: AtomicU64::new(0),
            last_command: AtomicU16::new(u16::MAX),
            killed: AtomicBool::new(false),
            watches: AtomicBool::new(false),
            watched: Mutex::default(),
            unread: AtomicU64::new(0),
            waker: AtomicWaker::new(),
        });
        all.insert(client.id, Arc::clone(&client));
        Some(client)
    }

    /// Forgets a client.
    pub fn leave(&self, client: &Client) {
        self.lock().remove(&client.id);
        self.unwatch(client);
    }

    /// Bytes of replies that wait for clients to read.
    pub fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// Counts replies that a client does not read, until what is returned is dropped. While all clients together leave more than `most`
    /// bytes unread, the one with the most is closed; of several, the one that was silent for longest.
    pub(crate) fn hold_unread<'c>(
        &'c self,
        client: &'c Client,
        bytes: usize,
        most: u64,
        now: Instant,
    ) -> Unread<'c> {
        // In this order: what is released was counted.
        self.unread.fetch_add(bytes as u64, Ordering::AcqRel);
        client.unread.store(bytes as u64, Ordering::Release);
        while self.unread.load(Ordering::Acquire) > most {
            let all = self.all();
            let largest = all
                .iter()
                .map(|client| (client.unread.load(Ordering::Acquire), client.idle(now), client))
                .filter(|(unread, ..)| *unread > 0)
                .max_by_key(|(unread, idle, _)| (*unread, *idle));
            let Some((_, _, largest)) = largest else { break };
            self.release(largest);
            largest.kill();
            self.overrun.fetch_add(1, Ordering::Relaxed);
        }
        Unread { clients: self, client }
    }

    fn release(&self, client: &Client) {
        let unread = client.unread.swap(0, Ordering::AcqRel);
        self.unread.fetch_sub(unread, Ordering::AcqRel);
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    /// The one of that number.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.lock().get(&id).cloned()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows a client what others do.
    pub fn watch(&self, client: &Client) {
        if !client.watches.swap(true, Ordering::AcqRel) {
            self.watching.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Shows it no more.
    pub fn unwatch(&self, client: &Client) {
        if client.watches.swap(false, Ordering::AcqRel) {
            self.watching.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether anybody watches.
    #[inline]
    pub fn are_watched(&self) -> bool {
        self.watching.load(Ordering::Relaxed) > 0
    }

    /// Shows a line to all who watch.
    pub fn show(&self, line: &[u8]) {
        for client in self.all().iter().filter(|client| client.watches.load(Ordering::Relaxed)) {
            client.show(line);
        }
    }
}
