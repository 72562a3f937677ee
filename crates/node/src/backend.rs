// SPDX-License-Identifier: Apache-2.0
//! The node as the gateway sees it.

use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evaluator::{Charge, Request, Stop, Tally, Terms};
use gateway::{
    Backend, Beginning, Begun, CollectRequest, CollectedHere, EXPLAIN_STEPS_MAX, EvaluateRequest, Evaluated,
    Evaluation, Explanation, Functions, Gauge, Keys, Noted, Place, Priority, Progress,
};
use objects::{BundleRecord, Failure, FailureCode, Handle, Kind, Named, TreeView};
use queue::Queue;
use sandbox::wasm::{Class, Compilation, Origin};
use store::{BlobWriter, Object, Record, Remembered, Rule, TierCollected};
use tokio::sync::oneshot;

use crate::ledger::Ledger;
use crate::reclaimer::full_text;
use crate::recomputing;
use crate::requests::Told;
use crate::running::Node;
use crate::streams::Outlet;
use crate::tier::{Acknowledge, Tier};
use crate::upkeep;

/// A [`Node`] behind the gateway's trait.
#[derive(Debug, Clone)]
pub(crate) struct NodeBackend(pub(crate) Arc<Node>);

impl Backend for NodeBackend {
    fn blob_writer(&self) -> Result<BlobWriter, store::Error> {
        self.0.store.blob_writer()
    }

    fn put_tree(&self, tree: TreeView<'_>) -> Result<Handle, store::Error> {
        self.0.store.put_tree(tree)
    }

    fn put_many(&self, records: &[BundleRecord<'_>]) -> Result<Vec<Handle>, store::Error> {
        self.0.store.put_many(records)
    }

    fn keep_many(&self, records: &[BundleRecord<'_>]) -> Result<Vec<Handle>, store::Error> {
        let store = &self.0.store;
        let keep = |record: &BundleRecord<'_>| match *record {
            BundleRecord::Blob(bytes) => Some(store.keep_blob(bytes)),
            BundleRecord::Tree(tree) => Some(store.keep_tree(tree)),
            BundleRecord::Goal(_) => None,
        };
        store.has_room()?;
        Ok(records.iter().filter_map(keep).collect())
    }

    fn pass_many(&self, objects: &[Named<'_>]) -> Result<(), store::Error> {
        let store = &self.0.store;
        store.has_room()?;
        for object in objects {
            store.pass(*object);
        }
        Ok(())
    }

    fn drop_passed(&self, handle: Handle) {
        self.0.store.drop_passed(handle);
    }

    fn inventory(&self, sought: &store::Sought) -> Result<store::Inventory, store::Error> {
        self.0.store.inventory(sought)
    }

    fn renew(&self, handle: Handle) -> Result<bool, store::Error> {
        self.0.store.renew(handle)
    }

    fn collect(&self, wish: CollectRequest) -> Result<CollectedHere, store::Error> {
        self.0.collecting.collect(wish)
    }

    fn collections(&self) -> gateway::Collections {
        self.0.collecting.collections()
    }

    fn stop_collecting(&self) -> bool {
        self.0.collecting.stop()
    }

    fn make_again(&self, handle: Handle) -> Result<Option<Begun>, store::Error> {
        recomputing::make_again(self, handle)
    }

    fn check(
        &self,
        bytes_per_second: Option<u64>,
        watch: &mut store::Watch<'_>,
    ) -> Result<store::Checked, store::Error> {
        self.0.store.check(bytes_per_second, watch)
    }

    fn back_up(
        &self,
        to: &Path,
        point: &str,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<store::Backed, store::Error> {
        let home = self.0.home.as_deref().ok_or(store::Error::NoDisk)?;
        let backed = upkeep::back_up(&self.0.store, home, to, point, progress)?;
        let store::Backed { objects, bytes, labels, missing, .. } = backed;
        tracing::info!(point, objects, bytes, labels, missing, "backed up");
        Ok(backed)
    }

    fn restore_labels(
        &self,
        from: &Path,
        point: Option<&str>,
        labels: &[String],
        replaces: bool,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(String, store::Restored), store::Error> {
        upkeep::restore_labels(&self.0.store, from, point, labels, replaces, progress)
    }

    fn local(&self, handle: Handle) -> Option<Object> {
        self.0.store.local(handle)
    }

    fn get(&self, handle: Handle) -> Result<Option<Object>, store::Error> {
        recomputing::get(&self.0.store, handle)
    }

    fn has(&self, handle: Handle) -> Result<bool, store::Error> {
        self.0.store.contains(handle)
    }

    fn get_range(&self, handle: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, store::Error> {
        recomputing::get_range(&self.0.store, handle, range)
    }

    fn known_alike(&self, alike: Handle) -> Option<Handle> {
        let goal = self.0.store.relations().get(alike)?.result.strict()?;
        let result = self.0.known(goal).filter(|result| !result.is_failure())?;
        let is_here = result.literal_bytes().is_some() || self.0.store.contains(result).unwrap_or(false);
        is_here.then_some(goal)
    }

    fn note_alike(&self, alike: Handle, application: Handle) {
        let relations = self.0.store.relations();
        let known = application.strict().and_then(|goal| relations.look(goal));
        // It is worth as much as what it leads to.
        let Some(known) = known.or_else(|| relations.look(application)) else { return };
        let record = Record { result: application, rule: Rule::Resolve, ..known.record };
        relations.insert(alike, record);
    }

    fn evaluate(&self, request: EvaluateRequest) -> Result<Box<dyn Evaluation>, String> {
        let node = Arc::clone(&self.0);
        let begun = Instant::now();
        let mut evaluation = RunningEvaluation {
            node,
            begun,
            goal: request.goal,
            deadline: request.deadline,
            is_repeatable: request.is_repeatable,
            known: None,
            submitted: None,
            ledger: None,
            is_lasting: true,
            patient_until: None,
        };
        if let Some(recording) = request.recording {
            let bytes = evaluation.node.budgets.relations_bytes;
            let tenant = request.tenant.as_deref();
            evaluation.ledger = evaluation.node.ledgers.open(recording, bytes, tenant);
            if evaluation.ledger.is_none() {
                let whose = tenant.map_or(String::new(), |tenant| format!(", or may be for {tenant},"));
                return Err(format!(
                    "as many evaluations as may be{whose} are written down for receipts; try again later"
                ));
            }
        }
        let Some(goal) = goal_of(request.goal) else {
            evaluation.known = Some(request.goal);
            return Ok(Box::new(evaluation));
        };
        evaluation.goal = goal;
        if evaluation.ledger.is_none()
            && let Some(known) = evaluation.node.known(goal)
        {
            evaluation.known = Some(known);
            return Ok(Box::new(evaluation));
        }
        if evaluation.node.store.is_full() {
            return Err(full_text(&evaluation.node.store));
        }
        let priority = match request.priority {
            Priority::High => evaluator::Priority::High,
            Priority::Normal => evaluator::Priority::Normal,
            Priority::Low => evaluator::Priority::Low,
        };
        // What is asked for once is a function's request: a process has it soon.
        let submitted = if request.is_repeatable {
            let terms = evaluation.terms(priority, request.by);
            evaluation.node.requests.submit(goal, terms, request.streams)
        } else {
            evaluation.node.visitors.submit(goal, priority, request.streams)
        };
        match submitted {
            Some(submitted) => evaluation.submitted = Some(submitted),
            None => {
                let max = evaluation.node.budgets.requests_max;
                return Err(format!("the node is stopping, or has its {max} requests; try again later"));
            }
        }
        Ok(Box::new(evaluation))
    }

    fn acknowledges_tier(&self) -> bool {
        self.0.tier.as_ref().is_some_and(|tier| tier.acknowledge == Acknowledge::Tier)
    }

    fn tier_until(&self, awaited: store::Awaited, patience: Option<Duration>) -> Result<(), store::Error> {
        let usual = || self.0.tier.as_ref().map(Tier::patience).unwrap_or_default() + awaited.allowance();
        let patience = patience.unwrap_or_else(usual);
        self.0.store.tier_until(awaited, patience)
    }

    fn tier(&self) -> Result<Option<store::TierStatus>, store::Error> {
        self.0.store.tier_status()
    }

    fn collect_tier(&self, kept: Option<Duration>, is_trial: bool) -> Result<TierCollected, store::Error> {
        self.0.collecting.collect_tier(kept, is_trial)
    }

    fn take_tier(&self) -> Result<store::Taken, store::Error> {
        let taken = self.0.store.take_tier()?;
        let store::Taken { labels, objects, damaged, .. } = taken;
        tracing::info!(labels, objects, damaged, "took the durable tier over");
        Ok(taken)
    }

    fn explain(&self, handle: Handle) -> Result<Explanation, store::Error> {
        let store = &self.0.store;
        let definition = handle.plain_tree();
        let place = if definition.literal_bytes().is_some() {
            Place::Literal
        } else if store.local(definition).is_some() {
            Place::Memory
        } else if store.contains(definition)? {
            match store.is_here(definition)? {
                true => Place::Disk,
                false => Place::Tier,
            }
        } else if store.recipe(definition)?.is_some() {
            Place::Dropped
        } else {
            Place::Absent
        };
        let derivation = recomputing::derivation(store, handle)?;
        let transfer = recomputing::transfer(store, definition)?;
        let made_by =
            if handle.is_value() { store.relations().made_by(handle, MAKERS_MAX) } else { Vec::new() };
        let compilation = self.0.codelets.compilation(definition);
        let compilation = compilation.map(describe).unwrap_or_default();
        Ok(Explanation {
            handle,
            place,
            steps: self.steps(handle),
            made_by,
            derivation,
            transfer,
            compilation,
        })
    }

    fn set_label(&self, name: &str, handle: Handle) -> Result<(), store::Error> {
        self.0.store.set_label(name, handle)
    }

    fn label(&self, name: &str) -> Result<Option<Handle>, store::Error> {
        self.0.store.label(name)
    }

    fn remove_label(&self, name: &str) -> Result<bool, store::Error> {
        self.0.store.remove_label(name)
    }

    fn labels(&self) -> Result<Vec<(String, Handle)>, store::Error> {
        self.0.store.labels()
    }

    fn functions(&self) -> Option<&dyn Functions> {
        Some(&*self.0.deployments)
    }

    fn keys(&self) -> Option<&dyn Keys> {
        Some(&self.0.keys)
    }

    fn signing(&self) -> Option<&dyn gateway::Signing> {
        Some(&self.0.identity)
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        Some(self.0.queue.clone())
    }

    fn callbacks(&self) -> Option<&dyn gateway::Callbacks> {
        Some(&self.0.callbacks)
    }

    fn exporter(&self) -> Option<&dyn gateway::Exporter> {
        Some(&self.0.exports)
    }

    fn collector(&self) -> Option<&dyn gateway::Collector> {
        self.0.collector.as_ref().map(|collector| collector as _)
    }

    fn ready(&self) -> Result<(), String> {
        let requests = self.0.scheduler.requests();
        if requests >= self.0.budgets.requests_max {
            return Err(format!("{requests} requests are under way"));
        }
        Ok(())
    }

    fn gauges(&self) -> Vec<Gauge> {
        self.0.gauges()
    }
}

fn describe(compilation: Compilation) -> Vec<(String, String)> {
    let origin = match compilation.origin {
        Origin::Compiled => "compiled",
        Origin::Disk => "read from the cache on disk",
    };
    let variant = if compilation.counted { "counts fuel" } else { "counts no fuel" };
    let instance = match compilation.class {
        Class::Stateless => "stateless: one serves all applications",
        Class::Restored => "restored to its first state after each application",
        Class::Fresh => "a new one for each application",
        Class::Program => "a new one for each run of the program",
    };
    let lines = [
        ("code", format!("{} bytes, {origin}, {variant}", compilation.code_bytes)),
        ("instance", instance.to_owned()),
        ("ready in", format!("{:.1} ms", compilation.nanos as f64 / 1e6)),
    ];
    lines.map(|(what, value)| (what.to_owned(), value)).into()
}

/// The most computations that one explanation names as makers.
const MAKERS_MAX: usize = 16;

impl NodeBackend {
    /// Follows the remembered steps from a thunk or encode. The goal's own
    /// result, where it is recorded, comes last.
    fn steps(&self, handle: Handle) -> Vec<Remembered> {
        let relations = self.0.store.relations();
        let mut steps = Vec::new();
        let mut at = handle;
        while steps.len() < EXPLAIN_STEPS_MAX
            && let Some(thunk) = at.thunk()
            && let Some(step) = relations.look(thunk)
        {
            steps.push(step);
            at = step.record.result;
        }
        let goal = goal_of(handle).and_then(|goal| relations.look(goal));
        if handle.is_encode() {
            steps.extend(goal);
        } else if let Some(last) = steps.last_mut() {
            // Whoever asks for a thunk again finds its goal's result before its steps.
            last.was_hit |= goal.is_some_and(|goal| goal.was_hit);
        }
        steps
    }
}

/// What evaluating a handle means: a thunk's complete result, what an encode
/// asks for, a tree with all its entries evaluated. `None`: nothing to do.
fn goal_of(handle: Handle) -> Option<Handle> {
    match handle.kind() {
        Kind::Blob | Kind::Failure => None,
        Kind::Tree | Kind::TreeRef | Kind::BlobRef => handle.identification().and_then(Handle::strict),
        Kind::Strict | Kind::Shallow => Some(handle),
        Kind::Application | Kind::Identification | Kind::Selection => handle.strict(),
    }
}

/// How long a worker has to notice that a deadline passed.
const STOP_GRACE: Duration = Duration::from_millis(200);

struct RunningEvaluation {
    node: Arc<Node>,
    begun: Instant,
    goal: Handle,
    deadline: Option<Duration>,
    is_repeatable: bool,
    known: Option<Handle>,
    submitted: Option<(Arc<Request>, oneshot::Receiver<Told>)>,
    ledger: Option<Arc<Ledger>>,
    /// The result, if there is one, comes again.
    is_lasting: bool,
    /// When the request stops waiting for others.
    patient_until: Option<Instant>,
}

/// A request that is wanted by some time waits for others for this part of it: what it
/// takes is not known before, and may be as much as the rest.
const PATIENT_PART: u32 = 2;

impl RunningEvaluation {
    /// What the scheduler is told of the request beside its goal.
    fn terms(&mut self, priority: evaluator::Priority, by: Option<Duration>) -> Terms {
        self.patient_until = by.map(|by| self.begun + by / PATIENT_PART);
        let moment = |until: Instant| until.duration_since(self.node.began).as_nanos() as u64;
        Terms {
            priority,
            patient_until: self.patient_until.map(moment),
            context: self.ledger.clone().map(|ledger| ledger as _),
        }
    }

    /// Waits as long as the request lets others go first, or until something is told.
    async fn wait_patiently(&mut self) -> Option<Result<Told, oneshot::error::RecvError>> {
        let (until, (request, receiver)) = (self.patient_until?, self.submitted.as_mut()?);
        let last = self.deadline.map_or(until, |deadline| until.min(self.begun + deadline));
        match tokio::time::timeout_at(last.into(), &mut *receiver).await {
            Ok(told) => Some(told),
            Err(_) => {
                self.node.scheduler.urge(request);
                self.patient_until = None;
                None
            }
        }
    }

    /// Waits for the result, or until it begins to come; `None` for the former.
    async fn wait_for_some(&mut self) -> Option<Outlet> {
        if self.known.is_some() {
            return None;
        }
        let told = self.wait_patiently().await;
        let (request, receiver) = self.submitted.as_mut()?;
        let until = self.deadline.and_then(|deadline| self.begun.checked_add(deadline));
        let told = match (told, until) {
            (Some(told), _) => told,
            (None, Some(until)) => {
                match tokio::time::timeout_at(until.into(), &mut *receiver).await {
                    Ok(told) => told,
                    Err(_) => {
                        self.node.stop(request, Stop::Deadline);
                        // The worker is not waited for longer: the time is
                        // over either way.
                        let told = tokio::time::timeout(STOP_GRACE, &mut *receiver).await;
                        let overdue = || self.node.failure(FailureCode::Deadline, self.goal);
                        told.unwrap_or_else(|_| Ok(Told::Result(overdue())))
                    }
                }
            }
            (None, None) => (&mut *receiver).await,
        };
        self.known = Some(match told {
            Ok(Told::Begins(outlet, rest)) => {
                *receiver = rest;
                return Some(outlet);
            }
            Ok(Told::Result(result)) => result,
            // The sender is dropped only when the node shuts down.
            Err(_) => self.node.failure(FailureCode::Cancelled, self.goal),
        });
        None
    }

    async fn wait(&mut self) -> Evaluated {
        // Whoever waits for the end alone does not want what comes before.
        while self.wait_for_some().await.is_some() {}
        let result = self.known.unwrap_or(self.goal);
        let tally = self.tally();
        self.is_lasting &= self.submitted.as_ref().is_none_or(|(request, _)| request.is_lasting());
        self.submitted = None;
        self.known = Some(result);
        self.conclude(result, tally, self.is_lasting)
    }

    /// What ran for this request; nothing where it was known.
    fn tally(&self) -> Tally {
        self.submitted.as_ref().map(|(request, _)| request.tally()).unwrap_or_default()
    }

    fn conclude(&self, result: Handle, tally: Tally, is_lasting: bool) -> Evaluated {
        let Tally { applied, nanos, fuel, charge, .. } = tally;
        let wall = self.begun.elapsed();
        let is_worth_it = wall.as_nanos() > u128::from(WORTH_KEEPING_NANOS) && applied > 0;
        let is_fresh = self.ledger.as_ref().is_some_and(|ledger| ledger.is_fresh());
        if self.is_repeatable && !is_fresh && is_worth_it && is_lasting && self.goal.is_encode() {
            self.record(result, wall);
        }
        let tree = result.is_failure().then(|| self.node.store.get(result.plain_tree()));
        let failure = match tree {
            Some(Ok(Some(tree))) => Failure::from_tree(tree.as_tree()).ok(),
            _ => None,
        };
        // A failure whose tree is not here, or is none, is a failure all the same.
        let nameless = || Failure {
            code: FailureCode::MissingData,
            application: self.goal,
            detail: Handle::literal(b"its tree is not here").unwrap_or(self.goal),
        };
        let failure = failure.or_else(|| result.is_failure().then(nameless));
        let Charge { inputs_bytes, reserved_bytes, fuel: counted, uncounted_nanos } = charge;
        let cost = objects::Cost { inputs_bytes, reserved_bytes, fuel: counted, uncounted: 0 };
        let ran = Duration::from_nanos(nanos);
        Evaluated { result, failure, applied, wall, ran, fuel, cost, uncounted_nanos }
    }

    /// The request's own goal, with what it took as a whole, so that it
    /// outlives the process.
    fn record(&self, result: Handle, wall: Duration) {
        let is_identity = self.goal.thunk().is_some_and(|thunk| thunk.kind() == Kind::Identification);
        if result.is_failure() || !result.is_value() || is_identity {
            return;
        }
        let rule = if self.goal.kind() == Kind::Strict { Rule::Strict } else { Rule::Shallow };
        let record = Record { result, rule, nanos: wall.as_nanos() as u64, fuel: 0 };
        self.node.store.relations().insert(self.goal, record);
    }
}

/// Below this, evaluating again is as good as remembering over a restart.
const WORTH_KEEPING_NANOS: u64 = 50_000;

impl Evaluation for RunningEvaluation {
    fn begins(&mut self) -> Beginning<'_> {
        Box::pin(async { self.wait_for_some().await.map(|outlet| Box::new(outlet) as _) })
    }

    fn finished(&mut self) -> Pin<Box<dyn Future<Output = Evaluated> + Send + '_>> {
        Box::pin(self.wait())
    }

    fn noted(&mut self) -> Option<Noted> {
        let ledger = self.ledger.take()?;
        Some(Noted {
            goal: self.goal,
            steps: ledger.steps(),
            is_fresh: ledger.is_fresh(),
            is_lasting: self.is_lasting,
        })
    }

    fn progress(&self) -> Progress {
        let (parked, _) = self.node.scheduler.waiting();
        let waiting = (parked + self.node.scheduler.runnable()) as u64;
        let tally = self.tally();
        let Tally { applied, found, settled, remembered, .. } = tally;
        Progress { applied, waiting, known: found, done: settled, memo_hits: remembered }
    }
}

impl Drop for RunningEvaluation {
    fn drop(&mut self) {
        if let Some((request, _)) = &self.submitted {
            self.node.stop(request, Stop::Cancelled);
        }
    }
}

impl Node {
    /// The goal's result, if no worker is needed to tell: the goal is recorded
    /// itself, or follows from its thunk's one step.
    fn known(&self, goal: Handle) -> Option<Handle> {
        let relations = self.store.relations();
        let step = || relations.get(goal.thunk()?).map(|record| record.result);
        let is_final =
            |result: &Handle| result.is_value() && (result.is_failure() || result.literal_bytes().is_some());
        relations.get(goal).map(|record| record.result).or_else(|| step().filter(is_final))
    }

    /// A failure of the request itself.
    pub(crate) fn failure(&self, code: FailureCode, goal: Handle) -> Handle {
        let detail = self.store.keep_blob(b"the request ended before a worker took it up");
        let application = goal.thunk().unwrap_or(goal);
        let (failure, tree) = Failure { code, application, detail }.to_tree();
        self.store.keep_tree(tree.view());
        failure
    }

    fn gauges(&self) -> Vec<Gauge> {
        let stats = self.store.stats();
        let sources = self.sources.stats();
        let (parked, awaiting_memory) = self.scheduler.waiting();
        let gauge = |name, help, value| Gauge { name, help, is_counter: false, value };
        let counter = |name, help, value| Gauge { name, help, is_counter: true, value };
        vec![
            counter("applications", "Procedures run.", self.applied()),
            gauge("requests", "Evaluations submitted and not answered.", self.scheduler.requests() as u64),
            gauge("jobs_parked", "Walks that wait for an event.", parked as u64),
            gauge("jobs_awaiting_memory", "Walks that wait for memory.", awaiting_memory as u64),
            gauge(
                "jobs_awaiting_room",
                "Walks that wait until others let their inputs go.",
                self.scheduler.awaiting_room() as u64,
            ),
            gauge("walk_bytes", "Bytes of the stacks of walks that nest deep.", self.scheduler.walk_bytes()),
            gauge("inputs_held_bytes", "Bytes of inputs that walks hold.", self.scheduler.held_bytes()),
            gauge("jobs_runnable", "Walks that wait for a worker.", self.scheduler.runnable() as u64),
            gauge("workers", "Worker threads.", self.budgets.workers as u64),
            gauge(
                "modules_pending",
                "Procedures being compiled, or waiting for it.",
                self.codelets.coming() as u64,
            ),
            gauge("fetches_pending", "Objects being read from the disk.", self.fetcher.pending() as u64),
            gauge("sources_pending", "External data that is waited for.", sources.pending),
            counter("sources_fetched", "External data that came.", sources.fetched),
            counter("sources_fetched_bytes", "Bytes of it.", sources.bytes),
            counter(
                "sources_unchanged",
                "External data that had not changed since it came.",
                sources.unchanged,
            ),
            gauge(
                "sources_unfinished_bytes",
                "Bytes of the disk that are kept for external data that is not whole yet.",
                sources.unfinished_bytes,
            ),
            counter("sources_failed", "External data that did not come.", sources.failed),
            gauge("objects_memory", "Objects in memory.", stats.memory_objects),
            gauge("objects_memory_bytes", "Bytes of objects in memory.", stats.memory_bytes),
            gauge("objects_disk", "Objects on disk.", stats.disk_objects),
            gauge("objects_disk_bytes", "Bytes of objects on disk.", stats.disk_bytes),
            counter("objects_disk_reads", "Objects, or parts of them, read from the disk.", stats.disk_reads),
            counter(
                "objects_disk_read_bytes",
                "Bytes of them that were looked at; of a large object in part, no more than the groups that it is in.",
                stats.disk_read_bytes,
            ),
            counter("store_corrupt", "Objects and relations that were found damaged.", stats.corrupt),
            counter("objects_collected", "Objects that nobody needed, taken from the disk.", stats.collected),
            gauge("recipes", "Objects that are not on the disk and can be made again.", stats.recipes),
            counter(
                "objects_remade",
                "Times that a walk was told to make an object again.",
                self.fetcher.remakes.asked(),
            ),
            counter(
                "objects_unmade",
                "Times that an object's recipe gave something else.",
                self.fetcher.remakes.wrong(),
            ),
            counter("objects_evicted", "Objects dropped from memory.", stats.evictions),
            gauge("relations", "Remembered evaluation steps.", stats.relations),
        ]
        .into_iter()
        .chain(self.tier_gauges())
        .collect()
    }
}
