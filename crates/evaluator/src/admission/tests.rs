// SPDX-License-Identifier: Apache-2.0
//! The line before the common pool, without jobs behind the numbers.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const ALLOWANCE: u64 = 10;
const POOL: u64 = 100;

fn admission() -> Admission {
    Admission::new(AdmissionOptions { allowance_bytes: ALLOWANCE, pool_bytes: POOL })
}

/// Asks for `bytes` of the pool.
fn ask(admission: &mut Admission, job: u64, bytes: u64, priority: Priority) -> Reservation {
    admission.reserve(JobId(job), ALLOWANCE + bytes, priority)
}

fn jobs(admitted: &[(JobId, u64)]) -> Vec<u64> {
    admitted.iter().map(|(job, _)| job.0).collect()
}

#[test]
fn only_what_exceeds_the_allowance_is_reserved() {
    let mut admission = admission();
    assert_eq!(admission.largest_bytes(), 110);
    assert_eq!(admission.reserve(JobId(1), 5, Priority::Low), Reservation::Granted(0));
    assert_eq!(admission.reserve(JobId(2), 110, Priority::Low), Reservation::Granted(100));
    assert_eq!(admission.reserve(JobId(3), 111, Priority::High), Reservation::Impossible);
    assert_eq!(admission.reserve(JobId(4), u64::MAX, Priority::High), Reservation::Impossible);
    assert_eq!((admission.free_bytes(), admission.waiting()), (0, 0));
}

#[test]
fn the_line_is_by_priority_and_then_by_arrival() {
    let mut admission = admission();
    ask(&mut admission, 0, 100, Priority::Normal);
    let wishes = [
        (1, Priority::Low),
        (2, Priority::Normal),
        (3, Priority::High),
        (4, Priority::Normal),
        (5, Priority::High),
    ];
    for (job, priority) in wishes {
        assert_eq!(ask(&mut admission, job, 50, priority), Reservation::Queued);
    }
    assert_eq!(jobs(&admission.release(100)), [3, 5]);
    assert_eq!(jobs(&admission.release(50)), [2]);
    assert_eq!(jobs(&admission.release(100)), [4, 1]);
}

#[test]
fn a_new_one_does_not_pass_an_equal_one_that_waits() {
    let mut admission = admission();
    ask(&mut admission, 0, 60, Priority::Normal);
    ask(&mut admission, 1, 40, Priority::Normal);
    assert_eq!(ask(&mut admission, 2, 80, Priority::Normal), Reservation::Queued);
    assert_eq!(ask(&mut admission, 3, 30, Priority::Normal), Reservation::Queued);
    // The first in line does not fit, the second does, and was here first.
    assert_eq!(jobs(&admission.release(40)), [3]);
    assert_eq!(ask(&mut admission, 4, 30, Priority::Normal), Reservation::Queued);
}

#[test]
fn the_first_in_line_is_overtaken_a_bounded_number_of_times() {
    let mut admission = admission();
    ask(&mut admission, 0, 50, Priority::Normal);
    assert_eq!(ask(&mut admission, 1, 80, Priority::Normal), Reservation::Queued);
    let mut overtakes = 0;
    let mut job = 2;
    while ask(&mut admission, job, 20, Priority::Normal) == Reservation::Granted(20) {
        overtakes += 1;
        job += 1;
        assert_eq!(admission.release(20), []);
        assert!(overtakes <= OVERTAKES_MAX);
    }
    assert_eq!(overtakes, OVERTAKES_MAX);
    // From now on, memory gathers for the first one.
    assert_eq!(ask(&mut admission, job + 1, 20, Priority::Low), Reservation::Queued);
    assert_eq!(jobs(&admission.release(50)), [1, job]);
    // A higher priority is another line, and nobody is ahead in it.
    assert_eq!(admission.free_bytes(), 0);
}

#[test]
fn waiting_ones_that_overtake_count_too() {
    let mut admission = admission();
    ask(&mut admission, 0, 100, Priority::Normal);
    ask(&mut admission, 1, 100, Priority::Normal);
    for job in 2..200 {
        ask(&mut admission, job, 1, Priority::Normal);
    }
    let mut passed = 0;
    for _ in 0..99 {
        passed += admission.release(1).len() as u32;
    }
    assert_eq!(passed, OVERTAKES_MAX);
}

#[test]
fn a_higher_priority_goes_before_the_line() {
    let mut admission = admission();
    ask(&mut admission, 0, 50, Priority::Normal);
    ask(&mut admission, 1, 80, Priority::Normal);
    for job in 2..200 {
        assert_eq!(ask(&mut admission, job, 20, Priority::High), Reservation::Granted(20));
        assert_eq!(admission.release(20), []);
    }
}

#[test]
fn who_leaves_the_line_lets_others_in() {
    let mut admission = admission();
    ask(&mut admission, 0, 50, Priority::Normal);
    ask(&mut admission, 1, 80, Priority::Normal);
    admission.overtakes = OVERTAKES_MAX;
    assert_eq!(ask(&mut admission, 2, 20, Priority::Normal), Reservation::Queued);
    assert!(admission.forget(JobId(1)));
    assert!(!admission.forget(JobId(1)));
    assert_eq!(jobs(&admission.release(0)), [2]);
}

#[test]
#[should_panic(expected = "more memory released than reserved")]
fn more_cannot_be_released_than_was_reserved() {
    admission().release(1);
}

#[derive(Debug, Clone)]
enum Act {
    Ask(u64, usize),
    Release(usize),
    Forget(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0u64..=POOL + 5, 0..Priority::LEVELS).prop_map(|(bytes, level)| Act::Ask(bytes, level)),
        3 => any::<usize>().prop_map(Act::Release),
        1 => any::<usize>().prop_map(Act::Forget),
    ];
    proptest::collection::vec(act, 0..300)
}

/// Who holds and who waits, told from outside.
#[derive(Default)]
struct Model {
    holds: HashMap<u64, u64>,
    waits: HashMap<u64, u64>,
}

impl Model {
    fn admit(&mut self, admitted: &[(JobId, u64)]) -> Result<(), TestCaseError> {
        for (job, bytes) in admitted {
            prop_assert_eq!(self.waits.remove(&job.0), Some(*bytes), "{:?} did not wait", job);
            self.holds.insert(job.0, *bytes);
        }
        Ok(())
    }

    fn nth(jobs: &HashMap<u64, u64>, index: usize) -> Option<u64> {
        let mut sorted: Vec<u64> = jobs.keys().copied().collect();
        sorted.sort_unstable();
        sorted.get(index.checked_rem(sorted.len())?).copied()
    }

    fn check(&self, admission: &Admission) -> Result<(), TestCaseError> {
        let held: u64 = self.holds.values().sum();
        prop_assert!(held <= POOL, "{} of {} bytes are reserved", held, POOL);
        prop_assert_eq!(admission.free_bytes(), POOL - held);
        prop_assert_eq!(admission.waiting(), self.waits.len());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reservations_never_exceed_the_pool_and_everybody_gets_a_turn(acts in acts()) {
        let priorities = [Priority::High, Priority::Normal, Priority::Low, Priority::Patient];
        let mut admission = admission();
        let mut model = Model::default();
        for (job, act) in (0u64..).zip(acts) {
            match act {
                Act::Ask(bytes, level) => match ask(&mut admission, job, bytes, priorities[level]) {
                    Reservation::Granted(granted) => {
                        prop_assert_eq!(granted, bytes);
                        model.holds.insert(job, bytes);
                    }
                    Reservation::Queued => {
                        model.waits.insert(job, bytes);
                    }
                    Reservation::Impossible => prop_assert!(bytes > POOL),
                },
                Act::Release(index) => {
                    if let Some(holder) = Model::nth(&model.holds, index) {
                        let bytes = model.holds.remove(&holder).unwrap();
                        let admitted = admission.release(bytes);
                        model.admit(&admitted)?;
                    }
                }
                Act::Forget(index) => {
                    if let Some(waiter) = Model::nth(&model.waits, index) {
                        prop_assert!(admission.forget(JobId(waiter)));
                        model.waits.remove(&waiter);
                        let admitted = admission.release(0);
                        model.admit(&admitted)?;
                    }
                }
            }
            model.check(&admission)?;
        }
        // Whoever holds gives back, until nobody is left.
        while let Some(holder) = Model::nth(&model.holds, 0) {
            let bytes = model.holds.remove(&holder).unwrap();
            let admitted = admission.release(bytes);
            model.admit(&admitted)?;
            model.check(&admission)?;
        }
        prop_assert!(model.waits.is_empty(), "{:?} wait for ever", model.waits);
    }
}

/// A pool of room for two, both taken, and a line of jobs that each want one and share
/// an input, or none.
fn line_of(inputs: &[Option<u64>], batch_max: u32) -> Admission {
    let options = AdmissionOptions { allowance_bytes: 0, pool_bytes: 20 };
    let mut room = Admission::new(options).with_batches(batch_max);
    assert_eq!(room.try_reserve(20, Priority::Normal), Some(20));
    for (job, input) in (0..).zip(inputs) {
        let who = Claimant { job: JobId(job), request: job, shares: input.map(Handle::u64) };
        assert_eq!(room.reserve(who, 10, Priority::Normal), Reservation::Queued);
    }
    room
}

/// In which order a line is served, if each gives back its room before the next.
fn order(mut room: Admission, inputs: &[Option<u64>], first: u64) -> Vec<u64> {
    let mut used = Some(Handle::u64(first));
    let mut order = Vec::new();
    while order.len() < inputs.len() {
        let admitted = room.release_sharing(10, used);
        let [(job, 10)] = admitted[..] else { panic!("{admitted:?}") };
        used = inputs[job.0 as usize].map(Handle::u64);
        order.push(job.0);
    }
    order
}

#[test]
fn who_shares_an_input_is_next_and_the_others_are_not_forgotten() {
    let inputs = [1, 2, 3, 1, 2, 3, 1, 2, 3].map(Some);
    assert_eq!(order(line_of(&inputs, 4), &inputs, 1), [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    assert_eq!(order(line_of(&inputs, 0), &inputs, 1), [0, 1, 2, 3, 4, 5, 6, 7, 8], "by arrival");
    assert_eq!(order(line_of(&inputs, 4), &inputs, 2), [1, 4, 7, 0, 3, 6, 2, 5, 8], "what is there first");
    let none = [None; 4];
    assert_eq!(order(line_of(&none, 4), &none, 1), [0, 1, 2, 3]);
}

#[test]
fn the_first_in_line_is_passed_a_bounded_number_of_times() {
    let mut inputs = vec![Some(2)];
    inputs.extend([Some(1); 12]);
    let order = order(line_of(&inputs, 5), &inputs, 1);
    assert_eq!(order[..6], [1, 2, 3, 4, 5, 0], "after five it is its turn");
}

#[test]
fn a_batch_passes_nobody_of_a_higher_priority_and_takes_no_more_than_there_is() {
    let mut room = line_of(&[Some(1), Some(2)], 4);
    let who = |job, shares| Claimant { job: JobId(job), request: job, shares };
    assert_eq!(room.reserve(who(7, None), 20, Priority::High), Reservation::Queued);
    assert_eq!(room.reserve(who(8, Some(Handle::u64(2))), 20, Priority::Normal), Reservation::Queued);
    // The one of high priority wants more than comes back; who is smaller passes it as ever.
    assert_eq!(room.release_sharing(10, Some(Handle::u64(2))), [(JobId(0), 10)]);
    assert_eq!(room.release_sharing(10, Some(Handle::u64(2))), [(JobId(1), 10)]);
    assert_eq!(room.release_sharing(10, Some(Handle::u64(2))), []);
    assert_eq!(room.release_sharing(10, Some(Handle::u64(2))), [(JobId(7), 20)]);
    assert_eq!(room.release_sharing(20, None), [(JobId(8), 20)]);
}
