//! A client that sends bytes and gets bytes, or what they mean.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::value::{Value, end_of};

/// How long nothing has to come before there is nothing.
const SILENCE: Duration = Duration::from_millis(100);

pub struct Client {
    pub stream: TcpStream,
    rest: Vec<u8>,
}

/// What reading came to.
#[derive(PartialEq)]
enum Came {
    Something,
    Nothing,
    End,
}

impl Client {
    /// A client of any server.
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_write_timeout(Some(PATIENCE)).expect("an option");
        Self { stream, rest: Vec::new() }
    }

    /// Sends bytes and waits for nothing.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("bytes are sent");
    }

    /// Sends a line, and gives the bytes of the one reply to it.
    pub fn ask(&mut self, line: &str) -> String {
        self.write(format!("{line}\r\n").as_bytes());
        self.reply()
    }

    /// Asks again until the reply is as it should be, and gives it.
    pub fn wait_until(&mut self, line: &str, is_so: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let reply = self.ask(line);
            if is_so(&reply) {
                return reply;
            }
            assert!(Instant::now() < until, "{line}: {reply}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends words, and gives the bytes of the one reply to them.
    pub fn send(&mut self, words: &[&[u8]]) -> String {
        self.write(&encode(words));
        self.reply()
    }

    /// Sends words, and gives what the one reply to them means.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Value {
        self.write(&encode(words));
        self.value()
    }

    /// As [`Client::call`], with words that are parted by blanks.
    pub fn value_of(&mut self, line: &str) -> Value {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// The bytes of the next reply, as text.
    pub fn reply(&mut self) -> String {
        String::from_utf8_lossy(&self.reply_bytes()).into_owned()
    }

    /// The bytes of the next reply, which may be no text.
    pub fn reply_bytes(&mut self) -> Vec<u8> {
        self.next().expect("a reply before the connection ends")
    }

    /// What the next reply means.
    pub fn value(&mut self) -> Value {
        Value::parse(&self.reply_bytes())
    }

    /// What the next reply means, or nothing if the server has ended the connection.
    pub fn try_value(&mut self) -> Option<Value> {
        self.next().map(|reply| Value::parse(&reply))
    }

    /// Speaks version 3 of the protocol; whether the server can.
    pub fn speak_resp3(&mut self) -> bool {
        self.value_of("HELLO 3").error().is_none()
    }

    /// Whether nothing comes for a while.
    pub fn is_silent(&mut self) -> bool {
        self.rest.is_empty() && self.read(SILENCE) == Came::Nothing
    }

    /// Whether the server has ended the connection and sent nothing more.
    pub fn is_closed(&mut self) -> bool {
        self.rest.is_empty() && self.read(PATIENCE) == Came::End
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(end) = end_of(&self.rest, 0) {
                return Some(self.rest.drain(..end).collect());
            }
            match self.read(until.saturating_duration_since(Instant::now())) {
                Came::Something => {}
                Came::End => return None,
                Came::Nothing => panic!("no whole reply: {:?}", String::from_utf8_lossy(&self.rest)),
            }
        }
    }

    fn read(&mut self, patience: Duration) -> Came {
        let patience = patience.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(patience)).expect("an option");
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Came::End,
            Ok(bytes) => {
                self.rest.extend_from_slice(&buffer[..bytes]);
                Came::Something
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Came::Nothing
            }
            Err(_) => Came::End,
        }
    }
}

/// A command as clients send it.
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
