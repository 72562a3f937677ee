// SPDX-License-Identifier: Apache-2.0
//! The heap of our programs: mimalloc's, in huge pages.
//!
//! A node's tables and objects are millions of small allocations. In pages of
//! 4 KiB the first touch of each page is a fault, and every look-up misses the
//! address translation cache. And a node's event loop takes many requests in
//! turn, so that it frees as many blocks of one size at once, among them
//! buffers of some KiB: the C library took a fifth of a request's time for
//! that, and more the longer it ran. Figures are in `docs/decisions/0030`.
//!
//! mimalloc asks the kernel for huge pages where it takes memory as a whole.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};
use std::time::Duration;

use libmimalloc_sys::mi_option_set;

/// What allocates: `#[global_allocator] static HEAP: linux::Heap = linux::HEAP;`.
pub type Heap = mimalloc::MiMalloc;
/// The one value of [`Heap`].
pub const HEAP: Heap = mimalloc::MiMalloc;

/// A variable of the environment, and its value, for a program of ours that
/// shall stay small: it takes memory page by page, and no huge ones.
pub const SMALL_HEAP: (&str, &str) = ("MIMALLOC_ARENA_EAGER_COMMIT", "0");

/// `mi_option_purge_delay` of mimalloc 2: milliseconds.
const PURGE_DELAY: c_int = 15;
/// Where a user says so too.
const PURGE_DELAY_VARIABLE: &str = "MIMALLOC_PURGE_DELAY";
/// What is given back in parts tears huge pages apart, and is faulted in again:
/// with ten seconds in the place of minutes a codelet's application among a
/// million others took three times as long.
const KEPT: Duration = Duration::from_secs(600);

/// Keeps what is freed for some minutes before the kernel gets it back, as
/// befits a server: it gives a page back to fault it in again otherwise, every
/// few milliseconds. Without this it is 10 ms. What the environment says
/// about it stays.
pub fn keep_freed_memory() {
    if std::env::var_os(PURGE_DELAY_VARIABLE).is_some() {
        return;
    }
    let millis = c_long::try_from(KEPT.as_millis()).unwrap_or(c_long::MAX);
    // SAFETY: the function stores a number in a table of the allocator, by an
    // atomic store, at an index that it checks; it may be called by any thread
    // at any time.
    unsafe { mi_option_set(PURGE_DELAY, millis) };
}

/// Touches about so many bytes of the heap that the calling thread allocates
/// from, so that its next allocations meet no page fault: 2 µs for 4 KiB on a
/// virtual machine that meets the memory for the first time.
pub fn warm_heap(bytes: usize) {
    const BLOCK: usize = 64 << 10;
    let blocks: Vec<Vec<u8>> = (0..bytes / BLOCK).map(|_| vec![1; BLOCK]).collect();
    std::hint::black_box(blocks);
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::{mi_option_eager_commit_delay, mi_option_get};

    use super::*;

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // The library's bindings name its neighbour only.
        assert_eq!(PURGE_DELAY, mi_option_eager_commit_delay + 1);
        // SAFETY: it reads a number of a table at an index that it checks.
        let get = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(get(), 10, "the delay that the library's documents name");
        keep_freed_memory();
        assert_eq!(get(), 600_000);
    }
}
