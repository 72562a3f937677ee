// SPDX-License-Identifier: Apache-2.0
//! Patient requests under a simulated clock: they yield, the nearest first, and none
//! begins later than it said it could wait.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;

use objects::Handle;

use super::super::{Event, SchedulerOptions};
use super::*;
use crate::admission::AdmissionOptions;
use crate::job::JobId;
use crate::request::{Stop, Terms};

type Scheduler = super::Scheduler<()>;

fn scheduler() -> Scheduler {
    Scheduler::new(SchedulerOptions {
        workers: 1,
        requests_max: 1000,
        admission: AdmissionOptions { allowance_bytes: 0, pool_bytes: 100 },
        held_max_bytes: 100,
        walk_max_bytes: 1 << 20,
        batch_max: 4,
        waking_max: 1,
    })
}

fn goal(item: u64) -> Handle {
    Handle::u64(item).identification().unwrap().strict().unwrap()
}

fn patient(until: u64) -> Terms {
    Terms { patient_until: Some(until), ..Terms::default() }
}

fn submit(scheduler: &Scheduler, terms: impl Into<Terms>) -> Arc<Request> {
    scheduler.submit(goal(0), terms).unwrap()
}

/// Who is taken up, one after another, each ended at once.
fn taken(scheduler: &Scheduler) -> Vec<u64> {
    let next = || {
        let job = scheduler.next_job()?;
        scheduler.retire(&job.request);
        Some(job.request.id())
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn who_can_wait_waits_for_all_others_and_the_nearest_is_first() {
    let scheduler = scheduler();
    let [far, near, nearer] = [900, 500, 300].map(|until| submit(&scheduler, patient(until)).id());
    let low = submit(&scheduler, Priority::Low).id();
    let normal = submit(&scheduler, Priority::Normal).id();
    assert_eq!(taken(&scheduler), [normal, low, nearer, near, far]);
    assert_eq!((scheduler.runnable(), scheduler.requests()), (0, 0));
}

#[test]
fn who_is_urged_stands_where_its_arrival_puts_it() {
    let scheduler = scheduler();
    let first = submit(&scheduler, Priority::Normal).id();
    let urged = submit(&scheduler, patient(10));
    let high = Terms { priority: Priority::High, ..patient(10) };
    let other = submit(&scheduler, high);
    let second = submit(&scheduler, Priority::Normal).id();
    scheduler.urge(&urged);
    scheduler.urge(&urged);
    assert_eq!((urged.priority(), other.priority()), (Priority::Normal, Priority::Patient));
    scheduler.urge(&other);
    assert_eq!(taken(&scheduler), [other.id(), first, urged.id(), second]);
    assert_eq!(scheduler.runnable(), 0);
}

#[test]
fn what_has_begun_yields_between_applications_and_goes_on_when_urged() {
    let scheduler = scheduler();
    let request = submit(&scheduler, patient(50));
    let job = scheduler.next_job().unwrap();
    assert!(!scheduler.should_yield(Priority::Patient, true), "nobody else wants anything");
    let late = submit(&scheduler, Priority::Low);
    assert!(scheduler.should_yield(Priority::Patient, false));
    scheduler.offer(&request, [goal(7)]);
    scheduler.yield_job(job, false);
    // Another patient one that can wait less goes before what has begun.
    let nearer = submit(&scheduler, patient(20));
    scheduler.urge(&request);
    let order: Vec<(u64, bool)> =
        std::iter::from_fn(|| scheduler.next_job()).map(|job| (job.request.id(), job.is_root)).collect();
    assert_eq!(order, [(request.id(), true), (request.id(), false), (late.id(), true), (nearer.id(), true)]);
    assert_eq!(scheduler.runnable(), 0);
}

#[test]
fn in_line_for_memory_too() {
    let scheduler = scheduler();
    let holder = submit(&scheduler, Priority::Normal);
    scheduler.next_job().unwrap();
    scheduler.reserve(JobId(900), &holder, 100);
    let [request, normal] = [submit(&scheduler, patient(50)), submit(&scheduler, Priority::Low)];
    let mut ids = HashMap::new();
    for _ in 0..2 {
        let job = scheduler.next_job().unwrap();
        scheduler.expect(job.id, 1);
        scheduler.reserve(job.id, &job.request, 60);
        ids.insert(job.request.id(), job.id);
        assert!(scheduler.park(job).is_none());
    }
    // Alone, the one of low priority would be first.
    scheduler.urge(&request);
    scheduler.release(100);
    let next = scheduler.next_job().unwrap();
    assert_eq!((next.request.id(), next.id), (request.id(), ids[&request.id()]));
    assert!(scheduler.next_job().is_none(), "there is no memory for both");
    scheduler.stop(&normal, Stop::Cancelled);
    assert_eq!(scheduler.next_job().unwrap().request.id(), normal.id());
    scheduler.resume(next.id, Event::Look);
}

/// Memory that nobody uses until its holder has its turn is lost for all others.
#[test]
fn who_holds_what_others_may_want_is_not_patient() {
    let scheduler = scheduler();
    let request = submit(&scheduler, patient(u64::MAX));
    let mut job = scheduler.next_job().unwrap();
    let id = job.id;
    scheduler.expect(id, 1);
    job.reserved_bytes = scheduler.try_reserve(60, Priority::Patient).unwrap();
    assert!(scheduler.park(job).is_none());
    let other = submit(&scheduler, Priority::Normal);
    scheduler.resume(id, Event::Arrived);
    let mut first = scheduler.next_job().unwrap();
    assert_eq!(first.request.id(), request.id());
    assert_eq!(scheduler.next_job().unwrap().request.id(), other.id());
    // Without it, it waits again.
    scheduler.release(std::mem::take(&mut first.reserved_bytes));
    scheduler.expect(id, 1);
    assert!(scheduler.park(first).is_none());
    let low = submit(&scheduler, Priority::Low);
    scheduler.resume(id, Event::Look);
    assert_eq!(taken(&scheduler), [low.id(), request.id()]);
    assert_eq!(scheduler.runnable(), 0);
}

/// One worker, time in steps of one application. Ordinary requests of one step come and
/// keep the worker busy for most of the time, and for a while for all of it.
#[test]
fn under_load_all_begin_in_time_and_gaps_are_used() {
    const ENDS: u64 = 2000;
    let scheduler = scheduler();
    let (mut kept, mut begun, mut waited) = (Vec::new(), HashMap::new(), Vec::new());
    let mut left: HashMap<u64, u64> = HashMap::new();
    let mut came: HashMap<u64, u64> = HashMap::new();
    for now in 0..ENDS {
        // From 500 on there is one for each step; before, three for four steps.
        if now >= 500 || now % 4 != 0 {
            let ordinary = submit(&scheduler, Priority::Normal);
            left.insert(ordinary.id(), 1);
            came.insert(ordinary.id(), now);
            kept.push((u64::MAX, ordinary));
        }
        if now % 100 == 50 && now < 1500 {
            let until = now + 300;
            let request = submit(&scheduler, patient(until));
            left.insert(request.id(), 3);
            kept.push((until, request));
        }
        // The host's clock.
        kept.iter().filter(|(until, _)| *until == now).for_each(|(_, request)| scheduler.urge(request));
        let Some(job) = scheduler.next_job() else { continue };
        let id = job.request.id();
        begun.entry(id).or_insert(now);
        if let Some(came) = came.get(&id) {
            waited.push(now - came);
        }
        let rest = left.get_mut(&id).unwrap();
        *rest -= 1;
        match *rest {
            0 => scheduler.retire(&job.request),
            _ => scheduler.yield_job(job, false),
        }
    }
    let patient: Vec<_> = kept.iter().filter(|(until, _)| *until != u64::MAX).collect();
    assert_eq!(patient.len(), 15);
    for (until, request) in &patient {
        let at = begun[&request.id()];
        // What came before it and still waits: what patient ones that were urged took.
        assert!(at <= until + 3 * 15, "could wait until {until}, began at {at}");
        assert_eq!(left[&request.id()], 0, "it ended");
    }
    let before_its_time = patient.iter().filter(|(until, request)| begun[&request.id()] < *until).count();
    assert!(before_its_time >= 4, "the first ones found gaps, {before_its_time}");
    assert!(waited.iter().take(300).all(|waited| *waited == 0), "nobody waited for them");
}
