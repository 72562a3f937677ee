// SPDX-License-Identifier: Apache-2.0
//! The house rules that a program can hold the sources against.
//!
//! It looks at what git tracks, or would track. A rule that the compiler or
//! clippy can check is not repeated here. `cargo test` runs it too.

mod code;
mod files;
mod mounts;
mod rooms;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::{layout, process};

/// A rule that a place breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Relative to the repository.
    path: PathBuf,
    /// From 1; 0 for the whole file.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: impl Into<PathBuf>, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.what)
    }
}

/// A file of the project.
struct File {
    /// Relative to the repository.
    path: PathBuf,
    bytes: Vec<u8>,
}

impl File {
    /// The text of a source in a language with braces; `None` for others.
    fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    fn extension(&self) -> &str {
        self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }
}

/// `cargo xtask tidy`.
pub(crate) fn run() -> anyhow::Result<()> {
    let findings = check(layout::root())?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} places break a house rule"),
    }
}

/// Everything that is out of order in the repository.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let files = files(root)?;
    let mut findings = Vec::new();
    for file in &files {
        files::check(file, is_assembled(file, &files), &mut findings);
        if file.extension() == "rs" {
            code::check(file, &mut findings);
        }
    }
    mounts::check(&files, &mut findings);
    rooms::check(&files, &mut findings);
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(findings)
}

/// A module beside the text that it was assembled from; a test of that crate
/// must hold one against the other.
fn is_assembled(file: &File, files: &[File]) -> bool {
    let text = file.path.with_extension("wat");
    file.extension() == "wasm" && files.iter().any(|other| other.path == text)
}

/// What git tracks or would track, as it is on disk.
fn files(root: &Path) -> anyhow::Result<Vec<File>> {
    let mut git = process::command("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = process::output(&mut git)?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let full = root.join(path);
        // Deleted, but not yet committed; or a link, which is not a source.
        if !full.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        files.push(File { path: path.into(), bytes: fs::read(&full).with_context(|| path.to_owned())? });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}

#[cfg(test)]
mod tests;
