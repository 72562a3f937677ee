// SPDX-License-Identifier: Apache-2.0
//! `inc(n)`: one more than a number of up to 64 bits, as eight bytes.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, codelet, number};

fn inc(call: Call) -> Handle {
    let [n] = call.arguments();
    number(n.read_u64(0).wrapping_add(1), 8)
}

codelet!(inc);
