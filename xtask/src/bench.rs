// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench NAME [--tuned] [--json] [--without-peers] [OPTION…]`: prints a promised figure.
//!
//! With `--tuned`, of the binary that people install (`release`), which takes two builds more.
//! Peers are installed and started by the benches themselves, in the same run.

use anyhow::bail;

use crate::progress::step;
use crate::{corpus, guests, install, layout, process, release};

/// Benches with a peer that is installed into a Python environment.
const PYTHON_PEERS: &[&str] = &["invoke", "chain", "transfer", "workflows"];
/// Those with a peer that hands values over by a database.
const DATABASE_PEERS: &[&str] = &["transfer", "workflows"];

/// What is measured, and what measures.
const PACKAGES: &[&str] = &["cli", "benches"];

/// Builds what is measured in the release profile, then measures.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let Some(name) = arguments.first().filter(|name| !name.starts_with('-')) else {
        bail!(
            "usage: cargo xtask bench NAME [--tuned] [--json] [--without-peers] [OPTION…]; one file of benches/src is one NAME"
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
    // It may be there in another way.
    if DATABASE_PEERS.contains(name)
        && !arguments.contains(&"--without-peers")
        && let Err(why) = install::database()
    {
        eprintln!("redis-tools cannot be installed: {why:#}");
    }
    // It is no promised figure: the bench says what is missing.
    if *name == "compile" && !arguments.contains(&"--without-peers") && install::native_compiler().is_err() {
        eprintln!("clang-22 cannot be installed");
    }
    let mut arguments = arguments.to_vec();
    let is_tuned = arguments.contains(&"--tuned");
    arguments.retain(|argument| *argument != "--tuned");
    let built = if is_tuned { release::tuned(PACKAGES)? } else { plain()? };
    process::run(process::command(built.join("benches")).args(arguments))
}

/// Builds them in the release profile; the folder of their programs.
fn plain() -> anyhow::Result<std::path::PathBuf> {
    step("building in the release profile", || {
        let mut cargo = process::cargo();
        cargo
            .args(["build", "--quiet", "--release"])
            .args(PACKAGES.iter().flat_map(|package| ["-p", package]));
        process::run(&mut cargo)
    })?;
    Ok(layout::target().join("release"))
}
