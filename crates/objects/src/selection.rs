// SPDX-License-Identifier: Apache-2.0
//! The layout of a selection tree: `[target, index]` or `[target, begin, end]`,
//! with eight-byte little-endian literals.

use std::ops::Range;

use crate::{Error, Handle, TreeBuilder, TreeView};

/// What is taken of the target. Indices count bytes of a blob or entries of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// One entry of a tree, or one byte of a blob as a blob.
    Element(u64),
    /// Entries or bytes `begin..end`, as a tree or blob.
    Range {
        /// The first one taken.
        begin: u64,
        /// The first one no longer taken.
        end: u64,
    },
}

impl Part {
    /// From where up to where it goes in a target of `size` bytes or entries; `None`:
    /// it is not within.
    #[inline]
    pub fn within(self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::Element(index) => index..index.checked_add(1)?,
            Self::Range { begin, end } => begin..end,
        };
        (range.start <= range.end && range.end <= size).then_some(range)
    }
}

/// A decoded selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Whose part is taken: any handle; thunks and encodes are evaluated first.
    pub target: Handle,
    /// Which part.
    pub part: Part,
}

impl Selection {
    /// Reads the definition of a selection thunk.
    ///
    /// # Errors
    /// [`Error::BadSelection`] if it has neither two nor three entries, or an
    /// index is not an eight-byte literal.
    pub fn from_tree(tree: TreeView<'_>) -> Result<Self, Error> {
        let target = tree.get(0).ok_or(Error::BadSelection("it is empty"))?;
        let part = match tree.len() {
            2 => Part::Element(index(tree.get(1))?),
            3 => Part::Range { begin: index(tree.get(1))?, end: index(tree.get(2))? },
            _ => return Err(Error::BadSelection("it has neither two nor three entries")),
        };
        Ok(Self { target, part })
    }

    /// The tree that defines this selection.
    pub fn to_tree(&self) -> TreeBuilder {
        let mut tree = TreeBuilder::with_capacity(3);
        tree.push(self.target);
        match self.part {
            Part::Element(index) => tree.push(Handle::u64(index)),
            Part::Range { begin, end } => tree.push(Handle::u64(begin)).push(Handle::u64(end)),
        };
        tree
    }
}

fn index(entry: Option<Handle>) -> Result<u64, Error> {
    let wrong = Error::BadSelection("an index is not an eight-byte literal");
    let entry = entry.filter(Handle::is_object).ok_or(wrong.clone())?;
    let bytes = entry.literal_bytes().ok_or(wrong.clone())?;
    Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| wrong)?))
}

#[cfg(test)]
mod tests;
