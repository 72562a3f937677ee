// SPDX-License-Identifier: Apache-2.0
//! Builds the codelets: Rust through cargo, C through Debian's clang, WAT here.
//!
//! Finished modules lie in `target/guests`: `NAME.wasm` from Rust,
//! `NAME-c.wasm` and `NAME-wat.wasm` from the others. A module is written only
//! if it changed, so nothing that depends on it looks stale.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

use crate::progress::{self, step};
use crate::{install, layout, process};

/// As in `guests/.cargo/config.toml`: a stack of 16 KiB below the data, all in one page.
const C_FLAGS: &[&str] = &[
    "--target=wasm32",
    "-nostdlib",
    "-ffreestanding",
    "-std=c17",
    "-O2",
    "-mbulk-memory",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fuse-ld=/usr/bin/wasm-ld-16",
    "-Wl,--no-entry,--export=apply,--strip-all,--stack-first,-z,stack-size=16384,--initial-memory=65536",
];

/// `cargo xtask guests`.
pub(crate) fn run() -> anyhow::Result<()> {
    install::guest_tools()?;
    let built = step("building codelets", build)?;
    for module in &built {
        let bytes = fs::metadata(module)?.len();
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        progress::note(format!("{bytes:>6} bytes  {name}"));
    }
    Ok(())
}

/// Builds what is not up to date and returns all modules, sorted. The tools must be there.
pub(crate) fn build() -> anyhow::Result<Vec<PathBuf>> {
    let target = layout::codelets();
    fs::create_dir_all(&target)?;
    let mut modules = rust(&target)?;
    modules.extend(c(&target)?);
    modules.extend(wat(&target)?);
    modules.sort();
    Ok(modules)
}

fn guests() -> PathBuf {
    layout::root().join("guests")
}

fn rust(target: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let build_dir = layout::root().join("target/guests-build");
    let mut cargo = process::cargo();
    // In that folder, because its `.cargo/config.toml` has the linker's flags.
    cargo.current_dir(guests()).env("CARGO_TARGET_DIR", &build_dir);
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    process::run(cargo.args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--target",
        install::WASM_TARGET,
    ]))?;
    let built = build_dir.join(install::WASM_TARGET).join("release");
    let mut modules = Vec::new();
    for folder in entries(&guests().join("codelets/rust"), None)? {
        let name = stem(&folder)?;
        let library = library_name(&folder.join("Cargo.toml"), &name)?;
        let module = target.join(format!("{name}.wasm"));
        let path = built.join(format!("{library}.wasm"));
        write_if_changed(&module, &fs::read(&path).with_context(|| path.display().to_string())?)?;
        modules.push(module);
    }
    Ok(modules)
}

/// The library's name in a manifest: cargo's default, or what `[lib]` says.
fn library_name(manifest: &Path, package: &str) -> anyhow::Result<String> {
    let manifest: toml::Table = fs::read_to_string(manifest)?.parse()?;
    let set = manifest.get("lib").and_then(|lib| lib.get("name")).and_then(toml::Value::as_str);
    Ok(set.map_or_else(|| package.replace('-', "_"), str::to_owned))
}

fn c(target: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let headers = guests().join("wasm-c");
    let header = headers.join("sinew.h");
    let mut modules = Vec::new();
    for source in entries(&guests().join("codelets/c"), Some("c"))? {
        let module = target.join(format!("{}-c.wasm", stem(&source)?));
        // This program's own age stands for the flags.
        let inputs = [source.clone(), header.clone(), std::env::current_exe()?];
        if !is_up_to_date(&module, &inputs) {
            let mut clang = process::command("/usr/bin/clang-16");
            clang.args(C_FLAGS).arg("-I").arg(&headers).arg("-o").arg(&module).arg(&source);
            process::run(&mut clang)?;
        }
        modules.push(module);
    }
    Ok(modules)
}

fn wat(target: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut modules = Vec::new();
    for source in entries(&guests().join("codelets/wat"), Some("wat"))? {
        let module = target.join(format!("{}-wat.wasm", stem(&source)?));
        write_if_changed(&module, &wat::parse_file(&source)?)?;
        modules.push(module);
    }
    Ok(modules)
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Whether `output` is at least as new as every input.
fn is_up_to_date(output: &Path, inputs: &[PathBuf]) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let Some(made) = modified(output) else { return false };
    inputs.iter().all(|input| modified(input).is_some_and(|changed: SystemTime| changed <= made))
}

/// The folder's entries, or those with the extension, sorted.
fn entries(folder: &Path, extension: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let fits = match extension {
            Some(extension) => path.extension().is_some_and(|found| found == extension),
            None => path.is_dir(),
        };
        if fits {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn stem(path: &Path) -> anyhow::Result<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    Ok(stem.with_context(|| format!("{} has no name in UTF-8", path.display()))?.to_owned())
}

#[cfg(test)]
mod tests;
