// SPDX-License-Identifier: Apache-2.0
//! A process is killed in the middle of its puts, again and again; whatever it
//! said was stored must be there. A kill loses no page cache, so this tests
//! order and recovery; lost writes are the index tests' power cuts.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use tempfile::{TempDir, tempdir};

use super::witness::in_memory;
use crate::{Check, Options, Record, Rule, Store, Watch, fsck};

const HOME_VARIABLE: &str = "STORE_CRASH_TEST_HOME";
const ROUND_VARIABLE: &str = "STORE_CRASH_TEST_ROUND";
const KILLS: u64 = 20;
/// So often again where nothing has to be waited for: there a kill costs little.
const IN_MEMORY: u64 = 5;
const THREADS: u64 = 3;
/// One in so many actions waits until its relation is on the disk: otherwise a child whose disk is
/// quick would be killed before the first relations are written, which is a while after they are made.
const FLUSHED: u64 = 7;

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 1 << 20, relations_bytes: 1 << 18 }).unwrap()
}

/// The object that `number` stands for; one in ten is large.
fn bytes(number: u64) -> Vec<u8> {
    let len = if number % 10 == 3 { 65_536 + number % 1000 } else { 31 + number % 2000 };
    let mut bytes = vec![number as u8; len as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// One of everything that can be acknowledged.
fn act(store: &Store, number: u64) -> Handle {
    let blob = match number % 4 {
        0 => {
            let mut writer = store.blob_writer().unwrap();
            bytes(number).chunks(20_000).for_each(|piece| writer.write(piece).unwrap());
            writer.finish().unwrap()
        }
        _ => store.put_blob(&bytes(number)).unwrap(),
    };
    let tree: TreeBuilder = [blob, Handle::u64(number)].into_iter().collect();
    match number % 3 {
        0 => {
            store.keep_tree(tree.view());
            store.set_label(&format!("label-{number}"), tree.view().handle()).unwrap();
        }
        _ => drop(store.put_tree(tree.view()).unwrap()),
    }
    let result = store.keep_blob(&bytes(number + (1 << 40)));
    let record = Record { result, rule: Rule::Apply, nanos: 1 << 20, fuel: number };
    store.relations().insert(tree.view().handle().application().unwrap(), record);
    if number.is_multiple_of(FLUSHED) {
        store.flush_relations().unwrap();
    }
    blob
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_is_killed() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let store = Arc::new(open(&home));
    let run = |id: u64| {
        let store = Arc::clone(&store);
        let work = move || {
            for step in 0.. {
                let number = (round << 32) | (step * THREADS + id);
                act(&store, number);
                let line = format!("stored {number}\n");
                std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
            }
        };
        thread::Builder::new().spawn(work).unwrap()
    };
    let threads: Vec<_> = (0..THREADS).map(run).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Runs the child, kills it after it acknowledged `acknowledgements`, and
/// returns all that it acknowledged.
fn kill_one(home: &Path, round: u64, acknowledgements: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crash::child_that_is_killed", "--nocapture", "--test-threads=1"])
        .env(HOME_VARIABLE, home)
        .env(ROUND_VARIABLE, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stored = Vec::new();
    // libtest may begin a line that the first acknowledgement then ends.
    let mut next = || lines.next().map(|line| line.ok()?.split("stored ").nth(1)?.parse::<u64>().ok());
    while (stored.len() as u64) < acknowledgements {
        stored.extend(next().expect("the child lives until it is killed"));
    }
    thread::sleep(Duration::from_micros(round * 137 % 3000));
    child.kill().unwrap();
    child.wait().unwrap();
    while let Some(line) = next() {
        stored.extend(line);
    }
    stored
}

fn check(store: &Store, number: u64) {
    let blob = Handle::blob(&bytes(number));
    let object = store.get(blob).unwrap();
    assert_eq!(object.as_deref(), Some(bytes(number).as_slice()), "{number}");
    let tree: TreeBuilder = [blob, Handle::u64(number)].into_iter().collect();
    let handle = tree.view().handle();
    assert_eq!(store.get(handle).unwrap().unwrap().as_tree(), tree.view());
    if number.is_multiple_of(3) {
        assert_eq!(store.label(&format!("label-{number}")).unwrap(), Some(handle));
    }
    // Relations may be lost unless they were flushed, but one that is there has its result.
    let record = store.relations().get(handle.application().unwrap());
    assert!(record.is_some() || !number.is_multiple_of(FLUSHED), "the relation of {number}");
    if let Some(record) = record {
        let result = store.get(record.result).unwrap();
        assert_eq!(result.as_deref(), Some(bytes(number + (1 << 40)).as_slice()));
    }
}

#[test]
fn acknowledged_objects_survive_kills() {
    survive(&tempdir().unwrap(), 0);
}

#[test]
fn acknowledged_objects_survive_many_kills_where_writing_is_quick() {
    (1..=IN_MEMORY).for_each(|time| survive(&in_memory(), time * KILLS));
}

fn survive(folder: &TempDir, first: u64) {
    let mut all = Vec::new();
    let mut relations = 0;
    for round in first..first + KILLS {
        let stored = kill_one(folder.path(), round, 1 + round * 7 % 40);
        let mut findings = Vec::new();
        let mut found = |finding| findings.push(finding);
        let mut watch = Watch { progress: &mut |_, _| true, found: &mut found };
        let checked = fsck(folder.path(), &Check::default(), &mut watch).unwrap();
        assert!(checked.is_clean(), "after kill {round}: {findings:?}");
        let store = open(folder.path());
        stored.iter().for_each(|number| check(&store, *number));
        relations = relations.max(store.relations().len());
        assert_eq!(store.stats().corrupt, 0);
        assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
        all.extend(stored);
    }
    let store = open(folder.path());
    all.iter().for_each(|number| check(&store, *number));
    assert!(all.len() as u64 >= KILLS * 10, "{}", all.len());
    assert!(relations > 0, "no relation ever reached the disk");
}
