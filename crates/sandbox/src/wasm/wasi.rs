// SPDX-License-Identifier: Apache-2.0
//! Whole programs: WASI preview 1 over directory trees (`docs/spec/programs.md`).
//!
//! ```text
//!  application ── options ──▶ Process ─┬─ Files        directories, read when they are looked into
//!                                      ├─ Descriptors  what is open
//!                                      ├─ Clock, Random: from the options, nothing of the machine's
//!                                      └─ stdout, stderr
//!  module ── calls ──▶ reads and changes those; when it ends, files become trees again
//! ```
//!
//! Invariants: a program sees nothing but its application; whatever it does is the
//! same on every run; data of a file is looked at when the program reads it, and a
//! file that was not written keeps its handle; what a program makes the platform
//! keep is paid for out of its memory limit before it is kept.

pub(crate) mod calls;
mod clock;
mod contents;
mod descriptors;
mod errno;
mod files;
mod guest;
mod images;
mod means;
mod options;
mod process;
mod random;
#[cfg(any(test, feature = "contract"))]
mod rehearsal;
mod rights;
mod run;
mod snapshot;

pub(crate) use images::Images;
pub use options::check_words;
pub(crate) use process::Process;
#[cfg(any(test, feature = "contract"))]
pub use rehearsal::{Rehearsal, rehearse};
pub(crate) use run::run;

/// The only module of which a program's imports mean something.
pub(crate) const MODULE: &str = "wasi_snapshot_preview1";
/// The function that a program exports, and a codelet does not.
pub(crate) const ENTRY: &str = "_start";

#[cfg(test)]
mod tests;
