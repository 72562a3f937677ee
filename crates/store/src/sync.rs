// SPDX-License-Identifier: Apache-2.0
//! Waiting until the disk has what was written. Everybody here waits in this file, so that a
//! test can tell what a loss of power at any moment would leave (`tests/power.rs`).

use std::fs::File;
use std::io;
use std::path::Path;

/// A file's bytes, and all that it takes to find them.
pub(crate) fn bytes(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if crate::tests::witness::has_synced(file) {
        return Ok(());
    }
    file.sync_data()
}

/// A file's bytes, and what is known of it; of a folder its names.
pub(crate) fn all(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if crate::tests::witness::has_synced(file) {
        return Ok(());
    }
    file.sync_all()
}

/// The names in a folder.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    all(&File::open(path)?)
}
