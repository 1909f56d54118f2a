//! A server that speaks Redis's protocol, asked one question after another.

pub(crate) mod address;
pub(crate) mod tls;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) use address::Address;
pub(crate) use tls::Stream;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may be silent that has little to do for an answer.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest text of a reply: Redis has none that are longer.
pub(crate) const TEXT_BYTES_MAX: u64 = 512 << 20;
const LINE_BYTES_MAX: u64 = 64 << 10;
const ELEMENTS_MAX: u64 = 1 << 20;
const DEPTH_MAX: usize = 8;
/// Bytes that go to a socket at once.
const PIECE_BYTES: usize = 256 << 10;

/// A reply, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Integer(i64),
    Text(Vec<u8>),
    Error(String),
    Null,
    Array(Vec<Value>),
}

impl Value {
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn text(self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn array(self) -> Option<Vec<Value>> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }
}

/// A connection that has introduced itself.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) address: Address,
    stream: BufReader<Stream>,
}

impl Connection {
    /// A connection to a server that may be silent for as long as `patience` before it answers.
    pub(crate) fn open(address: &Address, patience: Duration) -> Result<Self, String> {
        let told = |error| format!("{address}: {error}");
        let stream = address.connect(CONNECT)?;
        stream.set_nodelay(true).map_err(told)?;
        stream.set_read_timeout(Some(patience)).map_err(told)?;
        stream.set_write_timeout(Some(patience)).map_err(told)?;
        let stream = match &address.tls {
            None => Stream::Plain(stream),
            Some(trust) => {
                let secure = Stream::secure(stream, &address.host, trust);
                secure.map_err(|error| format!("{address}: no TLS: {error}"))?
            }
        };
        let stream = BufReader::with_capacity(PIECE_BYTES, stream);
        let mut connection = Self { address: address.clone(), stream };
        match (&address.user, &address.password) {
            (Some(user), Some(password)) => connection.demand(&["AUTH", user, password])?,
            (None, Some(password)) => connection.demand(&["AUTH", password])?,
            (Some(_), None) => return Err(format!("{address}: a user without a password")),
            (None, None) => Value::Null,
        };
        if address.database != 0 {
            connection.demand(&["SELECT", &address.database.to_string()])?;
        }
        Ok(connection)
    }

    /// The socket, of a connection that waits for no reply and is not encrypted.
    pub(crate) fn into_stream(self) -> Result<TcpStream, String> {
        match self.stream.into_inner() {
            Stream::Plain(socket) => Ok(socket),
            Stream::Secure(_) => Err(format!("{}: TLS is not measured; use redis://", self.address)),
        }
    }

    pub(crate) fn peer_is_here(&self) -> bool {
        self.stream.get_ref().socket().peer_addr().is_ok_and(|peer| peer.ip().is_loopback())
    }

    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value, String> {
        let sent = self.send(&request(words, None)).and_then(|()| reply(&mut self.stream, 0));
        sent.map_err(|error| self.told(words, &error))
    }

    /// Asks many things at once, and gives the replies in the same order. What is asked has to be so little that a server which first
    /// reads all of it can.
    pub(crate) fn ask_all(&mut self, requests: &[Vec<Vec<u8>>]) -> Result<Vec<Value>, String> {
        let bytes: Vec<u8> = requests.iter().flat_map(|words| request(words, None)).collect();
        let asked =
            self.send(&bytes).and_then(|()| requests.iter().map(|_| reply(&mut self.stream, 0)).collect());
        asked.map_err(|error| format!("{}: {error}", self.address))
    }

    /// How long the server may be silent from here on.
    pub(crate) fn set_patience(&self, patience: Duration) -> Result<(), String> {
        let socket = self.stream.get_ref().socket();
        socket.set_read_timeout(Some(patience)).map_err(|error| format!("{}: {error}", self.address))
    }

    /// What the server says from here on, for somebody who reads it otherwise.
    pub(crate) fn into_reader(self) -> BufReader<Stream> {
        self.stream
    }

    /// Asks for what has to be granted.
    pub(crate) fn demand<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value, String> {
        let value = self.ask(words)?;
        self.granted(words, value)
    }

    /// The same with one more word, which is read while it is sent and has this many bytes.
    pub(crate) fn demand_with<W: AsRef<[u8]>>(
        &mut self,
        words: &[W],
        length: u64,
        last: &mut dyn Read,
    ) -> Result<Value, String> {
        let value = self.exchange_with(words, length, last).map_err(|error| self.told(words, &error))?;
        self.granted(words, value)
    }

    fn exchange_with<W: AsRef<[u8]>>(
        &mut self,
        words: &[W],
        length: u64,
        last: &mut dyn Read,
    ) -> Result<Value, String> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = length;
        let mut sent = self.send(&request(words, Some(length)));
        while sent.is_ok() && left > 0 {
            let wanted = PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES));
            last.read_exact(&mut piece[..wanted]).map_err(|error| error.to_string())?;
            left -= wanted as u64;
            sent = self.send(&piece[..wanted]);
        }
        match sent.and_then(|()| self.send(b"\r\n")) {
            Ok(()) => reply(&mut self.stream, 0),
            // A server that wants no more has mostly said why.
            Err(error) => reply(&mut self.stream, 0).map_err(|_| error),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush()).map_err(|error| error.to_string())
    }

    fn granted<W: AsRef<[u8]>>(&self, words: &[W], value: Value) -> Result<Value, String> {
        match value {
            Value::Error(error) => Err(self.told(words, &error)),
            value => Ok(value),
        }
    }

    fn told<W: AsRef<[u8]>>(&self, words: &[W], error: &str) -> String {
        let command = words.first().map_or_else(String::new, |word| shown(word.as_ref()));
        format!("{}: {command}: {error}", self.address)
    }
}

/// A request; if one more word of that length follows, without it.
pub(crate) fn request<W: AsRef<[u8]>>(words: &[W], one_more: Option<u64>) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len() + usize::from(one_more.is_some())).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    if let Some(length) = one_more {
        bytes.extend(format!("${length}\r\n").into_bytes());
    }
    bytes
}

/// A reply, of version 2 of the protocol or 3: what the newer one tells apart is the same here.
pub(crate) fn reply(input: &mut impl BufRead, depth: usize) -> Result<Value, String> {
    let line = line(input)?;
    let Some((kind, rest)) = line.split_first() else {
        return Err("an empty line instead of a reply".to_owned());
    };
    match kind {
        b':' => Ok(Value::Integer(number(rest)?)),
        b'+' => Ok(Value::Text(rest.to_vec())),
        b'-' => Ok(Value::Error(shown(rest))),
        b'$' | b'=' => match u64::try_from(number(rest)?) {
            Err(_) => Ok(Value::Null),
            Ok(length) if length > TEXT_BYTES_MAX => {
                Err(format!("a reply of {length} bytes, over the limit of {TEXT_BYTES_MAX}"))
            }
            Ok(length) => text(input, length).map(Value::Text),
        },
        b'*' | b'~' | b'%' => match elements(*kind, rest)? {
            None => Ok(Value::Null),
            Some(length) if length > ELEMENTS_MAX || depth == DEPTH_MAX => {
                Err(format!("a reply of {length} elements at depth {depth}"))
            }
            Some(length) => {
                (0..length).map(|_| reply(input, depth + 1)).collect::<Result<_, _>>().map(Value::Array)
            }
        },
        b'_' => Ok(Value::Null),
        b'#' => Ok(Value::Integer(i64::from(rest == b"t"))),
        b',' | b'(' => Ok(Value::Text(rest.to_vec())),
        _ => Err(format!("no reply: {:?}", shown(&line))),
    }
}

/// How many replies follow: a map has two for each of its entries.
fn elements(kind: u8, rest: &[u8]) -> Result<Option<u64>, String> {
    let length = u64::try_from(number(rest)?).ok();
    Ok(length.map(|length| if kind == b'%' { length.saturating_mul(2) } else { length }))
}

fn line(input: &mut impl BufRead) -> Result<Vec<u8>, String> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(|error| format!("no reply: {error}"))?;
    match line.strip_suffix(b"\r\n") {
        Some(content) => Ok(content.to_vec()),
        None if line.is_empty() => Err("the server closed the connection".to_owned()),
        None => Err(format!("no reply: {:?}", shown(&line))),
    }
}

/// A text that is as long as was said. Memory is taken as it comes.
fn text(input: &mut impl BufRead, length: u64) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    input.take(length + 2).read_to_end(&mut text).map_err(|error| format!("no reply: {error}"))?;
    if text.len() as u64 != length + 2 || !text.ends_with(b"\r\n") {
        return Err("a reply that was cut off".to_owned());
    }
    text.truncate(text.len() - 2);
    Ok(text)
}

pub(crate) fn number(line: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(line).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("no number in a reply: {:?}", shown(line)))
}

/// The beginning of what a server said.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Value, String> {
        reply(&mut &bytes[..], 0)
    }

    #[test]
    fn replies_are_read_as_they_are_nested() {
        assert_eq!(read(b":-12\r\n"), Ok(Value::Integer(-12)));
        assert_eq!(read(b"$4\r\na\r\nb\r\n"), Ok(Value::Text(b"a\r\nb".to_vec())));
        assert_eq!((read(b"$-1\r\n"), read(b"*-1\r\n")), (Ok(Value::Null), Ok(Value::Null)));
        let nested =
            Value::Array(vec![Value::Integer(1), Value::Array(vec![]), Value::Error("ERR full".into())]);
        assert_eq!(read(b"*3\r\n:1\r\n*0\r\n-ERR full\r\n"), Ok(nested));
    }

    #[test]
    fn both_versions_of_the_protocol_mean_the_same() {
        assert_eq!((read(b"#t\r\n"), read(b"#f\r\n")), (Ok(Value::Integer(1)), Ok(Value::Integer(0))));
        assert_eq!(read(b"_\r\n"), read(b"$-1\r\n"));
        assert_eq!(read(b",0.5\r\n"), read(b"$3\r\n0.5\r\n"));
        assert_eq!(read(b"%1\r\n+a\r\n:1\r\n"), read(b"*2\r\n$1\r\na\r\n:1\r\n"));
        assert!(read(b"%9223372036854775807\r\n").is_err());
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            &b""[..],
            b"\r\n",
            b"HTTP/1.1 400\r\n",
            b":x\r\n",
            b":1\n",
            b"$5\r\nabc",
            b"$3\r\nabcde",
            b"$99999999999\r\n",
            b"*9999999999\r\n",
            b"*2\r\n:1\r\n",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(read(&[b'+'; 2 * LINE_BYTES_MAX as usize]).is_err());
        assert!(read(&b"*1\r\n".repeat(DEPTH_MAX + 2)).is_err());
    }

    #[test]
    fn requests_are_counted_in_bytes() {
        assert_eq!(request(&["GET", "é"], None), "*2\r\n$3\r\nGET\r\n$2\r\né\r\n".as_bytes());
        assert_eq!(request(&["X"], Some(9)), b"*2\r\n$1\r\nX\r\n$9\r\n");
    }
}
