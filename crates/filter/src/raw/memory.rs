use std::io;
use std::ops::{Deref, DerefMut};
use std::slice;

use memmap2::{MmapOptions, MmapRaw};

use super::{LINE_BYTES, Line};
use crate::{Error, Result};

/// From this size on an array has a mapping of its own: zeroed page by page when touched, huge pages where given.
const MAPPED_BYTES_MIN: u64 = 1 << 20;
/// Huge pages start at multiples of their size.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed array of lines.
#[derive(Debug)]
pub(crate) struct Memory(Backing);

#[derive(Debug)]
enum Backing {
    Heap(Box<[Line]>),
    Mapped { map: MmapRaw, offset: usize, lines: usize },
}

impl Memory {
    /// Reserves `lines` zeroed lines, or says why that cannot be.
    pub(crate) fn zeroed(lines: u64) -> Result<Self> {
        let bytes = lines.saturating_mul(LINE_BYTES);
        let backing = if bytes >= MAPPED_BYTES_MIN && !cfg!(any(loom, miri)) {
            Self::mapped(bytes)
        } else {
            Self::heap(lines)
        };
        backing.map(Self).map_err(|source| Error::NoMemory { bytes, source })
    }

    fn heap(lines: u64) -> io::Result<Backing> {
        let mut heap = Vec::new();
        let lines = usize::try_from(lines).map_err(io::Error::other)?;
        heap.try_reserve_exact(lines).map_err(io::Error::other)?;
        heap.resize_with(lines, Line::default);
        Ok(Backing::Heap(heap.into_boxed_slice()))
    }

    fn mapped(bytes: u64) -> io::Result<Backing> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        // Whole huge pages, and one more to find the first of them in.
        let pages = bytes.div_ceil(HUGE_PAGE_BYTES) + 1;
        let whole = pages.checked_mul(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapRaw::from(MmapOptions::new().len(whole).map_anon()?);
        let offset = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // Without huge pages the filter is slower, not wrong.
        #[cfg(target_os = "linux")]
        {
            let huge = huge_bytes(bytes);
            let _ = map.advise_range(memmap2::Advice::HugePage, offset, huge);
            let _ = map.advise_range(memmap2::Advice::NoHugePage, offset + huge, whole - offset - huge);
        }
        Ok(Backing::Mapped { map, offset, lines: bytes / LINE_BYTES as usize })
    }
}

/// How much of an array lies in huge pages: all of it, unless the last one would be so empty that it wastes an eighth.
#[cfg(target_os = "linux")]
fn huge_bytes(bytes: usize) -> usize {
    let all = bytes.next_multiple_of(HUGE_PAGE_BYTES);
    if (all - bytes) * 8 <= bytes { all } else { all - HUGE_PAGE_BYTES }
}

impl Deref for Memory {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        match &self.0 {
            Backing::Heap(lines) => lines,
            Backing::Mapped { map, offset, lines } => {
                debug_assert!(*offset + lines * LINE_BYTES as usize <= map.len());
                // SAFETY: the mapping is private to this value, lives as long as it, is longer than `lines` lines
                // by a huge page or more, and `offset` lies within that page at a multiple of the line's alignment.
                // Zero bytes are valid atomics, and atomics may be shared.
                unsafe { slice::from_raw_parts(map.as_ptr().add(*offset).cast(), *lines) }
            }
        }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Line] {
        match &mut self.0 {
            Backing::Heap(lines) => lines,
            Backing::Mapped { map, offset, lines } => {
                // SAFETY: as for `deref`; and `self` is borrowed for as long as the slice, so it is the only one.
                unsafe { slice::from_raw_parts_mut(map.as_mut_ptr().add(*offset).cast(), *lines) }
            }
        }
    }
}
