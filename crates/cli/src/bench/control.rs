//! A connection for questions: who the server is, and filters made ready and taken away.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use clap::ValueEnum;

use super::address::Address;
use super::cpu::Process;
use super::load::SILENCE_MAX;
use super::reply::{Reader, Value, shown};
use super::request::{Dialect, Target};

/// Which commands a server is asked with.
#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
pub(crate) enum Commands {
    /// BF.ADD and its kin if the server has them, bits if not
    Auto,
    /// BF.ADD, BF.EXISTS, BF.MADD, BF.MEXISTS
    Bf,
    /// SETBIT, GETBIT and BITFIELD: one bit a key
    Bits,
}

/// What a question was answered with.
#[derive(PartialEq, Debug)]
pub(crate) enum Answer {
    Text(String),
    Error(String),
    /// A number, an array or nothing: never looked at here.
    Other,
}

pub(crate) struct Control {
    address: Address,
    stream: TcpStream,
}

/// A connection that has introduced itself.
pub(crate) fn connect(address: &Address) -> Result<Control, String> {
    let told = |error| format!("{address}: {error}");
    let stream = TcpStream::connect_timeout(&address.resolve()?, Duration::from_secs(5)).map_err(told)?;
    stream.set_nodelay(true).map_err(told)?;
    stream.set_read_timeout(Some(SILENCE_MAX)).map_err(told)?;
    let mut control = Control { address: address.clone(), stream };
    match (&address.user, &address.password) {
        (Some(user), Some(password)) => control.demand(&["AUTH", user, password])?,
        (None, Some(password)) => control.demand(&["AUTH", password])?,
        (Some(_), None) => return Err(format!("{address}: a user without a password")),
        (None, None) => {}
    }
    if address.database != 0 {
        control.demand(&["SELECT", &address.database.to_string()])?;
    }
    Ok(control)
}

impl Control {
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Answer, String> {
        let address = self.address.clone();
        self.exchange(words).map_err(|error| format!("{address}: {}: {error}", words[0]))
    }

    /// Asks for what has to be granted.
    pub(crate) fn demand(&mut self, words: &[&str]) -> Result<(), String> {
        match self.ask(words)? {
            Answer::Error(error) => Err(format!("{}: {}: {error}", self.address, words[0])),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, words: &[&str]) -> Result<Answer, String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let (mut reader, mut buffer, mut answer) = (Reader::default(), Vec::new(), None);
        loop {
            let mut piece = [0; 4096];
            let bytes = match self.stream.read(&mut piece) {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(bytes) => bytes,
                Err(error) => return Err(format!("no reply: {error}")),
            };
            buffer.extend_from_slice(&piece[..bytes]);
            let mut at = 0;
            while let Some(step) = reader.next(&buffer[at..])? {
                at += step.bytes;
                let given = match step.value {
                    Value::Error(text) => Answer::Error(shown(text)),
                    Value::Text(text) => Answer::Text(String::from_utf8_lossy(text).into_owned()),
                    Value::Integer(_) | Value::Null | Value::Array => Answer::Other,
                };
                // Of an array, that it is one is enough.
                let answer = answer.get_or_insert(given);
                if step.ends {
                    return Ok(std::mem::replace(answer, Answer::Other));
                }
            }
            buffer.drain(..at);
        }
    }

    /// The commands that are to be used: found out, unless they are prescribed.
    pub(crate) fn dialect(&mut self, commands: Commands) -> Result<Dialect, String> {
        if commands == Commands::Bits {
            return Ok(Dialect::Bits);
        }
        // A server that has the command may still complain that it knows no such filter.
        let answer = self.ask(&["BF.EXISTS", "umbel-bench:probe", "key"])?;
        let Answer::Error(error) = answer else { return Ok(Dialect::Bloom) };
        match error.to_lowercase() {
            text if text.starts_with("noauth") || text.starts_with("noperm") => {
                Err(format!("{}: {error}", self.address))
            }
            text if !text.contains("unknown command") => Ok(Dialect::Bloom),
            _ if commands == Commands::Auto => Ok(Dialect::Bits),
            _ => Err(format!("{}: no BF commands ({error}); take --commands bits", self.address)),
        }
    }

    /// Makes an empty filter, in the place of what an earlier run may have left.
    pub(crate) fn reserve(&mut self, dialect: Dialect, target: &Target) -> Result<(), String> {
        self.remove(target)?;
        match dialect {
            Dialect::Bloom => {
                let (error, capacity) = (target.error.to_string(), target.capacity.to_string());
                self.demand(&["BF.RESERVE", &target.name, &error, &capacity])
            }
            Dialect::Bits => {
                let bits = target.bits();
                if bits > 1 << 32 {
                    let capacity = target.capacity;
                    return Err(format!(
                        "a capacity of {capacity} takes {bits} bits, and a string has 2^32 at most"
                    ));
                }
                // The last bit first: otherwise the string would grow, and move, while it is measured.
                let last = (bits - 1).to_string();
                self.demand(&["SETBIT", &target.name, &last, "0"])
            }
        }
    }

    /// Some servers refuse to remove what is not there.
    pub(crate) fn remove(&mut self, target: &Target) -> Result<(), String> {
        self.ask(&["DEL", &target.name]).map(drop)
    }

    pub(crate) fn info(&mut self) -> Result<Info, String> {
        let text = match self.ask(&["INFO", "server"])? {
            Answer::Text(text) => text,
            Answer::Error(_) | Answer::Other => String::new(),
        };
        let is_here = self.stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        Ok(Info::parse(&text, is_here))
    }
}

/// Who a server says it is.
#[derive(PartialEq, Debug)]
pub(crate) struct Info {
    pub(crate) product: Option<String>,
    pub(crate) process: Option<Process>,
}

impl Info {
    /// A process number means something on the server's own machine only. In a container a server is number 1, which is
    /// another process outside.
    fn parse(text: &str, is_here: bool) -> Self {
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
            fields.find_map(|(field, value)| (field == name).then_some(value))
        };
        // Others give Redis's version besides their own, for clients that look at it.
        let product = ["umbel", "valkey", "redis"].into_iter().find_map(|product| {
            field(&format!("{product}_version")).map(|version| format!("{product} {version}"))
        });
        let process = field("process_id").and_then(|number| number.parse().ok()).map(Process);
        Self { product, process: process.filter(|process| is_here && process.0 > 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_introduce_themselves() {
        let text = "# Server\r\nredis_version:7.0.15\r\nos:Linux 6 x86_64\r\nprocess_id:4711\r\n";
        let redis = Info { product: Some("redis 7.0.15".to_owned()), process: Some(Process(4711)) };
        assert_eq!(Info::parse(text, true), redis);
        assert_eq!(Info::parse(text, false).process, None);
        let text = "redis_version:7.2.4\nvalkey_version:8.1.0\nprocess_id:1\n";
        assert_eq!(Info::parse(text, true), Info { product: Some("valkey 8.1.0".to_owned()), process: None });
        assert_eq!(Info::parse("", true), Info { product: None, process: None });
    }
}
