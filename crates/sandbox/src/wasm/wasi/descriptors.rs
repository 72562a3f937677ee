// SPDX-License-Identifier: Apache-2.0
//! What a program has open, by number.

use super::errno::{Errno, Result};
use super::files::{Listed, NodeId};
use super::rights;

/// Descriptors at a time.
pub(crate) const DESCRIPTORS_MAX: usize = 1024;
/// Writes go to the end of the file.
pub(crate) const APPEND: u16 = 1 << 0;
/// Of no meaning here: nothing is ever waited for.
pub(crate) const NONBLOCK: u16 = 1 << 2;

/// What a descriptor is open on.
#[derive(Debug)]
pub(crate) enum Target {
    /// The bytes that the application gives; read up to here.
    Input {
        at: u64,
    },
    Output,
    Errors,
    File {
        node: NodeId,
        at: u64,
    },
    Directory {
        node: NodeId,
        /// The path that the application gives it, if it does.
        preopened: Option<Box<[u8]>>,
        /// What was in it when the program began to read it.
        listing: Listing,
    },
}

/// The lines of a directory as they were when the program began to read them. What it cost.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) lines: Vec<Listed>,
    pub(crate) paid: u64,
}

#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) target: Target,
    /// What may be done with it.
    pub(crate) rights: u64,
    /// What may be done with what is opened below it.
    pub(crate) inheriting: u64,
    pub(crate) flags: u16,
}

impl Descriptor {
    /// A stream.
    pub(crate) fn stream(target: Target, rights: u64) -> Self {
        Self { target, rights, inheriting: 0, flags: 0 }
    }

    /// A directory of the application.
    pub(crate) fn preopened(node: NodeId, path: Box<[u8]>) -> Self {
        let target = Target::Directory { node, preopened: Some(path), listing: Listing::default() };
        Self { target, rights: rights::DIRECTORY, inheriting: rights::DIRECTORY | rights::FILE, flags: 0 }
    }

    /// The file or directory that it is open on.
    pub(crate) fn node(&self) -> Option<NodeId> {
        match self.target {
            Target::File { node, .. } | Target::Directory { node, .. } => Some(node),
            _ => None,
        }
    }

    /// # Errors
    /// [`Errno::NotCapable`] without these rights.
    pub(crate) fn allow(&self, rights: u64) -> Result<()> {
        match self.rights & rights == rights {
            true => Ok(()),
            false => Err(Errno::NotCapable.into()),
        }
    }
}

/// The table of descriptors.
#[derive(Debug, Default)]
pub(crate) struct Descriptors(Vec<Option<Descriptor>>);

impl Descriptors {
    /// The lowest number that is free.
    pub(crate) fn insert(&mut self, descriptor: Descriptor) -> Result<u32> {
        let free = self.0.iter().position(Option::is_none);
        let number = free.unwrap_or(self.0.len());
        if number >= DESCRIPTORS_MAX {
            return Err(Errno::TooManyOpen.into());
        }
        match self.0.get_mut(number) {
            Some(slot) => *slot = Some(descriptor),
            None => self.0.push(Some(descriptor)),
        }
        Ok(number as u32)
    }

    /// All that are open, by number.
    pub(crate) fn open(&self) -> impl Iterator<Item = (usize, &Descriptor)> {
        self.0.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    /// Whether one more may be opened.
    pub(crate) fn have_room(&self) -> Result<()> {
        match self.0.len() < DESCRIPTORS_MAX || self.0.iter().any(Option::is_none) {
            true => Ok(()),
            false => Err(Errno::TooManyOpen.into()),
        }
    }

    /// What a number names.
    pub(crate) fn get(&self, number: i32) -> Result<&Descriptor> {
        let slot = self.0.get(number as u32 as usize);
        slot.and_then(Option::as_ref).ok_or_else(|| Errno::BadDescriptor.into())
    }

    /// What a number names.
    pub(crate) fn get_mut(&mut self, number: i32) -> Result<&mut Descriptor> {
        let slot = self.0.get_mut(number as u32 as usize);
        slot.and_then(Option::as_mut).ok_or_else(|| Errno::BadDescriptor.into())
    }

    /// Takes one away.
    pub(crate) fn remove(&mut self, number: i32) -> Result<Descriptor> {
        let slot = self.0.get_mut(number as u32 as usize);
        slot.and_then(Option::take).ok_or_else(|| Errno::BadDescriptor.into())
    }

    /// Gives `from` the number `to`; what was there before is returned.
    pub(crate) fn renumber(&mut self, from: i32, to: i32) -> Result<Option<Descriptor>> {
        self.get(from)?;
        self.get(to)?;
        if from == to {
            return Ok(None);
        }
        let moved = self.remove(from)?;
        let slot = self.get_mut(to)?;
        Ok(Some(std::mem::replace(slot, moved)))
    }

    /// The node of a file that has these rights.
    pub(crate) fn file(&self, number: i32, rights: u64) -> Result<NodeId> {
        let descriptor = self.get(number)?;
        let Target::File { node, .. } = descriptor.target else {
            return Err(Errno::BadDescriptor.into());
        };
        descriptor.allow(rights)?;
        Ok(node)
    }

    /// The node of a directory that has these rights.
    pub(crate) fn directory(&self, number: i32, rights: u64) -> Result<NodeId> {
        let descriptor = self.get(number)?;
        let Target::Directory { node, .. } = descriptor.target else {
            return Err(Errno::NotDirectory.into());
        };
        descriptor.allow(rights)?;
        Ok(node)
    }
}
