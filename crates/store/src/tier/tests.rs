// SPDX-License-Identifier: Apache-2.0
//! What is promised of the tier, with one that fails.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod collected;
mod damaged;
mod depots;
mod taken;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use objects::{Handle, TreeBuilder};
use proptest::prelude::*;
use tempfile::tempdir;

use super::form::{self, Format, Names, Owner};
use super::{Awaited, FolderDepot, TierOptions, check_depot};
use crate::{Collection, Error, Object, Options, Store};
use depots::TestDepot;

const PATIENCE: Duration = Duration::from_secs(60);
const SOON: TierOptions = TierOptions {
    linger: Duration::from_millis(5),
    pause_max: Duration::from_millis(5),
    latency: Duration::from_millis(1),
    bytes_per_second: 1 << 30,
    disk_max: None,
    collector_patience: Duration::from_millis(10),
};

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 1 << 20, relations_bytes: 1 << 18 }).unwrap()
}

fn open_with(home: &Path, depot: &Arc<TestDepot>) -> Store {
    let store = open(home);
    store.attach_tier(Arc::clone(depot) as _, SOON).unwrap();
    store
}

/// A home that has taken a tier, which alone has a blob of this length.
fn taken(folder: &Path, len: usize) -> (Arc<TestDepot>, Store, Handle) {
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.join("a"), &depot);
    let blob = store.put_blob(&bytes(1, len)).unwrap();
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    drop(store);
    let store = open_with(&folder.join("b"), &depot);
    store.take_tier().unwrap();
    (depot, store, blob)
}

fn bytes(number: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u64 * 31 + at as u64 / 251 + number) as u8).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A label for a tree of objects of these lengths.
fn name(store: &Store, label: &str, number: u64, lens: &[usize]) -> (Handle, Vec<Handle>) {
    let put = |(at, len): (usize, &usize)| store.put_blob(&bytes(number * 100 + at as u64, *len)).unwrap();
    let blobs: Vec<Handle> = lens.iter().enumerate().map(put).collect();
    let tree: TreeBuilder = blobs.iter().copied().collect();
    let tree = store.put_tree(tree.view()).unwrap();
    store.set_label(label, tree).unwrap();
    (tree, blobs)
}

const LENS: [usize; 4] = [40, 5000, 70_000, 3 << 20];

/// All files below a folder whose name has this in it.
fn files(folder: &Path, part: &str) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.to_str().unwrap().contains(part) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn folders_and_the_one_in_memory_do_what_depots_must() {
    let folder = tempdir().unwrap();
    check_depot(&FolderDepot::open(folder.path()).unwrap());
    check_depot(&TestDepot::default());
}

#[test]
fn a_home_that_is_empty_has_all_of_a_tier_that_it_takes() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let (tree, blobs) = name(&store, "first", 1, &LENS);
    let loose = store.put_blob(&bytes(7, 300)).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    let status = store.tier_status().unwrap().unwrap();
    assert_eq!((status.objects, status.waiting_bytes, status.waiting_large), (6, 0, 0), "{status:?}");
    assert_eq!((status.gaps, status.trouble), (0, None));
    let published =
        || depot.names.lock().keys().filter(|name| name.starts_with("labels/")).cloned().collect();
    let newest: Vec<String> = published();
    // What does not change is not sent again.
    let calls = depot.calls.load(Ordering::SeqCst);
    store.set_label("first", tree).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    assert_eq!(published(), newest);
    assert!(depot.calls.load(Ordering::SeqCst) < calls + 5);
    drop(store);

    let second = open_with(&folder.path().join("b"), &depot);
    let refused = second.tier_until(Awaited::All { labels: false }, PATIENCE);
    assert!(refused.is_ok(), "an empty home has nothing to send: {refused:?}");
    second.put_blob(&bytes(8, 300)).unwrap();
    let refused = second.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("another home owns it") && refused.contains("sinew tier --take"), "{refused}");
    assert!(refused.contains("what was put is on the disk"), "{refused}");
    let taken = second.take_tier().unwrap();
    assert_eq!((taken.labels, taken.objects, taken.damaged), (1, 6, 0));
    assert_eq!(second.label("first").unwrap(), Some(tree));
    for (at, (blob, len)) in blobs.iter().zip(LENS).enumerate() {
        assert_eq!(second.get(*blob).unwrap().unwrap().bytes(), bytes(100 + at as u64, len));
    }
    assert_eq!(second.get(tree).unwrap().unwrap().as_tree().len(), 4);
    assert_eq!(second.get(loose).unwrap().unwrap().bytes(), bytes(7, 300), "without a label too");
    second.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    // From now on they are on its disk.
    let reads = second.tier_status().unwrap().unwrap().reads;
    drop(second);
    let second = open_with(&folder.path().join("b"), &depot);
    assert!(reads > 0 && second.get(blobs[3]).unwrap().is_some());
    assert_eq!(second.tier_status().unwrap().unwrap().reads, 0);

    // The one before does not send any more.
    let first = open_with(&folder.path().join("a"), &depot);
    name(&first, "late", 9, &[50]);
    assert!(
        first
            .tier_until(Awaited::All { labels: true }, PATIENCE)
            .unwrap_err()
            .to_string()
            .contains("another home owns it")
    );
    drop(second);
    let third = open_with(&folder.path().join("c"), &depot);
    third.take_tier().unwrap();
    assert_eq!(third.label("late").unwrap(), None);
}

#[test]
fn a_format_that_nobody_knows_and_a_place_in_use_are_refused() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    depot.names.lock().insert("FORMAT".to_owned(), b"sinew-tier 2\n".to_vec());
    let store = open_with(&folder.path().join("a"), &depot);
    store.put_blob(&bytes(1, 100)).unwrap();
    let refused = store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("sinew-tier 2"), "{refused}");
    assert!(store.take_tier().unwrap_err().to_string().contains("sinew-tier 2"));
    let other = Arc::new(TestDepot::default());
    other.names.lock().insert("somebody/s".to_owned(), vec![1]);
    let store = open_with(&folder.path().join("b"), &other);
    store.put_blob(&bytes(1, 100)).unwrap();
    let refused = store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("something else"), "{refused}");
    assert_eq!(other.names.lock().len(), 1, "nothing is written there");
}

#[test]
fn whatever_fails_nothing_acknowledged_is_lost() {
    let folder = tempdir().unwrap();
    for (round, fails_after) in (0..60).enumerate() {
        let depot = Arc::new(TestDepot::default());
        depot.does_all_the_same.store(round % 2 == 0, Ordering::SeqCst);
        let home = folder.path().join(format!("home-{round}"));
        let store = open_with(&home, &depot);
        depot.fail_after(fails_after / 2);
        let mut acknowledged = Vec::new();
        let mut last = None;
        for number in 0..6 {
            let (tree, blobs) = name(&store, "name", number, &[50, 70_000]);
            if store.tier_until(Awaited::All { labels: true }, Duration::from_millis(30)).is_ok() {
                (acknowledged, last) = ([acknowledged, blobs].concat(), Some(tree));
            }
        }
        depot.heal();
        // The machine is lost now, with its disk.
        drop(store);
        if let Some(last) = last {
            let other = open_with(&folder.path().join(format!("other-{round}")), &depot);
            other.take_tier().unwrap();
            for blob in &acknowledged {
                assert!(other.get(*blob).unwrap().is_some(), "{round}: {blob}");
            }
            let label = other.label("name").unwrap().unwrap();
            let tree = other.get(label).unwrap().unwrap();
            assert!(tree.as_tree().iter().all(|entry| other.get(entry).unwrap().is_some()), "{round}");
            assert!(other.get(last).unwrap().is_some());
        }
    }
}

#[test]
fn what_failed_is_sent_when_it_can_be_also_by_the_next_process() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    depot.fail_after(0);
    let store = open_with(folder.path(), &depot);
    let (_, blobs) = name(&store, "name", 1, &LENS);
    let failed =
        store.tier_until(Awaited::All { labels: true }, Duration::from_millis(50)).unwrap_err().to_string();
    assert!(failed.contains("it does not answer"), "{failed}");
    assert!(store.tier_status().unwrap().unwrap().trouble.unwrap().contains("it does not answer"));
    drop(store);
    depot.heal();
    let store = open_with(folder.path(), &depot);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    let status = store.tier_status().unwrap().unwrap();
    assert_eq!((status.objects, status.trouble), (5, None));
    assert!(blobs.iter().all(|blob| store.is_far(*blob).unwrap()));
}

#[test]
fn a_flipped_bit_on_the_disk_is_healed_from_the_tier() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(folder.path(), &depot);
    let (_, blobs) = name(&store, "name", 1, &LENS);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let mut damaged = 0;
    for path in files(folder.path(), "objects/").into_iter().chain(files(folder.path(), "packs/")) {
        if path.extension().is_some_and(|extension| extension == "outboard") {
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        // In a pack that is in the object of 5000 bytes.
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        damaged += 1;
    }
    assert_eq!(damaged, 3);
    let store = open_with(folder.path(), &depot);
    for (at, (blob, len)) in blobs.iter().zip(LENS).enumerate() {
        let healed = store.get(*blob).unwrap().unwrap();
        assert_eq!(healed.bytes(), bytes(100 + at as u64, len), "{at}");
    }
    assert_eq!(store.tier_status().unwrap().unwrap().brought, 3);
    assert_eq!(store.stats().corrupt, 3);
    drop(store);
    let store = open(folder.path());
    assert!(blobs.iter().all(|blob| store.get_here(*blob).unwrap().is_some()), "it is on the disk again");
}

#[test]
fn what_the_tier_has_damaged_is_an_error_that_names_it_and_never_an_answer() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let (_, blobs) = name(&store, "name", 1, &LENS);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let store = open_with(&folder.path().join("b"), &depot);
    store.take_tier().unwrap();
    for fault in [&depot.flips, &depot.cuts] {
        fault.store(true, Ordering::SeqCst);
        for blob in &blobs {
            let error = store.get(*blob).unwrap_err();
            assert!(matches!(error, Error::Far { handle, .. } if handle == *blob), "{error}");
            assert!(error.to_string().contains(&blob.to_string()), "{error}");
        }
        assert!(store.read_range(blobs[3], 1 << 20..(1 << 20) + 10).is_err());
        fault.store(false, Ordering::SeqCst);
    }
    assert!(store.tier_status().unwrap().unwrap().corrupt >= 8);
    assert!(
        blobs.iter().all(|blob| store.get(*blob).unwrap().is_some()),
        "it was not believed, and not kept"
    );
}

#[test]
fn a_part_of_a_large_object_moves_kilobytes() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let whole = bytes(1, 200 << 20);
    let blob = store.put_blob(&whole).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let store = open_with(&folder.path().join("b"), &depot);
    store.take_tier().unwrap();
    depot.bytes_out.store(0, Ordering::SeqCst);
    let from = 123_456_789;
    let part = store.read_range(blob, from..from + 1024).unwrap().unwrap();
    assert_eq!(part, whole[from as usize..][..1024]);
    let moved = depot.bytes_out.load(Ordering::SeqCst);
    assert!(moved < 128 << 10, "{moved} bytes");
    for (from, to) in [(0, 1), (0, 16 << 10), ((16 << 10) - 1, (16 << 10) + 1), (5 << 20, 9 << 20)] {
        assert_eq!(store.read_range(blob, from..to).unwrap().unwrap(), whole[from as usize..to as usize]);
    }
    let end = whole.len() as u64;
    assert_eq!(store.read_range(blob, end - 3..end + 5).unwrap().unwrap(), whole[whole.len() - 3..]);
    assert!(store.get_here(blob).unwrap().is_none(), "all of it was never brought");
    assert!(store.tier_status().unwrap().unwrap().parts >= 6);
}

#[test]
fn many_readers_of_one_object_bring_it_once() {
    let folder = tempdir().unwrap();
    let (depot, store, blob) = taken(folder.path(), 100_000);
    let store = Arc::new(store);
    depot.stalls_ms.store(50, Ordering::SeqCst);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || store.get(blob).unwrap().is_some())
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    assert_eq!(store.tier_status().unwrap().unwrap().brought, 1);
}

#[test]
fn nobody_waits_for_a_tier_that_stalls_but_who_asks_for_it() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    depot.stalls_ms.store(300, Ordering::SeqCst);
    let store = open_with(folder.path(), &depot);
    let began = Instant::now();
    for number in 0..20 {
        name(&store, &format!("label-{number}"), number, &[100, 70_000]);
    }
    let kept = Duration::from_secs(24 * 3600);
    store.collect(Collection { kept, is_trial: false, dropping: None }, &Vec::new).unwrap();
    assert!(began.elapsed() < Duration::from_secs(6 * 20), "{:?}", began.elapsed());
    assert!(store.tier_until(Awaited::All { labels: true }, Duration::from_millis(1)).is_err());
}

#[test]
fn results_that_labels_name_are_sent_and_others_that_are_large_are_not() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(folder.path(), &depot);
    // What was there before it began was looked for.
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    let (named, other) = (store.keep_blob(&bytes(1, 80_000)), store.keep_blob(&bytes(2, 80_000)));
    store.persist(other).unwrap();
    store.set_label("named", named).unwrap();
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    assert!(store.is_far(named).unwrap() && !store.is_far(other).unwrap());
    // Somebody puts it: then it is promised.
    store.put_blob(&bytes(2, 80_000)).unwrap();
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    assert!(store.is_far(other).unwrap());
}

#[test]
fn what_is_in_the_tier_only_is_not_lost_to_checks_backups_and_collections() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open_with(&folder.path().join("a"), &depot);
    let (tree, blobs) = name(&store, "name", 1, &LENS);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let home = folder.path().join("b");
    let store = open_with(&home, &depot);
    store.take_tier().unwrap();
    // One is here too, and old; its tree is not.
    store.get(blobs[2]).unwrap().unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(9 * 24 * 3600);
    for path in files(&home, "objects/").into_iter().chain(files(&home, "packs/")) {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
    let collection = Collection { kept: Collection::KEPT_MIN, is_trial: false, dropping: None };
    // Its tree is not here to say that it is needed: the copy may go, and comes again.
    assert!(store.collect(collection, &Vec::new).unwrap().objects <= 1);
    assert_eq!(store.get(blobs[2]).unwrap().unwrap().bytes(), bytes(102, LENS[2]));
    store.remove_label("name").unwrap();
    store.set_label("again", tree).unwrap();
    let backup = folder.path().join("backup");
    let wish = crate::Backup { point: "p".to_owned(), files: Vec::new() };
    let backed = store.backup(&backup, &wish, &mut |_, _| true).unwrap();
    assert_eq!((backed.objects, backed.missing), (5, 0));
    drop(store);
    let mut findings = Vec::new();
    let mut found = |finding| findings.push(finding);
    let mut watch = crate::Watch { progress: &mut |_, _| true, found: &mut found };
    let checked = crate::fsck(&home, &crate::Check::default(), &mut watch).unwrap();
    assert!(checked.is_clean(), "{findings:?}");
}

#[test]
fn what_the_tier_has_leaves_a_disk_that_is_full_and_what_it_has_not_stays() {
    let folder = tempdir().unwrap();
    let depot = Arc::new(TestDepot::default());
    let store = open(folder.path());
    depot.fail_after(0);
    let options = TierOptions { disk_max: Some(3 << 20), ..SOON };
    store.attach_tier(Arc::clone(&depot) as _, options).unwrap();
    let blobs: Vec<Handle> = (0..8).map(|at| store.put_blob(&bytes(at, 1 << 20)).unwrap()).collect();
    let is_here = |blob: &Handle| store.disk().unwrap().contains(*blob).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(blobs.iter().all(is_here), "nothing is in the tier, and the disk is far over its bound");
    drop(store);
    depot.heal();
    let store = open_with(folder.path(), &depot);
    store.tier_until(Awaited::All { labels: false }, PATIENCE).unwrap();
    drop(store);
    // The first one was put again; the others were not used since they were put.
    for (at, blob) in (0..).zip(&blobs) {
        let path =
            files(folder.path(), &blob.to_string()).into_iter().find(|path| path.extension().is_none());
        let hours = if at == 0 { 1 } else { 10 - at };
        let written = std::time::SystemTime::now() - Duration::from_secs(hours * 3600);
        std::fs::File::options().write(true).open(path.unwrap()).unwrap().set_modified(written).unwrap();
    }
    let store = open(folder.path());
    store.attach_tier(Arc::clone(&depot) as _, options).unwrap();
    let is_here = |blob: &Handle| store.disk().unwrap().contains(*blob).unwrap();
    let began = Instant::now();
    while store.disk().unwrap().bytes() > 3 << 20 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    let here: Vec<Handle> = blobs.iter().copied().filter(is_here).collect();
    assert!(
        (1..=3).contains(&here.len()) && here.contains(&blobs[0]),
        "no more than it takes: {}",
        here.len()
    );
    assert!(!is_here(&blobs[1]));
    assert!(store.tier_status().unwrap().unwrap().evicted >= 5);
    for (at, blob) in (0..).zip(&blobs) {
        assert_eq!(store.get(*blob).unwrap().unwrap().bytes(), bytes(at, 1 << 20));
    }
}

#[test]
fn forms_are_read_as_they_are_written_and_rubbish_is_none() {
    let objects: Vec<_> = [40, 1000, 60_000]
        .iter()
        .map(|len| (Handle::blob(&bytes(1, *len)), Object::from_vec(bytes(1, *len))))
        .collect();
    let (pack, packed) = form::pack(&objects);
    let len = form::table_len(&packed).unwrap() as usize;
    let contents = form::contents(&pack, &packed[..len]).unwrap();
    for ((key, offset), (is, object)) in contents.iter().zip(&objects) {
        assert_eq!(key, is);
        assert_eq!(packed[*offset as usize..][..object.len()], object[..]);
    }
    for at in 0..len {
        let mut table = packed[..len].to_vec();
        table[at] ^= 1;
        assert_eq!(form::contents(&pack, &table), None, "byte {at}");
    }
    assert_eq!(form::named_pack(&form::pack_name(&pack)), Some(pack));
    let owner = Owner { tier: [7; 16], home: [9; 16] };
    assert_eq!(form::parse_format(form::format_text(&owner).as_bytes()), Format::Ours(owner));
    assert_eq!(form::parse_format(b""), Format::Unknown(String::new()));
    let labels = vec![("a/b".to_owned(), Handle::u64(7)), ("c".to_owned(), objects[0].0)];
    let names = Names { labels, recipes: Vec::new() };
    let written = names.to_bytes();
    assert_eq!(Names::from_bytes(&written), Some(names));
    for at in 0..written.len() {
        let mut written = written.clone();
        written[at] ^= 1;
        assert_eq!(Names::from_bytes(&written), None, "byte {at}");
    }
}

proptest! {
    #[test]
    fn whatever_a_bucket_has_is_read_or_refused(rubbish in prop::collection::vec(any::<u8>(), 0..300), keeps in 0_usize..64) {
        let _ = form::parse_format(&rubbish);
        let _ = form::count(Some(&rubbish));
        let _ = Names::from_bytes(&rubbish);
        let mut table = b"sinew-tier-pack 1\n\0\0\0\0\0\0".to_vec();
        table.truncate(keeps);
        table.extend_from_slice(&rubbish);
        let _ = form::table_len(&table);
        prop_assert_eq!(form::contents(&[0; 16], &table), None);
    }
}

#[test]
fn what_bringing_takes_is_told_by_the_bytes_that_are_wanted_and_by_what_was_seen() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let depot = Arc::new(TestDepot::default());
    let store = open_with(first.path(), &depot);
    let (_, blobs) = name(&store, "named", 1, &[40, 5000, 70_000, 40 << 20]);
    store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
    drop(store);
    let store = open(second.path());
    // An answer takes 1 ms, and a byte 1 µs.
    let options = TierOptions { latency: Duration::from_millis(1), bytes_per_second: 1_000_000, ..SOON };
    store.attach_tier(Arc::clone(&depot) as _, options).unwrap();
    store.take_tier().unwrap();
    let micros = |object: Handle, bytes: u64| store.far_nanos(object, bytes).unwrap().unwrap() / 1000;
    // Whatever is read behind our back changes what an answer takes.
    let latency = || {
        let status = store.tier_status().unwrap().unwrap();
        assert!(status.reads > 0 || status.latency_nanos == 1_000_000, "{}", status.latency_nanos);
        status.latency_nanos / 1000
    };
    let agrees = |object, bytes, answers: u64, moved: u64| loop {
        let (before, told) = (latency(), micros(object, bytes));
        if before == latency() {
            return assert!(told.abs_diff(answers * before + moved) <= answers, "{told} by {before}");
        }
    };
    agrees(blobs[1], u64::MAX, 1, 5000);
    // What is below 1 MiB comes whole.
    agrees(blobs[2], 10, 1, 70_000);
    // All of it in pieces of 8 MiB; a part with an outboard's end, and groups of 16 KiB.
    agrees(blobs[3], u64::MAX, 5, 40 << 20);
    agrees(blobs[3], 1024, 2, (64 << 10) + (32 << 10));
    assert_eq!(store.far_nanos(Handle::blob(&[5; 100]), 1).unwrap(), None);
    // An answer that takes 300 ms adds a fifth of them.
    depot.stalls_ms.store(300, Ordering::SeqCst);
    store.get(blobs[1]).unwrap().unwrap();
    depot.stalls_ms.store(0, Ordering::SeqCst);
    assert!(micros(blobs[2], 10) >= 60_000 + 70_000, "{}", micros(blobs[2], 10));
}
