// SPDX-License-Identifier: Apache-2.0
//! What sources may have on the disk, and what they leave there.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use store::Options;
use tempfile::tempdir;

use super::*;

fn open(home: &Path) -> Arc<Store> {
    let home = Some(home.to_owned());
    Arc::new(Store::open(Options { home, memory_bytes: 16 << 20, relations_bytes: 1 << 18 }).unwrap())
}

fn piece(number: u8) -> Bytes {
    vec![number; PIECE_BYTES].into()
}

/// Files of writers that live.
fn temporary(home: &Path) -> usize {
    std::fs::read_dir(home.join("tmp")).unwrap().count()
}

async fn until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "it never holds");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_all_have_on_the_disk_is_bounded_and_given_back() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let unfinished = Arc::new(Unfinished::new(5 * PIECE_BYTES as u64));
    let sink = || StoreSink::new(Arc::clone(&store), Arc::clone(&unfinished));
    let (mut one, mut other) = (sink(), sink());
    for number in 0..3 {
        one.take(piece(number)).await.unwrap();
    }
    for number in 0..2 {
        other.take(piece(number)).await.unwrap();
    }
    assert_eq!(unfinished.bytes(), 5 * PIECE_BYTES as u64);
    let why = other.take(piece(9)).await.unwrap_err();
    assert!(why.contains("at most 1310720") && other.is_refused(), "{why}");
    // With that the other has room: it was dropped.
    until(|| unfinished.bytes() == 3 * PIECE_BYTES as u64).await;
    one.take(piece(3)).await.unwrap();
    // What begins anew counts from there on.
    one.begin();
    until(|| unfinished.bytes() == 0 && temporary(folder.path()) == 0).await;
    for number in 0..5 {
        one.take(piece(number)).await.unwrap();
    }
    let handle = one.finish().await.unwrap();
    assert_eq!(handle.size(), 5 * PIECE_BYTES as u64);
    until(|| unfinished.bytes() == 0).await;
    assert!(store.contains(handle).unwrap());
}

#[tokio::test]
async fn what_is_dropped_in_the_middle_is_removed_by_another_thread() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let unfinished = Arc::new(Unfinished::new(1 << 30));
    let mut sinks = Vec::new();
    for _ in 0..5 {
        let mut sink = StoreSink::new(Arc::clone(&store), Arc::clone(&unfinished));
        sink.take(piece(1)).await.unwrap();
        sink.take(piece(2)).await.unwrap();
        sinks.push(sink);
    }
    assert!(temporary(folder.path()) >= 5);
    drop(sinks);
    until(|| unfinished.bytes() == 0 && temporary(folder.path()) == 0).await;
    // Also where there is no runtime any more.
    let mut sink = StoreSink::new(store, Arc::clone(&unfinished));
    sink.take(piece(1)).await.unwrap();
    std::thread::Builder::new().spawn(move || drop(sink)).unwrap().join().unwrap();
    assert_eq!((unfinished.bytes(), temporary(folder.path())), (0, 0));
}
