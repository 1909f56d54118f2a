use std::io;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::{MmapOptions, MmapRaw};

use super::{LINE_BYTES, Line};
use crate::{Error, Result};

/// From this size on an array has a mapping of its own: zeroed page by page when touched, huge pages where given.
const MAPPED_BYTES_MIN: u64 = 8 << 20;
/// From this size on arrays share mappings, because a huge page is too large for one of them: the shards of a large filter would
/// otherwise lie in so many small pages that every key waits for the page table.
const SHARED_BYTES_MIN: u64 = 128 << 10;
/// Bytes of a mapping that arrays share.
const ARENA_BYTES: usize = 64 << 20;
/// Arrays in a shared mapping begin at multiples of this, so that their pages are theirs alone. All systems have pages of this size
/// or of a divisor.
const SHARED_ALIGNMENT: usize = 64 << 10;
/// Huge pages start at multiples of their size.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed array of lines.
#[derive(Debug)]
pub(crate) struct Memory(Backing);

#[derive(Debug)]
enum Backing {
    Heap(Box<[Line]>),
    Mapped { map: MmapRaw, offset: usize, lines: usize },
    Shared(Share),
}

/// A part of a shared mapping that no other array has.
#[derive(Debug)]
struct Share {
    map: Arc<MmapRaw>,
    offset: usize,
    lines: usize,
}

/// The mapping from which the next arrays are cut, and where it is free. It is gone when its last array is.
static ARENA: Mutex<(Weak<MmapRaw>, usize)> = Mutex::new((Weak::new(), 0));

impl Share {
    fn new(bytes: usize) -> io::Result<Self> {
        let mut arena = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
        let (map, offset) = match arena.0.upgrade() {
            Some(map) if arena.1 + bytes <= map.len() => (map, arena.1),
            _ => {
                let (map, offset) = map_huge(ARENA_BYTES, ARENA_BYTES)?;
                (Arc::new(map), offset)
            }
        };
        *arena = (Arc::downgrade(&map), offset + bytes.next_multiple_of(SHARED_ALIGNMENT));
        Ok(Self { map, offset, lines: bytes / LINE_BYTES as usize })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        {
            let bytes = (self.lines * LINE_BYTES as usize).next_multiple_of(SHARED_ALIGNMENT);
            let bytes = bytes.min(self.map.len() - self.offset);
            // SAFETY: the pages belong to this array alone, which is going; nobody gets them again. If it fails, they are given
            // back with the whole mapping.
            let _ = unsafe {
                self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.offset, bytes)
            };
        }
    }
}

/// A mapping with room for `bytes` behind the multiple of a huge page that it is given with; the first `huge` bytes from there on lie
/// in huge pages, where the system gives any.
fn map_huge(bytes: usize, huge: usize) -> io::Result<(MmapRaw, usize)> {
    // Whole huge pages, and one more to find the first of them in.
    let pages = bytes.div_ceil(HUGE_PAGE_BYTES) + 1;
    let whole = pages.checked_mul(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let map = MmapRaw::from(MmapOptions::new().len(whole).map_anon()?);
    let offset = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
    // Without huge pages the filter is slower, not wrong.
    #[cfg(target_os = "linux")]
    {
        let _ = map.advise_range(memmap2::Advice::HugePage, offset, huge);
        let _ = map.advise_range(memmap2::Advice::NoHugePage, offset + huge, whole - offset - huge);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = huge;
    Ok((map, offset))
}

impl Memory {
    /// Reserves `lines` zeroed lines, or says why that cannot be.
    pub(crate) fn zeroed(lines: u64) -> Result<Self> {
        let bytes = lines.saturating_mul(LINE_BYTES);
        let backing = if bytes >= MAPPED_BYTES_MIN && !cfg!(any(loom, miri)) {
            Self::mapped(bytes)
        } else if bytes >= SHARED_BYTES_MIN && !cfg!(any(loom, miri)) {
            usize::try_from(bytes).map_err(io::Error::other).and_then(Share::new).map(Backing::Shared)
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
        let (map, offset) = map_huge(bytes, huge_bytes(bytes))?;
        Ok(Backing::Mapped { map, offset, lines: bytes / LINE_BYTES as usize })
    }
}

/// How much of an array lies in huge pages: all of it, unless the last one would be so empty that it wastes an eighth.
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
            Backing::Shared(Share { map, offset, lines }) => {
                debug_assert!(*offset + lines * LINE_BYTES as usize <= map.len());
                // SAFETY: the mapping lives as long as this value, which has these bytes of it alone: `ARENA` gives out each
                // part once. They lie within the mapping, at a multiple of the line's alignment. Zero bytes are valid
                // atomics, and atomics may be shared.
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
            Backing::Shared(Share { map, offset, lines }) => {
                // SAFETY: as for `deref`; and `self` is borrowed for as long as the slice, so it is the only one.
                unsafe { slice::from_raw_parts_mut(map.as_mut_ptr().add(*offset).cast(), *lines) }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn arrays_in_one_mapping_are_each_alone() {
        let sizes = [1, 2047, 2048, 2049, 11_111, 20_000, 131_071, 131_072];
        let filled = |mark: u64, lines: u64| {
            let memory = Memory::zeroed(lines).unwrap();
            for line in &*memory {
                line.0.iter().for_each(|word| assert_eq!(word.swap(mark, Ordering::Relaxed), 0));
            }
            memory
        };
        let mut kept = Vec::new();
        for (mark, lines) in (1..).zip((0..6).flat_map(|_| sizes)) {
            kept.push((mark, filled(mark, lines)));
            if mark % 3 == 0 {
                kept.remove(kept.len() / 2);
            }
        }
        for (mark, memory) in &kept {
            assert!(memory.iter().flat_map(|line| &line.0).all(|word| word.load(Ordering::Relaxed) == *mark));
        }
    }
}
