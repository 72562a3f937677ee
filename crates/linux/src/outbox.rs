// SPDX-License-Identifier: Apache-2.0
//! Memory that one process fills and others only read.
//!
//! An [`Outbox`] is empty memory that a process of less trust is handed, to write
//! to. When it says that it has, [`Outbox::seal`] makes sure that nobody changes or
//! shortens it ever after, whoever has it open: from then on it is like a file
//! that never changes, and may be mapped and handed on.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::Mapping;

/// Memory that is being filled.
#[derive(Debug)]
pub struct Outbox(File);

impl Outbox {
    /// Empty memory, closed on exec.
    ///
    /// # Errors
    /// What the kernel says, as when there are no descriptors left.
    pub fn create() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        Ok(Self(rustix::fs::memfd_create("sinew-outbox", flags)?.into()))
    }

    /// What whoever fills it is handed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Ends the filling, and maps what is there, which is to be so long.
    ///
    /// # Errors
    /// `InvalidData` if it has another length, or `ResourceBusy` if somebody has it mapped for writing
    /// still; else what the kernel says.
    pub fn seal(self, len: u64) -> io::Result<Sealed> {
        // In this order: a length that was looked at before could change.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&self.0, seals)?;
        let is_whole = self.0.metadata()?.len() == len;
        let len = usize::try_from(len).ok().filter(|_| is_whole);
        let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has another length"))?;
        let mapping = Mapping::map(&self.0, 0, len)?;
        Ok(Sealed { file: self.0, mapping })
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
        let outbox = Outbox::create().unwrap();
        let mut other = File::from(outbox.fd().try_clone_to_owned().unwrap());
        other.write_all(bytes).unwrap();
        (outbox, other)
    }

    #[test]
    fn what_was_filled_is_read_and_never_changes() {
        let (outbox, mut other) = filled(b"some bytes");
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
    fn what_is_not_as_it_was_said_to_be_is_refused() {
        for len in [0, 9, 11, u64::MAX] {
            assert_eq!(filled(b"some bytes").0.seal(len).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(Outbox::create().unwrap().seal(0).unwrap().len(), 0);
        // Whoever can write to it by memory would do so afterwards.
        let (memory, file) = crate::SharedMemory::create("test", 4096).unwrap();
        let _ = memory;
        assert!(Outbox(file.into()).seal(4096).is_err(), "its seals are not ours to add");
    }
}
