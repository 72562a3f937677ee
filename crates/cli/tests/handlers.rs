// SPDX-License-Identifier: Apache-2.0
//! The adapters between the node and users' handlers have tests in their own
//! languages. They run here, so that whoever runs all tests runs them too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

#[path = "e2e/later_python.rs"]
mod later_python;

use std::ffi::OsStr;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use later_python::fetched;

/// As the bench `transfer` has them (`benches/src/transfer/interpreter.rs`).
const USUAL: [&str; 2] = ["numpy==2.2.6", "pandas==2.3.3"];
const LATER: [&str; 2] = ["numpy==2.5.5", "pandas==3.1.1"];
const SHARED: [&str; 4] = ["pyarrow==26.0.1", "pillow==13.0.0", "lightgbm==4.7.0", "scikit-learn==1.9.1"];
/// Far more than any of them takes.
const SECONDS_MAX: &str = "600";

/// Runs what ends well, and returns what it printed. That goes into a file: a pipe ends only with the last process that
/// somebody has forked.
fn run(program: impl AsRef<OsStr>, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    let mut output = tempfile::tempfile().unwrap();
    let mut bounded = Command::new("timeout");
    bounded.args(["--kill-after=10", SECONDS_MAX]).arg(program).args(arguments).current_dir(guests);
    bounded.envs(environment.iter().copied());
    bounded.stdout(output.try_clone().unwrap()).stderr(output.try_clone().unwrap());
    let status = bounded.status().unwrap();
    let mut shown = Vec::new();
    output.rewind().unwrap();
    output.read_to_end(&mut shown).unwrap();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(
        status.success(),
        "{bounded:?}: {status} (124: it took more than {SECONDS_MAX} s; 127: the tests need python3 3.11 and node 20, \
         or later ones)\n{shown}"
    );
    shown
}

#[test]
fn python_handlers() {
    // Without compiled files beside the sources.
    run("python3", &["-B", "python/function_test.py"], &[]);
    run("python3", &["-B", "python/wsgi_test.py"], &[]);
    run("python3", &["-B", "python/at_once_test.py"], &[]);
    run("python3", &["-B", "python/overdue_test.py"], &[]);
    run("python3", &["-B", "python/within_test.py"], &[]);
    run("python3", &["-B", "python/reached_test.py"], &[]);
    run("python3", &["-B", "python/workflow_test.py"], &[]);
}

/// Compiles what maps values, and has Pythons hand over so many of them; by a program that runs another one, with its arguments.
fn transfers(name: &str, flags: &[&str], preload: &str, (by, pythons): (&[&str], &[PathBuf]), count: &str) {
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
    // pandas warns of what the test does to its frames.
    let mut environment = vec![("PYTHONWARNINGS", "ignore")];
    let preload = Some(preload).filter(|name| !name.is_empty()).map(|name| {
        let found = Command::new("cc").arg(format!("-print-file-name={name}")).output().unwrap();
        String::from_utf8_lossy(&found.stdout).trim().to_owned()
    });
    if let Some(preload) = &preload {
        // What Python keeps to its end is no leak.
        environment.extend([("LD_PRELOAD", preload.as_str()), ("ASAN_OPTIONS", "detect_leaks=0")]);
    }
    for python in pythons {
        for test in ["python/heap_test.py", "python/owned_test.py"] {
            let python = python.to_str().unwrap();
            let words = [by, &[python, "-B", test, library.to_str().unwrap(), count]].concat();
            println!("{}", run(words[0], &words[1..], &environment));
        }
    }
    _ = std::fs::remove_file(&library);
}

/// The usual one.
fn python() -> PathBuf {
    PathBuf::from("python3")
}

/// The same with all libraries whose values are mapped, in an environment of its own; what keeps them from being installed is
/// listed as skipped.
fn with_libraries() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-libraries");
    let python = folder.join("bin/python3");
    let imports = "import numpy, pandas, pyarrow, PIL.Image, lightgbm, sklearn.ensemble";
    let has_all =
        || Command::new(&python).args(["-c", imports]).output().is_ok_and(|output| output.status.success());
    if !has_all() {
        _ = std::fs::remove_dir_all(&folder);
        let mut made = Command::new("python3");
        made.args(["-m", "venv"]).arg(&folder).output().unwrap();
        let mut installed = Command::new("timeout");
        installed
            .args(["--kill-after=10", SECONDS_MAX])
            .arg(&python)
            .args(["-m", "pip", "install", "-q", "--only-binary", ":all:"])
            .args(USUAL)
            .args(SHARED);
        let told = installed.output().map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
        if !has_all() {
            println!("skipped: libraries cannot be installed: {told:?}");
            return None;
        }
    }
    Some(python)
}

#[test]
fn values_that_are_mapped_are_those_that_were_made() {
    transfers("heap", &["-O2"], "", (&[], &[python()]), "1600");
}

#[test]
fn values_of_libraries_that_are_mapped_are_those_that_were_made() {
    let pythons: Vec<PathBuf> = with_libraries().into_iter().collect();
    transfers("heap-libraries", &["-O2"], "", (&[], &pythons), "400");
}

#[test]
fn later_pythons_map_values_too() {
    // With values of all libraries where these are to be had. Debian's Pythons lie low in memory, where numbers and names
    // look like addresses of them; the usual one may lie high.
    let all = || fetched("3.14", &[&LATER[..], &SHARED].concat());
    let pythons = [all().or_else(|| fetched("3.14", &["numpy"])), fetched("3.15", &["numpy"])];
    let pythons: Vec<PathBuf> = pythons.into_iter().flatten().collect();
    // At the same addresses each time, as templates have them.
    transfers("heap-later", &["-O2"], "", (&["setarch", "-R"], &pythons), "300");
}

#[test]
fn values_are_mapped_without_a_wrong_access() {
    let checked = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
    transfers("heap-checked", &checked, "libasan.so", (&[], &[python()]), "300");
}

#[test]
fn node_handlers() {
    run("node", &["--test", "node/function.test.js"], &[]);
}
