// SPDX-License-Identifier: Apache-2.0
//! See `fuzz/src/program_words.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::program_words::run(bytes));
