// SPDX-License-Identifier: Apache-2.0
//! The whole node with real sandboxes and a real disk, without listeners.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::{Backend, EvaluateRequest, Evaluated, Evaluation, Priority};
use objects::{FailureCode, Handle, Limits, TreeBuilder};

use crate::backend::NodeBackend;
use crate::{Node, Options};

mod partial;
mod recording;
mod ways;

const ADD: &str = include_str!("../../../../guests/codelets/wat/add.wat");

const LOOP: &str = r#"(module (func (export "apply") (param i32) (result i32) (loop (br 0)) (i32.const 0)))"#;

/// Reads one argument and returns its size, after some thousand rounds.
const SIZE: &str = r#"(module
  (import "sinew_v1" "size" (func $size (param i32) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob (param i64 i32) (result i32)))
  (func (export "apply") (param i32) (result i32)
    (local $round i32)
    (loop $rounds
      (local.set $round (i32.add (local.get $round) (i32.const 1)))
      (br_if $rounds (i32.lt_u (local.get $round) (i32.const 1000000))))
    (call $blob (call $size (i32.const 3)) (i32.const 8))))"#;

fn start(home: Option<&Path>) -> Arc<Node> {
    let options = Options {
        home: home.map(Path::to_owned),
        workers: Some(2),
        memory_bytes: Some(1 << 30),
        ..Options::default()
    };
    Node::start(&options).unwrap()
}

fn codelet(node: &Node, text: &str) -> Handle {
    node.store().put_blob(&wat::parse_str(text).unwrap()).unwrap()
}

fn apply(node: &Node, limits: Limits, procedure: Handle, arguments: &[Handle]) -> Handle {
    let mut tree = TreeBuilder::new();
    tree.push(limits.handle().unwrap()).push(procedure);
    arguments.iter().for_each(|&argument| _ = tree.push(argument));
    node.store().put_tree(tree.view()).unwrap().application().unwrap()
}

fn evaluate_within(node: &Arc<Node>, goal: Handle, deadline: Option<Duration>) -> Evaluated {
    let backend = NodeBackend(Arc::clone(node));
    let request = EvaluateRequest {
        goal,
        deadline,
        priority: Priority::Normal,
        is_repeatable: true,
        streams: false,
        by: None,
        recording: None,
        tenant: None,
    };
    let mut evaluation = backend.evaluate(request).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(evaluation.finished())
}

fn evaluate(node: &Arc<Node>, goal: Handle) -> Evaluated {
    evaluate_within(node, goal, None)
}

fn byte(value: u8) -> Handle {
    Handle::literal(&[value]).unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As many endless loops as there are workers: nothing else could run.
fn occupy_workers(node: &Arc<Node>, forever: Handle) -> Vec<Box<dyn Evaluation>> {
    let backend = NodeBackend(Arc::clone(node));
    // What waits for its code is nowhere in a queue, and occupies nobody.
    node.prepare(forever, &Limits::default()).unwrap();
    let begin = |number| {
        let goal = apply(node, Limits::default(), forever, &[byte(number)]);
        backend
            .evaluate(EvaluateRequest {
                goal,
                deadline: None,
                priority: Priority::Normal,
                is_repeatable: true,
                streams: false,
                by: None,
                recording: None,
                tenant: None,
            })
            .unwrap()
    };
    let running = (0..2).map(begin).collect();
    wait_until("the loops have begun", || node.scheduler().runnable() == 0);
    running
}

#[test]
fn an_application_runs_once_and_is_then_remembered() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let sum = apply(&node, Limits::default(), add, &[byte(3), byte(4)]);
    let first = evaluate(&node, sum);
    assert_eq!((first.result, first.applied), (byte(7), 1));
    let again = evaluate(&node, sum);
    assert_eq!((again.result, again.applied), (byte(7), 0));
}

#[test]
fn a_deadline_stops_a_loop_and_is_not_remembered() {
    let node = start(None);
    let forever = codelet(&node, LOOP);
    // To wait for its code is not to run it.
    node.prepare(forever, &Limits::default()).unwrap();
    let thunk = apply(&node, Limits::default(), forever, &[]);
    let begun = Instant::now();
    for _ in 0..2 {
        let ended = evaluate_within(&node, thunk, Some(Duration::from_millis(500)));
        let failure = ended.failure.unwrap();
        assert_eq!((failure.code, failure.application), (FailureCode::Deadline, thunk));
        assert_eq!(ended.applied, 1);
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(node.store().relations().get(thunk).is_none());
}

#[test]
fn a_deadline_passes_also_where_no_worker_is_free() {
    let node = start(None);
    let forever = codelet(&node, LOOP);
    let running = occupy_workers(&node, forever);
    let queued = apply(&node, Limits::default(), forever, &[byte(9)]);
    let begun = Instant::now();
    let ended = evaluate_within(&node, queued, Some(Duration::from_millis(50)));
    assert_eq!(ended.failure.unwrap().code, FailureCode::Deadline);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(node.scheduler().requests(), 2, "its place is free though no worker is");
    let backend = NodeBackend(Arc::clone(&node));
    let request = EvaluateRequest {
        goal: queued,
        deadline: None,
        priority: Priority::Normal,
        is_repeatable: true,
        streams: false,
        by: None,
        recording: None,
        tenant: None,
    };
    drop(backend.evaluate(request).unwrap());
    assert_eq!((node.scheduler().requests(), node.scheduler().runnable()), (2, 0));
    drop(running);
}

#[test]
fn a_memo_hit_needs_no_worker() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let sum = apply(&node, Limits::default(), add, &[byte(3), byte(4)]);
    evaluate(&node, sum);
    node.shut_down();
    assert_eq!(evaluate(&node, sum).result, byte(7));
}

#[test]
fn fuel_stops_a_loop_and_is_remembered() {
    let node = start(None);
    let forever = codelet(&node, LOOP);
    let limits = Limits { fuel: 10_000, ..Limits::default() };
    let thunk = apply(&node, limits, forever, &[]);
    let ended = evaluate(&node, thunk);
    assert_eq!(ended.failure.map(|failure| failure.code), Some(FailureCode::Fuel));
    assert_eq!(evaluate(&node, thunk).applied, 0);
}

#[test]
fn whoever_leaves_frees_the_worker() {
    let node = start(None);
    let forever = codelet(&node, LOOP);
    let running = occupy_workers(&node, forever);
    drop(running);
    let add = codelet(&node, ADD);
    let sum = apply(&node, Limits::default(), add, &[byte(1), byte(1)]);
    assert_eq!(evaluate(&node, sum).result, byte(2));
    wait_until("nothing is under way", || node.scheduler().requests() == 0);
}

#[test]
fn shutting_down_ends_what_would_never_end() {
    let node = start(None);
    let forever = codelet(&node, LOOP);
    let thunk = apply(&node, Limits::default(), forever, &[]);
    let waiting = {
        let node = Arc::clone(&node);
        std::thread::spawn(move || evaluate(&node, thunk))
    };
    wait_until("the loop has begun", || node.scheduler().requests() == 1);
    let begun = Instant::now();
    node.shut_down();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(waiting.join().unwrap().failure.unwrap().code, FailureCode::Cancelled);
}

#[test]
fn a_stop_at_any_moment_frees_the_worker() {
    let node = start(None);
    let forever = codelet(&node, LOOP);
    let backend = NodeBackend(Arc::clone(&node));
    for round in 0..300_u64 {
        let goal = apply(&node, Limits::default(), forever, &[Handle::u64(round)]);
        let request = EvaluateRequest {
            goal,
            deadline: None,
            priority: Priority::Normal,
            is_repeatable: true,
            streams: false,
            by: None,
            recording: None,
            tenant: None,
        };
        let evaluation = backend.evaluate(request).unwrap();
        // Dropped while queued, about to begin, or running.
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_micros(round % 60) {
            std::hint::spin_loop();
        }
        drop(evaluation);
    }
    wait_until("no worker loops", || node.scheduler().requests() == 0);
}

#[test]
fn many_who_ask_for_one_thing_get_one_application() {
    let node = start(None);
    let size = codelet(&node, SIZE);
    let blob = node.store().put_blob(&[5; 1000]).unwrap();
    let thunk = apply(&node, Limits::default(), size, &[blob]);
    let before = node.applied();
    let applied = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let ended = evaluate(&node, thunk);
                assert_eq!(ended.result, Handle::u64(1000));
                applied.fetch_add(ended.applied, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    // One of the requests ran it, the others know that they did not.
    assert_eq!((node.applied() - before, applied.into_inner()), (1, 1));
}

#[test]
fn missing_data_names_what_is_missing_and_is_asked_for_again() {
    let home = tempfile::tempdir().unwrap();
    let node = start(Some(home.path()));
    let size = codelet(&node, SIZE);
    let bytes = [9; 5000];
    let absent = Handle::blob(&bytes);
    let thunk = apply(&node, Limits::default(), size, &[absent]);
    let failure = evaluate(&node, thunk).failure.unwrap();
    assert_eq!((failure.code, failure.application), (FailureCode::MissingData, thunk));
    let detail = node.store().get(failure.detail).unwrap().unwrap();
    assert!(String::from_utf8_lossy(&detail).contains(&absent.to_string()));
    node.store().put_blob(&bytes).unwrap();
    assert_eq!(evaluate(&node, thunk).result, Handle::u64(5000));
}

#[test]
fn more_memory_than_the_node_has_is_a_failure_not_a_wait() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let limits = Limits { memory_bytes: 1 << 40, ..Limits::default() };
    let thunk = apply(&node, limits, add, &[byte(1), byte(2)]);
    assert_eq!(evaluate(&node, thunk).failure.unwrap().code, FailureCode::Resources);
}

#[test]
fn applications_beyond_the_allowance_reserve_and_give_back() {
    let node = start(None);
    let add = codelet(&node, ADD);
    let budgets = node.budgets();
    let free = node.scheduler().free_bytes();
    let memory_bytes = budgets.allowance_bytes + budgets.pool_bytes / 2 + 1;
    let limits = Limits { memory_bytes, ..Limits::default() };
    // Two of them do not fit at the same time.
    let sums = (0..16).map(|number| apply(&node, limits, add, &[byte(number), byte(1)]).strict().unwrap());
    let tree: TreeBuilder = sums.collect();
    let tree = node.store().put_tree(tree.view()).unwrap();
    let result = evaluate(&node, tree).result;
    let expected: TreeBuilder = (0..16).map(|number| byte(number + 1)).collect();
    assert_eq!(result, expected.view().handle());
    assert_eq!(node.scheduler().free_bytes(), free);
}

#[test]
fn what_was_worth_it_is_remembered_over_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let (thunk, label) = {
        let node = start(Some(home.path()));
        let size = codelet(&node, SIZE);
        let blob = node.store().put_blob(&vec![1; 1 << 20]).unwrap();
        let thunk = apply(&node, Limits::default(), size, &[blob]);
        node.store().set_label("input", blob).unwrap();
        assert_eq!(evaluate(&node, thunk).applied, 1);
        node.shut_down();
        (thunk, blob)
    };
    let node = start(Some(home.path()));
    let again = evaluate(&node, thunk);
    assert_eq!((again.result, again.applied), (Handle::u64(1 << 20), 0));
    assert_eq!(node.store().label("input").unwrap(), Some(label));
}

#[test]
fn an_explanation_tells_steps_makers_and_compilation() {
    let node = start(None);
    let size = codelet(&node, SIZE);
    let blob = node.store().put_blob(&[5; 100]).unwrap();
    let inner = apply(&node, Limits::default(), size, &[blob]);
    let outer = apply(&node, Limits::default(), size, &[inner.strict().unwrap()]);
    let result = evaluate(&node, outer).result;
    assert_eq!(result, Handle::u64(8));
    let backend = NodeBackend(Arc::clone(&node));
    let rules: Vec<_> = backend.explain(outer).unwrap().steps.iter().map(|step| step.record.rule).collect();
    assert_eq!(rules, [store::Rule::Resolve, store::Rule::Apply]);
    let makers = backend.explain(result).unwrap().made_by;
    assert!(makers.iter().any(|maker| maker.record.rule == store::Rule::Apply));
    let compilation = backend.explain(size).unwrap().compilation;
    let line = |name: &str| &compilation.iter().find(|(what, _)| what == name).unwrap().1;
    assert!(line("code").contains("compiled") && line("instance").contains("stateless"), "{compilation:?}");
    // Explaining uses nothing; evaluating again does.
    // (The step before it may have been: a job that waited looks again.)
    let was_hit = || backend.explain(outer).unwrap().steps.last().unwrap().was_hit;
    assert!(!was_hit());
    assert_eq!(evaluate(&node, outer).applied, 0);
    assert!(was_hit());
}

#[test]
fn the_doctor_finds_this_machine_fit() {
    let home = tempfile::tempdir().unwrap();
    let options = Options { home: Some(home.path().to_owned()), ..Options::default() };
    let checks = crate::doctor(&options);
    assert!(checks.iter().any(|check| check.name == "wasm engine" && check.is_ok), "{checks:?}");
    let nowhere = Options { home: Some("/proc/nowhere".into()), ..Options::default() };
    let checks = crate::doctor(&nowhere);
    assert!(checks.iter().any(|check| check.name == "home" && !check.is_ok));
}

/// A module of more than a megabyte, all of it code.
fn large_module() -> Vec<u8> {
    use std::fmt::Write as _;
    let mut text = String::from("(module ");
    for function in 0..300 {
        text.push_str("(func (param i32) (result i32) ");
        for round in 0..400 {
            let factor = function * 1_000 + round + 100_000;
            let _ = write!(
                text,
                "(local.set 0 (i32.xor (i32.mul (local.get 0) (i32.const {factor})) (i32.const {round})))"
            );
        }
        text.push_str("(local.get 0))");
    }
    text.push_str("(func (export \"apply\") (param i32) (result i32) (i32.const 3)))");
    wat::parse_str(text).unwrap()
}

#[test]
fn who_waits_for_a_large_module_can_leave_and_holds_up_nobody() {
    let node = start(None);
    let module = large_module();
    assert!(module.len() > 1 << 20, "{} bytes", module.len());
    let large = node.store().put_blob(&module).unwrap();
    let thunk = apply(&node, Limits::default(), large, &[byte(5)]);
    // Longer than both workers could serve, if they compiled.
    for _ in 0..3 {
        let ended = evaluate_within(&node, thunk, Some(Duration::from_millis(5)));
        assert_eq!(ended.failure.unwrap().code, FailureCode::Deadline);
    }
    let add = codelet(&node, ADD);
    let sum = apply(&node, Limits::default(), add, &[byte(3), byte(4)]);
    assert_eq!(evaluate(&node, sum).result, byte(7));
    assert!(node.codelets.compilation(large).is_none(), "it was compiled too fast to show anything");
    // What has begun goes on, and is there for the next one.
    wait_until("the module is compiled", || node.codelets.coming() == 0);
    assert!(node.codelets.compilation(large).is_some());
    let ended = evaluate(&node, thunk);
    assert_eq!((ended.result, ended.applied), (byte(5), 1));
}

#[test]
fn a_node_without_a_disk_refuses_what_has_no_room_and_forgets_what_it_can_make_again() {
    let options =
        Options { home: None, workers: Some(1), memory_bytes: Some(256 << 20), ..Options::default() };
    let node = Node::start(&options).unwrap();
    let add = codelet(&node, ADD);
    let sums = [1, 2].map(|number| apply(&node, Limits::default(), add, &[byte(number), byte(4)]));
    assert_eq!(evaluate(&node, sums[0]).result, byte(5));
    let store = node.store();
    // Between two rounds of the reclaimer, which would find this unused.
    let mut number = 0_u64;
    while !store.is_full() {
        store.keep_blob(&number.to_le_bytes().repeat(8 << 10));
        number += 1;
    }
    let backend = NodeBackend(Arc::clone(&node));
    let request = EvaluateRequest {
        goal: sums[1],
        deadline: None,
        priority: Priority::Normal,
        is_repeatable: true,
        streams: false,
        by: None,
        recording: None,
        tenant: None,
    };
    let refused = backend.evaluate(request).err().unwrap();
    assert!(refused.contains("--home"), "{refused}");
    assert!(backend.keep_many(&[]).is_err());
    // What was under way when the memory was used up ends, with the reason.
    let (mut evaluator, mut executor) = node.private_worker();
    let private = node.scheduler().private_request(sums[1], evaluator::Priority::Normal);
    executor.begin(&private);
    let goal = sums[1].strict().unwrap();
    let evaluator::Progress::Finished(failure) = evaluator.evaluate(&mut executor, &private, goal) else {
        panic!("it has nothing to wait for");
    };
    let failure = objects::Failure::from_tree(store.local(failure).unwrap().as_tree()).unwrap();
    assert_eq!((failure.code, failure.application), (FailureCode::Resources, sums[1]));
    assert!(store.relations().get(sums[1]).is_none());
    wait_until("there is room again", || !store.is_full());
    assert_eq!(evaluate(&node, sums[1]).result, byte(6));
}
