// SPDX-License-Identifier: Apache-2.0
//! A process whose memory is short is killed while it remembers results: each that
//! is found again leads to all that it names, also behind refs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::{Options, Record, Rule, Store};

const HOME_VARIABLE: &str = "STORE_SPILLED_TEST_HOME";
const ROUND_VARIABLE: &str = "STORE_SPILLED_TEST_ROUND";
const KILLS: u64 = 20;
/// Trees that are not looked at between their making and the result that names them.
const LATER: usize = 3000;

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 1 << 20, relations_bytes: 1 << 20 }).unwrap()
}

fn leaf(store: &Store, number: u64) -> Handle {
    let mut bytes = vec![number as u8; 200];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    store.keep_blob(&bytes)
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_with_little_memory() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let store = open(&home);
    let mut made: Vec<(Handle, Handle)> = Vec::new();
    for step in 0_u64.. {
        let number = round << 32 | step;
        let leaf = leaf(&store, number);
        // One in fifty is a file of its own.
        let fill = if step % 50 == 7 { 2100 } else { 1 };
        let tree: TreeBuilder = std::iter::repeat_n(Handle::u64(number), fill).chain([leaf]).collect();
        made.push((store.keep_tree(tree.view()), leaf));
        let Some(at) = made.len().checked_sub(LATER) else { continue };
        // Leaves are looked at until their result is written, and so not spilled. Results
        // are written every 50 ms: that is a few hundred steps.
        made[at.saturating_sub(700)..at + 800]
            .iter()
            .step_by(5)
            .for_each(|(_, leaf)| drop(store.local(*leaf)));
        if step % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let key: TreeBuilder = [Handle::u64(number), Handle::u64(1)].into_iter().collect();
        let result: TreeBuilder = [made[at].0.lowered().unwrap()].into_iter().collect();
        let result = store.keep_tree(result.view());
        let record = Record { result, rule: Rule::Apply, nanos: 1 << 20, fuel: 0 };
        store.relations().insert(key.view().handle().application().unwrap(), record);
        if step % 500 == 0 && store.stats().spilled > 2000 {
            let line = format!("remembered {at}\n");
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        }
    }
}

/// Runs the child and kills it some time after it has begun to spill and to remember.
fn kill_one(home: &Path, round: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::spilled::child_with_little_memory", "--nocapture", "--test-threads=1"])
        .env(HOME_VARIABLE, home)
        .env(ROUND_VARIABLE, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        let line = lines.next().expect("the child lives until it is killed").unwrap();
        let remembered = line.split_once("remembered ").and_then(|(_, number)| number.parse::<usize>().ok());
        if remembered.is_some_and(|remembered| remembered > 1000) {
            break;
        }
    }
    std::thread::sleep(Duration::from_micros(round * 7919 % 50_000));
    child.kill().unwrap();
    child.wait().unwrap();
}

fn is_whole(store: &Store, handle: Handle) -> bool {
    let Some(object) = store.get(handle).unwrap() else { return false };
    !handle.plain_tree().names_tree() || object.as_tree().iter().all(|entry| is_whole(store, entry))
}

#[test]
fn results_lead_to_all_that_they_name_after_kills_where_memory_is_short() {
    let folder = tempdir().unwrap();
    let mut seen = HashSet::new();
    for round in 0..KILLS {
        kill_one(folder.path(), round);
        let store = open(folder.path());
        for result in store.relations().results() {
            assert!(is_whole(&store, result), "{result} after kill {round}");
            seen.insert(result);
        }
    }
    assert!(seen.len() > 1000, "{}", seen.len());
}
