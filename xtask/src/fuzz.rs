// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets, where the tools for them are: nightly Rust and `cargo-fuzz`.

use std::fs;

use anyhow::bail;

use crate::progress::step;
use crate::{layout, process};

/// Seconds of one target in a test run.
pub(crate) const SMOKE_SECONDS: u32 = 5;

/// Runs one target or all. Returns how many ran; the error names the first
/// that found something.
pub(crate) fn run(name: Option<&str>, seconds: u32) -> anyhow::Result<usize> {
    if let Some(reason) = why_not() {
        bail!("cannot fuzz: {reason}");
    }
    let targets = match name {
        Some(name) => vec![name.to_owned()],
        None => targets()?,
    };
    for target in &targets {
        step(&format!("fuzzing {target} for {seconds} s"), || {
            let mut fuzz = process::command("cargo");
            // The first folder gets what is found to be new; the seeds are only read.
            let found = format!("fuzz/corpus/{target}");
            fs::create_dir_all(layout::root().join(&found))?;
            let seeds = format!("fuzz/seeds/{target}");
            let seeds = layout::root().join(&seeds).exists().then_some(seeds);
            fuzz.args(["+nightly", "fuzz", "run", target, &found]).args(seeds).arg("--");
            fuzz.current_dir(layout::root());
            fuzz.arg(format!("-max_total_time={seconds}"));
            fuzz.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
            process::run(&mut fuzz)
        })?;
    }
    Ok(targets.len())
}

/// What is missing to fuzz here, if anything.
pub(crate) fn why_not() -> Option<&'static str> {
    if !layout::root().join("fuzz/Cargo.toml").exists() {
        return Some("there are no fuzz targets");
    }
    let cargo = |arguments: &[&str]| {
        let mut cargo = process::command("cargo");
        process::succeeds(cargo.env_remove("RUSTUP_TOOLCHAIN").args(arguments))
    };
    if !cargo(&["+nightly", "--version"]) {
        return Some("no nightly Rust (`rustup toolchain install nightly`)");
    }
    if !cargo(&["+nightly", "fuzz", "--version"]) {
        return Some("no cargo-fuzz (`cargo install cargo-fuzz`)");
    }
    None
}

fn targets() -> anyhow::Result<Vec<String>> {
    let manifest: toml::Table = fs::read_to_string(layout::root().join("fuzz/Cargo.toml"))?.parse()?;
    let bins = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
    let names = bins.filter_map(|bin| bin.get("name").and_then(toml::Value::as_str));
    Ok(names.map(str::to_owned).collect())
}
