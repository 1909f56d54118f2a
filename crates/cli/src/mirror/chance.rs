//! Differences that need not mean anything: a filter takes some keys for its own that nobody added, and two filters of different sizes, or that
//! grew at other moments, mistake different ones. Whether so many are to be expected is asked of the filters' own error rates.

use std::collections::{BTreeMap, HashSet};

use umbel_filter::{Family, Hasher};
use umbel_load::Distinct;

use super::compare::{is_lookup, name};
use crate::resp::{Value, shown};

/// Filters that are looked at in this way.
const FILTERS_MAX: usize = 1024;
/// Keys of a filter that only one server has; beyond these, nobody believes in chance.
const KEYS_MAX: usize = 1 << 20;
/// How improbable a number of differences may be and still be taken for chance.
const PROBABLE: f64 = 0.001;

/// Who alone takes a key for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Old,
    New,
}

/// The filter and the items of a command whose replies say of each whether it was there; none of other commands.
pub(crate) fn asked(words: &[Vec<u8>]) -> Option<(&[u8], &[Vec<u8>])> {
    let command = name(words);
    let items = match command.strip_prefix("BF.")? {
        "EXISTS" | "MEXISTS" | "ADD" | "MADD" => words.get(2..)?,
        "INSERT" => {
            let items = words.iter().position(|word| word.eq_ignore_ascii_case(b"ITEMS"))?;
            words.get(items + 1..)?
        }
        _ => return None,
    };
    Some((words.get(1)?, items))
}

/// Whether each item was there before, as a reply says it: lookups say so, and adds that the item is new.
fn was_there(words: &[Vec<u8>], reply: &Value, items: usize) -> Option<Vec<bool>> {
    let is_lookup = is_lookup(&name(words));
    let one = |value: &Value| match value {
        Value::Integer(number @ 0..=1) => Some((*number == 1) == is_lookup),
        _ => None,
    };
    let all: Vec<bool> = match reply {
        Value::Array(values) => values.iter().map(one).collect::<Option<_>>()?,
        value => vec![one(value)?],
    };
    (all.len() == items).then_some(all)
}

/// What is known of one filter.
struct Account {
    hasher: Hasher,
    /// Keys of which one of both said that they were not there: only these can be mistaken.
    absent: Distinct,
    /// Keys that one of both alone takes for its own.
    only: BTreeMap<Side, HashSet<u64>>,
    /// Commands with such keys, by name.
    commands: BTreeMap<String, u64>,
    /// The error rates of the old filter and of the new one, as far as they say.
    rates: [Option<f64>; 2],
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("commands", &self.commands)
            .field("rates", &self.rates)
            .finish_non_exhaustive()
    }
}

impl Account {
    fn new() -> Option<Self> {
        let hasher = Hasher::new(Family::Xxh3, None).ok()?;
        let (absent, rates) = (Distinct::new().ok()?, [None, None]);
        Some(Self { hasher, absent, only: BTreeMap::new(), commands: BTreeMap::new(), rates })
    }

    fn is_chance(&self) -> bool {
        if self.only.is_empty() {
            return true;
        }
        let keys = self.absent.estimate() as f64;
        self.only.iter().all(|(side, only)| {
            let rate = self.rates[*side as usize];
            rate.is_some_and(|rate| only.len() < KEYS_MAX && at_least(only.len(), keys * rate) >= PROBABLE)
        })
    }
}

/// The probability of so many events, or more, where there are this many on average (Poisson's).
fn at_least(count: usize, mean: f64) -> f64 {
    if count as f64 <= mean {
        return 1.0;
    }
    if mean <= 0.0 {
        return 0.0;
    }
    // The sum from `count` on; each term is smaller than the one before it, because `count` is beyond the mean.
    let first = (1..=count).fold(-mean, |sum, number| sum + mean.ln() - (number as f64).ln()).exp();
    let terms = std::iter::successors(Some((first, count)), |(term, number)| {
        let next = term * mean / (*number as f64 + 1.0);
        (next > first * 1e-9).then_some((next, number + 1))
    });
    terms.map(|(term, _)| term).sum()
}

/// What may be chance, of all filters.
#[derive(Debug, Default)]
pub(crate) struct Chance {
    accounts: BTreeMap<Vec<u8>, Account>,
}

impl Chance {
    /// Takes both replies to a command. Whether what differs in them may be chance; none if nothing is known of such commands.
    pub(crate) fn take(&mut self, words: &[Vec<u8>], old: &Value, new: &Value) -> bool {
        let Some((filter, items)) = asked(words) else { return false };
        let both = was_there(words, old, items.len()).zip(was_there(words, new, items.len()));
        let Some((old, new)) = both else { return false };
        if !self.accounts.contains_key(filter) {
            if self.accounts.len() == FILTERS_MAX {
                return false;
            }
            let Some(account) = Account::new() else { return false };
            self.accounts.insert(filter.to_vec(), account);
        }
        let Some(account) = self.accounts.get_mut(filter) else { return false };
        for (item, (old, new)) in items.iter().zip(old.iter().zip(&new)) {
            if !(*old && *new) {
                account.absent.add(item);
            }
        }
        true
    }

    /// A command whose replies differ, of which [`Chance::take`] said that it may be chance, and whose items are there by now if they should
    /// be. Whether it still is one, with these error rates.
    pub(crate) fn differs(
        &mut self,
        words: &[Vec<u8>],
        old: &Value,
        new: &Value,
        rates: [Option<f64>; 2],
    ) -> bool {
        let Some((filter, items)) = asked(words) else { return false };
        let both = was_there(words, old, items.len()).zip(was_there(words, new, items.len()));
        let (Some((old, new)), Some(account)) = (both, self.accounts.get_mut(filter)) else { return false };
        for (item, (old, new)) in items.iter().zip(old.into_iter().zip(new)) {
            let side = match (old, new) {
                (true, false) => Side::Old,
                (false, true) => Side::New,
                _ => continue,
            };
            let only = account.only.entry(side).or_default();
            if only.len() < KEYS_MAX {
                only.insert(account.hasher.fingerprint(item).first);
            }
        }
        // Layers that a filter got since then are what its later answers come from.
        account.rates = [0, 1].map(|side| rates[side].or(account.rates[side]));
        *account.commands.entry(name(words)).or_default() += 1;
        account.is_chance()
    }

    /// Commands whose differences are as many as chance makes, by name, and those that are too many for it.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (&str, u64, bool)> {
        self.accounts.values().flat_map(|account| {
            let is_chance = account.is_chance();
            account.commands.iter().map(move |(command, count)| (&**command, *count, is_chance))
        })
    }

    /// Filters that have too many differences for chance, and how many keys they are.
    pub(crate) fn improbable(&self) -> impl Iterator<Item = (String, usize)> {
        let are_too_many = self.accounts.iter().filter(|(_, account)| !account.is_chance());
        are_too_many.map(|(filter, account)| (shown(filter), account.only.values().map(HashSet::len).sum()))
    }
}

/// The error rate of a filter from what `BF.DEBUG` says: layers of one part add up, and a key is in one part.
pub(crate) fn rate(told: Value) -> Option<f64> {
    let mut parts: BTreeMap<String, f64> = BTreeMap::new();
    for line in told.array()? {
        let line = String::from_utf8(line.text()?).ok()?;
        let word = |start: &str| line.split(' ').find_map(|word| word.strip_prefix(start));
        if let Some(ratio) = word("ratio:") {
            *parts.entry(word("slot:").unwrap_or_default().to_owned()).or_default() +=
                ratio.parse::<f64>().ok()?;
        }
    }
    parts.into_values().reduce(f64::max).filter(|rate| (0.0..1.0).contains(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn lines(lines: &[&str]) -> Value {
        Value::Array(lines.iter().map(|line| Value::Text(line.as_bytes().to_vec())).collect())
    }

    #[test]
    fn rates_are_read_from_either_kind_of_server() {
        let bloom = [
            "size:7",
            "bytes:10 hashes:5 capacity:100 size:7 ratio:0.005",
            "bytes:20 hashes:6 capacity:200 size:0 ratio:0.0025",
        ];
        assert_eq!(rate(lines(&bloom)), Some(0.0075));
        let ours = ["size:7", "slot:1 capacity:10 ratio:0.01", "slot:2 capacity:10 ratio:0.001"];
        assert_eq!(rate(lines(&ours)), Some(0.01));
        assert_eq!(rate(lines(&["size:7"])), None);
        assert_eq!(rate(Value::Error("ERR unknown command".into())), None);
    }

    #[test]
    fn probabilities_are_poissons() {
        assert!((at_least(1, 0.0003) - 0.0003).abs() < 1e-7);
        assert!((at_least(3, 1.0) - 0.0803).abs() < 1e-4);
        assert!(at_least(15, 30.0) == 1.0 && at_least(1, 0.0) == 0.0);
        assert!(at_least(400, 300.0) < 1e-7 && at_least(310, 300.0) > 0.2);
    }

    #[test]
    fn as_many_as_the_rate_says_are_chance_and_more_are_not() {
        let (mut chance, zero, one) = (Chance::default(), Value::Integer(0), Value::Integer(1));
        for number in 0..10_000 {
            assert!(chance.take(&words(&format!("BF.ADD f {number}")), &one, &one));
        }
        let rates = [Some(0.001), Some(0.01)];
        // An add that says 0: the key was there, or taken for one that was.
        let mut lost = |from: u32, count: u32| {
            (from..from + count)
                .map(|number| words(&format!("BF.ADD f {number}")))
                .map(|words| chance.take(&words, &zero, &one) && chance.differs(&words, &zero, &one, rates))
                .last()
        };
        assert_eq!(lost(20_000, 12), Some(true));
        // The same keys again are no more of them.
        assert_eq!((0..100).filter_map(|_| lost(20_000, 12)).filter(|is_chance| !is_chance).count(), 0);
        assert_eq!(lost(30_000, 40), Some(false));
        assert!(chance.commands().all(|(command, _, is_chance)| command == "BF.ADD" && !is_chance));
        assert_eq!(chance.improbable().collect::<Vec<_>>(), [("f".to_owned(), 52)]);
    }

    #[test]
    fn other_replies_are_no_chance() {
        let mut chance = Chance::default();
        for (line, old, new) in [
            ("CF.ADD f a", Value::Integer(0), Value::Integer(1)),
            ("BF.CARD f", Value::Integer(0), Value::Integer(1)),
            ("BF.ADD f a", Value::Error("ERR".into()), Value::Integer(1)),
            (
                "BF.MADD f a b",
                Value::Array(vec![Value::Integer(1)]),
                Value::Array(vec![Value::Integer(0); 2]),
            ),
            ("BF.ADD f a", Value::Integer(7), Value::Integer(1)),
        ] {
            assert!(!chance.take(&words(line), &old, &new), "{line}");
        }
    }
}
