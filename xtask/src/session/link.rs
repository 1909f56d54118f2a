//! A connection of a session to a server, as any Redis client has it.

use std::fmt::{Display, Formatter};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECT_TIME: Duration = Duration::from_secs(2);
/// How long an answer is waited for, if nobody says.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Largest reply of ours: elements of a list, and bytes of a text.
const ELEMENTS_MAX: usize = 1 << 20;
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Deepest list in a list.
const DEPTH_MAX: usize = 8;
/// Refusals after which Redis clients ask again.
const PASSING: [&str; 3] = ["TRYAGAIN", "CLUSTERDOWN", "LOADING"];

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    pub(super) fn number(&self) -> Option<i64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    pub(super) fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    pub(super) fn list(&self) -> &[Self] {
        if let Self::List(all) = self { all } else { &[] }
    }

    /// What stands behind a word in a map.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.list().chunks_exact(2).find(|pair| pair[0].text() == name).map(|pair| &pair[1])
    }
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection failed, and what was asked may have been done or not.
    Away(io::Error),
    /// The server says no.
    Refused(String),
}

impl Trouble {
    /// Whether it may be otherwise soon: then a client asks again.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Refused(why) => PASSING.iter().any(|word| why.starts_with(word)),
        }
    }
}

impl Display for Trouble {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Away(error) => write!(out, "the connection failed: {error}"),
            Self::Refused(why) => write!(out, "the server says {why:?}"),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Away(error)
    }
}

/// A connection.
pub(super) struct Link {
    stream: BufReader<TcpStream>,
}

impl Link {
    pub(super) fn open(port: u16) -> Result<Self, Trouble> {
        Self::patient(port, ANSWER_TIME)
    }

    /// A connection that waits for an answer so long.
    pub(super) fn patient(port: u16, time: Duration) -> Result<Self, Trouble> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), CONNECT_TIME)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(time))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the reply.
    pub(super) fn ask<W: AsRef<str>>(&mut self, words: &[W]) -> Result<Value, Trouble> {
        let mut request = format!("*{}\r\n", words.len());
        words
            .iter()
            .map(AsRef::as_ref)
            .for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read(DEPTH_MAX)
    }

    /// Asks a command about items of a filter, and gives one number for each of them.
    pub(super) fn each<K: AsRef<str>>(&mut self, command: &[&str], keys: &[K]) -> Result<Vec<i64>, Trouble> {
        let words: Vec<&str> = command.iter().copied().chain(keys.iter().map(AsRef::as_ref)).collect();
        let reply = self.ask(&words)?;
        // Commands of ours put their answers beside the position.
        let answers = reply.field("answers").unwrap_or(&reply).list();
        let numbers: Option<Vec<i64>> = answers.iter().map(Value::number).collect();
        match numbers {
            Some(numbers) if numbers.len() == keys.len() => Ok(numbers),
            _ => Err(Trouble::Refused(format!("{} answers for {} keys", answers.len(), keys.len()))),
        }
    }

    /// How many of these keys are certainly not in a filter.
    pub(super) fn missing<K: AsRef<str>>(&mut self, filter: &str, keys: &[K]) -> Result<u64, Trouble> {
        let answers = self.each(&["BF.MEXISTS", filter], keys)?;
        Ok(answers.iter().filter(|answer| **answer == 0).count() as u64)
    }

    fn read(&mut self, depth: usize) -> Result<Value, Trouble> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(Trouble::Away(io::ErrorKind::UnexpectedEof.into()));
        }
        let line = line.trim_end();
        let strange = || Trouble::Refused(format!("something that is no reply: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(strange)?;
        let length = |most: usize| rest.parse().ok().filter(|length| *length <= most).ok_or_else(strange);
        match kind {
            "+" => Ok(Value::Text(rest.to_owned())),
            ":" => rest.parse().map(Value::Number).map_err(|_| strange()),
            "$" => {
                let mut text = vec![0; length(TEXT_BYTES_MAX)? + 2];
                self.stream.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                String::from_utf8(text).map(Value::Text).map_err(|_| strange())
            }
            "*" if depth > 0 => {
                let elements = (0..length(ELEMENTS_MAX)?).map(|_| self.read(depth - 1));
                Ok(Value::List(elements.collect::<Result<_, _>>()?))
            }
            "-" => Err(Trouble::Refused(rest.to_owned())),
            _ => Err(strange()),
        }
    }
}
