//! Which commands are sent to both servers, when two replies say the same, and what came of all of them.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value as Json, json};

use super::chance::Chance;
use crate::resp::{Value, shown};

/// Differences that are remembered, to be shown.
const DIFFERENCES_MAX: usize = 100;
/// Names of commands that are counted by themselves.
const COMMANDS_MAX: usize = 64;
/// Letters of a command, or of a reply, that are shown.
const SHOWN_MAX: usize = 200;

/// Which commands are sent to both.
#[derive(Clone, Debug)]
pub(crate) struct Wanted(Vec<String>);

impl Wanted {
    /// Commands that begin with these letters, in upper case.
    pub(crate) fn new(beginnings: &[String]) -> Self {
        Self(beginnings.iter().map(|text| text.to_ascii_uppercase()).collect())
    }

    /// Whether a command is sent to both. What describes a filter differs from server to server, and what copies one is too large.
    pub(crate) fn has(&self, command: &str) -> bool {
        let apart = ["INFO", "SCANDUMP", "LOADCHUNK", "DEBUG"];
        let what = command.rsplit('.').next().unwrap_or(command);
        self.0.iter().any(|beginning| command.starts_with(beginning)) && !apart.contains(&what)
    }
}

/// The name of a command, as it is counted.
pub(crate) fn name(words: &[Vec<u8>]) -> String {
    words.first().map_or_else(String::new, |word| shown(word).to_ascii_uppercase())
}

/// Whether a command changes nothing, so that it may be asked again.
pub(crate) fn is_lookup(command: &str) -> bool {
    let what = command.rsplit('.').next().unwrap_or(command);
    ["EXISTS", "MEXISTS", "COUNT", "CARD"].contains(&what)
}

/// What both servers are asked to find out whether a command left them alike; nothing if that cannot be asked.
pub(crate) fn check(words: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let command = name(words);
    if is_lookup(&command) {
        return Some(words.to_vec());
    }
    let (family, what) = command.split_once('.')?;
    let items = match what {
        "ADD" | "ADDNX" | "MADD" | "DEL" => words.get(2..)?,
        "INSERT" | "INSERTNX" => {
            let items = words.iter().position(|word| word.eq_ignore_ascii_case(b"ITEMS"))?;
            words.get(items + 1..)?
        }
        _ => return None,
    };
    let asked = [format!("{family}.MEXISTS").into_bytes(), words.get(1)?.clone()];
    (!items.is_empty()).then(|| asked.into_iter().chain(items.iter().cloned()).collect())
}

/// Whether two replies say the same. Errors do if their first words do: what they say to people is up to each server.
pub(crate) fn agree(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Error(old), Value::Error(new)) => old.split(' ').next() == new.split(' ').next(),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| agree(old, new))
        }
        (old, new) => old == new,
    }
}

/// What came of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) same: u64,
    /// Differences that filters make by chance, and not more of them than their error rates say.
    pub(crate) chance: u64,
    pub(crate) different: u64,
}

impl Count {
    pub(crate) fn compared(&self) -> u64 {
        self.same + self.chance + self.different
    }

    pub(crate) fn json(&self) -> Json {
        json!({ "compared": self.compared(), "same": self.same, "chance": self.chance, "different": self.different })
    }
}

/// Replies that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) command: String,
    pub(crate) old: String,
    pub(crate) new: String,
    /// Whether it may be chance, as far as is known by now.
    pub(crate) is_chance: bool,
}

impl Difference {
    pub(crate) fn of(words: &[Vec<u8>], old: &Value, new: &Value) -> Self {
        let words: Vec<String> = words.iter().map(|word| shown(word)).collect();
        let (command, old, new) = (cut(&words.join(" ")), cut(&text(old)), cut(&text(new)));
        Self { command, old, new, is_chance: false }
    }

    pub(crate) fn json(&self) -> Json {
        let event = if self.is_chance { "chance" } else { "different" };
        json!({ "event": event, "command": self.command, "old": self.old, "new": self.new })
    }
}

fn cut(text: &str) -> String {
    let mut letters = text.chars();
    let mut cut: String = letters.by_ref().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if letters.next().is_some() {
        cut.push('…');
    }
    cut
}

/// A reply as people read it.
fn text(value: &Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => shown(text),
        Value::Error(error) => format!("({error})"),
        Value::Null => "nothing".to_owned(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().take(SHOWN_MAX).map(text).collect();
            format!("[{}]", values.join(" "))
        }
    }
}

/// What came of all commands.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    by_command: BTreeMap<String, Count>,
    /// What may be chance.
    pub(crate) chance: Chance,
    /// The newest differences.
    pub(crate) differences: VecDeque<Difference>,
    /// Lookups that differed at first and not when both were asked again: something was under way.
    pub(crate) raced: u64,
    /// Commands that the new server was not sent, or has not answered: it was slow or away.
    pub(crate) missed: u64,
    /// Commands that it was sent without a comparison: there is nothing that both could be asked.
    pub(crate) unchecked: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, command: &str, is_same: bool) {
        let is_known = self.by_command.len() < COMMANDS_MAX || self.by_command.contains_key(command);
        let count = self.by_command.entry(if is_known { command } else { "others" }.to_owned()).or_default();
        *(if is_same { &mut count.same } else { &mut count.different }) += 1;
    }

    pub(crate) fn differs(&mut self, command: &str, difference: Difference) {
        self.count(command, false);
        if self.differences.len() == DIFFERENCES_MAX {
            self.differences.pop_front();
        }
        self.differences.push_back(difference);
    }

    /// What came of all commands, by name. What was taken for chance until too much of it came is different.
    pub(crate) fn by_command(&self) -> BTreeMap<String, Count> {
        let mut counts = self.by_command.clone();
        for (command, count, is_chance) in self.chance.commands() {
            let counted = counts.entry(command.to_owned()).or_default();
            *(if is_chance { &mut counted.chance } else { &mut counted.different }) += count;
        }
        counts
    }

    pub(crate) fn all(&self) -> Count {
        self.by_command().values().fold(Count::default(), |sum, count| Count {
            same: sum.same + count.same,
            chance: sum.chance + count.chance,
            different: sum.different + count.different,
        })
    }

    /// For machines.
    pub(crate) fn json(&self) -> Json {
        let mut told = self.all().json();
        told["raced"] = self.raced.into();
        told["missed"] = self.missed.into();
        told["unchecked"] = self.unchecked.into();
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn filters_commands_are_wanted_and_others_are_not() {
        let wanted = Wanted::new(&["bf.".to_owned(), "CF.".to_owned()]);
        for (command, is_wanted) in
            [("BF.ADD", true), ("CF.DEL", true), ("BF.INFO", false), ("BF.LOADCHUNK", false), ("GET", false)]
        {
            assert_eq!(wanted.has(command), is_wanted, "{command}");
        }
    }

    #[test]
    fn replies_that_mean_the_same_agree() {
        let error = |text: &str| Value::Error(text.to_owned());
        assert!(agree(&error("ERR not found"), &error("ERR no such filter")));
        assert!(!agree(&error("ERR not found"), &error("TRYAGAIN later")));
        assert!(!agree(&error("ERR not found"), &Value::Integer(0)));
        let array = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Integer).collect());
        assert!(agree(&array(&[1, 0]), &array(&[1, 0])));
        assert!(!agree(&array(&[1, 0]), &array(&[1])) && !agree(&array(&[1, 0]), &array(&[1, 1])));
    }

    #[test]
    fn what_a_command_left_is_asked_for() {
        for (line, asked) in [
            ("bf.add f a", Some("BF.MEXISTS f a")),
            ("BF.MADD f a b", Some("BF.MEXISTS f a b")),
            ("CF.INSERT f CAPACITY 10 ITEMS a b", Some("CF.MEXISTS f a b")),
            ("CF.DEL f a", Some("CF.MEXISTS f a")),
            ("BF.EXISTS f a", Some("BF.EXISTS f a")),
            ("BF.CARD f", Some("BF.CARD f")),
            ("BF.RESERVE f 0.01 100", None),
            ("BF.INSERT f", None),
            ("BF.ADD", None),
            ("DEL f", None),
        ] {
            assert_eq!(check(&words(line)), asked.map(words), "{line}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut tally = Tally::default();
        for number in 0..1000 {
            let words = words(&format!("BF.{number} {}", "x".repeat(10_000)));
            let difference = Difference::of(&words, &Value::Null, &Value::Integer(number));
            assert!(difference.command.chars().count() <= SHOWN_MAX + 1);
            tally.differs(&name(&words), difference);
        }
        assert_eq!((tally.differences.len(), tally.by_command.len()), (DIFFERENCES_MAX, COMMANDS_MAX + 1));
        assert_eq!(tally.all(), Count { same: 0, chance: 0, different: 1000 });
        assert_eq!(tally.differences.back().unwrap().new, "999");
    }
}
