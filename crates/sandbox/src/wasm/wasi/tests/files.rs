// SPDX-License-Identifier: Apache-2.0
//! Files of a program and files of this system do the same.

use std::io::{self, Write as _};
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wasm::table::Budget;
use crate::wasm::wasi::errno::{Errno, Result, Stop};
use crate::wasm::wasi::files::{Files, Kind, NODE_BYTES, NodeId, Place};
use crate::wasm::wasi::means::Means;

const LIMIT: u64 = 1 << 30;

/// Something to do. Paths are parts of a few names, so that they meet.
#[derive(Debug, Clone)]
enum Deed {
    Write { path: String, at: u8, len: u8 },
    Resize { path: String, len: u8 },
    Read { path: String },
    MakeDirectory { path: String },
    RemoveDirectory { path: String },
    Unlink { path: String },
    Rename { from: String, to: String },
    Link { from: String, to: String },
    Symlink { target: String, path: String },
    ReadLink { path: String },
    List { path: String },
}

fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let inner = prop::sample::select(vec!["a", "b", "c", ".", "a/.."]);
    (vec(inner, 0..3), name, prop::bool::weighted(0.1)).prop_map(|(way, name, slash)| {
        let mut parts: Vec<&str> = way;
        parts.push(name);
        parts.join("/") + if slash { "/" } else { "" }
    })
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (path(), any::<u8>(), any::<u8>()).prop_map(|(path, at, len)| Deed::Write { path, at, len }),
        1 => (path(), any::<u8>()).prop_map(|(path, len)| Deed::Resize { path, len }),
        1 => path().prop_map(|path| Deed::Read { path }),
        4 => path().prop_map(|path| Deed::MakeDirectory { path }),
        1 => path().prop_map(|path| Deed::RemoveDirectory { path }),
        1 => path().prop_map(|path| Deed::Unlink { path }),
        3 => (path(), path()).prop_map(|(from, to)| Deed::Rename { from, to }),
        1 => (path(), path()).prop_map(|(from, to)| Deed::Link { from, to }),
        2 => (path(), path()).prop_map(|(target, path)| Deed::Symlink { target, path }),
        1 => path().prop_map(|path| Deed::ReadLink { path }),
        1 => path().prop_map(|path| Deed::List { path }),
    ]
}

/// What came of a deed: bytes, or an error.
type Came = std::result::Result<Vec<u8>, Errno>;

fn data(at: u8, len: u8) -> Vec<u8> {
    (0..len).map(|byte| byte.wrapping_mul(7).wrapping_add(at)).collect()
}

fn ours(files: &mut Files, root: NodeId, deed: &Deed, means: &mut Means<'_>) -> Came {
    let done = (|| -> Result<Vec<u8>> {
        match deed {
            Deed::Write { path, at, len } => {
                let node = match files.find(root, path.as_bytes(), true, means)? {
                    Place::Entry { has_slash: true, node: None, .. } => return Err(Errno::IsDirectory.into()),
                    Place::Entry { parent, name, node: None, .. } => files.create(parent, &name, means)?,
                    Place::Entry { node: Some(node), has_slash, .. } => match files.kind(node) {
                        Kind::File if has_slash => return Err(Errno::NotDirectory.into()),
                        _ => node,
                    },
                    Place::Here(node) => node,
                };
                if files.kind(node) == Kind::Directory {
                    return Err(Errno::IsDirectory.into());
                }
                files.write(node, (*at).into(), &data(*at, *len), means)?;
            }
            Deed::Resize { path, len } => {
                let node = files.existing(root, path.as_bytes(), true, means)?;
                files.resize(node, (*len).into(), means)?;
            }
            Deed::Read { path } => {
                let node = files.existing(root, path.as_bytes(), true, means)?;
                let mut bytes = vec![0; 1024];
                let count = files.read(node, 0, &mut bytes, means)?;
                bytes.truncate(count);
                return Ok(bytes);
            }
            Deed::MakeDirectory { path } => files.make_directory(root, path.as_bytes(), means)?,
            Deed::RemoveDirectory { path } => files.remove_directory(root, path.as_bytes(), means)?,
            Deed::Unlink { path } => files.unlink(root, path.as_bytes(), means)?,
            Deed::Rename { from, to } => {
                files.rename((root, from.as_bytes()), (root, to.as_bytes()), means)?;
            }
            Deed::Link { from, to } => {
                let node = files.existing(root, from.as_bytes(), false, means)?;
                files.add_name(node, root, to.as_bytes(), means)?;
            }
            Deed::Symlink { target, path } => {
                files.make_link(target.as_bytes(), root, path.as_bytes(), means)?;
            }
            Deed::ReadLink { path } => {
                let node = files.existing(root, path.as_bytes(), false, means)?;
                return Ok(files.target(node, means)?.into());
            }
            Deed::List { path } => {
                let node = files.existing(root, path.as_bytes(), true, means)?;
                let names = files.list(node, means)?.into_iter().map(|line| line.name);
                return Ok(names.collect::<Vec<_>>().join(&b'/'));
            }
        }
        Ok(Vec::new())
    })();
    done.map_err(|stop| match stop {
        Stop::Refused(errno) => errno,
        Stop::Ended(fault) => panic!("{deed:?}: {fault}"),
    })
}

fn theirs(root: &Path, deed: &Deed) -> Came {
    let done = (|| -> io::Result<Vec<u8>> {
        match deed {
            Deed::Write { path, at, len } => {
                let mut file = std::fs::OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(root.join(path))?;
                if *len > 0 {
                    io::Seek::seek(&mut file, io::SeekFrom::Start((*at).into()))?;
                    file.write_all(&data(*at, *len))?;
                }
            }
            Deed::Resize { path, len } => {
                std::fs::OpenOptions::new().write(true).open(root.join(path))?.set_len((*len).into())?;
            }
            Deed::Read { path } => return std::fs::read(root.join(path)),
            Deed::MakeDirectory { path } => std::fs::create_dir(root.join(path))?,
            Deed::RemoveDirectory { path } => std::fs::remove_dir(root.join(path))?,
            Deed::Unlink { path } => std::fs::remove_file(root.join(path))?,
            Deed::Rename { from, to } => std::fs::rename(root.join(from), root.join(to))?,
            Deed::Link { from, to } => std::fs::hard_link(root.join(from), root.join(to))?,
            Deed::Symlink { target, path } => std::os::unix::fs::symlink(target, root.join(path))?,
            Deed::ReadLink { path } => {
                return Ok(std::fs::read_link(root.join(path))?.into_os_string().into_encoded_bytes());
            }
            Deed::List { path } => {
                let entries = std::fs::read_dir(root.join(path))?;
                let mut names: Vec<String> =
                    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
                names.sort_unstable();
                return Ok(names.join("/").into_bytes());
            }
        }
        Ok(Vec::new())
    })();
    done.map_err(|error| match error.raw_os_error().unwrap() {
        libc::ENOENT => Errno::NoEntry,
        libc::EEXIST => Errno::Exists,
        libc::ENOTDIR => Errno::NotDirectory,
        libc::EISDIR => Errno::IsDirectory,
        libc::ENOTEMPTY => Errno::NotEmpty,
        libc::EINVAL => Errno::Invalid,
        libc::ELOOP => Errno::Loop,
        libc::EPERM => Errno::NotPermitted,
        libc::EBUSY => Errno::Busy,
        _ => panic!("{deed:?}: {error}"),
    })
}

/// What is in a directory of this system.
fn walked(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut waiting = vec![(String::new(), root.to_owned())];
    while let Some((prefix, path)) = waiting.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                found.insert(format!("{name}/"), None);
                waiting.push((format!("{name}/"), entry.path()));
            } else if kind.is_symlink() {
                let target = std::fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes();
                found.insert(format!("{name} (l)"), Some(target));
            } else {
                found.insert(name, Some(std::fs::read(entry.path()).unwrap()));
            }
        }
    }
    found
}

/// Where POSIX leaves open which of two things wrong is told, or Linux has its own view.
fn may_differ(deed: &Deed, ours: &Came, theirs: &Came) -> bool {
    let (Err(_), Err(theirs)) = (ours, theirs) else { return false };
    match deed {
        // A name with a slash after it that is not there, or no directory, also where a link leads to it:
        // Linux says one or the other, by the order of its checks.
        Deed::Write { path, .. } => path.ends_with('/') || *theirs == Errno::IsDirectory,
        Deed::Symlink { path, .. } | Deed::Unlink { path } => path.ends_with('/'),
        // Both paths may be wrong, each in its own way; which of them is told is not laid down.
        Deed::Rename { .. } | Deed::Link { .. } => true,
        _ => false,
    }
}

fn compare(deeds: &[Deed]) {
    let world = World::new();
    let mut budget = Budget::new(LIMIT, 0);
    let mut means = Means { store: &world.store, budget: &mut budget, now: 0 };
    let mut files = Files::default();
    let root = files.root(world.directory(&[]), false, &mut means).unwrap();
    let real = tempfile::tempdir().unwrap();
    for deed in deeds {
        let came = ours(&mut files, root, deed, &mut means);
        let expected = theirs(real.path(), deed);
        assert!(
            came == expected || may_differ(deed, &came, &expected),
            "{deed:?}: {came:?}, not {expected:?}"
        );
    }
    let expected = walked(real.path());
    let sealed = files.seal(root, &mut means);
    assert_eq!(world.read(sealed), expected);
    // As given to another program it is the same, and what is not changed keeps its name.
    let mut budget = Budget::new(LIMIT, 0);
    let mut means = Means { store: &world.store, budget: &mut budget, now: 0 };
    let mut again = Files::default();
    let root = again.root(sealed, false, &mut means).unwrap();
    remove_all(&mut again, root, "", false, &mut means);
    assert_eq!(again.seal(root, &mut means), sealed);
    remove_all(&mut again, root, "", true, &mut means);
    assert_eq!(world.read(again.seal(root, &mut means)), Tree::new());
}

/// Looks into all directories, and removes all that is there if `really`.
fn remove_all(files: &mut Files, root: NodeId, prefix: &str, really: bool, means: &mut Means<'_>) {
    let directory = if prefix.is_empty() { "." } else { prefix };
    let node = files.existing(root, directory.as_bytes(), true, means).unwrap();
    for line in files.list(node, means).unwrap() {
        let path = format!("{prefix}{}", str::from_utf8(&line.name).unwrap());
        if line.kind == Kind::Directory {
            remove_all(files, root, &format!("{path}/"), really, means);
            if really {
                files.remove_directory(root, path.as_bytes(), means).unwrap();
            }
        } else if really {
            files.unlink(root, path.as_bytes(), means).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn files_do_what_those_of_this_system_do(deeds in vec(deed(), 1..60)) {
        compare(&deeds);
    }

    #[test]
    fn memory_comes_back_with_what_is_removed(deeds in vec(deed(), 1..60)) {
        let world = World::new();
        let mut budget = Budget::new(LIMIT, 0);
        let mut means = Means { store: &world.store, budget: &mut budget, now: 0 };
        let mut files = Files::default();
        let root = files.root(world.directory(&[]), false, &mut means).unwrap();
        for deed in &deeds {
            _ = ours(&mut files, root, deed, &mut means);
        }
        remove_all(&mut files, root, "", true, &mut means);
        prop_assert_eq!(means.budget.left(), LIMIT - NODE_BYTES);
    }

    #[test]
    fn no_path_leads_out(parts in vec(prop::sample::select(vec!["a", "up", ".", "..", "", "out", "deep"]), 1..12)) {
        let world = World::new();
        let links = |name: &str, target: &str| (format!("l {name}\n"), world.blob(target.as_bytes()));
        let deep = world.directory(&[("file", "within")]);
        let (up, out) = (links("up", ".."), links("out", "../../../outside"));
        let lines = format!("d deep\n{}{}", out.0, up.0);
        let a = world.tree([world.blob(lines.as_bytes()), deep, out.1, up.1]);
        let root = world.tree([world.blob(b"d a\n"), a]);
        let mut budget = Budget::new(LIMIT, 0);
        let mut means = Means { store: &world.store, budget: &mut budget, now: 0 };
        let mut files = Files::default();
        // Another directory beside it, which no path may reach.
        let outside = files.root(world.directory(&[("outside", "")]), false, &mut means).unwrap();
        let root = files.root(root, false, &mut means).unwrap();
        let base = files.existing(root, b"a", true, &mut means).unwrap();
        let path = parts.join("/");
        if let Ok(node) = files.existing(base, path.as_bytes(), true, &mut means) {
            prop_assert!(node != outside && node != root, "{path}");
        }
    }
}

#[test]
fn what_is_removed_while_open_stays_until_it_is_closed() {
    let world = World::new();
    let mut budget = Budget::new(LIMIT, 0);
    let mut means = Means { store: &world.store, budget: &mut budget, now: 0 };
    let mut files = Files::default();
    let root = files.root(world.directory(&[("d/e/file", "text")]), false, &mut means).unwrap();
    let file = files.existing(root, b"d/e/file", true, &mut means).unwrap();
    let directory = files.existing(root, b"d/e", true, &mut means).unwrap();
    files.acquire(file);
    files.acquire(directory);
    files.unlink(root, b"d/e/file", &mut means).unwrap();
    files.remove_directory(root, b"d/e", &mut means).unwrap();
    files.remove_directory(root, b"d", &mut means).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(files.read(file, 0, &mut bytes, &means), Ok(4));
    files.write(file, 4, b"!", &mut means).unwrap();
    assert_eq!(files.read(file, 0, &mut bytes, &means), Ok(5));
    // The directory that it was in is no more: it is its own, and takes nothing.
    assert_eq!(files.parent(directory), directory);
    assert_eq!(files.make_directory(directory, b"new", &mut means), Err(Errno::NoEntry.into()));
    let before = means.budget.left();
    files.release(file, &mut means);
    files.release(directory, &mut means);
    assert!(means.budget.left() > before);
}
