// SPDX-License-Identifier: Apache-2.0
//! A world in memory that every worker of a test shares.
//!
//! It stores objects, remembers relations with claims, runs the scripted
//! procedures of `procedures.rs`, and counts what was loaded, asked for and
//! applied. It also checks what the evaluator promises: a procedure runs only
//! when everything it could read is local, and only under a claim.
//! Only the public interface is used, so that the fuzzer can share this file.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::api::{self, Applied, Claim, Cost, Event, Fetch, Host, JobId, Outcome, Request, Rule};
use objects::{Application, Failure, Handle, Limits, Part, TreeBuilder, TreeView};

use super::procedures::{self, Call};

/// What all workers of a test share, and what each has.
pub(super) type Scheduler = api::Scheduler<Arc<[u8]>>;
pub(super) type Evaluator = api::Evaluator<Arc<[u8]>>;
pub(super) type Job = api::Job<Arc<[u8]>>;

/// What becomes of a wish for an object that is not local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distance {
    /// It is made local while the evaluator asks.
    Near,
    /// It comes when [`World::deliver`] says so.
    Far,
}

/// Everything that the workers share.
#[derive(Default)]
pub(super) struct World {
    objects: Mutex<HashMap<Handle, Arc<[u8]>>>,
    remote: Mutex<HashMap<Handle, Remote>>,
    relations: Mutex<HashMap<Handle, Relation>>,
    mail: Mutex<VecDeque<Mail>>,
    counts: Mutex<Counts>,
    changed: Condvar,
    /// Before every application, what nobody holds is made remote.
    evicts: AtomicBool,
    /// How what is nowhere is made again.
    recipes: Mutex<HashMap<Handle, Handle>>,
    /// What comes if its recipe fails, and only then; `None`: it was to, and does not.
    elsewhere: Mutex<HashMap<Handle, Option<Arc<[u8]>>>>,
    /// What is told to be damaged.
    damaged: Mutex<HashSet<Handle>>,
    /// Procedures whose code has been made.
    compiled: Mutex<HashSet<Handle>>,
}

type Remote = (Arc<[u8]>, Distance);

enum Relation {
    Known(Handle, Rule),
    InFlight(Vec<JobId>),
}

/// What [`World::deliver`] will send.
enum Mail {
    Arrival(Handle, JobId),
    Loss(Handle, JobId),
    Recipe(Handle, Handle, bool, JobId),
    Damage(Handle, JobId),
    Outcome(JobId, Outcome),
    Code(Handle, JobId),
    Taken(Handle, JobId),
}

/// What happened so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    /// Runs of a procedure, by its name.
    pub(super) procedures: HashMap<String, usize>,
    /// Runs by application thunk.
    pub(super) applied: HashMap<Handle, usize>,
    /// Objects whose bytes were looked at by the evaluator or a procedure.
    pub(super) loaded: HashSet<Handle>,
    /// Objects that were asked for, in order.
    pub(super) fetched: Vec<Handle>,
    /// Objects of which only a part was asked for, and given.
    pub(super) taken: Vec<Handle>,
    /// Objects that were asked for in the other way, in order.
    pub(super) unmade: Vec<Handle>,
    /// Claims that somebody else held.
    pub(super) busy: usize,
    /// Names of the procedures in the order in which they ran.
    pub(super) order: Vec<String>,
    /// Waits for a claim that were turned down or accepted.
    pub(super) waits: usize,
}

impl Counts {
    /// Runs of the procedure `name`.
    pub(super) fn runs(&self, name: &str) -> usize {
        self.procedures.get(name).copied().unwrap_or(0)
    }

    /// Runs of all procedures.
    pub(super) fn total(&self) -> usize {
        self.procedures.values().sum()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl World {
    /// A world with nothing in it.
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// From now on, what nobody holds leaves before every application.
    pub(super) fn evict_always(&self) {
        self.evicts.store(true, Ordering::Relaxed);
    }

    /// Stores a blob.
    pub(super) fn blob(&self, bytes: &[u8]) -> Handle {
        let handle = Handle::blob(bytes);
        if handle.literal_bytes().is_none() {
            lock(&self.objects).entry(handle).or_insert_with(|| bytes.into());
        }
        handle
    }

    /// Stores a tree.
    pub(super) fn tree(&self, entries: &[Handle]) -> Handle {
        let tree: TreeBuilder = entries.iter().copied().collect();
        let handle = tree.view().handle();
        lock(&self.objects).entry(handle).or_insert_with(|| tree.into_bytes().into());
        handle
    }

    /// Stores an application with default limits.
    pub(super) fn application(&self, procedure: &str, arguments: &[Handle]) -> Handle {
        let head = [Handle::blob(b""), self.blob(procedure.as_bytes())];
        let entries: Vec<Handle> = head.into_iter().chain(arguments.iter().copied()).collect();
        self.tree(&entries).application().unwrap()
    }

    /// Stores a selection of one element.
    pub(super) fn selection(&self, target: Handle, index: u64) -> Handle {
        self.tree(&[target, Handle::u64(index)]).selection().unwrap()
    }

    /// Stores a selection of a range.
    pub(super) fn range(&self, target: Handle, begin: u64, end: u64) -> Handle {
        self.tree(&[target, Handle::u64(begin), Handle::u64(end)]).selection().unwrap()
    }

    /// Stores a failure value.
    pub(super) fn failure(&self, code: objects::FailureCode, application: Handle, detail: &str) -> Handle {
        let detail = self.blob(detail.as_bytes());
        let (handle, tree) = Failure { code, application, detail }.to_tree();
        self.tree(&tree.view().iter().collect::<Vec<_>>());
        handle
    }

    /// Takes a failure apart.
    pub(super) fn explain(&self, failure: Handle) -> (Failure, String) {
        assert!(failure.is_failure(), "{failure} is no failure");
        let bytes = self.peek(failure).expect("failures are stored");
        let failure = Failure::from_tree(TreeView::from_checked(&bytes)).expect("failures are well-formed");
        let detail = self.peek(failure.detail).expect("details are stored");
        (failure, String::from_utf8(detail.to_vec()).expect("details are text"))
    }

    /// Bytes of a local object or literal, without counting.
    pub(super) fn peek(&self, object: Handle) -> Option<Arc<[u8]>> {
        match object.literal_bytes() {
            Some(bytes) => Some(bytes.into()),
            None => lock(&self.objects).get(&object.plain_tree()).cloned(),
        }
    }

    /// Entries of a local tree, without counting.
    pub(super) fn entries(&self, tree: Handle) -> Vec<Handle> {
        TreeView::from_checked(&self.peek(tree).expect("the tree is local")).iter().collect()
    }

    /// Moves an object out of reach, as far as `distance` says.
    pub(super) fn send_away(&self, object: Handle, distance: Distance) {
        assert!(self.evict(object, distance), "{object} is held");
    }

    /// The same, unless somebody holds the object. Whether it is away now.
    pub(super) fn evict(&self, object: Handle, distance: Distance) -> bool {
        // In the order in which fetching takes the locks.
        let mut remote = lock(&self.remote);
        let mut objects = lock(&self.objects);
        if objects.get(&object.plain_tree()).is_some_and(|bytes| Arc::strong_count(bytes) > 1) {
            return false;
        }
        if let Some(bytes) = objects.remove(&object.plain_tree()) {
            remote.insert(object.plain_tree(), (bytes, distance));
        }
        true
    }

    /// Evicts everything that nobody holds; how much that was.
    pub(super) fn evict_all(&self, distance: Distance) -> usize {
        let all: Vec<Handle> = lock(&self.objects).keys().copied().collect();
        all.into_iter().filter(|&object| self.evict(object, distance)).count()
    }

    /// Forgets an object.
    pub(super) fn lose(&self, object: Handle) {
        lock(&self.objects).remove(&object.plain_tree());
        lock(&self.remote).remove(&object.plain_tree());
    }

    /// Forgets an object of which is known how it is made.
    pub(super) fn drop_derived(&self, object: Handle, recipe: Handle) {
        self.lose(object);
        lock(&self.recipes).insert(object.plain_tree(), recipe);
    }

    /// The same, of one that comes in another way if its recipe fails; `comes`: it does indeed.
    pub(super) fn drop_with_other(&self, object: Handle, recipe: Handle, comes: bool) {
        let bytes = self.peek(object).filter(|_| comes);
        self.drop_derived(object, recipe);
        lock(&self.elsewhere).insert(object.plain_tree(), bytes);
    }

    /// Forgets an object of which is known that it is damaged.
    pub(super) fn damage(&self, object: Handle) {
        self.lose(object);
        lock(&self.damaged).insert(object.plain_tree());
    }

    /// Forgets what `key` leads to.
    pub(super) fn forget(&self, key: Handle) {
        lock(&self.relations).remove(&key);
    }

    /// What is remembered of `key`.
    pub(super) fn relation(&self, key: Handle) -> Option<(Handle, Rule)> {
        match lock(&self.relations).get(&key) {
            Some(Relation::Known(result, rule)) => Some((*result, *rule)),
            _ => None,
        }
    }

    /// Claims that nobody ended yet.
    pub(super) fn claims(&self) -> usize {
        lock(&self.relations).values().filter(|relation| matches!(relation, Relation::InFlight(_))).count()
    }

    /// What happened so far.
    pub(super) fn counts(&self) -> Counts {
        lock(&self.counts).clone()
    }

    /// Events that are due.
    pub(super) fn due(&self) -> usize {
        lock(&self.mail).len()
    }

    /// Sends the oldest event that is due. `false`: there is none.
    pub(super) fn deliver(&self, scheduler: &Scheduler) -> bool {
        let Some(mail) = lock(&self.mail).pop_front() else {
            return false;
        };
        match mail {
            Mail::Arrival(object, job) => {
                let mut remote = lock(&self.remote);
                if let Some((bytes, _)) = remote.remove(&object) {
                    lock(&self.objects).entry(object).or_insert(bytes);
                }
                drop(remote);
                scheduler.resume(job, Event::Arrived);
            }
            Mail::Taken(part, job) => scheduler.resume(job, Event::Taken(part)),
            Mail::Loss(object, job) => scheduler.resume(job, Event::Missing(object)),
            Mail::Recipe(object, recipe, has_other, job) => {
                scheduler.resume(job, Event::Dropped { object, recipe, has_other });
            }
            Mail::Damage(object, job) => {
                let detail = self.blob(b"it has other bytes than it should have");
                scheduler.resume(job, Event::Unreadable { object, detail });
            }
            Mail::Outcome(job, outcome) => scheduler.resume(job, Event::Applied(outcome)),
            Mail::Code(procedure, job) => {
                lock(&self.compiled).insert(procedure);
                scheduler.resume(job, Event::Arrived);
            }
        }
        true
    }

    /// Blocks until somebody found a claim busy and waits for it.
    pub(super) fn await_waiter(&self) {
        self.await_counts(|counts| counts.waits > 0);
    }

    /// Blocks until the procedure `name` has begun to run a second time.
    pub(super) fn await_second(&self, name: &str) {
        self.await_counts(|counts| counts.runs(name) > 1);
    }

    fn await_counts(&self, has_come: impl Fn(&Counts) -> bool) {
        let patience = std::time::Duration::from_secs(30);
        let awaited =
            self.changed.wait_timeout_while(lock(&self.counts), patience, |counts| !has_come(counts));
        let is_late = awaited.is_ok_and(|(_, waited)| waited.timed_out());
        assert!(!is_late, "no other worker came");
    }

    /// Runs the procedure of an application; what a node would make of it.
    pub(super) fn run(&self, thunk: Handle, application: &Application<'_>) -> Outcome {
        let entries: Vec<Handle> = application.tree.iter().collect();
        let outcome = procedures::run(&mut Call { world: self, entries });
        let cost = Cost { nanos: 1, ..Cost::default() };
        match outcome {
            Ok(result) => Outcome { result, cost, is_lasting: true },
            Err(procedures::Fault::Failure(code, detail)) => {
                let result = self.failure(code, thunk, &detail);
                Outcome { result, cost, is_lasting: code.is_deterministic() }
            }
            Err(procedures::Fault::Unsteady(result)) => Outcome { result, cost, is_lasting: false },
        }
    }

    /// What a procedure could read is here.
    pub(super) fn first_missing_input(&self, tree: TreeView<'_>) -> Option<Handle> {
        let mut pending: Vec<Handle> = tree.iter().collect();
        pending.reverse();
        let mut seen = HashSet::new();
        while let Some(entry) = pending.pop() {
            if !entry.is_object() || entry.literal_bytes().is_some() || !seen.insert(entry) {
                continue;
            }
            match self.peek(entry) {
                None => return Some(entry.plain_tree()),
                Some(data) if entry.names_tree() => {
                    pending.extend(TreeView::from_checked(&data).iter().rev())
                }
                Some(_) => {}
            }
        }
        None
    }

    fn note_run(&self, thunk: Handle, name: &str) {
        let mut counts = lock(&self.counts);
        *counts.procedures.entry(name.to_owned()).or_default() += 1;
        *counts.applied.entry(thunk).or_default() += 1;
        counts.order.push(name.to_owned());
        self.changed.notify_all();
    }

    pub(super) fn note_load(&self, object: Handle) {
        lock(&self.counts).loaded.insert(object);
    }
}

/// One worker's view of the world.
pub(super) struct FakeHost {
    /// What it shares with the others.
    pub(super) world: Arc<World>,
    /// Whom it tells about events.
    pub(super) scheduler: Arc<Scheduler>,
    /// What happens elsewhere while this worker asks for an object.
    pub(super) meanwhile: Option<Box<dyn FnMut() + Send>>,
}

impl FakeHost {
    fn end_claim(&self, thunk: Handle, known: Option<Relation>) {
        let before = {
            let mut relations = lock(&self.world.relations);
            let before = relations.remove(&thunk);
            if let Some(known) = known {
                relations.insert(thunk, known);
            }
            before
        };
        let Some(Relation::InFlight(waiters)) = before else {
            panic!("{thunk} was not claimed");
        };
        for waiter in waiters {
            self.scheduler.resume(waiter, Event::Look);
        }
    }
}

impl Host for FakeHost {
    type Data = Arc<[u8]>;

    fn local(&mut self, object: Handle) -> Option<Arc<[u8]>> {
        assert!(object.literal_bytes().is_none(), "literals are not stored");
        assert!(object.is_object() && !object.is_failure(), "{object} is looked up by its plain name");
        let found = lock(&self.world.objects).get(&object).cloned();
        if found.is_some() {
            self.world.note_load(object);
        }
        found
    }

    fn fetch(&mut self, object: Handle, waiter: JobId) -> Fetch {
        lock(&self.world.counts).fetched.push(object);
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile();
        }
        // Held while looking here: else it could be on its way from there to here.
        let mut remote = lock(&self.world.remote);
        if lock(&self.world.objects).contains_key(&object) {
            return Fetch::Here;
        }
        let recipe = lock(&self.world.recipes).get(&object).copied();
        if let Some(recipe) = recipe.filter(|_| !remote.contains_key(&object)) {
            let has_other = lock(&self.world.elsewhere).contains_key(&object);
            lock(&self.world.mail).push_back(Mail::Recipe(object, recipe, has_other, waiter));
            return Fetch::Coming;
        }
        if lock(&self.world.damaged).contains(&object) {
            lock(&self.world.mail).push_back(Mail::Damage(object, waiter));
            return Fetch::Coming;
        }
        match remote.get(&object).map(|(_, distance)| *distance) {
            Some(Distance::Near) => {
                if let Some((bytes, _)) = remote.remove(&object) {
                    lock(&self.world.objects).entry(object).or_insert(bytes);
                }
                Fetch::Here
            }
            Some(Distance::Far) => {
                lock(&self.world.mail).push_back(Mail::Arrival(object, waiter));
                Fetch::Coming
            }
            // Half of what is nowhere is known to be at once.
            None if object.hash_bytes()[0].is_multiple_of(2) => Fetch::Missing,
            None => {
                lock(&self.world.mail).push_back(Mail::Loss(object, waiter));
                Fetch::Coming
            }
        }
    }

    fn fetch_unmade(&mut self, object: Handle, part: Option<Part>, waiter: JobId) -> Fetch {
        lock(&self.world.counts).unmade.push(object);
        match lock(&self.world.elsewhere).remove(&object) {
            Some(Some(bytes)) => lock(&self.world.remote).insert(object, (bytes, Distance::Far)),
            // It would come, and is lost.
            Some(None) => {
                lock(&self.world.mail).push_back(Mail::Loss(object, waiter));
                return Fetch::Coming;
            }
            None => panic!("{object} was asked for twice in the other way, or has none"),
        };
        match part {
            Some(part) => self.fetch_part(object, part, waiter),
            None => self.fetch(object, waiter),
        }
    }

    /// Of what is far only the part comes.
    fn fetch_part(&mut self, object: Handle, part: Part, waiter: JobId) -> Fetch {
        let range = part.within(object.size()).expect("the evaluator has looked");
        let remote = lock(&self.world.remote);
        let Some((bytes, Distance::Far)) = remote.get(&object) else {
            drop(remote);
            return self.fetch(object, waiter);
        };
        let (begin, end) = (range.start as usize, range.end as usize);
        let entries = || TreeView::from_checked(bytes).iter().collect::<Vec<_>>();
        let taken = match part {
            _ if !object.names_tree() => self.world.blob(&bytes[begin..end]),
            Part::Element(_) => entries()[begin],
            Part::Range { .. } => self.world.tree(&entries()[begin..end]),
        };
        lock(&self.world.counts).taken.push(object);
        lock(&self.world.mail).push_back(Mail::Taken(taken, waiter));
        Fetch::Coming
    }

    fn keep_tree(&mut self, tree: TreeView<'_>) -> Handle {
        self.world.tree(&tree.iter().collect::<Vec<_>>())
    }

    fn keep_blob(&mut self, bytes: &[u8]) -> Handle {
        self.world.blob(bytes)
    }

    fn recall(&mut self, key: Handle) -> Option<Handle> {
        assert!(key.is_thunk() || key.is_encode());
        self.world.relation(key).map(|(result, _)| result)
    }

    fn remember(&mut self, key: Handle, result: Handle, rule: Rule) {
        assert!(key.is_thunk() || key.is_encode());
        assert_eq!(key.is_encode(), matches!(rule, Rule::Strict | Rule::Shallow), "{key} by {rule:?}");
        let mut relations = lock(&self.world.relations);
        match relations.insert(key, Relation::Known(result, rule)) {
            Some(Relation::Known(before, _)) => assert_eq!(before, result, "{key} has one result"),
            Some(Relation::InFlight(_)) => panic!("{key} is claimed"),
            None => {}
        }
    }

    fn claim(&mut self, thunk: Handle) -> Claim {
        let mut relations = lock(&self.world.relations);
        match relations.get(&thunk) {
            Some(Relation::Known(result, _)) => Claim::Known(*result),
            Some(Relation::InFlight(_)) => {
                lock(&self.world.counts).busy += 1;
                Claim::Busy
            }
            None => {
                relations.insert(thunk, Relation::InFlight(Vec::new()));
                Claim::Claimed
            }
        }
    }

    fn wait(&mut self, thunk: Handle, waiter: JobId) -> bool {
        let is_waiting = match lock(&self.world.relations).get_mut(&thunk) {
            Some(Relation::InFlight(waiters)) => {
                waiters.push(waiter);
                true
            }
            _ => false,
        };
        lock(&self.world.counts).waits += 1;
        self.world.changed.notify_all();
        is_waiting
    }

    fn fulfil(&mut self, thunk: Handle, result: Handle, _cost: Cost) {
        self.end_claim(thunk, Some(Relation::Known(result, Rule::Apply)));
    }

    fn abandon(&mut self, thunk: Handle) {
        self.end_claim(thunk, None);
    }

    fn forget(&mut self, recipe: Handle, object: Handle) {
        let mut relations = lock(&self.world.relations);
        let is_known = matches!(relations.get(&recipe), Some(Relation::Known(..)));
        if is_known && !lock(&self.world.objects).contains_key(&object) {
            relations.remove(&recipe);
        }
    }

    fn is_unmade(&mut self, object: Handle, _recipe: Handle, _result: Handle) -> bool {
        // In the order in which fetching takes the locks.
        let remote = lock(&self.world.remote);
        !remote.contains_key(&object) && !lock(&self.world.objects).contains_key(&object)
    }

    fn is_brought(&self, application: &Application<'_>) -> bool {
        let bytes = self.world.peek(application.procedure);
        bytes.is_some_and(|name| name.starts_with(b"brought return"))
    }

    fn is_prepared(&mut self, _limits: &Limits, procedure: Handle) -> bool {
        let name = procedures::name(&self.world, procedure);
        !name.starts_with("compiled ") || lock(&self.world.compiled).contains(&procedure)
    }

    fn prepare(
        &mut self,
        _limits: &Limits,
        procedure: Handle,
        waiter: JobId,
        _request: &Arc<Request>,
    ) -> Fetch {
        lock(&self.world.mail).push_back(Mail::Code(procedure, waiter));
        Fetch::Coming
    }

    fn apply(
        &mut self,
        thunk: Handle,
        limits: Limits,
        procedure: Handle,
        data: Arc<[u8]>,
        job: JobId,
    ) -> Applied {
        let application = &Application::from_tree(TreeView::from_bytes(&data).unwrap()).unwrap();
        assert_eq!(thunk, application.tree.handle().application().unwrap());
        assert_eq!((limits, procedure), (application.limits, application.procedure));
        if self.world.evicts.load(Ordering::Relaxed) {
            self.world.evict_all(Distance::Near);
        }
        assert_eq!(self.world.first_missing_input(application.tree), None, "an input is not local");
        let is_claimed = matches!(lock(&self.world.relations).get(&thunk), Some(Relation::InFlight(_)));
        assert!(is_claimed, "{thunk} runs without a claim");
        let name = procedures::name(&self.world, application.procedure);
        self.world.note_run(thunk, &name);
        let outcome = self.world.run(thunk, application);
        let name = name.strip_prefix("compiled ").unwrap_or(&name);
        if name.starts_with("early ") {
            self.scheduler.resume(job, Event::Applied(outcome));
            return Applied::Pending;
        }
        if name.starts_with("remote ") || name.starts_with("brought ") {
            lock(&self.world.mail).push_back(Mail::Outcome(job, outcome));
            return if name.starts_with("remote ") { Applied::Pending } else { Applied::Coming };
        }
        Applied::Done(outcome)
    }
}
