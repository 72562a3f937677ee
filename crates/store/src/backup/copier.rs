// SPDX-License-Identifier: Apache-2.0
//! Copies objects from one folder to another, with all that they name, verified.
//!
//! What a tree names is written before the tree, so that a tree that is there has
//! all of it, however the copying ended. On that a walk relies that *trusts* what is
//! there: it reads nothing behind a tree that the other folder has.

use objects::Handle;

use crate::disk::{Disk, Looked};
use crate::files::{is_large, object_len};
use crate::index::Batch;
use crate::visited::Visited;
use crate::{Error, Object, Recipe};

/// Objects are written whenever this much has been collected.
const CHUNK_BYTES: u64 = 16 << 20;
/// The same, in objects.
const CHUNK_OBJECTS: usize = 16 << 10;
/// Handles of what was missing that are kept; more are counted.
pub(super) const MISSING_MAX: usize = 64 << 10;
/// Whoever waits is told after so many objects were looked at.
const TOLD_OBJECTS: u64 = 256;

/// What was copied, and what was not to be had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copied {
    /// Objects that were not there before.
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// What is not there, and what is damaged, up to [`MISSING_MAX`].
    pub(crate) missing: Vec<Handle>,
    pub(crate) missing_objects: u64,
    /// How many of the missing ones are there, but damaged.
    pub(crate) damaged_objects: u64,
}

/// One walk over any number of roots.
pub(crate) struct Copier<'a> {
    from: &'a Disk,
    to: &'a Disk,
    trusts: bool,
    visited: Visited,
    unwritten: Vec<(Handle, Object)>,
    unwritten_bytes: u64,
    /// Of what was dropped, and is not there.
    recipes: Vec<(Handle, Option<Recipe>)>,
    looked: u64,
    copied: Copied,
    /// Hears objects and bytes; false: it is to stop.
    progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

/// A tree whose entries are being copied.
struct Frame {
    key: Handle,
    tree: Object,
    next: usize,
    is_new: bool,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(
        from: &'a Disk,
        to: &'a Disk,
        trusts: bool,
        progress: &'a mut dyn FnMut(u64, u64) -> bool,
    ) -> Self {
        Self {
            from,
            to,
            trusts,
            visited: Visited::default(),
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            recipes: Vec::new(),
            looked: 0,
            copied: Copied::default(),
            progress,
        }
    }

    /// Copies what a handle names, however deep. What is not to be had is noted.
    pub(crate) fn copy(&mut self, root: Handle) -> Result<(), Error> {
        // Trees nest as deep as users like.
        let mut stack: Vec<Frame> = self.enter(root)?.into_iter().collect();
        while let Some(frame) = stack.last_mut() {
            let entry = frame.tree.as_tree().get(frame.next);
            frame.next += 1;
            if let Some(entry) = entry {
                stack.extend(self.enter(entry)?);
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            if frame.is_new {
                self.collect(frame.key, frame.tree)?;
            }
        }
        Ok(())
    }

    /// A tree whose entries are to be looked at.
    fn enter(&mut self, handle: Handle) -> Result<Option<Frame>, Error> {
        if handle.literal_bytes().is_some() {
            return Ok(None);
        }
        let key = handle.plain_tree();
        let spot = if is_large(key) { None } else { self.from.index().spot(key)? };
        if !self.visited.is_new(key, spot) {
            return Ok(None);
        }
        self.looked += 1;
        if self.looked.is_multiple_of(TOLD_OBJECTS) && !(self.progress)(self.looked, self.copied.bytes) {
            return Err(Error::Stopped);
        }
        if self.to.contains(key)? {
            if self.trusts || !key.names_tree() {
                return Ok(None);
            }
            match self.to.read(key) {
                Ok(Some(tree)) => return Ok(Some(Frame { key, tree, next: 0, is_new: false })),
                // It was moved aside, and is not there any more.
                Ok(None) | Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let looked = self.from.look(key)?;
        if let (Looked::Absent, Some(recipe)) = (&looked, self.from.index().recipe(key)?) {
            self.recipes.push((key, Some(recipe)));
            // A tree, which is never dropped.
            return self.enter(recipe.application.definition());
        }
        // Nothing of a home need be on its disk if its tier has it.
        let looked = match looked {
            Looked::Absent | Looked::Damaged => match self.from.look_far(key) {
                Ok(Some(object)) => Looked::Sound(object),
                Ok(None) | Err(Error::Far { .. }) => looked,
                Err(error) => return Err(error),
            },
            sound => sound,
        };
        let Looked::Sound(object) = looked else {
            self.copied.damaged_objects += u64::from(matches!(looked, Looked::Damaged));
            self.miss(key);
            return Ok(None);
        };
        if key.names_tree() {
            return Ok(Some(Frame { key, tree: object, next: 0, is_new: true }));
        }
        self.collect(key, object)?;
        Ok(None)
    }

    fn miss(&mut self, key: Handle) {
        self.copied.missing_objects += 1;
        if self.copied.missing.len() < MISSING_MAX {
            self.copied.missing.push(key);
        }
    }

    fn collect(&mut self, key: Handle, object: Object) -> Result<(), Error> {
        self.copied.objects += 1;
        self.copied.bytes += object_len(key);
        self.unwritten_bytes += object_len(key);
        self.unwritten.push((key, object));
        if self.unwritten_bytes >= CHUNK_BYTES || self.unwritten.len() >= CHUNK_OBJECTS {
            self.write()?;
        }
        Ok(())
    }

    /// Writes what was collected; it is synced when this returns.
    fn write(&mut self) -> Result<(), Error> {
        if !self.recipes.is_empty() {
            // Before the trees that name what they are for: whoever finds such a tree does not
            // look further.
            let recipes = std::mem::take(&mut self.recipes);
            self.to.committer().commit(Batch { recipes, ..Batch::default() })?;
        }
        if !self.unwritten.is_empty() {
            let _stays = self.to.stay();
            self.to.write(&self.unwritten, Vec::new())?;
        }
        self.unwritten.clear();
        self.unwritten_bytes = 0;
        if (self.progress)(self.looked, self.copied.bytes) { Ok(()) } else { Err(Error::Stopped) }
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> Result<Copied, Error> {
        self.write()?;
        Ok(self.copied)
    }
}
