// SPDX-License-Identifier: Apache-2.0
//! What is to be said of those whose code is in the binary: their licences ask for it.
//!
//! All packages that the command line is built from, found as cargo finds them, and the
//! texts that lie in them, each once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::{layout, licences, process};

/// Files of packages that say under what they may be passed on.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// How deep they are looked for: what a package brings along in C has its own.
const DEPTH_MAX: usize = 4;
/// The copyright of packages that are under the MIT licence alone and have no text of it in them.
const WITHOUT_TEXT: &[(&str, &str)] = &[("blake2b_simd", "Copyright (c) 2019 Jack O'Connor")];
/// What is said of all others that have no text in them.
const STANDARD: &[&str] = &["Apache-2.0 WITH LLVM-exception", "Apache-2.0"];
const MIT: &str = include_str!("notices/MIT.txt");
/// What is longer is no licence.
const TEXT_BYTES_MAX: u64 = 256 << 10;

/// The whole text.
pub(super) fn all() -> anyhow::Result<String> {
    let metadata = licences::metadata(&["--filter-platform", &process::host()?])?;
    let mut packages = linked(&metadata, "cli")?;
    packages.retain(|package| !Path::new(&package.manifest).starts_with(layout::root()));
    let mut found = BTreeMap::<String, BTreeSet<&str>>::new();
    let mut bare = Vec::new();
    for package in &packages {
        let folder = Path::new(&package.manifest).parent().context("a manifest without a folder")?;
        let files = files(folder, DEPTH_MAX)?;
        if files.is_empty() {
            bare.push(package);
        }
        for path in files {
            let text = String::from_utf8_lossy(&fs::read(&path)?).trim().to_owned();
            found.entry(text).or_default().insert(&package.title);
        }
    }
    for package in bare {
        let text = standard(package, &packages, &found)?;
        found.entry(text).or_default().insert(&package.title);
    }
    Ok(text(&packages, &found))
}

/// The text for a package that has none in it: of another one under the same licence, where that is the same for all.
fn standard(
    package: &Package,
    packages: &[Package],
    found: &BTreeMap<String, BTreeSet<&str>>,
) -> anyhow::Result<String> {
    let name = package.title.split(' ').next().unwrap_or_default();
    if let Some((_, copyright)) = WITHOUT_TEXT.iter().find(|(other, _)| *other == name) {
        return Ok(MIT.replacen("COPYRIGHT", copyright, 1).trim().to_owned());
    }
    let offers = |package: &Package, licence: &str| {
        package
            .licence
            .replace('/', " OR ")
            .split(" OR ")
            .any(|one| one.trim_matches(['(', ')', ' ']) == licence)
    };
    let same = STANDARD.iter().filter(|licence| offers(package, licence)).find_map(|licence| {
        let others: BTreeSet<&str> = packages
            .iter()
            .filter(|other| other.licence == *licence)
            .map(|other| other.title.as_str())
            .collect();
        let is_whole =
            |text: &str| text.contains("Apache License") && text.contains("END OF TERMS AND CONDITIONS");
        found
            .iter()
            .find(|(text, titles)| is_whole(text) && !titles.is_disjoint(&others))
            .map(|(text, _)| text)
    });
    let why = || {
        format!(
            "{} ({}) has no text of its licence in it; add one to WITHOUT_TEXT",
            package.title, package.licence
        )
    };
    same.cloned().with_context(why)
}

/// A package that is linked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    /// Name and version.
    title: String,
    licence: String,
    source: String,
    manifest: String,
}

fn text(packages: &[Package], found: &BTreeMap<String, BTreeSet<&str>>) -> String {
    let mut text =
        "Sinew is under the Apache License 2.0 (LICENSE). Its binary has code of the packages below in it, \
                    and of Rust's\nstandard library (MIT OR Apache-2.0; what that has of others: \
                    https://doc.rust-lang.org/COPYRIGHT-library.html).\nThe texts of their licences follow.\n\n"
            .to_owned();
    for package in packages {
        text += &format!("{}: {}; {}\n", package.title, package.licence, package.source);
    }
    for (licence, titles) in found {
        let titles: Vec<_> = titles.iter().copied().collect();
        text += &format!("\n{}\n{}:\n\n{licence}\n", "-".repeat(100), titles.join(", "));
    }
    text
}

/// What a package is built from, itself included: without what only its tests or build scripts use.
fn linked(metadata: &Value, name: &str) -> anyhow::Result<Vec<Package>> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let nodes: BTreeMap<_, _> =
        list(&metadata["resolve"], "nodes").into_iter().map(|node| (word(&node, "id"), node)).collect();
    let packages: BTreeMap<_, _> =
        list(metadata, "packages").into_iter().map(|package| (word(&package, "id"), package)).collect();
    let first = packages.iter().find(|(_, package)| word(package, "name") == name);
    let mut waiting = vec![first.with_context(|| format!("there is no package {name}"))?.0.clone()];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in list(nodes.get(&id).context("a package that is not resolved")?, "deps") {
            if list(&dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null()) {
                waiting.push(word(&dependency, "pkg"));
            }
        }
    }
    let mut linked: Vec<_> = seen
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|package| Package {
            title: format!("{} {}", word(package, "name"), word(package, "version")),
            licence: word(package, "license"),
            source: word(package, "repository"),
            manifest: word(package, "manifest_path"),
        })
        .collect();
    linked.sort();
    Ok(linked)
}

/// The texts in a package.
fn files(folder: &Path, depth: usize) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 1 {
            found.extend(files(&entry.path(), depth - 1)?);
        }
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        let is_named = NAMES.iter().any(|start| name.starts_with(start));
        // What is called so and is source belongs to a tool that looks for licences.
        let is_text =
            Path::new(&name).extension().is_none_or(|kind| kind != "RS" && kind != "H" && kind != "C");
        if kind.is_file() && is_named && is_text && entry.metadata()?.len() <= TEXT_BYTES_MAX {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
