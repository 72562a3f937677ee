// SPDX-License-Identifier: Apache-2.0
//! Python functions whose instances are kept between calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::FailureCode;
use sandbox::keep_alive::{Cancel, Fleet, FleetOptions, Function, PolicyOptions, Start, StartKind};
use sandbox::process::Language;
use sandbox::{Call, Invoked, Outcome};

use crate::Case;
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    ("kept_instances_serve_again", kept_instances_serve_again),
    ("a_kept_instance_that_ends_is_replaced", a_kept_instance_that_ends_is_replaced),
    ("kept_instances_make_room", kept_instances_make_room),
    ("a_call_in_a_kept_instance_is_cancelled", a_call_in_a_kept_instance_is_cancelled),
];

const COUNTING: &str =
    "count = 0\ndef apply():\n    global count\n    count += 1\n    return b'%d' % count\n";
const OTHER: &str = "count = 100\ndef apply():\n    global count\n    count += 1\n    return b'%d' % count\n";
const ENDING: &str = "import os\ndef apply():\n    os._exit(3)\n";
const ENDLESS: &str = "def apply():\n    while True: pass\n";

/// A fleet, and calls of some functions.
struct Kept {
    fleet: Fleet,
    calls: Vec<(Function, Call)>,
}

impl Kept {
    fn new(sources: &[&str], instances_max: u32) -> Self {
        let world = World::new(Language::Python);
        let calls = sources.iter().map(|source| {
            let mut function = Function::new(world.spec(source), 2);
            function.size_hint_bytes = Some(8 << 20);
            (function, world.call(source, &[]))
        });
        let calls = calls.collect();
        let policy = PolicyOptions { instances_max, ..PolicyOptions::default() };
        let options = FleetOptions { policy, tick: Duration::from_millis(20), ..FleetOptions::default() };
        Self { fleet: Fleet::new(options, Arc::new(world.functions)).unwrap(), calls }
    }

    fn call(&self, which: usize, cancel: Option<&Cancel>) -> (Outcome, Start) {
        let (function, call) = &self.calls[which];
        let deadline = Instant::now() + Duration::from_secs(30);
        let (Invoked::Done(outcome), start) =
            self.fleet.invoke(function, call.clone(), deadline, cancel).unwrap();
        (outcome, start)
    }

    fn says(&self, which: usize) -> (String, StartKind) {
        let (outcome, start) = self.call(which, None);
        let bytes = outcome.result.unwrap().literal_bytes().unwrap().to_vec();
        (String::from_utf8(bytes).unwrap(), start.kind)
    }
}

fn kept_instances_serve_again(_: Language) {
    let kept = Kept::new(&[COUNTING], 100);
    let (_, start) = kept.call(0, None);
    assert_eq!(start.kind, StartKind::Forked);
    assert!(start.start_ns > 100_000, "{start:?}");
    for count in 2..20 {
        assert_eq!(kept.says(0), (count.to_string(), StartKind::Warm));
    }
    // What it holds is measured, and is far from what it may hold at most.
    let began = Instant::now();
    let measured = || kept.fleet.report().functions[0].stats.size_bytes;
    while measured() == 8 << 20 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((100 << 10..48 << 20).contains(&measured()), "{} bytes", measured());
}

fn a_kept_instance_that_ends_is_replaced(_: Language) {
    let kept = Kept::new(&[ENDING, COUNTING], 100);
    for _ in 0..3 {
        let (outcome, start) = kept.call(0, None);
        assert_eq!(outcome.result.unwrap_err().code, FailureCode::Trap);
        // Where there was time enough, another one has been made in its place.
        assert!(matches!(start.kind, StartKind::Forked | StartKind::Prewarmed), "{start:?}");
    }
    assert_eq!(kept.says(1), ("1".to_owned(), StartKind::Forked));
    assert_eq!(kept.says(1), ("2".to_owned(), StartKind::Warm));
}

fn kept_instances_make_room(_: Language) {
    // With room for one instance in all.
    let kept = Kept::new(&[COUNTING, OTHER], 1);
    for _ in 0..3 {
        assert_eq!(kept.says(0), ("1".to_owned(), StartKind::Forked));
        assert_eq!(kept.says(1), ("101".to_owned(), StartKind::Forked));
    }
    let report = kept.fleet.report();
    assert_eq!(report.functions[0].stats.counts.evictions, 3);
    assert_eq!(report.functions[0].stats.counts.cold, 3);
}

fn a_call_in_a_kept_instance_is_cancelled(_: Language) {
    let kept = Kept::new(&[ENDLESS, COUNTING], 100);
    let cancel = Cancel::default();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| kept.call(0, Some(&cancel)));
        while kept.fleet.report().functions.first().is_none_or(|it| it.stats.busy == 0) {
            assert!(began.elapsed() < Duration::from_secs(20), "it never ran");
            std::thread::sleep(Duration::from_millis(2));
        }
        cancel.cancel();
        let (outcome, _) = running.join().unwrap();
        assert_eq!(outcome.result.unwrap_err().code, FailureCode::Cancelled);
    });
    assert_eq!(kept.says(1).0, "1");
    assert!(kept.fleet.drain(Duration::from_secs(5)));
    assert_eq!(kept.fleet.report().instances, 0);
}
