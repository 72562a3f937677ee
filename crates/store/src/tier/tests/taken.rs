// SPDX-License-Identifier: Apache-2.0
//! Tiers that change hands, are damaged, or lack what can be made again: each of these has lost
//! something that was acknowledged.

use super::damaged::damage;
use super::*;
use crate::Dropping;
use crate::recipes::tests as recipes;

#[test]
fn labels_say_each_time_how_to_make_what_was_dropped() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let store = recipes::open(&home);
    let argument = store.put_blob(&bytes(1, 100)).unwrap();
    let application = recipes::application(&store, &[argument]);
    let result = recipes::apply(&store, application, 60_000);
    let entries: TreeBuilder = [result].into_iter().collect();
    let tree = store.keep_tree(entries.view());
    store.set_label("name", tree).unwrap();
    store.flush_relations().unwrap();
    drop(store);
    recipes::age(&home);
    let store = recipes::open(&home);
    recipes::collect(&store, Some(Dropping { bytes_min: 0, nanos_per_kib: u64::MAX }));
    assert!(store.get_here(result).unwrap().is_none() && store.recipe(result).unwrap().is_some());
    store.attach_tier(Arc::clone(&depot) as _, SOON).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    for label in ["second", "third", "fourth"] {
        store.set_label(label, argument).unwrap();
        store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    }
    assert_eq!(store.tier_status().unwrap().unwrap().gaps, 0);
    drop(store);
    let store = open_with(&folder.path().join("b"), &depot);
    store.take_tier().unwrap();
    let recipe = store.recipe(result).unwrap().unwrap();
    assert_eq!(recipe.application, application);
    assert!(store.get(application).unwrap().is_some() && store.get(argument).unwrap().is_some());
    drop(store);
    // And a collection keeps it, which has looked at no tree there.
    recipes::age(&folder.path().join("b"));
    let store = open_with(&folder.path().join("b"), &depot);
    recipes::collect(&store, None);
    assert!(store.recipe(result).unwrap().is_some());
}

#[test]
fn whoever_is_taking_a_tier_writes_no_labels_before_it_has_those_that_are_there() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    store.set_label("before", Handle::u64(1)).unwrap();
    store.tier_until(Awaited::Labels(Vec::new()), PATIENCE).unwrap();
    drop(store);
    let store = open_with(&folder.path().join("b"), &depot);
    depot.stalls_ms.store(20, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| store.take_tier().unwrap());
        // Each time somebody would like to write them.
        let mut number = 0;
        while !taking.is_finished() {
            number += 1;
            store.set_label("own", Handle::u64(number)).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(taking.join().unwrap().labels, 1);
    });
    store.tier_until(Awaited::Labels(Vec::new()), PATIENCE).unwrap();
    drop(store);
    // The newest and those before them, all that there are.
    for (name, bytes) in depot.names.lock().iter().filter(|(name, _)| name.starts_with("labels/")) {
        let names = Names::from_bytes(bytes).unwrap();
        assert!(names.labels.contains(&("before".to_owned(), Handle::u64(1))), "{name}: {names:?}");
    }
}

#[test]
fn what_a_tier_is_only_said_to_have_stays_on_the_disk() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let blobs = [1, 2].map(|number| store.put_blob(&bytes(number, 100_000)).unwrap());
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    drop(store);
    damage(&depot, "objects/");
    let store = open(&folder.path().join("b"));
    store.attach_tier(Arc::clone(&depot) as _, TierOptions { disk_max: Some(0), ..SOON }).unwrap();
    store.take_tier().unwrap();
    store.put_blob(&bytes(1, 100_000)).unwrap();
    let own = store.put_blob(&bytes(3, 100_000)).unwrap();
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    let end = Instant::now() + PATIENCE;
    // What it has sent itself goes.
    while store.get_here(own).unwrap().is_some() {
        assert!(Instant::now() < end);
        store.let_go(own);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.get_here(blobs[0]).unwrap().unwrap().bytes(), bytes(1, 100_000));
}

#[test]
fn who_has_not_ended_taking_a_tier_that_was_its_own_writes_nothing_there() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let first = open_with(&folder.path().join("a"), &depot);
    name(&first, "old", 1, &[100]);
    first.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(first);
    let second = open_with(&folder.path().join("b"), &depot);
    second.take_tier().unwrap();
    let (new, _) = name(&second, "new", 2, &[100]);
    second.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(second);
    let first = open_with(&folder.path().join("a"), &depot);
    depot.fail_after(2);
    first.take_tier().unwrap_err();
    depot.heal();
    for number in 3..6 {
        name(&first, "other", number, &[100]);
        assert!(
            first.tier_until(Awaited::All { labels: true }, PATIENCE).is_err(),
            "it does not know what is there"
        );
    }
    drop(first);
    let third = open_with(&folder.path().join("c"), &depot);
    third.take_tier().unwrap();
    assert_eq!(third.label("new").unwrap(), Some(new));
    assert_eq!(third.label("other").unwrap(), None);
}

#[test]
fn who_takes_a_tier_again_has_its_labels_and_loses_none_of_its_own() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let first = open_with(&folder.path().join("a"), &depot);
    let (before, _) = name(&first, "name", 1, &[100]);
    first.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(first);
    let second = open_with(&folder.path().join("b"), &depot);
    second.take_tier().unwrap();
    let (after, _) = name(&second, "name", 2, &[100]);
    second.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(second);
    let first = open_with(&folder.path().join("a"), &depot);
    let taken = first.take_tier().unwrap();
    assert_eq!((taken.labels, taken.replaced), (1, 1));
    assert_eq!(first.label("name").unwrap(), Some(after));
    assert_eq!(first.label("before-take/name").unwrap(), Some(before));
    first.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
}

/// A copy of a home.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else if path.is_file() {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

/// All of these are in the tier, and another home finds them there, under labels too.
fn assert_there(folder: &Path, depot: &Arc<TestDepot>, label: &str, tree: Handle, blobs: &[Handle]) {
    let other = open_with(folder, depot);
    other.take_tier().unwrap();
    assert_eq!(other.label(label).unwrap(), Some(tree));
    for handle in blobs.iter().chain([&tree]) {
        assert!(other.get(*handle).unwrap().is_some(), "{handle}");
    }
}

#[test]
fn who_takes_a_tier_again_believes_nothing_that_others_have_taken_away() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let first = open_with(&home, &depot);
    let (tree, blobs) = name(&first, "name", 1, &LENS);
    first.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    assert!(first.remove_label("name").unwrap());
    first.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(first);
    // Another home takes them away, since nobody there needs them.
    let other = folder.path().join("b");
    let second = open_with(&other, &depot);
    second.take_tier().unwrap();
    name(&second, "other", 2, &LENS);
    second.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(second);
    collected::grow_old(&other);
    let second = open_with(&other, &depot);
    assert!(collected::try_collect(&second).unwrap().objects >= 5);
    drop(second);
    assert!(!depot.names.lock().contains_key(&form::object_name(blobs[3])));
    let first = open_with(&home, &depot);
    let taken = first.take_tier().unwrap();
    assert_eq!((taken.absent, taken.labels), (5, 1), "{taken:?}");
    // What was put is acknowledged only when it is there.
    for (at, (blob, len)) in blobs.iter().zip(LENS).enumerate() {
        assert_eq!(first.put_blob(&bytes(100 + at as u64, len)).unwrap(), *blob);
    }
    first.set_label("name", tree).unwrap();
    first.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(first);
    assert_there(&folder.path().join("c"), &depot, "name", tree, &blobs);
}

#[test]
fn a_home_whose_disk_was_set_back_finds_out_what_has_gone_since() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let (home, older) = (folder.path().join("a"), folder.path().join("older"));
    let store = open_with(&home, &depot);
    let (tree, blobs) = name(&store, "name", 1, &LENS);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    copy(&home, &older);
    let store = open_with(&home, &depot);
    assert!(store.remove_label("name").unwrap());
    name(&store, "other", 2, &LENS);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    collected::grow_old(&home);
    let store = open_with(&home, &depot);
    assert!(collected::try_collect(&store).unwrap().objects >= 5);
    drop(store);
    // The control: a disk that was not set back goes on.
    let store = open_with(&home, &depot);
    store.put_blob(&bytes(9, 70_000)).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let store = open_with(&older, &depot);
    store.put_blob(&bytes(8, 70_000)).unwrap();
    let told = store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap_err().to_string();
    assert!(told.contains("set back") && told.contains("sinew tier --take"), "{told}");
    let taken = store.take_tier().unwrap();
    assert_eq!(taken.absent, 5, "{taken:?}");
    // All of it is on this disk, and is sent again.
    store.tier_until(Awaited::Whole(vec![tree]), PATIENCE).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    assert_there(&folder.path().join("b"), &depot, "name", tree, &blobs);
}

#[test]
fn a_home_whose_disk_was_set_back_writes_no_old_labels_over_newer_ones() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let (home, older) = (folder.path().join("a"), folder.path().join("older"));
    let store = open_with(&home, &depot);
    name(&store, "first", 1, &[40]);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    copy(&home, &older);
    let store = open_with(&home, &depot);
    let (tree, blobs) = name(&store, "second", 2, &LENS);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let store = open_with(&older, &depot);
    for number in 3..6 {
        name(&store, "third", number, &[40]);
        let told = store.tier_until(Awaited::Labels(Vec::new()), PATIENCE).unwrap_err().to_string();
        assert!(told.contains("set back") && told.contains("sinew tier --take"), "{told}");
    }
    store.take_tier().unwrap();
    assert_eq!(store.label("second").unwrap(), Some(tree));
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    assert_there(&folder.path().join("b"), &depot, "second", tree, &blobs);
    // One that was set back to before it had taken the tier again is found out too.
    let other = folder.path().join("b");
    copy(&home, &folder.path().join("oldest"));
    let store = open_with(&home, &depot);
    store.take_tier().unwrap();
    drop(store);
    let store = open_with(&other, &depot);
    store.take_tier().unwrap();
    drop(store);
    let taken = open_with(&home, &depot);
    taken.take_tier().unwrap();
    drop(taken);
    let store = open_with(&folder.path().join("oldest"), &depot);
    store.put_blob(&bytes(9, 70_000)).unwrap();
    let told = store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap_err().to_string();
    assert!(told.contains("set back"), "{told}");
}
