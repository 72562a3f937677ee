// SPDX-License-Identifier: Apache-2.0
//! A search tree (a B+-tree) of sorted keys, level by level, while they come.
//!
//! A node is a tree `[keys, child…]`; what is in its keys is told by the codelet that
//! looks keys up, `guests/codelets/rust/find-key`. Of each level only the node that is
//! being filled is in memory. Nothing here sends: who plants takes each [`Node`], stores
//! it, and says what it is named.

use objects::Handle;

/// The longest key in bytes, as for `find-key`.
pub(crate) const KEY_LEN_MAX: usize = 1024;
/// Most children of a node: with so many its tree is 32 MiB long, half of what a node takes at once.
pub(crate) const ARITY_MAX: u32 = 1 << 20;
/// Fewer would not make a tree.
pub(crate) const ARITY_MIN: u32 = 2;

/// A tree that grows at its right end.
#[derive(Debug)]
pub(crate) struct Plant {
    arity: u32,
    /// From the leaves up.
    levels: Vec<Growing>,
    last: Vec<u8>,
    has_keys: bool,
    /// What was stored last.
    root: Option<Handle>,
}

/// The node of a level that is being filled.
#[derive(Debug, Default)]
struct Growing {
    first: Vec<u8>,
    /// Where each key ends.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    children: Vec<Handle>,
}

/// One to be stored: its keys as a blob, then the tree of that blob and the children.
#[derive(Debug)]
pub(crate) struct Node {
    level: usize,
    first: Vec<u8>,
    pub(crate) keys: Vec<u8>,
    pub(crate) children: Vec<Handle>,
}

/// What is wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    TooLong,
    Repeated,
    Unsorted,
}

impl Plant {
    /// `arity` is from [`ARITY_MIN`] to [`ARITY_MAX`].
    pub(crate) fn new(arity: u32) -> Self {
        Self { arity, levels: vec![Growing::default()], last: Vec::new(), has_keys: false, root: None }
    }

    /// Adds a key, which is greater than all before. Then take what is [`full`](Self::full).
    pub(crate) fn push(&mut self, key: &[u8], value: Handle) -> Result<(), Wrong> {
        if key.len() > KEY_LEN_MAX {
            return Err(Wrong::TooLong);
        }
        if self.has_keys {
            match key.cmp(&self.last) {
                std::cmp::Ordering::Greater => {}
                std::cmp::Ordering::Equal => return Err(Wrong::Repeated),
                std::cmp::Ordering::Less => return Err(Wrong::Unsorted),
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.has_keys = true;
        self.levels[0].push(key, value);
        Ok(())
    }

    /// A node that has as many children as it may.
    pub(crate) fn full(&mut self) -> Option<Node> {
        let level = self.levels.iter().position(|level| level.is_full(self.arity))?;
        Some(self.take(level))
    }

    /// When all keys were added: the next of the nodes that are not full. If there is none
    /// any more, the tree is whole.
    pub(crate) fn rest(&mut self) -> Option<Node> {
        let level = self.levels.iter().position(|level| !level.children.is_empty())?;
        let top = self.levels.len() - 1;
        // A single node at the top is the root itself, and stored.
        if level == top && level > 0 && self.levels[top].children.len() == 1 {
            return None;
        }
        Some(self.take(level))
    }

    fn take(&mut self, level: usize) -> Node {
        let taken = std::mem::take(&mut self.levels[level]);
        Node { level, keys: taken.keys(level), first: taken.first, children: taken.children }
    }

    /// A node was stored, and is named so.
    pub(crate) fn stored(&mut self, node: &Node, handle: Handle) {
        let above = node.level + 1;
        if self.levels.len() == above {
            self.levels.push(Growing::default());
        }
        self.levels[above].push(&node.first, handle);
        self.root = Some(handle);
    }

    /// The root of a tree that is whole, unless it has no keys: what was stored last.
    pub(crate) fn root(&self) -> Option<Handle> {
        self.root
    }
}

impl Growing {
    fn push(&mut self, key: &[u8], child: Handle) {
        if self.children.is_empty() {
            self.first = key.to_vec();
        }
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        self.children.push(child);
    }

    /// Of as many children, or of so many bytes that one key more might not be counted.
    fn is_full(&self, arity: u32) -> bool {
        const KEYS_BYTES_MAX: usize = 1 << 30;
        self.children.len() >= arity as usize || self.bytes.len() + KEY_LEN_MAX > KEYS_BYTES_MAX
    }

    fn keys(&self, level: usize) -> Vec<u8> {
        let numbers = [level as u32, self.children.len() as u32, 0];
        let numbers = numbers.iter().chain(&self.ends).flat_map(|number| number.to_le_bytes());
        let mut keys = Vec::with_capacity(12 + 4 * self.ends.len() + self.bytes.len());
        keys.extend(numbers);
        keys.extend_from_slice(&self.bytes);
        keys
    }
}

#[cfg(test)]
mod tests;
