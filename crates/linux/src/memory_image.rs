// SPDX-License-Identifier: Apache-2.0
//! Contents of memory that many share: a file in memory that nobody can change any
//! more, mapped privately. Who writes to a page gets a copy of it.
#![allow(unsafe_code)]

mod kept;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

pub use kept::KeptCopy;

/// An image that is being written. What is not written is zero, and takes nothing.
#[derive(Debug)]
pub struct MemoryImageWriter {
    file: File,
    len: usize,
}

/// An image that does not change any more.
#[derive(Debug)]
pub struct MemoryImage {
    file: File,
    len: usize,
}

impl MemoryImageWriter {
    /// An image of `len` zeros.
    ///
    /// # Errors
    /// What the kernel says: in practice that there are too many open files.
    pub fn new(len: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("sinew-image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = File::from(file);
        file.set_len(len as u64)?;
        Ok(Self { file, len })
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// `InvalidInput` beyond its end, else what the kernel says: there is no memory.
    pub fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.write_all_at(bytes, at as u64)
    }

    /// Nobody changes it from now on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn finish(self) -> io::Result<MemoryImage> {
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&self.file, all)?;
        Ok(MemoryImage { file: self.file, len: self.len })
    }
}

impl MemoryImage {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it takes itself: those that were written, in whole pages.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Puts a private copy of the image, readable and writable, in place of what is at
    /// `start` and the [`len`](Self::len) bytes from there on.
    ///
    /// # Safety
    /// 1. All pages of these bytes belong to one mapping of the caller's, who may write to
    ///    them, and nothing that lives elsewhere is in any of them.
    /// 2. While this runs nobody reads or writes them, and no reference to them is used afterwards that
    ///    was made before.
    /// 3. Whoever owns the mapping bears that a file is behind it, until it is unmapped.
    ///
    /// # Errors
    /// What the kernel says, also of a `start` within a page; then what was there still is.
    pub unsafe fn map_over(&self, start: NonNull<u8>) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: a fixed mapping takes the place of what was there, which the caller
        // owns, may write to, and does not use meanwhile (1, 2). It is private: nothing that is written reaches the file.
        unsafe {
            rustix::mm::mmap(
                start.as_ptr().cast(),
                self.len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
                &self.file,
                0,
            )
        }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
