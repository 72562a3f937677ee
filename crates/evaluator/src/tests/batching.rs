// SPDX-License-Identifier: Apache-2.0
//! Applications that share a large input which is not in memory run one after another,
//! and each input is fetched once for all of them.

use std::sync::Arc;

use objects::Handle;

use super::api::SchedulerOptions;
use super::host::{Distance, Scheduler, World};
use super::machine::{Machine, options};

const INPUT_LEN: usize = 1 << 20;

fn input(byte: u8) -> Vec<u8> {
    vec![byte; INPUT_LEN]
}

/// Three applications of each of three inputs, in turns, with room for one input: which
/// input each of those that ended had, in order; and how many were fetched. Memory has
/// room for one, too.
fn served(batch_max: u32, len: usize) -> (Vec<u8>, usize) {
    let held_max_bytes = (len + len / 4) as u64;
    let options = SchedulerOptions { held_max_bytes, batch_max, ..options(1) };
    let mut machine = Machine::over(World::new(), Arc::new(Scheduler::new(options)));
    let inputs: Vec<Handle> = (0..3).map(|byte| machine.world.blob(&input(byte)[..len])).collect();
    let mut asked = Vec::new();
    for number in 0..3 {
        for (byte, &input) in (0_u8..).zip(&inputs) {
            let thunk = machine.world.application("return", &[input, Handle::u64(number)]);
            let request = machine.submit(thunk.shallow().unwrap());
            asked.push((request.id(), byte));
        }
    }
    inputs.iter().for_each(|&input| machine.world.send_away(input, Distance::Far));
    let mut order = Vec::new();
    loop {
        let done = machine.work_off();
        for (request, result) in &done {
            assert!(!result.is_failure());
            order.extend(asked.iter().find(|(id, _)| *id == request.id()).map(|(_, byte)| *byte));
        }
        // What is not held makes room for what is fetched next.
        let is_due = machine.world.due() > 0;
        for &input in &inputs {
            if is_due && machine.world.peek(input).is_some() {
                machine.world.evict(input, Distance::Far);
            }
        }
        if !machine.world.deliver(&machine.scheduler) {
            break;
        }
    }
    assert_eq!(machine.scheduler.held_bytes(), 0);
    (order, machine.world.counts().fetched.len())
}

#[test]
fn who_shares_a_large_input_runs_after_whom_it_came_for() {
    let (order, fetched) = served(16, INPUT_LEN);
    assert_eq!(order, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(fetched, 3);
}

#[test]
fn in_order_of_arrival_each_is_fetched_again() {
    let (order, fetched) = served(0, INPUT_LEN);
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert_eq!(fetched, 9);
}

#[test]
fn who_came_first_is_passed_so_often_and_no_more() {
    assert_eq!(served(1, INPUT_LEN).0, [0, 0, 1, 1, 2, 2, 2, 0, 1], "the last two pass nobody but one");
}

#[test]
fn small_inputs_change_no_order() {
    assert_eq!(served(16, INPUT_LEN / 2).0, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}
