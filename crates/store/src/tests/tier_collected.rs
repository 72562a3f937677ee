// SPDX-License-Identifier: Apache-2.0
//! A process is killed while it takes away in the tier what nobody needs, and while it puts, names and
//! forgets; each time its disk is lost as well. What has a name must be in every home that takes the tier.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::{Awaited, FolderDepot, Options, Store, TierOptions};

const FOLDER_VARIABLE: &str = "STORE_TIER_COLLECTED_TEST_FOLDER";
const ROUND_VARIABLE: &str = "STORE_TIER_COLLECTED_TEST_ROUND";
const KILLS: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(60);

/// A home that takes the tier, with nothing on its disk.
fn take(folder: &Path, home: &str) -> Store {
    let options = Options { home: Some(folder.join(home)), memory_bytes: 1 << 20, relations_bytes: 1 << 18 };
    let store = Store::open(options).unwrap();
    let depot = FolderDepot::open(&folder.join("bucket")).unwrap();
    let linger = Duration::from_millis(2);
    // Whoever was killed removes nothing any more.
    let options =
        TierOptions { linger, pause_max: linger, collector_patience: linger, ..TierOptions::default() };
    store.attach_tier(Arc::new(depot), options).unwrap();
    if folder.join("bucket/names/FORMAT").exists() {
        store.take_tier().unwrap();
    }
    store
}

/// All that is not named or on the disk goes, however young.
fn collect(store: &Store) -> Result<crate::TierCollected, crate::Error> {
    store.collect_tier_before(SystemTime::now() + Duration::from_secs(3600), false, &Vec::new)
}

fn bytes(number: u64, at: u64) -> Vec<u8> {
    let len = if at == 2 { 65_536 + number % 100 } else { 100 + number % 3000 };
    let mut bytes = vec![at as u8; len as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn tree_of(number: u64) -> TreeBuilder {
    (0..3).map(|at| Handle::blob(&bytes(number, at))).collect()
}

fn say(what: &str, number: u64) {
    std::io::stdout().lock().write_all(format!("{what} {number}\n").as_bytes()).unwrap();
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND_VARIABLE).unwrap().parse().unwrap();
    let store = Arc::new(take(&folder, &format!("home-{round}")));
    let collector = Arc::clone(&store);
    thread::spawn(move || {
        loop {
            collect(&collector).unwrap();
            say("collected", 0);
        }
    });
    // Of what was named by those before this, every third loses its name.
    for (name, _) in store.labels().unwrap() {
        let number: u64 = name.strip_prefix("label-").unwrap().parse().unwrap();
        if number.is_multiple_of(3) {
            say("forgets", number);
            store.remove_label(&name).unwrap();
        }
    }
    for number in (round * 1000).. {
        for at in 0..3 {
            store.put_blob(&bytes(number, at)).unwrap();
        }
        store.put_tree(tree_of(number).view()).unwrap();
        store.set_label(&format!("label-{number}"), tree_of(number).view().handle()).unwrap();
        store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
        say("stored", number);
    }
}

#[test]
fn what_has_a_name_survives_kills_of_who_takes_away_the_rest() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let (mut stored, mut forgotten) = (HashSet::new(), HashSet::new());
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tests::tier_collected::child_that_is_killed",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(FOLDER_VARIABLE, folder)
            .env(ROUND_VARIABLE, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut collections, mut new) = (0, 0);
        let mut hear = |line: String| {
            let words: Vec<&str> = line.split_whitespace().rev().take(2).collect();
            match words[..] {
                [number, "stored"] => {
                    stored.insert(number.parse::<u64>().unwrap());
                    new += 1;
                }
                [number, "forgets"] => _ = forgotten.insert(number.parse::<u64>().unwrap()),
                [_, "collected"] => collections += 1,
                _ => {}
            }
            new >= 2 + round % 3 && collections >= round % 4
        };
        while !hear(lines.next().expect("the child lives until it is killed").unwrap()) {}
        thread::sleep(Duration::from_micros(round * 7919 % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(|line| _ = hear(line));
        let store = take(folder, &format!("check-{round}"));
        let labels: Vec<_> = store.labels().unwrap();
        for number in stored.difference(&forgotten) {
            let handle = tree_of(*number).view().handle();
            assert!(labels.contains(&(format!("label-{number}"), handle)), "{round}: {number}");
        }
        for (name, handle) in labels {
            let tree = store.get(handle).unwrap().unwrap_or_else(|| panic!("{round}: {name}"));
            assert!(
                tree.as_tree().iter().all(|entry| store.get(entry).unwrap().is_some()),
                "{round}: {name}"
            );
        }
    }
    // And nothing else stays in the end but what shares a pack.
    let store = take(folder, "last");
    collect(&store).unwrap();
    collect(&store).unwrap();
    for number in &forgotten {
        let key = Handle::blob(&bytes(*number, 2));
        let is_named = store.label(&format!("label-{number}")).unwrap().is_some();
        assert_eq!(store.is_far(key).unwrap(), is_named, "{number}");
    }
    assert!(!forgotten.is_empty());
}
