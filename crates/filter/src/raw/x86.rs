//! Vector kernels. A line is loaded by inline assembly, because it may be changing: to the compiler this is an
//! opaque read, to the processor a load of which no byte can be torn. Cells never straddle bytes, except those
//! of one bit, of which each is either set or not; so the vector sees what eight atomic loads might have seen.

use core::arch::asm;
use core::arch::x86_64::{
    __m256i, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_and_si256, _mm256_castsi256_pd, _mm256_cmpeq_epi64,
    _mm256_movemask_pd, _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_sllv_epi64,
    _mm256_srlv_epi64, _mm512_and_si512, _mm512_set1_epi64, _mm512_setr_epi64, _mm512_sllv_epi64,
    _mm512_srlv_epi64, _mm512_testn_epi64_mask,
};

use super::kernel::{Missing, Work, cell_mask};
use super::{LINE_WORDS, Line};
use crate::sync::AtomicU64;

/// Proof that the processor has AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

/// Proof that the processor has AVX-512 F.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    #[inline]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2")]
        fn compiled<W: Work>(test: Avx2, work: W) -> W::Output {
            work.with(test)
        }
        // SAFETY: `self` proves that the processor has the feature.
        unsafe { compiled(self, work) }
    }
}

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    #[inline]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx512f")]
        fn compiled<W: Work>(test: Avx512, work: W) -> W::Output {
            work.with(test)
        }
        // SAFETY: `self` proves that the processor has the feature.
        unsafe { compiled(self, work) }
    }
}

impl Missing for Avx2 {
    #[inline(always)]
    fn missing<const CELL: u32>(self, line: &Line, second: u64) -> u8 {
        // SAFETY: `self` proves that the processor has the feature.
        unsafe { missing_avx2::<CELL>(line, second) }
    }
}

impl Missing for Avx512 {
    #[inline(always)]
    fn missing<const CELL: u32>(self, line: &Line, second: u64) -> u8 {
        // SAFETY: `self` proves that the processor has the feature.
        unsafe { missing_avx512::<CELL>(line, second) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn missing_avx2<const CELL: u32>(line: &Line, second: u64) -> u8 {
    let (low, high) = line.0.split_at(LINE_WORDS / 2);
    let low = zero_cells_avx2::<CELL>(low, _mm256_setr_epi64x(0, 6, 12, 18), second);
    let high = zero_cells_avx2::<CELL>(high, _mm256_setr_epi64x(24, 30, 36, 42), second);
    low | high << (LINE_WORDS / 2)
}

#[inline]
#[target_feature(enable = "avx2")]
fn zero_cells_avx2<const CELL: u32>(words: &[AtomicU64], from: __m256i, second: u64) -> u8 {
    let shifts = _mm256_and_si256(
        _mm256_srlv_epi64(_mm256_set1_epi64x(second.cast_signed()), from),
        _mm256_set1_epi64x(i64::from(64 - CELL)),
    );
    let cells = _mm256_sllv_epi64(_mm256_set1_epi64x(cell_mask(CELL).cast_signed()), shifts);
    let words: __m256i = {
        assert!(words.len() == LINE_WORDS / 2);
        let loaded;
        // SAFETY: the slice has 32 bytes, at half a line's alignment; the assembly only reads them.
        unsafe {
            asm!("vmovdqa {to}, [{from}]", to = lateout(ymm_reg) loaded, from = in(reg) words.as_ptr(),
                options(pure, readonly, nostack, preserves_flags));
        }
        loaded
    };
    let zero = _mm256_cmpeq_epi64(_mm256_and_si256(words, cells), _mm256_setzero_si256());
    _mm256_movemask_pd(_mm256_castsi256_pd(zero)) as u8
}

#[inline]
#[target_feature(enable = "avx512f")]
fn missing_avx512<const CELL: u32>(line: &Line, second: u64) -> u8 {
    let shifts = _mm512_and_si512(
        _mm512_srlv_epi64(
            _mm512_set1_epi64(second.cast_signed()),
            _mm512_setr_epi64(0, 6, 12, 18, 24, 30, 36, 42),
        ),
        _mm512_set1_epi64(i64::from(64 - CELL)),
    );
    let cells = _mm512_sllv_epi64(_mm512_set1_epi64(cell_mask(CELL).cast_signed()), shifts);
    let words: __m512i;
    // SAFETY: a line has 64 bytes at an alignment of 64; the assembly only reads them.
    unsafe {
        asm!("vmovdqa64 {to}, [{from}]", to = lateout(zmm_reg) words, from = in(reg) line,
            options(pure, readonly, nostack, preserves_flags));
    }
    _mm512_testn_epi64_mask(words, cells)
}

#[inline(always)]
pub(super) fn prefetch(line: &Line) {
    // SAFETY: a prefetch reads nothing that the program could see and cannot fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(line).cast()) };
}
