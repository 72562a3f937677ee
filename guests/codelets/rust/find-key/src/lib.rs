// SPDX-License-Identifier: Apache-2.0
//! `find-key(key, keys, node)`: the value of a key in a search tree (a B+-tree),
//! found node by node; nothing beside the path is fetched.
//!
//! A node is a tree `[keys, child…]`, and `sinew put --keys` makes such trees. Its keys
//! are a blob, all numbers of which are little-endian and have 4 bytes: the level, which
//! is 0 where the children are values; how many children there are; where the first key
//! begins and where each key ends, counted from the first; then the keys themselves,
//! sorted by their bytes. The key of a child that is a node is the least one below it.
//! The arguments are the key, the root's keys, and the root itself, best as a ref:
//! only the keys are read, and of them those that the search compares.
#![cfg_attr(target_arch = "wasm32", no_std)]

use core::cmp::Ordering;

use sinew_guest::{Call, Handle, blob, codelet, fail};

mod search;

/// The longest key in bytes. `sinew put --keys` has the same.
const KEY_LEN_MAX: usize = 1024;
/// Level and number of children.
const HEAD_LEN: u64 = 8;
const NUMBER_LEN: u64 = 4;

fn find_key(call: Call) -> Handle {
    let [key, keys, node] = call.arguments();
    if key.size() > KEY_LEN_MAX as u64 {
        fail("a key of over 1024 bytes");
    }
    let mut buffer = [0; KEY_LEN_MAX];
    let len = key.read(0, &mut buffer);
    let wanted = buffer.get(..len).unwrap_or_default();
    let keys = Keys::of(keys);
    if node.size() != u64::from(keys.count) + 1 {
        fail("the keys are another node's");
    }
    let Some(place) = search::last_up_to(keys.count, |index| keys.compare(index, wanted)) else {
        fail("no such key");
    };
    let child = node.selection(1 + u64::from(place.index));
    if keys.level > 0 {
        return call.apply(call.procedure(), [blob(wanted), child.selection(0).strict(), child.shallow()]);
    }
    if !place.is_equal {
        fail("no such key");
    }
    child
}

/// The keys of one node.
struct Keys {
    blob: Handle,
    level: u32,
    count: u32,
}

impl Keys {
    fn of(blob: Handle) -> Self {
        let head = blob.read_u64(0);
        let keys = Self { blob, level: head as u32, count: (head >> 32) as u32 };
        if blob.size() < keys.bytes_start() {
            fail("the keys are cut off");
        }
        keys
    }

    /// Where the bytes of the first key are.
    fn bytes_start(&self) -> u64 {
        HEAD_LEN + NUMBER_LEN * (u64::from(self.count) + 1)
    }

    /// How key `index`, which there is, compares with the one that is wanted.
    fn compare(&self, index: u32, wanted: &[u8]) -> Ordering {
        // A key ends where the next one begins: two numbers, one read.
        let ends = self.blob.read_u64(HEAD_LEN + NUMBER_LEN * u64::from(index));
        let (begin, end) = (ends & u64::from(u32::MAX), ends >> 32);
        // One byte more than any key has, so that a longer one is seen to be longer.
        let mut buffer = [0; KEY_LEN_MAX + 1];
        let len = end.saturating_sub(begin).min(buffer.len() as u64) as usize;
        let Some(target) = buffer.get_mut(..len) else { fail("the keys are cut off") };
        if self.blob.read(self.bytes_start() + begin, target) != len {
            fail("the keys are cut off");
        }
        (*target).cmp(wanted)
    }
}

codelet!(find_key);
