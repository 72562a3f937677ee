// SPDX-License-Identifier: Apache-2.0
//! Eviction and the writing of relations, through a store.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::memory::ENTRY_COST_BYTES;
use crate::relations::PERSIST_NANOS_MIN;
use crate::{Options, Record, Rule, Store};

fn open(home: &Path, memory_bytes: u64) -> Store {
    Store::open(Options { home: Some(home.to_owned()), memory_bytes, relations_bytes: 1 << 20 }).unwrap()
}

fn bytes(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn costly(result: Handle) -> Record {
    Record { result, rule: Rule::Apply, nanos: PERSIST_NANOS_MIN, fuel: 3 }
}

fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn derived_objects_over_the_budget_are_spilled_and_none_is_lost() {
    const BUDGET: u64 = 4 << 20;
    let folder = tempdir().unwrap();
    let store = open(folder.path(), BUDGET);
    let lens = [40, 700, 5_000, 70_000];
    let mut peak = 0;
    let handles: Vec<_> = (0..4_000u32)
        .map(|number| {
            let handle = store.keep_blob_vec(bytes(number, lens[number as usize % 4]));
            peak = peak.max(store.stats().memory_bytes);
            handle
        })
        .collect();
    // 76 MB went through 4 MB; inserting was held back at five quarters.
    assert!(peak < 2 * BUDGET, "{peak}");
    assert!(wait_until(|| store.stats().memory_bytes <= BUDGET), "{:?}", store.stats());
    let stats = store.stats();
    assert!(stats.spilled > 3_000 && stats.evictions > 3_000, "{stats:?}");
    assert_eq!(stats.background_failures, 0);
    for (number, handle) in handles.iter().enumerate() {
        let object = store.get(*handle).unwrap().unwrap();
        assert_eq!(object.bytes(), bytes(number as u32, lens[number % 4]), "{number}");
    }
    let stats = store.stats();
    assert_eq!((stats.disk_objects >= stats.spilled, stats.corrupt), (true, 0));
}

#[test]
fn objects_in_use_stay_in_memory() {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 2 << 20);
    let favourite = store.keep_blob(&bytes(0, 100));
    for number in 1..60_000 {
        store.keep_blob(&bytes(number, 100));
        if number % 50 == 0 {
            assert!(store.local(favourite).is_some() || store.stats().evictions > 0);
            store.get(favourite).unwrap().unwrap();
        }
    }
    assert!(wait_until(|| store.stats().memory_bytes <= 2 << 20));
    assert!(store.stats().evictions > 20_000, "{:?}", store.stats());
    assert!(store.stats().disk_reads < 30, "the one in use was dropped {} times", store.stats().disk_reads);
}

#[test]
fn mapped_objects_cost_little_of_the_budget() {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 1 << 20);
    let large: Vec<_> = (0..20).map(|n| store.put_blob(&bytes(n, 1 << 20)).unwrap()).collect();
    assert!(large.iter().all(|handle| store.local(*handle).is_some()));
    assert!(store.stats().memory_bytes <= 20 * (4096 + ENTRY_COST_BYTES));
    let reopened = || open(folder.path(), 1 << 20);
    drop(store);
    let store = reopened();
    assert_eq!(store.get(large[3]).unwrap().unwrap().bytes(), bytes(3, 1 << 20));
}

#[test]
fn a_costly_relation_survives_with_its_result_and_recipe() {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 64 << 20);
    let leaf = store.keep_blob(&bytes(1, 50));
    let result = store.keep_tree([leaf].into_iter().collect::<TreeBuilder>().view());
    let argument = store.keep_blob(&bytes(2, 50));
    let recipe = store.keep_tree([argument, leaf].into_iter().collect::<TreeBuilder>().view());
    let key = recipe.application().unwrap();
    let encode = key.strict().unwrap();
    store.relations().insert(key, costly(result));
    store.relations().claim(encode);
    store.relations().fulfil(encode, Record { rule: Rule::Strict, ..costly(result) });
    let cheap = argument.identification().unwrap();
    store.relations().insert(cheap, Record { nanos: PERSIST_NANOS_MIN - 1, ..costly(result) });
    store.flush_relations().unwrap();
    drop(store);
    let store = open(folder.path(), 64 << 20);
    assert_eq!(store.relations().get(key), Some(costly(result)));
    assert_eq!(store.relations().get(encode), Some(Record { rule: Rule::Strict, ..costly(result) }));
    assert_eq!((store.relations().get(cheap), store.relations().len()), (None, 2));
    assert_eq!(store.relations().made_by(result, 9).len(), 2);
    for (handle, expected) in [(leaf, bytes(1, 50)), (argument, bytes(2, 50))] {
        assert_eq!(store.get(handle).unwrap().unwrap().bytes(), expected);
    }
    assert_eq!(store.get(result).unwrap().unwrap().as_tree().get(0), Some(leaf));
    assert_eq!(store.get(key).unwrap().unwrap().as_tree().get(1), Some(leaf));
}

#[test]
fn a_relation_whose_result_is_not_whole_is_not_written() {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 64 << 20);
    let nowhere = Handle::blob(&bytes(1, 50));
    let torn = store.keep_tree([nowhere].into_iter().collect::<TreeBuilder>().view());
    let recipe = store.keep_blob(&bytes(2, 50)).identification().unwrap();
    store.relations().insert(recipe, costly(torn));
    store.relations().insert(recipe.strict().unwrap(), costly(Handle::u64(5)));
    store.flush_relations().unwrap();
    drop(store);
    let store = open(folder.path(), 64 << 20);
    assert_eq!(store.relations().get(recipe), None);
    assert_eq!(store.relations().get(recipe.strict().unwrap()), Some(costly(Handle::u64(5))));
}

#[test]
fn relations_are_written_without_being_asked() {
    let folder = tempdir().unwrap();
    let store = Arc::new(open(folder.path(), 64 << 20));
    for number in 0..100 {
        let key = store.keep_blob(&bytes(number, 50)).identification().unwrap();
        store.relations().insert(key, costly(Handle::u64(1)));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(wait_until(|| store.stats().disk_relations == 100), "{:?}", store.stats());
}

#[test]
fn a_store_that_cannot_spill_keeps_the_objects_and_goes_on() {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 1 << 20);
    // Large objects cannot be written while their folder is a file.
    let temp = folder.path().join("tmp");
    std::fs::remove_dir(&temp).unwrap();
    std::fs::write(&temp, "in the way").unwrap();
    let start = Instant::now();
    let handles: Vec<_> = (0..60).map(|n| store.keep_blob_vec(bytes(n, 100_000))).collect();
    assert!(start.elapsed() < Duration::from_secs(20), "keeping waited for what cannot happen");
    assert!(wait_until(|| store.stats().background_failures > 0));
    assert!(handles.iter().all(|handle| store.local(*handle).is_some()), "nothing unwritten is dropped");
    std::fs::remove_file(&temp).unwrap();
    std::fs::create_dir(&temp).unwrap();
    let mut number = 1000;
    let relieved = wait_until(|| {
        number += 1;
        store.keep_blob_vec(bytes(number, 40_000));
        store.stats().memory_bytes < 2 << 20
    });
    assert!(relieved, "{:?}", store.stats());
    for (number, handle) in handles.iter().enumerate() {
        assert_eq!(store.get(*handle).unwrap().unwrap().bytes(), bytes(number as u32, 100_000));
    }
}

#[test]
fn what_needs_no_write_leaves_memory_also_while_nothing_can_be_written() {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 1 << 20);
    let large = store.keep_blob_vec(bytes(0, 100_000));
    let tree = |number: u64, named: Handle| {
        let fill = (0..20).map(|entry| Handle::u64(number * 100 + entry));
        store.put_tree(fill.chain([named]).collect::<TreeBuilder>().view()).unwrap()
    };
    let inner: Vec<Handle> = (0..200).map(|number| tree(number, Handle::u64(1))).collect();
    let clean: Vec<Handle> = (0..200).map(|number| tree(1000 + number, inner[number as usize])).collect();
    let unclean: Vec<Handle> = (0..20).map(|number| tree(2000 + number, large)).collect();
    let temp = folder.path().join("tmp");
    std::fs::remove_dir(&temp).unwrap();
    std::fs::write(&temp, "in the way").unwrap();
    let mut number = 0;
    let left = wait_until(|| {
        number += 1;
        store.keep_blob_vec(bytes(number, 100_000));
        inner.iter().chain(&clean).all(|tree| store.memory.state(*tree).is_none())
    });
    let stays = inner.iter().chain(&clean).filter(|tree| store.memory.state(**tree).is_some()).count();
    assert!(left, "{stays} stay, {:?}", store.stats());
    assert!(store.stats().background_failures > 0);
    assert!(unclean.iter().all(|tree| store.memory.state(*tree).is_some()), "they name what is nowhere else");
}

/// A result that names, behind a ref, a tree which memory had no room for while it had
/// what the tree names: `is_large` says how the tree goes to the disk.
fn a_relation_whose_tree_was_spilled(is_large: bool, is_put: bool) {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 2 << 20);
    let leaf = store.keep_blob(&bytes(0, 500));
    let middle: TreeBuilder = [leaf, Handle::u64(1)].into_iter().collect();
    let middle = store.keep_tree(middle.view());
    let fill = std::iter::repeat_n(Handle::u64(7), if is_large { 3000 } else { 3 });
    let top: TreeBuilder = fill.chain(middle.application()).collect();
    let top = if is_put { store.put_tree(top.view()).unwrap() } else { store.keep_tree(top.view()) };
    // Nobody looks at the tree, and everybody at what it names.
    let mut number = 1;
    while store.memory.state(top).is_some() {
        store.keep_blob(&bytes(number, 1000));
        // On a busy machine they may be spilled too, and then this shows nothing.
        drop((store.local(leaf), store.local(middle)));
        number += 1;
        assert!(number < 1_000_000, "it is never spilled");
    }
    let key = store.keep_tree([Handle::u64(3)].into_iter().collect::<TreeBuilder>().view());
    let result: TreeBuilder = [top.lowered().unwrap()].into_iter().collect();
    let result = store.keep_tree(result.view());
    store.relations().insert(key.application().unwrap(), costly(result));
    store.flush_relations().unwrap();
    // What is in memory only is lost, as in a crash.
    drop(store);
    let store = open(folder.path(), 2 << 20);
    let known = store.relations().get(key.application().unwrap()).unwrap();
    let found = store.get(known.result).unwrap().unwrap().as_tree().get(0).unwrap();
    assert_eq!(found, top.lowered().unwrap());
    assert!(store.get(found).unwrap().is_some());
    assert!(
        store.get(middle).unwrap().is_some() && store.get(leaf).unwrap().is_some(),
        "{is_large} {is_put}"
    );
}

#[test]
fn what_a_spilled_tree_names_is_on_the_disk_before_it() {
    for (is_large, is_put) in [(false, false), (false, true), (true, false), (true, true)] {
        a_relation_whose_tree_was_spilled(is_large, is_put);
    }
}

#[test]
fn what_passes_is_not_written_for_a_tree_that_names_it() {
    let folder = tempdir().unwrap();
    let store = open(folder.path(), 2 << 20);
    let passing = store.pass_blob(&bytes(0, 500));
    let top: TreeBuilder = [passing].into_iter().collect();
    let top = store.keep_tree(top.view());
    let mut number = 1;
    while store.memory.state(top).is_some() {
        store.keep_blob(&bytes(number, 1000));
        store.local(passing);
        number += 1;
        assert!(number < 1_000_000, "it is never spilled");
    }
    assert!(store.disk().unwrap().contains(top).unwrap());
    assert!(!store.disk().unwrap().contains(passing).unwrap());
}
