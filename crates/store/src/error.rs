// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a store. An absent object is no error.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use objects::Handle;

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused to read or write; a full disk is one of these. The
    /// store stays usable.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The index's own bookkeeping is damaged or was refused.
    #[error("{}: {reason}", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What the database said.
        reason: String,
    },
    /// Stored bytes did not hash to their handle. They were moved aside, so
    /// that the object can be put again.
    #[error("{handle} is corrupt on disk; its bytes were moved to {}", path.display())]
    Corrupt {
        /// The object that was asked for.
        handle: Handle,
        /// Where its damaged bytes are now.
        path: PathBuf,
    },
    /// A store without a disk has used up its memory.
    #[error("the store is full: {needed_bytes} bytes more than its {budget_bytes} bytes would be needed")]
    Full {
        /// Bytes by which the request goes over the budget.
        needed_bytes: u64,
        /// The budget, in bytes.
        budget_bytes: u64,
    },
    /// What is left of the disk is kept for what is put, and for taking things away.
    #[error(
        "{}: {free_bytes} bytes of its disk are free, and {kept_bytes} are kept back: remove files, or run `sinew gc`",
        home.display()
    )]
    Scarce {
        /// The home folder.
        home: PathBuf,
        /// Bytes that are free.
        free_bytes: u64,
        /// Bytes that are kept back.
        kept_bytes: u64,
    },
    /// Another process uses the home folder.
    #[error("{} is in use by {}", home.display(), Holder(*pid))]
    Locked {
        /// The home folder.
        home: PathBuf,
        /// The process, if it left its number.
        pid: Option<u32>,
    },
    /// The home folder was written by another version.
    #[error(
        "{} says {found:?}, this version reads {supported:?}: run the version that wrote it, or name another home",
        path.display()
    )]
    UnknownFormat {
        /// The FORMAT file.
        path: PathBuf,
        /// Its first line.
        found: String,
        /// What this version writes.
        supported: &'static str,
    },
    /// The home folder was written by a version before this one.
    #[error(
        "{} says {found:?}, which this version brings up to date: back the home up, then run `sinew upgrade`",
        path.display()
    )]
    OldFormat {
        /// The FORMAT file.
        path: PathBuf,
        /// Its first line.
        found: String,
    },
    /// A folder that is to be empty is not.
    #[error("{} has something in it: name a folder that is empty, or none yet", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// A folder that is no home.
    #[error("{} is no home of a node: name it with --home", path.display())]
    NoHome {
        /// The folder.
        path: PathBuf,
    },
    /// A folder of backups where something else was to be.
    #[error("{} is a backup: `sinew restore` makes a home of one of its points", path.display())]
    IsBackup {
        /// The folder.
        path: PathBuf,
    },
    /// What was to be a backup is none.
    #[error("{} is no backup, its FORMAT says {found:?}: name a folder that `sinew backup` has written", path.display())]
    NoBackup {
        /// The folder.
        path: PathBuf,
        /// What FORMAT says; nothing if there is none.
        found: String,
    },
    /// A home whose restoring was broken off.
    #[error(
        "{} was not restored to its end: run `sinew restore` again with the same point, or remove it",
        path.display()
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// A backup has such a point already, or it is not what one is.
    #[error("the point {point:?}: {reason}")]
    Point {
        /// Its name.
        point: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A backup has no such point, or the point no such label.
    #[error("the point {point:?}: {reason}")]
    NoSuch {
        /// The point's name.
        point: String,
        /// What is not there.
        reason: String,
    },
    /// A backup that would be lost with what it is of.
    #[error("{} lies in the home {}, and would be lost with it: name a folder elsewhere", path.display(), home.display())]
    InHome {
        /// The folder of the backup.
        path: PathBuf,
        /// The home.
        home: PathBuf,
    },
    /// What takes a disk was asked of a store that has none.
    #[error("the store has no disk: nothing of it outlives its process")]
    NoDisk,
    /// Whoever wanted it is gone.
    #[error("it was broken off")]
    Stopped,
    /// Somebody else collects already, or reads all that is there.
    #[error("a collection, a check or a backup is under way already")]
    Collecting,
    /// A name that no label may have.
    #[error("{name:?} cannot be a label: {reason}")]
    BadLabel {
        /// The name.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// There are [`crate::LABELS_MAX`] labels already.
    #[error("there are {} labels already", crate::LABELS_MAX)]
    TooManyLabels,
    /// A blob of 2^48 bytes or more.
    #[error("a blob has at most 2^48 - 1 bytes")]
    TooLarge,
    /// What takes a tier was asked of a store that has none.
    #[error("the store has no durable tier: the node's file has to name one, as [tier]")]
    NoTier,
    /// The tier refuses, or cannot be asked.
    #[error("the durable tier {tier}: {why}")]
    Tier {
        /// What it is called.
        tier: String,
        /// For people.
        why: String,
    },
    /// What was put is on the disk, and not yet in the tier.
    #[error(
        "the durable tier {tier}: {why}; what was put is on the disk, synced, and is sent when that can be"
    )]
    Unsent {
        /// What it is called.
        tier: String,
        /// For people.
        why: String,
    },
    /// An object that is in the tier only does not come.
    #[error("{handle} does not come from the durable tier {tier}: {why}")]
    Far {
        /// The object that was asked for.
        handle: Handle,
        /// What the tier is called.
        tier: String,
        /// For people.
        why: String,
    },
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Something that was named is not there.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NoSuch { .. } | Self::NoHome { .. } => true,
            Self::NoBackup { found, .. } => found.is_empty(),
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// The disk is full, or what of it is ours.
    pub(crate) fn is_full_disk(&self) -> bool {
        let is_full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        matches!(self, Self::Io { source, .. } if is_full(source.kind()))
    }

    pub(crate) fn io(path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io { path: path.as_ref().to_owned(), source }
    }

    /// The same error for one more caller of a shared commit.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Io { path, source } => {
                let source = match source.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(source.kind(), source.to_string()),
                };
                Self::Io { path: path.clone(), source }
            }
            Self::Index { path, reason } => Self::Index { path: path.clone(), reason: reason.clone() },
            // A commit fails in no other way.
            _ => Self::Closed,
        }
    }
}

/// Names the process that holds a lock.
struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}
