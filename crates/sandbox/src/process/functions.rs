// SPDX-License-Identifier: Apache-2.0
//! Functions of an interpreted language behind the [`Sandbox`] trait.
//!
//! A procedure is a blob of source that defines `apply`. Each sandbox has one
//! instance, made when it is created: a container of its own, and in it a
//! process forked from the template with the function loaded. Where modules
//! are imported after which nothing can be forked, it is an interpreter that
//! was started there, in advance if it may be. An instance that died is
//! replaced, container and all, by the next call.
//!
//! Arguments are the application's entries from 2 on: blobs, given as bytes.
//! Trees are not yet, and fail with `bad-handle`. Fuel is not counted, so a
//! procedure with a fuel limit cannot be created.
//!
//! A call is invoked, and waited for by its thread: one at a time, while others
//! wait in no particular order, a bounded number of them, and beyond that fail
//! with `resources`. Or it is begun, and its end is told to whoever is to hear
//! it; then as many run at once as the function says.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use foldhash::HashMap;
use objects::{FailureCode, Handle};
use parking_lot::Mutex;
use rmmap::Plan;
use store::{Object, Store};

use super::blanks::Blanks;
use super::chain::{Chain, tell_alone};
use super::channel::{Argument, Bounds};
use super::contained::Containers;
use super::debugger::Debuggee;
use super::instance::{Begun, CallEnd, Done, Instance, Made, Others, Terms};
use super::kept::{Kept, TooMuchKept};
use super::layers::Layers;
use super::options::{FunctionsOptions, Interpreter, Room};
use super::place::{Place, Places};
use super::realm::Realm;
use super::recipe::{self, Recipe};
use super::rootfs::Bind;
use super::runtime::Runtime;
use super::seat::{Control, Deadlines, Seat};
use super::starter::Starter;
use super::target::TargetTerms;
use super::template::Layout;
use crate::{
    Call, Error, Fault, Home, Invoked, Origin, Outcome, Phase, Printed, Printing, Sandbox, SandboxId, Spec,
    State, Then,
};

/// Of a request, before what others made: its id, head and body.
const REQUEST_ARGUMENTS: usize = 3;
/// Where instances cannot be forked, at least so many are kept started.
const COLD_BLANKS_MIN: usize = 2;

/// The sandboxes of a node for functions of one language.
pub struct Functions {
    options: FunctionsOptions,
    store: Arc<Store>,
    // Before what it makes instances with.
    blanks: Blanks,
    maker: Arc<Maker>,
    sandboxes: Mutex<Sandboxes>,
    deadlines: Arc<Deadlines>,
    /// What the template is in, if it loads what functions bring; after all that
    /// is in it.
    realm: Option<Arc<Realm>>,
    /// Memory of instances that have ended.
    kept: Kept,
}

/// What it takes to make an instance.
struct Maker {
    options: FunctionsOptions,
    starter: Starter,
    places: Box<dyn Places>,
}

impl Maker {
    /// A new instance without a function, in a place that nobody was in before.
    fn make_blank(&self, room: Room) -> Result<Instance, Fault> {
        self.begin(self.place(room)?, room.memory_bytes)
    }

    /// A new instance with these files. They are in their places before anybody
    /// enters: until then the place may show the files of all functions.
    fn make(&self, room: Room, files: &[Bind]) -> Result<Instance, Fault> {
        let place = self.place(room)?;
        place.attach(files).map_err(|reason| Instance::without_files(&reason))?;
        self.begin(place, room.memory_bytes)
    }

    fn place(&self, room: Room) -> Result<Box<dyn Place>, Fault> {
        let failed =
            |reason| Fault::new(FailureCode::Resources, format!("no container can be made: {reason}"));
        self.places.prepare(room).map_err(failed)
    }

    fn begin(&self, place: Box<dyn Place>, memory_bytes: u64) -> Result<Instance, Fault> {
        let options = &self.options;
        let bounds = Bounds {
            result_bytes_max: options.result_bytes_max.min(u64::from(u32::MAX)),
            log_bytes_max: options.log_bytes_max,
        };
        let (load_timeout, call_timeout) = (options.load_timeout, options.call_timeout);
        let terms = Terms { language: options.language, bounds, memory_bytes, load_timeout, call_timeout };
        match &self.starter {
            Starter::Template(nursery) => Instance::fork(nursery, place, terms),
            Starter::Cold(cold) => Instance::start(cold, place, terms),
        }
    }
}

#[derive(Default)]
struct Sandboxes {
    by_id: HashMap<SandboxId, Arc<Seat>>,
    /// Ids given to sandboxes that are being made.
    coming: usize,
    last_id: u64,
}

impl Functions {
    /// Starts the template, and begins to prepare containers.
    ///
    /// # Errors
    /// [`Error::Template`] if the template cannot serve, or the machine does
    /// not have what it takes; [`Error::NotBrought`] if it is only that what
    /// functions bring keeps it from that, or has no place here.
    pub fn new(options: FunctionsOptions, runtime: Arc<Runtime>, store: Arc<Store>) -> Result<Self, Error> {
        let (usual, ready) = (options.room(options.usual_memory_bytes), options.ready);
        let layers = options.layers.clone();
        // What is brought enters no container before its function's files are there.
        let is_shown_others = options.brought.is_some() && !runtime.abilities().is_root;
        // Without a group for memory each process has a limit for itself, in which all counts that it may write
        // to: a value that was handed over would leave it nothing.
        let values = options.values.filter(|_| runtime.abilities().limits_memory);
        let options =
            FunctionsOptions { blanks: if is_shown_others { 0 } else { options.blanks }, values, ..options };
        let (starter, realm) = Starter::new(&options, &runtime)?;
        Self::with_places(options, store, starter, realm.clone(), |prefixes| {
            let layers = layers.as_deref().map(Layers::root);
            Ok(Box::new(Containers::new(runtime, realm, prefixes, layers, usual, ready)?))
        })
    }

    /// Why instances are not forked but started one by one; `None` if they
    /// are forked.
    pub fn why_cold(&self) -> Option<&str> {
        match &self.maker.starter {
            Starter::Template(_) => None,
            Starter::Cold(cold) => Some(cold.reason()),
        }
    }

    /// Where everything lies in memory, in all instances.
    ///
    /// # Errors
    /// Why there is no such layout: instances are not forked, or the template
    /// was started again with another one. Addresses mean nothing then.
    pub fn layout(&self) -> Result<Layout, String> {
        match &self.maker.starter {
            Starter::Template(nursery) => nursery.layout(),
            Starter::Cold(cold) => Err(cold.reason().to_owned()),
        }
    }

    /// How many instances without a function wait.
    pub fn blanks(&self) -> usize {
        self.blanks.ready()
    }

    /// How many sandboxes there are, those that are being made included.
    pub fn sandboxes(&self) -> usize {
        let sandboxes = self.sandboxes.lock();
        sandboxes.by_id.len() + sandboxes.coming
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
    pub fn uncontained(options: FunctionsOptions, store: Arc<Store>) -> Result<Self, Error> {
        let starter = Starter::of_child(&options)?;
        Self::with_places(options, store, starter, None, |_| Ok(Box::new(super::place::Nowhere)))
    }

    fn with_places(
        options: FunctionsOptions,
        store: Arc<Store>,
        starter: Starter,
        realm: Option<Arc<Realm>>,
        places: impl FnOnce(&[PathBuf]) -> Result<Box<dyn Places>, String>,
    ) -> Result<Self, Error> {
        let failed = |reason| options.cannot_serve(reason);
        let mut seen = starter.interpreter().map_err(failed)?.prefixes;
        seen.extend_from_slice(&options.packages);
        let places = places(&seen).map_err(failed)?;
        let most = match starter {
            Starter::Template(_) => options.blanks,
            Starter::Cold(_) => options.blanks.max(COLD_BLANKS_MIN),
        };
        let maker = Arc::new(Maker { options: options.clone(), starter, places });
        let making = maker.clone();
        let usual = options.room(options.usual_memory_bytes);
        let make = Box::new(move || making.make_blank(usual));
        let blanks = Blanks::new(most, make).map_err(failed)?;
        let deadlines = Deadlines::new().map_err(failed)?;
        let (sandboxes, kept) = (Mutex::default(), Kept::default());
        Ok(Self { options, store, blanks, maker, realm, sandboxes, deadlines, kept })
    }

    /// The interpreter that its template has found.
    ///
    /// # Errors
    /// Why there is none now.
    pub fn interpreter(&self) -> Result<Interpreter, String> {
        self.maker.starter.interpreter()
    }

    /// Whether no instance can be made any more, and none lives: what they were
    /// made in has ended.
    pub fn is_over(&self) -> bool {
        self.realm.as_ref().is_some_and(|realm| realm.is_over())
    }

    /// Memory of the template that is no file's.
    ///
    /// # Errors
    /// What reading it says.
    pub fn template_bytes(&self) -> std::io::Result<u64> {
        let Starter::Template(nursery) = &self.maker.starter else { return Ok(0) };
        // Of what is not trusted it is its control group that counts.
        match self.realm.as_ref().map_or(0, |realm| realm.memory_bytes()) {
            0 => linux::anonymous_bytes(nursery.template().map_err(std::io::Error::other)?.pid()?),
            bytes => Ok(bytes),
        }
    }

    /// Looks, now and then, at what a template that is not trusted keeps of instances that have
    /// ended. It may be as much as the template and the instances that live may have, and all that may
    /// have been given away: what is mapped, and what the node stores. Where it is more, all ends: what
    /// that was.
    pub fn look_at_kept(&self) -> Option<TooMuchKept> {
        let (realm, brought) = (self.realm.as_ref()?, self.options.brought.as_ref()?);
        let most = || {
            let values = self.options.values.as_ref().map_or(0, Plan::bytes);
            let own = brought.memory_bytes.saturating_add(values).saturating_add(brought.stored_bytes);
            let living = self.sandboxes.lock();
            living.by_id.values().fold(own, |all, seat| all.saturating_add(seat.limits.memory_bytes))
        };
        let too_much = self.kept.look(Instant::now(), || realm.kept_bytes(), most)?;
        realm.kill();
        Some(too_much)
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
        let template = match &self.maker.starter {
            Starter::Template(nursery) => nursery.template(),
            Starter::Cold(cold) => Err(cold.reason().to_owned()),
        };
        let pid = template.and_then(|template| template.pid().map_err(|error| error.to_string()));
        pid.map_err(|reason| self.options.cannot_serve(reason))
    }

    /// Kills the template, as a crash would; the next instance has another one
    /// started. For tests.
    #[doc(hidden)]
    pub fn end_template(&self) {
        if let Starter::Template(nursery) = &self.maker.starter
            && let Ok(template) = nursery.template()
        {
            template.give_up();
        }
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
        sandboxes.by_id.insert(id, seat);
        Ok(id)
    }

    fn new_seat(&self, spec: &Spec) -> Result<Arc<Seat>, Fault> {
        if spec.limits.fuel > 0 {
            let language = self.options.language.name();
            let why = format!(
                "the instructions of a {language} function are not counted: leave the fuel limit out"
            );
            return Err(Fault::new(FailureCode::Resources, why));
        }
        let origin = match self.maker.starter {
            Starter::Template(_) => Origin::Forked,
            Starter::Cold(_) => Origin::Cold,
        };
        let seat = Arc::new(Seat::new(spec, origin, self.options.reactor.clone()));
        let instance = self.instance(&seat)?;
        seat.take(instance);
        Ok(seat)
    }

    /// A new instance for a seat, in a place that nobody was in before.
    fn instance(&self, seat: &Seat) -> Result<Instance, Fault> {
        let Self { options, store, .. } = self;
        let layers = options.layers.as_deref();
        let recipe = Recipe::of(
            seat.procedure,
            seat.limits,
            options.language,
            store,
            layers,
            options.secrets.as_deref(),
            options.debuggers.is_some(),
        )?;
        let mut room = options.room(seat.limits.memory_bytes);
        if let Some(image) = &recipe.image {
            room.cpu_percent = image.settings.cpu_percent;
            room.tmp_bytes = image.settings.tmp_bytes;
            room.disk_bytes_per_s = image.settings.disk_bytes_per_s;
        }
        let is_usual = room == options.room(options.usual_memory_bytes);
        let blank = if is_usual { self.blanks.take() } else { None };
        let mut instance = match blank {
            Some(blank) => {
                blank.attach(&recipe.binds)?;
                blank
            }
            None => self.maker.make(room, &recipe.binds)?,
        };
        if let Some(timeout) = recipe.timeout() {
            instance.limit_calls(timeout);
        }
        let calls_at_once = recipe.calls_at_once();
        if recipe.speaks_lines(options.language) {
            instance.speaks_lines();
        }
        instance.keep(recipe.layers);
        if let Some(image) = &recipe.image {
            let allowed = &image.settings.allow_hosts;
            instance.connect(options.outbound.as_deref(), seat.procedure, allowed)?;
            seat.makes_values.store(image.makes_values(), Ordering::Relaxed);
            seat.maps_values.store(image.settings.maps_values, Ordering::Relaxed);
        }
        {
            let mut control = seat.control.lock();
            control.life = Some(instance.life().clone());
            if control.state.phase == Phase::Stopped {
                return Err(Fault::new(FailureCode::Cancelled, "the sandbox was killed"));
            }
        }
        instance.load(&recipe.source, calls_at_once)?;
        if let (Some(debuggers), Some(image)) = (&options.debuggers, &recipe.image)
            && !options.language.debugger().is_empty()
        {
            debuggers.began(&image.settings.function, options.language, Debuggee::new(instance.life()));
        }
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

    /// Where a step of a workflow may put a long result. Without one it is sent.
    fn target_terms(&self, seat: &Seat, call: &Call) -> Option<TargetTerms> {
        // What comes over a line is no step's.
        if call.line.is_some() || !seat.makes_values.load(Ordering::Relaxed) {
            return None;
        }
        let plan = self.options.values.as_ref().filter(|_| seat.maps_values.load(Ordering::Relaxed));
        Some(TargetTerms { bytes: seat.limits.memory_bytes, plan: plan.cloned() })
    }

    /// The arguments of a call: its entries behind those of the procedure.
    fn arguments(&self, call: &Call) -> Result<Vec<Bytes>, Fault> {
        let mut arguments = Vec::new();
        let mut total = 0_u64;
        let start = recipe::arguments_start(call.procedure);
        for (index, handle) in call.application.as_tree().iter().enumerate().skip(start) {
            let mut bytes = self.bytes(handle).ok_or_else(|| {
                let why =
                    format!("argument {} is not a blob; a function takes only blobs so far", index - start);
                Fault::new(FailureCode::BadHandle, why)
            })?;
            // Who asks says what a body is, and could name what is others'.
            if call.procedure.names_tree() && index - start < REQUEST_ARGUMENTS {
                bytes = bytes.sent();
            }
            // What is handed over is not sent.
            total += if bytes.as_argument().descriptor.is_none() { bytes.as_slice().len() as u64 } else { 0 };
            arguments.push(bytes);
        }
        let limit = call.limits.memory_bytes.min(u64::from(u32::MAX) / 2);
        if total > limit {
            let why = format!("the arguments have {total} bytes, more than the {limit} of the memory limit");
            return Err(Fault::new(FailureCode::Memory, why));
        }
        Ok(arguments)
    }

    /// Runs an admitted call, and waits for its end.
    fn run(&self, seat: &Arc<Seat>, call: &Call) -> Result<CallEnd, Fault> {
        let arguments = self.arguments(call)?;
        let slices: Vec<Argument<'_>> = arguments.iter().map(Bytes::as_argument).collect();
        self.ensure_instance(seat)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        // Whoever waits has not left.
        let done = Box::new(move |ended| drop(sender.send(ended)));
        let others = Others::of(call, self.target_terms(seat, call));
        let begun = seat.begin(&slices, call.deadline, others, done, Vec::new());
        begun.or_else(|(ended, _)| ended.result.map(drop))?;
        if self.options.reactor.is_none() {
            seat.drive();
        }
        receiver.recv().map_err(|_| Fault::new(FailureCode::Cancelled, "the sandbox was killed"))
    }

    /// Makes an instance if the seat has none that lives.
    fn ensure_instance(&self, seat: &Arc<Seat>) -> Result<(), Fault> {
        if seat.is_killed() {
            return Err(seat.gone());
        }
        // Others wait until it is made.
        let _making = seat.making.lock();
        if !seat.has_instance() {
            let instance = self.instance(seat)?;
            seat.take(instance);
        }
        Ok(())
    }

    /// The end of a call as its outcome.
    pub(super) fn concluded(
        store: &Store,
        seat: &Seat,
        ended: Result<CallEnd, Fault>,
        is_asked_once: bool,
    ) -> Outcome {
        let (result, mut log, spent, phases) = match ended {
            Ok(CallEnd { result, log, spent, phases, .. }) => (result, log, spent, phases),
            Err(fault) => (Err(fault), Printed::default(), None, None),
        };
        for note in seat.take_notes() {
            log.add(true, format!("{note}\n").as_bytes(), Instant::now());
        }
        seat.leave(result.is_ok(), log.bytes());
        let keep = |made| match (made, is_asked_once) {
            (Made::Bytes(bytes), true) => store.pass_blob_vec(bytes),
            (Made::Bytes(bytes), false) => store.keep_blob_vec(bytes),
            (Made::Sealed(memory), true) => store.pass_sealed(memory),
            (Made::Sealed(memory), false) => store.keep_sealed(memory),
            // Only steps that are asked once make such.
            (Made::Mapped(value), _) => {
                let ticket = value.ticket().to_vec();
                store.pass_lent(ticket, value)
            }
        };
        Outcome { result: result.map(keep), fuel: 0, log, spent, phases }
    }

    /// What is done with the end of a call that nothing follows.
    fn done(&self, id: SandboxId, seat: &Arc<Seat>, is_asked_once: bool, then: Then) -> Done {
        let (store, seat) = (self.store.clone(), seat.clone());
        Box::new(move |ended: CallEnd| match ended.begun {
            Begun::Yes => then(Ok(Self::concluded(&store, &seat, Ok(ended), is_asked_once))),
            begun => {
                seat.goes_back();
                let is_recalled = begun == Begun::Recalled;
                then(Err(if is_recalled { Error::Recalled(id) } else { Error::NotBegun(id) }));
            }
        })
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

impl Drop for Functions {
    fn drop(&mut self) {
        self.blanks.stop();
        // Whoever prepares instances waits for its template no longer.
        if let Some(realm) = &self.realm {
            realm.kill();
        }
    }
}

impl Sandbox for Functions {
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
            Err(fault) => return Ok(Invoked::Done(Outcome::refused(fault))),
        };
        let _turn = seat.turns.lock();
        let ended = self.run(&seat, &call);
        Ok(Invoked::Done(Self::concluded(&self.store, &seat, ended, recipe::is_asked_once(&call))))
    }

    fn home(&self, id: SandboxId) -> Option<Home> {
        self.options.reactor.as_ref()?;
        self.seat(id).ok().map(|seat| seat.home)
    }

    fn here(&self) -> Option<Home> {
        self.options.reactor.as_ref().and_then(|reactor| reactor.here())
    }

    fn printing(&self, is_wanted: &mut dyn FnMut(&[u8], &Printed) -> bool) -> Vec<Printing> {
        let seats: Vec<Arc<Seat>> = self.sandboxes.lock().by_id.values().cloned().collect();
        seats.iter().flat_map(|seat| seat.printing(is_wanted)).collect()
    }

    fn recall(&self, id: SandboxId) {
        if let Ok(seat) = self.seat(id) {
            seat.recall();
        }
    }

    fn begin(&self, id: SandboxId, call: Call, then: Then) {
        let followers = call.followers.as_ref();
        if self.options.reactor.is_none() {
            return match self.invoke(id, call.clone()) {
                Ok(Invoked::Done(outcome)) => tell_alone(followers, outcome, then),
                Err(error) => then(Err(error)),
            };
        }
        let seat = match self.enter(id, &call) {
            Ok(Ok(seat)) => seat,
            Ok(Err(fault)) => return tell_alone(followers, Outcome::refused(fault), then),
            Err(error) => return then(Err(error)),
        };
        let is_asked_once = call.line.is_some() || recipe::is_asked_once(&call);
        let arguments = if call.line.is_some() { Ok(Vec::new()) } else { self.arguments(&call) };
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(fault) => {
                let outcome = Self::concluded(&self.store, &seat, Err(fault), is_asked_once);
                return tell_alone(followers, outcome, then);
            }
        };
        // An instance that has ended is not made anew: that takes a while, and is
        // not for whoever brings calls.
        let slices: Vec<Argument<'_>> = arguments.iter().map(Bytes::as_argument).collect();
        let (done, following) = match followers {
            Some(followers) => {
                let (store, followers) = (self.store.clone(), followers.clone());
                let chain = Chain::new((id, seat.clone()), store, is_asked_once, followers, then);
                (chain.done(0), chain.following())
            }
            None => (self.done(id, &seat, is_asked_once, then), Vec::new()),
        };
        let others = Others::of(&call, self.target_terms(&seat, &call));
        match seat.begin(&slices, call.deadline, others, done, following) {
            Ok(()) => self.deadlines.watch(&seat),
            Err((ended, done)) => done(ended),
        }
    }
}

/// Blob bytes in a handle or an object.
enum Bytes {
    Literal(Handle),
    Hashed(Object),
    /// Which is not handed over, but sent.
    Sent(Object),
}

impl Bytes {
    fn as_argument(&self) -> Argument<'_> {
        let descriptor = match self {
            Self::Literal(_) | Self::Sent(_) => None,
            Self::Hashed(object) => object.descriptor(),
        };
        Argument { bytes: self.as_slice(), descriptor }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Literal(handle) => handle.literal_bytes().unwrap_or_default(),
            Self::Hashed(object) | Self::Sent(object) => object.bytes(),
        }
    }

    /// The same without being handed over.
    fn sent(self) -> Self {
        match self {
            Self::Hashed(object) => Self::Sent(object),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
