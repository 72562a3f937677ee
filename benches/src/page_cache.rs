// SPDX-License-Identifier: Apache-2.0
//! What the kernel has of files in its cache.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Has the kernel have all files of a folder, and of those in it.
pub(crate) fn fill(folder: &Path) -> anyhow::Result<()> {
    each_file(folder, |mut file| {
        std::io::copy(&mut file, &mut std::io::sink())?;
        Ok(())
    })
}

/// Has the kernel let go of what it has of them.
pub(crate) fn forget(folder: &Path) -> anyhow::Result<()> {
    each_file(folder, |file| {
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

fn each_file(folder: &Path, act: fn(File) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            each_file(&entry.path(), act)?;
        } else if kind.is_file() {
            act(File::open(entry.path())?)?;
        }
    }
    Ok(())
}
