// SPDX-License-Identifier: Apache-2.0
//! A program that has started, as data (`docs/spec/programs.md`, section 7).
//!
//! ```text
//!  [ "sinew:snapshot/1", module, state, [ piece… ], stdout, stderr, directory… ]
//!                                │        └ of its linear memory; an empty one is zeros
//!                                └ clock, random numbers, mutable globals, preopened paths
//! ```
//!
//! It is taken between two calls of the module: nothing is on its stack. So what there
//! is besides is the memory, globals, tables and segments, and what the program has
//! open. Of these the first two are kept, and the others found to be as in a new
//! instance: tables and segments by a scan of the code (`module`), descriptors when it
//! is taken. Exceptions and references then have no place left to be in.
//!
//! Whoever brings a snapshot may have made it up. Nothing in it is more than a
//! program could have done to itself.

use objects::{FailureCode, Handle, TreeBuilder};
use wasmtime::{Global, Memory, Store, Val};

use super::descriptors::{Descriptors, Target};
use super::errno::{Result, Stop};
use super::files::{is_blob, is_tree};
use super::means::{Means, malformed};
use super::process::Process;
use super::rights;
use crate::Fault;
use crate::wasm::call::CallState;

/// What a snapshot begins with.
const MARK: &[u8] = b"sinew:snapshot/1";
/// Entries before the directories.
const ENTRIES_MIN: usize = 6;
/// Bytes of a piece of the memory; the last one may be shorter.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Bytes of the state, at most: paths of directories are most of it.
const STATE_BYTES_MAX: u64 = 64 << 20;
/// Of one global in the state: its type and its value.
const GLOBAL_BYTES: usize = 17;
/// What the state begins with: four numbers.
const NUMBERS: usize = 4;

/// The value of a mutable global.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    /// 0 to 4: `i32`, `i64`, `f32`, `f64`, `v128`.
    kind: u8,
    bits: u128,
}

impl Value {
    fn of(value: &Val) -> Option<Self> {
        let (kind, bits) = match *value {
            Val::I32(value) => (0, u128::from(value as u32)),
            Val::I64(value) => (1, u128::from(value as u64)),
            Val::F32(bits) => (2, u128::from(bits)),
            Val::F64(bits) => (3, u128::from(bits)),
            Val::V128(value) => (4, value.as_u128()),
            _ => return None,
        };
        Some(Self { kind, bits })
    }

    fn to_val(self) -> Option<Val> {
        Some(match self.kind {
            0 => Val::I32(self.bits as u32 as i32),
            1 => Val::I64(self.bits as u64 as i64),
            2 => Val::F32(self.bits as u32),
            3 => Val::F64(self.bits as u64),
            4 => Val::V128(self.bits.into()),
            _ => return None,
        })
    }
}

/// A directory as a program had it open.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opened {
    is_read_only: bool,
    path: Box<[u8]>,
}

/// What there is of a program between two calls, but its memory's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// The tree of the memory's pieces.
    pub(super) memory: Handle,
    pub(super) memory_bytes: u64,
    elapsed: u64,
    drawn: u64,
    globals: Vec<Value>,
    opened: Vec<Opened>,
}

impl Snapshot {
    /// Reads a snapshot of a program of this module.
    ///
    /// # Errors
    /// `bad-thunk` if it is none, or of another module.
    pub(super) fn read(tree: Handle, module: Handle, means: &mut Means<'_>) -> Result<Self> {
        let wrong = |why: &str| malformed(format_args!("{tree} is no snapshot of it: {why}"));
        let object = means.object(tree)?;
        let entries = object.as_tree();
        let (Some(mark), Some(of), Some(state), Some(memory)) =
            (entries.get(0), entries.get(1), entries.get(2), entries.get(3))
        else {
            return Err(wrong("it has too few entries"));
        };
        if mark.literal_bytes() != Some(MARK) || entries.len() < ENTRIES_MIN || !is_tree(memory) {
            return Err(wrong("it does not begin like one"));
        }
        if of.lowered() != module.lowered() {
            return Err(wrong("it is one of another module"));
        }
        if !is_blob(state) || state.size() > STATE_BYTES_MAX {
            return Err(wrong("its state is no blob, or too long"));
        }
        means.charge("the state of the snapshot", state.size())?;
        let state = means.object(state)?;
        Self::decode(memory, state.bytes()).ok_or_else(|| wrong("its state means nothing"))
    }

    pub(super) fn decode(memory: Handle, state: &[u8]) -> Option<Self> {
        let (numbers, rest) = state.split_at_checked(8 * NUMBERS)?;
        let (numbers, _) = numbers.as_chunks();
        let &[memory_bytes, elapsed, drawn, globals] = numbers else { return None };
        let count = usize::try_from(u64::from_le_bytes(globals)).ok()?;
        let (globals, mut rest) = rest.split_at_checked(count.checked_mul(GLOBAL_BYTES)?)?;
        let (globals, _) = globals.as_chunks::<GLOBAL_BYTES>();
        let value = |bytes: &[u8; GLOBAL_BYTES]| {
            Some(Value { kind: bytes[0], bits: u128::from_le_bytes(*bytes.last_chunk()?) })
        };
        let globals = globals.iter().map(value).collect::<Option<Vec<_>>>()?;
        let mut opened = Vec::new();
        while let Some((&[is_read_only, ref len @ ..], after)) = rest.split_first_chunk::<5>() {
            let (path, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            let is_read_only = [false, true].get(usize::from(is_read_only)).copied()?;
            opened.push(Opened { is_read_only, path: path.into() });
            rest = after;
        }
        let [memory_bytes, elapsed, drawn] = [memory_bytes, elapsed, drawn].map(u64::from_le_bytes);
        rest.is_empty().then_some(Self { memory, memory_bytes, elapsed, drawn, globals, opened })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [self.memory_bytes, self.elapsed, self.drawn, self.globals.len() as u64];
        let mut state = numbers.map(u64::to_le_bytes).concat();
        for global in &self.globals {
            state.push(global.kind);
            state.extend(global.bits.to_le_bytes());
        }
        for Opened { is_read_only, path } in &self.opened {
            state.push(u8::from(*is_read_only));
            // Paths have at most a MiB.
            state.extend((path.len() as u32).to_le_bytes());
            state.extend(path);
        }
        state
    }

    /// A process whose clocks and random numbers go on where they were.
    ///
    /// # Errors
    /// `bad-thunk` if it has other directories open than the program had.
    pub(super) fn go_on(&self, process: &mut Process) -> Result<()> {
        let opened = opened(&process.descriptors, process);
        if opened.as_ref() != Ok(&self.opened) {
            let list = |opened: &[Opened]| {
                let one = |dir: &Opened| {
                    let word = if dir.is_read_only { "lib" } else { "dir" };
                    format!("{word} {}", String::from_utf8_lossy(&dir.path))
                };
                opened.iter().map(one).collect::<Vec<_>>().join(", ")
            };
            return Err(malformed(format_args!(
                "the snapshot goes on with the directories [{}], at the same paths and in the same order, \
                 whatever is in them; here are [{}]",
                list(&self.opened),
                list(opened.as_deref().unwrap_or_default()),
            )));
        }
        process.clock.pass(self.elapsed);
        process.random.skip_to(self.drawn);
        Ok(())
    }

    /// Sets the globals of an instance.
    pub(super) fn set_globals(
        &self,
        globals: &[Global],
        store: &mut Store<CallState>,
    ) -> std::result::Result<(), Fault> {
        let other =
            || Fault::new(FailureCode::BadThunk, "the snapshot's globals are not those of the module");
        if globals.len() != self.globals.len() {
            return Err(other());
        }
        for (global, value) in globals.iter().zip(&self.globals) {
            // It has to be of the global's type.
            value.to_val().and_then(|value| global.set(&mut *store, value).ok()).ok_or_else(other)?;
        }
        Ok(())
    }
}

/// The directories that are open, if they and the streams are as when the program began, and nothing else is
/// open.
fn opened(descriptors: &Descriptors, process: &Process) -> std::result::Result<Vec<Opened>, String> {
    let mut found = Vec::new();
    for (number, descriptor) in descriptors.open() {
        let is_as_given = descriptor.flags == 0
            && match (&descriptor.target, number) {
                (Target::Input { .. }, 0) => descriptor.rights == rights::INPUT,
                (Target::Output, 1) | (Target::Errors, 2) => descriptor.rights == rights::OUTPUT,
                (Target::Directory { node, preopened: Some(path), .. }, _) if number == 3 + found.len() => {
                    found
                        .push(Opened { is_read_only: process.files.is_read_only(*node), path: path.clone() });
                    descriptor.rights == rights::DIRECTORY
                        && descriptor.inheriting == rights::DIRECTORY | rights::FILE
                }
                _ => false,
            };
        if !is_as_given {
            return Err(format!("the descriptor {number} is open, or not as it was when the program began"));
        }
    }
    match descriptors.open().count() == 3 + found.len() {
        true => Ok(found),
        false => Err("a stream is closed".to_owned()),
    }
}

/// Takes a snapshot of a program that is between two calls.
///
/// # Errors
/// `guest` if it has something open that cannot be kept; `deadline` and the like.
pub(super) fn capture(
    module: Handle,
    (memory, globals): (Memory, &[Global]),
    process: &mut Process,
    store: &mut Store<CallState>,
) -> std::result::Result<Handle, Fault> {
    let cannot = |why: &str| Fault::new(FailureCode::Guest, format!("no snapshot can be taken: {why}"));
    let opened = opened(&process.descriptors, process).map_err(|why| cannot(&why))?;
    let values = globals.iter().map(|global| Value::of(&global.get(&mut *store)));
    let globals = values.collect::<Option<Vec<_>>>().ok_or_else(|| cannot("a global is a reference"))?;
    let objects = std::sync::Arc::clone(&store.data().store);
    let mut pieces = TreeBuilder::new();
    for piece in memory.data(&*store).chunks(PIECE_BYTES) {
        let state = store.data();
        if let Some(fault) = state.flags.demand(state.ticket) {
            return Err(fault);
        }
        let is_zero = piece.iter().all(|byte| *byte == 0);
        pieces.push(objects.keep_blob(if is_zero { &[] } else { piece }));
    }
    let memory_bytes = memory.data_size(&*store) as u64;
    let (elapsed, drawn) = (process.clock.elapsed(), process.random.drawn());
    let pieces = objects.keep_tree(pieces.view());
    let snapshot = Snapshot { memory: pieces, memory_bytes, elapsed, drawn, globals, opened };
    let mut tree = TreeBuilder::new();
    tree.push(objects.keep_blob(MARK));
    tree.push(module.lowered().unwrap_or(module));
    tree.push(objects.keep_blob_vec(snapshot.encode()));
    tree.push(pieces);
    let mut means = Means { store: &objects, budget: &mut store.data_mut().budget, now: 0 };
    for part in process.results(&mut means) {
        tree.push(part);
    }
    Ok(objects.keep_tree(tree.view()))
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Ended(fault) => fault,
            Stop::Refused(errno) => Self::new(
                FailureCode::BadThunk,
                format!("the program's directories cannot be opened: error {errno:?}"),
            ),
        }
    }
}
