// SPDX-License-Identifier: Apache-2.0
//! The file tree of a bundle. What comes from the host is opened first; then
//! the root is changed; and only then everything is put in its place, where
//! no path can lead to the host any more.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use linux::{DeviceKind, MountFlags, Propagation, Restrictions};

use super::description::{Bundle, Device, Mount, MountSource};

/// Devices that every container has, with their numbers.
const DEVICES: [(&str, (u32, u32)); 6] = [
    ("null", (1, 3)),
    ("zero", (1, 5)),
    ("full", (1, 7)),
    ("random", (1, 8)),
    ("urandom", (1, 9)),
    ("tty", (5, 0)),
];
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Makes the tree and changes the root to it, in a mount namespace of its
/// own. `may_make_devices` is false in a user namespace, where the host's
/// devices are bound instead.
///
/// # Errors
/// What could not be mounted.
pub(super) fn enter(bundle: &Bundle, may_make_devices: bool) -> io::Result<()> {
    linux::propagate(Path::new("/"), Propagation::Slave, true)?;
    let root = linux::copy_mount(&bundle.root.path, true).map_err(at("open", &bundle.root.path))?;
    let mounts: Vec<(OwnedFd, bool)> = bundle.mounts.iter().map(open).collect::<io::Result<_>>()?;
    let devices = if may_make_devices { Vec::new() } else { open_devices()? };
    let masks: Vec<OwnedFd> = bundle
        .masked
        .iter()
        .map(|_| linux::copy_mount(Path::new("/dev/null"), false))
        .collect::<io::Result<_>>()?;
    linux::attach(root.as_fd(), &bundle.root.path).map_err(at("mount", &bundle.root.path))?;
    linux::change_directory(root.as_fd())?;
    linux::change_root(None).map_err(at("change the root to", &bundle.root.path))?;
    for (mount, (tree, is_folder)) in bundle.mounts.iter().zip(&mounts) {
        put(mount, tree, *is_folder)?;
    }
    make_devices(bundle, &devices)?;
    for (path, mask) in bundle.masked.iter().zip(&masks) {
        hide(path, mask)?;
    }
    for path in &bundle.read_only {
        forbid_writing(path)?;
    }
    if bundle.root.is_read_only {
        linux::restrict(root.as_fd(), Restrictions::READ_ONLY).map_err(at("protect", Path::new("/")))?;
    }
    match bundle.root.propagation {
        Some(propagation) => linux::propagate(Path::new("/"), propagation, false),
        None => Ok(()),
    }
}

/// A mount that is mounted nowhere yet, and whether it is a folder.
fn open(mount: &Mount) -> io::Result<(OwnedFd, bool)> {
    let named = |error| at("mount", &mount.destination)(error);
    match &mount.source {
        MountSource::Bind { path, is_recursive } => {
            let tree = linux::copy_mount(path, *is_recursive).map_err(at("bind", path))?;
            linux::change_mount(tree.as_fd(), mount.flags, false).map_err(named)?;
            linux::change_mount(tree.as_fd(), mount.flags_below, true).map_err(named)?;
            Ok((tree, fs::metadata(path)?.is_dir()))
        }
        MountSource::New { kind, source, options } => {
            let options: Vec<(&str, &str)> =
                options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            Ok((linux::new_mount(kind, source, &options, mount.flags).map_err(named)?, true))
        }
    }
}

fn put(mount: &Mount, tree: &OwnedFd, is_folder: bool) -> io::Result<()> {
    let place = &mount.destination;
    make_place(place, is_folder)?;
    linux::attach(tree.as_fd(), place).map_err(at("mount", place))?;
    match mount.propagation {
        Some((propagation, recursive)) => {
            linux::propagate(place, propagation, recursive).map_err(at("set the propagation of", place))
        }
        None => Ok(()),
    }
}

fn make_place(place: &Path, is_folder: bool) -> io::Result<()> {
    if place.exists() {
        return Ok(());
    }
    let folder = if is_folder { place } else { place.parent().unwrap_or(place) };
    fs::create_dir_all(folder).map_err(at("make", folder))?;
    if is_folder { Ok(()) } else { File::create(place).map(drop).map_err(at("make", place)) }
}

fn open_devices() -> io::Result<Vec<OwnedFd>> {
    let paths = DEVICES.iter().map(|(name, _)| Path::new("/dev").join(name));
    paths.map(|path| linux::copy_mount(&path, false).map_err(at("bind", &path))).collect()
}

/// The devices of every container, those that the bundle adds, and the links
/// that programs expect.
fn make_devices(bundle: &Bundle, bound: &[OwnedFd]) -> io::Result<()> {
    let folder = Path::new("/dev");
    fs::create_dir_all(folder)?;
    if bound.is_empty() {
        for (name, numbers) in DEVICES {
            let path = folder.join(name);
            // The bundle may say otherwise, and a tree may bring its own.
            if !bundle.devices.iter().any(|device| device.path == path) && !path.exists() {
                linux::make_device(&path, DeviceKind::Character, numbers, 0o666)
                    .map_err(at("make", &path))?;
            }
        }
        bundle.devices.iter().try_for_each(make_device)?;
    } else {
        for ((name, _), device) in DEVICES.iter().zip(bound) {
            let path = folder.join(name);
            make_place(&path, false)?;
            linux::attach(device.as_fd(), &path).map_err(at("mount", &path))?;
        }
        if let Some(device) = bundle.devices.first() {
            let what = format!("linux.devices: {} cannot be made in a user namespace", device.path.display());
            return Err(io::Error::other(what));
        }
    }
    let has_terminals = folder.join("pts").is_dir();
    for (name, target) in LINKS.iter().filter(|(name, _)| has_terminals || *name != "ptmx") {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).is_err() {
            symlink(target, &path).map_err(at("make", &path))?;
        }
    }
    Ok(())
}

fn make_device(device: &Device) -> io::Result<()> {
    let path = &device.path;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    linux::make_device(path, device.kind, device.numbers, device.mode).map_err(at("make", path))?;
    chown(path, Some(device.owner.0), Some(device.owner.1)).map_err(at("give away", path))
}

/// A path that is not there needs no mask.
fn hide(path: &Path, null: &OwnedFd) -> io::Result<()> {
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    if found.is_dir() {
        let empty =
            linux::new_file_system("tmpfs", &[("size", "0"), ("mode", "555")], Restrictions::READ_ONLY)?;
        return linux::attach(empty.as_fd(), path).map_err(at("mask", path));
    }
    linux::attach(null.as_fd(), path).map_err(at("mask", path))
}

fn forbid_writing(path: &Path) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let copy = linux::copy_mount(path, true).map_err(at("protect", path))?;
    let flags = MountFlags { set: MountFlags::READ_ONLY, clear: 0 };
    linux::change_mount(copy.as_fd(), flags, true).map_err(at("protect", path))?;
    linux::attach(copy.as_fd(), path).map_err(at("protect", path))
}

fn at<'a>(what: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> io::Error + 'a {
    move |error| io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}
