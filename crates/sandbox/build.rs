// SPDX-License-Identifier: Apache-2.0
//! Compiles the native core of the templates, `guests/template`, into the
//! libraries that are embedded: one for interpreters that fork themselves, and
//! one that also holds what Node needs.
//!
//! The compiler is the one that Rust links with; a warning is an error.

use std::path::{Path, PathBuf};

const FLAGS: [&str; 9] = [
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-Wl,-z,relro,-z,now",
];
const CORE: [&str; 4] = ["orders.c", "confine.c", "line.c", "pages.c"];
const NODE: [&str; 2] = ["node.c", "node_streams.c"];

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/template");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-env-changed=CC");
    // All symbols of the core are there; Node's come from Node itself.
    link(&sources, &CORE, &["-Wl,--no-undefined"], "template.so");
    link(&sources, &[CORE.as_slice(), &NODE].concat(), &[], "template-node.so");
}

/// Makes a shared library of these sources, in the build's own folder.
fn link(sources: &Path, names: &[&str], more: &[&str], library: &str) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join(library);
    let mut command = cc::Build::new().no_default_flags(true).get_compiler().to_command();
    command.args(FLAGS).args(more).arg("-o").arg(&out);
    command.args(names.iter().map(|name| sources.join(name))).arg("-ldl");
    let status = command.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "cannot compile guests/template with {:?} ({status:?}); install a C compiler, as with apt-get install gcc libc6-dev",
        command.get_program()
    );
}
