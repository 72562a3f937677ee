// SPDX-License-Identifier: Apache-2.0
//! Compiles the native core of the templates, `guests/template` and `guests/heap`, into the
//! libraries that are embedded: one each with what Python and Node need.
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
/// For what is tested: behaviour that is undefined ends the process, without a library for it. With
/// the checks compilers warn of more than there is.
const CHECKED: [&str; 3] = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-Wno-error"];
const CORE: [&str; 5] = ["orders.c", "confine.c", "line.c", "pages.c", "turns.c"];
/// What Python's values are written and mapped with.
const PYTHON: [&str; 21] = [
    "arenas.c",
    "blocks.c",
    "brief.c",
    "glance.c",
    "segment.c",
    "small.c",
    "heap.c",
    "heap_arrays.c",
    "heap_functions.c",
    "heap_hooks.c",
    "heap_leave.c",
    "heap_read.c",
    "heap_tables.c",
    "heap_write.c",
    "library.c",
    "library_hooks.c",
    "mapping.c",
    "owned.c",
    "pixels.c",
    "plain_copy.c",
    "prefetch.c",
];
const NODE: [&str; 2] = ["node.c", "node_streams.c"];

fn main() {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    let (core, heap) = (guests.join("template"), guests.join("heap"));
    println!("cargo::rerun-if-changed={}", core.display());
    println!("cargo::rerun-if-changed={}", heap.display());
    println!("cargo::rerun-if-env-changed=CC");
    let of = |folder: &Path, names: &[&str]| -> Vec<PathBuf> {
        names.iter().map(|name| folder.join(name)).collect()
    };
    // Symbols of interpreters come from these themselves.
    link(&[of(&core, &CORE), of(&heap, &PYTHON)].concat(), "template-python.so");
    link(&[of(&core, &CORE), of(&core, &NODE)].concat(), "template-node.so");
}

/// Makes a shared library of these sources, in the build's own folder.
fn link(sources: &[PathBuf], library: &str) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join(library);
    let mut command = cc::Build::new().no_default_flags(true).get_compiler().to_command();
    let is_checked = std::env::var_os("PROFILE").is_some_and(|profile| profile == "debug");
    command
        .args(FLAGS)
        .args(CHECKED.iter().filter(|_| is_checked))
        .arg("-o")
        .arg(&out)
        .args(sources)
        .arg("-ldl");
    let status = command.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "cannot compile the native core with {:?} ({status:?}); install a C compiler, as with apt-get install gcc libc6-dev",
        command.get_program()
    );
}
