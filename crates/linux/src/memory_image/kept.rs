// SPDX-License-Identifier: Apache-2.0
//! Private copies of an image that are used again: pages that were written hold the
//! image's bytes once more, and stay where they are. Whoever gets the copy next has no fault at them.
//!
//! A copy is kept of what is mapped from the common file, with the image's changes. So it can be
//! [turned](KeptCopy::turned) into one of another image that has that file in common.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::{MemoryImage, PAGE, map_private};

/// What the kernel maps by one entry of a directory of pages: mappings that lie alike in
/// these are moved by their directories.
const DIRECTORY: usize = 2 << 20;
/// Ranges that one look tells.
const RANGES: usize = 128;

/// A private copy of an image, without its tail, that nobody uses, and in which every byte is the image's.
#[derive(Debug)]
pub struct KeptCopy {
    mapping: Mapping,
    image: Arc<MemoryImage>,
    private_bytes: u64,
}

/// Memory of this process that nothing else refers to.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: (both) the pages are nobody else's, and are not read or written but by who owns this.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives no access to them.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and nothing refers to it (`Mapping`).
        _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Mapping {
    /// Room for so many bytes that lies in its directory as `like` does.
    fn like(like: NonNull<u8>, len: usize) -> io::Result<Self> {
        let whole = len.checked_add(DIRECTORY).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel chooses the place; nobody can read or write there.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), MapFlags::PRIVATE)
        }?;
        let skipped = like.as_ptr().addr().wrapping_sub(start.addr()) % DIRECTORY;
        let all = Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len: whole };
        // SAFETY: `skipped` is less than a directory, and there is one more than `len`.
        let begin = unsafe { all.start.add(skipped) };
        let (before, behind) = (skipped, DIRECTORY - skipped);
        std::mem::forget(all);
        // SAFETY: both ranges are of the mapping that was just made, beside the one that is kept.
        unsafe {
            if before > 0 {
                rustix::mm::munmap(start, before)?;
            }
            rustix::mm::munmap(begin.as_ptr().add(len).cast(), behind)?;
        }
        Ok(Self { start: begin, len })
    }
}

impl KeptCopy {
    /// The image that it is of.
    pub fn image(&self) -> &Arc<MemoryImage> {
        &self.image
    }

    /// Bytes of memory that it takes besides the image's.
    pub fn private_bytes(&self) -> u64 {
        self.private_bytes
    }

    /// Takes the copy that [`MemoryImage::map_over`] or [`Self::put_over`] put at `start` away from there, and gives
    /// all of it the image's bytes again. At `start` there is then what the image has in common with others, as if
    /// it had just been mapped, and behind that what was there.
    ///
    /// # Safety
    /// As of [`MemoryImage::map_over`], and that call was the last that changed the mapping.
    ///
    /// # Errors
    /// What the kernel says; `Unsupported` before Linux 6.7; `OutOfMemory` if more than
    /// `private_bytes_max` were written. Then nothing is kept; what is at `start` then is either what was there, or as above.
    pub unsafe fn take(
        image: &Arc<MemoryImage>,
        start: NonNull<u8>,
        private_bytes_max: u64,
    ) -> io::Result<Self> {
        let (pages, len) = (pages()?, image.head());
        let mapping = Mapping::like(start, len)?;
        let (from, to) = (start.as_ptr().cast(), mapping.start.as_ptr().cast());
        let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
        // SAFETY: the range at `start` is the caller's, who does not use it meanwhile (1, 2);
        // what was at the new place is `mapping`, to which nobody refers. The old place stays mapped, to the file alone.
        if let Err(error) = unsafe { rustix::mm::mremap_fixed(from, len, len, flags, to) } {
            // The new place may be free by now, and somebody else's.
            std::mem::forget(mapping);
            return Err(error.into());
        }
        let mut copy = Self { mapping, image: Arc::clone(image), private_bytes: 0 };
        copy.restore(pages, private_bytes_max)?;
        Ok(copy)
    }

    /// Whether it can be [turned](Self::turned) into a copy of this image: they map the same bytes of one file.
    pub fn fits(&self, image: &MemoryImage) -> bool {
        self.image.shares_with(image) && self.image.head() == image.head()
    }

    /// The same as a copy of another image, which it [fits](Self::fits), or it is given up.
    pub fn turned(mut self, image: &Arc<MemoryImage>) -> Option<Self> {
        if !self.fits(image) {
            return None;
        }
        if !Arc::ptr_eq(&self.image, image) {
            let start = self.mapping.start;
            // SAFETY: the mapping is this copy's alone, writable, and as long as what both images map
            // of the file that they have in common.
            unsafe {
                self.image.changes.undo(start, &image.common);
                image.changes.write(start);
            }
            // Some of these pages were its own before.
            self.private_bytes += (image.changes.pages() * PAGE) as u64;
            self.image = Arc::clone(image);
        }
        Some(self)
    }

    /// Puts the copy in place of what is at `start`, as [`MemoryImage::map_over`] would a new one.
    ///
    /// If the kernel refuses to move it, it may have unmapped what was there. Then a new one is put there, or, if
    /// that place is not free any more, the process ends: nobody could say whose memory it is.
    ///
    /// # Safety
    /// As of [`MemoryImage::map_over`].
    ///
    /// # Errors
    /// What the kernel says of the image's tail; then what is at `start` still is what was there.
    pub unsafe fn put_over(self, start: NonNull<u8>) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.image.map_tail_over(start) }?;
        let Self { mapping, image, .. } = self;
        let (from, to) = (mapping.start.as_ptr().cast(), start.as_ptr().cast());
        // SAFETY: the copy is our own, and `start` the caller's, who may write to it and does not use it meanwhile.
        let moved =
            unsafe { rustix::mm::mremap_fixed(from, mapping.len, mapping.len, MremapFlags::MAYMOVE, to) };
        if moved.is_ok() {
            // It is not there any more.
            std::mem::forget(mapping);
            return Ok(());
        }
        // SAFETY: it takes the place of nothing; where nothing is, that is what the caller owned.
        // The changes lie within what was mapped.
        unsafe {
            if map_private(&image.common.file, start, mapping.len, MapFlags::FIXED_NOREPLACE).is_err() {
                std::process::abort();
            }
            image.changes.write(start);
        }
        Ok(())
    }

    /// Gives what was written over the image's bytes again.
    fn restore(&mut self, pages: &File, private_bytes_max: u64) -> io::Result<()> {
        let start = self.mapping.start.as_ptr().addr() as u64;
        // Before any work is done for a copy that is not kept.
        let mut private_bytes = 0;
        self.for_written(pages, |range| {
            private_bytes += range.end - range.start;
            match private_bytes > private_bytes_max {
                true => Err(io::ErrorKind::OutOfMemory.into()),
                false => Ok(()),
            }
        })?;
        self.private_bytes = private_bytes;
        self.for_written(pages, |range| {
            let range = (range.start - start) as usize..(range.end - start) as usize;
            for at in range.clone().step_by(PAGE) {
                let common = self.image.common.part(at, PAGE.min(range.end - at));
                let common = common.ok_or_else(|| io::Error::other("the kernel tells of other pages"))?;
                // SAFETY: the kernel says that these are pages of the mapping, which is this copy's alone; the
                // common bytes are another mapping, or a static.
                unsafe {
                    let bytes = NonNull::from(common).cast();
                    self.mapping.start.add(at).copy_from_nonoverlapping(bytes, common.len());
                }
            }
            Ok(())
        })?;
        // SAFETY: the mapping is this copy's alone, and as long as what the image maps of the common file.
        unsafe { self.image.changes.write(self.mapping.start) };
        Ok(())
    }

    /// Looks at each range of pages of the mapping that are copies.
    fn for_written(&self, pages: &File, mut look: impl FnMut(&Range) -> io::Result<()>) -> io::Result<()> {
        let start = self.mapping.start.as_ptr().addr() as u64;
        let end = start + self.mapping.len as u64;
        let mut ranges = [Range::default(); RANGES];
        let mut next = start;
        while next < end {
            let (found, walked) = written(pages, (next, end), &mut ranges)?;
            found.iter().try_for_each(&mut look)?;
            if walked <= next {
                return Err(io::Error::other("the kernel tells of no more pages"));
            }
            next = walked;
        }
        Ok(())
    }
}

/// `struct page_region` of Linux.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Range {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of Linux.
#[repr(C)]
#[derive(Debug, Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// This process's pages, opened once: nobody else's can be looked at by it. Nothing is moved where the
/// kernel would not tell which of them were written.
fn pages() -> io::Result<&'static File> {
    static PAGES: OnceLock<Option<File>> = OnceLock::new();
    let tells = |pages: &File| written(pages, (0, 0), &mut [Range::default(); RANGES]).is_ok();
    let pages = PAGES.get_or_init(|| File::open("/proc/self/pagemap").ok().filter(tells));
    pages.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Ranges between two addresses in which each page is a copy, and not the file's; and how far it looked.
fn written<'a>(
    pages: &File,
    (start, end): (u64, u64),
    ranges: &'a mut [Range; RANGES],
) -> io::Result<(&'a [Range], u64)> {
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        start,
        end,
        vec: ranges.as_mut_ptr().addr() as u64,
        vec_len: RANGES as u64,
        category_inverted: PAGE_IS_FILE,
        category_mask: PAGE_IS_FILE,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_PRESENT,
        ..Scan::default()
    };
    // SAFETY: the argument is of the form that the call has, and says how many ranges there is
    // room for; both outlive the call.
    let found = unsafe { libc::ioctl(pages.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) };
    let found = usize::try_from(found).map_err(|_| match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOTTY) => io::ErrorKind::Unsupported.into(),
        error => error,
    })?;
    let found = ranges.get(..found).ok_or_else(|| io::Error::other("the kernel tells of too many pages"))?;
    Ok((found, scan.walk_end))
}
