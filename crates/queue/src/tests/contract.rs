// SPDX-License-Identifier: Apache-2.0
//! One suite for all drivers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use tempfile::tempdir;

use super::{claim, is_like, keyed, message};
use crate::{Embedded, End, Error, Id, Options, Pushed, Queue, State, Status};

/// Runs a check against every driver.
fn each(options: Options, check: impl Fn(Arc<dyn Queue>)) {
    let folder = tempdir().unwrap();
    check(Arc::new(Embedded::open(&folder.path().join("queue"), options).unwrap()));
    check(Arc::new(Embedded::in_memory(options).unwrap()));
}

fn retry(due_ms: u64) -> End {
    End::Retry { due_ms, reason: "not yet".to_owned(), counts: true }
}

fn die() -> End {
    End::Dead { reason: "no use".to_owned() }
}

fn state(queue: &dyn Queue, id: u128) -> Option<State> {
    queue.status(Id(id)).map(|status: Status| status.state)
}

#[test]
fn a_message_comes_as_it_was_pushed_and_once_at_a_time() {
    each(Options::default(), |queue| {
        let pushed = message(1, "a");
        assert_eq!(queue.push(pushed.clone(), 5).unwrap(), Pushed::New);
        assert_eq!(state(&*queue, 1), Some(State::Waiting));
        let claimed = claim(&*queue, 10).unwrap();
        assert!(is_like(&claimed, &pushed));
        assert_eq!((claimed.id, claimed.attempt, claimed.created_ms), (Id(1), 1, 5));
        assert_eq!(state(&*queue, 1), Some(State::Running));
        assert_eq!(claim(&*queue, 10), None);
        queue.end(Id(1), End::Succeeded(b"fine".to_vec()), None, 11).unwrap();
        assert_eq!(state(&*queue, 1), Some(State::Succeeded));
        assert_eq!(queue.outcome(Id(1)).unwrap().unwrap(), b"fine");
        assert_eq!(queue.payload(Id(1)).unwrap(), None, "nobody needs it any more");
        assert_eq!((claim(&*queue, u64::MAX), queue.next_due()), (None, None));
        assert_eq!((queue.status(Id(2)), queue.outcome(Id(2)).unwrap()), (None, None));
    });
}

#[test]
fn what_failed_comes_again_when_it_is_due() {
    each(Options::default(), |queue| {
        queue.push(message(1, "a"), 0).unwrap();
        claim(&*queue, 0).unwrap();
        queue.end(Id(1), retry(100), None, 1).unwrap();
        assert_eq!((claim(&*queue, 99), queue.next_due()), (None, Some(100)));
        let status = queue.status(Id(1)).unwrap();
        assert_eq!((status.attempts, status.due_ms, status.reason.as_str()), (1, 100, "not yet"));
        assert_eq!(claim(&*queue, 100).unwrap().attempt, 2);
        let uncounted = End::Retry { due_ms: 200, reason: "busy".to_owned(), counts: false };
        queue.end(Id(1), uncounted, None, 101).unwrap();
        assert_eq!(claim(&*queue, 200).unwrap().attempt, 2, "that was none");
        assert_eq!(queue.stats().retries, 2);
    });
}

#[test]
fn dead_letters_are_listed_redriven_and_purged() {
    each(Options::default(), |queue| {
        for (number, lane) in [(1, "a"), (2, "b"), (3, "a"), (4, "a")] {
            queue.push(message(number, lane), 0).unwrap();
        }
        while let Some(claimed) = claim(&*queue, 0) {
            queue.end(claimed.id, die(), None, 7).unwrap();
        }
        let ids = |lane, after, limit| -> Vec<u128> {
            queue.dead(lane, after, limit).iter().map(|status| status.id.0).collect()
        };
        assert_eq!(ids(None, None, 10), [1, 2, 3, 4]);
        assert_eq!(ids(Some("a"), None, 10), [1, 3, 4]);
        assert_eq!((ids(Some("a"), Some(Id(1)), 1), ids(Some("c"), None, 9)), (vec![3], vec![]));
        assert_eq!(queue.dead(None, None, 1)[0].reason, "no use");
        assert_eq!(queue.payload(Id(3)).unwrap().unwrap().0, b"head 3");
        assert!(queue.redrive(Id(3), 50).unwrap() && !queue.redrive(Id(3), 50).unwrap());
        let claimed = claim(&*queue, 50).unwrap();
        assert_eq!((claimed.id, claimed.attempt, claimed.created_ms), (Id(3), 1, 50), "as if it were new");
        assert!(!queue.purge(Id(3)).unwrap(), "it is under way");
        assert!(queue.purge(Id(2)).unwrap() && !queue.purge(Id(2)).unwrap());
        assert_eq!((queue.payload(Id(2)).unwrap(), queue.status(Id(2))), (None, None));
        assert!(!queue.redrive(Id(99), 0).unwrap());
    });
}

#[test]
fn lanes_take_turns_and_keep_to_their_limits() {
    each(Options::default(), |queue| {
        for number in 0..20 {
            queue.push(message(number, "crowd"), 0).unwrap();
        }
        queue.push(message(100, "lone"), 0).unwrap();
        queue.push(message(101, "other"), 0).unwrap();
        let mut lanes = Vec::new();
        for _ in 0..5 {
            lanes.push(claim(&*queue, 1).unwrap().lane);
        }
        assert!(
            lanes[..3].contains(&"lone".to_owned()) && lanes[..3].contains(&"other".to_owned()),
            "{lanes:?}"
        );
        let limit = |lane: &str| if lane == "crowd" { 3 } else { 9 };
        assert_eq!(queue.claim(1, &limit).unwrap(), None, "three of them are under way");
        let stats = queue.stats();
        let crowd = stats.lanes.iter().find(|lane| lane.lane == "crowd").unwrap();
        assert_eq!((crowd.waiting, crowd.running, crowd.dead), (17, 3, 0));
    });
}

#[test]
fn a_key_keeps_a_second_message_out_for_a_while() {
    each(Options::default(), |queue| {
        let push = |number, lane, now| queue.push(keyed(number, lane, "k", 100), now).unwrap();
        assert_eq!(push(1, "a", 0), Pushed::New);
        assert_eq!(push(2, "a", 99), Pushed::Duplicate(Id(1)));
        assert_eq!(push(3, "b", 99), Pushed::New, "a lane of its own");
        assert_eq!(push(4, "a", 100), Pushed::New);
        assert_eq!(push(5, "a", 150), Pushed::Duplicate(Id(4)));
        queue.sweep(10_000).unwrap();
        assert_eq!(push(6, "a", 150), Pushed::New, "it was forgotten");
        assert_eq!(queue.stats().duplicates, 2);
    });
}

#[test]
fn of_many_with_one_key_at_once_one_is_taken() {
    each(Options::default(), |queue| {
        let many = (1..=16).map(|number| {
            let queue = queue.clone();
            let push = move || queue.push(keyed(number, "a", "k", 100), 0).unwrap();
            thread::Builder::new().spawn(push).unwrap()
        });
        let many: Vec<_> = many.collect();
        let pushed: Vec<Pushed> = many.into_iter().map(|thread| thread.join().unwrap()).collect();
        let id = claim(&*queue, 0).unwrap().id;
        assert_eq!(claim(&*queue, 0), None);
        assert_eq!(pushed.iter().filter(|pushed| **pushed == Pushed::New).count(), 1);
        assert_eq!(pushed.iter().filter(|pushed| **pushed == Pushed::Duplicate(id)).count(), 15);
    });
}

#[test]
fn what_follows_comes_with_the_end_in_the_room_that_the_end_leaves() {
    let options = Options { messages_max: 2, lane_percent: 100, ..Options::default() };
    let lanes = |queue: &dyn Queue| -> BTreeSet<String> {
        queue.stats().lanes.into_iter().map(|lane| lane.lane).collect()
    };
    each(options, |queue| {
        queue.push(message(1, "a"), 0).unwrap();
        queue.push(message(2, "a"), 0).unwrap();
        let first = claim(&*queue, 0).unwrap().id;
        queue.end(first, End::Succeeded(Vec::new()), Some(message(9, "told")), 1).unwrap();
        assert_eq!(lanes(&*queue), BTreeSet::from(["a".to_owned(), "told".to_owned()]));
        assert_eq!(state(&*queue, first.0), Some(State::Succeeded));
    });
}

#[test]
fn what_comes_of_messages_fills_the_queue_no_more_than_they_do() {
    // Three messages of a lane at most; each leaves one of 900 bytes, for which there is room once.
    let options = Options { messages_max: 6, lane_percent: 50, bytes_max: 3000, ..Options::default() };
    each(options, |queue| {
        let result = |number| super::Message { body: vec![0; 900], ..message(number, "told") };
        (1..=3).for_each(|number| _ = queue.push(message(number, "a"), 0).unwrap());
        let ids: Vec<_> = (0..3).map(|_| claim(&*queue, 0).unwrap().id).collect();
        for (number, id) in ids.iter().enumerate() {
            queue.end(*id, End::Succeeded(Vec::new()), Some(result(number as u64 + 10)), 1).unwrap();
        }
        assert_eq!(state(&*queue, ids[0].0), Some(State::Succeeded));
        for (number, id) in ids.iter().enumerate().skip(1) {
            let status = queue.status(*id).unwrap();
            assert_eq!(status.state, State::Dead, "its result is not lost: it can be redriven");
            assert!(status.reason.contains("cannot be sent"), "{}", status.reason);
            assert_eq!(state(&*queue, number as u128 + 10), None);
        }
    });
}

#[test]
fn messages_and_bytes_are_bounded_in_all_and_by_lane() {
    let options = Options { messages_max: 10, lane_percent: 50, ..Options::default() };
    each(options, |queue| {
        (0..5).for_each(|number| _ = queue.push(message(number, "a"), 0).unwrap());
        let refused = queue.push(message(5, "a"), 0).unwrap_err();
        assert!(matches!(refused, Error::LaneFull { messages: 5, .. }), "{refused}");
        (10..15).for_each(|number| _ = queue.push(message(number, "b"), 0).unwrap());
        assert!(matches!(queue.push(message(15, "c"), 0), Err(Error::Full { messages: 10, .. })));
        // Dead letters take room until they are purged; what has succeeded takes none.
        queue.end(claim(&*queue, 0).unwrap().id, die(), None, 1).unwrap();
        assert!(queue.push(message(16, "c"), 0).is_err());
        queue.end(claim(&*queue, 0).unwrap().id, End::Succeeded(Vec::new()), None, 1).unwrap();
        assert_eq!(queue.push(message(17, "c"), 0).unwrap(), Pushed::New);
    });
    let options = Options { bytes_max: 2000, lane_percent: 50, ..Options::default() };
    each(options, |queue| {
        let long = |number, lane| super::Message { body: vec![0; 600], ..message(number, lane) };
        queue.push(long(1, "a"), 0).unwrap();
        assert!(matches!(queue.push(long(2, "a"), 0), Err(Error::LaneFull { .. })));
        queue.push(long(3, "b"), 0).unwrap();
        queue.push(long(4, "c"), 0).unwrap();
        assert!(matches!(queue.push(long(5, "d"), 0), Err(Error::Full { .. })));
        assert!(queue.stats().bytes <= 2000);
    });
    let options = Options { keys_max: 1, ..Options::default() };
    each(options, |queue| {
        queue.push(keyed(1, "a", "k", 100), 0).unwrap();
        assert!(matches!(queue.push(keyed(2, "a", "l", 100), 0), Err(Error::KeysFull { keys: 1 })));
    });
}

#[test]
fn outcomes_and_dead_letters_are_forgotten_in_time() {
    let options = Options { outcomes_max: 2, outcome_ms: 100, dead_ms: 1000, ..Options::default() };
    each(options, |queue| {
        for number in 1..=4 {
            queue.push(message(number, "a"), 0).unwrap();
            let id = claim(&*queue, 0).unwrap().id;
            let end = if number == 4 { die() } else { End::Succeeded(vec![number as u8]) };
            queue.end(id, end, None, number).unwrap();
        }
        assert_eq!((queue.outcome(Id(1)).unwrap(), queue.status(Id(1))), (None, None), "two are kept");
        assert!(queue.outcome(Id(2)).unwrap().is_some());
        queue.sweep(102).unwrap();
        assert_eq!((queue.outcome(Id(2)).unwrap(), state(&*queue, 3)), (None, Some(State::Succeeded)));
        queue.sweep(1003).unwrap();
        assert_eq!(state(&*queue, 4), Some(State::Dead));
        queue.sweep(1004).unwrap();
        assert_eq!((state(&*queue, 4), queue.stats().expired), (None, 1));
        assert_eq!((queue.stats().bytes, queue.stats().outcomes, queue.stats().lanes), (0, 0, Vec::new()));
    });
}

#[test]
fn notes_stay_with_their_message_and_go_with_it() {
    each(Options::default(), |queue| {
        assert!(!queue.note(Id(1), b"a", b"1").unwrap(), "there is no such message");
        queue.push(message(1, "a"), 0).unwrap();
        queue.push(message(2, "a"), 0).unwrap();
        for (id, key, value) in
            [(1, &b"b"[..], &b"2"[..]), (1, b"a", b"1"), (2, b"a", b"other"), (1, b"a", b"3")]
        {
            assert!(queue.note(Id(id), key, value).unwrap());
        }
        let noted = vec![(b"a".to_vec(), b"3".to_vec()), (b"b".to_vec(), b"2".to_vec())];
        assert_eq!(queue.notes(Id(1)).unwrap(), noted);
        assert_eq!((queue.notes(Id(3)).unwrap(), queue.notes(Id(0)).unwrap()), (vec![], vec![]));
        claim(&*queue, 0).unwrap();
        queue.end(Id(1), die(), None, 1).unwrap();
        assert_eq!(queue.notes(Id(1)).unwrap(), noted, "whoever redrives it needs them");
        assert!(queue.purge(Id(1)).unwrap());
        assert_eq!(queue.notes(Id(1)).unwrap(), vec![]);
        assert_eq!(queue.notes(Id(2)).unwrap().len(), 1, "that is another's");
    });
}

#[test]
fn the_last_messages_of_a_lane_are_listed_whatever_became_of_them() {
    each(Options::default(), |queue| {
        for (id, lane) in [(1, "a"), (2, "b"), (3, "a"), (4, "a")] {
            queue.push(message(id, lane), 0).unwrap();
        }
        while let Some(claimed) = claim(&*queue, 0) {
            let end = if claimed.id == Id(3) { die() } else { End::Succeeded(Vec::new()) };
            queue.end(claimed.id, end, None, 1).unwrap();
        }
        queue.push(message(5, "a"), 0).unwrap();
        let recent: Vec<_> =
            queue.recent("a", 3).into_iter().map(|status| (status.id, status.state)).collect();
        assert_eq!(recent, [(Id(5), State::Waiting), (Id(4), State::Succeeded), (Id(3), State::Dead)]);
        assert!(queue.recent("c", 3).is_empty());
    });
}

#[test]
fn what_is_not_under_way_cannot_end() {
    each(Options::default(), |queue| {
        queue.push(message(1, "a"), 0).unwrap();
        queue.end(Id(1), End::Succeeded(Vec::new()), None, 1).unwrap();
        queue.end(Id(7), die(), None, 1).unwrap();
        assert_eq!((state(&*queue, 1), state(&*queue, 7)), (Some(State::Waiting), None));
    });
}

#[test]
fn names_are_written_as_uuids() {
    let id = Id(0x0193_0000_0000_7000_8000_0000_0000_00ff);
    assert_eq!(id.to_string(), "01930000-0000-7000-8000-0000000000ff");
    assert_eq!(id.to_string().parse(), Ok(id));
    for wrong in [
        "",
        "01930000-0000-7000-8000-0000000000fF",
        "0193000000007000800000000000000000ff",
        "+1930000-0000-7000-8000-0000000000ff",
    ] {
        assert_eq!(wrong.parse::<Id>(), Err(()), "{wrong}");
    }
}
