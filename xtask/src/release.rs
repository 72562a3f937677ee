// SPDX-License-Identifier: Apache-2.0
//! `make release`: the binary that people install, as an archive.
//!
//! It is compiled twice. The first one counts where its code goes while a node does what
//! nodes do (`training`); the second one is laid out by these counts: what is often called
//! is inlined and lies together, what never happens is out of the way. Half of what a
//! request takes is code of ours, spread over hundreds of functions, and no other
//! change makes all of them faster (`docs/figures.md`, `warm`).

mod archive;
mod notices;
pub(crate) mod training;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::progress::{mebibytes, note, step};
use crate::{guests, install, layout, process};

/// `cargo xtask release`.
pub(crate) fn run() -> anyhow::Result<()> {
    let binary = tuned(&["cli"])?.join("sinew");
    let archive =
        step("packing", || archive::make(&binary, &notices::all()?, &layout::target().join("dist")))?;
    note(format!("{}: {}", archive.display(), mebibytes(std::fs::metadata(&archive)?.len())));
    note(format!("its hash: {}.sha256", archive.display()));
    Ok(())
}

/// Builds packages by the counts of this machine's node; the folder of their programs.
///
/// What was counted is kept for as long as the code that counts stays the same.
pub(crate) fn tuned(packages: &[&str]) -> anyhow::Result<PathBuf> {
    install::all()?;
    guests::build()?;
    let folder = layout::target().join("tuned");
    let counts = folder.join("counts");
    let triple = process::host()?;
    let counting = step("building what counts where its code goes", || {
        let flags = format!("-Cprofile-generate={}", counts.display());
        build(&["cli"], &triple, &folder.join("counting"), &flags)
    })?;
    let profile = profile(&counting.join("sinew"), &counts, &folder)?;
    step("building by these counts", || {
        let flags = format!("-Cprofile-use={}", profile.display());
        build(packages, &triple, &folder, &flags)
    })
}

/// The counts of a program, in the form that the compiler reads. Its name has the hash of the program in it, and of
/// what it was counted with: another one is another flag, so that cargo sees that it is.
fn profile(program: &Path, counts: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let mut hashed = process::output(process::command("sha256sum").arg(program))?;
    for path in
        process::output(process::command("git").args(["ls-files", "examples", "xtask/src/release"]))?.lines()
    {
        hashed += &process::output(process::command("sha256sum").arg(path))?;
    }
    let told = folder.join("counted-with");
    std::fs::write(&told, hashed)?;
    let hashed = process::output(process::command("sha256sum").arg(&told))?;
    let hash = hashed.split_whitespace().next().context("sha256sum printed nothing")?;
    let profile = folder.join(format!("{}.profdata", hash.get(..16).unwrap_or(hash)));
    if profile.exists() {
        note(format!("counted before: {}", profile.display()));
        return Ok(profile);
    }
    let merge = install::profile_merger()?;
    layout::remove(counts)?;
    step("counting, while a node does what nodes do", || training::run(program))?;
    let mut files: Vec<_> = std::fs::read_dir(counts)
        .with_context(|| format!("nothing was counted: {}", counts.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|ext| ext == "profraw"));
    ensure!(!files.is_empty(), "nothing was counted: {} is empty", counts.display());
    let unfinished = profile.with_extension("unfinished");
    process::run(process::command(merge).arg("merge").arg("-o").arg(&unfinished).args(&files))?;
    std::fs::rename(&unfinished, &profile)?;
    Ok(profile)
}

/// Builds packages in the release profile; the folder of their programs.
fn build(packages: &[&str], triple: &str, folder: &Path, flags: &str) -> anyhow::Result<PathBuf> {
    let mut cargo = process::cargo();
    // With a target of its own what runs while building is not built so.
    cargo.args(["build", "--quiet", "--release", "--target", triple]).env("CARGO_ENCODED_RUSTFLAGS", flags);
    cargo.arg("--target-dir").arg(folder);
    cargo.args(packages.iter().flat_map(|package| ["-p", package]));
    process::run(&mut cargo)?;
    Ok(folder.join(triple).join("release"))
}
