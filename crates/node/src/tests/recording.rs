// SPDX-License-Identifier: Apache-2.0
//! What is noted of an evaluation whose result comes with a receipt, and what it leaves
//! with the node; and when a request that can wait begins.

use gateway::{Noted, NotedStep, Recording};

use super::*;

fn request(goal: Handle, recording: Option<Recording>, by: Option<Duration>) -> EvaluateRequest {
    EvaluateRequest {
        goal,
        deadline: None,
        priority: Priority::Normal,
        is_repeatable: true,
        streams: false,
        by,
        recording,
        tenant: None,
    }
}

fn run(node: &Arc<Node>, goal: Handle, recording: Recording) -> (Handle, Noted) {
    let mut evaluation =
        NodeBackend(Arc::clone(node)).evaluate(request(goal, Some(recording), None)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let end = runtime.block_on(evaluation.finished());
    let noted = evaluation.noted().unwrap();
    assert!(evaluation.noted().is_none(), "once");
    (end.result, noted)
}

/// Applications in order, what they led to, their fuel and whether they ran now.
fn steps(noted: &Noted) -> Vec<(Handle, Handle, u64, bool)> {
    let mut steps = noted.steps.clone().unwrap();
    steps.sort_by_key(|step| *step.application.as_bytes());
    steps
        .iter()
        .map(|&NotedStep { application, result, fuel, ran_now, .. }| (application, result, fuel, ran_now))
        .collect()
}

const COUNTED: Limits = Limits { memory_bytes: 1 << 20, fuel: 10_000, output_size_hint: 0, fan_out_hint: 0 };

/// The sum of four numbers by three applications, the same one twice among the arguments.
fn sum(node: &Node, add: Handle) -> Handle {
    let part = apply(node, COUNTED, add, &[byte(1), byte(2)]).strict().unwrap();
    let other = apply(node, COUNTED, add, &[part, byte(3)]).strict().unwrap();
    apply(node, COUNTED, add, &[part, other])
}

#[test]
fn all_applications_are_noted_once_and_the_same_whether_they_run_or_are_remembered() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let goal = sum(&node, add);
    let (result, first) = run(&node, goal, Recording::Remembering);
    assert_eq!(result, byte(9));
    assert!(first.is_lasting && !first.is_fresh);
    assert_eq!(first.goal, goal.strict().unwrap());
    let ran = steps(&first);
    assert_eq!(ran.len(), 3);
    assert!(ran.iter().all(|step| step.2 > 0 && step.3), "{ran:?}");
    // What a receipt's request has run, all others find.
    assert_eq!(evaluate(&node, goal).applied, 0);
    let (_, again) = run(&node, goal, Recording::Remembering);
    let remembered: Vec<_> = ran.iter().map(|step| (step.0, step.1, step.2, false)).collect();
    assert_eq!(steps(&again), remembered);
    // Of another goal some are known.
    let part = apply(&node, COUNTED, add, &[byte(1), byte(2)]).strict().unwrap();
    let (_, partly) = run(&node, apply(&node, COUNTED, add, &[part, byte(90)]), Recording::Remembering);
    assert_eq!(steps(&partly).iter().filter(|step| step.3).count(), 1);
    assert_eq!(steps(&partly).len(), 2);
}

#[test]
fn a_fresh_evaluation_takes_nothing_and_leaves_nothing() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let goal = sum(&node, add);
    let (_, fresh) = run(&node, goal, Recording::Fresh);
    assert!(fresh.is_fresh && node.store().relations().get(goal).is_none());
    assert_eq!(evaluate(&node, goal).applied, 3, "nothing was left");
    // What the node remembers may be wrong: a fresh evaluation does not see it.
    let part = apply(&node, COUNTED, add, &[byte(1), byte(2)]);
    let wrong = store::Record { result: byte(77), rule: store::Rule::Apply, nanos: 1, fuel: 1 };
    node.store().relations().insert(part, wrong);
    let (result, again) = run(&node, goal, Recording::Fresh);
    assert_eq!((result, steps(&again)), (byte(9), steps(&fresh)));
    assert_eq!(node.store().relations().get(part).map(|record| record.result), Some(byte(77)));
    let (_, believed) = run(&node, goal, Recording::Remembering);
    assert!(steps(&believed).iter().any(|step| step.1 == byte(77) && !step.3), "an audit would name it");
}

#[test]
fn a_failure_is_noted_and_a_deadline_does_not_last() {
    let node = start(None);
    let trap = codelet(&node, r#"(module (func (export "apply") (param i32) (result i32) unreachable))"#);
    let (result, noted) = run(&node, apply(&node, COUNTED, trap, &[]), Recording::Remembering);
    assert!(result.is_failure() && noted.is_lasting);
    assert_eq!(steps(&noted).len(), 1);
    let forever = codelet(&node, LOOP);
    node.prepare(forever, &Limits::default()).unwrap();
    let wish = EvaluateRequest {
        deadline: Some(Duration::from_millis(200)),
        ..request(apply(&node, Limits::default(), forever, &[]), Some(Recording::Remembering), None)
    };
    let mut evaluation = NodeBackend(Arc::clone(&node)).evaluate(wish).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(evaluation.finished()).failure.unwrap().code, FailureCode::Deadline);
    assert_eq!(steps(&evaluation.noted().unwrap()), [], "nothing of it comes again");
}

#[test]
fn there_are_only_so_many_at_a_time() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let backend = NodeBackend(Arc::clone(&node));
    let begin = |item| {
        let goal = apply(&node, COUNTED, add, &[byte(item), byte(1)]);
        backend.evaluate(request(goal, Some(Recording::Fresh), None))
    };
    let held: Vec<_> = (0..16).map(|item| begin(item).unwrap()).collect();
    let Err(why) = begin(50) else { panic!("one too many") };
    assert!(why.contains("try again later"), "{why}");
    drop(held);
    wait_until("there is a place again", || begin(60).is_ok());
}

#[test]
fn a_tenant_leaves_as_many_to_others_as_it_has() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let backend = NodeBackend(Arc::clone(&node));
    let mut item = 0;
    let mut begin = |tenant: Option<&str>| {
        item += 1;
        let goal = apply(&node, COUNTED, add, &[byte(item), byte(1)]);
        let wish = request(goal, Some(Recording::Fresh), None);
        backend.evaluate(EvaluateRequest { tenant: tenant.map(str::to_owned), ..wish })
    };
    let mut held = Vec::new();
    for (tenant, most) in [("greedy", 8), ("second", 4), ("third", 2), ("fourth", 1)] {
        let its: Vec<_> = (0..16).map_while(|_| begin(Some(tenant)).ok()).collect();
        assert_eq!(its.len(), most, "{tenant}");
        held.push(its);
    }
    let Err(why) = begin(Some("greedy")) else { panic!("one too many") };
    assert!(why.contains("or may be for greedy"), "{why}");
    // The owner has what there is; then there is none.
    held.push(vec![begin(None).ok().unwrap()]);
    assert!(begin(None).is_err() && begin(Some("fifth")).is_err());
    // What was given back can be had again, by whoever has little: as soon as the evaluator has
    // seen each of them end, which is after its holder left.
    held.remove(0);
    let mut again = Vec::new();
    wait_until("half of what is free is fifth's", || {
        again.extend(begin(Some("fifth")));
        again.len() == 4
    });
    assert!(begin(Some("fifth")).is_err(), "as many are left to others");
}

#[test]
fn applications_are_charged_for_inputs_reservation_fuel_or_processor_time() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let small = Limits { fuel: 0, ..COUNTED };
    let shared = node.store().put_blob(&[7; 5000]).unwrap();
    let tree: objects::TreeBuilder = [shared, shared, byte(1)].into_iter().collect();
    let tree = node.store().keep_tree(tree.view());
    let goal = apply(&node, COUNTED, add, &[byte(2), byte(3), tree, shared]);
    let ended = evaluate(&node, goal);
    let objects::Cost { inputs_bytes, reserved_bytes, fuel, .. } = ended.cost;
    assert_eq!(inputs_bytes, add.size() + (3 * 32 + 5000) + 5000);
    assert_eq!((reserved_bytes, ended.uncounted_nanos), (1 << 20, 0));
    assert_eq!((fuel > 0, fuel), (true, ended.fuel));
    // As a receipt of the same has it.
    let (_, noted) = run(&node, goal, Recording::Fresh);
    assert_eq!(noted.steps.unwrap()[0].fuel, fuel);
    let again = evaluate(&node, goal);
    assert_eq!((again.cost, again.uncounted_nanos), (objects::Cost::default(), 0), "it was remembered");
    let uncounted = evaluate(&node, apply(&node, small, add, &[byte(2), byte(3)]));
    assert_eq!((uncounted.cost.fuel, uncounted.uncounted_nanos > 0), (0, true));
    // The procedure's trees are looked at once; a second application pays for them all the same.
    let more = evaluate(&node, apply(&node, COUNTED, add, &[byte(4), byte(3), tree, shared]));
    assert_eq!(more.cost.inputs_bytes, inputs_bytes);
}

#[test]
fn who_can_wait_begins_when_its_patience_ends_although_others_never_leave() {
    let node = start(None);
    let forever = codelet(&node, LOOP);
    let add = codelet(&node, ADD);
    node.prepare(add, &COUNTED).unwrap();
    let mut running = occupy_workers(&node, forever);
    let goal = apply(&node, COUNTED, add, &[byte(1), byte(1)]);
    let backend = NodeBackend(Arc::clone(&node));
    let mut patient = backend.evaluate(request(goal, None, Some(Duration::from_millis(1200)))).unwrap();
    // Came later, and is as endless as the others.
    let later = |item| apply(&node, Limits::default(), forever, &[byte(item)]);
    running.extend([9, 10].map(|item| backend.evaluate(request(later(item), None, None)).unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let early = tokio::time::timeout(Duration::from_millis(900), patient.finished()).await;
        assert!(early.is_err(), "no worker is free");
        // One leaves: who is next is told by the patience, which has ended by now.
        drop(running.remove(0));
        let end = tokio::time::timeout(Duration::from_secs(20), patient.finished()).await.unwrap();
        assert_eq!(end.result, byte(2));
    });
}
