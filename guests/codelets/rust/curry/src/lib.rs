// SPDX-License-Identifier: Apache-2.0
//! `curry(procedure, argument…)`: the procedure with its first arguments
//! bound: a tree `[procedure, argument…]`, which can stand wherever a
//! procedure can.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, codelet, fail, tree};

/// Bound arguments and the procedure, at most.
const ENTRIES_MAX: usize = 256;

fn curry(call: Call) -> Handle {
    let count = call.argument_count();
    if count == 0 {
        fail("there is no procedure");
    }
    let mut entries = [call.limits(); ENTRIES_MAX];
    let Some(entries) = entries.get_mut(..count) else { fail("more than 255 arguments") };
    for (index, entry) in entries.iter_mut().enumerate() {
        *entry = call.argument(index);
    }
    tree(entries)
}

codelet!(curry);
