//! A client that makes, renames and drops filters, each request at any node, and asks the nodes for what it was told. One client has its
//! names to itself and waits for each reply, so it knows what every answer has to be.

use std::collections::BTreeMap;

use crate::Chance;
use crate::history::History;
use crate::nodes::{Value, call, words};

const NAMES: usize = 4;

pub(crate) struct Names<'a> {
    addresses: &'a [String],
    history: &'a History,
    prefix: String,
    /// The names that it uses. One whose state is not known is never used again.
    names: [u64; NAMES],
    next: u64,
    /// The filters that are there, and how many keys each has: `key:0` and so on.
    filters: BTreeMap<u64, u64>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(addresses: &'a [String], history: &'a History, prefix: String) -> Self {
        let names = std::array::from_fn(|number| number as u64);
        Self { addresses, history, prefix, names, next: NAMES as u64, filters: BTreeMap::new() }
    }

    fn name(&self, number: u64) -> String {
        format!("{}:{number}", self.prefix)
    }

    /// Asks any node; none if the answer leaves open what happened.
    fn ask(&self, chance: &mut Chance, line: &str) -> Option<Result<Value, String>> {
        let address = &self.addresses[chance.below(self.addresses.len() as u64) as usize];
        match call(address, &words(line)) {
            Err(error) if !error.starts_with("-ERR") => {
                self.history.refused();
                None
            }
            answer => Some(answer),
        }
    }

    fn abandon(&mut self, number: u64) {
        self.filters.remove(&number);
        if let Some(name) = self.names.iter_mut().find(|name| **name == number) {
            *name = self.next;
            self.next += 1;
        }
    }

    /// Does one thing, and checks the answer.
    pub(crate) fn step(&mut self, chance: &mut Chance) {
        let number = self.names[chance.below(NAMES as u64) as usize];
        let (name, keys) = (self.name(number), self.filters.get(&number).copied());
        match chance.below(8) {
            0 | 1 => match self.ask(chance, &format!("BF.RESERVE {name} 0.000001 1000")) {
                None => self.abandon(number),
                Some(Ok(_)) => {
                    assert_eq!(keys, None, "{name} was made, and it was there");
                    self.filters.insert(number, 0);
                }
                Some(Err(why)) => {
                    assert!(keys.is_some() && why.contains("item exists"), "{name} was not made: {why}");
                }
            },
            2 => match self.ask(chance, &format!("DEL {name}")) {
                None => self.abandon(number),
                Some(answer) => {
                    assert_eq!(answer, Ok(Value::Number(i64::from(keys.is_some()))), "DEL {name}");
                    self.filters.remove(&number);
                }
            },
            3 => self.rename(chance, number),
            4 | 5 => {
                let Some(keys) = keys else { return self.look(chance, number) };
                match self.ask(chance, &format!("BF.ADD {name} key:{keys}")) {
                    None => self.abandon(number),
                    Some(answer) => {
                        assert!(matches!(answer, Ok(Value::Number(_))), "{name}, of {keys} keys: {answer:?}");
                        self.filters.insert(number, keys + 1);
                    }
                }
            }
            _ => self.look(chance, number),
        }
    }

    fn rename(&mut self, chance: &mut Chance, number: u64) {
        let other = self.names[chance.below(NAMES as u64) as usize];
        if other == number {
            return;
        }
        let (from, to) = (self.name(number), self.name(other));
        match self.ask(chance, &format!("RENAME {from} {to}")) {
            None => {
                self.abandon(number);
                self.abandon(other);
            }
            Some(Ok(_)) => {
                let keys = self.filters.remove(&number);
                let keys = keys.unwrap_or_else(|| panic!("{from} got the name {to}, and it was not there"));
                self.filters.insert(other, keys);
            }
            Some(Err(why)) => {
                let is_there = self.filters.contains_key(&number);
                assert!(!is_there && why.contains("no such key"), "{from} did not get the name {to}: {why}");
            }
        }
    }

    fn look(&self, chance: &mut Chance, number: u64) {
        let name = self.name(number);
        let expected = |is_there: bool| Ok(Value::Number(i64::from(is_there)));
        let keys = self.filters.get(&number).copied();
        if let Some(answer) = self.ask(chance, &format!("EXISTS {name}")) {
            assert_eq!(answer, expected(keys.is_some()), "EXISTS {name}, of {keys:?} keys");
        }
        let (key, is_there) = match keys {
            Some(keys @ 1..) => (chance.below(keys), true),
            _ => (0, false),
        };
        if let Some(answer) = self.ask(chance, &format!("BF.EXISTS {name} key:{key}")) {
            assert_eq!(answer, expected(is_there), "BF.EXISTS {name} key:{key}, of {keys:?} keys");
        }
    }
}
