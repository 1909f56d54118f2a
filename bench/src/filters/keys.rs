//! Keys made from their numbers: the same for every filter, in any order, without keeping them.

use umbel_filter::Fingerprint;

/// What a filter is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text of 16 to 25 bytes, hashed by the filter.
    Text,
    /// Hashes made beforehand.
    Ready,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Text, Self::Ready];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "str",
            Self::Ready => "fp",
        }
    }
}

/// A run of keys.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    Text(&'a [&'a str]),
    /// The same keys as Umbel takes them and as others do.
    Ready {
        fingerprints: &'a [Fingerprint],
        hashes: &'a [u64],
    },
}

impl Keys<'_> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Text(keys) => keys.len(),
            Self::Ready { hashes, .. } => hashes.len(),
        }
    }

    pub(super) fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Text(keys) => {
                let (head, tail) = keys.split_at(at);
                (Self::Text(head), Self::Text(tail))
            }
            Self::Ready { fingerprints, hashes } => {
                let (fingerprints, hashes) = (fingerprints.split_at(at), hashes.split_at(at));
                let of = |fingerprints, hashes| Self::Ready { fingerprints, hashes };
                (of(fingerprints.0, hashes.0), of(fingerprints.1, hashes.1))
            }
        }
    }
}

/// Numbers from here on belong to keys that no filter is filled with.
const ABSENT: u64 = 1 << 40;

/// The numbers of `count` present keys in random order, another draw for each `round`.
pub(super) fn present(n: u64, count: u64, round: u64) -> impl Iterator<Item = u64> {
    let first = round * count;
    (first..first + count).map(move |draw| scale(mix(draw ^ 0x5bd1_e995), n))
}

/// The numbers of `count` absent keys, others for each `round`.
pub(super) fn absent(count: u64, round: u64) -> impl Iterator<Item = u64> {
    let first = ABSENT + round * count;
    first..first + count
}

/// Makes the keys with these numbers and hands them to `work`.
pub(super) fn with_keys<R>(
    kind: Kind,
    numbers: impl Iterator<Item = u64>,
    work: impl FnOnce(Keys<'_>) -> R,
) -> R {
    match kind {
        Kind::Text => {
            let count = numbers.size_hint().0;
            let (mut text, mut ends) =
                (Vec::with_capacity(count * TEXT_BYTES_MAX), Vec::with_capacity(count));
            for number in numbers {
                write_text(number, &mut text);
                ends.push(text.len());
            }
            let text = std::str::from_utf8(&text).unwrap_or_default();
            let mut start = 0;
            let keys = ends.into_iter().map(|end| &text[std::mem::replace(&mut start, end)..end]);
            work(Keys::Text(&keys.collect::<Vec<_>>()))
        }
        Kind::Ready => {
            let fingerprints: Vec<_> = numbers.map(fingerprint).collect();
            let hashes: Vec<_> = fingerprints.iter().map(|key| key.first).collect();
            work(Keys::Ready { fingerprints: &fingerprints, hashes: &hashes })
        }
    }
}

/// Two to eleven characters, so that lengths vary as they do in practice.
const PREFIXES: [&str; 10] =
    ["u:", "id:", "key:", "user:", "order:", "device:", "session:", "customer:", "equipment:", "department:"];

const TEXT_BYTES_MAX: usize = 25;

/// A prefix and fourteen hexadecimal digits, which no other number below 2^56 has.
fn write_text(number: u64, text: &mut Vec<u8>) {
    let mut digits = shuffle56(number);
    text.extend_from_slice(PREFIXES[scale(digits << 8, PREFIXES.len() as u64) as usize].as_bytes());
    text.extend_from_slice(&[(); 14].map(|()| {
        let digit = b"0123456789abcdef"[digits as usize % 16];
        digits >>= 4;
        digit
    }));
}

pub(crate) fn fingerprint(number: u64) -> Fingerprint {
    let first = mix(number);
    Fingerprint { first, second: mix(first ^ 0xd6e8_feb8_6659_fd93) }
}

/// A permutation of the numbers below 2^56: every step can be undone.
fn shuffle56(number: u64) -> u64 {
    let low56 = u64::MAX >> 8;
    let mut mixed = number & low56;
    for odd in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9] {
        mixed = mixed.wrapping_mul(odd) & low56;
        mixed ^= mixed >> 28;
    }
    mixed
}

/// A permutation of all words: the finisher of SplitMix64.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Maps a uniform word onto `0..n`.
pub(super) fn scale(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}
