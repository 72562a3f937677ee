// SPDX-License-Identifier: Apache-2.0
//! Where the durable tier keeps its objects: a flat place for named bytes, as a bucket
//! of S3 is one. The store says what it needs of it, and others bring it.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Object;

/// Names that are listed at once, at most.
pub const LISTED_MAX: usize = 1000;

/// Why a depot did not do what it was asked, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DepotError(pub String);

/// Keeps named bytes. Names have letters, digits, `-`, `.` and `/`. All may block, for a bounded time.
pub trait Depot: Send + Sync {
    /// What it is called, for people.
    fn name(&self) -> String;

    /// Keeps these bytes under a name, instead of what was there. When this returns they survive
    /// whatever the depot survives; when it fails, they or what was there before may be there.
    ///
    /// # Errors
    /// Why they are not kept.
    fn put(&self, name: &str, bytes: &Object) -> Result<(), DepotError>;

    /// The bytes under a name that are in the range; less where it ends before. `None`: there is
    /// nothing of this name.
    ///
    /// # Errors
    /// Why they cannot be had now.
    fn get(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, DepotError>;

    /// Names that begin so and come behind `after`, in their order: all, or [`LISTED_MAX`].
    ///
    /// # Errors
    /// Why they cannot be told now.
    fn list(&self, begin: &str, after: &str) -> Result<Vec<String>, DepotError>;

    /// Takes away what has this name, if anything has.
    ///
    /// # Errors
    /// Why it may be there still.
    fn remove(&self, name: &str) -> Result<(), DepotError>;

    /// Whoever waits for it is told soon that it is given up, and so is whoever asks from now on.
    fn close(&self) {}
}

/// A depot that is a folder: for tests, and for disks that are far away.
#[derive(Debug)]
pub struct FolderDepot {
    folder: PathBuf,
    drafts: AtomicU64,
}

impl FolderDepot {
    /// In this folder, which is made if there is none.
    ///
    /// # Errors
    /// Those of making it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder.join("drafts"))?;
        Ok(Self { folder: folder.to_owned(), drafts: AtomicU64::new(0) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join("names").join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        let draft = self.folder.join("drafts").join(format!("{}-{number}", std::process::id()));
        let mut file = fs::File::create(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent)?;
        fs::rename(&draft, &path)?;
        fs::File::open(parent)?.sync_all()
    }

    /// Adds names below a folder.
    fn collect(&self, folder: &Path, names: &mut Vec<String>) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                self.collect(&path, names)?;
            } else if let Ok(name) = path.strip_prefix(self.folder.join("names")) {
                names.extend(name.to_str().map(str::to_owned));
            }
        }
        Ok(())
    }
}

fn told(error: io::Error) -> DepotError {
    DepotError(error.to_string())
}

impl Depot for FolderDepot {
    fn name(&self) -> String {
        self.folder.display().to_string()
    }

    fn put(&self, name: &str, bytes: &Object) -> Result<(), DepotError> {
        self.write(name, bytes).map_err(told)
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, DepotError> {
        let read = || {
            let mut file = match fs::File::open(self.path(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        };
        read().map_err(told)
    }

    fn list(&self, begin: &str, after: &str) -> Result<Vec<String>, DepotError> {
        let mut names = Vec::new();
        self.collect(&self.folder.join("names"), &mut names).map_err(told)?;
        names.retain(|name| name.starts_with(begin) && name.as_str() > after);
        names.sort_unstable();
        names.truncate(LISTED_MAX);
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<(), DepotError> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(told(error)),
            _ => Ok(()),
        }
    }
}
