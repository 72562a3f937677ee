// SPDX-License-Identifier: Apache-2.0
//! Codelets behind the [`Sandbox`] trait.
//!
//! A sandbox of this kind is a right to run one procedure: creating it loads
//! and compiles the module, and its instances come and go inside the
//! invokers. Workers with an [`Invoker`] of their own need no sandbox; the
//! trait is for callers that treat all kinds alike.

use std::collections::HashMap;
use std::sync::Arc;

use objects::{FailureCode, Handle};
use parking_lot::{Condvar, Mutex};
use store::Store;

use super::engine::Options;
use super::interrupt::{Interrupt, Ticket};
use super::invoker::Invoker;
use super::library::{Awaiting, Compilation, Library};
use crate::{Call, Error, Fault, Invoked, Origin, Phase, Sandbox, SandboxId, Spec, State};

/// The engines, the compiled modules and the sandboxes of a node.
pub struct Codelets {
    library: Arc<Library>,
    sandboxes: Mutex<Sandboxes>,
    invokers: Pool,
}

#[derive(Default)]
struct Sandboxes {
    by_id: HashMap<SandboxId, Codelet>,
    last_id: u64,
}

/// One sandbox.
struct Codelet {
    procedure: Handle,
    state: State,
    /// What runs in it, to be stopped by a kill.
    running: Vec<(Ticket, Interrupt)>,
}

/// The invokers that serve the trait: made on demand, bounded, reused.
struct Pool {
    idle: Mutex<(Vec<Invoker>, usize)>,
    returned: Condvar,
    invokers_max: usize,
}

impl Codelets {
    /// Sets up the engines and opens the cache directory.
    ///
    /// # Errors
    /// [`Error::Engine`], or [`Error::CacheDir`] if the directory cannot be
    /// made or others may write to it.
    pub fn new(options: Options, store: Arc<Store>) -> Result<Arc<Self>, Error> {
        let invokers_max = options.workers.max(1);
        let pool = Pool { idle: Mutex::default(), returned: Condvar::new(), invokers_max };
        let library = Arc::new(Library::new(options, store)?);
        Ok(Arc::new(Self { library, sandboxes: Mutex::default(), invokers: pool }))
    }

    /// Loads a procedure, compiling it if nobody has, without running it.
    /// Blocks until it is ready, which takes seconds for megabytes of code.
    /// `counted` asks for the variant that counts fuel.
    ///
    /// # Errors
    /// `bad-procedure` or `missing-data`, as an application of it would fail.
    pub fn prepare(&self, procedure: Handle, counted: bool) -> Result<Compilation, Fault> {
        self.library.load(procedure, counted).map(|loaded| loaded.compilation)
    }

    /// Has a procedure made ready without waiting for it: `waiter` is told.
    pub fn await_ready(&self, procedure: Handle, counted: bool, waiter: Box<dyn Awaiting>) {
        self.library.await_ready((procedure, counted), waiter);
    }

    /// Procedures that are being compiled, or wait for it.
    pub fn coming(&self) -> usize {
        self.library.coming()
    }

    /// How a procedure was made ready: the variant without fuel counting if
    /// it is loaded, else the other; `None` if neither is.
    pub fn compilation(&self, procedure: Handle) -> Option<Compilation> {
        self.library.compilation(procedure, false).or_else(|| self.library.compilation(procedure, true))
    }

    pub(crate) fn library(&self) -> &Arc<Library> {
        &self.library
    }

    fn create_one(&self, spec: &Spec) -> Result<SandboxId, Error> {
        let procedure = spec.procedure;
        self.prepare(procedure, spec.limits.fuel > 0)
            .map_err(|fault| Error::Procedure { procedure, fault })?;
        let mut sandboxes = self.sandboxes.lock();
        let sandboxes_max = self.library.options.sandboxes_max;
        if sandboxes.by_id.len() >= sandboxes_max {
            return Err(Error::TooMany(sandboxes_max));
        }
        sandboxes.last_id += 1;
        let id = SandboxId(sandboxes.last_id);
        let (phase, origin) = (Phase::Created, Origin::Cold);
        let state = State { phase, running: 0, succeeded: 0, failed: 0, is_alive: true, origin };
        sandboxes.by_id.insert(id, Codelet { procedure, state, running: Vec::new() });
        Ok(id)
    }

    /// Applies `act` to each sandbox in turn.
    fn each<T>(
        &self,
        ids: &[SandboxId],
        mut act: impl FnMut(SandboxId, &mut Codelet) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        let mut sandboxes = self.sandboxes.lock();
        let each = ids.iter().map(|&id| match sandboxes.by_id.get_mut(&id) {
            Some(codelet) => act(id, codelet),
            None => Err(Error::Unknown(id)),
        });
        each.collect()
    }

    fn delete_one(&self, id: SandboxId) -> Result<(), Error> {
        let mut sandboxes = self.sandboxes.lock();
        let codelet = sandboxes.by_id.get(&id).ok_or(Error::Unknown(id))?;
        if codelet.state.phase == Phase::Running {
            return Err(codelet.wrong_phase(id, "delete"));
        }
        sandboxes.by_id.remove(&id);
        Ok(())
    }

    /// Admits a call, and makes it known to whoever kills the sandbox.
    fn enter(&self, id: SandboxId, call: &Call, invoker: &Invoker) -> Result<Ticket, Error> {
        let mut sandboxes = self.sandboxes.lock();
        let codelet = sandboxes.by_id.get_mut(&id).ok_or(Error::Unknown(id))?;
        if codelet.state.phase != Phase::Running {
            return Err(codelet.wrong_phase(id, "invoke"));
        }
        if codelet.procedure != call.procedure {
            return Err(Error::WrongProcedure { id, expected: codelet.procedure, found: call.procedure });
        }
        codelet.state.running += 1;
        let ticket = invoker.next_ticket();
        codelet.running.push((ticket, invoker.interrupt()));
        Ok(ticket)
    }

    fn leave(&self, id: SandboxId, ticket: Ticket, interrupt: &Interrupt, succeeded: bool) {
        let mut sandboxes = self.sandboxes.lock();
        // It may have been killed and deleted in the meantime.
        let Some(codelet) = sandboxes.by_id.get_mut(&id) else { return };
        codelet.running.retain(|(other, of)| *other != ticket || !of.is_same(interrupt));
        codelet.state.running -= 1;
        if succeeded {
            codelet.state.succeeded += 1;
        } else {
            codelet.state.failed += 1;
        }
    }
}

impl Codelet {
    fn wrong_phase(&self, id: SandboxId, request: &'static str) -> Error {
        Error::WrongPhase { id, phase: self.state.phase, request }
    }
}

impl Sandbox for Codelets {
    fn create(&self, specs: &[Spec]) -> Vec<Result<SandboxId, Error>> {
        specs.iter().map(|spec| self.create_one(spec)).collect()
    }

    fn start(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |id, codelet| {
            if codelet.state.phase != Phase::Created {
                return Err(codelet.wrong_phase(id, "start"));
            }
            codelet.state.phase = Phase::Running;
            Ok(())
        })
    }

    fn state(&self, ids: &[SandboxId]) -> Vec<Result<State, Error>> {
        self.each(ids, |_, codelet| Ok(codelet.state))
    }

    /// None: between calls there is only compiled code, which sandboxes share.
    fn memory_bytes(&self, ids: &[SandboxId]) -> Vec<Result<Option<u64>, Error>> {
        self.each(ids, |_, _| Ok(Some(0)))
    }

    fn kill(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |_, codelet| {
            codelet.state.phase = Phase::Stopped;
            codelet.state.is_alive = false;
            for (ticket, interrupt) in codelet.running.drain(..) {
                interrupt.raise_for(ticket, FailureCode::Cancelled);
            }
            Ok(())
        })
    }

    fn delete(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        ids.iter().map(|&id| self.delete_one(id)).collect()
    }

    fn invoke(&self, id: SandboxId, call: Call) -> Result<Invoked, Error> {
        let mut invoker = self.invokers.take(&self.library);
        let interrupt = invoker.interrupt();
        let outcome = self.enter(id, &call, &invoker).map(|ticket| {
            let outcome = invoker.invoke(call);
            self.leave(id, ticket, &interrupt, outcome.result.is_ok());
            outcome
        });
        self.invokers.give(invoker);
        outcome.map(Invoked::Done)
    }
}

impl Pool {
    /// An invoker; waits for one if all are in use.
    fn take(&self, library: &Arc<Library>) -> Invoker {
        let mut pool = self.idle.lock();
        loop {
            if let Some(invoker) = pool.0.pop() {
                return invoker;
            }
            if pool.1 < self.invokers_max {
                pool.1 += 1;
                return Invoker::with_library(library.clone());
            }
            self.returned.wait(&mut pool);
        }
    }

    fn give(&self, invoker: Invoker) {
        self.idle.lock().0.push(invoker);
        self.returned.notify_one();
    }
}
