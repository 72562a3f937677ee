// SPDX-License-Identifier: Apache-2.0
//! See `fuzz/src/evaluator_steps.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::evaluator_steps::run(bytes));
