// SPDX-License-Identifier: Apache-2.0
//! Making an object durable together with everything reachable through it.
//!
//! Reachable are a tree's entries: objects, what refs name, and what defines
//! thunks and encodes. The walk keeps its own stack, since trees nest as deep
//! as users like. Children are written before their parents. A tree whose
//! closure was found complete is flagged in the memory tier, where the next
//! walk stops.

use std::collections::HashMap;

use objects::Handle;

use crate::disk::Disk;
use crate::files::object_len;
use crate::memory::{CLOSURE_DURABLE, DURABLE, Memory};
use crate::{Error, Object, Record};

/// Objects are written whenever this much has been collected.
const CHUNK_BYTES: u64 = 16 << 20;
/// The same, in objects.
const CHUNK_OBJECTS: usize = 16 << 10;

/// One walk, over any number of roots.
pub(crate) struct Closure<'a> {
    memory: &'a Memory,
    disk: &'a Disk,
    /// What was walked already, and whether its closure is local as a whole.
    visited: HashMap<Handle, bool>,
    unwritten: Vec<(Handle, Object)>,
    unwritten_bytes: u64,
    complete_trees: Vec<Handle>,
}

/// A tree whose entries are being walked.
struct Frame {
    key: Handle,
    tree: Object,
    is_durable: bool,
    next_entry: usize,
    is_complete: bool,
}

enum Entered {
    /// Nothing to descend into; whether the closure is local.
    Leaf(bool),
    Tree(Frame),
}

impl<'a> Closure<'a> {
    pub(crate) fn new(memory: &'a Memory, disk: &'a Disk) -> Self {
        Self {
            memory,
            disk,
            visited: HashMap::new(),
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            complete_trees: Vec::new(),
        }
    }

    /// Collects what is reachable from `root`. False if part of it is not local.
    pub(crate) fn walk(&mut self, root: Handle) -> Result<bool, Error> {
        let mut stack = match self.enter(root)? {
            Entered::Leaf(is_complete) => return Ok(is_complete),
            Entered::Tree(frame) => vec![frame],
        };
        let mut is_complete = true;
        while let Some(frame) = stack.last_mut() {
            if let Some(entry) = frame.tree.as_tree().get(frame.next_entry) {
                frame.next_entry += 1;
                match self.enter(entry)? {
                    Entered::Leaf(is_complete) => frame.is_complete &= is_complete,
                    Entered::Tree(child) => stack.push(child),
                }
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            is_complete = frame.is_complete;
            if let Some(parent) = stack.last_mut() {
                parent.is_complete &= is_complete;
            }
            self.leave(frame)?;
        }
        Ok(is_complete)
    }

    fn enter(&mut self, handle: Handle) -> Result<Entered, Error> {
        if handle.literal_bytes().is_some() {
            return Ok(Entered::Leaf(true));
        }
        let key = handle.plain_tree();
        if let Some(&is_complete) = self.visited.get(&key) {
            return Ok(Entered::Leaf(is_complete));
        }
        let (object, is_durable) = match self.memory.peek(key) {
            Some((_, state)) if state & CLOSURE_DURABLE != 0 => return Ok(Entered::Leaf(true)),
            Some((object, state)) => (object, state & DURABLE != 0),
            // A blob on disk has nothing behind it: no need to read it.
            None if !key.names_tree() => {
                let is_local = self.disk.contains(key)?;
                self.visited.insert(key, is_local);
                return Ok(Entered::Leaf(is_local));
            }
            None => match self.disk.read(key)? {
                Some(object) => {
                    self.memory.insert_with(key, DURABLE, || object.clone());
                    (object, true)
                }
                None => {
                    self.visited.insert(key, false);
                    return Ok(Entered::Leaf(false));
                }
            },
        };
        if !key.names_tree() {
            self.visited.insert(key, true);
            if !is_durable {
                self.collect(key, object)?;
            }
            return Ok(Entered::Leaf(true));
        }
        Ok(Entered::Tree(Frame { key, tree: object, is_durable, next_entry: 0, is_complete: true }))
    }

    fn leave(&mut self, frame: Frame) -> Result<(), Error> {
        self.visited.insert(frame.key, frame.is_complete);
        if frame.is_complete {
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
        self.disk.write(&self.unwritten, relations)?;
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
