// SPDX-License-Identifier: Apache-2.0
//! Applications whose procedures run in processes of their own.
//!
//! A worker hands such an application over and goes on; a thread of this pool
//! waits for an instance and for its answer, and resumes the job. Each runtime
//! has a fleet of instances, which is begun when it is first needed.

mod reports;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evaluator::{Cost, Event, JobId, Outcome};
use gateway::{CallReport, Instances, Served};
use objects::{Failure, FailureCode, Handle, Limits, TreeView};
use parking_lot::{Condvar, Mutex, RwLock};
use sandbox::keep_alive::{self, Fleet, FleetOptions, Function, PolicyOptions, StartKind};
use sandbox::process::{
    Functions, FunctionsOptions, Image, Language, Layers, Runtime, RuntimeOptions, runtime_of,
};
use sandbox::{Call, Fault, Invoked, Sandbox, Spec};
use store::{Object, Store};

use crate::Scheduler;
use crate::workers::AbortOnPanic;
use reports::Reports;

/// Applications under way at once; more wait here.
const THREADS_MAX: usize = 1024;
/// Applications of one function under way at once, those that wait for an
/// instance included, so that no function takes all threads from the others.
const UNDER_WAY_MAX: usize = 256;
const STACK_BYTES: usize = 512 << 10;
/// How long a runtime that could not be begun is not tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The longest time that a function may ask for.
const CALL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Instances of each runtime that wait for their function.
const BLANKS: usize = 2;
/// The memory of a function whose `sinew.toml` says nothing of it.
const USUAL_MEMORY_BYTES: u64 = 256 << 20;
/// How long calls that run may go on when the node shuts down.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// What an image is, in an application: entries 1 to 4.
const IMAGE_ENTRIES: usize = 4;
/// Where the request's id stands, which a pure function does without.
const REQUEST_INDEX: usize = 1 + IMAGE_ENTRIES;

/// How processes are run.
#[derive(Debug, Clone)]
pub(crate) struct ProcessOptions {
    /// Program and arguments of a container's init; empty: no containers.
    pub(crate) init: Vec<OsString>,
    /// Where layers are written out.
    pub(crate) layers: PathBuf,
    /// Bytes of layers that nobody uses.
    pub(crate) layers_bytes: u64,
    /// Memory of all instances.
    pub(crate) memory_bytes: u64,
    /// The interpreter of each language.
    pub(crate) interpreters: Vec<(Language, PathBuf)>,
}

/// The instances of all runtimes, and the threads that wait for them.
pub(crate) struct Processes {
    options: ProcessOptions,
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    layers: Mutex<Option<Arc<Layers>>>,
    containers: Mutex<Option<Arc<Runtime>>>,
    fleets: Mutex<Fleets>,
    expected: RwLock<HashMap<Handle, Expected>>,
    reports: Mutex<Reports>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// What a deployment says of its procedure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// Instances at most.
    pub(crate) concurrency: u32,
    /// Requests that may wait for one.
    pub(crate) waiting: u32,
    /// How long an idle instance is kept.
    pub(crate) idle: Option<Duration>,
}

impl Default for Expected {
    fn default() -> Self {
        Self { concurrency: 16, waiting: 256, idle: None }
    }
}

/// The runtimes that were begun.
#[derive(Default)]
struct Fleets {
    by_runtime: HashMap<&'static str, Arc<Mutex<Begun>>>,
    is_over: bool,
}

/// A runtime. Its lock is held while it is begun, which takes a while.
#[derive(Default)]
enum Begun {
    #[default]
    No,
    Yes(Instanced),
    Failed(Instant, Fault),
}

/// One runtime: what makes instances, and what keeps them.
#[derive(Clone)]
struct Instanced {
    sandbox: Arc<dyn Sandbox>,
    fleet: Arc<Fleet>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Application>,
    /// By procedure, those that run included.
    under_way: HashMap<Handle, usize>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_over: bool,
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
}

impl Processes {
    pub(crate) fn new(options: ProcessOptions, store: Arc<Store>, scheduler: Arc<Scheduler>) -> Arc<Self> {
        Arc::new(Self {
            options,
            store,
            scheduler,
            layers: Mutex::default(),
            containers: Mutex::default(),
            fleets: Mutex::default(),
            expected: RwLock::default(),
            reports: Mutex::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Memory of all instances of one runtime.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.options.memory_bytes
    }

    /// Has a procedure run as its deployment says.
    pub(crate) fn expect(&self, procedure: Handle, expected: Expected) {
        self.expected.write().insert(procedure, expected);
    }

    /// Nothing is said of a procedure any more.
    pub(crate) fn forget(&self, procedure: Handle) {
        self.expected.write().remove(&procedure);
    }

    /// Instances of a function now.
    pub(crate) fn instances(&self, served: &Served) -> Instances {
        let begun = self.fleets.lock().by_runtime.get(served.runtime.as_str()).cloned();
        let begun = begun.as_ref().and_then(|begun| match &*begun.try_lock()? {
            Begun::Yes(Instanced { fleet, .. }) => Some(Arc::clone(fleet)),
            Begun::No | Begun::Failed(..) => None,
        });
        let Some(fleet) = begun else { return Instances::default() };
        let report = fleet.report();
        let found = report.functions.iter().find(|found| found.spec.procedure == served.procedure);
        found.map_or_else(Instances::default, |found| Instances {
            idle: found.stats.idle.into(),
            busy: found.stats.busy.into(),
            cold_starts: found.stats.counts.cold,
        })
    }

    /// How an application ran; it is told once.
    pub(crate) fn take_report(&self, application: Handle) -> Option<CallReport> {
        self.reports.lock().take(application)
    }

    /// Takes an application over, if its procedure names a runtime; its job is
    /// resumed with the outcome.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        job: JobId,
        thunk: Handle,
        limits: Limits,
        procedure: Handle,
        data: &Object,
    ) -> bool {
        if runtime_of(procedure).is_none() {
            return false;
        }
        // The function's tree is what its instances are known by.
        let image = TreeView::from_checked(data).range(1, REQUEST_INDEX);
        let procedure = image.map_or(procedure, |image| image.handle());
        let application =
            Application { job, thunk, data: data.clone(), limits, begun: Instant::now(), procedure };
        let mut queue = self.queue.lock();
        let refused = if queue.is_over {
            Some(Fault::new(FailureCode::Cancelled, "the node is shutting down"))
        } else {
            self.crowded(&queue, procedure)
        };
        if let Some(fault) = refused {
            drop(queue);
            self.end(&application, Err(fault), false);
            return true;
        }
        *queue.under_way.entry(procedure).or_default() += 1;
        queue.waiting.push_back(application);
        if queue.idle < queue.waiting.len() && queue.threads.len() < THREADS_MAX {
            match self.spawn(queue.threads.len()) {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    let application = queue.waiting.pop_back();
                    queue.under_way.remove(&procedure);
                    drop(queue);
                    let fault =
                        Fault::new(FailureCode::Resources, format!("no thread for a function: {error}"));
                    application
                        .iter()
                        .for_each(|application| self.end(application, Err(fault.clone()), false));
                    return true;
                }
                Err(error) => tracing::warn!(%error, "no thread for a function; it waits for another one"),
            }
        }
        drop(queue);
        self.changed.notify_one();
        true
    }

    /// Why no more applications of a procedure are taken, if so.
    fn crowded(&self, queue: &Queue, procedure: Handle) -> Option<Fault> {
        let expected = self.expected.read().get(&procedure).copied().unwrap_or_default();
        let most = (expected.concurrency as usize + expected.waiting as usize).min(UNDER_WAY_MAX);
        let now = queue.under_way.get(&procedure).copied().unwrap_or(0);
        (now >= most).then(|| {
            let why = format!("{now} requests of this function run or wait already; try again later");
            Fault::new(FailureCode::Resources, why)
        })
    }

    fn spawn(self: &Arc<Self>, number: usize) -> std::io::Result<JoinHandle<()>> {
        let processes = Arc::clone(self);
        let name = format!("sinew-call-{number}");
        std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || processes.serve())
    }

    fn serve(&self) {
        let _guard = AbortOnPanic;
        let mut queue = self.queue.lock();
        loop {
            if let Some(application) = queue.waiting.pop_front() {
                drop(queue);
                let (result, is_pure) = self.run(&application);
                self.end(&application, result, is_pure);
                queue = self.queue.lock();
                queue.leave(application.procedure);
            } else if queue.is_over {
                return;
            } else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }

    fn end(&self, application: &Application, result: Result<Handle, Fault>, is_pure: bool) {
        let cost = Cost { nanos: application.begun.elapsed().as_nanos() as u64, fuel: 0 };
        // A process sees clocks and random numbers: even what a pure one fails
        // of may go away.
        let is_lasting = is_pure && result.is_ok();
        let result = result.unwrap_or_else(|fault| {
            // Not remembered, so that nobody can ask for it again.
            let detail = self.store.pass_blob(fault.detail.as_bytes());
            let (failure, tree) =
                Failure { code: fault.code, application: application.thunk, detail }.to_tree();
            self.store.pass_tree(tree.view());
            failure
        });
        self.scheduler.resume(application.job, Event::Applied(Outcome { result, cost, is_lasting }));
    }

    /// Runs it, and tells whether it is a pure one.
    fn run(&self, application: &Application) -> (Result<Handle, Fault>, bool) {
        let tree = TreeView::from_checked(&application.data);
        let is_pure = tree.get(REQUEST_INDEX).and_then(|id| id.literal_bytes().map(<[u8]>::is_empty));
        (self.call(application, tree), is_pure == Some(true))
    }

    fn call(&self, application: &Application, tree: TreeView<'_>) -> Result<Handle, Fault> {
        let Some(image) = tree.range(1, REQUEST_INDEX) else {
            let why = "a function is [limits, runtime, code, layers, settings, argument…]";
            return Err(Fault::new(FailureCode::BadProcedure, why));
        };
        let procedure = self.store.keep_tree(image);
        let image = Image::read(&self.store, image)?;
        let deadline = application.begun + image.settings.timeout;
        if Instant::now() >= deadline {
            let why = "it waited for longer than its timeout; it did not run";
            return Err(Fault::new(FailureCode::Deadline, why));
        }
        let fleet = self.begun(&image.runtime)?.fleet;
        let limits = application.limits;
        let expected = self.expected.read().get(&procedure).copied().unwrap_or_default();
        let call = Call {
            application: application.data.clone(),
            handle: application.thunk.definition(),
            limits,
            procedure,
        };
        let function = Function::new(Spec { procedure, limits }, expected.concurrency);
        let function = Function { idle_max: expected.idle, ..function };
        match fleet.invoke(&function, call, deadline, None) {
            Ok((Invoked::Done(outcome), start)) => {
                let report = CallReport {
                    start: start_word(start.kind),
                    queued: Duration::from_nanos(start.queued_ns),
                    starting: Duration::from_nanos(start.start_ns),
                    whole: application.begun.elapsed(),
                    log: outcome.log,
                };
                self.reports.lock().keep(application.thunk, report);
                outcome.result
            }
            Err(error) => Err(fault_of(error)),
        }
    }

    /// Whether a function can be loaded: an instance is made, and ended.
    ///
    /// # Errors
    /// Why not: what its own code says, or that the runtime cannot work here.
    pub(crate) fn check(&self, runtime: &str, procedure: Handle, limits: Limits) -> Result<(), Fault> {
        let sandbox = self.begun(runtime)?.sandbox;
        check_in(&*sandbox, Spec { procedure, limits })
    }

    /// The instances of a runtime.
    fn begun(&self, runtime: &str) -> Result<Instanced, Fault> {
        let Some(language) = Language::ALL.into_iter().find(|language| language.runtime() == runtime) else {
            let why = format!("this node has no runtime {runtime:?}");
            return Err(Fault::new(FailureCode::BadProcedure, why));
        };
        let cell = {
            let mut fleets = self.fleets.lock();
            if fleets.is_over {
                return Err(Fault::new(FailureCode::Cancelled, "the node is shutting down"));
            }
            Arc::clone(fleets.by_runtime.entry(language.runtime()).or_default())
        };
        // Others would only do the same again.
        let mut begun = cell.lock();
        match &*begun {
            Begun::Yes(instanced) => return Ok(instanced.clone()),
            Begun::Failed(since, fault) if since.elapsed() < RETRY => return Err(fault.clone()),
            Begun::No | Begun::Failed(..) => {}
        }
        let made = self.begin(language).map_err(|why| {
            let name = language.name();
            let why = format!("functions in {name} cannot run on this node: {why}; see `sinew doctor`");
            Fault::new(FailureCode::Resources, why)
        });
        match made {
            // It would outlive the node's end.
            Ok(_) if self.fleets.lock().is_over => {
                Err(Fault::new(FailureCode::Cancelled, "the node is shutting down"))
            }
            Ok(instanced) => {
                *begun = Begun::Yes(instanced.clone());
                Ok(instanced)
            }
            Err(fault) => {
                *begun = Begun::Failed(Instant::now(), fault.clone());
                Err(fault)
            }
        }
    }

    fn begin(&self, language: Language) -> Result<Instanced, String> {
        let mut interpreters = self.options.interpreters.iter();
        let told = interpreters.find(|(of, _)| *of == language).map(|(_, program)| program.clone());
        let options = FunctionsOptions {
            interpreter: told.unwrap_or_else(|| language.interpreter().into()),
            layers: Some(self.layers()?),
            blanks: BLANKS,
            usual_memory_bytes: USUAL_MEMORY_BYTES,
            call_timeout: CALL_MAX,
            ..FunctionsOptions::new(language)
        };
        let functions = Functions::new(options, self.containers()?, Arc::clone(&self.store));
        let sandbox: Arc<dyn Sandbox> = Arc::new(functions.map_err(|error| error.to_string())?);
        let policy = PolicyOptions { memory_bytes: self.options.memory_bytes, ..PolicyOptions::default() };
        let options = FleetOptions { policy, ..FleetOptions::default() };
        let fleet = Fleet::new(options, Arc::clone(&sandbox)).map_err(|error| error.to_string())?;
        Ok(Instanced { sandbox, fleet: Arc::new(fleet) })
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

    /// Takes no more applications, ends those that wait, and all instances.
    pub(crate) fn close(&self) {
        let (waiting, threads) = {
            let mut queue = self.queue.lock();
            queue.is_over = true;
            (std::mem::take(&mut queue.waiting), std::mem::take(&mut queue.threads))
        };
        self.changed.notify_all();
        for application in waiting {
            let fault = Fault::new(FailureCode::Cancelled, "the node is shutting down");
            self.end(&application, Err(fault), false);
        }
        let begun: Vec<Arc<Mutex<Begun>>> = {
            let mut fleets = self.fleets.lock();
            fleets.is_over = true;
            fleets.by_runtime.drain().map(|(_, begun)| begun).collect()
        };
        let fleets: Vec<Arc<Fleet>> = begun
            .iter()
            .filter_map(|begun| match std::mem::take(&mut *begun.lock()) {
                Begun::Yes(Instanced { fleet, .. }) => Some(fleet),
                Begun::No | Begun::Failed(..) => None,
            })
            .collect();
        for fleet in &fleets {
            if !fleet.drain(DRAIN_PATIENCE) {
                tracing::warn!("some instances could not be ended");
            }
        }
        for thread in threads {
            // What it may have panicked about is told there.
            _ = thread.join();
        }
    }
}

impl Queue {
    /// An application of this procedure has ended.
    fn leave(&mut self, procedure: Handle) {
        if let Some(count) = self.under_way.get_mut(&procedure) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&procedure);
            }
        }
    }
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
