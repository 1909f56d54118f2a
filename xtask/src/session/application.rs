//! The application of a session: it inserts rows and adds their keys to the filter, all the while.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::FILTER;
use super::table::{Inserter, Table};
use crate::step::Failure;

/// Rows that are inserted together.
const TOGETHER: u64 = 20;
/// How long it waits for a server that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection of it to the server.
pub(super) struct Link {
    stream: BufReader<TcpStream>,
}

impl Link {
    pub(super) fn open(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks, and gives the numbers and words of the reply.
    pub(super) fn ask<W: AsRef<str>>(&mut self, words: &[W]) -> Result<Vec<String>, Failure> {
        let mut request = format!("*{}\r\n", words.len());
        words
            .iter()
            .map(AsRef::as_ref)
            .for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.stream.get_mut().write_all(request.as_bytes())?;
        let first = self.line()?;
        let Some(elements) = first.strip_prefix('*') else { return Ok(vec![answer(&first)?]) };
        (0..elements.parse::<usize>()?).map(|_| answer(&self.line()?)).collect()
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err("the server has ended the connection".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// How many of these keys are certainly not in a filter.
    pub(super) fn missing(&mut self, filter: &str, keys: &[String]) -> Result<u64, Failure> {
        let words: Vec<&str> =
            ["BF.MEXISTS", filter].into_iter().chain(keys.iter().map(String::as_str)).collect();
        let answers = self.ask(&words)?;
        if answers.len() != keys.len() {
            return Err(format!("{} answers for {} keys", answers.len(), keys.len()).into());
        }
        Ok(answers.iter().filter(|answer| *answer == "0").count() as u64)
    }
}

fn answer(line: &str) -> Result<String, Failure> {
    match line.split_at_checked(1) {
        Some((":" | "+", rest)) => Ok(rest.to_owned()),
        _ => Err(format!("the server says {line:?}").into()),
    }
}

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
    let words: Vec<&str> = ["BF.MADD", FILTER].into_iter().chain(keys.iter().map(String::as_str)).collect();
    open.ask(&words).map(drop)
}
