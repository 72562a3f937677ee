// SPDX-License-Identifier: Apache-2.0
//! Making an object durable together with everything reachable through it.
//!
//! Reachable are a tree's entries: objects, what refs name, and what defines
//! thunks and encodes. The walk keeps its own stack, since trees nest as deep
//! as users like. Children are written before their parents. A tree whose
//! closure was found complete is flagged in the memory tier, where the next
//! walk stops.
//!
//! A *brief* walk, for relations, reads nothing that lies behind a ref, thunk or
//! encode and is on the disk only: nobody has asked for it, and it may be all of a
//! large structure of which a computation has touched one path. It is enough there
//! that it is on the disk: what it names was written before it ([`Settling`]). Of what was
//! read from there it looks at what memory has, and asks the index for nothing else. No flag
//! is given for that.

mod settling;

use std::collections::HashMap;

use objects::Handle;

use crate::disk::Disk;
use crate::files::object_len;
use crate::memory::{CLOSURE_DURABLE, DURABLE, Memory, READ};
use crate::{Error, Object, Record};
pub(crate) use settling::Settling;

/// Objects are written whenever this much has been collected.
const CHUNK_BYTES: u64 = 16 << 20;
/// The same, in objects.
const CHUNK_OBJECTS: usize = 16 << 10;

/// One walk, over any number of roots.
pub(crate) struct Closure<'a> {
    memory: &'a Memory,
    disk: &'a Disk,
    is_brief: bool,
    /// What was dropped is not there.
    is_strict: bool,
    /// What was walked already, and whether its closure is local as a whole.
    visited: HashMap<Handle, Found>,
    /// The same of what lies behind refs and computations, in a brief walk.
    passed: HashMap<Handle, Found>,
    unwritten: Vec<(Handle, Object)>,
    unwritten_bytes: u64,
    complete_trees: Vec<Handle>,
}

/// What is known of a closure.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found {
    /// It is local as a whole, as far as was looked.
    is_complete: bool,
    /// All of it was looked at.
    is_sure: bool,
}

impl Found {
    const ALL: Self = Self { is_complete: true, is_sure: true };

    fn sure(is_complete: bool) -> Self {
        Self { is_complete, is_sure: true }
    }

    fn and(self, other: Self) -> Self {
        Self { is_complete: self.is_complete && other.is_complete, is_sure: self.is_sure && other.is_sure }
    }
}

/// A tree whose entries are being walked.
struct Frame {
    key: Handle,
    tree: Object,
    is_durable: bool,
    /// It lies behind a ref or a computation.
    is_behind: bool,
    /// It came from the disk, so that only what memory has of it needs a look.
    is_read: bool,
    next_entry: usize,
    found: Found,
}

enum Entered {
    /// Nothing to descend into.
    Leaf(Found),
    Tree(Frame),
}

impl<'a> Closure<'a> {
    pub(crate) fn new(memory: &'a Memory, disk: &'a Disk) -> Self {
        Self {
            memory,
            disk,
            is_brief: false,
            is_strict: false,
            visited: HashMap::new(),
            passed: HashMap::new(),
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            complete_trees: Vec::new(),
        }
    }

    /// One whose walks are brief.
    pub(crate) fn brief(memory: &'a Memory, disk: &'a Disk) -> Self {
        Self { is_brief: true, ..Self::new(memory, disk) }
    }

    /// One for which what was dropped is not there, though it can be made again; it walks
    /// all there is.
    pub(crate) fn strict(memory: &'a Memory, disk: &'a Disk) -> Self {
        Self { is_strict: true, ..Self::new(memory, disk) }
    }

    fn has(&self, key: Handle) -> Result<bool, Error> {
        if self.is_strict { self.disk.contains(key) } else { self.disk.has(key) }
    }

    /// What was walked, but for what lies behind refs and computations in a brief walk.
    pub(crate) fn visited(&self) -> impl Iterator<Item = Handle> {
        self.visited.keys().copied()
    }

    /// Collects what is reachable from `root`. False if part of it is not local.
    pub(crate) fn walk(&mut self, root: Handle) -> Result<bool, Error> {
        let mut stack = match self.enter(root, false)? {
            Entered::Leaf(found) => return Ok(found.is_complete),
            Entered::Tree(frame) => vec![frame],
        };
        let mut is_complete = true;
        while let Some(frame) = stack.last_mut() {
            if let Some(entry) = frame.tree.as_tree().get(frame.next_entry) {
                frame.next_entry += 1;
                let is_behind = frame.is_behind;
                if frame.is_read && self.is_far(entry) {
                    frame.found.is_sure = false;
                    continue;
                }
                match self.enter(entry, is_behind)? {
                    Entered::Leaf(found) => frame.found = frame.found.and(found),
                    Entered::Tree(child) => stack.push(child),
                }
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            is_complete = frame.found.is_complete;
            if let Some(parent) = stack.last_mut() {
                parent.found = parent.found.and(frame.found);
            }
            self.leave(frame)?;
        }
        Ok(is_complete)
    }

    /// Whether memory has nothing of it.
    fn is_far(&self, handle: Handle) -> bool {
        handle.literal_bytes().is_none() && self.memory.state(handle.plain_tree()).is_none()
    }

    /// `is_behind`: so is the tree that names it.
    fn enter(&mut self, handle: Handle, is_behind: bool) -> Result<Entered, Error> {
        if handle.literal_bytes().is_some() {
            return Ok(Entered::Leaf(Found::ALL));
        }
        let key = handle.plain_tree();
        let is_behind = self.is_brief && (is_behind || !handle.is_object());
        if let Some(&found) = self.seen(is_behind).get(&key) {
            return Ok(Entered::Leaf(found));
        }
        let mut is_read = false;
        let (object, is_durable) = match self.memory.peek(key) {
            Some((_, state)) if state & CLOSURE_DURABLE != 0 && !self.is_strict => {
                return Ok(Entered::Leaf(Found::ALL));
            }
            Some((object, state)) => {
                is_read = is_behind && state & READ != 0;
                (object, state & DURABLE != 0)
            }
            // A blob on disk has nothing behind it: no need to read it.
            None if is_behind || !key.names_tree() => {
                let found = Found { is_complete: self.has(key)?, is_sure: !key.names_tree() };
                self.seen(is_behind).insert(key, found);
                return Ok(Entered::Leaf(found));
            }
            None => match self.disk.read(key)? {
                Some(object) => {
                    self.memory.insert_with(key, DURABLE, || object.clone());
                    (object, true)
                }
                None => {
                    // A damaged tree that can be made again, with what it names.
                    let found = Found::sure(self.has(key)?);
                    self.visited.insert(key, found);
                    return Ok(Entered::Leaf(found));
                }
            },
        };
        if !key.names_tree() {
            self.seen(is_behind).insert(key, Found::ALL);
            if !is_durable {
                self.collect(key, object)?;
            }
            return Ok(Entered::Leaf(Found::ALL));
        }
        let found = Found::ALL;
        Ok(Entered::Tree(Frame { key, tree: object, is_durable, is_behind, is_read, next_entry: 0, found }))
    }

    fn seen(&mut self, is_behind: bool) -> &mut HashMap<Handle, Found> {
        if is_behind { &mut self.passed } else { &mut self.visited }
    }

    fn leave(&mut self, frame: Frame) -> Result<(), Error> {
        self.seen(frame.is_behind).insert(frame.key, frame.found);
        if frame.found == Found::ALL {
            self.complete_trees.push(frame.key);
        }
        if frame.is_durable { Ok(()) } else { self.collect(frame.key, frame.tree) }
    }

    fn collect(&mut self, key: Handle, object: Object) -> Result<(), Error> {
        self.unwritten_bytes += object_len(key);
        self.unwritten.push((key, object));
        if self.unwritten_bytes >= CHUNK_BYTES || self.unwritten.len() >= CHUNK_OBJECTS {
            self.write(Vec::new())?;
        }
        Ok(())
    }

    fn write(&mut self, relations: Vec<(Handle, Record)>) -> Result<(), Error> {
        let new = self.disk.new_here(self.unwritten.iter().map(|(key, _)| *key))?;
        self.disk.write(&self.unwritten, relations)?;
        self.disk.note_unpromised(new);
        for (key, _) in self.unwritten.drain(..) {
            self.memory.mark(key, DURABLE);
        }
        self.unwritten_bytes = 0;
        Ok(())
    }

    /// Writes what was collected, and these relations with it.
    pub(crate) fn finish(mut self, relations: Vec<(Handle, Record)>) -> Result<(), Error> {
        self.write(relations)?;
        for key in &self.complete_trees {
            self.memory.mark(*key, CLOSURE_DURABLE);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
