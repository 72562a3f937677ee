// SPDX-License-Identifier: Apache-2.0
//! What stays and what goes, of each kind of object.
#![allow(clippy::unwrap_used)]

use objects::{Handle, TreeBuilder};

use crate::{Options, Record, Rule, Store};

fn store() -> Store {
    Store::open(Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 20 }).unwrap()
}

fn blob(store: &Store, number: u8) -> Handle {
    store.keep_blob(&[number; 100])
}

fn tree(store: &Store, entries: &[Handle]) -> Handle {
    let tree: TreeBuilder = entries.iter().copied().collect();
    store.keep_tree(tree.view())
}

fn is_here(store: &Store, handle: Handle) -> bool {
    store.contains(handle).unwrap()
}

fn remember(store: &Store, key: Handle, result: Handle) {
    store.relations().insert(key, Record { result, rule: Rule::Apply, nanos: 0, fuel: 0 });
}

/// Two rounds: what is new counts as looked at in the first.
fn reclaim(store: &Store) -> u64 {
    store.reclaim().objects + store.reclaim().objects
}

#[test]
fn what_is_derived_goes_when_nobody_looked_at_it_for_a_round() {
    let store = store();
    let [old, new] = [1, 2].map(|number| blob(&store, number));
    assert_eq!(store.reclaim().objects, 0, "both are new");
    store.local(new);
    assert_eq!(store.reclaim().objects, 1);
    assert_eq!((is_here(&store, old), is_here(&store, new)), (false, true));
    let before = store.stats().memory_bytes;
    assert_eq!(store.reclaim().objects, 1);
    assert!(store.stats().memory_bytes < before, "its bytes are given back");
}

#[test]
fn what_was_put_or_is_held_stays() {
    let store = store();
    let put = store.put_blob(&[1; 100]).unwrap();
    // The same bytes, put after they were derived.
    let both = blob(&store, 2);
    store.put_blob(&[2; 100]).unwrap();
    let held = blob(&store, 3);
    let hold = store.local(held).unwrap();
    let mut writer = store.blob_writer().unwrap();
    writer.write(&[4; 100]).unwrap();
    let written = writer.finish().unwrap();
    let passing = store.pass_blob(&[5; 100]);
    assert_eq!(reclaim(&store), 1);
    assert_eq!([put, both, held, written].map(|handle| is_here(&store, handle)), [true; 4]);
    assert!(!is_here(&store, passing));
    drop(hold);
    assert_eq!(reclaim(&store), 1);
    assert!(!is_here(&store, held));
}

#[test]
fn what_a_label_or_something_put_names_stays_however_deep() {
    let store = store();
    let leaves: Vec<Handle> = (0..5).map(|number| blob(&store, number)).collect();
    let definition = tree(&store, &[Handle::literal(b"").unwrap(), leaves[0], leaves[1].lowered().unwrap()]);
    let labelled = tree(&store, &[definition.application().unwrap().strict().unwrap()]);
    store.set_label("kept", labelled).unwrap();
    let put: TreeBuilder = [leaves[2]].into_iter().collect();
    store.put_tree(put.view()).unwrap();
    let gone = tree(&store, &[leaves[3], leaves[0]]);
    assert_eq!(reclaim(&store), 3, "the tree and the last two leaves");
    assert_eq!([0, 1, 2, 3, 4].map(|leaf| is_here(&store, leaves[leaf])), [true, true, true, false, false]);
    assert_eq!([definition, labelled, gone].map(|tree| is_here(&store, tree)), [true, true, false]);
    store.remove_label("kept").unwrap();
    assert_eq!(reclaim(&store), 4);
}

#[test]
fn results_that_lead_to_what_goes_are_forgotten_with_it() {
    let store = store();
    let key = |number| tree(&store, &[Handle::u64(number)]).application().unwrap();
    let gone = blob(&store, 1);
    let kept = store.put_blob(&[2; 100]).unwrap();
    let outer = tree(&store, &[tree(&store, &[gone]), kept]);
    let results = [Handle::u64(7), kept, gone, outer, outer.application().unwrap()];
    for (number, result) in (0..).zip(results) {
        remember(&store, key(number), result);
    }
    store.reclaim();
    // Looked at: it is here itself, but not all that it names.
    store.local(outer);
    let reclaimed = store.reclaim();
    assert_eq!(reclaimed.relations, 3);
    assert!(is_here(&store, outer) && !is_here(&store, gone));
    let known = [0, 1, 2, 3, 4].map(|number| store.relations().get(key(number)).is_some());
    assert_eq!(known, [true, true, false, false, false]);
}

#[test]
fn with_a_disk_nothing_is_reclaimed() {
    let folder = tempfile::tempdir().unwrap();
    let home = Some(folder.path().to_owned());
    let store = Store::open(Options { home, memory_bytes: 1 << 20, relations_bytes: 1 << 20 }).unwrap();
    let derived = blob(&store, 1);
    assert_eq!(reclaim(&store), 0);
    assert!(is_here(&store, derived));
}

#[test]
fn a_full_store_has_room_again() {
    let store = store();
    let mut number = 0_u32;
    while !store.is_full() {
        store.keep_blob(&number.to_le_bytes().repeat(200));
        number += 1;
    }
    assert!(store.put_blob(&[1; 1000]).is_err());
    assert!(reclaim(&store) > 500);
    assert!(!store.is_full());
    store.put_blob(&[1; 1000]).unwrap();
}
