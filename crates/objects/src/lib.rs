// SPDX-License-Identifier: Apache-2.0
//! Computations and data as content-addressed handles.
//!
//! A [`Handle`] is 32 bytes and names one of four things: *data* that a
//! function may read (an object: blob or tree), data that it may only pass on
//! (a ref), a computation that nobody asked for yet (a thunk), or the request
//! to run one (an encode). The bytes of every kind are defined normatively in
//! `docs/spec/objects.md`; the vectors beside it are tests of this crate.
//!
//! Invariants: an object never changes under its handle; equal content has
//! one handle; no function here panics on bytes from outside. This crate has
//! no I/O, no clock, no async, no serde and no unsafe code.

mod application;
mod bundle;
mod failure;
mod handle;
mod limits;
mod named;
mod pairs;
mod receipt;
mod repository;
mod selection;
mod source;
mod suggest;
mod text;
mod tree;

pub use application::{ARGUMENTS_START, Application, LIMITS_INDEX, PROCEDURE_INDEX};
pub use bundle::{BUNDLE_MAGIC, BundleReader, BundleRecord, BundleWriter};
pub use failure::{Failure, FailureCode};
pub use handle::{BLOB_SIZE_MAX, HASH_LEN, Handle, Kind, LITERAL_LEN_MAX, TREE_ENTRIES_MAX};
pub use limits::{LIMITS_LEN, Limits, MEMORY_DEFAULT_BYTES};
pub use named::Named;
pub use pairs::{PAIR_NAME_MAX, PAIR_VALUE_MAX, PAIRS_MAX, Pairs};
pub use receipt::{
    Cost, Price, RECEIPT_MAGIC, RECEIPT_STEPS_MAX, Receipt, ReceiptStep, SIGNATURE_LEN, STATEMENT_LEN,
    STEP_LEN, Statement, Sums, steps_hash,
};
pub use repository::{inputs_bytes, repository_bytes};
pub use selection::{Part, Selection};
pub use source::{
    FETCH_PROCEDURE, SOURCE_ETAG_MAX, SOURCE_URL_MAX, SOURCE_URLS_MAX, Source, Validator, sha256,
};
pub use suggest::closest;
pub use tree::{TreeBuilder, TreeView, tree_key};

/// What is wrong with bytes or text that claim to be one of this crate's types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// 32 bytes that no rule of the specification produces.
    #[error("not a handle: {0}")]
    BadHandle(&'static str),
    /// Text that is not the text form of any handle.
    #[error("not the text form of a handle: {0}")]
    BadText(&'static str),
    /// A byte length that is no multiple of a handle, or too many entries.
    #[error("not a tree: {0}")]
    BadTree(&'static str),
    /// An application tree without limits or procedure, or with malformed limits.
    #[error("not an application: {0}")]
    BadApplication(&'static str),
    /// A selection tree of the wrong shape.
    #[error("not a selection: {0}")]
    BadSelection(&'static str),
    /// A failure tree of the wrong shape.
    #[error("not a failure: {0}")]
    BadFailure(&'static str),
    /// Arguments that say of no external data where it is.
    #[error("not a source: {0}")]
    BadSource(&'static str),
    /// A tree of names and values that breaks their rules.
    #[error("not pairs: {0}")]
    BadPairs(&'static str),
    /// A bundle that ends early, or is not one.
    #[error("not a bundle: {0}")]
    BadBundle(&'static str),
    /// Bytes that are no receipt, or one whose parts do not fit together.
    #[error("not a receipt: {0}")]
    BadReceipt(&'static str),
}

#[cfg(test)]
mod tests;
