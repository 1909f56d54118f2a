//! Families: how key bytes become a fingerprint.

mod bytes;
mod murmur3;
mod murmur64a;

use std::fmt;
use std::str::FromStr;

use highway::{HighwayHash, HighwayHasher, Key};
use siphasher::sip128::SipHasher13;
use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, Fingerprint, Result};

/// How a key becomes a fingerprint; fixed when a filter is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Family {
    /// MurmurHash3 x64 128, seed 0: what Guava reads and writes. The default.
    #[default]
    Murmur3 = 1, // persisted, as all tags here: never reused
    /// MurmurHash64A twice, the second seeded by the first: what RedisBloom does.
    RedisBloom = 2,
    /// HighwayHash 128 with the key that Redisson fixed.
    Redisson = 3,
    /// XXH3 128: the fastest, when nothing foreign reads the filter.
    Xxh3 = 4,
    /// SipHash-1-3 128 with a secret key: for keys chosen by strangers.
    Keyed = 5,
}

impl Family {
    /// All families, in the order of their tags.
    pub const ALL: [Self; 5] = [Self::Murmur3, Self::RedisBloom, Self::Redisson, Self::Xxh3, Self::Keyed];

    /// The name used in specs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Murmur3 => "murmur3",
            Self::RedisBloom => "redisbloom",
            Self::Redisson => "redisson",
            Self::Xxh3 => "xxh3",
            Self::Keyed => "keyed",
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|family| *family as u8 == tag)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Family {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name).ok_or_else(|| {
            Error::invalid(
                "family",
                format!("{name:?}; known are murmur3, redisbloom, redisson, xxh3, keyed"),
            )
        })
    }
}

/// The secret of the `keyed` family. It is never stored with a filter and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A family made ready to hash.
#[derive(Clone)]
pub struct Hasher {
    family: Family,
    sip: SipHasher13,
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("family", &self.family).finish_non_exhaustive()
    }
}

/// The key that Redisson hashes with, as published in its source.
const REDISSON_KEY: Key =
    Key([0x9e37_79b9_7f4a_7c15, 0xf39c_c060_5ced_c834, 0x1082_276b_f3a2_7251, 0xf86c_6a11_d0c1_8e95]);

impl Hasher {
    /// Readies a family. `keyed` needs the secret; the others must not be given one, so that nobody believes
    /// that it protects them.
    pub fn new(family: Family, secret: Option<&Secret>) -> Result<Self> {
        let sip = match (family, secret) {
            (Family::Keyed, Some(Secret(bytes))) => SipHasher13::new_with_key(bytes),
            (Family::Keyed, None) => {
                return Err(Error::invalid("family", "keyed needs a secret of 16 bytes"));
            }
            (_, None) => SipHasher13::new(),
            (other, Some(_)) => {
                return Err(Error::invalid("secret", format!("the family {other} uses none; keyed does")));
            }
        };
        Ok(Self { family, sip })
    }

    /// The family that this hasher computes.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The fingerprint of a key.
    #[inline]
    pub fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        match self.family {
            Family::Murmur3 => murmur3::hash(key),
            Family::RedisBloom => murmur64a::hash(key),
            Family::Redisson => redisson(key),
            Family::Xxh3 => xxh3(key),
            Family::Keyed => self.keyed(key),
        }
    }

    /// Hashes `keys` into `out`, pair by pair, and shows each fingerprint to `seen` as soon as it is known.
    ///
    /// The family is chosen once for the whole run.
    #[inline]
    pub(crate) fn fingerprints<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        out: &mut [Fingerprint],
        seen: impl Fn(Fingerprint),
    ) {
        match self.family {
            Family::Murmur3 => hash_all(keys, out, murmur3::hash, seen),
            Family::RedisBloom => hash_all(keys, out, murmur64a::hash, seen),
            Family::Redisson => hash_all(keys, out, redisson, seen),
            Family::Xxh3 => hash_all(keys, out, xxh3, seen),
            Family::Keyed => hash_all(keys, out, |key| self.keyed(key), seen),
        }
    }

    /// Whether both give every key the same fingerprint, so that one of them need not be asked.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.family == other.family && self.secret_check() == other.secret_check()
    }

    /// A number that differs between secrets and is the same for every hasher of a family without one.
    ///
    /// Stored with a filter, it tells a wrong secret from a right one without giving the secret away.
    pub(crate) fn secret_check(&self) -> u64 {
        if self.family == Family::Keyed { self.keyed(b"umbel: which secret is this?").first } else { 0 }
    }

    #[inline]
    fn keyed(&self, key: &[u8]) -> Fingerprint {
        let hash = self.sip.hash(key);
        Fingerprint { first: hash.h1, second: hash.h2 }
    }
}

#[inline(always)]
fn hash_all<K: AsRef<[u8]>>(
    keys: &[K],
    out: &mut [Fingerprint],
    hash: impl Fn(&[u8]) -> Fingerprint,
    seen: impl Fn(Fingerprint),
) {
    for (key, out) in keys.iter().zip(out) {
        *out = hash(key.as_ref());
        seen(*out);
    }
}

#[inline]
fn xxh3(key: &[u8]) -> Fingerprint {
    let hash = xxh3_128(key);
    Fingerprint { first: hash as u64, second: (hash >> 64) as u64 }
}

fn redisson(key: &[u8]) -> Fingerprint {
    let [first, second] = HighwayHasher::new(REDISSON_KEY).hash128(key);
    Fingerprint { first, second }
}
