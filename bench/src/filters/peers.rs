//! What is measured, behind one trait: Umbel's filters and their rivals.

use std::convert::Infallible;
use std::error::Error;

use fastbloom::{AtomicBloomFilter, BloomFilter};
use sbbf_rs::FilterFn;
use umbel_filter::{Filter, Limits, Spec};
use xorf::{BinaryFuse8, Filter as _};
use xxhash_rust::xxh3::xxh3_64;

use super::keys::Keys;
use super::limit::Line;
use super::loops::{count, count_batches, try_count};
use super::report::FUSE;

/// How keys are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Single,
    Batch,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Batch => "batch",
        }
    }
}

/// A filter in a contest. Answers are counted, so that no work can be left out.
pub(super) trait Peer {
    fn name(&self) -> &'static str;

    /// Rivals have single calls only.
    fn mode(&self) -> Mode {
        Mode::Single
    }

    /// Adds keys; how many of them were new.
    fn insert(&mut self, keys: Keys<'_>) -> Result<usize, Box<dyn Error>>;

    /// Whether `insert` is an operation of the filter, and not just a collection of keys for `seal`.
    fn grows(&self) -> bool {
        true
    }

    /// Ends the fill.
    fn seal(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// How many of the keys are there.
    fn contains(&self, keys: Keys<'_>) -> usize;

    /// Bytes of the array.
    fn bytes(&self) -> u64;
}

/// A filter of Umbel's: native, counting or hosted.
pub(super) struct Umbel {
    name: &'static str,
    mode: Mode,
    filter: Filter,
}

impl Umbel {
    pub(super) fn new(name: &'static str, mode: Mode, spec: &Spec) -> Result<Self, Box<dyn Error>> {
        Ok(Self { name, mode, filter: Filter::new(spec, &Limits::default())? })
    }
}

impl Peer for Umbel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn insert(&mut self, keys: Keys<'_>) -> Result<usize, Box<dyn Error>> {
        let filter = &self.filter;
        Ok(match (keys, self.mode) {
            (Keys::Text(keys), Mode::Single) => try_count(keys, |key| filter.insert(key)),
            (Keys::Text(keys), Mode::Batch) => {
                count_batches(keys, |batch, new| filter.insert_batch(batch, new))
            }
            (Keys::Ready { fingerprints, .. }, Mode::Single) => {
                try_count(fingerprints, |key| filter.insert_fingerprint(*key))
            }
            (Keys::Ready { fingerprints, .. }, Mode::Batch) => {
                count_batches(fingerprints, |batch, new| filter.insert_fingerprints(batch, new))
            }
        }?)
    }

    fn contains(&self, keys: Keys<'_>) -> usize {
        let filter = &self.filter;
        let Ok(found) = match (keys, self.mode) {
            (Keys::Text(keys), Mode::Single) => Ok(count(keys, |key| filter.contains(key))),
            (Keys::Text(keys), Mode::Batch) => count_batches(keys, |batch, answers| {
                filter.contains_batch(batch, answers);
                Ok::<_, Infallible>(())
            }),
            (Keys::Ready { fingerprints, .. }, Mode::Single) => {
                Ok(count(fingerprints, |key| filter.contains_fingerprint(*key)))
            }
            (Keys::Ready { fingerprints, .. }, Mode::Batch) => {
                count_batches(fingerprints, |batch, answers| {
                    filter.contains_fingerprints(batch, answers);
                    Ok(())
                })
            }
        };
        found
    }

    fn bytes(&self) -> u64 {
        self.filter.geometry().bytes() as u64
    }
}

/// fastbloom's filters share no trait, only the names of their methods. They have its default hasher (SipHash-1-3); the
/// seed only makes runs repeatable.
macro_rules! fastbloom_peer {
    ($(#[$doc:meta])* $peer:ident, $filter:ident, $name:literal) => {
        $(#[$doc])*
        pub(super) struct $peer($filter);

        impl $peer {
            pub(super) fn new(n: u64, error: f64) -> Self {
                Self($filter::with_false_pos(error).seed(&42).expected_items(n as usize))
            }
        }

        impl Peer for $peer {
            fn name(&self) -> &'static str {
                $name
            }

            fn insert(&mut self, keys: Keys<'_>) -> Result<usize, Box<dyn Error>> {
                Ok(match keys {
                    Keys::Text(keys) => count(keys, |key| !self.0.insert(*key)),
                    Keys::Ready { hashes, .. } => count(hashes, |hash| !self.0.insert_hash(*hash)),
                })
            }

            fn contains(&self, keys: Keys<'_>) -> usize {
                match keys {
                    Keys::Text(keys) => count(keys, |key| self.0.contains(*key)),
                    Keys::Ready { hashes, .. } => count(hashes, |hash| self.0.contains_hash(*hash)),
                }
            }

            fn bytes(&self) -> u64 {
                self.0.num_bits() as u64 / 8
            }
        }
    };
}

fastbloom_peer!(
    /// The plain one.
    Fast, BloomFilter, "fastbloom"
);
fastbloom_peer!(
    /// The one with atomic words, which threads can share while it is filled, as Umbel's always can.
    FastAtomic, AtomicBloomFilter, "fastbloom-atomic"
);

/// sbbf-rs: blocks of eight 32-bit words, fed with XXH3 as Parquet feeds its own.
pub(super) struct SplitBlock {
    methods: FilterFn,
    lines: Vec<Line>,
    buckets: usize,
}

impl SplitBlock {
    pub(super) fn new(n: u64, error: f64) -> Self {
        let bits = split_block_bits(error) * n as f64;
        let buckets = (bits / (8 * sbbf_rs::BUCKET_SIZE) as f64).ceil().max(1.0) as usize;
        let lines = (buckets * sbbf_rs::BUCKET_SIZE).div_ceil(size_of::<Line>());
        Self { methods: FilterFn::new(), lines: vec![Line::default(); lines], buckets }
    }

    #[allow(unsafe_code)]
    #[inline]
    fn insert_hash(&mut self, hash: u64) -> bool {
        // SAFETY: `new` made the lines large enough for `buckets` buckets, of which there is at least one, and a
        // line has the alignment that is asked for.
        !unsafe { self.methods.insert(self.lines.as_mut_ptr().cast(), self.buckets, hash) }
    }

    #[allow(unsafe_code)]
    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        // SAFETY: as for `insert_hash`.
        unsafe { self.methods.contains(self.lines.as_ptr().cast(), self.buckets, hash) }
    }
}

const _: () = assert!(align_of::<Line>() >= sbbf_rs::ALIGNMENT);

impl Peer for SplitBlock {
    fn name(&self) -> &'static str {
        "sbbf-rs"
    }

    fn insert(&mut self, keys: Keys<'_>) -> Result<usize, Box<dyn Error>> {
        Ok(match keys {
            Keys::Text(keys) => count(keys, |key| self.insert_hash(xxh3_64(key.as_bytes()))),
            Keys::Ready { hashes, .. } => count(hashes, |hash| self.insert_hash(*hash)),
        })
    }

    fn contains(&self, keys: Keys<'_>) -> usize {
        match keys {
            Keys::Text(keys) => count(keys, |key| self.contains_hash(xxh3_64(key.as_bytes()))),
            Keys::Ready { hashes, .. } => count(hashes, |hash| self.contains_hash(*hash)),
        }
    }

    fn bytes(&self) -> u64 {
        (self.buckets * sbbf_rs::BUCKET_SIZE) as u64
    }
}

/// Bits a key for which a split-block filter errs at `error`: by inclusion and exclusion over the eight words of a
/// block with a Poisson number of keys, and a hundredth more, because its eight positions share 32 bits of hash.
fn split_block_bits(error: f64) -> f64 {
    const CHOOSE: [f64; 9] = [1.0, -8.0, 28.0, -56.0, 70.0, -56.0, 28.0, -8.0, 1.0];
    let error_at = |bits: f64| -> f64 {
        let keys = 256.0 / bits;
        let terms = (0..).zip(CHOOSE);
        terms.map(|(words, choose)| choose * f64::exp(-keys * (1.0 - (31.0_f64 / 32.0).powi(words)))).sum()
    };
    let (mut low, mut high) = (1.0, 256.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if error_at(middle) > error { low = middle } else { high = middle }
    }
    high * 1.01
}

/// xorf's static filter of one byte a key, built from hashes once they are all known.
pub(super) struct Fuse {
    hashes: Vec<u64>,
    filter: Option<BinaryFuse8>,
}

impl Fuse {
    pub(super) fn new(n: u64) -> Self {
        Self { hashes: Vec::with_capacity(n as usize), filter: None }
    }
}

impl Peer for Fuse {
    fn name(&self) -> &'static str {
        FUSE
    }

    fn insert(&mut self, keys: Keys<'_>) -> Result<usize, Box<dyn Error>> {
        match keys {
            Keys::Text(keys) => self.hashes.extend(keys.iter().map(|key| xxh3_64(key.as_bytes()))),
            Keys::Ready { hashes, .. } => self.hashes.extend_from_slice(hashes),
        }
        Ok(keys.len())
    }

    fn grows(&self) -> bool {
        false
    }

    fn seal(&mut self) -> Result<(), Box<dyn Error>> {
        self.filter = Some(BinaryFuse8::try_from(std::mem::take(&mut self.hashes))?);
        Ok(())
    }

    fn contains(&self, keys: Keys<'_>) -> usize {
        let Some(filter) = &self.filter else { return 0 };
        match keys {
            Keys::Text(keys) => count(keys, |key| filter.contains(&xxh3_64(key.as_bytes()))),
            Keys::Ready { hashes, .. } => count(hashes, |hash| filter.contains(hash)),
        }
    }

    fn bytes(&self) -> u64 {
        self.filter.as_ref().map_or(0, |filter| filter.len() as u64)
    }
}
