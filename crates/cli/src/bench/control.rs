//! A connection for questions: who the server is, and filters made ready and taken away.

use clap::ValueEnum;

use super::cpu::Process;
use super::request::{Dialect, Target};
use crate::resp::{Address, Connection, SILENCE_MAX, Value};

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

pub(crate) struct Control {
    connection: Connection,
}

impl Control {
    pub(crate) fn connect(address: &Address) -> Result<Self, String> {
        Ok(Self { connection: Connection::open(address, SILENCE_MAX)? })
    }

    /// Asks for what has to be granted.
    pub(crate) fn demand(&mut self, words: &[&str]) -> Result<(), String> {
        self.connection.demand(words).map(drop)
    }

    /// The commands that are to be used: found out, unless they are prescribed.
    pub(crate) fn dialect(&mut self, commands: Commands) -> Result<Dialect, String> {
        if commands == Commands::Bits {
            return Ok(Dialect::Bits);
        }
        // A server that has the command may still complain that it knows no such filter.
        let answer = self.connection.ask(&["BF.EXISTS", "umbel-bench:probe", "key"])?;
        let Value::Error(error) = answer else { return Ok(Dialect::Bloom) };
        match error.to_lowercase() {
            text if text.starts_with("noauth") || text.starts_with("noperm") => {
                Err(format!("{}: {error}", self.connection.address))
            }
            text if !text.contains("unknown command") => Ok(Dialect::Bloom),
            _ if commands == Commands::Auto => Ok(Dialect::Bits),
            _ => Err(format!("{}: no BF commands ({error}); take --commands bits", self.connection.address)),
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
        self.connection.ask(&["DEL", &target.name]).map(drop)
    }

    pub(crate) fn info(&mut self) -> Result<Info, String> {
        let text = self.connection.ask(&["INFO", "server"])?.text().unwrap_or_default();
        Ok(Info::parse(&String::from_utf8_lossy(&text), self.connection.peer_is_here()))
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
