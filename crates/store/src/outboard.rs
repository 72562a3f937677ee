// SPDX-License-Identifier: Apache-2.0
//! The tree of hashes over a large object, so that a part of it can be verified
//! without the rest.
//!
//! BLAKE3 is a tree. An *outboard* has the chaining values of its nodes, from those
//! of *groups* of 16 KiB up to the two below the root, level after level, 32 bytes
//! each: 0.4 % of the object. Where a level has an odd number of nodes, the last one
//! stands in the next level as it is. Nothing in an outboard is believed: who reads
//! a part goes down from the root, which is the object's name, and compares at each
//! level. So an outboard needs no header, no checksum and no sync: one that is
//! damaged, old or cut short is found out, and made anew from the object.

use std::io;
use std::ops::Range;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};
use objects::{HASH_LEN, Handle, tree_key};

use crate::files::object_len;

/// What is verified as one. A power of two of BLAKE3's chunks of 1 KiB.
pub(crate) const GROUP_BYTES: u64 = 16 << 10;
/// Objects from this length have an outboard; smaller ones are read whole.
pub(crate) const PARTIAL_BYTES: u64 = 1 << 20;

const VALUE_BYTES: u64 = size_of::<ChainingValue>() as u64;

/// Whether a part of the object can be read without the rest.
pub(crate) fn is_partial(key: Handle) -> bool {
    object_len(key) >= PARTIAL_BYTES
}

/// Bytes of the outboard of an object of `len` bytes.
pub(crate) fn outboard_len(len: u64) -> u64 {
    levels(len).iter().map(|level| level.nodes * VALUE_BYTES).sum()
}

/// The groups in which a range lies.
pub(crate) fn groups_of(range: &Range<u64>) -> Range<u64> {
    range.start / GROUP_BYTES..range.end.div_ceil(GROUP_BYTES)
}

/// How an object's nodes are hashed: trees and blobs differ.
fn mode(is_tree: bool) -> Mode<'static> {
    if is_tree { Mode::DeriveKeyMaterial(tree_key()) } else { Mode::Hash }
}

/// What hashes a blob, or a tree, from its beginning.
pub(crate) fn hasher(is_tree: bool) -> Hasher {
    if is_tree { Hasher::new_from_context_key(tree_key()) } else { Hasher::new() }
}

/// The value of the group with this number, of the kind of object that `key` is.
pub(crate) fn group_value(key: Handle, group: u64, bytes: &[u8]) -> ChainingValue {
    hasher(key.names_tree()).set_input_offset(group * GROUP_BYTES).update(bytes).finalize_non_root()
}

/// Whether an object hashes to what its name says.
pub(crate) fn is_hash_of(hash: &blake3::Hash, key: Handle) -> bool {
    hash.as_bytes().get(..HASH_LEN) == Some(key.hash_bytes())
}

/// The nodes of one level, and where they begin in the outboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    begin: u64,
    nodes: u64,
}

/// All levels of the outboard of an object of `len` bytes, the groups' first.
fn levels(len: u64) -> Vec<Level> {
    let mut nodes = len.div_ceil(GROUP_BYTES);
    let mut levels = Vec::new();
    let mut begin = 0;
    while nodes > 1 {
        levels.push(Level { begin, nodes });
        begin += nodes * VALUE_BYTES;
        nodes = nodes.div_ceil(2);
    }
    levels
}

/// Reads the outboard of `key`, and gives the values of these groups, verified.
/// `read` fills a buffer from an offset.
///
/// # Errors
/// `InvalidData` if the outboard is not the object's, else those of `read`.
pub(crate) fn group_values(
    key: Handle,
    groups: Range<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Vec<ChainingValue>> {
    let levels = levels(object_len(key));
    let Some(last) = groups.end.checked_sub(1).filter(|last| groups.start <= *last) else {
        return Ok(Vec::new());
    };
    // What is verified of the level above, and from which node on.
    let mut known: Vec<ChainingValue> = Vec::new();
    let mut known_from = 0;
    for (depth, level) in levels.iter().enumerate().rev() {
        // Whole pairs: only they can be compared with what is above.
        let from = (groups.start >> depth) & !1;
        let to = (((last >> depth) | 1) + 1).min(level.nodes);
        let values = read_values(level.begin + from * VALUE_BYTES, to.saturating_sub(from), &mut read)?;
        if depth + 1 == levels.len() {
            let &[left, right] = values.as_slice() else { return Err(damaged()) };
            let root = merge_subtrees_root(&left, &right, mode(key.names_tree()));
            if root.as_bytes().get(..HASH_LEN) != Some(key.hash_bytes()) {
                return Err(damaged());
            }
        } else {
            let above = known.iter().skip((from / 2 - known_from) as usize);
            let is_right = |(pair, above): (&[ChainingValue], &ChainingValue)| parent(key, pair) == *above;
            if !values.chunks(2).zip(above).all(is_right) {
                return Err(damaged());
            }
        }
        (known, known_from) = (values, from);
    }
    let skipped = (groups.start - known_from) as usize;
    Ok(known.into_iter().skip(skipped).take((groups.end - groups.start) as usize).collect())
}

/// The node above one or two.
fn parent(key: Handle, pair: &[ChainingValue]) -> ChainingValue {
    match pair {
        [left, right] => merge_subtrees_non_root(left, right, mode(key.names_tree())),
        [only, ..] => *only,
        [] => unreachable!("a level's nodes have children"),
    }
}

fn read_values(
    offset: u64,
    count: u64,
    read: &mut impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Vec<ChainingValue>> {
    let mut values = vec![ChainingValue::default(); count as usize];
    read(offset, values.as_flattened_mut())?;
    Ok(values)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not this object's")
}

/// Hashes an object while it comes, and notes its groups' values.
pub(crate) struct Grower {
    is_tree: bool,
    group: Hasher,
    /// Bytes of the group that is being hashed.
    filled: u64,
    groups: u64,
    /// Values of groups that were not taken yet.
    values: Vec<ChainingValue>,
    /// Complete subtrees on the right edge, by the number of their groups, which are
    /// the powers of two in `groups`.
    edge: Vec<ChainingValue>,
}

impl Grower {
    /// Of a blob, or a tree.
    pub(crate) fn new(is_tree: bool) -> Self {
        let group = hasher(is_tree);
        Self { is_tree, group, filled: 0, groups: 0, values: Vec::new(), edge: Vec::new() }
    }

    /// Hashes what comes next.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // Not before more has come: the last group is not merged like the others.
            if self.filled == GROUP_BYTES {
                self.end_group();
            }
            let (now, later) = bytes.split_at(bytes.len().min((GROUP_BYTES - self.filled) as usize));
            self.group.update(now);
            self.filled += now.len() as u64;
            bytes = later;
        }
    }

    fn end_group(&mut self) {
        let value = self.group.finalize_non_root();
        self.values.push(value);
        self.groups += 1;
        self.filled = 0;
        self.group = hasher(self.is_tree);
        self.group.set_input_offset(self.groups * GROUP_BYTES);
        let mut node = value;
        for _ in 0..self.groups.trailing_zeros() {
            let left = self.edge.pop().unwrap_or_else(|| unreachable!("its left one was pushed"));
            node = merge_subtrees_non_root(&left, &node, mode(self.is_tree));
        }
        self.edge.push(node);
    }

    /// The values of groups that have ended since this was last called.
    pub(crate) fn take_values(&mut self) -> Vec<ChainingValue> {
        std::mem::take(&mut self.values)
    }

    /// The hash of all, and the values of groups that were not taken.
    pub(crate) fn finish(mut self) -> (blake3::Hash, Vec<ChainingValue>) {
        let Some(mut left) = self.edge.pop() else {
            return (self.group.finalize(), self.values);
        };
        let last = self.group.finalize_non_root();
        self.values.push(last);
        let mut node = last;
        while let Some(next) = self.edge.pop() {
            node = merge_subtrees_non_root(&left, &node, mode(self.is_tree));
            left = next;
        }
        (merge_subtrees_root(&left, &node, mode(self.is_tree)), self.values)
    }
}

/// The levels above the groups', one after another, handed out in pieces. `read`
/// fills a buffer from what the outboard has so far.
pub(crate) fn upper_levels(
    key: Handle,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    /// An even number, so that pairs stay together.
    const AT_ONCE: u64 = 4096;
    let levels = levels(object_len(key));
    // Above the last one is the root, which is the object's name.
    let below_last = levels.split_last().map_or_else(Default::default, |(_, below)| below);
    for level in below_last {
        let mut at = 0;
        while at < level.nodes {
            let count = AT_ONCE.min(level.nodes - at);
            let mut values = vec![ChainingValue::default(); count as usize];
            read(level.begin + at * VALUE_BYTES, values.as_flattened_mut())?;
            let above: Vec<ChainingValue> = values.chunks(2).map(|pair| parent(key, pair)).collect();
            write(above.as_flattened())?;
            at += count;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
