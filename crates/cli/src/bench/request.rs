//! What is asked: the cases, and their bytes in the commands that a server has.

use std::fmt;

use clap::ValueEnum;

/// Keys in a MADD or MEXISTS.
pub(crate) const BATCH: usize = 100;

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
pub(crate) enum Operation {
    /// One key looked up
    Exists,
    /// One key added
    Add,
    /// 100 keys looked up at once
    Mexists,
    /// 100 keys added at once
    Madd,
}

impl Operation {
    pub(crate) fn adds(self) -> bool {
        matches!(self, Self::Add | Self::Madd)
    }

    pub(crate) fn keys(self) -> usize {
        if matches!(self, Self::Exists | Self::Add) { 1 } else { BATCH }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::Add => "add",
            Self::Mexists => "mexists",
            Self::Madd => "madd",
        }
    }
}

/// One line of the results.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    /// Requests that a connection sends before it waits for replies.
    pub(crate) pipeline: usize,
}

impl Case {
    /// Single keys are sent in every depth; batches, being pipelines of their own, one at a time.
    pub(crate) fn list(operations: &[Operation], pipelines: &[usize]) -> Vec<Self> {
        let depths = |operation: &Operation| if operation.keys() == 1 { pipelines } else { &[1] };
        let cases = operations.iter().flat_map(|operation| {
            depths(operation).iter().map(|pipeline| Self { operation: *operation, pipeline: *pipeline })
        });
        cases.collect()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.operation.name().to_uppercase();
        match (self.operation.keys(), self.pipeline) {
            (1, 1) => write!(out, "{name}"),
            (1, pipeline) => write!(out, "{name}, pipeline {pipeline}"),
            (keys, _) => write!(out, "{name} of {keys}"),
        }
    }
}

/// The commands of a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Dialect {
    /// `BF.ADD` and its kin.
    Bloom,
    /// One bit of a string for each key: less work than a filter's, but the nearest that every Redis has.
    Bits,
}

impl Dialect {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Bloom => "BF commands",
            Self::Bits => {
                "bits instead of BF commands: one SETBIT or GETBIT for ADD or EXISTS, a BITFIELD of 100 for MADD or MEXISTS"
            }
        }
    }

    /// What an add answers for a key that was there: a filter says whether it is new, SETBIT what the bit was.
    fn known(self) -> u8 {
        match self {
            Self::Bloom => 0,
            Self::Bits => 1,
        }
    }
}

/// A filter on a server, and how far it is filled.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) capacity: u64,
    /// Keys `0..filled` are in it.
    pub(crate) filled: u64,
    pub(crate) error: f64,
}

impl Target {
    /// The size of a Bloom filter by the textbook; 14.4 bits a key at 0.001.
    pub(crate) fn bits(&self) -> u64 {
        (self.capacity as f64 * -self.error.ln() / std::f64::consts::LN_2.powi(2)).ceil() as u64
    }
}

/// A reply that is not checked, because the key may be there or not.
pub(crate) const ANY: u8 = u8::MAX;

/// Requests of one kind, ready but for their keys.
pub(crate) struct Form {
    head: Vec<u8>,
    item_head: &'static [u8],
    item_tail: &'static [u8],
    /// Bits in the string, if keys are bits.
    bits: Option<u64>,
    /// What is answered for a key that is there.
    known: u8,
    pub(crate) keys: usize,
}

impl Form {
    pub(crate) fn new(dialect: Dialect, adds: bool, keys: usize, target: &Target) -> Self {
        let (command, words, item_head, item_tail): (&str, _, &'static [u8], &'static [u8]) =
            match (dialect, adds, keys) {
                (Dialect::Bloom, false, 1) => ("BF.EXISTS", 1, b"", b""),
                (Dialect::Bloom, true, 1) => ("BF.ADD", 1, b"", b""),
                (Dialect::Bloom, false, _) => ("BF.MEXISTS", 1, b"", b""),
                (Dialect::Bloom, true, _) => ("BF.MADD", 1, b"", b""),
                (Dialect::Bits, false, 1) => ("GETBIT", 1, b"", b""),
                (Dialect::Bits, true, 1) => ("SETBIT", 2, b"", b"$1\r\n1\r\n"),
                (Dialect::Bits, false, _) => ("BITFIELD", 3, b"$3\r\nGET\r\n$2\r\nu1\r\n", b""),
                (Dialect::Bits, true, _) => ("BITFIELD", 4, b"$3\r\nSET\r\n$2\r\nu1\r\n", b"$1\r\n1\r\n"),
            };
        let name = &target.name;
        let (all, command_bytes, name_bytes) = (2 + words * keys, command.len(), name.len());
        let head =
            format!("*{all}\r\n${command_bytes}\r\n{command}\r\n${name_bytes}\r\n{name}\r\n").into_bytes();
        let bits = (dialect == Dialect::Bits).then(|| target.bits());
        let known = if adds { dialect.known() } else { 1 };
        Self { head, item_head, item_tail, bits, known, keys }
    }

    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
    }

    pub(crate) fn item(&self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.item_head);
        match self.bits {
            None => {
                out.extend_from_slice(b"$14\r\nkey:0000000000\r\n");
                let end = out.len() - 2;
                digits(key, &mut out[end - 10..end]);
            }
            Some(bits) => {
                // The number must not begin with zeros: Redis would refuse it.
                let (offset, mut text) = (spread(key, bits), [0; 20]);
                let length = offset.checked_ilog10().map_or(1, |log| log as usize + 1);
                digits(offset, &mut text[..length]);
                let tens = [b'0' + (length / 10) as u8, b'0' + (length % 10) as u8];
                out.push(b'$');
                out.extend_from_slice(if length < 10 { &tens[1..] } else { &tens });
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(&text[..length]);
                out.extend_from_slice(b"\r\n");
            }
        }
        out.extend_from_slice(self.item_tail);
    }

    /// What has to be answered for a key.
    pub(crate) fn expected(&self, is_there: bool) -> u8 {
        if is_there { self.known } else { ANY }
    }
}

/// Writes a number with leading zeros.
fn digits(mut number: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The bit of a key: always the same, anywhere in the string.
fn spread(key: u64, bits: u64) -> u64 {
    below(mix(key), bits)
}

/// The finalizer of SplitMix64: a bijection that leaves no pattern.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A random word, brought below a bound without a division.
pub(crate) fn below(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target { name: "f".to_owned(), capacity: 1_000, filled: 0, error: 0.001 }
    }

    fn written(dialect: Dialect, adds: bool, keys: &[u64]) -> String {
        let (form, mut out) = (Form::new(dialect, adds, keys.len(), &target()), Vec::new());
        form.begin(&mut out);
        keys.iter().for_each(|key| form.item(*key, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn filters_are_asked_by_key() {
        let one = written(Dialect::Bloom, false, &[1234]);
        assert_eq!(one, "*3\r\n$9\r\nBF.EXISTS\r\n$1\r\nf\r\n$14\r\nkey:0000001234\r\n");
        let two = written(Dialect::Bloom, true, &[0, 9_999_999_999]);
        assert_eq!(
            two,
            "*4\r\n$7\r\nBF.MADD\r\n$1\r\nf\r\n$14\r\nkey:0000000000\r\n$14\r\nkey:9999999999\r\n"
        );
    }

    #[test]
    fn bits_are_asked_by_offset() {
        let bit = |key| spread(key, target().bits()).to_string();
        let text = |number: &str| format!("${}\r\n{number}\r\n", number.len());
        let set = written(Dialect::Bits, true, &[7]);
        assert_eq!(set, format!("*4\r\n$6\r\nSETBIT\r\n$1\r\nf\r\n{}$1\r\n1\r\n", text(&bit(7))));
        let get = written(Dialect::Bits, false, &[7, 8]);
        let item = |key| format!("$3\r\nGET\r\n$2\r\nu1\r\n{}", text(&bit(key)));
        assert_eq!(get, format!("*8\r\n$8\r\nBITFIELD\r\n$1\r\nf\r\n{}{}", item(7), item(8)));
        assert!(bit(7) != bit(8) && target().bits() == 14_378);
        for (bound, key) in [(1, 3), (10, 3), (1 << 34, 3), (1 << 34, 0)] {
            let form = Form { bits: Some(bound), ..Form::new(Dialect::Bits, false, 1, &target()) };
            let mut out = Vec::new();
            form.item(key, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text(&spread(key, bound).to_string()));
        }
    }

    #[test]
    fn known_keys_have_one_answer() {
        let form = |dialect, adds| Form::new(dialect, adds, 1, &target()).expected(true);
        assert_eq!((form(Dialect::Bloom, false), form(Dialect::Bloom, true)), (1, 0));
        assert_eq!((form(Dialect::Bits, false), form(Dialect::Bits, true)), (1, 1));
        assert_eq!(Form::new(Dialect::Bloom, true, 1, &target()).expected(false), ANY);
    }

    #[test]
    fn batches_are_not_pipelined() {
        let cases = Case::list(&[Operation::Exists, Operation::Madd], &[1, 16]);
        let names: Vec<_> = cases.iter().map(Case::to_string).collect();
        assert_eq!(names, ["EXISTS", "EXISTS, pipeline 16", "MADD of 100"]);
    }
}
