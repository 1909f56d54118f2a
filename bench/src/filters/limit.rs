//! What the machine can do at all: random cache lines, each asked for in time.

use umbel_filter::Fingerprint;

use super::keys::scale;
use crate::measure::per_item;

/// One cache line.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u64; 8]);

/// How far ahead lines may be asked for: the fastest of these is the limit.
pub(super) const AHEAD: [usize; 3] = [16, 32, 64];

/// An array of the size of a filter, to be touched at random.
pub(super) struct Limit(Vec<Line>);

impl Limit {
    pub(super) fn new(bytes: u64) -> Self {
        let lines = (bytes as usize).div_ceil(size_of::<Line>()).max(1);
        // Written with ones: an array of zeros may be one page of zeros, seen many times over.
        Self(vec![Line([1; 8]); lines])
    }

    /// Nanoseconds a line for each distance of [`AHEAD`].
    pub(super) fn measure(&self, keys: &[Fingerprint]) -> [f64; AHEAD.len()] {
        AHEAD.map(|ahead| per_item(keys.len(), || self.touch(keys, ahead)).0)
    }

    fn touch(&self, keys: &[Fingerprint], ahead: usize) -> u64 {
        let line = |key: &Fingerprint| &self.0[scale(key.first, self.0.len() as u64) as usize];
        let (near, far) = keys.split_at(keys.len().min(ahead));
        near.iter().for_each(|key| prefetch(line(key)));
        let mut sum = 0_u64;
        for (key, ahead) in keys.iter().zip(far) {
            prefetch(line(ahead));
            sum = sum.wrapping_add(line(key).0[0]);
        }
        keys[far.len()..].iter().fold(sum, |sum, key| sum.wrapping_add(line(key).0[0]))
    }
}

#[inline(always)]
fn prefetch(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: a prefetch reads nothing that the program could see and cannot fault.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(line).cast());
    }
    #[cfg(target_arch = "aarch64")]
    #[allow(unsafe_code)]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}
