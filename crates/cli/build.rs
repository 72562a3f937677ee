// SPDX-License-Identifier: Apache-2.0
//! Tells `sinew version` which wasmtime is linked (the lock file knows, and
//! the CLI itself depends on no engine) and which commit it is built from.
//!
//! The commit is looked up again when another one is checked out or made, not
//! whenever a file changes: else each build would link anew. Without git, or
//! outside of a repository, the variable `SINEW_COMMIT` says what it is.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lock = root.join("Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).unwrap_or_default();
    let mut lines = text.lines().skip_while(|line| *line != "name = \"wasmtime\"");
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    println!("cargo::rustc-env=SINEW_WASMTIME_VERSION={}", version.unwrap_or("unknown"));

    println!("cargo::rerun-if-env-changed=SINEW_COMMIT");
    let told = std::env::var("SINEW_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let commit = commit(&root).or(told).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=SINEW_BUILD_COMMIT={}", commit.trim());
}

/// The commit that is checked out, and whether the sources differ from it.
fn commit(root: &Path) -> Option<String> {
    // Sources that lie unpacked within another repository are not its commit.
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    watch(root);
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(root, &["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// Runs this script again when HEAD, or the branch that it names, changes.
fn watch(root: &Path) {
    let file = |name: &str| Some(root.join(git(root, &["rev-parse", "--git-path", name])?));
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    let loose = branch.and_then(|name| file(&name)).filter(|path| path.exists());
    // A packed branch gets a file of its own with its next commit, which is
    // noted in the log of HEAD.
    let files = match loose {
        Some(loose) => vec![file("HEAD"), Some(loose)],
        None => vec![file("HEAD"), file("packed-refs"), file("logs/HEAD")],
    };
    // Cargo takes a file that does not exist for one that always changes.
    for path in files.into_iter().flatten().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

#[expect(clippy::disallowed_methods, reason = "only git knows its repository")]
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
