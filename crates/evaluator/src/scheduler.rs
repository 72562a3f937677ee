// SPDX-License-Identifier: Apache-2.0
//! What all workers share: requests, the jobs that can run, those that wait.
//!
//! Per priority there are three queues, served in this order: *resumed* jobs,
//! which hold a stack already; new *requests*, in order of arrival; *sparks*,
//! goals that some walk will need later. A spark may be dropped at any time:
//! the walk that offered it does the work itself.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use objects::{FailureCode, Handle};
use parking_lot::{Condvar, Mutex};

use crate::admission::{Admission, AdmissionOptions, Reservation};
use crate::host::Outcome;
use crate::job::{Job, JobId};

/// How urgently a request wants cores and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Before everything that is not.
    High,
    /// In order of arrival.
    #[default]
    Normal,
    /// Only what nobody else wants.
    Low,
}

impl Priority {
    /// Number of priorities.
    pub const LEVELS: usize = 3;

    pub(crate) fn level(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}

/// Why a request is stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nobody wants the answer any more.
    Cancelled,
    /// Its time is over.
    Deadline,
}

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const OVERDUE: u8 = 2;
const FINISHED: u8 = 3;

/// A wish to see a goal evaluated, from arrival to end.
#[derive(Debug)]
pub struct Request {
    id: u64,
    goal: Handle,
    priority: Priority,
    state: AtomicU8,
}

impl Request {
    /// Identifies the request among all of this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The encode to be evaluated.
    pub fn goal(&self) -> Handle {
        self.goal
    }

    /// Against other requests.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Why the request should not be worked on any more, as a failure's code.
    #[inline]
    pub fn stopped(&self) -> Option<FailureCode> {
        match self.state.load(Ordering::Relaxed) {
            RUNNING => None,
            OVERDUE => Some(FailureCode::Deadline),
            _ => Some(FailureCode::Cancelled),
        }
    }

    pub(crate) fn finish(&self) {
        self.state.store(FINISHED, Ordering::Relaxed);
    }
}

/// What a waiting job is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Something that was busy is not any more.
    Look,
    /// An object that was asked for is local.
    Arrived,
    /// An object that was asked for is nowhere.
    Missing(Handle),
    /// The application that was [`crate::Applied::Pending`] ended.
    Applied(Outcome),
    /// So many bytes of memory are reserved for the job.
    Admitted(u64),
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
}

/// The state that all workers share.
#[derive(Debug)]
pub struct Scheduler {
    options: SchedulerOptions,
    queues: Mutex<Queues>,
    work_arrived: Condvar,
    parked: Mutex<HashMap<JobId, Parked>>,
    admission: Mutex<Admission>,
    next_id: AtomicU64,
    requests: AtomicUsize,
    /// Sparks in the queues; read without the lock on every offer.
    sparks: AtomicUsize,
    /// Workers that found nothing to do.
    idle: AtomicUsize,
    /// Jobs other than sparks that could run, per priority.
    runnable: [AtomicUsize; Priority::LEVELS],
    closed: AtomicBool,
}

/// A job that awaits events. Its entry is made before anybody is asked for
/// one, so that an event that is faster than the job's own parking is not lost.
#[derive(Debug, Default)]
struct Parked {
    job: Option<Job>,
    awaiting: usize,
    event: Option<Event>,
    reserved_bytes: u64,
}

#[derive(Debug, Default)]
struct Queues {
    levels: [Level; Priority::LEVELS],
}

#[derive(Debug, Default)]
struct Level {
    resumed: VecDeque<Job>,
    requests: VecDeque<Arc<Request>>,
    sparks: VecDeque<(Arc<Request>, Handle)>,
}

/// Sparks kept per worker: enough that a worker that becomes idle finds one,
/// few enough that they are seldom stale.
const SPARKS_PER_WORKER: usize = 2;

impl Scheduler {
    /// An empty state.
    pub fn new(options: SchedulerOptions) -> Self {
        Self {
            options,
            queues: Mutex::default(),
            work_arrived: Condvar::new(),
            parked: Mutex::default(),
            admission: Mutex::new(Admission::new(options.admission)),
            next_id: AtomicU64::new(1),
            requests: AtomicUsize::new(0),
            sparks: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            runnable: Default::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// What an application may use without asking.
    pub fn allowance_bytes(&self) -> u64 {
        self.options.admission.allowance_bytes
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A request that no queue knows: its caller walks it on its own worker.
    pub fn private_request(&self, goal: Handle, priority: Priority) -> Arc<Request> {
        Arc::new(Request { id: self.new_id(), goal, priority, state: AtomicU8::new(RUNNING) })
    }

    /// Queues a request for the workers. `None` if there are too many, or the
    /// scheduler is closed.
    pub fn submit(&self, goal: Handle, priority: Priority) -> Option<Arc<Request>> {
        if self.closed.load(Ordering::Acquire)
            || self.requests.fetch_add(1, Ordering::AcqRel) >= self.options.requests_max
        {
            self.requests.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let request = self.private_request(goal, priority);
        self.runnable[priority.level()].fetch_add(1, Ordering::Relaxed);
        self.queues.lock().levels[priority.level()].requests.push_back(Arc::clone(&request));
        self.work_arrived.notify_one();
        Some(request)
    }

    /// The node has answered a submitted request.
    pub fn retire(&self, request: &Request) {
        request.finish();
        self.requests.fetch_sub(1, Ordering::AcqRel);
    }

    /// Requests submitted and not retired.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Stops a request: its jobs end at their next step. Interrupting a
    /// procedure that runs for it now is the caller's part.
    pub fn stop(&self, request: &Request, stop: Stop) {
        let state = if stop == Stop::Deadline { OVERDUE } else { CANCELLED };
        let _ = request.state.compare_exchange(RUNNING, state, Ordering::AcqRel, Ordering::Acquire);
        let waiting: Vec<JobId> = {
            let parked = self.parked.lock();
            let stoppable = |entry: &Parked| {
                entry.job.as_ref().is_some_and(|job| job.request.id == request.id && !job.holds_claim())
            };
            parked.iter().filter(|(_, entry)| stoppable(entry)).map(|(id, _)| *id).collect()
        };
        for id in waiting {
            self.admission.lock().forget(id);
            if let Some(entry) = self.parked.lock().remove(&id) {
                self.requeue_parked(entry);
            }
        }
    }

    /// Announces that the job will await `events` events.
    pub(crate) fn expect(&self, id: JobId, events: usize) {
        self.parked.lock().insert(id, Parked { awaiting: events, ..Parked::default() });
    }

    /// Sets a job aside until its events came; gives it back if they have.
    pub(crate) fn park(&self, mut job: Job) -> Option<Job> {
        let mut parked = self.parked.lock();
        let id = job.id;
        let entry = parked.entry(id).or_insert_with(|| Parked { awaiting: 1, ..Parked::default() });
        if entry.awaiting > 0 {
            entry.job = Some(job);
            return None;
        }
        if let Some(entry) = parked.remove(&id) {
            job.event = entry.event;
            job.reserved_bytes += entry.reserved_bytes;
        }
        Some(job)
    }

    /// Delivers an event. Events for jobs that were stopped are ignored.
    pub fn resume(&self, id: JobId, event: Event) {
        let ready = {
            let mut parked = self.parked.lock();
            // The end of an application may come before its job has parked;
            // every other event was announced.
            let entry = match event {
                Event::Applied(_) => {
                    Some(parked.entry(id).or_insert_with(|| Parked { awaiting: 1, ..Parked::default() }))
                }
                _ => parked.get_mut(&id),
            };
            let Some(entry) = entry else {
                drop(parked);
                return self.return_unclaimed(event);
            };
            entry.awaiting = entry.awaiting.saturating_sub(1);
            match event {
                Event::Admitted(bytes) => entry.reserved_bytes += bytes,
                _ if matches!(entry.event, Some(Event::Missing(_))) => {}
                _ => entry.event = Some(event),
            }
            let is_ready = entry.awaiting == 0 && entry.job.is_some();
            if is_ready { parked.remove(&id) } else { None }
        };
        if let Some(entry) = ready {
            self.requeue_parked(entry);
        }
    }

    /// An admission for a job that was stopped in between goes to the next.
    fn return_unclaimed(&self, event: Event) {
        if let Event::Admitted(bytes) = event {
            self.release(bytes);
        }
    }

    fn requeue_parked(&self, entry: Parked) {
        if let Some(mut job) = entry.job {
            job.event = entry.event;
            job.reserved_bytes += entry.reserved_bytes;
            self.requeue(job);
        }
    }

    fn requeue(&self, job: Job) {
        let level = job.request.priority.level();
        self.runnable[level].fetch_add(1, Ordering::Relaxed);
        self.queues.lock().levels[level].resumed.push_back(job);
        self.work_arrived.notify_one();
    }

    /// Puts a job that could go on behind the others of its priority.
    pub(crate) fn yield_job(&self, job: Job) {
        self.requeue(job);
    }

    /// Whether another job should run before one of `priority` goes on. After
    /// a full slice, those of the same priority count too.
    #[inline]
    pub(crate) fn should_yield(&self, priority: Priority, slice_is_over: bool) -> bool {
        let levels = priority.level() + usize::from(slice_is_over);
        self.runnable[..levels].iter().any(|runnable| runnable.load(Ordering::Relaxed) > 0)
    }

    /// Whether idle workers could use another spark.
    #[inline]
    pub(crate) fn wants_sparks(&self) -> bool {
        self.options.workers > 1
            && self.sparks.load(Ordering::Relaxed) < self.options.workers * SPARKS_PER_WORKER
    }

    pub(crate) fn offer(&self, request: &Arc<Request>, goal: Handle) {
        self.sparks.fetch_add(1, Ordering::Relaxed);
        let level = request.priority.level();
        self.queues.lock().levels[level].sparks.push_back((Arc::clone(request), goal));
        if self.idle.load(Ordering::Relaxed) > 0 {
            self.work_arrived.notify_one();
        }
    }

    /// The next job, by priority; `None` if there is none now.
    pub fn next_job(&self) -> Option<Job> {
        self.take(&mut self.queues.lock())
    }

    fn take(&self, queues: &mut Queues) -> Option<Job> {
        for (level, queue) in queues.levels.iter_mut().enumerate() {
            if let Some(job) = queue.resumed.pop_front() {
                self.runnable[level].fetch_sub(1, Ordering::Relaxed);
                return Some(job);
            }
            if let Some(request) = queue.requests.pop_front() {
                self.runnable[level].fetch_sub(1, Ordering::Relaxed);
                let goal = request.goal;
                return Some(Job::new(JobId(self.new_id()), request, goal, true));
            }
            while let Some((request, goal)) = queue.sparks.pop_front() {
                self.sparks.fetch_sub(1, Ordering::Relaxed);
                if request.stopped().is_none() {
                    return Some(Job::new(JobId(self.new_id()), request, goal, false));
                }
            }
        }
        None
    }

    /// Blocks until there is a job. `None` once the scheduler is closed.
    pub fn wait_for_job(&self) -> Option<Job> {
        let mut queues = self.queues.lock();
        loop {
            if let Some(job) = self.take(&mut queues) {
                return Some(job);
            }
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            self.work_arrived.wait(&mut queues);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Refuses further requests; workers return once the queues are empty.
    pub fn close(&self) {
        let _queues = self.queues.lock();
        self.closed.store(true, Ordering::Release);
        self.work_arrived.notify_all();
    }

    pub(crate) fn reserve(&self, job: JobId, memory_bytes: u64, priority: Priority) -> Reservation {
        self.admission.lock().reserve(job, memory_bytes, priority)
    }

    /// The most memory that one application may ask for.
    pub fn largest_bytes(&self) -> u64 {
        self.admission.lock().largest_bytes()
    }

    pub(crate) fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let admitted = self.admission.lock().release(bytes);
        for (job, bytes) in admitted {
            self.resume(job, Event::Admitted(bytes));
        }
    }

    /// Jobs that wait for an event, and jobs that wait for memory among them.
    pub fn waiting(&self) -> (usize, usize) {
        (self.parked.lock().len(), self.admission.lock().waiting())
    }

    /// Jobs and sparks that could run if a worker were free.
    pub fn runnable(&self) -> usize {
        let jobs: usize = self.runnable.iter().map(|level| level.load(Ordering::Relaxed)).sum();
        jobs + self.sparks.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
