// SPDX-License-Identifier: Apache-2.0
//! Memory that processes share, who need not trust each other.
//!
//! The other side may write to any byte at any moment. So there are no slices
//! of it: words are atomics, and bytes are copied out before they are looked
//! at. It can be neither cut short nor made longer, which seals see to: a page
//! that is gone would end whoever reads it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::Timespec;

/// The longest memory that is shared.
pub const SHARED_MEMORY_MAX: usize = 1 << 30;

/// A file in memory, mapped for reading and writing.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
}

impl SharedMemory {
    /// New memory of zeros, and the descriptor by which others find it, closed
    /// on exec.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0 or above [`SHARED_MEMORY_MAX`], else
    /// what the kernel says.
    pub fn create(name: &str, len: usize) -> io::Result<(Self, OwnedFd)> {
        if len == 0 || len > SHARED_MEMORY_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no length for shared memory"));
        }
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((Self::map(&file, len)?, file))
    }

    /// The memory behind a descriptor that somebody gave us.
    ///
    /// # Errors
    /// `InvalidData` if it is no such memory: its length could change, or is
    /// out of bounds.
    pub fn open(file: impl AsFd) -> io::Result<Self> {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| refused("it is no memory"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(refused("its length could change"));
        }
        let len = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if len == 0 || len > SHARED_MEMORY_MAX {
            return Err(refused("its length is out of bounds"));
        }
        Self::map(file, len)
    }

    fn map(file: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: the address is null, so the kernel chooses a range that
        // nothing else uses. The file is at least so long and stays so, by its
        // seals; the pages stay until `drop` unmaps exactly this range.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of `len` bytes from `at`.
    ///
    /// # Panics
    /// If they do not lie within: offsets are our own, never the peer's.
    fn range(&self, at: usize, len: usize) -> *mut u8 {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_within, "{len} bytes at {at} of {}", self.len);
        // SAFETY: it lies within the mapping, as was just checked.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// A word of 32 bits; `at` is a multiple of 4.
    ///
    /// # Panics
    /// If it is not, or does not lie within.
    pub fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "a word at {at}");
        // SAFETY: aligned, as mappings begin at a page; within the mapping,
        // which lives as long as the reference; and only ever accessed
        // atomically by this process, as words and bytes are kept apart by
        // those who lay the memory out, and `read` and `write` are copies that
        // make no reference.
        unsafe { AtomicU32::from_ptr(self.range(at, 4).cast()) }
    }

    /// A word of 64 bits; `at` is a multiple of 8.
    ///
    /// # Panics
    /// If it is not, or does not lie within.
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "a word at {at}");
        // SAFETY: as for `word32`.
        unsafe { AtomicU64::from_ptr(self.range(at, 8).cast()) }
    }

    /// Copies bytes out, whatever they are at that moment.
    ///
    /// # Panics
    /// If they do not lie within.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.range(at, into.len());
        // SAFETY: both ranges are as long; ours is our own memory, which the
        // mapping is not a part of. What the peer writes meanwhile may come
        // out torn, and any bytes are valid `u8`.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they do not lie within.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.range(at, bytes.len());
        // SAFETY: as for `read`, the other way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: start and length are those of one successful `mmap`, which
        // nobody unmapped before; no reference into it is left.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

// SAFETY: all access is by atomics and by copies; unmapping from another
// thread is allowed.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

/// Sleeps while a word, which may be shared, has this value; at most so long.
/// Returns early now and then: whoever waits looks again.
///
/// # Errors
/// What the kernel says, other than that it was early or late.
pub fn wait_while(word: &AtomicU32, value: u32, timeout: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    match futex::wait(word, futex::Flags::empty(), value, Some(&timeout)) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Wakes one who sleeps on a word.
pub fn wake_one(word: &AtomicU32) {
    // It fails only for an address that is none.
    _ = futex::wake(word, futex::Flags::empty(), 1);
}

#[cfg(test)]
mod tests;
