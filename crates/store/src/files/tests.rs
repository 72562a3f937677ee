// SPDX-License-Identifier: Apache-2.0
//! The home folder: format, lock, leftovers, published files.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use objects::Handle;
use tempfile::tempdir;

use super::{Files, FilesStats, LARGE_BYTES, is_large, lacking, object_len};
use crate::Error;

fn large(byte: u8) -> (Handle, Vec<u8>) {
    let bytes = vec![byte; LARGE_BYTES as usize + 5];
    (Handle::blob(&bytes), bytes)
}

fn write(files: &Files, bytes: &[u8], key: Handle) -> bool {
    let mut temp = files.temp_file().unwrap();
    temp.write_all(bytes).unwrap();
    let is_new = files.publish(temp, key).unwrap();
    files.sync_names([key].into_iter()).unwrap();
    is_new
}

#[test]
fn a_new_home_is_private_and_says_its_format() {
    let folder = tempdir().unwrap();
    let home = folder.path().join("deep/home");
    drop(Files::open(&home).unwrap());
    assert_eq!(fs::read_to_string(home.join("FORMAT")).unwrap(), "sinew-store 3\n");
    assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(home.join("objects")).unwrap().count(), 256);
    drop(Files::open(&home).unwrap());
}

#[test]
fn another_format_is_refused_with_what_to_do() {
    let folder = tempdir().unwrap();
    drop(Files::open(folder.path()).unwrap());
    for text in ["sinew-store 4\nmore", "", "\u{0}\u{1}"] {
        fs::write(folder.path().join("FORMAT"), text).unwrap();
        let error = Files::open(folder.path()).err().unwrap();
        assert!(matches!(error, Error::UnknownFormat { .. }), "{error}");
        assert!(error.to_string().contains("the version that wrote it"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("FORMAT")).unwrap(), text, "it is left alone");
    }
}

#[test]
fn a_home_whose_making_was_interrupted_is_made_anew() {
    let folder = tempdir().unwrap();
    drop(Files::open(folder.path()).unwrap());
    fs::remove_file(folder.path().join("FORMAT")).unwrap();
    fs::remove_dir(folder.path().join("objects/7f")).unwrap();
    drop(Files::open(folder.path()).unwrap());
    assert!(folder.path().join("objects/7f").is_dir() && folder.path().join("FORMAT").is_file());
}

#[test]
fn a_second_user_is_told_who_the_first_is() {
    let folder = tempdir().unwrap();
    let first = Files::open(folder.path()).unwrap();
    let error = Files::open(folder.path()).err().unwrap();
    let Error::Locked { pid, .. } = &error else { unreachable!("{error}") };
    assert_eq!(*pid, Some(std::process::id()));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())));
    fs::write(folder.path().join("lock"), "rubbish").unwrap();
    let error = Files::open(folder.path()).err().unwrap();
    assert!(error.to_string().ends_with("is in use by another process"), "{error}");
    drop(first);
    drop(Files::open(folder.path()).unwrap());
}

#[test]
fn unpublished_files_disappear_at_once_or_when_opened_again() {
    let folder = tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let count = || fs::read_dir(folder.path().join("tmp")).unwrap().count();
    let mut temp = files.temp_file().unwrap();
    temp.write_all(b"half").unwrap();
    assert_eq!(count(), 1);
    drop(temp);
    assert_eq!(count(), 0);
    drop(files);
    fs::write(folder.path().join("tmp/123-4"), "left by a dead process").unwrap();
    let _files = Files::open(folder.path()).unwrap();
    assert_eq!(count(), 0);
}

#[test]
fn a_published_file_has_its_objects_name_and_bytes() {
    let folder = tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, bytes) = large(1);
    assert!(!files.contains(key).unwrap() && files.read(key).unwrap().is_none());
    assert!(write(&files, &bytes, key));
    assert!(!write(&files, &bytes, key), "it is there already");
    assert!(files.contains(key).unwrap());
    assert_eq!(files.read(key).unwrap().unwrap().0.bytes(), bytes);
    let name = format!("objects/{:02x}/{key}", key.hash_bytes()[0]);
    assert_eq!(fs::read(folder.path().join(name)).unwrap(), bytes);
    assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
    assert_eq!(files.scan().unwrap(), FilesStats { objects: 1, bytes: LARGE_BYTES + 5 });
    let (file, _) = files.open_object(key).unwrap().unwrap();
    let moved = || {
        assert!(files.naming.try_lock().is_none(), "nobody can put it again meanwhile");
        Ok(())
    };
    let aside = files.quarantine_file(key, &file, moved).unwrap();
    assert_eq!(fs::read(aside.unwrap()).unwrap(), bytes);
    assert_eq!(files.quarantine_file(key, &file, || Ok(())).unwrap(), None, "it is aside already");
    assert!(!files.contains(key).unwrap());
    assert_eq!(files.scan().unwrap(), FilesStats::default());
}

#[test]
fn a_file_that_was_cut_short_counts_as_absent() {
    let folder = tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let (key, bytes) = large(2);
    fs::write(files.path(key), &bytes[..100]).unwrap();
    assert!(!files.contains(key).unwrap());
    assert!(write(&files, &bytes, key), "so it is written over");
    assert_eq!(files.read(key).unwrap().unwrap().0.bytes(), bytes);
}

#[test]
fn sizes_count_bytes_for_trees_too() {
    let tree = Handle::tree(&[0; 0]).unwrap();
    let entries = Handle::u64(1).as_bytes().repeat(2048);
    let large_tree = Handle::tree(&entries).unwrap();
    assert_eq!((object_len(tree), is_large(tree)), (0, false));
    assert_eq!((object_len(large_tree), is_large(large_tree)), (64 << 10, true));
    assert!(!is_large(Handle::tree(&entries[32..]).unwrap()));
}

#[test]
fn of_a_disk_a_share_is_kept_back_and_who_does_not_tell_its_size_keeps_nothing() {
    const GIB: u64 = 1 << 30;
    assert_eq!(lacking(GIB, 20 * GIB), Some(GIB));
    assert_eq!(lacking(GIB + 1, 20 * GIB), None);
    assert_eq!(lacking(5 * GIB, 1000 * GIB), None, "never more than 4 GiB");
    assert_eq!(lacking(4 * GIB, 1000 * GIB), Some(4 * GIB));
    assert_eq!(lacking(0, 0), None);
}
