// SPDX-License-Identifier: Apache-2.0
//! Finds what of the tier is needed: what labels name, here and there; what this home has on its disk and in
//! memory, and what that names; what was sent or relied on a short while ago.
//!
//! What is not here is read there, pack by pack where much of one is needed, and never
//! while anybody waits for the end of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;

use objects::{Handle, TreeView};

use super::far::Far;
use super::form;
use super::sentence::PackName;
use crate::disk::{Disk, hashes_to};
use crate::files::{is_large, object_len};
use crate::index::Place;
use crate::memory::{DURABLE, Memory};
use crate::packs::{Sound, Spot, UNIT};
use crate::visited::Visited;
use crate::{Error, Object, Store};

/// An object that is no literal has so many bytes, if it has any: no two begin nearer to each other.
const APART: u64 = 31;
/// Trees that are to be read there; of more, each is read at once.
const PENDING_MAX: usize = 1 << 20;
/// A pack is read as a whole for so many trees.
const WORTH_A_PACK: usize = 8;
/// Rows and records that are looked at together.
const TOGETHER: usize = 4 << 10;

/// What is needed: a bit for each place of a pack where an object may begin, names of all others.
#[derive(Default)]
pub(super) struct Marks {
    packs: HashMap<PackName, Vec<u64>>,
    others: HashSet<Handle>,
}

impl Marks {
    /// Marks an object at its place. Whether it was not.
    fn mark(&mut self, key: Handle, place: Place) -> bool {
        let Some((pack, word, bit)) = place_of(key, place) else { return self.others.insert(key) };
        let words = self.packs.entry(pack).or_default();
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words.get_mut(word).is_some_and(|word| std::mem::replace(word, *word | bit) & bit == 0)
    }

    pub(super) fn has(&self, key: Handle, place: Place) -> bool {
        let Some((pack, word, bit)) = place_of(key, place) else { return self.others.contains(&key) };
        self.packs.get(&pack).and_then(|words| words.get(word)).is_some_and(|word| word & bit != 0)
    }
}

fn place_of(key: Handle, place: Place) -> Option<(PackName, usize, u64)> {
    match place {
        // The empty tree begins where the next object does.
        Place::Packed { pack, offset } if object_len(key) > 0 => {
            let at = u64::from(offset) / APART;
            Some((pack, (at / 64) as usize, 1 << (at % 64)))
        }
        _ => None,
    }
}

/// A walk over all that is needed, which may be gone on with.
pub(super) struct Reach<'a> {
    store: &'a Store,
    memory: &'a Memory,
    disk: &'a Disk,
    far: &'a Far,
    marks: Marks,
    /// What was walked, and is not in the tier.
    loose: Visited,
    /// Trees that are in the tier only, and were not read yet.
    pending: BTreeMap<Option<PackName>, Vec<Handle>>,
    pending_len: usize,
    /// How far packs of this home were looked at, in bytes.
    scanned: BTreeMap<u32, u64>,
    /// Nobody waits: the tier may be asked.
    may_ask: bool,
}

impl<'a> Reach<'a> {
    pub(super) fn new(store: &'a Store, disk: &'a Disk, far: &'a Far) -> Self {
        Self {
            store,
            memory: &store.memory,
            disk,
            far,
            marks: Marks::default(),
            loose: Visited::default(),
            pending: BTreeMap::new(),
            pending_len: 0,
            scanned: BTreeMap::new(),
            may_ask: true,
        }
    }

    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    pub(super) fn into_marks(self) -> Marks {
        self.marks
    }

    /// Marks what these name.
    pub(super) fn mark(&mut self, roots: impl IntoIterator<Item = Handle>) -> Result<(), Error> {
        for root in roots {
            if let Some(tree) = self.enter(root)? {
                self.walk(tree)?;
            }
        }
        Ok(())
    }

    /// Marks what a tree names.
    fn walk(&mut self, tree: Object) -> Result<(), Error> {
        // Trees nest as deep as users like.
        let mut stack = vec![(tree, 0)];
        while let Some((tree, next)) = stack.last_mut() {
            let entry = tree.as_tree().get(*next);
            *next += 1;
            match entry {
                Some(entry) => stack.extend(self.enter(entry)?.map(|tree| (tree, 0))),
                None => _ = stack.pop(),
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
        let row = self.disk.index().tiered(key)?;
        let is_new = match row {
            Some(row) => self.marks.mark(key, row.place),
            None => {
                let spot = if is_large(key) { None } else { self.disk.index().spot(key)? };
                self.loose.is_new(key, spot)
            }
        };
        if !is_new || !key.names_tree() {
            return Ok(None);
        }
        if let Some((object, _)) = self.memory.peek(key) {
            return Ok(Some(object));
        }
        let damaged = match self.disk.read(key) {
            Ok(Some(object)) => return Ok(Some(object)),
            Ok(None) => None,
            Err(error @ Error::Corrupt { .. }) => Some(error),
            Err(error) => return Err(error),
        };
        match (row, damaged) {
            (Some(_), _) if self.pending_len >= PENDING_MAX && self.may_ask => self.disk.look_far(key),
            (Some(row), _) => {
                let pack = match row.place {
                    Place::Packed { pack, .. } => Some(pack),
                    Place::Lone => None,
                };
                self.pending.entry(pack).or_default().push(key);
                self.pending_len += 1;
                Ok(None)
            }
            // What it names is not known.
            (None, Some(damaged)) => Err(damaged),
            (None, None) => Ok(None),
        }
    }

    /// Whether there are trees that are to be read there.
    pub(super) fn is_settled(&self) -> bool {
        self.pending_len == 0
    }

    /// Reads the trees that are only there, and marks what they name.
    pub(super) fn read_pending(&mut self) -> Result<(), Error> {
        self.may_ask = true;
        while let Some((pack, keys)) = self.pending.pop_first() {
            self.pending_len -= keys.len();
            let found = match pack {
                Some(pack) if keys.len() >= WORTH_A_PACK => {
                    self.far.objects_of(&pack, &keys.iter().copied().collect())?
                }
                _ => HashMap::new(),
            };
            for key in keys {
                let tree = match found.get(&key) {
                    Some(tree) => Some(tree.clone()),
                    // By itself, or else this says what is wrong with it.
                    None => self.disk.look_far(key)?,
                };
                if let Some(tree) = tree {
                    self.walk(tree)?;
                }
            }
        }
        Ok(())
    }

    /// Marks what is needed by this home, as far as that is known without the tier: `is_brief`, what may have
    /// come since the last time. `end`: up to where its packs are known.
    pub(super) fn mark_home(
        &mut self,
        under_way: &dyn Fn() -> Vec<Handle>,
        end: Spot,
        is_brief: bool,
    ) -> Result<(), Error> {
        self.may_ask = !is_brief;
        self.mark(self.store.labels()?.into_iter().map(|(_, handle)| handle))?;
        self.mark(under_way())?;
        self.mark(self.far.take_relied())?;
        let mut recipes = Vec::new();
        self.disk.index().recipes(|key, recipe| recipes.extend([key, recipe.application]))?;
        self.mark(recipes)?;
        if !is_brief {
            // Those that come later lead to what is in memory, or on the disk.
            self.mark(self.store.relations().results())?;
            let mut results = Vec::new();
            self.disk.index().relations(usize::MAX, |_, record| results.push(record.result))?;
            self.mark(results)?;
        }
        for tree in self.disk.files().quarantined_trees()? {
            let entries = tree.as_chunks::<{ Handle::LEN }>().0;
            self.mark(entries.iter().filter_map(|entry| Handle::from_bytes(*entry).ok()))?;
        }
        let mut held = Vec::new();
        self.memory.visit(|key, state, is_held| {
            held.extend((state & DURABLE == 0 || is_held).then_some(key));
        });
        self.mark(held)?;
        self.mark_packs(end)?;
        let mut large = Vec::new();
        self.disk.files().visit(|key, _| large.push(key))?;
        self.mark(large)
    }

    /// Marks what lies in this home's packs, and what that names, as far as that was not done.
    fn mark_packs(&mut self, end: Spot) -> Result<(), Error> {
        let packs = self.disk.index().packs();
        for number in packs.numbers().into_iter().filter(|number| *number <= end.pack) {
            let from = self.scanned.get(&number).copied().unwrap_or_default();
            let to = if number == end.pack { u64::from(end.unit) * UNIT } else { u64::MAX };
            if from >= to || packs.pack(number)?.is_none_or(|(_, len)| from >= len) {
                continue;
            }
            let Some(pack) = packs.all(number)? else { continue };
            let pack = pack.get(..pack.len().min(usize::try_from(to).unwrap_or(usize::MAX))).unwrap_or(&pack);
            let mut records = Sound::new(pack, from);
            loop {
                let some: Vec<_> = records.by_ref().take(TOGETHER).collect();
                let spots = self.disk.index().spots(some.iter().map(|record| record.key))?;
                for (record, spot) in some.iter().zip(spots) {
                    // What was collected, or moved, leaves its record behind.
                    if spot != Some(Spot { pack: number, unit: record.unit }) {
                        continue;
                    }
                    let is_new = match self.disk.index().tiered(record.key)? {
                        Some(row) => self.marks.mark(record.key, row.place),
                        None => self.loose.is_new(record.key, spot),
                    };
                    if is_new && record.key.names_tree() {
                        self.mark(TreeView::from_checked(record.bytes).iter())?;
                    }
                }
                if some.len() < TOGETHER {
                    break;
                }
            }
            self.scanned.insert(number, records.at());
        }
        Ok(())
    }

    /// Marks what was sent, put again or relied on since then, and what that names.
    pub(super) fn mark_young(&mut self, since_s: u32) -> Result<(), Error> {
        let disk = self.disk;
        disk.index().visit_tiered(TOGETHER, |rows| {
            let young = rows.iter().filter(|(_, row)| row.since_s >= since_s);
            self.mark(young.map(|(key, _)| *key))
        })
    }
}

impl Far {
    /// Those of these objects that a pack has whole and sound.
    pub(super) fn objects_of(
        &self,
        pack: &PackName,
        keys: &HashSet<Handle>,
    ) -> Result<HashMap<Handle, Object>, Error> {
        let bytes = self.pack_bytes(pack)?;
        let len = form::table_len(&bytes).unwrap_or_default() as usize;
        let contents = bytes.get(..len).and_then(|table| form::contents(pack, table)).unwrap_or_default();
        let mut found = HashMap::new();
        for (key, offset) in contents.into_iter().filter(|(key, _)| keys.contains(key)) {
            let object = bytes.get(offset as usize..).and_then(|rest| rest.get(..object_len(key) as usize));
            if let Some(object) = object.filter(|object| hashes_to(object, key)) {
                found.insert(key, Object::copy_of(object));
            }
        }
        Ok(found)
    }
}
