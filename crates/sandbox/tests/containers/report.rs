// SPDX-License-Identifier: Apache-2.0
//! What has come of the cases, as libtest tells it: whoever reads it finds why a case
//! has failed behind the name of the case, also where somebody ran this program and kept
//! what it printed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Of one panic and of one case; the rest of a longer one is on the standard error.
const TOLD_BYTES_MAX: usize = 64 << 10;
const PANICS_MAX: usize = 20;

/// What threads have panicked about since the case began.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(crate) struct Report {
    began: Instant,
    passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    /// The names, and why.
    failures: Vec<(String, Vec<String>)>,
}

impl Report {
    /// Of so many cases.
    pub(crate) fn begin(cases: usize) -> Self {
        println!("\nrunning {cases} tests");
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let mut told = format!("thread '{}' {panic}", thread.name().unwrap_or("unnamed"));
            told.truncate(told.floor_char_boundary(TOLD_BYTES_MAX));
            let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            if panics.len() < PANICS_MAX {
                panics.push(told);
            }
            drop(panics);
            usual(panic);
        }));
        Self { began: Instant::now(), passed: 0, failed: 0, ignored: 0, failures: Vec::new() }
    }

    pub(crate) fn ignore(&mut self, name: &str, why: &str) {
        println!("test {name} ... ignored, {why}");
        self.ignored += 1;
    }

    /// Runs a case; what it gives, if it has not panicked.
    pub(crate) fn run<T>(&mut self, name: &str, case: impl FnOnce() -> T) -> Option<T> {
        take_panics();
        let ran = catch_unwind(AssertUnwindSafe(case)).ok();
        println!("test {name} ... {}", if ran.is_some() { "ok" } else { "FAILED" });
        if ran.is_some() {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.failures.push((name.to_owned(), take_panics()));
        }
        ran
    }

    /// Tells it all; so many cases were not chosen.
    pub(crate) fn end(self, filtered: usize) -> ExitCode {
        if !self.failures.is_empty() {
            println!("\nfailures:\n");
            for (name, panics) in &self.failures {
                println!("---- {name} stdout ----\n{}\n", panics.join("\n"));
            }
        }
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {verdict}. {} passed; {} failed; {} ignored; 0 measured; {filtered} filtered out; \
             finished in {:.2}s\n",
            self.passed,
            self.failed,
            self.ignored,
            self.began.elapsed().as_secs_f64()
        );
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn take_panics() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}
