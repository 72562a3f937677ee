// SPDX-License-Identifier: Apache-2.0
//! Puts right what a check has found: damaged bytes are moved aside, what the index
//! lost is found in the packs again, what a backup has is copied, and only then
//! relations that still lead to nothing are dropped.
//!
//! Each step can be interrupted: what it did is right by itself, and the next repair
//! goes on.

use std::collections::HashSet;
use std::path::Path;

use objects::Handle;

use super::packs::{Stretch, stretches};
use super::{CACHE_BYTES, Check, Checked, Finding, Inspector, Place, Watch};
use crate::backup::{BackupFolder, Copier};
use crate::disk::Disk;
use crate::files::{Files, Kind, is_large};
use crate::index::{Batch, Index};
use crate::packs::{Folder, Packs};
use crate::{Error, Object, Recipe};

/// What the index said that was moved aside, as far as it could be read.
#[derive(Default)]
struct Salvaged {
    is_new: bool,
    labels: Vec<(String, Handle)>,
    /// How to make what was dropped: nothing else tells.
    recipes: Vec<(Handle, Option<Recipe>)>,
    unpromised: Vec<(Handle, bool)>,
}

pub(super) fn repair(home: &Path, check: &Check, watch: &mut Watch<'_>) -> Result<Checked, Error> {
    // First of all: without it nothing is to be changed.
    let backup = check.from.as_deref().map(BackupFolder::open).transpose()?;
    let (files, format) = Files::open_to_look(home, Kind::Home)?;
    let leftovers = files.leftovers()?;
    let mut before = Vec::new();
    if let Some(format) = format {
        before.push(Finding::format(&files, &format));
        files.write_format(Kind::Home)?;
    }
    drop(files);
    let files = Files::open(home)?;
    let salvaged = rebuilt(&files, &mut before)?;
    let disk = Disk::over(files, CACHE_BYTES, u64::MAX)?;
    for (name, handle) in &salvaged.labels {
        disk.write_label(name, Some(*handle))?;
    }
    let Salvaged { recipes, unpromised, is_new, .. } = salvaged;
    if !recipes.is_empty() || !unpromised.is_empty() {
        disk.committer().commit(Batch { recipes, unpromised, ..Batch::default() })?;
    }
    let mut inspector = Inspector::new(Place::of(&disk), check, watch);
    let [(temporary, temporary_bytes), (quarantined, quarantined_bytes)] = leftovers;
    inspector.checked =
        Checked { temporary, temporary_bytes, quarantined, quarantined_bytes, ..Checked::default() };
    inspector.checked.mended += before.len() as u64;
    before.into_iter().for_each(|finding| inspector.found(finding));
    inspector.everything()?;
    inspector.mend(&disk, check, backup.as_ref(), is_new)?;
    Ok(inspector.checked)
}

/// Of a backup only what is damaged is moved aside. Its index, which names its points, is not
/// made anew: whether what is in the packs is a point that somebody wants, only the index told.
pub(super) fn repair_backup(backup: &Path, check: &Check, watch: &mut Watch<'_>) -> Result<Checked, Error> {
    let disk = Disk::over(Files::open_as(backup, Kind::Backup)?, CACHE_BYTES, u64::MAX)?;
    let mut inspector = Inspector::new(Place::of(&disk), check, watch);
    inspector.known = crate::backup::known_gaps(disk.index(), disk.files())?;
    inspector.leftovers()?;
    inspector.everything()?;
    if !inspector.lost.is_empty() || !inspector.missing.is_empty() || !inspector.nowhere.is_empty() {
        crate::backup::unsettle(&disk)?;
    }
    inspector.take_away(&disk)?;
    inspector.checked.lost = inspector.lost.len() as u64;
    Ok(inspector.checked)
}

/// Moves an index aside that cannot be used; the next one is made from the packs.
fn rebuilt(files: &Files, found: &mut Vec<Finding>) -> Result<Salvaged, Error> {
    let path = files.index_path();
    let mut salvaged = Salvaged::default();
    let folder = files.packs_folder();
    let packs = Packs::open(&folder, Box::new(Folder(folder.clone())))?;
    if !path.exists() && packs.numbers().is_empty() {
        return Ok(salvaged);
    }
    let error = if path.exists() {
        match Index::open(path, CACHE_BYTES, u64::MAX, packs) {
            Ok(index) if index.is_sound()? => return Ok(salvaged),
            Ok(index) => {
                let rows = index.label_rows().unwrap_or_default();
                salvaged.labels =
                    rows.into_iter().filter_map(|(name, handle)| Some((name, handle?))).collect();
                // What can still be read of them; each row has a checksum.
                _ = index.recipes(|key, recipe| salvaged.recipes.push((key, Some(recipe))));
                _ = index.all_unpromised(|key| salvaged.unpromised.push((key, true)));
                index.unsound()
            }
            Err(error @ Error::Index { .. }) => error,
            Err(error) => return Err(error),
        }
    } else {
        Error::Index { path, reason: "it is not there".to_owned() }
    };
    found.push(Finding::index(&error));
    files.quarantine_index()?;
    salvaged.is_new = true;
    Ok(salvaged)
}

impl Inspector<'_, '_> {
    fn mend(
        &mut self,
        disk: &Disk,
        check: &Check,
        backup: Option<&BackupFolder>,
        is_new: bool,
    ) -> Result<(), Error> {
        self.take_away(disk)?;
        let wanted: HashSet<Handle> = self.lost.iter().copied().chain(self.missing.keys().copied()).collect();
        self.find_again(disk, &wanted)?;
        if let Some(backup) = backup {
            self.heal(disk, backup, &wanted, is_new)?;
        } else {
            for name in std::mem::take(&mut self.bad_labels) {
                disk.write_label(&name, None)?;
                self.checked.mended += 1;
            }
        }
        let absent: HashSet<Handle> = self.place.absent(wanted.into_iter())?.into_iter().collect();
        self.lost.retain(|key| absent.contains(key));
        self.missing.retain(|key, _| absent.contains(key));
        // What is lost of that is told already; only how much it is now is new.
        let mut silent = Watch { progress: &mut |_, _| true, found: &mut |_| {} };
        let mut after = Inspector::new(self.place, check, &mut silent);
        after.lost = self.lost.clone();
        after.missing = self.missing.clone();
        after.names()?;
        disk.index().strike(&[], &after.bad_relations)?;
        self.checked.mended += after.bad_relations.len() as u64;
        self.checked.labels = after.checked.labels;
        self.checked.hurt_labels = after.checked.hurt_labels;
        self.checked.lost = self.lost.len() as u64;
        Ok(())
    }

    /// Damaged bytes, rows that lead nowhere, outboards that are not their objects'.
    fn take_away(&mut self, disk: &Disk) -> Result<(), Error> {
        disk.index().strike(&self.nowhere, &[])?;
        self.checked.mended += self.nowhere.len() as u64;
        for key in &self.lost {
            if is_large(*key) {
                // Not read again: where the disk does not read it, a mapping of it would end this process.
                if let Some((file, _)) = disk.files().open_object(*key)? {
                    let moved = || disk.files().remove_outboard(*key).map(drop);
                    disk.files().quarantine_file(*key, &file, moved)?;
                }
                continue;
            }
            // It is damaged, so that reading it moves it aside.
            match disk.read(*key) {
                Ok(_) | Err(Error::Corrupt { .. }) => {}
                Err(Error::Io { .. }) => disk.index().strike(&[*key.as_bytes()], &[])?,
                Err(error) => return Err(error),
            }
        }
        for number in std::mem::take(&mut self.headers) {
            disk.index().packs().mend_header(number)?;
            self.checked.mended += 1;
        }
        for key in std::mem::take(&mut self.outboards) {
            disk.files().remove_outboard(key)?;
            self.checked.mended += 1;
        }
        Ok(())
    }

    /// Writes anew what stands in a pack and the index does not know of.
    fn find_again(&mut self, disk: &Disk, wanted: &HashSet<Handle>) -> Result<(), Error> {
        let mut left: HashSet<Handle> = wanted.iter().copied().filter(|key| !is_large(*key)).collect();
        for number in self.place.packs.numbers() {
            if left.is_empty() {
                break;
            }
            let Some((pack, len)) = self.place.packs.pack(number)? else { continue };
            let found = |stretch: Stretch<'_>| match stretch {
                Stretch::Sound(record) if left.remove(&record.key) => {
                    if disk.contains(record.key)? {
                        return Ok(());
                    }
                    self.checked.restored += 1;
                    disk.write(&[(record.key, Object::copy_of(record.bytes))], Vec::new())
                }
                _ => Ok(()),
            };
            stretches(&*pack, len, found, |_| Ok(()))?;
        }
        Ok(())
    }

    /// Copies from a backup what is lost and it has, with all that that names.
    fn heal(
        &mut self,
        disk: &Disk,
        backup: &BackupFolder,
        wanted: &HashSet<Handle>,
        is_new: bool,
    ) -> Result<(), Error> {
        let mut go_on = |_: u64, _: u64| true;
        let mut copier = Copier::new(backup.disk(), disk, false, &mut go_on);
        for key in wanted {
            copier.copy(*key)?;
        }
        let labels = match backup.points()?.first() {
            Some(point) if is_new || !self.bad_labels.is_empty() => backup.labels(&point.name)?,
            _ => Vec::new(),
        };
        let there: HashSet<String> = match is_new {
            true => disk.index().label_rows()?.into_iter().map(|(name, _)| name).collect(),
            false => HashSet::new(),
        };
        let mut set = Vec::new();
        let bad: HashSet<String> = std::mem::take(&mut self.bad_labels).into_iter().collect();
        for (name, handle) in labels {
            if bad.contains(&name) || (is_new && !there.contains(&name)) {
                copier.copy(handle)?;
                set.push((name, handle));
            }
        }
        let copied = copier.finish()?;
        self.checked.restored += copied.objects;
        for (name, handle) in &set {
            disk.write_label(name, Some(*handle))?;
            self.checked.mended += 1;
        }
        for name in bad.iter().filter(|name| !set.iter().any(|(set, _)| set == *name)) {
            disk.write_label(name, None)?;
            self.checked.mended += 1;
        }
        Ok(())
    }
}
