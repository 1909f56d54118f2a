use crate::Fingerprint;
use crate::fingerprint::scale;
use crate::raw::LINE_WORDS;
use crate::sizing::Geometry;

/// Bits of the second word that choose the cell in one word of a line.
const CHOICE_BITS: u32 = 6;

/// What an array with one line a key sees of a fingerprint: the line and the cells in it. That is about half of it.
///
/// ```
/// # use umbel_filter::{Family, Geometry, Hasher};
/// let condensed = Geometry::Blocked { cell_bits: 1, banks: 1, lines: 1_000 }.condensed().expect("one line a key");
/// let key = Hasher::new(Family::Murmur3, None)?.fingerprint(b"a key");
/// let (line, cells) = condensed.split(key);
/// let twin = condensed.join(line, cells).expect("a line of it");
/// assert_eq!(condensed.split(twin), (line, cells));
/// # Ok::<(), umbel_filter::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condensed {
    lines: u64,
    /// Bits that choose one of the cells of a word.
    bits: u32,
}

impl Geometry {
    /// How keys are condensed for an array of this geometry; none if it takes more of a key than one line.
    pub fn condensed(&self) -> Option<Condensed> {
        self.check().ok()?;
        match *self {
            Self::Blocked { cell_bits, banks: 1, lines } => {
                Some(Condensed { lines, bits: (64 / cell_bits).ilog2() })
            }
            _ => None,
        }
    }
}

impl Condensed {
    /// Bytes of a key's cells: a line has eight words, so as many as there are bits for each.
    pub fn cell_bytes(&self) -> usize {
        self.bits as usize
    }

    /// The line of a key and its cells.
    pub fn split(&self, key: Fingerprint) -> (u64, u64) {
        let choice = |word| key.second >> (CHOICE_BITS * (word + 1) - self.bits) & ((1 << self.bits) - 1);
        let cells = (0..LINE_WORDS as u32).map(|word| choice(word) << (self.bits * word));
        (scale(key.first, self.lines), cells.sum())
    }

    /// A fingerprint with this line and these cells: to the array, it is the key. None if there is no such line.
    pub fn join(&self, line: u64, cells: u64) -> Option<Fingerprint> {
        if line >= self.lines {
            return None;
        }
        let choice = |word| cells >> (self.bits * word) & ((1 << self.bits) - 1);
        let second =
            (0..LINE_WORDS as u32).map(|word| choice(word) << (CHOICE_BITS * (word + 1) - self.bits)).sum();
        // The least word that is scaled to the line.
        let first = (u128::from(line) << 64).div_ceil(u128::from(self.lines)) as u64;
        Some(Fingerprint { first, second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Family, Filter, Hasher, Kind, Limits, Spec};

    #[test]
    fn an_array_takes_a_twin_for_the_key() {
        let hasher = Hasher::new(Family::Murmur3, None).unwrap();
        for kind in [Kind::Bloom, Kind::Counting(Counter::Nibble), Kind::Counting(Counter::Byte)] {
            for capacity in [1, 100, 12_345, 300_000] {
                let spec = Spec { kind, ..Spec::bloom(capacity, 0.01) };
                let [keys, twins] = [(); 2].map(|()| Filter::new(&spec, &Limits::default()).unwrap());
                let condensed = keys.geometry().condensed().unwrap();
                for number in 0..capacity.min(20_000) {
                    let key = hasher.fingerprint(format!("key {number}").as_bytes());
                    let (line, cells) = condensed.split(key);
                    assert!(cells >> (8 * condensed.cell_bytes()) == 0);
                    let twin = condensed.join(line, cells).unwrap();
                    keys.insert_fingerprint(key).unwrap();
                    twins.insert_fingerprint(twin).unwrap();
                    if kind != Kind::Bloom && number % 3 == 0 {
                        // Whoever adds the one may remove the other.
                        assert!(keys.remove_fingerprint(twin).unwrap());
                        assert!(twins.remove_fingerprint(key).unwrap());
                    }
                }
                assert_eq!(keys.digest(), twins.digest(), "{kind} of {capacity}");
            }
        }
    }

    #[test]
    fn the_first_and_the_last_line_are_lines() {
        for lines in [1, 2, 3, 1 << 20, (1 << 40) - 1, u64::MAX] {
            let condensed = Geometry::Blocked { cell_bits: 1, banks: 1, lines }.condensed().unwrap();
            for line in [0, lines / 2, lines - 1] {
                let key = condensed.join(line, 0x1234_5678_9abc).unwrap();
                assert_eq!(condensed.split(key), (line, 0x1234_5678_9abc), "of {lines}");
            }
            assert_eq!(condensed.join(lines, 0), None);
        }
        assert_eq!(Geometry::Blocked { cell_bits: 1, banks: 2, lines: 9 }.condensed(), None);
        assert_eq!(Geometry::Classic { bits: 64, hashes: 3 }.condensed(), None);
    }
}
