//! The least that can stand on epoll: one buffer, and a table of connections.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use mio::{Events, Interest, Poll, Token};

use super::frames::{BUFFER_BYTES, Frames};

struct Connection {
    stream: mio::net::TcpStream,
    frames: Frames,
    /// Replies for which the socket had no room.
    held: Vec<u8>,
}

pub(super) fn serve(streams: Vec<TcpStream>) -> io::Result<u64> {
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for (index, stream) in streams.into_iter().enumerate() {
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(index), interest)?;
        connections.push(Connection { stream, frames: Frames::default(), held: Vec::new() });
    }
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut replies = Vec::new();
    let mut open = connections.len();
    while open > 0 {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            if connections[event.token().0].is_ready(&mut buffer, &mut replies)? {
                open -= 1;
            }
        }
    }
    Ok(connections.iter().map(|connection| connection.frames.whole()).sum())
}

impl Connection {
    /// Reads and answers what has come; true if the client has gone. Who does not read its replies is not read from.
    fn is_ready(&mut self, buffer: &mut [u8], replies: &mut Vec<u8>) -> io::Result<bool> {
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.send(&held)?;
        }
        while self.held.is_empty() {
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return Ok(true),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            self.frames.answer(&buffer[..bytes], replies);
            self.send(replies)?;
            replies.clear();
            // The socket is empty, and epoll says so when it is no longer. tokio saves this read, too.
            if bytes < buffer.len() {
                break;
            }
        }
        Ok(false)
    }

    fn send(&mut self, mut replies: &[u8]) -> io::Result<()> {
        while !replies.is_empty() {
            match self.stream.write(replies) {
                Ok(sent) => replies = &replies[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.held.extend_from_slice(replies);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
