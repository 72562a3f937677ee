// SPDX-License-Identifier: Apache-2.0
//! The application that is being evaluated: `[limits, procedure, argument…]`.
//!
//! The node lays the tree itself at index 0 of the call's table and its
//! entries right behind, so they are reached without asking for them.

use crate::handle::{Handle, fail, tree};

/// Index of entry 0.
const ENTRIES_START: i32 = 1;
/// Entries before the first argument.
const ARGUMENTS_START: i32 = 2;

/// The call that this instance was made for.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    application: Handle,
}

impl Call {
    /// For [`crate::codelet!`]: the call behind what `apply` was given.
    #[inline(always)]
    pub const fn from_index(application: i32) -> Self {
        Self { application: Handle::from_index(application) }
    }

    /// The application's tree.
    #[inline]
    pub fn application(self) -> Handle {
        self.application
    }

    /// The limits under which this call runs.
    #[inline]
    pub fn limits(self) -> Handle {
        Handle::from_index(ENTRIES_START)
    }

    /// The module that runs; to call itself, a codelet applies it again.
    #[inline]
    pub fn procedure(self) -> Handle {
        Handle::from_index(ENTRIES_START + 1)
    }

    /// How many arguments there are.
    #[inline]
    pub fn argument_count(self) -> usize {
        // An application has at least limits and procedure.
        self.application.size() as usize - ARGUMENTS_START as usize
    }

    /// Argument `index`, from 0; fails the call if there is none.
    #[inline]
    pub fn argument(self, index: usize) -> Handle {
        if index >= self.argument_count() {
            fail("an argument is missing");
        }
        Handle::from_index(ENTRIES_START + ARGUMENTS_START + index as i32)
    }

    /// All arguments; fails the call unless there are exactly `N`.
    #[inline]
    pub fn arguments<const N: usize>(self) -> [Handle; N] {
        if self.argument_count() != N {
            fail("wrong number of arguments");
        }
        core::array::from_fn(|index| Handle::from_index(ENTRIES_START + ARGUMENTS_START + index as i32))
    }

    /// The deferred call of `procedure` under this call's own limits.
    #[inline]
    pub fn apply<const N: usize>(self, procedure: Handle, arguments: [Handle; N]) -> Handle {
        // Two entries more than arguments; an array of N + 2 cannot be named yet.
        const ENTRIES_MAX: usize = 10;
        const { assert!(N + 2 <= ENTRIES_MAX, "at most eight arguments") };
        let mut entries = [self.limits(); ENTRIES_MAX];
        entries[1] = procedure;
        entries[2..N + 2].copy_from_slice(&arguments);
        tree(&entries[..N + 2]).application()
    }
}
