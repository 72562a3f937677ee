// SPDX-License-Identifier: Apache-2.0
//! How a directory tree is written out, and whether one that was is still as it was.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use objects::{FailureCode, Handle, TreeView};
use store::{Object, Store};

use crate::Fault;

/// Files and directories of one layer.
pub(super) const ENTRIES_MAX: usize = 100_000;
pub(super) const DEPTH_MAX: usize = 64;
/// Bytes of one layer's files.
pub(super) const BYTES_MAX: u64 = 4 << 30;
/// What a file takes on the disk, however small it is.
const FILE_BYTES_MIN: u64 = 4096;
pub(super) const NAME_LEN_MAX: usize = 255;
/// Bytes of a path below a layer's root: with that, wherever that is, there is room for it in one of the kernel's.
pub(super) const PATH_LEN_MAX: usize = 2048;
/// When all files were written, as functions see it, since 1970. Who makes an index of some
/// of them beforehand knows it (`cli`, of Java's classes).
const FILES_TIME: Duration = Duration::from_secs(1);
const FILE_MODE: u32 = 0o444;
const PROGRAM_MODE: u32 = 0o555;
const DIRECTORY_MODE: u32 = 0o755;

/// What a directory that was written out has: the bytes of all files, each at least a block, and a sum of hashes of
/// each file's and directory's path, mode and length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) bytes: u64,
    pub(super) sum: u128,
}

impl Listing {
    /// Adds something at a path below the root; `len` is 0 of a directory.
    fn add(&mut self, path: &Path, mode: u32, len: u64) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&mode.to_le_bytes()).update(&len.to_le_bytes()).update(path.as_os_str().as_bytes());
        let hash = hasher.finalize();
        let (half, _) = hash.as_bytes().split_at(16);
        // In any order, for a directory is read in any.
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(half.try_into().unwrap_or_default()));
    }

    fn add_file(&mut self, path: &Path, mode: u32, len: u64) {
        self.add(path, mode, len);
        self.bytes = self.bytes.saturating_add(bytes_of(len));
    }
}

/// Whether a directory that was written out is as it was then, as far as that can be seen without
/// reading files: what is there, how long it is, and when it was written to.
pub(super) fn is_whole(root: &Path, listing: Listing) -> bool {
    let mut found = Found { root, entries: 0, listing: Listing::default() };
    let is_there = fs::symlink_metadata(root).is_ok_and(|it| it.is_dir() && is_as_written(&it));
    is_there && found.look(root, 0).is_ok_and(|is_as_written| is_as_written && found.listing == listing)
}

/// What is in a directory.
struct Found<'a> {
    root: &'a Path,
    entries: usize,
    listing: Listing,
}

impl Found<'_> {
    /// Whether all that is in a directory is as [`Writer`] leaves it.
    fn look(&mut self, path: &Path, depth: usize) -> io::Result<bool> {
        if depth > DEPTH_MAX {
            return Ok(false);
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let (found, path) = (entry.metadata()?, entry.path());
            self.entries += 1;
            if self.entries > ENTRIES_MAX || !is_as_written(&found) {
                return Ok(false);
            }
            let below = path.strip_prefix(self.root).unwrap_or(&path);
            if found.is_dir() {
                self.listing.add(below, DIRECTORY_MODE, 0);
                if !self.look(&path, depth + 1)? {
                    return Ok(false);
                }
            } else {
                self.listing.add_file(below, found.permissions().mode() & 0o7777, found.len());
            }
        }
        Ok(true)
    }
}

/// Whether [`Writer`] leaves a file or directory so.
fn is_as_written(found: &Metadata) -> bool {
    let mode = found.permissions().mode() & 0o7777;
    if found.is_dir() {
        return mode == DIRECTORY_MODE;
    }
    let is_of_then = found.modified().is_ok_and(|time| time == UNIX_EPOCH + FILES_TIME);
    found.is_file() && is_of_then && (mode == FILE_MODE || mode == PROGRAM_MODE)
}

/// What a file of so many bytes counts.
fn bytes_of(len: u64) -> u64 {
    len.max(FILE_BYTES_MIN)
}

fn bad(why: impl Into<String>) -> Fault {
    Fault::new(FailureCode::BadProcedure, why.into())
}

pub(super) fn unwritable(path: &Path, error: &io::Error) -> Fault {
    Fault::new(FailureCode::Resources, format!("a layer cannot be written: {}: {error}", path.display()))
}

/// Writes one directory tree out.
pub(super) struct Writer<'a> {
    store: &'a Store,
    root: &'a Path,
    entries: usize,
    listing: Listing,
}

/// What a directory's list says of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Child {
    File,
    Program,
    Directory,
}

impl<'a> Writer<'a> {
    /// Of a place where nothing is yet.
    pub(super) fn new(store: &'a Store, root: &'a Path) -> Self {
        Self { store, root, entries: 0, listing: Listing::default() }
    }

    /// Writes it there; what is there then.
    ///
    /// # Errors
    /// Those of `Layers::get`. What was written until then is left.
    pub(super) fn write(mut self, tree: Handle) -> Result<Listing, Fault> {
        let mut waiting = vec![(tree, self.root.to_owned(), 0)];
        while let Some((tree, path, depth)) = waiting.pop() {
            if depth > DEPTH_MAX {
                return Err(bad(format!("a directory is more than {DEPTH_MAX} levels deep")));
            }
            fs::create_dir(&path).map_err(|error| unwritable(&path, &error))?;
            let data = self.object(tree, true)?;
            for (name, child, handle) in children(&data, |list| self.object(list, false))? {
                self.entries += 1;
                if self.entries > ENTRIES_MAX {
                    return Err(bad(format!("a directory has more than {ENTRIES_MAX} entries in all")));
                }
                let path = path.join(&name);
                if self.below(&path).as_os_str().len() > PATH_LEN_MAX {
                    return Err(bad(format!("a path in a directory has more than {PATH_LEN_MAX} bytes")));
                }
                match child {
                    Child::Directory => {
                        self.listing.add(self.below(&path), DIRECTORY_MODE, 0);
                        waiting.push((handle, path, depth + 1));
                    }
                    Child::File => self.file(handle, &path, FILE_MODE)?,
                    Child::Program => self.file(handle, &path, PROGRAM_MODE)?,
                }
            }
            // Whatever the node's umask is: the function runs as another user.
            fs::set_permissions(&path, Permissions::from_mode(DIRECTORY_MODE))
                .map_err(|error| unwritable(&path, &error))?;
        }
        Ok(self.listing)
    }

    fn below<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(self.root).unwrap_or(path)
    }

    fn file(&mut self, handle: Handle, path: &Path, mode: u32) -> Result<(), Fault> {
        // The size is in the handle, so that nothing too large is even read.
        self.listing.add_file(self.below(path), mode, handle.size());
        if self.listing.bytes > BYTES_MAX {
            return Err(bad(format!("a directory has more than {BYTES_MAX} bytes")));
        }
        let data = self.object(handle, false)?;
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&data)?;
            // What a function sees is the same on every node, at every time.
            file.set_modified(UNIX_EPOCH + FILES_TIME)?;
            file.set_permissions(Permissions::from_mode(mode))
        };
        write().map_err(|error| unwritable(path, &error))
    }

    /// The data of a blob or tree.
    fn object(&self, handle: Handle, is_tree: bool) -> Result<Object, Fault> {
        if !handle.is_value() || handle.is_failure() || handle.names_tree() != is_tree {
            let wanted =
                if is_tree { "a directory is no tree" } else { "a file or list of names is no blob" };
            return Err(bad(wanted));
        }
        match self.store.get(handle.definition()) {
            Ok(Some(data)) => Ok(data),
            Ok(None) => Err(Fault::new(
                FailureCode::MissingData,
                format!("{handle} of the function's files is not on this node; deploy it again"),
            )),
            Err(error) => Err(Fault::new(FailureCode::Resources, error.to_string())),
        }
    }
}

/// A child of a directory: its name, what it is, its handle.
type Named = (OsString, Child, Handle);

/// The children of a directory, whose list of names is entry 0.
fn children<D: Deref<Target = [u8]>>(
    tree: &[u8],
    list: impl FnOnce(Handle) -> Result<D, Fault>,
) -> Result<Vec<Named>, Fault> {
    let tree = TreeView::from_bytes(tree).map_err(|error| bad(error.to_string()))?;
    let mut entries = tree.iter();
    let names = list(entries.next().ok_or_else(|| bad("a directory is an empty tree"))?)?;
    let Some(lines) = names.strip_suffix(b"\n").or(names.is_empty().then_some(&[])) else {
        return Err(bad("a directory's list of names does not end with a line feed"));
    };
    let mut found: Vec<Named> = Vec::with_capacity(entries.len());
    for line in lines.split(|byte| *byte == b'\n').filter(|_| !names.is_empty()) {
        let shown = || String::from_utf8_lossy(line).into_owned();
        let (child, name) = match line {
            [b'f', b' ', name @ ..] => (Child::File, name),
            [b'x', b' ', name @ ..] => (Child::Program, name),
            [b'd', b' ', name @ ..] => (Child::Directory, name),
            _ => return Err(bad(format!("{:?} is no line of a directory's list", shown()))),
        };
        let is_plain = (1..=NAME_LEN_MAX).contains(&name.len())
            && name != b"."
            && name != b".."
            && !name.iter().any(|byte| matches!(byte, b'/' | b'\0'));
        // In order, so that no name is there twice.
        let is_next = found.last().is_none_or(|(last, _, _)| last.as_bytes() < name);
        let Some(handle) = entries.next().filter(|_| is_plain && is_next) else {
            let why = "is not allowed as a name, out of order, or without an entry";
            return Err(bad(format!("{:?} {why}", shown())));
        };
        found.push((OsStr::from_bytes(name).to_owned(), child, handle));
    }
    match entries.next() {
        None => Ok(found),
        Some(_) => Err(bad("a directory has more entries than names")),
    }
}
