// SPDX-License-Identifier: Apache-2.0
//! No file is forgotten: every module's file is declared by its parent, so
//! that its tests run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::code::blank;
use super::files::has_word;
use super::{File, Finding};

/// Files that cargo finds by itself, by name or by folder.
const ROOT_NAMES: &[&str] = &["main.rs", "lib.rs", "build.rs"];
const ROOT_FOLDERS: &[&str] = &["tests", "benches", "examples", "bin", "fuzz_targets"];

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let sources: HashMap<&Path, String> = files
        .iter()
        .filter(|file| file.extension() == "rs")
        .filter_map(|file| Some((file.path.as_path(), blank(file.text()?))))
        .collect();
    for path in sources.keys().filter(|path| !is_root(path)) {
        let (name, parents) = declaration(path);
        let is_declared = |parent: &PathBuf| {
            sources.get(parent.as_path()).is_some_and(|code| {
                code.lines().any(|line| has_word(line, "mod") && line.contains(&format!("mod {name};")))
            })
        };
        if !parents.iter().any(is_declared) {
            findings.push(Finding::new(*path, 0, format!("no parent says `mod {name};`")));
        }
    }
}

fn is_root(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_root_folder = folder.file_name().is_some_and(|name| ROOT_FOLDERS.iter().any(|root| name == *root));
    // Below `src`, a folder of that name holds modules, but for `src/bin`.
    let is_below_src = folder.iter().any(|part| part == "src");
    ROOT_NAMES.contains(&name) || is_root_folder && (!is_below_src || folder.ends_with("src/bin"))
}

/// The module's name, and the files that may declare it.
fn declaration(path: &Path) -> (String, Vec<PathBuf>) {
    let is_mod = path.file_name().is_some_and(|name| name == "mod.rs");
    // `a/b/mod.rs` is module b of a; so is `a/b.rs`.
    let module = if is_mod { path.parent().unwrap_or(path).to_owned() } else { path.with_extension("") };
    let name = module.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let folder = module.parent().unwrap_or(Path::new(""));
    let parents =
        [folder.join("lib.rs"), folder.join("main.rs"), folder.join("mod.rs"), folder.with_extension("rs")];
    (name, parents.into())
}
