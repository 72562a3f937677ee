// SPDX-License-Identifier: Apache-2.0
//! Points in time: what is in them, what a second one costs, what comes back of
//! them, and backups that somebody has forged or damaged.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use proptest::prelude::*;
use tempfile::tempdir;

use super::{Backed, Backup, BackupFolder, Restore, forget, point};
use crate::disk::Disk;
use crate::files::{Files, Kind};
use crate::packs::now;
use crate::{Check, Checked, Error, Options, Store, Watch, fsck, fsck_backup};

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 8 << 20, relations_bytes: 1 << 16 }).unwrap()
}

fn bytes(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len.max(40)];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Names a tree of a blob of this length.
fn name(store: &Store, label: &str, number: u64, len: usize) -> Handle {
    let blob = store.put_blob(&bytes(number, len)).unwrap();
    let tree: TreeBuilder = [blob, Handle::u64(number)].into_iter().collect();
    let tree = store.keep_tree(tree.view());
    store.set_label(label, tree).unwrap();
    blob
}

fn back_up(store: &Store, to: &Path, point: &str) -> Result<Backed, Error> {
    let files = vec![("keys".to_owned(), b"keys of the node".to_vec())];
    store.backup(to, &Backup { point: point.to_owned(), files }, &mut |_, _| true)
}

fn restore(from: &Path, point: &str, to: &Path) -> Result<super::Restored, Error> {
    let folder = BackupFolder::open(from)?;
    let file = folder.file(point, "keys")?.map(|bytes| ("keys".to_owned(), bytes));
    let restore = Restore { partial: false, files: file.into_iter().collect() };
    folder.restore(point, to, &restore, &mut |_, _| true)
}

fn checked(backup: &Path, repair: bool) -> Checked {
    let check = Check { repair, ..Check::default() };
    fsck_backup(backup, &check, &mut Watch { progress: &mut |_, _| true, found: &mut |_| {} }).unwrap()
}

/// What labels lead to, in full.
type Contents = BTreeMap<String, Vec<(Handle, Option<Vec<u8>>)>>;

fn all(store: &Store) -> Contents {
    let contents = |root: Handle| {
        let mut found = Vec::new();
        let mut pending = vec![root];
        while let Some(handle) = pending.pop() {
            let object = store.get(handle).unwrap();
            if let Some(tree) = object.as_ref().filter(|_| handle.plain_tree().names_tree()) {
                pending.extend(tree.as_tree().iter());
            }
            found.push((handle, object.map(|object| object.to_vec())));
        }
        found
    };
    store.labels().unwrap().into_iter().map(|(name, handle)| (name, contents(handle))).collect()
}

/// A file of a folder whose path has this in it.
fn file(folder: &Path, part: &str) -> PathBuf {
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.to_str().unwrap().contains(part) {
            return path;
        }
    }
    panic!("no {part}")
}

#[test]
fn a_point_is_a_moment_and_the_next_one_costs_what_is_new() {
    let (home, backups) = (tempdir().unwrap(), tempdir().unwrap());
    let to = backups.path().join("b");
    let store = open(home.path());
    (0..20).for_each(|number| _ = name(&store, &format!("a/{number}"), number, 100 + 9000 * number as usize));
    let first = back_up(&store, &to, "first").unwrap();
    assert_eq!((first.labels, first.objects, first.missing), (20, 40, 0));
    let again = back_up(&store, &to, "again").unwrap();
    assert_eq!((again.labels, again.objects, again.bytes), (20, 0, 0));
    name(&store, "a/3", 300, 500);
    store.remove_label("a/4").unwrap();
    let third = back_up(&store, &to, "third").unwrap();
    assert_eq!((third.labels, third.objects), (19, 2));
    assert!(matches!(back_up(&store, &to, "third"), Err(Error::Point { .. })), "it is there");
    let folder = BackupFolder::open(&to).unwrap();
    let points = folder.points().unwrap();
    let names: Vec<_> = points.iter().map(|point| (point.name.as_str(), point.labels)).collect();
    assert!(names.contains(&("first", 20)) && names.contains(&("third", 19)), "{names:?}");
    assert_eq!((points[0].missing, points[0].files.as_slice()), (0, ["keys".to_owned()].as_slice()));
    drop(folder);
    assert!(checked(&to, false).is_clean());
    let now = all(&store);
    let again = tempdir().unwrap();
    restore(&to, "third", &again.path().join("h")).unwrap();
    assert_eq!(all(&open(&again.path().join("h"))), now);
    assert_eq!(fs::read(again.path().join("h/keys")).unwrap(), b"keys of the node");
    restore(&to, "first", &again.path().join("i")).unwrap();
    let before = open(&again.path().join("i"));
    assert_eq!((before.labels().unwrap().len(), before.label("a/4").unwrap().is_some()), (20, true));
}

#[test]
fn what_is_something_else_is_not_written_into() {
    let (home, other) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(home.path());
    name(&store, "a", 1, 100);
    fs::write(other.path().join("thesis.txt"), "mine").unwrap();
    assert!(matches!(back_up(&store, other.path(), "p"), Err(Error::NotEmpty { .. })));
    let another = tempdir().unwrap();
    drop(open(another.path()));
    assert!(matches!(back_up(&store, another.path(), "p"), Err(Error::NoBackup { .. })));
    let backup = tempdir().unwrap();
    back_up(&store, backup.path(), "p").unwrap();
    for taken in [other.path(), another.path(), backup.path()] {
        let refused = restore(backup.path(), "p", taken).unwrap_err();
        let is_said =
            matches!(refused, Error::NotEmpty { .. } | Error::IsBackup { .. } | Error::Locked { .. });
        assert!(is_said, "{refused}");
    }
    let options =
        Options { home: Some(backup.path().to_owned()), memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
    let refused = Store::open(options).err().unwrap();
    assert!(
        matches!(refused, Error::IsBackup { .. }) && refused.to_string().contains("sinew restore"),
        "{refused}"
    );
    assert!(matches!(BackupFolder::open(another.path()), Err(Error::NoBackup { .. })));
    for bad in ["", "../up", "a//b", "x".repeat(200).as_str()] {
        assert!(matches!(back_up(&store, backup.path(), bad), Err(Error::Point { .. })), "{bad}");
    }
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1, "nothing of ours is there");
}

#[test]
fn what_the_home_lacks_is_told_and_comes_when_it_is_there() {
    let (home, backup) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(home.path());
    let absent = Handle::blob(&bytes(77, 100));
    let inner: TreeBuilder = [absent, Handle::u64(1)].into_iter().collect();
    let outer: TreeBuilder = [store.put_tree(inner.view()).unwrap()].into_iter().collect();
    store.set_label("partly", store.put_tree(outer.view()).unwrap()).unwrap();
    let first = back_up(&store, backup.path(), "first").unwrap();
    assert_eq!((first.missing, first.damaged, first.first_missing.as_slice()), (1, 0, [absent].as_slice()));
    assert!(checked(backup.path(), false).is_clean(), "the home had no more");
    let again = tempdir().unwrap();
    assert_eq!(
        restore(backup.path(), "first", again.path()).unwrap().missing,
        1,
        "nor has the point, and it is told"
    );
    store.put_blob(&bytes(77, 100)).unwrap();
    let second = back_up(&store, backup.path(), "second").unwrap();
    assert_eq!((second.missing, second.objects), (0, 1));
}

#[test]
fn damage_in_a_backup_is_found_and_the_next_point_heals_it() {
    let (home, backup) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(home.path());
    (0..5).for_each(|number| _ = name(&store, &format!("a/{number}"), number, 70_000 * number as usize));
    back_up(&store, backup.path(), "first").unwrap();
    for part in [".pack", "/objects/"] {
        let path = file(backup.path(), part);
        let mut damaged = fs::read(&path).unwrap();
        // Past the header of a pack, and the handle of its first record.
        damaged[70] ^= 1;
        fs::write(&path, damaged).unwrap();
    }
    let found = checked(backup.path(), false);
    assert!(!found.is_clean() && found.hurt_labels == 1, "{found:?}");
    let again = tempdir().unwrap();
    let refused = restore(backup.path(), "first", again.path()).unwrap_err();
    assert!(refused.to_string().contains("missing or damaged"), "{refused}");
    let unfinished =
        Options { home: Some(again.path().to_owned()), memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
    assert!(matches!(Store::open(unfinished), Err(Error::Unfinished { .. })));
    let partial = Restore { partial: true, ..Restore::default() };
    let folder = BackupFolder::open(backup.path()).unwrap();
    let restored = folder.restore("first", again.path(), &partial, &mut |_, _| true).unwrap();
    assert_eq!((restored.labels, restored.missing), (5, 2));
    drop(folder);
    assert_eq!(checked(backup.path(), true).lost, 2);
    let healing = back_up(&store, backup.path(), "second").unwrap();
    assert_eq!((healing.objects, healing.missing), (2, 0));
    assert!(checked(backup.path(), false).is_clean());
    assert_eq!(restore(backup.path(), "first", tempdir().unwrap().path()).unwrap().labels, 5);
}

#[test]
fn a_point_that_is_forgotten_gives_its_room_back_and_hurts_no_other() {
    let (home, backup) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(home.path());
    let old = name(&store, "a", 1, 300_000);
    let kept = name(&store, "b", 2, 200_000);
    back_up(&store, backup.path(), "old").unwrap();
    name(&store, "a", 3, 100_000);
    back_up(&store, backup.path(), "new").unwrap();
    let before = now() - Duration::from_secs(5 * 3600);
    for path in [
        file(backup.path(), ".pack"),
        file(backup.path(), &old.to_string()),
        file(backup.path(), &kept.to_string()),
    ] {
        File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    }
    assert!(matches!(forget(backup.path(), &["none".to_owned()]), Err(Error::NoSuch { .. })));
    let forgotten = forget(backup.path(), &["old".to_owned()]).unwrap();
    assert!(forgotten.objects >= 3 && forgotten.freed_bytes >= 300_000, "{forgotten:?}");
    assert!(checked(backup.path(), false).is_clean());
    let again = tempdir().unwrap();
    restore(backup.path(), "new", again.path()).unwrap();
    assert_eq!(all(&open(again.path())), all(&store));
}

#[test]
fn labels_come_back_into_a_store_in_use() {
    let (home, backup) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(home.path());
    (0..4).for_each(|number| _ = name(&store, &format!("f/{number}"), number, 90_000 * number as usize));
    back_up(&store, backup.path(), "p").unwrap();
    let before = all(&store);
    let folder = BackupFolder::open(backup.path()).unwrap();
    let other = tempdir().unwrap();
    let other = open(other.path());
    let put_back = |names: &[&str], replaces| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        folder.restore_labels("p", &names, replaces, &other, &mut |_, _| true)
    };
    assert_eq!(put_back(&["f/2"], false).unwrap().objects, 2);
    assert_eq!(put_back(&["f/"], false).unwrap().labels, 4);
    assert_eq!(all(&other), before);
    assert!(put_back(&["g/"], false).unwrap_err().to_string().contains("no label"));
    name(&other, "f/1", 50, 50);
    assert!(put_back(&["f/1"], false).unwrap_err().to_string().contains("names something else"));
    assert_eq!(put_back(&["f/1"], true).unwrap().labels, 1);
    assert_eq!(all(&other), before);
}

/// A backup of which somebody else has made what its points are.
fn forged(objects: &[Vec<u8>], root: Handle) -> tempfile::TempDir {
    let folder = tempdir().unwrap();
    let disk = Disk::over(Files::open_as(folder.path(), Kind::Backup).unwrap(), 1 << 20, 10).unwrap();
    let trees: Vec<_> =
        objects.iter().map(|bytes| (Handle::tree(bytes).unwrap(), crate::Object::copy_of(bytes))).collect();
    disk.write(&trees, Vec::new()).unwrap();
    disk.write_label("point/p", Some(root)).unwrap();
    folder
}

fn tree(entries: &[Handle]) -> (Handle, Vec<u8>) {
    let tree: TreeBuilder = entries.iter().copied().collect();
    (tree.view().handle(), tree.view().as_bytes().to_vec())
}

#[test]
fn a_forged_backup_is_refused_with_the_reason() {
    let mark = Handle::literal(b"sinew-backup-point 1").unwrap();
    let text = |text: &str| Handle::literal(text.as_bytes()).unwrap();
    let (empty, empty_bytes) = tree(&[]);
    let none = Handle::literal(b"").unwrap();
    let point = |labels: (Handle, Vec<u8>), files: (Handle, Vec<u8>)| {
        let (root, bytes) = tree(&[mark, Handle::u64(1), labels.0, files.0, none, text("p")]);
        forged(&[empty_bytes.clone(), labels.1, files.1, bytes], root)
    };
    let nothing = (empty, empty_bytes.clone());
    let refused = |backup: &tempfile::TempDir| {
        let home = tempdir().unwrap();
        let error = restore(backup.path(), "p", &home.path().join("h")).unwrap_err();
        let format = fs::read_to_string(home.path().join("h/FORMAT")).unwrap_or_default();
        assert!(!format.starts_with("sinew-store"), "half a home is none");
        error.to_string()
    };
    // Names that lead elsewhere, or are none.
    for bad in ["../../etc/passwd", "/abs", "", "a//b", "nul\0"] {
        let labels = tree(&[text(bad), Handle::u64(1)]);
        let error = refused(&point(labels, nothing.clone()));
        assert!(error.contains("cannot be a label"), "{error}");
    }
    let (odd, _) = (tree(&[text("a"), Handle::u64(1), text("b")]), ());
    assert!(refused(&point(odd, nothing.clone())).contains("without its handle"));
    // Lengths that nothing has, and what is not there.
    let absurd = Handle::blob_from_hash(&[7; 32], (1 << 48) - 1).unwrap();
    let labels = tree(&[text("a"), absurd]);
    assert!(refused(&point(labels, nothing.clone())).contains("missing or damaged"));
    let files = tree(&[text("keys"), absurd]);
    assert!(refused(&point(nothing.clone(), files)).contains("too long"));
    let huge = tree(&[absurd, Handle::u64(1)]);
    assert!(refused(&point(huge, nothing.clone())).contains("too long"));
    // No point at all.
    let (root, other) = tree(&[text("something else"), empty, empty, empty, none, none]);
    assert!(refused(&forged(&[empty_bytes.clone(), other], root)).contains("another version"));
    let (root, short) = tree(&[mark]);
    assert!(refused(&forged(&[short], root)).contains("entries"));
    assert!(refused(&forged(&[], Handle::blob(&bytes(1, 100)))).contains("no tree"));
    assert!(
        refused(&forged(&[], empty)).contains("entries") || refused(&forged(&[], empty)).contains("missing")
    );
    // A file's name that is one of the home's own is nothing that a restore writes.
    let backup = point(nothing.clone(), nothing);
    for bad in ["../keys", "index.redb", "/etc/x", "packs", "FORMAT", ""] {
        let restore = Restore { partial: false, files: vec![(bad.to_owned(), Vec::new())] };
        let home = tempdir().unwrap();
        let folder = BackupFolder::open(backup.path()).unwrap();
        let refused = folder.restore("p", &home.path().join("h"), &restore, &mut |_, _| true);
        assert!(matches!(refused, Err(Error::Point { .. })), "{bad}");
    }
}

#[test]
fn wrong_bytes_under_a_name_are_not_restored() {
    let (home, backup) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(home.path());
    let blob = name(&store, "a", 1, 100_000);
    back_up(&store, backup.path(), "p").unwrap();
    fs::write(file(backup.path(), &blob.to_string()), bytes(2, 100_000)).unwrap();
    let again = tempdir().unwrap();
    let error = restore(backup.path(), "p", again.path()).unwrap_err().to_string();
    assert!(error.contains(&blob.to_string()), "{error}");
}

#[test]
fn nobody_waits_for_a_pipe_that_has_the_name_of_an_object() {
    let (home, backup) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(home.path());
    let blob = name(&store, "a", 1, 1_200_000);
    back_up(&store, backup.path(), "p").unwrap();
    let outboard = file(backup.path(), ".outboard");
    fs::remove_file(&outboard).unwrap();
    let object = file(backup.path(), &blob.to_string());
    fs::remove_file(&object).unwrap();
    for pipe in [&outboard, &object] {
        #[expect(clippy::disallowed_methods, reason = "the standard library makes no pipes with names")]
        let made = std::process::Command::new("mkfifo").arg(pipe).status().unwrap();
        assert!(made.success());
    }
    assert!(!checked(backup.path(), false).is_clean());
    let error = restore(backup.path(), "p", tempdir().unwrap().path()).unwrap_err().to_string();
    assert!(error.contains("missing or damaged"), "{error}");
}

#[test]
fn the_form_of_a_point_is_read_as_it_is_written() {
    let labels = vec![
        ("a".to_owned(), Handle::u64(1)),
        ("a-name-that-is-longer-than-thirty-bytes".to_owned(), Handle::u64(2)),
    ];
    let (objects, root) = point::objects(
        "p",
        17,
        &labels,
        &[("keys".to_owned(), bytes(1, 90))],
        &[Handle::blob(&bytes(9, 99))],
    );
    let folder = tempdir().unwrap();
    let disk = Disk::over(Files::open_as(folder.path(), Kind::Backup).unwrap(), 1 << 20, 10).unwrap();
    disk.write(&objects, Vec::new()).unwrap();
    let parts = point::read_tree(&disk, root).unwrap();
    assert_eq!((parts.made_ms, parts.labels(&disk).unwrap()), (17, labels));
    assert_eq!((parts.files.len(), parts.missing.as_slice()), (1, [Handle::blob(&bytes(9, 99))].as_slice()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_a_point_names_it_is_read_or_refused(parts in prop::collection::vec(any::<u8>(), 0..7), lens in prop::collection::vec(any::<u64>(), 7)) {
        let mark = Handle::literal(b"sinew-backup-point 1").unwrap();
        let (empty, empty_bytes) = tree(&[]);
        let (pair, pair_bytes) = tree(&[Handle::literal(b"a").unwrap(), Handle::u64(1)]);
        let entries: Vec<_> = parts.iter().zip(&lens).map(|(part, len)| match part % 7 {
            0 => mark,
            1 => empty,
            2 => pair,
            3 => Handle::u64(*len),
            4 => pair.application().unwrap(),
            5 => Handle::blob_from_hash(&[*part; 32], len % (1 << 48)).unwrap_or(mark),
            _ => Handle::literal(b"name").unwrap(),
        }).collect();
        let (root, root_bytes) = tree(&entries);
        let backup = forged(&[empty_bytes, pair_bytes, root_bytes], root);
        let folder = BackupFolder::open(backup.path()).unwrap();
        let points = folder.points().unwrap();
        match folder.labels("p") {
            Ok(labels) => prop_assert_eq!(points[0].labels as usize, labels.len()),
            Err(error) => prop_assert!(matches!(error, Error::Point { .. } | Error::BadLabel { .. }), "{}", error),
        }
        drop(folder);
        checked(backup.path(), false);
    }
}

/// What a home may have: labels, each with a tree of blobs of some lengths.
fn homes() -> impl Strategy<Value = Vec<(u8, Vec<usize>)>> {
    let len = prop_oneof![0..200_usize, 60_000..70_000_usize, Just(1_100_000)];
    prop::collection::vec((any::<u8>(), prop::collection::vec(len, 0..5)), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn a_home_that_is_restored_is_the_home(labels in homes(), later in homes()) {
        let (home, backups) = (tempdir().unwrap(), tempdir().unwrap());
        let to = backups.path().join("b");
        let store = open(home.path());
        let mut number = 0;
        let mut set = |labels: &[(u8, Vec<usize>)]| {
            for (label, lens) in labels {
                let blobs = lens.iter().map(|len| {
                    number += 1;
                    store.put_blob(&bytes(number, *len)).unwrap()
                });
                let tree: TreeBuilder = blobs.collect();
                let tree = store.keep_tree(tree.view());
                let handle = if label % 2 == 0 { tree } else { tree.application().unwrap_or(tree) };
                store.set_label(&format!("l/{label}"), handle).unwrap();
            }
        };
        set(&labels);
        back_up(&store, &to, "one").unwrap();
        let first = all(&store);
        set(&later);
        back_up(&store, &to, "two").unwrap();
        let second = all(&store);
        for (point, expected) in [("one", first), ("two", second)] {
            let again = backups.path().join(point);
            restore(&to, point, &again).unwrap();
            let mut watch = Watch { progress: &mut |_, _| true, found: &mut |_| {} };
            prop_assert!(fsck(&again, &Check::default(), &mut watch).unwrap().is_clean());
            prop_assert_eq!(all(&open(&again)), expected);
        }
    }
}
