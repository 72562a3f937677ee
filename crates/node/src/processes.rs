// SPDX-License-Identifier: Apache-2.0
//! Applications whose procedures run in processes of their own.
//!
//! A worker hands such an application over and goes on; a thread of this pool
//! waits for an instance and for its answer, and resumes the job. Each runtime
//! has a fleet of instances, which is begun when it is first needed.

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

/// Applications under way at once; more wait here.
const THREADS_MAX: usize = 512;
const STACK_BYTES: usize = 512 << 10;
/// Instances of a function that no deployment says anything about.
const CONCURRENCY_DEFAULT: u32 = 16;
/// Instances of each runtime that wait for their function.
const BLANKS: usize = 2;
/// Reports that wait for their request.
const REPORTS_MAX: usize = 1024;
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
}

/// The instances of all runtimes, and the threads that wait for them.
pub(crate) struct Processes {
    options: ProcessOptions,
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    layers: Mutex<Option<Arc<Layers>>>,
    containers: Mutex<Option<Arc<Runtime>>>,
    fleets: Mutex<HashMap<String, Instanced>>,
    concurrency: RwLock<HashMap<Handle, u32>>,
    reports: Mutex<Reports>,
    queue: Mutex<Queue>,
    changed: Condvar,
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
            concurrency: RwLock::default(),
            reports: Mutex::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Memory of all instances of one runtime.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.options.memory_bytes
    }

    /// Has a procedure run in at most so many instances.
    pub(crate) fn expect(&self, procedure: Handle, concurrency: u32) {
        self.concurrency.write().insert(procedure, concurrency);
    }

    /// Nothing is said of a procedure any more.
    pub(crate) fn forget(&self, procedure: Handle) {
        self.concurrency.write().remove(&procedure);
    }

    /// Instances of a function now.
    pub(crate) fn instances(&self, served: &Served) -> Instances {
        let begun = self.fleets.lock().get(&served.runtime).cloned();
        let Some(Instanced { fleet, .. }) = begun else { return Instances::default() };
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
        self.reports.lock().by_application.remove(&application)
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
        let application = Application { job, thunk, data: data.clone(), limits, begun: Instant::now() };
        let mut queue = self.queue.lock();
        if queue.is_over {
            drop(queue);
            let fault = Fault::new(FailureCode::Cancelled, "the node is shutting down");
            self.end(&application, Err(fault), false);
            return true;
        }
        queue.waiting.push_back(application);
        if queue.idle < queue.waiting.len() && queue.threads.len() < THREADS_MAX {
            match self.spawn(queue.threads.len()) {
                Ok(thread) => queue.threads.push(thread),
                Err(error) => tracing::warn!(%error, "no thread for a function; it waits for another one"),
            }
        }
        drop(queue);
        self.changed.notify_one();
        true
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
            let detail = self.store.keep_blob(fault.detail.as_bytes());
            let (failure, tree) =
                Failure { code: fault.code, application: application.thunk, detail }.to_tree();
            self.store.keep_tree(tree.view());
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
        let fleet = self.begun(&image.runtime)?.fleet;
        let limits = application.limits;
        let concurrency = self.concurrency.read().get(&procedure).copied().unwrap_or(CONCURRENCY_DEFAULT);
        let call = Call {
            application: application.data.clone(),
            handle: application.thunk.definition(),
            limits,
            procedure,
        };
        let deadline = application.begun + image.settings.timeout;
        let function = Function::new(Spec { procedure, limits }, concurrency);
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
        // Held while it is begun: others would only do the same again.
        let mut fleets = self.fleets.lock();
        if let Some(begun) = fleets.get(runtime) {
            return Ok(begun.clone());
        }
        let unavailable = |why: String| {
            let why = format!("functions in {runtime} cannot run on this node: {why}; see `sinew doctor`");
            Fault::new(FailureCode::Resources, why)
        };
        let sandbox = self.sandbox(runtime).map_err(unavailable)?;
        let policy = PolicyOptions { memory_bytes: self.options.memory_bytes, ..PolicyOptions::default() };
        let options = FleetOptions { policy, ..FleetOptions::default() };
        let fleet = Fleet::new(options, Arc::clone(&sandbox));
        let fleet = Arc::new(fleet.map_err(|error| unavailable(error.to_string()))?);
        let begun = Instanced { sandbox, fleet };
        fleets.insert(runtime.to_owned(), begun.clone());
        Ok(begun)
    }

    fn sandbox(&self, runtime: &str) -> Result<Arc<dyn Sandbox>, String> {
        let known = Language::ALL.into_iter().find(|language| language.runtime() == runtime);
        let language = known.ok_or("it has no such runtime")?;
        let layers = Some(self.layers()?);
        let options = FunctionsOptions { layers, blanks: BLANKS, ..FunctionsOptions::new(language) };
        let functions = Functions::new(options, self.containers()?, Arc::clone(&self.store));
        Ok(Arc::new(functions.map_err(|error| error.to_string())?))
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
        let fleets: Vec<Instanced> = self.fleets.lock().drain().map(|(_, begun)| begun).collect();
        for Instanced { fleet, .. } in &fleets {
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

/// How applications ran, until somebody asks. Those that nobody asks about go
/// when there are too many.
#[derive(Default)]
struct Reports {
    by_application: HashMap<Handle, CallReport>,
    order: VecDeque<Handle>,
}

impl Reports {
    fn keep(&mut self, application: Handle, report: CallReport) {
        while self.order.len() >= REPORTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.by_application.remove(&oldest);
            }
        }
        self.order.push_back(application);
        self.by_application.insert(application, report);
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
