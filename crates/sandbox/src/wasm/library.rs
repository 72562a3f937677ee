// SPDX-License-Identifier: Apache-2.0
//! The compiled modules that all threads share.
//!
//! A module is compiled once per content and variant: the first thread that
//! needs it compiles, the others wait for it. Loaded modules are bounded by
//! number and by bytes of code; the least recently asked for goes first, and
//! lives on in the invokers that still use it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use objects::{FailureCode, Handle, Kind};
use parking_lot::Mutex;
use store::Store;
use wasmtime::{Engine, InstancePre, Linker, Module, ModuleExport};

use super::artefact::{Artefacts, Facts, Key};
use super::call::CallState;
use super::engine::{self, MODULE_BYTES_MAX, Options};
use super::host;
use super::interrupt::Pacemaker;
use super::module::{Class, ENTRY, Scan};
use super::rewrite;
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
    /// Where `apply` stands among the exports: a look-up by name costs much
    /// of a fresh instance.
    pub(crate) entry: ModuleExport,
    /// Where the memory stands, if it is exported.
    pub(crate) memory: Option<ModuleExport>,
    pub(crate) facts: Facts,
    pub(crate) compilation: Compilation,
}

type Result<T> = std::result::Result<T, Fault>;
type Cell = Arc<OnceLock<Result<Arc<Loaded>>>>;

struct Entry {
    cell: Cell,
    last_used: u64,
}

#[derive(Default)]
struct Modules {
    entries: HashMap<(Handle, bool), Entry>,
    clock: u64,
}

/// An engine and the host functions on it.
struct Runtime {
    engine: Engine,
    linker: Linker<CallState>,
}

impl Runtime {
    fn new(options: &Options, counted: bool) -> std::result::Result<Self, Error> {
        let engine = engine::engine(options, counted)?;
        let linker = host::linker(&engine)?;
        Ok(Self { engine, linker })
    }
}

/// What all threads share.
pub(crate) struct Library {
    pub(crate) options: Options,
    pub(crate) store: Arc<Store>,
    plain: Runtime,
    counting: Runtime,
    artefacts: Option<Artefacts>,
    modules: Mutex<Modules>,
    pub(crate) pacemaker: Arc<Pacemaker>,
}

impl Library {
    pub(crate) fn new(options: Options, store: Arc<Store>) -> std::result::Result<Self, Error> {
        let artefacts = match &options.cache_dir {
            Some(dir) => Some(Artefacts::open(dir, options.cache_bytes_max)?),
            None => None,
        };
        let plain = Runtime::new(&options, false)?;
        let counting = Runtime::new(&options, true)?;
        let pacemaker = Pacemaker::start([plain.engine.clone(), counting.engine.clone()])?;
        Ok(Self {
            plain,
            counting,
            pacemaker: Arc::new(pacemaker),
            artefacts,
            modules: Mutex::default(),
            store,
            options,
        })
    }

    fn runtime(&self, counted: bool) -> &Runtime {
        if counted { &self.counting } else { &self.plain }
    }

    /// The compiled module; compiles it, or waits for who does.
    pub(crate) fn load(&self, procedure: Handle, counted: bool) -> Result<Arc<Loaded>> {
        let key = (procedure, counted);
        let cell = self.cell(key);
        let loaded = cell.get_or_init(|| self.prepare(procedure, counted));
        match loaded {
            Ok(_) => self.enforce_bounds(key),
            // What is wrong with the bytes stays wrong; anything else may pass.
            Err(fault) if fault.code != FailureCode::BadProcedure => self.forget(key, &cell),
            Err(_) => self.enforce_bounds(key),
        }
        loaded.clone()
    }

    /// How a loaded procedure was made ready, by variant.
    pub(crate) fn compilation(&self, procedure: Handle, counted: bool) -> Option<Compilation> {
        let cell = self.modules.lock().entries.get(&(procedure, counted)).map(|entry| entry.cell.clone())?;
        cell.get()?.as_ref().ok().map(|loaded| loaded.compilation)
    }

    fn cell(&self, key: (Handle, bool)) -> Cell {
        let mut modules = self.modules.lock();
        modules.clock += 1;
        let last_used = modules.clock;
        let entry = modules.entries.entry(key).or_insert_with(|| Entry { cell: Cell::default(), last_used });
        entry.last_used = last_used;
        entry.cell.clone()
    }

    fn forget(&self, key: (Handle, bool), cell: &Cell) {
        let mut modules = self.modules.lock();
        if modules.entries.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.cell, cell)) {
            modules.entries.remove(&key);
        }
    }

    /// Drops the least recently used modules, but never `current` and none
    /// that is still being compiled.
    fn enforce_bounds(&self, current: (Handle, bool)) {
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

    fn prepare(&self, procedure: Handle, counted: bool) -> Result<Arc<Loaded>> {
        let started = Instant::now();
        if procedure.kind() != Kind::Blob {
            return Err(bad_procedure("it is not a blob"));
        }
        if procedure.size() > MODULE_BYTES_MAX {
            return Err(bad_procedure(format_args!("it has more than {MODULE_BYTES_MAX} bytes")));
        }
        let runtime = self.runtime(counted);
        let key = Key::new(procedure, &runtime.engine, counted);
        let (module, facts, origin) = match self.read_artefact(runtime, &key) {
            Some((module, facts)) => (module, facts, Origin::Disk),
            None => {
                let (module, facts) = self.compile(runtime, &key, procedure)?;
                (module, facts, Origin::Compiled)
            }
        };
        let image = module.image_range();
        let compilation = Compilation {
            procedure,
            counted,
            nanos: started.elapsed().as_nanos() as u64,
            code_bytes: (image.end as usize - image.start as usize) as u64,
            origin,
            class: facts.class,
        };
        let instance = runtime.linker.instantiate_pre(&module).map_err(unusable)?;
        let entry = module.get_export_index(ENTRY).ok_or_else(|| bad_procedure("it has no entry"))?;
        let memory = module.get_export_index(host::MEMORY);
        Ok(Arc::new(Loaded { instance, entry, memory, facts, compilation }))
    }

    fn read_artefact(&self, runtime: &Runtime, key: &Key) -> Option<(Module, Facts)> {
        let artefact = self.artefacts.as_ref()?.read(key)?;
        let module = deserialize(&runtime.engine, artefact.code())?;
        Some((module, artefact.facts))
    }

    fn compile(&self, runtime: &Runtime, key: &Key, procedure: Handle) -> Result<(Module, Facts)> {
        let object;
        let bytes = match procedure.literal_bytes() {
            Some(bytes) => bytes,
            None => {
                object = self.object(procedure)?;
                object.bytes()
            }
        };
        let scan = Scan::of(bytes).map_err(bad_procedure)?;
        let facts =
            Facts { class: scan.class(), initial_bytes: scan.initial_bytes, memory_bytes: scan.memory_bytes };
        let rewritten;
        let bytes = if facts.class == Class::Restored {
            rewritten = rewrite::export_state(bytes, &scan).map_err(bad_procedure)?;
            &rewritten[..]
        } else {
            bytes
        };
        // A bug of the compiler must cost a guest its result, not the node its life.
        let compiled = catch_unwind(AssertUnwindSafe(|| Module::new(&runtime.engine, bytes)));
        let module = match compiled {
            Ok(module) => module.map_err(unusable)?,
            Err(_) => return Err(bad_procedure("the compiler cannot handle it")),
        };
        if let Some(artefacts) = &self.artefacts
            && let Ok(code) = module.serialize()
        {
            artefacts.write(key, &facts, &code);
        }
        Ok((module, facts))
    }

    fn object(&self, procedure: Handle) -> Result<store::Object> {
        if let Some(object) = self.store.local(procedure) {
            return Ok(object);
        }
        match self.store.get(procedure) {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(Fault::new(FailureCode::MissingData, procedure.to_string())),
            Err(_) => {
                let detail = format!("{procedure}: its copy here is unreadable");
                Err(Fault::new(FailureCode::MissingData, detail))
            }
        }
    }
}

impl Entry {
    fn is_ready(&self) -> bool {
        self.cell.get().is_some()
    }

    fn code_bytes(&self) -> u64 {
        match self.cell.get() {
            Some(Ok(loaded)) => loaded.compilation.code_bytes,
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

fn unusable(error: wasmtime::Error) -> Fault {
    bad_procedure(format_args!("{error:#}"))
}

fn bad_procedure(why: impl std::fmt::Display) -> Fault {
    Fault::new(FailureCode::BadProcedure, why.to_string())
}
