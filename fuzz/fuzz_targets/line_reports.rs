// SPDX-License-Identifier: Apache-2.0
//! See `fuzz/src/line_reports.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::line_reports::run(bytes));
