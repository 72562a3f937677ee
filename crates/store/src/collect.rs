// SPDX-License-Identifier: Apache-2.0
//! Gives back the room of what nobody needs, while the store works.
//!
//! Needed is what a label names, what a request under way names, what was put or
//! made a short while ago, what is in memory only, and results that somebody has
//! asked for since the last collection; and everything that any of these names,
//! however deep, through handles of every kind.
//!
//! It goes in four steps. *Mark* walks all that is needed, beside everybody else.
//! *Forget* takes away relations that lead to what is not. *Sentence*, alone: what
//! has become needed meanwhile is marked too, and from then on the rest is gone for
//! everybody at once. *Sweep* takes it away pack by pack; a pack of which little is
//! left is written anew. Before that, if it is wanted, *drop* takes away what is needed and
//! can be made again, after what that takes was marked too. A crash at any moment loses nothing that is needed: objects
//! are taken away only after the relations that lead to them, and packs only after
//! what was moved out of them is synced.

pub(crate) mod derived;
mod dropping;
mod marker;
mod marks;
mod plan;
mod sweep;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use objects::Handle;

use crate::disk::Disk;
use crate::index::Batch;
use crate::memory::{DURABLE, Memory};
use crate::{Error, Store};
use marker::Marker;
use marks::Marks;
pub(crate) use marks::Sentence;

/// Relations that are forgotten in one transaction.
const FORGOTTEN_MAX: usize = 16 << 10;

/// So few are not tried in yet smaller steps.
const STEP_MIN: usize = 16;

/// What a collection is to do.
#[derive(Clone, Copy, Debug)]
pub struct Collection {
    /// What was put or made since then stays, named or not. Not less than
    /// [`Collection::KEPT_MIN`], or uploads under way lose what nothing names yet.
    pub kept: Duration,
    /// Only says what would go.
    pub is_trial: bool,
    /// Also what is needed goes, where it is known how to make it and that takes little.
    pub dropping: Option<Dropping>,
}

/// Which of the needed objects may go since they can be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropping {
    /// Smaller ones stay; 4 KiB at least.
    pub bytes_min: u64,
    /// For each KiB that they have, their making may take so many nanoseconds, with all that
    /// has to be made before it.
    pub nanos_per_kib: u64,
}

impl Default for Dropping {
    /// What takes less than 100 µs for each KiB: 100 ms for 1 MiB.
    fn default() -> Self {
        Self { bytes_min: 64 << 10, nanos_per_kib: 100_000 }
    }
}

impl Collection {
    /// The least time for which what nobody names stays.
    pub const KEPT_MIN: Duration = Duration::from_secs(3600);
}

/// What a collection found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that went, or would go.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Remembered results that led to them.
    pub relations: u64,
    /// Objects on disk that stay.
    pub kept_objects: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Bytes by which files have become fewer: less than `bytes` where packs are still
    /// worth keeping, more where others were written anew.
    pub freed_bytes: u64,
    /// Objects that are needed and were dropped, or would be, since they can be made again.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// What it takes to make all of them again, in nanoseconds, once each.
    pub dropped_nanos: u64,
    /// What it takes to make one of them with all that it needs: the most.
    pub dropped_nanos_max: u64,
}

impl Store {
    /// Takes away what is not needed and older than said. `under_way` names what
    /// requests need; it is asked more than once. Without a disk, see
    /// [`Store::reclaim`]: then this does nothing.
    ///
    /// # Errors
    /// [`Error::Collecting`] if a collection is under way; [`Error::Stopped`] by
    /// [`Store::stop_collecting`]; those of reading and writing. What is needed is there in any case.
    pub fn collect(
        &self,
        collection: Collection,
        under_way: &dyn Fn() -> Vec<Handle>,
    ) -> Result<Collected, Error> {
        let Some(disk) = self.disk() else { return Ok(Collected::default()) };
        let _one = disk.collecting.try_lock().ok_or(Error::Collecting)?;
        disk.stops_collecting.store(false, Ordering::Relaxed);
        let noting = Noting { memory: &self.memory, disk };
        if !collection.is_trial {
            // From now on what is looked at is needed, and what is put again stays.
            self.memory.forget_touches();
            disk.note_renewed(true);
            // Relations that wait to be written are older than that. They may be lost.
            _ = self.flush_relations();
        }
        let _room = (!collection.is_trial).then(|| disk.lend_reserve());
        let before = disk.before(collection.kept.max(Collection::KEPT_MIN));
        let marks = candidates(disk, before, collection.is_trial)?;
        let mut marker = Marker::new(&self.memory, disk, marks, before)?;
        marker.mark(self.relations().used_results(!collection.is_trial))?;
        marker.mark_quarantined()?;
        // Twice: what has become needed during the first time is little.
        for _ in 0..2 {
            self.mark_roots(&mut marker, under_way)?;
        }
        let derived = match collection.dropping {
            Some(dropping) => self.plan(disk, &mut marker, dropping)?,
            None => Vec::new(),
        };
        if collection.is_trial {
            let counted = sweep::count(disk, &marker.into_marks().sentence())?;
            return Ok(counted.with_dropped(&derived));
        }
        let relations = self.forget(disk, &mut marker)?;
        let sentence = self.pass_sentence(disk, marker, under_way)?;
        drop(noting);
        // Where this fails, what goes stays gone: a part of it may be.
        let dropped = self.drop_derived(disk, &derived);
        let dropped =
            dropped.map(Some).or_else(|error| if error.is_full_disk() { Ok(None) } else { Err(error) });
        let dropped = dropped?;
        let swept = sweep::sweep(disk, &sentence)?;
        disk.sentence(None);
        // What needed room for that may have it now; another collection drops the rest.
        let dropped = match dropped.map_or_else(|| self.drop_derived(disk, &derived), Ok) {
            Err(error) if error.is_full_disk() => Vec::new(),
            dropped => dropped?,
        };
        forget_unpromised(disk)?;
        disk.collected.fetch_add(swept.objects, Ordering::Relaxed);
        Ok(Collected { relations, ..swept }.and_dropped(&dropped))
    }

    /// Has a collection that is under way end without having taken anything away, as long as it
    /// looks for what is needed. One that has decided what goes takes it away.
    pub fn stop_collecting(&self) {
        if let Some(disk) = self.disk() {
            disk.stops_collecting.store(true, Ordering::Relaxed);
        }
    }

    fn mark_roots(&self, marker: &mut Marker<'_>, under_way: &dyn Fn() -> Vec<Handle>) -> Result<(), Error> {
        marker.mark(self.labels()?.into_iter().map(|(_, handle)| handle))?;
        marker.mark(under_way())?;
        marker.mark_dropped()?;
        marker.mark_memory()?;
        marker.mark_young()
    }

    /// Forgets relations whose results go; says how many.
    fn forget(&self, disk: &Disk, marker: &mut Marker<'_>) -> Result<u64, Error> {
        let mut lost = HashSet::new();
        for result in self.relations().results() {
            if !lost.contains(&result) && marker.leads_nowhere(result)? {
                lost.insert(result);
            }
        }
        // Somebody may have been given one of them just now.
        let (forgotten, needed) = self.relations().forget(&lost);
        marker.mark(needed)?;
        let mut rows = Vec::new();
        disk.index().relations(usize::MAX, |key, record| rows.push((key, record.result)))?;
        let mut keys = Vec::new();
        for (key, result) in rows {
            if marker.leads_nowhere(result)? {
                keys.push(key);
            }
        }
        in_steps(disk, &keys, FORGOTTEN_MAX, |keys| Batch { forgotten: keys.to_vec(), ..Batch::default() })?;
        Ok(forgotten.max(keys.len() as u64))
    }

    /// From the end of this on, what is not marked is gone.
    fn pass_sentence(
        &self,
        disk: &Disk,
        mut marker: Marker<'_>,
        under_way: &dyn Fn() -> Vec<Handle>,
    ) -> Result<Arc<Sentence>, Error> {
        let durable = |known: &HashSet<Handle>| {
            let mut durable = Vec::new();
            let mut visitor = |key, state, _| {
                durable.extend((state & DURABLE != 0 && !known.contains(&key)).then_some(key));
            };
            self.memory.visit(&mut visitor);
            durable
        };
        let known = durable(&HashSet::new());
        let unneeded = marker.unneeded(known.clone())?;
        let known = HashSet::from_iter(known);
        let _alone = disk.alone();
        marker.mark(disk.note_renewed(false))?;
        self.mark_roots(&mut marker, under_way)?;
        let unneeded = unneeded.into_iter().chain(durable(&known)).collect();
        for key in marker.unneeded(unneeded)? {
            self.memory.expel(key);
        }
        // What trees name that are in the tier only is not known here.
        let may_be_needed = disk.index().tiered_len()? > 0;
        let needless = if may_be_needed { Vec::new() } else { marker.needless_recipes()? };
        in_steps(disk, &needless, FORGOTTEN_MAX, |needless| {
            let recipes = needless.iter().map(|key| (*key, None)).collect();
            Batch { recipes, ..Batch::default() }
        })?;
        let sentence = Arc::new(marker.into_marks().sentence());
        disk.sentence(Some(Arc::clone(&sentence)));
        Ok(sentence)
    }
}

/// Forgets of what is not on the disk any more, and will not be made again, that nobody put it.
fn forget_unpromised(disk: &Disk) -> Result<(), Error> {
    let mut keys = Vec::new();
    disk.index().all_unpromised(|key| keys.push(key))?;
    let mut gone = Vec::new();
    for key in keys {
        if !disk.has(key)? {
            gone.push((key, false));
        }
    }
    in_steps(disk, &gone, FORGOTTEN_MAX, |gone| Batch { unpromised: gone.to_vec(), ..Batch::default() })
}

/// Writes what these rows come to, up to `most` of them in one transaction; fewer where the disk
/// has no room for that. What was taken away before makes room for what comes next.
fn in_steps<T>(disk: &Disk, rows: &[T], most: usize, batch: impl Fn(&[T]) -> Batch) -> Result<(), Error> {
    steps(rows, most, |rows| match disk.committer().commit(batch(rows)) {
        // It was not full when this began, or says that it is not.
        Err(error) if error.is_full_disk() && disk.lend_more() => {
            disk.committer().commit(batch(rows)).map(drop)
        }
        written => written.map(drop),
    })
}

fn steps<T>(rows: &[T], most: usize, mut write: impl FnMut(&[T]) -> Result<(), Error>) -> Result<(), Error> {
    let (mut rest, mut step) = (rows, most);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(step.min(rest.len()));
        match write(now) {
            Ok(()) => (rest, step) = (later, most.min(step * 2)),
            Err(error) if error.is_full_disk() && now.len() > STEP_MIN => step = now.len() / 4,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// While it lives, it is noted what others look at and put again.
struct Noting<'a> {
    memory: &'a Memory,
    disk: &'a Disk,
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.memory.stop_noting();
        self.disk.note_renewed(false);
    }
}

/// What may go for its age. Whatever is written from now on is in other packs.
fn candidates(disk: &Disk, before: SystemTime, is_trial: bool) -> Result<Marks, Error> {
    let packs = disk.index().packs();
    if !is_trial {
        packs.roll();
    }
    let mut large = Vec::new();
    disk.files().visit(|key, path| {
        let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        if changed.is_ok_and(|changed| changed < before) {
            large.push(key);
        }
    })?;
    Ok(Marks::new(&packs.older(before)?, large))
}

#[cfg(test)]
mod tests;
