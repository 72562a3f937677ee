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

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn what_all_have_on_the_disk_is_bounded_and_who_has_no_room_waits() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let unfinished = Arc::new(Unfinished::new(64 * MIB));
    let sink = || StoreSink::new(Arc::clone(&store), Arc::clone(&unfinished));
    let (mut one, mut other, mut short) = (sink(), sink(), sink());
    assert!(one.has_room(24 * MIB) && one.has_room(20 * MIB));
    assert_eq!(unfinished.bytes(), 24 * MIB);
    assert!(!other.has_room(24 * MIB), "the long ones have 40 MiB");
    assert!(short.has_room(500 << 10), "the short ones wait for none that are longer");
    short.forget();
    one.begin();
    for number in 0..3 {
        one.take(piece(number)).await.unwrap();
    }
    assert_eq!(unfinished.bytes(), 24 * MIB, "nothing had come before it began");
    let waiting = tokio::spawn(async move { other.room(24 * MIB).await.map(|()| other) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    // What begins anew needs room anew: what it had is kept until its file is gone.
    one.begin();
    let mut other = waiting.await.unwrap().unwrap();
    assert_eq!(temporary(folder.path()), 0);
    assert!(!one.has_room(24 * MIB) && other.has_room(24 * MIB));
    for number in 0..5 {
        other.take(piece(number)).await.unwrap();
    }
    other.end().await.unwrap();
    let handle = other.kept().unwrap();
    assert_eq!(handle.size(), 5 * PIECE_BYTES as u64);
    until(|| unfinished.bytes() == 0).await;
    assert!(store.contains(handle).unwrap() && !other.is_refused());
}

#[tokio::test]
async fn what_nobody_knows_the_length_of_gets_more_and_more_and_nobody_gets_all() {
    let folder = tempdir().unwrap();
    let unfinished = Arc::new(Unfinished::new(64 * MIB));
    let mut sink = StoreSink::new(open(folder.path()), Arc::clone(&unfinished));
    assert!(sink.has_room(PIECE_BYTES as u64));
    assert_eq!(unfinished.bytes(), 0, "what stays in memory needs none");
    let grown = (1..=32 * 4).filter(|quarters| {
        let before = unfinished.bytes();
        assert!(sink.has_room(quarters * MIB / 4));
        unfinished.bytes() != before
    });
    assert!(grown.count() < 10);
    assert_eq!(unfinished.bytes(), 32 * MIB);
    assert!(!sink.has_room(33 * MIB));
    assert_eq!(unfinished.bytes(), 32 * MIB, "it keeps what it has");
    sink.forget();
    assert_eq!(unfinished.bytes(), 0);
    let why = sink.room(33 * MIB).await.unwrap_err();
    assert!(why.contains("33554432 at most") && sink.is_refused(), "{why}");
}

#[tokio::test]
async fn what_is_short_is_kept_too() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let mut sink = StoreSink::new(Arc::clone(&store), Arc::new(Unfinished::new(64 * MIB)));
    sink.take(vec![7; 1000].into()).await.unwrap();
    assert_eq!(sink.kept(), None);
    sink.end().await.unwrap();
    assert_eq!(store.get(sink.kept().unwrap()).unwrap().unwrap().bytes(), [7; 1000]);
}

#[tokio::test]
async fn what_is_dropped_in_the_middle_is_removed_by_another_thread() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let unfinished = Arc::new(Unfinished::new(1 << 30));
    let mut sinks = Vec::new();
    for _ in 0..5 {
        let mut sink = StoreSink::new(Arc::clone(&store), Arc::clone(&unfinished));
        assert!(sink.has_room(2 * PIECE_BYTES as u64));
        sink.take(piece(1)).await.unwrap();
        sink.take(piece(2)).await.unwrap();
        sinks.push(sink);
    }
    assert!(temporary(folder.path()) >= 5 && unfinished.bytes() >= 10 * PIECE_BYTES as u64);
    drop(sinks);
    until(|| unfinished.bytes() == 0 && temporary(folder.path()) == 0).await;
    // Also where there is no runtime any more.
    let mut sink = StoreSink::new(store, Arc::clone(&unfinished));
    assert!(sink.has_room(2 * PIECE_BYTES as u64));
    sink.take(piece(1)).await.unwrap();
    std::thread::Builder::new().spawn(move || drop(sink)).unwrap().join().unwrap();
    assert_eq!((unfinished.bytes(), temporary(folder.path())), (0, 0));
}
