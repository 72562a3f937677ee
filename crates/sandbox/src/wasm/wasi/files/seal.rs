// SPDX-License-Identifier: Apache-2.0
//! Files become trees again when the program has ended.
//!
//! What was not changed is the handle that it was given as, without a look at its
//! data: only what the program wrote is hashed.

use std::collections::HashMap;

use objects::{Handle, TreeBuilder};

use super::Files;
use super::node::{Body, Directory, Kind, Link, NodeId, Stored};
use crate::wasm::wasi::means::Means;

impl Files {
    /// The tree of a directory. Nothing more can be written afterwards.
    pub(crate) fn seal(&mut self, root: NodeId, means: &mut Means<'_>) -> Handle {
        // Directories come before those in them, so that from the end each comes after its children.
        let mut order = vec![root];
        let mut at = 0;
        while let Some(&directory) = order.get(at) {
            at += 1;
            let Some(names) = self.node(directory).names() else { continue };
            let inner = names.values().filter(|child| self.node(**child).names().is_some());
            order.extend(inner);
        }
        let mut sealed = HashMap::with_capacity(order.len());
        for &directory in order[1..].iter().rev() {
            let handle = self.seal_directory(directory, &sealed, means);
            sealed.insert(directory, handle);
        }
        self.seal_directory(root, &sealed, means)
    }

    fn seal_directory(
        &mut self,
        id: NodeId,
        sealed: &HashMap<NodeId, Handle>,
        means: &mut Means<'_>,
    ) -> Handle {
        let (children, mut is_changed) = match &self.node(id).body {
            Body::Directory(Directory::Read { names, is_changed }) => {
                (names.values().copied().collect::<Vec<_>>(), *is_changed)
            }
            Body::Directory(Directory::Unread(tree)) => return *tree,
            _ => unreachable!("only directories are sealed as such"),
        };
        let mut handles = Vec::with_capacity(children.len());
        for child in children {
            let handle = match sealed.get(&child) {
                Some(handle) => *handle,
                None => self.seal_leaf(child, means),
            };
            is_changed |= self.node(child).given != Some(handle);
            handles.push(handle);
        }
        match self.node(id).given {
            Some(given) if !is_changed => given,
            _ => self.keep(id, &handles, means),
        }
    }

    /// A file, a link, or a directory that nobody looked into.
    fn seal_leaf(&mut self, id: NodeId, means: &mut Means<'_>) -> Handle {
        match &mut self.node_mut(id).body {
            Body::File(Stored::Given { blob, .. }) => *blob,
            Body::File(stored @ Stored::Written(_)) => {
                let Stored::Written(buffer) = stored else { unreachable!("the arm above") };
                let blob = means.store.keep_blob_vec(buffer.take(means));
                // By another name it may be met again.
                *stored = Stored::Given { blob, object: None };
                blob
            }
            Body::Link(Link::Given(blob)) => *blob,
            Body::Link(Link::Made(target)) => means.store.keep_blob(target),
            Body::Directory(Directory::Unread(tree)) => *tree,
            Body::Directory(Directory::Read { .. }) => unreachable!("it was sealed before"),
        }
    }

    fn keep(&self, id: NodeId, handles: &[Handle], means: &Means<'_>) -> Handle {
        let mut lines = Vec::new();
        for (name, child) in self.node(id).names().into_iter().flatten() {
            let child = self.node(*child);
            lines.push(match child.kind() {
                Kind::File if child.is_executable => b'x',
                Kind::File => b'f',
                Kind::Directory => b'd',
                Kind::Link => b'l',
            });
            lines.push(b' ');
            lines.extend_from_slice(name);
            lines.push(b'\n');
        }
        let mut tree = TreeBuilder::with_capacity(1 + handles.len());
        tree.push(means.store.keep_blob_vec(lines));
        for handle in handles {
            tree.push(*handle);
        }
        means.store.keep_tree(tree.view())
    }
}
