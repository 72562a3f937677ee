// SPDX-License-Identifier: Apache-2.0
//! `add(a, b)`: the sum of two 8-bit numbers, modulo 256, as one byte.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, codelet, number};

fn add(call: Call) -> Handle {
    let [a, b] = call.arguments();
    number(a.read_u64(0).wrapping_add(b.read_u64(0)) & 0xff, 1)
}

codelet!(add);
