// SPDX-License-Identifier: Apache-2.0
//! See `fuzz/src/object_decode.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::object_decode::run(bytes));
