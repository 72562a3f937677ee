// SPDX-License-Identifier: Apache-2.0
//! A process is killed while it collects and others write: whatever has a name,
//! and every remembered result, must be there as a whole.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::packs::now;
use crate::{Collection, Options, Record, Rule, Store};

const HOME_VARIABLE: &str = "STORE_COLLECTED_TEST_HOME";
const ROUND_VARIABLE: &str = "STORE_COLLECTED_TEST_ROUND";
const KILLS: u64 = 25;
const HOUR: Duration = Duration::from_secs(3600);

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 1 << 20, relations_bytes: 1 << 18 }).unwrap()
}

fn bytes(number: u64) -> Vec<u8> {
    let len = if number % 10 == 3 { 66_000 } else { 31 + number % 2000 };
    let mut bytes = vec![number as u8; len as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Names a tree, and takes another name back.
fn name(store: &Store, number: u64) {
    let blob = store.put_blob(&bytes(number)).unwrap();
    let inner: TreeBuilder = [blob, store.keep_blob(&bytes(number / 2))].into_iter().collect();
    let outer: TreeBuilder = [store.keep_tree(inner.view()), Handle::u64(number)].into_iter().collect();
    let outer = store.keep_tree(outer.view());
    store.set_label(&format!("label-{}", number % 30), outer).unwrap();
    store.remove_label(&format!("label-{}", (number + 11) % 30)).unwrap();
    let result = store.keep_blob(&bytes(number + (1 << 40)));
    let key = outer.application().unwrap();
    store.relations().insert(key, Record { result, rule: Rule::Apply, nanos: 1 << 20, fuel: 0 });
}

/// Makes what was written until now five hours old.
fn age(store: &Store, home: &Path) {
    let packs = store.disk().unwrap().index().packs();
    let newest = packs.roll();
    for number in packs.numbers().into_iter().filter(|number| *number < newest) {
        let pack = File::options().write(true).open(home.join(format!("packs/{number:010}.pack")));
        pack.unwrap().set_modified(now() - 5 * HOUR).unwrap();
    }
    let mut large = Vec::new();
    store.disk().unwrap().files().visit(|_, path| large.push(path.to_owned())).unwrap();
    for path in large {
        File::options().write(true).open(path).unwrap().set_modified(now() - 5 * HOUR).unwrap();
    }
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_collects() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let store = Arc::new(open(&home));
    let writing = Arc::clone(&store);
    let write = move || (0..u32::MAX).for_each(|step| name(&writing, round << 32 | u64::from(step)));
    let writer = thread::Builder::new().spawn(write).unwrap();
    loop {
        age(&store, &home);
        let collected =
            store.collect(Collection { kept: HOUR, is_trial: false, dropping: None }, &Vec::new).unwrap();
        let line = format!("collected {}\n", collected.objects);
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        assert!(!writer.is_finished());
    }
}

/// Runs the child and kills it some time after a collection. How many objects went.
fn kill_one(home: &Path, round: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::collected::child_that_collects", "--nocapture", "--test-threads=1"])
        .env(HOME_VARIABLE, home)
        .env(ROUND_VARIABLE, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut went = 0;
    let mut collections = 0;
    while collections < 1 + round % 4 {
        let line = lines.next().expect("the child lives until it is killed").unwrap();
        if let Some((_, objects)) = line.split_once("collected ") {
            went += objects.parse::<u64>().unwrap();
            collections += 1;
        }
    }
    thread::sleep(Duration::from_micros(round * 1371 % 30_000));
    child.kill().unwrap();
    child.wait().unwrap();
    went
}

fn is_whole(store: &Store, handle: Handle) -> bool {
    let Some(object) = store.get(handle).unwrap() else { return false };
    !handle.plain_tree().names_tree() || object.as_tree().iter().all(|entry| is_whole(store, entry))
}

#[test]
fn what_is_named_survives_kills_during_collections() {
    let folder = tempdir().unwrap();
    let mut went = 0;
    let (mut labels, mut relations) = (0, 0);
    for round in 0..KILLS {
        went += kill_one(folder.path(), round);
        let store = open(folder.path());
        for (label, handle) in store.labels().unwrap() {
            assert!(is_whole(&store, handle), "{label} after kill {round}");
            labels += 1;
        }
        for result in store.relations().results() {
            assert!(is_whole(&store, result), "{result} after kill {round}");
            relations += 1;
        }
        assert_eq!(store.stats().corrupt, 0);
    }
    assert!(went > 200 && labels > 100 && relations > 0, "{went}, {labels}, {relations}");
}
