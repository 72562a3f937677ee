// SPDX-License-Identifier: Apache-2.0
//! The suite of hostile guests, counted: what got out, or left something
//! behind. It is `cargo test`'s, and runs here as it runs there.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::figures::Report;

/// Modules of attacks in the names of cases.
const ATTACKS: [&str; 3] = ["reach::", "resources::", "hostile::"];

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let (mut contained, mut failed, mut ignored) = (0, 0, 0);
    for suite in ["containers", "functions"] {
        for line in output(suite)?.lines() {
            let Some((name, verdict)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
            else {
                continue;
            };
            if !ATTACKS.iter().any(|module| name.contains(module)) {
                continue;
            }
            match verdict {
                "ok" => contained += 1,
                _ if verdict.starts_with("ignored") => ignored += 1,
                _ => failed += 1,
            }
            if verdict != "ok" {
                eprintln!("  {line}");
            }
        }
    }
    ensure!(
        contained + failed > 0,
        "no attack was run; the suite of hostile guests takes the rights of root"
    );
    let n = contained + failed;
    report.add("contained", contained as f64, "count", "attacks, neighbours served, nothing left behind", n);
    report.add(
        "escaped_or_leaked",
        failed as f64,
        "count",
        "attacks that the suite did not see contained",
        n,
    );
    report.add("not_run", ignored as f64, "count", "attacks that this machine cannot try", n + ignored);
    report.note(
        "reach and resources: each attack also succeeds with its defence off, but those that the kernel of a machine \
         refuses anyway; `cargo test -p sandbox --test containers --test functions` names them",
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the suite is a program of its own")]
fn output(suite: &str) -> anyhow::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--package", "sandbox", "--test", suite]).stdin(Stdio::null());
    command.stderr(Stdio::inherit());
    let output = command.output().context("cargo cannot be run")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
