//! What lookups, the follower, the writer and the heartbeat share.

use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use umbel_core::copy::Copy;
use umbel_core::engine::{Answer, Token};
use umbel_core::fold::Means;
use umbel_core::version::{ChunkId, Version};
use umbel_filter::Fingerprint;

use crate::heartbeat::Probed;
use crate::lease::Lease;
use crate::options::{Options, Strategy, WhenStale};
use crate::overlay::Overlay;
use crate::source::Sources;
use crate::status::Refused;
use crate::store::Store;
use crate::view::{View, Views};
use crate::{Error, Result};

/// A copy that answers.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) copy: Copy,
    /// What stands for the version that it began with.
    pub(crate) digest: ChunkId,
}

impl Live {
    pub(crate) fn number(&self) -> u64 {
        self.copy.version().number
    }

    /// Whether it is exactly its version: nothing came after it.
    pub(crate) fn is_as_published(&self) -> bool {
        self.copy.version().token().includes(&self.copy.token())
    }

    /// Whether everything up to a token is in it.
    pub(crate) fn includes(&self, token: &Token) -> bool {
        self.copy.behind().is_none() && self.copy.token().includes(token)
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) id: String,
    pub(crate) means: Means,
    pub(crate) sources: Sources,
    pub(crate) store: Option<Store>,
    pub(crate) views: Views,
    /// The version before, for those who want it back.
    pub(crate) previous: Mutex<Option<Version>>,
    pub(crate) held: AtomicBool,
    /// Whether the way to the server is known to be broken, or was never tried: until the copy is confirmed.
    cut_off: AtomicBool,
    /// When the copy was known to have all there was: nanoseconds of the clock and one; 0 for never.
    confirmed: AtomicU64,
    pub(crate) overlay: Overlay,
    /// Until when a strong replica may answer.
    pub(crate) lease: Lease,
    pub(crate) counters: Counters,
    pub(crate) centre: Mutex<Option<Token>>,
    /// The version that the centre told this replica to serve; 0 for none. It is set, and a copy begins to answer because of it, under
    /// `holding`: a copy that the centre refused meanwhile never begins to answer after the centre heard that it does not.
    pub(crate) serve: AtomicU64,
    pub(crate) holding: Mutex<()>,
    /// The version of the last rollout, if it was refused.
    pub(crate) refused: Mutex<Option<Refused>>,
    /// Wakes whoever asks for versions.
    pub(crate) look: Notify,
    /// Wakes the heartbeat.
    pub(crate) beat: Notify,
    /// Where this replica serves others.
    pub(crate) address: Mutex<Option<String>>,
    /// A number of this process, and how often it told the centre of itself.
    pub(crate) run: u64,
    pub(crate) beats: AtomicU64,
    /// What the keys of a rollout said of the copy.
    pub(crate) probed: Mutex<Option<Probed>>,
    last_error: Mutex<Option<String>>,
    /// Counts every step forward.
    moved: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) fetched_chunks: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) reused_chunks: AtomicU64,
    pub(crate) wrong_chunks: AtomicU64,
    pub(crate) versions: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) spooled_keys: AtomicUsize,
    pub(crate) refused_keys: AtomicU64,
}

/// Counts something.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(options: Options, id: String, means: Means, store: Option<Store>) -> Result<Self> {
        let run = options.random.next();
        let is_timed = options.strategy == Strategy::Strong
            || options.stale_after.is_some()
            || options.unknown_when_cut_off;
        let views = Views::new(is_timed);
        let sources = Sources::new(&options)?;
        Ok(Self {
            options,
            id,
            means,
            sources,
            store,
            overlay: Overlay::new(views.clone()),
            views,
            previous: Mutex::default(),
            held: AtomicBool::new(false),
            cut_off: AtomicBool::new(true),
            confirmed: AtomicU64::new(0),
            lease: Lease::default(),
            counters: Counters::default(),
            centre: Mutex::default(),
            serve: AtomicU64::new(0),
            holding: Mutex::default(),
            refused: Mutex::default(),
            look: Notify::new(),
            beat: Notify::new(),
            address: Mutex::default(),
            run,
            beats: AtomicU64::new(0),
            probed: Mutex::default(),
            last_error: Mutex::default(),
            moved: watch::Sender::new(0),
        })
    }

    /// The copy that answers, if there is one.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.views.load().live.clone()
    }

    /// The version that the centre told this replica to serve; 0 for none.
    pub(crate) fn told(&self) -> u64 {
        self.serve.load(Ordering::Acquire)
    }

    /// Lets a copy answer if the centre still says what it said when the copy was asked for; false if it does not.
    pub(crate) fn set_live_if_told(&self, live: &Arc<Live>, told: u64) -> bool {
        let _alone = lock(&self.holding);
        let is_wanted = self.told() == told;
        if is_wanted {
            self.set_live(live);
        }
        is_wanted
    }

    /// Lets a copy answer.
    pub(crate) fn set_live(&self, live: &Arc<Live>) {
        self.views.change(|view| (view.live, view.gone) = (Some(Arc::clone(live)), false));
        count(&self.counters.versions, 1);
        self.step();
    }

    /// Drops own keys that are in the copy.
    pub(crate) fn settle(&self) {
        if let Some(live) = self.live() {
            self.overlay.settle(|position| live.includes(position));
        }
    }

    /// The filter is there after all.
    pub(crate) fn set_live_again(&self) {
        self.views.change(|view| view.gone = false);
        self.step();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.views.load().gone
    }

    /// The filter was dropped: nothing is known of it any more.
    pub(crate) fn set_gone(&self) {
        if !self.is_gone() {
            self.views.change(|view| view.gone = true);
            self.fail(&Error::Invalid(format!("the filter {} was dropped", self.options.filter)));
        }
        self.step();
    }

    /// The servers belong to another deployment: nothing is known of the filter there. Without a folder it is followed from the beginning;
    /// a folder is not given to another deployment.
    pub(crate) fn set_foreign(&self, error: &Error) {
        if !self.is_gone() {
            self.views.change(|view| view.gone = true);
        }
        if self.store.is_none() {
            self.sources.expect(None);
        }
        self.fail(error);
        self.step();
    }

    /// Something went forward.
    pub(crate) fn step(&self) {
        self.moved.send_modify(|steps| *steps = steps.wrapping_add(1));
    }

    /// Sees every step from now on.
    pub(crate) fn steps(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// The copy had all there was at a time of the clock.
    pub(crate) fn confirm(&self, at: Duration) {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX - 1) + 1;
        self.confirmed.fetch_max(at, Ordering::AcqRel);
        self.cut_off.store(false, Ordering::Release);
    }

    /// The way to the server is broken.
    pub(crate) fn set_cut_off(&self) {
        self.cut_off.store(true, Ordering::Release);
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Acquire)
    }

    /// Another copy answers, of which nothing is known yet.
    pub(crate) fn unconfirm(&self) {
        self.confirmed.store(0, Ordering::Release);
    }

    pub(crate) fn now(&self) -> Duration {
        self.options.clock.now()
    }

    /// How long ago the copy was known to have all there was; none if it never was.
    pub(crate) fn age(&self) -> Option<Duration> {
        let confirmed = self.confirmed.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.now().saturating_sub(Duration::from_nanos(confirmed)))
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.options.unknown_when_cut_off && self.is_cut_off()
            || self.options.stale_after.is_some_and(|most| self.age().is_none_or(|age| age > most))
    }

    /// Notes what went wrong, for whoever asks.
    pub(crate) fn fail(&self, error: &Error) {
        tracing::warn!(filter = self.options.filter, %error, "a replica");
        *lock(&self.last_error) = Some(error.to_string());
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// Whether the centre lets it answer: strong replicas need leave, others do not.
    #[inline]
    pub(crate) fn may_answer(&self) -> bool {
        self.options.strategy != Strategy::Strong || self.lease.holds(self.now())
    }

    /// Whether it answers at all.
    pub(crate) fn answers(&self) -> bool {
        !self.is_gone() && self.may_answer()
    }

    /// What is said of a key that the copy does not have; `Absent`, if nothing speaks against it.
    fn otherwise(&self, view: &View) -> Answer {
        match self.options.when_stale {
            _ if view.gone => Answer::Unknown,
            _ if !self.is_stale() => Answer::Absent,
            WhenStale::Unknown => Answer::Unknown,
            WhenStale::Maybe => Answer::Maybe,
        }
    }

    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> Answer {
        if let Some(array) = &self.views.load().alone {
            return answer_of(array.contains(key));
        }
        // Leave is looked at before the view: what is answered was allowed after the question came.
        if !self.may_answer() {
            return Answer::Unknown;
        }
        self.contains_in(&self.views.load(), key)
    }

    /// What a view says of a key, whatever has a say.
    pub(crate) fn contains_in(&self, view: &View, key: &[u8]) -> Answer {
        let Some(live) = &view.live else { return Answer::Unknown };
        let key = live.copy.hasher().fingerprint(key);
        let here = live.copy.contains(key) && !view.gone;
        if here || view.has_own(key) { Answer::Maybe } else { self.otherwise(view) }
    }

    /// The same with a position that the answer includes, if there is an answer.
    pub(crate) fn contains_with_position(&self, key: &[u8]) -> (Answer, Option<Token>) {
        if !self.may_answer() {
            return (Answer::Unknown, None);
        }
        let view = self.views.load();
        // Before the look: a copy that follows goes on meanwhile.
        let token = view.live.as_ref().map(|live| live.copy.token());
        let answer = self.contains_in(&view, key);
        (answer, token.filter(|_| answer != Answer::Unknown))
    }

    /// The same for many keys.
    pub(crate) fn contains_batch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Answer> {
        let may_answer = self.may_answer();
        let view = self.views.load();
        let Some(live) = view.live.as_ref().filter(|_| may_answer) else {
            return vec![Answer::Unknown; keys.len()];
        };
        let hasher = live.copy.hasher();
        let keys: Vec<Fingerprint> = keys.iter().map(|key| hasher.fingerprint(key.as_ref())).collect();
        let mut answers = Vec::new();
        self.contains_batch_in(&view, live, &keys, &mut answers);
        answers
    }

    /// What a view says of keys that are hashed already.
    pub(crate) fn contains_batch_in(
        &self,
        view: &View,
        live: &Live,
        keys: &[Fingerprint],
        answers: &mut Vec<Answer>,
    ) {
        let mut here = Vec::with_capacity(keys.len());
        live.copy.contains_batch(keys, &mut here);
        let otherwise = self.otherwise(view);
        let answer = |(key, here): (&Fingerprint, &bool)| match *here && !view.gone {
            true => Answer::Maybe,
            false if view.has_own(*key) => Answer::Maybe,
            false => otherwise,
        };
        answers.clear();
        answers.extend(keys.iter().zip(&here).map(answer));
    }
}

/// What an array says that answers alone.
#[inline]
pub(crate) fn answer_of(here: bool) -> Answer {
    // Not a branch: the processor would guess what memory has not brought yet, and throw the next lookups away with a wrong guess.
    select_unpredictable(here, Answer::Maybe, Answer::Absent)
}

/// Does what takes long where it keeps nobody waiting.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Error::Closed,
    })
}
