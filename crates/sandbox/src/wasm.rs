// SPDX-License-Identifier: Apache-2.0
//! Codelets: procedures that are WebAssembly modules, run by wasmtime.
//!
//! ```text
//!  Codelets ── Library ─┬─ Runtime ×2   engine and host functions, with and without fuel
//!  (all threads)        ├─ Compiler     the threads that compile, in two lanes
//!                       ├─ Artefacts    compiled code on disk
//!                       └─ Loaded…      compiled modules, with their class
//!  Invoker ── Live…     (one per worker thread) instances, reset after each call
//! ```
//!
//! A module is validated and classified once (`module`), compiled once per
//! content and variant (`library`), and then each invocation costs a reset of
//! what it may have changed (`image`) or, where that cannot be known cheaply,
//! a fresh instance.

mod artefact;
mod call;
mod codelets;
mod compiler;
mod engine;
mod host;
mod image;
mod interrupt;
mod invoker;
mod library;
mod live;
mod module;
mod rewrite;
mod table;
mod wasi;

pub use codelets::Codelets;
pub use engine::{MEMORY_BYTES_MAX, MODULE_BYTES_MAX, Options, TABLE_ELEMENTS_MAX, TABLES_MAX};
pub use interrupt::{Interrupt, Ticket};
pub use invoker::Invoker;
pub use library::{Awaiting, Compilation, Origin};
pub use module::{Class, is_program};
pub use wasi::check_words;
#[cfg(any(test, feature = "contract"))]
pub use wasi::{Rehearsal, rehearse};

#[cfg(test)]
mod tests;
