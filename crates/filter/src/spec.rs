use std::fmt;

use crate::limits::{CAPACITY_MAX, ERROR_MAX, ERROR_MIN};
use crate::{Error, Family, Result};

/// Whether elements can be taken out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bits: elements are only added.
    #[default]
    Bloom,
    /// Counters: elements can be removed.
    Counting(Counter),
}

/// The width of a counter. A counter that reaches its maximum stays there, so that it never drops to zero while
/// an element still needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Four bits, to 15: enough unless the same key is added over and over.
    #[default]
    Nibble,
    /// Eight bits, to 255: twice the memory or more.
    Byte,
}

/// How a key's positions are laid out in the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The native one: a cache line holds all of a key's cells, or a few lines at strict error rates.
    #[default]
    Blocked,
    /// The geometry of Guava's `BloomFilter`, strategy `MURMUR128_MITZ_64`.
    Guava,
    /// The older strategy `MURMUR128_MITZ_32` of Guava, for filters that were written with it.
    Guava32,
    /// The geometry of RedisBloom: a chain of sub-filters.
    RedisBloom {
        /// How many times larger each next sub-filter is; `None` refuses elements past the capacity.
        expansion: Option<u32>,
    },
    /// The geometry of Redisson's `RBloomFilter`.
    Redisson,
}

/// What a filter is meant to be, before it has a size.
///
/// ```
/// # use umbel_filter::{Family, Spec};
/// let spec = Spec::bloom(1_000_000, 0.001).family(Family::Xxh3);
/// assert!(spec.check().is_ok());
/// assert!(Spec::bloom(0, 0.001).check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Bits or counters.
    pub kind: Kind,
    /// Native or hosted geometry.
    pub layout: Layout,
    /// How keys are hashed.
    pub family: Family,
    /// The number of distinct elements up to which the error rate holds.
    pub capacity: u64,
    /// The share of absent keys that may be answered "maybe".
    pub error: f64,
}

impl Spec {
    /// A Bloom filter of the native layout and the default family.
    pub fn bloom(capacity: u64, error: f64) -> Self {
        Self { kind: Kind::Bloom, layout: Layout::Blocked, family: Family::Murmur3, capacity, error }
    }

    /// An erasable filter with four-bit counters.
    pub fn counting(capacity: u64, error: f64) -> Self {
        Self { kind: Kind::Counting(Counter::Nibble), ..Self::bloom(capacity, error) }
    }

    /// A filter with the geometry and the family of another system.
    pub fn hosted(layout: Layout, capacity: u64, error: f64) -> Self {
        let family = layout.required_family().unwrap_or_default();
        Self { layout, family, ..Self::bloom(capacity, error) }
    }

    /// The same with another family.
    pub fn family(self, family: Family) -> Self {
        Self { family, ..self }
    }

    /// The same with another kind.
    pub fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Says what is wrong with these parameters, if anything.
    pub fn check(&self) -> Result<()> {
        if self.capacity == 0 || self.capacity > CAPACITY_MAX {
            return Err(Error::invalid(
                "capacity",
                format!("{}; it must be 1 to {CAPACITY_MAX}", self.capacity),
            ));
        }
        check_error_rate(self.error)?;
        if self.kind != Kind::Bloom && self.layout != Layout::Blocked {
            return Err(Error::invalid(
                "kind",
                format!("{}; {} filters have bits only", self.kind, self.layout),
            ));
        }
        match self.layout.required_family() {
            Some(family) if family != self.family => Err(Error::invalid(
                "family",
                format!("{}; the layout {} is defined for {family}", self.family, self.layout),
            )),
            _ => match self.layout {
                Layout::RedisBloom { expansion: Some(expansion) } if !(1..=32_768).contains(&expansion) => {
                    Err(Error::invalid("expansion", format!("{expansion}; it must be 1 to 32768")))
                }
                _ => Ok(()),
            },
        }
    }
}

/// The stored form, which formats contain; `docs/formats.md` draws it.
impl Spec {
    /// Bytes of the stored form.
    pub const BYTES: usize = 24;

    /// The stored form.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let (layout, expansion) = self.layout.tag();
        let mut bytes = [0; Self::BYTES];
        bytes[..3].copy_from_slice(&[layout, self.family as u8, self.kind.cell_bits() as u8]);
        bytes[4..8].copy_from_slice(&expansion.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[16..].copy_from_slice(&self.error.to_le_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) gave, and checks it.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Result<Self> {
        let unknown = |what: &'static str, tag: u8| Error::invalid(what, format!("unknown tag {tag}"));
        let [layout, family, cell_bits, reserved] = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if reserved != 0 {
            return Err(Error::invalid("spec", "a reserved byte is not zero"));
        }
        let expansion = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let spec = Self {
            kind: Kind::from_cell_bits(cell_bits).ok_or_else(|| unknown("kind", cell_bits))?,
            layout: Layout::from_tag(layout, expansion).ok_or_else(|| unknown("layout", layout))?,
            family: Family::from_tag(family).ok_or_else(|| unknown("family", family))?,
            capacity: u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + i])),
            error: f64::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])),
        };
        spec.check()?;
        Ok(spec)
    }
}

/// Not-a-number fails here too, because it is in no range.
pub(crate) fn check_error_rate(error: f64) -> Result<()> {
    if (ERROR_MIN..=ERROR_MAX).contains(&error) {
        Ok(())
    } else {
        Err(Error::invalid("error rate", format!("{error}; it must be {ERROR_MIN} to {ERROR_MAX}")))
    }
}

impl Kind {
    /// Bits in one cell of the array.
    pub fn cell_bits(self) -> u32 {
        match self {
            Self::Bloom => 1,
            Self::Counting(Counter::Nibble) => 4,
            Self::Counting(Counter::Byte) => 8,
        }
    }

    pub(crate) fn from_cell_bits(bits: u8) -> Option<Self> {
        let all = [Self::Bloom, Self::Counting(Counter::Nibble), Self::Counting(Counter::Byte)];
        all.into_iter().find(|kind| kind.cell_bits() == u32::from(bits))
    }
}

impl Layout {
    /// The only family that a hosted geometry is defined for.
    pub fn required_family(self) -> Option<Family> {
        match self {
            Self::Blocked => None,
            Self::Guava | Self::Guava32 => Some(Family::Murmur3),
            Self::RedisBloom { .. } => Some(Family::RedisBloom),
            Self::Redisson => Some(Family::Redisson),
        }
    }
}

impl Layout {
    /// The tag, and the expansion of a chain.
    fn tag(self) -> (u8, u32) {
        match self {
            Self::Blocked => (1, 0), // persisted, as all tags here
            Self::Guava => (2, 0),
            Self::RedisBloom { expansion } => (3, expansion.unwrap_or(0)),
            Self::Redisson => (4, 0),
            Self::Guava32 => (5, 0),
        }
    }

    fn from_tag(tag: u8, expansion: u32) -> Option<Self> {
        let chain = Self::RedisBloom { expansion: (expansion != 0).then_some(expansion) };
        let all = [Self::Blocked, Self::Guava, chain, Self::Redisson, Self::Guava32];
        all.into_iter().find(|layout| layout.tag() == (tag, expansion))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bloom => "bloom",
            Self::Counting(Counter::Nibble) => "counting",
            Self::Counting(Counter::Byte) => "counting8",
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocked => "blocked",
            Self::Guava => "guava",
            Self::Guava32 => "guava32",
            Self::RedisBloom { .. } => "redisbloom",
            Self::Redisson => "redisson",
        })
    }
}
