// SPDX-License-Identifier: Apache-2.0
//! The licences of everything in `Cargo.lock` against the list in `deny.toml`.
//!
//! `make deny` runs cargo-deny, which sees more (advisories, bans, sources) and
//! takes long to install; this much is checked in every test run, offline.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};

use crate::{layout, process};

/// `cargo xtask licences`.
pub(crate) fn run() -> anyhow::Result<()> {
    let allowed = allowed(&std::fs::read_to_string(layout::root().join("deny.toml"))?)?;
    let metadata = metadata(&[])?;
    let packages =
        metadata.get("packages").and_then(|packages| packages.as_array()).context("no packages")?;
    let mut refused = Vec::new();
    for package in packages {
        let text = |key: &str| package.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        if !is_allowed(text("license"), &allowed) {
            refused.push(format!("{} {}: `{}`", text("name"), text("version"), text("license")));
        }
    }
    if !refused.is_empty() {
        bail!("licences that deny.toml does not allow:\n  {}", refused.join("\n  "));
    }
    println!("{} packages, all under allowed licences", packages.len());
    Ok(())
}

/// What cargo knows about all packages.
pub(crate) fn metadata(options: &[&str]) -> anyhow::Result<serde_json::Value> {
    let mut cargo = process::cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked"]).args(options);
    Ok(serde_json::from_str(&process::output(&mut cargo)?)?)
}

/// The list `[licenses] allow`.
fn allowed(deny: &str) -> anyhow::Result<BTreeSet<String>> {
    let deny: toml::Table = deny.parse()?;
    let list = deny.get("licenses").and_then(|table| table.get("allow")).and_then(toml::Value::as_array);
    let names = list.context("deny.toml has no [licenses] allow")?.iter().filter_map(toml::Value::as_str);
    Ok(names.map(str::to_owned).collect())
}

/// An SPDX expression: `OR` needs one side, `AND` both; `/` is an old `OR`.
/// What cannot be read is not allowed.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest, allowed).is_some_and(|is_fine| is_fine && rest.is_empty())
}

fn any_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut is_fine = all_of(rest, allowed)?;
    while take(rest, "OR") {
        is_fine |= all_of(rest, allowed)?;
    }
    Some(is_fine)
}

fn all_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut is_fine = one(rest, allowed)?;
    while take(rest, "AND") {
        is_fine &= one(rest, allowed)?;
    }
    Some(is_fine)
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    if take(rest, "(") {
        let is_fine = any_of(rest, allowed)?;
        return take(rest, ")").then_some(is_fine);
    }
    let mut name = next(rest)?.to_owned();
    if take(rest, "WITH") {
        name = format!("{name} WITH {}", next(rest)?);
    }
    Some(allowed.contains(&name))
}

fn next<'w>(rest: &mut &[&'w str]) -> Option<&'w str> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(first)
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if *first == word => {
            *rest = after;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
