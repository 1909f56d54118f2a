//! Where a key lies in the arrays of a filter, for people who want to see why it answers as it does.

use crate::Fingerprint;
use crate::blocked::Blocked;
use crate::classic::Classic;
use crate::filter::{Body, Filter};
use crate::raw::{LINE_WORDS, cell_mask, shift};
use crate::sizing::Geometry;
use crate::sync::Ordering;

/// What a key touches in one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The array.
    pub geometry: Geometry,
    /// Where in it.
    pub touched: Touched,
}

/// The cells of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// One in each word of these lines, as many as there are banks.
    Lines(Vec<TouchedLine>),
    /// Bits anywhere in the array, and whether each is set.
    Bits(Vec<(u64, bool)>),
}

/// A line that a key touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchedLine {
    /// Its number in the array.
    pub line: u64,
    /// What is in it.
    pub words: [u64; LINE_WORDS],
    /// In each word, the bit at which the key's cell begins.
    pub cells: [u32; LINE_WORDS],
}

impl TouchedLine {
    /// Whether the key's cell of a word is in use, for cells of so many bits.
    pub fn is_used(&self, word: usize, cell_bits: u32) -> bool {
        self.words[word] >> self.cells[word] & cell_mask(cell_bits) != 0
    }
}

impl Placement {
    /// Whether all cells are in use: the array takes the key for one of its own.
    pub fn is_maybe(&self) -> bool {
        match (&self.touched, self.geometry) {
            (Touched::Bits(bits), _) => bits.iter().all(|(_, is_set)| *is_set),
            (Touched::Lines(lines), Geometry::Blocked { cell_bits, .. }) => {
                lines.iter().all(|line| (0..LINE_WORDS).all(|word| line.is_used(word, cell_bits)))
            }
            (Touched::Lines(_), Geometry::Classic { .. }) => false,
        }
    }
}

impl Filter {
    /// What a key touches in each array, one for most layouts; a chain has several.
    ///
    /// ```
    /// # use umbel_filter::{Filter, Limits, Spec};
    /// let filter = Filter::new(&Spec::bloom(1_000, 0.01), &Limits::default())?;
    /// let key = filter.hasher().fingerprint(b"a key");
    /// assert!(!filter.placements(key)[0].is_maybe());
    /// filter.insert("a key")?;
    /// assert!(filter.placements(key)[0].is_maybe());
    /// # Ok::<(), umbel_filter::Error>(())
    /// ```
    pub fn placements(&self, key: Fingerprint) -> Vec<Placement> {
        match self.body() {
            Body::Bits(filter) => vec![lines(filter, key)],
            Body::Nibbles(filter) => vec![lines(filter, key)],
            Body::Bytes(filter) => vec![lines(filter, key)],
            Body::Classic(filter) => vec![bits(filter, key)],
            Body::Chain(chain) => chain.links().iter().map(|link| bits(&link.filter, key)).collect(),
        }
    }
}

fn lines<const CELL: u32>(filter: &Blocked<CELL>, key: Fingerprint) -> Placement {
    let touched = filter.places(key).map(|(line, key)| TouchedLine {
        line: line as u64,
        words: std::array::from_fn(|word| filter.array()[line].0[word].load(Ordering::Relaxed)),
        cells: std::array::from_fn(|word| shift::<CELL>(key.second, word)),
    });
    Placement { geometry: filter.geometry(), touched: Touched::Lines(touched.collect()) }
}

fn bits(filter: &Classic, key: Fingerprint) -> Placement {
    let is_set = |position| filter.array().word(position / 64).load(Ordering::Relaxed) >> (position % 64) & 1;
    let touched = filter.positions(key).map(|position| (position, is_set(position) == 1));
    Placement { geometry: filter.geometry(), touched: Touched::Bits(touched.collect()) }
}

#[cfg(test)]
mod tests {
    use crate::{Counter, Filter, Kind, Layout, Limits, Spec};

    #[test]
    fn what_is_shown_is_what_answers() {
        let layouts =
            [Layout::Blocked, Layout::Guava, Layout::Redisson, Layout::RedisBloom { expansion: Some(2) }];
        let mut specs: Vec<Spec> = layouts.map(|layout| Spec::hosted(layout, 200, 0.02)).to_vec();
        specs.push(Spec::bloom(200, 1e-6));
        specs.push(Spec::bloom(200, 0.02).kind(Kind::Counting(Counter::Nibble)));
        specs.push(Spec::bloom(200, 0.02).kind(Kind::Counting(Counter::Byte)));
        for spec in specs {
            let filter = Filter::new(&spec, &Limits::default()).unwrap();
            for number in 0..300 {
                filter.insert(format!("in {number}")).unwrap();
            }
            let mut maybes = 0;
            for number in 0..2_000 {
                let key = filter.hasher().fingerprint(format!("out {number}").as_bytes());
                let shown = filter.placements(key).iter().any(super::Placement::is_maybe);
                assert_eq!(shown, filter.contains_fingerprint(key), "{spec:?}");
                maybes += u32::from(shown);
            }
            let present = filter.hasher().fingerprint(b"in 7");
            assert!(filter.placements(present).iter().any(super::Placement::is_maybe));
            assert!(maybes < 1_000, "{spec:?}");
        }
    }
}
