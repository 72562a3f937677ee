// SPDX-License-Identifier: Apache-2.0
//! Where things are. All paths are absolute, so tasks work from any folder.

use std::path::{Path, PathBuf};

/// The repository.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Cargo's output for the main workspace.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |set| root().join(set))
}

/// The finished codelets, `NAME.wasm`.
pub(crate) fn codelets() -> PathBuf {
    root().join("target/guests")
}

/// What the demonstration fetches and makes; never committed.
pub(crate) fn demo() -> PathBuf {
    root().join(".demo")
}

/// The release binary.
pub(crate) fn sinew() -> PathBuf {
    target().join("release/sinew")
}

/// Removes a folder with all that is in it, if it is there.
pub(crate) fn remove(folder: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
