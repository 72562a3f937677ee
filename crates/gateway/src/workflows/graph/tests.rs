// SPDX-License-Identifier: Apache-2.0

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(1);

fn made(needs: &[Number]) -> Made {
    Made {
        function: "main.step".into(),
        needs: needs.to_vec(),
        isolated: Vec::new(),
        is_left: false,
        arguments: vec![7; 10],
    }
}

fn blob(number: Number) -> Handle {
    Handle::blob(&number.to_le_bytes())
}

fn problem() -> Arc<Problem> {
    Arc::new(Problem::internal("function", "raised"))
}

#[test]
fn a_step_begins_when_all_that_it_needs_is_there() {
    let mut graph = Graph::default();
    let [a, b] = [graph.add(made(&[]), NOW).unwrap(), graph.add(made(&[]), NOW).unwrap()];
    let c = graph.add(made(&[a, b, a]), NOW).unwrap();
    assert_eq!((graph.next(), graph.next(), graph.next()), (Some(a), Some(b), None));
    graph.succeed(b, blob(b), false, NOW);
    assert_eq!(graph.next(), None);
    graph.succeed(a, blob(a), false, 2 * NOW);
    assert_eq!(graph.next(), Some(c));
    assert_eq!(graph.begin(c, NOW).unwrap(), (vec![7; 10], vec![blob(a), blob(b), blob(a)]));
    assert_eq!(graph.step(c).unwrap().ready, Some(2 * NOW));
    let d = graph.add(made(&[b]), NOW).unwrap();
    assert_eq!(graph.next(), Some(d), "what it needs was there before it was made");
    graph.succeed(c, blob(c), false, NOW);
    assert!(!graph.is_settled());
    graph.succeed(d, blob(d), true, NOW);
    let counts = Counts { all: 4, running: 0, done: 4, failed: 0, remembered: 1 };
    assert_eq!((graph.is_settled(), graph.counts()), (true, counts));
    assert_eq!(graph.arguments_bytes, 0);
}

#[test]
fn what_waits_for_one_step_alone_is_found() {
    let mut graph = Graph::default();
    let [a, b] = [graph.add(made(&[]), NOW).unwrap(), graph.add(made(&[]), NOW).unwrap()];
    let waiting =
        |graph: &Graph, number| graph.waiting_for(number).map(|(number, _)| number).collect::<Vec<_>>();
    graph.add(made(&[a, b]), NOW).unwrap();
    graph.add(Made { isolated: vec![a], ..made(&[a]) }, NOW).unwrap();
    assert!(
        waiting(&graph, a).is_empty(),
        "one waits for another one as well, and one is sent what others map"
    );
    let [first, second] = [graph.add(made(&[a]), NOW).unwrap(), graph.add(made(&[a]), NOW).unwrap()];
    let behind = graph.add(made(&[first]), NOW).unwrap();
    assert_eq!((waiting(&graph, a), waiting(&graph, first)), (vec![first, second], vec![behind]));
    assert_eq!(graph.waiting_for(first).next().unwrap().1, [7; 10]);
    assert_eq!(graph.next(), Some(a));
    graph.succeed(a, blob(a), false, NOW);
    assert!(waiting(&graph, a).is_empty() && waiting(&graph, 99).is_empty());
}

#[test]
fn a_result_is_for_one_step_if_its_workflow_has_let_go_of_it_and_no_other_needs_it() {
    let mut graph = Graph::default();
    let kept = graph.add(made(&[]), NOW).unwrap();
    let [a, b] = [0, 1].map(|_| graph.add(Made { is_left: true, ..made(&[]) }, NOW).unwrap());
    let of_kept = graph.add(made(&[kept]), NOW).unwrap();
    let of_a = graph.add(made(&[a]), NOW).unwrap();
    assert!(graph.is_for(a, of_a) && !graph.is_for(kept, of_kept) && !graph.is_for(b, of_a));
    graph.add(made(&[b, a]), NOW).unwrap();
    assert!(!graph.is_for(a, of_a) && !graph.is_for(99, of_a));
}

#[test]
fn a_step_that_has_followed_began_when_its_instance_came_to_it() {
    let mut graph = Graph::default();
    let [a, b] = [graph.add(made(&[]), NOW).unwrap(), graph.add(made(&[0]), NOW).unwrap()];
    assert_eq!(graph.next(), Some(a));
    graph.succeed(a, blob(a), false, 5 * NOW);
    assert_eq!(graph.next(), Some(b));
    graph.begin(b, 5 * NOW).unwrap();
    let (queued, running) = (Duration::ZERO, 3 * NOW);
    let times = StepTimes { queued, running, memory_peak_bytes: None, phases: None, has_followed: true };
    graph.note(b, &times, 6 * NOW);
    let step = graph.step(b).unwrap();
    assert_eq!((step.begun, step.ready, step.has_followed), (Some(3 * NOW), Some(3 * NOW), true));
    // Another attempt is another one's.
    graph.begin(b, 7 * NOW).unwrap();
    graph.note(b, &StepTimes { has_followed: false, ..times }, 11 * NOW);
    let step = graph.step(b).unwrap();
    assert_eq!((step.begun, step.ready, step.has_followed), (Some(7 * NOW), Some(3 * NOW), false));
}

#[test]
fn what_needs_a_step_that_failed_fails_with_it_and_names_it() {
    let mut graph = Graph::default();
    let a = graph.add(made(&[]), NOW).unwrap();
    let b = graph.add(made(&[a]), NOW).unwrap();
    let c = graph.add(made(&[b]), NOW).unwrap();
    let other = graph.add(made(&[]), NOW).unwrap();
    assert_eq!(graph.next(), Some(a));
    graph.fail(a, &problem(), a, NOW);
    assert!(matches!(graph.outcome(c), Some(Err((_, origin))) if origin == a));
    let late = graph.add(made(&[other, c]), NOW).unwrap();
    assert!(matches!(graph.outcome(late), Some(Err((_, origin))) if origin == a));
    assert_eq!((graph.next(), graph.next()), (Some(other), None), "it goes on with what needs nothing of it");
    graph.succeed(other, blob(other), false, NOW);
    // Its end is not told twice, whatever comes after.
    graph.succeed(b, blob(b), false, NOW);
    assert_eq!(graph.counts(), Counts { all: 5, running: 0, done: 1, failed: 4, remembered: 0 });
    assert!(graph.is_settled());
}

#[test]
fn a_failure_that_nobody_was_told_of_is_found() {
    let mut graph = Graph::default();
    let a = graph.add(made(&[]), NOW).unwrap();
    let b = graph.add(made(&[a]), NOW).unwrap();
    assert!(graph.unseen_failure().is_none());
    graph.fail(a, &problem(), a, NOW);
    assert!(matches!(graph.unseen_failure(), Some((_, number)) if number == a));
    // Whoever is told of the one that needs it is told of it.
    assert!(graph.outcome(b).is_some_and(|outcome| outcome.is_err()));
    assert!(graph.unseen_failure().is_none());
}

#[test]
fn bounds_are_kept_and_only_earlier_steps_are_needed() {
    let mut graph = Graph::default();
    assert_eq!(graph.add(made(&[0]), NOW), Err(Refused::NoSuchStep(0)), "itself");
    graph.add(made(&[]), NOW).unwrap();
    assert_eq!(graph.add(made(&[Number::MAX]), NOW), Err(Refused::NoSuchStep(Number::MAX)));
    assert_eq!(graph.add(made(&vec![0; NEEDS_MAX + 1]), NOW), Err(Refused::TooManyNeeds));
    let long = Made { arguments: vec![0; ARGUMENTS_MAX], ..made(&[]) };
    assert!(matches!(graph.add(long, NOW), Err(Refused::TooLong(_))));
    assert_eq!((graph.counts().all, graph.arguments_bytes), (1, 10), "what is refused leaves nothing");
    for _ in 1..STEPS_MAX {
        graph.add(Made { arguments: Vec::new(), ..made(&[]) }, NOW).unwrap();
    }
    assert_eq!(graph.add(made(&[]), NOW), Err(Refused::TooMany));
}

proptest! {
    /// Whatever the graph and the order of the ends: each step begins once, after all that it needs, and all end.
    #[test]
    fn any_graph_is_done(needs in proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..4), 1..60), picks in proptest::collection::vec(any::<prop::sample::Index>(), 200), fails in proptest::collection::vec(proptest::bool::weighted(0.1), 60)) {
        let mut graph = Graph::default();
        let (mut running, mut begun) = (Vec::new(), std::collections::HashSet::new());
        let mut picks = picks.into_iter().cycle();
        for (needs, number) in needs.iter().zip(0_u32..) {
            let needs: Vec<Number> = needs.iter().filter(|_| number > 0).map(|need| need % number).collect();
            prop_assert_eq!(graph.add(made(&needs), NOW), Ok(number));
        }
        loop {
            while let Some(number) = graph.next() {
                prop_assert!(begun.insert(number), "it began twice");
                prop_assert!(graph.begin(number, NOW).is_some(), "a result is missing");
                running.push(number);
            }
            if running.is_empty() {
                break;
            }
            let number = running.swap_remove(picks.next().unwrap().index(running.len()));
            match fails[number as usize] {
                true => graph.fail(number, &problem(), number, NOW),
                false => graph.succeed(number, blob(number), false, NOW),
            }
        }
        prop_assert!(graph.is_settled());
        for (step, number) in graph.steps().iter().zip(0..) {
            let has_failed = fails[number as usize];
            let is_failed = |step: &Step| matches!(step.state, State::Failed(..));
            let needs_failed = step.needs.iter().any(|need| is_failed(&graph.steps()[*need as usize]));
            prop_assert_eq!(is_failed(step), needs_failed || (has_failed && begun.contains(&number)));
            prop_assert_eq!(begun.contains(&number), !needs_failed);
        }
        prop_assert_eq!(graph.arguments_bytes, 0);
    }
}
