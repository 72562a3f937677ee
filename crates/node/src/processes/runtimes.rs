// SPDX-License-Identifier: Apache-2.0
//! The runtimes of a node behind one [`Sandbox`], so that one fleet has the
//! instances of all of them, with one budget.
//!
//! A runtime is a language, and the modules that its template imports: none,
//! or those that a function names, which then has a template with others that
//! name the same and bring the same layers. It is begun when the first instance of it is made: its
//! template takes a while. A sandbox's id is the one that it has there, and
//! below it the number of its runtime, which no other one ever gets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use objects::{FailureCode, Handle};
use parking_lot::Mutex;
use sandbox::process::{
    Brought, Debuggers, Functions, FunctionsOptions, Image, InterpreterFacts, Language, Layers, Plan,
    Reactor, Runtime, RuntimeOptions, TooMuchKept, runtime_of,
};
use sandbox::{Call, Error, Fault, Home, Invoked, Printed, Printing, Sandbox, SandboxId, Spec, State, Then};
use store::Store;
use tracing::warn;

use crate::outbound::Outbound;
use crate::running::TEMPLATES_SHARE;
use crate::secrets::Secrets;

mod places;

use places::{Begun, DEDICATED_MAX, NUMBER_BITS, Place, Places, Wanted};

/// How long a runtime that could not be begun is not tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The longest time that a function may ask for.
const CALL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Instances of each runtime that wait for their function.
const BLANKS: usize = 2;
/// The memory of a function whose `sinew.toml` says nothing of it.
const USUAL_MEMORY_BYTES: u64 = 256 << 20;
/// Lists of imports that are remembered to load, or not to.
const LOADABLE_MAX: usize = 1024;
/// Where runtimes find what they need.
#[derive(Debug, Clone)]
pub(crate) struct RuntimesOptions {
    /// Program and arguments of a container's init; empty: no containers.
    pub(crate) init: Vec<OsString>,
    /// Where layers are written out, if they stay when the node ends.
    pub(crate) layers: Option<PathBuf>,
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
    /// Where values of workflows are mapped.
    pub(crate) values: Plan,
    /// Who leads debuggers to functions, if these may be debugged.
    pub(crate) debuggers: Option<Arc<dyn Debuggers>>,
    /// Memory that all templates with imports may have.
    pub(crate) templates_bytes: u64,
    /// Memory of what the node stores, and has on its way there.
    pub(crate) stored_bytes: u64,
}

/// All runtimes, those that were not begun included.
pub(crate) struct Runtimes {
    options: RuntimesOptions,
    store: Arc<Store>,
    layers: Mutex<Option<Arc<Layers>>>,
    containers: Mutex<Option<Arc<Runtime>>>,
    places: Mutex<Places>,
    /// Imports that were found to load when there was no template for them.
    loadable: Mutex<HashSet<(Language, Wanted)>>,
    /// Imports that were found not to load, and why: they are not tried again at once.
    unloadable: Mutex<HashMap<(Language, Wanted), (Instant, Fault)>>,
    /// What functions bring that was found to keep a template from forking.
    not_brought: Mutex<HashSet<(Language, Wanted)>>,
    /// What interpreters have said of themselves.
    facts: Mutex<HashMap<Language, InterpreterFacts>>,
    /// Ends runtimes that are not needed any more.
    ending: Mutex<Option<JoinHandle<()>>>,
}

impl Runtimes {
    pub(crate) fn new(options: RuntimesOptions, store: Arc<Store>) -> Self {
        let places = Places::new(options.templates_bytes);
        Self {
            options,
            store,
            layers: Mutex::default(),
            containers: Mutex::default(),
            places: Mutex::new(places),
            loadable: Mutex::default(),
            unloadable: Mutex::default(),
            not_brought: Mutex::default(),
            facts: Mutex::default(),
            ending: Mutex::default(),
        }
    }

    /// The place of the runtime that a procedure names, if the node has it.
    fn place_of(&self, procedure: Handle) -> Result<Arc<Place>, Fault> {
        let missing = || Fault::new(FailureCode::MissingData, "the function is not on this node");
        let bad = |why: String| Fault::new(FailureCode::BadProcedure, why);
        if !procedure.is_object() || !procedure.names_tree() {
            return Err(bad("a function is [runtime, code, layers, settings]".to_owned()));
        }
        let tree = self.store.get(procedure);
        let tree = tree.map_err(|error| Fault::new(FailureCode::Resources, error.to_string()))?;
        let tree = tree.ok_or_else(missing)?;
        let first = tree.as_tree().get(0);
        let named = first.as_ref().and_then(runtime_of).unwrap_or_default();
        let language = Language::ALL.into_iter().find(|language| language.runtime() == named);
        let language = language.ok_or_else(|| bad(format!("this node has no runtime {named:?}")))?;
        let image = Image::read(&self.store, tree.as_tree())?;
        let owner = image.settings.owner().to_owned();
        let wanted = Wanted::new(image.settings.imports, image.layers, &owner);
        // Whoever has no name could be anybody.
        let is_nobody = wanted.function.is_empty();
        if !wanted.layers.is_empty() && (is_nobody || self.are_not_brought(language, &wanted)) {
            return self.places.lock().plain(language).ok_or_else(over);
        }
        let (place, gone) = self.places.lock().get(language, &wanted);
        // Ending a template takes a moment; others need not wait for it.
        drop(gone);
        let place = place.ok_or_else(over)?;
        if place.wanted != wanted {
            self.check_imports(language, wanted)?;
            return Ok(place);
        }
        match wanted.layers.is_empty() || self.functions(&place)?.is_some() {
            true => Ok(place),
            false => self.places.lock().plain(language).ok_or_else(over),
        }
    }

    /// Whether these have to be loaded after the fork: what could not be forked once
    /// is not tried again.
    fn are_not_brought(&self, language: Language, wanted: &Wanted) -> bool {
        self.not_brought.lock().contains(&(language, wanted.clone()))
    }

    /// Whether modules load for which there is no template now. Else a name that
    /// is wrong would be found out on another day.
    fn check_imports(&self, language: Language, wanted: Wanted) -> Result<(), Fault> {
        let wanted = (language, wanted);
        if self.loadable.lock().contains(&wanted) {
            return Ok(());
        }
        if let Some((since, fault)) = self.unloadable.lock().get(&wanted)
            && since.elapsed() < RETRY
        {
            return Err(fault.clone());
        }
        let loaded = if wanted.1.layers.is_empty() {
            let loads = language.loads(&self.interpreter(language), &wanted.1.imports);
            loads.map_err(|why| not_loaded(language, &wanted.1, &why))
        } else {
            // It is made, and ends here.
            self.begin(language, &wanted.1).map(drop)
        };
        if let Err(fault) = loaded {
            let mut unloadable = self.unloadable.lock();
            unloadable.retain(|_, (since, _)| since.elapsed() < RETRY);
            if unloadable.len() < LOADABLE_MAX {
                unloadable.insert(wanted, (Instant::now(), fault.clone()));
            }
            return Err(fault);
        }
        let mut loadable = self.loadable.lock();
        if loadable.len() >= LOADABLE_MAX {
            loadable.clear();
        }
        warn!(
            "there is no room for a template with {}: functions that name these `imports` load them when they \
             start. At most {DEDICATED_MAX} lists have templates, in {} MiB together: let functions name the \
             same list, or start the node with more (--memory)",
            wanted.1.imports.join(", "),
            self.options.templates_bytes >> 20,
        );
        loadable.insert(wanted);
        Ok(())
    }

    /// What a language's interpreter says of itself.
    ///
    /// # Errors
    /// Why it says nothing; it is asked again the next time.
    pub(super) fn facts(&self, language: Language) -> Result<InterpreterFacts, String> {
        let mut known = self.facts.lock();
        if let Some(facts) = known.get(&language) {
            return Ok(facts.clone());
        }
        let facts = language.facts(&self.interpreter(language))?;
        known.insert(language, facts.clone());
        Ok(facts)
    }

    /// The program of a language's interpreter.
    fn interpreter(&self, language: Language) -> PathBuf {
        let told = self.options.interpreters.iter().find(|(of, _)| *of == language);
        told.map_or_else(|| language.interpreter().into(), |(_, program)| program.clone())
    }

    /// What makes a runtime's instances; none if there is only the plain one for
    /// these functions.
    fn functions(&self, place: &Place) -> Result<Option<Arc<Functions>>, Fault> {
        let mut begun = place.begun.lock();
        match &*begun {
            Begun::Yes(functions) if !functions.is_over() || functions.sandboxes() > 0 => {
                return Ok(Some(Arc::clone(functions)));
            }
            Begun::Failed(since, fault) if since.elapsed() < RETRY => return Err(fault.clone()),
            Begun::NotBrought => return Ok(None),
            Begun::Over => return Err(over()),
            Begun::No | Begun::Yes(_) | Begun::Failed(..) => {}
        }
        match self.begin(place.language, &place.wanted) {
            Ok(Some(functions)) => {
                let functions = Arc::new(functions);
                place.measure(&functions);
                *begun = Begun::Yes(Arc::clone(&functions));
                Ok(Some(functions))
            }
            Ok(None) => {
                self.do_not_bring(place);
                *begun = Begun::NotBrought;
                Ok(None)
            }
            Err(fault) => {
                *begun = Begun::Failed(Instant::now(), fault.clone());
                Err(fault)
            }
        }
    }

    /// What these functions bring is loaded after the fork from now on.
    fn do_not_bring(&self, place: &Place) {
        let mut not_brought = self.not_brought.lock();
        if not_brought.len() >= LOADABLE_MAX {
            not_brought.clear();
        }
        not_brought.insert((place.language, place.wanted.clone()));
    }

    /// Measures templates again that may grow, since nobody trusts them. One that keeps too much of
    /// instances that have ended is ended, with all that it has forked. It takes no locks that calls wait for.
    fn look_at_brought(&self) {
        let brought = self.places.lock().brought();
        for place in brought {
            // Who is being begun is measured then.
            let functions = match place.begun.try_lock().as_deref() {
                Some(Begun::Yes(functions)) => Arc::clone(functions),
                _ => continue,
            };
            if let Some(TooMuchKept { bytes, most }) = functions.look_at_kept() {
                warn!(
                    "what {} imports kept {} MiB of instances that have ended, and may keep {}: all instances of it were \
                     ended, and each loads its imports itself from now on",
                    place.wanted.function,
                    bytes >> 20,
                    most >> 20,
                );
                self.do_not_bring(&place);
            }
            place.measure(&functions);
        }
    }

    /// Starts a template and what belongs to it; none if what functions bring has
    /// to be loaded after the fork.
    fn begin(&self, language: Language, wanted: &Wanted) -> Result<Option<Functions>, Fault> {
        let brought = if wanted.layers.is_empty() { None } else { Some(self.brought(language, wanted)?) };
        let options = || {
            Ok(FunctionsOptions {
                interpreter: self.interpreter(language),
                layers: Some(self.layers()?),
                secrets: Some(Arc::clone(&self.options.secrets) as _),
                outbound: Some(Arc::clone(&self.options.outbound) as _),
                values: Some(self.options.values.clone()),
                debuggers: self.options.debuggers.clone(),
                imports: wanted.imports.clone(),
                brought,
                blanks: BLANKS,
                usual_memory_bytes: USUAL_MEMORY_BYTES,
                call_timeout: CALL_MAX,
                reactor: self.options.reactor.clone(),
                ..FunctionsOptions::new(language)
            })
        };
        let begun = options().and_then(|options| Ok((options, self.containers()?)));
        let (options, containers) = begun.map_err(|why: String| not_served(language, wanted, &why))?;
        match Functions::new(options, containers, Arc::clone(&self.store)) {
            Ok(functions) => Ok(Some(functions)),
            Err(Error::NotBrought(why)) => {
                let imports = wanted.imports.join(", ");
                warn!(
                    "functions that bring {imports} load it when they start, not before they are forked: {why}"
                );
                Ok(None)
            }
            Err(error) => Err(not_served(language, wanted, &error.to_string())),
        }
    }

    /// What a template needs to know of the node's own.
    fn brought(&self, language: Language, wanted: &Wanted) -> Result<Brought, Fault> {
        let plain = self.places.lock().plain(language).ok_or_else(over)?;
        let functions = self.functions(&plain)?.ok_or_else(over)?;
        let interpreter = functions.interpreter().map_err(|why| not_served(language, wanted, &why))?;
        let memory_bytes = (self.options.templates_bytes / 2).max(USUAL_MEMORY_BYTES);
        let instances_bytes = self.options.templates_bytes.saturating_mul(TEMPLATES_SHARE).max(memory_bytes);
        // What they have made and the node stores is charged to them.
        let stored_bytes = self.options.stored_bytes;
        let all_bytes = instances_bytes.saturating_add(stored_bytes);
        Ok(Brought { layers: wanted.layers.clone(), interpreter, memory_bytes, all_bytes, stored_bytes })
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
        let elsewhere = || std::env::temp_dir().join(format!("sinew-layers-{}", std::process::id()));
        let root = self.options.layers.clone().unwrap_or_else(elsewhere);
        let open = if self.options.layers.is_some() { Layers::open } else { Layers::temporary };
        let opened = open(&root, Arc::clone(&self.store), self.options.layers_bytes)
            .map_err(|error| format!("{}: {error}", root.display()))?;
        Ok(Arc::clone(layers.insert(Arc::new(opened))))
    }

    /// Begins no runtime any more, and ends those that were begun. Whoever
    /// makes or calls an instance now comes to its end first.
    pub(crate) fn close(&self) {
        let places: Vec<_> = {
            let mut places = self.places.lock();
            places.is_over = true;
            places.by_number.values().cloned().collect()
        };
        for place in places {
            let ended = std::mem::replace(&mut *place.begun.lock(), Begun::Over);
            drop(ended);
        }
        if let Some(thread) = self.ending.lock().take() {
            // It only ends; what it might have panicked about is told there.
            _ = thread.join();
        }
    }

    /// Ends the templates that nothing needs any more. That may take seconds, for
    /// which the fleet need not wait.
    fn end_unneeded(&self) {
        let mut ending = self.ending.lock();
        if ending.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let unneeded = self.places.lock().take_unneeded(Instant::now());
        if !unneeded.is_empty() {
            let thread = thread::Builder::new().name("runtimes-end".to_owned());
            // Where there is no thread to be had they have ended here.
            *ending = thread.spawn(move || drop(unneeded)).ok();
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
        let place = self.places.lock().by_number.get(&(id.0 & ((1 << NUMBER_BITS) - 1))).cloned();
        let place = place.ok_or(Error::Unknown(id))?;
        let begun = place.begun.lock();
        match &*begun {
            Begun::Yes(functions) => Ok(Arc::clone(functions)),
            Begun::No | Begun::Failed(..) | Begun::NotBrought | Begun::Over => Err(Error::Unknown(id)),
        }
    }

    fn ask<T>(
        &self,
        id: SandboxId,
        ask: impl FnOnce(&Functions, SandboxId) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let functions = self.of(id)?;
        let answer = ask(&functions, inner(id)).unwrap_or(Err(Error::Unknown(id)));
        answer.map_err(|error| named(error, id))
    }
}

/// The id that a sandbox has in its runtime.
fn inner(id: SandboxId) -> SandboxId {
    SandboxId(id.0 >> NUMBER_BITS)
}

fn not_loaded(language: Language, wanted: &Wanted, why: &str) -> Fault {
    let name = language.name();
    let whose = if wanted.layers.is_empty() {
        format!("modules of this node's own {name}")
    } else {
        format!("modules of its requirements or of this node's own {name}")
    };
    let why = format!("what the function names as `imports`, {whose}, is not loaded: {why}");
    Fault::new(FailureCode::Resources, why)
}

fn not_served(language: Language, wanted: &Wanted, why: &str) -> Fault {
    if !wanted.is_nothing() {
        return not_loaded(language, wanted, why);
    }
    let name = language.name();
    let why = format!("functions in {name} cannot run on this node: {why}; see `sinew doctor`");
    Fault::new(FailureCode::Resources, why)
}

fn over() -> Fault {
    Fault::new(FailureCode::Cancelled, "the node is shutting down")
}

/// An error of a runtime, with the id that the sandbox has outside.
fn named(error: Error, id: SandboxId) -> Error {
    match error {
        Error::Unknown(_) => Error::Unknown(id),
        Error::WrongPhase { phase, request, .. } => Error::WrongPhase { id, phase, request },
        Error::WrongProcedure { expected, found, .. } => Error::WrongProcedure { id, expected, found },
        Error::NotBegun(_) => Error::NotBegun(id),
        Error::Recalled(_) => Error::Recalled(id),
        other => other,
    }
}

impl Sandbox for Runtimes {
    fn create(&self, specs: &[Spec]) -> Vec<Result<SandboxId, Error>> {
        let refused = |spec: &Spec, fault| Err(Error::Procedure { procedure: spec.procedure, fault });
        let places: Vec<Result<Arc<Place>, Fault>> =
            specs.iter().map(|spec| self.place_of(spec.procedure)).collect();
        let mut answers: Vec<Option<Result<SandboxId, Error>>> = specs.iter().map(|_| None).collect();
        let distinct: BTreeMap<u64, &Arc<Place>> =
            places.iter().flatten().map(|place| (place.number, place)).collect();
        for (number, place) in distinct {
            let is_there = |index: &usize| places[*index].as_ref().is_ok_and(|place| place.number == number);
            let wanted: Vec<usize> = (0..specs.len()).filter(is_there).collect();
            let some: Vec<Spec> = wanted.iter().map(|&index| specs[index]).collect();
            let made = match self.functions(place).and_then(|functions| functions.ok_or_else(over)) {
                Ok(functions) => {
                    let made = functions.create(&some);
                    place.tell_layout(&functions);
                    made
                }
                Err(fault) => some.iter().map(|spec| refused(spec, fault.clone())).collect(),
            };
            let outer = |id: SandboxId| SandboxId(id.0 << NUMBER_BITS | number);
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

    fn kept_bytes(&self) -> u64 {
        self.end_unneeded();
        self.look_at_brought();
        self.places.lock().bytes()
    }

    fn printing(&self, is_wanted: &mut dyn FnMut(&[u8], &Printed) -> bool) -> Vec<Printing> {
        let places: Vec<Arc<Place>> = self.places.lock().by_number.values().cloned().collect();
        // One that is just begun has printed nothing.
        let begun = places.iter().filter_map(|place| match &*place.begun.try_lock()? {
            Begun::Yes(functions) => Some(Arc::clone(functions)),
            _ => None,
        });
        let begun: Vec<Arc<Functions>> = begun.collect();
        begun.iter().flat_map(|functions| functions.printing(is_wanted)).collect()
    }

    fn kill(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |functions, id| functions.kill(&[id]))
    }

    fn delete(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>> {
        self.each(ids, |functions, id| functions.delete(&[id]))
    }

    fn home(&self, id: SandboxId) -> Option<Home> {
        self.of(id).ok()?.home(inner(id))
    }

    fn here(&self) -> Option<Home> {
        self.options.reactor.as_ref()?.here()
    }

    fn recall(&self, id: SandboxId) {
        if let Ok(functions) = self.of(id) {
            functions.recall(inner(id));
        }
    }

    fn begin(&self, id: SandboxId, call: Call, then: Then) {
        match self.of(id) {
            Ok(functions) => {
                let then = move |ended: Result<_, _>| then(ended.map_err(|error| named(error, id)));
                functions.begin(inner(id), call, Box::new(then));
            }
            Err(error) => then(Err(error)),
        }
    }

    fn invoke(&self, id: SandboxId, call: Call) -> Result<Invoked, Error> {
        self.ask(id, |functions, inner| Some(functions.invoke(inner, call)))
    }
}

#[cfg(test)]
mod tests;
