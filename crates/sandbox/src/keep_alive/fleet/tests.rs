// SPDX-License-Identifier: Apache-2.0
//! The fleet over a sandbox that only pretends, and breaks when told to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use objects::{FailureCode, Handle, Limits, TreeBuilder};
use store::Store;

use super::*;
use crate::{Fault, Outcome, Phase, State as Seen};

const MIB: u64 = 1 << 20;

/// How a function behaves; its procedure is this number as a literal.
#[derive(Clone, Copy, Default)]
struct Behaviour {
    start: Duration,
    call: Duration,
    /// Instances of it cannot be made.
    breaks: bool,
    /// Every so many calls the instance dies; 0: never.
    dies_every: u64,
}

struct Instance {
    procedure: Handle,
    phase: Phase,
    is_busy: bool,
    is_alive: bool,
    calls: u64,
}

/// Checks that one instance serves one call at a time, of its own procedure.
#[derive(Default)]
struct Pretender {
    behaviours: HashMap<Handle, Behaviour>,
    instances: Mutex<(u64, HashMap<SandboxId, Instance>)>,
    killed: Condvar,
    most: AtomicU64,
    kept_bytes: AtomicU64,
    vector_most: AtomicU64,
    is_wronged: AtomicBool,
}

impl Pretender {
    fn wronged_if(&self, is_wrong: bool) {
        self.is_wronged.fetch_or(is_wrong, Ordering::SeqCst);
    }

    fn count(&self) -> usize {
        self.instances.lock().1.len()
    }

    fn die(&self, procedure: Handle) {
        for instance in self.instances.lock().1.values_mut() {
            instance.is_alive &= instance.procedure != procedure;
        }
    }

    fn each<T>(&self, ids: &[SandboxId], act: impl Fn(&mut Instance) -> T) -> Vec<Result<T, crate::Error>> {
        let mut instances = self.instances.lock();
        let each = ids.iter().map(|id| instances.1.get_mut(id).map(&act).ok_or(crate::Error::Unknown(*id)));
        each.collect()
    }
}

impl Sandbox for Pretender {
    fn create(&self, specs: &[Spec]) -> Vec<Result<SandboxId, crate::Error>> {
        self.vector_most.fetch_max(specs.len() as u64, Ordering::SeqCst);
        let behaviours: Vec<_> = specs.iter().map(|spec| self.behaviours[&spec.procedure]).collect();
        std::thread::sleep(behaviours.iter().map(|it| it.start).max().unwrap_or_default());
        let mut instances = self.instances.lock();
        let made = specs.iter().zip(behaviours).map(|(spec, behaviour)| {
            if behaviour.breaks {
                let fault = Fault::new(FailureCode::BadProcedure, "it is broken");
                return Err(crate::Error::Procedure { procedure: spec.procedure, fault });
            }
            instances.0 += 1;
            let id = SandboxId(instances.0);
            let (procedure, phase) = (spec.procedure, Phase::Created);
            let instance = Instance { procedure, phase, is_busy: false, is_alive: true, calls: 0 };
            instances.1.insert(id, instance);
            self.most.fetch_max(instances.1.len() as u64, Ordering::SeqCst);
            Ok(id)
        });
        made.collect()
    }

    fn start(&self, ids: &[SandboxId]) -> Vec<Result<(), crate::Error>> {
        self.each(ids, |instance| instance.phase = Phase::Running)
    }

    fn state(&self, ids: &[SandboxId]) -> Vec<Result<Seen, crate::Error>> {
        self.each(ids, |instance| {
            let (phase, is_alive, origin) = (instance.phase, instance.is_alive, Origin::Forked);
            Seen { phase, running: 0, succeeded: 0, failed: 0, is_alive, origin }
        })
    }

    fn memory_bytes(&self, ids: &[SandboxId]) -> Vec<Result<Option<u64>, crate::Error>> {
        self.each(ids, |_| Some(10 * MIB))
    }

    fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::SeqCst)
    }

    fn kill(&self, ids: &[SandboxId]) -> Vec<Result<(), crate::Error>> {
        let killed = self.each(ids, |instance| {
            (instance.phase, instance.is_alive) = (Phase::Stopped, false);
        });
        self.killed.notify_all();
        killed
    }

    fn delete(&self, ids: &[SandboxId]) -> Vec<Result<(), crate::Error>> {
        let mut instances = self.instances.lock();
        let deleted = ids.iter().map(|id| {
            let instance = instances.1.remove(id).ok_or(crate::Error::Unknown(*id))?;
            self.wronged_if(instance.is_busy || instance.phase == Phase::Running);
            Ok(())
        });
        deleted.collect()
    }

    fn invoke(&self, id: SandboxId, call: Call) -> Result<Invoked, crate::Error> {
        let behaviour = self.behaviours[&call.procedure];
        let mut instances = self.instances.lock();
        let instance = instances.1.get_mut(&id).ok_or(crate::Error::Unknown(id))?;
        self.wronged_if(instance.is_busy || instance.procedure != call.procedure);
        if instance.phase != Phase::Running {
            return Err(crate::Error::WrongPhase { id, phase: instance.phase, request: "invoke" });
        }
        (instance.is_busy, instance.calls) = (true, instance.calls + 1);
        let dies = behaviour.dies_every > 0 && instance.calls % behaviour.dies_every == 0;
        let end = Instant::now() + behaviour.call;
        while instances.1[&id].phase == Phase::Running {
            if self.killed.wait_until(&mut instances, end).timed_out() {
                break;
            }
        }
        let instance = instances.1.get_mut(&id).ok_or(crate::Error::Unknown(id))?;
        instance.is_busy = false;
        instance.is_alive &= !dies;
        let result = match (instance.phase, dies) {
            (Phase::Running, false) => Ok(call.procedure),
            (Phase::Running, true) => Err(Fault::new(FailureCode::Trap, "it died")),
            _ => Err(Fault::new(FailureCode::Cancelled, "it was killed")),
        };
        Ok(Invoked::Done(Outcome {
            result,
            fuel: 0,
            log: crate::Printed::default(),
            spent: None,
            phases: None,
        }))
    }
}

struct World {
    pretender: Arc<Pretender>,
    fleet: Fleet,
    store: Store,
}

fn options(memory_bytes: u64) -> FleetOptions {
    let policy = PolicyOptions { memory_bytes, instances_max: 1000, ..PolicyOptions::default() };
    FleetOptions { policy, tick: Duration::from_millis(5), ..FleetOptions::default() }
}

impl World {
    fn new(options: FleetOptions, behaviours: &[Behaviour]) -> Self {
        let numbered = behaviours.iter().zip(0..).map(|(it, number)| (Handle::u64(number), *it));
        let pretender = Arc::new(Pretender { behaviours: numbered.collect(), ..Pretender::default() });
        let memory = store::Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
        let fleet = Fleet::new(options, pretender.clone()).unwrap();
        Self { pretender, fleet, store: Store::open(memory).unwrap() }
    }

    fn function(number: u64, instances_max: u32) -> Function {
        let limits = Limits { memory_bytes: 10 * MIB, ..Limits::default() };
        Function::new(Spec { procedure: Handle::u64(number), limits }, instances_max)
    }

    fn call(
        &self,
        number: u64,
        instances_max: u32,
        wait: Duration,
        cancel: Option<&Cancel>,
    ) -> Result<(Result<Handle, Fault>, Start), Error> {
        let function = Self::function(number, instances_max);
        let Spec { procedure, limits } = function.spec;
        let tree: TreeBuilder = [limits.handle().unwrap(), procedure].into_iter().collect();
        let handle = self.store.keep_tree(tree.view());
        let call = Call::new(self.store.local(handle).unwrap(), handle, limits, procedure);
        let (Invoked::Done(outcome), start) =
            self.fleet.invoke(&function, call, Instant::now() + wait, cancel)?;
        Ok((outcome.result, start))
    }

    fn good(&self, number: u64) -> Start {
        let (result, start) = self.call(number, 4, Duration::from_secs(20), None).unwrap();
        assert_eq!(result, Ok(Handle::u64(number)));
        start
    }

    /// Ends the fleet and looks at what is left.
    fn end(self) {
        let pretender = self.pretender.clone();
        drop(self.fleet);
        assert_eq!(pretender.count(), 0, "instances are left");
        assert!(!pretender.is_wronged.load(Ordering::SeqCst), "an instance was misused");
    }
}

fn until(mut what: impl FnMut() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(20), "it never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_first_call_starts_an_instance_and_the_next_uses_it() {
    let world = World::new(options(100 * MIB), &[Behaviour { start: 20 * MS, ..Behaviour::default() }]);
    let first = world.good(0);
    assert_eq!(first.kind, StartKind::Forked);
    assert!(first.start_ns >= 20_000_000, "{first:?}");
    let second = world.good(0);
    assert_eq!((second.kind, second.start_ns), (StartKind::Warm, 0));
    let report = world.fleet.report();
    assert_eq!((report.instances, report.functions[0].stats.idle), (1, 1));
    assert_eq!(report.memory_bytes, 10 * MIB);
    world.end();
}

#[test]
fn a_failed_start_is_told_and_leaves_nothing() {
    let world = World::new(options(100 * MIB), &[Behaviour { breaks: true, ..Behaviour::default() }]);
    for _ in 0..3 {
        let error = world.call(0, 4, Duration::from_secs(20), None).unwrap_err();
        assert!(matches!(&error, Error::Start(_)) && error.to_string().contains("broken"), "{error}");
    }
    assert_eq!(world.fleet.report().memory_bytes, 0);
    world.end();
}

#[test]
fn what_died_is_replaced() {
    let world = World::new(options(100 * MIB), &[Behaviour { dies_every: 2, ..Behaviour::default() }]);
    for round in 0..6 {
        let (result, start) = world.call(0, 1, Duration::from_secs(20), None).unwrap();
        assert_eq!(result.is_ok(), round % 2 == 0);
        assert_eq!(start.kind == StartKind::Warm, round % 2 == 1, "round {round}: {start:?}");
    }
    world.good(0);
    let made = || world.pretender.instances.lock().0;
    let before = made();
    world.pretender.die(Handle::u64(0));
    until(|| made() > before && world.fleet.report().functions[0].stats.idle == 1);
    assert_eq!(world.good(0).kind, StartKind::Prewarmed, "one that died while idle is not used");
    world.end();
}

#[test]
fn a_function_has_instances_before_it_is_called_and_what_cannot_be_made_is_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    let unheard = Unheard(Arc::new(move |spec: &Spec, error: &crate::Error| {
        telling.lock().push((spec.procedure, error.to_string()));
    }));
    let broken = Behaviour { breaks: true, ..Behaviour::default() };
    let world = World::new(FleetOptions { unheard, ..options(100 * MIB) }, &[Behaviour::default(), broken]);
    world.fleet.provide(&World::function(0, 4), 3);
    world.fleet.provide(&World::function(1, 4), 1);
    let idle = || world.fleet.report().functions[0].stats.idle;
    until(|| idle() == 3 && !told.lock().is_empty());
    let is_right =
        |(procedure, why): &(Handle, String)| *procedure == Handle::u64(1) && why.contains("broken");
    assert!(told.lock().iter().all(is_right), "{told:?}");
    let start = world.good(0);
    assert_eq!((start.kind, start.start_ns), (StartKind::Prewarmed, 0));
    world.pretender.die(Handle::u64(0));
    let made = || world.pretender.instances.lock().0;
    until(|| made() >= 6 && idle() == 3);
    world.fleet.provide(&World::function(0, 4), 0);
    world.fleet.retire(Handle::u64(0));
    until(|| world.pretender.count() == 0);
    world.end();
}

#[test]
fn waiting_ends_at_the_deadline_and_by_cancelling() {
    let slow = Behaviour { call: Duration::from_secs(30), ..Behaviour::default() };
    let world = World::new(options(10 * MIB), &[slow, Behaviour::default()]);
    let (first, second) = (Cancel::default(), Cancel::default());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| world.call(0, 1, Duration::from_secs(20), Some(&first)));
        until(|| world.fleet.report().functions.first().is_some_and(|it| it.stats.busy == 1));
        let late = world.call(1, 1, 30 * MS, None).unwrap_err();
        assert!(matches!(late, Error::Late), "{late}");
        let waiting = scope.spawn(|| world.call(1, 1, Duration::from_secs(20), Some(&second)));
        until(|| world.fleet.report().waiting == 1);
        second.cancel();
        assert!(matches!(waiting.join().unwrap().unwrap_err(), Error::Cancelled));
        assert_eq!(world.fleet.report().waiting, 0);
        first.cancel();
        let (result, _) = running.join().unwrap().unwrap();
        assert_eq!(result.unwrap_err().code, FailureCode::Cancelled);
    });
    assert!(matches!(world.call(1, 1, 30 * MS, Some(&second)).unwrap_err(), Error::Cancelled));
    world.good(1);
    world.end();
}

#[test]
fn many_are_made_in_vectors() {
    let slow = Behaviour { start: 30 * MS, call: 30 * MS, ..Behaviour::default() };
    let mut options = FleetOptions { makers: 1, ..options(1000 * MIB) };
    options.policy.processors = 8;
    let world = World::new(options, &[slow]);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| world.call(0, 16, Duration::from_secs(20), None).unwrap());
        }
    });
    let vector = world.pretender.vector_most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&vector), "{vector} at once");
    world.end();
}

#[test]
fn draining_refuses_waits_and_kills() {
    let slow = Behaviour { call: Duration::from_secs(60), ..Behaviour::default() };
    let world = World::new(options(10 * MIB), &[slow]);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| world.call(0, 1, Duration::from_secs(20), None));
        until(|| world.fleet.report().functions.first().is_some_and(|it| it.stats.busy == 1));
        let waiting = scope.spawn(|| world.call(0, 1, Duration::from_secs(20), None));
        until(|| world.fleet.report().waiting == 1);
        assert!(world.fleet.drain(20 * MS));
        assert!(matches!(waiting.join().unwrap().unwrap_err(), Error::Draining));
        let (result, _) = running.join().unwrap().unwrap();
        assert_eq!(result.unwrap_err().code, FailureCode::Cancelled);
        assert!(matches!(world.call(0, 1, MS, None).unwrap_err(), Error::Draining));
    });
    world.end();
}

#[test]
fn idle_instances_are_given_up() {
    let mut options = options(100 * MIB);
    options.policy.idle_max = 30 * MS;
    let world = World::new(options, &[Behaviour::default()]);
    world.good(0);
    until(|| world.pretender.count() == 0);
    assert_eq!(world.fleet.report().functions[0].stats.counts.expired, 1);
    world.end();
}

/// Threads call, cancel and run into deadlines, with instances that die and
/// room for few; nothing is misused, lost or beyond the budget.
#[test]
fn instances_go_for_what_they_are_forked_from() {
    let world = World::new(options(40 * MIB), &[Behaviour::default(), Behaviour::default()]);
    world.good(0);
    world.good(1);
    assert_eq!((world.pretender.count(), world.fleet.report().kept_bytes), (2, 0));
    // Half of the budget is theirs in any case: two instances stay.
    world.pretender.kept_bytes.store(100 * MIB, Ordering::SeqCst);
    until(|| world.fleet.report().kept_bytes == 20 * MIB);
    assert_eq!(world.pretender.count(), 2);
    world.end();
    let world = World::new(options(20 * MIB), &[Behaviour::default(), Behaviour::default()]);
    world.good(0);
    world.good(1);
    world.pretender.kept_bytes.store(5 * MIB, Ordering::SeqCst);
    until(|| world.pretender.count() == 1);
    let report = world.fleet.report();
    assert_eq!((report.kept_bytes, report.memory_bytes), (5 * MIB, 10 * MIB));
    world.end();
}

#[test]
fn a_crowd_is_served() {
    let behaviours: Vec<_> = (0..6_u64)
        .map(|number| Behaviour {
            start: Duration::from_micros(300 * number),
            call: Duration::from_micros(200 * (6 - number)),
            breaks: number == 5,
            dies_every: if number == 3 { 7 } else { 0 },
        })
        .collect();
    let mut options = options(40 * MIB);
    options.policy.patience = 20 * MS;
    options.policy.functions_max = 5;
    let world = World::new(options, &behaviours);
    let (served, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..12_u64 {
            let (world, served, failed) = (&world, &served, &failed);
            scope.spawn(move || {
                for round in 0..150 {
                    let number = (thread + round * round) % 6;
                    let cancel = Cancel::default();
                    let wait = if round % 10 == 9 { MS } else { Duration::from_secs(20) };
                    let answer = std::thread::scope(|inner| {
                        if round % 15 == 14 {
                            inner.spawn(|| cancel.cancel());
                        }
                        world.call(number, 3, wait, Some(&cancel))
                    });
                    match answer {
                        Ok((Ok(handle), _)) => {
                            assert_eq!(handle, Handle::u64(number));
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok((Err(fault), _)) => {
                            assert!(matches!(fault.code, FailureCode::Trap | FailureCode::Cancelled));
                        }
                        Err(Error::Start(_)) => {
                            assert_eq!(number, 5);
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(Error::Late | Error::Cancelled | Error::TooManyFunctions(_)) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let (served, failed) = (served.into_inner(), failed.into_inner());
    assert!(served > 800 && failed > 50, "{served} served, {failed} failed");
    let most = world.pretender.most.load(Ordering::SeqCst);
    assert!(most <= 4, "{most} instances of 10 MiB at once with room for 4");
    world.end();
}

#[test]
fn what_is_loaded_waits_for_its_first_call_within_the_budget() {
    let broken = Behaviour { breaks: true, ..Behaviour::default() };
    let slow = Behaviour { call: Duration::from_secs(30), ..Behaviour::default() };
    let world = World::new(options(10 * MIB), &[Behaviour::default(), broken, slow]);
    let soon = || Instant::now() + Duration::from_secs(20);
    world.fleet.load(&World::function(0, 4), soon()).unwrap();
    assert_eq!((world.pretender.count(), world.fleet.report().memory_bytes), (1, 10 * MIB));
    assert_eq!(world.good(0).kind, StartKind::Prewarmed);
    let counts = world.fleet.report().functions[0].stats.counts;
    assert_eq!((counts.arrivals, counts.cold, counts.prewarmed), (1, 0, 1));
    assert!(matches!(world.fleet.load(&World::function(1, 4), soon()), Err(Error::Start(_))));
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| world.call(2, 1, Duration::from_secs(20), Some(&cancel)));
        until(|| world.fleet.report().functions.iter().any(|it| it.stats.busy == 1));
        let crowded = world.fleet.load(&World::function(0, 4), Instant::now() + 30 * MS);
        assert!(matches!(crowded, Err(Error::Late)), "all memory is in use");
        cancel.cancel();
        running.join().unwrap().unwrap().0.unwrap_err();
    });
    world.end();
}

#[test]
fn a_retired_function_ends_after_its_last_call() {
    let slow = Behaviour { call: 50 * MS, ..Behaviour::default() };
    let world = World::new(options(100 * MIB), &[slow, Behaviour::default()]);
    world.good(0);
    world.good(1);
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| world.good(0))).collect();
        // A call that came later would say anew how long instances are kept.
        until(|| world.fleet.report().functions[0].stats.counts.arrivals == 4);
        world.fleet.retire(Handle::u64(0));
        // Whoever came before is served.
        calls.into_iter().for_each(|call| _ = call.join().unwrap());
    });
    until(|| world.pretender.count() == 1);
    assert_eq!(world.good(1).kind, StartKind::Warm, "the other one is kept");
    world.end();
}

#[test]
fn a_renewed_function_gets_new_instances_also_under_load() {
    let slow = Behaviour { call: 50 * MS, ..Behaviour::default() };
    let world = World::new(options(100 * MIB), &[slow]);
    world.good(0);
    world.fleet.renew(Handle::u64(0));
    assert_eq!(world.good(0).kind, StartKind::Forked, "the idle one is gone");
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| world.call(0, 1, Duration::from_secs(20), None).unwrap().1);
        until(|| world.fleet.report().functions[0].stats.busy == 1);
        let waiting = scope.spawn(|| world.call(0, 1, Duration::from_secs(20), None).unwrap().1);
        until(|| world.fleet.report().waiting == 1);
        world.fleet.renew(Handle::u64(0));
        assert_eq!(busy.join().unwrap().kind, StartKind::Warm, "what runs comes to its end");
        assert_eq!(waiting.join().unwrap().kind, StartKind::Forked, "who waits gets a new one");
    });
    world.end();
}
