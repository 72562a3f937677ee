// SPDX-License-Identifier: Apache-2.0
//! The store's promises, one by one, with and without a disk.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use objects::{BundleRecord, Failure, FailureCode, Handle, TreeBuilder};
use tempfile::tempdir;

use super::{Options, Store};
use crate::{Error, LABEL_LEN_MAX};

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 64 << 20, relations_bytes: 1 << 20 }).unwrap()
}

fn memory_only(memory_bytes: u64) -> Store {
    Store::open(Options { home: None, memory_bytes, relations_bytes: 1 << 20 }).unwrap()
}

fn bytes(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xc3; len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn tree(entries: &[Handle]) -> TreeBuilder {
    entries.iter().copied().collect()
}

#[test]
fn every_kind_of_handle_finds_its_data() {
    let folder = tempdir().unwrap();
    for store in [memory_only(1 << 20), open(folder.path())] {
        let blob = store.keep_blob(&bytes(1, 100));
        let plain = store.keep_tree(tree(&[blob]).view());
        let failure = Failure { code: FailureCode::Trap, application: plain, detail: blob };
        let (failure, failure_tree) = failure.to_tree();
        store.keep_tree(failure_tree.view());
        for handle in [blob, blob.lowered().unwrap(), blob.identification().unwrap()] {
            assert_eq!(store.local(handle).unwrap().bytes(), bytes(1, 100));
        }
        let thunk = plain.application().unwrap();
        for handle in
            [plain, plain.lowered().unwrap(), thunk, thunk.strict().unwrap(), thunk.shallow().unwrap()]
        {
            assert_eq!(store.local(handle).unwrap().as_tree().get(0), Some(blob));
            assert!(store.contains(handle).unwrap());
        }
        assert_eq!(store.get(failure).unwrap().unwrap().as_tree(), failure_tree.view());
    }
}

#[test]
fn a_blob_never_answers_for_a_tree() {
    let store = memory_only(1 << 20);
    let entries = Handle::u64(1).as_bytes().repeat(2);
    let blob = store.keep_blob(&entries);
    let as_tree = Handle::tree(&entries).unwrap();
    assert!(store.local(blob).is_some() && store.local(as_tree).is_none());
}

#[test]
fn literals_are_never_stored_and_always_there() {
    let folder = tempdir().unwrap();
    for store in [memory_only(0), open(folder.path())] {
        for literal in [&b""[..], b"x", &[7; 30]] {
            let handles = [
                store.keep_blob(literal),
                store.keep_blob_vec(literal.to_vec()),
                store.put_blob(literal).unwrap(),
            ];
            for handle in handles {
                assert_eq!(handle.literal_bytes(), Some(literal));
                assert_eq!(store.get(handle).unwrap().unwrap().bytes(), literal);
                assert!(store.contains(handle).unwrap() && store.local(handle).is_none());
            }
        }
        assert_eq!(store.stats().memory_objects, 0);
    }
}

#[test]
fn the_same_content_is_held_once() {
    let store = memory_only(1 << 20);
    let first = store.keep_blob(&bytes(1, 100));
    assert_eq!((store.keep_blob_vec(bytes(1, 100)), store.put_blob(&bytes(1, 100)).unwrap()), (first, first));
    let empty = store.keep_tree(tree(&[]).view());
    assert_eq!(store.keep_tree(tree(&[]).view()), empty);
    assert_eq!(store.local(empty).unwrap().as_tree().len(), 0);
    assert_eq!(store.stats().memory_objects, 2);
}

#[test]
fn what_was_put_survives_and_what_was_kept_does_not() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let put: Vec<_> =
        [31, 1000, 65_535, 65_536, 500_000].map(|len| (len, store.put_blob(&bytes(1, len)).unwrap())).into();
    let put_tree = store.put_tree(tree(&[put[0].1]).view()).unwrap();
    let large_tree: TreeBuilder = (0..3000).map(Handle::u64).collect();
    let put_large_tree = store.put_tree(large_tree.view()).unwrap();
    let kept = store.keep_blob(&bytes(2, 100));
    let both = store.keep_blob(&bytes(3, 100));
    assert_eq!(store.put_blob(&bytes(3, 100)).unwrap(), both, "a put makes a kept object durable");
    drop(store);
    let store = open(folder.path());
    assert!(put.iter().all(|(_, handle)| store.local(*handle).is_none() && store.contains(*handle).unwrap()));
    for (len, handle) in put {
        assert_eq!(store.get(handle).unwrap().unwrap().bytes(), bytes(1, len));
        assert!(store.local(handle).is_some(), "read objects stay in memory");
    }
    assert_eq!(store.get(put_tree).unwrap().unwrap().as_tree().len(), 1);
    assert_eq!(store.get(put_large_tree).unwrap().unwrap().as_tree(), large_tree.view());
    assert_eq!(store.get(both).unwrap().unwrap().bytes(), bytes(3, 100));
    assert!(store.get(kept).unwrap().is_none() && !store.contains(kept).unwrap());
}

#[test]
fn a_bundle_is_stored_with_a_handle_for_every_record() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let (small, large) = (bytes(1, 100), bytes(2, 70_000));
    let inner = tree(&[Handle::blob(&small), Handle::blob(&large)]);
    let goal = inner.view().handle().application().unwrap();
    let records = [
        BundleRecord::Blob(&small),
        BundleRecord::Blob(b"literal"),
        BundleRecord::Blob(&large),
        BundleRecord::Tree(inner.view()),
        BundleRecord::Goal(goal),
    ];
    let handles = store.put_many(&records).unwrap();
    let literal = Handle::literal(b"literal").unwrap();
    assert_eq!(handles, [Handle::blob(&small), literal, Handle::blob(&large), inner.view().handle(), goal]);
    assert_eq!(store.put_many(&[]).unwrap(), []);
    drop(store);
    let store = open(folder.path());
    assert!(handles.iter().all(|handle| store.get(*handle).unwrap().is_some()));
}

#[test]
fn concurrent_puts_are_all_durable() {
    let folder = tempdir().unwrap();
    let store = Arc::new(open(folder.path()));
    let run = |id: u32| {
        let store = Arc::clone(&store);
        let work =
            move || (0..50).map(|n| store.put_blob(&bytes(n * 4 + id % 3, 200)).unwrap()).collect::<Vec<_>>();
        thread::Builder::new().spawn(work).unwrap()
    };
    let threads: Vec<_> = (0..8).map(run).collect();
    let handles: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(store.stats().disk_objects, 150);
    drop(store);
    let store = open(folder.path());
    assert!(handles.iter().all(|handle| store.get(*handle).unwrap().is_some()));
}

#[test]
fn without_a_disk_puts_fail_when_memory_is_used_up() {
    let store = memory_only(1 << 20);
    let error = store.put_blob(&bytes(0, 2 << 20)).unwrap_err();
    assert!(matches!(error, Error::Full { budget_bytes: 1_048_576, .. }), "{error}");
    let put: Vec<_> = (0..2000).map_while(|n| store.put_blob(&bytes(n, 1000)).ok()).collect();
    assert!((800..1000).contains(&put.len()), "{}", put.len());
    assert!(matches!(store.put_tree(tree(&[put[0]; 400]).view()), Err(Error::Full { .. })));
    assert_eq!(store.put_blob(&bytes(3, 1000)).unwrap(), put[3], "what is there needs no room");
    let derived: Vec<_> = (0..2000).map(|n| store.keep_blob(&bytes(n, 1100))).collect();
    assert!(store.is_full());
    assert!(put.iter().chain(&derived).all(|handle| store.local(*handle).is_some()), "nothing is dropped");
    assert!(!memory_only(1 << 20).is_full());
}

#[test]
fn labels_are_durable_and_make_what_they_name_durable() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let leaf = store.keep_blob(&bytes(1, 100));
    let root = store.keep_tree(tree(&[leaf]).view());
    store.set_label("apps/one", root.application().unwrap()).unwrap();
    store.set_label("b", Handle::u64(1)).unwrap();
    store.set_label("b", Handle::u64(2)).unwrap();
    store.set_label("c", leaf).unwrap();
    assert!(store.remove_label("c").unwrap() && !store.remove_label("c").unwrap());
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.label("apps/one").unwrap(), root.application());
    assert_eq!(store.label("c").unwrap(), None);
    let expected = [("apps/one".to_owned(), root.application().unwrap()), ("b".to_owned(), Handle::u64(2))];
    assert_eq!(store.labels().unwrap(), expected);
    assert_eq!(store.get(leaf).unwrap().unwrap().bytes(), bytes(1, 100));
}

#[test]
fn labels_without_a_disk_follow_the_same_rules() {
    let store = memory_only(1 << 20);
    assert!(matches!(store.set_label("not allowed", Handle::u64(1)), Err(Error::BadLabel { .. })));
    store.set_label(&"x".repeat(LABEL_LEN_MAX), Handle::u64(1)).unwrap();
    store.set_label("a", Handle::u64(2)).unwrap();
    assert_eq!(store.label("a").unwrap(), Some(Handle::u64(2)));
    assert_eq!(store.labels().unwrap().len(), 2);
    assert!(store.remove_label("a").unwrap() && !store.remove_label("a").unwrap());
    assert_eq!(store.label("a").unwrap(), None);
}

/// The files under `folder` that contain `needle`, and where.
fn find(folder: &Path, needle: &[u8]) -> Vec<(PathBuf, usize)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(find(&path, needle));
        } else if let Some(at) = fs::read(&path).unwrap().windows(needle.len()).position(|w| w == needle) {
            found.push((path, at));
        }
    }
    found
}

fn flip(path: &Path, at: usize, bit: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_is_reported_and_never_returned() {
    for (len, place) in [(100, ".pack"), (3000, ".pack"), (65_536, "objects"), (300_000, "objects")] {
        let folder = tempdir().unwrap();
        let store = open(folder.path());
        let good = store.put_blob(&bytes(7, 500)).unwrap();
        let handle = store.put_blob(&bytes(1, len)).unwrap();
        drop(store);
        let places = find(folder.path(), &bytes(1, len)[..60]);
        let (path, at) = places.into_iter().find(|(path, _)| path.to_string_lossy().contains(place)).unwrap();
        flip(&path, at + 57, 3);
        let store = open(folder.path());
        assert!(store.get_at_once(handle).is_none(), "and who cannot wait is told nothing of it");
        assert_eq!(store.stats().corrupt, 0);
        let error = store.get(handle).unwrap_err();
        let Error::Corrupt { handle: named, path: aside } = &error else { unreachable!("{error}") };
        assert_eq!((*named, aside.parent().unwrap()), (handle, folder.path().join("quarantine").as_path()));
        assert_eq!(fs::read(aside).unwrap().len(), len, "the bytes are kept for inspection");
        assert!(store.get(handle).unwrap().is_none() && !store.contains(handle).unwrap());
        assert_eq!((store.stats().corrupt, store.stats().disk_objects), (1, 1));
        assert_eq!(store.get(good).unwrap().unwrap().bytes(), bytes(7, 500));
        assert_eq!(store.put_blob(&bytes(1, len)).unwrap(), handle, "it can be put again");
        drop(store);
        assert_eq!(open(folder.path()).get(handle).unwrap().unwrap().bytes(), bytes(1, len));
    }
}

#[test]
fn what_the_kernel_has_is_read_at_once_and_large_objects_are_not() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let small = store.put_blob(&bytes(1, 3000)).unwrap();
    let large = store.put_blob(&bytes(2, 65_536)).unwrap();
    drop(store);
    let store = open(folder.path());
    // Some file systems cannot tell.
    if let Some(read) = store.get_at_once(small) {
        assert_eq!(read.bytes(), bytes(1, 3000));
        assert!(store.local(small).is_some(), "from now on it is in memory");
        assert_eq!((store.stats().disk_reads, store.stats().disk_read_bytes), (1, 3000));
    }
    assert!(store.get_at_once(large).is_none() && store.get_at_once(Handle::blob(&bytes(3, 99))).is_none());
    store.get(large).unwrap().unwrap();
    assert_eq!(store.get_at_once(large).unwrap().bytes(), bytes(2, 65_536));
}

#[test]
fn nobody_who_cannot_wait_reads_while_somebody_is_to_be_alone() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let handle = store.put_blob(&bytes(1, 3000)).unwrap();
    drop(store);
    let store = open(folder.path());
    let alone = store.disk().unwrap().alone();
    assert!(store.get_at_once(handle).is_none());
    drop(alone);
    assert!(store.get(handle).unwrap().is_some());
}

#[test]
fn a_damaged_tree_is_reported_before_its_entries_are_looked_at() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let entries: Vec<_> = (0..40).map(|n| Handle::blob(&bytes(n, 50))).collect();
    let handle = store.put_tree(tree(&entries).view()).unwrap();
    drop(store);
    let (path, at) = find(folder.path(), &tree(&entries).view().as_bytes()[..64]).remove(0);
    flip(&path, at + 31, 7);
    let store = open(folder.path());
    assert!(matches!(store.get(handle), Err(Error::Corrupt { .. })));
    assert!(store.persist(handle).is_ok(), "absent now");
}

#[test]
fn the_second_store_on_a_home_is_refused_until_the_first_is_gone() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let options = Options { home: Some(folder.path().to_owned()), memory_bytes: 1 << 20, relations_bytes: 0 };
    assert!(matches!(Store::open(options.clone()), Err(Error::Locked { .. })));
    drop(store);
    drop(Store::open(options).unwrap());
}
