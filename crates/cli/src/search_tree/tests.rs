// SPDX-License-Identifier: Apache-2.0
//! Trees of every small shape, read back by hand.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use objects::TreeBuilder;

use super::*;

/// Nodes by their handles: level, keys, children.
type Forest = HashMap<Handle, (u32, Vec<Vec<u8>>, Vec<Handle>)>;

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Reads what the codelet reads, as its text says it.
fn parse(keys: &[u8]) -> (u32, Vec<Vec<u8>>) {
    let count = number(keys, 4);
    let bytes = &keys[8 + 4 * (count + 1)..];
    let ends: Vec<usize> = (0..=count).map(|index| number(keys, 8 + 4 * index)).collect();
    assert_eq!((ends[0], ends[count]), (0, bytes.len()));
    (number(keys, 0) as u32, ends.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).collect())
}

fn store(plant: &mut Plant, node: &Node, forest: &mut Forest) {
    let entries = [Handle::blob(&node.keys)].into_iter().chain(node.children.iter().copied());
    let handle = entries.collect::<TreeBuilder>().view().handle();
    let (level, keys) = parse(&node.keys);
    forest.insert(handle, (level, keys, node.children.clone()));
    plant.stored(node, handle);
}

fn grow(count: u64, arity: u32) -> (Forest, Option<Handle>) {
    let (mut plant, mut forest) = (Plant::new(arity), Forest::new());
    for index in 0..count {
        plant.push(format!("{index:04}").as_bytes(), Handle::u64(index)).unwrap();
        while let Some(node) = plant.full() {
            store(&mut plant, &node, &mut forest);
        }
    }
    while let Some(node) = plant.rest() {
        store(&mut plant, &node, &mut forest);
    }
    (forest, plant.root())
}

/// All below a node, in order, and that it keeps the rules.
fn walk(forest: &Forest, handle: Handle, arity: u32, found: &mut Vec<(Vec<u8>, Handle)>) -> u32 {
    let (level, keys, children) = &forest[&handle];
    assert_eq!(keys.len(), children.len());
    assert!((1..=arity as usize).contains(&keys.len()), "{} children", keys.len());
    for (key, &child) in keys.iter().zip(children) {
        if *level == 0 {
            found.push((key.clone(), child));
        } else {
            let before = found.len();
            assert_eq!(walk(forest, child, arity, found), level - 1);
            assert_eq!(found[before].0, *key, "a child's key is the least one below it");
        }
    }
    *level
}

#[test]
fn trees_of_every_small_shape_hold_all_keys_in_order() {
    for arity in [2, 3, 4, 7] {
        for count in 1..200 {
            let (forest, root) = grow(count, arity);
            let mut found = Vec::new();
            let level = walk(&forest, root.unwrap(), arity, &mut found);
            let expected: Vec<_> =
                (0..count).map(|index| (format!("{index:04}").into_bytes(), Handle::u64(index))).collect();
            assert_eq!(found, expected, "{count} keys, {arity} children");
            // As low as it can be, and not a node more than is needed.
            let height = (1..).find(|height| u64::from(arity).pow(*height) >= count).unwrap();
            assert_eq!(level + 1, height, "{count} keys, {arity} children");
            let mut nodes = 0;
            let mut width = count;
            for _ in 0..height {
                width = width.div_ceil(u64::from(arity));
                nodes += width;
            }
            assert_eq!(forest.len() as u64, nodes, "{count} keys, {arity} children");
        }
    }
    assert_eq!(grow(0, 4).1, None);
}

#[test]
fn keys_out_of_order_are_refused_and_nothing_is_added() {
    let mut plant = Plant::new(4);
    let value = Handle::u64(1);
    plant.push(b"", value).unwrap();
    plant.push(b"b", value).unwrap();
    assert_eq!(plant.push(b"b", value), Err(Wrong::Repeated));
    assert_eq!(plant.push(b"a", value), Err(Wrong::Unsorted));
    assert_eq!(plant.push(&[b'c'; KEY_LEN_MAX + 1], value), Err(Wrong::TooLong));
    plant.push(&[b'c'; KEY_LEN_MAX], value).unwrap();
    assert_eq!(parse(&plant.rest().unwrap().keys).1.len(), 3);
}
