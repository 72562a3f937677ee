// SPDX-License-Identifier: Apache-2.0
//! Arbitrary bytes as a small graph of objects and a goal: the evaluator over
//! a fake world, with objects near, far and nowhere and applications that end
//! at once or later, must give what the naive evaluator gives, run exactly the
//! same applications, and leave no claim, job or reservation behind.
//!
//! World, procedures, graphs, naive evaluator and oracle are the unit tests'
//! own. One worker only: a fuzzer wants the same input to do the same.

#![allow(dead_code)]

// The name under which the shared files know what they test.
use evaluator as api;

#[path = "../../crates/evaluator/src/tests/graph.rs"]
mod graph;
#[path = "../../crates/evaluator/src/tests/host.rs"]
mod host;
#[path = "../../crates/evaluator/src/tests/machine.rs"]
mod machine;
#[path = "../../crates/evaluator/src/tests/oracle.rs"]
mod oracle;
#[path = "../../crates/evaluator/src/tests/procedures.rs"]
mod procedures;
#[path = "../../crates/evaluator/src/tests/reference.rs"]
mod reference;

/// One input.
pub fn run(bytes: &[u8]) {
    oracle::check_alone(bytes);
}
