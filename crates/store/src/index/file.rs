// SPDX-License-Identifier: Apache-2.0
//! The database's file, of which a thread may read only what the kernel has in its
//! memory.
//!
//! redb takes an error of its file for the end of it, and refuses whatever comes
//! after. So a look-up that would have to wait is not told an error: it is left, by
//! unwinding. redb holds no lock while it reads a page for a transaction that only
//! reads, and what it had read is in its cache.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::panic::resume_unwind;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

thread_local! {
    /// This thread must not wait for a disk.
    static HURRIES: Cell<bool> = const { Cell::new(false) };
}

/// What a look-up is left by.
struct WouldWait;

/// Has this thread not wait for a disk, for as long as it lives.
pub(crate) struct Hurry(());

impl Hurry {
    pub(super) fn begin() -> Self {
        HURRIES.set(true);
        Self(())
    }

    /// Before a read that may wait: leaves the look-up of a thread that must not.
    pub(crate) fn or_leave() {
        if HURRIES.get() {
            // No panic: nobody is told.
            resume_unwind(Box::new(WouldWait));
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        HURRIES.set(false);
    }
}

/// A file that redb locks, reads and writes as ever.
#[derive(Debug)]
pub(super) struct IndexFile {
    backend: FileBackend,
    /// The same once more, to be read by who must not wait.
    file: File,
}

impl IndexFile {
    pub(super) fn open(path: &Path) -> Result<Self, DatabaseError> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let open = options.and_then(|file| Ok((file.try_clone()?, file)));
        let (file, locked) = open.map_err(redb::StorageError::from)?;
        Ok(Self { backend: FileBackend::new(locked)?, file })
    }
}

impl StorageBackend for IndexFile {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if HURRIES.get() && linux::read_cached(&self.file, out, offset) {
            return Ok(());
        }
        Hurry::or_leave();
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        crate::sync::bytes(&self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.query_lock_range(start, end)
    }
}
