// SPDX-License-Identifier: Apache-2.0
//! Contents of memory that many share: files in memory that nobody can change any
//! more, mapped privately. Who writes to a page gets a copy of it.
//!
//! ```text
//!  an image ─┬─ file     all of it, or what it has in common with others: mapped
//!            ├─ changes  where it differs from that, in lines: written over the mapping
//!            └─ tail     what it has behind the end of a file in common: a file of its own, mapped
//! ```
//!
//! An image that is [alike](MemoryImage::alike) to another one takes memory for its changes
//! and its tail only. Pages of zeros take none.
#![allow(unsafe_code)]

mod changes;
mod kept;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::Mapping;
use changes::Changes;
pub use kept::KeptCopy;

/// What is looked at as one, and left out if it is zero.
const PAGE: usize = 4096;
/// Parts of one image that are mapped each for itself begin and end at a multiple of
/// this, which is one of every page size that Linux has.
const WHOLE: usize = 64 << 10;

/// An image that is being written. What is not written is zero, and takes nothing.
#[derive(Debug)]
pub struct MemoryImageWriter {
    file: File,
    len: usize,
    /// Of each page whether something was written there.
    written: Vec<bool>,
}

/// An image that is being written, of which most is expected to be as in another one.
#[derive(Debug)]
pub struct AlikeImageWriter {
    common: Arc<Common>,
    len: usize,
    /// Bytes that were written.
    at: usize,
    changes: Changes,
    changed_pages_max: usize,
    tail: Option<MemoryImageWriter>,
}

/// An image that does not change any more.
#[derive(Debug)]
pub struct MemoryImage {
    common: Arc<Common>,
    len: usize,
    changes: Changes,
    tail: Option<File>,
}

/// What images have in common.
#[derive(Debug)]
struct Common {
    file: File,
    /// The file's bytes.
    bytes: Mapping,
    written: Vec<bool>,
}

impl Common {
    /// Bytes within one page. Where nothing was written the file is not looked at: it would get a page
    /// of zeros for that.
    fn part(&self, at: usize, len: usize) -> Option<&[u8]> {
        match self.written.get(at / PAGE)? {
            true => self.bytes.get(at..at.checked_add(len)?),
            false => ZEROS.get(..len),
        }
    }
}

/// What is where nothing was written.
static ZEROS: [u8; PAGE] = [0; PAGE];

impl MemoryImageWriter {
    /// An image of `len` zeros.
    ///
    /// # Errors
    /// What the kernel says: in practice that there are too many open files.
    pub fn new(len: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("sinew-image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = File::from(file);
        file.set_len(len as u64)?;
        Ok(Self { file, len, written: vec![false; len.div_ceil(PAGE)] })
    }

    /// Writes at an offset, but for pages that are zero: nothing was written there before.
    ///
    /// # Errors
    /// `InvalidInput` beyond its end, else what the kernel says: there is no memory.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let is_zero = |page: &&[u8]| page.iter().all(|byte| *byte == 0);
        let mut pages = bytes.chunks(PAGE).peekable();
        let mut done = 0;
        while pages.peek().is_some() {
            done += std::iter::from_fn(|| pages.next_if(is_zero)).map(<[u8]>::len).sum::<usize>();
            let full = std::iter::from_fn(|| pages.next_if(|page| !is_zero(page)));
            let end = done + full.map(<[u8]>::len).sum::<usize>();
            self.file.write_all_at(&bytes[done..end], (at + done) as u64)?;
            self.written[(at + done) / PAGE..(at + end).div_ceil(PAGE)].fill(true);
            done = end;
        }
        Ok(())
    }

    /// Nobody changes it from now on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn finish(mut self) -> io::Result<MemoryImage> {
        let (len, written) = (self.len, std::mem::take(&mut self.written));
        let file = self.seal()?;
        let bytes = Mapping::map(&file, 0, len)?;
        let common = Arc::new(Common { file, bytes, written });
        Ok(MemoryImage { common, len, changes: Changes::default(), tail: None })
    }

    fn seal(self) -> io::Result<File> {
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&self.file, all)?;
        Ok(self.file)
    }
}

impl AlikeImageWriter {
    /// Writes what follows; whether there is still no more than may differ.
    ///
    /// # Errors
    /// `InvalidInput` beyond its end, or if what was written before was no multiple of 64 KiB; else what the
    /// kernel says.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let end = self.at.checked_add(bytes.len()).filter(|end| *end <= self.len);
        let end = end.filter(|_| self.at.is_multiple_of(WHOLE)).ok_or(io::ErrorKind::InvalidInput)?;
        let head = self.common.bytes.len().min(self.len);
        let (inside, behind) = bytes.split_at(head.saturating_sub(self.at).min(bytes.len()));
        self.changes.note(self.at, &self.common, inside);
        if let Some(tail) = &mut self.tail {
            tail.write(self.at.max(head) - head, behind)?;
        }
        self.at = end;
        Ok(self.changes.pages() <= self.changed_pages_max)
    }

    /// Nobody changes it from now on.
    ///
    /// # Errors
    /// `InvalidInput` if not all was written, else what the kernel says.
    pub fn finish(self) -> io::Result<MemoryImage> {
        let Self { common, len, at, changes, tail, .. } = self;
        if at != len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let tail = tail.map(MemoryImageWriter::seal).transpose()?;
        Ok(MemoryImage { common, len, changes: changes.shrunk(), tail })
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

    /// Another image of `len` bytes, to be written from its beginning on, that takes what it has in common with this
    /// one from there; at most so many pages may differ. `None` if their parts would not be whole pages.
    ///
    /// # Errors
    /// As of [`MemoryImageWriter::new`].
    pub fn alike(&self, len: usize, changed_pages_max: usize) -> io::Result<Option<AlikeImageWriter>> {
        let common = self.common.bytes.len();
        if common == 0 || !common.is_multiple_of(WHOLE) || !len.is_multiple_of(WHOLE) {
            return Ok(None);
        }
        let behind = len.checked_sub(common).filter(|behind| *behind > 0);
        let tail = behind.map(MemoryImageWriter::new).transpose()?;
        let (common, changes) = (Arc::clone(&self.common), Changes::default());
        Ok(Some(AlikeImageWriter { common, len, at: 0, changes, changed_pages_max, tail }))
    }

    /// Whether both have the same file in common.
    pub fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.common, &other.common)
    }

    /// Bytes of memory that it takes itself, besides [those in common](Self::common_bytes).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn own_bytes(&self) -> io::Result<u64> {
        Ok(self.changes.bytes() + self.tail.as_ref().map_or(Ok(0), resident)?)
    }

    /// Bytes of memory that all take together that [share](Self::shares_with) with it, besides their own.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn common_bytes(&self) -> io::Result<u64> {
        resident(&self.common.file)
    }

    /// Whether it has a file of its own for what is behind the common one.
    pub fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// Bytes from the beginning on that are mapped from the common file.
    fn head(&self) -> usize {
        self.len.min(self.common.bytes.len())
    }

    /// Puts a private copy of the image, readable and writable, in place of what is at
    /// `start` and the [`len`](Self::len) bytes from there on.
    ///
    /// # Safety
    /// 1. All pages of these bytes belong to one mapping of the caller's, who may write to
    ///    them, and nothing that lives elsewhere is in any of them.
    /// 2. While this runs nobody reads or writes them, and no reference to them is used afterwards that
    ///    was made before.
    /// 3. Whoever owns the mapping bears that files are behind it, until it is unmapped.
    ///
    /// # Errors
    /// What the kernel says, also of a `start` within a page; then what was there still is, or a part of the image.
    pub unsafe fn map_over(&self, start: NonNull<u8>) -> io::Result<()> {
        // SAFETY: the caller's promises are those that are asked for, for each of the two parts; the
        // changes lie within the first one, which was just mapped and is nobody else's.
        unsafe {
            map_private(&self.common.file, start, self.head(), MapFlags::FIXED)?;
            self.map_tail_over(start)?;
            self.changes.write(start);
        }
        Ok(())
    }

    /// Puts what is behind the common file in its place.
    ///
    /// # Safety
    /// As of [`Self::map_over`].
    unsafe fn map_tail_over(&self, start: NonNull<u8>) -> io::Result<()> {
        let Some(tail) = &self.tail else { return Ok(()) };
        let head = self.head();
        // SAFETY: as the caller promises; there are `len` bytes at `start`, of which these are the last ones.
        unsafe { map_private(tail, start.add(head), self.len - head, MapFlags::FIXED) }
    }
}

/// Maps the beginning of a file privately at a fixed place.
///
/// # Safety
/// With `FIXED`, as of [`MemoryImage::map_over`]; with `FIXED_NOREPLACE` the range was the caller's.
unsafe fn map_private(file: &File, start: NonNull<u8>, len: usize, fixed: MapFlags) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | fixed);
    // SAFETY: a fixed mapping takes the place of what was there, which the caller
    // owns, may write to, and does not use meanwhile, or of nothing. It is private: nothing that is written reaches the file.
    unsafe { rustix::mm::mmap(start.as_ptr().cast(), len, access, flags, file, 0) }?;
    Ok(())
}

/// Bytes of a file in memory that take memory.
fn resident(file: &File) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.blocks() * 512)
}

#[cfg(test)]
mod tests;
