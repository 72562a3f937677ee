// SPDX-License-Identifier: Apache-2.0
//! The Python that all sides of `transfer` and `workflows` use, with what both need.
//!
//! The one in `PATH`, in an environment of its own; with `--python=3.14`, one that is fetched from Debian's archive
//! (`guests/python/fetch_python.py`), with libraries of a version that it can have.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use crate::coldstart::installed;
use crate::options::Options;

const SHARED: [&str; 7] = [
    "pyarrow==26.0.1",
    "pillow==13.0.0",
    "lightgbm==4.7.0",
    "scikit-learn==1.9.1",
    "redis==7.1.0",
    "hiredis==3.5.0",
    "ray==2.60.0",
];
const USUAL: [&str; 2] = ["numpy==2.2.6", "pandas==2.3.3"];
const LATER: [&str; 2] = ["numpy==2.5.5", "pandas==3.1.1"];
/// LightGBM needs a library of the system: libgomp.
const CHECK: &str =
    "import numpy, pandas, pyarrow, PIL.Image, lightgbm, sklearn.ensemble, redis, hiredis, ray";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

pub(crate) fn python(options: &Options) -> anyhow::Result<PathBuf> {
    match options.value("python") {
        Some(version) => fetched(version),
        None => installed("bench-transfer", &[&USUAL[..], &SHARED].concat(), CHECK),
    }
}

/// A later one, whose packages lie among its own.
#[expect(clippy::disallowed_methods, reason = "what fetches an interpreter is a program of its own")]
fn fetched(version: &str) -> anyhow::Result<PathBuf> {
    let folder = Path::new(ROOT).canonicalize()?.join(format!("target/bench-python{version}"));
    let mut fetching = Command::new("python3");
    fetching.arg(format!("{ROOT}/guests/python/fetch_python.py")).arg(version).arg(&folder);
    let fetched = fetching.args(LATER).args(SHARED).output()?;
    ensure!(fetched.status.success(), "Python {version}: {}", String::from_utf8_lossy(&fetched.stderr));
    Ok(folder.join(format!("usr/bin/python{version}")))
}
