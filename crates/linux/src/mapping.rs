// SPDX-License-Identifier: Apache-2.0
//! A read-only, private mapping of a range of a file.
//!
//! The mapping outlives the file's descriptor and name. It reads the page
//! cache, so its memory is the kernel's to take back. Whoever maps a file must
//! own it: a file that is cut short by someone else while it is mapped ends
//! the process with SIGBUS when the lost pages are read.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Mappings of this type that exist in the process. The kernel grants 65,530
/// mappings of all kinds to a process by default (`vm.max_map_count`).
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Where a mapping may start: a multiple of every page size that Linux has.
const START_ALIGN_BYTES: u64 = 64 << 10;

/// Bytes of a file, mapped read-only.
#[derive(Debug)]
pub struct Mapping {
    /// Start of the kernel's mapping; `None` for an empty range, which the
    /// kernel does not map.
    start: Option<NonNull<u8>>,
    /// Bytes between the start of the mapping and the first byte asked for.
    lead: usize,
    /// Bytes asked for.
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter than `offset + len`, else what
    /// the kernel says (`ENOMEM` also when there are too many mappings).
    pub fn map(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        let end = offset.checked_add(len as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if end > file.metadata()?.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than the mapping"));
        }
        if len == 0 {
            return Ok(Self { start: None, lead: 0, len });
        }
        let lead = (offset % START_ALIGN_BYTES) as usize;
        let mapped_len = len.checked_add(lead).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the address is null, so the kernel chooses a range that
        // nothing else uses; protection is read-only and the mapping private,
        // so no other memory of the process can change through it. The pages
        // stay until `drop` unmaps exactly this range.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped_len,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                offset - lead as u64,
            )
        }?;
        LIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Self { start: NonNull::new(start.cast()), lead, len })
    }

    /// How many mappings the process holds now, to stay clear of the kernel's limit.
    pub fn live() -> usize {
        LIVE.load(Ordering::Relaxed)
    }
}

impl Deref for Mapping {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self.start {
            // SAFETY: `map` mapped `lead + len` readable bytes from `start`,
            // they stay mapped as long as `self` lives, a slice of the process
            // is never longer than `isize::MAX` since the kernel granted the
            // range, and nobody in this process can write to a read-only
            // private mapping. That nobody else writes to the file is the
            // module's demand on its callers.
            Some(start) => unsafe { std::slice::from_raw_parts(start.as_ptr().add(self.lead), self.len) },
            None => &[],
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(start) = self.start else { return };
        // SAFETY: `start` and the length are those of one successful `mmap`,
        // which nobody unmapped before; `self` is going away, so no slice of
        // it is left.
        let unmapped = unsafe { rustix::mm::munmap(start.as_ptr().cast(), self.lead + self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: the memory is read-only for the mapping's whole life and owned by
// this value alone; unmapping from another thread is allowed.
unsafe impl Send for Mapping {}
// SAFETY: as above: shared references only read.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests;
