// SPDX-License-Identifier: Apache-2.0
//! Drives the evaluator over a fake world: on the caller's thread, step by
//! step, or on several worker threads until all goals have their results.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use super::api::{AdmissionOptions, Priority, Progress, Request, SchedulerOptions};
use objects::Handle;

use super::host::{Evaluator, FakeHost, Job, Scheduler, World};

/// What every worker of a test may use without asking.
pub(super) const ALLOWANCE_BYTES: u64 = 128 << 20;
/// What they share beyond.
pub(super) const POOL_BYTES: u64 = 256 << 20;

/// What jobs may hold of inputs.
pub(super) const HELD_MAX_BYTES: u64 = 64 << 20;

/// Rounds of 50 µs without any event after which a concurrent test gives up.
const IDLE_ROUNDS_MAX: usize = 200_000;

/// A scheduler for `workers` workers, with the memory above.
pub(super) fn scheduler(workers: usize) -> Arc<Scheduler> {
    Arc::new(Scheduler::new(options(workers)))
}

/// The same as options.
pub(super) fn options(workers: usize) -> SchedulerOptions {
    let admission = AdmissionOptions { allowance_bytes: ALLOWANCE_BYTES, pool_bytes: POOL_BYTES };
    SchedulerOptions {
        workers,
        requests_max: 1000,
        admission,
        held_max_bytes: HELD_MAX_BYTES,
        walk_max_bytes: 2 << 30,
        batch_max: 4,
        waking_max: 1,
    }
}

/// One worker on the test's own thread.
pub(super) struct Machine {
    /// The world that it works in.
    pub(super) world: Arc<World>,
    /// The state that it would share with other workers.
    pub(super) scheduler: Arc<Scheduler>,
    /// Its view of the world.
    pub(super) host: FakeHost,
    evaluator: Evaluator,
}

impl Machine {
    /// A worker in an empty world.
    pub(super) fn new() -> Self {
        Self::over(World::new(), scheduler(1))
    }

    /// A worker that shares what there is.
    pub(super) fn over(world: Arc<World>, scheduler: Arc<Scheduler>) -> Self {
        let host = FakeHost { world: Arc::clone(&world), scheduler: Arc::clone(&scheduler), meanwhile: None };
        let evaluator = Evaluator::new(Arc::clone(&scheduler));
        Self { world, scheduler, host, evaluator }
    }

    /// A worker in an empty world whose jobs may hold little.
    pub(super) fn holding_up_to(held_max_bytes: u64) -> Self {
        let options = SchedulerOptions { held_max_bytes, ..options(1) };
        Self::over(World::new(), Arc::new(Scheduler::new(options)))
    }

    /// A worker in an empty world in which walks may not nest deep.
    pub(super) fn nesting_up_to(walk_max_bytes: u64) -> Self {
        let options = SchedulerOptions { walk_max_bytes, ..options(1) };
        Self::over(World::new(), Arc::new(Scheduler::new(options)))
    }

    /// The worker finds nothing to do.
    pub(super) fn idle(&mut self) {
        self.scheduler.close();
        assert!(self.evaluator.wait_for_job().is_none());
    }

    /// Runs a job until it ends or has to wait.
    pub(super) fn run(&mut self, job: Box<Job>) -> Progress {
        self.evaluator.run(&mut self.host, job)
    }

    /// Begins with `goal` on behalf of `request`.
    pub(super) fn begin(&mut self, request: &Arc<Request>, goal: Handle) -> Progress {
        self.evaluator.evaluate(&mut self.host, request, goal)
    }

    /// Queues a goal of normal priority.
    pub(super) fn submit(&self, goal: Handle) -> Arc<Request> {
        self.scheduler.submit(goal, Priority::Normal).expect("there is room")
    }

    /// Runs the next job, if there is one. `Some`: what it led to.
    pub(super) fn work(&mut self) -> Option<Progress> {
        let job = self.scheduler.next_job()?;
        Some(self.run(job))
    }

    /// Runs whatever can run now, without delivering events, and tells which
    /// requests ended how.
    pub(super) fn work_off(&mut self) -> Vec<(Arc<Request>, Handle)> {
        let mut finished = Vec::new();
        while let Some(job) = self.scheduler.next_job() {
            let request = Arc::clone(job.request());
            if let Progress::Finished(result) = self.run(job) {
                finished.push((request, result));
            }
        }
        finished
    }

    /// Evaluates a goal to its end, delivering events as they are due.
    pub(super) fn evaluate(&mut self, goal: Handle) -> Handle {
        let request = self.scheduler.private_request(goal, Priority::Normal);
        let mut progress = self.begin(&request, goal);
        loop {
            if let Progress::Finished(result) = progress {
                return result;
            }
            progress = loop {
                if let Some(progress) = self.work() {
                    break progress;
                }
                assert!(self.world.deliver(&self.scheduler), "nothing can go on, and nothing will come");
            };
        }
    }
}

/// Evaluates goals, each a request of its own, on `workers` threads.
pub(super) fn evaluate_on_threads(world: &Arc<World>, workers: usize, goals: &[Handle]) -> Vec<Handle> {
    evaluate_under(world, &scheduler(workers), workers, goals)
}

/// The same, under bounds of one's own.
pub(super) fn evaluate_under(
    world: &Arc<World>,
    scheduler: &Arc<Scheduler>,
    workers: usize,
    goals: &[Handle],
) -> Vec<Handle> {
    let results: Mutex<Vec<Option<Handle>>> = Mutex::new(vec![None; goals.len()]);
    let (sender, finished) = mpsc::channel();
    let requests: Vec<Arc<Request>> =
        goals.iter().map(|&goal| scheduler.submit(goal, Priority::Normal).expect("there is room")).collect();
    std::thread::scope(|scope| {
        let worker = |_| {
            let (sender, scheduler) = (sender.clone(), Arc::clone(scheduler));
            let mut machine = Machine::over(Arc::clone(world), Arc::clone(&scheduler));
            scope.spawn(move || {
                while let Some(job) = machine.evaluator.wait_for_job() {
                    let request = Arc::clone(job.request());
                    if let Progress::Finished(result) = machine.run(job) {
                        scheduler.retire(&request);
                        let _ = sender.send((request.id(), result));
                    }
                }
            })
        };
        let workers: Vec<_> = (0..workers).map(worker).collect();
        let mut left = goals.len();
        let mut idle_rounds = 0;
        while left > 0 {
            if let Ok((id, result)) = finished.recv_timeout(std::time::Duration::from_micros(50)) {
                let index = requests.iter().position(|request| request.id() == id);
                results.lock().unwrap()[index.expect("it was submitted")] = Some(result);
                left -= 1;
            } else if world.deliver(scheduler) {
                idle_rounds = 0;
            } else {
                idle_rounds += 1;
                if idle_rounds > IDLE_ROUNDS_MAX || workers.iter().any(|worker| worker.is_finished()) {
                    // Lets the workers go: the scope waits for them.
                    scheduler.close();
                    panic!("a worker panicked, or nothing goes on and nothing will come");
                }
            }
        }
        scheduler.close();
    });
    // What was on its way for sparks whose requests have ended.
    let mut machine = Machine::over(Arc::clone(world), Arc::clone(scheduler));
    while world.deliver(scheduler) {
        machine.work_off();
    }
    assert_eq!(scheduler.requests(), 0);
    results.into_inner().unwrap().into_iter().map(|result| result.expect("all ended")).collect()
}
