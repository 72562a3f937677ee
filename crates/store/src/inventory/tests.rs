// SPDX-License-Identifier: Apache-2.0
//! What is told of what is stored, in pages of any length, also while it changes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use objects::TreeBuilder;
use tempfile::tempdir;

use super::*;
use crate::recipes::tests::{age, application, apply, collect, open, output};
use crate::{Awaited, Dropping, FolderDepot, Options, TierOptions};

const ALL: Sought = Sought { after: None, limit: 1000, kind: None, bytes_min: 0 };

/// All that is sought, in pages, which are told to somebody.
fn paged(store: &Store, sought: Sought, mut told: impl FnMut(&Inventory)) -> Vec<Stored> {
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let page = store.inventory(&Sought { after, ..sought }).unwrap();
        assert!(page.objects.len() <= sought.limit);
        assert!(page.next.is_none_or(|next| Some(next) > after), "it goes on");
        told(&page);
        all.extend(page.objects);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

fn all(store: &Store, sought: Sought) -> Vec<Stored> {
    paged(store, sought, |_| {})
}

fn places(store: &Store) -> HashMap<Handle, Stored> {
    all(store, ALL).into_iter().map(|stored| (stored.handle, stored)).collect()
}

fn bytes(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn put_tree(store: &Store, entries: u64) -> Handle {
    let tree: TreeBuilder = (0..entries).map(Handle::u64).collect();
    store.put_tree(tree.view()).unwrap()
}

/// Blobs and trees, in packs and as files.
fn put_some(store: &Store) -> BTreeMap<Handle, u64> {
    let lens = (0..300).map(|number| (number, if number % 10 == 3 { 70_000 } else { 40 + number as usize }));
    let blobs = lens.map(|(number, len)| (store.put_blob(&bytes(number, len)).unwrap(), len as u64));
    let trees = [1, 40, 3000].map(|entries| (put_tree(store, entries), entries * 32));
    blobs.chain(trees).collect()
}

fn told(stored: &[Stored]) -> Vec<(Handle, u64)> {
    stored.iter().map(|stored| (stored.handle, stored.bytes)).collect()
}

#[test]
fn everything_is_told_once_and_in_order_however_long_pages_are() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let mut put = put_some(&store);
    // The index has these spots now, and others later, of which one is newer than what it says.
    store.set_label("settled", Handle::u64(1)).unwrap();
    put.insert(store.put_blob(&bytes(1000, 50)).unwrap(), 50);
    store.disk().unwrap().index().packs().roll();
    age(folder.path());
    store.put_blob(&bytes(1, 41)).unwrap();
    let expected: Vec<(Handle, u64)> = put.into_iter().collect();
    let check = |store: &Store| {
        for limit in [1, 7, 303, 304, 305, 1000] {
            let stored = all(store, Sought { limit, ..ALL });
            assert_eq!(told(&stored), expected, "pages of {limit}");
            assert!(stored.iter().all(|it| it.kept == Kept::Disk && it.is_promised && !it.is_tiered));
        }
    };
    check(&store);
    drop(store);
    let store = open(folder.path());
    check(&store);
    // Other files are no objects, nor is one of which a part is lost.
    let (large, _) = *expected.iter().find(|(key, _)| is_large(*key)).unwrap();
    let file = store.disk().unwrap().files().path(large);
    std::fs::copy(&file, file.with_extension("outboard")).unwrap();
    check(&store);
    std::fs::write(&file, b"cut short").unwrap();
    assert_eq!(told(&all(&store, ALL)).len(), expected.len() - 1);
}

#[test]
fn what_the_index_learns_of_while_it_is_listed_is_told() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let put = put_some(&store);
    let settles = || store.disk().unwrap().index().settle().unwrap();
    let page = store.inventory_while(&ALL, settles).unwrap();
    assert!(page.objects.iter().all(|it| it.kept == Kept::Disk));
    assert_eq!(told(&page.objects), put.into_iter().collect::<Vec<_>>());
}

#[test]
fn only_what_is_sought_is_told_and_little_of_it_in_bounded_steps() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    put_some(&store);
    let blobs = |sought: Sought| told(&all(&store, sought)).len();
    assert_eq!(blobs(Sought { kind: Some(Kind::Tree), ..ALL }), 3);
    assert_eq!(blobs(Sought { kind: Some(Kind::Blob), limit: 9, ..ALL }), 300);
    assert_eq!(blobs(Sought { bytes_min: 70_000, ..ALL }), 31);
    assert_eq!(blobs(Sought { bytes_min: 96_000, kind: Some(Kind::Blob), ..ALL }), 0);
    // Many of which none is sought.
    let objects: Vec<Vec<u8>> = (0..3 * ROWS_MAX as u64).map(|number| bytes(number, 39)).collect();
    let records: Vec<_> = objects.iter().map(|bytes| objects::BundleRecord::Blob(bytes)).collect();
    store.put_many(&records).unwrap();
    drop(store);
    let store = open(folder.path());
    let (mut pages, mut empty) = (0, 0);
    let trees = paged(&store, Sought { kind: Some(Kind::Tree), ..ALL }, |page| {
        pages += 1;
        empty += usize::from(page.objects.is_empty());
    });
    assert_eq!((trees.len(), pages), (3, 4), "a page for each so many rows");
    assert!(empty > 0);
    assert_eq!(all(&store, ALL).len(), 303 + objects.len());
}

#[test]
fn where_an_object_is_and_whether_it_is_promised_is_told() {
    let (folder, second) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(folder.path());
    let put = store.put_blob(&bytes(1, 5000)).unwrap();
    let maker = application(&store, &[put]);
    let result = apply(&store, maker, 60_000);
    let entries: TreeBuilder = [result].into_iter().collect();
    let named = store.keep_tree(entries.view());
    store.set_label("kept", named).unwrap();
    store.flush_relations().unwrap();
    let fresh = store.keep_blob(&bytes(2, 500));
    let passed = store.pass_blob(&bytes(3, 500));
    let seen = |store: &Store, handle: Handle| {
        places(store).get(&handle).map(|it| (it.kept, it.is_tiered, it.is_promised))
    };
    assert_eq!(seen(&store, put), Some((Kept::Disk, false, true)));
    assert_eq!(seen(&store, result), Some((Kept::Disk, false, false)));
    assert_eq!(seen(&store, fresh), Some((Kept::Memory, false, false)));
    assert_eq!(seen(&store, passed), None);
    drop(store);
    age(folder.path());
    let store = open(folder.path());
    assert_eq!(collect(&store, Some(Dropping { bytes_min: 0, nanos_per_kib: u64::MAX })).dropped, 1);
    assert_eq!(seen(&store, result), Some((Kept::Dropped, false, false)));
    let depot = second.path().join("depot");
    let attach = |store: &Store| {
        let depot = Arc::new(FolderDepot::open(&depot).unwrap());
        store.attach_tier(depot, TierOptions::default()).unwrap();
    };
    attach(&store);
    store.tier_until(Awaited::All { labels: true }, Duration::from_secs(60)).unwrap();
    assert_eq!(seen(&store, put), Some((Kept::Disk, true, true)));
    assert_eq!(seen(&store, result), Some((Kept::Dropped, false, false)));
    store.keep_blob(&output(maker));
    assert_eq!(seen(&store, result), Some((Kept::Memory, false, false)), "it was made again");
    drop(store);
    let store = open(&second.path().join("home"));
    attach(&store);
    store.take_tier().unwrap();
    assert_eq!(seen(&store, put), Some((Kept::Tier, true, true)));
    assert_eq!(seen(&store, result), Some((Kept::Dropped, false, true)), "nobody knows better here");
    store.get(put).unwrap().unwrap();
    assert_eq!(seen(&store, put), Some((Kept::Disk, true, true)));
}

#[test]
fn a_store_without_a_disk_tells_what_is_in_memory() {
    let store = Store::open(Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 18 }).unwrap();
    let put = store.put_blob(&bytes(1, 500)).unwrap();
    let kept = store.keep_blob(&bytes(2, 600));
    let places = places(&store);
    let seen = |handle| (places[&handle].kept, places[&handle].bytes, places[&handle].is_promised);
    assert_eq!(
        (places.len(), seen(put), seen(kept)),
        (2, (Kept::Memory, 500, true), (Kept::Memory, 600, false))
    );
    assert_eq!(told(&all(&store, Sought { limit: 1, ..ALL })).len(), 2);
}

#[test]
fn what_stays_is_told_once_while_others_put_and_collect_and_what_went_is_not() {
    let folder = tempdir().unwrap();
    let store = Arc::new(open(folder.path()));
    let stays = put_some(&store);
    let entries: TreeBuilder = stays.keys().copied().collect();
    let root = store.put_tree(entries.view()).unwrap();
    store.set_label("stays", root).unwrap();
    let has_ended = Arc::new(AtomicBool::new(false));
    let putting = std::thread::spawn({
        let (store, has_ended) = (Arc::clone(&store), Arc::clone(&has_ended));
        move || {
            let mut number = 10_000;
            while !has_ended.load(Ordering::Relaxed) {
                store.put_blob(&bytes(number, if number % 5 == 0 { 66_000 } else { 2000 })).unwrap();
                // Now and then it is written into the index.
                if number % 7 == 0 {
                    store.set_label("moves", Handle::u64(number)).unwrap();
                }
                number += 1;
            }
        }
    });
    let collecting = std::thread::spawn({
        let (store, has_ended) = (Arc::clone(&store), Arc::clone(&has_ended));
        let home = folder.path().to_owned();
        move || {
            let mut went = 0;
            while !has_ended.load(Ordering::Relaxed) || went == 0 {
                store.disk().unwrap().index().packs().roll();
                age(&home);
                went += collect(&store, None).objects;
            }
        }
    });
    let mut stays = stays;
    let mut held = Vec::new();
    for round in 0..40 {
        // Others have the index learn of it; it is held, so that it stays.
        let new = store.put_blob(&bytes(5000 + round, 900)).unwrap();
        held.push(store.get(new).unwrap());
        stays.insert(new, 900);
        let stored = all(&store, Sought { limit: 37, ..ALL });
        assert!(stored.is_sorted_by(|one, next| one.handle < next.handle), "{round}");
        let here: BTreeMap<Handle, u64> =
            stored.iter().filter(|it| it.kept == Kept::Disk).map(|it| (it.handle, it.bytes)).collect();
        for (key, len) in &stays {
            assert_eq!(here.get(key), Some(len), "{round}: {key}");
        }
    }
    has_ended.store(true, Ordering::Relaxed);
    putting.join().unwrap();
    collecting.join().unwrap();
    drop(held);
    drop(Arc::into_inner(store).unwrap());
    let store = open(folder.path());
    age(folder.path());
    collect(&store, None);
    let left: Vec<Handle> = all(&store, ALL).into_iter().map(|it| it.handle).collect();
    stays.retain(|_, len| *len != 900);
    let mut expected: Vec<Handle> = stays.into_keys().chain([root]).collect();
    expected.sort_unstable();
    assert_eq!(left, expected);
}
