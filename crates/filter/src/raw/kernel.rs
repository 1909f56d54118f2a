use super::{LINE_WORDS, Line};
use crate::sync::Ordering;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
use super::x86::{Avx2, Avx512};

/// The one question that the blocked layout asks of the processor.
pub(crate) trait Missing: Copy {
    /// Which of the eight words of `line` have a zero in the cell that `second` names for them, as a bit each.
    ///
    /// A cell has `CELL` bits, and the cell of word `j` starts at bit [`shift`]`::<CELL>(second, j)`.
    fn missing<const CELL: u32>(self, line: &Line, second: u64) -> u8;
}

/// Where the cell of word `word` starts.
#[inline(always)]
pub(crate) fn shift<const CELL: u32>(second: u64, word: usize) -> u32 {
    (second >> (6 * word)) as u32 & (64 - CELL)
}

/// The bits of the cell that starts at bit 0.
pub(crate) const fn cell_mask(cell: u32) -> u64 {
    (1 << cell) - 1
}

/// The safe twin, right on every processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl Missing for Scalar {
    #[inline(always)]
    fn missing<const CELL: u32>(self, line: &Line, second: u64) -> u8 {
        let mut missing = 0;
        for word in 0..LINE_WORDS {
            let cell = cell_mask(CELL) << shift::<CELL>(second, word);
            let zero = line.0[word].load(Ordering::Relaxed) & cell == 0;
            missing |= u8::from(zero) << word;
        }
        missing
    }
}

/// Work to be compiled once for each instruction set; implementors mark `with` as `#[inline(always)]`.
pub(crate) trait Work {
    type Output;
    fn with<M: Missing>(self, test: M) -> Self::Output;
}

/// The instruction set chosen for this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {
    Scalar(Scalar),
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    Avx2(Avx2),
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    Avx512(Avx512),
}

impl Kernel {
    /// Every instruction set that this machine has, best first; the last is always the portable one.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        let vectors = [Avx512::detect().map(Self::Avx512), Avx2::detect().map(Self::Avx2)];
        #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
        let vectors: [Option<Self>; 0] = [];
        vectors.into_iter().flatten().chain([Self::Scalar(Scalar)])
    }

    /// The best instruction set that this machine has.
    pub(crate) fn detect() -> Self {
        Self::all().next().unwrap_or(Self::Scalar(Scalar))
    }

    /// Does all of some work with the chosen instruction set.
    #[inline]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Scalar(test) => work.with(test),
            #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
            Self::Avx2(test) => test.run(work),
            #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
            Self::Avx512(test) => test.run(work),
        }
    }
}

/// For a single question: chosen at each, at the price of a call.
impl Missing for Kernel {
    #[inline(always)]
    fn missing<const CELL: u32>(self, line: &Line, second: u64) -> u8 {
        match self {
            Self::Scalar(test) => test.missing::<CELL>(line, second),
            #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
            Self::Avx2(test) => test.missing::<CELL>(line, second),
            #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
            Self::Avx512(test) => test.missing::<CELL>(line, second),
        }
    }
}

/// Asks for a line to be brought near; a hint, which changes nothing but time.
#[inline(always)]
pub(crate) fn prefetch(line: &Line) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    super::x86::prefetch(line);
    #[cfg(all(target_arch = "aarch64", not(loom), not(miri)))]
    // SAFETY: a prefetch reads nothing that the program could see and cannot fault.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), loom, miri))]
    let _ = line;
}
