// SPDX-License-Identifier: Apache-2.0
//! What an empty store costs, measured in a process of its own.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::PathBuf;
use std::process::Command;

use tempfile::tempdir;

use crate::{Options, Store};

const HOME_VARIABLE: &str = "STORE_EMPTY_TEST_HOME";
/// However large the budgets are.
const RSS_MAX_BYTES: u64 = 10 << 20;

/// Not a test of its own: the process that is measured.
#[test]
fn child_with_an_empty_store() {
    let Some(home) = std::env::var_os(HOME_VARIABLE).map(PathBuf::from) else { return };
    for home in [None, Some(home)] {
        let before = linux::peak_rss_bytes().unwrap();
        let options = Options { home, memory_bytes: 64 << 30, relations_bytes: 8 << 30 };
        let store = Store::open(options).unwrap();
        let grown = linux::peak_rss_bytes().unwrap() - before;
        assert!(grown < RSS_MAX_BYTES, "{grown}");
        assert_eq!((store.stats().memory_objects, store.stats().memory_bytes), (0, 0));
        println!("an empty store took {} KiB", grown >> 10);
    }
}

#[test]
fn an_empty_store_is_small() {
    let folder = tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::empty::child_with_an_empty_store", "--nocapture"])
        .env(HOME_VARIABLE, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("an empty store took").count(), 2, "{text}");
}
