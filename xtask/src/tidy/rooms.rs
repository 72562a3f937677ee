// SPDX-License-Identifier: Apache-2.0
//! Who may use whom: the table in `ARCHITECTURE.md` against every manifest.
//!
//! The table is the first one with a column `crate` and a column `may use`.

use std::collections::BTreeMap;
use std::path::Path;

use super::{File, Finding};

const MAP: &str = "ARCHITECTURE.md";

/// A crate and the crates that it may use.
pub(super) type Edges = BTreeMap<String, Vec<String>>;

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let map = files.iter().find(|file| file.path == Path::new(MAP)).and_then(File::text);
    let allowed = map.map(allowed_edges).unwrap_or_default();
    if allowed.is_empty() {
        findings.push(Finding::new(MAP, 0, "no table with columns `crate` and `may use`"));
        return;
    }
    let mut used = Edges::new();
    for file in files {
        let Some(text) = file.text().filter(|_| is_room_manifest(&file.path)) else { continue };
        match internal_dependencies(text, &allowed) {
            Ok((name, dependencies)) => {
                check_room(&file.path, &name, &dependencies, &allowed, findings);
                used.insert(name, dependencies);
            }
            Err(error) => findings.push(Finding::new(&file.path, 0, error.to_string())),
        }
    }
    for room in allowed.keys().filter(|room| !used.contains_key(*room)) {
        findings.push(Finding::new(MAP, 0, format!("`{room}` is in the table, but there is no such crate")));
    }
}

fn check_room(
    path: &Path,
    name: &str,
    dependencies: &[String],
    allowed: &Edges,
    findings: &mut Vec<Finding>,
) {
    if path.parent().and_then(Path::file_name).is_none_or(|folder| folder != name) {
        findings.push(Finding::new(path, 0, format!("the crate `{name}` does not have its folder's name")));
    }
    let Some(may_use) = allowed.get(name) else {
        findings.push(Finding::new(path, 0, format!("`{name}` is not in the table of {MAP}")));
        return;
    };
    for dependency in dependencies.iter().filter(|dependency| !may_use.contains(dependency)) {
        let what =
            format!("`{name}` may not use `{dependency}`; a new edge needs a decision and a place in {MAP}");
        findings.push(Finding::new(path, 0, what));
    }
}

fn is_room_manifest(path: &Path) -> bool {
    path.starts_with("crates") && path.ends_with("Cargo.toml")
}

/// The edges that the document's table allows; empty if it has no such table.
pub(super) fn allowed_edges(document: &str) -> Edges {
    let mut edges = Edges::new();
    let mut columns: Option<(usize, usize)> = None;
    for line in document.lines() {
        let Some(row) = line.trim().strip_prefix('|') else {
            if columns.is_some() {
                break;
            }
            continue;
        };
        let cells: Vec<String> = row.trim_end_matches('|').split('|').map(plain).collect();
        let Some((name, may_use)) = columns else {
            let column = |wanted: &str| cells.iter().position(|cell| cell == wanted);
            columns = column("crate").zip(column("may use"));
            continue;
        };
        let (Some(name), Some(may_use)) = (cells.get(name), cells.get(may_use)) else { continue };
        if name.is_empty() || name.chars().all(|c| matches!(c, '-' | ':' | ' ')) {
            continue;
        }
        let others = match may_use.as_str() {
            "all above" => edges.keys().cloned().collect(),
            listed => words(listed),
        };
        edges.insert(name.clone(), others);
    }
    edges
}

/// A cell without its decoration.
fn plain(cell: &str) -> String {
    cell.replace(['`', '*'], "").trim().to_lowercase()
}

fn words(list: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let words = list.split(|c| !is_name(c)).filter(|word| word.contains(char::is_alphanumeric));
    words.map(str::to_owned).collect()
}

/// A manifest's package, and those of its dependencies that are rooms. What
/// only tests use is left out.
fn internal_dependencies(manifest: &str, rooms: &Edges) -> anyhow::Result<(String, Vec<String>)> {
    let manifest: toml::Table = manifest.parse()?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    let per_target = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    let tables = per_target.filter_map(|(_, target)| target.as_table()).chain([&manifest]);
    let mut dependencies = Vec::new();
    for table in tables {
        for section in ["dependencies", "build-dependencies"] {
            let listed = table.get(section).and_then(toml::Value::as_table).into_iter().flatten();
            for (key, value) in listed {
                let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                if rooms.contains_key(package) {
                    dependencies.push(package.to_owned());
                }
            }
        }
    }
    Ok((name.unwrap_or_default().to_owned(), dependencies))
}
