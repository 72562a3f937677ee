// SPDX-License-Identifier: Apache-2.0
//! Finds what is needed: everything that some root names, through trees and
//! handles of any kind.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use objects::{Handle, TreeView};

use super::marks::Marks;
use crate::disk::Disk;
use crate::files::{is_large, object_len};
use crate::memory::{DURABLE, Memory, TOUCHED};
use crate::packs::Sound;
use crate::promises::DERIVED_MIN_BYTES;
use crate::{Error, Object, Recipe};

/// A walk over all roots, that may be gone on with when there are more.
pub(super) struct Marker<'a> {
    memory: &'a Memory,
    disk: &'a Disk,
    marks: Marks,
    /// What was walked and has no mark of its own: it is in memory, or young.
    seen: HashSet<Handle>,
    /// There are objects that were dropped.
    has_recipes: bool,
    /// What they need is needed if they have been so since then, in seconds since 1970.
    young_from_s: u64,
    /// Those of them that are needed.
    dropped: HashSet<Handle>,
    /// How far young packs were looked at, in bytes.
    scanned: BTreeMap<u32, u64>,
}

impl<'a> Marker<'a> {
    /// What was written before `young_from` may go.
    pub(super) fn new(
        memory: &'a Memory,
        disk: &'a Disk,
        marks: Marks,
        young_from: SystemTime,
    ) -> Result<Self, Error> {
        let has_recipes = disk.index().recipes_len()? > 0;
        let young_from_s = young_from.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (seen, dropped, scanned) = (HashSet::new(), HashSet::new(), BTreeMap::new());
        Ok(Self { memory, disk, marks, seen, has_recipes, young_from_s, dropped, scanned })
    }

    pub(super) fn into_marks(self) -> Marks {
        self.marks
    }

    /// Marks what these name.
    pub(super) fn mark(&mut self, roots: impl IntoIterator<Item = Handle>) -> Result<(), Error> {
        // Trees whose entries are being walked: they nest as deep as users like.
        let mut stack: Vec<(Object, usize)> = Vec::new();
        for root in roots {
            stack.extend(self.enter(root)?.map(|tree| (tree, 0)));
            while let Some((tree, next)) = stack.last_mut() {
                let entry = tree.as_tree().get(*next);
                *next += 1;
                match entry {
                    Some(entry) => stack.extend(self.enter(entry)?.map(|tree| (tree, 0))),
                    None => _ = stack.pop(),
                }
            }
        }
        Ok(())
    }

    /// Marks one object. A tree, if its entries are not marked yet.
    fn enter(&mut self, handle: Handle) -> Result<Option<Object>, Error> {
        if handle.literal_bytes().is_some() {
            return Ok(None);
        }
        if self.disk.stops_collecting.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let key = handle.plain_tree();
        if self.has_recipes
            && object_len(key) >= DERIVED_MIN_BYTES
            && !self.dropped.contains(&key)
            && let Some(recipe) = self.needed_recipe(key)?
        {
            self.dropped.insert(key);
            let spot = if is_large(key) { None } else { self.disk.index().spot(key)? };
            self.marks.mark(key, spot);
            // What it is made of is needed too. A damaged tree's entries are marked by its bytes.
            return self.enter(recipe.application);
        }
        let in_memory = self.memory.peek(key).map(|(object, _)| object);
        if in_memory.is_some() && !self.seen.insert(key) {
            return Ok(None);
        }
        let spot = if is_large(key) { None } else { self.disk.index().spot(key)? };
        let is_news = self.marks.mark(key, spot);
        if !key.names_tree() {
            return Ok(None);
        }
        if in_memory.is_some() {
            return Ok(in_memory);
        }
        // The entries of what is young are roots ([`Marker::mark_young`]).
        if !is_news {
            return Ok(None);
        }
        // The tier is not asked: everybody may be waiting for the end of this.
        self.disk.read(key)
    }

    /// The recipe of an object that is not here; or that is here again, as long as it may be
    /// dropped again.
    fn needed_recipe(&self, key: Handle) -> Result<Option<Recipe>, Error> {
        let Some(recipe) = self.disk.index().recipe(key)? else { return Ok(None) };
        let may_go = || Ok(!key.names_tree() && !self.disk.index().unpromised(&[key])?.is_empty());
        Ok(if !self.disk.contains(key)? || may_go()? { Some(recipe) } else { None })
    }

    /// Marks what is in memory and on no disk, or in somebody's hands, or was looked
    /// at since the collection began.
    pub(super) fn mark_memory(&mut self) -> Result<(), Error> {
        let mut roots = self.memory.take_evicted();
        self.memory.visit(|key, state, is_held| {
            let is_needed = state & DURABLE == 0 || state & TOUCHED != 0 || is_held;
            if is_needed && !self.seen.contains(&key) {
                roots.push(key);
            }
        });
        self.mark(roots)
    }

    /// Marks what is named by what was written a short while ago, also since this
    /// was last called.
    pub(super) fn mark_young(&mut self) -> Result<(), Error> {
        for number in self.disk.index().packs().numbers() {
            if self.marks.covers(number) {
                continue;
            }
            let Some(pack) = self.disk.index().packs().all(number)? else { continue };
            let mut records = Sound::new(&pack, self.scanned.get(&number).copied().unwrap_or_default());
            for tree in records.by_ref().filter(|record| record.key.names_tree()) {
                self.mark(TreeView::from_checked(tree.bytes).iter())?;
            }
            self.scanned.insert(number, records.at());
        }
        let mut large = Vec::new();
        self.disk.files().visit(|key, _| {
            if key.names_tree() && !self.marks.covers_large(key) && !self.seen.contains(&key) {
                large.push(key);
            }
        })?;
        for key in large {
            self.seen.insert(key);
            if let Some(tree) = self.disk.read(key)? {
                self.mark(tree.as_tree().iter())?;
            }
        }
        Ok(())
    }

    /// Marks what is needed for what was dropped, or found damaged, a short while ago.
    pub(super) fn mark_dropped(&mut self) -> Result<(), Error> {
        self.has_recipes = self.disk.index().recipes_len()? > 0;
        let (from_s, mut young) = (self.young_from_s, Vec::new());
        if self.has_recipes {
            let mut note = |key, recipe: Recipe| young.extend((recipe.since_s >= from_s).then_some(key));
            self.disk.index().recipes(&mut note)?;
        }
        self.mark(young)
    }

    /// Objects that were dropped, and that nobody needs or that are here again.
    pub(super) fn needless_recipes(&self) -> Result<Vec<Handle>, Error> {
        let mut needless = Vec::new();
        if self.has_recipes {
            let is_needed =
                |key, recipe: &Recipe| self.dropped.contains(&key) || recipe.since_s >= self.young_from_s;
            let mut note = |key, recipe| needless.extend((!is_needed(key, &recipe)).then_some(key));
            self.disk.index().recipes(&mut note)?;
        }
        Ok(needless)
    }

    /// Whether an object on the disk is old enough to go, and whether it is needed so far; `None`: it
    /// is young, or not on the disk.
    pub(super) fn is_needed(&self, key: Handle) -> Result<Option<bool>, Error> {
        let spot = if is_large(key) { None } else { self.disk.index().spot(key)? };
        let is_old = if is_large(key) {
            self.marks.covers_large(key)
        } else {
            spot.is_some_and(|spot| self.marks.covers(spot.pack))
        };
        Ok(is_old.then(|| !self.marks.is_unmarked(key, spot)))
    }

    /// Marks what damaged trees name that were moved aside: they may be put again.
    pub(super) fn mark_quarantined(&mut self) -> Result<(), Error> {
        for tree in self.disk.files().quarantined_trees()? {
            let entries = tree.as_chunks::<{ Handle::LEN }>().0;
            self.mark(entries.iter().filter_map(|entry| Handle::from_bytes(*entry).ok()))?;
        }
        Ok(())
    }

    /// Whether a result is on disk and not needed by anybody, or nowhere.
    pub(super) fn leads_nowhere(&self, result: Handle) -> Result<bool, Error> {
        let key = result.plain_tree();
        if key.literal_bytes().is_some() {
            return Ok(false);
        }
        if self.memory.state(key).is_some_and(|state| state & DURABLE == 0) {
            return Ok(false);
        }
        let spot = if is_large(key) { None } else { self.disk.index().spot(key)? };
        let is_dropped = || Ok(self.dropped.contains(&key) && self.disk.index().recipe(key)?.is_some());
        Ok(self.marks.is_unmarked(key, spot) || (!self.disk.contains(key)? && !is_dropped()?))
    }

    /// Those of these objects that are not needed.
    pub(super) fn unneeded(&self, keys: Vec<Handle>) -> Result<Vec<Handle>, Error> {
        let is_unneeded = |key: &Handle| {
            let spot = if is_large(*key) { None } else { self.disk.index().spot(*key)? };
            Ok(self.marks.is_unmarked(*key, spot))
        };
        keys.into_iter().filter_map(|key| is_unneeded(&key).map(|is| is.then_some(key)).transpose()).collect()
    }
}
