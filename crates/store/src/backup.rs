// SPDX-License-Identifier: Apache-2.0
//! Backups: folders with points in time of a home, and homes made of them.
//!
//! A backup is a folder of the same form as a home: packs, large objects, an index.
//! So it is crash-safe as a home is, holds each object once however many points name
//! it, and each byte in it is verified by its name. A *point* is a tree that names all
//! labels of a moment and what they name ([`point`]); a label of the backup's index
//! names it, which is set when all else is synced. One that broke off is none.
//!
//! What was dropped is not made again for a backup: its recipe is copied, with what that needs.
//! Relations are in no backup: they are computed again. Nor is the queue: what it has
//! is to be done by this node, now, and not once more by a copy of it later.

mod copier;
mod point;
mod restore;

use std::collections::HashSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use objects::Handle;

pub(crate) use copier::{Copied, Copier};
pub use point::Point;
use point::{PREFIX, Parts, check_point};
pub use restore::{Restore, Restored};

use crate::disk::Disk;
use crate::files::{Files, Kind};
use crate::fsck::CACHE_BYTES;
use crate::index::{Batch, Index};
use crate::packs::now;
use crate::{Collection, Error, Options, Store};

/// A backup's label while a tree may be there without all that it names: the next walk
/// trusts nothing.
const UNSETTLED: &str = "unsettled";
/// Points of one backup.
const POINTS_MAX: usize = 10_000;

/// What to write, and where.
#[derive(Clone, Debug)]
pub struct Backup {
    /// The point's name.
    pub point: String,
    /// Files of the node's own that are not in its store: their names and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
}

/// What a backup wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backed {
    /// Objects that were not there yet.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Labels of the point.
    pub labels: u64,
    /// Objects that they name and that were not to be had.
    pub missing: u64,
    /// How many of them are there, but damaged.
    pub damaged: u64,
    /// Some of the missing ones.
    pub first_missing: Vec<Handle>,
}

/// What was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Points that are gone.
    pub points: Vec<String>,
    /// Objects that went with them.
    pub objects: u64,
    /// Bytes by which the folder has become less.
    pub freed_bytes: u64,
}

impl Store {
    /// Writes a point in time into a folder, which has others or is new: what labels name now,
    /// with all that it names, and these files. Nothing is collected meanwhile. `progress`
    /// hears how many objects were looked at and how many bytes written, and says whether to
    /// go on.
    ///
    /// # Errors
    /// [`Error::NoDisk`]; [`Error::Collecting`]; [`Error::NoBackup`] and [`Error::NotEmpty`]
    /// if the folder is something else; [`Error::Point`] if it has this one;
    /// [`Error::Stopped`]; those of reading and writing. There is no new point then.
    pub fn backup(
        &self,
        to: &Path,
        backup: &Backup,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Backed, Error> {
        let disk = self.disk().ok_or(Error::NoDisk)?;
        check_point(&backup.point)?;
        let _one = disk.collecting.try_lock().ok_or(Error::Collecting)?;
        let target = Disk::over(Files::open_as(to, Kind::Backup)?, CACHE_BYTES, u64::MAX)?;
        let name = format!("{PREFIX}{}", backup.point);
        if target.index().label(&name)?.is_some() {
            let reason = "the backup has one of this name: name another, or forget it".to_owned();
            return Err(Error::Point { point: backup.point.clone(), reason });
        }
        let labels = self.labels()?;
        let is_settled = target.index().label(UNSETTLED)?.is_none();
        // What was missing may be there by now, behind a tree that was copied without it.
        let trusts = is_settled && known_gaps(target.index(), target.files())?.is_empty();
        let mut copier = Copier::new(disk, &target, trusts, progress);
        for (_, handle) in &labels {
            copier.copy(*handle)?;
        }
        let Copied { objects, bytes, mut missing, missing_objects, damaged_objects } = copier.finish()?;
        missing.sort_unstable();
        let (parts, point) =
            point::objects(&backup.point, ms_since_1970(now()), &labels, &backup.files, &missing);
        target.write(&parts, Vec::new())?;
        target.write_label(&name, Some(point))?;
        if !is_settled {
            target.write_label(UNSETTLED, None)?;
        }
        missing.truncate(10);
        Ok(Backed {
            objects,
            bytes,
            labels: labels.len() as u64,
            missing: missing_objects,
            damaged: damaged_objects,
            first_missing: missing,
        })
    }
}

/// Removes points, and what only they name. Objects of the last hour stay until the next time.
///
/// # Errors
/// [`Error::NoSuch`] for one that is not there, before anything is changed; those of opening,
/// reading and writing.
pub fn forget(backup: &Path, points: &[String]) -> Result<Forgotten, Error> {
    let there: HashSet<String> = BackupFolder::open(backup)?.names()?.0.into_iter().collect();
    if let Some(point) = points.iter().find(|point| !there.contains(*point)) {
        let reason = "the backup has none of this name".to_owned();
        return Err(Error::NoSuch { point: point.clone(), reason });
    }
    let options = Options { home: Some(backup.to_owned()), memory_bytes: 64 << 20, relations_bytes: 1 << 16 };
    let store = Store::open_as(options, Kind::Backup)?;
    let disk = store.disk().ok_or(Error::NoDisk)?;
    let was_settled = disk.index().label(UNSETTLED)?.is_none();
    // A collection that is killed may leave trees without what they name.
    unsettle(disk)?;
    for point in points {
        disk.write_label(&format!("{PREFIX}{point}"), None)?;
    }
    let collection = Collection { kept: Collection::KEPT_MIN, is_trial: false, dropping: None };
    let collected = store.collect(collection, &Vec::new)?;
    if was_settled {
        disk.write_label(UNSETTLED, None)?;
    }
    Ok(Forgotten { points: points.to_vec(), objects: collected.objects, freed_bytes: collected.freed_bytes })
}

/// Something of a backup is damaged or missing: the next point looks at all that is there.
pub(crate) fn unsettle(disk: &Disk) -> Result<(), Error> {
    disk.write_label(UNSETTLED, Some(Handle::u64(0))).map(drop)
}

/// What was missing already when points were made.
pub(crate) fn known_gaps(index: &Index, files: &Files) -> Result<HashSet<Handle>, Error> {
    let mut gaps = HashSet::new();
    for (name, handle) in index.label_rows()? {
        if let (true, Some(handle)) = (name.starts_with(PREFIX), handle) {
            // One that cannot be read is found by who reads it.
            gaps.extend(point::missing(index, files, handle)?);
        }
    }
    Ok(gaps)
}

/// The points of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    /// Those that can be read, the newest first.
    pub points: Vec<Point>,
    /// Names of those that cannot, which may be newer, with the reason.
    pub damaged: Vec<(String, String)>,
    /// How many there are beyond those that are looked at.
    pub unseen: u64,
}

/// A backup that is looked at; nothing in it is changed.
pub struct BackupFolder {
    disk: Disk,
}

impl BackupFolder {
    /// Opens it; it is locked as long as this lives.
    ///
    /// # Errors
    /// [`Error::NoBackup`]; [`Error::Locked`]; those of reading.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (files, _) = Files::open_to_look(path, Kind::Backup)?;
        Ok(Self { disk: Disk::to_look(files, CACHE_BYTES)? })
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The names of its points, and how many there are besides.
    fn names(&self) -> Result<(Vec<String>, u64), Error> {
        let labels = self.disk.index().label_rows()?;
        let names = labels.into_iter().filter_map(|(name, _)| name.strip_prefix(PREFIX).map(str::to_owned));
        let mut names: Vec<String> = names.collect();
        let unseen = names.len().saturating_sub(POINTS_MAX) as u64;
        names.truncate(POINTS_MAX);
        Ok((names, unseen))
    }

    /// Its points that can be read, the newest first.
    ///
    /// # Errors
    /// Those of reading.
    pub fn points(&self) -> Result<Vec<Point>, Error> {
        Ok(self.listing()?.points)
    }

    /// All of its points. One that cannot be read is no obstacle to the others.
    ///
    /// # Errors
    /// Those of reading.
    pub fn listing(&self) -> Result<Points, Error> {
        let (names, unseen) = self.names()?;
        let mut all = Points { points: Vec::new(), damaged: Vec::new(), unseen };
        for name in names {
            match point::read(&self.disk, &name) {
                Ok(parts) => all.points.push(parts.info(&name)),
                Err(error @ (Error::Point { .. } | Error::Index { .. })) => {
                    all.damaged.push((name, error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        all.points.sort_by(|one, other| (other.made_ms, &other.name).cmp(&(one.made_ms, &one.name)));
        Ok(all)
    }

    /// Labels of a point.
    ///
    /// # Errors
    /// [`Error::Point`], those of reading.
    pub fn labels(&self, point: &str) -> Result<Vec<(String, Handle)>, Error> {
        self.parts(point)?.labels(&self.disk)
    }

    /// A file of a point, if it has one of this name.
    ///
    /// # Errors
    /// [`Error::Point`], those of reading.
    pub fn file(&self, point: &str, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let parts = self.parts(point)?;
        let file = parts.files.iter().find(|(found, _)| found == name);
        let read = file.map(|(_, blob)| point::blob(&self.disk, *blob, point::FILE_BYTES_MAX)).transpose()?;
        Ok(read.map(|object| object.to_vec()))
    }

    fn parts(&self, point: &str) -> Result<Parts, Error> {
        point::read(&self.disk, point)
    }
}

fn ms_since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Labels that are written in one transaction.
const LABELS_AT_ONCE: usize = 4096;

/// Sets or removes labels, many at a time, in a folder that nobody else writes to.
fn write_labels(disk: &Disk, labels: impl Iterator<Item = (String, Option<Handle>)>) -> Result<(), Error> {
    let batches: Vec<Batch> = labels.map(|label| Batch { label: Some(label), ..Batch::default() }).collect();
    for chunk in batches.chunks(LABELS_AT_ONCE) {
        disk.index().commit(&chunk.iter().collect::<Vec<_>>())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
