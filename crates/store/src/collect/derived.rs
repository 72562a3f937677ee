// SPDX-License-Identifier: Apache-2.0
//! Which application makes an object: read from what is remembered of evaluations.
//!
//! An application makes what its result names through objects, except what it was
//! given itself. Only one that ran a procedure counts, whose inputs are all objects: it
//! runs again with nothing else to be evaluated first, and gives the same, for
//! nothing else is remembered.

use std::collections::HashSet;

use objects::{Application, Handle, Kind, Source};

use crate::disk::Disk;
use crate::files::object_len;
use crate::{Error, Object, Record, Rule, Store};

/// Makers of one result that are looked at.
pub(crate) const MAKERS_MAX: usize = 16;
/// Objects of one result that are looked at.
const RESULT_OBJECTS_MAX: usize = 64 << 10;

/// What makes an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker {
    pub(crate) application: Handle,
    /// What it took.
    pub(crate) nanos: u64,
    /// The object is its result, not only a part of it.
    pub(crate) is_whole: bool,
    /// It runs in this node, and asks nobody else.
    pub(crate) is_own: bool,
}

impl Maker {
    /// Whether it is known better, or takes less, than another one.
    pub(crate) fn is_better_than(&self, other: &Self) -> bool {
        (self.is_own, self.is_whole, other.nanos) > (other.is_own, other.is_whole, self.nanos)
    }
}

/// Whether what a relation says can be run again does so here; `None`: it cannot be run again.
pub(crate) fn is_own(store: &Store, disk: &Disk, key: Handle, record: &Record) -> Option<bool> {
    let found = may_be_recipe(key, record, 0).then(|| definition(store, disk, key).ok().flatten());
    found.flatten().map(|(_, is_own)| is_own)
}

/// The application that makes this very object.
pub(crate) fn maker_of(store: &Store, disk: &Disk, key: Handle) -> Result<Option<Maker>, Error> {
    let mut best: Option<Maker> = None;
    makers(store, disk, 0, |object, maker| {
        if object == key && best.is_none_or(|best| maker.is_better_than(&best)) {
            best = Some(maker);
        }
    })?;
    Ok(best)
}

/// Tells of all objects of `bytes_min` or more which application makes them; of some, several.
/// Blobs, and trees that are not here.
pub(crate) fn makers(
    store: &Store,
    disk: &Disk,
    bytes_min: u64,
    mut found: impl FnMut(Handle, Maker),
) -> Result<(), Error> {
    let mut known = HashSet::new();
    let mut relations = Vec::new();
    let mut note = |key: Handle, record: Record| {
        if may_be_recipe(key, &record, bytes_min) && known.insert(key) {
            relations.push((key, record));
        }
    };
    // What took least is not on the disk.
    store.relations().visit(&mut note);
    disk.index().relations(usize::MAX, &mut note)?;
    drop(known);
    for (key, record) in relations {
        let Some((tree, is_own)) = definition(store, disk, key)? else { continue };
        let given: HashSet<Handle> = tree.as_tree().iter().map(Handle::plain_tree).collect();
        let result = record.result.plain_tree();
        let maker = Maker { application: key, nanos: record.nanos, is_whole: true, is_own };
        made(store, disk, result, &given, |object| {
            if object_len(object) >= bytes_min {
                found(object, Maker { is_whole: object == result, ..maker });
            }
        })?;
    }
    Ok(())
}

/// What can be told of the relation alone.
fn may_be_recipe(key: Handle, record: &Record, bytes_min: u64) -> bool {
    let result = record.result;
    let is_value = result.is_value() && !result.is_failure() && result.literal_bytes().is_none();
    let is_large = result.names_tree() || object_len(result.plain_tree()) >= bytes_min;
    record.rule == Rule::Apply && key.kind() == Kind::Application && is_value && is_large
}

/// The definition of an application that can be run as it is, and whether a module does so.
/// Else a function would, which acts on the world, or the platform itself, which fetches.
fn definition(store: &Store, disk: &Disk, key: Handle) -> Result<Option<(Object, bool)>, Error> {
    let Some(tree) = tree(store, disk, key.definition())? else { return Ok(None) };
    if tree.as_tree().iter().any(|entry| entry.is_encode()) {
        return Ok(None);
    }
    let Ok(application) = Application::from_tree(tree.as_tree()) else { return Ok(None) };
    let procedure = application.procedure;
    let is_own = procedure.kind() == Kind::Blob && procedure.literal_bytes().is_none();
    Ok((is_own || Source::is_fetched_by(procedure)).then_some((tree, is_own)))
}

/// The objects of a result that were not given to what has made it.
fn made(
    store: &Store,
    disk: &Disk,
    result: Handle,
    given: &HashSet<Handle>,
    mut found: impl FnMut(Handle),
) -> Result<(), Error> {
    let mut seen = HashSet::new();
    let mut pending = vec![result];
    while let Some(key) = pending.pop() {
        if given.contains(&key) || seen.len() >= RESULT_OBJECTS_MAX || !seen.insert(key) {
            continue;
        }
        if !key.names_tree() {
            found(key);
            continue;
        }
        // A tree that is damaged has nothing more to tell.
        let Some(tree) = tree(store, disk, key)? else {
            found(key);
            continue;
        };
        let named =
            tree.as_tree().iter().filter(|entry| entry.is_object() && entry.literal_bytes().is_none());
        pending.extend(named.map(Handle::plain_tree));
    }
    Ok(())
}

/// A tree, if it is here and sound. It does not come into memory.
pub(crate) fn tree(store: &Store, disk: &Disk, key: Handle) -> Result<Option<Object>, Error> {
    if let Some((object, _)) = store.memory.peek(key) {
        return Ok(Some(object));
    }
    match disk.read(key) {
        Ok(object) => Ok(object),
        // Whoever asks for it is told.
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
