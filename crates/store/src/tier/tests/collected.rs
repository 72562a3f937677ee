// SPDX-License-Identifier: Apache-2.0
//! What goes from the tier, and what never does, whatever happens meanwhile.

use std::collections::HashMap;

use super::*;
use crate::TierCollected;
use crate::index::Batch;
use crate::recipes::tests as recipes;

const LENGTHS: [usize; 4] = [40, 5000, 70_000, 1 << 20];

/// All that is in the tier, and was put, is as old as that.
pub(super) fn grow_old(home: &Path) {
    recipes::age(home);
    let store = open(home);
    let disk = store.disk().unwrap();
    let mut tiered = Vec::new();
    let older = |rows: &[(Handle, crate::index::Tiered)]| {
        tiered.extend(rows.iter().map(|(key, row)| {
            let row = crate::index::Tiered { since_s: row.since_s - 5 * 3600, ..*row };
            (*key, Some(row))
        }));
        Ok(())
    };
    disk.index().visit_tiered(3, older).unwrap();
    disk.committer().commit(Batch { tiered, ..Batch::default() }).unwrap();
}

pub(super) fn try_collect(store: &Store) -> Result<TierCollected, Error> {
    let kept = Collection::KEPT_MIN;
    store.collect(Collection { kept, is_trial: false, dropping: None }, &Vec::new)?;
    store.collect_tier(crate::TierCollection { kept, is_trial: false }, &Vec::new)
}

/// A home that put and sent trees of these numbers under labels, and took those of odd ones away; everything
/// is old. What it put and has no label is in each tree's number.
fn home_with(
    folder: &Path,
    depot: &Arc<TestDepot>,
    numbers: std::ops::Range<u64>,
) -> HashMap<u64, Vec<Handle>> {
    let store = open_with(folder, depot);
    let mut named = HashMap::new();
    for number in numbers {
        let (tree, mut blobs) = name(&store, &format!("label-{number}"), number, &LENGTHS);
        blobs.push(tree);
        named.insert(number, blobs);
    }
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    for number in named.keys().filter(|number| *number % 2 == 1) {
        assert!(store.remove_label(&format!("label-{number}")).unwrap());
    }
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    grow_old(folder);
    named
}

/// A home that takes the tier has these, and what they name.
fn assert_taken(folder: &Path, depot: &Arc<TestDepot>, handles: &[Handle], what: &str) {
    let store = open_with(folder, depot);
    store.take_tier().unwrap();
    for (name, handle) in store.labels().unwrap() {
        let object = store.get(handle).unwrap().unwrap_or_else(|| panic!("{what}: {name}"));
        let has = |entry| store.get(entry).unwrap().is_some();
        assert!(!handle.names_tree() || object.as_tree().iter().all(has), "{what}: {name}");
    }
    for handle in handles {
        assert!(store.get(*handle).unwrap().is_some(), "{what}: {handle}");
    }
}

fn bytes_there(depot: &TestDepot) -> usize {
    depot.names.lock().values().map(Vec::len).sum()
}

#[test]
fn what_no_label_names_goes_and_what_one_names_stays() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let named = home_with(&home, &depot, 0..8);
    let before = bytes_there(&depot);
    let store = open_with(&home, &depot);
    let trial = crate::TierCollection { kept: Collection::KEPT_MIN, is_trial: true };
    let would = store.collect_tier(trial, &Vec::new).unwrap();
    assert_eq!((would.objects, would.kept_objects), (0, 40), "it is on the disk: {would:?}");
    assert_eq!(bytes_there(&depot), before);
    let collected = try_collect(&store).unwrap();
    // Of four trees: two that are large each, and what was in packs with as much that is needed.
    assert_eq!(collected.kept_objects, 20, "{collected:?}");
    assert_eq!(collected.objects + collected.idle_objects, 20, "{collected:?}");
    assert!(collected.objects >= 8 && collected.bytes > 4 << 20, "{collected:?}");
    assert!(bytes_there(&depot) < before * 6 / 10, "{before} -> {}", bytes_there(&depot));
    let status = store.tier_status().unwrap().unwrap();
    assert_eq!((status.collected, status.collected_bytes), (collected.objects, collected.bytes));
    assert!(depot.names.lock().keys().all(|name| !name.starts_with("collecting/")));
    for key in named.iter().filter(|(number, _)| *number % 2 == 1).map(|(_, blobs)| blobs[2]) {
        assert!(store.get(key).unwrap().is_none() && !store.is_far(key).unwrap());
    }
    // Again: there is nothing more.
    assert_eq!(try_collect(&store).unwrap().objects, 0);
    drop(store);
    let live: Vec<Handle> =
        named.iter().filter(|(number, _)| *number % 2 == 0).flat_map(|(_, all)| all.clone()).collect();
    assert_taken(&folder.path().join("b"), &depot, &live, "after it");
}

#[test]
fn packs_of_which_little_is_needed_are_written_anew() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let store = open(&home);
    let blobs: Vec<Handle> = (0..100).map(|at| store.put_blob(&bytes(at, 2000)).unwrap()).collect();
    drop(store);
    // So that all are in one.
    let store = open_with(&home, &depot);
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    store.set_label("first", blobs[3]).unwrap();
    store.set_label("second", blobs[77]).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    grow_old(&home);
    let store = open_with(&home, &depot);
    let packs =
        || depot.names.lock().keys().filter(|name| name.starts_with("packs/")).cloned().collect::<Vec<_>>();
    let before = packs();
    let collected = try_collect(&store).unwrap();
    assert_eq!((collected.objects, collected.kept_objects), (98, 2), "{collected:?}");
    assert_eq!((collected.packs, collected.moved_bytes), (before.len() as u64, 4000));
    assert!(packs().len() == 1 && !before.contains(&packs()[0]));
    assert!(bytes_there(&depot) < 6000, "{}", bytes_there(&depot));
    drop(store);
    assert_taken(&folder.path().join("b"), &depot, &[blobs[3], blobs[77]], "moved");
}

#[test]
fn what_was_put_a_short_while_ago_stays_with_what_it_names() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let named = home_with(&home, &depot, 1..2);
    // The disk is lost: what another home takes is young there.
    let second = folder.path().join("b");
    let store = open_with(&second, &depot);
    store.take_tier().unwrap();
    let tree = named[&1][4];
    assert_eq!(try_collect(&store).unwrap().objects, 0);
    drop(store);
    grow_old(&second);
    // Somebody asks for one by its name, in order to rely on it.
    let store = open_with(&second, &depot);
    // At first it is not known whether the tier is still this home's, and nobody is told so.
    let until = Instant::now() + PATIENCE;
    while !store.renew(named[&1][2]).unwrap() {
        assert!(Instant::now() < until, "it is never found to be there");
    }
    assert!(try_collect(&store).unwrap().objects > 0);
    assert!(store.is_far(named[&1][2]).unwrap() && !store.is_far(named[&1][3]).unwrap());
    assert!(!store.is_far(tree).unwrap());
    drop(store);
    assert_taken(&folder.path().join("c"), &depot, &[named[&1][2]], "relied on");
}

#[test]
fn what_is_put_again_is_young_there_too() {
    for len in [300, 70_000] {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let home = folder.path().join("a");
        let store = open_with(&home, &depot);
        let blob = store.put_blob(&bytes(1, len)).unwrap();
        store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
        drop(store);
        grow_old(&home);
        let store = open_with(&home, &depot);
        store.put_blob(&bytes(1, len)).unwrap();
        store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
        drop(store);
        // Only the disk grows old, and forgets it.
        recipes::age(&home);
        let store = open_with(&home, &depot);
        assert_eq!(try_collect(&store).unwrap().objects, 0);
        assert!(store.get_here(blob).unwrap().is_none() && store.is_far(blob).unwrap(), "{len}");
    }
}

#[test]
fn what_this_home_holds_keeps_what_it_names_there() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let named = home_with(&home, &depot, 1..2);
    let second = folder.path().join("b");
    let store = open_with(&second, &depot);
    store.take_tier().unwrap();
    drop(store);
    grow_old(&second);
    let store = open_with(&second, &depot);
    // A tree on the disk that is young and nobody named, of which only this one is here.
    let entries: TreeBuilder = [named[&1][4]].into_iter().collect();
    let above = store.put_tree(entries.view()).unwrap();
    assert_eq!(try_collect(&store).unwrap().objects, 0);
    assert_eq!(store.get(above).unwrap().unwrap().as_tree().len(), 1);
    for blob in &named[&1] {
        assert!(store.get(*blob).unwrap().is_some());
    }
}

#[test]
fn whatever_fails_nothing_needed_goes_and_the_next_one_ends_it() {
    for round in 0..24 {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let home = folder.path().join("a");
        let named = home_with(&home, &depot, 0..4);
        let live: Vec<Handle> = [0, 2].iter().flat_map(|number| named[number].clone()).collect();
        depot.does_all_the_same.store(round % 2 == 0, Ordering::SeqCst);
        let store = open_with(&home, &depot);
        depot.fail_after(round);
        let failed = try_collect(&store);
        depot.heal();
        drop(store);
        let what = format!("{round}: {failed:?}");
        let copy = Arc::new(TestDepot::default());
        copy.names.lock().clone_from(&depot.names.lock());
        assert_taken(&folder.path().join("b"), &copy, &live, &what);
        // What was left over is found, and goes when it is old enough.
        for _ in 0..2 {
            grow_old(&home);
            let store = open_with(&home, &depot);
            try_collect(&store).unwrap();
            store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
        }
        let names = depot.names.lock().clone();
        let large = |names: &std::collections::BTreeMap<String, Vec<u8>>| {
            names.keys().filter(|name| name.starts_with("objects/")).count()
        };
        assert_eq!(large(&names), 6, "{what}: {:?}", names.keys());
        assert!(names.keys().all(|name| !name.starts_with("collecting/")), "{what}");
        assert_taken(&folder.path().join("c"), &depot, &live, &what);
    }
}

#[test]
fn whoever_puts_or_names_what_is_going_has_it_there() {
    for call in 0..26 {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let home = folder.path().join("a");
        let named = home_with(&home, &depot, 0..4);
        let store = Arc::new(open_with(&home, &depot));
        let kept = Collection::KEPT_MIN;
        store.collect(Collection { kept, is_trial: false, dropping: None }, &Vec::new).unwrap();
        let (told, acknowledged) = std::sync::mpsc::channel();
        let hooked = Arc::downgrade(&store);
        depot.hook(call, move || {
            let Some(store) = hooked.upgrade() else { return };
            // One that sends it may wait for this very call to end.
            let soon = Duration::from_millis(300);
            for (at, len) in LENGTHS.iter().enumerate().skip(1) {
                store.put_blob(&bytes(100 + at as u64, *len)).unwrap();
            }
            if store.tier_until(Awaited::All { labels: false }, soon).is_ok() {
                told.send(false).unwrap();
            }
            let tree: TreeBuilder =
                (0..4).map(|at| Handle::blob(&bytes(300 + at, LENGTHS[at as usize]))).collect();
            // It is there, or it is not: then nobody can name it.
            if store.contains(tree.view().handle()).unwrap() {
                store.set_label("again", tree.view().handle()).unwrap();
                if store.tier_until(Awaited::All { labels: true }, soon).is_ok() {
                    told.send(true).unwrap();
                }
            }
        });
        let collected = store.collect_tier(crate::TierCollection { kept, is_trial: false }, &Vec::new);
        depot.unhook();
        drop(store);
        let acknowledged: Vec<bool> = acknowledged.try_iter().collect();
        let what = format!("{call}: {collected:?}, {acknowledged:?}");
        let mut there = [0, 2].iter().flat_map(|number| named[number].clone()).collect::<Vec<_>>();
        if acknowledged.contains(&false) {
            there.extend(&named[&1][1..4]);
        }
        if acknowledged.contains(&true) {
            there.extend(&named[&3]);
        }
        assert_taken(&folder.path().join("b"), &depot, &there, &what);
    }
}

#[test]
fn who_reads_while_packs_are_written_anew_is_never_told_an_error() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let store = open_with(&home, &depot);
    let blobs: Vec<Handle> = (0..50).map(|at| store.put_blob(&bytes(at, 2000)).unwrap()).collect();
    store.set_label("first", blobs[3]).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let second = folder.path().join("b");
    let store = open_with(&second, &depot);
    store.take_tier().unwrap();
    drop(store);
    grow_old(&second);
    let store = open_with(&second, &depot);
    let disk = store.disk().unwrap();
    let (far, stale) = disk.far_place(blobs[3]).unwrap().unwrap();
    assert_eq!(try_collect(&store).unwrap().objects, 49);
    // It has looked where it is, and is about to read it there.
    let late = disk.far_whole(far, blobs[3], stale).unwrap();
    assert_eq!(late, bytes(3, 2000));
    assert!(!disk.tiered(blobs[3]).unwrap().unwrap().is_damaged, "it is not taken for damaged");
}

#[test]
fn another_home_s_tier_is_left_alone_and_who_takes_one_waits() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let named = home_with(&home, &depot, 0..4);
    // One was killed in the middle, or is on its way.
    let owner = form::parse_format(&depot.names.lock()["FORMAT"]);
    let Format::Ours(owner) = owner else { panic!("{owner:?}") };
    let marker = form::collecting_name(&owner.home);
    depot.names.lock().insert(marker.clone(), Vec::new());
    let second = Arc::new(open(&folder.path().join("b")));
    let patient = TierOptions { collector_patience: PATIENCE, ..SOON };
    second.attach_tier(Arc::clone(&depot) as _, patient).unwrap();
    let taking = {
        let second = Arc::clone(&second);
        std::thread::spawn(move || second.take_tier().unwrap())
    };
    let owner_is = || form::parse_format(&depot.names.lock()["FORMAT"]);
    while owner_is() == Format::Ours(owner) {
        std::thread::yield_now();
    }
    assert_eq!(second.tier_status().unwrap().unwrap().objects, 0, "it has learnt nothing yet");
    depot.names.lock().remove(&marker);
    assert_eq!(taking.join().unwrap().objects, 20);
    second.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    let names = depot.names.lock().clone();
    let first = open_with(&home, &depot);
    let refused = try_collect(&first).unwrap_err().to_string();
    assert!(refused.contains("another home owns it"), "{refused}");
    assert!(*depot.names.lock() == names, "nothing is written there either");
    drop(first);
    // While this one has not ended taking it.
    drop(second);
    let third = open_with(&folder.path().join("c"), &depot);
    depot.fail_after(4);
    third.take_tier().unwrap_err();
    depot.heal();
    let refused = try_collect(&third);
    assert!(refused.is_err() || refused.unwrap().objects == 0);
    drop(third);
    let live: Vec<Handle> = named.values().flatten().copied().collect();
    assert_taken(&folder.path().join("d"), &depot, &live, "whoever owned it");
}

#[test]
fn labels_of_a_copy_of_this_home_and_damaged_ones_end_it() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    home_with(&home, &depot, 0..4);
    let newest = depot.names.lock().keys().filter(|name| name.starts_with("labels/")).max().unwrap().clone();
    let good = depot.names.lock()[&newest].clone();
    depot.names.lock().get_mut(&newest).unwrap()[30] ^= 1;
    let store = open_with(&home, &depot);
    let refused = try_collect(&store).unwrap_err().to_string();
    assert!(refused.contains("damaged there"), "{refused}");
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    assert!(try_collect(&store).unwrap().objects > 0, "they were written anew");
    let newer = form::labels_name(form::labels_number(&newest).unwrap() + 9);
    depot.names.lock().insert(newer, good);
    let refused = try_collect(&store).unwrap_err().to_string();
    assert!(refused.contains("a copy of it writes there too"), "{refused}");
}

#[test]
fn small_objects_are_sent_once_however_the_packs_here_are_written_anew() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(folder.path(), &depot);
    let put = |store: &Store, from: u64| -> Vec<Handle> {
        (from..from + 40).map(|at| store.put_blob(&bytes(at, 1000)).unwrap()).collect()
    };
    let sent = put(&store, 0);
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    depot.fail_after(0);
    let unsent = put(&store, 100);
    for at in [3, 30] {
        store.set_label(&format!("a-{at}"), sent[at]).unwrap();
        store.set_label(&format!("b-{at}"), unsent[at]).unwrap();
    }
    drop(store);
    recipes::age(folder.path());
    let store = open_with(folder.path(), &depot);
    let kept = Collection::KEPT_MIN;
    let collected = store.collect(Collection { kept, is_trial: false, dropping: None }, &Vec::new).unwrap();
    assert_eq!((collected.objects, collected.kept_objects), (76, 4), "{collected:?}");
    let late = put(&store, 200);
    depot.heal();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    let status = store.tier_status().unwrap().unwrap();
    // Those that were sent were not sent again, those that wait and are needed were: at most by who sends labels too.
    assert!((42..=44).contains(&status.sent) && status.objects == 82, "{status:?}");
    drop(store);
    let all: Vec<Handle> = [&sent[..], &[unsent[3], unsent[30]], &late].concat();
    assert_taken(&folder.path().join("b"), &depot, &all, "after the packs were written anew");
}

/// What was there before it is looked for what is needed, and is sent after that.
#[test]
fn what_is_sent_while_it_is_looked_stays() {
    let mut sent = 0;
    for call in 0..26 {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let home = folder.path().join("a");
        let named = home_with(&home, &depot, 0..4);
        let store = Arc::new(open_with(&home, &depot));
        let kept = Collection::KEPT_MIN;
        store.collect(Collection { kept, is_trial: false, dropping: None }, &Vec::new).unwrap();
        let put: Vec<Handle> =
            (1..4).map(|at| store.put_blob(&bytes(500 + at, LENGTHS[at as usize])).unwrap()).collect();
        let (told, acknowledged) = std::sync::mpsc::channel();
        let hooked = Arc::downgrade(&store);
        depot.hook(call, move || {
            let Some(store) = hooked.upgrade() else { return };
            if store.tier_until(Awaited::All { labels: false }, Duration::from_millis(300)).is_ok() {
                told.send(()).unwrap();
            }
        });
        let collected = store.collect_tier(crate::TierCollection { kept, is_trial: false }, &Vec::new);
        depot.unhook();
        drop(store);
        let mut there = [0, 2].iter().flat_map(|number| named[number].clone()).collect::<Vec<_>>();
        if acknowledged.try_recv().is_ok() {
            sent += 1;
            there.extend(&put);
        }
        assert_taken(&folder.path().join("b"), &depot, &there, &format!("{call}: {collected:?}"));
    }
    assert!(sent > 5, "only {sent} times");
}
