// SPDX-License-Identifier: Apache-2.0
//! The archive that people download: the binary, a unit for systemd, its licence, and what is to be said of those
//! whose code is in it. Beside it lies its hash, in the form that `sha256sum --check` reads.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{layout, process};

/// Makes it in this folder; its path.
///
/// The same files make the same archive: they are in order, belong to nobody, and are as
/// old as the commit.
pub(super) fn make(binary: &Path, notices: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let changed = process::output(process::command("git").args(["status", "--porcelain"]))?;
    // Nobody is to take it for what the commit makes.
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    let name = format!("sinew-{}-{}{dirty}", env!("CARGO_PKG_VERSION"), process::host()?);
    let inside = folder.join(&name);
    layout::remove(&inside)?;
    fs::create_dir_all(&inside)?;
    fs::copy(binary, inside.join("sinew"))?;
    for file in ["LICENSE", "SECURITY.md"] {
        fs::copy(layout::root().join(file), inside.join(file))?;
    }
    let unit = "sinew.service";
    fs::copy(layout::root().join("docs/how-to").join(unit), inside.join(unit))?;
    fs::write(inside.join("NOTICES.txt"), notices)?;
    let committed = process::output(process::command("git").args(["show", "--no-patch", "--format=%ct"]))?;
    let file = format!("{name}.tar.gz");
    pack(folder, &name, &file, &committed)?;
    layout::remove(&inside)?;
    let hash = process::output(process::command("sha256sum").current_dir(folder).arg(&file))?;
    fs::write(folder.join(format!("{file}.sha256")), format!("{hash}\n"))?;
    Ok(folder.join(file))
}

/// Packs what is in `folder` under this name; `seconds` is when all of it was last changed.
fn pack(folder: &Path, name: &str, file: &str, seconds: &str) -> anyhow::Result<()> {
    let mut tar = process::command("tar");
    tar.current_dir(folder).args([
        "--create",
        "--use-compress-program=gzip -9n",
        "--sort=name",
        "--numeric-owner",
    ]);
    tar.args(["--owner=0", "--group=0", "--mode=u+rw,go+r,go-w"]).arg(format!("--mtime=@{seconds}"));
    tar.arg(format!("--file={file}")).arg(name);
    process::run(&mut tar)
}

#[cfg(test)]
mod tests;
