// SPDX-License-Identifier: Apache-2.0
//! The functions of `wasi_snapshot_preview1` that a program may import.
//!
//! Each returns an error number. Where an address is not in the program's memory that is
//! [`Errno::Fault`], and nothing has been done; only a limit, or data that is not
//! here, ends the program.

mod descriptors;
mod directories;
mod paths;
mod poll;
mod surroundings;

use wasmparser::ValType;
use wasmtime::{Caller, Linker};

use super::MODULE;
use super::errno::{Errno, Result, Stop};
use super::guest::Memory;
use super::means::Means;
use super::process::Process;
use crate::Fault;
use crate::wasm::call::CallState;
use crate::wasm::host::exported_memory;
use crate::wasm::interrupt::{Flags, Ticket};

const I32: ValType = ValType::I32;
const I64: ValType = ValType::I64;

/// An importable function: name, parameters, results.
pub(crate) struct Import {
    pub(crate) name: &'static str,
    pub(crate) params: &'static [ValType],
    pub(crate) results: &'static [ValType],
}

const fn import(name: &'static str, params: &'static [ValType]) -> Import {
    Import { name, params, results: &[I32] }
}

/// All functions of preview 1.
pub(crate) const IMPORTS: [Import; 46] = [
    import("args_get", &[I32, I32]),
    import("args_sizes_get", &[I32, I32]),
    import("clock_res_get", &[I32, I32]),
    import("clock_time_get", &[I32, I64, I32]),
    import("environ_get", &[I32, I32]),
    import("environ_sizes_get", &[I32, I32]),
    import("fd_advise", &[I32, I64, I64, I32]),
    import("fd_allocate", &[I32, I64, I64]),
    import("fd_close", &[I32]),
    import("fd_datasync", &[I32]),
    import("fd_fdstat_get", &[I32, I32]),
    import("fd_fdstat_set_flags", &[I32, I32]),
    import("fd_fdstat_set_rights", &[I32, I64, I64]),
    import("fd_filestat_get", &[I32, I32]),
    import("fd_filestat_set_size", &[I32, I64]),
    import("fd_filestat_set_times", &[I32, I64, I64, I32]),
    import("fd_pread", &[I32, I32, I32, I64, I32]),
    import("fd_prestat_dir_name", &[I32, I32, I32]),
    import("fd_prestat_get", &[I32, I32]),
    import("fd_pwrite", &[I32, I32, I32, I64, I32]),
    import("fd_read", &[I32, I32, I32, I32]),
    import("fd_readdir", &[I32, I32, I32, I64, I32]),
    import("fd_renumber", &[I32, I32]),
    import("fd_seek", &[I32, I64, I32, I32]),
    import("fd_sync", &[I32]),
    import("fd_tell", &[I32, I32]),
    import("fd_write", &[I32, I32, I32, I32]),
    import("path_create_directory", &[I32, I32, I32]),
    import("path_filestat_get", &[I32, I32, I32, I32, I32]),
    import("path_filestat_set_times", &[I32, I32, I32, I32, I64, I64, I32]),
    import("path_link", &[I32, I32, I32, I32, I32, I32, I32]),
    import("path_open", &[I32, I32, I32, I32, I32, I64, I64, I32, I32]),
    import("path_readlink", &[I32, I32, I32, I32, I32, I32]),
    import("path_remove_directory", &[I32, I32, I32]),
    import("path_rename", &[I32, I32, I32, I32, I32, I32]),
    import("path_symlink", &[I32, I32, I32, I32, I32]),
    import("path_unlink_file", &[I32, I32, I32]),
    import("poll_oneoff", &[I32, I32, I32, I32]),
    Import { name: "proc_exit", params: &[I32], results: &[] },
    import("proc_raise", &[I32]),
    import("random_get", &[I32, I32]),
    import("sched_yield", &[]),
    import("sock_accept", &[I32, I32, I32]),
    import("sock_recv", &[I32, I32, I32, I32, I32, I32]),
    import("sock_send", &[I32, I32, I32, I32, I32]),
    import("sock_shutdown", &[I32, I32]),
];

type Guest<'a> = Caller<'a, CallState>;
type Defined = wasmtime::Result<()>;

/// What a call of a program works on.
struct Turn<'a> {
    memory: Memory<'a>,
    process: &'a mut Process,
    means: Means<'a>,
    flags: &'a Flags,
    ticket: Ticket,
}

impl Turn<'_> {
    /// # Errors
    /// If the program is to stop: asked by calls that take long.
    fn go_on(&self) -> Result<()> {
        match self.flags.demand(self.ticket) {
            Some(fault) => Err(Stop::Ended(fault)),
            None => Ok(()),
        }
    }
}

/// Makes a call, and an error number of its end.
fn turn(mut guest: Guest<'_>, act: impl FnOnce(&mut Turn<'_>) -> Result<()>) -> wasmtime::Result<i32> {
    let memory = exported_memory(&mut guest);
    let (bytes, state) = match memory {
        Some(memory) => memory.data_and_store_mut(&mut guest),
        None => (&mut [][..], guest.data_mut()),
    };
    let CallState { program, store, budget, flags, ticket, fault, .. } = state;
    let Some(process) = program else {
        unreachable!("only programs can import these, and they have a process while they run")
    };
    let now = process.clock.time_of_day();
    let means = Means { store, budget, now };
    let mut turn = Turn { memory: Memory(bytes), process, means, flags, ticket: *ticket };
    match act(&mut turn) {
        Ok(()) => Ok(0),
        Err(Stop::Refused(errno)) => Ok(errno as i32),
        Err(Stop::Ended(reason)) => {
            *fault = Some(reason);
            Err(crate::wasm::call::stopped())
        }
    }
}

/// Offers [`IMPORTS`].
pub(crate) fn define(linker: &mut Linker<CallState>) -> Defined {
    surroundings::define(linker)?;
    descriptors::define(linker)?;
    directories::define(linker)?;
    paths::define(linker)?;
    linker.func_wrap(MODULE, "poll_oneoff", |guest: Guest<'_>, subscriptions, events, count, done| {
        turn(guest, |turn| poll::poll(turn, subscriptions, events, count, done))
    })?;
    linker.func_wrap(MODULE, "sock_accept", |guest: Guest<'_>, fd: i32, _: i32, _: i32| {
        turn(guest, |turn| no_socket(turn, fd))
    })?;
    linker.func_wrap(
        MODULE,
        "sock_recv",
        |guest: Guest<'_>, fd: i32, _: i32, _: i32, _: i32, _: i32, _: i32| {
            turn(guest, |turn| no_socket(turn, fd))
        },
    )?;
    linker.func_wrap(MODULE, "sock_send", |guest: Guest<'_>, fd: i32, _: i32, _: i32, _: i32, _: i32| {
        turn(guest, |turn| no_socket(turn, fd))
    })?;
    linker.func_wrap(MODULE, "sock_shutdown", |guest: Guest<'_>, fd: i32, _: i32| {
        turn(guest, |turn| no_socket(turn, fd))
    })?;
    Ok(())
}

/// There are no sockets.
fn no_socket(turn: &mut Turn<'_>, fd: i32) -> Result<()> {
    turn.process.descriptors.get(fd)?;
    Err(Errno::NotSocket.into())
}

/// What a program gets that calls what it imports from elsewhere: it ends there.
pub(crate) fn foreign(module: &str, name: &str) -> Fault {
    let why = format!("it called {name:?} of {module:?}, which it imports, but which nothing here provides");
    Fault::new(objects::FailureCode::Trap, why)
}
