// SPDX-License-Identifier: Apache-2.0
//! Deployments of WebAssembly modules: codelets, and whole programs with their words
//! (`docs/spec/functions.md`, section 3).

use std::time::Duration;

use axum::http::HeaderValue;
use objects::{Handle, Limits, Pairs, TreeBuilder, TreeView};
use sandbox::process::Settings;
use store::Store;

use super::deployment::tree;

/// What a program gets the body by: the last of its words.
const STDIN: &[u8] = b"stdin";
/// A day.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// A deployment's procedure that is a module, or a program's with its words.
pub(super) struct Module {
    pub(super) module: Handle,
    /// The entries of an application between its limits and the body.
    pub(super) prefix: Vec<Handle>,
    pub(super) is_program: bool,
}

/// Takes a procedure apart; `None`: it is that of a process.
///
/// # Errors
/// What is wrong with it, for people.
pub(super) fn read(store: &Store, procedure: Handle, limits: Limits) -> Result<Option<Module>, String> {
    if procedure.is_object() && !procedure.names_tree() {
        let is_program = is_program(store, procedure)?;
        let prefix = if is_program { words(store, procedure, &[], limits)? } else { vec![procedure] };
        return Ok(Some(Module { module: procedure, prefix, is_program }));
    }
    let data = tree(store, procedure)?;
    let mut entries = TreeView::from_checked(&data).iter();
    let Some(module) = entries.next().filter(|first| is_module(*first)) else { return Ok(None) };
    if !is_program(store, module)? {
        let why = "its module is a codelet, which is applied to the body alone: arguments, environment and directories \
                   are for programs, whose modules import WASI preview 1";
        return Err(why.to_owned());
    }
    let told: Vec<Handle> = entries.collect();
    let prefix = words(store, module, &told, limits)?;
    Ok(Some(Module { module, prefix, is_program: true }))
}

/// A literal names a runtime.
fn is_module(handle: Handle) -> bool {
    handle.is_object() && !handle.names_tree() && handle.literal_bytes().is_none()
}

fn is_program(store: &Store, module: Handle) -> Result<bool, String> {
    let found = store.get(module).map_err(|error| error.to_string())?;
    match found {
        None => Err(format!("the module {module} is not on this node; put it first")),
        Some(bytes) if !bytes.bytes().starts_with(b"\0asm") => {
            Err("the procedure is no Wasm module".to_owned())
        }
        Some(bytes) => Ok(sandbox::wasm::is_program(bytes.bytes())),
    }
}

/// The words of a program, with refs: it reads what is behind them itself. As objects all of its files would be
/// brought for each call.
fn words(store: &Store, module: Handle, told: &[Handle], limits: Limits) -> Result<Vec<Handle>, String> {
    let refs = told.iter().map(|entry| entry.lowered().unwrap_or(*entry));
    let mut prefix: Vec<Handle> = [module].into_iter().chain(refs).collect();
    // By themselves: a word without its value would take what follows for it, and the body be a word. What is
    // still to be evaluated is looked at when it was.
    if told.iter().all(|entry| entry.is_value()) {
        let limits_handle = limits.handle().ok_or("its limits are none")?;
        let application: TreeBuilder = [limits_handle].into_iter().chain(prefix.iter().copied()).collect();
        sandbox::wasm::check_words(application.view(), store, limits).map_err(|fault| fault.detail)?;
    }
    prefix.push(Handle::blob(STDIN));
    Ok(prefix)
}

/// How a module is run: only how long a call may take is said, beside it.
///
/// # Errors
/// If it is no such time.
pub(super) fn settings(serving: &Pairs) -> Result<Settings, String> {
    let Some(value) = serving.get("timeout-ms") else { return Ok(Settings::default()) };
    let millis = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let millis = millis.filter(|millis| (1..=TIMEOUT_MS_MAX).contains(millis));
    let millis = millis.ok_or_else(|| format!("timeout-ms is not a number from 1 to {TIMEOUT_MS_MAX}"))?;
    Ok(Settings { timeout: Duration::from_millis(millis), ..Settings::default() })
}

/// What its answers are, if it is said.
///
/// # Errors
/// If that cannot stand in a header.
pub(super) fn content_type(serving: &Pairs) -> Result<Option<HeaderValue>, String> {
    let Some(value) = serving.get("content-type") else { return Ok(None) };
    let is_type = value.contains(&b'/') && value.is_ascii();
    let value = HeaderValue::from_bytes(value).ok().filter(|_| is_type);
    value.map(Some).ok_or_else(|| "content-type is not like text/html; charset=utf-8".to_owned())
}
