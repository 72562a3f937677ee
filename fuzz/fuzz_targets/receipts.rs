// SPDX-License-Identifier: Apache-2.0
//! See `fuzz/src/receipts.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::receipts::run(bytes));
