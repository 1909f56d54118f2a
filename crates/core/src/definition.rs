//! Definitions: what the log says that a filter is. `docs/formats.md` draws them.

use bytes::Bytes;
use umbel_filter::{Kind, Layout, Plan, Spec};
use xxhash_rust::xxh3::xxh3_64;

use crate::fields::Fields;
use crate::limits::{
    FILTER_NAME_BYTES_MAX, GROWTH_PERCENT_MAX, GROWTH_PERCENT_MIN, LABELS_BYTES_MAX, WINDOW_BUCKETS_MAX,
    WINDOW_MILLIS_MAX,
};
use crate::{Error, Result};

const VERSION: u8 = 2;
/// The version of a filter that takes the place of another.
const VERSION_REPLACING: u8 = 3;
/// The version of a filter that was filled to take the place of another.
const VERSION_MIRRORING: u8 = 4;
/// The version of a filter that has a threshold of its own.
const VERSION_PACED: u8 = 5;
pub(crate) const VERSION_NEWEST: u8 = VERSION_PACED;
/// The version without an origin, an expiry, labels and a window; it is still read.
const VERSION_BARE: u8 = 1;
const HEADER_BYTES: usize = 16;
/// In place of an expiry.
const NEVER: u64 = u64::MAX;
/// What names of filters that no user made begin with. Doors keep users' names from it.
pub const INTERNAL: char = '\u{1}';

/// In a cluster, all filters are made under this name, so that they have one home: the catalog.
pub(crate) const CATALOG: &str = "\u{1}catalog"; // persisted

/// What names of filters that are being imported begin with, behind [`INTERNAL`].
pub(crate) const IMPORT: &str = "import:"; // persisted

/// What names of filters that are being filled anew begin with, behind [`INTERNAL`]; then the number of the one that each is for.
const REBUILD: &str = "rebuild:"; // persisted

/// What a filter is, as the log defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What users call it.
    pub name: String,
    /// The name that it was made with: its home is found by it, whatever it is called later.
    pub origin: String,
    /// Kind, layout, family, capacity and error rate of the whole filter.
    pub spec: Spec,
    /// In how many slots it has a shard: one, or all.
    pub shards: u32,
    /// Whether its fingerprints are kept, so that it can be rebuilt in any other size.
    pub retain: bool,
    /// What happens when it fills up.
    pub growth: Growth,
    /// How full it is when it begins to grow, in percent, if not as full as others. At 100 it grows when it is told to, or full.
    pub grow_at: Option<u8>,
    /// Counts the sizes that the filter was given: each next definition has a greater number.
    pub generation: u32,
    /// When it is gone, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// What a door wants to remember of it. Nothing else reads it.
    pub labels: Bytes,
    /// Whether, and for how long, it remembers its newest keys only.
    pub window: Option<Window>,
    /// The filter whose name it took: wherever both are, that one is dropped.
    pub replaces: Option<u64>,
    /// The filter that it follows, to take its place when it is filled.
    pub mirrors: Option<Mirror>,
}

/// What a filter that is filled anew follows: all that is added to another filter it takes too, and what is removed there goes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The other filter.
    pub of: u64,
    /// When it was begun, in milliseconds since 1970.
    pub began_ms: u64,
    /// The capacity that it was begun with; it may have grown since.
    pub capacity: u64,
    /// Whether its source was read to the end. Until then keys of its own come from the source, which knows less than whoever uses the
    /// other filter.
    pub is_filled: bool,
}

/// A filter that remembers what was added within some time. Its keys live in other filters, one for each stretch of that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// For how long a key is remembered, in milliseconds; and for a bucket more at most.
    pub length_ms: u64,
    /// How many stretches that time is cut into.
    pub buckets: u32,
}

impl Window {
    /// Milliseconds of a bucket.
    pub fn bucket_ms(&self) -> u64 {
        (self.length_ms / u64::from(self.buckets.max(1))).max(1)
    }

    /// How many buckets with keys can be alive at once: those of the whole length, and the one that began before it.
    pub(crate) fn buckets_alive_max(&self) -> u64 {
        self.length_ms.div_ceil(self.bucket_ms()) + 1
    }
}

/// What happens when a filter fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It takes no more.
    Fixed,
    /// It grows to so many percent of its size.
    Percent(u32),
}

impl Default for Growth {
    fn default() -> Self {
        Self::Percent(200)
    }
}

impl Definition {
    /// A filter in one slot with defaults for everything else.
    pub fn new(name: impl Into<String>, spec: Spec) -> Self {
        let name = name.into();
        Self {
            origin: name.clone(),
            name,
            spec,
            shards: 1,
            retain: true,
            growth: Growth::default(),
            grow_at: None,
            generation: 0,
            expires: None,
            labels: Bytes::new(),
            window: None,
            replaces: None,
            mirrors: None,
        }
    }

    /// The slot that knows the filter by its first name, and holds it if it is small.
    pub fn home(&self, slots: u32) -> u16 {
        home_of(&self.origin, slots)
    }

    /// Whether no user made it.
    pub fn is_internal(&self) -> bool {
        self.name.starts_with(INTERNAL)
    }

    /// Whether it is being filled to take the place of another.
    pub(crate) fn is_rebuild(&self) -> bool {
        self.mirrors.is_some_and(|mirror| self.name == rebuild_name(mirror.of))
    }

    /// Whether keys of its own come from its source.
    pub(crate) fn is_filling(&self) -> bool {
        self.mirrors.is_some_and(|mirror| !mirror.is_filled)
    }

    /// Whether it is being imported.
    pub(crate) fn is_import(&self) -> bool {
        self.name.strip_prefix(INTERNAL).is_some_and(|name| name.starts_with(IMPORT))
    }

    /// Whether it has arrays of its own as soon as it is made. The keys of a window are in its buckets, and what is being imported
    /// brings its arrays.
    pub(crate) fn has_arrays(&self) -> bool {
        self.window.is_none() && !self.is_import()
    }

    /// The same with another one's description: what can change without another size. What it follows stays, and once it is filled it is.
    pub(crate) fn described(&self, like: &Self) -> Self {
        let is_filled = like.mirrors.is_some_and(|mirror| mirror.is_filled);
        Self {
            name: like.name.clone(),
            expires: like.expires,
            labels: like.labels.clone(),
            growth: like.growth,
            grow_at: like.grow_at,
            replaces: like.replaces,
            mirrors: self.mirrors.map(|mirror| Mirror { is_filled: mirror.is_filled || is_filled, ..mirror }),
            ..self.clone()
        }
    }

    /// What stands for the description: all that can change without another size. A change is made from it, and takes effect only
    /// while it is the same.
    pub fn description(&self) -> u64 {
        let percent = match self.growth {
            Growth::Fixed => 0,
            Growth::Percent(percent) => percent,
        };
        let is_filled = self.mirrors.is_some_and(|mirror| mirror.is_filled);
        let mut bytes = Vec::with_capacity(64 + self.name.len() + self.labels.len());
        bytes.extend((self.name.len() as u32).to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.extend(&self.labels);
        bytes.extend((self.labels.len() as u32).to_le_bytes());
        bytes.extend(self.expires.unwrap_or(NEVER).to_le_bytes());
        bytes.extend(percent.to_le_bytes());
        bytes.extend([self.grow_at.unwrap_or(0), u8::from(is_filled), u8::from(self.replaces.is_some())]);
        bytes.extend(self.replaces.unwrap_or(0).to_le_bytes());
        xxh3_64(&bytes)
    }

    /// Whether the filter consists of sub-filters that it makes by itself.
    pub(crate) fn is_chain(&self) -> bool {
        matches!(self.spec.layout, Layout::RedisBloom { .. })
    }

    /// The same filter in another size, or why that cannot be.
    pub fn resized(&self, capacity: u64, error: f64) -> Result<Self> {
        let next = Self {
            spec: Spec { capacity, error, ..self.spec },
            generation: self.generation.saturating_add(1),
            ..self.clone()
        };
        next.check()?;
        next.check_follows(self).map_err(Error::Invalid)?;
        Ok(next)
    }

    /// Says why this cannot be the next definition of a filter, if it cannot.
    pub(crate) fn check_follows(&self, now: &Self) -> Result<(), String> {
        let same = Self {
            spec: Spec { capacity: now.spec.capacity, error: now.spec.error, ..self.spec },
            ..self.described(now)
        };
        let expected = Self { generation: self.generation, ..now.clone() };
        if same != expected || self.generation <= now.generation {
            return Err(format!(
                "the filter {} is defined otherwise, in generation {}",
                now.name, now.generation
            ));
        }
        if self.is_chain() {
            return Err("a chain of sub-filters grows by itself only".into());
        }
        if self.window.is_some() {
            return Err("a window has no size of its own".into());
        }
        let grows =
            self.spec.capacity > now.spec.capacity && self.spec.error.to_bits() == now.spec.error.to_bits();
        if !self.retain && !grows {
            return Err("its keys were not kept: it can only grow, at the same error rate".into());
        }
        Ok(())
    }

    /// The bytes to put into an entry.
    pub fn encode(&self) -> Result<Bytes> {
        self.check()?;
        let percent = match self.growth {
            Growth::Fixed => 0,
            Growth::Percent(percent) => percent,
        };
        let window = self.window.unwrap_or(Window { length_ms: 0, buckets: 0 });
        // Most filters keep their name.
        let origin = if self.origin == self.name { "" } else { &self.origin };
        let mut bytes = Vec::with_capacity(64 + self.name.len() + origin.len() + self.labels.len());
        let version = match (self.grow_at, self.mirrors, self.replaces) {
            (Some(_), _, _) => VERSION_PACED,
            (None, Some(_), _) => VERSION_MIRRORING,
            (None, None, Some(_)) => VERSION_REPLACING,
            (None, None, None) => VERSION,
        };
        bytes.extend([version, u8::from(self.retain)]);
        bytes.extend((self.labels.len() as u16).to_le_bytes());
        bytes.extend(self.shards.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        bytes.extend(percent.to_le_bytes());
        bytes.extend(self.spec.to_bytes());
        bytes.extend(self.expires.unwrap_or(NEVER).to_le_bytes());
        bytes.extend(window.length_ms.to_le_bytes());
        bytes.extend(window.buckets.to_le_bytes());
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes.extend((origin.len() as u16).to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.extend(origin.as_bytes());
        bytes.extend(&self.labels);
        if version >= VERSION_MIRRORING {
            let is_filled = self.mirrors.is_some_and(|mirror| mirror.is_filled);
            let mut flags = u8::from(self.replaces.is_some()) | u8::from(is_filled) << 1;
            if version == VERSION_PACED {
                flags |= u8::from(self.mirrors.is_some()) << 2;
            }
            bytes.push(flags);
        }
        bytes.extend(self.grow_at);
        if let Some(mirror) = self.mirrors {
            [mirror.of, mirror.began_ms, mirror.capacity]
                .iter()
                .for_each(|it| bytes.extend(it.to_le_bytes()));
        }
        bytes.extend(self.replaces.into_iter().flat_map(u64::to_le_bytes));
        Ok(bytes.into())
    }

    /// Reads what [`encode`](Self::encode) gave.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let invalid = |why: String| Error::Invalid(format!("a definition of {} bytes: {why}", bytes.len()));
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(invalid("it is shorter than any".into()));
        };
        let Some((spec, rest)) = rest.split_first_chunk::<{ Spec::BYTES }>() else {
            return Err(invalid("it is shorter than any".into()));
        };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let text = |bytes: &[u8]| {
            std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| invalid(error.to_string()))
        };
        let [version, retain @ (0 | 1), labels_low, labels_high, ..] = *head else {
            return Err(invalid("its flags are unknown".into()));
        };
        let labels = u16::from_le_bytes([labels_low, labels_high]);
        let described = match version {
            VERSION_BARE if labels == 0 => Described::bare(text(rest)?),
            VERSION..=VERSION_NEWEST => Described::read(version, rest, labels.into(), text)?,
            _ => return Err(invalid("its version or its flags are unknown".into())),
        };
        let Described { name, origin, expires, labels, window, grow_at, replaces, mirrors } = described;
        let definition = Self {
            name,
            origin,
            spec: Spec::from_bytes(*spec).map_err(|error| invalid(error.to_string()))?,
            shards: word(4),
            retain: retain == 1,
            generation: word(8),
            growth: if word(12) == 0 { Growth::Fixed } else { Growth::Percent(word(12)) },
            grow_at,
            expires,
            labels,
            window,
            replaces,
            mirrors,
        };
        definition.check()?;
        Ok(definition)
    }

    /// Says what is wrong with the definition, if anything.
    pub fn check(&self) -> Result<()> {
        self.spec.check().map_err(|error| Error::Invalid(error.to_string()))?;
        check_filter_name(&self.name)?;
        check_filter_name(&self.origin)?;
        if self.labels.len() > LABELS_BYTES_MAX {
            let bytes = self.labels.len();
            return Err(Error::Invalid(format!("labels of {bytes} bytes; at most {LABELS_BYTES_MAX}")));
        }
        if let Some(window) = self.window {
            self.check_window(window)?;
        }
        if self.mirrors.is_some() {
            self.check_mirror()?;
        }
        if self.shards != 1 && self.is_chain() {
            return Err(Error::Invalid(format!("{} shards; a chain of sub-filters has one", self.shards)));
        }
        match self.growth {
            Growth::Percent(percent) if !(GROWTH_PERCENT_MIN..=GROWTH_PERCENT_MAX).contains(&percent) => {
                return Err(Error::Invalid(format!(
                    "growth to {percent} %; it must be {GROWTH_PERCENT_MIN} to {GROWTH_PERCENT_MAX}"
                )));
            }
            _ => {}
        }
        if let Some(percent) = self.grow_at.filter(|percent| !(1..=100).contains(percent)) {
            return Err(Error::Invalid(format!("growth at {percent} %; it must be 1 to 100")));
        }
        Plan::new(&self.spec, self.shards).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(())
    }

    /// What follows another filter has to know what it holds.
    fn check_mirror(&self) -> Result<()> {
        let why = if self.window.is_some() {
            "a window cannot be filled anew: its keys are in its buckets"
        } else if self.is_chain() {
            "a chain of sub-filters cannot be filled anew: choose another layout"
        } else if self.spec.kind != Kind::Bloom && !self.retain {
            "a counting filter is filled anew only if its keys are kept: removals need them"
        } else {
            return Ok(());
        };
        Err(Error::Invalid(why.into()))
    }

    fn check_window(&self, Window { length_ms, buckets }: Window) -> Result<()> {
        let why = if !(1..=WINDOW_BUCKETS_MAX).contains(&buckets) {
            format!("a window of {buckets} buckets; it must be 1 to {WINDOW_BUCKETS_MAX}")
        } else if !(u64::from(buckets)..=WINDOW_MILLIS_MAX).contains(&length_ms) {
            format!("a window of {length_ms} milliseconds; it must be {buckets} to {WINDOW_MILLIS_MAX}")
        } else if self.spec.kind != Kind::Bloom {
            format!("a window of kind {}; only bloom filters have windows", self.spec.kind)
        } else if self.shards != 1 {
            format!("a window with {} shards; its buckets have them", self.shards)
        } else {
            return Ok(());
        };
        Err(Error::Invalid(why))
    }
}

/// The capacity to choose for so many distinct keys: half as many more, so that the filter does not begin to grow with the last of
/// them, rounded up to two digits.
pub fn capacity_for(keys: u64) -> u64 {
    let most = keys.saturating_add(keys / 2).max(1_000);
    let unit = 10_u64.pow(most.ilog10() - 1);
    most.div_ceil(unit).saturating_mul(unit)
}

/// The slot of what was made under a name.
pub(crate) fn home_of(origin: &str, slots: u32) -> u16 {
    ((u128::from(xxh3_64(origin.as_bytes())) * u128::from(slots)) >> 64) as u16
}

/// The name of a filter that is filled to take the place of another.
pub(crate) fn rebuild_name(of: u64) -> String {
    format!("{INTERNAL}{REBUILD}{of:016x}")
}

/// The part of a stored definition that the first version lacked.
struct Described {
    name: String,
    origin: String,
    expires: Option<u64>,
    labels: Bytes,
    window: Option<Window>,
    grow_at: Option<u8>,
    replaces: Option<u64>,
    mirrors: Option<Mirror>,
}

impl Described {
    fn bare(name: String) -> Self {
        let (expires, labels, window) = (None, Bytes::new(), None);
        let (grow_at, replaces, mirrors) = (None, None, None);
        Self { origin: name.clone(), name, expires, labels, window, grow_at, replaces, mirrors }
    }

    fn read(
        version: u8,
        bytes: &[u8],
        labels: usize,
        text: impl Fn(&[u8]) -> Result<String>,
    ) -> Result<Self> {
        let mut fields = Fields::new(bytes, "a definition");
        let (expires, length_ms, buckets) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let (name, origin) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        let name = text(fields.bytes(name)?)?;
        let origin = if origin == 0 { name.clone() } else { text(fields.bytes(origin)?)? };
        let labels = Bytes::copy_from_slice(fields.bytes(labels)?);
        let (mut replacing, mut mirrors) = (version == VERSION_REPLACING, None);
        let (mut grow_at, mut is_mirror, mut is_filled) = (None, false, false);
        if version >= VERSION_MIRRORING {
            let flags = fields.u8()?;
            is_mirror = version == VERSION_MIRRORING || flags & 0b100 != 0;
            is_filled = flags & 0b10 != 0;
            replacing = flags & 1 != 0;
            if flags > if version == VERSION_PACED { 0b111 } else { 0b11 } || is_filled && !is_mirror {
                return Err(fields.corrupt("unknown flags"));
            }
        }
        if version == VERSION_PACED {
            grow_at = Some(fields.u8()?);
        }
        if is_mirror {
            let (of, began_ms, capacity) = (fields.u64()?, fields.u64()?, fields.u64()?);
            mirrors = Some(Mirror { of, began_ms, capacity, is_filled });
        }
        let replaces = replacing.then(|| fields.u64()).transpose()?;
        fields.end()?;
        let windowed = length_ms != 0 || buckets != 0;
        Ok(Self {
            name,
            origin,
            expires: (expires != NEVER).then_some(expires),
            labels,
            window: windowed.then_some(Window { length_ms, buckets }),
            grow_at,
            replaces,
            mirrors,
        })
    }
}

/// Says what is wrong with a filter's name, if anything.
fn check_filter_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > FILTER_NAME_BYTES_MAX {
        let bytes = name.len();
        let why = format!("a filter's name of {bytes} bytes; it must be 1 to {FILTER_NAME_BYTES_MAX}");
        return Err(Error::Invalid(why));
    }
    Ok(())
}
