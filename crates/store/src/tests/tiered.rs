// SPDX-License-Identifier: Apache-2.0
//! A process is killed while it puts, labels and sends to a tier, again and again; at the end
//! its disk is lost. Whatever it said the tier has must be in a home that takes the tier.
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
use crate::{Awaited, Check, FolderDepot, Options, Store, TierOptions, Watch, fsck};

const FOLDER_VARIABLE: &str = "STORE_TIER_TEST_FOLDER";
const ROUND_VARIABLE: &str = "STORE_TIER_TEST_ROUND";
const KILLS: u64 = 24;
const THREADS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

fn open(folder: &Path, home: &str) -> Store {
    let options = Options { home: Some(folder.join(home)), memory_bytes: 1 << 20, relations_bytes: 1 << 18 };
    let store = Store::open(options).unwrap();
    let depot = FolderDepot::open(&folder.join("bucket")).unwrap();
    let linger = Duration::from_millis(2);
    let options = TierOptions { linger, pause_max: linger, ..TierOptions::default() };
    store.attach_tier(Arc::new(depot), options).unwrap();
    store
}

/// The object that `number` stands for; some are large, and have parts.
fn bytes(number: u64) -> Vec<u8> {
    let len = match number % 20 {
        3 | 13 => 65_536 + number % 1000,
        7 => (1 << 20) + number % 1000,
        _ => 31 + number % 2000,
    };
    let mut bytes = vec![number as u8; len as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn tree_of(number: u64) -> TreeBuilder {
    [Handle::blob(&bytes(number)), Handle::u64(number)].into_iter().collect()
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let store = Arc::new(open(&folder, "home"));
    let run = |id: u64| {
        let store = Arc::clone(&store);
        let work = move || {
            for step in 0.. {
                let number = (round << 32) | (step * THREADS + id);
                let blob = store.put_blob(&bytes(number)).unwrap();
                let is_named = number.is_multiple_of(3);
                if is_named {
                    let tree = tree_of(number);
                    store.keep_tree(tree.view());
                    store.set_label(&format!("label-{number}"), tree.view().handle()).unwrap();
                }
                let own = [blob];
                let awaited = match number % 6 {
                    0 => Awaited::All { labels: true },
                    3 => Awaited::Labels(Vec::new()),
                    _ => Awaited::Objects(own.to_vec()),
                };
                store.tier_until(awaited, PATIENCE).unwrap();
                let line = format!("stored {number}\n");
                std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
            }
        };
        thread::Builder::new().spawn(work).unwrap()
    };
    let threads: Vec<_> = (0..THREADS).map(run).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Runs the child, kills it after it acknowledged so many, and returns all that it acknowledged.
fn kill_one(folder: &Path, round: u64, acknowledgements: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::tiered::child_that_is_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER_VARIABLE, folder)
        .env(ROUND_VARIABLE, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stored = Vec::new();
    let mut next = || lines.next().map(|line| line.ok()?.split("stored ").nth(1)?.parse::<u64>().ok());
    while (stored.len() as u64) < acknowledgements {
        stored.extend(next().expect("the child lives until it is killed"));
    }
    thread::sleep(Duration::from_micros(round * 1373 % 30_000));
    child.kill().unwrap();
    child.wait().unwrap();
    while let Some(line) = next() {
        stored.extend(line);
    }
    stored
}

fn check(store: &Store, number: u64) {
    let object = store.get(Handle::blob(&bytes(number))).unwrap();
    assert_eq!(object.as_deref(), Some(bytes(number).as_slice()), "{number}");
    if number.is_multiple_of(3) {
        let tree = tree_of(number);
        assert_eq!(store.label(&format!("label-{number}")).unwrap(), Some(tree.view().handle()));
        assert_eq!(store.get(tree.view().handle()).unwrap().unwrap().as_tree(), tree.view());
    }
}

#[test]
fn what_the_tier_acknowledged_survives_kills_and_the_loss_of_the_disk() {
    survive(&tempdir().unwrap(), 0);
}

#[test]
fn it_survives_more_of_them_where_writing_is_quick() {
    (1..=2).for_each(|time| survive(&in_memory(), time * KILLS));
}

fn survive(folder: &TempDir, first: u64) {
    let mut all = Vec::new();
    for round in first..first + KILLS {
        all.extend(kill_one(folder.path(), round, 1 + round * 5 % 12));
        let mut findings = Vec::new();
        let mut found = |finding| findings.push(finding);
        let mut watch = Watch { progress: &mut |_, _| true, found: &mut found };
        let checked = fsck(&folder.path().join("home"), &Check::default(), &mut watch).unwrap();
        assert!(checked.is_clean(), "after kill {round}: {findings:?}");
        if round % 8 == 7 {
            let store = open(folder.path(), &format!("home-{round}"));
            store.take_tier().unwrap();
            all.iter().for_each(|number| check(&store, *number));
            // Every label has all that it names, acknowledged or not.
            for (name, handle) in store.labels().unwrap() {
                let tree = store.get(handle).unwrap().unwrap();
                let has = |entry| store.get(entry).unwrap().is_some();
                assert!(tree.as_tree().iter().all(has), "{name}");
            }
            drop(store);
            // The next child goes on with it.
            std::fs::remove_dir_all(folder.path().join("home")).unwrap();
            std::fs::rename(folder.path().join(format!("home-{round}")), folder.path().join("home")).unwrap();
        }
    }
    assert!(all.len() as u64 >= KILLS * 3, "{}", all.len());
}
