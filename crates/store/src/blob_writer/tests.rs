// SPDX-License-Identifier: Apache-2.0
//! Streaming blobs of every size class, whole and given up.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use objects::Handle;
use tempfile::tempdir;

use crate::{Error, Options, Store};

const MEMORY_BYTES: u64 = 8 << 20;

fn open(home: Option<&Path>) -> Store {
    let home = home.map(Path::to_owned);
    Store::open(Options { home, memory_bytes: MEMORY_BYTES, relations_bytes: 1 << 20 }).unwrap()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

fn stream(store: &Store, bytes: &[u8], piece: usize) -> Handle {
    let mut writer = store.blob_writer().unwrap();
    for piece in bytes.chunks(piece) {
        writer.write(piece).unwrap();
    }
    assert_eq!((writer.len(), writer.is_empty()), (bytes.len() as u64, bytes.is_empty()));
    writer.finish().unwrap()
}

#[test]
fn a_streamed_blob_is_the_same_as_one_put_at_once() {
    let folder = tempdir().unwrap();
    for home in [None, Some(folder.path())] {
        let store = open(home);
        for len in [0, 1, 30, 31, 1000, 65_535, 65_536, 65_537, 300_000, 1_000_001] {
            for piece in [7_777, 65_536, 1 << 20] {
                let bytes = bytes(len);
                let handle = stream(&store, &bytes, piece);
                assert_eq!(handle, Handle::blob(&bytes), "{len} in pieces of {piece}");
                assert_eq!(store.get(handle).unwrap().unwrap().bytes(), bytes);
            }
        }
    }
    let store = open(Some(folder.path()));
    for len in [31, 65_535, 65_536, 1_000_001] {
        assert_eq!(store.get(Handle::blob(&bytes(len))).unwrap().unwrap().bytes(), bytes(len), "{len}");
    }
    assert_eq!(store.stats().disk_objects, 7, "each once; literals are in their handle");
    assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let folder = tempdir().unwrap();
    let store = open(Some(folder.path()));
    for len in [100, 200_000] {
        let mut writer = store.blob_writer().unwrap();
        writer.write(&bytes(len)).unwrap();
        drop(writer);
    }
    assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
    assert_eq!((store.stats().disk_objects, store.stats().memory_objects), (0, 0));
}

#[test]
fn without_a_disk_the_budget_ends_a_blob() {
    let store = open(None);
    let mut writer = store.blob_writer().unwrap();
    let piece = bytes(1 << 20);
    let error = (0..20).find_map(|_| writer.write(&piece).err()).unwrap();
    assert!(matches!(error, Error::Full { budget_bytes: MEMORY_BYTES, .. }), "{error}");
    drop(writer);
    let handle = stream(&store, &piece, 1 << 16);
    assert_eq!(store.get(handle).unwrap().unwrap().len(), 1 << 20);
}

#[test]
fn a_writer_outlives_the_store_that_made_it() {
    let folder = tempdir().unwrap();
    let store = open(Some(folder.path()));
    let mut writer = store.blob_writer().unwrap();
    writer.write(&bytes(100_000)).unwrap();
    drop(store);
    writer.write(&bytes(10)).unwrap();
    let handle = writer.finish().unwrap();
    let store = open(Some(folder.path()));
    assert_eq!(store.get(handle).unwrap().unwrap().len(), 100_010);
}
