//! A copy of a filter in this process.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use umbel_core::budget::Budget;
use umbel_core::engine::{Answer, Token};
use umbel_core::fold::Means;
use umbel_core::version::ChunkId;
use umbel_filter::{Fingerprint, Kind, Limits};

use crate::look::Look;
use crate::options::{Options, Strategy};
use crate::reader::Reader;
use crate::shared::{Shared, blocking, lock};
use crate::status::Status;
use crate::steady::Steady;
use crate::store::{Change, Spool, Store, Target, new_id};
use crate::strategy::{self, Follower};
use crate::{Error, Result, heartbeat, writer};

/// How long a replica that ends tries to say so.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// A copy of a filter in this process. It answers without waiting and follows the centre in the background.
///
/// Clones are the same replica; when the last one is dropped, it ends. What was kept in its folder is there for the next one.
#[derive(Clone, Debug)]
pub struct Replica {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    follower: mpsc::Sender<strategy::Order>,
    /// Bounded by the keys that may wait.
    writer: mpsc::UnboundedSender<writer::Order>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        lock(&self.tasks).iter().for_each(JoinHandle::abort);
    }
}

impl Replica {
    /// Opens a replica: from its folder if a whole copy is there, which needs no server; otherwise it is fetched first.
    ///
    /// Its tasks run on the caller's runtime, which needs I/O and time.
    pub async fn open(mut options: Options) -> Result<Self> {
        options.clock = Arc::new(Steady::new(options.clock));
        let store = match options.folder.clone() {
            Some(folder) => {
                let disk = Arc::clone(&options.disk);
                Some(blocking(move || Store::open(disk, folder)).await??)
            }
            None => None,
        };
        let id = match &store {
            Some(store) => store.id(&*options.random)?,
            None => new_id(&*options.random),
        };
        let means = Means {
            secret: options.secret.clone(),
            limits: Limits { filter_bytes_max: options.memory_bytes_max, ..Limits::default() },
            budget: Budget::new(u64::MAX),
        };
        let shared = Arc::new(Shared::new(options, id, means, store)?);
        let follower = Follower::open(Arc::clone(&shared)).await?;
        let (spool, before) = open_spool(&shared).await?;
        let (follower_orders, follower_inbox) = mpsc::channel(1);
        let (writer_orders, writer_inbox) = mpsc::unbounded_channel();
        let mut tasks = vec![
            tokio::spawn(strategy::follow(follower, follower_inbox)),
            tokio::spawn(writer::run(Arc::clone(&shared), spool, before, writer_inbox)),
        ];
        // A strong replica's heartbeat is how it follows.
        if shared.options.strategy != Strategy::Strong {
            tasks.push(tokio::spawn(heartbeat::run(Arc::clone(&shared))));
        }
        let inner =
            Inner { shared, follower: follower_orders, writer: writer_orders, tasks: Mutex::new(tasks) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether a key may have been added. `Absent` is certain for the place in the log that the copy is at.
    ///
    /// It takes no lock and waits for nobody.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Answer {
        self.inner.shared.contains(key.as_ref())
    }

    /// The same with a position in the log that the answer includes: proof for whoever asks whether a certain change was seen. An
    /// unknown answer has none.
    pub fn contains_with_position(&self, key: impl AsRef<[u8]>) -> (Answer, Option<Token>) {
        self.inner.shared.contains_with_position(key.as_ref())
    }

    /// Lookups for one thread that asks all the time: faster still, one by one.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.inner.shared))
    }

    /// The same for many keys, which is faster than one after another.
    pub fn contains_batch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Answer> {
        self.inner.shared.contains_batch(keys)
    }

    /// What it has at this moment, for keys that somebody has hashed already; none if it does not answer.
    pub fn look(&self) -> Option<Look> {
        Look::new(&self.inner.shared)
    }

    /// How long ago the copy was known to have all there was; none if it never was.
    pub fn age(&self) -> Option<Duration> {
        self.inner.shared.age()
    }

    /// Whether what the copy does not have is no more said to be absent: it was not confirmed for too long, or it is cut off.
    pub fn is_stale(&self) -> bool {
        self.inner.shared.is_stale()
    }

    /// Adds keys. They are visible here when this returns, and in the folder if there is one; they go to the centre in the
    /// background, however long that takes.
    pub async fn add<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        self.change(Change::Add, keys).await
    }

    /// Takes keys out of a counting filter. It is visible here when the centre has done it.
    pub async fn remove<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        let live = self.inner.shared.live().ok_or(Error::Closed)?;
        if live.copy.definition().spec.kind == Kind::Bloom {
            return Err(Error::Invalid("keys can be removed from counting filters only".to_owned()));
        }
        self.change(Change::Remove, keys).await
    }

    async fn change<K: AsRef<[u8]>>(&self, change: Change, keys: &[K]) -> Result<()> {
        let shared = &self.inner.shared;
        let live = shared.live().ok_or(Error::Closed)?;
        if keys.is_empty() {
            return Ok(());
        }
        let hasher = live.copy.hasher();
        let keys: Vec<Fingerprint> = keys.iter().map(|key| hasher.fingerprint(key.as_ref())).collect();
        let (spooled, most, more) =
            (&shared.counters.spooled_keys, shared.options.spool_keys_max, keys.len());
        let room = |waiting: usize| waiting.checked_add(more).filter(|sum| *sum <= most);
        if let Err(waiting) = spooled.fetch_update(Ordering::AcqRel, Ordering::Acquire, room) {
            return Err(Error::Full(format!("{waiting} keys wait for the centre; at most {most} may")));
        }
        let (tell, kept) = oneshot::channel();
        let shown = if change == Change::Add { keys.clone() } else { Vec::new() };
        let handed_on = shared.overlay.add(&shown, |ticket| {
            let order = writer::Order::Change { change, keys, ticket, tell };
            self.inner.writer.send(order).map_err(|_| Error::Closed)
        });
        if handed_on.is_err() {
            spooled.fetch_sub(more, Ordering::AcqRel);
        }
        handed_on?;
        kept.await.map_err(|_| Error::Closed)?
    }

    /// Waits until the centre has all keys that were added and removed here, and gives a position that includes them.
    pub async fn flush(&self) -> Result<Token> {
        let (tell, flushed) = oneshot::channel();
        self.inner.writer.send(writer::Order::Flush(tell)).map_err(|_| Error::Closed)?;
        flushed.await.map_err(|_| Error::Closed)
    }

    /// Waits until the copy includes a position: whoever was given one by the centre reads its own writes here.
    pub async fn reached(&self, token: &Token) -> Result<()> {
        let mut steps = self.inner.shared.steps();
        loop {
            steps.mark_unchanged();
            if self.inner.shared.live().is_some_and(|live| live.includes(token)) {
                // Keys that were added here, and are taken out again at that place, must not be seen any more.
                self.inner.shared.settle();
                return Ok(());
            }
            tokio::select! {
                changed = steps.changed() => changed.map_err(|_| Error::Closed)?,
                () = self.inner.follower.closed() => return Err(Error::Closed),
            }
        }
    }

    /// What stands for all that the copy has now: equal to the digest of a version at the same place in the log. It reads all of it.
    pub async fn digest(&self) -> Result<ChunkId> {
        let live = self.inner.shared.live().ok_or(Error::Closed)?;
        blocking(move || live.copy.digest()).await
    }

    /// How it is.
    pub fn status(&self) -> Status {
        Status::of(&self.inner.shared)
    }

    /// Goes back to the version before and stays there, until [`resume`](Self::resume). Gives its number.
    pub async fn roll_back(&self) -> Result<u64> {
        let (tell, done) = oneshot::channel();
        self.inner.follower.send(strategy::Order::RollBack(tell)).await.map_err(|_| Error::Closed)?;
        done.await.map_err(|_| Error::Closed)?
    }

    /// Follows the centre again.
    pub async fn resume(&self) -> Result<()> {
        self.inner.follower.send(strategy::Order::Resume).await.map_err(|_| Error::Closed)
    }

    /// Gives chunks to other replicas, and says where: the centre tells them.
    #[cfg(feature = "peer")]
    pub async fn serve(&self, address: std::net::SocketAddr) -> Result<std::net::SocketAddr> {
        let (address, serving) = crate::peer::serve(Arc::clone(&self.inner.shared), address).await?;
        lock(&self.inner.tasks).push(serving);
        Ok(address)
    }

    /// Tells the server that this replica ends, if it does not come back under its name: a strong replica with a folder does, and counts
    /// for a majority until then.
    async fn leave(&self) {
        let shared = &self.inner.shared;
        let is_strong = shared.options.strategy == Strategy::Strong;
        if is_strong && shared.store.is_some() {
            return;
        }
        // It is not counted any more, so it does not answer any more.
        shared.lease.end();
        // A server that is away forgets others than strong ones after a while. Those are to be forgotten by hand then.
        match timeout(LEAVE_WITHIN, heartbeat::leave(shared)).await {
            Ok(Ok(())) | Ok(Err(Error::Refused { .. })) => {}
            Ok(Err(error)) if is_strong => shared.fail(&error),
            Err(_) if is_strong => {
                shared.fail(&Error::Unreachable(
                    "the server did not hear in time that this replica left".to_owned(),
                ));
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }

    /// Ends: what was taken is in the folder, which another may open now, and nothing runs any more. The copy answers on as it is, except
    /// that of a strong replica, which needs leave to answer. The server is told that the replica has left; a strong replica with a
    /// folder is expected back and goes on counting for a majority.
    pub async fn close(&self) -> Result<()> {
        let (tell, written) = oneshot::channel();
        // Whoever is closed already has nothing more to do.
        if self.inner.writer.send(writer::Order::Close(tell)).is_ok() {
            let _ended = written.await;
        }
        let (tell, noted) = oneshot::channel();
        if self.inner.follower.send(strategy::Order::Close(tell)).await.is_ok() {
            let _ended = noted.await;
        }
        let tasks: Vec<_> = lock(&self.inner.tasks).drain(..).collect();
        for task in tasks {
            task.abort();
            // That it was aborted is what is wanted.
            let _ended = task.await;
        }
        self.leave().await;
        if let Some(store) = &self.inner.shared.store {
            store.release();
        }
        Ok(())
    }
}

/// Keys that were not acknowledged before, which are visible again.
async fn open_spool(shared: &Arc<Shared>) -> Result<(Spool, Option<(u64, Token)>)> {
    let opening = Arc::clone(shared);
    blocking(move || {
        let live = opening.live().ok_or(Error::Closed)?;
        let mut spool = Spool::open(
            opening.store.as_ref(),
            Target::of(&live, opening.sources.deployment()),
            &*opening.options.random,
        )?;
        let before = spool.show(&opening.overlay)?;
        opening.counters.spooled_keys.store(spool.keys(), Ordering::Release);
        Ok((spool, before))
    })
    .await?
}
