// SPDX-License-Identifier: Apache-2.0
//! `sinew version`: this binary's version, commit and Wasm engine.

use serde_json::json;

use crate::output::Output;

/// Of the workspace.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// That the binary was built from; `-dirty` where the sources differed from
/// it when the commit was last looked up. By the build script.
pub(crate) const COMMIT: &str = env!("SINEW_BUILD_COMMIT");
/// From the lock file, by the build script.
const WASMTIME: &str = env!("SINEW_WASMTIME_VERSION");

pub(crate) fn run(output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        return output.json(&json!({"version": VERSION, "commit": COMMIT, "wasmtime": WASMTIME}));
    }
    output.line(&format!("sinew {VERSION}\ncommit {COMMIT}\nwasmtime {WASMTIME}"))
}
