// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench NAME [--json] [--without-peers] [OPTION…]`: prints a promised figure.
//!
//! Peers are installed and started by the benches themselves, in the same run.

use anyhow::bail;

use crate::progress::step;
use crate::{corpus, guests, install, layout, process};

/// Benches with a peer that is installed into a Python environment.
const PYTHON_PEERS: &[&str] = &["invoke", "chain"];

/// Builds what is measured in the release profile, then measures.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let Some(name) = arguments.first().filter(|name| !name.starts_with('-')) else {
        bail!(
            "usage: cargo xtask bench NAME [--json] [--without-peers] [OPTION…]; one file of benches/src is one NAME"
        );
    };
    guests::run()?;
    if *name == "count-string" || *name == "all" {
        corpus::run()?;
    }
    if PYTHON_PEERS.contains(name) && !arguments.contains(&"--without-peers") {
        install::python_environments()?;
    }
    if *name == "coldstart" && !arguments.contains(&"--without-peers") {
        install::container_runtime()?;
    }
    // It is no promised figure: the bench says what is missing.
    if *name == "compile" && !arguments.contains(&"--without-peers") && install::native_compiler().is_err() {
        eprintln!("clang-22 cannot be installed");
    }
    step("building in the release profile", || {
        process::run(process::cargo().args(["build", "--quiet", "--release", "-p", "cli", "-p", "benches"]))
    })?;
    process::run(process::command(layout::target().join("release/benches")).args(arguments))
}
