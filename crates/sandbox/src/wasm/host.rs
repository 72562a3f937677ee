// SPDX-License-Identifier: Apache-2.0
//! The functions that a codelet may import: `docs/spec/abi.md` in code.
//!
//! Every number that arrives here comes from an untrusted guest: indices go
//! through the handle table, pointers and lengths through [`span`], and
//! everything that a guest makes is charged before it is made.

use objects::{FailureCode, Handle, Kind, Selection, TREE_ENTRIES_MAX, TreeView};
use objects::{LITERAL_LEN_MAX, Part};
use wasmparser::ValType;
use wasmtime::{Caller, Engine, Extern, Linker, Memory, Result};

use super::call::CallState;
use super::table::HANDLE_BYTES;
use super::wasi;
use crate::{DETAIL_LEN_MAX, Error, Fault};

/// The only module that a codelet may import from.
pub(crate) const MODULE: &str = "sinew_v1";
/// The name under which a codelet exports its memory.
pub(crate) const MEMORY: &str = "memory";

/// An importable function: name, parameters, results, uses the guest's memory.
pub(crate) struct Import {
    pub(crate) name: &'static str,
    pub(crate) params: &'static [ValType],
    pub(crate) results: &'static [ValType],
    pub(crate) needs_memory: bool,
}

const fn import(name: &'static str, params: &'static [ValType], results: &'static [ValType]) -> Import {
    Import { name, params, results, needs_memory: false }
}

const fn memory_import(name: &'static str, params: &'static [ValType]) -> Import {
    Import { name, params, results: &[I32], needs_memory: true }
}

const I32: ValType = ValType::I32;
const I64: ValType = ValType::I64;

/// All functions of version 1.
pub(crate) const IMPORTS: [Import; 17] = [
    import("kind", &[I32], &[I32]),
    import("size", &[I32], &[I64]),
    import("equal", &[I32, I32], &[I32]),
    memory_import("read", &[I32, I64, I32, I32]),
    import("read_u64", &[I32, I64], &[I64]),
    import("entry", &[I32, I64], &[I32]),
    memory_import("blob", &[I32, I32]),
    import("blob_u64", &[I64, I32], &[I32]),
    memory_import("tree", &[I32, I32]),
    import("application", &[I32], &[I32]),
    import("identification", &[I32], &[I32]),
    import("selection", &[I32, I64], &[I32]),
    import("selection_range", &[I32, I64, I64], &[I32]),
    import("strict", &[I32], &[I32]),
    import("shallow", &[I32], &[I32]),
    import("lower", &[I32], &[I32]),
    import("fail", &[I32], &[]),
];

type Guest<'a> = Caller<'a, CallState>;

/// The linker that offers [`IMPORTS`], and to programs theirs.
pub(crate) fn linker(engine: &Engine) -> std::result::Result<Linker<CallState>, Error> {
    let mut linker = Linker::new(engine);
    let defined = define(&mut linker).and_then(|()| wasi::calls::define(&mut linker));
    defined.map_err(|error| Error::Engine(format!("{error:#}")))?;
    Ok(linker)
}

fn define(linker: &mut Linker<CallState>) -> Result<()> {
    linker.func_wrap(MODULE, "kind", kind)?;
    linker.func_wrap(MODULE, "size", size)?;
    linker.func_wrap(MODULE, "equal", equal)?;
    linker.func_wrap(MODULE, "read", read)?;
    linker.func_wrap(MODULE, "read_u64", read_u64)?;
    linker.func_wrap(MODULE, "entry", entry)?;
    linker.func_wrap(MODULE, "blob", blob)?;
    linker.func_wrap(MODULE, "blob_u64", blob_u64)?;
    linker.func_wrap(MODULE, "tree", tree)?;
    linker.func_wrap(MODULE, "application", application)?;
    linker.func_wrap(MODULE, "identification", identification)?;
    linker.func_wrap(MODULE, "selection", selection)?;
    linker.func_wrap(MODULE, "selection_range", selection_range)?;
    linker.func_wrap(MODULE, "strict", strict)?;
    linker.func_wrap(MODULE, "shallow", shallow)?;
    linker.func_wrap(MODULE, "lower", lower)?;
    linker.func_wrap(MODULE, "fail", fail)?;
    Ok(())
}

// ---- looking ----

fn kind(mut guest: Guest<'_>, index: i32) -> Result<i32> {
    Ok(match guest.data_mut().handle("kind", index)?.kind() {
        Kind::Blob => 0,
        Kind::Tree => 1,
        Kind::BlobRef => 2,
        Kind::TreeRef => 3,
        Kind::Application | Kind::Identification | Kind::Selection => 4,
        Kind::Strict | Kind::Shallow => 5,
        Kind::Failure => 6,
    })
}

fn size(mut guest: Guest<'_>, index: i32) -> Result<i64> {
    let state = guest.data_mut();
    let handle = state.handle("size", index)?;
    if !handle.is_value() {
        return Err(state.wrong_kind("size", index, handle, "an object or a ref"));
    }
    Ok(handle.size() as i64)
}

fn equal(mut guest: Guest<'_>, left: i32, right: i32) -> Result<i32> {
    let state = guest.data_mut();
    Ok(i32::from(state.handle("equal", left)? == state.handle("equal", right)?))
}

fn read(mut guest: Guest<'_>, index: i32, offset: i64, ptr: i32, len: i32) -> Result<i32> {
    let memory = memory(&mut guest, "read")?;
    let (memory, state) = memory.data_and_store_mut(&mut guest);
    let target = span(state, "read", memory.len(), ptr, u64::from(len as u32))?;
    let bytes = state.blob("read", index)?;
    let bytes = bytes.as_slice();
    let Some(bytes) = from(bytes, offset) else {
        let len = bytes.len();
        return Err(past_the_end(state, "read", offset, len));
    };
    let count = bytes.len().min(target.len());
    memory[target][..count].copy_from_slice(&bytes[..count]);
    Ok(count as i32)
}

fn read_u64(mut guest: Guest<'_>, index: i32, offset: i64) -> Result<i64> {
    let state = guest.data_mut();
    // Most numbers are literals: the handle's own first word.
    if offset == 0
        && let Some(word) = state.handle("read_u64", index)?.literal_word()
    {
        return Ok(word as i64);
    }
    let bytes = state.blob("read_u64", index)?;
    let bytes = bytes.as_slice();
    let Some(rest) = from(bytes, offset) else {
        let len = bytes.len();
        return Err(past_the_end(state, "read_u64", offset, len));
    };
    if let Some(word) = rest.first_chunk() {
        return Ok(i64::from_le_bytes(*word));
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    Ok(i64::from_le_bytes(word))
}

fn entry(mut guest: Guest<'_>, index: i32, position: i64) -> Result<i32> {
    let state = guest.data_mut();
    let handle = state.handle("entry", index)?;
    if !matches!(handle.kind(), Kind::Tree | Kind::Failure) {
        return Err(state.wrong_kind("entry", index, handle, "a tree"));
    }
    let entries = if index == 0 { state.table.entries() as u64 } else { handle.size() };
    if position as u64 >= entries {
        let why = format!("there is no entry {} in a tree of {entries}", position as u64);
        return Err(state.misuse(FailureCode::BadHandle, "entry", why));
    }
    if index == 0 {
        // It is in the table already; the index fits, for the tree has at most 2^26 entries.
        return Ok(position as i32 + 1);
    }
    let start = position as usize * Handle::LEN;
    let bytes = state.tree(handle)?.get(start..start + Handle::LEN);
    let Some(entry) = bytes.and_then(|bytes| TreeView::from_checked(bytes).get(0)) else {
        return Err(state.misuse(FailureCode::MissingData, "entry", handle));
    };
    state.give("entry", entry)
}

// ---- making data ----

fn blob(mut guest: Guest<'_>, ptr: i32, len: i32) -> Result<i32> {
    let memory = memory(&mut guest, "blob")?;
    let (memory, state) = memory.data_and_store_mut(&mut guest);
    let source = span(state, "blob", memory.len(), ptr, u64::from(len as u32))?;
    let stored = if source.len() > LITERAL_LEN_MAX { source.len() as u64 } else { 0 };
    state.charge("blob", HANDLE_BYTES + stored)?;
    let handle = state.store.keep_blob(&memory[source]);
    state.push("blob", handle)
}

fn blob_u64(mut guest: Guest<'_>, value: i64, len: i32) -> Result<i32> {
    let state = guest.data_mut();
    let Some(literal) = Handle::low_bytes(value as u64, len as u32 as usize) else {
        let why = format!("a length of {}, over 8", len as u32);
        return Err(state.misuse(FailureCode::Trap, "blob_u64", why));
    };
    state.give("blob_u64", literal)
}

fn tree(mut guest: Guest<'_>, ptr: i32, count: i32) -> Result<i32> {
    let memory = memory(&mut guest, "tree")?;
    let (memory, state) = memory.data_and_store_mut(&mut guest);
    let count = u64::from(count as u32);
    let source = span(state, "tree", memory.len(), ptr, count * size_of::<i32>() as u64)?;
    if count > TREE_ENTRIES_MAX {
        return Err(state.misuse(FailureCode::Trap, "tree", "more than 2^26 entries"));
    }
    state.charge("tree", HANDLE_BYTES + count * Handle::LEN as u64)?;
    let mut entries = std::mem::take(&mut state.entries);
    entries.clear();
    for index in memory[source].as_chunks().0 {
        entries.push(state.handle("tree", i32::from_le_bytes(*index))?);
    }
    let handle = state.store.keep_tree(entries.view());
    if entries.len() <= KEPT_ENTRIES {
        state.entries = entries;
    }
    state.push("tree", handle)
}

/// Entries for which the allocation is kept for the next tree.
const KEPT_ENTRIES: usize = 1024;

// ---- making computations ----

fn application(guest: Guest<'_>, index: i32) -> Result<i32> {
    tag(guest, "application", index, "a tree", Handle::application)
}

fn identification(guest: Guest<'_>, index: i32) -> Result<i32> {
    tag(guest, "identification", index, "an object or a ref", Handle::identification)
}

fn selection(guest: Guest<'_>, target: i32, index: i64) -> Result<i32> {
    select(guest, "selection", target, Part::Element(index as u64))
}

fn selection_range(guest: Guest<'_>, target: i32, begin: i64, end: i64) -> Result<i32> {
    select(guest, "selection_range", target, Part::Range { begin: begin as u64, end: end as u64 })
}

fn strict(guest: Guest<'_>, index: i32) -> Result<i32> {
    tag(guest, "strict", index, "a thunk", Handle::strict)
}

fn shallow(guest: Guest<'_>, index: i32) -> Result<i32> {
    tag(guest, "shallow", index, "a thunk", Handle::shallow)
}

fn lower(guest: Guest<'_>, index: i32) -> Result<i32> {
    tag(guest, "lower", index, "an object or a ref", Handle::lowered)
}

/// A handle that is another one under a different tag.
fn tag(
    mut guest: Guest<'_>,
    function: &str,
    index: i32,
    wanted: &str,
    make: fn(Handle) -> Option<Handle>,
) -> Result<i32> {
    let state = guest.data_mut();
    let handle = state.handle(function, index)?;
    match make(handle) {
        Some(made) => state.give(function, made),
        None => Err(state.wrong_kind(function, index, handle, wanted)),
    }
}

fn select(mut guest: Guest<'_>, function: &str, target: i32, part: Part) -> Result<i32> {
    let state = guest.data_mut();
    let target = state.handle(function, target)?;
    let tree = Selection { target, part }.to_tree();
    state.charge(function, HANDLE_BYTES + (tree.len() * Handle::LEN) as u64)?;
    let handle = state.store.keep_tree(tree.view());
    match handle.selection() {
        Some(thunk) => state.push(function, thunk),
        None => unreachable!("a stored tree can define a selection"),
    }
}

// ---- ending ----

fn fail(mut guest: Guest<'_>, index: i32) -> Result<()> {
    let state = guest.data_mut();
    let bytes = state.blob("fail", index)?;
    let bytes = bytes.as_slice();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(DETAIL_LEN_MAX)]).into_owned();
    Err(state.stop(Fault::new(FailureCode::Guest, text)))
}

// ---- checks ----

/// The guest's memory. While a start function runs it is not known yet.
#[inline]
fn memory(guest: &mut Guest<'_>, function: &str) -> Result<Memory> {
    match exported_memory(guest) {
        Some(memory) => Ok(memory),
        None => Err(guest.data_mut().misuse(FailureCode::Trap, function, "the module exports no memory")),
    }
}

/// The memory that a guest exports.
#[inline]
pub(crate) fn exported_memory(guest: &mut Guest<'_>) -> Option<Memory> {
    if let Some(memory) = guest.data().memory {
        return Some(memory);
    }
    let memory = guest.get_export(MEMORY).and_then(Extern::into_memory)?;
    guest.data_mut().memory = Some(memory);
    Some(memory)
}

/// The range of a guest's memory that a pointer and a length name.
#[inline]
fn span(
    state: &mut CallState,
    function: &str,
    memory_len: usize,
    ptr: i32,
    len: u64,
) -> Result<std::ops::Range<usize>> {
    let start = u64::from(ptr as u32);
    // No overflow: a 32-bit pointer and at most 2^34 bytes.
    let end = start + len;
    if end > memory_len as u64 {
        let why = format!("bytes {start}..{end} of a memory of {memory_len}");
        return Err(state.misuse(FailureCode::Trap, function, why));
    }
    Ok(start as usize..end as usize)
}

/// What follows `offset`; `None` past the end.
#[inline]
fn from(bytes: &[u8], offset: i64) -> Option<&[u8]> {
    bytes.get(usize::try_from(offset as u64).ok()?..)
}

#[cold]
fn past_the_end(state: &mut CallState, function: &str, offset: i64, len: usize) -> wasmtime::Error {
    let why = format!("offset {} is past the end of {len} bytes", offset as u64);
    state.misuse(FailureCode::BadHandle, function, why)
}
