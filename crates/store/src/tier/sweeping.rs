// SPDX-License-Identifier: Apache-2.0
//! Carries out what a collection of the tier has decided. Whatever ends it, nothing needed is lost:
//! what is needed of a pack is in another one, and has its row there, before a row or a byte of the old
//! one goes; and rows go before what they say is there does.

use std::sync::atomic::Ordering;

use objects::Handle;

use super::collecting::{Bare, TierCollected};
use super::far::Far;
use super::form::{self, PACK_BYTES, object_name, outboard_name, pack_name};
use super::owning;
use super::sentence::{PackName, Sentence};
use crate::disk::Disk;
use crate::files::object_len;
use crate::index::{Batch, Place, Tiered};
use crate::{Error, Object};

/// Packs that are written anew together, at most: of each its handles are in memory.
const PACKS_TOGETHER: usize = 32;

/// Takes away what the sentence takes, and what is of no use to anybody.
pub(super) fn sweep(
    disk: &Disk,
    far: &Far,
    sentence: &Sentence,
    bare: &Bare,
) -> Result<TierCollected, Error> {
    let (packs, lone) = (sentence.packs(), sentence.lone());
    let all = packs.len() + lone.len() + bare.packs.len() + bare.outboards.len();
    let mut sweeper =
        Sweeper { disk, far, sentence, swept: TierCollected::default(), done: 0, all: all as u64 };
    for key in &bare.outboards {
        sweeper.goes_on()?;
        sweeper.remove_outboard(*key)?;
    }
    for pack in &bare.packs {
        sweeper.goes_on()?;
        // It may have been sent since it was listed.
        let Some(contents) = far.table(pack)? else {
            sweeper.swept.damaged += 1;
            continue;
        };
        sweeper.remove_pack(pack, &contents.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
    }
    for key in lone {
        sweeper.goes_on()?;
        sweeper.remove_lone(key)?;
    }
    let mut moving = Moving::default();
    for pack in packs {
        sweeper.goes_on()?;
        sweeper.empty(pack, &mut moving)?;
        if moving.bytes >= PACK_BYTES || moving.emptied.len() >= PACKS_TOGETHER {
            sweeper.finish(std::mem::take(&mut moving))?;
        }
    }
    sweeper.finish(moving)?;
    Ok(sweeper.swept)
}

/// What is needed of packs that go.
#[derive(Default)]
struct Moving {
    objects: Vec<(Handle, Object)>,
    bytes: usize,
    /// Those packs, and all that is in them.
    emptied: Vec<(PackName, Vec<Handle>)>,
}

struct Sweeper<'a> {
    disk: &'a Disk,
    far: &'a Far,
    sentence: &'a Sentence,
    swept: TierCollected,
    done: u64,
    all: u64,
}

impl Sweeper<'_> {
    /// Before each removal: the tier is this home's, and the node goes on.
    fn goes_on(&mut self) -> Result<(), Error> {
        if let Some(progress) = &mut *self.far.collection.lock() {
            (progress.is_sweeping, progress.done, progress.all) = (true, self.done, self.all);
        }
        self.done += 1;
        if self.far.progress.lock().is_closing {
            return Err(Error::Stopped);
        }
        self.own()
    }

    fn own(&self) -> Result<(), Error> {
        owning::ensure(self.disk, self.far).map_err(|halt| self.far.halted(halt))
    }

    fn gone(&mut self, key: Handle) {
        self.swept.objects += 1;
        self.swept.bytes += object_len(key);
        self.far.counts.collected.fetch_add(1, Ordering::Relaxed);
        self.far.counts.collected_bytes.fetch_add(object_len(key), Ordering::Relaxed);
    }

    /// Who sends an object writes its outboard first: one without an object is nobody's.
    fn remove_outboard(&self, key: Handle) -> Result<(), Error> {
        let Some(_claimed) = self.far.try_claim(object_name(key)) else { return Ok(()) };
        if self.disk.index().tiered(key)?.is_some() {
            return Ok(());
        }
        self.far.ask(|depot| depot.remove(&outboard_name(key)))
    }

    fn remove_lone(&mut self, key: Handle) -> Result<(), Error> {
        // Whoever sends it now has it stay.
        let Some(_claimed) = self.far.try_claim(object_name(key)) else { return Ok(()) };
        if !self.sentence.has_lone(key) {
            return Ok(());
        }
        let mut is_needed = false;
        self.far.change_rows(self.disk, &[key], Batch::default(), |_, row| {
            let row = row.filter(|row| row.place != Place::Lone || !self.sentence.takes(key, row))?;
            is_needed |= row.place == Place::Lone;
            Some(row)
        })?;
        if is_needed {
            self.sentence.spare(key);
            return Ok(());
        }
        self.far.ask(|depot| depot.remove(&object_name(key)))?;
        self.far.ask(|depot| depot.remove(&outboard_name(key)))?;
        self.sentence.spare(key);
        self.gone(key);
        Ok(())
    }

    /// Takes what is needed out of a pack.
    fn empty(&mut self, pack: PackName, moving: &mut Moving) -> Result<(), Error> {
        let Some(contents) = self.far.table(&pack)? else {
            self.swept.damaged += 1;
            self.sentence.spare_pack(&pack);
            return Ok(());
        };
        let keys: Vec<Handle> = contents.into_iter().map(|(key, _)| key).collect();
        let rows = self.disk.index().all_tiered(&keys)?;
        let is_needed =
            |key: Handle, row: &Tiered| row.place.pack() == Some(pack) && !self.sentence.takes(key, row);
        let needed = keys.iter().zip(rows).filter(|(key, row)| row.is_some_and(|row| is_needed(**key, &row)));
        let needed: Vec<Handle> = needed.map(|(key, _)| *key).collect();
        let mut objects = Vec::with_capacity(needed.len());
        if !needed.is_empty() {
            let mut found = self.far.objects_of(&pack, &needed.iter().copied().collect())?;
            for key in needed {
                let Some(object) = found.remove(&key).map_or_else(|| self.here(key), |it| Ok(Some(it)))?
                else {
                    // What is damaged there is there still, for people to look at.
                    self.swept.damaged += 1;
                    self.sentence.spare_pack(&pack);
                    return self.far.mark_damaged(self.disk, &[key], |row| row.place.pack() == Some(pack));
                };
                objects.push((key, object));
            }
        }
        moving.bytes += objects.iter().map(|(_, object)| object.len()).sum::<usize>();
        moving.objects.append(&mut objects);
        moving.emptied.push((pack, keys));
        Ok(())
    }

    /// The object from this home's disk.
    fn here(&self, key: Handle) -> Result<Option<Object>, Error> {
        match self.disk.read(key) {
            Err(Error::Corrupt { .. }) => Ok(None),
            read => read,
        }
    }

    /// Writes what is needed anew, then removes the packs that it was in.
    fn finish(&mut self, moving: Moving) -> Result<(), Error> {
        self.own()?;
        let Moving { objects, bytes, emptied } = moving;
        let from: Vec<PackName> = emptied.iter().map(|(pack, _)| *pack).collect();
        if !objects.is_empty() {
            self.write(&objects, &from)?;
            self.swept.moved_bytes += bytes as u64;
            self.far.counts.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        drop(objects);
        for (pack, keys) in emptied {
            self.own()?;
            self.remove_pack(&pack, &keys)?;
        }
        Ok(())
    }

    /// Writes a pack of what is needed of others.
    fn write(&self, objects: &[(Handle, Object)], from: &[PackName]) -> Result<(), Error> {
        let (pack, bytes) = form::pack(objects);
        let name = pack_name(&pack);
        let _claimed = self.far.claim(name.clone());
        self.sentence.spare_pack(&pack);
        let table = form::table_len(&bytes).and_then(|len| form::contents(&pack, bytes.get(..len as usize)?));
        let places: std::collections::HashMap<Handle, u32> = table.unwrap_or_default().into_iter().collect();
        self.far.ask(|depot| depot.put(&name, &Object::from_vec(bytes)))?;
        // It may have taken long.
        self.own()?;
        let keys: Vec<Handle> = objects.iter().map(|(key, _)| *key).collect();
        self.far.change_rows(self.disk, &keys, Batch::default(), |key, row| {
            let row = row?;
            let is_moved = row.place.pack().is_some_and(|pack| from.contains(&pack));
            let place = places.get(&key).filter(|_| is_moved);
            // The bytes were compared with their name on their way.
            let moved = |offset: &u32| {
                let place = Place::Packed { pack, offset: *offset };
                Tiered { place, is_seen: true, is_damaged: false, ..row }
            };
            Some(place.map_or(row, moved))
        })
    }

    /// Removes a pack of which nothing is needed any more, if it is still so.
    fn remove_pack(&mut self, pack: &PackName, keys: &[Handle]) -> Result<(), Error> {
        let Some(_claimed) = self.far.try_claim(pack_name(pack)) else {
            self.sentence.spare_pack(pack);
            return Ok(());
        };
        let mut gone = Vec::new();
        let mut is_needed = false;
        self.far.change_rows(self.disk, keys, Batch::default(), |key, row| {
            let row = row?;
            let is_dead = self.sentence.takes(key, &row);
            if row.place.pack() != Some(*pack) {
                return Some(row);
            }
            is_needed |= !is_dead;
            if is_dead {
                gone.push(key);
            }
            Some(row).filter(|_| !is_dead)
        })?;
        if !is_needed {
            self.far.ask(|depot| depot.remove(&pack_name(pack)))?;
            self.swept.packs += 1;
            gone.into_iter().for_each(|key| self.gone(key));
        }
        self.sentence.spare_pack(pack);
        Ok(())
    }
}
