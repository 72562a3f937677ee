// SPDX-License-Identifier: Apache-2.0
//! Why a computation has no result: a tree `[code, application, detail]`.
//!
//! A failure is a value: it is stored, named, and handed on. Its handle
//! carries a mark, so that nobody mistakes it for a result.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Handle, Kind, TreeBuilder, TreeView};

/// What went wrong, as a word that programs can match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureCode {
    /// The codelet executed a trapping instruction.
    Trap,
    /// The codelet used up the fuel that its limits grant.
    Fuel,
    /// The codelet needed more memory than its limits grant.
    Memory,
    /// The codelet's calls nested too deep.
    Stack,
    /// The codelet used a handle that it was not given, or in a way its kind forbids.
    BadHandle,
    /// The codelet returned something that is no handle.
    BadResult,
    /// The procedure is not a Wasm module with the right imports and exports.
    BadProcedure,
    /// The tree of an application or selection thunk has the wrong shape.
    BadThunk,
    /// A selection past the end of its target.
    OutOfRange,
    /// Data that an evaluation needs is nowhere to be found.
    MissingData,
    /// The request's deadline passed.
    Deadline,
    /// Whoever asked no longer wants the answer.
    Cancelled,
    /// The node cannot give what the limits ask for.
    Resources,
    /// The codelet itself said that it failed.
    Guest,
}

impl FailureCode {
    /// Every code, for documentation and tests.
    pub const ALL: [Self; 14] = [
        Self::Trap,
        Self::Fuel,
        Self::Memory,
        Self::Stack,
        Self::BadHandle,
        Self::BadResult,
        Self::BadProcedure,
        Self::BadThunk,
        Self::OutOfRange,
        Self::MissingData,
        Self::Deadline,
        Self::Cancelled,
        Self::Resources,
        Self::Guest,
    ];

    /// The word that stands in the failure's first entry.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::BadHandle => "bad-handle",
            Self::BadResult => "bad-result",
            Self::BadProcedure => "bad-procedure",
            Self::BadThunk => "bad-thunk",
            Self::OutOfRange => "out-of-range",
            Self::MissingData => "missing-data",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Resources => "resources",
            Self::Guest => "guest",
        }
    }

    /// Whether the same application must fail the same way on every node at
    /// every time. Only such failures are remembered.
    pub const fn is_deterministic(self) -> bool {
        match self {
            Self::Memory
            | Self::Stack
            | Self::MissingData
            | Self::Deadline
            | Self::Cancelled
            | Self::Resources => false,
            Self::Trap
            | Self::Fuel
            | Self::BadHandle
            | Self::BadResult
            | Self::BadProcedure
            | Self::BadThunk
            | Self::OutOfRange
            | Self::Guest => true,
        }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FailureCode {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|code| code.as_str() == word);
        known.ok_or(Error::BadFailure("the code is unknown"))
    }
}

/// A failure, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub code: FailureCode,
    /// The thunk that failed; its own arguments had succeeded.
    pub application: Handle,
    /// A blob of UTF-8 text for people.
    pub detail: Handle,
}

impl Failure {
    /// The failure's tree and its handle. The caller stores the tree, and the
    /// detail where it is no literal.
    pub fn to_tree(&self) -> (Handle, TreeBuilder) {
        let code = self.code.as_str().as_bytes();
        let tree: TreeBuilder = [Handle::blob(code), self.application, self.detail].into_iter().collect();
        let handle = tree.view().handle().failure();
        (handle.unwrap_or_else(|| unreachable!("the tree has three entries")), tree)
    }

    /// Reads a failure's tree.
    ///
    /// # Errors
    /// [`Error::BadFailure`] if it does not have three entries, the code is
    /// unknown, or the detail is not a blob.
    pub fn from_tree(tree: TreeView<'_>) -> Result<Self, Error> {
        let (Some(code), Some(application), Some(detail), 3) =
            (tree.get(0), tree.get(1), tree.get(2), tree.len())
        else {
            return Err(Error::BadFailure("it does not have three entries"));
        };
        if detail.kind() != Kind::Blob {
            return Err(Error::BadFailure("the detail is not a blob"));
        }
        // An identification holds its literal too, but is no blob.
        let word = Some(&code).filter(|code| code.is_object()).and_then(|code| code.literal_bytes());
        let code = word.and_then(|word| std::str::from_utf8(word).ok());
        let code = code.ok_or(Error::BadFailure("the code is no word"))?.parse()?;
        Ok(Self { code, application, detail })
    }
}

#[cfg(test)]
mod tests;
