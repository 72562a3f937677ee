// SPDX-License-Identifier: Apache-2.0
//! Homes as the version before wrote them.
#![allow(clippy::unwrap_used)]

mod homes;

use std::fs;
use std::path::Path;

use objects::Handle;
use redb::{Database, TableDefinition};
use tempfile::{TempDir, tempdir};

use super::*;
use crate::{Options, Store};

const OBJECTS: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new("objects");

fn open(home: &Path) -> Result<Store, Error> {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 64 << 20, relations_bytes: 1 << 20 })
}

fn bytes(number: u32) -> Vec<u8> {
    let mut bytes = vec![7; 40 + number as usize % 60_000];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A home with so many small objects in its index, a large one, and a label.
pub(crate) fn home_before(objects: u32, home: &Path) {
    let store = open(home).unwrap();
    let large = store.put_blob(&vec![3; 100_000]).unwrap();
    store.set_label("large", large).unwrap();
    drop(store);
    let database = Database::create(home.join("index.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut table = transaction.open_table(OBJECTS).unwrap();
    for number in 0..objects {
        let bytes = bytes(number * 37);
        table.insert(Handle::blob(&bytes).as_bytes(), bytes.as_slice()).unwrap();
    }
    drop(table);
    transaction.commit().unwrap();
    drop(database);
    fs::remove_dir_all(home.join("packs")).unwrap();
    fs::write(home.join("FORMAT"), "sinew-store 1\n").unwrap();
}

fn new_home_before(objects: u32) -> TempDir {
    let folder = tempdir().unwrap();
    home_before(objects, folder.path());
    folder
}

pub(crate) fn check(home: &Path, objects: u32) {
    let store = open(home).unwrap();
    for number in 0..objects {
        let bytes = bytes(number * 37);
        assert_eq!(store.get(Handle::blob(&bytes)).unwrap().unwrap().bytes(), bytes);
    }
    assert_eq!(store.stats().disk_objects, u64::from(objects) + 1);
    let large = store.label("large").unwrap().unwrap();
    assert_eq!(store.get(large).unwrap().unwrap().len(), 100_000);
}

#[test]
fn a_home_of_the_version_before_is_refused_until_it_is_upgraded() {
    let folder = new_home_before(900);
    let refused = open(folder.path()).err().unwrap();
    assert!(matches!(refused, Error::OldFormat { .. }) && refused.to_string().contains("sinew upgrade"));
    let mut told = Vec::new();
    let upgraded = upgrade(folder.path(), |done, all| told.push((done, all))).unwrap();
    assert_eq!(upgraded, Some(Upgraded { objects: 900, damaged: 0 }));
    assert!(told.len() > 2 && told.first() == Some(&(0, 900)) && told.last() == Some(&(900, 900)));
    check(folder.path(), 900);
    assert_eq!(upgrade(folder.path(), |_, _| {}).unwrap(), None, "it is up to date");
    let store = open(folder.path()).unwrap();
    assert!(matches!(upgrade(folder.path(), |_, _| {}), Err(Error::Locked { .. })));
    drop(store);
}

#[test]
fn an_upgrade_that_was_interrupted_goes_on() {
    let folder = new_home_before(900);
    let interrupted = std::panic::catch_unwind(|| {
        upgrade(folder.path(), |done, _| assert!(done < 300, "here it is interrupted"))
    });
    assert!(interrupted.is_err());
    assert!(matches!(open(folder.path()), Err(Error::OldFormat { .. })));
    let upgraded = upgrade(folder.path(), |_, _| {}).unwrap().unwrap();
    assert!(upgraded.objects < 900, "the rest");
    check(folder.path(), 900);
}

#[test]
fn damaged_objects_are_moved_aside() {
    let folder = new_home_before(10);
    let database = Database::create(folder.path().join("index.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let damaged = Handle::blob(&bytes(37));
    transaction.open_table(OBJECTS).unwrap().insert(damaged.as_bytes(), [1; 77].as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert_eq!(upgrade(folder.path(), |_, _| {}).unwrap(), Some(Upgraded { objects: 9, damaged: 1 }));
    assert_eq!(fs::read_dir(folder.path().join("quarantine")).unwrap().count(), 1);
    assert!(open(folder.path()).unwrap().get(damaged).unwrap().is_none());
}
