//! The application of a session: it inserts rows and adds their keys to the filter, all the while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::FILTER;
use super::table::{Inserter, Table};
use crate::session::link::Link;
use crate::step::Failure;

/// Rows that are inserted together.
const TOGETHER: u64 = 20;
/// How long it waits for a server that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// An application that runs.
pub(super) struct Application {
    is_over: Arc<AtomicBool>,
    inserted: Arc<AtomicU64>,
    thread: JoinHandle<Result<(), String>>,
}

impl Application {
    pub(super) fn start(table: &Table, port: u16) -> Result<Self, Failure> {
        let (is_over, inserted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut inserter = table.inserter()?;
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&inserted));
        let work = move || work(&mut inserter, port, &over, &count).map_err(|error| error.to_string());
        Ok(Self { is_over, inserted, thread: std::thread::spawn(work) })
    }

    /// Rows that it has inserted, and that are in the filter.
    pub(super) fn inserted(&self) -> u64 {
        self.inserted.load(Ordering::Relaxed)
    }

    /// Ends it: how many rows it has inserted.
    pub(super) fn stop(self) -> Result<u64, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the application failed")??;
        Ok(self.inserted.load(Ordering::Relaxed))
    }
}

fn work(
    inserter: &mut Inserter,
    port: u16,
    is_over: &AtomicBool,
    inserted: &AtomicU64,
) -> Result<(), Failure> {
    let mut link = None;
    while !is_over.load(Ordering::Relaxed) {
        let first = inserted.load(Ordering::Relaxed);
        let keys: Vec<String> =
            (first..first + TOGETHER).map(|number| format!("https://example.org/new/{number}")).collect();
        inserter.insert(&keys)?;
        // A server that is away is waited for: to add a key twice does no harm.
        while add(&mut link, port, &keys).is_err() {
            link = None;
            std::thread::sleep(PAUSE);
        }
        inserted.fetch_add(TOGETHER, Ordering::Relaxed);
    }
    Ok(())
}

fn add(link: &mut Option<Link>, port: u16, keys: &[String]) -> Result<(), Failure> {
    let open = match link {
        Some(link) => link,
        None => link.insert(Link::open(port)?),
    };
    open.each(&["BF.MADD", FILTER], keys)?;
    Ok(())
}
