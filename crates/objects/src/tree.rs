// SPDX-License-Identifier: Apache-2.0
//! Trees: sequences of handles, stored as their concatenated bytes.
//!
//! A tree is hashed in BLAKE3's key-derivation mode, so that no blob can be
//! made whose hash is a tree's.

use std::sync::LazyLock;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

use crate::handle::TREE_ENTRIES_MAX;
use crate::{Error, Handle};

/// The context string of the tree hash. Part of the specification.
const TREE_CONTEXT: &str = "sinew 2026-11-21 tree";

static TREE_KEY: LazyLock<ContextKey> = LazyLock::new(|| hash_derive_key_context(TREE_CONTEXT));

/// The key under which BLAKE3 hashes trees, for whoever verifies a part of one.
pub fn tree_key() -> &'static [u8; 32] {
    &TREE_KEY
}

fn hash_tree(entries: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_from_context_key(&TREE_KEY);
    hasher.update(entries);
    *hasher.finalize().as_bytes()
}

/// A tree's entries, over bytes owned by someone else. Every entry is well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeView<'a> {
    bytes: &'a [u8],
}

impl<'a> TreeView<'a> {
    /// Checks bytes from outside.
    ///
    /// # Errors
    /// [`Error::BadTree`] if the length is no multiple of 32, is over
    /// [`TREE_ENTRIES_MAX`], or an entry is no handle.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Error> {
        let (entries, rest) = bytes.as_chunks::<{ Handle::LEN }>();
        if !rest.is_empty() {
            return Err(Error::BadTree("the length is not a multiple of 32"));
        }
        if entries.len() as u64 > TREE_ENTRIES_MAX {
            return Err(Error::BadTree("more than 2^26 entries"));
        }
        if entries.iter().any(|&entry| Handle::from_bytes(entry).is_err()) {
            return Err(Error::BadTree("an entry is not a handle"));
        }
        Ok(Self { bytes })
    }

    /// For bytes that came out of [`TreeView::as_bytes`] or a [`TreeBuilder`]
    /// and were since held by us; checked in debug builds only.
    #[inline]
    pub fn from_checked(bytes: &'a [u8]) -> Self {
        // Entries are checked one by one as they are read: checking all of
        // them here would make a walk over a large tree quadratic.
        debug_assert!(bytes.len().is_multiple_of(Handle::LEN));
        Self { bytes }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / Handle::LEN
    }

    /// The tree without entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Entry `index`, from 0; `None` past the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Handle> {
        let start = index.checked_mul(Handle::LEN)?;
        let entry = self.bytes.get(start..)?.first_chunk::<{ Handle::LEN }>()?;
        Some(Handle::from_checked(*entry))
    }

    /// The entries in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Handle> + DoubleEndedIterator + use<'a> {
        self.bytes.as_chunks::<{ Handle::LEN }>().0.iter().map(|&entry| Handle::from_checked(entry))
    }

    /// The concatenated entries, as stored and hashed.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The entries `begin..end` as a tree of their own; `None` out of range.
    pub fn range(&self, begin: usize, end: usize) -> Option<Self> {
        let begin = begin.checked_mul(Handle::LEN)?;
        let end = end.checked_mul(Handle::LEN)?;
        Some(Self { bytes: self.bytes.get(begin..end)? })
    }

    /// Computes the tree's object handle. Hashes all entries.
    #[inline]
    pub fn handle(&self) -> Handle {
        Handle::hashed_tree(&hash_tree(self.bytes), self.len() as u64)
    }
}

/// Collects entries of a new tree.
#[derive(Debug, Clone, Default)]
pub struct TreeBuilder {
    bytes: Vec<u8>,
}

impl TreeBuilder {
    /// A tree without entries so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for `entries` entries, to allocate once.
    pub fn with_capacity(entries: usize) -> Self {
        Self { bytes: Vec::with_capacity(entries * Handle::LEN) }
    }

    /// Appends an entry.
    #[inline]
    pub fn push(&mut self, entry: Handle) -> &mut Self {
        self.bytes.extend_from_slice(entry.as_bytes());
        self
    }

    /// Replaces entry `index`, from 0. Past the end nothing happens.
    #[inline]
    pub fn set(&mut self, index: usize, entry: Handle) {
        if let Some(slot) = self.bytes.as_chunks_mut::<{ Handle::LEN }>().0.get_mut(index) {
            *slot = *entry.as_bytes();
        }
    }

    /// Number of entries so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / Handle::LEN
    }

    /// No entry so far.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets the entries, keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The entries so far.
    #[inline]
    pub fn view(&self) -> TreeView<'_> {
        TreeView { bytes: &self.bytes }
    }

    /// The concatenated entries.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl From<TreeView<'_>> for TreeBuilder {
    /// The same entries, to be changed.
    fn from(tree: TreeView<'_>) -> Self {
        Self { bytes: tree.as_bytes().to_vec() }
    }
}

impl FromIterator<Handle> for TreeBuilder {
    fn from_iter<I: IntoIterator<Item = Handle>>(entries: I) -> Self {
        let mut builder = Self::new();
        for entry in entries {
            builder.push(entry);
        }
        builder
    }
}

#[cfg(test)]
mod tests;
