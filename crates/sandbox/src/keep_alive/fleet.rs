// SPDX-License-Identifier: Apache-2.0
//! Serves calls with the instances that the policy keeps.
//!
//! A call runs on the thread that brings it ([`Fleet::invoke`]), or on nobody's
//! until its end is told ([`Fleet::begin`]). Threads of the fleet's own make
//! and end instances, several at once where several are wanted, and a further
//! one lets time pass: it measures, expires, evicts and pre-warms.
//!
//! The policy knows of an instance only that it is in use. Where it may serve
//! several calls at once, the fleet lets further ones join (`sharing.rs`).
//!
//! One lock guards the policy and what belongs to it. No instance is made,
//! ended, measured or called under it; only a kill happens there, so that it
//! cannot hit the call after the one that was meant.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use linux::ProcessorTime;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::decision::{
    Decision, Found, FunctionId, FunctionStats, InstanceId, PolicyOptions, Settings, Ticket,
};
use super::error::Error;
use super::policy::Policy;
use crate::{Call, Home, Invoked, Origin, Outcome, Sandbox, SandboxId, Spec, Spent};
use sharing::Sharing;

pub use cancel::Cancel;

mod cancel;
mod provision;
mod sharing;
mod threads;

/// After this, what was killed counts as lost and is no longer waited for.
const KILL_PATIENCE: Duration = Duration::from_secs(30);

/// So often a call is given to another instance, since its own ended before it
/// came to it.
const TRIES_MAX: u32 = 3;

/// How a fleet works.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// What is kept, and for how long.
    pub policy: PolicyOptions,
    /// Threads that make and end instances.
    pub makers: usize,
    /// Instances that one of them makes or ends at once.
    pub vector_max: usize,
    /// Time between looks at what is idle.
    pub tick: Duration,
    /// As many calls stand in line in an instance as take less together.
    pub brief: Duration,
    /// Tells what the processors did. Where nobody knows they are thought to be busy.
    pub processor_time: fn() -> Option<ProcessorTime>,
    /// Hears why an instance could not be made that a function is to have (see [`Fleet::provide`]).
    pub unheard: Unheard,
}

/// Hears of a function, and of why an instance of it could not be made.
pub type Hear = dyn Fn(&Spec, &crate::Error) + Send + Sync;

/// Who hears of a function what no call can hear.
#[derive(Clone)]
pub struct Unheard(pub Arc<Hear>);

impl std::fmt::Debug for Unheard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unheard")
    }
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            policy: PolicyOptions::default(),
            makers: 4,
            vector_max: 8,
            tick: Duration::from_millis(100),
            brief: Duration::from_millis(5),
            processor_time: || None,
            unheard: Unheard(Arc::new(|_, _| {})),
        }
    }
}

/// A function to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// What its instances are made for; two functions with the same are one.
    pub spec: Spec,
    /// Instances that it may have at once; at least one.
    pub instances_max: u32,
    /// Calls that one instance may serve at once; at least one.
    pub calls_at_once: u32,
    /// Further calls that may be sent to an instance which serves one at a
    /// time, to be served next, at most: where all instances are in use, as
    /// many as take less than [`FleetOptions::brief`] together.
    pub ahead: u32,
    /// How long an idle instance is kept; `None`: as for all functions.
    pub idle_max: Option<Duration>,
    /// What an instance will hold, until one has been measured; the limit of
    /// its memory if that is not known.
    pub size_hint_bytes: Option<u64>,
}

impl Function {
    /// One that may have this many instances.
    pub fn new(spec: Spec, instances_max: u32) -> Self {
        Self { spec, instances_max, calls_at_once: 1, ahead: 0, idle_max: None, size_hint_bytes: None }
    }

    fn settings(&self) -> Settings {
        let size_bytes = self.size_hint_bytes.unwrap_or(self.spec.limits.memory_bytes);
        Settings { instances_max: self.instances_max, idle_max: self.idle_max, size_bytes }
    }
}

/// In what a call ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartKind {
    /// An instance that had served before.
    Warm,
    /// An instance that was there, or being made, before the call came, and
    /// had not served yet.
    Prewarmed,
    /// An instance that was forked from a template for a call.
    Forked,
    /// An instance that was made from nothing for a call.
    Cold,
}

/// How a call came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// In what.
    pub kind: StartKind,
    /// It waited for its turn: for memory, or for another call to end, also in line in its instance.
    pub queued_ns: u64,
    /// It waited for its instance to be made.
    pub start_ns: u64,
}

impl Start {
    /// It also stood in line in its instance, for so many nanoseconds.
    fn in_line(self, ns: u64) -> Self {
        Self { queued_ns: self.queued_ns.saturating_add(ns), ..self }
    }
}

/// A function of the fleet, looked at from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionReport {
    /// What its instances are made for.
    pub spec: Spec,
    /// How it stands.
    pub stats: FunctionStats,
}

/// The fleet, looked at from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Charged for all instances now.
    pub memory_bytes: u64,
    /// The budget.
    pub memory_max_bytes: u64,
    /// Of the budget, what is kept for no instance: what they are forked from.
    pub kept_bytes: u64,
    /// Instances, those being made or ended included.
    pub instances: usize,
    /// Calls that wait.
    pub waiting: usize,
    /// The functions that are remembered, the oldest first.
    pub functions: Vec<FunctionReport>,
}

/// The instances of all functions over one kind of sandbox. Dropping it ends
/// them.
pub struct Fleet {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    sandbox: Arc<dyn Sandbox>,
    options: FleetOptions,
    began: Instant,
    state: Mutex<State>,
    /// There are instances to be made or ended.
    work: Condvar,
    /// Something came to its end.
    progress: Condvar,
}

struct State {
    policy: Policy,
    ids: HashMap<Spec, FunctionId>,
    specs: HashMap<FunctionId, Spec>,
    last_function: u64,
    last_ticket: u64,
    /// Instances that were made and not yet deleted.
    live: HashMap<InstanceId, Live>,
    turns: HashMap<Ticket, Turn>,
    starts: VecDeque<(FunctionId, InstanceId)>,
    stops: VecDeque<InstanceId>,
    /// Vectors that threads are making or ending.
    under_way: usize,
    /// Instances that may serve several calls, while they serve any.
    sharing: Sharing,
    /// What is to be done as soon as the lock is free.
    due: Vec<Due>,
    /// Ran since their memory was last measured.
    unmeasured: BTreeSet<InstanceId>,
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Live {
    sandbox: SandboxId,
    origin: Origin,
    start_ns: u64,
    home: Option<Home>,
}

/// Hears how a call ended that was begun.
pub type Told = Box<dyn FnOnce(Result<(Outcome, Start), Error>) + Send>;

/// Who hears what becomes of a call.
#[expect(clippy::large_enum_variant, reason = "nearly all are nobody's")]
enum Bringer {
    /// A thread that waits.
    Thread(Arc<Condvar>),
    /// Nobody waits; the call is begun when there is an instance, unless it is
    /// too late then.
    Nobody(Option<(Call, Told)>, Instant),
}

impl Bringer {
    /// Whether it is no call that is brought, but a line.
    fn is_line(&self) -> bool {
        matches!(self, Self::Nobody(Some((call, _)), _) if call.line.is_some())
    }
}

/// What is done without the lock.
enum Due {
    Begin { ticket: Ticket, instance: InstanceId, sandbox: SandboxId, start: Start, call: Call, told: Told },
    Refuse(Told, Error),
}

/// A call that waits or runs.
struct Turn {
    said: Said,
    bringer: Bringer,
    arrived: u64,
    /// Instances that ended before they came to it.
    tries: u32,
    /// Nobody waits for it any more: it is not begun again.
    is_left: bool,
}

impl Turn {
    fn is_killed(&self) -> bool {
        matches!(self.said, Said::Run { is_killed: true, .. })
    }
}

enum Said {
    Nothing,
    Run { instance: InstanceId, live: Live, start: Start, is_killed: bool },
    Refused(Error),
}

impl Fleet {
    /// Without any instance.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn new(options: FleetOptions, sandbox: Arc<dyn Sandbox>) -> Result<Self, Error> {
        let state = State {
            policy: Policy::new(options.policy.clone()),
            ids: HashMap::default(),
            specs: HashMap::default(),
            last_function: 0,
            last_ticket: 0,
            live: HashMap::default(),
            turns: HashMap::default(),
            sharing: Sharing::new(options.brief, options.policy.processors),
            due: Vec::new(),
            starts: VecDeque::new(),
            stops: VecDeque::new(),
            under_way: 0,
            unmeasured: BTreeSet::new(),
            is_over: false,
        };
        let shared = Arc::new(Shared {
            sandbox,
            options,
            began: Instant::now(),
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        let mut fleet = Self { shared, threads: Vec::new() };
        fleet.spawn("keep-alive", Shared::pass_time)?;
        for _ in 0..fleet.shared.options.makers.max(1) {
            fleet.spawn("instances", Shared::make_and_end)?;
        }
        Ok(fleet)
    }

    fn spawn(&mut self, name: &str, run: fn(&Arc<Shared>)) -> Result<(), Error> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.push(thread.map_err(Error::Thread)?);
        Ok(())
    }

    /// Runs a call on this thread, in an instance that is there or is made for
    /// it. Waits for one until the deadline; the call itself has the time that
    /// the sandbox gives it.
    ///
    /// # Errors
    /// Why it did not run. [`Error::Cancelled`] through `cancel`, which ends a
    /// call that runs as well: with the failure `cancelled`.
    pub fn invoke(
        &self,
        function: &Function,
        call: Call,
        deadline: Instant,
        cancel: Option<&Cancel>,
    ) -> Result<(Invoked, Start), Error> {
        let shared = &self.shared;
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        let changed = Arc::new(Condvar::new());
        let ticket = shared.arrive(function, Bringer::Thread(changed.clone()));
        let _bound = cancel.map(|cancel| cancel.bind(shared, ticket));
        let (instance, sandbox, start) = shared.wait(ticket, &changed, deadline)?;
        // Whatever happens in the sandbox, the instance is given back.
        let mut stay = Stay { shared, ticket, instance, is_alive: false, spent: None };
        let answer = shared.sandbox.invoke(sandbox, call);
        stay.is_alive = match &answer {
            Ok(Invoked::Done(outcome)) if outcome.result.is_ok() => true,
            _ => shared.is_alive(sandbox),
        };
        if let Ok(Invoked::Done(outcome)) = &answer {
            stay.spent.clone_from(&outcome.spent);
        }
        match answer {
            Ok(invoked) => Ok((invoked, start)),
            // It was killed before it got to run.
            Err(_) if stay.is_killed() => Err(Error::Cancelled),
            Err(error) => Err(Error::Invoke(error)),
        }
    }

    /// Begins a call in an instance that is there, or else as soon as there is
    /// one, until the deadline; a line at once or not at all. Its end is told once, by
    /// any thread, maybe before this returns: how it ran, or why it did not.
    pub fn begin(&self, function: &Function, call: Call, deadline: Instant, told: Told) -> Ticket {
        self.shared.arrive(function, Bringer::Nobody(Some((call, told)), deadline))
    }

    /// Whether a call of this function would begin now, in an instance that has nothing
    /// to do.
    pub fn has_idle(&self, function: &Function) -> bool {
        let state = self.shared.state.lock();
        state.ids.get(&function.spec).is_some_and(|id| state.policy.has_idle(*id))
    }

    /// Whether a function may have an instance more, and there is no memory for it.
    pub fn lacks_memory(&self, function: &Function) -> bool {
        let state = self.shared.state.lock();
        state.ids.get(&function.spec).is_some_and(|id| state.policy.lacks_memory(*id))
    }

    /// Whether a call that was begun waits for an instance.
    pub fn waits(&self, ticket: Ticket) -> bool {
        let state = self.shared.state.lock();
        state.turns.get(&ticket).is_some_and(|turn| matches!(turn.said, Said::Nothing))
    }

    /// Ends a call that was begun, whether it waits, runs, or stands in line. One that runs with
    /// others in its instance runs on, for their sake; those that only stand in line behind it go
    /// elsewhere.
    pub fn cancel(&self, ticket: Ticket) {
        self.shared.cancel(ticket);
    }

    /// Makes an instance as for a call, and keeps it for the first one: whether
    /// the function can be loaded. Waits for memory until the deadline.
    ///
    /// # Errors
    /// As [`Fleet::invoke`]; [`Error::Start`] if it cannot be loaded.
    pub fn load(&self, function: &Function, deadline: Instant) -> Result<(), Error> {
        let shared = &self.shared;
        let changed = Arc::new(Condvar::new());
        let ticket = shared.arrive(function, Bringer::Thread(changed.clone()));
        let (instance, _, start) = shared.wait(ticket, &changed, deadline)?;
        let mut state = shared.state.lock();
        let is_killed = state.turns.remove(&ticket).is_some_and(|turn| turn.is_killed());
        let found = match start.kind {
            StartKind::Warm => Found::Warm,
            StartKind::Prewarmed => Found::Prewarmed,
            StartKind::Forked | StartKind::Cold => Found::New,
        };
        let now = shared.now();
        let decisions = match state.sharing.leave(now, instance, !is_killed) {
            Some(true) => state.policy.unused(now, instance, found),
            Some(false) => state.policy.ended(now, instance, false),
            None => Vec::new(),
        };
        shared.act(&mut state, decisions);
        Ok(())
    }

    /// How things stand.
    pub fn report(&self) -> Report {
        let state = self.shared.state.lock();
        let stats = state.policy.stats();
        let functions = stats.functions.into_iter().filter_map(|stats| {
            let spec = *state.specs.get(&stats.function)?;
            Some(FunctionReport { spec, stats })
        });
        Report {
            memory_bytes: stats.memory_bytes,
            memory_max_bytes: stats.memory_max_bytes,
            kept_bytes: stats.kept_bytes,
            instances: stats.instances,
            waiting: stats.waiting,
            functions: functions.collect(),
        }
    }

    /// Takes no more calls, lets those that run come to their end within
    /// `patience`, and ends all instances. Whether none is left.
    pub fn drain(&self, patience: Duration) -> bool {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let decisions = state.policy.drain(shared.now());
        shared.act(&mut state, decisions);
        if shared.wait_until_empty(&mut state, Instant::now() + patience) {
            return true;
        }
        for turn in state.turns.values_mut() {
            if let Said::Run { live, is_killed, .. } = &mut turn.said {
                *is_killed = true;
                shared.kill(live.sandbox);
            }
        }
        shared.wait_until_empty(&mut state, Instant::now() + KILL_PATIENCE)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
        self.shared.state.lock().is_over = true;
        self.shared.work.notify_all();
        self.shared.progress.notify_all();
        for thread in self.threads.drain(..) {
            // It only ends; what it might have panicked about is told there.
            _ = thread.join();
        }
    }
}

/// The time that a call spends in an instance.
struct Stay<'a> {
    shared: &'a Arc<Shared>,
    ticket: Ticket,
    instance: InstanceId,
    is_alive: bool,
    spent: Option<Box<Spent>>,
}

impl Stay<'_> {
    fn is_killed(&self) -> bool {
        self.shared.state.lock().turns.get(&self.ticket).is_some_and(Turn::is_killed)
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        _ = self.shared.over(self.ticket, self.instance, self.is_alive, self.spent.as_deref());
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn is_alive(&self, sandbox: SandboxId) -> bool {
        matches!(self.sandbox.state(&[sandbox]).pop(), Some(Ok(state)) if state.is_alive)
    }

    /// Ends an instance whose call runs.
    fn kill(&self, sandbox: SandboxId) {
        // The only failure is that it is gone already.
        _ = self.sandbox.kill(&[sandbox]);
    }

    /// Tells the policy of a call, unless an instance in use can serve it too.
    fn arrive(self: &Arc<Self>, function: &Function, bringer: Bringer) -> Ticket {
        let here = self.sandbox.here();
        let mut state = self.state.lock();
        let id = state.id_of(function);
        state.last_ticket += 1;
        let (ticket, arrived, is_line) = (Ticket(state.last_ticket), self.now(), bringer.is_line());
        state.turns.insert(ticket, Turn { said: Said::Nothing, bringer, arrived, tries: 0, is_left: false });
        // A line has its instance for itself, at once or not at all.
        let joined = if is_line { None } else { state.joinable(arrived, id, here) };
        let decisions = match joined {
            None if is_line && !state.policy.has_idle(id) => {
                state.refuse(ticket, Error::Late);
                Vec::new()
            }
            Some(instance) => {
                state.policy.joined(arrived, id);
                state.join(arrived, ticket, instance);
                Vec::new()
            }
            None => {
                if !state.policy.has_idle(id) {
                    state.count_enough(arrived, id);
                }
                state.policy.arrive(arrived, id, function.settings(), ticket, here)
            }
        };
        self.act(&mut state, decisions);
        state.line_up(arrived, id, here);
        self.act(&mut state, Vec::new());
        if !state.policy.knows(id) {
            state.forget(id);
        }
        ticket
    }

    /// A call has left its instance. Whether it was killed.
    fn over(
        self: &Arc<Self>,
        ticket: Ticket,
        instance: InstanceId,
        is_alive: bool,
        spent: Option<&Spent>,
    ) -> bool {
        let mut state = self.state.lock();
        if let Some(spent) = spent {
            state.sharing.used(instance, spent);
        }
        let is_killed = state.turns.remove(&ticket).is_some_and(|turn| turn.is_killed());
        let is_alive = is_alive && !is_killed;
        state.unmeasured.insert(instance);
        let now = self.now();
        let decisions = state.leave(now, instance, is_alive);
        self.act(&mut state, decisions);
        is_killed
    }

    /// An instance has ended before it came to a call, or is too long at another one: some other
    /// instance shall serve it.
    fn again(
        self: &Arc<Self>,
        ticket: Ticket,
        instance: InstanceId,
        (call, told): (Call, Told),
        error: crate::Error,
    ) {
        let mut state = self.state.lock();
        let now = self.now();
        let function =
            state.policy.function_of(instance).and_then(|id| Some((id, state.policy.settings(id)?)));
        let is_recalled = matches!(error, crate::Error::Recalled(_));
        let mut decisions = match is_recalled {
            true => state.recalled(now, instance),
            false => state.leave(now, instance, false),
        };
        let abandoned = if is_recalled { state.abandoned(instance) } else { None };
        if let Some(sandbox) = abandoned {
            self.kill(sandbox);
        }
        let Some(turn) = state.turns.get_mut(&ticket) else { return self.act(&mut state, decisions) };
        turn.tries += u32::from(!is_recalled);
        let is_unwanted = turn.is_killed() || turn.is_left;
        let is_over = is_unwanted || turn.tries > TRIES_MAX || call.line.is_some();
        let Some((id, settings)) = function.filter(|_| !is_over) else {
            let error = if is_unwanted { Error::Cancelled } else { Error::Invoke(error) };
            state.turns.remove(&ticket);
            self.act(&mut state, decisions);
            drop(state);
            return told(Err(error));
        };
        turn.said = Said::Nothing;
        if let Bringer::Nobody(brought, _) = &mut turn.bringer {
            *brought = Some((call, told));
        }
        // Before anybody else is let in: it has waited already.
        let arrived = turn.arrived;
        state.count_enough(now, id);
        decisions.extend(state.policy.again(now, id, settings, ticket, arrived));
        self.act(&mut state, decisions);
    }

    /// Waits until it is said what becomes of a call.
    fn wait(
        self: &Arc<Self>,
        ticket: Ticket,
        changed: &Condvar,
        deadline: Instant,
    ) -> Result<(InstanceId, SandboxId, Start), Error> {
        let mut state = self.state.lock();
        loop {
            let Some(turn) = state.turns.get_mut(&ticket) else { return Err(Error::Cancelled) };
            match &turn.said {
                Said::Run { instance, live, start, .. } => return Ok((*instance, live.sandbox, *start)),
                Said::Refused(_) => {
                    let turn = state.turns.remove(&ticket);
                    return match turn.map(|turn| turn.said) {
                        Some(Said::Refused(error)) => Err(error),
                        _ => Err(Error::Cancelled),
                    };
                }
                Said::Nothing => {}
            }
            let is_late = changed.wait_until(&mut state, deadline).timed_out();
            if is_late && self.give_up(&mut state, ticket, Error::Late) {
                continue;
            }
        }
    }

    /// Hands decisions to those who carry them out.
    fn act(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Use { ticket, instance, found } => {
                    state.run(self.now(), ticket, instance, found);
                }
                Decision::Start { function, instance } => {
                    state.starts.push_back((function, instance));
                    self.work.notify_one();
                }
                Decision::Stop { instance, .. } => {
                    state.stops.push_back(instance);
                    self.work.notify_one();
                }
                Decision::Refuse { ticket, reason } => state.refuse(ticket, Error::refused(reason, None)),
                Decision::Forget(function) => state.forget(function),
            }
        }
        while !state.due.is_empty() {
            let due = std::mem::take(&mut state.due);
            MutexGuard::unlocked(state, || due.into_iter().for_each(|due| self.carry_out(due)));
        }
    }

    fn carry_out(self: &Arc<Self>, due: Due) {
        match due {
            Due::Refuse(told, error) => told(Err(error)),
            Due::Begin { ticket, instance, sandbox, start, call, told } => {
                let (shared, again) = (self.clone(), call.clone());
                let then = Box::new(move |outcome: Result<Outcome, crate::Error>| {
                    let outcome = match outcome {
                        Err(error) if error.is_before_the_call() => {
                            return shared.again(ticket, instance, (again, told), error);
                        }
                        outcome => outcome,
                    };
                    let is_alive = match &outcome {
                        Ok(outcome) if outcome.result.is_ok() => true,
                        _ => shared.is_alive(sandbox),
                    };
                    let spent = outcome.as_ref().ok().and_then(|outcome| outcome.spent.as_deref());
                    let spent_in_line = spent.map_or(0, |spent| spent.in_line.as_nanos() as u64);
                    let is_killed = shared.over(ticket, instance, is_alive, spent);
                    told(match outcome {
                        Ok(outcome) => Ok((outcome, start.in_line(spent_in_line))),
                        // It was killed before it got to run.
                        Err(_) if is_killed => Err(Error::Cancelled),
                        Err(error) => Err(Error::Invoke(error)),
                    });
                });
                if let Some(followers) = &call.followers {
                    followers.start(start);
                }
                self.sandbox.begin(sandbox, call, then);
            }
        }
    }

    fn wait_until_empty(&self, state: &mut MutexGuard<'_, State>, deadline: Instant) -> bool {
        while !state.policy.is_empty() {
            if self.progress.wait_until(state, deadline).timed_out() {
                return state.policy.is_empty();
            }
        }
        true
    }
}

impl State {
    /// The id of a function, which may be a new one.
    fn id_of(&mut self, function: &Function) -> FunctionId {
        let id = match self.ids.get(&function.spec) {
            Some(id) => *id,
            None => {
                self.last_function += 1;
                let id = FunctionId(self.last_function);
                self.ids.insert(function.spec, id);
                self.specs.insert(id, function.spec);
                id
            }
        };
        self.sharing.allow(id, function.calls_at_once, function.ahead);
        id
    }

    fn run(&mut self, now: u64, ticket: Ticket, instance: InstanceId, found: Found) {
        let (Some(turn), Some(&live)) = (self.turns.get_mut(&ticket), self.live.get(&instance)) else {
            return;
        };
        let is_line = turn.bringer.is_line();
        let waited = now.saturating_sub(turn.arrived);
        let (kind, start_ns) = match (found, live.origin) {
            (Found::Warm, _) => (StartKind::Warm, 0),
            (Found::Prewarmed, _) => (StartKind::Prewarmed, 0),
            (Found::New, Origin::Forked) => (StartKind::Forked, live.start_ns.min(waited)),
            (Found::New, Origin::Cold) => (StartKind::Cold, live.start_ns.min(waited)),
        };
        let start = Start { kind, queued_ns: waited - start_ns, start_ns };
        self.grant(ticket, instance, live, start);
        if let Some(function) = self.policy.function_of(instance) {
            self.sharing.begin(now, function, instance, live.home);
            if is_line {
                self.sharing.is_alone(instance);
            }
            self.fill(now, instance);
            // It may be the one that the others had waited for.
            self.line_up(now, function, live.home);
        }
    }

    /// Says to a call where it runs.
    fn grant(&mut self, ticket: Ticket, instance: InstanceId, live: Live, start: Start) {
        let Some(turn) = self.turns.get_mut(&ticket) else { return };
        turn.said = Said::Run { instance, live, start, is_killed: false };
        match &mut turn.bringer {
            Bringer::Thread(changed) => drop(changed.notify_all()),
            Bringer::Nobody(brought, _) => {
                if let Some((call, told)) = brought.take() {
                    let sandbox = live.sandbox;
                    self.due.push(Due::Begin { ticket, instance, sandbox, start, call, told });
                }
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, why: Error) {
        let Some(turn) = self.turns.get_mut(&ticket) else { return };
        match &mut turn.bringer {
            Bringer::Thread(changed) => {
                changed.notify_all();
                turn.said = Said::Refused(why);
            }
            Bringer::Nobody(brought, _) => {
                let brought = brought.take();
                self.turns.remove(&ticket);
                self.due.extend(brought.map(|(_, told)| Due::Refuse(told, why)));
            }
        }
    }

    fn forget(&mut self, id: FunctionId) {
        self.sharing.forget(id);
        if let Some(spec) = self.specs.remove(&id) {
            self.ids.remove(&spec);
        }
    }
}

#[cfg(test)]
mod tests;
