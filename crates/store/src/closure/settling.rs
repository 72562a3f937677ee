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
    /// What is named comes before what names it.
    unwritten: Vec<(Handle, Object)>,
    unwritten_bytes: u64,
    written: u64,
    settled: Vec<Handle>,
}

/// A tree whose entries are being walked.
struct Frame {
    key: Handle,
    tree: Object,
    is_durable: bool,
    next_entry: usize,
}

impl<'a> Settling<'a> {
    pub(crate) fn new(memory: &'a Memory, disk: &'a Disk) -> Self {
        Self {
            memory,
            disk,
            visited: HashSet::new(),
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            written: 0,
            settled: Vec::new(),
        }
    }

    /// Takes an object along, with what it names. For who stays.
    pub(crate) fn walk(&mut self, key: Handle, object: &Object) -> Result<(), Error> {
        if !self.visited.insert(key) {
            return Ok(());
        }
        // What was dropped meanwhile may have gone from the disk as well.
        let state = self.memory.state(key).unwrap_or_default();
        let mut stack = Vec::from_iter(self.look(key, object.clone(), state)?);
        while let Some(frame) = stack.last_mut() {
            if let Some(entry) = frame.tree.as_tree().get(frame.next_entry) {
                frame.next_entry += 1;
                stack.extend(self.enter(entry)?);
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            self.settled.push(frame.key);
            if !frame.is_durable {
                self.collect(frame.key, frame.tree)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, handle: Handle) -> Result<Option<Frame>, Error> {
        let key = handle.plain_tree();
        if handle.literal_bytes().is_some() || self.visited.contains(&key) {
            return Ok(None);
        }
        let Some((object, state)) = self.memory.peek(key) else { return Ok(None) };
        if state & (CLOSURE_DURABLE | SETTLED | PASSING) != 0 {
            return Ok(None);
        }
        self.visited.insert(key);
        self.look(key, object, state)
    }

    fn look(&mut self, key: Handle, object: Object, state: u8) -> Result<Option<Frame>, Error> {
        let is_durable = state & DURABLE != 0;
        if key.names_tree() {
            return Ok(Some(Frame { key, tree: object, is_durable, next_entry: 0 }));
        }
        if !is_durable {
            self.collect(key, object)?;
        }
        Ok(None)
    }

    fn collect(&mut self, key: Handle, object: Object) -> Result<(), Error> {
        self.unwritten_bytes += object_len(key);
        self.unwritten.push((key, object));
        if self.unwritten_bytes >= CHUNK_BYTES || self.unwritten.len() >= CHUNK_OBJECTS {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        self.disk.write(&self.unwritten, Vec::new())?;
        self.written += self.unwritten.len() as u64;
        for (key, _) in self.unwritten.drain(..) {
            self.memory.mark(key, DURABLE);
        }
        self.unwritten_bytes = 0;
        Ok(())
    }

    /// Writes what was collected. How many objects were written.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        self.write()?;
        for key in &self.settled {
            self.memory.mark(*key, SETTLED);
        }
        Ok(self.written)
    }
}
