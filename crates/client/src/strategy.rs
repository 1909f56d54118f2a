//! How a copy follows the centre: one task, which alone changes which copy answers.
//!
//! | file | strategy |
//! | --- | --- |
//! | `pull.rs` | asks for a version on a timer |
//! | `notify.rs` | asks for a version when told that there is one |
//! | `delta.rs` | takes every change as it comes, and versions when it has to |
//! | `push.rs` | the same, and versions come by themselves |
//! | `stream.rs` | what the last two have in common |
//! | `strong.rs` | answers only while the centre allows it |

mod delta;
mod notify;
mod pull;
mod push;
mod stream;
mod strong;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use umbel_core::copy::Taken;
use umbel_core::engine::Token;
use umbel_core::entry::Entry;
use umbel_core::feed::Frame;
use umbel_core::version::Version;

use crate::backoff::Backoff;
use crate::fetch::{self, Wanted};
use crate::heartbeat;
use crate::http::Ask;
use crate::identity::{self, Stored};
use crate::options::Strategy;
use crate::shared::{Live, Shared, blocking, count, lock};
use crate::store::{Journal, Owner, Store};
use crate::{Error, Result};

/// A version that deltas begin with may be so old: the log goes back further.
const BASE_AGE: Duration = Duration::from_secs(600);
/// Longest part of a feed that is read at once: far over what a server sends.
const FEED_BYTES_MAX: usize = 1 << 30;

/// What a follower is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Back to the version before, and stay there.
    RollBack(oneshot::Sender<Result<u64>>),
    /// Follow again.
    Resume,
    /// Write down how far it is, and end.
    Close(oneshot::Sender<()>),
}

/// Whoever changes which copy answers.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) shared: Arc<Shared>,
    /// What came after the version of the copy that answers.
    journal: Option<Journal>,
    /// The position that the journal says.
    noted: Token,
}

/// Follows until it is told to end.
pub(crate) async fn follow(mut follower: Follower, mut orders: mpsc::Receiver<Order>) {
    let shared = Arc::clone(&follower.shared);
    let (mut backoff, mut pause) = (Backoff::default(), Duration::ZERO);
    let mut steps = shared.steps();
    loop {
        let held = shared.held.load(Ordering::Acquire);
        let run = async {
            sleep(pause).await;
            follower.run().await
        };
        let order = tokio::select! {
            order = orders.recv() => order,
            outcome = run, if !held => {
                if let Err(error) = outcome {
                    shared.set_cut_off();
                    shared.fail(&error);
                    if error.is_no_filter() || error.is_replaced() {
                        shared.set_gone();
                    }
                    if error.is_other_deployment() {
                        shared.set_foreign(&error);
                    }
                }
                // Whoever went forward begins again soon; whoever did not, later and later.
                if steps.has_changed().unwrap_or(false) {
                    steps.mark_unchanged();
                    backoff.reset();
                }
                pause = backoff.next(&*shared.options.random);
                continue;
            }
        };
        // Whoever interrupts may have done so before the newest copy was kept.
        follower.keep().await;
        match order {
            None => return,
            Some(Order::Close(tell)) => {
                follower.note().await;
                // Whoever asked has perhaps gone.
                let _heard = tell.send(());
                return;
            }
            Some(Order::RollBack(tell)) => {
                let outcome = follower.roll_back().await;
                if outcome.is_ok() {
                    shared.held.store(true, Ordering::Release);
                }
                let _heard = tell.send(outcome);
            }
            Some(Order::Resume) => {
                shared.held.store(false, Ordering::Release);
                pause = Duration::ZERO;
            }
        }
    }
}

impl Follower {
    /// A copy from the folder, if a whole one is there.
    pub(crate) async fn open(shared: Arc<Shared>) -> Result<Self> {
        let found = identity::check(&shared).await?;
        let opening = Arc::clone(&shared);
        let stored = match found {
            Stored::Replaced => Ok(None),
            Stored::Usable | Stored::Gone => blocking(move || open_stored(&opening)).await?,
        };
        let mut follower = Self { shared, journal: None, noted: Token::default() };
        match stored? {
            Some((live, journal)) => {
                follower.noted = live.copy.token();
                let gone = live.copy.is_gone() || found == Stored::Gone;
                // Before it answers.
                if gone {
                    follower.shared.set_gone();
                }
                follower.shared.set_live(&Arc::new(live));
                if gone {
                    follower.shared.set_gone();
                }
                follower.journal = journal;
            }
            None => follower.begin().await?,
        }
        Ok(follower)
    }

    /// The first copy, or one of a filter that was made anew.
    async fn begin(&mut self) -> Result<()> {
        let strategy = self.shared.options.strategy;
        // Versions say themselves which one is pinned; the log does not.
        if matches!(strategy, Strategy::Delta | Strategy::Push) {
            heartbeat::orders(&self.shared).await?;
        }
        let wanted = match strategy {
            Strategy::Pull { interval } => Wanted::Current(interval),
            Strategy::Notify { .. } => Wanted::Current(Duration::ZERO),
            Strategy::Delta | Strategy::Push => match self.shared.told() {
                0 => Wanted::Latest(BASE_AGE),
                told => Wanted::Number(told),
            },
            // Whatever was made the current one, however old: the heartbeat says more.
            Strategy::Strong => Wanted::Current(Duration::MAX),
        };
        let asked_at = self.shared.now();
        let Some(version) = fetch::version(&self.shared, &wanted, None).await? else { return Ok(()) };
        let known = self.shared.live().filter(|live| !is_other(live, &version));
        if known.is_some_and(|live| !live.copy.is_gone()) {
            // It was not gone after all, and is followed from where it was.
            self.shared.set_live_again();
            return Ok(());
        }
        let live = fetch::assemble(&self.shared, version, Vec::new()).await?;
        self.adopt(live).await;
        if let Wanted::Current(age) = wanted {
            self.shared.confirm(asked_at.saturating_sub(age));
        }
        Ok(())
    }

    /// Follows as the options say, until something goes wrong.
    async fn run(&mut self) -> Result<()> {
        if self.shared.is_gone() || self.shared.live().is_none() {
            self.begin().await?;
        }
        match self.shared.options.strategy {
            Strategy::Pull { interval } => pull::run(self, interval).await,
            Strategy::Notify { interval } => notify::run(self, interval).await,
            Strategy::Delta => delta::run(self).await,
            Strategy::Push => push::run(self).await,
            Strategy::Strong => strong::run(self).await,
        }
    }

    fn live(&self) -> Result<Arc<Live>> {
        self.shared.live().ok_or(Error::Closed)
    }

    /// An empty journal for a copy, where changes are kept.
    async fn journal_for(&self, live: &Arc<Live>) -> Option<Journal> {
        let follows = matches!(self.shared.options.strategy, Strategy::Delta | Strategy::Push);
        if !follows || self.shared.store.is_none() {
            return None;
        }
        let (shared, live) = (Arc::clone(&self.shared), Arc::clone(live));
        let made =
            blocking(move || shared.store.as_ref().map(|store| store.new_journal(live.copy.version())));
        match made.await {
            Ok(Some(Ok(journal))) => Some(journal),
            Ok(Some(Err(error))) | Err(error) => {
                self.shared.fail(&error);
                None
            }
            Ok(None) => None,
        }
    }

    /// Lets a copy answer that nothing came after yet.
    async fn adopt(&mut self, live: Arc<Live>) {
        let journal = self.journal_for(&live).await;
        self.adopt_with(live, journal).await;
    }

    /// Lets a copy answer that nothing came after yet, if the centre still says what it said when the copy was asked for.
    async fn adopt_told(&mut self, live: Arc<Live>, told: u64) -> bool {
        let journal = self.journal_for(&live).await;
        self.adopt_if(live, journal, Some(told)).await
    }

    /// Lets a copy answer, whatever the centre says.
    async fn adopt_with(&mut self, live: Arc<Live>, journal: Option<Journal>) {
        self.adopt_if(live, journal, None).await;
    }

    /// Lets a copy answer, and then keeps it in the folder: a disk that fails does not keep anybody from the newest answers. False if the
    /// centre says something else by now than `told`.
    async fn adopt_if(&mut self, live: Arc<Live>, journal: Option<Journal>, told: Option<u64>) -> bool {
        let before = self.shared.live();
        let version = live.copy.version();
        let same_filter =
            before.as_ref().is_some_and(|before| before.copy.version().filter == version.filter);
        if !same_filter {
            self.shared.unconfirm();
        }
        match told {
            Some(told) if !self.shared.set_live_if_told(&live, told) => return false,
            Some(_) => {}
            None => self.shared.set_live(&live),
        }
        *lock(&self.shared.previous) =
            before.filter(|_| same_filter).map(|before| before.copy.version().clone());
        (self.journal, self.noted) = (journal, Token::default());
        self.keep().await;
        true
    }

    /// Keeps the version of the copy that answers.
    async fn keep(&self) {
        let shared = Arc::clone(&self.shared);
        let kept = blocking(move || match (&shared.store, shared.live()) {
            (Some(store), Some(live)) => {
                let version = live.copy.version();
                store.commit_as(&owner(&shared, version), version).map(|()| _ = store.sweep())
            }
            _ => Ok(()),
        });
        if let Err(error) = kept.await.and_then(|kept| kept) {
            self.shared.fail(&error);
        }
    }

    /// Back to the version before.
    async fn roll_back(&mut self) -> Result<u64> {
        let previous = lock(&self.shared.previous).clone();
        let version =
            previous.ok_or_else(|| Error::Invalid("there is no version before this one".to_owned()))?;
        let number = version.number;
        let live = match fetch::assemble(&self.shared, version, Vec::new()).await {
            Err(error @ Error::Invalid(_)) => return Err(error),
            live => live?,
        };
        let journal = self.journal_for(&live).await;
        self.shared.set_live(&live);
        *lock(&self.shared.previous) = None;
        (self.journal, self.noted) = (journal, Token::default());
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.store.as_ref().map_or(Ok(()), Store::uncommit)).await??;
        Ok(number)
    }

    /// Fetches a version, and what came after it, while the copy that answers goes on.
    async fn renewed(&self, wanted: Wanted) -> Result<(Arc<Live>, Option<Journal>)> {
        let Some(version) = fetch::version(&self.shared, &wanted, None).await? else {
            return Err(Error::Closed);
        };
        let live = fetch::assemble(&self.shared, version, Vec::new()).await?;
        let mut journal = self.journal_for(&live).await;
        catch_up(&self.shared, &live, &mut journal).await?;
        Ok((live, journal))
    }

    /// Notes in the journal how far the copy is, and makes all of it durable.
    async fn note(&mut self) {
        let Some(live) = self.shared.live() else { return };
        let token = live.copy.token();
        if token != self.noted && self.journal.is_some() {
            let mut frames = Vec::new();
            let reached =
                token.positions().map(|(partition, position)| Frame::Reached { partition, position });
            reached.for_each(|frame| frame.encode(&mut frames));
            append(&self.shared, &mut self.journal, &frames);
            self.noted = token;
        }
        if let Some(file) = self.journal.as_mut().and_then(Journal::unsynced) {
            let synced = blocking(move || file.sync()).await;
            if let Ok(Err(error)) = synced {
                // It is not known what is in it, so it ends here; the copy goes on from the version after a restart.
                self.journal = None;
                self.shared.fail(&Error::disk("cannot sync the journal", &error));
            }
        }
    }
}

/// What is asked for to get the changes that a copy lacks: packed, if they can be, and of its own filter, whichever has the name.
fn feed_of(live: &Live) -> String {
    let token = live.copy.token();
    let shape = live.copy.shape().map(|shape| format!("&shape={shape}"));
    let filter = live.copy.version().filter;
    format!("feed?after={token}&filter={filter:016x}{}", shape.unwrap_or_default())
}

/// Asks for changes of a copy until there are none, and keeps them in its journal. Gives when the last one was asked for.
async fn catch_up(shared: &Shared, live: &Live, journal: &mut Option<Journal>) -> Result<Duration> {
    loop {
        let asked_at = shared.now();
        let path = shared.sources.path(&format!("{}&wait_ms=0", feed_of(live)));
        let bytes = shared.sources.ask(&Ask::get(path)).await?.bytes(FEED_BYTES_MAX).await?;
        let (mut buffer, mut changes) = (BytesMut::from(&*bytes), false);
        while let Some(frame) = Frame::take(&mut buffer)? {
            changes |= matches!(frame, Frame::Record { .. } | Frame::Packed { .. });
            take(shared, live, journal, &frame)?;
        }
        if !buffer.is_empty() {
            return Err(Error::Corrupt(format!("{} bytes of a feed are no frame", buffer.len())));
        }
        if !changes || live.copy.is_gone() {
            return Ok(asked_at);
        }
    }
}

/// Folds a frame into a copy and keeps it.
fn take(shared: &Shared, live: &Live, journal: &mut Option<Journal>, frame: &Frame) -> Result<Taken> {
    match frame {
        Frame::Record { partition, record } => {
            let entry = Entry::decode(&record.entry)?;
            let taken = live.copy.apply(*partition, record.position, &entry)?;
            note_change(shared, journal, frame);
            Ok(taken)
        }
        Frame::Packed { partition, position, changes } => {
            let taken = live.copy.apply_packed(*partition, *position, changes)?;
            note_change(shared, journal, frame);
            Ok(taken)
        }
        Frame::Reached { partition, position } => {
            live.copy.reach(*partition, *position);
            Ok(Taken::Done)
        }
        Frame::Version(_) | Frame::Chunk(_) => {
            Err(Error::Corrupt("a version in a feed where none was asked for".to_owned()))
        }
    }
}

/// Counts and keeps a change that was folded in.
fn note_change(shared: &Shared, journal: &mut Option<Journal>, frame: &Frame) {
    count(&shared.counters.records, 1);
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    append(shared, journal, &bytes);
}

/// A journal that cannot be written is given up: after a restart the copy goes on from what is there.
fn append(shared: &Shared, journal: &mut Option<Journal>, frames: &[u8]) {
    if let Some(Err(error)) = journal.as_mut().map(|journal| journal.append(frames)) {
        *journal = None;
        shared.fail(&error);
    }
}

/// The newest whole copy of the folder, with what came after its version.
fn open_stored(shared: &Shared) -> Result<Option<(Live, Option<Journal>)>> {
    let Some(store) = &shared.store else { return Ok(None) };
    let Some(owner) = store.owner() else { return Ok(None) };
    // What is of another filter is left over from a process that died while it went on with this one.
    let of_owner = |version: &Version| version.filter == owner.filter;
    let [current, previous] = store.versions().map(|version| version.filter(of_owner));
    *lock(&shared.previous) = previous.clone();
    for version in [current, previous.clone()].into_iter().flatten() {
        let of_previous = previous.as_ref() == Some(&version);
        let live = match fetch::assemble_stored(shared, version) {
            Ok(Some(live)) => live,
            Ok(None) => continue,
            // Other parameters than those that were asked for do not become right by asking the server.
            Err(error @ (Error::Invalid(_) | Error::Full(_))) => return Err(error),
            Err(error) => {
                shared.fail(&error);
                continue;
            }
        };
        if of_previous {
            *lock(&shared.previous) = None;
        }
        let journal =
            store.journal(live.copy.version(), |frame| take(shared, &live, &mut None, &frame).map(drop));
        let journal = journal.map_err(|error| shared.fail(&error)).ok();
        return Ok(Some((live, journal)));
    }
    Ok(None)
}

/// The filter that the folder belongs to from now on.
fn owner(shared: &Shared, version: &Version) -> Owner {
    let before = shared.store.as_ref().and_then(Store::owner).filter(|owner| owner.filter == version.filter);
    let servers = before.map(|owner| owner.servers().to_vec()).unwrap_or_default();
    // A version that is kept came from one of these, or was in the folder before.
    Owner::new(shared.sources.deployment(), version.filter, &shared.options.filter, servers)
        .met_at(&shared.sources.servers())
}

/// Whether a version is one of another filter than the copy: the name was given to another.
fn is_other(live: &Live, version: &Version) -> bool {
    live.copy.version().filter != version.filter
}
