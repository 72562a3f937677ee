// SPDX-License-Identifier: Apache-2.0
//! What Python modules of a function are compiled to, made when it is deployed.
//!
//! In its container nothing can be written beside a module, so that each start
//! of an instance would compile all that it imports anew. The files are of the
//! kind that is not held against its source (`unchecked-hash`, PEP 552): a
//! layer's files have no times that mean anything, and never change. The same
//! sources give the same bytes, for a layer is named by its content.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::commands::deploy::build::run_to_end;
use crate::deployment::within_bounds;
use crate::directory::{Child, Folder, Plan, unreadable};
use crate::python::Python;
use crate::requirements::{cache, prune, touch};
use crate::upload::Uplink;

/// The folder that Python looks for compiled modules in.
const FOLDER: &str = "__pycache__";
/// Layers and codes whose compiled modules are kept; those that were not used for longest go.
const KEPT_MAX: usize = 256;
/// Where a layer is, as tracebacks tell it: the place of the first. Python puts
/// the true one there where another layer is loaded.
pub(crate) const LAYER_PLACE: &str = "/layers/0";
/// Where the code is.
pub(crate) const CODE_PLACE: &str = "/app";
/// What cannot be compiled is left as it is: whoever imports it is told why.
const SCRIPT: &str = "\
import os, py_compile, sys
words = open(sys.argv[1], 'rb').read().split(b'\\0')[:-1]
kind = py_compile.PycInvalidationMode.UNCHECKED_HASH
for source, place, target in zip(*[iter(map(os.fsdecode, words))] * 3):
    try:
        py_compile.compile(source, target, place, doraise=True, optimize=0, invalidation_mode=kind)
    except Exception:
        pass
";

/// A Python module of a plan.
struct Module {
    /// Its folder in the plan.
    folder: usize,
    source: PathBuf,
    /// Below the place of the code or layer.
    relative: PathBuf,
    /// What its compiled file is called in the cache.
    name: String,
}

/// Adds the compiled modules to what is deployed, where it has none. Where there
/// is no Python to compile them they are left out: then imports take longer.
pub(crate) async fn add(plan: Plan, place: &str, uplink: &mut Uplink<'_>) -> anyhow::Result<Plan> {
    let modules = modules(&plan);
    if modules.is_empty() {
        return Ok(plan);
    }
    let Ok(python) = uplink.python().await? else { return Ok(plan) };
    let Some(tag) = python.cache_tag() else { return Ok(plan) };
    let mut hasher = blake3::Hasher::new();
    for part in [python.key().as_str(), place] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    for module in &modules {
        let path = module.relative.as_os_str().as_bytes();
        let content = uplink.handle_of(&module.source)?;
        hasher.update(&(path.len() as u64).to_le_bytes()).update(path).update(content.as_bytes());
    }
    let key = hasher.finalize().to_hex()[..32].to_owned();
    // Without a home there is no place for them.
    let Ok(cache) = cache("bytecode") else { return Ok(plan) };
    let folder = cache.join(key);
    if !folder.is_dir() {
        compile(&python, &modules, place, &folder).await?;
        prune(&cache, KEPT_MAX);
    }
    touch(&folder);
    let extended = extended(plan.clone(), &modules, &folder, tag);
    // What was within bounds without them is deployed without them.
    Ok(within_bounds(extended, place).unwrap_or(plan))
}

/// All modules in folders that have nothing compiled yet, in a fixed order.
fn modules(plan: &Plan) -> Vec<Module> {
    let mut relative = vec![PathBuf::new(); plan.folders.len()];
    let mut found = Vec::new();
    for (at, folder) in plan.folders.iter().enumerate() {
        let is_compiled = folder.children.iter().any(|(name, _)| name == FOLDER);
        for (name, child) in &folder.children {
            let path = relative[at].join(name);
            match child {
                Child::Folder(inner) => relative[*inner] = path,
                Child::File { path: source, .. } if !is_compiled && is_module(name) => {
                    let name = found.len().to_string();
                    found.push(Module { folder: at, source: source.clone(), relative: path, name });
                }
                Child::File { .. } | Child::Link(_) => {}
            }
        }
    }
    found
}

/// Whether it can be imported by its name.
fn is_module(name: &OsString) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "py")
}

/// Makes a folder with the compiled modules; it is complete or not there.
async fn compile(python: &Python, modules: &[Module], place: &str, folder: &Path) -> anyhow::Result<()> {
    let new = folder.with_extension(format!("{}.new", std::process::id()));
    fs::create_dir_all(&new).map_err(|error| unreadable(&new, error))?;
    let list = new.join("list");
    let mut words = Vec::new();
    for module in modules {
        let source = module.source.canonicalize().map_err(|error| unreadable(&module.source, error))?;
        for word in [source, Path::new(place).join(&module.relative), new.join(&module.name)] {
            words.extend_from_slice(word.as_os_str().as_bytes());
            words.push(0);
        }
    }
    let written = fs::File::create(&list).and_then(|mut file| file.write_all(&words));
    written.map_err(|error| unreadable(&list, error))?;
    let mut python = python.command();
    python.args(["-S", "-s", "-P", "-W", "ignore", "-c", SCRIPT]).arg(&list);
    // What is compiled depends on neither.
    python.env("PYTHONHASHSEED", "0").env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    let compiled = run_to_end(python, "the compiler of Python's modules").await;
    _ = fs::remove_file(list);
    let moved = compiled.and_then(|_| match fs::rename(&new, folder) {
        // Somebody else has just made the same.
        Err(_) if folder.is_dir() => Ok(()),
        moved => moved.map_err(|error| unreadable(folder, error)),
    });
    // After the rename there is nothing.
    _ = fs::remove_dir_all(&new);
    moved
}

/// The plan with what was compiled.
fn extended(mut plan: Plan, modules: &[Module], compiled: &Path, tag: &str) -> Plan {
    let mut at = 0;
    while at < modules.len() {
        let folder = modules[at].folder;
        let mut children = Vec::new();
        let mut level = 1;
        for module in modules[at..].iter().take_while(|module| module.folder == folder) {
            at += 1;
            level = module.relative.components().count() + 1;
            let path = compiled.join(&module.name);
            // There is none of what does not compile.
            let (Ok(metadata), Some(stem)) = (path.metadata(), module.relative.file_stem()) else { continue };
            let mut name = stem.to_owned();
            name.push(format!(".{tag}.pyc"));
            plan.bytes += metadata.len();
            children.push((name, Child::File { path, is_executable: false }));
        }
        if children.is_empty() {
            continue;
        }
        plan.levels = plan.levels.max(level);
        plan.entries += children.len() + 1;
        children.sort_by(|(one, _), (other, _)| one.cmp(other));
        plan.folders.push(Folder { children });
        let child = (OsString::from(FOLDER), Child::Folder(plan.folders.len() - 1));
        let beside = &mut plan.folders[folder].children;
        let place = beside.partition_point(|(name, _)| *name < child.0);
        beside.insert(place, child);
    }
    plan
}

#[cfg(test)]
mod tests;
