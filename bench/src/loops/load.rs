//! Connections that ask without a pause: the next requests go out when all replies to the last have come.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::frames::{BUFFER_BYTES, REPLY, REQUEST};

/// A server that says nothing for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(10);

pub(super) struct Load {
    poll: Poll,
    events: Events,
    links: Vec<Link>,
    buffer: Vec<u8>,
}

struct Link {
    stream: mio::net::TcpStream,
    /// Bytes of replies that have come for the requests that are out.
    received: usize,
}

impl Load {
    pub(super) fn connect(address: SocketAddr, connections: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut links = Vec::with_capacity(connections);
        for index in 0..connections {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            links.push(Link { stream, received: 0 });
        }
        Ok(Self { poll, events: Events::with_capacity(1024), links, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Asks until the time is over and the last reply has come. Gives the number of requests, all of them answered as
    /// they should be, and the time.
    pub(super) fn run(&mut self, pipeline: usize, time: Duration) -> io::Result<(u64, Duration)> {
        let (requests, replies) = (REQUEST.repeat(pipeline), REPLY.repeat(pipeline));
        let (start, mut turns) = (Instant::now(), 0);
        for link in &mut self.links {
            link.ask(&requests)?;
        }
        let mut busy = self.links.len();
        while busy > 0 {
            match self.poll.poll(&mut self.events, Some(SILENCE_MAX)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if self.events.is_empty() {
                return Err(io::Error::other(format!("no reply for {} s", SILENCE_MAX.as_secs())));
            }
            let is_over = start.elapsed() >= time;
            for event in &self.events {
                let link = &mut self.links[event.token().0];
                if !link.receive(&mut self.buffer, &replies)? {
                    continue;
                }
                turns += 1;
                if is_over {
                    busy -= 1;
                } else {
                    link.ask(&requests)?;
                }
            }
        }
        Ok((turns * pipeline as u64, start.elapsed()))
    }
}

impl Link {
    /// There is room for the requests: all that went before were answered, so they were read.
    fn ask(&mut self, requests: &[u8]) -> io::Result<()> {
        self.received = 0;
        let sent = self.stream.write(requests)?;
        if sent == requests.len() { Ok(()) } else { Err(io::Error::other("requests are held up")) }
    }

    /// Takes what has come; true if those were the last bytes of all replies.
    fn receive(&mut self, buffer: &mut [u8], replies: &[u8]) -> io::Result<bool> {
        let bytes = match self.stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let come = self.received + bytes;
        if replies.get(self.received..come) != Some(&buffer[..bytes]) {
            return Err(io::Error::other("a reply is wrong, or there are too many"));
        }
        self.received = come;
        Ok(come == replies.len())
    }
}
