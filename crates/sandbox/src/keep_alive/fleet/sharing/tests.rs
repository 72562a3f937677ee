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
use super::{Ahead, Allowed};
use crate::{Fault, Phase, State as Seen, Then};

const MIB: u64 = 1 << 20;

/// Calls under way, by sandbox, in the order in which they began.
#[derive(Default)]
struct Held {
    made: Mutex<Vec<(SandboxId, bool)>>,
    killed: Mutex<Vec<SandboxId>>,
    /// What was sent has not come there, and cannot be taken back.
    is_deaf: std::sync::atomic::AtomicBool,
    calls: Mutex<Vec<(SandboxId, Then)>>,
    /// The event loop that calls come from; its instances are those with its number, of every two.
    here: Mutex<Option<Home>>,
}

impl Held {
    /// Ends the oldest call of a sandbox; a failing one ends the sandbox too.
    fn end(&self, id: SandboxId, is_good: bool) {
        self.end_with(id, is_good, None);
    }

    /// Ends a call that computed for so much of its time.
    fn end_of(&self, id: SandboxId, held: Duration, cpu: Option<Duration>) {
        let spent = Spent { running: held, held, cpu, ..Spent::default() };
        self.end_with(id, true, Some(Box::new(spent)));
    }

    fn end_with(&self, id: SandboxId, is_good: bool, spent: Option<Box<Spent>>) {
        if !is_good {
            self.made.lock().iter_mut().filter(|made| made.0 == id).for_each(|made| made.1 = false);
        }
        let mut calls = self.calls.lock();
        let place = calls.iter().position(|call| call.0 == id).unwrap();
        let (_, then) = calls.remove(place);
        drop(calls);
        let result =
            if is_good { Ok(Handle::u64(id.0)) } else { Err(Fault::new(FailureCode::Trap, "it ended")) };
        then(Ok(Outcome { result, fuel: 0, log: crate::Printed::default(), spent, phases: None }));
    }

    /// How many calls run in each sandbox.
    fn loads(&self) -> Vec<usize> {
        let calls = self.calls.lock();
        let made = self.made.lock();
        made.iter().map(|made| calls.iter().filter(|call| call.0 == made.0).count()).collect()
    }

    /// Ends a sandbox before it came to its calls, but for the oldest one if that has begun.
    fn die(&self, id: SandboxId, has_begun: bool) {
        if has_begun {
            self.end(id, false);
        }
        self.made.lock().iter_mut().filter(|made| made.0 == id).for_each(|made| made.1 = false);
        let (its, others) =
            std::mem::take(&mut *self.calls.lock()).into_iter().partition(|call| call.0 == id);
        *self.calls.lock() = others;
        let its: Vec<(SandboxId, Then)> = its;
        its.into_iter().for_each(|(_, then)| then(Err(crate::Error::NotBegun(id))));
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
        self.killed.lock().extend(ids);
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

    fn home(&self, id: SandboxId) -> Option<Home> {
        Some(Home((id.0 % 2) as u16))
    }

    fn here(&self) -> Option<Home> {
        *self.here.lock()
    }

    /// The oldest call of a sandbox has begun, and no other.
    fn recall(&self, id: SandboxId) {
        if self.is_deaf.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        let mut its = 0;
        let (back, others) = std::mem::take(&mut *self.calls.lock()).into_iter().partition(|call| {
            its += u32::from(call.0 == id);
            call.0 == id && its > 1
        });
        *self.calls.lock() = others;
        let back: Vec<(SandboxId, Then)> = back;
        back.into_iter().for_each(|(_, then)| then(Err(crate::Error::Recalled(id))));
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
        Self::with(instances_max, calls_at_once, 0, Duration::ZERO)
    }

    fn with(instances_max: u32, calls_at_once: u32, ahead: u32, brief: Duration) -> Self {
        let store =
            Store::open(store::Options { home: None, memory_bytes: MIB, relations_bytes: MIB }).unwrap();
        let (limits, procedure) = (Limits { memory_bytes: MIB, ..Limits::default() }, Handle::u64(7));
        let tree: TreeBuilder = [limits.handle().unwrap(), procedure].into_iter().collect();
        let handle = store.keep_tree(tree.view());
        let call = Call::new(store.local(handle).unwrap(), handle, limits, procedure);
        let function = Function::new(Spec { procedure, limits }, instances_max);
        let sandbox = Arc::new(Held::default());
        let policy = PolicyOptions { processors: 2, ..PolicyOptions::default() };
        let tick = Duration::from_millis(5);
        let options = FleetOptions { policy, tick, brief, ..FleetOptions::default() };
        Self {
            fleet: Fleet::new(options, sandbox.clone()).unwrap(),
            sandbox,
            call,
            function: Function { calls_at_once, ahead, ..function },
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

    /// Eight calls in the first of two instances, one in the second. The first is there before
    /// the others begin: of nine that come while none is there, the second may have its share.
    fn fill_first_of_two(&self) {
        self.begin_many(1);
        self.until("the first is there", |world| world.sandbox.loads() == [1]);
        self.begin_many(7);
        assert_eq!(self.sandbox.loads(), [8]);
        self.begin_many(1);
        self.until("both are in use", |world| world.sandbox.loads() == [8, 1]);
    }

    /// Ends what is under way, and what waits for that. The fleet would wait for its end, and
    /// nothing ends here by itself.
    fn end_all(&self) {
        let next = || self.sandbox.calls.lock().first().map(|call| call.0);
        while let Some(id) = next() {
            self.sandbox.end(id, true);
        }
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
fn calls_prefer_instances_that_are_at_home_where_they_come_from() {
    let world = World::with(2, 8, 0, ANY);
    world.fill_first_of_two();
    (0..7).for_each(|_| world.sandbox.end(world.sandbox.id(0), true));
    let home = |number: usize| world.sandbox.home(world.sandbox.id(number));
    for (here, loads) in [(0, [4, 1]), (1, [4, 4])] {
        *world.sandbox.here.lock() = home(here);
        world.begin_many(3);
        assert_eq!(world.sandbox.loads(), loads);
    }
    // What is near and has much to do comes behind what is far and has less.
    *world.sandbox.here.lock() = home(0);
    world.begin_many(2);
    world.sandbox.end(world.sandbox.id(1), true);
    world.sandbox.end(world.sandbox.id(1), true);
    assert_eq!(world.sandbox.loads(), [6, 2]);
    world.begin_many(1);
    assert_eq!(world.sandbox.loads(), [6, 3]);
    world.end_all();
    // Nor does it go first where calls take long.
    let slow = World::with(2, 8, 0, Duration::ZERO);
    slow.fill_first_of_two();
    (0..6).for_each(|_| slow.sandbox.end(slow.sandbox.id(0), true));
    *slow.sandbox.here.lock() = home(0);
    slow.begin_many(1);
    assert_eq!(slow.sandbox.loads(), [2, 2]);
    slow.end_all();
    // Of those that do nothing, the same.
    for here in [0, 1, 0] {
        *world.sandbox.here.lock() = home(here);
        world.begin_many(1);
        let expected = if here == 0 { [1, 0] } else { [0, 1] };
        assert_eq!(world.sandbox.loads(), expected);
        world.end_all();
    }
    // Where it does not matter, the one that was used last.
    *world.sandbox.here.lock() = None;
    world.begin_many(1);
    assert_eq!(world.sandbox.loads(), [1, 0]);
    world.end_all();
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

/// One whose calls stand in line, two in each of two instances; a first call has
/// shown that they are brief.
fn in_line(brief: Duration) -> World {
    in_line_of(2, brief)
}

fn in_line_of(instances_max: u32, brief: Duration) -> World {
    let world = World::with(instances_max, 1, 2, brief);
    world.begin_many(1);
    world.until("it runs", |world| world.sandbox.loads() == [1]);
    world.sandbox.end(world.sandbox.id(0), true);
    world
}

const ANY: Duration = Duration::from_secs(3600);

#[test]
fn brief_calls_stand_in_line_where_all_instances_are_in_use() {
    let world = in_line(ANY);
    world.begin_many(1);
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 0));
    world.begin_many(7);
    world.until("both have a line", |world| world.sandbox.loads() == [3, 3]);
    assert_eq!(world.fleet.report().waiting, 2);
    // Whoever waits comes into line where a place is free.
    world.sandbox.end(world.sandbox.id(0), true);
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![3, 3], 1));
    for number in [0, 1, 0, 1, 0, 1, 0] {
        world.sandbox.end(world.sandbox.id(number), true);
    }
    assert_eq!(world.ended.lock().iter().filter(|end| end.is_ok()).count(), 9);
    // Who comes now goes to an instance that does nothing, before anyone stands in line.
    world.begin_many(2);
    assert_eq!(world.sandbox.loads(), [1, 1]);
    for number in [0, 1] {
        world.sandbox.end(world.sandbox.id(number), true);
    }
}

#[test]
fn no_line_forms_where_calls_take_long_or_nothing_is_known() {
    let world = in_line(Duration::from_nanos(1));
    world.begin_many(5);
    world.until("both are in use", |world| world.sandbox.loads() == [1, 1]);
    assert_eq!(world.fleet.report().waiting, 3);
    let new = World::with(1, 1, 2, ANY);
    new.begin_many(3);
    new.until("it runs", |world| world.sandbox.loads() == [1]);
    assert_eq!(new.fleet.report().waiting, 2);
    world.end_all();
    new.end_all();
}

#[test]
fn a_long_call_counts_at_once_and_is_forgotten_bit_by_bit() {
    let (function, instance) = (FunctionId(1), InstanceId(1));
    let mut sharing = Sharing::new(Duration::from_millis(1), 1);
    sharing.allow(function, 1, 1);
    let mut now = 0;
    let mut takes = |sharing: &mut Sharing, us: u64| {
        sharing.begin(now, function, instance, None);
        now += us * 1000;
        assert_eq!(sharing.leave(now, instance, true), Some(true));
        sharing.begin(now, function, instance, None);
        let has_place = sharing.has_place(now, instance, false, Ahead::Brief);
        assert!(
            !sharing.has_place(now + 1_000_000, instance, false, Ahead::Brief),
            "the call that runs is long"
        );
        assert!(!sharing.has_place(now, instance, false, Ahead::None), "not at once");
        // It takes as long as calls took before.
        now += us * 1000;
        sharing.leave(now, instance, true);
        has_place
    };
    assert!(takes(&mut sharing, 100));
    assert!(!takes(&mut sharing, 30_000));
    let calls = (1..200).find(|_| takes(&mut sharing, 100));
    assert!((5..50).contains(&calls.unwrap()), "{calls:?}");
}

const MS: Duration = Duration::from_millis(1);

/// Three instances on two processors, of which two are in use; calls took so much of each
/// millisecond before.
fn two_of_three(cpu: Option<Duration>) -> World {
    let world = World::with(3, 1, 2, ANY);
    world.begin_many(3);
    world.until("three run", |world| world.sandbox.loads() == [1, 1, 1]);
    for number in 0..3 {
        world.sandbox.end_of(world.sandbox.id(number), MS, cpu);
    }
    // What is new counts little at first.
    for _ in 0..100 {
        world.begin_many(1);
        world.sandbox.end_of(world.busy(), MS, cpu);
    }
    world.begin_many(2);
    world
}

impl World {
    /// One that runs a call.
    fn busy(&self) -> SandboxId {
        self.sandbox.calls.lock()[0].0
    }

    fn sorted_loads(&self) -> Vec<usize> {
        let mut loads = self.sandbox.loads();
        loads.sort_unstable();
        loads
    }
}

#[test]
fn where_calls_compute_no_more_instances_are_woken_than_there_are_processors() {
    let world = two_of_three(Some(MS * 9 / 10));
    assert_eq!(world.sorted_loads(), [0, 1, 1]);
    world.begin_many(4);
    assert_eq!((world.sorted_loads(), world.fleet.report().waiting), (vec![0, 3, 3], 0));
    // Where lines are full another one is used.
    world.begin_many(1);
    assert_eq!((world.sorted_loads(), world.fleet.report().waiting), (vec![1, 3, 3], 0));
    world.end_all();
    assert_eq!(world.fleet.report().functions[0].stats.counts.arrivals, 3 + 100 + 7);
}

#[test]
fn where_calls_compute_no_more_instances_are_made_before_one_has_waited_for_long() {
    // How many there are once twelve calls have come, and that they wait.
    let made = |cpu| {
        let world = World::with(8, 1, 2, ANY);
        world.begin_many(2);
        world.until("two run", |world| world.sandbox.loads() == [1, 1]);
        for _ in 0..40 {
            // To be made takes much less.
            std::thread::sleep(5 * MS);
            world.sandbox.end_of(world.busy(), 5 * MS, Some(cpu));
            world.begin_many(1);
        }
        let begun = Instant::now();
        world.begin_many(10);
        let seen = (world.sorted_loads(), world.fleet.report().waiting);
        // On a machine that is slow just now, one has waited for long.
        assert!(cpu < MS || seen == (vec![3, 3], 6) || begun.elapsed() > 80 * MS, "{seen:?}");
        world
    };
    let world = made(4 * MS);
    world.until("one has waited for long", |world| world.sandbox.loads().len() > 2);
    world.end_all();
    // Those that are taken back from behind one that turns out long are not held back.
    let world = made(4 * MS);
    world.sandbox.recall(world.sandbox.id(0));
    let stats = &world.fleet.report().functions[0].stats;
    assert!(stats.busy + stats.starting + stats.idle > 2, "{stats:?}");
    world.end_all();
    // The control: calls that wait for something else.
    let world = made(MS / 10);
    world.until("more are made", |world| world.sandbox.loads().len() == 8);
    world.end_all();
}

#[test]
fn lines_fill_up_one_after_the_other_so_that_who_has_none_comes_to_rest() {
    let world = two_of_three(Some(MS * 9 / 10));
    world.begin_many(2);
    // Where the shortest one is looked for there would be two of two.
    assert_eq!(world.sorted_loads(), [0, 1, 3]);
    world.begin_many(1);
    assert_eq!(world.sorted_loads(), [0, 2, 3]);
    world.end_all();
}

#[test]
fn one_call_that_had_to_wait_for_a_processor_does_not_make_calls_wait() {
    let mut allowed = Allowed::default();
    let spent = |held, cpu| Spent { held, cpu: Some(cpu), ..Spent::default() };
    for _ in 0..100 {
        allowed.used(&spent(MS / 5, MS / 10), 1.0);
    }
    assert!(allowed.computes(0));
    allowed.used(&spent(40 * MS, MS / 10), 1.0);
    assert!(allowed.computes(0));
    // Those that do wait are soon known.
    let calls = (1..100).find(|_| {
        allowed.used(&spent(40 * MS, MS / 10), 1.0);
        !allowed.computes(0)
    });
    assert!(calls.is_some_and(|calls| calls < 30), "{calls:?}");
}

#[test]
fn where_calls_wait_for_something_all_instances_are_used() {
    for cpu in [Some(MS / 10), Some(Duration::ZERO)] {
        let world = two_of_three(cpu);
        world.begin_many(1);
        assert_eq!(world.sandbox.loads(), [1, 1, 1], "{cpu:?}");
        world.end_all();
    }
    // Where nobody counts, what is over in a millisecond is thought to compute.
    let world = two_of_three(None);
    world.begin_many(1);
    assert_eq!(world.sorted_loads(), [0, 1, 2]);
    world.end_all();
}

#[test]
fn after_a_long_call_nobody_stands_in_line_where_an_instance_does_nothing() {
    let (function, second) = (FunctionId(1), 1_000_000_000);
    let mut sharing = Sharing::new(MS, 2);
    sharing.allow(function, 1, 8);
    let spent = Spent { held: MS / 10, cpu: Some(MS / 10), ..Spent::default() };
    let takes = |sharing: &mut Sharing, now: u64, ns: u64| {
        for instance in [1, 2, 3].map(InstanceId) {
            sharing.begin(now, function, instance, None);
        }
        sharing.used(InstanceId(1), &spent);
        let is_enough = sharing.is_enough(now, function);
        for instance in [1, 2, 3].map(InstanceId) {
            sharing.leave(now + ns, instance, true);
        }
        is_enough
    };
    assert!(takes(&mut sharing, 0, 100_000));
    assert!(takes(&mut sharing, second, 9_000_000), "what is not brief is not long");
    assert!(takes(&mut sharing, 2 * second, 20_000_000), "it was not long before it ended");
    assert!(!takes(&mut sharing, 3 * second, 100_000));
    assert!(!takes(&mut sharing, 11 * second, 100_000));
    assert!(takes(&mut sharing, 13 * second, 100_000));
    // Where processors have time to spare all are used.
    let did = |idle, all| Some(ProcessorTime { idle, all });
    for (time, is_enough, is_full) in [
        (did(100, 1000), true, true),
        (did(120, 1020), false, false),
        (did(120, 1020), false, false),
        (did(125, 1040), true, false),
        (did(145, 1060), false, false),
        // Nothing was in use meanwhile, and it is not known what happened then.
        (None, true, true),
        (did(900, 2000), true, true),
        (did(910, 2020), false, false),
        (did(911, 2040), true, true),
    ] {
        assert_eq!(sharing.processors_did(time), is_full, "{time:?}");
        assert_eq!(takes(&mut sharing, 13 * second, 100_000), is_enough, "{time:?}");
    }
    // Where an instance serves several at once nobody stands in line.
    sharing.allow(function, 4, 0);
    assert!(!takes(&mut sharing, 13 * second, 100_000));
    sharing.allow(function, 1, 8);
    // Of those that serve one is at its call for long: nobody stands in line, as after it.
    for instance in [1, 2, 3].map(InstanceId) {
        sharing.begin(14 * second, function, instance, None);
    }
    // Three on two processors take half as much again.
    assert!(sharing.is_enough(14 * second + 14_000_000, function));
    assert!(!sharing.is_enough(14 * second + 16_000_000, function));
    for instance in [1, 2, 3].map(InstanceId) {
        sharing.leave(14 * second, instance, true);
    }
    // One alone is not as many as there are processors, nor with one that serves a line.
    sharing.begin(14 * second, function, InstanceId(1), None);
    assert!(!sharing.is_enough(14 * second, function));
    sharing.begin(14 * second, function, InstanceId(2), None);
    sharing.is_alone(InstanceId(2));
    assert!(!sharing.is_enough(14 * second, function));
}

#[test]
fn who_stands_in_line_is_served_elsewhere_when_the_instance_ends() {
    let world = in_line(ANY);
    world.begin_many(6);
    world.until("both have a line", |world| world.sandbox.loads() == [3, 3]);
    world.sandbox.die(world.sandbox.id(0), true);
    world.until("a third one is made", |world| world.sandbox.loads().len() == 3);
    world.until("they run there", |world| world.sandbox.loads() == [0, 3, 2]);
    for number in [1, 1, 1, 2, 2] {
        world.sandbox.end(world.sandbox.id(number), true);
    }
    let ended = world.ended.lock();
    let good = ended.iter().filter(|end| end.as_ref().is_ok_and(|end| end.result.is_ok())).count();
    assert_eq!((ended.len(), good), (7, 6), "only the one that ran has failed");
}

#[test]
fn who_finds_no_instance_that_lives_is_told_in_the_end() {
    let world = in_line(ANY);
    world.begin_many(1);
    for number in 0..=TRIES_MAX as usize {
        world.until("it is in an instance", |world| world.sandbox.loads().get(number) == Some(&1));
        world.sandbox.die(world.sandbox.id(number), false);
    }
    world.until("it is told", |world| world.ended.lock().len() == 2);
    assert!(matches!(world.ended.lock()[1], Err(Error::Invoke(crate::Error::NotBegun(_)))));
    assert_eq!(world.fleet.report().waiting, 0);
}

mod recalled;

impl World {
    fn begin_line(&self) -> Ticket {
        let terms = crate::LineTerms {
            caller: "caller".to_owned(),
            function: "callee".to_owned(),
            version: 1,
            timeout: Duration::from_secs(60),
        };
        let line = crate::Line::new(1, terms, Arc::new(crate::line::Nowhere)).unwrap();
        let call = Call { line: Some(line), ..self.call.clone() };
        let ended = self.ended.clone();
        let told = Box::new(move |end: Result<(Outcome, Start), Error>| {
            ended.lock().push(end.map(|(outcome, _)| outcome));
        });
        self.fleet.begin(&self.function, call, Instant::now() + Duration::from_secs(20), told)
    }
}

#[test]
fn a_line_joins_nobody_and_does_not_wait() {
    // Where calls join an instance, and where they stand in line in it.
    for world in [World::new(1, 3), in_line_of(1, ANY)] {
        let before = world.ended.lock().len();
        world.begin_many(1);
        world.until("it runs", |world| world.sandbox.loads() == [1]);
        let ticket = world.begin_line();
        assert!(!world.fleet.waits(ticket));
        assert!(matches!(world.ended.lock()[before..], [Err(Error::Late)]), "{:?}", world.ended.lock());
        assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 0));
        // A call would.
        world.begin_many(1);
        assert_eq!(world.sandbox.loads(), [2]);
        (0..2).for_each(|_| world.sandbox.end(world.sandbox.id(0), true));
        world.begin_line();
        assert_eq!(world.sandbox.loads(), [1], "it has nothing to do");
        world.sandbox.end(world.sandbox.id(0), true);
    }
}

#[test]
fn nobody_joins_an_instance_that_serves_a_line() {
    let world = World::new(2, 3);
    assert!(!world.fleet.has_idle(&world.function), "there is none at all");
    world.begin_many(1);
    world.until("a first instance", |world| world.sandbox.loads() == [1]);
    world.sandbox.end(world.sandbox.id(0), true);
    world.until("it is idle", |world| world.fleet.has_idle(&world.function));
    let ticket = world.begin_line();
    assert!(!world.fleet.waits(ticket) && !world.fleet.has_idle(&world.function));
    // Two more would join any other instance; they get one of their own.
    world.begin_many(2);
    world.until("another instance", |world| world.sandbox.loads().len() == 2);
    world.until("both are there", |world| world.sandbox.loads() == [1, 2]);
    world.end_all();
}
