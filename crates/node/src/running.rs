// SPDX-License-Identifier: Apache-2.0
//! A running node without its listeners.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use evaluator::{AdmissionOptions, Priority, Request, SchedulerOptions, Stop};

use io::Buckets;
use objects::{FailureCode, Handle, Limits};
use parking_lot::Mutex;
use queue::Embedded;
use sandbox::Fault;
use sandbox::process::{Language, Plan};
use sandbox::wasm::{Codelets, Invoker};
use store::Store;

use crate::callbacks::Callbacks;
use crate::collecting::Collecting;
use crate::config::{Budgets, Options};
use crate::executor::{Executor, WorkerState};
use crate::exports::Exports;
use crate::fetcher::Fetcher;
use crate::functions::Deployments;
use crate::identity::NodeIdentity;
use crate::keys::Keys;
use crate::ledger::Ledgers;
use crate::loops::Loops;
use crate::processes::{ProcessOptions, Processes, RuntimesOptions};
use crate::reactor::EventLoops;
use crate::reclaimer::Reclaimer;
use crate::requests::{Requests, Told};
use crate::secrets::Secrets;
use crate::sources::Sources;
use crate::traces::Collector;
use crate::visitors::Visitors;
use crate::{Error, Evaluator, Scheduler, workers};

/// Store, sandboxes, scheduler and workers, running.
pub struct Node {
    /// Where it keeps everything, if anywhere.
    pub(crate) home: Option<PathBuf>,
    pub(crate) tier: Option<crate::tier::Tier>,
    pub(crate) budgets: Budgets,
    pub(crate) store: Arc<Store>,
    pub(crate) codelets: Arc<Codelets>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) fetcher: Arc<Fetcher>,
    reclaimer: Arc<Reclaimer>,
    pub(crate) collecting: Arc<Collecting>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) sources: Arc<Sources>,
    pub(crate) exports: Exports,
    pub(crate) deployments: Arc<Deployments>,
    pub(crate) queue: Arc<Embedded>,
    pub(crate) keys: Keys,
    pub(crate) identity: NodeIdentity,
    pub(crate) ledgers: Ledgers,
    /// What moments that the scheduler compares are counted from.
    pub(crate) began: Instant,
    pub(crate) callbacks: Callbacks,
    pub(crate) collector: Option<Collector>,
    pub(crate) visitors: Arc<Visitors>,
    states: Vec<Arc<WorkerState>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("budgets", &self.budgets).finish_non_exhaustive()
    }
}

fn scheduler_of(budgets: &Budgets) -> Scheduler {
    Scheduler::new(SchedulerOptions {
        workers: budgets.workers,
        requests_max: budgets.requests_max,
        admission: AdmissionOptions {
            allowance_bytes: budgets.allowance_bytes,
            pool_bytes: budgets.pool_bytes,
        },
        // With what workers hold themselves, three quarters of the tier.
        held_max_bytes: budgets.objects_bytes / 2,
        walk_max_bytes: budgets.walks_bytes,
        batch_max: budgets.batch_max,
        waking_max: std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
    })
}

fn sources_of(
    options: &Options,
    buckets: Buckets,
    store: &Arc<Store>,
    scheduler: &Arc<Scheduler>,
) -> Result<Arc<Sources>, Error> {
    let fetching = options.fetching.unwrap_or_default();
    let (store, scheduler) = (Arc::clone(store), Arc::clone(scheduler));
    Sources::new(&options.fetch_private, buckets, fetching, store, scheduler).map_err(Error::Sources)
}

/// The calls that are made later, on the disk if there is one.
fn queue_of(options: &Options) -> Result<Embedded, Error> {
    Ok(match &options.home {
        Some(home) => Embedded::open(&home.join("queue.redb"), queue::Options::default())?,
        None => Embedded::in_memory(queue::Options::in_memory())?,
    })
}

fn collecting_of(options: &Options, store: &Arc<Store>, requests: &Arc<Requests>) -> Collecting {
    let kept = options.tier.as_ref().map(crate::tier::Tier::kept).unwrap_or_default();
    let schedule = options.collection.unwrap_or_default();
    Collecting::new(Arc::clone(store), Arc::clone(requests), schedule, kept)
}

impl Node {
    /// Opens the store and starts the workers.
    ///
    /// # Errors
    /// If the store does not open or the system refuses threads or memory.
    pub fn start(options: &Options) -> Result<Arc<Self>, Error> {
        Self::start_in(options, Loops::current())
    }

    /// The same, with the loops that watch its instances; without any, threads wait for these.
    pub(crate) fn start_in(options: &Options, loops: Option<Arc<Loops>>) -> Result<Arc<Self>, Error> {
        let attach =
            |store: &Store, buckets: &Buckets| crate::tier::attach(options.tier.as_ref(), store, buckets);
        Self::start_with(options, loops, attach)
    }

    /// The same, with a tier that somebody gives the store, if any.
    pub(crate) fn start_with(
        options: &Options,
        loops: Option<Arc<Loops>>,
        attach: impl FnOnce(&Store, &Buckets) -> Result<(), Error>,
    ) -> Result<Arc<Self>, Error> {
        let budgets = Budgets::new(options);
        let store = Arc::new(Store::open(store::Options {
            home: options.home.clone(),
            memory_bytes: budgets.objects_bytes,
            relations_bytes: budgets.relations_bytes,
        })?);
        let codelets = Codelets::new(
            sandbox::wasm::Options {
                cache_dir: options.home.as_ref().map(|home| home.join("codelets")),
                workers: budgets.workers,
                ..sandbox::wasm::Options::default()
            },
            Arc::clone(&store),
        )?;
        let scheduler = Arc::new(scheduler_of(&budgets));
        let secrets = Arc::new(Secrets::open(options.home.as_deref())?);
        let process_options = process_options(options, &budgets, Arc::clone(&secrets), loops.clone());
        let processes = Processes::new(process_options, Arc::clone(&store), Arc::clone(&scheduler));
        let buckets = crate::buckets::open(&options.s3, &secrets).map_err(Error::Buckets)?;
        // Before anything is read that may be there only.
        attach(&store, &buckets)?;
        let exports = Exports::new(Arc::clone(&store), buckets.clone());
        let sources = sources_of(options, buckets, &store, &scheduler)?;
        let deployments = Arc::new(Deployments::open(
            Arc::clone(&store),
            Arc::clone(&processes),
            Arc::clone(&codelets),
            Arc::clone(&secrets),
        )?);
        let queue = Arc::new(queue_of(options)?);
        let requests = Arc::new(Requests::new(Arc::clone(&scheduler)));
        let fetcher = Arc::new(Fetcher::new(Arc::clone(&store), Arc::clone(&scheduler)));
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&store), Arc::clone(&scheduler)));
        let collecting = Arc::new(collecting_of(options, &store, &requests));
        let visitors = visitors_of(&scheduler, &requests, &processes);
        let mut node = Self {
            home: options.home.clone(),
            tier: options.tier.clone(),
            budgets,
            store,
            codelets,
            scheduler,
            requests,
            fetcher,
            reclaimer,
            collecting,
            processes,
            sources,
            exports,
            deployments,
            queue,
            keys: Keys::open(options.home.as_deref())?,
            identity: NodeIdentity::open(options.home.as_deref())?,
            ledgers: Ledgers::default(),
            began: Instant::now(),
            callbacks: Callbacks::new(&options.callback_private, secrets)?,
            collector: options.traces.as_ref().map(Collector::new).transpose().map_err(Error::Traces)?,
            visitors,
            states: Vec::new(),
            threads: Mutex::default(),
        };
        node.start_threads(options.home.is_some(), loops.map_or(1, |loops| loops.count()))
            .map_err(|source| Error::Start { what: "the workers", source })?;
        Ok(Arc::new(node))
    }

    fn start_threads(&mut self, has_disk: bool, loops: usize) -> std::io::Result<()> {
        self.threads.lock().extend(self.fetcher.start()?);
        if has_disk {
            self.threads.lock().extend(self.collecting.start()?);
        } else {
            self.threads.lock().push(self.reclaimer.start()?);
        }
        for _ in 0..loops + BRINGERS {
            let executor = self.executor().brief();
            self.states.push(executor.state());
            self.visitors.admit(Evaluator::new(Arc::clone(&self.scheduler)), executor);
        }
        for number in 0..self.budgets.workers {
            let mut executor = self.executor();
            self.states.push(executor.state());
            let scheduler = Arc::clone(&self.scheduler);
            let requests = Arc::clone(&self.requests);
            let warm_bytes = self.budgets.warm_bytes;
            let body = move || workers::work(&scheduler, &mut executor, &requests, warm_bytes);
            self.threads.lock().push(workers::spawn(format!("sinew-worker-{number}"), body)?);
        }
        Ok(())
    }

    fn executor(&self) -> Executor {
        Executor::new(
            Arc::clone(&self.store),
            Arc::clone(&self.scheduler),
            Arc::clone(&self.fetcher),
            Arc::clone(&self.codelets),
            Arc::clone(&self.processes),
            Arc::clone(&self.sources),
        )
    }

    /// An evaluator and executor as the workers have them, for a caller who
    /// is a worker of its own: a bench, or an embedder that wants no hand-off.
    pub fn private_worker(&self) -> (Evaluator, Executor) {
        linux::warm_heap(self.budgets.warm_bytes);
        (Evaluator::new(Arc::clone(&self.scheduler)), self.executor())
    }

    /// Compiles a procedure if nobody has, and blocks until it is ready. A
    /// caller of [`Node::private_worker`] does this first: what waits for
    /// code is resumed by any worker of the node.
    ///
    /// # Errors
    /// If it is no procedure or not here.
    pub fn prepare(&self, procedure: Handle, limits: &Limits) -> Result<(), Fault> {
        self.codelets.prepare(procedure, limits.fuel > 0).map(drop)
    }

    /// A sandbox invoker as the workers have them, without an evaluator.
    pub fn invoker(&self) -> Invoker {
        Invoker::new(Arc::clone(&self.codelets))
    }

    /// Evaluates an encode on the node's workers and waits for the result, a
    /// value. `None` if the node has too many requests or is stopping. Not
    /// for the event loop: it blocks.
    pub fn evaluate_blocking(&self, goal: Handle) -> Option<Handle> {
        let (_, receiver) = self.requests.submit(goal, Priority::Normal, false)?;
        match receiver.blocking_recv().ok()? {
            Told::Result(result) => Some(result),
            // Only where it is wanted.
            Told::Begins(..) => None,
        }
    }

    /// The node's store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The state that the workers share.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// How the node divides its machine.
    pub fn budgets(&self) -> Budgets {
        self.budgets
    }

    /// Applications that the workers ran so far.
    pub fn applied(&self) -> u64 {
        self.states.iter().map(|state| state.applied.load(Ordering::Relaxed)).sum()
    }

    /// Stops a request, also the procedure that runs for it right now. One that
    /// no worker had taken up is answered here.
    pub(crate) fn stop(&self, request: &Request, stop: Stop) {
        let code = match stop {
            Stop::Cancelled => FailureCode::Cancelled,
            Stop::Deadline => FailureCode::Deadline,
        };
        if self.scheduler.stop(request, stop) {
            // No worker will tell how it ended.
            return self.requests.finish(request, self.failure(code, request.goal()));
        }
        for state in &self.states {
            state.interrupt(request.id(), code);
        }
        self.processes.stop(request.id());
        self.sources.stop(request.id(), code);
    }

    /// Ends requests under way and all instances, which is heard by who hears these. Once more it does nothing.
    pub(crate) fn end_calls(&self) {
        for request in self.requests.under_way() {
            self.stop(&request, Stop::Cancelled);
        }
        // While there are workers to take what has ended.
        self.processes.close();
    }

    /// Refuses further requests, ends those under way, and joins the threads.
    /// What was acknowledged stays; relations are written out.
    pub fn shut_down(&self) {
        // Before the workers may leave: what was parked is queued by this, and
        // ended by them.
        self.end_calls();
        self.sources.close();
        self.scheduler.close();
        self.fetcher.close();
        self.reclaimer.close();
        self.collecting.close();
        for thread in self.threads.lock().drain(..) {
            // A worker that panicked has aborted the process.
            let _ = thread.join();
        }
        if let Err(error) = self.store.flush_relations() {
            tracing::warn!(%error, "relations were not written; they will be computed again");
        }
    }
}

/// Threads besides the event loops that bring the ends of calls, at the same time.
const BRINGERS: usize = 3;

/// Templates with imports may have the n-th part of the memory of all instances.
pub(crate) const TEMPLATES_SHARE: u64 = 4;
/// Layers that nobody uses may have so many bytes on the disk.
const LAYERS_BYTES: u64 = 8 << 30;

fn visitors_of(scheduler: &Arc<Scheduler>, requests: &Arc<Requests>, processes: &Processes) -> Arc<Visitors> {
    let visitors = Arc::new(Visitors::new(Arc::clone(scheduler), Arc::clone(requests)));
    processes.welcome(&visitors);
    visitors
}

fn process_options(
    options: &Options,
    budgets: &Budgets,
    secrets: Arc<Secrets>,
    loops: Option<Arc<Loops>>,
) -> ProcessOptions {
    let traffic = Arc::default();
    let runtimes = RuntimesOptions {
        init: options.sandbox_init.clone(),
        layers: options.home.as_ref().map(|home| home.join("layers")),
        layers_bytes: LAYERS_BYTES,
        reactor: loops.map(|loops| Arc::new(EventLoops::new(loops, &traffic)) as _),
        interpreters: Language::ALL.map(|language| (language, options.interpreter(language))).to_vec(),
        secrets,
        outbound: Arc::default(),
        values: Plan::new(budgets.instances_bytes),
        debuggers: options.debugging.clone().map(|it| it as _),
        templates_bytes: budgets.instances_bytes / TEMPLATES_SHARE,
        stored_bytes: budgets.objects_bytes.saturating_mul(2),
    };
    ProcessOptions { runtimes, memory_bytes: budgets.instances_bytes, traffic }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shut_down();
    }
}
