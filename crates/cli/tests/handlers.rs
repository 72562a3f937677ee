// SPDX-License-Identifier: Apache-2.0
//! The adapters between the node and users' handlers have tests in their own
//! languages. They run here, so that whoever runs all tests runs them too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::path::Path;
use std::process::Command;

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
    run("python3", &["-B", "python/workflow_test.py"]);
}

#[test]
fn node_handlers() {
    run("node", &["--test", "node/function.test.js"]);
}
