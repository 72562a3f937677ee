// SPDX-License-Identifier: Apache-2.0
//! Images that are alike, and bounds. Copies are tested where programs run.
#![allow(clippy::unwrap_used)]

use objects::TreeBuilder;

use super::*;

const PIECES: usize = 12;

fn store() -> Store {
    Store::open(store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 }).unwrap()
}

/// A snapshot whose memory has this in its pieces.
fn snapshot(store: &Store, bytes: &[u8]) -> Snapshot {
    let is_zero = |piece: &[u8]| piece.iter().all(|byte| *byte == 0);
    let pieces =
        bytes.chunks(PIECE_BYTES).map(|piece| store.keep_blob(if is_zero(piece) { &[] } else { piece }));
    let pieces: TreeBuilder = pieces.collect();
    let memory = store.keep_tree(pieces.view());
    let state = [bytes.len() as u64, 0, 0, 0].map(u64::to_le_bytes).concat();
    Snapshot::decode(memory, &state).unwrap()
}

/// Bytes that are another's but for a few pages, from a number on.
fn changed(bytes: &[u8], number: usize, pages: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for page in 0..pages {
        let at = (page * 5 + number) * 4096 % bytes.len() + 100;
        bytes[at..at + 8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    }
    bytes
}

fn first() -> Vec<u8> {
    let mut bytes = vec![0; PIECES * PIECE_BYTES];
    for (at, page) in bytes.chunks_mut(4096).enumerate().filter(|(at, _)| at % 3 != 0) {
        page.fill(at as u8 | 1);
    }
    // One whole piece of zeros.
    bytes[PIECE_BYTES..2 * PIECE_BYTES].fill(0);
    bytes
}

#[test]
fn what_differs_little_takes_little() {
    let (store, images) = (store(), Images::new(1 << 30));
    let first = first();
    let mut made = vec![images.of(&snapshot(&store, &first), &store).unwrap()];
    for number in 0..50 {
        made.push(images.of(&snapshot(&store, &changed(&first, number, 20)), &store).unwrap());
    }
    // It is longer, and another one has too little in common with it.
    made.push(images.of(&snapshot(&store, &[&first[..], &[9; PIECE_BYTES]].concat()), &store).unwrap());
    let stranger: Vec<u8> = (0..9 << 20).map(|at| (at * 31 / 7) as u8).collect();
    let stranger = images.of(&snapshot(&store, &stranger), &store).unwrap();
    assert!(made.iter().all(|image| image.shares_with(&made[0])) && !stranger.shares_with(&made[0]));
    let entries = images.entries.lock();
    let alone = (PIECES - 1) as u64 * PIECE_BYTES as u64 * 2 / 3;
    assert!(made[0].common_bytes().unwrap() <= alone + 4096, "pages of zeros take nothing");
    assert!(entries.bytes < 2 * alone + (9 << 20), "{} bytes", entries.bytes);
    assert_eq!((entries.files, entries.by_memory.len(), entries.families.len()), (3, 53, 2));
}

#[test]
fn what_is_not_used_goes() {
    let (store, first) = (store(), first());
    let of = |number| snapshot(&store, &changed(&first, number, 20));
    // Room for one that stands alone, and a few that are like it.
    let alone = Images::new(1).of(&of(0), &store).unwrap().common_bytes().unwrap();
    let images = Images::new(alone + 20_000);
    let begun = images.of(&of(0), &store).unwrap();
    for number in 1..100 {
        let used = images.of(&of(number % 7), &store).unwrap();
        let new = images.of(&of(number + 100), &store).unwrap();
        assert!(used.shares_with(&begun) && new.shares_with(&begun), "{number}");
    }
    let used = images.of(&of(3), &store).unwrap();
    let again = images.of(&of(3), &store).unwrap();
    assert!(Arc::ptr_eq(&used, &again));
    assert!((2..30).contains(&images.entries.lock().by_memory.len()));
    // Nobody has room: only the last one is there, and what it shares with nobody.
    let images = Images::new(1);
    for number in 0..9 {
        let image = images.of(&of(number), &store).unwrap();
        let entries = images.entries.lock();
        assert_eq!((entries.by_memory.len(), entries.families.len()), (1, 1));
        assert_eq!(entries.bytes, image.own_bytes().unwrap() + image.common_bytes().unwrap());
    }
}
