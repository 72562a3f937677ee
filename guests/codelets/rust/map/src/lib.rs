// SPDX-License-Identifier: Apache-2.0
//! `map(procedure, items)`: the tree of the deferred calls `procedure(item)`,
//! in the items' order. Asked for strictly, all of them run, side by side.
//!
//! Every item reaches the procedure complete: a ref is replaced by its data,
//! a thunk by its result, just before that one call. The items may be a ref
//! to a tree; then none of them is fetched by `map` itself.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, Kind, codelet, fail, tree};

fn map(call: Call) -> Handle {
    let [procedure, items] = call.arguments();
    let item: fn(Handle, u64) -> Handle = match items.kind() {
        Kind::Tree => |items, index| items.entry(index).complete(),
        Kind::TreeRef => |items, index| items.selection(index).strict(),
        _ => fail("the items are not a tree"),
    };
    let calls = memory::handles(items.size());
    for (index, slot) in calls.iter_mut().enumerate() {
        *slot = call.apply(procedure, [item(items, index as u64)]);
    }
    tree(calls)
}

codelet!(map);

#[cfg(target_arch = "wasm32")]
mod memory {
    //! Room for as many handles as there are items, from fresh pages: the
    //! only codelet here that grows its memory.

    use core::arch::wasm32::memory_grow;

    use sinew_guest::{Handle, fail};

    const PAGE_LEN: u64 = 1 << 16;

    pub(crate) fn handles(count: u64) -> &'static mut [Handle] {
        // Trees have at most 2^26 entries: the product does not overflow.
        let pages = (count * size_of::<Handle>() as u64).div_ceil(PAGE_LEN);
        let start = memory_grow::<0>(pages as usize);
        if start == usize::MAX {
            fail("too many items for the memory limit");
        }
        let first = (start * PAGE_LEN as usize) as *mut Handle;
        // SAFETY: the pages are new, so nothing else refers to them; they are
        // aligned and zeroed, and zero is a handle's index.
        unsafe { core::slice::from_raw_parts_mut(first, count as usize) }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod memory {
    pub(crate) fn handles(_count: u64) -> &'static mut [sinew_guest::Handle] {
        &mut []
    }
}
