// SPDX-License-Identifier: Apache-2.0
//! Applications whose procedures run in processes of their own.
//!
//! Whoever walks hands such an application over and goes on. It is given to an
//! instance at once, or waits for one in the fleet; its end resumes the job, on
//! the thread that reads the instance's answer. One fleet has the instances of
//! all runtimes; it is begun when it is first needed.

mod following;
mod images;
mod lines;
mod nested;
mod reports;
mod runtimes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evaluator::{Charge, Cost, Event, JobId, Outcome, Request};
use foldhash::HashMap;
use gateway::{CallReport, EgressCounts, Instances, Served};
use objects::{Failure, FailureCode, Handle, Limits, TreeView};
use parking_lot::{Mutex, RwLock};
use sandbox::keep_alive::{
    self, Fleet, FleetOptions, Function, PolicyOptions, Start, StartKind, Ticket, Told, Unheard,
};
use sandbox::process::{Image, InterpreterFacts, Language, runtime_of};
use sandbox::{Call, Callees, Changes, Fault, Sandbox, Spec};
use store::{Object, Store};

use crate::Scheduler;
use crate::feeds::{Feeds, Intake};
use crate::reactor::Traffic;
use crate::visitors::{Visiting, Visitors};
use following::{Followed, Following};
pub(crate) use images::Images;
use lines::Lines;
use nested::Nested;
use reports::Reports;
use runtimes::Runtimes;
pub(crate) use runtimes::RuntimesOptions;

/// Applications of one function under way at once, those that wait for an
/// instance included.
const UNDER_WAY_MAX: usize = 4096;
/// Procedures that serve no more, of which is known that nobody expects them.
const RETIRED_MAX: usize = 1024;
/// The longest wait for the memory of an instance that is only to be loaded.
const LOAD_MAX: Duration = Duration::from_secs(60);
/// How long a deployment waits for the instances that a function is to have, also where none is being made; and how
/// often it looks.
const LEAST_WITHIN: Duration = Duration::from_secs(30);
const LEAST_PAUSE: Duration = Duration::from_secs(2);
const LEAST_LOOK: Duration = Duration::from_millis(5);
/// How long calls that run may go on when the node shuts down.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// A bit of the fourth byte of a result, which says that it passes.
const PASSING: u8 = 0x80;
const STOPPED: &str = "nobody waits for it any more; it did not run";
/// What an image is, in an application: entries 1 to 4.
const IMAGE_ENTRIES: usize = 4;
/// Where the request's id stands, which a pure function does without.
const REQUEST_INDEX: usize = 1 + IMAGE_ENTRIES;

/// How processes are run.
#[derive(Debug, Clone)]
pub(crate) struct ProcessOptions {
    /// What their runtimes need.
    pub(crate) runtimes: RuntimesOptions,
    /// Memory of all instances.
    pub(crate) memory_bytes: u64,
    /// What is under way, for the event loop.
    pub(crate) traffic: Arc<Traffic>,
}

/// The instances of all runtimes, and the threads that wait for them.
pub(crate) struct Processes {
    options: ProcessOptions,
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    runtimes: Arc<Runtimes>,
    fleet: Mutex<Begun>,
    expected: RwLock<Expectations>,
    reports: Mutex<Reports>,
    under_way: Mutex<UnderWay>,
    visiting: Visiting,
    nested: Nested,
    lines: Lines,
    /// Of which versions serve, and with what.
    changes: Changes,
    feeds: Arc<Feeds>,
    followed: Followed,
}

/// What a deployment says of its procedure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// Instances at most.
    pub(crate) concurrency: u32,
    /// Requests that may wait for one.
    pub(crate) waiting: u32,
    /// Instances that it has at least while it serves, also when nobody calls it.
    pub(crate) least: u32,
    /// How long an idle instance is kept.
    pub(crate) idle: Option<Duration>,
    /// Requests that one instance serves at once.
    pub(crate) calls_at_once: u32,
    /// Requests that may be sent to it besides, to be served next.
    pub(crate) ahead: u32,
    /// Of one call, waiting included; `None`: as its settings say.
    pub(crate) timeout: Option<Duration>,
    /// Bodies of requests come to it while it serves them.
    pub(crate) streams_body: bool,
    /// What functions have in common that may be called within an instance of one another.
    pub(crate) together: Option<Handle>,
}

impl Expected {
    /// Applications of it that can run at once.
    fn places(&self) -> usize {
        self.concurrency as usize * self.calls_at_once as usize
    }

    /// As the fleet is to serve it.
    fn function(&self, procedure: Handle, limits: Limits) -> Function {
        let function = Function::new(Spec { procedure, limits }, self.concurrency);
        let Self { idle: idle_max, calls_at_once, ahead, .. } = *self;
        Function { idle_max, calls_at_once, ahead, ..function }
    }
}

impl Default for Expected {
    fn default() -> Self {
        Self {
            concurrency: 16,
            waiting: 256,
            least: 0,
            idle: None,
            calls_at_once: 1,
            ahead: 0,
            timeout: None,
            streams_body: false,
            together: None,
        }
    }
}

/// What is said of procedures.
#[derive(Default)]
struct Expectations {
    by_procedure: HashMap<Handle, Expected>,
    /// Those that serve no more, the oldest first. Requests that began with
    /// them may still come.
    retired: VecDeque<Handle>,
}

/// The fleet, if it was begun.
#[derive(Default)]
enum Begun {
    #[default]
    No,
    Yes(Arc<Fleet>),
    Over,
}

/// Applications that were taken over, and have not ended.
#[derive(Default)]
struct UnderWay {
    by_job: HashMap<JobId, Taken>,
    by_procedure: HashMap<Handle, usize>,
    is_over: bool,
}

/// One that can be stopped.
struct Taken {
    request: Option<u64>,
    /// Where it waits or runs, once that is known.
    ticket: Option<(Arc<Fleet>, Ticket)>,
    is_stopped: bool,
}

/// An application that a worker handed over.
struct Application {
    job: JobId,
    thunk: Handle,
    data: Object,
    limits: Limits,
    begun: Instant,
    /// The function's own tree.
    procedure: Handle,
    /// What its deployment says, when it came.
    expected: Expected,
    /// For whom it is; nobody can stop it if there is none.
    request: Option<Arc<Request>>,
}

impl Application {
    fn request_id(&self) -> Option<u64> {
        self.request.as_ref().map(|request| request.id())
    }

    /// Why nobody wants it any more, if so.
    fn stopped(&self) -> Option<FailureCode> {
        self.request.as_ref().and_then(|request| request.stopped())
    }
}

impl Processes {
    pub(crate) fn new(options: ProcessOptions, store: Arc<Store>, scheduler: Arc<Scheduler>) -> Arc<Self> {
        let runtimes = Arc::new(Runtimes::new(options.runtimes.clone(), Arc::clone(&store)));
        Arc::new(Self {
            options,
            store,
            scheduler,
            runtimes,
            fleet: Mutex::default(),
            expected: RwLock::default(),
            reports: Mutex::default(),
            under_way: Mutex::default(),
            visiting: Visiting::default(),
            nested: Nested::default(),
            lines: Lines::default(),
            changes: Changes::default(),
            feeds: Arc::default(),
            followed: Followed::default(),
        })
    }

    /// Those who walk on their own threads hear of ends here.
    pub(crate) fn welcome(&self, visitors: &Arc<Visitors>) {
        self.visiting.set(visitors);
    }

    /// Memory of all instances.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.options.memory_bytes
    }

    /// Memory that there can be for an instance of another function while one of this procedure is there: what that
    /// holds, and what all are forked from, is nobody else's.
    pub(crate) fn room_beside(&self, procedure: Handle) -> u64 {
        let Some(fleet) = self.known_fleet() else { return self.memory_bytes() };
        let report = fleet.report();
        let own = report.functions.iter().find(|found| found.spec.procedure == procedure);
        let own_bytes = own.map_or(0, |own| {
            let keep_alive::FunctionStats { held_bytes, idle, busy, starting, .. } = own.stats;
            held_bytes / u64::from(idle + busy + starting).max(1)
        });
        report.memory_max_bytes.saturating_sub(report.kept_bytes + own_bytes)
    }

    /// Has a procedure run as its deployment says.
    pub(crate) fn expect(&self, procedure: Handle, expected: Expected) {
        let mut expectations = self.expected.write();
        expectations.retired.retain(|retired| *retired != procedure);
        expectations.by_procedure.insert(procedure, expected);
    }

    /// Has a procedure have the instances that it is to have at least, which are made now; none that does not serve.
    pub(crate) fn provide(&self, procedure: Handle, limits: Limits, expected: &Expected, serves: bool) {
        let least = if serves { expected.least } else { 0 };
        let fleet = match least {
            0 => self.known_fleet(),
            _ => self
                .fleet()
                .inspect_err(|fault| {
                    tracing::warn!(detail = fault.detail, "no instances are made before a call comes")
                })
                .ok(),
        };
        if let Some(fleet) = fleet {
            fleet.provide(&expected.function(procedure, limits), least);
        }
    }

    /// Waits until a procedure has the instances that it is to have at least, or so many as there will be: for as long as
    /// some are being made, and not for ever.
    pub(crate) fn await_least(&self, procedure: Handle, limits: Limits, expected: &Expected) {
        let Some(fleet) = self.known_fleet().filter(|_| expected.least > 0) else { return };
        let spec = Spec { procedure, limits };
        let begun = Instant::now();
        let (mut most, mut since) = (0, begun);
        while begun.elapsed() < LEAST_WITHIN && since.elapsed() < LEAST_PAUSE {
            let (there, starting) = fleet.ready_of(&spec);
            if there >= expected.least {
                return;
            }
            if there > most || starting > 0 {
                (most, since) = (there, Instant::now());
            }
            std::thread::sleep(LEAST_LOOK);
        }
    }

    /// Its calls wait for those of other functions, which may need it again: none
    /// may stand in line behind the one that waits for it.
    fn waits_for_others(&self, procedure: Handle) {
        if self.expected(procedure).ahead > 0
            && let Some(expected) = self.expected.write().by_procedure.get_mut(&procedure)
        {
            expected.ahead = 0;
        }
    }

    /// A procedure serves no more: its instances end, each after the last call
    /// that needs it.
    pub(crate) fn retire(&self, procedure: Handle) {
        let mut expectations = self.expected.write();
        let Expectations { by_procedure, retired } = &mut *expectations;
        if let Some(expected) = by_procedure.get_mut(&procedure) {
            expected.idle = Some(Duration::ZERO);
            retired.push_back(procedure);
        }
        while retired.len() > RETIRED_MAX
            && let Some(oldest) = retired.pop_front()
        {
            by_procedure.remove(&oldest);
        }
        drop(expectations);
        self.lines.recall(procedure);
        if let Some(fleet) = self.known_fleet() {
            fleet.retire(procedure);
        }
    }

    /// What a procedure's instances were made with has changed.
    pub(crate) fn renew(&self, procedure: Handle) {
        self.changes.note();
        self.lines.recall(procedure);
        if let Some(fleet) = self.known_fleet() {
            fleet.renew(procedure);
        }
    }

    /// What is said of a procedure now.
    pub(crate) fn expected(&self, procedure: Handle) -> Expected {
        self.expected.read().by_procedure.get(&procedure).copied().unwrap_or_default()
    }

    /// Instances of a function now.
    pub(crate) fn instances(&self, served: &Served) -> Instances {
        let Some(fleet) = self.known_fleet() else { return Instances::default() };
        let report = fleet.report();
        // Of several limits, if these have changed.
        let found = report.functions.iter().filter(|found| found.spec.procedure == served.procedure);
        found.fold(Instances::default(), |sum, found| Instances {
            idle: sum.idle + u64::from(found.stats.idle),
            busy: sum.busy + u64::from(found.stats.busy),
            starting: sum.starting + u64::from(found.stats.starting),
            cold_starts: sum.cold_starts + found.stats.counts.cold,
        })
    }

    /// What runs functions of a language.
    ///
    /// # Errors
    /// Why nothing does.
    pub(crate) fn interpreter(&self, language: Language) -> Result<InterpreterFacts, String> {
        self.runtimes.facts(language)
    }

    /// What a function's instances did outside.
    pub(crate) fn egress(&self, served: &Served) -> Option<EgressCounts> {
        self.options.runtimes.outbound.counts(served.procedure)
    }

    /// Where the body of an application goes that will come while it runs.
    pub(crate) fn intake(&self, application: Handle) -> Intake {
        self.feeds.open(application)
    }

    /// How an application ran; it is told once.
    pub(crate) fn take_report(&self, application: Handle) -> Option<CallReport> {
        self.reports.lock().take(application)
    }

    /// What calls that run have printed so far, if it is wanted.
    pub(crate) fn printing(
        &self,
        is_wanted: &mut dyn FnMut(&[u8], gateway::SoFar) -> bool,
    ) -> Vec<gateway::Printing> {
        let mut asked = |head: &[u8], printed: &sandbox::Printed| is_wanted(head, reports::so_far(printed));
        self.runtimes.printing(&mut asked).into_iter().map(reports::printing).collect()
    }

    /// Takes an application over, if its procedure names a runtime; its job is
    /// resumed with the outcome.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        job: JobId,
        thunk: Handle,
        application: &objects::Application<'_>,
        data: &Object,
        request: Option<&Arc<Request>>,
        images: &mut Images,
    ) -> bool {
        let objects::Application { limits, procedure, .. } = *application;
        if runtime_of(&procedure).is_none() {
            return false;
        }
        // The function's tree is what its instances are known by.
        let image = TreeView::from_checked(data).range(1, REQUEST_INDEX);
        let procedure = image.map_or(procedure, |image| images.name(image));
        let application = Application {
            job,
            thunk,
            data: data.clone(),
            limits,
            begun: Instant::now(),
            procedure,
            expected: self.expected(procedure),
            request: request.cloned(),
        };
        let claimed = self.followed.claimed(thunk);
        match (self.enter(&application, claimed.is_some()), claimed) {
            (Ok(()), None) => self.begin(application),
            (Ok(()), Some((following, place))) => {
                if let Some(application) = following.claim(place, application) {
                    self.begin(application);
                }
            }
            (Err(fault), _) => self.end(&application, Err(fault), false, Duration::ZERO),
        }
        true
    }

    /// Counts an application that comes, or says why it may not: also one too many, if it is not under way already.
    fn enter(&self, application: &Application, has_begun: bool) -> Result<(), Fault> {
        let procedure = application.procedure;
        let mut under_way = self.under_way.lock();
        if under_way.is_over {
            return Err(Fault::new(FailureCode::Cancelled, "the node is shutting down"));
        }
        if let Some(code) = application.stopped() {
            // Whoever stopped it looked here before it came.
            return Err(Fault::new(code, STOPPED));
        }
        let expected = &application.expected;
        let most = (expected.places() + expected.waiting as usize).min(UNDER_WAY_MAX);
        let now = under_way.by_procedure.entry(procedure).or_default();
        if *now >= most && !has_begun {
            let why = format!("{now} requests of this function run or wait already; try again later");
            return Err(Fault::new(FailureCode::Resources, why));
        }
        *now += 1;
        let taken = Taken { request: application.request_id(), ticket: None, is_stopped: false };
        under_way.by_job.insert(application.job, taken);
        self.options.traffic.comes();
        Ok(())
    }

    /// Whether one more application of this procedure would find a place, as far
    /// as its concurrency goes.
    pub(crate) fn has_place(&self, procedure: Handle) -> bool {
        let (places, on_lines) = (self.expected(procedure).places(), self.lines.in_use(procedure));
        let now = self.under_way.lock().by_procedure.get(&procedure).copied().unwrap_or_default();
        now + on_lines < places
    }

    /// Has functions call each other by this.
    pub(crate) fn connect(&self, calls: gateway::NestedCalls) {
        self.nested.connect(calls);
    }

    /// Ends what runs or waits here for a request, which was marked as stopped
    /// before.
    pub(crate) fn stop(&self, request: u64) {
        let mut under_way = self.under_way.lock();
        let its = under_way.by_job.values_mut().filter(|taken| taken.request == Some(request));
        let tickets = its.filter_map(|taken| {
            taken.is_stopped = true;
            taken.ticket.clone()
        });
        let tickets: Vec<(Arc<Fleet>, Ticket)> = tickets.collect();
        drop(under_way);
        for (fleet, ticket) in tickets {
            fleet.cancel(ticket);
        }
    }

    /// `used`: processor time, or as near to it as is known.
    fn end(
        &self,
        application: &Application,
        result: Result<Handle, Fault>,
        is_lasting: bool,
        used: Duration,
    ) {
        let charge = Charge { uncounted_nanos: used.as_nanos() as u64, ..Charge::default() };
        let cost = Cost { nanos: application.begun.elapsed().as_nanos() as u64, fuel: 0, charge };
        let result = result.unwrap_or_else(|fault| {
            // Not remembered, so that nobody can ask for it again.
            let detail = self.store.pass_blob(fault.detail.as_bytes());
            let (failure, tree) =
                Failure { code: fault.code, application: application.thunk, detail }.to_tree();
            self.store.pass_tree(tree.view());
            failure
        });
        let event = Event::Applied(Outcome { result, cost, is_lasting });
        self.visiting.deliver(&self.scheduler, application.job, event);
    }

    /// Has it run; its end comes later.
    fn begin(self: &Arc<Self>, application: Application) {
        let prepared = self.prepared(&application);
        let (fleet, function, call, deadline) = match prepared {
            Ok(prepared) => prepared,
            Err(fault) => return self.leave(&application, Err(fault), Duration::ZERO),
        };
        let (job, following) = (application.job, self.followed.take(application.thunk));
        let call = Call { followers: following.clone().map(|following| following as _), ..call };
        let told = self.told(application, following.clone());
        let ticket = fleet.begin(&function, call, deadline, told);
        if self.lines.are_any() && fleet.waits(ticket) {
            self.make_way(&fleet, &function);
        }
        if let Some(following) = following {
            following.is_at(&fleet, ticket);
        }
        self.is_at(job, (fleet, ticket));
    }

    /// What is done with the end of an application, or of what follows it.
    fn told(self: &Arc<Self>, application: Application, following: Option<Arc<Following>>) -> Told {
        let Some(following) = following else {
            let processes = Arc::clone(self);
            return Box::new(move |ended| match ended {
                Ok((outcome, start)) => {
                    processes.concluded(&application, (start_word(start.kind), start), outcome);
                }
                Err(error) => processes.leave(&application, Err(fault_of(error)), Duration::ZERO),
            });
        };
        following.begins(application);
        Box::new(move |ended| following.over(ended.map(|(_, start)| start)))
    }

    /// An application runs or waits there; it may have ended, or been stopped, by now.
    fn is_at(&self, job: JobId, at: (Arc<Fleet>, Ticket)) {
        let mut under_way = self.under_way.lock();
        let Some(taken) = under_way.by_job.get_mut(&job) else { return };
        taken.ticket = Some(at.clone());
        let is_stopped = taken.is_stopped;
        drop(under_way);
        if is_stopped {
            let (fleet, ticket) = at;
            fleet.cancel(ticket);
        }
    }

    /// An application has ended in an instance to which it came in this way.
    fn concluded(&self, application: &Application, came: (&'static str, Start), outcome: sandbox::Outcome) {
        let mut outcome = outcome;
        let used = outcome.spent.as_deref().map_or(Duration::ZERO, |spent| {
            spent.cpu.unwrap_or_else(|| spent.running.saturating_sub(spent.waiting))
        });
        self.report(application, came, &mut outcome);
        self.leave(application, outcome.result, used);
    }

    /// An application has ended. What every later run must end with as well is
    /// told: a process sees clocks and random numbers, and even what a pure one
    /// fails of, or says to be a passing answer, may go away.
    fn leave(&self, application: &Application, result: Result<Handle, Fault>, used: Duration) {
        {
            let mut under_way = self.under_way.lock();
            under_way.by_job.remove(&application.job);
            under_way.leave(application.procedure);
        }
        self.options.traffic.goes();
        let tree = TreeView::from_checked(&application.data);
        let is_pure = tree.get(REQUEST_INDEX).and_then(|id| id.literal_bytes().map(<[u8]>::is_empty));
        let result = result.map_err(|fault| match application.stopped() {
            Some(code) if fault.code == FailureCode::Cancelled => Fault { code, ..fault },
            _ => fault,
        });
        let is_lasting =
            is_pure == Some(true) && result.as_ref().is_ok_and(|&result| !self.is_passing(result));
        self.end(application, result, is_lasting, used);
    }

    /// Keeps how it ran, for whoever asks.
    fn report(
        &self,
        application: &Application,
        (word, start): (&'static str, Start),
        outcome: &mut sandbox::Outcome,
    ) {
        let report = CallReport {
            start: word,
            queued: Duration::from_nanos(start.queued_ns),
            starting: Duration::from_nanos(start.start_ns),
            // What follows another one may have begun before it was asked for.
            whole: outcome
                .spent
                .as_deref()
                .map_or(Duration::ZERO, |spent| spent.running)
                .max(application.begun.elapsed()),
            log: reports::printed(std::mem::take(&mut outcome.log)),
            spent: outcome.spent.as_deref().map(reports::told),
            phases: outcome.phases.take().map(|phases| reports::phases(*phases)),
        };
        self.reports.lock().keep(application.thunk, report);
    }

    /// Whether an answer says of itself that it is not to be remembered.
    fn is_passing(&self, result: Handle) -> bool {
        let is_marked = |bytes: &[u8]| bytes.get(3).is_some_and(|byte| byte & PASSING != 0);
        match result.literal_bytes() {
            Some(bytes) => is_marked(bytes),
            None => self.store.local(result).is_some_and(|bytes| is_marked(&bytes)),
        }
    }

    /// All that it takes to have it run.
    fn prepared(
        self: &Arc<Self>,
        application: &Application,
    ) -> Result<(Arc<Fleet>, Function, Call, Instant), Fault> {
        let (procedure, limits) = (application.procedure, application.limits);
        // One for waiting and running together.
        let deadline = application.begun + self.timeout(application)?;
        if Instant::now() >= deadline {
            let why = "it waited for longer than its timeout; it did not run";
            return Err(Fault::new(FailureCode::Deadline, why));
        }
        let body = if application.expected.streams_body { self.feeds.take(application.thunk) } else { None };
        let caller = self.nested.caller(self, application, deadline, body);
        let call = Call {
            application: application.data.clone(),
            handle: application.thunk.definition(),
            limits,
            procedure,
            deadline: Some(deadline),
            followers: None,
            callees: caller.clone().map(|caller| caller as _),
            audience: caller.map(|caller| caller as _),
            line: None,
        };
        Ok((self.fleet()?, application.expected.function(procedure, limits), call, deadline))
    }

    /// Who makes the calls of other functions for one that is under way.
    fn callees_of(self: &Arc<Self>, application: &Application) -> Option<Arc<dyn Callees>> {
        let deadline = application.begun + self.timeout(application).ok()?;
        self.nested.caller(self, application, deadline, None).map(|caller| caller as _)
    }

    /// What its deployment says; what was not deployed is looked at.
    fn timeout(&self, application: &Application) -> Result<Duration, Fault> {
        if let Some(timeout) = application.expected.timeout {
            return Ok(timeout);
        }
        let Some(image) = TreeView::from_checked(&application.data).range(1, REQUEST_INDEX) else {
            let why = "a function is [limits, runtime, code, layers, settings, argument…]";
            return Err(Fault::new(FailureCode::BadProcedure, why));
        };
        self.store.keep_tree(image);
        Ok(Image::read(&self.store, image)?.settings.timeout)
    }

    /// Whether a function can be loaded: an instance is made, within the memory
    /// of all, and kept for the first request if one may be kept.
    ///
    /// # Errors
    /// Why not: what its own code says, or that the runtime cannot work here.
    pub(crate) fn load(&self, procedure: Handle, limits: Limits, expected: &Expected) -> Result<(), Fault> {
        let function = Function::new(Spec { procedure, limits }, expected.concurrency);
        let function = Function { idle_max: expected.idle, ..function };
        self.lines.recall_named(None);
        let fleet = self.fleet()?;
        let load = || fleet.load(&function, Instant::now() + LOAD_MAX);
        let loaded = load().or_else(|error| match error {
            // Somebody may have killed its process, which says nothing about the function.
            keep_alive::Error::Start(sandbox::Error::Procedure { fault, .. })
                if fault.code == FailureCode::Trap =>
            {
                tracing::info!(
                    detail = fault.detail,
                    "an instance ended while it was loaded; another one is tried"
                );
                load()
            }
            other => Err(other),
        });
        loaded.map_err(|error| match error {
            keep_alive::Error::Late => {
                let why =
                    "there was no memory to load it: instances of other functions are busy with all of it";
                Fault::new(FailureCode::Resources, why)
            }
            other => fault_of(other),
        })
    }

    fn known_fleet(&self) -> Option<Arc<Fleet>> {
        match &*self.fleet.lock() {
            Begun::Yes(fleet) => Some(Arc::clone(fleet)),
            Begun::No | Begun::Over => None,
        }
    }

    /// The instances of all runtimes.
    fn fleet(&self) -> Result<Arc<Fleet>, Fault> {
        let mut begun = self.fleet.lock();
        match &*begun {
            Begun::Yes(fleet) => return Ok(Arc::clone(fleet)),
            Begun::Over => return Err(Fault::new(FailureCode::Cancelled, "the node is shutting down")),
            Begun::No => {}
        }
        let processors = linux::available_cpus().map_or(1, |cpus| cpus.len() as u32);
        let memory_bytes = self.options.memory_bytes;
        let policy = PolicyOptions { memory_bytes, processors, ..PolicyOptions::default() };
        let processor_time = linux::processor_time;
        let unheard = unheard(Arc::clone(&self.store));
        let options = FleetOptions { policy, processor_time, unheard, ..FleetOptions::default() };
        let runtimes: Arc<dyn Sandbox> = Arc::clone(&self.runtimes) as _;
        let fleet = Fleet::new(options, runtimes);
        let fleet = fleet.map_err(|error| Fault::new(FailureCode::Resources, error.to_string()))?;
        let fleet = Arc::new(fleet);
        *begun = Begun::Yes(Arc::clone(&fleet));
        Ok(fleet)
    }

    /// Takes no more applications, ends those that wait, and all instances.
    pub(crate) fn close(&self) {
        self.under_way.lock().is_over = true;
        self.lines.close();
        let fleet = std::mem::replace(&mut *self.fleet.lock(), Begun::Over);
        if let Begun::Yes(fleet) = fleet
            && !fleet.drain(DRAIN_PATIENCE)
        {
            tracing::warn!("some instances could not be ended");
        }
        self.runtimes.close();
    }
}

impl UnderWay {
    /// An application of this procedure has ended.
    fn leave(&mut self, procedure: Handle) {
        if let Some(count) = self.by_procedure.get_mut(&procedure) {
            *count -= 1;
            if *count == 0 {
                self.by_procedure.remove(&procedure);
            }
        }
    }
}

/// An instance could not be made that no request waits for: the log has it.
fn unheard(store: Arc<Store>) -> Unheard {
    Unheard(Arc::new(move |spec, error| {
        let tree = store.get(spec.procedure).ok().flatten();
        let image = tree.and_then(|tree| Image::read(&store, tree.as_tree()).ok());
        let function = image.as_ref().map_or("?", |image| image.settings.owner());
        tracing::warn!(
            function,
            "an instance that is to stand ready could not be made, and is tried again: {error}"
        );
    }))
}

/// Makes a sandbox of this kind and deletes it.
pub(crate) fn check_in(sandbox: &dyn Sandbox, spec: Spec) -> Result<(), Fault> {
    let made = sandbox.create(&[spec]).pop();
    match made {
        Some(Ok(id)) => {
            // It was never started, so that nothing can be left of it.
            sandbox.delete(&[id]);
            Ok(())
        }
        Some(Err(sandbox::Error::Procedure { fault, .. })) => Err(fault),
        Some(Err(error)) => Err(Fault::new(FailureCode::Resources, error.to_string())),
        None => Ok(()),
    }
}

fn start_word(kind: StartKind) -> &'static str {
    match kind {
        StartKind::Warm => "warm",
        StartKind::Prewarmed => "prewarmed",
        StartKind::Forked => "forked",
        StartKind::Cold => "cold",
    }
}

/// Why a call did not run, as its failure.
fn fault_of(error: keep_alive::Error) -> Fault {
    use keep_alive::Error;
    let code = match &error {
        Error::Late => FailureCode::Deadline,
        Error::Cancelled | Error::Draining => FailureCode::Cancelled,
        Error::Start(sandbox::Error::Procedure { fault, .. }) => return fault.clone(),
        _ => FailureCode::Resources,
    };
    Fault::new(code, error.to_string())
}
