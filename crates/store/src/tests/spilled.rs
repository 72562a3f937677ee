// SPDX-License-Identifier: Apache-2.0
//! Trees that go to the disk because memory is short, in a process that is killed: what a
//! label names is whole, and no tree on the disk lacks what a check looks for.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::{Check, Options, Store, Watch, fsck};

const HOME_VARIABLE: &str = "STORE_SPILL_TEST_HOME";
const ROUND_VARIABLE: &str = "STORE_SPILL_TEST_ROUND";
const KILLS: u64 = 15;
/// Parts of each tree, so that most of it has left memory when it gets a name.
const PARTS: u64 = 40;

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 192 << 10, relations_bytes: 1 << 16 }).unwrap()
}

/// A part; one in twenty is a file of its own.
fn part(number: u64) -> Vec<u8> {
    let len = if number % 20 == 7 { 70_000 } else { 500 + number % 3000 };
    let mut bytes = vec![number as u8; len as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A tree of two levels, none of which is put; its handle.
fn keep(store: &Store, number: u64) -> Handle {
    let inner = (0..PARTS).map(|at| {
        let blob = store.keep_blob(&part(number * PARTS + at));
        let tree: TreeBuilder = [blob, Handle::u64(number)].into_iter().collect();
        store.keep_tree(tree.view())
    });
    let outer: TreeBuilder = inner.collect();
    store.keep_tree(outer.view())
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_is_killed_while_it_spills() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let store = open(&home);
    for step in 0.. {
        let number = (round << 20) | step;
        let tree = keep(&store, number);
        // Others push it out before it gets its name.
        let other = keep(&store, number | 1 << 40);
        store.set_label(&format!("tree-{number}"), tree).unwrap();
        let spilled = store.stats().spilled;
        writeln!(std::io::stdout().lock(), "named {number} {spilled} {other}").unwrap();
    }
}

/// Runs the child, kills it after so many trees, and returns those that it named, and how
/// many objects it had spilled.
fn kill_one(home: &Path, round: u64, trees: usize) -> (Vec<u64>, u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::spilled::child_that_is_killed_while_it_spills", "--nocapture"])
        .arg("--test-threads=1")
        .env(HOME_VARIABLE, home)
        .env(ROUND_VARIABLE, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut named, mut spilled) = (Vec::new(), 0);
    let mut next = |named: &mut Vec<u64>| {
        let line = lines.next()?.ok()?;
        // Whatever else libtest prints, and a line that was cut by the kill.
        let told = line.split("named ").nth(1).map(|told| told.split(' ').collect::<Vec<_>>());
        if let Some([number, objects, _]) = told.as_deref() {
            named.push(number.parse().unwrap());
            spilled = objects.parse().unwrap();
        }
        Some(())
    };
    while named.len() < trees {
        next(&mut named).expect("the child lives until it is killed");
    }
    std::thread::sleep(Duration::from_micros(round * 911 % 20_000));
    child.kill().unwrap();
    child.wait().unwrap();
    while next(&mut named).is_some() {}
    (named, spilled)
}

fn check(store: &Store, number: u64) {
    let tree = store.label(&format!("tree-{number}")).unwrap().unwrap();
    let outer = store.get(tree).unwrap().unwrap_or_else(|| panic!("the tree {number} is gone"));
    assert_eq!(outer.as_tree().len() as u64, PARTS);
    for (at, inner) in (0..).zip(outer.as_tree().iter()) {
        let inner = store.get(inner).unwrap().unwrap_or_else(|| panic!("{at} of the tree {number} is gone"));
        let blob = inner.as_tree().get(0).unwrap();
        let bytes = store.get(blob).unwrap();
        assert_eq!(bytes.as_deref(), Some(&part(number * PARTS + at)[..]), "{at} of {number}");
    }
}

#[test]
fn what_a_label_names_is_whole_although_it_was_spilled() {
    let folder = tempdir().unwrap();
    let (mut all, mut most_spilled) = (Vec::new(), 0);
    for round in 0..KILLS {
        let (named, spilled) = kill_one(folder.path(), round, 1 + round as usize * 3 % 7);
        most_spilled = most_spilled.max(spilled);
        let mut findings = Vec::new();
        let mut found = |finding| findings.push(finding);
        let mut watch = Watch { progress: &mut |_, _| true, found: &mut found };
        let checked = fsck(folder.path(), &Check::default(), &mut watch).unwrap();
        assert!(checked.is_clean(), "after kill {round}: {findings:?}");
        let store = open(folder.path());
        named.iter().for_each(|number| check(&store, *number));
        all.extend(named);
    }
    let store = open(folder.path());
    all.iter().for_each(|number| check(&store, *number));
    assert!(all.len() as u64 >= KILLS, "{}", all.len());
    assert!(most_spilled > PARTS, "memory was never short: {most_spilled}");
}
