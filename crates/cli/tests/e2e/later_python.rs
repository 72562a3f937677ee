// SPDX-License-Identifier: Apache-2.0
//! Pythons that are later than the system's, as Debian has them, in a folder of the tests' own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The one of a version, with these packages; what keeps it from being fetched is listed as skipped.
pub(crate) fn fetched(version: &str, packages: &[&str]) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/python/fetch_python.py");
    let name = [&[&format!("python{version}")[..]], packages].concat().join("-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut fetching = Command::new("python3");
    let output = fetching.arg("-B").arg(script).arg(version).arg(folder).args(packages).output().unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.trim().lines().last().unwrap_or_default();
        println!("skipped: Python {version} cannot be fetched: {why}");
        return None;
    }
    Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}
