// SPDX-License-Identifier: Apache-2.0
//! The files of the emulated machine, in the archive that a kernel unpacks.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::{layout, process};

/// Programs of this Debian that the suites run, and what these find beside them.
const PROGRAMS: &[&str] = &["/usr/bin/python3.11", "/usr/bin/node", "/usr/bin/nice"];
const FOLDERS: &[&str] = &["/usr/lib/python3.11", "/etc/ssl/certs"];
const FILES: &[&str] = &["/etc/passwd", "/etc/group", "/etc/nsswitch.conf"];
/// Of Python's own, what no suite runs.
const LEFT_OUT: &[&str] =
    &["test", "idlelib", "ensurepip", "lib2to3", "tkinter", "__pycache__", "config-3.11-x86_64-linux-gnu"];
/// Of the disk; what nobody writes takes no place.
const DISK_BYTES: u64 = 512 << 20;
/// Links that every Debian has in its root.
const LINKS: &[(&str, &str)] =
    &[("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")];
/// What the kernel runs first, and then what is run in its place: no root can be
/// changed that is the kernel's own first one.
const FIRST: &str = include_str!("first.sh");
const SECOND: &str = include_str!("second.sh");

/// Makes the machine's disk, an empty one.
pub(super) fn disk(folder: &Path) -> anyhow::Result<PathBuf> {
    let disk = folder.join("disk");
    fs::File::create(&disk)?.set_len(DISK_BYTES)?;
    process::run(process::command("/sbin/mkfs.ext4").args(["-q", "-F"]).arg(&disk))?;
    Ok(disk)
}

/// Packs all that the machine has into one file below `folder`.
pub(super) fn pack(folder: &Path, suites: &[(&str, PathBuf)]) -> anyhow::Result<PathBuf> {
    let root = folder.join("root");
    layout::remove(&root)?;
    for made in [
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "suites",
        "proc",
        "sys",
        "dev",
        "tmp",
        "var/tmp",
        "new",
    ] {
        fs::create_dir_all(root.join(made))?;
    }
    for (link, target) in LINKS {
        symlink(target, root.join(link))?;
    }
    let mut libraries = BTreeSet::new();
    for program in PROGRAMS {
        put(Path::new(program), &root)?;
        needs(Path::new(program), &mut libraries)?;
    }
    symlink("python3.11", root.join("usr/bin/python3"))?;
    for (name, built) in suites {
        let own = root.join("suites").join(name);
        // What debuggers read would be most of the machine's memory.
        process::run(process::command("strip").arg("-o").arg(&own).arg(built))?;
        needs(built, &mut libraries)?;
    }
    for path in FOLDERS {
        copy_folder(Path::new(path), &root, &mut libraries)?;
    }
    FILES
        .iter()
        .map(Path::new)
        .chain(libraries.iter().map(PathBuf::as_path))
        .try_for_each(|file| put(file, &root))?;
    // What only root may read.
    fs::write(root.join("etc/shadow"), "root:*:20000:0:99999:7:::\n")?;
    fs::set_permissions(root.join("etc/shadow"), fs::Permissions::from_mode(0o600))?;
    put_busybox(&root)?;
    for (name, script) in [("init", FIRST), ("second", SECOND)] {
        fs::write(root.join(name), script)?;
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let archive = folder.join("files.cpio");
    let mut cpio = process::command("sh");
    cpio.args([
        "-euc",
        "find . -print0 | cpio --null --create --quiet --format=newc --owner=0:0 > \"$1\"",
        "sh",
    ]);
    process::run(cpio.arg(&archive).current_dir(&root))?;
    Ok(archive)
}

/// Where a file is in the machine: links among the folders of the root are followed.
fn place(file: &Path, root: &Path) -> anyhow::Result<PathBuf> {
    let folder = file.parent().context("a file lies in a folder")?.canonicalize()?;
    let folder = root.join(folder.strip_prefix("/")?);
    fs::create_dir_all(&folder)?;
    Ok(folder.join(file.file_name().context("a file has a name")?))
}

fn put(file: &Path, root: &Path) -> anyhow::Result<()> {
    fs::copy(file, place(file, root)?).with_context(|| file.display().to_string())?;
    Ok(())
}

/// The libraries that a program or another library loads when it starts.
fn needs(program: &Path, libraries: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let told = process::output(process::command("ldd").arg(program))?;
    for line in told.lines() {
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        libraries.extend(path.map(PathBuf::from));
    }
    Ok(())
}

fn copy_folder(from: &Path, root: &Path, libraries: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if LEFT_OUT.iter().any(|left| name.as_os_str() == *left) {
            continue;
        }
        // What a link leads to takes its place; one that leads nowhere has none.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.is_dir() {
            copy_folder(&path, root, libraries)?;
        } else if metadata.is_file() {
            put(&path, root)?;
            if path.extension().is_some_and(|extension| extension == "so") {
                needs(&path, libraries)?;
            }
        }
    }
    Ok(())
}

/// One program that is all the others which scripts and attacks call.
fn put_busybox(root: &Path) -> anyhow::Result<()> {
    put(Path::new("/bin/busybox"), root)?;
    let applets = process::output(process::command("/bin/busybox").arg("--list"))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        let link = root.join("usr/bin").join(applet);
        if !link.exists() {
            symlink("busybox", link)?;
        }
    }
    Ok(())
}
