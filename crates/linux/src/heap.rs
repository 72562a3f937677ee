// SPDX-License-Identifier: Apache-2.0
//! How the process's heap is set up: in huge pages, with large caches.
//!
//! A node's tables and objects are millions of small allocations. In pages of
//! 4 KiB the first touch of each page is a fault, and every look-up misses
//! the address translation cache. The C library asks the kernel for huge
//! pages if told to before the process starts; hence the second start.
//!
//! And a node's event loop takes many requests in turn, so that it frees as
//! many blocks of one size at once. A thread's cache takes 7 of each unless
//! told otherwise; the slow way of the rest was a fifth of a request's time.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;

/// Where the C library reads its settings.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// `hugetlb=1` advises the kernel to use huge pages; the heap grows by
/// `top_pad` bytes at once, since a huge page must lie within what has been
/// asked for. Setting it fixes the size from which allocations are mapped one
/// by one, so that is set too: above what buffers of requests take.
const HUGE: &str =
    "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432:glibc.malloc.mmap_threshold=33554432";

/// Starts this program again, in the same process, with a heap in huge
/// pages. Returns if it has them already, or was told about them by its user,
/// or the kernel has none to give. Call it first of all: nothing but the
/// arguments and the environment survives.
///
/// # Errors
/// What the kernel says to the second start; this one can go on.
pub fn prefer_huge_pages() -> io::Result<()> {
    let current = std::env::var_os(TUNABLES);
    let Some(tunables) = with_huge_pages(current.as_deref()) else { return Ok(()) };
    if !cfg!(target_env = "gnu") || !is_offered() {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "it replaces this program, it starts no process")]
    let mut again = std::process::Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    Err(again.args(arguments).env(TUNABLES, tunables).exec())
}

/// Touches about so many bytes of the heap that the calling thread allocates
/// from, so that its next allocations meet no page fault: 2 µs for 4 KiB on a
/// virtual machine that meets the memory for the first time. Without huge
/// pages the C library gives such memory back at once, so nothing is done.
pub fn warm_heap(bytes: usize) {
    const BLOCK: usize = 64 << 10;
    let tunables = std::env::var(TUNABLES).unwrap_or_default();
    if tunables.contains("glibc.malloc.hugetlb=1") {
        let blocks: Vec<Vec<u8>> = (0..bytes / BLOCK).map(|_| vec![1; BLOCK]).collect();
        std::hint::black_box(blocks);
    }
}

/// The settings with huge pages; `None` if they speak of them already.
fn with_huge_pages(current: Option<&OsStr>) -> Option<OsString> {
    let Some(current) = current.filter(|current| !current.is_empty()) else { return Some(HUGE.into()) };
    if current.to_string_lossy().contains("glibc.malloc.hugetlb") {
        return None;
    }
    let mut both = current.to_owned();
    both.push(":");
    both.push(HUGE);
    Some(both)
}

/// Whether the kernel gives huge pages to those who ask.
fn is_offered() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| mode.contains("[madvise]"))
}

#[cfg(test)]
mod tests;
