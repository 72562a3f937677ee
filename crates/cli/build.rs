// SPDX-License-Identifier: Apache-2.0
//! Tells `sinew version` which wasmtime is linked: the lock file knows, and
//! the CLI itself depends on no engine.

use std::path::Path;

fn main() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    println!("cargo::rerun-if-env-changed=SINEW_COMMIT");
    let text = std::fs::read_to_string(&lock).unwrap_or_default();
    let mut lines = text.lines().skip_while(|line| *line != "name = \"wasmtime\"");
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    println!("cargo::rustc-env=SINEW_WASMTIME_VERSION={}", version.unwrap_or("unknown"));
}
