// SPDX-License-Identifier: Apache-2.0
//! What of functions is durable: labels of the store.
//!
//! `function/NAME` says that there is such a function, and names its main
//! deployment; `…/versions/00000007` names what version 7 is; `…/aliases/live`
//! a text of versions and percent; `…/newest`, of a function that was removed,
//! the number after which the next one goes on.

use std::collections::BTreeMap;

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
    pub(super) versions: BTreeMap<u64, Handle>,
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
                if let Some(number) = number.parse().ok().filter(|number| *number < VERSION_END) {
                    function.versions.insert(number, handle);
                    function.newest = function.newest.max(number);
                }
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
    for (name, function) in &mut functions {
        settle(name, function);
    }
    Ok(functions)
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
        && let Some((version, _)) = versions.iter().rev().find(|(_, handle)| *handle == main)
    {
        aliases.insert(LIVE.to_owned(), Traffic::whole(*version));
    }
}

/// Keeps a version.
pub(super) fn add_version(
    store: &Store,
    name: &str,
    version: u64,
    deployment: Handle,
) -> Result<(), store::Error> {
    store.set_label(&version_label(name, version), deployment)
}

pub(super) fn remove_version(store: &Store, name: &str, version: u64) -> Result<(), store::Error> {
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
    let versions = function.versions.keys().map(|version| version_label(name, *version));
    for label in aliases.chain(versions) {
        store.remove_label(&label)?;
    }
    Ok(())
}
