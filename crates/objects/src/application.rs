// SPDX-License-Identifier: Apache-2.0
//! The layout of an application tree: `[limits, procedure, argument…]`.
//!
//! A procedure is a blob (a Wasm module) or a *curried* one: a tree
//! `[procedure, argument…]` whose arguments come before the application's own.

use crate::{Error, Handle, Kind, Limits, TREE_ENTRIES_MAX, TreeBuilder, TreeView};

/// Where the limits stand.
pub const LIMITS_INDEX: usize = 0;
/// Where the procedure stands.
pub const PROCEDURE_INDEX: usize = 1;
/// Where the arguments begin.
pub const ARGUMENTS_START: usize = 2;

/// An application whose encodes have been replaced, ready to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Application<'a> {
    /// All entries, limits and procedure included: what the codelet sees.
    pub tree: TreeView<'a>,
    /// Entry 0, decoded.
    pub limits: Limits,
    /// Entry 1: a blob object, or the tree of a curried procedure.
    pub procedure: Handle,
}

impl<'a> Application<'a> {
    /// Reads the limits and the procedure.
    ///
    /// # Errors
    /// [`Error::BadApplication`] if either is missing or of the wrong kind.
    #[inline]
    pub fn from_tree(tree: TreeView<'a>) -> Result<Self, Error> {
        let limits = tree.get(LIMITS_INDEX).ok_or(Error::BadApplication("it has no limits"))?;
        let procedure = tree.get(PROCEDURE_INDEX).ok_or(Error::BadApplication("it has no procedure"))?;
        match procedure.kind() {
            Kind::Blob | Kind::Tree => {}
            _ => return Err(Error::BadApplication("the procedure is neither a blob nor a curried tree")),
        }
        Ok(Self { tree, limits: Limits::from_handle(limits)?, procedure })
    }

    /// The arguments, in order.
    pub fn arguments(&self) -> impl ExactSizeIterator<Item = Handle> + use<'a> {
        self.tree.iter().skip(ARGUMENTS_START)
    }

    /// The application that a curried one stands for: the arguments bound in
    /// `procedure` (the tree of entry 1) come before this application's.
    ///
    /// # Errors
    /// [`Error::BadApplication`] if the curried procedure is empty, or the
    /// result would be longer than a tree can be.
    pub fn uncurried(&self, procedure: TreeView<'_>) -> Result<TreeBuilder, Error> {
        if procedure.is_empty() {
            return Err(Error::BadApplication("the curried procedure is an empty tree"));
        }
        // Of the two procedures one remains, so one entry fewer than both trees have.
        if procedure.len() + self.tree.len() > TREE_ENTRIES_MAX as usize + 1 {
            return Err(Error::BadApplication("with the bound arguments it has more than 2^26 entries"));
        }
        let limits = self.tree.iter().take(PROCEDURE_INDEX);
        Ok(limits.chain(procedure.iter()).chain(self.arguments()).collect())
    }
}

#[cfg(test)]
mod tests;
