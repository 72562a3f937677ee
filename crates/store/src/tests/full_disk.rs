// SPDX-License-Identifier: Apache-2.0
//! A store on a file system of a few megabytes that fills up. Needs user
//! namespaces, to mount one without being root; says so where there are none.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::tempdir;

use crate::{Error, Options, Store};

const HOME_VARIABLE: &str = "STORE_FULL_DISK_TEST_HOME";
const SCRIPT: &str = "mount -t tmpfs -o size=16m sinew-test \"$0\" && exec \"$@\"";

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

#[test]
fn a_full_disk_is_an_error_and_no_end() {
    let folder = tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "tests::full_disk::child_on_a_small_disk", "--nocapture"])
        .env(HOME_VARIABLE, folder.path())
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
