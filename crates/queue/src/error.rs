// SPDX-License-Identifier: Apache-2.0
//! What keeps a queue from doing what it is asked.

use std::path::PathBuf;

/// A refusal, or a failure of the disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No message fits any more.
    #[error("the queue holds {messages} messages of {bytes} bytes, which is all that it may")]
    Full {
        /// Messages in it.
        messages: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// No further message of one lane fits.
    #[error(
        "{lane} has {messages} messages of {bytes} bytes in the queue, {dead} of them dead letters, which is its share"
    )]
    LaneFull {
        /// Which lane.
        lane: String,
        /// Its messages.
        messages: usize,
        /// Their bytes.
        bytes: u64,
        /// Those of them that are dead.
        dead: usize,
    },
    /// No further key against duplicates fits.
    #[error("the queue remembers {keys} keys against duplicates, which is all that it may")]
    KeysFull {
        /// Keys that are remembered.
        keys: usize,
    },
    /// The file system.
    #[error("the queue's file {path}: {source}")]
    Io {
        /// The database.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The database is not readable as such.
    #[error("the queue's file {path}: {reason}")]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The queue is ending.
    #[error("the queue is closed")]
    Closed,
}

impl Error {
    /// The same again: one failed commit is told to all who waited for it.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Io { path, source } => {
                let source = match source.raw_os_error() {
                    Some(code) => std::io::Error::from_raw_os_error(code),
                    None => std::io::Error::new(source.kind(), source.to_string()),
                };
                Self::Io { path: path.clone(), source }
            }
            Self::Damaged { path, reason } => Self::Damaged { path: path.clone(), reason: reason.clone() },
            _ => Self::Closed,
        }
    }
}
