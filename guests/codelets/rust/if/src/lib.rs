// SPDX-License-Identifier: Apache-2.0
//! `if(predicate, a, b)`: `a` if the predicate holds a number other than 0,
//! else `b`. Neither is looked at: given thunks, the one that is not taken is
//! never evaluated, and its data never fetched.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, codelet};

fn choose(call: Call) -> Handle {
    let [predicate, a, b] = call.arguments();
    if predicate.read_u64(0) != 0 { a } else { b }
}

codelet!(choose);
