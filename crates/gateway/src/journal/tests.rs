// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use super::*;
use crate::printed::{Piece, Printed};

/// Of a request to a function that printed this.
pub(super) fn record(function: &str, log: &str) -> Record {
    let piece = Piece { len: log.len(), at: Instant::now(), is_error: false };
    let printed = Printed { bytes: log.into(), pieces: vec![piece] };
    Record {
        begun_us: 1,
        time_ms: 1,
        request_id: format!("{function}-id"),
        function: function.to_owned(),
        version: 1,
        status: 200,
        start: "warm",
        total_us: 1,
        log: Log::of(printed, (Instant::now(), 1)),
        ..Record::default()
    }
    .fit_to_keep()
}

/// Every record, or so many.
pub(super) fn all(limit: usize) -> Wanted {
    Wanted { limit, ..Wanted::default() }
}

fn found(journal: &Mutex<Journal>, wanted: &Wanted) -> Vec<u64> {
    find(journal, wanted).0.iter().map(|record| record.sequence).collect()
}

#[test]
fn readers_find_what_they_want_and_go_on() {
    let journal = Mutex::new(Journal::new(0));
    for (at, name) in ["a", "b", "a", "b", "a"].into_iter().enumerate() {
        journal.lock().unwrap().add(record(name, if at < 2 { "printed" } else { "" }), 0);
    }
    let of = |function: &str| Wanted { function: Some(function.to_owned()), ..all(100) };
    assert_eq!(found(&journal, &all(100)), [1, 2, 3, 4, 5], "whatever kind they are of");
    assert_eq!(found(&journal, &of("a")), [1, 3, 5]);
    assert_eq!(found(&journal, &Wanted { request_id: Some("b-id".to_owned()), after: 2, ..all(100) }), [4]);
    assert_eq!(found(&journal, &all(2)), [4, 5], "the newest");
    let last = journal.lock().unwrap().last;
    assert_eq!(found(&journal, &Wanted { after: last, ..all(100) }), [0; 0]);
    assert_eq!(found(&journal, &Wanted { text: Some("print".to_owned()), ..all(100) }), [1, 2]);
    journal.lock().unwrap().add(Record { status: 503, ..record("c", "") }, 0);
    journal.lock().unwrap().add(Record { failure: Some("no print".to_owned()), ..record("c", "") }, 0);
    journal.lock().unwrap().add(Record { status: 404, ..record("c", "") }, 0);
    assert_eq!(found(&journal, &Wanted { failed: true, ..all(100) }), [6, 7]);
    assert_eq!(found(&journal, &Wanted { text: Some("print".to_owned()), ..of("c") }), [7]);
}

#[test]
fn numbers_are_times_and_never_the_same() {
    let journal = Mutex::new(Journal::new(1000));
    let number = |now_us| {
        journal.lock().unwrap().add(record("a", ""), now_us);
        journal.lock().unwrap().last
    };
    assert_eq!([5000, 5000, 200, 9000].map(number), [5000, 5001, 5002, 9000], "the clock may go back");
}

#[test]
fn the_oldest_go_by_number_and_by_bytes_and_none_by_those_of_the_other_kind() {
    let journal = Mutex::new(Journal::new(0));
    journal.lock().unwrap().add(Record { status: 500, ..record("rare", "") }, 0);
    for _ in 0..RECORDS_MAX + 5 {
        journal.lock().unwrap().add(record("a", ""), 0);
    }
    assert_eq!(journal.lock().unwrap().quiet.records.len(), RECORDS_MAX);
    assert_eq!(found(&journal, &Wanted { failed: true, ..all(1) }), [1]);
    let long = "x".repeat(2 * LOG_MAX);
    for _ in 0..200 {
        journal.lock().unwrap().add(record("b", &long), 0);
    }
    let journal = journal.lock().unwrap();
    let told = &journal.told;
    assert!(told.bytes <= TOLD_BYTES_MAX && told.records.len() > TOLD_BYTES_MAX / LOG_MAX / 2);
    for ring in [told, &journal.quiet] {
        let counted: usize = ring.records.iter().map(|record| record.bytes()).sum();
        assert_eq!(counted, ring.bytes);
    }
}

#[test]
fn who_wants_more_than_is_here_is_told_below_which_number_to_look() {
    let journal = Mutex::new(Journal::new(100));
    let more = |journal: &Mutex<Journal>, wanted: &Wanted| find(journal, wanted).2;
    assert_eq!(more(&journal, &all(1)), Some(101), "from before it was started");
    assert_eq!(more(&journal, &Wanted { after: 100, ..all(1) }), None, "all since then is here");
    journal.lock().unwrap().add(record("a", "told"), 500);
    assert_eq!(more(&journal, &all(1)), None, "that is as many as are wanted");
    assert_eq!(more(&journal, &all(2)), Some(101));
    let long = "x".repeat(LOG_MAX);
    for at in 0..200 {
        journal.lock().unwrap().add(record("b", &long), 1000 + at);
    }
    let oldest = journal.lock().unwrap().told.records.front().unwrap().sequence;
    assert_eq!(more(&journal, &all(1000)), Some(oldest), "what had to go");
    assert_eq!(more(&journal, &all(10)), None);
    assert_eq!(more(&journal, &Wanted { after: oldest - 1, ..all(1000) }), None);
    assert_eq!(more(&journal, &Wanted { function: Some("a".to_owned()), ..all(1) }), Some(oldest));
}
