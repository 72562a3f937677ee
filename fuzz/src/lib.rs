// SPDX-License-Identifier: Apache-2.0
//! What the fuzz targets do with an input, one module each. A test of the
//! workspace (`xtask/tests/seeds.rs`) takes in these files too, and replays
//! the seeds with the stable compiler.

pub mod evaluator_steps;
pub mod line_reports;
pub mod object_decode;
pub mod program_words;
pub mod receipts;
