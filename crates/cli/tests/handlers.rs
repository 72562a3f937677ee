// SPDX-License-Identifier: Apache-2.0
//! The adapters between the node and users' handlers have tests in their own
//! languages. They run here, so that whoever runs all tests runs them too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

#[path = "e2e/later_python.rs"]
mod later_python;

use std::path::{Path, PathBuf};
use std::process::Command;

use later_python::fetched;

fn run(program: &str, arguments: &[&str]) {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    let output = Command::new(program).args(arguments).current_dir(guests).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{program} cannot be started ({error}); the tests need python3 3.11 and node 20, or later ones"
        )
    });
    let shown = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{}", output.status, shown.join("\n"));
}

#[test]
fn python_handlers() {
    // Without compiled files beside the sources.
    run("python3", &["-B", "python/function_test.py"]);
    run("python3", &["-B", "python/wsgi_test.py"]);
    run("python3", &["-B", "python/at_once_test.py"]);
    run("python3", &["-B", "python/workflow_test.py"]);
}

/// Compiles what maps values, and has Pythons hand over so many of them.
fn transfers(name: &str, flags: &[&str], preload: &str, pythons: &[PathBuf], count: &str) {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    let library = std::env::temp_dir().join(format!("sinew-{name}-{}.so", std::process::id()));
    let sources = std::fs::read_dir(guests.join("heap")).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=gnu11",
        "-g",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fvisibility=hidden",
    ]);
    compiler.args(flags).args(sources).arg("-o").arg(&library);
    assert!(compiler.status().unwrap().success(), "guests/heap cannot be compiled");
    for python in pythons {
        let mut python = Command::new(python);
        python.args(["-B", "python/heap_test.py"]).arg(&library).arg(count).current_dir(&guests);
        if !preload.is_empty() {
            let found = Command::new("cc").arg(format!("-print-file-name={preload}")).output().unwrap();
            // What Python keeps to its end is no leak.
            python
                .env("LD_PRELOAD", String::from_utf8_lossy(&found.stdout).trim())
                .env("ASAN_OPTIONS", "detect_leaks=0");
        }
        let output = python.output().unwrap();
        let shown = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{name}: {}\n{}", output.status, shown.join("\n"));
        println!("{}", shown[0]);
    }
    _ = std::fs::remove_file(&library);
}

/// The usual one.
fn python() -> PathBuf {
    PathBuf::from("python3")
}

#[test]
fn values_that_are_mapped_are_those_that_were_made() {
    transfers("heap", &["-O2"], "", &[python()], "2000");
}

#[test]
fn later_pythons_map_values_too() {
    // With values of a library.
    let pythons = ["3.14", "3.15"].iter().filter_map(|version| fetched(version, &["numpy"]));
    let pythons: Vec<PathBuf> = pythons.collect();
    transfers("heap-later", &["-O2"], "", &pythons, "300");
}

#[test]
fn values_are_mapped_without_a_wrong_access() {
    let checked = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
    transfers("heap-checked", &checked, "libasan.so", &[python()], "300");
}

#[test]
fn node_handlers() {
    run("node", &["--test", "node/function.test.js"]);
}
