// SPDX-License-Identifier: Apache-2.0
//! Bytes together with their name.

use crate::{BundleRecord, Handle, TreeView};

/// A blob or a tree in its canonical form, with the handle that it has by its content.
///
/// To find that is most of what it takes to keep a small object. Whoever has made a name, and needs it
/// for an entry of a tree, hands the object on with it, and nobody computes it a second time.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    handle: Handle,
    bytes: &'a [u8],
}

impl<'a> Named<'a> {
    /// A blob.
    pub fn blob(bytes: &'a [u8]) -> Self {
        Self { handle: Handle::blob(bytes), bytes }
    }

    /// A tree.
    pub fn tree(tree: TreeView<'a>) -> Self {
        Self { handle: tree.handle(), bytes: tree.as_bytes() }
    }

    /// Its name.
    #[inline]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// What it consists of.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// As a bundle has it.
    pub fn record(&self) -> BundleRecord<'a> {
        match self.handle.names_tree() {
            true => BundleRecord::Tree(TreeView::from_checked(self.bytes)),
            false => BundleRecord::Blob(self.bytes),
        }
    }
}
