//! Keys that are added and removed here: visible at once, kept until the centre has them, sent once.
//!
//! ```text
//!  add --> overlay (visible) --> spool (durable) --> request: session, sequence --> centre
//!            ^                                                                        |
//!            '-- window dropped <-- the copy has reached <----- position <------------'
//! ```
//!
//! The centre remembers the last request of a session. So there is one request at a time, and it is sent until it is answered.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::HeaderValue;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use umbel_core::engine::Token;
use umbel_filter::Fingerprint;

use crate::backoff::Backoff;
use crate::http::{Ask, FILTER};
use crate::limits::REQUEST_KEYS_MAX;
use crate::shared::{Shared, blocking, count};
use crate::store::{Batch, Change, Spool, Target};
use crate::{Error, Result};

/// Most changes that are written at once.
const GATHERED_MAX: usize = 1024;

/// What a writer is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Takes keys; answers when they are kept.
    Change { change: Change, keys: Vec<Fingerprint>, ticket: u64, tell: oneshot::Sender<Result<()>> },
    /// Answers when all keys before it are at the centre, with a position that includes them.
    Flush(oneshot::Sender<Token>),
    /// Ends.
    Close(oneshot::Sender<()>),
}

/// What the centre answers.
#[derive(Debug, Deserialize)]
struct Answered {
    position: String,
    #[serde(default)]
    refused: Option<String>,
}

type Sending = Pin<Box<dyn Future<Output = Result<Token>> + Send>>;

#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
    spool: Option<Spool>,
    /// Everything that was acknowledged.
    position: Token,
    flushes: Vec<oneshot::Sender<Token>>,
}

/// Writes until it is told to end. `before` is what was acknowledged before a restart.
pub(crate) async fn run(
    shared: Arc<Shared>,
    spool: Spool,
    before: Option<(u64, Token)>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut steps = shared.steps();
    let window = shared.options.window;
    let mut sending: Option<Sending> = None;
    let mut seal_at: Option<Instant> = None;
    let mut backoff = Backoff::default();
    let position = before.as_ref().map(|(_, position)| position.clone()).unwrap_or_default();
    if let Some((ticket, position)) = before {
        shared.overlay.acknowledge(ticket, position);
    }
    let mut writer = Writer { shared, spool: Some(spool), position, flushes: Vec::new() };
    loop {
        if sending.is_none() && writer.keys() == 0 {
            writer.flushed();
        }
        if sending.is_none() && seal_at.is_none() && writer.keys() > 0 {
            let now = Instant::now();
            // What was sealed before a restart does not wait again, nor does anybody who flushes.
            let at_once = writer.waiting() >= REQUEST_KEYS_MAX
                || writer.keys() > writer.waiting()
                || !writer.flushes.is_empty();
            seal_at = Some(if at_once { now } else { now + window });
        }
        if seal_at.is_some() && (writer.waiting() >= REQUEST_KEYS_MAX || !writer.flushes.is_empty()) {
            seal_at = seal_at.map(|at| at.min(Instant::now()));
        }
        let sent = async {
            match &mut sending {
                Some(sending) => sending.await,
                None => std::future::pending().await,
            }
        };
        let due = async {
            match seal_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            order = orders.recv() => {
                let Some(order) = order else { return };
                if let Some(tell) = writer.take(order, &mut orders).await {
                    // Whoever asked has perhaps gone.
                    let _heard = tell.send(());
                    return;
                }
            }
            outcome = sent => {
                sending = None;
                match outcome {
                    Err(error) if error.is_replaced() || error.is_other_deployment() => {
                        // Nothing of it was done. It waits until the copy is one of the filter that has the name now, and is then sent
                        // to that one if it took the place of the other, or dropped.
                        writer.shared.fail(&error);
                        writer.shared.look.notify_one();
                        seal_at = Some(Instant::now());
                    }
                    outcome => writer.sent(outcome),
                }
            }
            () = due => {
                seal_at = None;
                match writer.seal().await {
                    Ok(batch) => {
                        backoff.reset();
                        let filter = writer.spool.as_ref().map(Spool::filter);
                        sending = batch.zip(filter).map(|(batch, filter)| -> Sending {
                            Box::pin(send(Arc::clone(&writer.shared), batch, filter))
                        });
                    }
                    Err(error) => {
                        writer.shared.fail(&error);
                        seal_at = Some(Instant::now() + backoff.next(&*writer.shared.options.random));
                    }
                }
            }
            _ = steps.changed() => writer.settle(),
        }
    }
}

impl Writer {
    fn keys(&self) -> usize {
        self.spool.as_ref().map_or(0, Spool::keys)
    }

    fn waiting(&self) -> usize {
        self.spool.as_ref().map_or(0, Spool::waiting)
    }

    /// Makes room for other keys.
    fn free(&self, keys: usize) {
        self.shared.counters.spooled_keys.fetch_sub(keys, Ordering::AcqRel);
    }

    /// Does something with the spool, where a disk keeps nobody waiting.
    async fn with_spool<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Spool) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut spool = self.spool.take().ok_or(Error::Closed)?;
        if !spool.is_durable() {
            let outcome = work(&mut spool);
            self.spool = Some(spool);
            return outcome;
        }
        let (spool, outcome) = blocking(move || {
            let outcome = work(&mut spool);
            (spool, outcome)
        })
        .await?;
        self.spool = Some(spool);
        outcome
    }

    /// Takes an order, and changes that wait behind it: one write serves all. Gives whom to tell that it is over.
    async fn take(
        &mut self,
        first: Order,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Option<oneshot::Sender<()>> {
        let (mut groups, mut tells, mut next, mut close) = (Vec::new(), Vec::new(), Some(first), None);
        while let Some(order) = next {
            match order {
                Order::Change { change, keys, ticket, tell } => {
                    groups.push((change, keys, ticket));
                    tells.push(tell);
                }
                Order::Flush(tell) => {
                    self.flushes.push(tell);
                    break;
                }
                Order::Close(tell) => {
                    close = Some(tell);
                    break;
                }
            }
            next = if groups.len() < GATHERED_MAX { orders.try_recv().ok() } else { None };
        }
        if !groups.is_empty() {
            let keys: usize = groups.iter().map(|(_, keys, _): &(_, Vec<_>, _)| keys.len()).sum();
            let kept = self.with_spool(|spool| spool.push(groups)).await;
            if kept.is_err() {
                self.free(keys);
            }
            for tell in tells {
                let _heard = tell.send(kept.clone());
            }
        }
        close
    }

    async fn seal(&mut self) -> Result<Option<Batch>> {
        if let (Some(live), Some(spool)) = (self.shared.live(), &self.spool)
            && live.copy.version().filter != spool.filter()
        {
            // The name was given to another filter: what was meant for the old one went with it, unless this one took its place.
            let target = Target::of(&live, self.shared.sources.deployment());
            let keys = self.with_spool(move |spool| spool.go_on_with(target)).await?;
            self.free(keys);
            count(&self.shared.counters.refused_keys, keys as u64);
        }
        self.with_spool(|spool| spool.seal().map(Option::<&Batch>::cloned)).await
    }

    /// A request was answered.
    fn sent(&mut self, outcome: Result<Token>) {
        let refused = outcome.as_ref().err().cloned();
        for (partition, position) in outcome.unwrap_or_default().positions() {
            self.position.see(partition, position);
        }
        let position = self.position.clone();
        let Some(batch) = self.spool.as_mut().and_then(|spool| spool.done(&position)) else { return };
        self.free(batch.given);
        if let Some(error) = refused {
            // To send it again would change nothing, and nothing behind it would ever be sent.
            count(&self.shared.counters.refused_keys, batch.given as u64);
            self.shared.fail(&error);
        }
        if batch.through > 0 {
            self.shared.overlay.acknowledge(batch.through, self.position.clone());
        }
        self.settle();
    }

    /// Lets go of what is in the copy.
    fn settle(&mut self) {
        self.shared.settle();
        if let (Some(live), Some(spool)) = (self.shared.live(), &mut self.spool) {
            spool.settle(|token| live.includes(token));
        }
    }

    fn flushed(&mut self) {
        for tell in self.flushes.drain(..) {
            let _heard = tell.send(self.position.clone());
        }
    }
}

/// Sends a request for a filter until it is answered, or refused for good, or another filter has the name.
async fn send(shared: Arc<Shared>, batch: Batch, filter: u64) -> Result<Token> {
    let (what, session, sequence) = match batch.change {
        Change::Add => ("add", batch.session, batch.sequence),
        Change::Remove => ("remove", batch.session, batch.sequence),
    };
    let path = shared.sources.path(&format!("{what}?session={session}&sequence={sequence}"));
    let body: Bytes = batch.keys.iter().flat_map(|key| key.to_bytes()).collect();
    let mut ask = Ask::with_body(Method::POST, path, "application/vnd.umbel.fingerprints", body);
    if let Ok(filter) = HeaderValue::from_str(&format!("{filter:016x}")) {
        ask.head.push((FILTER, filter));
    }
    let mut backoff = Backoff::default();
    loop {
        let answered = async { shared.sources.ask(&ask).await?.json::<Answered>().await };
        match answered.await {
            Ok(Answered { position, refused }) => {
                if let Some(why) = refused {
                    shared.fail(&Error::Invalid(format!("the filter did not take all keys: {why}")));
                }
                return Ok(position.parse()?);
            }
            Err(error) if error.is_final() => return Err(error),
            Err(error) if error.is_replaced() || error.is_other_deployment() => {
                // The copy needs a moment to find out what is there now.
                sleep(backoff.next(&*shared.options.random)).await;
                return Err(error);
            }
            Err(error) => {
                shared.fail(&error);
                let pause: Duration = backoff.next(&*shared.options.random);
                sleep(pause).await;
            }
        }
    }
}
