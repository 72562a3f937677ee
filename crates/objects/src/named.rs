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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TreeBuilder;

    #[test]
    fn a_name_is_that_of_the_bytes_and_they_are_what_it_says() {
        for bytes in [&b""[..], b"a literal", &[7; 100]] {
            let named = Named::blob(bytes);
            assert_eq!((named.handle(), named.bytes()), (Handle::blob(bytes), bytes));
            assert!(matches!(named.record(), BundleRecord::Blob(kept) if kept == bytes));
        }
        for entries in [0, 1, 5] {
            let tree: TreeBuilder = (0..entries).map(Handle::u64).collect();
            let named = Named::tree(tree.view());
            assert_eq!(named.handle(), tree.view().handle());
            assert!(matches!(named.record(), BundleRecord::Tree(kept) if kept.as_bytes() == named.bytes()));
        }
    }
}
