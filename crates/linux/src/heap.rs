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
//! mimalloc asks the kernel for huge pages where it takes memory as a whole. Each
//! thread begins with a segment of its own, so that a node of twenty threads had twenty
//! huge pages before it had done anything: until there is work, pages are small.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libmimalloc_sys::mi_option_set;
use rustix::mm::{Advice, madvise};

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

/// The number of the allocator's first arena; what is allocated lies there until it is full.
const FIRST_ARENA: c_int = 1;

/// [`take_small_pages`] was called, and nobody has called [`take_huge_pages`] since.
static IS_SMALL: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    // The library's bindings lack it.
    fn mi_arena_area(arena: c_int, size: *mut usize) -> *mut c_void;
}

/// What the process touches of its heap comes in small pages, until somebody calls
/// [`take_huge_pages`]: for a server that has nothing to do yet, before it starts threads.
pub fn take_small_pages() {
    if advise(Advice::LinuxNoHugepage) {
        IS_SMALL.store(true, Ordering::Release);
    }
}

/// What is touched from now on comes in huge pages again, and the kernel puts together
/// what was touched before. Costs next to nothing where it is so already: for whoever begins to
/// work, or to fill a large table.
#[inline]
pub fn take_huge_pages() {
    if IS_SMALL.load(Ordering::Relaxed) {
        end_small_pages();
    }
}

#[cold]
fn end_small_pages() {
    if IS_SMALL.swap(false, Ordering::AcqRel) {
        advise(Advice::LinuxHugepage);
    }
}

/// Whether the kernel took the advice for the first arena. A heap that has none, or lies in
/// small pages as its user wants it, is left as it is.
fn advise(advice: Advice) -> bool {
    if std::env::var(SMALL_HEAP.0).is_ok_and(|value| value == SMALL_HEAP.1) {
        return false;
    }
    let mut bytes = 0;
    // SAFETY: the function reads the allocator's table of arenas, at an index that it checks,
    // and writes the size to where it is told.
    let start = unsafe { mi_arena_area(FIRST_ARENA, &raw mut bytes) };
    // SAFETY: the range is the allocator's, which never gives an arena back, and which
    // size its pages have changes nothing of what is in them.
    !start.is_null() && unsafe { madvise(start, bytes, advice) }.is_ok()
}

/// Touches about so many bytes of the heap that the calling thread allocates
/// from, so that its next allocations meet no page fault: 2 µs for 4 KiB on a
/// virtual machine that meets the memory for the first time. In huge pages from now on.
pub fn warm_heap(bytes: usize) {
    const BLOCK: usize = 64 << 10;
    take_huge_pages();
    let blocks: Vec<Vec<u8>> = (0..bytes / BLOCK).map(|_| vec![1; BLOCK]).collect();
    std::hint::black_box(blocks);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use libmimalloc_sys::{mi_option_eager_commit_delay, mi_option_get};

    use std::alloc::{GlobalAlloc as _, Layout};

    use super::*;

    /// What the kernel was told of the memory around an address: `hg` for huge pages, `nh` for none.
    fn flags_at(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bound = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((Some(start), Some(end))) = range.map(|(start, end)| (bound(start), bound(end))) {
                is_here = (start..end).contains(&address);
            }
            if is_here && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.to_owned();
            }
        }
        panic!("{address:x} is mapped nowhere");
    }

    #[test]
    fn pages_are_small_until_somebody_works() {
        let layout = Layout::from_size_align(1 << 20, 8).unwrap();
        // SAFETY: the layout has a size; the block is given back below.
        let block = unsafe { HEAP.alloc(layout) };
        let is = |flag: &str| flags_at(block.addr()).split(' ').any(|other| other == flag);
        take_huge_pages();
        assert!(!is("nh"), "nobody has asked for small ones");
        take_small_pages();
        assert!(is("nh") && !is("hg"));
        warm_heap(0);
        assert!(is("hg") && !is("nh"));
        // SAFETY: it came from there, with this layout.
        unsafe { HEAP.dealloc(block, layout) };
    }

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
