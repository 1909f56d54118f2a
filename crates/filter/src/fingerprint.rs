/// The 16 bytes that stand for a key: what is logged, routed and folded.
///
/// A fingerprint is enough to find a key's place in an array of any size and layout of its family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct Fingerprint {
    /// The first word of the hash; its high bits choose a line of the blocked layout.
    pub first: u64,
    /// The second word; its low 48 bits choose the cells within a line.
    pub second: u64,
}

const _: () = assert!(size_of::<Fingerprint>() == 16);

impl Fingerprint {
    /// The stored form: both words, little-endian.
    #[inline]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.second) << 64 | u128::from(self.first)).to_le_bytes()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    #[inline]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { first: both as u64, second: (both >> 64) as u64 }
    }

    /// The slot of a deployment with `slots` slots that this key belongs to.
    ///
    /// It comes from a mix of both words: among the keys of one slot the bits that choose lines and cells are
    /// still uniform, so a shard has the error rate of the whole filter.
    ///
    /// ```
    /// # use umbel_filter::{Family, Hasher};
    /// let hasher = Hasher::new(Family::Murmur3, None)?;
    /// assert!(hasher.fingerprint(b"a key").slot(256) < 256);
    /// # Ok::<(), umbel_filter::Error>(())
    /// ```
    #[inline]
    pub fn slot(self, slots: u32) -> u32 {
        let mixed = (self.first.rotate_left(29) ^ self.second).wrapping_mul(0xd6e8_feb8_6659_fd93);
        scale(mixed ^ (mixed >> 32), u64::from(slots)) as u32
    }

    /// An independent fingerprint derived from this one, for a key's place in the next bank.
    #[inline]
    pub(crate) fn rehashed(self) -> Self {
        let first = (self.first ^ self.second.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let second = (self.second ^ (first >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self { first: first ^ (second >> 32), second: second ^ (second >> 31) }
    }
}

/// Maps a uniform word onto `0..n` without division.
#[inline]
pub(crate) fn scale(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}
