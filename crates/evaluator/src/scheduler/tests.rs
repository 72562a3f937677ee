// SPDX-License-Identifier: Apache-2.0
//! Queues, parking and memory, without anything that is evaluated.
// Threads: one test is about workers that sleep.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use objects::FailureCode;

use super::*;
use crate::admission::Reservation;

type Scheduler = super::Scheduler<()>;
type Job = super::Job<()>;

fn scheduler(workers: usize) -> Scheduler {
    let admission = AdmissionOptions { allowance_bytes: 10, pool_bytes: 100 };
    Scheduler::new(SchedulerOptions {
        workers,
        requests_max: 10,
        admission,
        held_max_bytes: 100,
        walk_max_bytes: 1 << 20,
        batch_max: 4,
        waking_max: 1,
    })
}

fn goal(item: u64) -> Handle {
    Handle::u64(item).identification().unwrap().strict().unwrap()
}

/// A job of a request that was submitted just now.
fn job(scheduler: &Scheduler, priority: Priority) -> (Arc<Request>, Box<Job>) {
    let request = scheduler.submit(goal(0), priority).unwrap();
    let job = scheduler.next_job().unwrap();
    assert_eq!(job.request.id(), request.id());
    (request, job)
}

#[test]
fn a_job_is_back_when_all_of_its_events_came() {
    let scheduler = scheduler(1);
    let (_, job) = job(&scheduler, Priority::Normal);
    let id = job.id;
    scheduler.expect(id, 3);
    scheduler.resume(id, Event::Arrived);
    assert!(scheduler.park(job).is_none());
    scheduler.resume(id, Event::Missing(goal(1)));
    assert_eq!((scheduler.runnable(), scheduler.waiting()), (0, (1, 0)));
    scheduler.resume(id, Event::Arrived);
    assert_eq!((scheduler.runnable(), scheduler.waiting()), (1, (0, 0)));
    // A loss among arrivals is what the job has to know.
    assert_eq!(scheduler.next_job().unwrap().event, Some(Event::Missing(goal(1))));
}

#[test]
fn a_job_whose_events_came_first_is_given_back() {
    let scheduler = scheduler(1);
    let (_, job) = job(&scheduler, Priority::Normal);
    let id = job.id;
    scheduler.expect(id, 2);
    scheduler.resume(id, Event::Look);
    scheduler.resume(id, Event::Admitted(7));
    let job = scheduler.park(job).unwrap();
    assert_eq!((job.event, job.reserved_bytes), (Some(Event::Look), 7));
    assert_eq!((scheduler.runnable(), scheduler.waiting()), (0, (0, 0)));
}

#[test]
fn a_stopped_request_is_not_parked() {
    let scheduler = scheduler(1);
    let (request, job) = job(&scheduler, Priority::Normal);
    let id = job.id;
    assert_eq!(
        scheduler.admission.lock().reserve(JobId(99), 110, Priority::Normal),
        Reservation::Granted(100)
    );
    scheduler.expect(id, 1);
    assert_eq!(scheduler.admission.lock().reserve(id, 110, Priority::Normal), Reservation::Queued);
    // Too early to be found among the parked.
    scheduler.stop(&request, Stop::Deadline);
    assert!(scheduler.park(job).is_some());
    assert_eq!(scheduler.waiting(), (0, 0));
    assert_eq!(request.stopped(), Some(FailureCode::Deadline));
}

#[test]
fn memory_granted_to_a_job_that_is_gone_goes_to_the_next() {
    let scheduler = scheduler(1);
    assert_eq!(
        scheduler.admission.lock().reserve(JobId(98), 110, Priority::Normal),
        Reservation::Granted(100)
    );
    // Nobody knows this one any more when its turn comes.
    assert_eq!(scheduler.admission.lock().reserve(JobId(99), 110, Priority::Normal), Reservation::Queued);
    let (_, job) = job(&scheduler, Priority::Normal);
    let id = job.id;
    scheduler.expect(id, 1);
    assert_eq!(scheduler.admission.lock().reserve(id, 60, Priority::Normal), Reservation::Queued);
    assert!(scheduler.park(job).is_none());
    scheduler.release(100);
    assert_eq!(scheduler.next_job().unwrap().reserved_bytes, 50);
    assert_eq!(scheduler.free_bytes(), 50);
}

#[test]
fn a_stop_in_line_admits_who_stood_behind() {
    let scheduler = scheduler(1);
    assert_eq!(
        scheduler.admission.lock().reserve(JobId(99), 110, Priority::Normal),
        Reservation::Granted(100)
    );
    let jobs = [100, 30].map(|bytes| {
        let (request, job) = job(&scheduler, Priority::Normal);
        scheduler.expect(job.id, 1);
        assert_eq!(
            scheduler.admission.lock().reserve(job.id, 10 + bytes, Priority::Normal),
            Reservation::Queued
        );
        let id = job.id;
        assert!(scheduler.park(job).is_none());
        (request, id)
    });
    // As many have passed the first one as may.
    scheduler.release(29);
    for _ in 0..64 {
        assert_eq!(
            scheduler.admission.lock().reserve(JobId(98), 39, Priority::Normal),
            Reservation::Granted(29)
        );
        scheduler.release(29);
    }
    scheduler.release(20);
    assert_eq!(scheduler.runnable(), 0);
    scheduler.stop(&jobs[0].0, Stop::Cancelled);
    let resumed: Vec<_> = std::iter::from_fn(|| scheduler.next_job()).collect();
    assert_eq!(
        resumed.iter().map(|job| (job.id, job.reserved_bytes)).collect::<Vec<_>>(),
        [(jobs[1].1, 30), (jobs[0].1, 0)]
    );
    assert_eq!(scheduler.free_bytes(), 19);
}

#[test]
fn sparks_are_offered_up_to_a_bound_and_by_priority() {
    let lone = scheduler(1);
    let (request, _) = job(&lone, Priority::High);
    assert!(!lone.wants_sparks(&request), "a lone worker has nobody to offer to");
    let scheduler = scheduler(2);
    let private = scheduler.private_request(goal(0), Priority::High);
    assert!(!scheduler.wants_sparks(&private), "nobody else knows when its time is over");
    let (request, _) = job(&scheduler, Priority::Low);
    for item in 0..4 {
        assert!(scheduler.wants_sparks(&request));
        scheduler.offer(&request, [goal(item)]);
    }
    assert!(!scheduler.wants_sparks(&request));
    // Sparks that nobody takes for now do not keep better ones away.
    let (better, _) = job(&scheduler, Priority::Normal);
    assert!(scheduler.wants_sparks(&better));
    scheduler.offer(&better, [goal(7)]);
    let spark = scheduler.next_job().unwrap();
    assert_eq!((spark.request.id(), spark.is_root), (better.id(), false));
    assert_eq!(scheduler.runnable(), 4);
    scheduler.retire(&request);
    assert!(scheduler.next_job().is_none(), "sparks of a request that ended are dropped");
    assert_eq!(scheduler.runnable(), 0);
    assert!(scheduler.wants_sparks(&request));
}

#[test]
fn resumed_jobs_come_first_but_not_for_ever() {
    let scheduler = scheduler(1);
    let mut resumed = Vec::new();
    for _ in 0..9 {
        resumed.push(job(&scheduler, Priority::Normal).1);
    }
    let new = scheduler.submit(goal(1), Priority::Normal).unwrap();
    for turn in 0..100 {
        for job in resumed.drain(..) {
            scheduler.requeue(job);
        }
        let next = scheduler.next_job().unwrap();
        if next.request.id() == new.id() {
            assert_eq!(turn, RESUMED_IN_A_ROW_MAX);
            return;
        }
        resumed.push(next);
    }
    panic!("the new request got no turn");
}

#[test]
fn a_spent_slice_goes_behind_and_an_interrupted_one_before() {
    let scheduler = scheduler(1);
    let (first, job_of_first) = job(&scheduler, Priority::Normal);
    let second = scheduler.submit(goal(2), Priority::Normal).unwrap();
    scheduler.yield_job(job_of_first, true);
    let job_of_second = scheduler.next_job().unwrap();
    assert_eq!(job_of_second.request.id(), second.id());
    scheduler.yield_job(job_of_second, false);
    let order: Vec<u64> = std::iter::from_fn(|| scheduler.next_job()).map(|job| job.request.id()).collect();
    assert_eq!(order, [second.id(), first.id()]);
}

#[test]
fn a_worker_that_sleeps_is_woken() {
    let scheduler = Arc::new(scheduler(2));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let scheduler = Arc::clone(&scheduler);
                scope.spawn(move || std::iter::from_fn(|| scheduler.wait_for_job()).count())
            })
            .collect();
        while scheduler.queues.lock().asleep < 2 {
            std::thread::yield_now();
        }
        for item in 0..5 {
            scheduler.submit(goal(item), Priority::Low).unwrap();
        }
        let request = scheduler.private_request(goal(9), Priority::Low);
        scheduler.offer(&request, [goal(9)]);
        while scheduler.runnable() > 0 {
            std::thread::yield_now();
        }
        scheduler.close();
        let taken: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert_eq!(taken, 6);
    });
}

#[test]
fn a_request_stopped_in_the_queue_gives_its_place_back_at_once() {
    let scheduler = scheduler(1);
    let requests: Vec<_> =
        (0..10).map(|item| scheduler.submit(goal(item), Priority::Normal).unwrap()).collect();
    assert!(scheduler.submit(goal(10), Priority::High).is_none());
    assert!(scheduler.stop(&requests[3], Stop::Cancelled));
    assert_eq!((scheduler.requests(), scheduler.runnable()), (9, 9));
    // Whoever answers it, or stops it again, changes nothing.
    scheduler.retire(&requests[3]);
    assert!(!scheduler.stop(&requests[3], Stop::Deadline));
    assert_eq!((scheduler.requests(), scheduler.runnable()), (9, 9));
    let late = scheduler.submit(goal(11), Priority::Normal).unwrap();
    assert!(scheduler.submit(goal(12), Priority::Normal).is_none());
    let order: Vec<u64> = std::iter::from_fn(|| scheduler.next_job()).map(|job| job.request.id()).collect();
    let left = requests.iter().enumerate().filter(|(index, _)| *index != 3).map(|(_, request)| request.id());
    assert_eq!(order, left.chain([late.id()]).collect::<Vec<_>>());
    // Taken up: a worker will tell how it ended.
    assert!(!scheduler.stop(&requests[0], Stop::Cancelled));
    assert_eq!(scheduler.requests(), 10);
    scheduler.retire(&requests[0]);
    scheduler.retire(&requests[0]);
    assert_eq!(scheduler.requests(), 9);
}

#[test]
fn a_stop_and_a_worker_never_both_have_a_queued_request() {
    let scheduler = Arc::new(scheduler(1));
    for round in 0..2000 {
        let request = scheduler.submit(goal(round), Priority::Low).unwrap();
        let (stopped, taken) = std::thread::scope(|scope| {
            let worker = scope.spawn(|| scheduler.next_job().map(|job| scheduler.retire(&job.request)));
            (scheduler.stop(&request, Stop::Cancelled), worker.join().unwrap().is_some())
        });
        assert!(stopped != taken, "in round {round}");
        assert_eq!((scheduler.requests(), scheduler.runnable()), (0, 0));
    }
}

#[test]
fn few_are_on_their_way_to_jobs_at_a_time_and_all_jobs_are_taken() {
    let mut queues = Queues::<()> { asleep: 3, ..Queues::default() };
    let woken: Vec<bool> = (0..3).map(|_| queues.wakes_one(2)).collect();
    assert_eq!(woken, [true, true, false]);
    // One has come, which is no longer asleep.
    (queues.asleep, queues.waking) = (2, 1);
    assert!(queues.wakes_one(2));
    (queues.asleep, queues.waking) = (1, 1);
    assert!(!queues.wakes_one(2), "the only one that sleeps was told");
    let scheduler = Arc::new(scheduler(8));
    std::thread::scope(|scope| {
        let all = Arc::new(std::sync::Barrier::new(8));
        for _ in 0..8 {
            let (scheduler, all) = (Arc::clone(&scheduler), Arc::clone(&all));
            scope.spawn(move || {
                // Each holds its job until all have one: nobody takes two.
                let job = scheduler.wait_for_job();
                all.wait();
                drop(job);
            });
        }
        while scheduler.queues.lock().asleep < 8 {
            std::thread::yield_now();
        }
        let request = scheduler.private_request(goal(9), Priority::Low);
        scheduler.offer(&request, (0..8).map(goal));
    });
    assert_eq!((scheduler.runnable(), scheduler.queues.lock().waking), (0, 0));
}
