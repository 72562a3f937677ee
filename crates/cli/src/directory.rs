// SPDX-License-Identifier: Apache-2.0
//! Which files a directory tree has, before anything is sent.
//!
//! A directory becomes a tree: entry 0 is a blob with one line per child,
//! `f name` for a file or `d name` for a directory, sorted by name; the
//! children follow in that order. Links to files count as files; links to
//! directories and things that are neither are left out, and named.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::{Code, Stop};

/// The most files and directories that one tree takes.
const ENTRIES_MAX: usize = 1_000_000;

/// A child of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Child {
    /// A file.
    File(PathBuf),
    /// A directory, by its place in [`Plan::folders`].
    Folder(usize),
}

/// One directory and its children, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) children: Vec<(OsString, Child)>,
}

impl Folder {
    /// The blob of entry 0.
    pub(crate) fn names(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for (name, child) in &self.children {
            lines.extend_from_slice(if matches!(child, Child::File(_)) { b"f " } else { b"d " });
            lines.extend_from_slice(name.as_bytes());
            lines.push(b'\n');
        }
        lines
    }
}

/// A directory tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The root first; every folder comes before the folders in it.
    pub(crate) folders: Vec<Folder>,
    /// Bytes of all files.
    pub(crate) bytes: u64,
    /// What was left out.
    pub(crate) skipped: Vec<PathBuf>,
}

/// Looks at everything under a directory.
pub(crate) fn plan(root: &Path) -> anyhow::Result<Plan> {
    let mut plan = Plan { folders: vec![Folder::default()], ..Plan::default() };
    let mut waiting = vec![(0, root.to_owned())];
    let mut entries = 0;
    while let Some((at, path)) = waiting.pop() {
        let mut names = list(&path)?;
        names.sort_unstable();
        entries += names.len();
        if entries > ENTRIES_MAX {
            let message = format!("{} has more than {ENTRIES_MAX} files and directories", root.display());
            return Err(Stop::new(Code::Failed, message).suggest("put parts of it").into());
        }
        for name in names {
            let child = path.join(&name);
            if name.as_bytes().contains(&b'\n') {
                let message = format!("the name of {child:?} contains a line break");
                return Err(Stop::new(Code::Failed, message).suggest("rename it").into());
            }
            let Some(child) = classify(child, &mut plan, &mut waiting)? else { continue };
            plan.folders[at].children.push((name, child));
        }
    }
    Ok(plan)
}

fn list(path: &Path) -> anyhow::Result<Vec<OsString>> {
    let read = || std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>();
    read().map_err(|error| unreadable(path, error))
}

/// An error about a file, with the exit code that suits it.
pub(crate) fn unreadable(path: &Path, error: io::Error) -> anyhow::Error {
    let code = if error.kind() == io::ErrorKind::NotFound { Code::NotFound } else { Code::Failed };
    let stop = Stop::new(code, format!("{}: {error}", path.display()));
    stop.into()
}

fn classify(
    child: PathBuf,
    plan: &mut Plan,
    waiting: &mut Vec<(usize, PathBuf)>,
) -> anyhow::Result<Option<Child>> {
    let own = std::fs::symlink_metadata(&child).with_context(|| child.display().to_string())?;
    if own.is_dir() {
        plan.folders.push(Folder::default());
        waiting.push((plan.folders.len() - 1, child));
        return Ok(Some(Child::Folder(plan.folders.len() - 1)));
    }
    // A link's target; a broken link has none.
    match std::fs::metadata(&child) {
        Ok(target) if target.is_file() => {
            plan.bytes += target.len();
            Ok(Some(Child::File(child)))
        }
        _ => {
            plan.skipped.push(child);
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests;
