// SPDX-License-Identifier: Apache-2.0
//! The runtimes of a node behind one [`Sandbox`], so that one fleet has the
//! instances of all of them, with one budget.
//!
//! A runtime is begun when the first instance of it is made: its template
//! takes a while. A sandbox's id is that of its runtime, times the number of
//! runtimes, plus the runtime's place among them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::{FailureCode, Handle};
use parking_lot::Mutex;
use sandbox::process::{
    Functions, FunctionsOptions, Language, Layers, Reactor, Runtime, RuntimeOptions, runtime_of,
};
use sandbox::{Call, Error, Fault, Invoked, Sandbox, SandboxId, Spec, State, Then};
use store::Store;

use crate::outbound::Outbound;
use crate::secrets::Secrets;

/// How long a runtime that could not be begun is not tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The longest time that a function may ask for.
const CALL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Instances of each runtime that wait for their function.
const BLANKS: usize = 2;
/// The memory of a function whose `sinew.toml` says nothing of it.
const USUAL_MEMORY_BYTES: u64 = 256 << 20;
const LANGUAGES: u64 = Language::ALL.len() as u64;

/// Where runtimes find what they need.
#[derive(Debug, Clone)]
pub(crate) struct RuntimesOptions {
    /// Program and arguments of a container's init; empty: no containers.
    pub(crate) init: Vec<OsString>,
    /// Where layers are written out.
    pub(crate) layers: PathBuf,
    /// Bytes of layers that nobody uses.
    pub(crate) layers_bytes: u64,
    /// Watches instances.
    pub(crate) reactor: Option<Arc<dyn Reactor>>,
    /// The interpreter of each language.
    pub(crate) interpreters: Vec<(Language, PathBuf)>,
    /// What functions get of them.
    pub(crate) secrets: Arc<Secrets>,
    /// How functions reach hosts.
    pub(crate) outbound: Arc<Outbound>,
}

/// All runtimes, those that were not begun included.
pub(crate) struct Runtimes {
    options: RuntimesOptions,
    store: Arc<Store>,
    layers: Mutex<Option<Arc<Layers>>>,
    containers: Mutex<Option<Arc<Runtime>>>,
    /// In the order of [`Language::ALL`].
    begun: [Mutex<Begun>; Language::ALL.len()],
}

/// A runtime. Its lock is held while it is begun, so that others, who would
/// only do the same, wait.
#[derive(Default)]
enum Begun {
    #[default]
    No,
    Yes(Arc<Functions>),
    Failed(Instant, Fault),
    Over,
}

impl Runtimes {
    pub(crate) fn new(options: RuntimesOptions, store: Arc<Store>) -> Self {
        Self {
            options,
            store,
            layers: Mutex::default(),
            containers: Mutex::default(),
            begun: Default::default(),
        }
    }

    /// The place of the runtime that a procedure names, if the node has it.
    fn place_of(&self, procedure: Handle) -> Result<usize, Fault> {
        let missing = || Fault::new(FailureCode::MissingData, "the function is not on this node");
        let bad = |why: String| Fault::new(FailureCode::BadProcedure, why);
        if !procedure.is_object() || !procedure.names_tree() {
            return Err(bad("a function is [runtime, code, layers, settings]".to_owned()));
        }
        let tree = self.store.get(procedure);
        let tree = tree.map_err(|error| Fault::new(FailureCode::Resources, error.to_string()))?;
        let named = tree.ok_or_else(missing)?.as_tree().get(0).and_then(runtime_of).unwrap_or_default();
        let place = Language::ALL.into_iter().position(|language| language.runtime() == named);
        place.ok_or_else(|| bad(format!("this node has no runtime {named:?}")))
    }

    /// What makes a runtime's instances.
    fn functions(&self, place: usize) -> Result<Arc<Functions>, Fault> {
        let over = || Fault::new(FailureCode::Cancelled, "the node is shutting down");
        let (Some(cell), Some(language)) = (self.begun.get(place), Language::ALL.get(place)) else {
            return Err(over());
        };
        let mut begun = cell.lock();
        match &*begun {
            Begun::Yes(functions) => return Ok(Arc::clone(functions)),
            Begun::Failed(since, fault) if since.elapsed() < RETRY => return Err(fault.clone()),
            Begun::Over => return Err(over()),
            Begun::No | Begun::Failed(..) => {}
        }
        match self.begin(*language) {
            Ok(functions) => {
                let functions = Arc::new(functions);
                *begun = Begun::Yes(Arc::clone(&functions));
                Ok(functions)
            }
            Err(why) => {
                let name = language.name();
                let why = format!("functions in {name} cannot run on this node: {why}; see `sinew doctor`");
                let fault = Fault::new(FailureCode::Resources, why);
                *begun = Begun::Failed(Instant::now(), fault.clone());
                Err(fault)
            }
        }
    }

    fn begin(&self, language: Language) -> Result<Functions, String> {
        let mut interpreters = self.options.interpreters.iter();
        let told = interpreters.find(|(of, _)| *of == language).map(|(_, program)| program.clone());
        let options = FunctionsOptions {
            interpreter: told.unwrap_or_else(|| language.interpreter().into()),
            layers: Some(self.layers()?),
            secrets: Some(Arc::clone(&self.options.secrets) as _),
            outbound: Some(Arc::clone(&self.options.outbound) as _),
            blanks: BLANKS,
            usual_memory_bytes: USUAL_MEMORY_BYTES,
            call_timeout: CALL_MAX,
            reactor: self.options.reactor.clone(),
            ..FunctionsOptions::new(language)
        };
        let functions = Functions::new(options, self.containers()?, Arc::clone(&self.store));
        functions.map_err(|error| error.to_string())
    }

    fn containers(&self) -> Result<Arc<Runtime>, String> {
        let mut containers = self.containers.lock();
        if let Some(runtime) = &*containers {
            return Ok(Arc::clone(runtime));
        }
        let options = RuntimeOptions { init: self.options.init.clone(), ..RuntimeOptions::default() };
        let runtime = Runtime::new(options).map_err(|error| error.to_string())?;
        Ok(Arc::clone(containers.insert(runtime)))
    }

    fn layers(&self) -> Result<Arc<Layers>, String> {
        let mut layers = self.layers.lock();
        if let Some(layers) = &*layers {
            return Ok(Arc::clone(layers));
        }
        let (root, bytes_max) = (self.options.layers.clone(), self.options.layers_bytes);
        let opened = Layers::open(root, Arc::clone(&self.store), bytes_max)
            .map_err(|error| format!("{}: {error}", self.options.layers.display()))?;
        Ok(Arc::clone(layers.insert(Arc::new(opened))))
    }

    /// Begins no runtime any more, and ends those that were begun. Whoever
    /// makes or calls an instance now comes to its end first.
    pub(crate) fn close(&self) {
        for cell in &self.begun {
            let ended = std::mem::replace(&mut *cell.lock(), Begun::Over);
            drop(ended);
        }
    }

    /// Asks the runtime of each sandbox, one by one.
    fn each<T>(
        &self,
        ids: &[SandboxId],
        ask: impl Fn(&Functions, SandboxId) -> Vec<Result<T, Error>>,
    ) -> Vec<Result<T, Error>> {
        ids.iter().map(|&id| self.ask(id, |functions, inner| ask(functions, inner).pop())).collect()
    }

    /// The runtime of a sandbox.
    fn of(&self, id: SandboxId) -> Result<Arc<Functions>, Error> {
        let begun = self.begun.get((id.0 % LANGUAGES) as usize).map(|cell| cell.lock());
        match begun.as_deref() {
            Some(Begun::Yes(functions)) => Ok(Arc::clone(functions)),
            Some(Begun::No | Begun::Failed(..) | Begun::Over) | None => Err(Error::Unknown(id)),
        }
    }

    fn ask<T>(
        &self,
        id: SandboxId,
        ask: impl FnOnce(&Functions, SandboxId) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let functions = self.of(id)?;
        let answer = ask(&functions, SandboxId(id.0 / LANGUAGES)).unwrap_or(Err(Error::Unknown(id)));
        answer.map_err(|error| named(error, id))
    }
}

/// An error of a runtime, with the id that the sandbox has outside.
fn named(error: Error, id: SandboxId) -> Error {
    match error {
        Error::Unknown(_) => Error::Unknown(id),
        Error::WrongPhase { phase, request, .. } => Error::WrongPhase { id, phase, request },
        Error::WrongProcedure { expected, found, .. } => Error::WrongProcedure { id, expected, found },
        other => other,
    }
}

impl Sandbox for Runtimes {
    fn create(&self, specs: &[Spec]) -> Vec<Result<SandboxId, Error>> {
        let refused = |spec: &Spec, fault| Err(Error::Procedure { procedure: spec.procedure, fault });
        let places: Vec<Result<usize, Fault>> =
            specs.iter().map(|spec| self.place_of(spec.procedure)).collect();
        let mut answers: Vec<Option<Result<SandboxId, Error>>> = specs.iter().map(|_| None).collect();
        for place in 0..Language::ALL.len() {
            let wanted: Vec<usize> = (0..specs.len()).filter(|&index| places[index] == Ok(place)).collect();
            if wanted.is_empty() {
                continue;
            }
            let some: Vec<Spec> = wanted.iter().map(|&index| specs[index]).collect();
            let made = match self.functions(place) {
                Ok(functions) => functions.create(&some),
                Err(fault) => some.iter().map(|spec| refused(spec, fault.clone())).collect(),
            };
            let outer = |id: SandboxId| SandboxId(id.0 * LANGUAGES + place as u64);
            for (index, made) in wanted.into_iter().zip(made) {
                answers[index] = Some(made.map(outer));
            }
        }
        let answers = answers.into_iter().zip(specs).zip(places);
        let answers = answers.map(|((answer, spec), place)| match (answer, place) {
            (Some(answer), _) => answer,
            (None, Err(fault)) => refused(spec, fault),
            (None, Ok(_)) => refused(spec, Fault::new(FailureCode::Resources, "it was not made")),
        });
        answers.collect()
    }

    fn start(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |functions, id| functions.start(&[id]))
    }

    fn state(&self, ids: &[SandboxId]) -> Vec<Result<State, Error>> {
        self.each(ids, |functions, id| functions.state(&[id]))
    }

    fn memory_bytes(&self, ids: &[SandboxId]) -> Vec<Result<Option<u64>, Error>> {
        self.each(ids, |functions, id| functions.memory_bytes(&[id]))
    }

    fn kill(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |functions, id| functions.kill(&[id]))
    }

    fn delete(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |functions, id| functions.delete(&[id]))
    }

    fn begin(&self, id: SandboxId, call: Call, then: Then) {
        match self.of(id) {
            Ok(functions) => {
                let then = move |ended: Result<_, _>| then(ended.map_err(|error| named(error, id)));
                functions.begin(SandboxId(id.0 / LANGUAGES), call, Box::new(then));
            }
            Err(error) => then(Err(error)),
        }
    }

    fn invoke(&self, id: SandboxId, call: Call) -> Result<Invoked, Error> {
        self.ask(id, |functions, inner| Some(functions.invoke(inner, call)))
    }
}
