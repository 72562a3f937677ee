// SPDX-License-Identifier: Apache-2.0
//! Calls on what is open: reading, writing, positions, states.

use wasmtime::Linker;

use super::{Defined, Guest, Turn, turn};
use crate::wasm::call::CallState;
use crate::wasm::wasi::MODULE;
use crate::wasm::wasi::descriptors::{APPEND, NONBLOCK, Target};
use crate::wasm::wasi::errno::{Errno, Result};
use crate::wasm::wasi::files::{Kind, Status};
use crate::wasm::wasi::rights;

const FILESTAT_BYTES: usize = 64;
const FDSTAT_BYTES: usize = 24;
/// The last kind of advice about how a file will be read.
const ADVICE_LAST: i32 = 5;
/// Where a new position is counted from.
const FROM_START: i32 = 0;
const FROM_HERE: i32 = 1;
const FROM_END: i32 = 2;
/// Which times are set, and whether to now.
const ACCESSED: i32 = 1;
const ACCESSED_NOW: i32 = 2;
const MODIFIED: i32 = 4;
const MODIFIED_NOW: i32 = 8;

/// Kinds of files as programs know them.
const TYPE_UNKNOWN: u8 = 0;
const TYPE_DIRECTORY: u8 = 3;
const TYPE_FILE: u8 = 4;
const TYPE_LINK: u8 = 7;

pub(super) fn define(linker: &mut Linker<CallState>) -> Defined {
    linker.func_wrap(MODULE, "fd_advise", |guest: Guest<'_>, fd, _at: i64, _len: i64, advice| {
        turn(guest, |turn| advise(turn, fd, advice))
    })?;
    linker.func_wrap(MODULE, "fd_allocate", |guest: Guest<'_>, fd, at, len| {
        turn(guest, |turn| allocate(turn, fd, at, len))
    })?;
    linker.func_wrap(MODULE, "fd_close", |guest: Guest<'_>, fd| {
        turn(guest, |turn| {
            let closed = turn.process.descriptors.remove(fd)?;
            turn.process.close(closed, &mut turn.means);
            Ok(())
        })
    })?;
    linker.func_wrap(MODULE, "fd_renumber", |guest: Guest<'_>, from, to| {
        turn(guest, |turn| {
            if let Some(closed) = turn.process.descriptors.renumber(from, to)? {
                turn.process.close(closed, &mut turn.means);
            }
            Ok(())
        })
    })?;
    linker.func_wrap(MODULE, "fd_datasync", |guest: Guest<'_>, fd| {
        turn(guest, |turn| turn.process.descriptors.get(fd)?.allow(rights::FD_DATASYNC))
    })?;
    linker.func_wrap(MODULE, "fd_sync", |guest: Guest<'_>, fd| {
        turn(guest, |turn| turn.process.descriptors.get(fd)?.allow(rights::FD_SYNC))
    })?;
    define_states(linker)?;
    define_transfers(linker)
}

fn define_states(linker: &mut Linker<CallState>) -> Defined {
    linker.func_wrap(MODULE, "fd_fdstat_get", |guest: Guest<'_>, fd, at| {
        turn(guest, |turn| state(turn, fd, at))
    })?;
    linker.func_wrap(MODULE, "fd_fdstat_set_flags", |guest: Guest<'_>, fd, flags| {
        turn(guest, |turn| set_flags(turn, fd, flags))
    })?;
    linker.func_wrap(
        MODULE,
        "fd_fdstat_set_rights",
        |guest: Guest<'_>, fd, rights: i64, inheriting: i64| {
            turn(guest, |turn| set_rights(turn, fd, rights as u64, inheriting as u64))
        },
    )?;
    linker.func_wrap(MODULE, "fd_filestat_get", |guest: Guest<'_>, fd, at| {
        turn(guest, |turn| file_state(turn, fd, at))
    })?;
    linker.func_wrap(MODULE, "fd_filestat_set_size", |guest: Guest<'_>, fd, len: i64| {
        turn(guest, |turn| {
            let node = turn.process.descriptors.file(fd, rights::FD_FILESTAT_SET_SIZE)?;
            turn.process.files.resize(node, len as u64, &mut turn.means)
        })
    })?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_set_times",
        |guest: Guest<'_>, fd, accessed: i64, modified: i64, which| {
            turn(guest, |turn| {
                let descriptor = turn.process.descriptors.get(fd)?;
                descriptor.allow(rights::FD_FILESTAT_SET_TIMES)?;
                let node = descriptor.node().ok_or(Errno::BadDescriptor)?;
                let now = turn.means.now;
                let (accessed, modified) = times(accessed as u64, modified as u64, which, now)?;
                turn.process.files.set_times(node, accessed, modified, now)
            })
        },
    )?;
    Ok(())
}

fn define_transfers(linker: &mut Linker<CallState>) -> Defined {
    linker.func_wrap(MODULE, "fd_read", |guest: Guest<'_>, fd, list, count, done| {
        turn(guest, |turn| read(turn, fd, (list, count), None, done))
    })?;
    linker.func_wrap(MODULE, "fd_pread", |guest: Guest<'_>, fd, list, count, at: i64, done| {
        turn(guest, |turn| read(turn, fd, (list, count), Some(at as u64), done))
    })?;
    linker.func_wrap(MODULE, "fd_write", |guest: Guest<'_>, fd, list, count, done| {
        turn(guest, |turn| write(turn, fd, (list, count), None, done))
    })?;
    linker.func_wrap(MODULE, "fd_pwrite", |guest: Guest<'_>, fd, list, count, at: i64, done| {
        turn(guest, |turn| write(turn, fd, (list, count), Some(at as u64), done))
    })?;
    linker.func_wrap(MODULE, "fd_seek", |guest: Guest<'_>, fd, by, from, at| {
        turn(guest, |turn| seek(turn, fd, by, from, at))
    })?;
    linker.func_wrap(MODULE, "fd_tell", |guest: Guest<'_>, fd, at| {
        turn(guest, |turn| {
            let descriptor = turn.process.descriptors.get(fd)?;
            let position = position(&descriptor.target)?;
            descriptor.allow(rights::FD_TELL)?;
            Ok(turn.memory.put_u64(at, position)?)
        })
    })?;
    Ok(())
}

/// The position of a file; streams and directories have none.
fn position(target: &Target) -> Result<u64> {
    match target {
        Target::File { at, .. } => Ok(*at),
        Target::Directory { .. } => Err(Errno::BadDescriptor.into()),
        Target::Input { .. } | Target::Output | Target::Errors => Err(Errno::NoSeek.into()),
    }
}

fn advise(turn: &mut Turn<'_>, fd: i32, advice: i32) -> Result<()> {
    turn.process.descriptors.file(fd, rights::FD_ADVISE)?;
    match advice {
        0..=ADVICE_LAST => Ok(()),
        _ => Err(Errno::Invalid.into()),
    }
}

fn allocate(turn: &mut Turn<'_>, fd: i32, at: i64, len: i64) -> Result<()> {
    let node = turn.process.descriptors.file(fd, rights::FD_ALLOCATE)?;
    let end = (at as u64).checked_add(len as u64).filter(|_| len != 0).ok_or(Errno::Invalid)?;
    if end > turn.process.files.status(node).size {
        turn.process.files.resize(node, end, &mut turn.means)?;
    }
    Ok(())
}

fn state(turn: &mut Turn<'_>, fd: i32, at: i32) -> Result<()> {
    let descriptor = turn.process.descriptors.get(fd)?;
    let mut bytes = [0; FDSTAT_BYTES];
    bytes[0] = match descriptor.target {
        Target::Directory { .. } => TYPE_DIRECTORY,
        Target::File { .. } => TYPE_FILE,
        // No terminal, so that programs behave as behind a pipe.
        Target::Input { .. } | Target::Output | Target::Errors => TYPE_UNKNOWN,
    };
    bytes[2..4].copy_from_slice(&descriptor.flags.to_le_bytes());
    bytes[8..16].copy_from_slice(&descriptor.rights.to_le_bytes());
    bytes[16..24].copy_from_slice(&descriptor.inheriting.to_le_bytes());
    Ok(turn.memory.put(at, &bytes)?)
}

fn set_flags(turn: &mut Turn<'_>, fd: i32, flags: i32) -> Result<()> {
    let descriptor = turn.process.descriptors.get_mut(fd)?;
    if let Target::File { .. } | Target::Directory { .. } = descriptor.target {
        descriptor.allow(rights::FD_FDSTAT_SET_FLAGS)?;
    }
    let flags = u16::try_from(flags).ok().filter(|flags| flags & !(APPEND | NONBLOCK) == 0);
    descriptor.flags = flags.ok_or(Errno::Invalid)?;
    Ok(())
}

fn set_rights(turn: &mut Turn<'_>, fd: i32, rights: u64, inheriting: u64) -> Result<()> {
    let descriptor = turn.process.descriptors.get_mut(fd)?;
    if rights & !descriptor.rights != 0 || inheriting & !descriptor.inheriting != 0 {
        return Err(Errno::NotCapable.into());
    }
    (descriptor.rights, descriptor.inheriting) = (rights, inheriting);
    Ok(())
}

fn file_state(turn: &mut Turn<'_>, fd: i32, at: i32) -> Result<()> {
    let descriptor = turn.process.descriptors.get(fd)?;
    descriptor.allow(rights::FD_FILESTAT_GET)?;
    let bytes = match descriptor.node() {
        Some(node) => encoded(&turn.process.files.status(node)),
        None => {
            let mut bytes = [0; FILESTAT_BYTES];
            bytes[16] = TYPE_UNKNOWN;
            bytes[24] = 1;
            bytes
        }
    };
    Ok(turn.memory.put(at, &bytes)?)
}

/// A kind of file as programs know it.
pub(super) fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::Directory => TYPE_DIRECTORY,
        Kind::File => TYPE_FILE,
        Kind::Link => TYPE_LINK,
    }
}

/// A `filestat`.
pub(super) fn encoded(status: &Status) -> [u8; FILESTAT_BYTES] {
    let mut bytes = [0; FILESTAT_BYTES];
    // All files are on one device.
    bytes[0] = 1;
    bytes[8..16].copy_from_slice(&status.number.to_le_bytes());
    bytes[16] = type_of(status.kind);
    let words =
        [status.links, status.size, status.times.accessed, status.times.modified, status.times.changed];
    for (target, word) in bytes[24..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *target = word.to_le_bytes();
    }
    bytes
}

/// The times that are to be set.
pub(super) fn times(
    accessed: u64,
    modified: u64,
    which: i32,
    now: u64,
) -> Result<(Option<u64>, Option<u64>)> {
    let is = |flag: i32| which & flag != 0;
    let is_twice = is(ACCESSED) && is(ACCESSED_NOW) || is(MODIFIED) && is(MODIFIED_NOW);
    if is_twice || which & !(ACCESSED | ACCESSED_NOW | MODIFIED | MODIFIED_NOW) != 0 {
        return Err(Errno::Invalid.into());
    }
    let chosen = |time, given, current| if is(given) { Some(time) } else { is(current).then_some(now) };
    Ok((chosen(accessed, ACCESSED, ACCESSED_NOW), chosen(modified, MODIFIED, MODIFIED_NOW)))
}

fn read(turn: &mut Turn<'_>, fd: i32, list: (i32, i32), at: Option<u64>, done: i32) -> Result<()> {
    let process = &mut *turn.process;
    let descriptor = process.descriptors.get(fd)?;
    if let Target::Directory { .. } = descriptor.target {
        return Err(Errno::BadDescriptor.into());
    }
    if at.is_some() {
        position(&descriptor.target)?;
    }
    descriptor.allow(if at.is_some() { rights::FD_READ | rights::FD_SEEK } else { rights::FD_READ })?;
    let spans = turn.memory.vectors(list.0, list.1)?;
    turn.memory.check(done, size_of::<u32>())?;
    let (file, start) = match descriptor.target {
        Target::File { node, at: here } => (Some(node), at.unwrap_or(here)),
        Target::Input { at } => (None, at),
        _ => return Err(Errno::BadDescriptor.into()),
    };
    let mut total = 0;
    for span in spans {
        let len = span.len();
        let into = &mut turn.memory.0[span];
        let from = start.saturating_add(total);
        let count = match file {
            Some(node) => process.files.read(node, from, into, &turn.means)?,
            None => process.read_stdin(from, into, &turn.means)?,
        };
        total += count as u64;
        if count < len {
            break;
        }
    }
    if let (None, Target::File { at, .. } | Target::Input { at }) =
        (at, &mut process.descriptors.get_mut(fd)?.target)
    {
        *at = start + total;
    }
    Ok(turn.memory.put_u32(done, total as u32)?)
}

fn write(turn: &mut Turn<'_>, fd: i32, list: (i32, i32), at: Option<u64>, done: i32) -> Result<()> {
    let process = &mut *turn.process;
    let descriptor = process.descriptors.get(fd)?;
    if let Target::Directory { .. } | Target::Input { .. } = descriptor.target {
        return Err(Errno::BadDescriptor.into());
    }
    if at.is_some() {
        position(&descriptor.target)?;
    }
    descriptor.allow(if at.is_some() { rights::FD_WRITE | rights::FD_SEEK } else { rights::FD_WRITE })?;
    let spans = turn.memory.vectors(list.0, list.1)?;
    turn.memory.check(done, size_of::<u32>())?;
    let file = match descriptor.target {
        Target::File { node, at: here } => {
            let appends = descriptor.flags & APPEND != 0 && at.is_none();
            Some((node, if appends { process.files.status(node).size } else { at.unwrap_or(here) }))
        }
        _ => None,
    };
    let is_errors = matches!(descriptor.target, Target::Errors);
    let mut total = 0;
    for span in spans {
        let bytes = &turn.memory.0[span];
        match file {
            Some((node, start)) => {
                let at = start.checked_add(total).ok_or(Errno::FileTooBig)?;
                process.files.write(node, at, bytes, &mut turn.means)?;
            }
            None => process.print(is_errors, bytes, &mut turn.means)?,
        }
        total += bytes.len() as u64;
    }
    if let (Some((_, start)), None) = (file, at)
        && let Target::File { at, .. } = &mut process.descriptors.get_mut(fd)?.target
    {
        *at = start + total;
    }
    Ok(turn.memory.put_u32(done, total as u32)?)
}

fn seek(turn: &mut Turn<'_>, fd: i32, by: i64, from: i32, at: i32) -> Result<()> {
    let process = &mut *turn.process;
    let descriptor = process.descriptors.get(fd)?;
    let here = position(&descriptor.target)?;
    // Who only asks where it is need not be allowed to go elsewhere.
    let is_tell = by == 0 && from == FROM_HERE;
    descriptor.allow(if is_tell { rights::FD_TELL } else { rights::FD_SEEK })?;
    turn.memory.check(at, size_of::<u64>())?;
    let base = match from {
        FROM_START => 0,
        FROM_HERE => here,
        FROM_END => descriptor.node().map_or(0, |node| process.files.status(node).size),
        _ => return Err(Errno::Invalid.into()),
    };
    let to = base.checked_add_signed(by).filter(|to| i64::try_from(*to).is_ok()).ok_or(Errno::Invalid)?;
    if let Target::File { at, .. } = &mut process.descriptors.get_mut(fd)?.target {
        *at = to;
    }
    Ok(turn.memory.put_u64(at, to)?)
}
