// SPDX-License-Identifier: Apache-2.0
//! What a program changed in a directory, written to this machine.
//!
//! Only what differs between the tree that the program was given and the one that came of
//! it is touched. The program is not trusted: no link that it made, and none that was there,
//! is followed on the way, so that nothing outside of the directory is written.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use objects::Handle;

use super::ended::children;
use super::placing::{directory, file, is_name, remove};
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

/// Whether one cannot be made the other without being removed.
fn is_other(one: u8, other: u8) -> bool {
    (one == b'd') != (other == b'd') || (one == b'l') != (other == b'l')
}
