// SPDX-License-Identifier: Apache-2.0
//! Calls that read directories, and say which ones the application gives.

use wasmtime::Linker;

use super::descriptors::type_of;
use super::{Defined, Guest, Turn, turn};
use crate::wasm::call::CallState;
use crate::wasm::wasi::MODULE;
use crate::wasm::wasi::descriptors::{Listing, Target};
use crate::wasm::wasi::errno::{Errno, Result};
use crate::wasm::wasi::files::{Kind, Listed};
use crate::wasm::wasi::rights;

const DIRENT_BYTES: usize = 24;
const PRESTAT_BYTES: usize = 8;
/// What a line of a listing costs beside its name.
const LINE_COST: u64 = 64;

pub(super) fn define(linker: &mut Linker<CallState>) -> Defined {
    linker.func_wrap(MODULE, "fd_prestat_get", |guest: Guest<'_>, fd, at| {
        turn(guest, |turn| {
            let len = preopened(turn, fd)?.len() as u32;
            let mut bytes = [0; PRESTAT_BYTES];
            // The tag before it is 0: a directory.
            bytes[4..].copy_from_slice(&len.to_le_bytes());
            Ok(turn.memory.put(at, &bytes)?)
        })
    })?;
    linker.func_wrap(MODULE, "fd_prestat_dir_name", |guest: Guest<'_>, fd, at, len: i32| {
        turn(guest, |turn| {
            let path = preopened(turn, fd)?.to_vec();
            if path.len() > len as u32 as usize {
                return Err(Errno::NameTooLong.into());
            }
            Ok(turn.memory.put(at, &path)?)
        })
    })?;
    linker.func_wrap(MODULE, "fd_readdir", |guest: Guest<'_>, fd, at, len: i32, cookie: i64, used| {
        turn(guest, |turn| list(turn, fd, (at, len as u32 as usize), cookie as u64, used))
    })?;
    Ok(())
}

/// The path that the application gives a directory.
fn preopened<'a>(turn: &'a Turn<'_>, fd: i32) -> Result<&'a [u8]> {
    match &turn.process.descriptors.get(fd)?.target {
        Target::Directory { preopened: Some(path), .. } => Ok(path),
        _ => Err(Errno::BadDescriptor.into()),
    }
}

/// Lines of a directory from a cookie on, as many as fit; the last one may be cut. Cookies
/// count the lines of the listing that was made at cookie 0, whatever changes meanwhile.
fn list(turn: &mut Turn<'_>, fd: i32, buffer: (i32, usize), cookie: u64, used: i32) -> Result<()> {
    let node = turn.process.descriptors.directory(fd, rights::FD_READDIR)?;
    turn.memory.check(buffer.0, buffer.1)?;
    turn.memory.check(used, size_of::<u32>())?;
    let is_empty = matches!(&turn.process.descriptors.get(fd)?.target,
        Target::Directory { listing, .. } if listing.lines.is_empty());
    if cookie == 0 || is_empty {
        let listing = listing(turn, node)?;
        if let Target::Directory { listing: old, .. } = &mut turn.process.descriptors.get_mut(fd)?.target {
            let old = std::mem::replace(old, listing);
            turn.means.refund(old.paid);
        }
    }
    let Target::Directory { listing, .. } = &turn.process.descriptors.get(fd)?.target else {
        return Err(Errno::NotDirectory.into());
    };
    let into = turn.memory.bytes_mut(buffer.0, buffer.1)?;
    let mut filled = 0;
    let skipped = usize::try_from(cookie).unwrap_or(usize::MAX);
    for (next, line) in (1u64..).zip(&listing.lines).skip(skipped) {
        let header = header(next, line);
        for part in [&header[..], &line.name] {
            let count = part.len().min(into.len() - filled);
            into[filled..filled + count].copy_from_slice(&part[..count]);
            filled += count;
        }
        if filled == into.len() {
            break;
        }
    }
    Ok(turn.memory.put_u32(used, filled as u32)?)
}

/// What is in a directory now.
fn listing(turn: &mut Turn<'_>, node: crate::wasm::wasi::files::NodeId) -> Result<Listing> {
    let files = &mut turn.process.files;
    let number = files.status(node).number;
    let above = files.status(files.parent(node)).number;
    let dots = [(&b"."[..], number), (b"..", above)];
    let dots = dots.map(|(name, number)| Listed { name: name.into(), number, kind: Kind::Directory });
    let inner = files.list(node, &mut turn.means)?;
    let lines: Vec<Listed> = dots.into_iter().chain(inner).collect();
    let paid = lines.iter().map(|line| LINE_COST + line.name.len() as u64).sum();
    turn.means.charge("a directory that it reads", paid)?;
    Ok(Listing { lines, paid })
}

fn header(next: u64, line: &Listed) -> [u8; DIRENT_BYTES] {
    let mut bytes = [0; DIRENT_BYTES];
    bytes[..8].copy_from_slice(&next.to_le_bytes());
    bytes[8..16].copy_from_slice(&line.number.to_le_bytes());
    bytes[16..20].copy_from_slice(&(line.name.len() as u32).to_le_bytes());
    bytes[20] = type_of(line.kind);
    bytes
}
