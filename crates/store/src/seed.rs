// SPDX-License-Identifier: Apache-2.0
//! Table hashes of handles, seeded per process.
//!
//! Handles of data begin with BLAKE3 output, so one multiplication spreads
//! them well enough. The seed keeps apart what an attacker ground to collide
//! in some other process. Handles that hold a literal begin with bytes of the
//! user's choice; tables that meet them use [`Seed::of_all`].

use std::hash::{BuildHasher, Hasher, RandomState};

use objects::Handle;

/// The fewest and the most shards of a table.
const SHARDS_MIN: usize = 8;
const SHARDS_MAX: usize = 256;
/// Shards for each processor: few enough that the ends of all shards, where
/// entries are added, stay in its caches (64 shards on 2 processors made a
/// cold invocation a twelfth slower), enough that two threads seldom meet.
const SHARDS_PER_CPU: usize = 4;
/// Where a hash's shard is read: above the bits that a table uses as its tag.
const SHARD_SHIFT: u32 = 48;

/// Secret numbers, drawn when a table is made.
pub(crate) struct Seed([u64; 4]);

impl Seed {
    pub(crate) fn new() -> Self {
        // `RandomState` is the standard library's only door to the kernel's
        // random numbers; two of its outputs under one state are independent.
        let state = RandomState::new();
        let word = |index: u64| {
            let mut hasher = state.build_hasher();
            hasher.write_u64(index);
            hasher.finish()
        };
        Self([word(0), word(1), word(2), word(3) | 1])
    }

    /// For handles that begin with a hash.
    #[inline]
    pub(crate) fn of_hashed(&self, handle: &Handle) -> u64 {
        fold(handle.words()[0] ^ self.0[0], self.0[3])
    }

    /// For every handle: all 32 bytes count.
    #[inline]
    pub(crate) fn of_all(&self, handle: &Handle) -> u64 {
        let words = handle.words();
        let low = fold(words[0] ^ self.0[0], words[1] ^ self.0[1]);
        let high = fold(words[2] ^ self.0[2], words[3] ^ self.0[3]);
        fold(low ^ self.0[3], high ^ self.0[0])
    }
}

/// Into how many shards a table is divided here. A power of two.
pub(crate) fn shard_count() -> usize {
    let cpus = linux::available_cpus().map_or(1, |cpus| cpus.len());
    (cpus * SHARDS_PER_CPU).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX)
}

/// The one of `shards`, a power of two, that a hash belongs to.
#[inline]
pub(crate) fn shard_of(hash: u64, shards: usize) -> usize {
    (hash >> SHARD_SHIFT) as usize & (shards - 1)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}
