// SPDX-License-Identifier: Apache-2.0
//! Calls that are begun, and instances that serve several, over a sandbox
//! whose calls end when the test says so.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::{FailureCode, Handle, Limits, TreeBuilder};
use parking_lot::Mutex;
use store::Store;

use super::super::*;
use crate::{Fault, Phase, State as Seen, Then};

const MIB: u64 = 1 << 20;

/// Calls under way, by sandbox, in the order in which they began.
#[derive(Default)]
struct Held {
    made: Mutex<Vec<(SandboxId, bool)>>,
    calls: Mutex<Vec<(SandboxId, Then)>>,
}

impl Held {
    /// Ends the oldest call of a sandbox; a failing one ends the sandbox too.
    fn end(&self, id: SandboxId, is_good: bool) {
        if !is_good {
            self.made.lock().iter_mut().filter(|made| made.0 == id).for_each(|made| made.1 = false);
        }
        let mut calls = self.calls.lock();
        let place = calls.iter().position(|call| call.0 == id).unwrap();
        let (_, then) = calls.remove(place);
        drop(calls);
        let result =
            if is_good { Ok(Handle::u64(id.0)) } else { Err(Fault::new(FailureCode::Trap, "it ended")) };
        then(Ok(Outcome { result, fuel: 0, log: Vec::new() }));
    }

    /// How many calls run in each sandbox.
    fn loads(&self) -> Vec<usize> {
        let calls = self.calls.lock();
        let made = self.made.lock();
        made.iter().map(|made| calls.iter().filter(|call| call.0 == made.0).count()).collect()
    }

    fn id(&self, number: usize) -> SandboxId {
        self.made.lock()[number].0
    }
}

impl Sandbox for Held {
    fn create(&self, specs: &[Spec]) -> Vec<Result<SandboxId, crate::Error>> {
        let mut made = self.made.lock();
        let ids = specs.iter().map(|_| {
            let id = SandboxId(made.len() as u64 + 1);
            made.push((id, true));
            Ok(id)
        });
        ids.collect()
    }

    fn start(&self, ids: &[SandboxId]) -> Vec<Result<(), crate::Error>> {
        ids.iter().map(|_| Ok(())).collect()
    }

    fn state(&self, ids: &[SandboxId]) -> Vec<Result<Seen, crate::Error>> {
        let made = self.made.lock();
        let each = ids.iter().map(|id| {
            let is_alive = made.iter().any(|made| made.0 == *id && made.1);
            let (phase, origin) = (Phase::Running, Origin::Forked);
            Ok(Seen { phase, running: 0, succeeded: 0, failed: 0, is_alive, origin })
        });
        each.collect()
    }

    fn memory_bytes(&self, ids: &[SandboxId]) -> Vec<Result<Option<u64>, crate::Error>> {
        ids.iter().map(|_| Ok(Some(MIB))).collect()
    }

    fn kill(&self, ids: &[SandboxId]) -> Vec<Result<(), crate::Error>> {
        ids.iter().map(|_| Ok(())).collect()
    }

    fn delete(&self, ids: &[SandboxId]) -> Vec<Result<(), crate::Error>> {
        ids.iter().map(|_| Ok(())).collect()
    }

    fn invoke(&self, id: SandboxId, _: Call) -> Result<Invoked, crate::Error> {
        Err(crate::Error::Unknown(id))
    }

    fn begin(&self, id: SandboxId, _: Call, then: Then) {
        self.calls.lock().push((id, then));
    }
}

struct World {
    sandbox: Arc<Held>,
    fleet: Fleet,
    call: Call,
    function: Function,
    /// How calls ended: in which sandbox, or why not.
    ended: Arc<Mutex<Vec<Result<Outcome, Error>>>>,
}

impl World {
    fn new(instances_max: u32, calls_at_once: u32) -> Self {
        let store =
            Store::open(store::Options { home: None, memory_bytes: MIB, relations_bytes: MIB }).unwrap();
        let (limits, procedure) = (Limits { memory_bytes: MIB, ..Limits::default() }, Handle::u64(7));
        let tree: TreeBuilder = [limits.handle().unwrap(), procedure].into_iter().collect();
        let handle = store.keep_tree(tree.view());
        let call = Call {
            application: store.local(handle).unwrap(),
            handle,
            limits,
            procedure,
            deadline: None,
            callees: None,
        };
        let function = Function::new(Spec { procedure, limits }, instances_max);
        let sandbox = Arc::new(Held::default());
        let options = FleetOptions { tick: Duration::from_millis(5), ..FleetOptions::default() };
        Self {
            fleet: Fleet::new(options, sandbox.clone()).unwrap(),
            sandbox,
            call,
            function: Function { calls_at_once, ..function },
            ended: Arc::default(),
        }
    }

    fn begin(&self, wait: Duration) -> Ticket {
        let ended = self.ended.clone();
        let told = Box::new(move |end: Result<(Outcome, Start), Error>| {
            ended.lock().push(end.map(|(outcome, _)| outcome));
        });
        self.fleet.begin(&self.function, self.call.clone(), Instant::now() + wait, told)
    }

    fn begin_many(&self, count: usize) {
        (0..count).for_each(|_| _ = self.begin(Duration::from_secs(20)));
    }

    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.sandbox.loads());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn calls_join_the_least_busy_instance_and_others_wait() {
    let world = World::new(2, 3);
    world.begin_many(7);
    world.until("two are full, one waits", |world| world.sandbox.loads() == [3, 3]);
    assert_eq!(world.fleet.report().waiting, 1);
    // The one that waits takes the first place that is free.
    world.sandbox.end(world.sandbox.id(1), true);
    assert_eq!(world.sandbox.loads(), [3, 3]);
    assert_eq!(world.fleet.report().waiting, 0);
    for _ in 0..2 {
        world.sandbox.end(world.sandbox.id(0), true);
    }
    world.begin_many(1);
    assert_eq!(world.sandbox.loads(), [2, 3]);
    let stats = world.fleet.report().functions[0].stats;
    assert_eq!((stats.busy, stats.idle, stats.counts.arrivals), (2, 0, 8));
    // Whoever does nothing goes before those who do something.
    for _ in 0..3 {
        world.sandbox.end(world.sandbox.id(1), true);
    }
    world.begin_many(1);
    assert_eq!(world.sandbox.loads(), [2, 1]);
    for number in [0, 0, 1] {
        world.sandbox.end(world.sandbox.id(number), true);
    }
    assert_eq!(world.ended.lock().iter().filter(|end| end.is_ok()).count(), 9);
    assert_eq!(world.fleet.report().functions[0].stats.idle, 2);
}

#[test]
fn none_joins_an_instance_that_has_died() {
    let world = World::new(1, 4);
    world.begin_many(2);
    world.until("both run", |world| world.sandbox.loads() == [2]);
    world.sandbox.end(world.sandbox.id(0), false);
    world.begin_many(1);
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 1));
    world.sandbox.end(world.sandbox.id(0), false);
    world.until("another one is made", |world| world.sandbox.loads() == [0, 1]);
    world.sandbox.end(world.sandbox.id(1), true);
    assert_eq!(
        world.ended.lock().iter().filter(|end| end.as_ref().is_ok_and(|it| it.result.is_ok())).count(),
        1
    );
}

#[test]
fn who_waits_too_long_or_leaves_is_told() {
    let world = World::new(1, 1);
    world.begin_many(1);
    world.until("it runs", |world| world.sandbox.loads() == [1]);
    world.begin(Duration::from_millis(20));
    world.until("it is too late", |world| matches!(world.ended.lock()[..], [Err(Error::Late)]));
    let ticket = world.begin(Duration::from_secs(20));
    world.fleet.cancel(ticket);
    assert!(matches!(world.ended.lock()[..], [_, Err(Error::Cancelled)]));
    world.sandbox.end(world.sandbox.id(0), true);
    assert_eq!(world.ended.lock().len(), 3);
}

#[test]
fn none_joins_an_instance_that_is_outdated() {
    let world = World::new(1, 3);
    world.begin_many(1);
    world.until("it runs", |world| world.sandbox.loads() == [1]);
    world.fleet.renew(world.function.spec.procedure);
    world.begin_many(2);
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 2));
    world.sandbox.end(world.sandbox.id(0), true);
    world.until("they run in a new one", |world| world.sandbox.loads() == [0, 2]);
    for _ in 0..2 {
        world.sandbox.end(world.sandbox.id(1), true);
    }
    assert_eq!(world.ended.lock().len(), 3);
}

#[test]
fn none_joins_when_all_come_to_their_end() {
    let world = World::new(1, 3);
    world.begin_many(4);
    world.until("three run", |world| world.sandbox.loads() == [3]);
    let refused = |world: &World| {
        let ended = world.ended.lock();
        ended.iter().filter(|end| matches!(end, Err(Error::Draining))).count()
    };
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| world.fleet.drain(Duration::from_secs(20)));
        world.until("who waits is refused", |world| refused(world) == 1);
        world.sandbox.end(world.sandbox.id(0), true);
        world.begin_many(1);
        assert_eq!((world.sandbox.loads(), refused(&world)), (vec![2], 2), "although there is a place");
        for _ in 0..2 {
            world.sandbox.end(world.sandbox.id(0), true);
        }
        assert!(drained.join().unwrap());
    });
}
