//! A heap whose large blocks lie on huge pages. Umbel asks for them for its arrays; rivals keep theirs on the plain
//! heap and would be compared with a handicap.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

const HUGE_PAGE_BYTES: usize = 2 << 20;
/// From this size on Umbel's arrays are on huge pages, too.
const LARGE_BYTES_MIN: usize = 1 << 20;

pub(crate) struct HugePages;

/// What is asked of the system for a large block: whole huge pages.
fn whole_pages(layout: Layout) -> Option<Layout> {
    if layout.size() < LARGE_BYTES_MIN {
        return None;
    }
    let size = layout.size().checked_next_multiple_of(HUGE_PAGE_BYTES)?;
    Layout::from_size_align(size, layout.align().max(HUGE_PAGE_BYTES)).ok()
}

/// Must come before the first touch, which decides on the kind of page.
fn advise(block: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    if !block.is_null() {
        // SAFETY: the range is a block of whole pages that was just allocated. The advice changes no byte of it, and
        // without it the block is slower, not wrong.
        unsafe { libc::madvise(block.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (block, bytes);
}

// SAFETY: everything is left to the system's allocator. Which layout it is told is a function of the caller's layout
// alone, so a block is freed with the layout that it was allocated with.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(whole) = whole_pages(layout) else {
            // SAFETY: the caller's promise about `layout` is passed on.
            return unsafe { System.alloc(layout) };
        };
        // SAFETY: `whole` is no smaller than `layout`, whose size is not zero.
        let block = unsafe { System.alloc(whole) };
        advise(block, whole.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if whole_pages(layout).is_none() {
            // SAFETY: the caller's promise about `layout` is passed on.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise about `layout` is passed on, and the block has `layout.size()` bytes.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` was allocated by `alloc` with the same layout, hence by the system with this one.
        unsafe { System.dealloc(block, whole_pages(layout).unwrap_or(layout)) };
    }
}
