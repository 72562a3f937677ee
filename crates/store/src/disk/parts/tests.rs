// SPDX-License-Identifier: Apache-2.0
//! Parts of large objects, as a store that was opened anew reads them.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use objects::{Handle, TreeBuilder};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::{Error, Options, Store};

const MIB: usize = 1 << 20;
/// What a part of a few bytes may cost: two groups, and a path through the outboard.
const PART_BYTES_MAX: u64 = (32 << 10) + 2048;

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 64 << 20, relations_bytes: 1 << 20 }).unwrap()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251 + at / 16_384) as u8).collect()
}

/// A home with one blob, which came in pieces.
fn with_blob(bytes: &[u8]) -> (TempDir, Handle) {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let mut writer = store.blob_writer().unwrap();
    bytes.chunks(100_000).for_each(|piece| writer.write(piece).unwrap());
    let handle = writer.finish().unwrap();
    (folder, handle)
}

fn file_of(home: &Path, handle: Handle) -> PathBuf {
    let first = handle.hash_bytes()[0];
    home.join(format!("objects/{first:02x}/{handle}"))
}

fn outboard_of(home: &Path, handle: Handle) -> PathBuf {
    file_of(home, handle).with_added_extension("outboard")
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn a_kilobyte_of_a_large_blob_costs_kilobytes() {
    let bytes = bytes(40 * MIB + 12_345);
    let (folder, handle) = with_blob(&bytes);
    let store = open(folder.path());
    for begin in [0, 1, 16_383, 16_384, 20 * MIB - 512, 40 * MIB + 11_000] {
        let before = store.stats();
        let part = store.read_range(handle, begin as u64..begin as u64 + 1024).unwrap().unwrap();
        assert!(part == bytes[begin..begin + 1024], "from {begin}");
        let after = store.stats();
        let read = after.disk_read_bytes - before.disk_read_bytes;
        assert!(read <= PART_BYTES_MAX, "{read} bytes were read from {begin}");
        assert_eq!((after.disk_reads - before.disk_reads, after.memory_objects), (1, 0));
    }
    // What is past the end is left out.
    let end = bytes.len() as u64;
    assert_eq!(store.read_range(handle, end - 3..end + 10).unwrap().unwrap(), bytes[bytes.len() - 3..]);
    assert_eq!(store.read_range(handle, end + 1..end + 10).unwrap().unwrap(), []);
    assert_eq!(store.read_range(handle, 5..5).unwrap().unwrap(), []);
    assert!(store.read_range(Handle::blob(&bytes[1..]), 0..9).unwrap().is_none());
}

#[test]
fn parts_of_trees_of_small_objects_and_of_literals() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    let tree: TreeBuilder = (0..100_000).map(Handle::u64).collect();
    let large = store.put_tree(tree.view()).unwrap();
    let small = store.put_blob(&bytes(5000)).unwrap();
    drop(store);
    let store = open(folder.path());
    let part = store.read_range(large, 32 * 70_000..32 * 70_001).unwrap().unwrap();
    assert_eq!(part, Handle::u64(70_000).as_bytes());
    assert!(store.stats().disk_read_bytes <= PART_BYTES_MAX);
    assert_eq!(store.read_range(small, 4000..4004).unwrap().unwrap(), bytes(5000)[4000..4004]);
    assert_eq!(store.read_range(Handle::blob(b"hello"), 1..3).unwrap().unwrap(), b"el");
}

#[test]
fn an_outboard_that_is_not_there_is_made_once() {
    let bytes = bytes(3 * MIB + 1);
    let (folder, handle) = with_blob(&bytes);
    fs::remove_file(outboard_of(folder.path(), handle)).unwrap();
    let store = open(folder.path());
    let disk_bytes = store.stats().disk_bytes;
    assert_eq!(store.read_range(handle, 7..9).unwrap().unwrap(), bytes[7..9]);
    let after = store.stats();
    assert!(after.disk_read_bytes > 3 * MIB as u64, "all of it had to be read");
    assert_eq!(
        after.disk_bytes - disk_bytes,
        fs::metadata(outboard_of(folder.path(), handle)).unwrap().len()
    );
    assert_eq!(store.read_range(handle, 70_000..70_002).unwrap().unwrap(), bytes[70_000..70_002]);
    assert!(store.stats().disk_read_bytes - after.disk_read_bytes <= PART_BYTES_MAX);
}

#[test]
fn an_outboard_that_is_damaged_is_made_anew() {
    let bytes = bytes(2 * MIB);
    let (folder, handle) = with_blob(&bytes);
    let path = outboard_of(folder.path(), handle);
    let right = fs::read(&path).unwrap();
    // On the way from the root to the first group.
    for at in [0, 40, 63, right.len() - 192, right.len() - 1] {
        flip(&path, at as u64);
        let store = open(folder.path());
        assert_eq!(store.read_range(handle, 0..5).unwrap().unwrap(), bytes[..5]);
        assert!(fs::read(&path).unwrap() == right, "byte {at}");
        assert_eq!(store.stats().corrupt, 0, "the object is sound");
    }
    for other in [Vec::new(), right[1..].to_vec(), [&right[..], b"more"].concat()] {
        fs::write(&path, other).unwrap();
        let store = open(folder.path());
        assert_eq!(store.read_range(handle, 0..5).unwrap().unwrap(), bytes[..5]);
        assert!(fs::read(&path).unwrap() == right);
    }
}

#[test]
fn a_flipped_bit_is_found_in_what_is_read_and_told() {
    let bytes = bytes(2 * MIB);
    let (folder, handle) = with_blob(&bytes);
    flip(&file_of(folder.path(), handle), 1_000_000);
    let store = open(folder.path());
    assert_eq!(store.read_range(handle, 0..5).unwrap().unwrap(), bytes[..5], "it is elsewhere");
    let error = store.read_range(handle, 999_999..1_000_005).unwrap_err();
    let Error::Corrupt { handle: told, path } = error else { panic!("{error}") };
    assert_eq!(told, handle);
    assert_eq!(fs::metadata(path).unwrap().len(), bytes.len() as u64, "its bytes are kept");
    assert!(!outboard_of(folder.path(), handle).exists());
    assert_eq!(store.stats().corrupt, 1);
    assert!(store.read_range(handle, 0..5).unwrap().is_none());
    // It can be put again.
    assert_eq!(store.put_blob(&bytes).unwrap(), handle);
    assert_eq!(store.read_range(handle, 999_999..1_000_005).unwrap().unwrap(), bytes[999_999..1_000_005]);
}

#[test]
fn damage_is_found_while_an_outboard_is_made_and_in_a_file_that_was_cut() {
    let bytes = bytes(2 * MIB);
    for is_cut in [false, true] {
        let (folder, handle) = with_blob(&bytes);
        let path = file_of(folder.path(), handle);
        if is_cut {
            File::options().write(true).open(&path).unwrap().set_len(MIB as u64).unwrap();
        } else {
            fs::remove_file(outboard_of(folder.path(), handle)).unwrap();
            flip(&path, 1_900_000);
        }
        let store = open(folder.path());
        let error = store.read_range(handle, 0..5).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(store.read_range(handle, 0..5).unwrap().is_none());
    }
}

#[test]
fn outboards_without_objects_are_removed_when_the_home_is_opened() {
    let (folder, handle) = with_blob(&bytes(2 * MIB));
    fs::remove_file(file_of(folder.path(), handle)).unwrap();
    let store = open(folder.path());
    assert!(!outboard_of(folder.path(), handle).exists());
    assert_eq!(store.stats().disk_objects, 0);
}

#[test]
fn parts_are_read_while_others_read_and_make_the_outboard() {
    let bytes = bytes(8 * MIB);
    let (folder, handle) = with_blob(&bytes);
    fs::remove_file(outboard_of(folder.path(), handle)).unwrap();
    let store = open(folder.path());
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (store, bytes) = (&store, &bytes);
            scope.spawn(move || {
                for round in 0..20_usize {
                    let begin = (thread * 977_777 + round * 333_333) % (8 * MIB - 5000);
                    let part = store.read_range(handle, begin as u64..begin as u64 + 5000).unwrap().unwrap();
                    assert!(part == bytes[begin..begin + 5000], "from {begin}");
                }
            });
        }
    });
    assert!(store.stats().disk_read_bytes < 20 * MIB as u64, "one has made it for all");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_part_is_the_part(
        len in MIB..MIB + 200_000,
        parts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..20),
    ) {
        let bytes = bytes(len);
        let (folder, handle) = with_blob(&bytes);
        let store = open(folder.path());
        for (one, other) in parts {
            let (one, other) = (one.index(len + 1), other.index(len + 1));
            let range = one.min(other)..one.max(other);
            let part = store.read_range(handle, range.start as u64..range.end as u64).unwrap().unwrap();
            prop_assert!(part == bytes[range]);
        }
    }
}

#[test]
fn who_finds_damage_late_leaves_what_was_put_again_alone() {
    let bytes = bytes(2 * MIB);
    let (folder, handle) = with_blob(&bytes);
    let store = open(folder.path());
    let disk = store.disk().unwrap();
    // Two have the damaged file open; the second looks at it when all is well again.
    flip(&file_of(folder.path(), handle), 1_000_000);
    let (damaged, _) = disk.files().open_object(handle).unwrap().unwrap();
    store.read_range(handle, 999_999..1_000_005).unwrap_err();
    for is_put_again in [false, true] {
        if is_put_again {
            store.put_blob(&bytes).unwrap();
        }
        assert!(disk.condemn(handle, &damaged).unwrap().is_none());
        assert_eq!(disk.contains(handle).unwrap(), is_put_again);
        assert_eq!(store.stats().corrupt, 1);
    }
    drop(store);
    let store = open(folder.path());
    assert!(store.get(handle).unwrap().unwrap().bytes() == bytes, "what was acknowledged is there");
}

#[test]
fn what_was_opened_damaged_is_not_verified_by_what_is_put_in_its_place() {
    let bytes = bytes(2 * MIB);
    let (folder, handle) = with_blob(&bytes);
    let store = open(folder.path());
    flip(&file_of(folder.path(), handle), 1_000_000);
    let is_again = Cell::new(false);
    let put_again = || {
        if !is_again.replace(true) {
            store.read_range(handle, 999_999..1_000_005).unwrap_err();
            store.put_blob(&bytes).unwrap();
        }
    };
    let read = store.disk().unwrap().read_opened(handle, put_again).unwrap().unwrap();
    assert!(is_again.get() && read.bytes() == bytes);
}

#[test]
fn what_is_put_again_while_many_find_it_damaged_stays() {
    let bytes = bytes(MIB + 5);
    let (folder, handle) = with_blob(&bytes);
    let store = open(folder.path());
    for round in 0..20 {
        flip(&file_of(folder.path(), handle), 500_000 + round);
        let found = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| match store.read_range(handle, 400_000..600_000) {
                    Ok(Some(part)) => assert!(part == bytes[400_000..600_000]),
                    Ok(None) => {}
                    Err(Error::Corrupt { .. }) => {
                        found.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        // Memory does not have it then.
                        let object = crate::Object::from_vec(bytes.clone());
                        store.disk().unwrap().write(&[(handle, object)], Vec::new()).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                });
            }
        });
        assert_eq!(found.into_inner(), 1, "round {round}");
        assert!(store.read_range(handle, 0..MIB as u64).unwrap().unwrap() == bytes[..MIB], "round {round}");
        // As a process that was started anew would find it.
        assert!(store.disk().unwrap().contains(handle).unwrap());
    }
    assert_eq!(store.stats().corrupt, 20);
}
