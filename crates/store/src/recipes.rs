// SPDX-License-Identifier: Apache-2.0
//! How an object is made that is not here: dropped by a collection, or damaged.
//!
//! The store only knows recipes, and keeps alive what they need. Who follows one
//! is the evaluator; whether it has led to the object is told by the object's name.

use std::time::Duration;

use objects::Handle;

use crate::collect::derived;
use crate::index::Batch;
use crate::packs::now;
use crate::{Error, Store};

/// The application that makes an object, and what that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// It has no encodes left, and its procedure is no tree: to evaluate it is to run it.
    pub application: Handle,
    /// What it took, in nanoseconds.
    pub own_nanos: u64,
    /// What it takes with all that has to be made again before it; objects that are needed
    /// in two ways count twice.
    pub nanos: u64,
    /// Since when the object is not here, in seconds since 1970.
    pub since_s: u64,
    /// Applications one after the other, this one included.
    pub depth: u32,
}

impl Recipe {
    /// One for an object that goes now.
    pub(crate) fn new(application: Handle, own_nanos: u64, nanos: u64, depth: u32) -> Self {
        let since_s = now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        Self { application, own_nanos, nanos, since_s, depth }
    }
}

impl Store {
    /// How an object is made that is not on the disk, if it was dropped.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`] if the disk cannot be read.
    pub fn recipe(&self, handle: Handle) -> Result<Option<Recipe>, Error> {
        let Some(disk) = self.disk() else { return Ok(None) };
        let key = handle.plain_tree();
        match disk.index().recipe(key)? {
            Some(_) if disk.contains(key)? => Ok(None),
            recipe => Ok(recipe),
        }
    }

    /// Looks for the recipe of an object that was found damaged, and keeps it as if the
    /// object had been dropped. Reads all that is remembered, so it takes a while.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`].
    pub fn find_recipe(&self, handle: Handle) -> Result<Option<Recipe>, Error> {
        let Some(disk) = self.disk() else { return Ok(None) };
        let key = handle.plain_tree();
        let Some(maker) = derived::maker_of(self, disk, key)? else { return Ok(None) };
        // A collection that goes on now has what it needs stay; or has taken it away by now.
        let _stays = disk.stay();
        if derived::tree(self, disk, maker.application.definition())?.is_none() {
            return Ok(None);
        }
        let recipe = Recipe::new(maker.application, maker.nanos, maker.nanos, 1);
        let recipes = vec![(key, Some(recipe))];
        disk.committer().commit(Batch { recipes, ..Batch::default() })?;
        Ok(Some(recipe))
    }

    /// An application that gave an object as its result and could give it again; what that took; and
    /// whether it runs here, or asks servers. Only results that are in memory are looked at.
    pub fn likely_recipe(&self, handle: Handle) -> Option<(Handle, u64, bool)> {
        let disk = self.disk()?;
        let makers = self.relations().made_by(handle.plain_tree(), derived::MAKERS_MAX);
        makers.into_iter().find_map(|maker| {
            let is_own = derived::is_own(self, disk, maker.key, &maker.record)?;
            Some((maker.key, maker.record.nanos, is_own))
        })
    }

    /// Whether somebody has put an object, or relies on its staying, for all that is known: only what
    /// the node has written by itself is not promised.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`] if the disk cannot be read.
    pub fn is_promised(&self, handle: Handle) -> Result<bool, Error> {
        let Some(disk) = self.disk() else { return Ok(true) };
        Ok(disk.index().unpromised(&[handle.plain_tree()])?.is_empty())
    }
}

#[cfg(test)]
pub(crate) mod tests;
