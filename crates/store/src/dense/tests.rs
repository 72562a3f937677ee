// SPDX-License-Identifier: Apache-2.0
//! The table against a map, under hashes that collide.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use objects::Handle;
use proptest::prelude::*;

use super::{DenseTable, Keyed};

struct Entry(Handle, u32);

impl Keyed for Entry {
    fn key(&self) -> &Handle {
        &self.0
    }
}

fn number(key: &Handle) -> u64 {
    u64::from_le_bytes(key.literal_bytes().unwrap().try_into().unwrap())
}

/// Few different hashes, so that entries collide in bucket and tag.
fn colliding(key: &Handle) -> u64 {
    (number(key) % 5).wrapping_mul(0x0101_0101_0101_0101)
}

fn spread(key: &Handle) -> u64 {
    number(key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn run(steps: &[(u8, u64)], hasher: fn(&Handle) -> u64) {
    let mut table = DenseTable::with_capacity(3);
    let mut model = BTreeMap::new();
    for (step, (action, number)) in steps.iter().enumerate() {
        let key = Handle::u64(*number);
        let hash = hasher(&key);
        match action % 3 {
            0 | 1 => {
                let (entry, is_new) = table.find_or_insert_with(hash, &key, || Entry(key, step as u32));
                assert_eq!(is_new, !model.contains_key(&key));
                assert_eq!(entry.1, *model.entry(key).or_insert(step as u32));
            }
            _ => {
                let removed = table.position(hash, &key).map(|at| table.remove_at(at, hasher).1);
                assert_eq!(removed, model.remove(&key));
            }
        }
        assert_eq!(table.len(), model.len());
    }
    for (key, value) in &model {
        assert_eq!(table.find(hasher(key), key).unwrap().1, *value);
        table.find_mut(hasher(key), key).unwrap().1 += 1;
    }
    let mut found: Vec<_> = table.iter().map(|entry| (entry.0, entry.1 - 1)).collect();
    found.sort();
    assert_eq!(found, model.into_iter().collect::<Vec<_>>());
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_map(steps in prop::collection::vec((any::<u8>(), 0u64..60), 0..400)) {
        run(&steps, spread);
        run(&steps, colliding);
    }
}

#[test]
fn churn_at_a_constant_size_takes_no_more_memory() {
    let mut table = DenseTable::default();
    let insert = |table: &mut DenseTable<Entry>, number| {
        let key = Handle::u64(number);
        table.find_or_insert_with(spread(&key), &key, || Entry(key, 0));
    };
    (0..1000).for_each(|number| insert(&mut table, number));
    for number in 1000..200_000u64 {
        table.remove_at((number * 7919 % 1000) as usize, spread);
        insert(&mut table, number);
    }
    let per_entry = (size_of::<Entry>() * 1024) as u64 + 1000 * super::INDEX_COST_BYTES;
    assert!(table.allocated_bytes() as u64 <= per_entry, "{}", table.allocated_bytes());
}
