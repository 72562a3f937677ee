// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask wasi-tests FOLDER`: a folder of built tests of WebAssembly/wasi-testsuite,
//! each run by `sinew run` on a node of its own home.
//!
//! Beside `NAME.wasm` there may be `NAME.json` with `args`, `env`, `root`,
//! `exit_code`, `stdout` and `stderr`. The tests are not part of this repository.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::node::Node;
use crate::{layout, process};

/// Runs all tests below a folder, and names those that fail.
pub(crate) fn run(folder: &str) -> anyhow::Result<()> {
    process::run(process::cargo().args(["build", "--quiet", "--workspace"]))?;
    let home = layout::root().join("target/wasi-tests");
    let node = Node::start(&layout::root().join("target/debug/sinew"), &home)?;
    let mut tests = Vec::new();
    find(Path::new(folder), &mut tests)?;
    tests.sort();
    let mut failed = 0;
    for test in &tests {
        if let Some(why) = check(&node, test).with_context(|| test.display().to_string())? {
            failed += 1;
            println!("failed: {}: {why}", test.display());
        }
    }
    println!("{} passed, {failed} failed", tests.len() - failed);
    if failed > 0 || tests.is_empty() {
        bail!("{failed} of {} tests failed", tests.len());
    }
    Ok(())
}

fn find(folder: &Path, tests: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, tests)?;
        } else if path.extension().is_some_and(|ending| ending == "wasm") {
            tests.push(path);
        }
    }
    Ok(())
}

/// Why a test failed, if it did.
fn check(node: &Node, test: &Path) -> anyhow::Result<Option<String>> {
    let wanted = match std::fs::read(test.with_extension("json")) {
        Ok(text) => serde_json::from_slice(&text)?,
        Err(_) => Value::Null,
    };
    let mut sinew = node.sinew();
    sinew.arg("run").arg(test).stdin(Stdio::null());
    for (name, value) in wanted["env"].as_object().into_iter().flatten() {
        sinew.arg("--env").arg(format!("{name}={}", value.as_str().unwrap_or_default()));
    }
    if let Some(root) = wanted["root"].as_str() {
        let folder = test.parent().context("a test is in a folder")?;
        sinew.arg("--dir").arg(format!("{}=/", folder.join(root).display()));
    }
    let texts = |name: &str| wanted[name].as_array().into_iter().flatten().filter_map(Value::as_str);
    sinew.arg("--").args(texts("args"));
    let ran = sinew.output()?;
    let code = ran.status.code().map(i64::from);
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let is_text = |name: &str, found: &str| wanted[name].as_str().is_none_or(|text| text == found);
    if code == Some(wanted["exit_code"].as_i64().unwrap_or(0))
        && is_text("stdout", &stdout)
        && is_text("stderr", &stderr)
    {
        return Ok(None);
    }
    Ok(Some(format!("exit code {code:?}\n{stdout}{stderr}")))
}
