// SPDX-License-Identifier: Apache-2.0
//! What a collection takes and leaves, also while others work.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::marks::Marks;
use super::{Collected, Collection, FORGOTTEN_MAX, STEP_MIN, steps};
use crate::packs::now;
use crate::{Error, Options, Record, Rule, Sought, Store};

const HOUR: Duration = Duration::from_secs(3600);

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 4 << 20, relations_bytes: 1 << 20 }).unwrap()
}

fn new() -> (TempDir, Store) {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    (folder, store)
}

/// A process that comes later, with nothing in memory.
fn reopen(folder: &TempDir, store: Store) -> Store {
    drop(store);
    open(folder.path())
}

/// Makes all that is on the disk five hours old.
fn age(store: &Store, home: &Path) {
    let age = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(now() - 5 * HOUR).unwrap();
    };
    let packs = store.disk().unwrap().index().packs();
    // What others write from now on is young.
    let newest = packs.roll();
    let old = packs.numbers().into_iter().filter(|number| *number < newest);
    old.for_each(|number| age(&home.join(format!("packs/{number:010}.pack"))));
    let list = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    list(&home.join("objects")).flat_map(|folder| list(&folder)).for_each(|file| age(&file));
}

fn collect(store: &Store) -> Collected {
    store.collect(Collection { kept: HOUR, is_trial: false, dropping: None }, &Vec::new).unwrap()
}

fn bytes(number: u64) -> Vec<u8> {
    let len = if number % 10 == 3 { 70_000 } else { 40 + number as usize % 300 };
    let mut bytes = vec![number as u8; len];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn put(store: &Store, number: u64) -> Handle {
    store.put_blob(&bytes(number)).unwrap()
}

fn put_tree(store: &Store, entries: &[Handle]) -> Handle {
    let tree: TreeBuilder = entries.iter().copied().collect();
    store.put_tree(tree.view()).unwrap()
}

fn is_there(store: &Store, handle: Handle) -> bool {
    let found = store.get(handle).unwrap().is_some();
    assert_eq!(found, store.contains(handle).unwrap(), "{handle}");
    found
}

/// Whether everything that a handle names is there.
fn is_whole(store: &Store, handle: Handle) -> bool {
    let Some(object) = store.get(handle).unwrap() else { return false };
    !handle.plain_tree().names_tree() || object.as_tree().iter().all(|entry| is_whole(store, entry))
}

#[test]
fn what_labels_name_through_any_handle_stays_and_the_rest_goes() {
    let (folder, store) = new();
    let leaves: Vec<Handle> = (0..8).map(|number| put(&store, number)).collect();
    let large: Vec<Handle> = (0..4000).map(Handle::u64).chain([leaves[0]]).collect();
    let trees = [&leaves[1..2], &leaves[2..3], &leaves[3..4]].map(|entries| put_tree(&store, entries));
    let entries = [
        trees[0].lowered().unwrap(),
        trees[1].application().unwrap(),
        trees[2].selection().unwrap().strict().unwrap(),
        leaves[4].identification().unwrap().shallow().unwrap(),
        put_tree(&store, &large),
    ];
    let root = put_tree(&store, &entries);
    store.set_label("kept", root.application().unwrap().strict().unwrap()).unwrap();
    let lost: Vec<Handle> = (100..140).map(|number| put(&store, number)).collect();
    let lost_tree = put_tree(&store, &[lost[0], leaves[1]]);
    let store = reopen(&folder, store);
    let before = store.stats();
    age(&store, folder.path());
    let trial = store.collect(Collection { kept: HOUR, is_trial: true, dropping: None }, &Vec::new).unwrap();
    assert!(is_there(&store, lost_tree) && store.stats().disk_objects == before.disk_objects);
    let store = reopen(&folder, store);
    age(&store, folder.path());
    let collected = collect(&store);
    assert_eq!(collected.objects, 40 + 1 + 3, "lost ones, and leaves that nobody names");
    assert_eq!(
        (trial.objects, trial.bytes, trial.kept_objects),
        (collected.objects, collected.bytes, collected.kept_objects)
    );
    assert_eq!(store.stats().disk_objects, before.disk_objects - collected.objects);
    assert_eq!(collected.kept_objects, store.stats().disk_objects);
    assert!(collected.freed_bytes >= 4 * 70_000 && store.stats().disk_bytes < before.disk_bytes);
    let store = reopen(&folder, store);
    assert!(is_whole(&store, root) && leaves[..5].iter().all(|leaf| is_there(&store, *leaf)));
    assert!(lost.iter().chain([&lost_tree, &leaves[5]]).all(|handle| !is_there(&store, *handle)));
    assert_eq!(put(&store, 100), lost[0]);
    assert!(is_there(&store, lost[0]), "it can be put again");
}

#[test]
fn what_is_young_stays_with_what_it_names() {
    let (folder, store) = new();
    let old = [put(&store, 1), put(&store, 2), put(&store, 3), put(&store, 13)];
    age(&store, folder.path());
    let store = reopen(&folder, store);
    let large: Vec<Handle> = (0..4000).map(Handle::u64).chain([old[1]]).collect();
    let young = [put_tree(&store, &[old[0]]), put_tree(&store, &large)];
    let again = put(&store, 3);
    assert!(store.renew(old[3]).unwrap() && !store.renew(Handle::blob(&bytes(99))).unwrap());
    let store = reopen(&folder, store);
    collect(&store);
    assert!(young.iter().all(|tree| is_whole(&store, *tree)));
    assert!(is_there(&store, again) && is_there(&store, old[3]), "put again is as new");
    age(&store, folder.path());
    let store = reopen(&folder, store);
    assert_eq!(collect(&store).objects, 6);
    assert_eq!(store.stats().disk_objects, 0);
}

#[test]
fn what_is_in_somebodys_hands_or_only_in_memory_keeps_what_it_names() {
    let (folder, store) = new();
    let held = put(&store, 1);
    let named = put(&store, 2);
    let goal = put_tree(&store, &[put(&store, 4)]);
    // Whoever has written an object lets it go before the next one is written.
    let (idle, touched) = (put(&store, 6), put(&store, 5));
    age(&store, folder.path());
    let object = store.get(held).unwrap();
    let tree: TreeBuilder = [named].into_iter().collect();
    let derived = store.keep_tree(tree.view());
    let under_way = || {
        // Looked at since the collection began.
        store.get(touched).unwrap();
        vec![goal.application().unwrap().strict().unwrap()]
    };
    let collected =
        store.collect(Collection { kept: HOUR, is_trial: false, dropping: None }, &under_way).unwrap();
    assert_eq!(collected.objects, 1, "{collected:?}");
    assert!(!is_there(&store, idle));
    drop(object);
    assert!(is_whole(&store, derived));
    let store = reopen(&folder, store);
    assert!(is_there(&store, held) && is_there(&store, named) && is_whole(&store, goal));
    assert!(is_there(&store, touched));
}

fn relation(store: &Store, key: u64, result: Handle) -> Handle {
    let key = Handle::blob(&bytes(key)).identification().unwrap();
    store.relations().insert(key, Record { result, rule: Rule::Apply, nanos: 1 << 20, fuel: key.size() });
    key
}

#[test]
fn results_stay_if_somebody_asks_for_them_and_relations_lead_nowhere_wrong() {
    let (folder, store) = new();
    let results = [11, 12, 14].map(|number| put_tree(&store, &[put(&store, number)]));
    let keys: Vec<Handle> =
        results.iter().zip(1000..).map(|(result, key)| relation(&store, key, *result)).collect();
    let literal = relation(&store, 1010, Handle::u64(5));
    store.flush_relations().unwrap();
    store.set_label("kept", results[2]).unwrap();
    let store = reopen(&folder, store);
    age(&store, folder.path());
    assert!(store.relations().get(keys[0]).is_some());
    let collected = collect(&store);
    assert_eq!((collected.objects, collected.relations), (2, 1), "a result and what it names");
    let mut store = store;
    for _ in 0..2 {
        assert!(is_whole(&store, store.relations().get(keys[0]).unwrap().result), "it was asked for");
        assert_eq!(store.relations().get(keys[1]), None);
        assert!(is_whole(&store, store.relations().get(keys[2]).unwrap().result), "it has a name");
        assert!(store.relations().get(literal).is_some());
        store = reopen(&folder, store);
    }
}

#[test]
fn packs_of_which_little_is_left_become_fewer() {
    let (folder, store) = new();
    let mut kept = Vec::new();
    for pack in 0..10 {
        for number in 0..200 {
            let handle = put(&store, pack * 10_000 + number * 10);
            if number % 10 == 0 {
                store.set_label(&format!("label/{pack}/{number}"), handle).unwrap();
                kept.push(handle);
            }
        }
        store.disk().unwrap().index().packs().roll();
    }
    let store = reopen(&folder, store);
    age(&store, folder.path());
    let packs_bytes = |store: &Store| store.disk().unwrap().index().packs().bytes();
    let before = packs_bytes(&store);
    let collected = collect(&store);
    assert_eq!((collected.objects, collected.kept_objects), (1800, 200));
    assert!(collected.freed_bytes > collected.bytes, "{collected:?}");
    assert!(before - packs_bytes(&store) > collected.bytes);
    assert_eq!(fs::read_dir(folder.path().join("packs")).unwrap().count(), 1);
    let store = reopen(&folder, store);
    assert!(kept.iter().all(|handle| is_there(&store, *handle)));
}

#[test]
fn a_damaged_object_is_told_and_not_moved() {
    let (folder, store) = new();
    let handles: Vec<Handle> = (0..20).map(|number| put(&store, number * 10)).collect();
    for (number, handle) in handles.iter().take(5).enumerate() {
        store.set_label(&format!("label/{number}"), *handle).unwrap();
    }
    drop(store);
    let pack = folder.path().join("packs/0000000000.pack");
    let mut content = fs::read(&pack).unwrap();
    let at = content.windows(20).position(|window| window == &bytes(20)[..20]).unwrap();
    content[at + 15] ^= 1;
    fs::write(&pack, content).unwrap();
    let store = open(folder.path());
    age(&store, folder.path());
    assert_eq!(collect(&store).objects, 15);
    assert!(!is_there(&store, handles[2]));
    assert_eq!(
        (store.stats().corrupt, fs::read_dir(folder.path().join("quarantine")).unwrap().count()),
        (1, 1)
    );
    assert!([0, 1, 3, 4].iter().all(|number: &usize| is_there(&store, handles[*number])));
}

#[test]
fn damage_in_a_record_takes_no_neighbour_with_it() {
    // In the hash, the length and the kind of a handle, and in the bytes behind it.
    for at in [3, 25, 29, 31, 40] {
        let (folder, store) = new();
        let handles: Vec<Handle> = (0..30).map(|number| put(&store, number * 10)).collect();
        let young = put_tree(&store, &handles[20..]);
        for (number, handle) in handles.iter().take(10).enumerate() {
            store.set_label(&format!("label/{number}"), *handle).unwrap();
        }
        drop(store);
        let pack = folder.path().join("packs/0000000000.pack");
        let mut content = fs::read(&pack).unwrap();
        let record = content.windows(32).position(|window| window == handles[2].as_bytes()).unwrap();
        content[record + at] ^= 4;
        fs::write(&pack, content).unwrap();
        let store = open(folder.path());
        age(&store, folder.path());
        let again = put_tree(&store, &[young]);
        collect(&store);
        let store = reopen(&folder, store);
        let others = handles[..10].iter().filter(|handle| **handle != handles[2]);
        assert!(others.chain([&again]).all(|handle| is_whole(&store, *handle)), "{at}");
        assert!(store.get(handles[2]).is_err() || !is_there(&store, handles[2]));
        assert_eq!(put(&store, 20), handles[2]);
        assert!(is_there(&store, handles[2]), "it can be put again");
    }
}

#[test]
fn a_damaged_tree_that_has_a_name_keeps_what_it_names() {
    let (folder, store) = new();
    let leaves: Vec<Handle> = (0..40).map(|number| put(&store, number * 10)).collect();
    let tree = put_tree(&store, &leaves);
    store.set_label("tree", tree).unwrap();
    let store = reopen(&folder, store);
    age(&store, folder.path());
    drop(store);
    let pack = folder.path().join("packs/0000000000.pack");
    let changed = fs::metadata(&pack).unwrap().modified().unwrap();
    let mut content = fs::read(&pack).unwrap();
    let record = content.windows(32).position(|window| window == tree.as_bytes()).unwrap();
    content[record + 32 + 5] ^= 4;
    fs::write(&pack, content).unwrap();
    File::options().write(true).open(&pack).unwrap().set_modified(changed).unwrap();
    let store = open(folder.path());
    let collection = Collection { kept: HOUR, is_trial: false, dropping: None };
    assert!(matches!(store.collect(collection, &Vec::new), Err(Error::Corrupt { .. })), "it is told");
    // The first entry cannot be read any more, and nobody else names it.
    assert_eq!(collect(&store).objects, 1);
    assert!(leaves[1..].iter().all(|leaf| is_there(&store, *leaf)), "it may be put again");
}

#[test]
fn what_is_put_after_everything_went_is_found_again() {
    let (folder, store) = new();
    put(&store, 1);
    let store = reopen(&folder, store);
    age(&store, folder.path());
    assert_eq!(collect(&store).objects, 1);
    let packs = store.disk().unwrap().index().packs();
    assert_eq!((packs.numbers(), packs.end().pack), (vec![], 1), "no number is used twice");
    let handle = put(&store, 2);
    // As a kill leaves it: the index is not told.
    let copy = tempdir().unwrap();
    let copied =
        std::process::Command::new("cp").arg("-a").arg(folder.path().join(".")).arg(copy.path()).status();
    assert!(copied.unwrap().success());
    let store = open(copy.path());
    assert!(is_there(&store, handle));
}

#[test]
fn a_large_object_that_is_put_again_meanwhile_stays() {
    let (folder, store) = new();
    let (again, lost) = (put(&store, 13), put(&store, 23));
    let store = reopen(&folder, store);
    age(&store, folder.path());
    let under_way = || {
        put(&store, 13);
        Vec::new()
    };
    // Only before the moment in which it is decided: who decides is alone.
    let asked = std::cell::Cell::new(0);
    let once = || {
        asked.set(asked.get() + 1);
        if asked.get() == 1 { under_way() } else { Vec::new() }
    };
    assert_eq!(
        store.collect(Collection { kept: HOUR, is_trial: false, dropping: None }, &once).unwrap().objects,
        1
    );
    let store = reopen(&folder, store);
    assert!(is_there(&store, again) && !is_there(&store, lost));
}

#[test]
fn one_collection_at_a_time() {
    let (_folder, store) = new();
    let second = || {
        let refused = store.collect(Collection { kept: HOUR, is_trial: true, dropping: None }, &Vec::new);
        assert!(matches!(refused, Err(Error::Collecting)));
        Vec::new()
    };
    store.collect(Collection { kept: HOUR, is_trial: false, dropping: None }, &second).unwrap();
}

/// Threads put trees and name them, others read what has names, while everything
/// grows old at once and is collected again and again.
#[test]
fn what_is_named_is_whole_while_collections_go_on() {
    let (folder, store) = new();
    let store = Arc::new(store);
    let is_over = Arc::new(AtomicBool::new(false));
    let named = Arc::new(AtomicU64::new(0));
    let writer = |id: u64| {
        let (store, is_over, named) = (Arc::clone(&store), Arc::clone(&is_over), Arc::clone(&named));
        let work = move || {
            let mut step = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Some contents come again, after they went.
                let number = 20_000 * id + step % 300;
                let leaf = if step % 2 == 0 { put(&store, number) } else { store.keep_blob(&bytes(number)) };
                let tree: TreeBuilder = [leaf, Handle::u64(step)].into_iter().collect();
                let tree = store.keep_tree(tree.view());
                let label = format!("label/{id}/{}", step % 20);
                store.set_label(&label, tree).unwrap();
                let found = store.label(&label).unwrap().unwrap();
                assert!(is_whole(&store, found), "{label}, step {step}");
                store.remove_label(&format!("label/{id}/{}", (step + 7) % 20)).unwrap();
                named.fetch_add(1, Ordering::Relaxed);
                step += 1;
            }
        };
        thread::Builder::new().spawn(work).unwrap()
    };
    let writers: Vec<_> = (0..3).map(writer).collect();
    let mut went = 0;
    let mut rounds = 0;
    while (rounds < 25 || went < 500) && rounds < 400 {
        age(&store, folder.path());
        went += collect(&store).objects;
        rounds += 1;
        for (label, handle) in store.labels().unwrap() {
            // Somebody may have taken the label back, and the next round what it named.
            assert!(is_whole(&store, handle) || store.label(&label).unwrap() != Some(handle), "{label}");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(went >= 500, "{went} went in {rounds} rounds beside {} labels", named.load(Ordering::Relaxed));
    let Ok(store) = Arc::try_unwrap(store) else { unreachable!("all writers have ended") };
    let store = reopen(&folder, store);
    assert!(store.labels().unwrap().into_iter().all(|(_, handle)| is_whole(&store, handle)));
    assert_eq!(store.stats().corrupt, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    PutTree(Vec<prop::sample::Index>),
    Label(u8, prop::sample::Index),
    Unlabel(u8),
    Relation(u8, prop::sample::Index),
    Ask(u8),
    Age,
    Collect,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => any::<u8>().prop_map(Step::Put),
        6 => prop::collection::vec(index(), 0..5).prop_map(Step::PutTree),
        3 => (0u8..3, index()).prop_map(|(name, which)| Step::Label(name, which)),
        1 => (0u8..3).prop_map(Step::Unlabel),
        2 => (0u8..4, index()).prop_map(|(key, which)| Step::Relation(key, which)),
        1 => (0u8..4).prop_map(Step::Ask),
        3 => Just(Step::Age),
        4 => Just(Step::Collect),
        1 => Just(Step::Reopen),
    ]
}

/// All that these name, and themselves.
fn closure(store: &Store, roots: impl IntoIterator<Item = Handle>) -> HashSet<Handle> {
    let mut pending: Vec<Handle> = roots.into_iter().map(Handle::plain_tree).collect();
    let mut found = HashSet::new();
    while let Some(handle) = pending.pop() {
        if handle.literal_bytes().is_none() && found.insert(handle) && handle.names_tree() {
            let tree = store.get(handle).unwrap();
            pending.extend(tree.iter().flat_map(|tree| tree.as_tree().iter().map(Handle::plain_tree)));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn named_and_young_objects_are_whole_and_old_ones_are_gone(steps in prop::collection::vec(step(), 1..50)) {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap();
        let mut store = Some(open(folder.path()));
        // All that was put and is not known to be gone, what was put since it was aged,
        // and what may have been moved since, which makes it young.
        let (mut all, mut young, mut moved) = (Vec::new(), HashSet::new(), HashSet::new());
        for step in steps {
            let at = store.as_ref().unwrap();
            let choose = |which: &prop::sample::Index| (!all.is_empty()).then(|| all[which.index(all.len())]);
            match step {
                Step::Put(number) => {
                    let handle = put(at, u64::from(number));
                    young.insert(handle);
                    all.push(handle);
                }
                Step::PutTree(which) => {
                    let entries: Vec<Handle> = which.iter().filter_map(choose).collect();
                    let handle = put_tree(at, &entries);
                    young.insert(handle);
                    all.push(handle);
                }
                Step::Label(name, which) => {
                    if let Some(handle) = choose(&which) {
                        at.set_label(&format!("label/{name}"), handle).unwrap();
                    }
                }
                Step::Unlabel(name) => drop(at.remove_label(&format!("label/{name}")).unwrap()),
                Step::Relation(key, which) => drop(choose(&which).map(|result| relation(at, u64::from(key) + 900, result))),
                Step::Ask(key) => {
                    let key = Handle::blob(&bytes(u64::from(key) + 900)).identification().unwrap();
                    if let Some(record) = at.relations().get(key) {
                        prop_assert!(is_whole(at, record.result), "a remembered result is not there");
                    }
                }
                Step::Age => {
                    age(at, folder.path());
                    young.clear();
                    moved.clear();
                }
                Step::Reopen => {
                    store = None;
                    store = Some(store.unwrap_or_else(|| open(folder.path())));
                }
                Step::Collect => {
                    // With nothing in memory, so that it is known what goes.
                    at.flush_relations().unwrap();
                    let used: Vec<Handle> = at.relations().used_results(false);
                    store = None;
                    store = Some(store.unwrap_or_else(|| open(folder.path())));
                    let at = store.as_ref().unwrap();
                    let labelled = at.labels().unwrap().into_iter().map(|(_, handle)| handle);
                    let needed = closure(at, labelled.chain(young.iter().copied()));
                    // Looking at them has brought them into memory.
                    store = None;
                    store = Some(store.unwrap_or_else(|| open(folder.path())));
                    let at = store.as_ref().unwrap();
                    collect(at);
                    for handle in std::mem::take(&mut all) {
                        let is_needed = needed.contains(&handle);
                        let found = is_there(at, handle);
                        prop_assert!(found || !is_needed, "{handle} was needed");
                        let may_stay = is_needed || used.contains(&handle) || moved.contains(&handle);
                        prop_assert!(!found || may_stay, "{handle} was not needed");
                        moved.extend(found.then_some(handle));
                        all.extend(found.then_some(handle));
                    }
                }
            }
        }
    }
}

#[test]
fn an_outboard_goes_with_its_object_and_stays_with_it() {
    let (folder, store) = new();
    let home = folder.path();
    let [kept, lost] = [1, 2].map(|byte| store.put_blob(&vec![byte; 2 << 20]).unwrap());
    store.set_label("kept", kept).unwrap();
    let outboards = || {
        let folders = fs::read_dir(home.join("objects")).unwrap().map(|entry| entry.unwrap().path());
        let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
        let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".outboard")).collect::<Vec<_>>()
    };
    assert_eq!(outboards().len(), 2);
    let store = reopen(&folder, store);
    let disk_bytes = store.stats().disk_bytes;
    age(&store, home);
    assert_eq!(collect(&store).objects, 1);
    assert_eq!(outboards(), [format!("{kept}.outboard")]);
    assert!(!is_there(&store, lost));
    assert!(disk_bytes - store.stats().disk_bytes > 2 << 20);
    let before = store.stats().disk_read_bytes;
    assert_eq!(store.read_range(kept, 7..9).unwrap().unwrap(), [1, 1]);
    assert!(store.stats().disk_read_bytes - before < 40_000);
}

#[test]
fn a_collection_that_is_stopped_takes_nothing() {
    let (folder, store) = new();
    let (kept, old) = (put(&store, 1), put(&store, 3));
    store.set_label("kept", kept).unwrap();
    let store = reopen(&folder, store);
    age(&store, folder.path());
    // Asked what is under way, it is stopped; nobody waits for it after that.
    let stop = || {
        store.stop_collecting();
        vec![kept]
    };
    let collection = Collection { kept: HOUR, is_trial: false, dropping: None };
    assert!(matches!(store.collect(collection, &stop), Err(Error::Stopped)));
    let store = reopen(&folder, store);
    age(&store, folder.path());
    assert!(is_there(&store, kept) && is_there(&store, old));
    let store = reopen(&folder, store);
    age(&store, folder.path());
    // Nobody has stopped the next one, also if that was said of none.
    store.stop_collecting();
    assert_eq!(collect(&store).objects, 1);
    assert!(is_there(&store, kept) && !is_there(&store, old));
}

#[test]
fn what_is_going_is_not_listed_any_more() {
    let (folder, store) = new();
    let [_, large, stays] = [1, 3, 13].map(|number| put(&store, number));
    let store = reopen(&folder, store);
    let disk = store.disk().unwrap();
    let listed = || {
        let all = Sought { after: None, limit: 10, kind: None, bytes_min: 0 };
        store.inventory(&all).unwrap().objects.iter().map(|stored| stored.handle).collect::<Vec<_>>()
    };
    let packs: Vec<_> = disk.index().packs().numbers().into_iter().map(|number| (number, 4096)).collect();
    disk.sentence(Some(Arc::new(Marks::new(&packs, vec![large]).sentence())));
    assert_eq!(listed(), [stays]);
    disk.sentence(None);
    assert_eq!(listed().len(), 3);
}

#[test]
fn a_disk_with_little_room_is_written_to_in_smaller_steps() {
    let full = || Error::io("/home", std::io::Error::from_raw_os_error(28));
    let rows: Vec<u32> = (0..50_000).collect();
    for room in [STEP_MIN, 100, 5_000, 100_000] {
        let (mut written, mut tries) = (Vec::new(), 0);
        let write = |rows: &[u32]| {
            tries += 1;
            if rows.len() > room {
                return Err(full());
            }
            written.extend_from_slice(rows);
            Ok(())
        };
        steps(&rows, FORGOTTEN_MAX, write).unwrap();
        assert_eq!(written, rows, "each once, in their order");
        // Every other one fails at most, but for the first.
        assert!(tries <= 10 + 4 * rows.len().div_ceil(room.min(FORGOTTEN_MAX)), "{tries} with {room}");
    }
    let mut tries = 0;
    let never = |_: &[u32]| {
        tries += 1;
        Err(full())
    };
    assert!(steps(&rows, FORGOTTEN_MAX, never).unwrap_err().is_full_disk());
    assert!(tries < 10, "{tries}");
    let other = |_: &[u32]| Err(Error::Closed);
    assert!(matches!(steps(&rows, FORGOTTEN_MAX, other), Err(Error::Closed)));
}
