//! MurmurHash64A, the hash behind RedisBloom.

use super::bytes::{load_tail, load_u64};
use crate::Fingerprint;

const M: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

#[inline]
pub(super) fn hash(key: &[u8]) -> Fingerprint {
    let first = seeded(key, M);
    Fingerprint { first, second: seeded(key, first) }
}

#[inline]
fn seeded(key: &[u8], seed: u64) -> u64 {
    let mut h = seed ^ (key.len() as u64).wrapping_mul(M);
    let (blocks, tail) = key.as_chunks::<8>();
    for block in blocks {
        let mut k = load_u64(block, 0).wrapping_mul(M);
        k ^= k >> SHIFT;
        h = (h ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        h = (h ^ load_tail(key, tail.len())).wrapping_mul(M);
    }
    h = (h ^ (h >> SHIFT)).wrapping_mul(M);
    h ^ (h >> SHIFT)
}
