// SPDX-License-Identifier: Apache-2.0
//! `sinew dev --debug`: functions that wait for whoever looks at them, and what
//! an editor has to be told to do so.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use node::Debugging;
use serde_json::{Value, json};

use crate::commands::deploy::Wanted;
use crate::manifest::Runtime;
use crate::output::Output;

/// As long as a function may take at all: nobody is timed who reads a variable.
const TIMEOUT_MS: u64 = 86_400_000;
/// What a debugger takes in an instance, besides what the function may have.
const DEBUGGER_BYTES: u64 = 128 << 20;

/// Functions that can be debugged.
pub(super) struct Debug {
    debugging: Arc<Debugging>,
    /// The manifest's directory, as editors name it.
    folder: PathBuf,
    /// With where their source lies.
    functions: BTreeMap<String, (Runtime, PathBuf)>,
    told: BTreeMap<String, Option<SocketAddr>>,
}

impl Debug {
    pub(super) fn new(debugging: Arc<Debugging>, folder: &Path) -> Self {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Self { debugging, folder, functions: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// Has a function run in one instance, which is given the time that it takes.
    pub(super) fn prepare(&mut self, wanted: &mut Wanted) {
        let function = &mut wanted.function;
        if matches!(function.runtime, Runtime::Python | Runtime::Node) {
            function.timeout_ms = Some(TIMEOUT_MS);
            function.idle_ms = Some(TIMEOUT_MS);
            function.concurrency = Some(1);
            function.memory_bytes += DEBUGGER_BYTES;
        }
        let output = function.build.as_ref().and_then(|build| build.output.as_ref());
        let source = self.folder.join(output.unwrap_or(&function.source));
        let source = if source.is_file() { source.parent().map(Path::to_owned) } else { Some(source) };
        let source = source.map_or_else(|| self.folder.clone(), |source| source.components().collect());
        self.functions.insert(function.name.clone(), (function.runtime, source));
    }

    /// Tells what was not told yet.
    pub(super) fn tell(&mut self, output: &Output) -> anyhow::Result<()> {
        let mut snippets = Vec::new();
        for (name, (runtime, source)) in &self.functions {
            let address = self.debugging.address(name);
            if self.told.get(name) == Some(&address) {
                continue;
            }
            let Some(snippet) = address.and_then(|address| snippet(name, *runtime, address, source)) else {
                if !matches!(runtime, Runtime::Python | Runtime::Node) {
                    output.say(&format!("{name} ({}) is served, but not debugged", runtime.name()));
                    self.told.insert(name.clone(), address);
                }
                continue;
            };
            self.told.insert(name.clone(), address);
            let address = address.map(|address| address.to_string());
            if output.is_json() {
                output.json(&json!({
                    "event": "debug", "function": name, "runtime": runtime.name(), "address": address, "launch": snippet,
                }))?;
            } else {
                let address = address.unwrap_or_default();
                output.line(&format!("debug {name} ({}) at {address}", runtime.name()))?;
                snippets.push(snippet);
            }
        }
        if !snippets.is_empty() {
            let launch = json!({"version": "0.2.0", "configurations": snippets});
            let text = serde_json::to_string_pretty(&launch).unwrap_or_default();
            output.say(&format!(".vscode/launch.json of Visual Studio Code:\n{text}"));
            output.say("one request at a time, without a timeout; attach again after a reload");
        }
        Ok(())
    }
}

/// How an editor attaches to a function, and where it finds its files.
fn snippet(name: &str, runtime: Runtime, address: SocketAddr, source: &Path) -> Option<Value> {
    let (host, port) = (address.ip().to_string(), address.port());
    let source = source.to_string_lossy();
    match runtime {
        Runtime::Python => Some(json!({
            "name": format!("Sinew: {name}"), "type": "debugpy", "request": "attach",
            "connect": {"host": host, "port": port},
            "pathMappings": [{"localRoot": source, "remoteRoot": "/app"}],
        })),
        Runtime::Node => Some(json!({
            "name": format!("Sinew: {name}"), "type": "node", "request": "attach", "restart": true,
            "address": host, "port": port, "localRoot": source, "remoteRoot": "/app",
            "skipFiles": ["<node_internals>/**", "function.js", "<template>"],
        })),
        Runtime::Java | Runtime::Executable | Runtime::Wasm | Runtime::Workflow => None,
    }
}
