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
    /// It is not here.
    #[error("{0} is not here")]
    Missing(Handle),
    /// It cannot be read.
    #[error(transparent)]
    Store(store::Error),
}

/// What was written, later.
pub type Exporting<'a> = Pin<Box<dyn Future<Output = Result<Exported, ExportError>> + Send + 'a>>;

/// Who writes to buckets.
pub trait Exporter: Send + Sync {
    /// Writes an object, or all files of a directory. Dropping the future ends it.
    fn export<'a>(&'a self, export: &'a Export) -> Exporting<'a>;
}
