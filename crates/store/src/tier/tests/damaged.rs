// SPDX-License-Identifier: Apache-2.0
//! What a tier has other bytes of: nobody relies on that, and whoever has it sends it again. Each of these has been
//! acknowledged, and was lost.

use super::*;

/// Small ones, which go in packs, others, and such as are read in parts.
const LENGTHS: [usize; 3] = [300, 70_000, 3 << 20];

/// Everything that is put from now on has other bytes in the depot.
pub(super) fn damage(depot: &TestDepot, begin: &str) {
    let mut names = depot.names.lock();
    let found = names.iter_mut().filter(|(name, _)| name.starts_with(begin) && !name.ends_with("outboard"));
    found.for_each(|(_, bytes)| *bytes.last_mut().unwrap() ^= 1);
}

/// Other bytes for all objects of a length.
fn damage_all(depot: &TestDepot, len: usize) {
    damage(depot, if len < 65_536 { "packs/" } else { "objects/" });
}

fn assert_read(folder: &Path, depot: &Arc<TestDepot>, blob: Handle, len: usize) {
    let store = open_with(folder, depot);
    store.take_tier().unwrap();
    assert_eq!(store.get(blob).unwrap().unwrap().bytes(), bytes(1, len), "{len}");
}

/// A home that has taken a tier where a blob is damaged, and has read that.
fn found_damaged(folder: &Path, depot: &Arc<TestDepot>, len: usize) -> (Store, Handle) {
    let store = open_with(&folder.join("a"), depot);
    let blob = store.put_blob(&bytes(1, len)).unwrap();
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    drop(store);
    damage_all(depot, len);
    let store = open_with(&folder.join("b"), depot);
    store.take_tier().unwrap();
    assert!(matches!(store.get(blob).unwrap_err(), Error::Far { .. }));
    (store, blob)
}

#[test]
fn what_is_damaged_there_is_sent_again_when_it_is_put_again() {
    let ways: [fn(Handle) -> Awaited; 3] = [
        |_| Awaited::All { labels: false },
        |blob| Awaited::Objects(vec![blob]),
        |blob| Awaited::Whole(vec![blob]),
    ];
    let cases = [300, 70_000, 3 << 20].into_iter().flat_map(|len| ways.map(|way| (len, way)));
    for ((len, awaited), is_listed) in cases.flat_map(|case| [true, false].map(|is_listed| (case, is_listed)))
    {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let store = open_with(&folder.path().join("a"), &depot);
        let blob = store.put_blob(&bytes(1, len)).unwrap();
        store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
        drop(store);
        damage(&depot, if len < 65_536 { "packs/" } else { "objects/" });
        let store = open_with(&folder.path().join("b"), &depot);
        store.take_tier().unwrap();
        assert!(matches!(store.get(blob).unwrap_err(), Error::Far { .. }));
        if !is_listed {
            // As when too many wait for their names to be kept, and soon after a start.
            store.far().unwrap().progress.lock().unlist();
        }
        store.put_blob(&bytes(1, len)).unwrap();
        store.tier_until(awaited(blob), PATIENCE).unwrap();
        drop(store);
        let store = open_with(&folder.path().join("c"), &depot);
        store.take_tier().unwrap();
        assert_eq!(store.get(blob).unwrap().unwrap().bytes(), bytes(1, len), "{len} {is_listed}");
    }
}

#[test]
fn nobody_relies_on_what_is_damaged_there_also_after_a_start() {
    for len in LENGTHS {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let (store, blob) = found_damaged(folder.path(), &depot, len);
        assert!(!store.renew(blob).unwrap(), "{len}");
        drop(store);
        let store = open(&folder.path().join("b"));
        store.attach_tier(Arc::clone(&depot) as _, TierOptions { disk_max: Some(0), ..SOON }).unwrap();
        assert!(!store.renew(blob).unwrap(), "{len}");
        store.put_blob(&bytes(1, len)).unwrap();
        store.tier_until(Awaited::Objects(vec![blob]), PATIENCE).unwrap();
        assert!(store.renew(blob).unwrap(), "{len}");
        drop(store);
        assert_read(&folder.path().join("c"), &depot, blob, len);
    }
}

#[test]
fn a_tree_is_not_whole_when_something_that_it_names_is_damaged() {
    for len in LENGTHS {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let store = open_with(&folder.path().join("a"), &depot);
        let blob = store.put_blob(&bytes(1, len)).unwrap();
        let tree: TreeBuilder = [blob].into_iter().collect();
        // In packs of their own.
        store.tier_until(Awaited::Objects(vec![blob]), PATIENCE).unwrap();
        damage_all(&depot, len);
        let tree = store.put_tree(tree.view()).unwrap();
        store.tier_until(Awaited::Whole(vec![tree]), PATIENCE).unwrap();
        drop(store);
        let store = open_with(&folder.path().join("b"), &depot);
        store.take_tier().unwrap();
        // Nobody has looked so far.
        store.tier_until(Awaited::Whole(vec![tree]), PATIENCE).unwrap();
        assert!(matches!(store.get(blob).unwrap_err(), Error::Far { .. }));
        for awaited in [Awaited::Whole(vec![tree]), Awaited::Whole(vec![tree])] {
            let refused = store.tier_until(awaited, PATIENCE).unwrap_err();
            assert!(refused.to_string().contains("1 of the objects"), "{len}: {refused}");
        }
        store.put_blob(&bytes(1, len)).unwrap();
        store.tier_until(Awaited::Whole(vec![tree]), PATIENCE).unwrap();
        drop(store);
        assert_read(&folder.path().join("c"), &depot, blob, len);
    }
}

#[test]
fn what_is_found_damaged_while_it_is_here_is_sent_again() {
    for len in LENGTHS {
        let folder = tempdir().unwrap();
        let depot = Arc::new(TestDepot::default());
        let store = open_with(&folder.path().join("a"), &depot);
        let blob = store.put_blob(&bytes(1, len)).unwrap();
        store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
        damage_all(&depot, len);
        // Somebody else reads it there while it is put.
        assert!(matches!(store.disk().unwrap().look_far(blob).unwrap_err(), Error::Far { .. }));
        store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
        assert!(!store.disk().unwrap().tiered(blob).unwrap().unwrap().is_damaged, "{len}");
        drop(store);
        assert_read(&folder.path().join("b"), &depot, blob, len);
    }
}

#[test]
fn an_outboard_that_is_damaged_is_sent_again_once_the_object_is_here() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let len = 3 << 20;
    let store = open_with(&folder.path().join("a"), &depot);
    let blob = store.put_blob(&bytes(1, len)).unwrap();
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    drop(store);
    for (name, bytes) in depot.names.lock().iter_mut().filter(|(name, _)| name.ends_with("outboard")) {
        assert!(name.starts_with("objects/"));
        bytes.iter_mut().for_each(|byte| *byte ^= 1);
    }
    let store = open_with(&folder.path().join("b"), &depot);
    store.take_tier().unwrap();
    assert!(matches!(store.bring_part(blob, 0..100).unwrap_err(), Error::Far { .. }));
    // The object itself is sound.
    assert_eq!(store.get(blob).unwrap().unwrap().bytes(), bytes(1, len));
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    drop(store);
    let store = open_with(&folder.path().join("c"), &depot);
    store.take_tier().unwrap();
    assert_eq!(store.bring_part(blob, 0..100).unwrap().unwrap(), bytes(1, len)[..100]);
}

#[test]
fn one_that_nobody_has_makes_each_walk_look_at_its_own_trees_only() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let torn = store.put_blob(&bytes(1, 70_000)).unwrap();
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    damage(&depot, "objects/");
    let trees = [vec![torn], (2..40).map(|number| store.put_blob(&bytes(number, 200)).unwrap()).collect()];
    let trees = trees.map(|entries| {
        let tree: TreeBuilder = entries.into_iter().collect();
        store.put_tree(tree.view()).unwrap()
    });
    store.set_label("torn", trees[0]).unwrap();
    store.set_label("whole", trees[1]).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let store = open_with(&folder.path().join("b"), &depot);
    store.take_tier().unwrap();
    assert!(matches!(store.get(torn).unwrap_err(), Error::Far { .. }));
    let is_whole = |tree| store.disk().unwrap().tiered(tree).unwrap().unwrap().is_whole;
    for label in ["one", "two"] {
        store.set_label(label, trees[1]).unwrap();
        store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
        assert_eq!(trees.map(is_whole), [false, true], "{label}");
    }
}
