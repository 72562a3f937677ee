// SPDX-License-Identifier: Apache-2.0
//! Objects that go to buckets, which the backend writes.

use std::pin::Pin;

use objects::Handle;

/// What is to be written, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// A blob; or a directory, whose files are written.
    pub object: Handle,
    /// `s3://BUCKET/KEY`; of a directory what its files' keys begin with.
    pub url: String,
    /// The type that is said of each object.
    pub content_type: String,
    /// Of a directory only the files with these contents; all if there are none.
    pub only: Vec<Handle>,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exported {
    /// Objects that were sent.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Objects that were there already.
    pub known: u64,
    /// Their bytes.
    pub known_bytes: u64,
}

/// Why something was not written. Other files of the same directory may have been.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It will not be written, today or tomorrow.
    #[error("{0}")]
    Refused(String),
    /// It may be written another time.
    #[error("{0}")]
    Failed(String),
    /// A part of it is not here, and all others were written.
    #[error("{} objects are not here", .missing.len())]
    Missing {
        /// What is not here.
        missing: Vec<Handle>,
        /// What was written.
        exported: Exported,
    },
    /// It cannot be read.
    #[error(transparent)]
    Store(store::Error),
}

impl Exported {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            written: self.written + other.written,
            written_bytes: self.written_bytes + other.written_bytes,
            known: self.known + other.known,
            known_bytes: self.known_bytes + other.known_bytes,
        }
    }
}

impl ExportError {
    /// Nothing was written, for want of this.
    pub fn missing(handle: Handle) -> Self {
        Self::Missing { missing: vec![handle], exported: Exported::default() }
    }
}

/// What was written, later.
pub type Exporting<'a> = Pin<Box<dyn Future<Output = Result<Exported, ExportError>> + Send + 'a>>;

/// Who writes to buckets.
pub trait Exporter: Send + Sync {
    /// Writes an object, or all files of a directory. Dropping the future ends it.
    fn export<'a>(&'a self, export: &'a Export) -> Exporting<'a>;
}
