// SPDX-License-Identifier: Apache-2.0
//! Before a tree leaves memory, what it names and only memory has goes to the disk.
//!
//! Whoever later finds the tree on the disk need not read it to know that what is
//! behind it will be there too after a crash. Nothing is read from the disk for it,
//! since this happens where memory is short; and a tree is looked at once for as long
//! as it is in memory ([`SETTLED`]). What passes is never written.

use std::collections::HashSet;

use objects::Handle;

use super::{CHUNK_BYTES, CHUNK_OBJECTS};
use crate::disk::Disk;
use crate::files::object_len;
use crate::memory::{CLOSURE_DURABLE, DURABLE, Memory, PASSING, SETTLED};
use crate::{Error, Object};

/// One walk, over any number of objects that are to leave memory.
pub(crate) struct Settling<'a> {
    memory: &'a Memory,
    disk: &'a Disk,
    visited: HashSet<Handle>,
    /// Of those what is not on the disk, or names what is not.
    unclean: HashSet<Handle>,
    /// What is named comes before what names it.
    unwritten: Vec<(Handle, Object)>,
    unwritten_bytes: u64,
    written: u64,
    settled: Vec<Handle>,
    /// Nothing is written any more.
    failed: Option<Error>,
}

/// A tree whose entries are being walked.
struct Frame {
    key: Handle,
    tree: Object,
    is_durable: bool,
    is_clean: bool,
    next_entry: usize,
}

impl<'a> Settling<'a> {
    pub(crate) fn new(memory: &'a Memory, disk: &'a Disk) -> Self {
        Self {
            memory,
            disk,
            visited: HashSet::new(),
            unclean: HashSet::new(),
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            written: 0,
            settled: Vec::new(),
            failed: None,
        }
    }

    /// Takes an object along, with what it names. For who stays.
    pub(crate) fn walk(&mut self, key: Handle, object: &Object) {
        if !self.visited.insert(key) {
            return;
        }
        // What was dropped meanwhile may have gone from the disk as well.
        let state = self.memory.state(key).unwrap_or_default();
        let mut stack = Vec::from_iter(self.look(key, object.clone(), state));
        while let Some(frame) = stack.last_mut() {
            if let Some(entry) = frame.tree.as_tree().get(frame.next_entry) {
                frame.next_entry += 1;
                let entered = self.enter(entry);
                // What is begun here says so when it ends.
                frame.is_clean &= !self.unclean.contains(&entry.plain_tree());
                stack.extend(entered);
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            self.settled.push(frame.key);
            if !frame.is_clean {
                self.unclean.insert(frame.key);
                if let Some(above) = stack.last_mut() {
                    above.is_clean = false;
                }
            }
            if !frame.is_durable {
                self.collect(frame.key, frame.tree);
            }
        }
    }

    fn enter(&mut self, handle: Handle) -> Option<Frame> {
        let key = handle.plain_tree();
        if handle.literal_bytes().is_some() || self.visited.contains(&key) {
            return None;
        }
        let (object, state) = self.memory.peek(key)?;
        if state & (CLOSURE_DURABLE | SETTLED | PASSING) != 0 {
            return None;
        }
        self.visited.insert(key);
        self.look(key, object, state)
    }

    fn look(&mut self, key: Handle, object: Object, state: u8) -> Option<Frame> {
        let is_durable = state & DURABLE != 0;
        if key.names_tree() {
            return Some(Frame { key, tree: object, is_durable, is_clean: is_durable, next_entry: 0 });
        }
        if !is_durable {
            self.unclean.insert(key);
            self.collect(key, object);
        }
        None
    }

    fn collect(&mut self, key: Handle, object: Object) {
        if self.failed.is_some() {
            return;
        }
        self.unwritten_bytes += object_len(key);
        self.unwritten.push((key, object));
        if self.unwritten_bytes >= CHUNK_BYTES || self.unwritten.len() >= CHUNK_OBJECTS {
            self.failed = self.write().err();
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        let new = self.disk.new_here(self.unwritten.iter().map(|(key, _)| *key))?;
        self.disk.write(&self.unwritten, Vec::new())?;
        self.disk.note_unpromised(new);
        self.written += self.unwritten.len() as u64;
        for (key, _) in self.unwritten.drain(..) {
            self.memory.mark(key, DURABLE);
        }
        self.unwritten_bytes = 0;
        Ok(())
    }

    /// Writes what was collected, and gives back those of the objects that may leave
    /// memory now, with how many were written. Where writing fails, what needed none may
    /// leave all the same: otherwise nothing would, on a disk that is full.
    pub(crate) fn finish(
        mut self,
        mut objects: Vec<(Handle, Object)>,
    ) -> (Vec<(Handle, Object)>, Result<u64, Error>) {
        let written = match self.failed.take() {
            Some(error) => Err(error),
            None => self.write().map(|()| self.written),
        };
        if written.is_err() {
            self.settled.retain(|key| !self.unclean.contains(key));
            objects.retain(|(key, _)| !self.unclean.contains(key));
        }
        for key in &self.settled {
            self.memory.mark(*key, SETTLED);
        }
        (objects, written)
    }
}
