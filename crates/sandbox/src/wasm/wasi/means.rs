// SPDX-License-Identifier: Apache-2.0
//! What operations on files draw on: the store's objects, and the memory that the
//! application may use.

use objects::{FailureCode, Handle};
use store::{Object, Store};

use super::errno::{Result, Stop};
use crate::Fault;
use crate::wasm::call::load;
use crate::wasm::table::Budget;

/// Of one call of a program.
pub(crate) struct Means<'a> {
    pub(crate) store: &'a Store,
    pub(crate) budget: &'a mut Budget,
    /// The time of day that changed files are marked with.
    pub(crate) now: u64,
}

impl Means<'_> {
    /// Spends memory; `what` needs it.
    pub(crate) fn charge(&mut self, what: &str, bytes: u64) -> Result<()> {
        if self.budget.charge(bytes) {
            return Ok(());
        }
        let limit = self.budget.limit();
        let why = format!("{what}: {bytes} more bytes exceed the limit of {limit}");
        Err(Stop::Ended(Fault::new(FailureCode::Memory, why)))
    }

    /// Gives memory back that was charged.
    pub(crate) fn refund(&mut self, bytes: u64) {
        self.budget.refund(bytes);
    }

    /// The data of a blob or tree, or of the one behind a ref.
    pub(crate) fn object(&self, handle: Handle) -> Result<Object> {
        load(self.store, handle).map_err(Stop::Ended)
    }
}

/// The failure of an application whose words, or directories, are not what they must be.
pub(crate) fn malformed(why: impl std::fmt::Display) -> Stop {
    Stop::Ended(Fault::new(FailureCode::BadThunk, format!("not an application of a program: {why}")))
}
