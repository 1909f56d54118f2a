//! Words of a command as numbers and options.

use crate::resp::Command;

/// Words of a command, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    command: Command<'a>,
    at: usize,
}

impl<'a> Words<'a> {
    /// The words from one on.
    pub fn from(command: Command<'a>, at: usize) -> Self {
        Self { command, at }
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.command.len().saturating_sub(self.at)
    }

    /// Where the next word is.
    pub fn at(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left() == 0 {
            return None;
        }
        self.at += 1;
        Some(self.command.get(self.at - 1))
    }
}

/// A word as text.
pub fn text(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

/// A word as a whole number.
pub fn integer(word: &[u8]) -> Option<i64> {
    // Redis takes no sign of plus.
    text(word).filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// A word as a number that is not negative.
pub fn unsigned(word: &[u8]) -> Option<u64> {
    text(word).filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// A word as a number with a fraction.
pub fn float(word: &[u8]) -> Option<f64> {
    text(word)?.parse().ok().filter(|number: &f64| !number.is_nan())
}

/// Whether a word is this one, in any case.
pub fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}
