// SPDX-License-Identifier: Apache-2.0
//! The rules and the scheduler under a fake host.
// Threads: these tests are about workers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod again;
mod batching;
mod corners;
mod depth;
mod graph;
mod holding;
mod host;
mod inputs;
mod machine;
mod oracle;
mod paper;
mod procedures;
mod random;
mod reference;
mod requests;
mod vectors;

// What `host.rs` and its companions test; the fuzzer gives them the same name.
use crate as api;
