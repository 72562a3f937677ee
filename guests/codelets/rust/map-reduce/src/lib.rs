// SPDX-License-Identifier: Apache-2.0
//! `map-reduce(map, reduce, items)`: `reduce` over `map(item)` of all items,
//! pair by pair: `reduce(reduce(m0, m1), reduce(m2, m3))`, a leftover joining
//! unchanged on the next level. So `reduce` must be associative, but need not
//! be commutative.
//!
//! The list is split into up to 16 parts of 16^k items, each the work of
//! another call of this procedure that names its part by a selection: no call
//! holds more than 16 items, depth grows with the logarithm, and after items
//! were appended most calls are remembered. Items are fetched only where
//! `map` gets them, complete: refs as data, thunks as results. Give the list
//! as a ref (a shallow encode) to keep it out of what this procedure needs.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, Kind, codelet, fail};

/// Parts of one call.
const PARTS_MAX: usize = 16;

fn map_reduce(call: Call) -> Handle {
    let [map, reduce, items] = call.arguments();
    if !matches!(items.kind(), Kind::Tree | Kind::TreeRef) {
        fail("the items are not a tree");
    }
    let size = items.size();
    if size == 0 {
        fail("there are no items, and no result without one");
    }
    let part_size = part_size(size);
    let part = |begin: u64| {
        if part_size == 1 {
            return call.apply(map, [items.selection(begin).strict()]);
        }
        let part = items.selection_range(begin, size.min(begin + part_size)).shallow();
        call.apply(call.procedure(), [map, reduce, part])
    };
    let mut thunks = [call.limits(); PARTS_MAX];
    let mut count = 0;
    for (thunk, begin) in thunks.iter_mut().zip((0..size).step_by(part_size as usize)) {
        *thunk = part(begin);
        count += 1;
    }
    while count > 1 {
        for pair in 0..count / 2 {
            // The remainders change no index; they spare the module the code of a panic.
            let [a, b] = [2 * pair, 2 * pair + 1].map(|index| thunks[index % PARTS_MAX].strict());
            thunks[pair % PARTS_MAX] = call.apply(reduce, [a, b]);
        }
        if count % 2 == 1 {
            thunks[count / 2 % PARTS_MAX] = thunks[(count - 1) % PARTS_MAX];
        }
        count = count.div_ceil(2);
    }
    thunks[0]
}

/// The smallest power of 16 of which at most 16 cover the list.
fn part_size(size: u64) -> u64 {
    let mut part = 1;
    while part * (PARTS_MAX as u64) < size {
        part *= PARTS_MAX as u64;
    }
    part
}

codelet!(map_reduce);

#[cfg(test)]
mod tests;
