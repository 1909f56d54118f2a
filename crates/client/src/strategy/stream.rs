//! A feed without end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};
use umbel_core::copy::Taken;
use umbel_core::feed::Frame;
use umbel_core::version::Version;

use super::{Follower, catch_up, feed_of, is_other, take};
use crate::backoff::Backoff;
use crate::fetch::{self, Wanted};
use crate::heartbeat;
use crate::http::{Ask, Reply};
use crate::limits::{FRAME_BYTES_PER_MS, JOURNAL_BYTES_MAX, patience};
use crate::shared::Live;
use crate::store::Journal;
use crate::{Error, Result};

/// How often the journal is made durable, and looked at.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// The least pause between questions.
const QUESTION_PAUSE_MIN: Duration = Duration::from_millis(50);

/// What a feed is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feed {
    /// Whether versions come with it.
    pub(super) versions: bool,
}

type Renewal = Pin<Box<dyn Future<Output = Result<(Arc<Live>, Option<Journal>)>> + Send>>;

/// What a piece of the feed came to.
#[derive(Debug, Default)]
struct Heard {
    /// The filter was dropped.
    gone: bool,
    /// Nothing was left out up to where it says.
    reached: bool,
    /// Another copy answers, whose arrays may have another shape.
    switched: bool,
    /// How many frames were whole.
    frames: usize,
}

/// A frame of which the rest is still to come. Its length has no checksum: one that was damaged on the way would keep the copy waiting
/// for bytes that nobody sends, while signs of life go on.
#[derive(Debug, Default)]
struct Unfinished {
    since: Option<Instant>,
}

impl Unfinished {
    /// Gives up a frame that comes more slowly than any that is sent.
    fn look(&mut self, buffer: &BytesMut, is_another: bool) -> Result<()> {
        if buffer.is_empty() || is_another {
            self.since = (!buffer.is_empty()).then(Instant::now);
            return Ok(());
        }
        let patience = patience(buffer.len(), FRAME_BYTES_PER_MS);
        if self.since.get_or_insert_with(Instant::now).elapsed() > patience {
            return Err(Error::Corrupt(format!(
                "a frame of which {} bytes came in {patience:?}",
                buffer.len()
            )));
        }
        Ok(())
    }
}

/// A feed as it comes in.
struct Listening {
    feed: Feed,
    stream: Reply,
    /// What came of frames that are not whole.
    buffer: BytesMut,
    frame: Unfinished,
    /// Chunks of a version that is still to come.
    chunks: Vec<Bytes>,
}

/// A copy that is to replace one which the feed cannot keep up to date.
struct Renewals {
    /// Whether changes that only a version brings are fetched; if not, the server sends it.
    fetches: bool,
    under_way: Option<Renewal>,
    pauses: Backoff,
    /// Not before this.
    at: Instant,
}

/// How often the server is asked what to do while the copy is held at a version.
const HELD_BEAT: Duration = Duration::from_secs(1);

/// Follows, or stays at a version while the server says so. A feed brings keys and takes none away: to go back, the version is loaded as
/// the base of a copy, and nothing that came after it is taken until the server lets the copy follow again.
pub(super) async fn run(follower: &mut Follower, feed: Feed) -> Result<()> {
    // Before anything is taken: a copy that was away must not pass what is pinned.
    heartbeat::orders(&follower.shared).await?;
    match follower.shared.told() {
        0 => follow(follower, feed).await,
        told => hold(follower, told).await,
    }
}

/// Stays at a version until the server says something else.
async fn hold(follower: &mut Follower, told: u64) -> Result<()> {
    let shared = Arc::clone(&follower.shared);
    loop {
        let asked_at = shared.now();
        let orders = heartbeat::orders(&shared).await?;
        if shared.told() != told {
            return Ok(());
        }
        let live = follower.live()?;
        let is_of_filter = orders.as_ref().is_none_or(|orders| orders.mean(&live, told));
        if live.number() != told || !is_of_filter || !live.is_as_published() {
            let Some(version) = fetch::version(&shared, &Wanted::Number(told), None).await? else {
                return Err(Error::Corrupt(format!("version {told} did not come")));
            };
            let fresh = fetch::assemble(&shared, version, Vec::new()).await?;
            if !follower.adopt_told(fresh, told).await {
                return Ok(());
            }
            // That it is there is to be known at once.
            continue;
        }
        if orders.is_some() {
            shared.confirm(asked_at);
        }
        shared.step();
        let _sooner = timeout(HELD_BEAT, shared.look.notified()).await;
    }
}

async fn follow(follower: &mut Follower, feed: Feed) -> Result<()> {
    // First all that there is, so that it is known how old the copy is.
    match begin(follower).await {
        Err(error) if error.is_trimmed() => renew_trimmed(follower).await?,
        caught_up => caught_up?,
    }
    if is_gone(follower)? {
        return Ok(());
    }
    let mut renewals = Renewals::new(follower, feed)?;
    let mut listening = Listening::open(follower, feed).await?;
    let mut ticks = interval(NOTE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A stream says what there was when it was sent, and not how long that is ago. Whoever must not be stale asks, too.
    let bound = follower.shared.options.stale_after;
    let pause = bound.map_or(NOTE_EVERY, |bound| (bound / 4).max(QUESTION_PAUSE_MIN));
    let mut questions = interval_at(Instant::now() + pause, pause);
    questions.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let shared = Arc::clone(&follower.shared);
    loop {
        renewals.begin_if_due(follower)?;
        tokio::select! {
            piece = listening.stream.next() => {
                let Some(piece) = piece? else {
                    // It ends when replicas are to stay at a version.
                    heartbeat::orders(&follower.shared).await?;
                    if follower.shared.told() != 0 {
                        return Ok(());
                    }
                    return Err(Error::Unreachable("the server ended the feed".to_owned()));
                };
                let heard = listening.take(follower, &piece).await?;
                if heard.gone {
                    follower.shared.set_gone();
                    return Ok(());
                }
                let behind = follower.live()?.copy.behind().is_some();
                if heard.reached && !behind && bound.is_none() {
                    follower.shared.confirm(follower.shared.now());
                }
                follower.shared.step();
                if heard.switched {
                    listening = Listening::open(follower, feed).await?;
                }
            }
            fresh = renewals.done() => match fresh {
                Ok((live, journal)) => {
                    switch(follower, live, journal).await?;
                    renewals.pauses.reset();
                    listening = Listening::open(follower, feed).await?;
                }
                Err(error) => {
                    // The copy that is there goes on meanwhile.
                    follower.shared.fail(&error);
                    renewals.wait(follower);
                }
            },
            () = shared.look.notified() => if shared.told() != 0 {
                return Ok(());
            },
            _ = ticks.tick() => follower.note().await,
            _ = questions.tick(), if bound.is_some() => {
                begin(follower).await?;
                if is_gone(follower)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Whether the filter was dropped; then all are told.
fn is_gone(follower: &Follower) -> Result<bool> {
    let gone = follower.live()?.copy.is_gone();
    if gone {
        follower.shared.set_gone();
    }
    Ok(gone)
}

impl Renewals {
    fn new(follower: &Follower, feed: Feed) -> Result<Self> {
        // The server sends a version for changes that it sends, not for those before.
        let fetches = !feed.versions || follower.live()?.copy.behind().is_some();
        Ok(Self { fetches, under_way: None, pauses: Backoff::default(), at: Instant::now() })
    }

    /// Begins one if there is need: because of what happened, or because the journal would take long to read.
    fn begin_if_due(&mut self, follower: &Follower) -> Result<()> {
        if self.under_way.is_some() || Instant::now() < self.at {
            return Ok(());
        }
        let live = follower.live()?;
        let bound = JOURNAL_BYTES_MAX.max(live.copy.bytes() / 4);
        let long = follower.journal.as_ref().is_some_and(|journal| journal.length() > bound);
        if long || self.fetches && live.copy.behind().is_some() {
            let token = live.copy.token();
            let follower =
                Follower { shared: Arc::clone(&follower.shared), journal: None, noted: token.clone() };
            self.under_way = Some(Box::pin(async move { follower.renewed(Wanted::AtLeast(token)).await }));
        }
        Ok(())
    }

    /// What came of the one that is under way; never, if there is none.
    async fn done(&mut self) -> Result<(Arc<Live>, Option<Journal>)> {
        let Some(renewal) = &mut self.under_way else { return std::future::pending().await };
        let fresh = renewal.await;
        self.under_way = None;
        fresh
    }

    /// Lets some time pass before the next.
    fn wait(&mut self, follower: &Follower) {
        self.at = Instant::now() + self.pauses.next(&*follower.shared.options.random);
    }
}

/// Brings the copy that answers up to date.
async fn begin(follower: &mut Follower) -> Result<()> {
    let live = follower.live()?;
    let asked_at = catch_up(&follower.shared, &live, &mut follower.journal).await?;
    if live.copy.behind().is_none() {
        follower.shared.confirm(asked_at);
    }
    follower.shared.step();
    Ok(())
}

impl Listening {
    async fn open(follower: &Follower, feed: Feed) -> Result<Self> {
        let live = follower.live()?;
        let mut path = format!("{}&follow=true", feed_of(&live));
        if feed.versions {
            path.push_str(&format!("&versions=true&have={}", live.number()));
        }
        let stream = follower.shared.sources.ask(&Ask::get(follower.shared.sources.path(&path))).await?;
        let (buffer, chunks) = (BytesMut::new(), Vec::new());
        Ok(Self { feed, stream, buffer, frame: Unfinished::default(), chunks })
    }

    /// Takes a piece, and all frames that are whole with it.
    async fn take(&mut self, follower: &mut Follower, piece: &[u8]) -> Result<Heard> {
        self.buffer.extend_from_slice(piece);
        let heard = self.hear(follower).await?;
        self.frame.look(&self.buffer, heard.frames > 0)?;
        Ok(heard)
    }

    async fn hear(&mut self, follower: &mut Follower) -> Result<Heard> {
        let mut heard = Heard::default();
        let mut chunk_bytes: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        while let Some(frame) = Frame::take(&mut self.buffer)? {
            heard.frames += 1;
            match frame {
                Frame::Chunk(bytes) if self.feed.versions => {
                    chunk_bytes += bytes.len() as u64;
                    if chunk_bytes > follower.shared.options.memory_bytes_max {
                        return Err(Error::Full(format!("chunks of {chunk_bytes} bytes without a version")));
                    }
                    self.chunks.push(bytes);
                }
                Frame::Version(bytes) if self.feed.versions => {
                    let version = Version::decode(&bytes, "a version in a feed")?;
                    let chunks = std::mem::take(&mut self.chunks);
                    let live = fetch::assemble(&follower.shared, version, chunks).await?;
                    let journal = follower.journal_for(&live).await;
                    switch(follower, live, journal).await?;
                    // What follows is heard again, for this copy.
                    heard.switched = true;
                    return Ok(heard);
                }
                frame => {
                    let live = follower.live()?;
                    let taken = take(&follower.shared, &live, &mut follower.journal, &frame)?;
                    heard.gone |= taken == Taken::Gone;
                    heard.reached |= matches!(frame, Frame::Reached { .. });
                }
            }
        }
        Ok(heard)
    }
}

/// Lets a copy answer that has at least what the one before has. The feed begins anew where that is: changes are packed for the
/// shape of one copy.
async fn switch(follower: &mut Follower, live: Arc<Live>, mut journal: Option<Journal>) -> Result<()> {
    let before = follower.live()?;
    if !is_other(&before, live.copy.version()) {
        while !live.copy.token().includes(&before.copy.token()) {
            let token = live.copy.token();
            catch_up(&follower.shared, &live, &mut journal).await?;
            if live.copy.token() == token {
                return Err(Error::Unreachable(format!(
                    "the server is at {token}, before what it told already: {}",
                    before.copy.token()
                )));
            }
        }
    }
    // If it is to stay at a version by now, that one is taken next.
    follower.adopt_if(live, journal, Some(0)).await;
    Ok(())
}

/// The log does not go back to where the copy is, or what the copy has seen was lost: it begins anew.
async fn renew_trimmed(follower: &mut Follower) -> Result<()> {
    let token = follower.live()?.copy.token();
    let fresh = match follower.renewed(Wanted::AtLeast(token)).await {
        // Even the newest version is from before the log.
        Err(error) if error.is_trimmed() => follower.renewed(Wanted::Latest(Duration::ZERO)).await,
        fresh => fresh,
    };
    let (live, journal) = fresh?;
    follower.adopt_if(live, journal, Some(0)).await;
    Ok(())
}
