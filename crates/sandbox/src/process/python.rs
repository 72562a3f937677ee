// SPDX-License-Identifier: Apache-2.0
//! Python functions behind the [`Sandbox`] trait.
//!
//! A procedure is a blob of Python source that defines `apply`. Each sandbox
//! has one instance, made when it is created: a container of its own, and in
//! it a process forked from the template with the function loaded. An
//! instance that died is replaced, container and all, by the next call.
//!
//! Arguments are the application's entries from 2 on: blobs, given as `bytes`.
//! Trees are not yet, and fail with `bad-handle`. Fuel is not counted, so a
//! procedure with a fuel limit cannot be created.
//!
//! One call runs at a time; others wait in no particular order, a bounded
//! number of them, and beyond that fail with `resources`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use objects::{FailureCode, Handle, Limits, MEMORY_DEFAULT_BYTES};
use parking_lot::Mutex;
use store::{Object, Store};

use super::blanks::Blanks;
use super::channel::{Bounds, SOURCE_LEN_MAX};
use super::contained::Containers;
use super::instance::{Instance, Life, Terms};
use super::place::Places;
use super::runtime::Runtime;
use super::template::{Nursery, TemplateOptions};
use crate::{Call, Error, Fault, Invoked, Origin, Outcome, Phase, Sandbox, SandboxId, Spec, State};

/// What Python functions get on this node.
#[derive(Debug, Clone)]
pub struct PythonOptions {
    /// The interpreter, Python 3.11 or later; a virtual environment's has its
    /// packages. A name without a slash is looked for in `PATH`.
    pub interpreter: PathBuf,
    /// Modules that the template imports, so that functions find them loaded.
    pub imports: Vec<String>,
    /// Within which the template must have imported them.
    pub start_timeout: Duration,
    /// Sandboxes that may exist at once.
    pub sandboxes_max: usize,
    /// Instances that are made at once by one `create`.
    pub starts_at_once: usize,
    /// From the fork to the loaded function.
    pub load_timeout: Duration,
    /// Within which a call must have its result.
    pub call_timeout: Duration,
    /// Calls that may wait for one instance.
    pub waiting_max: u64,
    /// Bytes of a result; below 2^32.
    pub result_bytes_max: u64,
    /// Bytes that a call may print; what is over is dropped.
    pub log_bytes_max: u64,
    /// Processes and threads of one instance.
    pub processes: u32,
    /// Share of one processor, in percent.
    pub cpu_percent: u32,
    /// Files that a process may have open.
    pub files: u64,
    /// Bytes of `/tmp`; they count as memory as well.
    pub tmp_bytes: u64,
    /// Containers that are kept prepared, for functions with the default
    /// memory limit.
    pub ready: usize,
    /// Instances without a function that are kept forked, for such functions:
    /// faster still, for some 3 MiB of memory each.
    pub blanks: usize,
}

impl Default for PythonOptions {
    fn default() -> Self {
        Self {
            interpreter: PathBuf::from("python3"),
            imports: Vec::new(),
            start_timeout: Duration::from_secs(60),
            sandboxes_max: 1024,
            starts_at_once: 4,
            load_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(300),
            waiting_max: 64,
            result_bytes_max: 64 << 20,
            log_bytes_max: 1 << 20,
            processes: 64,
            cpu_percent: 100,
            files: 256,
            tmp_bytes: 16 << 20,
            ready: 4,
            blanks: 0,
        }
    }
}

impl PythonOptions {
    fn room(&self, memory_bytes: u64) -> Room {
        let (processes, cpu_percent, files) = (self.processes, self.cpu_percent, self.files);
        Room { memory_bytes, processes, cpu_percent, files }
    }
}

/// What one instance gets of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u32,
    pub(crate) cpu_percent: u32,
    pub(crate) files: u64,
}

/// The Python sandboxes of a node.
pub struct Python {
    options: PythonOptions,
    store: Arc<Store>,
    // Before what it makes instances with.
    blanks: Blanks,
    maker: Arc<Maker>,
    sandboxes: Mutex<Sandboxes>,
}

/// What it takes to make an instance.
struct Maker {
    options: PythonOptions,
    nursery: Nursery,
    places: Box<dyn Places>,
}

impl Maker {
    /// A new instance, in a place that nobody was in before.
    fn fork(&self, memory_bytes: u64) -> Result<Instance, Fault> {
        let options = &self.options;
        let place = self.places.prepare(options.room(memory_bytes)).map_err(|reason| {
            Fault::new(FailureCode::Resources, format!("no container can be made: {reason}"))
        })?;
        let bounds = Bounds {
            result_bytes_max: options.result_bytes_max.min(u64::from(u32::MAX)),
            log_bytes_max: options.log_bytes_max,
        };
        let (load_timeout, call_timeout) = (options.load_timeout, options.call_timeout);
        Instance::fork(&self.nursery, place, Terms { bounds, memory_bytes, load_timeout, call_timeout })
    }
}

#[derive(Default)]
struct Sandboxes {
    by_id: HashMap<SandboxId, Arc<Seat>>,
    /// Ids given to sandboxes that are being made.
    coming: usize,
    last_id: u64,
}

/// One sandbox.
struct Seat {
    procedure: Handle,
    limits: Limits,
    control: Mutex<Control>,
    /// Held while a call runs.
    instance: Mutex<Option<Instance>>,
    log: Mutex<Vec<u8>>,
}

struct Control {
    state: State,
    /// The instance, to be ended by a kill while a call holds it.
    life: Option<Arc<Life>>,
}

impl Python {
    /// Starts the template, and begins to prepare containers.
    ///
    /// # Errors
    /// [`Error::Template`] if the template cannot serve, or the machine does
    /// not have what it takes.
    pub fn new(options: PythonOptions, runtime: Arc<Runtime>, store: Arc<Store>) -> Result<Self, Error> {
        let (tmp_bytes, ready) = (options.tmp_bytes, options.ready);
        let usual = options.room(MEMORY_DEFAULT_BYTES);
        Self::with_places(options, store, |prefixes| {
            Ok(Box::new(Containers::new(runtime, prefixes, tmp_bytes, usual, ready)?))
        })
    }

    /// How many instances without a function wait.
    pub fn blanks(&self) -> usize {
        self.blanks.ready()
    }

    /// How many containers are prepared and in nobody's use.
    pub fn ready(&self) -> usize {
        self.maker.places.ready()
    }

    /// Starts the template, whose instances stay where it is: unconfined, for
    /// measurements and tests of what does not need a container.
    ///
    /// # Errors
    /// [`Error::Template`].
    #[cfg(any(test, feature = "contract"))]
    pub fn uncontained(options: PythonOptions, store: Arc<Store>) -> Result<Self, Error> {
        Self::with_places(options, store, |_| Ok(Box::new(super::place::Nowhere)))
    }

    fn with_places(
        options: PythonOptions,
        store: Arc<Store>,
        places: impl FnOnce(&[PathBuf]) -> Result<Box<dyn Places>, String>,
    ) -> Result<Self, Error> {
        let template = TemplateOptions {
            interpreter: options.interpreter.clone(),
            imports: options.imports.clone(),
            start_timeout: options.start_timeout,
        };
        let failed = |reason| Error::Template { interpreter: options.interpreter.clone(), reason };
        let nursery = Nursery::new(template).map_err(failed)?;
        let prefixes = nursery.template().map_err(failed)?.hello.prefixes.clone();
        let places = places(&prefixes).map_err(failed)?;
        let maker = Arc::new(Maker { options: options.clone(), nursery, places });
        let making = maker.clone();
        let make = Box::new(move || making.fork(MEMORY_DEFAULT_BYTES));
        let blanks = Blanks::new(options.blanks, make).map_err(failed)?;
        Ok(Self { options, store, blanks, maker, sandboxes: Mutex::default() })
    }

    /// What the function printed during the last call that has ended.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn log(&self, id: SandboxId) -> Result<String, Error> {
        let seat = self.seat(id)?;
        let log = seat.log.lock();
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// The process id of the template, for measuring it.
    ///
    /// # Errors
    /// [`Error::Template`] if it is dead and cannot be started again.
    pub fn template_pid(&self) -> Result<u32, Error> {
        let interpreter = self.options.interpreter.clone();
        let template = self.maker.nursery.template();
        Ok(template.map_err(|reason| Error::Template { interpreter, reason })?.hello.pid)
    }

    fn seat(&self, id: SandboxId) -> Result<Arc<Seat>, Error> {
        self.sandboxes.lock().by_id.get(&id).cloned().ok_or(Error::Unknown(id))
    }

    fn create_one(&self, spec: &Spec) -> Result<SandboxId, Error> {
        {
            let mut sandboxes = self.sandboxes.lock();
            if sandboxes.by_id.len() + sandboxes.coming >= self.options.sandboxes_max {
                return Err(Error::TooMany(self.options.sandboxes_max));
            }
            sandboxes.coming += 1;
        }
        let seat = self.new_seat(spec);
        let mut sandboxes = self.sandboxes.lock();
        sandboxes.coming -= 1;
        let seat = seat.map_err(|fault| Error::Procedure { procedure: spec.procedure, fault })?;
        sandboxes.last_id += 1;
        let id = SandboxId(sandboxes.last_id);
        sandboxes.by_id.insert(id, Arc::new(seat));
        Ok(id)
    }

    fn new_seat(&self, spec: &Spec) -> Result<Seat, Fault> {
        if spec.limits.fuel > 0 {
            let why = "the instructions of a Python function are not counted: leave the fuel limit out";
            return Err(Fault::new(FailureCode::Resources, why));
        }
        let (phase, origin) = (Phase::Created, Origin::Forked);
        let state = State { phase, running: 0, succeeded: 0, failed: 0, is_alive: false, origin };
        let seat = Seat {
            procedure: spec.procedure,
            limits: spec.limits,
            control: Mutex::new(Control { state, life: None }),
            instance: Mutex::default(),
            log: Mutex::default(),
        };
        *seat.instance.lock() = Some(self.instance(&seat)?);
        Ok(seat)
    }

    /// A new instance for a seat, in a place that nobody was in before.
    fn instance(&self, seat: &Seat) -> Result<Instance, Fault> {
        let Some(source) = self.bytes(seat.procedure) else {
            let why = "the procedure is not a blob that is here";
            return Err(Fault::new(FailureCode::MissingData, why));
        };
        let source = source.as_slice();
        if source.len() > SOURCE_LEN_MAX {
            let why = format!("the source has {} bytes, more than {SOURCE_LEN_MAX}", source.len());
            return Err(Fault::new(FailureCode::BadProcedure, why));
        }
        let memory_bytes = seat.limits.memory_bytes;
        let blank = if memory_bytes == MEMORY_DEFAULT_BYTES { self.blanks.take() } else { None };
        let mut instance = match blank {
            Some(blank) => blank,
            None => self.maker.fork(memory_bytes)?,
        };
        {
            let mut control = seat.control.lock();
            control.life = Some(instance.life().clone());
            if control.state.phase == Phase::Stopped {
                return Err(Fault::new(FailureCode::Cancelled, "the sandbox was killed"));
            }
        }
        instance.load(source)?;
        Ok(instance)
    }

    fn bytes(&self, handle: Handle) -> Option<Bytes> {
        if !handle.is_object() || handle.names_tree() {
            return None;
        }
        match handle.literal_bytes() {
            Some(_) => Some(Bytes::Literal(handle)),
            None => self.store.local(handle).map(Bytes::Hashed),
        }
    }

    /// The arguments of a call: its entries from 2 on.
    fn arguments(&self, call: &Call) -> Result<Vec<Bytes>, Fault> {
        let mut arguments = Vec::new();
        let mut total = 0_u64;
        for (index, handle) in call.application.as_tree().iter().enumerate().skip(2) {
            let bytes = self.bytes(handle).ok_or_else(|| {
                let why = "argument {} is not a blob; a Python function takes only blobs so far";
                Fault::new(FailureCode::BadHandle, why.replace("{}", &(index - 2).to_string()))
            })?;
            total += bytes.as_slice().len() as u64;
            arguments.push(bytes);
        }
        let limit = call.limits.memory_bytes.min(u64::from(u32::MAX) / 2);
        if total > limit {
            let why = format!("the arguments have {total} bytes, more than the {limit} of the memory limit");
            return Err(Fault::new(FailureCode::Memory, why));
        }
        Ok(arguments)
    }

    /// Runs an admitted call.
    fn run(&self, seat: &Seat, call: &Call) -> Result<Handle, Fault> {
        let arguments = self.arguments(call)?;
        let slices: Vec<&[u8]> = arguments.iter().map(Bytes::as_slice).collect();
        let mut instance = seat.instance.lock();
        if seat.control.lock().state.phase != Phase::Running {
            return Err(Fault::new(FailureCode::Cancelled, "the sandbox was killed"));
        }
        if instance.as_ref().is_some_and(|instance| !instance.is_alive()) {
            *instance = None;
        }
        let live = match &mut *instance {
            Some(live) => live,
            none => none.insert(self.instance(seat)?),
        };
        let (result, usable) = live.call(&slices);
        *seat.log.lock() = live.take_log();
        if !usable {
            *instance = None;
            seat.control.lock().life = None;
        }
        Ok(self.store.keep_blob_vec(result?))
    }

    fn enter(&self, id: SandboxId, call: &Call) -> Result<Result<Arc<Seat>, Fault>, Error> {
        let seat = self.seat(id)?;
        let mut control = seat.control.lock();
        if control.state.phase != Phase::Running {
            return Err(control.wrong_phase(id, "invoke"));
        }
        if seat.procedure != call.procedure {
            return Err(Error::WrongProcedure { id, expected: seat.procedure, found: call.procedure });
        }
        if control.state.running > self.options.waiting_max {
            control.state.failed += 1;
            let why = format!("{} calls wait for this sandbox already", self.options.waiting_max);
            return Ok(Err(Fault::new(FailureCode::Resources, why)));
        }
        control.state.running += 1;
        drop(control);
        Ok(Ok(seat))
    }

    fn each<T>(
        &self,
        ids: &[SandboxId],
        mut act: impl FnMut(SandboxId, &mut Control) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        let each = ids.iter().map(|&id| {
            let seat = self.seat(id)?;
            let mut control = seat.control.lock();
            act(id, &mut control)
        });
        each.collect()
    }

    fn delete_one(&self, id: SandboxId) -> Result<(), Error> {
        let mut sandboxes = self.sandboxes.lock();
        let seat = sandboxes.by_id.get(&id).ok_or(Error::Unknown(id))?;
        let control = seat.control.lock();
        if control.state.phase == Phase::Running {
            return Err(control.wrong_phase(id, "delete"));
        }
        drop(control);
        let seat = sandboxes.by_id.remove(&id);
        drop(sandboxes);
        // Taking a container down takes a while.
        drop(seat);
        Ok(())
    }
}

impl Control {
    fn wrong_phase(&self, id: SandboxId, request: &'static str) -> Error {
        Error::WrongPhase { id, phase: self.state.phase, request }
    }
}

impl Sandbox for Python {
    #[expect(
        clippy::disallowed_methods,
        reason = "starting an instance is waiting, a bounded number at once"
    )]
    fn create(&self, specs: &[Spec]) -> Vec<Result<SandboxId, Error>> {
        let threads = self.options.starts_at_once.clamp(1, specs.len().max(1));
        if threads == 1 {
            return specs.iter().map(|spec| self.create_one(spec)).collect();
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        let answers: Vec<Mutex<Option<_>>> = specs.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(spec) = specs.get(index) else { break };
                        *answers[index].lock() = Some(self.create_one(spec));
                    }
                });
            }
        });
        let given = answers.into_iter().zip(specs).map(|(answer, spec)| {
            answer.into_inner().unwrap_or_else(|| {
                let fault = Fault::new(FailureCode::Resources, "it was not started");
                Err(Error::Procedure { procedure: spec.procedure, fault })
            })
        });
        given.collect()
    }

    fn start(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |id, control| {
            if control.state.phase != Phase::Created {
                return Err(control.wrong_phase(id, "start"));
            }
            control.state.phase = Phase::Running;
            Ok(())
        })
    }

    fn state(&self, ids: &[SandboxId]) -> Vec<Result<State, Error>> {
        self.each(ids, |_, control| {
            let is_alive = control.life.as_ref().is_some_and(|life| life.is_alive());
            Ok(State { is_alive, ..control.state })
        })
    }

    fn memory_bytes(&self, ids: &[SandboxId]) -> Vec<Result<Option<u64>, Error>> {
        self.each(ids, |_, control| match &control.life {
            Some(life) => Ok(life.memory_bytes()),
            None => Ok(Some(0)),
        })
    }

    fn kill(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |_, control| {
            control.state.phase = Phase::Stopped;
            if let Some(life) = control.life.take() {
                life.kill();
            }
            Ok(())
        })
    }

    fn delete(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        ids.iter().map(|&id| self.delete_one(id)).collect()
    }

    fn invoke(&self, id: SandboxId, call: Call) -> Result<Invoked, Error> {
        let seat = match self.enter(id, &call)? {
            Ok(seat) => seat,
            Err(fault) => return Ok(Invoked::Done(Outcome { result: Err(fault), fuel: 0 })),
        };
        let result = self.run(&seat, &call);
        let mut control = seat.control.lock();
        control.state.running -= 1;
        if result.is_ok() {
            control.state.succeeded += 1;
        } else {
            control.state.failed += 1;
        }
        drop(control);
        Ok(Invoked::Done(Outcome { result, fuel: 0 }))
    }
}

/// Blob bytes in a handle or an object.
enum Bytes {
    Literal(Handle),
    Hashed(Object),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Literal(handle) => handle.literal_bytes().unwrap_or_default(),
            Self::Hashed(object) => object.bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
