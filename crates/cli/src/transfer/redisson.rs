//! Redisson's `RBloomFilter` in Redis: a bitmap, and a hash of settings beside it.

use std::io::{self, Read};

use umbel_filter::format::redisson::Config;

use super::{Show, beside};
use crate::resp::{Connection, Value, shown};

/// Bytes that Redis is asked for, or told, at once.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// The key of a filter's settings.
pub(crate) fn config_key(name: &str) -> String {
    beside(name, "config")
}

/// The settings of a filter.
pub(crate) fn config(connection: &mut Connection, name: &str) -> Result<Config, String> {
    let key = config_key(name);
    let fields = connection.demand(&["HGETALL", &key])?.array().unwrap_or_default();
    if fields.is_empty() {
        return Err(format!("{}: there is no {key}: is {name} an RBloomFilter?", connection.address));
    }
    parse(fields).map_err(|field| format!("{}: {key} has no {field} that is known here", connection.address))
}

/// The settings, or the name of the one that is missing.
fn parse(fields: Vec<Value>) -> Result<Config, &'static str> {
    let words: Vec<String> =
        fields.into_iter().map(|field| shown(&field.text().unwrap_or_default())).collect();
    fn field<T: std::str::FromStr>(words: &[String], name: &'static str) -> Result<T, &'static str> {
        let (pairs, _) = words.as_chunks();
        let value = pairs.iter().find_map(|[field, value]| (field == name).then_some(value));
        value.and_then(|value| value.parse().ok()).ok_or(name)
    }
    Ok(Config {
        size: field(&words, "size")?,
        hash_iterations: field(&words, "hashIterations")?,
        expected_insertions: field(&words, "expectedInsertions")?,
        false_probability: field(&words, "falseProbability")?,
    })
}

/// A bitmap that is read piece by piece.
pub(crate) struct Bitmap<'a> {
    connection: &'a mut Connection,
    name: &'a str,
    show: &'a Show,
    length: u64,
    at: u64,
    piece: io::Cursor<Vec<u8>>,
    /// Bits that were set in what was read.
    ones: u64,
}

impl<'a> Bitmap<'a> {
    pub(crate) fn open(
        connection: &'a mut Connection,
        name: &'a str,
        show: &'a Show,
    ) -> Result<Self, String> {
        let length = connection.demand(&["STRLEN", name])?.integer();
        let length = length.and_then(|length| u64::try_from(length).ok());
        let length = length.ok_or_else(|| format!("{}: STRLEN gives no length", connection.address))?;
        show.whole(length);
        Ok(Self { connection, name, show, length, at: 0, piece: io::Cursor::default(), ones: 0 })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether bits were set since it was read. None is ever taken back.
    pub(crate) fn has_changed(&mut self) -> Result<bool, String> {
        let now = self.connection.demand(&["BITCOUNT", self.name])?.integer();
        Ok(now.and_then(|now| u64::try_from(now).ok()) != Some(self.ones))
    }

    fn next(&mut self) -> Result<Vec<u8>, String> {
        let last = (self.at + PIECE_BYTES).min(self.length) - 1;
        let words = ["GETRANGE", self.name, &self.at.to_string(), &last.to_string()];
        let piece = self.connection.demand(&words)?.text().unwrap_or_default();
        if piece.len() as u64 != last + 1 - self.at {
            return Err(format!(
                "{}: {} became shorter while it was read",
                self.connection.address, self.name
            ));
        }
        Ok(piece)
    }
}

impl Read for Bitmap<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.piece.get_ref().len() as u64 - self.piece.position();
        if left == 0 && self.at < self.length {
            let piece = self.next().map_err(io::Error::other)?;
            self.at += piece.len() as u64;
            self.ones += piece.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            self.show.moved(piece.len() as u64);
            self.piece = io::Cursor::new(piece);
        }
        self.piece.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_wherever_they_stand() {
        assert_eq!((config_key("urls"), config_key("a{b}")), ("{urls}:config".into(), "a{b}:config".into()));
        let text = |text: &str| Value::Text(text.into());
        let fields =
            ["falseProbability", "0.01", "size", "9585", "hashIterations", "7", "expectedInsertions", "1000"];
        let config =
            Config { size: 9585, hash_iterations: 7, expected_insertions: 1000, false_probability: 0.01 };
        assert_eq!(parse(fields.map(text).to_vec()), Ok(config));
        assert_eq!(parse(fields[..6].iter().map(|word| text(word)).collect()), Err("expectedInsertions"));
        assert_eq!(parse(vec![text("size"), text("-1")]), Err("size"));
    }
}
