// SPDX-License-Identifier: Apache-2.0
//! Takes away what is needed and can be made again.
//!
//! In this order, so that a crash at any moment loses nothing: what recipes need is on
//! the disk; then, with nobody at the disk, recipes and the end of small objects are
//! synced together, and files are removed. A file that is left over by a crash has a
//! recipe that nobody follows.

use std::collections::HashSet;

use objects::Handle;

use super::Collected;
use super::plan::Derived;
use crate::closure::Closure;
use crate::disk::Disk;
use crate::files::{is_large, object_len};
use crate::index::Batch;
use crate::{Error, Store};

/// Objects that go while nobody is at the disk.
const AT_ONCE: usize = 512;

impl Store {
    /// Drops these objects, but for what was put meanwhile; gives back what went.
    pub(super) fn drop_derived(&self, disk: &Disk, derived: &[Derived]) -> Result<Vec<Derived>, Error> {
        let (mut dropped, mut read) = (Vec::new(), HashSet::new());
        for chunk in derived.chunks(AT_ONCE) {
            self.secure(disk, chunk)?;
            let chunk = &self.sound(disk, chunk, &mut read)?[..];
            let _alone = disk.alone();
            let keys: Vec<Handle> = chunk.iter().map(|(key, _)| *key).collect();
            let unpromised = HashSet::<Handle>::from_iter(disk.index().unpromised(&keys)?);
            let mut batch = Batch::default();
            let mut large = Vec::new();
            for &(key, recipe) in chunk {
                if !unpromised.contains(&key) || !disk.contains(key)? {
                    continue;
                }
                match disk.index().spot(key)? {
                    Some(spot) if !is_large(key) => batch.dead.push((key, spot)),
                    _ => large.push(key),
                }
                batch.recipes.push((key, Some(recipe)));
                dropped.push((key, recipe));
            }
            let gone: Vec<Handle> = batch.recipes.iter().map(|(key, _)| *key).collect();
            disk.files().sync_new_names()?;
            disk.committer().commit(batch)?;
            for key in large {
                disk.remove_large(key)?;
            }
            gone.into_iter().for_each(|key| self.memory.expel(key));
        }
        Ok(dropped)
    }

    /// Those of which everything that their recipes need was read and is what its name says:
    /// an object that is whole does not go for one that cannot be made. `read` has what was
    /// read already.
    fn sound(
        &self,
        disk: &Disk,
        derived: &[Derived],
        read: &mut HashSet<Handle>,
    ) -> Result<Vec<Derived>, Error> {
        let mut sound = Vec::new();
        for &(key, recipe) in derived {
            let mut new = HashSet::new();
            let mut pending = vec![recipe.application.definition()];
            let mut is_sound = true;
            while let Some(key) = pending.pop().map(Handle::plain_tree) {
                if key.literal_bytes().is_some() || read.contains(&key) || !new.insert(key) {
                    continue;
                }
                match disk.read(key) {
                    Ok(Some(object)) if key.names_tree() => pending.extend(object.as_tree().iter()),
                    Ok(Some(_)) => {}
                    // It was dropped, and this was looked at then.
                    Ok(None) if disk.index().recipe(key)?.is_some() => {}
                    Ok(None) | Err(Error::Corrupt { .. }) => {
                        is_sound = false;
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if is_sound {
                read.extend(new);
                sound.push((key, recipe));
            }
        }
        Ok(sound)
    }

    /// Has on the disk what is needed to make these again, as far as only memory had it: all
    /// of it was found when it was decided that they go, and nobody takes it away.
    fn secure(&self, disk: &Disk, derived: &[Derived]) -> Result<(), Error> {
        let _stays = disk.stay();
        let mut closure = Closure::new(&self.memory, disk);
        for (_, recipe) in derived {
            closure.walk(recipe.application.definition())?;
        }
        closure.finish(Vec::new())
    }
}

impl Collected {
    /// What was dropped, and is not counted among what stays.
    pub(super) fn and_dropped(mut self, dropped: &[Derived]) -> Self {
        let large = dropped.iter().map(|(key, _)| *key).filter(|key| is_large(*key));
        self.freed_bytes += large.map(object_len).sum::<u64>();
        self.dropped = dropped.len() as u64;
        self.dropped_bytes = dropped.iter().map(|(key, _)| object_len(*key)).sum();
        self.dropped_nanos_max = dropped.iter().map(|(_, recipe)| recipe.nanos).max().unwrap_or_default();
        // One application may make several of them.
        let mut applications = HashSet::new();
        let once = dropped.iter().filter(|(_, recipe)| applications.insert(recipe.application));
        self.dropped_nanos = once.fold(0, |sum, (_, recipe)| recipe.own_nanos.saturating_add(sum));
        self
    }

    /// What would be dropped, and was counted among what stays.
    pub(super) fn with_dropped(self, dropped: &[Derived]) -> Self {
        let freed_bytes = self.freed_bytes;
        let told = self.and_dropped(dropped);
        Self {
            kept_objects: told.kept_objects.saturating_sub(told.dropped),
            kept_bytes: told.kept_bytes.saturating_sub(told.dropped_bytes),
            freed_bytes,
            ..told
        }
    }
}
