// SPDX-License-Identifier: Apache-2.0
//! What of functions is durable: labels of the store.
//!
//! `function/NAME` says that there is such a function, and names its main
//! deployment; `…/versions/00000007` names what version 7 is, `…/origins/00000007` a text of
//! when it came and why; `…/aliases/live` a text of versions and percent; `…/newest`, of a function that was removed,
//! the number after which the next one goes on.

use std::collections::BTreeMap;

use gateway::Origin;
use objects::Handle;
use store::Store;

use super::traffic::{LIVE, Traffic, is_alias};

const PREFIX: &str = "function/";
/// Numbers of versions have eight digits.
const VERSION_END: u64 = 100_000_000;

/// A function as its labels describe it.
#[derive(Debug, Default)]
pub(super) struct Labelled {
    /// Whether it is there, and was not removed.
    pub(super) main: Option<Handle>,
    pub(super) versions: BTreeMap<u64, (Handle, Option<Origin>)>,
    pub(super) aliases: BTreeMap<String, Traffic>,
    /// The highest number that a version ever had.
    pub(super) newest: u64,
}

fn place(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn version_label(name: &str, version: u64) -> String {
    format!("{PREFIX}{name}/versions/{version:08}")
}

fn origin_label(name: &str, version: u64) -> String {
    format!("{PREFIX}{name}/origins/{version:08}")
}

fn alias_label(name: &str, alias: &str) -> String {
    format!("{PREFIX}{name}/aliases/{alias}")
}

fn newest_label(name: &str) -> String {
    format!("{PREFIX}{name}/newest")
}

/// All functions, by name; `only`: just this one.
///
/// # Errors
/// If the labels, or what an alias stands for, cannot be read.
pub(super) fn read(store: &Store, only: Option<&str>) -> Result<BTreeMap<String, Labelled>, store::Error> {
    let mut functions: BTreeMap<String, Labelled> = BTreeMap::new();
    let mut origins = Vec::new();
    for (label, handle) in store.labels()? {
        let Some(rest) = label.strip_prefix(PREFIX) else { continue };
        let (name, rest) = rest.split_once('/').map_or((rest, None), |(name, rest)| (name, Some(rest)));
        if !super::is_name(name) || only.is_some_and(|only| only != name) {
            continue;
        }
        let function = functions.entry(name.to_owned()).or_default();
        match rest.map(|rest| rest.split_once('/').unwrap_or((rest, ""))) {
            None => function.main = Some(handle),
            Some(("versions", number)) => {
                if let Some(number) = number_of(number) {
                    function.versions.insert(number, (handle, None));
                    function.newest = function.newest.max(number);
                }
            }
            Some(("origins", number)) => {
                origins.extend(number_of(number).map(|it| (name.to_owned(), it, handle)))
            }
            Some(("aliases", alias)) if is_alias(alias) => {
                let text = store.get(handle)?.filter(|_| !handle.names_tree());
                let text = text.and_then(|text| Traffic::read(std::str::from_utf8(text.bytes()).ok()?));
                match text {
                    Some(traffic) => _ = function.aliases.insert(alias.to_owned(), traffic),
                    None => tracing::error!(label, "an alias cannot be read; set it again"),
                }
            }
            Some(("newest", "")) => {
                let number = handle.literal_bytes().and_then(|bytes| bytes.try_into().ok());
                function.newest = function.newest.max(number.map_or(0, u64::from_le_bytes));
            }
            Some(_) => {}
        }
    }
    for (name, number, handle) in origins {
        let version = functions.get_mut(&name).and_then(|function| function.versions.get_mut(&number));
        if let Some((_, origin)) = version {
            *origin = read_origin(store, handle).unwrap_or_else(|error| {
                tracing::warn!(name, number, %error, "when a version came cannot be read");
                None
            });
        }
    }
    for (name, function) in &mut functions {
        settle(name, function);
    }
    Ok(functions)
}

fn number_of(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number < VERSION_END)
}

/// When a version came and why; nothing if that cannot be read.
fn read_origin(store: &Store, handle: Handle) -> Result<Option<Origin>, store::Error> {
    let text = store.get(handle)?.filter(|_| !handle.names_tree());
    let read = |text: &[u8]| {
        let told: serde_json::Value = serde_json::from_slice(text).ok()?;
        Some(Origin { at_ms: told["at_ms"].as_u64()?, note: told["note"].as_str()?.to_owned() })
    };
    Ok(text.and_then(|text| read(text.bytes())))
}

/// Takes out aliases of versions that are not there, and sees to it that what
/// is there serves.
fn settle(name: &str, function: &mut Labelled) {
    let Labelled { main, versions, aliases, .. } = function;
    aliases.retain(|alias, traffic| {
        let is_whole = traffic.shares().iter().all(|(version, _)| versions.contains_key(version));
        if !is_whole {
            tracing::error!(name, alias, "an alias names a version that is not there; set it again");
        }
        is_whole
    });
    if let Some(main) = main
        && !aliases.contains_key(LIVE)
        && let Some((version, _)) = versions.iter().rev().find(|(_, (handle, _))| *handle == *main)
    {
        aliases.insert(LIVE.to_owned(), Traffic::whole(*version));
    }
}

/// Keeps a version, with where it comes from.
pub(super) fn add_version(
    store: &Store,
    name: &str,
    version: u64,
    deployment: Handle,
    origin: Option<&Origin>,
) -> Result<(), store::Error> {
    if let Some(Origin { at_ms, note }) = origin {
        // Of a version that is not there it says nothing, and the next one of that number has its own.
        let text = serde_json::json!({ "at_ms": at_ms, "note": note }).to_string();
        store.set_label(&origin_label(name, version), store.put_blob(text.as_bytes())?)?;
    }
    store.set_label(&version_label(name, version), deployment)
}

pub(super) fn remove_version(store: &Store, name: &str, version: u64) -> Result<(), store::Error> {
    // What is left of one that is broken off between the two is a version, which is removed again.
    store.remove_label(&origin_label(name, version))?;
    store.remove_label(&version_label(name, version)).map(drop)
}

/// Moves an alias; `main` is the deployment of the function's main version if
/// the alias is the one that serves.
pub(super) fn set_alias(
    store: &Store,
    name: &str,
    alias: &str,
    traffic: &Traffic,
    main: Option<Handle>,
) -> Result<(), store::Error> {
    let text = store.put_blob(traffic.text().as_bytes())?;
    store.set_label(&alias_label(name, alias), text)?;
    main.map_or(Ok(()), |main| store.set_label(&place(name), main))
}

pub(super) fn remove_alias(store: &Store, name: &str, alias: &str) -> Result<(), store::Error> {
    store.remove_label(&alias_label(name, alias)).map(drop)
}

/// Removes a function, but for the number of its newest version.
pub(super) fn remove(store: &Store, name: &str) -> Result<(), store::Error> {
    let Some(function) = read(store, Some(name))?.remove(name) else { return Ok(()) };
    store.set_label(&newest_label(name), Handle::u64(function.newest))?;
    // The name first: the rest without it serves nobody.
    store.remove_label(&place(name))?;
    let aliases = function.aliases.keys().map(|alias| alias_label(name, alias));
    let numbers = || function.versions.keys().copied();
    let versions = numbers().map(|version| version_label(name, version));
    let origins = numbers().map(|version| origin_label(name, version));
    for label in aliases.chain(versions).chain(origins) {
        store.remove_label(&label)?;
    }
    Ok(())
}
