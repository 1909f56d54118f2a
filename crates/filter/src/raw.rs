//! Memory and vector instructions: the only module of this crate with `unsafe` in it.
//!
//! Two things are not to be had in safe Rust. Arrays on huge pages that are zeroed when first touched, and vector
//! loads from a line that other threads may be changing: the compiler never joins atomic loads into a vector
//! load, and a lookup is twice as slow without. Everything here has a safe twin (the scalar kernel, the heap) that gives
//! the same bits; tests compare the two, and builds for loom and Miri use the twin alone.
#![allow(unsafe_code)]

mod kernel;
mod memory;
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
mod x86;

pub(crate) use kernel::{Kernel, Missing, Work, cell_mask, prefetch, shift};
pub(crate) use memory::Memory;

use crate::sync::AtomicU64;

/// Words in a line.
pub(crate) const LINE_WORDS: usize = 8;
/// Bytes in a line.
pub(crate) const LINE_BYTES: u64 = 64;

/// One cache line of a filter's array.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [AtomicU64; LINE_WORDS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() as u64 == LINE_BYTES);
