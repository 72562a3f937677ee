// SPDX-License-Identifier: Apache-2.0
//! Makes a home of a point, or puts labels of one back into a store.

use std::collections::HashSet;
use std::path::Path;

use objects::Handle;

use super::{BackupFolder, Copied, Copier, write_labels};
use crate::disk::Disk;
use crate::files::{Files, Kind};
use crate::fsck::CACHE_BYTES;
use crate::{Error, Store};

/// Files of the node's own have names of letters and dots, and none leads elsewhere.
const FILE_NAME_LEN_MAX: usize = 64;

/// What to make of a point.
#[derive(Clone, Debug, Default)]
pub struct Restore {
    /// Goes on where something of the point is damaged or missing.
    pub partial: bool,
    /// Files of the node's own, with what is in them.
    pub files: Vec<(String, Vec<u8>)>,
}

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Objects that were not there yet.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Labels that were set.
    pub labels: u64,
    /// Objects that could not be had, those included that the point never had.
    pub missing: u64,
    /// Some of them.
    pub first_missing: Vec<Handle>,
}

impl BackupFolder {
    /// Makes a home of a point, in a folder that is empty or not there. It is none before this
    /// has ended; what broke off goes on when it is called again. `progress` hears objects and
    /// bytes, and says whether to go on.
    ///
    /// # Errors
    /// [`Error::NotEmpty`]; [`Error::Point`] if something of it is missing or damaged, unless
    /// [`Restore::partial`]; [`Error::Stopped`]; those of reading and writing.
    pub fn restore(
        &self,
        point: &str,
        to: &Path,
        restore: &Restore,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Restored, Error> {
        let parts = self.parts(point)?;
        let labels = parts.labels(&self.disk)?;
        if let Some((name, _)) = restore.files.iter().find(|(name, _)| !is_file_name(name)) {
            return Err(Error::Point {
                point: point.to_owned(),
                reason: format!("{name:?} is no name for a file of a node's"),
            });
        }
        let target = Disk::over(Files::open_as(to, Kind::Unfinished)?, CACHE_BYTES, u64::MAX)?;
        let mut copier = Copier::new(&self.disk, &target, false, progress);
        for (_, handle) in &labels {
            copier.copy(*handle)?;
        }
        let (missing, copied) = self.gaps(point, &parts.missing, copier.finish()?, restore.partial)?;
        // Of another point, whose restoring was broken off.
        let wanted: HashSet<&str> = labels.iter().map(|(name, _)| name.as_str()).collect();
        let rows = target.index().label_rows()?.into_iter();
        let others = rows.filter(|(name, _)| !wanted.contains(name.as_str())).map(|(name, _)| (name, None));
        write_labels(&target, others)?;
        write_labels(&target, labels.iter().map(|(name, handle)| (name.clone(), Some(*handle))))?;
        for (name, bytes) in &restore.files {
            target.files().write_file(name, bytes)?;
        }
        target.files().write_format(Kind::Home)?;
        Ok(restored(copied, labels.len(), missing))
    }

    /// Puts labels of a point back into a store in use, with all that they name: those of these
    /// names, and those below a name that ends with a slash.
    ///
    /// # Errors
    /// [`Error::NoSuch`] if it has no such label; [`Error::Point`] if something of one is missing or damaged, or
    /// the store has one that names something else, unless it `replaces`; [`Error::NoDisk`];
    /// [`Error::Collecting`]; those of reading and writing.
    pub fn restore_labels(
        &self,
        point: &str,
        names: &[String],
        replaces: bool,
        store: &Store,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Restored, Error> {
        let disk = store.disk().ok_or(Error::NoDisk)?;
        let parts = self.parts(point)?;
        let refuse = |reason: String| Error::Point { point: point.to_owned(), reason };
        let all = parts.labels(&self.disk)?;
        let is_meant = |wanted: &String, name: &str| {
            name == wanted || (wanted.ends_with('/') && name.starts_with(wanted.as_str()))
        };
        if let Some(wanted) = names.iter().find(|wanted| !all.iter().any(|(name, _)| is_meant(wanted, name)))
        {
            let reason = format!("it has no label {wanted:?}");
            return Err(Error::NoSuch { point: point.to_owned(), reason });
        }
        let labels: Vec<_> =
            all.into_iter().filter(|(name, _)| names.iter().any(|wanted| is_meant(wanted, name))).collect();
        for (name, handle) in &labels {
            if store.label(name)?.is_some_and(|there| there != *handle) && !replaces {
                return Err(refuse(format!(
                    "the label {name:?} names something else now: say that it is to be replaced"
                )));
            }
        }
        // What nobody names yet stays until it is named.
        let _one = disk.collecting.try_lock().ok_or(Error::Collecting)?;
        let mut copier = Copier::new(&self.disk, disk, false, progress);
        for (_, handle) in &labels {
            copier.copy(*handle)?;
        }
        let (missing, copied) = self.gaps(point, &parts.missing, copier.finish()?, false)?;
        for (name, handle) in &labels {
            store.set_label(name, *handle)?;
        }
        Ok(restored(copied, labels.len(), missing))
    }

    /// What could not be had. What the point never had is no error, and told.
    fn gaps(
        &self,
        point: &str,
        known: &[Handle],
        copied: Copied,
        partial: bool,
    ) -> Result<(Vec<Handle>, Copied), Error> {
        let known: HashSet<&Handle> = known.iter().collect();
        let mut unknown = copied.missing.iter().filter(|key| !known.contains(key)).peekable();
        match unknown.peek().copied().copied().filter(|_| !partial) {
            None => Ok((copied.missing.clone(), copied)),
            Some(first) => {
                let reason = format!(
                    "{} objects of it are missing or damaged, as {first}: take another point, or restore what there is with --partial",
                    unknown.count()
                );
                Err(Error::Point { point: point.to_owned(), reason })
            }
        }
    }
}

fn restored(copied: Copied, labels: usize, missing: Vec<Handle>) -> Restored {
    Restored {
        objects: copied.objects,
        bytes: copied.bytes,
        labels: labels as u64,
        missing: missing.len() as u64,
        first_missing: missing.into_iter().take(10).collect(),
    }
}

fn is_file_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'.' | b'-');
    let is_ours = matches!(name, "lock" | "tmp" | "packs" | "objects" | "quarantine" | "reserve")
        || name.ends_with(".redb");
    (1..=FILE_NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('.')
        && !is_ours
}
