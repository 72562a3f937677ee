// SPDX-License-Identifier: Apache-2.0
//! Files, links and directories that a program made, written to this machine.
//!
//! The program is not trusted: no link that it made, and none that was there, is followed
//! on the way. A file appears when it is whole, also if the command ends meanwhile.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use objects::Handle;

use crate::commands::get::copy;
use crate::node_api::Node;
use crate::upload::named;

/// Whether it can be a name in a directory.
pub(in crate::commands) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Removes what the program was given and has something else for, or nothing. Where it is
/// another kind of thing here meanwhile, it stays.
pub(in crate::commands) fn remove(path: &Path, kind: u8) -> anyhow::Result<()> {
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
pub(in crate::commands) fn directory(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(path).with_context(|| path.display().to_string())?,
        Err(_) => {}
    }
    match fs::create_dir(path) {
        // Somebody else was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_directory(path) => Ok(()),
        made => made.with_context(|| path.display().to_string()),
    }
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_dir())
}

/// A file or a link, which appears when it is whole.
pub(in crate::commands) async fn file(
    path: &Path,
    kind: u8,
    handle: Handle,
    node: &mut Node,
) -> anyhow::Result<()> {
    let partial = Partial::beside(path);
    if kind == b'l' {
        let target = node.read_whole(handle, usize::try_from(handle.size())?).await?;
        remove(&partial.0, kind)?;
        std::os::unix::fs::symlink(OsStr::from_bytes(&target), &partial.0)?;
        return Ok(fs::rename(&partial.0, path)?);
    }
    let mode = match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => Some(there.permissions().mode()),
        _ => None,
    };
    remove(&partial.0, kind)?;
    let mut target = fs::OpenOptions::new().write(true).create_new(true).open(&partial.0)?;
    copy(handle, None, node, &mut target, None).await?;
    let made = target.metadata()?.permissions().mode();
    fs::set_permissions(&partial.0, Permissions::from_mode(mode_of(kind, mode.unwrap_or(made))))?;
    Ok(fs::rename(&partial.0, path)?)
}

/// Who may read what is executable may run it.
fn mode_of(kind: u8, mode: u32) -> u32 {
    if kind == b'x' { mode | (mode & 0o444) >> 2 } else { mode }
}

/// Whether this very thing is there already.
pub(in crate::commands) async fn is_there(path: &Path, kind: u8, handle: Handle) -> bool {
    let Ok(there) = fs::symlink_metadata(path) else { return false };
    let found = match kind {
        b'l' if there.is_symlink() => {
            fs::read_link(path).map(|target| Handle::blob(target.as_os_str().as_bytes())).ok()
        }
        b'f' | b'x' if there.is_file() && there.len() == handle.size() => {
            let mode = there.permissions().mode();
            if mode != mode_of(kind, mode) {
                return false;
            }
            named(path).await.ok()
        }
        _ => None,
    };
    found.is_some_and(|found| found.definition() == handle.definition())
}

/// What is not whole yet. It is gone with this, unless it got its name.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(path.with_file_name(format!(".sinew-partial-{}-{number}", std::process::id())))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Mostly it has its name by now; else the reason is what matters, and what is left over only ugly.
        _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests;
