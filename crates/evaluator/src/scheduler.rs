// SPDX-License-Identifier: Apache-2.0
//! What all workers share: requests, the jobs that can run, those that wait.
//!
//! Per priority there are three queues, served in this order: *resumed* jobs,
//! whose events came and which may hold memory; the *ready*, which are new
//! requests and jobs that used up their slice, in order of arrival; *sparks*,
//! goals that some walk will need later. The ready get a turn at least after
//! every [`RESUMED_IN_A_ROW_MAX`] resumed ones. A spark may be dropped at any
//! time: the walk that offered it does the work itself.
//!
//! A request that can wait has the last priority, whose ready ones are in order of
//! how long they can (`patience.rs`), until it is *urged*.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use foldhash::HashMap;
use objects::Handle;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::admission::{Admission, AdmissionOptions};
use crate::again::Dropped;
use crate::host::Outcome;
use crate::job::{Job, JobId};
use crate::request::{Priority, Request, Stop, Terms};
use crate::walk::WalkPool;

/// What a waiting job is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Something that was busy is not any more.
    Look,
    /// An object that was asked for is local.
    Arrived,
    /// An object that was asked for, or a part of it, is nowhere.
    Missing(Handle),
    /// An object that was asked for cannot be had.
    Unreadable {
        /// What was asked for.
        object: Handle,
        /// A blob that the host keeps: why not, for people.
        detail: Handle,
    },
    /// An object that was asked for is not here, and is made again by its recipe, an application.
    Dropped {
        /// What was asked for.
        object: Handle,
        /// What makes it.
        recipe: Handle,
        /// Should that fail, it may come in another way ([`crate::Host::fetch_unmade`]).
        has_other: bool,
    },
    /// The part of an object that was asked for: what its selection leads to.
    Taken(Handle),
    /// The application that was [`crate::Applied::Pending`] ended. Sent once:
    /// a second one would pass for the end of the job's next application.
    Applied(Outcome),
    /// So many bytes of memory are reserved for the job.
    Admitted(u64),
    /// The job may hold so many bytes of inputs.
    Room(u64),
}

/// Bounds of the shared state.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerOptions {
    /// Worker threads.
    pub workers: usize,
    /// Requests that may be queued or running; more are refused.
    pub requests_max: usize,
    /// Memory for guests.
    pub admission: AdmissionOptions,
    /// Bytes of inputs that jobs hold, together. What workers hold beside that
    /// is up to half as much again.
    pub held_max_bytes: u64,
    /// Bytes of the stacks of all walks, together: what each of them takes
    /// beyond a few KiB.
    pub walk_max_bytes: u64,
    /// Jobs that wait for room and share a large input with the one that has just
    /// ended, and may therefore go before those that came earlier; 0: none, all go
    /// in order of arrival.
    pub batch_max: u32,
    /// Workers that may be on their way from their sleep to a job at once, 1 at least: half
    /// of the processors. Each that has found one wakes the next, as long as there is more.
    pub waking_max: usize,
}

/// The state that all workers share. `D` is the host's [`crate::Host::Data`].
#[derive(Debug)]
pub struct Scheduler<D> {
    options: SchedulerOptions,
    queues: Mutex<Queues<D>>,
    work_arrived: Condvar,
    parked: Mutex<HashMap<JobId, Parked<D>>>,
    admission: Mutex<Admission>,
    /// Bytes of inputs that jobs hold, and those who wait for room.
    room: Mutex<Admission>,
    walks: WalkPool,
    next_id: AtomicU64,
    requests: AtomicUsize,
    /// Sparks in the queues, per priority; read without the lock on every offer.
    sparks: [AtomicUsize; Priority::LEVELS],
    /// Jobs other than sparks that could run, per priority.
    runnable: [AtomicUsize; Priority::LEVELS],
    closed: AtomicBool,
}

/// A job that awaits events. Its entry is made before anybody is asked for
/// one, so that an event that is faster than the job's own parking is not lost.
#[derive(Debug)]
struct Parked<D> {
    job: Option<Box<Job<D>>>,
    awaiting: usize,
    event: Option<Event>,
    reserved_bytes: u64,
    room_bytes: u64,
    /// As many as were asked for at once, at most.
    dropped: Vec<Dropped>,
}

impl<D> Parked<D> {
    fn new(awaiting: usize) -> Self {
        Self { job: None, awaiting, event: None, reserved_bytes: 0, room_bytes: 0, dropped: Vec::new() }
    }

    /// The job, if it has parked, with what came for it.
    fn into_job(self) -> Option<Box<Job<D>>> {
        let mut job = self.job?;
        job.event = self.event;
        job.reserved_bytes += self.reserved_bytes;
        job.room_bytes += self.room_bytes;
        job.dropped = self.dropped;
        Some(job)
    }
}

#[derive(Debug)]
struct Queues<D> {
    levels: [Level<D>; Priority::LEVELS],
    /// Workers that sleep, or were told to wake and have not come yet.
    asleep: usize,
    /// Those of them that were told.
    waking: usize,
}

#[derive(Debug)]
struct Level<D> {
    resumed: VecDeque<Box<Job<D>>>,
    resumed_in_a_row: u32,
    /// In order of arrival: by the request's number or, after a slice, by a new
    /// one. Both are drawn under the lock. Before that, by how long those can
    /// wait that do.
    ready: BTreeMap<(u64, u64), Ready<D>>,
    sparks: VecDeque<(Arc<Request>, Handle)>,
}

impl<D> Default for Queues<D> {
    fn default() -> Self {
        let level = |_| Level {
            resumed: VecDeque::new(),
            resumed_in_a_row: 0,
            ready: BTreeMap::new(),
            sparks: VecDeque::new(),
        };
        Self { levels: std::array::from_fn(level), asleep: 0, waking: 0 }
    }
}

impl<D> Queues<D> {
    /// Counts one worker as told to wake, if there is one to tell and not enough are told.
    fn wakes_one(&mut self, waking_max: usize) -> bool {
        let may = self.waking < self.asleep.min(waking_max);
        self.waking += usize::from(may);
        may
    }
}

#[derive(Debug)]
enum Ready<D> {
    New(Arc<Request>),
    Yielded(Box<Job<D>>),
}

/// Resumed jobs served before one that is ready.
const RESUMED_IN_A_ROW_MAX: u32 = 16;
/// Sparks kept per worker: enough that a worker that becomes idle finds one,
/// few enough that they are seldom stale.
const SPARKS_PER_WORKER: usize = 2;

impl<D> Scheduler<D> {
    /// An empty state.
    pub fn new(options: SchedulerOptions) -> Self {
        Self {
            options,
            queues: Mutex::default(),
            work_arrived: Condvar::new(),
            parked: Mutex::default(),
            admission: Mutex::new(Admission::new(options.admission)),
            room: Mutex::new(
                Admission::new(AdmissionOptions { allowance_bytes: 0, pool_bytes: options.held_max_bytes })
                    .with_batches(options.batch_max),
            ),
            walks: WalkPool::new(options.walk_max_bytes),
            next_id: AtomicU64::new(1),
            requests: AtomicUsize::new(0),
            sparks: Default::default(),
            runnable: Default::default(),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new_ids(&self, count: u64) -> Range<u64> {
        let first = self.next_id.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }

    /// A request that no queue knows: its caller walks it on its own worker,
    /// and it offers nothing to others.
    pub fn private_request(&self, goal: Handle, priority: Priority) -> Arc<Request> {
        Arc::new(Request::new(self.new_id(), goal, priority.into(), true))
    }

    /// A request that takes a place like any other, and is begun by its caller
    /// ([`crate::Evaluator::evaluate`]) instead of a worker. When its job has
    /// waited, [`Scheduler::deliver`] gives it to whoever brings the event.
    /// `None` if there are too many, or the scheduler is closed.
    pub fn take_request(&self, goal: Handle, priority: Priority) -> Option<Arc<Request>> {
        if !self.take_place() {
            return None;
        }
        Some(Arc::new(Request::new(self.new_id(), goal, priority.into(), true).with_place()))
    }

    /// Takes one of the places for requests.
    fn take_place(&self) -> bool {
        if self.closed.load(Ordering::Acquire) {
            return false;
        }
        let is_free = self.requests.fetch_add(1, Ordering::AcqRel) < self.options.requests_max;
        if !is_free {
            self.requests.fetch_sub(1, Ordering::AcqRel);
        }
        is_free
    }

    /// Queues a request for the workers. `None` if there are too many, or the
    /// scheduler is closed.
    pub fn submit(&self, goal: Handle, terms: impl Into<Terms>) -> Option<Arc<Request>> {
        let mut queues = self.queues.lock();
        // Under the lock: workers leave a closed scheduler once it is empty.
        if !self.take_place() {
            return None;
        }
        let request = Arc::new(Request::new(self.new_id(), goal, terms.into(), false));
        let level = request.priority().level();
        self.runnable[level].fetch_add(1, Ordering::Relaxed);
        let place = (request.patience(), request.id());
        queues.levels[level].ready.insert(place, Ready::New(Arc::clone(&request)));
        self.wake(queues);
        Some(request)
    }

    /// The node has answered a submitted request. A second time this changes
    /// nothing.
    pub fn retire(&self, request: &Request) {
        request.finish();
        if request.give_place_back() {
            self.requests.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Requests submitted and not retired.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Stops a request: its jobs end at their next step. Interrupting a
    /// procedure that runs for it now is the caller's part. `true`: no worker
    /// had taken it up and none will; it is retired, and the caller answers.
    pub fn stop(&self, request: &Request, stop: Stop) -> bool {
        request.stop(stop);
        if self.leave_queue(request) {
            self.retire(request);
            return true;
        }
        let waiting: Vec<JobId> = {
            let parked = self.parked.lock();
            let stoppable = |entry: &Parked<D>| {
                entry.job.as_ref().is_some_and(|job| job.request.id() == request.id() && !job.holds_claim())
            };
            parked.iter().filter(|(_, entry)| stoppable(entry)).map(|(id, _)| *id).collect()
        };
        for id in waiting {
            self.leave_lines(id);
            if let Some(entry) = self.parked.lock().remove(&id) {
                self.requeue_parked(entry);
            }
        }
        false
    }

    /// Takes a request out of the queue. Whether it was still there.
    fn leave_queue(&self, request: &Request) -> bool {
        let mut queues = self.queues.lock();
        let level = request.priority().level();
        let was_queued = queues.levels[level].ready.remove(&(request.patience(), request.id())).is_some();
        if was_queued {
            self.runnable[level].fetch_sub(1, Ordering::Relaxed);
        }
        was_queued
    }

    /// Takes a job out of the lines for memory and for room; who stood behind
    /// it may fit now.
    fn leave_lines(&self, id: JobId) {
        let awaited_memory = self.admission.lock().forget(id);
        if awaited_memory {
            self.admit(0);
        }
        let awaited_room = self.room.lock().forget(id);
        if awaited_room {
            self.make_room(0);
        }
    }

    /// Announces that the job will await `events` events.
    pub(crate) fn expect(&self, id: JobId, events: usize) {
        self.parked.lock().insert(id, Parked::new(events));
    }

    /// Sets a job aside until its events came; gives it back if they have, or
    /// if its request was stopped before [`Scheduler::stop`] could find it here.
    pub(crate) fn park(&self, job: Box<Job<D>>) -> Option<Box<Job<D>>> {
        let mut parked = self.parked.lock();
        let id = job.id;
        let is_stopped = job.request.stopped().is_some() && !job.holds_claim();
        let entry = parked.entry(id).or_insert_with(|| Parked::new(1));
        if entry.awaiting > 0 && !is_stopped {
            entry.job = Some(job);
            return None;
        }
        let entry = parked.remove(&id);
        drop(parked);
        let job = entry.and_then(|mut entry| {
            entry.job = Some(job);
            entry.into_job()
        });
        if is_stopped {
            self.leave_lines(id);
        }
        job
    }

    /// Delivers an event. Events for jobs that were stopped are ignored.
    pub fn resume(&self, id: JobId, event: Event) {
        if let Some(entry) = self.note(id, event) {
            self.requeue_parked(entry);
        }
    }

    /// Delivers an event. A job that can go on by it, and whose request no
    /// worker has begun, is given to the caller, who has to run it.
    pub fn deliver(&self, id: JobId, event: Event) -> Option<Box<Job<D>>> {
        let entry = self.note(id, event)?;
        if entry.job.as_ref().is_some_and(|job| job.request.is_private()) {
            return entry.into_job();
        }
        self.requeue_parked(entry);
        None
    }

    /// Notes an event; the job, if it awaits nothing more.
    fn note(&self, id: JobId, event: Event) -> Option<Parked<D>> {
        let mut parked = self.parked.lock();
        // The end of an application may come before its job has parked;
        // every other event was announced.
        let entry = match event {
            Event::Applied(_) => Some(parked.entry(id).or_insert_with(|| Parked::new(1))),
            _ => parked.get_mut(&id),
        };
        let Some(entry) = entry else {
            drop(parked);
            self.return_unclaimed(event);
            return None;
        };
        entry.awaiting = entry.awaiting.saturating_sub(1);
        match (event, entry.event) {
            (Event::Admitted(bytes), _) => entry.reserved_bytes += bytes,
            (Event::Room(bytes), _) => entry.room_bytes += bytes,
            (Event::Dropped { object, recipe, has_other }, _) => {
                entry.dropped.push(Dropped { object, recipe, has_other });
            }
            (Event::Applied(_), _) => entry.event = Some(event),
            (_, Some(Event::Applied(_) | Event::Missing(_) | Event::Unreadable { .. })) => {}
            _ => entry.event = Some(event),
        }
        let is_ready = entry.awaiting == 0 && entry.job.is_some();
        if is_ready { parked.remove(&id) } else { None }
    }

    /// An admission for a job that was stopped in between goes to the next.
    fn return_unclaimed(&self, event: Event) {
        match event {
            Event::Admitted(bytes) => self.release(bytes),
            Event::Room(bytes) => self.give_room_back(bytes),
            _ => {}
        }
    }

    /// Has a job that was delivered go on with the workers after all.
    pub fn queue(&self, job: Box<Job<D>>) {
        self.requeue(job);
    }

    fn requeue_parked(&self, entry: Parked<D>) {
        if let Some(job) = entry.into_job() {
            self.requeue(job);
        }
    }

    fn requeue(&self, job: Box<Job<D>>) {
        let mut queues = self.queues.lock();
        // Under the lock: it may be urged.
        let has_empty_hands = job.reserved_bytes == 0 && job.room_bytes == 0;
        let priority = if has_empty_hands { job.request.priority() } else { job.request.own_priority() };
        let level = priority.level();
        self.runnable[level].fetch_add(1, Ordering::Relaxed);
        queues.levels[level].resumed.push_back(job);
        self.wake(queues);
    }

    /// Puts back a job that could go on: behind the others of its priority if
    /// its slice is over, else before them.
    pub(crate) fn yield_job(&self, job: Box<Job<D>>, slice_is_over: bool) {
        let mut queues = self.queues.lock();
        let priority = job.request.priority();
        self.runnable[priority.level()].fetch_add(1, Ordering::Relaxed);
        let queue = &mut queues.levels[priority.level()];
        if slice_is_over || priority == Priority::Patient {
            queue.ready.insert((job.request.patience(), self.new_id()), Ready::Yielded(job));
        } else {
            queue.resumed.push_front(job);
        }
        self.wake(queues);
    }

    /// Whether another job should run before one of `priority` goes on. After
    /// a full slice, those of the same priority count too.
    #[inline]
    pub(crate) fn should_yield(&self, priority: Priority, slice_is_over: bool) -> bool {
        let levels = priority.level() + usize::from(slice_is_over);
        self.runnable[..levels].iter().any(|runnable| runnable.load(Ordering::Relaxed) > 0)
    }

    /// Whether idle workers could use another spark of this request. Those of
    /// lower priority do not count: they would only be in the way.
    #[inline]
    pub(crate) fn wants_sparks(&self, request: &Request) -> bool {
        if self.options.workers <= 1 || request.is_private() {
            return false;
        }
        let sparks = self.sparks[..=request.priority().level()].iter();
        let queued: usize = sparks.map(|sparks| sparks.load(Ordering::Relaxed)).sum();
        queued < self.options.workers * SPARKS_PER_WORKER
    }

    pub(crate) fn offer(&self, request: &Arc<Request>, goals: impl IntoIterator<Item = Handle>) {
        let level = request.priority().level();
        let mut queues = self.queues.lock();
        let sparks = &mut queues.levels[level].sparks;
        let before = sparks.len();
        sparks.extend(goals.into_iter().map(|goal| (Arc::clone(request), goal)));
        self.sparks[level].fetch_add(sparks.len() - before, Ordering::Relaxed);
        self.wake(queues);
    }

    /// Wakes a worker for what has come into the queues. To wake one takes longer than many a
    /// job, and who is awake takes what is there: so few are on their way at a time, and each
    /// wakes the next.
    fn wake(&self, mut queues: MutexGuard<'_, Queues<D>>) {
        let wakes = queues.wakes_one(self.options.waking_max);
        drop(queues);
        if wakes {
            self.work_arrived.notify_one();
        }
    }

    /// The next job, by priority; `None` if there is none now.
    pub fn next_job(&self) -> Option<Box<Job<D>>> {
        self.take(&mut self.queues.lock())
    }

    fn take(&self, queues: &mut Queues<D>) -> Option<Box<Job<D>>> {
        for (level, queue) in queues.levels.iter_mut().enumerate() {
            let must_be_ready = queue.resumed_in_a_row >= RESUMED_IN_A_ROW_MAX && !queue.ready.is_empty();
            if !must_be_ready && let Some(job) = queue.resumed.pop_front() {
                queue.resumed_in_a_row += 1;
                self.runnable[level].fetch_sub(1, Ordering::Relaxed);
                return Some(job);
            }
            queue.resumed_in_a_row = 0;
            if let Some(ready) = queue.ready.pop_first().map(|(_, ready)| ready) {
                self.runnable[level].fetch_sub(1, Ordering::Relaxed);
                return Some(match ready {
                    Ready::Yielded(job) => job,
                    Ready::New(request) => {
                        let goal = request.goal();
                        Box::new(Job::new(JobId(self.new_id()), request, goal, true))
                    }
                });
            }
            while let Some((request, goal)) = queue.sparks.pop_front() {
                self.sparks[level].fetch_sub(1, Ordering::Relaxed);
                if request.stopped().is_none() {
                    return Some(Box::new(Job::new(JobId(self.new_id()), request, goal, false)));
                }
            }
        }
        None
    }

    /// Blocks until there is a job. `None` once the scheduler is closed.
    pub fn wait_for_job(&self) -> Option<Box<Job<D>>> {
        let mut queues = self.queues.lock();
        loop {
            if let Some(job) = self.take(&mut queues) {
                if self.runnable() > 0 {
                    self.wake(queues);
                }
                return Some(job);
            }
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            queues.asleep += 1;
            self.work_arrived.wait(&mut queues);
            queues.asleep -= 1;
            queues.waking = queues.waking.saturating_sub(1);
        }
    }

    /// Refuses further requests; workers return once the queues are empty.
    pub fn close(&self) {
        let _queues = self.queues.lock();
        self.closed.store(true, Ordering::Release);
        self.work_arrived.notify_all();
    }

    /// Jobs that wait for an event, and jobs that wait for memory among them.
    pub fn waiting(&self) -> (usize, usize) {
        (self.parked.lock().len(), self.admission.lock().waiting())
    }

    /// Jobs and sparks that could run if a worker were free.
    pub fn runnable(&self) -> usize {
        let counts = self.runnable.iter().chain(&self.sparks);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

mod bounds;
mod patience;
#[cfg(test)]
mod tests;
