//! One of those who read and send at the same time: a thread that reads, and one that sends what was read.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::checkpoint::Checkpoint;
use crate::journal::{Entry, Journal};
use crate::loader::Work;
use crate::pause::Tries;
use crate::plan::Counts;
use crate::sink::Who;
use crate::{Batch, Bookmark, Error, Result};

/// Batches that wait to be sent while the next is read.
const BATCHES_AHEAD: usize = 2;

/// What a reader tells the sender.
enum Read {
    Batch(usize, Batch, Bookmark),
    End(usize),
    Failed(Error),
}

/// Reads parts and sends them, until none is left.
pub(crate) fn run(work: &Work<'_>, lane: usize) -> Result<()> {
    let (tell, told) = sync_channel(BATCHES_AHEAD);
    let (give_back, given_back) = sync_channel(BATCHES_AHEAD + 2);
    thread::scope(|scope| {
        scope.spawn(move || read_all(work, &tell, &given_back));
        let outcome = Sender::new(work, lane).run(told, &give_back);
        if outcome.is_err() {
            // The reader may wait for its source, which nobody needs any more.
            work.progress.stop();
        }
        outcome
    })
}

fn read_all(work: &Work<'_>, tell: &SyncSender<Read>, given_back: &Receiver<Batch>) {
    while let Some(part) = work.next_part() {
        match read(work, part, tell, given_back) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                let _nobody = tell.send(Read::Failed(error));
                return;
            }
        }
    }
}

/// Reads one part; false if nobody listens any more.
fn read(work: &Work<'_>, part: usize, tell: &SyncSender<Read>, given_back: &Receiver<Batch>) -> Result<bool> {
    let (what, mut after) = work.place_of(part);
    let (mut cursor, mut tries) = (None, Tries::new(work.options.patience));
    loop {
        if work.progress.is_stopped() {
            return Err(Error::Stopped);
        }
        let mut batch = given_back.try_recv().unwrap_or_default();
        batch.clear();
        let next = match &mut cursor {
            Some(open) => open,
            none => match work.source.open(&what, after.as_ref()) {
                Ok(open) => none.insert(open),
                Err(error) => {
                    tries.wait(error, work.progress)?;
                    continue;
                }
            },
        }
        .next(&mut batch);
        let read = match next {
            Ok(Some(bookmark)) => {
                tries.succeeded();
                after = Some(bookmark.clone());
                Read::Batch(part, batch, bookmark)
            }
            Ok(None) => Read::End(part),
            Err(error) => {
                tries.wait(error, work.progress)?;
                cursor = None;
                continue;
            }
        };
        let is_over = matches!(read, Read::End(_));
        if tell.send(read).is_err() {
            return Ok(false);
        }
        if is_over {
            return Ok(true);
        }
    }
}

struct Sender<'a> {
    work: &'a Work<'a>,
    who: Who,
    journal: Option<Journal>,
    /// The part whose batch is in the journal.
    journalled: Option<usize>,
}

impl<'a> Sender<'a> {
    fn new(work: &'a Work<'a>, lane: usize) -> Self {
        let who = Who { session: work.session_of(lane), sequence: 0 };
        let path = work.checkpoint.as_ref().filter(|_| work.options.exactly_once).map(Checkpoint::path);
        Self { work, who, journal: path.map(|path| Journal::of(path, lane)), journalled: None }
    }

    fn run(&mut self, told: Receiver<Read>, give_back: &SyncSender<Batch>) -> Result<()> {
        for read in told {
            match read {
                Read::Batch(part, batch, after) => {
                    self.take(part, &batch, after)?;
                    // If there are enough of them, this one goes.
                    let _ = give_back.try_send(batch);
                }
                Read::End(part) => self.work.ended(part)?,
                Read::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, part: usize, batch: &Batch, after: Bookmark) -> Result<()> {
        let work = self.work;
        let mut counts =
            Counts { keys: batch.len() as u64, added: 0, nulls: batch.nulls(), bytes: batch.source_bytes() };
        if counts.keys > 0 {
            work.throttle(counts.keys)?;
            let packed = work.sink.pack(batch)?;
            self.who.sequence += 1;
            if let Some(journal) = &self.journal {
                // Until the checkpoint has the last batch of a part, only the journal says that it was sent.
                if self.journalled.replace(part).is_some_and(|before| before != part) {
                    work.write_now()?;
                }
                let (batches, before) = work.counted(part);
                let entry = Entry {
                    who: self.who,
                    part,
                    batches: batches + 1,
                    after: after.clone(),
                    counts: before.plus(counts),
                    form: work.sink.form(),
                    packed: packed.clone(),
                };
                journal.write(&entry)?;
            }
            let mut tries = Tries::new(work.options.patience);
            counts.added = loop {
                match work.sink.send(self.who, &packed) {
                    Ok(added) => break added,
                    Err(error) => tries.wait(error, work.progress)?,
                }
            };
        }
        work.took(part, after, counts)
    }
}
