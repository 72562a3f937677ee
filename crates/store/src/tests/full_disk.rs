// SPDX-License-Identifier: Apache-2.0
//! A store on a file system of a few megabytes that fills up. Needs user
//! namespaces, to mount one without being root; says so where there are none.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::recipes::tests::age;
use crate::{Check, Collection, Error, Options, Record, Rule, Store, Watch, fsck};

const HOME_VARIABLE: &str = "STORE_FULL_DISK_TEST_HOME";
const COLLECTING_VARIABLE: &str = "STORE_FULL_DISK_TEST_COLLECTING";
const SCRIPT: &str = "mount -t tmpfs -o size=16m sinew-test \"$0\" && exec \"$@\"";

/// What is remembered in each round, and forgotten.
const RELATIONS: u32 = 1_500;

fn bytes(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x3c; len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn assert_no_space(error: &Error) {
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(error.to_string().contains("No space left on device"), "{error}");
}

/// Not a test of its own: runs inside the small file system.
#[test]
fn child_on_a_small_disk() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    // Takes up room that is given back once the disk is full.
    let ballast = [home.join("ballast-small"), home.join("ballast-large")];
    ballast.iter().for_each(|path| fs::write(path, vec![1; 3 << 20]).unwrap());
    let options = Options { home: Some(home.join("home")), memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
    let store = Store::open(options.clone()).unwrap();
    for (ballast, len) in ballast.iter().zip([3_000, 100_000]) {
        let mut acknowledged = Vec::new();
        let error = loop {
            let number = acknowledged.len() as u32;
            match store.put_blob(&bytes(number, len)) {
                Ok(handle) => acknowledged.push(handle),
                Err(error) => break error,
            }
        };
        assert_no_space(&error);
        let scarce = store.has_spare_room().unwrap_err();
        assert!(
            matches!(scarce, Error::Scarce { .. }) && scarce.to_string().contains("sinew gc"),
            "{scarce}"
        );
        let mut writer = store.blob_writer().unwrap();
        let streamed = (0..200).find_map(|n| writer.write(&bytes(n, 100_000)).err());
        assert_no_space(&streamed.unwrap());
        drop(writer);
        for (number, handle) in acknowledged.iter().enumerate() {
            let object = store.get(*handle).unwrap().unwrap();
            assert_eq!(object.bytes(), bytes(number as u32, len), "{number} of {len}");
        }
        fs::remove_file(ballast).unwrap();
        store.has_spare_room().unwrap();
        for number in 0..5 {
            store.put_blob(&bytes(1_000_000 + number, len)).unwrap();
        }
        store.set_label("after", acknowledged[0]).unwrap();
    }
    drop(store);
    let store = Store::open(options).unwrap();
    for number in 0..5 {
        let handle = objects::Handle::blob(&bytes(1_000_000 + number, 3_000));
        assert_eq!(store.get(handle).unwrap().unwrap().bytes(), bytes(1_000_000 + number, 3_000));
    }
    println!("the child went through");
}

/// Writes until nothing more goes onto the disk, objects of this length.
fn fill(store: &Store, from: u32, len: usize) -> u32 {
    let full = (from..).find_map(|number| Some((number, store.put_blob(&bytes(number, len)).err()?)));
    let (number, error) = full.unwrap();
    assert_no_space(&error);
    number
}

/// Relations that are to be forgotten: rows all over the index. Some of their results are kept.
fn relate(store: &Store, from: u32, kept: &mut Vec<Handle>) {
    for number in from..from + RELATIONS {
        let result = store.put_blob(&bytes(number, 50 + number as usize % 400)).unwrap();
        let tree: TreeBuilder = [result, Handle::u64(number.into())].into_iter().collect();
        let key = store.put_tree(tree.view()).unwrap().application().unwrap();
        let record = Record { result, rule: Rule::Apply, nanos: 1 << 20, fuel: 0 };
        store.relations().insert(key, record);
        if number.is_multiple_of(500) {
            store.set_label(&format!("kept-{number}"), result).unwrap();
            kept.push(result);
            store.flush_relations().unwrap();
        }
    }
    store.flush_relations().unwrap();
}

/// Somebody who writes all the time, whether or not there is room.
struct Writer(Arc<AtomicBool>, thread::JoinHandle<usize>);

impl Writer {
    fn begin(store: &Arc<Store>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (store, ends) = (Arc::clone(store), Arc::clone(&is_over));
        let write = move || {
            let numbers = (1_u32 << 31..).take_while(|_| !ends.load(Ordering::Relaxed));
            numbers.filter(|number| store.put_blob(&bytes(*number, 70_000)).is_ok()).count()
        };
        Self(is_over, thread::Builder::new().spawn(write).unwrap())
    }

    /// How many objects it could write.
    fn end(self) -> usize {
        self.0.store(true, Ordering::Relaxed);
        self.1.join().unwrap()
    }
}

/// Not a test of its own: collects where nothing is free, over and over.
#[test]
fn child_that_collects_on_a_full_disk() {
    let Some(home) = std::env::var_os(COLLECTING_VARIABLE).map(PathBuf::from) else { return };
    let home = home.join("home");
    let options = Options { home: Some(home.clone()), memory_bytes: 1 << 20, relations_bytes: 1 << 20 };
    let collection = Collection { kept: Duration::from_secs(3600), is_trial: false, dropping: None };
    let (mut from, mut kept) = (0, Vec::new());
    for round in 0..3 {
        let store = Store::open(options.clone()).unwrap();
        relate(&store, from, &mut kept);
        store.set_label("goes", Handle::blob(&bytes(from, 50 + from as usize % 400))).unwrap();
        // A pack of which half stays, which is more than there is room for at first.
        store.disk().unwrap().index().packs().roll();
        let half: Vec<_> = (from..from + 1_300).map(|n| store.put_blob(&bytes(n, 3_001)).unwrap()).collect();
        let stays: TreeBuilder = half.iter().copied().step_by(2).collect();
        let pack = store.disk().unwrap().index().spot(half[0]).unwrap().unwrap().pack;
        kept.extend(half.into_iter().step_by(2));
        store.set_label(&format!("half-{round}"), store.put_tree(stays.view()).unwrap()).unwrap();
        store.disk().unwrap().index().packs().roll();
        // Large ones first, so that what is freed is mostly packs; or the other way around.
        let lens = if round % 2 == 0 { [100_000, 3_000, 40] } else { [3_000, 100_000, 40] };
        from += RELATIONS;
        lens.into_iter().for_each(|len| from = fill(&store, from, len) + 1);
        // Who takes a name away gives the room back that it took.
        assert!(store.remove_label("goes").unwrap());
        fill(&store, 1 << 30, 3_000);
        drop(store);
        age(&home);
        let store = Store::open(options.clone()).unwrap();
        // What takes away goes through on a disk that is full, and others get none of its room.
        assert_no_space(&store.put_blob(&bytes(u32::MAX, 100_000)).unwrap_err());
        let store = Arc::new(store);
        let writer = (round != 1).then(|| Writer::begin(&store));
        let collected = store.collect(collection, &Vec::new);
        let written = writer.map(Writer::end);
        let collected = collected.unwrap();
        // There was no room for what stays of it, before other packs went.
        let is_moved = !store.disk().unwrap().index().packs().contains(pack);
        assert!(is_moved || written.is_some(), "pack {pack} is there");
        // They may have filled the disk again.
        println!("{round}: {written:?} objects were written meanwhile");
        drop(store);
        age(&home);
        let store = Store::open(options.clone()).unwrap();
        store.collect(collection, &Vec::new).unwrap();
        assert!(
            collected.objects > u64::from(RELATIONS) && collected.relations > u64::from(RELATIONS) * 9 / 10,
            "{round}: {collected:?}"
        );
        assert!(collected.freed_bytes > 4 << 20, "{round}: {collected:?}");
        store.has_spare_room().unwrap();
        let after = bytes(from, 500_000);
        let after = store.put_blob(&after).unwrap();
        kept.iter().for_each(|kept| assert!(store.get(*kept).unwrap().is_some(), "{kept}"));
        drop(store);
        let mut findings = Vec::new();
        let mut found = |finding| findings.push(finding);
        let mut watch = Watch { progress: &mut |_, _| true, found: &mut found };
        assert!(fsck(&home, &Check::default(), &mut watch).unwrap().is_clean(), "{findings:?}");
        let store = Store::open(options.clone()).unwrap();
        assert_eq!(store.get(after).unwrap().unwrap().len(), 500_000);
        from += 1;
    }
    println!("the child went through");
}

#[test]
fn a_full_disk_is_collected_on() {
    run("child_that_collects_on_a_full_disk", COLLECTING_VARIABLE);
}

#[test]
fn a_full_disk_is_an_error_and_no_end() {
    run("child_on_a_small_disk", HOME_VARIABLE);
}

/// Runs one of these inside a small file system of its own.
fn run(child: &str, variable: &str) {
    let folder = tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::full_disk::{child}"), "--nocapture"])
        .env(variable, folder.path())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return println!("skipped: unshare cannot be run: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare: ") || text.contains("mount: ") {
        return println!("skipped: no user namespaces or tmpfs mounts here: {text}");
    }
    assert!(output.status.success() && text.contains("the child went through"), "{text}");
}
