// SPDX-License-Identifier: Apache-2.0
//! The rules of evaluation and the scheduler: events in, effects out.
//!
//! One [`Evaluator`] per worker thread walks *goals* (encodes) depth first on
//! a stack of its own in the heap, over relations and objects that all
//! workers share behind a [`Host`]. What one walk would do later is offered
//! to idle workers as *sparks*; the relations make sure that each application
//! runs once. Nothing here does I/O, reads a clock or starts a thread, so a
//! fake host drives every rule in tests.
//!
//! The rules are normative in `docs/spec/evaluation.md`; `rules.rs`,
//! `steps.rs` and `application.rs` follow its order.

mod admission;
mod again;
mod ahead;
mod application;
mod evaluator;
mod host;
mod inputs;
mod job;
mod request;
mod rules;
mod scheduler;
mod steps;
mod walk;

pub use admission::{Admission, AdmissionOptions};
pub use evaluator::{Evaluator, Progress};
pub use host::{Applied, Charge, Claim, Cost, Fetch, Host, Outcome, Rule};
pub use job::{FRAMES_MAX, Job, JobId};
pub use request::{Context, Priority, Request, Stop, Tally, Terms};
pub use scheduler::{Event, Scheduler, SchedulerOptions};

#[cfg(test)]
mod tests;
