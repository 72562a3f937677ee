// SPDX-License-Identifier: Apache-2.0
//! Running a program: an instance that is new, or goes on from a snapshot; its
//! entries, one after the other; and the result.

use std::ptr::NonNull;
use std::sync::Arc;

use linux::{KeptCopy, MemoryImage};
use objects::{FailureCode, Handle};
use wasmtime::{Extern, Func, Instance, Memory, Store, WasmParams};

use super::errno::Stop;
use super::images::{Images, PRIVATE_BYTES_MAX};
use super::means::Means;
use super::options::{Entry, Given, Options};
use super::process::Process;
use super::snapshot::{self, Snapshot};
use crate::wasm::call::{CallState, load};
use crate::wasm::host::MEMORY;
use crate::wasm::invoker::fault_of;
use crate::wasm::library::Loaded;
use crate::wasm::{live, rewrite};
use crate::{Fault, Outcome, Printed};

/// What a reactor has to have called before everything else.
const INITIALIZE: &str = "_initialize";
/// What is called if nobody says: the first that the module exports.
const ENTRIES: [&str; 2] = [super::ENTRY, "run"];

/// A multiple of every page size that Linux has.
const WHOLE: usize = 64 << 10;

/// How a program is to run.
struct Plan {
    module: Handle,
    entries: Vec<Entry>,
    from: Option<Snapshot>,
    is_captured: bool,
}

/// Runs the program of the call that `state` has taken up. Nothing of it is left.
pub(crate) fn run(loaded: &Loaded, images: &Images, mut state: CallState, fuel: u64) -> Outcome {
    let plan = match begin(loaded, &mut state) {
        Ok(plan) => plan,
        Err(stop) => return Outcome::refused(stop.into()),
    };
    let objects = Arc::clone(&state.store);
    let mut store = Store::new(loaded.instance.module().engine(), state);
    let returned = start(loaded, images, &plan, &mut store, fuel);
    let mapped = match &returned {
        Ok((instance, Some(image))) => Some((*instance, Arc::clone(image))),
        _ => None,
    };
    let used = if fuel > 0 { fuel - store.get_fuel().unwrap_or(0) } else { 0 };
    let state = store.data_mut();
    let Some(mut process) = state.program.take() else { unreachable!("`begin` put it there") };
    let result = match returned {
        Err(error) if process.exit.is_none() || state.fault.is_some() => {
            Err(with_last_words(fault_of(state, &error), &process))
        }
        // Only a call that has returned leaves nothing on the stack.
        Ok((instance, _)) if plan.is_captured && process.exit.unwrap_or(0) == 0 => {
            let taken = take(loaded, &plan, instance, &mut process, &mut store);
            taken.map_err(|fault| with_last_words(fault, &process))
        }
        _ if plan.is_captured => {
            let status = process.exit.unwrap_or(0);
            let why = format!(
                "no snapshot can be taken: it ended with status {status}, and not by returning from what was called"
            );
            Err(with_last_words(Fault::new(FailureCode::Guest, why), &process))
        }
        _ => {
            let mut means = Means { store: &objects, budget: &mut state.budget, now: 0 };
            Ok(process.finish(&mut means))
        }
    };
    if let (Some((instance, image)), Some(snapshot)) = (mapped, &plan.from) {
        keep((loaded, images), (snapshot, &image), instance, &mut store);
    }
    Outcome { result, fuel: used, log: Printed::default(), spent: None, phases: None }
}

/// Reads what the application says, and has its process ready in `state`.
fn begin(loaded: &Loaded, state: &mut CallState) -> Result<Plan, Stop> {
    let Some(application) = state.table.application() else {
        unreachable!("a call that was begun has an application")
    };
    let objects = Arc::clone(&state.store);
    let mut means = Means { store: &objects, budget: &mut state.budget, now: 0 };
    let options = Options::read(application.as_tree(), &mut means)?;
    let module = loaded.compilation.procedure;
    let from = match options.from {
        Some(tree) => Some(Snapshot::read(tree, module, &mut means)?),
        None => None,
    };
    let (entries, is_captured) = (options.entries.clone(), options.is_captured);
    if (from.is_some() || is_captured) && !loaded.facts.is_capturable {
        let why = "the module has no memory that it exports, has a start function, or changes tables or segments: \
                   there are no snapshots of it";
        return Err(Stop::Ended(Fault::new(FailureCode::BadThunk, why)));
    }
    let mut process = Process::new(options, &mut means)?;
    if let Some(from) = &from {
        from.go_on(&mut process)?;
    }
    state.program = Some(Box::new(process));
    Ok(Plan { module, entries, from, is_captured })
}

/// An instance, and the image that its memory is a copy of.
type Started = (Instance, Option<Arc<MemoryImage>>);

/// Makes the instance and calls what is to be called. A status other than 0 ends it.
fn start(
    loaded: &Loaded,
    images: &Images,
    plan: &Plan,
    store: &mut Store<CallState>,
    fuel: u64,
) -> wasmtime::Result<Started> {
    live::prepare(loaded, store, fuel)?;
    let instance = loaded.instance.instantiate(&mut *store)?;
    let has = |name: &&str| loaded.instance.module().get_export_index(name).is_some();
    let default = ENTRIES.into_iter().find(has).unwrap_or(ENTRIES[0]);
    let default = [Entry { name: default.as_bytes().into(), given: None }];
    let entries = if plan.entries.is_empty() { &default[..] } else { &plan.entries };
    let mut image = None;
    match &plan.from {
        Some(snapshot) => image = Some(restore(loaded, images, snapshot, instance, store)?),
        None if matches!(entries, [Entry { name, .. }] if **name == *super::ENTRY.as_bytes()) => {}
        None => {
            if let Some(initialize) = instance.get_func(&mut *store, INITIALIZE) {
                initialize.typed::<(), ()>(&*store)?.call(&mut *store, ())?;
            }
        }
    }
    for entry in entries {
        let status = call(instance, entry, store)?;
        if status != 0 {
            if let Some(process) = &mut store.data_mut().program {
                process.exit = Some(status);
            }
            break;
        }
    }
    Ok((instance, image))
}

/// Calls an entry, and gives its status.
fn call(instance: Instance, entry: &Entry, store: &mut Store<CallState>) -> wasmtime::Result<u32> {
    let Some(given) = &entry.given else {
        return called(instance, &entry.name, (), "nothing", store);
    };
    let (at, len) = place(instance, given, store)?;
    called(instance, &entry.name, (at, len), "two i32", store)
}

/// Calls an export that takes `params` and returns nothing or a status.
fn called<P: WasmParams + Copy>(
    instance: Instance,
    name: &[u8],
    params: P,
    takes: &str,
    store: &mut Store<CallState>,
) -> wasmtime::Result<u32> {
    if let Some(function) = function(instance, name, store) {
        if let Ok(function) = function.typed::<P, ()>(&*store) {
            return function.call(&mut *store, params).map(|()| 0);
        }
        if let Ok(function) = function.typed::<P, i32>(&*store) {
            return function.call(&mut *store, params).map(|status| status as u32);
        }
    }
    Err(no_such_function(name, &format!("takes {takes} and returns nothing or an i32"), store))
}

fn function(instance: Instance, name: &[u8], store: &mut Store<CallState>) -> Option<Func> {
    instance.get_func(&mut *store, std::str::from_utf8(name).ok()?)
}

fn no_such_function(name: &[u8], like: &str, store: &mut Store<CallState>) -> wasmtime::Error {
    let name = String::from_utf8_lossy(name);
    let why = format!("not an application of a program: it exports no function {name:?} that {like}");
    store.data_mut().stop(Fault::new(FailureCode::BadThunk, why))
}

/// Puts bytes where the program makes room for them.
fn place(instance: Instance, given: &Given, store: &mut Store<CallState>) -> wasmtime::Result<(i32, i32)> {
    let name = &given.allocate;
    let allocate =
        function(instance, name, store).and_then(|function| function.typed::<i32, i32>(&*store).ok());
    let Some(allocate) = allocate else {
        return Err(no_such_function(name, "takes an i32 and returns one", store));
    };
    let objects = Arc::clone(&store.data().store);
    let object = load(&objects, given.bytes).map_err(|fault| store.data_mut().stop(fault))?;
    let len = i32::try_from(object.len()).unwrap_or(i32::MAX);
    let at = allocate.call(&mut *store, len)?;
    let memory = instance.get_memory(&mut *store, MEMORY);
    let written = memory.map(|memory| memory.write(&mut *store, at as u32 as usize, object.bytes()));
    if !matches!(written, Some(Ok(()))) {
        let why = format!("{:?} gave no place in its memory for {len} bytes", String::from_utf8_lossy(name));
        return Err(store.data_mut().stop(Fault::new(FailureCode::Trap, why)));
    }
    Ok((at, len))
}

/// The memory of an instance that is capturable.
fn memory_of(loaded: &Loaded, instance: Instance, store: &mut Store<CallState>) -> Memory {
    let memory = loaded.memory.and_then(|export| instance.get_module_export(&mut *store, &export));
    match memory {
        Some(Extern::Memory(memory)) => memory,
        _ => unreachable!("the scan found that it exports its memory"),
    }
}

/// Gives an instance in which nothing has run the state of a snapshot.
fn restore(
    loaded: &Loaded,
    images: &Images,
    snapshot: &Snapshot,
    instance: Instance,
    store: &mut Store<CallState>,
) -> wasmtime::Result<Arc<MemoryImage>> {
    let memory = memory_of(loaded, instance, store);
    let stop = |store: &mut Store<CallState>, fault: Fault| Err(store.data_mut().stop(fault));
    let (has, page) = (memory.data_size(&*store) as u64, memory.page_size(&*store));
    let missing = snapshot.memory_bytes.checked_sub(has).filter(|missing| missing % page == 0);
    let grown = missing.map(|missing| memory.grow(&mut *store, missing / page));
    if !matches!(grown, Some(Ok(_))) {
        let why = format!("the snapshot has a memory of {} bytes", snapshot.memory_bytes);
        let code = if store.data().budget.denied { FailureCode::Memory } else { FailureCode::BadThunk };
        return stop(store, Fault::new(code, why));
    }
    let objects = Arc::clone(&store.data().store);
    let image = match images.of(snapshot, &objects) {
        Ok(image) => image,
        Err(fault) => return stop(store, fault),
    };
    let copy = images.copy(&image);
    if let Err(error) = put(&image, copy, memory, store) {
        let why = format!("the node cannot map the snapshot's memory: {error}");
        return stop(store, Fault::new(FailureCode::Resources, why));
    }
    let globals = rewrite::globals(&instance, store);
    match snapshot.set_globals(&globals, store) {
        Ok(()) => Ok(image),
        Err(fault) => stop(store, fault),
    }
}

/// Puts a copy of an image that is as long as a memory in its place.
#[allow(unsafe_code)]
fn put(
    image: &MemoryImage,
    copy: Option<KeptCopy>,
    memory: Memory,
    store: &mut Store<CallState>,
) -> std::io::Result<()> {
    let (start, len) = (memory.data_ptr(&*store), memory.data_size(&*store));
    let is_whole = len == image.len() && len.is_multiple_of(WHOLE);
    let start = NonNull::new(start).filter(|_| is_whole);
    let start = start.ok_or_else(|| std::io::Error::other("the memory does not consist of whole pages"))?;
    // SAFETY: (1) these are the
    // bytes of a linear memory, `data_size` long, which the engine has mapped for this instance alone and, since they
    // are whole pages, shares with nothing. (2) The store is borrowed for as long as this runs, so no guest does, and
    // slices of the memory cannot outlive a borrow of it. (3) The engine of programs allocates on demand: it unmaps
    // the whole range when the store is dropped, and neither resets it nor looks at what is behind it.
    unsafe {
        match copy {
            Some(copy) => copy.put_over(start),
            None => image.map_over(start),
        }
    }
}

/// Keeps the copy of an image from which a program went on that has ended by returning. What it wrote is gone then,
/// also if the copy is not kept.
#[allow(unsafe_code)]
fn keep(
    (loaded, images): (&Loaded, &Images),
    (snapshot, image): (&Snapshot, &Arc<MemoryImage>),
    instance: Instance,
    store: &mut Store<CallState>,
) {
    let memory = memory_of(loaded, instance, store);
    let Some(start) = NonNull::new(memory.data_ptr(&*store)) else { return };
    // SAFETY: as in `put`, which put a copy of this image there. A memory never moves or shrinks, and
    // what it grew by lies behind. Nothing runs in the store any more.
    let copy = unsafe { KeptCopy::take(image, start, PRIVATE_BYTES_MAX) };
    if let Ok(copy) = copy {
        images.keep(snapshot.memory, copy);
    }
}

fn take(
    loaded: &Loaded,
    plan: &Plan,
    instance: Instance,
    process: &mut Process,
    store: &mut Store<CallState>,
) -> Result<Handle, Fault> {
    let memory = memory_of(loaded, instance, store);
    let globals = rewrite::globals(&instance, store);
    snapshot::capture(plan.module, (memory, &globals), process, store)
}

/// A failure that repeats what the program said at last: a panic's message, for one.
fn with_last_words(fault: Fault, process: &Process) -> Fault {
    match process.last_words() {
        Some(words) if fault.code != FailureCode::Cancelled && fault.code != FailureCode::Deadline => {
            Fault::new(fault.code, format!("{}\nIts stderr ends with:\n{words}", fault.detail))
        }
        _ => fault,
    }
}
