// SPDX-License-Identifier: Apache-2.0
//! A bit is flipped in every kind of file: the check names what is hurt, changes
//! nothing, and a repair brings back what a backup has.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use objects::{Handle, TreeBuilder};
use tempfile::{TempDir, tempdir};

use super::{Check, Checked, Finding, Harm, Watch, fsck};
use crate::{Backup, Error, Options, Record, Rule, Store};

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 8 << 20, relations_bytes: 1 << 18 }).unwrap()
}

fn bytes(number: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len as u64).map(|at| (at * 7 + number * 31) as u8).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A home with one of everything; what its labels are.
fn home(folder: &Path) -> Vec<(String, Handle)> {
    let store = open(folder);
    for number in 0..30 {
        let blob = store.put_blob(&bytes(number, 100 + 37 * number as usize)).unwrap();
        let tree: TreeBuilder = [blob, Handle::u64(number)].into_iter().collect();
        store.keep_tree(tree.view());
        store.set_label(&format!("small/{number}"), tree.view().handle()).unwrap();
    }
    for (name, len) in [("large", 100_000), ("partial", 1_300_000)] {
        let blob = store.put_blob(&bytes(7, len)).unwrap();
        let tree: TreeBuilder = [blob.application().unwrap_or(blob)].into_iter().collect();
        store.keep_tree(tree.view());
        store.set_label(name, tree.view().handle()).unwrap();
    }
    store.set_label("bare", store.put_blob(&bytes(8, 80_000)).unwrap()).unwrap();
    let entries: TreeBuilder = (0..3000).map(Handle::u64).collect();
    store.keep_tree(entries.view());
    store.set_label("tree", entries.view().handle()).unwrap();
    let result = store.put_blob(&bytes(900, 500)).unwrap();
    let record = Record { result, rule: Rule::Apply, nanos: 1 << 20, fuel: 1 };
    store.relations().insert(entries.view().handle().application().unwrap(), record);
    store.flush_relations().unwrap();
    store.labels().unwrap()
}

fn run(home: &Path, check: &Check) -> Result<(Checked, Vec<Finding>), Error> {
    let mut findings = Vec::new();
    let mut found = |finding| findings.push(finding);
    let checked = fsck(home, check, &mut Watch { progress: &mut |_, _| true, found: &mut found })?;
    Ok((checked, findings))
}

fn look(home: &Path) -> (Checked, Vec<Finding>) {
    run(home, &Check::default()).unwrap()
}

/// All files of a folder but its lock, and what is in them.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(contents(&path)),
            false if path.ends_with("lock") || path.ends_with("reserve") => {}
            false => _ = files.insert(path.clone(), fs::read(path).unwrap()),
        }
    }
    files
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn copied(from: &Path) -> TempDir {
    let to = tempdir().unwrap();
    for (path, bytes) in contents(from) {
        let target = to.path().join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
    fs::create_dir_all(to.path().join("tmp")).unwrap();
    fs::create_dir_all(to.path().join("quarantine")).unwrap();
    for number in 0..=u8::MAX {
        fs::create_dir_all(to.path().join(format!("objects/{number:02x}"))).unwrap();
    }
    to
}

fn file(home: &Path, end: &str) -> PathBuf {
    contents(home).into_keys().find(|path| path.to_str().unwrap().ends_with(end)).unwrap()
}

#[test]
fn a_sound_home_is_sound_and_stays_as_it_is() {
    let folder = tempdir().unwrap();
    home(folder.path());
    fs::write(folder.path().join("tmp/1-2"), "left by one that was killed").unwrap();
    let before = contents(folder.path());
    let (checked, findings) = look(folder.path());
    assert_eq!(findings, []);
    assert!(checked.is_clean() && checked.is_whole());
    assert_eq!((checked.labels, checked.relations, checked.temporary), (34, 1, 1));
    assert!(checked.objects > 60 && checked.bytes > 1_400_000, "{checked:?}");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn nothing_is_checked_that_is_in_use_or_of_another_version() {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    assert!(matches!(run(folder.path(), &Check::default()), Err(Error::Locked { .. })));
    drop(store);
    fs::write(folder.path().join("FORMAT"), "sinew-store 4\n").unwrap();
    assert!(matches!(run(folder.path(), &Check::default()), Err(Error::UnknownFormat { .. })));
    for old in ["sinew-store 1\n", "sinew-store 2\n"] {
        fs::write(folder.path().join("FORMAT"), old).unwrap();
        assert!(matches!(run(folder.path(), &Check::default()), Err(Error::OldFormat { .. })));
    }
}

/// Where each record's handle and bytes are: what stands between two is filling.
fn records(pack: &[u8]) -> Vec<(usize, usize)> {
    let records = crate::packs::Records::new(pack, 0);
    records.map(|record| (record.unit as usize * 32, 32 + record.bytes.len())).collect()
}

#[test]
fn a_flipped_bit_in_a_pack_is_found_wherever_it_is() {
    let folder = tempdir().unwrap();
    home(folder.path());
    let pack = file(folder.path(), ".pack");
    let sound = fs::read(&pack).unwrap();
    for (begin, len) in records(&sound) {
        for at in [0, 24, 30, len - 1] {
            flip(&pack, begin + at);
            let (checked, findings) = look(folder.path());
            assert_eq!(checked.lost, 0, "nothing was repaired");
            let lost: Vec<_> = findings.iter().filter(|finding| finding.harm == Harm::Loss).collect();
            let is_told = lost.iter().any(|finding| matches!(finding.kind, "damaged" | "nowhere"));
            assert!(is_told, "{begin} + {at} of {len}: {findings:?}");
            fs::write(&pack, &sound).unwrap();
        }
    }
    flip(&pack, 3);
    let (checked, findings) = look(folder.path());
    assert_eq!((checked.losses, findings.len(), findings[0].kind), (0, 1, "pack"));
    assert!(run(folder.path(), &Check { repair: true, ..Check::default() }).unwrap().0.is_whole());
    assert_eq!(look(folder.path()).1, []);
}

#[test]
fn a_flipped_bit_names_the_object_the_label_and_the_way() {
    let folder = tempdir().unwrap();
    home(folder.path());
    let pack = file(folder.path(), ".pack");
    let (begin, len) = records(&fs::read(&pack).unwrap())[0];
    let key = Handle::blob(&bytes(0, 100));
    flip(&pack, begin + len - 1);
    let (checked, findings) = look(folder.path());
    let damaged = findings.iter().find(|finding| finding.kind == "damaged").unwrap();
    assert_eq!((damaged.object, damaged.place.as_str()), (Some(key), "packs/0000000000.pack"));
    let hurt = findings.iter().find(|finding| finding.kind == "hurt").unwrap();
    let tree: TreeBuilder = [key, Handle::u64(0)].into_iter().collect();
    assert_eq!((hurt.place.as_str(), hurt.object, checked.hurt_labels), ("small/0", Some(key), 1));
    assert!(hurt.what.contains(&tree.view().handle().to_string()), "{}", hurt.what);
}

#[test]
fn a_flipped_bit_in_any_other_file_is_found_too() {
    let folder = tempdir().unwrap();
    let labels = home(folder.path());
    let sound = contents(folder.path());
    for (path, bytes) in &sound {
        let name = path.to_str().unwrap();
        if name.ends_with(".pack") || name.ends_with("index.redb") {
            continue;
        }
        for at in [0, bytes.len() / 3, bytes.len() - 1] {
            flip(path, at);
            match run(folder.path(), &Check::default()) {
                Ok((checked, findings)) => {
                    assert!(!checked.is_clean(), "{name} at {at}");
                    let kind = findings[0].kind;
                    assert!(
                        matches!(kind, "damaged" | "outboard" | "format"),
                        "{name} at {at}: {findings:?}"
                    );
                }
                // Its number is another one now.
                Err(error) => assert!(name.ends_with("FORMAT"), "{error}"),
            }
            fs::write(path, bytes).unwrap();
        }
    }
    let index = file(folder.path(), "index.redb");
    let bytes = &sound[&index];
    let mut found = 0;
    for at in (0..bytes.len()).step_by(bytes.len() / 60) {
        flip(&index, at);
        match run(folder.path(), &Check::default()) {
            Ok((checked, findings)) if !checked.is_clean() => {
                assert!(!findings.is_empty());
                found += 1;
            }
            // It was in nothing that anybody reads.
            Ok((checked, _)) => assert_eq!(checked.labels, labels.len() as u64, "at {at}"),
            Err(error) => panic!("at {at}: {error}"),
        }
        fs::write(&index, bytes).unwrap();
    }
    assert!(found > 0, "no bit of the index mattered");
    assert_eq!(look(folder.path()).1, []);
}

#[test]
fn what_is_damaged_comes_back_from_a_backup() {
    let folder = tempdir().unwrap();
    let labels = home(folder.path());
    let backup = tempdir().unwrap();
    let to = backup.path().join("b");
    let point = Backup { point: "one".to_owned(), files: Vec::new() };
    open(folder.path()).backup(&to, &point, &mut |_, _| true).unwrap();
    for end in [".pack", "index.redb", ".outboard", "FORMAT"] {
        let home = copied(folder.path());
        let path = file(home.path(), end);
        match end {
            "index.redb" => fs::remove_file(&path).unwrap(),
            "FORMAT" => fs::write(&path, "sinew\u{1}store 2\n").unwrap(),
            _ => (0..fs::metadata(&path).unwrap().len() as usize).step_by(97).for_each(|at| flip(&path, at)),
        }
        healed(home.path(), &to, &labels, end);
    }
    let is_object = |path: &str| path.contains("/objects/") && !path.ends_with(".outboard");
    for large in contents(folder.path()).into_keys().filter(|path| is_object(path.to_str().unwrap())) {
        let home = copied(folder.path());
        flip(&home.path().join(large.strip_prefix(folder.path()).unwrap()), 70_000 % 4000);
        // Nobody had the backup at hand at first.
        let alone = run(home.path(), &Check { repair: true, ..Check::default() }).unwrap().0;
        assert_eq!((alone.lost, alone.hurt_labels), (1, 1), "{alone:?}");
        healed(home.path(), &to, &labels, large.to_str().unwrap());
    }
}

fn healed(home: &Path, from: &Path, labels: &[(String, Handle)], what: &str) {
    assert!(!look(home).0.is_clean(), "{what}");
    let check = Check { repair: true, from: Some(from.to_owned()), ..Check::default() };
    let (checked, findings) = run(home, &check).unwrap();
    assert!(checked.is_whole() || what == ".pack", "{what}: {checked:?} {findings:?}");
    assert_eq!(checked.hurt_labels, 0, "{what}: {findings:?}");
    let (checked, findings) = look(home);
    assert!(checked.is_clean(), "{what}: {findings:?}");
    let store = open(home);
    assert_eq!(store.labels().unwrap(), labels, "{what}");
}

#[test]
fn without_a_backup_it_is_said_what_is_lost() {
    let folder = tempdir().unwrap();
    home(folder.path());
    let pack = file(folder.path(), ".pack");
    let (begin, len) = records(&fs::read(&pack).unwrap())[0];
    flip(&pack, begin + len - 1);
    let (checked, _) = run(folder.path(), &Check { repair: true, ..Check::default() }).unwrap();
    assert_eq!((checked.lost, checked.hurt_labels, checked.is_whole()), (1, 1, false));
    assert_eq!(fs::read_dir(folder.path().join("quarantine")).unwrap().count(), 1);
    let (checked, findings) = look(folder.path());
    let harm: Vec<_> = findings.iter().filter(|finding| finding.harm != Harm::None).collect();
    assert_eq!((checked.losses, harm.len(), harm[0].kind), (1, 1, "hurt"), "{findings:?}");
    // Whoever has it puts it again.
    open(folder.path()).put_blob(&bytes(0, 100)).unwrap();
    assert!(look(folder.path()).0.is_clean());
}

#[test]
fn rows_that_the_index_lost_are_found_in_the_packs() {
    let folder = tempdir().unwrap();
    let labels = home(folder.path());
    let store = open(folder.path());
    let lost = Handle::blob(&bytes(3, 100 + 37 * 3));
    store.disk().unwrap().index().strike(&[*lost.as_bytes()], &[]).unwrap();
    drop(store);
    let (checked, findings) = look(folder.path());
    assert_eq!((checked.hurt_labels, findings[0].object), (1, Some(lost)));
    let (checked, _) = run(folder.path(), &Check { repair: true, ..Check::default() }).unwrap();
    assert_eq!((checked.restored, checked.is_whole()), (1, true));
    assert_eq!(look(folder.path()).1, []);
    assert_eq!(open(folder.path()).labels().unwrap(), labels);
}

#[test]
fn relations_that_lead_to_nothing_are_dropped() {
    let folder = tempdir().unwrap();
    home(folder.path());
    let result = Handle::blob(&bytes(900, 500));
    open(folder.path()).disk().unwrap().index().strike(&[*result.as_bytes()], &[]).unwrap();
    // Nothing of it is in the pack either.
    let pack = file(folder.path(), ".pack");
    let sound = fs::read(&pack).unwrap();
    let at = sound.chunks(32).position(|unit| unit == result.as_bytes()).unwrap() * 32;
    flip(&pack, at + 40);
    let (checked, findings) = look(folder.path());
    assert_eq!((checked.slight, checked.losses), (1, 0), "{findings:?}");
    assert!(findings.iter().any(|finding| finding.kind == "relation" && finding.object == Some(result)));
    assert!(run(folder.path(), &Check { repair: true, ..Check::default() }).unwrap().0.is_whole());
    let (checked, _) = look(folder.path());
    assert_eq!((checked.is_clean(), checked.relations), (true, 0));
}

#[test]
fn checks_lose_nothing_of_what_is_put_meanwhile() {
    const THREADS: u64 = 3;
    const EACH: u64 = 400;
    let folder = tempdir().unwrap();
    home(folder.path());
    let store = open(folder.path());
    std::thread::scope(|scope| {
        let put = |thread: u64| {
            let store = &store;
            let put = move || {
                for number in 0..EACH {
                    store.put_blob(&bytes(10_000 + thread * EACH + number, 200)).unwrap();
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, put).unwrap()
        };
        let putting: Vec<_> = (0..THREADS).map(put).collect();
        while !putting.iter().all(|thread| thread.is_finished()) {
            store.check(None, &mut Watch { progress: &mut |_, _| true, found: &mut |_| {} }).unwrap();
        }
    });
    drop(store);
    let store = open(folder.path());
    let lost = (0..THREADS * EACH).filter(|number| {
        let handle = Handle::blob(&bytes(10_000 + number, 200));
        store.get(handle).unwrap().is_none()
    });
    assert_eq!(lost.count(), 0);
}

#[test]
fn a_store_in_use_is_checked_as_it_is() {
    let folder = tempdir().unwrap();
    home(folder.path());
    let store = open(folder.path());
    let check = |store: &Store| {
        let mut findings = Vec::new();
        let mut found = |finding| findings.push(finding);
        let checked =
            store.check(None, &mut Watch { progress: &mut |_, _| true, found: &mut found }).unwrap();
        (checked, findings)
    };
    let writing = std::thread::scope(|scope| {
        let writer = std::thread::Builder::new();
        let writer = writer.spawn_scoped(scope, || {
            (0..300).for_each(|number| _ = store.put_blob(&bytes(5000 + number, 400)).unwrap())
        });
        let checked = (0..5).map(|_| check(&store)).collect::<Vec<_>>();
        writer.unwrap().join().unwrap();
        checked
    });
    for (checked, findings) in writing {
        assert!(checked.is_clean(), "{findings:?}");
    }
    let pack = file(folder.path(), ".pack");
    let (begin, len) = records(&fs::read(&pack).unwrap())[4];
    flip(&pack, begin + len - 1);
    assert!(!check(&store).0.is_clean());
    let slow = std::cell::Cell::new(0);
    let mut until = |_, _| slow.replace(slow.get() + 1) < 2;
    let mut watch = Watch { progress: &mut until, found: &mut |_| {} };
    assert!(matches!(store.check(Some(1), &mut watch), Err(Error::Stopped)), "a byte a second");
    let mut stop = Watch { progress: &mut |_, _| false, found: &mut |_| {} };
    store.put_blob(&bytes(1, 9 << 20)).unwrap();
    assert!(matches!(store.check(None, &mut stop), Err(Error::Stopped)));
}

mod windows {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::packs::{Stretch, stretches};
    use super::*;
    use crate::packs::{Medium as _, header, push};
    use crate::tests::faulty::FaultyDisk;

    /// What is found in a pack of these bytes: sound records, and bytes that are none.
    fn found(bytes: &[u8]) -> (Vec<(u64, Handle)>, u64) {
        let pack = FaultyDisk::default().create(0).unwrap();
        pack.write_all_at(bytes, 0).unwrap();
        let (mut sound, mut damaged) = (Vec::new(), 0);
        let see = |stretch: Stretch<'_>| {
            match stretch {
                Stretch::Sound(record) => sound.push((u64::from(record.unit) * 32, record.key)),
                Stretch::Damaged { bytes, .. } => damaged += bytes,
                Stretch::Unreadable(at, error) => panic!("{at}: {error}"),
            }
            Ok(())
        };
        stretches(&*Arc::clone(&pack), bytes.len() as u64, see, |_| Ok(())).unwrap();
        (sound, damaged)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_stands_in_a_pack_it_comes_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200_000)) {
            found(&bytes);
        }

        #[test]
        fn every_sound_record_is_found_wherever_others_are_damaged(
            lens in prop::collection::vec(prop_oneof![31..500_usize, 60_000..65_500_usize], 1..30),
            damaged in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut pack = header(7).to_vec();
            let mut records = Vec::new();
            for (number, len) in lens.iter().enumerate() {
                let object = bytes(number as u64, *len);
                records.push((pack.len() as u64, Handle::blob(&object), *len));
                push(&mut pack, Handle::blob(&object), &object);
            }
            let hit: Vec<usize> = damaged.iter().map(|index| index.index(records.len())).collect();
            for index in &hit {
                let (at, _, len) = records[*index];
                pack[at as usize + 32 + len / 2] = !pack[at as usize + 32 + len / 2];
            }
            let (sound, _) = found(&pack);
            // What was flipped twice is as it was.
            let is_hit = |index: usize| hit.iter().filter(|hit| **hit == index).count() % 2 == 1;
            let left = records.iter().enumerate().filter(|(index, _)| !is_hit(*index));
            let left: Vec<_> = left.map(|(_, (at, key, _))| (*at, *key)).collect();
            prop_assert_eq!(sound, left);
        }
    }

    #[test]
    fn records_across_windows_are_found() {
        let mut pack = header(7).to_vec();
        let mut keys = Vec::new();
        let mut number = 0;
        while pack.len() < (17 << 20) {
            let object = bytes(number, 30_000 + (number as usize * 7919) % 35_000);
            keys.push(Handle::blob(&object));
            push(&mut pack, Handle::blob(&object), &object);
            number += 1;
        }
        let (sound, damaged) = found(&pack);
        assert_eq!((sound.len(), damaged), (keys.len(), 0));
        assert!(sound.iter().map(|(_, key)| *key).eq(keys));
    }
}
