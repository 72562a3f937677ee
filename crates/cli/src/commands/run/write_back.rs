// SPDX-License-Identifier: Apache-2.0
//! What a program changed in a directory, written to this machine.
//!
//! Only what differs between the tree that the program was given and the one that came of
//! it is touched. The program is not trusted: no link that it made, and none that was there,
//! is followed on the way, so that nothing outside of the directory is written.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use objects::Handle;

use super::ended::children;
use crate::commands::get::copy;
use crate::node_api::Node;
use crate::output::Output;

/// What one write came to.
#[derive(Debug, Default)]
struct Tally {
    written: u64,
    removed: u64,
}

/// What is there by a name: its kind, and its handle.
type Names = BTreeMap<Vec<u8>, (u8, Handle)>;

/// Makes `root`, of which `given` was made, what `result` says.
pub(super) async fn write(
    root: &Path,
    given: Handle,
    result: Handle,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    let mut emptied = Vec::new();
    let mut waiting = vec![(root.to_owned(), Some(given), Some(result))];
    while let Some((path, old, new)) = waiting.pop() {
        if old.map(Handle::definition) == new.map(Handle::definition) {
            continue;
        }
        let (before, after) = (names(old, node).await?, names(new, node).await?);
        for (name, (kind, handle)) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
            let child = path.join(OsStr::from_bytes(name));
            tally.removed += 1;
            match kind {
                b'd' => {
                    emptied.push(child.clone());
                    waiting.push((child, Some(*handle), None));
                }
                kind => remove(&child, *kind)?,
            }
        }
        for (name, (kind, handle)) in after {
            ensure!(is_name(&name), "the node's tree has a bad name");
            let child = path.join(OsStr::from_bytes(&name));
            let old = before.get(&name).copied();
            if let Some((old_kind, _)) = old.filter(|(old_kind, _)| is_other(*old_kind, kind)) {
                remove(&child, old_kind)?;
            }
            let same = old.filter(|(old_kind, _)| !is_other(*old_kind, kind));
            if kind == b'd' {
                directory(&child)?;
                waiting.push((child, same.map(|(_, tree)| tree), Some(handle)));
            } else if same
                .is_none_or(|(old_kind, old)| old_kind != kind || old.definition() != handle.definition())
            {
                file(&child, kind, handle, node).await.with_context(|| child.display().to_string())?;
                tally.written += 1;
            }
        }
    }
    // The innermost first. What has something in it that the program was not given stays.
    for directory in emptied.iter().rev() {
        _ = fs::remove_dir(directory);
    }
    if output.is_watched() {
        output.say(&format!("{}: {} written, {} removed", root.display(), tally.written, tally.removed));
    }
    Ok(())
}

async fn names(tree: Option<Handle>, node: &mut Node) -> anyhow::Result<Names> {
    let Some(tree) = tree else { return Ok(Names::new()) };
    let children = children(tree, node).await?;
    Ok(children.into_iter().map(|(kind, name, handle)| (name, (kind, handle))).collect())
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Whether one cannot be made the other without being removed.
fn is_other(one: u8, other: u8) -> bool {
    (one == b'd') != (other == b'd') || (one == b'l') != (other == b'l')
}

/// Removes what the program was given and has something else for, or nothing. Where it is
/// another kind of thing here meanwhile, it stays.
fn remove(path: &Path, kind: u8) -> anyhow::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => match kind {
            b'd' => fs::remove_dir_all(path),
            _ => Ok(()),
        },
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// A directory of its own: where a link is, it is replaced, not followed.
fn directory(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(path).with_context(|| path.display().to_string())?,
        Err(_) => {}
    }
    fs::create_dir(path).with_context(|| path.display().to_string())
}

/// A file or a link, which appears when it is whole.
async fn file(path: &Path, kind: u8, handle: Handle, node: &mut Node) -> anyhow::Result<()> {
    let partial = partial(path);
    if kind == b'l' {
        let target = node.read_whole(handle, usize::try_from(handle.size())?).await?;
        remove(&partial, kind)?;
        std::os::unix::fs::symlink(OsStr::from_bytes(&target), &partial)?;
        return Ok(fs::rename(&partial, path)?);
    }
    let mode = match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => Some(there.permissions().mode()),
        _ => None,
    };
    remove(&partial, kind)?;
    let mut target = fs::OpenOptions::new().write(true).create_new(true).open(&partial)?;
    let copied = copy(handle, None, node, &mut target, None).await;
    let done = copied.and_then(|()| {
        let made = target.metadata()?.permissions().mode();
        let mode = mode.unwrap_or(made);
        // Who may read it may run it.
        let mode = if kind == b'x' { mode | (mode & 0o444) >> 2 } else { mode };
        fs::set_permissions(&partial, Permissions::from_mode(mode))?;
        Ok(fs::rename(&partial, path)?)
    });
    if done.is_err() {
        // The reason is what matters; a file that is left over is only ugly.
        _ = fs::remove_file(&partial);
    }
    done
}

fn partial(path: &Path) -> PathBuf {
    path.with_file_name(".sinew-partial")
}

#[cfg(test)]
mod tests;
