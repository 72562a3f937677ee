// SPDX-License-Identifier: Apache-2.0
//! The compiled modules that all threads share.
//!
//! A module is compiled once per content and variant, by the [`Compiler`]'s
//! threads; whoever needs it meanwhile is told when it is ready. Loaded modules
//! are bounded by number and by bytes of code; the least recently asked for
//! goes first, and lives on in the invokers that still use it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use objects::{FailureCode, Handle, Kind};
use parking_lot::Mutex;
use store::Store;
use wasmtime::{Engine, InstancePre, Linker, Module, ModuleExport};

use super::artefact::{self, Artefacts, Facts};
use super::call::{CallState, load};
use super::compiler::{Compiler, Key, Lane, is_large};
use super::engine::{self, Guests, MODULE_BYTES_MAX, Options};
use super::host;
use super::interrupt::Pacemaker;
use super::module::{Class, ENTRY, Scan};
use super::rewrite;
use super::wasi;
use crate::{Error, Fault};

/// Where compiled code came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was compiled.
    Compiled,
    /// It was read from the cache directory.
    Disk,
}

/// The record of how a procedure was made ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compilation {
    /// The module's blob.
    pub procedure: Handle,
    /// Whether this variant counts fuel.
    pub counted: bool,
    /// Wall time that it took to be ready, in nanoseconds.
    pub nanos: u64,
    /// Size of the machine code and its tables, in bytes.
    pub code_bytes: u64,
    /// Compiled, or read from disk.
    pub origin: Origin,
    /// How its instances are treated.
    pub class: Class,
}

/// A compiled module.
pub(crate) struct Loaded {
    pub(crate) instance: InstancePre<CallState>,
    /// Where `apply` stands among the exports of a codelet: a look-up by name costs much
    /// of a fresh instance.
    pub(crate) entry: Option<ModuleExport>,
    /// Where the memory stands, if it is exported.
    pub(crate) memory: Option<ModuleExport>,
    pub(crate) facts: Facts,
    pub(crate) compilation: Compilation,
}

type Result<T> = std::result::Result<T, Fault>;

/// Somebody who waits for a procedure to be made ready.
pub trait Awaiting: Send {
    /// Whether it still does. What nobody waits for is not begun; what has
    /// begun is finished and kept.
    fn is_wanted(&self) -> bool;

    /// The procedure is ready, or why it never will be.
    fn done(self: Box<Self>, ready: std::result::Result<(), &Fault>);
}

enum Waiter {
    Thread(mpsc::SyncSender<Result<Arc<Loaded>>>),
    Other(Box<dyn Awaiting>),
}

impl Waiter {
    fn is_wanted(&self) -> bool {
        match self {
            Self::Thread(_) => true,
            Self::Other(waiter) => waiter.is_wanted(),
        }
    }

    fn done(self, loaded: &Result<Arc<Loaded>>) {
        match self {
            // It waits, so that it is there to receive.
            Self::Thread(waiter) => _ = waiter.send(loaded.clone()),
            Self::Other(waiter) => waiter.done(loaded.as_ref().map(drop)),
        }
    }
}

enum State {
    /// In line, or being compiled; with those to be told.
    Coming(Vec<Waiter>),
    Ready(Result<Arc<Loaded>>),
}

struct Entry {
    state: State,
    last_used: u64,
}

#[derive(Default)]
struct Modules {
    entries: HashMap<Key, Entry>,
    clock: u64,
}

/// An engine and the host functions on it.
struct Runtime {
    engine: Engine,
    linker: Linker<CallState>,
}

impl Runtime {
    fn new(options: &Options, guests: Guests, counted: bool) -> std::result::Result<Self, Error> {
        let engine = engine::engine(options, guests, counted)?;
        let linker = host::linker(&engine)?;
        Ok(Self { engine, linker })
    }

    /// A program may import what nobody has, as long as it does not call it.
    fn instantiate_program(&self, module: &Module) -> wasmtime::Result<InstancePre<CallState>> {
        let foreign = module.imports().filter(|import| import.module() != wasi::MODULE);
        let mut linker = None;
        for import in foreign {
            let (from, name) = (import.module().to_owned(), import.name().to_owned());
            let Some(ty) = import.ty().func().cloned() else { continue };
            let linker = linker.get_or_insert_with(|| self.linker.clone());
            linker.func_new(import.module(), import.name(), ty, move |mut guest, _, _| {
                Err(guest.data_mut().stop(wasi::calls::foreign(&from, &name)))
            })?;
        }
        linker.as_ref().unwrap_or(&self.linker).instantiate_pre(module)
    }
}

/// The two variants of what runs guests of one kind.
struct Runtimes {
    plain: Runtime,
    counting: Runtime,
}

impl Runtimes {
    fn new(options: &Options, guests: Guests) -> std::result::Result<Self, Error> {
        let plain = Runtime::new(options, guests, false)?;
        Ok(Self { plain, counting: Runtime::new(options, guests, true)? })
    }

    fn of(&self, counted: bool) -> &Runtime {
        if counted { &self.counting } else { &self.plain }
    }

    fn engines(&self) -> [Engine; 2] {
        [self.plain.engine.clone(), self.counting.engine.clone()]
    }
}

/// What all threads share.
pub(crate) struct Library {
    pub(crate) options: Options,
    pub(crate) store: Arc<Store>,
    codelets: Runtimes,
    programs: Runtimes,
    artefacts: Option<Artefacts>,
    /// Memories of programs that had been started, to go on from.
    pub(crate) images: wasi::Images,
    modules: Mutex<Modules>,
    compiler: Compiler,
    pub(crate) pacemaker: Arc<Pacemaker>,
}

impl Library {
    pub(crate) fn new(options: Options, store: Arc<Store>) -> std::result::Result<Self, Error> {
        let artefacts = match &options.cache_dir {
            Some(dir) => Some(Artefacts::open(dir, options.cache_bytes_max)?),
            None => None,
        };
        let codelets = Runtimes::new(&options, Guests::Codelets)?;
        let programs = Runtimes::new(&options, Guests::Programs)?;
        let pacemaker = Pacemaker::start([codelets.engines(), programs.engines()].concat())?;
        Ok(Self {
            codelets,
            programs,
            pacemaker: Arc::new(pacemaker),
            artefacts,
            images: wasi::Images::new(options.images_bytes_max),
            modules: Mutex::default(),
            compiler: Compiler::start(options.workers.max(1))?,
            store,
            options,
        })
    }

    fn runtime(&self, class: Class, counted: bool) -> &Runtime {
        match class {
            Class::Program => self.programs.of(counted),
            Class::Stateless | Class::Restored | Class::Fresh => self.codelets.of(counted),
        }
    }

    /// The compiled module; blocks until it is ready.
    pub(crate) fn load(self: &Arc<Self>, procedure: Handle, counted: bool) -> Result<Arc<Loaded>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        if let Some(ready) = self.request((procedure, counted), Waiter::Thread(sender)) {
            return ready;
        }
        let never = || Fault::new(FailureCode::Cancelled, "the node is shutting down");
        receiver.recv().unwrap_or_else(|_| Err(never()))
    }

    /// Has the module made ready and tells `waiter`. Blocks for nothing.
    pub(crate) fn await_ready(self: &Arc<Self>, key: Key, waiter: Box<dyn Awaiting>) {
        let waiter = Waiter::Other(waiter);
        let mut waiter = Some(waiter);
        let ready = self.request_with(key, || waiter.take());
        if let (Some(ready), Some(waiter)) = (ready, waiter) {
            waiter.done(&ready);
        }
    }

    /// Whether the module is ready, or known to be no module.
    pub(crate) fn is_ready(&self, key: Key) -> bool {
        let modules = self.modules.lock();
        modules.entries.get(&key).is_some_and(|entry| matches!(entry.state, State::Ready(_)))
    }

    /// Modules that are in line, or being compiled.
    pub(crate) fn coming(&self) -> usize {
        let modules = self.modules.lock();
        modules.entries.values().filter(|entry| matches!(entry.state, State::Coming(_))).count()
    }

    fn request(self: &Arc<Self>, key: Key, waiter: Waiter) -> Option<Result<Arc<Loaded>>> {
        let mut waiter = Some(waiter);
        self.request_with(key, || waiter.take())
    }

    /// The module if it is ready; else `waiter` is asked for, and told later.
    fn request_with(
        self: &Arc<Self>,
        key: Key,
        waiter: impl FnOnce() -> Option<Waiter>,
    ) -> Option<Result<Arc<Loaded>>> {
        let mut modules = self.modules.lock();
        modules.clock += 1;
        let last_used = modules.clock;
        if let Some(entry) = modules.entries.get_mut(&key) {
            entry.last_used = last_used;
            match &mut entry.state {
                State::Ready(ready) => return Some(ready.clone()),
                State::Coming(waiters) => waiters.extend(waiter()),
            }
            return None;
        }
        let state = State::Coming(waiter().into_iter().collect());
        modules.entries.insert(key, Entry { state, last_used });
        drop(modules);
        self.submit(&self.compiler.quick, key, Self::load_or_pass_on);
        None
    }

    fn submit(self: &Arc<Self>, lane: &Lane, key: Key, act: fn(&Arc<Self>, Key)) {
        let library = Arc::clone(self);
        let is_large_lane = std::ptr::eq(lane, &self.compiler.large);
        let work = move || {
            let lane = if is_large_lane { &library.compiler.large } else { &library.compiler.quick };
            while let Some(key) = lane.next() {
                if library.is_wanted(key) {
                    act(&library, key);
                }
            }
        };
        lane.submit(key, |key| self.is_wanted(key), work);
    }

    /// Whether anybody waits for a module that is in line; else it is not any more.
    fn is_wanted(&self, key: Key) -> bool {
        let mut modules = self.modules.lock();
        let Some(Entry { state: State::Coming(waiters), .. }) = modules.entries.get_mut(&key) else {
            return false;
        };
        waiters.retain(Waiter::is_wanted);
        let is_wanted = !waiters.is_empty();
        if !is_wanted {
            modules.entries.remove(&key);
        }
        is_wanted
    }

    /// In the quick lane: reads what was compiled before, compiles what is small.
    fn load_or_pass_on(self: &Arc<Self>, key: Key) {
        match self.read(key) {
            Some(loaded) => self.finish(key, loaded),
            None if is_large(key.0) => self.submit(&self.compiler.large, key, Self::compile_and_tell),
            None => self.compile_and_tell(key),
        }
    }

    fn compile_and_tell(self: &Arc<Self>, key: Key) {
        self.finish(key, self.compile(key));
    }

    /// Tells all who wait.
    fn finish(&self, key: Key, loaded: Result<Arc<Loaded>>) {
        let mut modules = self.modules.lock();
        // What is wrong with the bytes stays wrong; anything else may pass.
        let is_kept = loaded.as_ref().err().is_none_or(|fault| fault.code == FailureCode::BadProcedure);
        let state = match modules.entries.get_mut(&key) {
            Some(entry) if is_kept => Some(std::mem::replace(&mut entry.state, State::Ready(loaded.clone()))),
            _ => modules.entries.remove(&key).map(|entry| entry.state),
        };
        drop(modules);
        self.enforce_bounds(key);
        if let Some(State::Coming(waiters)) = state {
            waiters.into_iter().for_each(|waiter| waiter.done(&loaded));
        }
    }

    /// How a loaded procedure was made ready, by variant.
    pub(crate) fn compilation(&self, procedure: Handle, counted: bool) -> Option<Compilation> {
        match &self.modules.lock().entries.get(&(procedure, counted))?.state {
            State::Ready(Ok(loaded)) => Some(loaded.compilation),
            _ => None,
        }
    }

    /// Drops the least recently used modules, but never `current` and none
    /// that is still being compiled.
    fn enforce_bounds(&self, current: Key) {
        let mut modules = self.modules.lock();
        loop {
            let bytes: u64 = modules.entries.values().map(|entry| entry.code_bytes()).sum();
            let count = modules.entries.len();
            if count <= self.options.modules_max && bytes <= self.options.modules_bytes_max {
                return;
            }
            let idle = modules.entries.iter().filter(|(key, entry)| **key != current && entry.is_ready());
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.last_used).map(|(key, _)| *key) else {
                return;
            };
            modules.entries.remove(&oldest);
        }
    }

    /// The module as it was compiled before, from the disk.
    fn read(&self, (procedure, counted): Key) -> Option<Result<Arc<Loaded>>> {
        let started = Instant::now();
        let artefacts = self.artefacts.as_ref()?;
        // What the module is, is known once it was looked at: each engine has names of its own.
        let read = |runtime: &Runtime| {
            let key = artefact::Key::new(procedure, &runtime.engine, counted);
            let artefact = artefacts.read(&key)?;
            Some((deserialize(&runtime.engine, artefact.code())?, artefact.facts))
        };
        let (module, facts) = read(self.codelets.of(counted)).or_else(|| read(self.programs.of(counted)))?;
        Some(self.loaded((procedure, counted), &module, facts, Origin::Disk, started))
    }

    fn compile(&self, (procedure, counted): Key) -> Result<Arc<Loaded>> {
        let started = Instant::now();
        if procedure.kind() != Kind::Blob {
            return Err(bad_procedure("it is not a blob"));
        }
        if procedure.size() > MODULE_BYTES_MAX {
            return Err(bad_procedure(format_args!("it has more than {MODULE_BYTES_MAX} bytes")));
        }
        let (module, facts) = self.translate(procedure, counted)?;
        self.loaded((procedure, counted), &module, facts, Origin::Compiled, started)
    }

    fn loaded(
        &self,
        (procedure, counted): Key,
        module: &Module,
        facts: Facts,
        origin: Origin,
        started: Instant,
    ) -> Result<Arc<Loaded>> {
        let image = module.image_range();
        let compilation = Compilation {
            procedure,
            counted,
            nanos: started.elapsed().as_nanos() as u64,
            code_bytes: (image.end as usize - image.start as usize) as u64,
            origin,
            class: facts.class,
        };
        let runtime = self.runtime(facts.class, counted);
        let instance = match facts.class {
            Class::Program => runtime.instantiate_program(module),
            _ => runtime.linker.instantiate_pre(module),
        };
        let instance = instance.map_err(unusable)?;
        let entry = module.get_export_index(ENTRY);
        if entry.is_none() && facts.class != Class::Program {
            return Err(bad_procedure("it has no entry"));
        }
        let memory = module.get_export_index(host::MEMORY);
        Ok(Arc::new(Loaded { instance, entry, memory, facts, compilation }))
    }

    fn translate(&self, procedure: Handle, counted: bool) -> Result<(Module, Facts)> {
        let object;
        let bytes = match procedure.literal_bytes() {
            Some(bytes) => bytes,
            None => {
                object = self.object(procedure)?;
                object.bytes()
            }
        };
        let scan = Scan::of(bytes).map_err(bad_procedure)?;
        let facts = Facts {
            class: self.class_of(&scan),
            initial_bytes: scan.initial_bytes,
            memory_bytes: scan.memory_bytes,
            is_capturable: scan.is_capturable(),
        };
        let rewritten;
        let is_reached_into = facts.class == Class::Program && facts.is_capturable;
        let bytes = if facts.class == Class::Restored || is_reached_into {
            rewritten = rewrite::export_state(bytes, &scan).map_err(bad_procedure)?;
            &rewritten[..]
        } else {
            bytes
        };
        let runtime = self.runtime(facts.class, counted);
        // A bug of the compiler must cost a guest its result, not the node its life.
        let compiled = catch_unwind(AssertUnwindSafe(|| Module::new(&runtime.engine, bytes)));
        let module = match compiled {
            Ok(module) => module.map_err(unusable)?,
            Err(_) => return Err(bad_procedure("the compiler cannot handle it")),
        };
        if let Some(artefacts) = &self.artefacts
            && let Ok(code) = module.serialize()
        {
            artefacts.write(&artefact::Key::new(procedure, &runtime.engine, counted), &facts, &code);
        }
        Ok((module, facts))
    }

    fn class_of(&self, scan: &Scan) -> Class {
        #[cfg(test)]
        if self.options.is_unsound && scan.class() != Class::Program {
            return Class::Stateless;
        }
        scan.class()
    }

    fn object(&self, procedure: Handle) -> Result<store::Object> {
        load(&self.store, procedure)
    }
}

impl Entry {
    fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    fn code_bytes(&self) -> u64 {
        match &self.state {
            State::Ready(Ok(loaded)) => loaded.compilation.code_bytes,
            _ => 0,
        }
    }
}

#[allow(unsafe_code)]
fn deserialize(engine: &Engine, code: &[u8]) -> Option<Module> {
    // SAFETY: `code` must be what `Module::serialize` returned. It comes out
    // of `Artefacts::read`, which found the BLAKE3 checksum of these very
    // bytes (they are in our memory and cannot change any more) to be the one
    // that `Artefacts::write` computed over `Module::serialize`'s output. The
    // file lies in a directory that only this user may write to, so nobody
    // else can have put both code and checksum there. The key holds the
    // engine's compatibility hash, and wasmtime checks version and settings.
    unsafe { Module::deserialize(engine, code) }.ok()
}

/// The engine's word on a module that was found valid before. Mostly it is
/// the machine's state (no memory to map), so it must not be remembered.
fn unusable(error: wasmtime::Error) -> Fault {
    Fault::new(FailureCode::Resources, format!("the engine does not take the module: {error:#}"))
}

fn bad_procedure(why: impl std::fmt::Display) -> Fault {
    Fault::new(FailureCode::BadProcedure, why.to_string())
}
