// SPDX-License-Identifier: Apache-2.0
//! Calls with paths, each below a directory that is open.

use wasmtime::Linker;

use super::descriptors::{encoded, times};
use super::{Defined, Guest, Turn, turn};
use crate::wasm::call::CallState;
use crate::wasm::wasi::MODULE;
use crate::wasm::wasi::errno::{Errno, Result};
use crate::wasm::wasi::files::{Kind, NodeId, Place};
use crate::wasm::wasi::rights;

/// A link at the end of the path is followed.
const FOLLOW: i32 = 1;
/// How a file is opened.
const CREATE: i32 = 1;
const DIRECTORY: i32 = 2;
const EXCLUSIVE: i32 = 4;
const TRUNCATE: i32 = 8;
/// All flags of a descriptor.
const FLAGS: i32 = 0b1_1111;

/// A path in the program's memory: address and length.
type Text = (i32, i32);

pub(super) fn define(linker: &mut Linker<CallState>) -> Defined {
    linker.func_wrap(MODULE, "path_create_directory", |guest: Guest<'_>, fd, path, len| {
        turn(guest, |turn| {
            let (base, path) = from(turn, fd, (path, len), rights::PATH_CREATE_DIRECTORY)?;
            turn.process.files.make_directory(base, &path, &mut turn.means)
        })
    })?;
    linker.func_wrap(MODULE, "path_remove_directory", |guest: Guest<'_>, fd, path, len| {
        turn(guest, |turn| {
            let (base, path) = from(turn, fd, (path, len), rights::PATH_REMOVE_DIRECTORY)?;
            turn.process.files.remove_directory(base, &path, &mut turn.means)
        })
    })?;
    linker.func_wrap(MODULE, "path_unlink_file", |guest: Guest<'_>, fd, path, len| {
        turn(guest, |turn| {
            let (base, path) = from(turn, fd, (path, len), rights::PATH_UNLINK_FILE)?;
            turn.process.files.unlink(base, &path, &mut turn.means)
        })
    })?;
    linker.func_wrap(
        MODULE,
        "path_rename",
        |guest: Guest<'_>, fd, path, len, new_fd, new_path, new_len| {
            turn(guest, |turn| {
                let (base, path) = from(turn, fd, (path, len), rights::PATH_RENAME_SOURCE)?;
                let (to, new_path) = from(turn, new_fd, (new_path, new_len), rights::PATH_RENAME_TARGET)?;
                turn.process.files.rename((base, &path), (to, &new_path), &mut turn.means)
            })
        },
    )?;
    linker.func_wrap(MODULE, "path_symlink", |guest: Guest<'_>, target, target_len, fd, path, len| {
        turn(guest, |turn| {
            let target = turn.memory.path(target, target_len)?;
            let (base, path) = from(turn, fd, (path, len), rights::PATH_SYMLINK)?;
            turn.process.files.make_link(&target, base, &path, &mut turn.means)
        })
    })?;
    linker.func_wrap(
        MODULE,
        "path_link",
        |guest: Guest<'_>, fd, flags, path, len, new_fd, new_path, new_len| {
            turn(guest, |turn| link(turn, (fd, flags), (path, len), new_fd, (new_path, new_len)))
        },
    )?;
    linker.func_wrap(MODULE, "path_readlink", |guest: Guest<'_>, fd, path, len, at, room: i32, used| {
        turn(guest, |turn| read_link(turn, fd, (path, len), (at, room as u32 as usize), used))
    })?;
    define_states(linker)
}

fn define_states(linker: &mut Linker<CallState>) -> Defined {
    linker.func_wrap(MODULE, "path_filestat_get", |guest: Guest<'_>, fd, flags: i32, path, len, at| {
        turn(guest, |turn| {
            let (base, path) = from(turn, fd, (path, len), rights::PATH_FILESTAT_GET)?;
            let node = turn.process.files.existing(base, &path, flags & FOLLOW != 0, &mut turn.means)?;
            let bytes = encoded(&turn.process.files.status(node));
            Ok(turn.memory.put(at, &bytes)?)
        })
    })?;
    linker.func_wrap(
        MODULE,
        "path_filestat_set_times",
        |guest: Guest<'_>, fd, flags: i32, path, len, accessed: i64, modified: i64, which| {
            turn(guest, |turn| {
                let (base, path) = from(turn, fd, (path, len), rights::PATH_FILESTAT_SET_TIMES)?;
                let now = turn.means.now;
                let (accessed, modified) = times(accessed as u64, modified as u64, which, now)?;
                let node = turn.process.files.existing(base, &path, flags & FOLLOW != 0, &mut turn.means)?;
                turn.process.files.set_times(node, accessed, modified, now)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_open",
        |guest: Guest<'_>, fd, lookup: i32, path, len, how, rights: i64, inheriting: i64, flags, at| {
            turn(guest, |turn| {
                let wish = Wish {
                    follow: lookup & FOLLOW != 0,
                    how,
                    rights: rights as u64,
                    inheriting: inheriting as u64,
                    flags,
                };
                open(turn, fd, (path, len), &wish, at)
            })
        },
    )?;
    Ok(())
}

/// The directory that a path begins in, and the path.
fn from(turn: &Turn<'_>, fd: i32, path: Text, rights: u64) -> Result<(NodeId, Vec<u8>)> {
    let base = turn.process.descriptors.directory(fd, rights)?;
    Ok((base, turn.memory.path(path.0, path.1)?))
}

fn link(turn: &mut Turn<'_>, (fd, flags): (i32, i32), path: Text, new_fd: i32, new_path: Text) -> Result<()> {
    let (base, path) = from(turn, fd, path, rights::PATH_LINK_SOURCE)?;
    let (to, new_path) = from(turn, new_fd, new_path, rights::PATH_LINK_TARGET)?;
    if flags & FOLLOW != 0 {
        // As other hosts have it: where the link leads may be anywhere.
        return Err(Errno::Invalid.into());
    }
    let file = turn.process.files.existing(base, &path, false, &mut turn.means)?;
    turn.process.files.add_name(file, to, &new_path, &mut turn.means)
}

fn read_link(turn: &mut Turn<'_>, fd: i32, path: Text, (at, room): (i32, usize), used: i32) -> Result<()> {
    let (base, path) = from(turn, fd, path, rights::PATH_READLINK)?;
    turn.memory.check(at, room)?;
    turn.memory.check(used, size_of::<u32>())?;
    let node = turn.process.files.existing(base, &path, false, &mut turn.means)?;
    let target = turn.process.files.target(node, &turn.means)?;
    let count = target.len().min(room);
    turn.memory.put(at, &target[..count])?;
    Ok(turn.memory.put_u32(used, count as u32)?)
}

/// How a program wants a file to be opened.
struct Wish {
    follow: bool,
    how: i32,
    rights: u64,
    inheriting: u64,
    flags: i32,
}

impl Wish {
    fn is(&self, flag: i32) -> bool {
        self.how & flag != 0
    }
}

fn open(turn: &mut Turn<'_>, fd: i32, path: Text, wish: &Wish, at: i32) -> Result<()> {
    let mut needed = rights::PATH_OPEN;
    needed |= if wish.is(CREATE) { rights::PATH_CREATE_FILE } else { 0 };
    needed |= if wish.is(TRUNCATE) { rights::PATH_FILESTAT_SET_SIZE } else { 0 };
    let (base, path) = from(turn, fd, path, needed)?;
    turn.memory.check(at, size_of::<u32>())?;
    let known = CREATE | DIRECTORY | EXCLUSIVE | TRUNCATE;
    if wish.how & !known != 0 || wish.flags & !FLAGS != 0 || wish.is(DIRECTORY) && wish.is(CREATE | TRUNCATE)
    {
        return Err(Errno::Invalid.into());
    }
    let all = rights::FILE | rights::DIRECTORY;
    let granted = turn.process.descriptors.get(fd)?.inheriting;
    let (rights, inheriting) = (wish.rights & all, wish.inheriting & all);
    if (rights | inheriting) & !granted != 0 {
        return Err(Errno::NotCapable.into());
    }
    turn.process.descriptors.have_room()?;
    let node = opened(turn, base, &path, wish)?;
    // Checked above: the two lengths of flags agree.
    let number = turn.process.open(node, rights, inheriting, wish.flags as u16)?;
    Ok(turn.memory.put_u32(at, number)?)
}

/// The file that is opened; made, or emptied, if that is wished for.
fn opened(turn: &mut Turn<'_>, base: NodeId, path: &[u8], wish: &Wish) -> Result<NodeId> {
    let files = &mut turn.process.files;
    // Who wants a new file does not follow a link to where it would be.
    let follow = wish.follow && !(wish.is(CREATE) && wish.is(EXCLUSIVE));
    let (node, has_slash) = match files.find(base, path, follow, &mut turn.means)? {
        Place::Entry { parent, name, node: None, has_slash } => {
            if !wish.is(CREATE) {
                return Err(Errno::NoEntry.into());
            }
            if has_slash {
                return Err(Errno::IsDirectory.into());
            }
            return files.create(parent, &name, &mut turn.means);
        }
        Place::Entry { node: Some(node), has_slash, .. } => (node, has_slash),
        Place::Here(node) => (node, true),
    };
    if wish.is(CREATE) && wish.is(EXCLUSIVE) {
        return Err(Errno::Exists.into());
    }
    match files.kind(node) {
        Kind::Link => Err(Errno::Loop.into()),
        Kind::Directory if wish.is(CREATE | TRUNCATE) => Err(Errno::IsDirectory.into()),
        Kind::Directory if wish.rights & rights::FD_WRITE != 0 => Err(Errno::IsDirectory.into()),
        Kind::Directory => Ok(node),
        Kind::File if wish.is(DIRECTORY) || has_slash => Err(Errno::NotDirectory.into()),
        Kind::File => {
            if files.is_read_only(node) && (wish.rights & rights::FD_WRITE != 0 || wish.is(TRUNCATE)) {
                return Err(Errno::ReadOnly.into());
            }
            if wish.is(TRUNCATE) {
                files.resize(node, 0, &mut turn.means)?;
            }
            Ok(node)
        }
    }
}
