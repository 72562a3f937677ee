// SPDX-License-Identifier: Apache-2.0
//! The vectorized sandbox: where procedures run.
//!
//! [`Sandbox`] is the one interface to every kind of sandbox; [`wasm`] is its
//! first implementation, in which a procedure is a WebAssembly module, a
//! *codelet*. What a codelet sees is stated normatively in `docs/spec/abi.md`.
//!
//! Invariants: a codelet reads nothing but what its application tree reaches;
//! no byte, global or table entry that one application wrote is seen by the
//! next; a guest that misbehaves yields a [`Fault`], never an [`Error`] or a
//! panic, and harms nobody; nothing of a fault's text differs between runs.

#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod fed;
mod followers;
pub mod keep_alive;
mod line;
mod nested;
mod printed;
pub mod process;
mod sandbox;
mod spent;
mod streamed;
pub mod wasm;
mod within;

pub use fed::{Feed, Intake};
pub use followers::{FOLLOWERS_MAX, Follower, Followers};
pub use line::{Line, LineAsk, LineEnd, LineOffer, LineRecords, LineReport, LineTerms, LineTold};
pub use nested::{Answered, Callees, NestedAnswer, NestedCall};
pub use printed::{Piece, Printed, Printing};
pub use sandbox::{
    Call, DETAIL_LEN_MAX, Error, Fault, Home, Invoked, Origin, Outcome, Phase, Sandbox, SandboxId, Spec,
    State, Then,
};
pub use spent::{Phases, Spent};
pub use streamed::{Audience, Listener, Source};
pub use within::{Changes, Since, Within};
