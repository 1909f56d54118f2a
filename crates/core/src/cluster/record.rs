//! What a node says of itself.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use bytes::Bytes;

use super::isolation::Instance;
use crate::limits::{
    ADDRESS_BYTES_MAX, MEMBER_NAME_BYTES_MAX, PARTITIONS_MAX, RECORD_BYTES_MAX, UNREACHED_MAX, WEIGHT_MAX,
};
use crate::ring::Member;
use crate::{Error, Result};

const VERSION: u32 = 1; // persisted
const WORD_BITS: u32 = u64::BITS;

/// A node, as its record in the registry describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name, which no other node has.
    pub name: String,
    /// A number of this process: another one of the same name has another.
    pub instance: u64,
    /// Where other nodes reach it: `host:port`.
    pub address: String,
    /// What may fail at once with it.
    pub zone: String,
    /// Points on the ring.
    pub weight: u32,
    /// Whether it gives its partitions away.
    pub leaving: bool,
    /// The partitions that it answers for if it is asked.
    pub serves: Partitions,
    /// The processes of other nodes that it has not reached for longer than a lease, although their records are there.
    pub unreached: BTreeSet<Instance>,
    /// The digest of the listing on which it acts.
    pub view: u64,
}

impl Record {
    /// What the ring has to know of it.
    pub fn member(&self) -> Member {
        Member { name: self.name.clone(), weight: self.weight, zone: self.zone.clone() }
    }

    /// Says what cannot be.
    pub fn check(&self) -> Result<()> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
        for (what, text, least) in [("name", &self.name, 1), ("zone", &self.zone, 0)] {
            if !(least..=MEMBER_NAME_BYTES_MAX).contains(&text.len()) || !text.chars().all(is_plain) {
                return Err(Error::Invalid(format!(
                    "the {what} {text:?} of a node; it has {least} to {MEMBER_NAME_BYTES_MAX} letters, digits, dots, dashes and underscores"
                )));
            }
        }
        let port = self.address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let is_line = !self.address.contains(|letter: char| letter.is_control() || letter.is_whitespace());
        if port.is_none_or(|port| port == 0) || self.address.len() > ADDRESS_BYTES_MAX || !is_line {
            return Err(Error::Invalid(format!(
                "the address {:?} of node {}; it is host:port, with up to {ADDRESS_BYTES_MAX} bytes",
                self.address, self.name
            )));
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            let (weight, name) = (self.weight, &self.name);
            return Err(Error::Invalid(format!(
                "weight {weight} of node {name}; it must be 1 to {WEIGHT_MAX}"
            )));
        }
        Ok(())
    }

    /// All but the view, in which nodes may differ although they agree.
    pub(super) fn material(&self) -> String {
        let Self { name, instance, address, zone, weight, leaving, serves, unreached, view: _ } = self;
        let leaving = if *leaving { "yes" } else { "no" };
        let mut text =
            format!("format {VERSION}\nname {name}\ninstance {instance:016x}\naddress {address}\n");
        // Writing into a string cannot fail.
        let _ = write!(text, "zone {zone}\nweight {weight}\nleaving {leaving}\nserves {serves}\nunreached");
        for (name, instance) in unreached.iter().take(UNREACHED_MAX) {
            let _ = write!(text, " {name}:{instance:016x}");
        }
        text.push_str(if unreached.is_empty() { " -\n" } else { "\n" });
        text
    }

    pub(super) fn encode(&self) -> Bytes {
        format!("{}view {:016x}\n", self.material(), self.view).into()
    }

    pub(super) fn decode(key: &str, bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::Corrupt(format!("{key} in the registry {what}"));
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= RECORD_BYTES_MAX);
        let text = text.ok_or_else(|| corrupt("is no text, or too long"))?;
        // What is not known here is of a later version.
        let line = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            match (values.next(), values.next()) {
                (Some(value), None) => Ok(value),
                _ => Err(corrupt(&format!("does not say its {name} once"))),
            }
        };
        let number = |name: &str| {
            u64::from_str_radix(line(name)?, 16).map_err(|_| corrupt(&format!("has no number as its {name}")))
        };
        if line("format")? != VERSION.to_string() {
            return Err(corrupt(&format!("has format {:?}; {VERSION} is known here", line("format")?)));
        }
        let record = Self {
            name: line("name")?.to_owned(),
            instance: number("instance")?,
            address: line("address")?.to_owned(),
            zone: line("zone")?.to_owned(),
            weight: line("weight")?.parse().map_err(|_| corrupt("has no number as its weight"))?,
            leaving: match line("leaving")? {
                "yes" => true,
                "no" => false,
                _ => return Err(corrupt("is neither leaving nor not")),
            },
            serves: Partitions::parse(line("serves")?).ok_or_else(|| corrupt("serves what cannot be"))?,
            unreached: parse_unreached(line("unreached")?)
                .ok_or_else(|| corrupt("reports nodes as not reached that cannot be"))?,
            view: number("view")?,
        };
        record.check().map_err(|error| corrupt(&format!("cannot be: {error}")))?;
        Ok(record)
    }
}

/// The inverse of what [`Record::material`] writes: `name:instance` with spaces between, or a dash.
fn parse_unreached(text: &str) -> Option<BTreeSet<Instance>> {
    if text == "-" {
        return Some(BTreeSet::new());
    }
    let all = text.split(' ').map(|word| {
        let (name, instance) = word.split_once(':')?;
        let fits = (1..=MEMBER_NAME_BYTES_MAX).contains(&name.len()) && instance.len() == 16;
        fits.then(|| Some((name.to_owned(), u64::from_str_radix(instance, 16).ok()?)))?
    });
    let all: BTreeSet<Instance> = all.collect::<Option<_>>()?;
    (all.len() <= UNREACHED_MAX).then_some(all)
}

/// A set of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions(Vec<u64>);

impl Partitions {
    /// Those of a log with so many partitions that come by. Lookups make one for all of their keys.
    pub(crate) fn of(count: u32, all: impl Iterator<Item = u32>) -> Self {
        let mut words = vec![0; count.min(PARTITIONS_MAX).div_ceil(WORD_BITS) as usize];
        for partition in all {
            if let Some(word) = words.get_mut((partition / WORD_BITS) as usize) {
                *word |= 1 << (partition % WORD_BITS);
            }
        }
        Self::trimmed(words)
    }

    /// Equal sets have equal words.
    fn trimmed(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self(words)
    }

    /// Whether one is in it.
    #[inline]
    pub fn contains(&self, partition: u32) -> bool {
        let word = self.0.get((partition / WORD_BITS) as usize).copied().unwrap_or(0);
        word >> (partition % WORD_BITS) & 1 == 1
    }

    /// Puts one in; whether it was not there. Those that no log has stay out.
    pub fn insert(&mut self, partition: u32) -> bool {
        if partition >= PARTITIONS_MAX || self.contains(partition) {
            return false;
        }
        let index = (partition / WORD_BITS) as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= 1 << (partition % WORD_BITS);
        true
    }

    /// Takes one out; whether it was there.
    pub fn remove(&mut self, partition: u32) -> bool {
        let is_there = self.contains(partition);
        if is_there {
            self.0[(partition / WORD_BITS) as usize] &= !(1 << (partition % WORD_BITS));
            *self = Self::trimmed(std::mem::take(&mut self.0));
        }
        is_there
    }

    /// Whether all of another set are in it.
    pub fn has_all(&self, others: &Self) -> bool {
        let word = |index: usize| self.0.get(index).copied().unwrap_or(0);
        others.0.iter().enumerate().all(|(index, others)| others & !word(index) == 0)
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self::trimmed(self.0.iter().zip(&others.0).map(|(own, others)| own & others).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.0.len() as u32 * WORD_BITS).filter(|partition| self.contains(*partition))
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "-" {
            return Some(Self::default());
        }
        let words = text.split('.').map(|word| {
            let is_whole = word.len() == 16 && word.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_whole.then(|| u64::from_str_radix(word, 16).ok()).flatten()
        });
        let words: Vec<u64> = words.collect::<Option<_>>()?;
        let fits = words.len() <= (PARTITIONS_MAX / WORD_BITS) as usize && words.last() != Some(&0);
        fits.then_some(Self(words))
    }
}

impl FromIterator<u32> for Partitions {
    fn from_iter<I: IntoIterator<Item = u32>>(all: I) -> Self {
        let mut partitions = Self::default();
        for partition in all {
            partitions.insert(partition);
        }
        partitions
    }
}

/// Words of 64 partitions in hexadecimal digits, the first ones first; a dash if there are none.
impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        let mut dot = "";
        self.0.iter().try_for_each(|word| write!(f, "{}{word:016x}", std::mem::replace(&mut dot, ".")))
    }
}
