//! Little-endian loads of key bytes, with few branches on the length.

/// Eight bytes from `at`.
#[inline]
pub(super) fn load_u64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

#[inline]
fn load_u32(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from(u32::from_le_bytes(*word)))
}

/// The last `length` bytes of `key`, fewer than eight, as the low bytes of a word.
#[inline]
pub(super) fn load_tail(key: &[u8], length: usize) -> u64 {
    debug_assert!(length < 8 && length <= key.len());
    if length == 0 {
        0
    } else if let Some(last) = key.last_chunk::<8>() {
        u64::from_le_bytes(*last) >> (64 - 8 * length)
    } else {
        load_short(&key[key.len() - length..])
    }
}

/// All of a key of one to seven bytes: overlapping loads instead of a loop.
#[inline]
fn load_short(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    if n >= 4 {
        load_u32(bytes, 0) | load_u32(bytes, n - 4) << (8 * (n - 4))
    } else {
        let (first, middle, last) = (bytes[0], bytes[n / 2], bytes[n - 1]);
        u64::from(first) | u64::from(middle) << (8 * (n / 2)) | u64::from(last) << (8 * (n - 1))
    }
}

/// What follows the last whole 16 bytes of `key`, zero-padded, as two words.
#[inline]
pub(super) fn tail_words(key: &[u8]) -> (u64, u64) {
    let length = key.len() % 16;
    if let Some(last) = key.last_chunk::<16>() {
        // Two shifts, because a tail of no bytes takes one by all 128 bits.
        let tail = u128::from_le_bytes(*last) >> 1 >> (127 - 8 * length);
        (tail as u64, (tail >> 64) as u64)
    } else if length >= 8 {
        (load_u64(key, 0), load_tail(key, length - 8))
    } else {
        (load_tail(key, length), 0)
    }
}
