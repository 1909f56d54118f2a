//! Passwords as they are kept: only their SHA-256, compared in constant time.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// The SHA-256 of a password. It is equal in constant time, so that nobody learns from the time of an answer how
/// much of a guess was right.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    /// What is kept of `password`.
    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// Reads 64 lower-case hexadecimal digits, the only spelling that Redis takes.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if text.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Digest {}

/// Not even the digest: short passwords are found from it.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_redis() {
        let digest = Digest::of(b"pw");
        let hex = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
        assert_eq!(digest.hex(), hex);
        assert_eq!(Digest::from_hex(hex), Some(digest));
        assert_ne!(digest, Digest::of(b"pW"));
        for wrong in ["", "zz", &hex.to_uppercase(), &hex[1..], &format!("{hex}0"), &"é".repeat(32)] {
            assert!(Digest::from_hex(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{digest:?}"), "Digest(..)");
    }
}
