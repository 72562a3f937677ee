// SPDX-License-Identifier: Apache-2.0
//! Memory that one process fills and others only read.
//!
//! An [`Outbox`] is memory of zeros that a process of less trust is handed, to map
//! and write to; what nobody writes to takes none. When it says how much it has written,
//! [`Outbox::seal`] cuts off the rest, and makes sure that nobody changes or shortens what is
//! left ever after, whoever has it open: from then on it is like a file that never
//! changes, and may be mapped and handed on.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::Mapping;

/// In what the kernel counts what a file takes.
const BLOCK_BYTES: u64 = 512;
/// The smallest pages that memory has.
const PAGE_BYTES: u64 = 4096;

/// Memory that is being filled.
#[derive(Debug)]
pub struct Outbox {
    file: File,
    bytes_max: u64,
}

impl Outbox {
    /// Memory of so many bytes at most, closed on exec.
    ///
    /// # Errors
    /// What the kernel says, as when there are no descriptors left.
    pub fn create(bytes_max: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("sinew-outbox", flags)?);
        file.set_len(bytes_max)?;
        Ok(Self { file, bytes_max })
    }

    /// What whoever fills it is handed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Ends the filling, and maps the first so many bytes, of which all is kept.
    ///
    /// # Errors
    /// `InvalidData` if there are fewer, or some of them were never written, `ResourceBusy` if somebody has it mapped for writing
    /// still; else what the kernel says.
    pub fn seal(self, len: u64) -> io::Result<Sealed> {
        let blocks = self.cut(len, SealFlags::WRITE)?;
        // Whoever reads a page that nobody has written to makes it, and pays for it.
        if blocks * BLOCK_BYTES < len / PAGE_BYTES * PAGE_BYTES {
            return Err(refused("a part of it was never written"));
        }
        let len = usize::try_from(len).map_err(|_| refused("it is longer than memory"))?;
        let mapping = Mapping::map(&self.file, 0, len)?;
        Ok(Sealed { file: self.file, mapping })
    }

    /// Ends the filling of what is not looked at here, but only handed on. Nobody changes its length
    /// any more, and nobody who does not have it mapped already writes to it.
    ///
    /// # Errors
    /// `InvalidData` if there are fewer bytes; else what the kernel says.
    pub fn lend(self, len: u64) -> io::Result<Lent> {
        let bytes = self.cut(len, SealFlags::FUTURE_WRITE)? * BLOCK_BYTES;
        Ok(Lent { file: self.file, len, bytes })
    }

    /// Keeps so many bytes, of a length that nobody changes, and which `writers` does not let write any
    /// more; the blocks that they take.
    fn cut(&self, len: u64, writers: SealFlags) -> io::Result<u64> {
        if len > self.bytes_max {
            return Err(refused("it is longer than it may be"));
        }
        if len < self.file.metadata()?.len() {
            self.file.set_len(len)?;
        }
        // In this order: a length that was looked at before could change.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | writers;
        rustix::fs::fcntl_add_seals(&self.file, seals)?;
        let metadata = self.file.metadata()?;
        if metadata.len() == len { Ok(metadata.blocks()) } else { Err(refused("it has another length")) }
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Memory that others map, and that is not looked at here.
#[derive(Debug)]
pub struct Lent {
    file: File,
    len: u64,
    bytes: u64,
}

impl Lent {
    /// By which others may map it, and not change it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How long it is, with its holes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it takes of the machine's memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Memory that never changes any more.
#[derive(Debug)]
pub struct Sealed {
    file: File,
    mapping: Mapping,
}

impl Sealed {
    /// By which others may map it, and not change it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Deref for Sealed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.mapping
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    fn filled(bytes: &[u8]) -> (Outbox, File) {
        let outbox = Outbox::create(bytes.len() as u64).unwrap();
        let mut other = File::from(outbox.fd().try_clone_to_owned().unwrap());
        other.write_all(bytes).unwrap();
        (outbox, other)
    }

    #[test]
    fn what_was_filled_is_read_and_never_changes() {
        let (outbox, mut other) = filled(b"some bytes and more");
        let sealed = outbox.seal(10).unwrap();
        assert_eq!(&*sealed, b"some bytes");
        other.seek(SeekFrom::Start(0)).unwrap();
        assert!(other.write_all(b"other").is_err(), "it is written to");
        assert!(other.set_len(0).is_err() && other.set_len(1 << 20).is_err(), "its length changes");
        assert_eq!(&*sealed, b"some bytes");
        let again = Mapping::map(&File::from(sealed.fd().try_clone_to_owned().unwrap()), 0, 10).unwrap();
        drop((sealed, other));
        assert_eq!(&*again, b"some bytes");
    }

    #[test]
    fn what_is_lent_is_written_to_by_nobody_new() {
        let (outbox, mut other) = filled(&[7; 10_000]);
        other.set_len(1 << 20).unwrap();
        let outbox = Outbox { bytes_max: 1 << 20, ..outbox };
        let lent = outbox.lend(1 << 19).unwrap();
        assert_eq!((lent.len(), lent.bytes()), (1 << 19, 12 << 10), "holes take nothing");
        other.seek(SeekFrom::Start(0)).unwrap();
        assert!(other.write_all(b"other").is_err(), "it is written to");
        assert!(other.set_len(0).is_err() && other.set_len(1 << 20).is_err(), "its length changes");
        assert!(filled(b"some bytes").0.lend(11).is_err());
        let (outbox, other) = filled(b"some bytes");
        other.set_len(3).unwrap();
        assert!(outbox.lend(10).is_err(), "it is shorter than it is said to be");
    }

    #[test]
    fn what_is_not_as_it_was_said_to_be_is_refused() {
        for len in [11, u64::MAX] {
            assert_eq!(filled(b"some bytes").0.seal(len).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(Outbox::create(5000).unwrap().seal(0).unwrap().len(), 0);
        // Who has the other end may have shortened it.
        let (outbox, other) = filled(b"some bytes");
        other.set_len(3).unwrap();
        assert_eq!(outbox.seal(10).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // Whoever can write to it by memory would do so afterwards.
        let (memory, file) = crate::SharedMemory::create("test", 4096).unwrap();
        let _ = memory;
        let other = Outbox { file: file.into(), bytes_max: 4096 };
        assert!(other.seal(4096).is_err(), "its seals are not ours to add");
        // To read what nobody wrote would take memory of whoever reads.
        assert_eq!(
            Outbox::create(1 << 30).unwrap().seal(1 << 30).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let (outbox, other) = filled(&[7; 10_000]);
        other.set_len(1 << 20).unwrap();
        assert_eq!(outbox.seal(1 << 20).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
