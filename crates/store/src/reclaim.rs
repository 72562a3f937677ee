// SPDX-License-Identifier: Apache-2.0
//! What a store without a disk lets go of when its memory runs short.
//!
//! With a disk, what is evicted can be read again. Without one, dropping an
//! object loses it, so that only two kinds may go: what can be computed again,
//! and what nobody will ask for. Kept is what was put (it was acknowledged),
//! what a label or something put names, however deep, and what somebody holds
//! or has looked at since the last time. Relations that lead to something that
//! goes, go first: whoever asks later computes it again.
//!
//! A walk in the middle of a computation has handles in its hands that nobody
//! can see here. So this is for moments in which none is under way.

use std::collections::{HashMap, HashSet};

use objects::{Handle, TreeView};

use crate::Store;
use crate::memory::{Memory, REFERENCED, STORED};

/// What one round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Objects dropped.
    pub objects: u64,
    /// Results forgotten because they led to them.
    pub relations: u64,
}

impl Store {
    /// Drops what was neither needed since the last round nor must be kept, if
    /// there is no disk. Not to be called while anything is evaluated.
    pub fn reclaim(&self) -> Reclaimed {
        if self.disk().is_some() {
            return Reclaimed::default();
        }
        let memory = &self.memory;
        let mut roots: Vec<Handle> =
            self.labels().unwrap_or_default().into_iter().map(|(_, at)| at).collect();
        memory.visit(|key, state, _| roots.extend((state & STORED != 0).then_some(key)));
        let kept = reachable(memory, roots);
        let (mut unused, mut used) = (HashSet::new(), Vec::new());
        memory.visit(|key, state, is_held| match kept.contains(&key) {
            false if state & REFERENCED == 0 && !is_held => _ = unused.insert(key),
            false => used.push(key),
            true => {}
        });
        let mut whole = HashMap::new();
        let relations = self.relations().retain(|result| is_whole(memory, &unused, &mut whole, result));
        // What was looked at in between stays: it is not unused any more.
        let objects = unused.into_iter().filter(|&key| memory.drop_unused(key)).count() as u64;
        used.into_iter().for_each(|key| memory.unreference(key));
        Reclaimed { objects, relations }
    }
}

/// Everything here that the roots name, through trees and handles of any kind.
fn reachable(memory: &Memory, roots: Vec<Handle>) -> HashSet<Handle> {
    let mut found = HashSet::new();
    let mut pending = roots;
    while let Some(handle) = pending.pop() {
        let key = handle.plain_tree();
        if key.literal_bytes().is_none()
            && let Some((object, _)) = memory.peek(key)
            && found.insert(key)
            && key.names_tree()
        {
            pending.extend(TreeView::from_checked(&object).iter());
        }
    }
    found
}

/// Whether everything that a result names will still be here.
fn is_whole(
    memory: &Memory,
    unused: &HashSet<Handle>,
    known: &mut HashMap<Handle, bool>,
    result: Handle,
) -> bool {
    let mut pending = vec![(result.plain_tree(), false)];
    while let Some((key, are_entries_known)) = pending.pop() {
        if key.literal_bytes().is_some() || (!are_entries_known && known.contains_key(&key)) {
            continue;
        }
        let object = if unused.contains(&key) { None } else { memory.peek(key) };
        let Some((object, _)) = object else {
            known.insert(key, false);
            continue;
        };
        let entries = key.names_tree().then(|| TreeView::from_checked(&object));
        let entries = || entries.iter().flat_map(|tree| tree.iter().map(Handle::plain_tree));
        let is_known_whole =
            |entry: Handle| entry.literal_bytes().is_some() || known.get(&entry).copied().unwrap_or(false);
        if are_entries_known || entries().next().is_none() {
            let is_whole = entries().all(is_known_whole);
            known.insert(key, is_whole);
        } else {
            pending.push((key, true));
            pending.extend(entries().map(|entry| (entry, false)));
        }
    }
    let key = result.plain_tree();
    key.literal_bytes().is_some() || known.get(&key).copied().unwrap_or(false)
}

#[cfg(test)]
mod tests;
