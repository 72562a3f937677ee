// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::options::Options;

const KIND: fn(&'static str) -> Kind =
    |name| Kind { name, rounds: 3, meaning: "a value", is_for_arrow: true };
const NAMES: [&str; 6] = [OURS, MESSAGES, "redis", "shm", ARROW, "ray"];

/// Rounds in which each side takes so many milliseconds, and twice as long with the read; in the middle one all take longer.
fn rounds(handed_ms: [f64; 6]) -> Vec<Vec<Times>> {
    let round = |factor: f64| {
        let times = |ms: f64| Times { handed: ms * factor * 1e6, read: 2.0 * ms * factor * 1e6 };
        handed_ms.map(times).to_vec()
    };
    vec![round(1.0), round(7.0), round(1.0)]
}

#[test]
fn the_worst_value_beside_its_best_peer_is_found() {
    let mut outcome = Outcome::default();
    let mut report = Report::new("transfer", true, true, Options::default());
    // Arrow is the fastest of the first, and keeps no objects.
    outcome.add(&mut report, &KIND("list"), 2 << 20, &NAMES, &rounds([4.0, 30.0, 40.0, 20.0, 2.0, 50.0]));
    outcome.add(
        &mut report,
        &KIND("frame"),
        LARGE_BYTES_MIN,
        &NAMES,
        &rounds([1.0, 9.0, 9.0, 9.0, 9.0, 3.0]),
    );
    outcome.add(&mut report, &KIND("number"), 20, &NAMES, &rounds([0.8, 0.9, 0.5, 0.2, 0.4, 4.0]));
    let [handed, read] = NUMBERS.map(|number| number.meaning);
    let found = |is_meant: &dyn Fn(&Ratio) -> bool| {
        let worst = outcome.worst(is_meant).unwrap();
        (worst.kind, worst.side, (worst.ours_over * 100.0).round())
    };
    assert_eq!(found(&|ratio| ratio.is_large && ratio.number == handed), ("list", ARROW, 200.0));
    let objects = |ratio: &Ratio| ratio.is_large && ratio.number == handed && ratio.side != ARROW;
    assert_eq!(found(&objects), ("frame", "ray", 33.0));
    assert_eq!(found(&|ratio| !ratio.is_large && ratio.number == read), ("number", "shm", 400.0));
    assert_eq!(found(&|ratio| ratio.side == MESSAGES && !ratio.is_large), ("number", MESSAGES, 89.0));
}

#[test]
fn what_is_apart_is_no_peer() {
    let mut outcome = Outcome::default();
    let mut report = Report::new("transfer", true, true, Options::default());
    let times = |ms: f64| Times { handed: ms * 1e6, read: 2.0 * ms * 1e6 };
    // Ours, apart, shm.
    outcome.add(
        &mut report,
        &KIND("number"),
        20,
        &[OURS, APART, "shm"],
        &[[2.0, 8.0, 4.0].map(times).to_vec()],
    );
    outcome.add(
        &mut report,
        &KIND("list"),
        20,
        &[OURS, APART, "shm"],
        &[[2.0, 3.0, 1.0].map(times).to_vec()],
    );
    let worst = outcome.worst(|ratio| ratio.kind == "number").unwrap();
    assert_eq!((worst.side, worst.ours_over), ("shm", 0.5));
    let (over_best, apart) = outcome.worst_apart(|_| true).unwrap();
    assert_eq!((apart.kind, over_best), ("list", 3.0));
}

#[test]
fn without_a_peer_nothing_is_promised() {
    let figures = |names: &[&'static str]| {
        let (mut outcome, mut report) =
            (Outcome::default(), Report::new("transfer", true, true, Options::default()));
        let rounds: Vec<_> =
            rounds([1.0; 6]).into_iter().map(|round| round[..names.len()].to_vec()).collect();
        outcome.add(&mut report, &KIND("number"), 20, names, &rounds);
        let before = report.figures();
        outcome.summarise(&mut report);
        report.figures() - before
    };
    assert_eq!(figures(&NAMES[..5]), 0);
    // Those of large values have none to be of.
    assert_eq!(figures(&NAMES), 4);
}

#[test]
fn a_line_has_median_and_quartiles() {
    assert_eq!(spread(vec![5e6, 1e6, 3e6, 2e6, 4e6]), "3.00 (2.00–4.00)");
    assert_eq!(spread(vec![1e9]), "1000 (1000–1000)");
    assert_eq!(
        [20, 8_200, 44_000_000].map(pickled),
        ["20 bytes pickled", "8.2 KB pickled", "44.0 MB pickled"]
    );
}
