// SPDX-License-Identifier: Apache-2.0
//! The rules and the scheduler under a fake host.
#![allow(clippy::unwrap_used)]

mod depth;
mod graph;
mod host;
mod machine;
mod paper;
mod procedures;
mod random;
mod reference;

// What `host.rs` and its companions test; the fuzzer gives them the same name.
use crate as api;
