// SPDX-License-Identifier: Apache-2.0
//! Arguments, environment, clocks, random numbers, and the end.

use wasmtime::Linker;

use super::{Defined, Guest, Turn, turn};
use crate::wasm::call::{CallState, stopped};
use crate::wasm::wasi::MODULE;
use crate::wasm::wasi::clock::TICK;
use crate::wasm::wasi::errno::{Errno, Result};

/// Of clocks: the time of day, and three that count from the program's begin.
const REALTIME: i32 = 0;
const CLOCK_LAST: i32 = 3;
/// Random bytes between two looks at whether the program is to stop.
const RANDOM_CHUNK: usize = 1 << 20;
/// What is added to the number of a signal for the status of who died of it.
const SIGNALLED: u32 = 128;
const SIGNAL_LAST: i32 = 30;

pub(super) fn define(linker: &mut Linker<CallState>) -> Defined {
    linker.func_wrap(MODULE, "args_get", |guest: Guest<'_>, list, text| {
        turn(guest, |turn| strings(turn, false, list, text))
    })?;
    linker.func_wrap(MODULE, "args_sizes_get", |guest: Guest<'_>, count, bytes| {
        turn(guest, |turn| sizes(turn, false, count, bytes))
    })?;
    linker.func_wrap(MODULE, "environ_get", |guest: Guest<'_>, list, text| {
        turn(guest, |turn| strings(turn, true, list, text))
    })?;
    linker.func_wrap(MODULE, "environ_sizes_get", |guest: Guest<'_>, count, bytes| {
        turn(guest, |turn| sizes(turn, true, count, bytes))
    })?;
    linker.func_wrap(MODULE, "clock_res_get", |guest: Guest<'_>, clock, at| {
        turn(guest, |turn| {
            known(clock)?;
            Ok(turn.memory.put_u64(at, TICK)?)
        })
    })?;
    linker.func_wrap(MODULE, "clock_time_get", |guest: Guest<'_>, clock, _precision: i64, at| {
        turn(guest, |turn| time(turn, clock, at))
    })?;
    linker.func_wrap(MODULE, "random_get", |guest: Guest<'_>, at, len| {
        turn(guest, |turn| random(turn, at, len))
    })?;
    linker.func_wrap(MODULE, "sched_yield", |guest: Guest<'_>| turn(guest, |_| Ok(())))?;
    linker.func_wrap(MODULE, "proc_exit", |mut guest: Guest<'_>, status: i32| {
        exit(&mut guest, status as u32)
    })?;
    linker.func_wrap(MODULE, "proc_raise", |mut guest: Guest<'_>, signal: i32| -> wasmtime::Result<i32> {
        // Signal 0 asks whether one could be sent.
        match signal {
            0 => Ok(0),
            1..=SIGNAL_LAST => exit(&mut guest, SIGNALLED + signal as u32).map(|()| 0),
            _ => Ok(Errno::Invalid as i32),
        }
    })?;
    Ok(())
}

fn exit(guest: &mut Guest<'_>, status: u32) -> wasmtime::Result<()> {
    if let Some(process) = &mut guest.data_mut().program {
        process.exit = Some(status);
    }
    Err(stopped())
}

fn known(clock: i32) -> Result<()> {
    match clock {
        REALTIME..=CLOCK_LAST => Ok(()),
        _ => Err(Errno::Invalid.into()),
    }
}

fn time(turn: &mut Turn<'_>, clock: i32, at: i32) -> Result<()> {
    known(clock)?;
    turn.memory.check(at, size_of::<u64>())?;
    turn.process.clock.tick();
    let now = match clock {
        REALTIME => turn.process.clock.time_of_day(),
        _ => turn.process.clock.elapsed(),
    };
    Ok(turn.memory.put_u64(at, now)?)
}

fn random(turn: &mut Turn<'_>, at: i32, len: i32) -> Result<()> {
    let len = len as u32 as usize;
    turn.memory.check(at, len)?;
    let mut filled = 0;
    while filled < len {
        turn.go_on()?;
        let chunk = RANDOM_CHUNK.min(len - filled);
        let start = (at as u32).wrapping_add(filled as u32).cast_signed();
        turn.process.random.fill(turn.memory.bytes_mut(start, chunk)?);
        filled += chunk;
    }
    Ok(())
}

/// Number of strings, and bytes of all, each with a zero at its end.
fn sizes(turn: &mut Turn<'_>, is_environment: bool, count: i32, bytes: i32) -> Result<()> {
    let process = &turn.process;
    let strings = if is_environment { &process.environment } else { &process.arguments };
    let len: usize = strings.iter().map(|string| string.len() + 1).sum();
    // Both were charged, of a limit in memory: they fit.
    turn.memory.put_u32(count, strings.len() as u32)?;
    Ok(turn.memory.put_u32(bytes, len as u32)?)
}

fn strings(turn: &mut Turn<'_>, is_environment: bool, list: i32, text: i32) -> Result<()> {
    let process = &turn.process;
    let strings = if is_environment { &process.environment } else { &process.arguments };
    let (mut list, mut text) = (list as u32, text as u32);
    for string in strings {
        turn.memory.put_u32(list.cast_signed(), text)?;
        turn.memory.put(text.cast_signed(), string)?;
        let end = text.checked_add(string.len() as u32).ok_or(Errno::Fault)?;
        turn.memory.put(end.cast_signed(), &[0])?;
        list = list.checked_add(4).ok_or(Errno::Fault)?;
        text = end.checked_add(1).ok_or(Errno::Fault)?;
    }
    Ok(())
}
