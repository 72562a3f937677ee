// SPDX-License-Identifier: Apache-2.0
//! `merge-counts(a, b, …)`: blobs of little-endian 64-bit numbers, added
//! number by number. All must have the same length.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, blob, codelet, fail};

/// Bytes of one blob, at most.
const LEN_MAX: u64 = 1024;

fn merge_counts(call: Call) -> Handle {
    let first = call.argument(0);
    let len = first.size();
    if len > LEN_MAX || !len.is_multiple_of(8) {
        fail("the counts are not up to 128 numbers of eight bytes");
    }
    let mut sums = [[0; 8]; LEN_MAX as usize / 8];
    for index in 0..call.argument_count() {
        let counts = call.argument(index);
        if counts.size() != len {
            fail("the counts differ in length");
        }
        for (sum, offset) in sums.iter_mut().zip((0..len).step_by(8)) {
            *sum = u64::from_le_bytes(*sum).wrapping_add(counts.read_u64(offset)).to_le_bytes();
        }
    }
    blob(sums.as_flattened().get(..len as usize).unwrap_or_default())
}

codelet!(merge_counts);
