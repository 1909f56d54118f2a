//! MurmurHash3 x64 128 with seed 0, the hash behind Guava's `murmur3_128`.

use super::bytes::{load_u64, tail_words};
use crate::Fingerprint;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

#[inline]
pub(super) fn hash(key: &[u8]) -> Fingerprint {
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let (blocks, _) = key.as_chunks::<16>();
    for block in blocks {
        h1 ^= mix_first(load_u64(block, 0));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_second(load_u64(block, 8));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // A zero word mixes to zero, so a tail of any length takes the same path.
    let (low, high) = tail_words(key);
    h1 ^= mix_first(low);
    h2 ^= mix_second(high);

    h1 ^= key.len() as u64;
    h2 ^= key.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = avalanche(h1);
    h2 = avalanche(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    Fingerprint { first: h1, second: h2 }
}

#[inline]
fn mix_first(word: u64) -> u64 {
    word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
fn mix_second(word: u64) -> u64 {
    word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline]
fn avalanche(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}
