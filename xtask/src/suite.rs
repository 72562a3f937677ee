// SPDX-License-Identifier: Apache-2.0
//! `make check` and `make test`: every check there is, in order of cost.
//!
//! A failing step does not stop the others; all are named at the end. A test
//! that is ignored is listed with its reason; one that is not expected to be
//! counts as failed. Listed, too, are those that find something missing that
//! they need, and print a line `skipped: …`; they count as passed. Why
//! tests have failed is told again at the end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::progress::{seconds, step};
use crate::{build_times, examples, fuzz, guests, install, layout, licences, process, release, tidy};

/// Tests that may be ignored, and why.
const IGNORED: &[(&str, &str)] = &[];

/// Tests that say nothing for so long hang: the longest one takes five minutes.
const SILENCE_MAX: Duration = Duration::from_secs(20 * 60);
/// Lines from where a test panics on that are told again at the end.
const TOLD_LINES: usize = 8;

/// What happened so far.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    broken: Vec<String>,
    /// Why tests have failed.
    told: Vec<String>,
}

impl Tally {
    /// A step that is not counted by tests: one check, passed or failed.
    fn step(&mut self, what: &str, work: impl FnOnce() -> anyhow::Result<()>) {
        match step(what, work) {
            Ok(()) => self.passed += 1,
            Err(error) => {
                eprintln!("    {error:#}");
                self.failed += 1;
                self.broken.push(what.to_owned());
            }
        }
    }

    /// Runs `cargo test` with these arguments and adds its counts.
    fn tests(&mut self, what: &str, folder: &str, arguments: &[&str]) {
        let mut output = TestOutput::default();
        let result = step(what, || {
            let cargo_test = || {
                let mut cargo = process::cargo();
                cargo
                    .current_dir(layout::root().join(folder))
                    .args(["test", "--no-fail-fast"])
                    .args(arguments);
                if folder == "guests" {
                    cargo.env("CARGO_TARGET_DIR", layout::root().join("target/guests-build"));
                }
                cargo
            };
            // To build them may take longer, and says nothing.
            process::run(cargo_test().arg("--no-run"))?;
            let mut cargo = cargo_test();
            cargo.args(["--", "--show-output"]);
            if !process::watch(&mut cargo, SILENCE_MAX, |line| output.look(line))? {
                bail!("cargo test failed");
            }
            Ok(())
        });
        if result.is_err() {
            self.told.extend(output.running.iter().map(|name| format!("{name} had not ended")));
            // It may have failed without a failing test: then it did not build.
            output.failed = output.failed.max(1);
            self.broken.push(what.to_owned());
        }
        self.passed += output.passed;
        self.failed += output.failed;
        self.skipped.append(&mut output.skipped);
        self.told.append(&mut output.told);
        for name in output.ignored {
            match IGNORED.iter().find(|(known, _)| *known == name) {
                Some((_, reason)) => self.skipped.push(format!("{name}: {reason}")),
                None => {
                    self.failed += 1;
                    self.broken.push(format!("{name} is ignored without being listed"));
                }
            }
        }
    }

    fn finish(self, begun: Instant) -> anyhow::Result<()> {
        println!();
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
        }
        // Passing tests have printed more than anybody reads, before and after these.
        for line in &self.told {
            println!("{line}");
        }
        for broken in &self.broken {
            println!("broken: {broken}");
        }
        println!("took {}", seconds(begun.elapsed()));
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed > 0 {
            bail!("{} failed", self.failed);
        }
        Ok(())
    }
}

/// What `cargo test` prints, counted.
#[derive(Default)]
struct TestOutput {
    passed: u64,
    failed: u64,
    ignored: Vec<String>,
    /// Tests that have found something missing that they need, and said so: they count as passed.
    skipped: Vec<String>,
    /// Those that have taken long, and have not ended.
    running: BTreeSet<String>,
    /// Whose output is told.
    telling: String,
    /// Those that are told now have failed.
    are_failures: bool,
    /// So many more lines of it are told again.
    telling_lines: usize,
    /// Why tests have failed.
    told: Vec<String>,
}

impl TestOutput {
    fn look(&mut self, line: &str) {
        if line.starts_with("running ") {
            // Some binaries print what they print at once.
            "a test".clone_into(&mut self.telling);
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            name.clone_into(&mut self.telling);
        }
        match line {
            "failures:" => (self.are_failures, self.telling_lines) = (true, 0),
            "successes:" => self.are_failures = false,
            line if line.starts_with("test result: ") => self.are_failures = false,
            line if self.are_failures && line.starts_with("---- ") => {
                self.telling_lines = 0;
                self.told.push(line.to_owned());
            }
            line if self.are_failures => {
                if line.starts_with("thread '") || line.starts_with("Error: ") {
                    self.telling_lines = TOLD_LINES;
                }
                if self.telling_lines > 0 {
                    self.telling_lines -= 1;
                    self.told.push(line.to_owned());
                }
            }
            _ => {}
        }
        if let Some(why) = line.strip_prefix("skipped: ") {
            self.skipped.push(format!("{}: {why}", self.telling));
        }
        if let Some(test) = line.strip_prefix("test ") {
            self.look_at_test(test);
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.count(counts);
        }
    }

    /// A line of one test.
    fn look_at_test(&mut self, line: &str) {
        if let Some((name, ended)) = line.split_once(" ... ") {
            self.running.remove(name);
            if ended.starts_with("ignored") {
                self.ignored.push(name.to_owned());
            }
        }
        if let Some((name, _)) = line.split_once(" has been running for over") {
            self.running.insert(name.to_owned());
        }
    }

    fn count(&mut self, counts: &str) {
        for part in counts.split([';', '.']) {
            let mut words = part.split_whitespace();
            let Some(Ok(count)) = words.next().map(str::parse::<u64>) else { continue };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                _ => {}
            }
        }
    }
}

/// `cargo xtask check`: what one runs before each commit; below two minutes.
pub(crate) fn check() -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut tally = Tally::default();
    static_checks(&mut tally);
    tally.step("codelets", guests::run);
    tally.tests("unit tests", "", &["--quiet", "--workspace", "--lib", "--bins"]);
    tally.finish(begun)
}

/// `cargo xtask test`: everything.
pub(crate) fn test() -> anyhow::Result<()> {
    let begun = Instant::now();
    install::all().context("tests need these tools")?;
    install::browser().context("the test of the dashboard needs a browser")?;
    let mut tally = Tally::default();
    let mut times = None;
    tally.step("building everything", || {
        times = Some(build_times::measure()?);
        Ok(())
    });
    static_checks(&mut tally);
    tally.step("licences", licences::run);
    tally.step("codelets", guests::run);
    tally.step("examples", examples::run);
    // The examples have built it.
    let binary = layout::target().join("debug/sinew");
    tally.step("what a release is counted with", || release::training::briefly(&binary));
    tally.tests("tests of the workspace", "", &["--workspace"]);
    tally.tests("tests of the guests", "guests", &["--workspace", "--locked"]);
    match fuzz::why_not() {
        Some(reason) => tally.skipped.push(format!("fuzz smoke: {reason}")),
        None => tally.step("fuzz smoke", || fuzz::run(None, fuzz::SMOKE_SECONDS).map(drop)),
    }
    if let Some(times) = times {
        println!("\nbuild times: {times}");
    }
    tally.finish(begun)
}

fn static_checks(tally: &mut Tally) {
    let cargo = |folder: &str, arguments: &[&str]| {
        let mut cargo = process::cargo();
        cargo.current_dir(layout::root().join(folder)).args(arguments);
        if folder == "guests" {
            cargo.env("CARGO_TARGET_DIR", layout::root().join("target/guests-build"));
        }
        process::run(&mut cargo)
    };
    tally.step("format", || cargo("", &["fmt", "--all", "--check"]));
    tally.step("format of the guests", || cargo("guests", &["fmt", "--all", "--check"]));
    tally.step("tidy", tidy::run);
    let deny = ["--", "-D", "warnings"];
    // Tests start threads and processes as they like.
    let tests = ["--", "-D", "warnings", "-A", "clippy::disallowed_methods"];
    let clippy = ["clippy", "--quiet", "--workspace"];
    tally.step("clippy", || cargo("", &[&clippy[..], &deny[..]].concat()));
    tally.step("clippy of the tests", || cargo("", &[&clippy[..], &["--all-targets"], &tests[..]].concat()));
    let wasm = ["--target", install::WASM_TARGET];
    tally.step("clippy of the guests", || cargo("guests", &[&clippy[..], &wasm[..], &deny[..]].concat()));
}

#[cfg(test)]
mod tests;
