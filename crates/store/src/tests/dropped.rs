// SPDX-License-Identifier: Apache-2.0
//! A process is killed while it drops what was computed and others put: whatever has a
//! name must be there, or have a recipe of which everything is there.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::recipes::tests::{age, application, apply, collect, open, output};
use crate::{Dropping, Store};

const HOME_VARIABLE: &str = "STORE_DROPPED_TEST_HOME";
const ROUND_VARIABLE: &str = "STORE_DROPPED_TEST_ROUND";
const KILLS: u64 = 20;
const ALL: Dropping = Dropping { bytes_min: 0, nanos_per_kib: u64::MAX };

/// Computes a chain, names it, and puts some of what was computed long ago.
fn make(store: &Store, number: u64) {
    let mut last = Handle::u64(number);
    let mut links = Vec::new();
    for _ in 0..4 {
        last = apply(store, application(store, &[last]), 60_000);
        links.push(last);
    }
    let chain: TreeBuilder = links.into_iter().collect();
    let chain = store.keep_tree(chain.view());
    store.set_label(&format!("chain-{}", number % 40), chain).unwrap();
    let before = application(store, &[Handle::u64(number.saturating_sub(30))]);
    if number.is_multiple_of(5) {
        let put = store.put_blob(&output(before)).unwrap();
        store.set_label(&format!("put-{}", number % 20), put).unwrap();
    }
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_drops() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let store = Arc::new(open(&home));
    let making = Arc::clone(&store);
    let make = move || (0..u32::MAX).for_each(|step| make(&making, round << 32 | u64::from(step)));
    let maker = thread::Builder::new().spawn(make).unwrap();
    loop {
        store.disk().unwrap().index().packs().roll();
        age(&home);
        let dropped = collect(&store, Some(ALL)).dropped;
        std::io::stdout().lock().write_all(format!("dropped {dropped}\n").as_bytes()).unwrap();
        assert!(!maker.is_finished());
    }
}

/// Runs the child and kills it some time after it has dropped something. How many that were.
fn kill_one(home: &Path, round: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::dropped::child_that_drops", "--nocapture", "--test-threads=1"])
        .env(HOME_VARIABLE, home)
        .env(ROUND_VARIABLE, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut dropped = 0;
    let mut collections = 0;
    while collections < 2 + round % 3 {
        let line = lines.next().expect("the child lives until it is killed").unwrap();
        if let Some((_, objects)) = line.split_once("dropped ") {
            dropped += objects.parse::<u64>().unwrap();
            collections += 1;
        }
    }
    thread::sleep(Duration::from_micros(round * 2371 % 40_000));
    child.kill().unwrap();
    child.wait().unwrap();
    dropped
}

/// Whether an object is here, or can be made of what is. How many had to be.
pub(super) fn can_be_had(store: &Store, object: Handle) -> Option<u64> {
    let (mut pending, mut made) = (vec![object.plain_tree()], 0);
    while let Some(key) = pending.pop() {
        if key.literal_bytes().is_some() {
            continue;
        }
        let tree = match store.get(key).unwrap() {
            Some(found) if key.names_tree() => found,
            Some(_) => continue,
            None => {
                made += 1;
                let recipe = store.recipe(key).unwrap()?;
                assert_eq!(Handle::blob(&output(recipe.application)), key);
                store.get(recipe.application.definition()).unwrap()?
            }
        };
        pending.extend(tree.as_tree().iter().map(Handle::plain_tree));
    }
    Some(made)
}

#[test]
fn what_is_named_can_be_had_after_kills_while_it_is_dropped() {
    let folder = tempdir().unwrap();
    let (mut dropped, mut made, mut labels) = (0, 0, 0);
    for round in 0..KILLS {
        dropped += kill_one(folder.path(), round);
        let store = open(folder.path());
        for (label, handle) in store.labels().unwrap() {
            let had = can_be_had(&store, handle);
            made += had.unwrap_or_else(|| panic!("{label} after kill {round}"));
            if label.starts_with("put-") {
                assert!(store.contains(handle).unwrap(), "{label} was put, and is gone after kill {round}");
            }
            labels += 1;
        }
        assert_eq!(store.stats().corrupt, 0);
    }
    assert!(dropped > 20 && made > 20 && labels > 100, "{dropped}, {made}, {labels}");
}
