// SPDX-License-Identifier: Apache-2.0
//! Every way in which a decision of the evaluator becomes an act.
//!
//! One executor per worker thread. Objects and relations are the store's;
//! procedures run in the worker's own sandboxes, on this very stack: between
//! "apply this" and the codelet's first instruction there is no queue, no
//! thread and no allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use evaluator::{Applied, Charge, Claim, Cost, Event, Fetch, Host, JobId, Outcome, Request, Rule};
use linux::Ticks;
use objects::{Application, Failure, FailureCode, Handle, Limits, Part, TreeView};
use sandbox::wasm::{Awaiting, Codelets, Interrupt, Invoker};
use sandbox::{Call, Fault};
use store::{Object, Record, Store};

use crate::Scheduler;
use crate::fetcher::Fetcher;
use crate::ledger::Ledger;
use crate::metering::Meter;
use crate::processes::{Images, Processes};
use crate::reclaimer::full_text;
use crate::sources::Sources;

/// To verify so many bytes takes some 50 µs.
const BRIEF_READS_BYTES: u64 = 64 << 10;

/// What other threads may see of a worker.
pub(crate) struct WorkerState {
    /// The request that the worker runs for; 0: none.
    pub(crate) request: AtomicU64,
    /// An application runs, or is about to: whoever stops the request of a busy
    /// worker must interrupt it.
    is_busy: AtomicBool,
    /// Applications run so far.
    pub(crate) applied: AtomicU64,
    interrupt: Interrupt,
}

impl WorkerState {
    /// Interrupts what runs for the request, which was marked as stopped
    /// before. Either the worker sees that mark before it begins, or this sees
    /// that the worker is busy.
    pub(crate) fn interrupt(&self, request: u64, code: FailureCode) {
        fence(Ordering::SeqCst);
        while self.is_busy.load(Ordering::SeqCst) && self.request.load(Ordering::Acquire) == request {
            if self.interrupt.running().is_some() {
                return self.interrupt.raise(code);
            }
            // Between being busy and running lie a few instructions.
            std::hint::spin_loop();
        }
    }
}

/// The world of one worker.
pub struct Executor {
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    fetcher: Arc<Fetcher>,
    processes: Arc<Processes>,
    sources: Arc<Sources>,
    codelets: Arc<Codelets>,
    invoker: Invoker,
    state: Arc<WorkerState>,
    request: Option<Arc<Request>>,
    /// Where it is written down what the request comes to, if it is.
    ledger: Option<Arc<Ledger>>,
    /// What runs makes something again that was dropped: no receipt has it.
    is_remaking: bool,
    applied: u64,
    meter: Meter,
    images: Images,
    /// Bytes that it reads by itself for one job before it asks the fetcher; and what is left of them.
    reads_max: u64,
    reads_left: u64,
}

impl Executor {
    pub(crate) fn new(
        store: Arc<Store>,
        scheduler: Arc<Scheduler>,
        fetcher: Arc<Fetcher>,
        codelets: Arc<Codelets>,
        processes: Arc<Processes>,
        sources: Arc<Sources>,
    ) -> Self {
        let invoker = Invoker::new(Arc::clone(&codelets));
        let state = Arc::new(WorkerState {
            request: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            applied: AtomicU64::new(0),
            interrupt: invoker.interrupt(),
        });
        Self {
            store,
            scheduler,
            fetcher,
            processes,
            sources,
            codelets,
            invoker,
            state,
            request: None,
            ledger: None,
            is_remaking: false,
            applied: 0,
            meter: Meter::new(),
            images: Images::default(),
            reads_max: u64::MAX,
            reads_left: 0,
        }
    }

    /// For threads that others wait for: reads little by itself.
    pub(crate) fn brief(self) -> Self {
        Self { reads_max: BRIEF_READS_BYTES, ..self }
    }

    pub(crate) fn state(&self) -> Arc<WorkerState> {
        Arc::clone(&self.state)
    }

    /// From now on the worker runs for `request`.
    pub fn begin(&mut self, request: &Arc<Request>) {
        self.state.request.store(request.id(), Ordering::Release);
        self.ledger = Ledger::of(request.context());
        self.reads_left = self.reads_max;
        self.request = Some(Arc::clone(request));
    }

    /// The worker runs for nobody.
    pub fn end(&mut self) {
        self.state.request.store(0, Ordering::Release);
        (self.request, self.ledger) = (None, None);
    }

    fn wake(&self, waiters: Vec<u64>) {
        for waiter in waiters {
            self.scheduler.resume(JobId(waiter), Event::Look);
        }
    }

    /// Why nobody wants what the worker does, if so.
    fn stopped(&self) -> Option<FailureCode> {
        self.request.as_ref().and_then(|request| request.stopped())
    }

    /// Runs the procedure; again, if it was interrupted for a request that had
    /// left this worker before the interrupt arrived.
    #[inline]
    fn invoke(&mut self, call: Call) -> sandbox::Outcome {
        let Call { handle, limits, procedure, .. } = call;
        let mut outcome = self.invoke_once(call);
        while is_interrupted(&outcome) && self.stopped().is_none() {
            outcome = match self.store.get(handle) {
                Ok(Some(application)) => self.invoke_once(Call::new(application, handle, limits, procedure)),
                _ => {
                    let detail = format!("{handle} was lost before its application began anew; ask again");
                    never_ran(Fault { code: FailureCode::MissingData, detail })
                }
            };
        }
        outcome
    }

    #[inline]
    fn invoke_once(&mut self, call: Call) -> sandbox::Outcome {
        self.state.is_busy.swap(true, Ordering::SeqCst);
        if let Some(code) = self.stopped() {
            self.state.is_busy.store(false, Ordering::Release);
            let detail = "its request was stopped before it began".to_owned();
            return never_ran(Fault { code, detail });
        }
        self.applied += 1;
        let outcome = self.invoker.invoke(call);
        self.state.is_busy.store(false, Ordering::Release);
        outcome
    }

    /// Hands an application to whoever runs what is no codelet.
    fn hand_over(
        &mut self,
        job: JobId,
        thunk: Handle,
        application: &Application<'_>,
        data: &Object,
    ) -> Option<Applied> {
        let request = self.request.as_ref();
        if self.sources.take_over(job, thunk, application, request) {
            return Some(Applied::Coming);
        }
        let is_taken = self.processes.take_over(job, thunk, application, data, request, &mut self.images);
        is_taken.then_some(Applied::Pending)
    }

    fn failure(&self, thunk: Handle, fault: &Fault) -> Handle {
        let detail = self.store.keep_blob(fault.detail.as_bytes());
        let (failure, tree) = Failure { code: fault.code, application: thunk, detail }.to_tree();
        self.store.keep_tree(tree.view());
        failure
    }
}

impl Host for Executor {
    type Data = Object;

    #[inline]
    fn local(&mut self, object: Handle) -> Option<Object> {
        self.store.local(object)
    }

    /// To hand a read to another thread and to be woken takes ten times as long as to do it
    /// where the kernel has the bytes; where it has not, this worker does not wait for them.
    fn fetch(&mut self, object: Handle, waiter: JobId) -> Fetch {
        if self.reads_left > 0
            && let Some(read) = self.store.get_at_once(object)
        {
            self.reads_left = self.reads_left.saturating_sub(read.len() as u64);
            return Fetch::Here;
        }
        self.fetcher.fetch(object, None, waiter);
        Fetch::Coming
    }

    fn fetch_unmade(&mut self, object: Handle, part: Option<Part>, waiter: JobId) -> Fetch {
        self.fetcher.fetch_unmade(object, part, waiter);
        Fetch::Coming
    }

    fn fetch_part(&mut self, object: Handle, part: Part, waiter: JobId) -> Fetch {
        if !Store::is_partial(object) {
            return self.fetch(object, waiter);
        }
        self.fetcher.fetch(object, Some(part), waiter);
        Fetch::Coming
    }

    #[inline]
    fn keep_tree(&mut self, tree: TreeView<'_>) -> Handle {
        self.store.keep_tree(tree)
    }

    #[inline]
    fn keep_blob(&mut self, bytes: &[u8]) -> Handle {
        self.store.keep_blob(bytes)
    }

    #[inline]
    fn recall(&mut self, key: Handle) -> Option<Handle> {
        if let Some(ledger) = &self.ledger {
            return ledger.recall(&self.store, key, !self.is_remaking);
        }
        self.store.relations().get(key).map(|record| record.result)
    }

    #[inline]
    fn remember(&mut self, key: Handle, result: Handle, rule: Rule) {
        let record = Record { result, rule: rule_of(rule), nanos: 0, fuel: 0 };
        match &self.ledger {
            Some(ledger) => ledger.remember(&self.store, key, record, !self.is_remaking),
            None => self.store.relations().insert(key, record),
        }
    }

    #[inline]
    fn claim(&mut self, thunk: Handle) -> Claim {
        let claim = match &self.ledger {
            Some(ledger) => ledger.claim(&self.store, thunk, !self.is_remaking),
            None => self.store.relations().claim(thunk),
        };
        match claim {
            store::Claim::Known(record) => Claim::Known(record.result),
            store::Claim::Claimed => Claim::Claimed,
            store::Claim::Busy => Claim::Busy,
        }
    }

    fn wait(&mut self, thunk: Handle, waiter: JobId) -> bool {
        match &self.ledger {
            Some(ledger) => ledger.wait(&self.store, thunk, waiter.0),
            None => self.store.relations().wait(thunk, waiter.0),
        }
    }

    #[inline]
    fn fulfil(&mut self, thunk: Handle, result: Handle, cost: Cost) {
        let record = Record { result, rule: store::Rule::Apply, nanos: cost.nanos, fuel: cost.fuel };
        let waiters = match &self.ledger {
            Some(ledger) => {
                let uncounted_nanos = cost.charge.uncounted_nanos;
                ledger.fulfil(&self.store, thunk, (record, uncounted_nanos), !self.is_remaking)
            }
            None => self.store.relations().fulfil(thunk, record),
        };
        self.wake(waiters);
    }

    fn abandon(&mut self, thunk: Handle) {
        let waiters = match &self.ledger {
            Some(ledger) => ledger.abandon(&self.store, thunk),
            None => self.store.relations().abandon(thunk),
        };
        self.wake(waiters);
    }

    #[inline]
    fn remaking(&mut self, is: bool) {
        self.is_remaking = is;
    }

    fn forget(&mut self, recipe: Handle, object: Handle) {
        let relations = match &self.ledger {
            Some(ledger) => ledger.claims(&self.store),
            None => self.store.relations(),
        };
        relations.forget_unless(recipe, || self.store.local(object).is_some());
    }

    fn is_unmade(&mut self, object: Handle, recipe: Handle, result: Handle) -> bool {
        // It may have left memory already; then it is on the disk.
        let is_here = self.store.is_here(object).unwrap_or_else(|error| {
            tracing::error!(%object, %error, "an object cannot be looked for");
            false
        });
        if !is_here {
            self.fetcher.remakes.note_wrong(object, recipe, result);
        }
        !is_here
    }

    /// A process is charged for as long as it lives, by its fleet.
    #[inline]
    fn reservation_bytes(&self, application: &Application<'_>) -> u64 {
        let is_process = application.procedure.literal_bytes().is_some();
        if is_process { 0 } else { application.limits.memory_bytes }
    }

    fn is_brought(&self, application: &Application<'_>) -> bool {
        self.sources.is_bound(application)
    }

    #[inline]
    fn is_prepared(&mut self, limits: &Limits, procedure: Handle) -> bool {
        self.invoker.is_ready(procedure, limits.fuel > 0) || procedure.literal_bytes().is_some()
    }

    fn prepare(
        &mut self,
        limits: &Limits,
        procedure: Handle,
        waiter: JobId,
        request: &Arc<Request>,
    ) -> Fetch {
        let (scheduler, request) = (Arc::clone(&self.scheduler), Arc::clone(request));
        let waiter = AwaitsCode { scheduler, request, job: waiter, procedure };
        self.codelets.await_ready(procedure, limits.fuel > 0, Box::new(waiter));
        Fetch::Coming
    }

    #[inline]
    fn apply(
        &mut self,
        thunk: Handle,
        limits: Limits,
        procedure: Handle,
        data: Object,
        job: JobId,
    ) -> Applied {
        // A module is never a literal, so that this costs codelets nothing.
        if procedure.literal_bytes().is_some()
            && let Ok(application) = Application::from_tree(data.as_tree())
            && let Some(taken) = self.hand_over(job, thunk, &application, &data)
        {
            self.applied += 1;
            self.state.applied.store(self.applied, Ordering::Relaxed);
            return taken;
        }
        if self.store.is_full() {
            let fault = Fault { code: FailureCode::Resources, detail: full_text(&self.store) };
            let result = self.failure(thunk, &fault);
            return Applied::Done(Outcome { result, cost: Cost::default(), is_lasting: false });
        }
        let metered = self.meter.begin(&self.store, data.as_tree(), &limits);
        let begun = Ticks::now();
        self.meter.start(&metered, begun);
        let outcome = self.invoke(Call::new(data, thunk.definition(), limits, procedure));
        let nanos = Ticks::now().nanos_since(begun);
        self.state.applied.store(self.applied, Ordering::Relaxed);
        let charge = self.meter.end(&metered, begun, nanos, outcome.fuel);
        // As a receipt has it: what was dropped for the node's sake is made again at its cost.
        let charge = if self.is_remaking { Charge::default() } else { charge };
        let cost = Cost { nanos, fuel: outcome.fuel, charge };
        Applied::Done(match outcome.result {
            Ok(result) => Outcome { result, cost, is_lasting: true },
            Err(fault) => Outcome {
                result: self.failure(thunk, &fault),
                cost,
                is_lasting: fault.code.is_deterministic(),
            },
        })
    }
}

/// A job that waits for a procedure's code.
struct AwaitsCode {
    scheduler: Arc<Scheduler>,
    request: Arc<Request>,
    job: JobId,
    procedure: Handle,
}

impl Awaiting for AwaitsCode {
    fn is_wanted(&self) -> bool {
        self.request.stopped().is_none()
    }

    fn done(self: Box<Self>, ready: Result<(), &Fault>) {
        let event = match ready {
            // The bytes were here and are not any more.
            Err(fault) if fault.code == FailureCode::MissingData => Event::Missing(self.procedure),
            // What is no module is said by its application.
            _ => Event::Arrived,
        };
        self.scheduler.resume(self.job, event);
    }
}

#[inline]
fn is_interrupted(outcome: &sandbox::Outcome) -> bool {
    matches!(outcome.result, Err(Fault { code: FailureCode::Cancelled | FailureCode::Deadline, .. }))
}

#[cold]
fn never_ran(fault: Fault) -> sandbox::Outcome {
    sandbox::Outcome::refused(fault)
}

fn rule_of(rule: Rule) -> store::Rule {
    match rule {
        Rule::Apply => store::Rule::Apply,
        Rule::Resolve => store::Rule::Resolve,
        Rule::Uncurry => store::Rule::Uncurry,
        Rule::Select => store::Rule::Select,
        Rule::Strict => store::Rule::Strict,
        Rule::Shallow => store::Rule::Shallow,
    }
}
