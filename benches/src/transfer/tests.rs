// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn each_side_follows_each_other_one() {
    let orders: Vec<_> = (0..25).map(|round| order(round, 6)).collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    }
    for (one, next) in (0..36).map(|pair| (pair / 6, pair % 6)).filter(|(one, next)| one != next) {
        let is_there = orders.iter().any(|order| order.windows(2).any(|pair| pair == [one, next]));
        assert!(is_there, "{next} never follows {one}");
    }
}

#[test]
fn names_of_values_are_their_own() {
    let mut names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KINDS.len());
}

/// A side that is late with less than 100 ns, and tells what it was given.
const LATECOMER: &str = "import json, sys\n\
    print('{}', flush=True)\n\
    for line in sys.stdin:\n\
    \x20   allowance = json.loads(line)['allowance_ns']\n\
    \x20   print(json.dumps({'late': 'by much'} if allowance < 100 else {'handed_ns': 1, 'read_ns': allowance}), flush=True)\n";

#[expect(clippy::disallowed_methods, reason = "a peer is a program of its own")]
fn latecomer() -> Side {
    let start = || Ok((Peer::start(Command::new("python3").args(["-c", LATECOMER]))?.0, None));
    Side::peer("shm", Box::new(start)).unwrap()
}

#[test]
fn a_late_producer_gets_more_time_from_then_on() {
    let mut side = latecomer();
    let mut allowance_ns = 50;
    let told = handed(&KINDS[0], &mut side, &mut allowance_ns).unwrap();
    assert_eq!((told["read_ns"].as_u64(), allowance_ns), (Some(112), 112));
    assert_eq!(Times::of(&told).unwrap().handed, 1.0);
}

#[test]
fn one_that_is_always_late_is_an_error() {
    let error = handed(&KINDS[0], &mut latecomer(), &mut 2).unwrap_err().to_string();
    assert!(error.contains("int by shm"), "{error}");
}

#[test]
fn what_lacks_a_time_is_no_measurement() {
    assert!(Times::of(&json!({"handed_ns": 3})).is_err());
}

/// One that hands a number over rightly the first time, then ends without a word.
const MORTAL: &str = "import json, sys\n\
    print('{}', flush=True)\n\
    input()\n\
    print(json.dumps({'handed_ns': 1, 'read_ns': 2, 'total': '3', 'fingerprint': 'four'}), flush=True)\n\
    input()\n";

#[test]
#[expect(clippy::disallowed_methods, reason = "a peer is a program of its own")]
fn a_side_that_fails_is_told_of_and_started_again() {
    let mut report = Report::new("transfer", true, true, Options::default());
    let start = || Ok((Peer::start(Command::new("python3").args(["-c", MORTAL]))?.0, None));
    let mut sides = [Side::peer("shm", Box::new(start)).unwrap()];
    let expected = json!({"made_ns": 1, "total": "3", "fingerprint": "four"});
    let (names, rounds) = measure(&mut report, &KINDS[0], &expected, &mut sides).unwrap();
    assert!(names.is_empty() && rounds.is_empty());
    assert!(report.complete().unwrap_err().to_string().contains("int by shm"));
    assert_eq!(sides[0].hand(&json!({})).unwrap()["total"], "3");
}

#[test]
fn a_value_that_is_not_known_is_an_error() {
    let options = |name: &str| Options::of(&[format!("--kinds={name}")], OPTIONS).unwrap();
    assert_eq!(chosen(&options("int,forest")).unwrap().len(), 2);
    assert!(chosen(&options("int,wood")).is_err());
}
