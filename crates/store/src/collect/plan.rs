// SPDX-License-Identifier: Apache-2.0
//! Decides which objects can go because they can be made again.
//!
//! An object goes only after everything that its recipe needs was looked at: that is
//! here, or was dropped earlier, or goes now too, and what it takes to have all of it is
//! known. The walk over recipes comes back to where it is where two things would need
//! each other; then the recipe that it came by does not count, and its object stays. What the
//! recipe of something that was dropped earlier needs stays as well, so that neither circles
//! nor chains grow behind what was decided.
//!
//! What a recipe needs and nobody else does would have gone, and stays because of it. So
//! an object goes only if it is larger than that; what several recipes name is divided among them.

use std::collections::{HashMap, HashSet};

use objects::Handle;

use super::Dropping;
use super::derived::{Maker, makers, tree};
use super::marker::Marker;
use crate::disk::Disk;
use crate::files::object_len;
use crate::memory::PASSING;
use crate::promises::DERIVED_MIN_BYTES;
use crate::{Error, Object, Recipe, Store};

/// Applications that may have to run one after the other for one object.
const DEPTH_MAX: u32 = 4096;
/// What it may take to make one object, with all that it needs.
const NANOS_MAX: u64 = 60_000_000_000;

/// An object that goes, and how it is made.
pub(super) type Derived = (Handle, Recipe);

/// What it takes to have an object, with all that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Means {
    nanos: u64,
    depth: u32,
    /// What nobody else needs and has to stay for it.
    bytes: u64,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The walk is in the middle of it.
    Begun,
    /// `None`: it cannot be had for certain.
    Ended(Option<Means>),
}

/// An object of which what it needs is being walked.
struct Frame {
    key: Handle,
    /// Of one that may go; what it needs is the application's definition.
    maker: Option<Maker>,
    /// Of another tree: it needs what it names.
    tree: Option<Object>,
    /// That tree is what defines an application.
    is_definition: bool,
    /// What it takes itself, if nobody else needs it.
    own_bytes: u64,
    next: usize,
    sum: Option<Means>,
}

struct Plan<'a> {
    store: &'a Store,
    disk: &'a Disk,
    marker: &'a Marker<'a>,
    dropping: Dropping,
    candidates: HashMap<Handle, Maker>,
    /// How many recipes name an object themselves.
    uses: HashMap<Handle, u64>,
    states: HashMap<Handle, State>,
    chosen: Vec<Derived>,
}

impl Store {
    /// What is needed and goes all the same. What it is made of counts as needed from now on.
    pub(super) fn plan(
        &self,
        disk: &Disk,
        marker: &mut Marker<'_>,
        dropping: Dropping,
    ) -> Result<Vec<Derived>, Error> {
        let candidates = self.candidates(disk, marker, dropping.bytes_min)?;
        let uses = self.uses(disk, &candidates)?;
        let mut roots = Vec::new();
        for key in candidates.keys() {
            roots.extend((marker.is_needed(*key)? == Some(true)).then_some(*key));
        }
        // The largest ones first; names break ties, so that a trial tells what will happen.
        roots.sort_unstable_by_key(|key| (std::cmp::Reverse(object_len(*key)), *key.as_bytes()));
        let (states, chosen) = (HashMap::new(), Vec::new());
        let mut plan = Plan { store: self, disk, marker, dropping, candidates, uses, states, chosen };
        for root in &roots {
            plan.walk(*root)?;
        }
        let Plan { mut chosen, .. } = plan;
        self.keep_to(disk, &mut chosen, roots)?;
        marker.mark(chosen.iter().map(|(_, recipe)| recipe.application))?;
        Ok(chosen)
    }

    /// Leaves of what was chosen what these need: what is needed by nobody else simply goes.
    fn keep_to(&self, disk: &Disk, chosen: &mut Vec<Derived>, roots: Vec<Handle>) -> Result<(), Error> {
        let recipes: HashMap<Handle, Handle> =
            chosen.iter().map(|(key, recipe)| (*key, recipe.application)).collect();
        let mut seen = HashSet::new();
        let mut pending: Vec<Handle> = roots.into_iter().filter(|root| recipes.contains_key(root)).collect();
        while let Some(key) = pending.pop() {
            if !seen.insert(key) {
                continue;
            }
            if let Some(application) = recipes.get(&key) {
                pending.push(application.definition());
            } else if key.names_tree()
                && let Some(tree) = tree(self, disk, key)?
            {
                pending.extend(needed_by(&tree));
            }
        }
        chosen.retain(|(key, _)| seen.contains(key));
        Ok(())
    }

    fn uses(&self, disk: &Disk, candidates: &HashMap<Handle, Maker>) -> Result<HashMap<Handle, u64>, Error> {
        let applications: HashSet<Handle> = candidates.values().map(|maker| maker.application).collect();
        let mut uses = HashMap::new();
        for application in applications {
            let Some(tree) = tree(self, disk, application.definition())? else { continue };
            needed_by(&tree).for_each(|key| *uses.entry(key).or_default() += 1);
        }
        Ok(uses)
    }

    /// What may go as far as it is concerned itself: it is old, on the disk, and was
    /// never put; an application makes it; and no recipe of what is gone already needs it.
    fn candidates(
        &self,
        disk: &Disk,
        marker: &Marker<'_>,
        bytes_min: u64,
    ) -> Result<HashMap<Handle, Maker>, Error> {
        let mut candidates: HashMap<Handle, Maker> = HashMap::new();
        makers(self, disk, bytes_min.max(DERIVED_MIN_BYTES), |object, maker| {
            let is_better = candidates.get(&object).is_none_or(|known| maker.is_better_than(known));
            // What a tree names must be found without it.
            if maker.is_own && is_better && !object.names_tree() {
                candidates.insert(object, maker);
            }
        })?;
        let pinned = self.pinned(disk)?;
        let keys: Vec<Handle> = candidates.keys().copied().collect();
        let mut may_go = HashMap::new();
        for key in disk.index().unpromised(&keys)? {
            if !pinned.contains(&key)
                && disk.contains(key)?
                && marker.is_needed(key)?.is_some()
                && let Some(maker) = candidates.get(&key)
            {
                may_go.insert(key, *maker);
            }
        }
        Ok(may_go)
    }

    /// What the recipes of dropped objects need.
    fn pinned(&self, disk: &Disk) -> Result<HashSet<Handle>, Error> {
        let mut pending = Vec::new();
        disk.index().recipes(|_, recipe| pending.push(recipe.application.definition()))?;
        let mut pinned = HashSet::new();
        while let Some(key) = pending.pop() {
            if pinned.insert(key)
                && key.names_tree()
                && let Some(tree) = tree(self, disk, key)?
            {
                pending.extend(needed_by(&tree));
            }
        }
        Ok(pinned)
    }
}

/// What a tree names that can be read through it.
fn needed_by(tree: &Object) -> impl Iterator<Item = Handle> {
    let objects = tree.as_tree().iter().filter(|entry| entry.is_object() && entry.literal_bytes().is_none());
    objects.map(Handle::plain_tree)
}

impl Plan<'_> {
    fn walk(&mut self, root: Handle) -> Result<(), Error> {
        let mut stack = Vec::from_iter(self.enter(root)?.err());
        while let Some(frame) = stack.last_mut() {
            if let Some(needed) = frame.next() {
                match self.enter(needed)? {
                    Ok(means) => frame.add(means, &self.uses, needed),
                    Err(begun) => {
                        let is_definition = frame.maker.is_some();
                        stack.push(Frame { is_definition, ..begun });
                    }
                }
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            let means = self.leave(&frame);
            self.states.insert(frame.key, State::Ended(means));
            if let Some(above) = stack.last_mut() {
                above.add(means, &self.uses, frame.key);
            }
        }
        Ok(())
    }

    /// What it takes to have an object; or what has to be looked at for that.
    fn enter(&mut self, key: Handle) -> Result<Result<Option<Means>, Frame>, Error> {
        match self.states.get(&key) {
            // What needs itself cannot be had so.
            Some(State::Begun) => return Ok(Ok(None)),
            Some(State::Ended(means)) => return Ok(Ok(*means)),
            None => {}
        }
        let own_bytes = self.bytes_for_it(key)?;
        let begun = |maker, tree| {
            let (is_definition, sum) = (false, Some(Means::default()));
            Frame { key, maker, tree, is_definition, own_bytes, next: 0, sum }
        };
        if let Some(maker) = self.candidates.get(&key) {
            let frame = begun(Some(*maker), None);
            self.states.insert(key, State::Begun);
            return Ok(Err(frame));
        }
        // What only passes through memory is never written.
        let stays = self.store.memory.state(key).is_some_and(|state| state & PASSING == 0);
        let is_here = stays || self.disk.contains(key)?;
        if is_here
            && key.names_tree()
            && let Some(tree) = tree(self.store, self.disk, key)?
        {
            self.states.insert(key, State::Begun);
            return Ok(Err(begun(None, Some(tree))));
        }
        let means = if is_here && !key.names_tree() {
            Some(Means { bytes: own_bytes, ..Means::default() })
        } else {
            let recipe = self.disk.index().recipe(key)?;
            // What it needs stays as it is.
            recipe.map(|recipe| Means { nanos: recipe.nanos, depth: recipe.depth, bytes: 0 })
        };
        self.states.insert(key, State::Ended(means));
        Ok(Ok(means))
    }

    /// What would not stay but for the recipes that need it.
    fn bytes_for_it(&self, key: Handle) -> Result<u64, Error> {
        let is_unneeded = self.marker.is_needed(key)? == Some(false);
        Ok(if is_unneeded { object_len(key) } else { 0 })
    }

    /// All that an object needs was looked at.
    fn leave(&mut self, frame: &Frame) -> Option<Means> {
        let Some(maker) = frame.maker else {
            return frame.sum.map(|sum| Means { bytes: sum.bytes.saturating_add(frame.own_bytes), ..sum });
        };
        let stays = Some(Means { bytes: frame.own_bytes, ..Means::default() });
        let Some(needed) = frame.sum else { return stays };
        let nanos = needed.nanos.saturating_add(maker.nanos);
        let means = Means { nanos, depth: needed.depth.saturating_add(1), bytes: needed.bytes };
        if !self.is_worth_it(frame.key, means) {
            return stays;
        }
        let recipe = Recipe::new(maker.application, maker.nanos, means.nanos, means.depth);
        self.chosen.push((frame.key, recipe));
        // What stays for one that is needed itself is paid for.
        let is_needed = frame.own_bytes == 0;
        Some(Means { bytes: if is_needed { 0 } else { means.bytes }, ..means })
    }

    fn is_worth_it(&self, key: Handle, means: Means) -> bool {
        let kib = object_len(key).div_ceil(1024);
        let nanos_max = self.dropping.nanos_per_kib.saturating_mul(kib).min(NANOS_MAX);
        means.nanos <= nanos_max && means.depth <= DEPTH_MAX && means.bytes < object_len(key)
    }
}

impl Frame {
    /// What it needs next.
    fn next(&mut self) -> Option<Handle> {
        if let Some(maker) = &self.maker {
            self.next += 1;
            return (self.next == 1).then(|| maker.application.definition());
        }
        let tree = self.tree.as_ref()?.as_tree();
        while let Some(entry) = tree.get(self.next) {
            self.next += 1;
            if entry.is_object() && entry.literal_bytes().is_none() {
                return Some(entry.plain_tree());
            }
        }
        None
    }

    /// What something that it needs takes, of whose room others have their shares.
    fn add(&mut self, means: Option<Means>, uses: &HashMap<Handle, u64>, needed: Handle) {
        let uses = if self.is_definition { uses.get(&needed).copied().unwrap_or(1) } else { 1 };
        self.sum = self.sum.zip(means).map(|(sum, more)| Means {
            nanos: sum.nanos.saturating_add(more.nanos),
            depth: sum.depth.max(more.depth),
            bytes: sum.bytes.saturating_add(more.bytes.div_ceil(uses.max(1))),
        });
    }
}
