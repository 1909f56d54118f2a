use std::fmt;

/// A place in a partition of a log: opaque, and ordered as the entries are.
///
/// An entry's position is the place right after it, so reading after a position gives what came later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position([u8; 16]);

impl Position {
    /// Before every entry.
    pub const START: Self = Self([0; 16]);

    /// A position of a log that numbers its places.
    pub fn from_number(number: u128) -> Self {
        Self(number.to_be_bytes())
    }

    /// The number that [`from_number`](Self::from_number) was given.
    pub fn number(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// The stored form, which sorts as positions do.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Reads what [`to_bytes`](Self::to_bytes) gave.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.number())
    }
}
