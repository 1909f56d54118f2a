//! A feed without end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use umbel_core::copy::Taken;
use umbel_core::feed::Frame;
use umbel_core::version::Version;

use super::{Follower, catch_up, feed_of, is_other, take};
use crate::backoff::Backoff;
use crate::fetch::{self, Wanted};
use crate::http::{Ask, Reply};
use crate::limits::{JOURNAL_BYTES_MAX, STALL_TIMEOUT};
use crate::shared::Live;
use crate::store::Journal;
use crate::{Error, Result};

/// How often the journal is made durable, and looked at.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// The least pause between questions.
const QUESTION_PAUSE_MIN: Duration = Duration::from_millis(50);
/// A frame comes at least as fast as this: 16 KB a second.
const FRAME_BYTES_PER_MS: u64 = 16;

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
        let patience = STALL_TIMEOUT + Duration::from_millis(buffer.len() as u64 / FRAME_BYTES_PER_MS);
        if self.since.get_or_insert_with(Instant::now).elapsed() > patience {
            return Err(Error::Corrupt(format!(
                "a frame of which {} bytes came in {patience:?}",
                buffer.len()
            )));
        }
        Ok(())
    }
}

pub(super) async fn run(follower: &mut Follower, feed: Feed) -> Result<()> {
    // First all that there is, so that it is known how old the copy is.
    match begin(follower).await {
        Err(error) if error.is_trimmed() => renew_trimmed(follower).await?,
        caught_up => caught_up?,
    }
    if follower.live()?.copy.is_gone() {
        follower.shared.set_gone();
        return Ok(());
    }
    // The server sends a version for changes that it sends, not for those before.
    let fetches = !feed.versions || follower.live()?.copy.behind().is_some();
    let mut stream = open(follower, feed).await?;
    let mut renewal: Option<Renewal> = None;
    let (mut renewals, mut renew_at) = (Backoff::default(), Instant::now());
    let (mut buffer, mut chunks) = (BytesMut::new(), Vec::new());
    let mut ticks = interval(NOTE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut frame = Unfinished::default();
    // A stream says what there was when it was sent, and not how long that is ago. Whoever must not be stale asks, too.
    let bound = follower.shared.options.stale_after;
    let pause = bound.map_or(NOTE_EVERY, |bound| (bound / 4).max(QUESTION_PAUSE_MIN));
    let mut questions = interval_at(Instant::now() + pause, pause);
    questions.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if renewal.is_none() && Instant::now() >= renew_at && needs_renewal(follower, fetches)? {
            renewal = Some(begin_renewal(follower)?);
        }
        let renewed = async {
            match &mut renewal {
                Some(renewal) => renewal.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            piece = stream.next() => {
                let Some(piece) = piece? else {
                    return Err(Error::Unreachable("the server ended the feed".to_owned()));
                };
                buffer.extend_from_slice(&piece);
                let heard = hear(follower, feed, &mut buffer, &mut chunks).await?;
                if heard.gone {
                    follower.shared.set_gone();
                    return Ok(());
                }
                frame.look(&buffer, heard.frames > 0)?;
                let behind = follower.live()?.copy.behind().is_some();
                if heard.reached && !behind && bound.is_none() {
                    follower.shared.confirm(follower.shared.now());
                }
                follower.shared.step();
                if heard.switched {
                    (stream, buffer) = (open(follower, feed).await?, BytesMut::new());
                    frame = Unfinished::default();
                }
            }
            fresh = renewed => {
                renewal = None;
                match fresh {
                    Ok((live, journal)) => {
                        switch(follower, live, journal).await?;
                        renewals.reset();
                        (stream, buffer) = (open(follower, feed).await?, BytesMut::new());
                        frame = Unfinished::default();
                        chunks.clear();
                    }
                    Err(error) => {
                        // The copy that is there goes on meanwhile.
                        follower.shared.fail(&error);
                        renew_at = Instant::now() + renewals.next(&*follower.shared.options.random);
                    }
                }
            }
            _ = ticks.tick() => follower.note().await,
            _ = questions.tick(), if bound.is_some() => {
                begin(follower).await?;
                if follower.live()?.copy.is_gone() {
                    follower.shared.set_gone();
                    return Ok(());
                }
            }
        }
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

async fn open(follower: &Follower, feed: Feed) -> Result<Reply> {
    let live = follower.live()?;
    let mut path = format!("{}&follow=true", feed_of(&live));
    if feed.versions {
        path.push_str(&format!("&versions=true&have={}", live.number()));
    }
    follower.shared.sources.ask(&Ask::get(follower.shared.sources.path(&path))).await
}

/// Takes all frames that are whole.
async fn hear(
    follower: &mut Follower,
    feed: Feed,
    buffer: &mut BytesMut,
    chunks: &mut Vec<Bytes>,
) -> Result<Heard> {
    let mut heard = Heard::default();
    let mut chunk_bytes: u64 = chunks.iter().map(|chunk: &Bytes| chunk.len() as u64).sum();
    while let Some(frame) = Frame::take(buffer)? {
        heard.frames += 1;
        match frame {
            Frame::Chunk(bytes) if feed.versions => {
                chunk_bytes += bytes.len() as u64;
                if chunk_bytes > follower.shared.options.memory_bytes_max {
                    return Err(Error::Full(format!("chunks of {chunk_bytes} bytes without a version")));
                }
                chunks.push(bytes);
            }
            Frame::Version(bytes) if feed.versions => {
                let version = Version::decode(&bytes, "a version in a feed")?;
                let live = fetch::assemble(&follower.shared, version, std::mem::take(chunks)).await?;
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

/// Whether a version has to be fetched: because of what happened, or because the journal would take long to read.
fn needs_renewal(follower: &Follower, fetches: bool) -> Result<bool> {
    let live = follower.live()?;
    let bound = JOURNAL_BYTES_MAX.max(live.copy.bytes() / 4);
    let long = follower.journal.as_ref().is_some_and(|journal| journal.length() > bound);
    Ok(long || fetches && live.copy.behind().is_some())
}

fn begin_renewal(follower: &Follower) -> Result<Renewal> {
    let live = follower.live()?;
    let token = live.copy.token();
    let follower = Follower { shared: Arc::clone(&follower.shared), journal: None, noted: token.clone() };
    Ok(Box::pin(async move { follower.renewed(Wanted::AtLeast(token)).await }))
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
    follower.adopt_with(live, journal).await;
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
    follower.adopt_with(live, journal).await;
    Ok(())
}
