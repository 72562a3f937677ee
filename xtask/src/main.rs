// SPDX-License-Identifier: Apache-2.0
//! What `make` calls: the project's own automation, typed instead of scripted.
//!
//! Every task can be run again at any time and does only what is missing.
//! Progress goes to stderr; what a program might read goes to stdout.

mod bare;
mod bench;
mod build_times;
mod corpus;
mod demo;
mod examples;
mod fuzz;
mod guests;
mod install;
mod layout;
mod licences;
mod machine;
mod node;
mod process;
mod progress;
mod release;
mod suite;
mod tidy;
mod wasi_tests;

use std::process::ExitCode;

use anyhow::bail;

const USAGE: &str = "usage: cargo xtask TASK
  guests                 build all codelets into target/guests
  tidy                   hold the sources against the house rules
  licences               hold the licences of all dependencies against deny.toml
  corpus                 fetch the demonstration's text into .demo
  demo                   the demonstration, from nothing to checked counts
  examples               run what the examples show, and compare
  check                  format, lints, tidy, unit tests
  test                   everything that CI runs
  test-bare [TARGET...]  make demo, or other targets, in a bare Debian 12; needs root
  test-unified           the suites of containers in an emulated machine with control groups of version 2
  bench NAME [--tuned] [--json] [--without-peers] [OPTION…]
                         print a promised figure
  release                the binary that people install, laid out by what a node does, as an archive
  fuzz [NAME] [SECONDS]  run one fuzz target, or all, for a while
  wasi-tests FOLDER      run built tests of WebAssembly/wasi-testsuite by `sinew run`
  build-times            print clean and one-line build times";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["guests"] => guests::run(),
        ["tidy"] => tidy::run(),
        ["licences"] => licences::run(),
        ["corpus"] => corpus::run(),
        ["demo"] => demo::run(),
        ["examples"] => examples::run(),
        ["check"] => suite::check(),
        ["test"] => suite::test(),
        ["test-bare", targets @ ..] => bare::run(targets),
        ["test-unified"] => machine::run(),
        ["bench", rest @ ..] => bench::run(rest),
        ["release"] => release::run(),
        ["fuzz"] => fuzz::run(None, fuzz::SMOKE_SECONDS).map(drop),
        ["fuzz", name] => fuzz::run(Some(name), fuzz::SMOKE_SECONDS).map(drop),
        ["fuzz", name, seconds] => fuzz::run(Some(name), seconds.parse()?).map(drop),
        ["wasi-tests", folder] => wasi_tests::run(folder),
        ["build-times"] => build_times::run(),
        [] | ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("no such task: {}\n{USAGE}", words.join(" ")),
    }
}
