//! A thread's connections, kept busy: the next requests go out when all replies to the last have come.

use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::link::{Link, Tally};
use super::source::Source;
use crate::resp::{Address, Connection, SILENCE_MAX};

pub(crate) struct Worker {
    pub(crate) address: Address,
    pub(crate) poll: Poll,
    pub(crate) events: Events,
    pub(crate) links: Vec<Link>,
}

impl Worker {
    pub(crate) fn connect(address: &Address, connections: usize) -> Result<Self, String> {
        let told = |error| format!("{address}: {error}");
        let poll = Poll::new().map_err(told)?;
        let mut links = Vec::with_capacity(connections);
        for index in 0..connections {
            let stream = Connection::open(address, SILENCE_MAX)?.into_stream()?;
            stream.set_nonblocking(true).map_err(told)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(index), interest).map_err(told)?;
            links.push(Link::new(stream));
        }
        Ok(Self { address: address.clone(), poll, events: Events::with_capacity(256), links })
    }

    /// Asks without a pause until the time is over or the source is empty, and then waits for the last reply.
    pub(crate) fn closed(
        &mut self,
        source: &mut Source<'_>,
        pipeline: usize,
        duration: Duration,
    ) -> Result<Tally, String> {
        let address = self.address.clone();
        self.run_closed(source, pipeline, duration).map_err(|error| format!("{address}: {error}"))
    }

    fn run_closed(
        &mut self,
        source: &mut Source<'_>,
        pipeline: usize,
        duration: Duration,
    ) -> Result<Tally, String> {
        let (mut tally, start) = (Tally::default(), Instant::now());
        let now = || start.elapsed().as_nanos() as u64;
        let (end, keys) = (duration.as_nanos() as u64, source.keys());
        let mut busy = 0;
        for link in &mut self.links {
            busy += usize::from(ask(link, source, pipeline, now())?);
        }
        while busy > 0 {
            wait(&mut self.poll, &mut self.events, Some(SILENCE_MAX))?;
            if self.events.is_empty() {
                return Err(format!("no reply for {} s", SILENCE_MAX.as_secs()));
            }
            for event in &self.events {
                let Some(link) = self.links.get_mut(event.token().0) else { continue };
                if event.is_writable() {
                    link.flush()?;
                }
                if link.is_idle() || !event.is_readable() {
                    continue;
                }
                link.receive(keys, now, &mut tally)?;
                if link.is_idle() {
                    let at = now();
                    busy -= usize::from(at >= end || !ask(link, source, pipeline, at)?);
                }
            }
        }
        Ok(tally)
    }
}

/// Sends a pipeline of requests; false if there are none left.
fn ask(link: &mut Link, source: &mut Source<'_>, pipeline: usize, at: u64) -> Result<bool, String> {
    for _ in 0..pipeline {
        if !link.queue(source, at) {
            break;
        }
    }
    link.flush()?;
    Ok(!link.is_idle())
}

/// Waits for the network; a signal, such as that of a resized window, is no reason to stop.
pub(crate) fn wait(poll: &mut Poll, events: &mut Events, limit: Option<Duration>) -> Result<(), String> {
    loop {
        match poll.poll(events, limit) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot wait for the network: {error}")),
        }
    }
}
