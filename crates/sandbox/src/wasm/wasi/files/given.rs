// SPDX-License-Identifier: Apache-2.0
//! Directories of the application, read when somebody looks into them.

use std::collections::BTreeMap;

use objects::Handle;

use super::node::{Body, Directory, Link, NodeId, Stored};
use super::{Files, NAME_MAX, NODE_BYTES};
use crate::wasm::wasi::errno::{Errno, Result};
use crate::wasm::wasi::guest::PATH_MAX;
use crate::wasm::wasi::means::{Means, malformed};

impl Files {
    /// Reads a directory's names, unless they are known.
    ///
    /// # Errors
    /// `bad-thunk` if its tree is not as `docs/spec/programs.md` says.
    pub(super) fn look_into(&mut self, id: NodeId, means: &mut Means<'_>) -> Result<()> {
        let tree = match &self.node(id).body {
            Body::Directory(Directory::Unread(tree)) => *tree,
            Body::Directory(Directory::Read { .. }) => return Ok(()),
            _ => return Err(Errno::NotDirectory.into()),
        };
        let wrong = |why: &str| malformed(format_args!("{tree} is no directory: {why}"));
        let object = means.object(tree)?;
        let entries = object.as_tree();
        let list = entries.get(0).filter(|list| is_blob(*list));
        let list = means.object(list.ok_or_else(|| wrong("its first entry is no list of names"))?)?;
        // Paid for before anything is made.
        let children = entries.len() as u64 - 1;
        means.charge("a directory that it looks into", list.len() as u64 + children * NODE_BYTES)?;
        means.refund(children * NODE_BYTES);
        let lines: Vec<&[u8]> = list.split_inclusive(|byte| *byte == b'\n').collect();
        if lines.len() as u64 != children {
            return Err(wrong("it has not one line of names for each entry"));
        }
        let mut names = BTreeMap::new();
        let mut last: &[u8] = b"";
        for (line, handle) in lines.into_iter().zip(entries.iter().skip(1)) {
            let &[kind, b' ', ref name @ .., b'\n'] = line else {
                return Err(wrong("a line is not a letter, a space and a name"));
            };
            if name <= last || !is_name(name) {
                return Err(wrong("a name is out of order, there twice, or none"));
            }
            last = name;
            let child =
                self.child(kind, handle, means)?.ok_or_else(|| wrong("an entry is not of its kind"))?;
            let (is_read_only, times) = (self.node(id).is_read_only, self.node(id).times);
            let node = self.node_mut(child);
            (node.links, node.parent, node.is_read_only, node.times) = (1, id, is_read_only, times);
            node.is_executable = kind == b'x';
            names.insert(name.into(), child);
        }
        self.node_mut(id).body = Body::Directory(Directory::Read { names, is_changed: false });
        Ok(())
    }

    fn child(&mut self, kind: u8, handle: Handle, means: &mut Means<'_>) -> Result<Option<NodeId>> {
        let body = match kind {
            b'f' | b'x' if is_blob(handle) => Body::File(Stored::Given { blob: handle, object: None }),
            b'd' if is_tree(handle) => Body::Directory(Directory::Unread(handle)),
            b'l' if is_blob(handle) && (1..=PATH_MAX as u64).contains(&handle.size()) => {
                Body::Link(Link::Given(handle))
            }
            _ => return Ok(None),
        };
        self.add(body, Some(handle), means).map(Some)
    }
}

/// A blob, or the ref of one.
pub(crate) fn is_blob(handle: Handle) -> bool {
    handle.is_value() && !handle.is_failure() && !handle.names_tree()
}

/// A tree, or the ref of one.
pub(crate) fn is_tree(handle: Handle) -> bool {
    handle.is_value() && !handle.is_failure() && handle.names_tree()
}

/// Whether a file may have this name.
pub(super) fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | b'\n' | 0))
}
