// SPDX-License-Identifier: Apache-2.0
//! Which files a directory tree has, before anything is sent.
//!
//! A directory becomes a tree: entry 0 is a blob with one line per child,
//! `f name` for a file, `x name` for one that its owner may execute, `d name`
//! for a directory, sorted by name; the children follow in that order. Links to files count as files; links to
//! directories and things that are neither are left out, and named. For a program links stay what they are: `l name`,
//! and a blob with where it leads. Of a
//! function's code, what looks like a secret is left out and named too, and a
//! link that leaves the directory is an error.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::{Code, Stop};
use crate::manifest::{Selection, Verdict};

/// The most files and directories that one tree takes.
const ENTRIES_MAX: usize = 1_000_000;
/// Where a private key is looked for in a file that may be one.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// A child of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Child {
    /// A file, and whether its owner may execute it.
    File { path: PathBuf, is_executable: bool },
    /// A directory, by its place in [`Plan::folders`].
    Folder(usize),
    /// A link, and where it leads.
    Link(OsString),
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
            lines.extend_from_slice(match child {
                Child::File { is_executable: false, .. } => b"f ",
                Child::File { is_executable: true, .. } => b"x ",
                Child::Folder(_) => b"d ",
                Child::Link(_) => b"l ",
            });
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
    /// Files and directories.
    pub(crate) entries: usize,
    /// Directories within each other, the root included.
    pub(crate) levels: usize,
    /// What was left out.
    pub(crate) skipped: Vec<PathBuf>,
    /// What was left out because it looks like a secret.
    pub(crate) secrets: Vec<PathBuf>,
    /// Links stay links.
    keeps_links: bool,
}

/// Looks at everything under a directory, or at what is selected of it.
/// Directories in which nothing is selected are left out.
pub(crate) fn plan(root: &Path, selection: Option<&Selection>) -> anyhow::Result<Plan> {
    plan_into(Plan::default(), root, selection)
}

/// Looks at everything under a directory, whose links stay links.
pub(crate) fn plan_with_links(root: &Path) -> anyhow::Result<Plan> {
    plan_into(Plan { keeps_links: true, ..Plan::default() }, root, None)
}

fn plan_into(mut plan: Plan, root: &Path, selection: Option<&Selection>) -> anyhow::Result<Plan> {
    plan.folders.push(Folder::default());
    let rules = match selection {
        Some(selection) => {
            Some(Rules { selection, root: root.canonicalize().map_err(|e| unreadable(root, e))? })
        }
        None => None,
    };
    let mut waiting = vec![Waiting { at: 0, path: root.to_owned(), relative: String::new(), level: 1 }];
    while let Some(folder) = waiting.pop() {
        let mut names = list(&folder.path)?;
        names.sort_unstable();
        plan.levels = plan.levels.max(folder.level);
        for name in names {
            let path = folder.path.join(&name);
            if name.as_bytes().contains(&b'\n') {
                let message = format!("the name of {path:?} contains a line break");
                return Err(Stop::new(Code::Failed, message).suggest("rename it").into());
            }
            let relative = format!("{}{}", folder.relative, name.to_string_lossy());
            let Some(child) = classify(path, relative, &folder, rules.as_ref(), &mut plan, &mut waiting)?
            else {
                continue;
            };
            plan.folders[folder.at].children.push((name, child));
            plan.entries += 1;
            if plan.entries > ENTRIES_MAX {
                let message = format!("{} has more than {ENTRIES_MAX} files and directories", root.display());
                return Err(Stop::new(Code::Failed, message).suggest("put parts of it").into());
            }
        }
    }
    if selection.is_some() {
        without_empty_folders(&mut plan);
    }
    Ok(plan)
}

/// A lone file as a directory.
pub(crate) fn plan_of_file(path: &Path) -> anyhow::Result<Plan> {
    let name = path.file_name().context("the file has no name")?.to_owned();
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    let child = Child::File { path: path.to_owned(), is_executable: is_executable(&metadata) };
    let folders = vec![Folder { children: vec![(name, child)] }];
    Ok(Plan { folders, bytes: metadata.len(), entries: 1, levels: 1, ..Plan::default() })
}

/// What code has to keep to.
struct Rules<'a> {
    selection: &'a Selection,
    /// The directory that no link may leave, without links itself.
    root: PathBuf,
}

impl Rules<'_> {
    /// Whether it is code, and not a secret.
    fn take(&self, path: &Path, relative: &str, is_directory: bool, plan: &mut Plan) -> bool {
        let verdict = match self.selection.verdict(relative, is_directory) {
            Verdict::Taken if !is_directory && self.is_key(path, relative) => Verdict::Secret,
            verdict => verdict,
        };
        if verdict == Verdict::Secret {
            plan.secrets.push(path.to_owned());
        }
        verdict == Verdict::Taken
    }

    /// Whether it is a private key, which a certificate of the same ending is not.
    fn is_key(&self, path: &Path, relative: &str) -> bool {
        let may_be = path.extension().is_some_and(|ending| ending == "pem" || ending == "key");
        if !may_be || self.selection.is_wanted(relative) {
            return false;
        }
        let mut text = Vec::new();
        let read = std::fs::File::open(path)
            .and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, KEY_BYTES_MAX), &mut text));
        read.is_ok() && text.windows(16).any(|part| part == b"PRIVATE KEY-----")
    }

    /// # Errors
    /// If a link leads out of the directory.
    fn stays(&self, link: &Path) -> anyhow::Result<()> {
        let Ok(target) = link.canonicalize() else { return Ok(()) };
        if target.starts_with(&self.root) {
            return Ok(());
        }
        let message = format!("{} is a link that leaves the source: to {}", link.display(), target.display());
        let advice = "copy the file there, or leave it out: `exclude`, or .sinewignore";
        Err(Stop::new(Code::Failed, message).suggest(advice).into())
    }
}

/// A directory that is still to be looked at.
struct Waiting {
    /// Its place in [`Plan::folders`].
    at: usize,
    path: PathBuf,
    /// Empty for the root, else with a slash at the end.
    relative: String,
    level: usize,
}

/// Folders come before those in them, so that one pass from the end suffices.
fn without_empty_folders(plan: &mut Plan) {
    let mut is_empty = vec![false; plan.folders.len()];
    for at in (0..plan.folders.len()).rev() {
        let before = plan.folders[at].children.len();
        plan.folders[at]
            .children
            .retain(|(_, child)| !matches!(child, Child::Folder(inner) if is_empty[*inner]));
        plan.entries -= before - plan.folders[at].children.len();
        is_empty[at] = plan.folders[at].children.is_empty();
    }
}

pub(crate) fn list(path: &Path) -> anyhow::Result<Vec<OsString>> {
    let read = || std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>();
    read().map_err(|error| unreadable(path, error))
}

/// An error about a file, with the exit code that suits it.
pub(crate) fn unreadable(path: &Path, error: io::Error) -> anyhow::Error {
    let code = if error.kind() == io::ErrorKind::NotFound { Code::NotFound } else { Code::Failed };
    let stop = Stop::new(code, format!("{}: {error}", path.display()));
    let stop = match error.kind() {
        io::ErrorKind::NotFound => stop.suggest("paths are looked up from where the command runs"),
        io::ErrorKind::PermissionDenied => stop.suggest("read it as its owner, or change its mode"),
        io::ErrorKind::NotADirectory => stop.suggest("files are put without --tree"),
        _ => stop,
    };
    stop.into()
}

fn classify(
    path: PathBuf,
    relative: String,
    parent: &Waiting,
    rules: Option<&Rules<'_>>,
    plan: &mut Plan,
    waiting: &mut Vec<Waiting>,
) -> anyhow::Result<Option<Child>> {
    let own = std::fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
    if let Some(rules) = rules {
        if !rules.take(&path, &relative, own.is_dir(), plan) {
            return Ok(None);
        }
        if own.is_symlink() {
            rules.stays(&path)?;
        }
    }
    if own.is_dir() {
        plan.folders.push(Folder::default());
        let at = plan.folders.len() - 1;
        waiting.push(Waiting { at, path, relative: relative + "/", level: parent.level + 1 });
        return Ok(Some(Child::Folder(at)));
    }
    if plan.keeps_links && own.is_symlink() {
        let target = std::fs::read_link(&path).map_err(|error| unreadable(&path, error))?;
        return Ok(Some(Child::Link(target.into_os_string())));
    }
    // A link's target; a broken link has none.
    match std::fs::metadata(&path) {
        Ok(target) if target.is_file() => {
            plan.bytes += target.len();
            Ok(Some(Child::File { path, is_executable: is_executable(&target) }))
        }
        _ => {
            plan.skipped.push(path);
            Ok(None)
        }
    }
}

pub(crate) fn is_executable(metadata: &std::fs::Metadata) -> bool {
    metadata.permissions().mode() & 0o100 != 0
}

#[cfg(test)]
mod tests;
