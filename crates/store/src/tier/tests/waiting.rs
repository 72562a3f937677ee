// SPDX-License-Identifier: Apache-2.0
//! Who waits for the tier waits for what is theirs, and is told why it is not there.

use std::thread;

use super::*;
use crate::tier::far::{Far, PAUSE, Progress};
use crate::tier::form::object_name;

const BRIEFLY: Duration = Duration::from_millis(60);

fn refusal(waited: Result<(), Error>) -> String {
    waited.unwrap_err().to_string()
}

/// Until it is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_object_that_the_tier_does_not_take_keeps_no_other_waiting() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(folder.path(), &depot);
    let poison = store.put_blob(&bytes(1, 70_000)).unwrap();
    depot.refuses.lock().push(object_name(poison));
    let others: Vec<Handle> = (2..6).map(|number| store.put_blob(&bytes(number, 70_000)).unwrap()).collect();
    wait_until("the others are sent", || others.iter().all(|blob| store.is_far(*blob).unwrap()));
    let status = || store.tier_status().unwrap().unwrap();
    wait_until("it is put aside", || (status().aside, status().waiting_large) == (1, 0));
    let status = status();
    // Whoever waits for all of it is told why, and which one only who has named it; who waits for another has it.
    let trouble = status.trouble.unwrap();
    let told = refusal(store.tier_until(Awaited::All { labels: false }, BRIEFLY));
    for told in [trouble, told] {
        assert!(told.contains("it is too large") && !told.contains(&poison.to_string()), "{told}");
    }
    let told = refusal(store.tier_until(Awaited::Objects(vec![poison]), BRIEFLY));
    assert!(told.contains(&poison.to_string()) && told.contains("it is too large"), "{told}");
    store.tier_until(Awaited::Objects(others.clone()), PATIENCE).unwrap();
    store.set_label("other", others[0]).unwrap();
    store.tier_until(Awaited::Labels(Vec::new()), PATIENCE).unwrap();
    // It is not forgotten, also not by the next process.
    drop(store);
    let store = open_with(folder.path(), &depot);
    wait_until("it is tried again", || store.tier_status().unwrap().unwrap().aside == 1);
    depot.refuses.lock().clear();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    assert!(store.is_far(poison).unwrap());
    let status = store.tier_status().unwrap().unwrap();
    assert_eq!((status.aside, status.trouble), (0, None));
}

/// Pauses of minutes after some failures.
const PATIENT: TierOptions = TierOptions { pause_max: Duration::from_secs(30), ..SOON };

#[test]
fn what_was_refused_often_goes_soon_once_another_has_gone_and_not_with_each() {
    let far = Far::new(Arc::new(TestDepot::default()), PATIENT);
    let key = Handle::blob(&bytes(1, 70_000));
    let mut progress = far.progress.lock();
    let refuse = |progress: &mut Progress| {
        (0..20).all(|_| progress.put_aside(1, key, "it is too large".to_owned(), PATIENT.pause_max))
    };
    let is_due = |progress: &mut Progress| (0..2).any(|_| progress.aside_due() == Some(key));
    assert!(refuse(&mut progress));
    thread::sleep(PAUSE);
    assert!(!is_due(&mut progress), "its pause is far longer");
    progress.hasten(PATIENT.pause_max);
    thread::sleep(PAUSE);
    assert!(is_due(&mut progress));
    assert!(refuse(&mut progress));
    progress.hasten(PATIENT.pause_max);
    thread::sleep(PAUSE);
    assert!(!is_due(&mut progress), "it was tried a moment ago");
}

#[test]
fn who_goes_hastens_those_that_were_refused() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open(folder.path());
    store.attach_tier(Arc::clone(&depot) as _, PATIENT).unwrap();
    let blobs = [1, 2].map(|number| {
        let blob = Handle::blob(&bytes(number, 70_000));
        depot.refuses.lock().push(object_name(blob));
        assert_eq!(store.put_blob(&bytes(number, 70_000)).unwrap(), blob);
        wait_until("it is put aside", || store.tier_status().unwrap().unwrap().aside == number);
        blob
    });
    let far = store.far().unwrap();
    for _ in 0..20 {
        far.progress.lock().put_aside(1, blobs[0], "it is too large".to_owned(), PATIENT.pause_max);
    }
    depot.refuses.lock().clear();
    wait_until("the second one goes", || store.is_far(blobs[1]).unwrap());
    wait_until("the first one follows it", || store.is_far(blobs[0]).unwrap());
}

#[test]
fn many_that_are_refused_keep_nobody_waiting_after_a_start() {
    const REFUSED: u64 = 30;
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open(folder.path());
    let put = |number: u64| store.put_blob(&bytes(number, 70_000)).unwrap();
    let blobs: Vec<Handle> = (0..REFUSED + 5).map(put).collect();
    let (refused, others) = blobs.split_at(REFUSED as usize);
    depot.refuses.lock().extend(refused.iter().map(|blob| object_name(*blob)));
    // To rest after each would take minutes.
    store.attach_tier(Arc::clone(&depot) as _, PATIENT).unwrap();
    wait_until("the others go", || others.iter().all(|blob| store.is_far(*blob).unwrap()));
    wait_until("the refused are aside", || store.tier_status().unwrap().unwrap().aside == REFUSED);
    assert!(refused.iter().all(|blob| !store.is_far(*blob).unwrap()));
}

#[test]
fn who_waits_for_everything_waits_for_what_was_there_before_the_start() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open(folder.path());
    let old = store.put_blob(&bytes(1, 70_000)).unwrap();
    depot.refuses.lock().push(object_name(old));
    depot.fail_after(0);
    store.attach_tier(Arc::clone(&depot) as _, SOON).unwrap();
    let far = store.far().unwrap();
    let ticket = far.ticket(store.disk().unwrap().index().packs().end(), false);
    // It is put before the old one is looked for, and looked for with it.
    let new = store.put_blob(&bytes(2, 70_000)).unwrap();
    depot.heal();
    wait_until("the new one goes", || store.is_far(new).unwrap());
    wait_until("the old one is aside", || store.tier_status().unwrap().unwrap().aside == 1);
    wait_until("no more is under way", || store.tier_status().unwrap().unwrap().waiting_large == 0);
    assert!(!far.progress.lock().has(ticket), "the old one is not there");
    assert!(!store.is_far(old).unwrap());
}

#[test]
fn nobody_waits_for_what_is_somebody_else_s() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let slow = store.put_blob(&bytes(1, 3 << 20)).unwrap();
    depot.holds.lock().push(object_name(slow));
    let (tree, blobs) = name(&store, "own", 2, &LENS);
    store.tier_until(Awaited::Objects(vec![blobs[0]]), PATIENCE).unwrap();
    store.tier_until(Awaited::Objects(vec![blobs[3]]), PATIENCE).unwrap();
    store.tier_until(Awaited::Whole(vec![tree, Handle::u64(7)]), PATIENCE).unwrap();
    store.tier_until(Awaited::Labels(Vec::new()), PATIENCE).unwrap();
    let told = refusal(store.tier_until(Awaited::All { labels: false }, BRIEFLY));
    assert!(told.contains("it is being sent"), "{told}");
    // The disk is lost now, and what was acknowledged is not.
    depot.refuses.lock().push(object_name(slow));
    depot.holds.lock().clear();
    drop(store);
    let other = open_with(&folder.path().join("b"), &depot);
    other.take_tier().unwrap();
    assert_eq!(other.label("own").unwrap(), Some(tree));
    assert!(blobs.iter().all(|blob| other.get(*blob).unwrap().is_some()));
    assert!(other.get(slow).unwrap().is_none());
}

#[test]
fn a_tree_is_waited_for_with_all_that_it_names() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let put = |number, len| store.put_blob(&bytes(number, len)).unwrap();
    let inner: TreeBuilder = [put(1, 300), put(2, 2 << 20)].into_iter().collect();
    let outer: TreeBuilder = [store.put_tree(inner.view()).unwrap(), put(3, 90_000)].into_iter().collect();
    let outer = store.put_tree(outer.view()).unwrap();
    store.tier_until(Awaited::Whole(vec![outer]), PATIENCE).unwrap();
    // One that names what nobody has put.
    let torn: TreeBuilder = [put(4, 300), Handle::blob(&bytes(5, 300))].into_iter().collect();
    let torn = store.put_tree(torn.view()).unwrap();
    let told = refusal(store.tier_until(Awaited::Whole(vec![torn]), PATIENCE));
    assert!(told.contains("1 of the objects are not here"), "{told}");
    // Who puts it may not have put that yet.
    store.tier_until(Awaited::Objects(vec![torn]), PATIENCE).unwrap();
    drop(store);
    let other = open_with(&folder.path().join("b"), &depot);
    other.take_tier().unwrap();
    let mut pending = vec![outer];
    let mut found = 0;
    while let Some(handle) = pending.pop() {
        let object = other.get(handle).unwrap().unwrap();
        found += 1;
        if handle.names_tree() {
            pending.extend(object.as_tree().iter());
        }
    }
    assert_eq!(found, 5);
    assert!(other.get(torn).unwrap().is_some());
}

#[test]
fn who_waits_for_what_was_damaged_before_it_was_sent_is_told() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    depot.fail_after(0);
    let store = open_with(folder.path(), &depot);
    let large = store.put_blob(&bytes(1, 70_000)).unwrap();
    let small = store.put_blob(&bytes(2, 5000)).unwrap();
    drop(store);
    for path in files(folder.path(), "objects/").into_iter().chain(files(folder.path(), "packs/")) {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    depot.heal();
    let store = open_with(folder.path(), &depot);
    for blob in [large, small] {
        let told = refusal(store.tier_until(Awaited::Objects(vec![blob]), PATIENCE));
        assert!(told.contains("damaged"), "{told}");
    }
    // Whoever puts it again has it there.
    store.put_blob(&bytes(1, 70_000)).unwrap();
    store.put_blob(&bytes(2, 5000)).unwrap();
    store.tier_until(Awaited::Objects(vec![large, small]), PATIENCE).unwrap();
    assert!(store.is_far(large).unwrap() && store.is_far(small).unwrap());
}

#[test]
fn who_waits_in_vain_keeps_nobody_else_waiting() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open(folder.path());
    // What is not taken is tried again after a pause that is longer than anybody here waits.
    store.attach_tier(Arc::clone(&depot) as _, TierOptions { pause_max: 10 * PATIENCE, ..SOON }).unwrap();
    let poison: Vec<Handle> = (0..8).map(|number| Handle::blob(&bytes(number, 70_000))).collect();
    depot.refuses.lock().extend(poison.iter().map(|poison| object_name(*poison)));
    (0..8).for_each(|number| _ = store.put_blob(&bytes(number, 70_000)).unwrap());
    thread::scope(|scope| {
        let all: Vec<_> = poison
            .iter()
            .map(|poison| scope.spawn(|| store.tier_until(Awaited::Objects(vec![*poison]), PATIENCE / 4)))
            .collect();
        wait_until("all are refused", || store.tier_status().unwrap().unwrap().failures >= 3);
        let begun = Instant::now();
        for number in 10..20 {
            let other = store.put_blob(&bytes(number, 70_000)).unwrap();
            store.tier_until(Awaited::Objects(vec![other]), PATIENCE).unwrap();
        }
        assert!(begun.elapsed() < PATIENCE / 8, "{:?}", begun.elapsed());
        for waited in all {
            let told = refusal(waited.join().unwrap());
            assert!(told.contains("it is too large") && told.contains("blob-"), "{told}");
        }
    });
}

#[test]
fn nobody_is_told_that_a_tier_has_what_it_had_when_it_was_this_home_s() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let home = folder.path().join("a");
    let first = open_with(&home, &depot);
    let blobs = [40, 70_000].map(|len| first.put_blob(&bytes(1, len)).unwrap());
    first.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    drop(first);
    open_with(&folder.path().join("b"), &depot).take_tier().unwrap();
    let first = open_with(&home, &depot);
    for blob in blobs {
        // It is sent, as its row says, and need not be there any more.
        for awaited in [Awaited::Objects(vec![blob]), Awaited::Whole(vec![blob])] {
            let told = refusal(first.tier_until(awaited, PATIENCE));
            assert!(told.contains("another home owns it"), "{told}");
        }
    }
    let told = refusal(first.tier_until(Awaited::All { labels: false }, PATIENCE));
    assert!(told.contains("another home owns it"), "{told}");
}

#[test]
fn what_is_large_is_waited_for_longer() {
    let blob = |len: u64| Handle::blob_from_hash(&[7; 32], len).unwrap();
    let allowance = |awaited: Awaited| awaited.allowance().as_secs();
    let roots = vec![blob(10 << 30), blob(4096), blob(100 << 20)];
    for awaited in [Awaited::Objects, Awaited::Whole, Awaited::Labels] {
        assert_eq!(allowance(awaited(roots.clone())), 10 * 1024 + 100);
    }
    assert_eq!(allowance(Awaited::Objects(vec![blob((1 << 48) - 1); 2])), 24 * 3600);
    assert_eq!(allowance(Awaited::All { labels: true }), 0);
}

#[test]
fn what_is_there_can_be_relied_on_while_it_is_found_out_again_whose_the_tier_is() {
    let folder = tempdir().unwrap();
    let (depot, second, blob) = taken(folder.path(), 70_000);
    depot.stalls_ms.store(40, Ordering::SeqCst);
    // Before it is sent, that is looked at.
    second.put_blob(&bytes(2, 5000)).unwrap();
    let until = Instant::now() + Duration::from_millis(600);
    while Instant::now() < until {
        assert!(second.renew(blob).unwrap());
        thread::sleep(Duration::from_millis(1));
    }
}
