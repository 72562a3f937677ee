// SPDX-License-Identifier: Apache-2.0
//! The policy on a synthetic open trace, against least-recently-used and a
//! fixed time to live under the same budget.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::super::decision::{Decision, Found, FunctionId, InstanceId, PolicyOptions, Settings, Ticket};
use super::Policy;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const MIB: u64 = 1 << 20;
const FUNCTIONS: u64 = 60;
const HORIZON: u64 = 4 * 3600 * SECOND;
const BUDGET: u64 = 1536 * MIB;
const TTL: u64 = 600 * SECOND;

/// SplitMix64: the trace is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean as f64) as u64
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }
}

#[derive(Clone, Copy)]
struct Kind {
    size: u64,
    cost: u64,
    duration: u64,
}

struct Trace {
    kinds: Vec<Kind>,
    /// When, and of which function.
    calls: Vec<(u64, u64)>,
}

/// A third of the functions is called at random, a third in bursts, a third
/// periodically; the first of each far more often than the last.
fn trace(seed: u64) -> Trace {
    let mut random = Random(seed);
    let mut trace = Trace { kinds: Vec::new(), calls: Vec::new() };
    for function in 0..FUNCTIONS {
        trace.kinds.push(Kind {
            size: random.between(16, 200) * MIB,
            cost: random.between(50, 3000) * MS,
            duration: random.between(5, 400) * MS,
        });
        // Zipf: the n-th is called 1/n as often as the first.
        let mean = 4 * SECOND * (function / 3 + 1) * (function / 3 + 1);
        let mut now = random.between(0, mean);
        while now < HORIZON {
            match function % 3 {
                0 => {
                    trace.calls.push((now, function));
                    now += random.exponential(mean);
                }
                1 => {
                    for _ in 0..random.between(3, 12) {
                        trace.calls.push((now + random.between(0, SECOND), function));
                    }
                    now += random.exponential(8 * mean);
                }
                _ => {
                    trace.calls.push((now, function));
                    now += 2 * mean + random.between(0, mean / 10);
                }
            }
        }
    }
    trace.calls.sort_unstable();
    trace
}

#[derive(Debug, Default)]
struct Score {
    cold: u64,
    refused: u64,
    waited_ns: u64,
}

/// Keeps instances in the order of their last use.
fn reference(trace: &Trace, ttl: Option<u64>) -> Score {
    struct Kept {
        function: u64,
        /// Idle from then on.
        free_at: u64,
    }
    let mut score = Score::default();
    let mut kept: Vec<Kept> = Vec::new();
    for &(now, function) in &trace.calls {
        let kind = trace.kinds[function as usize];
        if let Some(ttl) = ttl {
            kept.retain(|one| one.free_at + ttl > now);
        }
        let idle = kept.iter_mut().filter(|one| one.function == function && one.free_at <= now);
        if let Some(one) = idle.max_by_key(|one| one.free_at) {
            one.free_at = now + kind.duration;
            continue;
        }
        let used =
            |kept: &[Kept]| -> u64 { kept.iter().map(|one| trace.kinds[one.function as usize].size).sum() };
        while used(&kept) + kind.size > BUDGET {
            let idle = kept.iter().enumerate().filter(|(_, one)| one.free_at <= now);
            let Some((oldest, _)) = idle.min_by_key(|(_, one)| one.free_at) else { break };
            kept.remove(oldest);
        }
        if used(&kept) + kind.size > BUDGET {
            score.refused += 1;
            continue;
        }
        score.cold += 1;
        score.waited_ns += kind.cost;
        kept.push(Kept { function, free_at: now + kind.cost + kind.duration });
    }
    score
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Stopped(InstanceId),
    Ended(InstanceId),
    Ready(InstanceId),
    Arrive(u64),
    Tick,
}

/// Carries decisions out on a made-up clock.
struct World<'a> {
    trace: &'a Trace,
    policy: Policy,
    events: BTreeSet<(u64, u64, Event)>,
    sequence: u64,
    functions: HashMap<InstanceId, u64>,
    arrivals: BTreeMap<Ticket, (u64, u64)>,
    score: Score,
    log: Vec<Decision>,
}

impl World<'_> {
    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time, self.sequence, event));
    }

    fn act(&mut self, now: u64, decisions: Vec<Decision>) {
        for decision in decisions {
            self.log.push(decision);
            match decision {
                Decision::Use { ticket, instance, found } => {
                    let (arrived, function) = self.arrivals.remove(&ticket).unwrap();
                    assert_eq!(self.functions[&instance], function);
                    self.score.waited_ns += now - arrived;
                    self.score.cold += u64::from(found == Found::New);
                    self.at(now + self.trace.kinds[function as usize].duration, Event::Ended(instance));
                }
                Decision::Start { function, instance } => {
                    self.functions.insert(instance, function.0);
                    self.at(now + self.trace.kinds[function.0 as usize].cost, Event::Ready(instance));
                }
                Decision::Stop { instance, .. } => self.at(now + 10 * MS, Event::Stopped(instance)),
                Decision::Refuse { .. } => self.score.refused += 1,
                Decision::Forget(_) => {}
            }
        }
        assert!(self.policy.stats().memory_bytes <= BUDGET);
    }

    fn run(trace: &Trace, options: PolicyOptions) -> World<'_> {
        let mut world = World {
            trace,
            policy: Policy::new(options),
            events: BTreeSet::new(),
            sequence: 0,
            functions: HashMap::new(),
            arrivals: BTreeMap::new(),
            score: Score::default(),
            log: Vec::new(),
        };
        for &(time, function) in &trace.calls {
            world.at(time, Event::Arrive(function));
        }
        for tick in 0..HORIZON / (100 * MS) {
            world.at(tick * 100 * MS, Event::Tick);
        }
        let mut calls = 0;
        while let Some((now, _, event)) = world.events.pop_first() {
            let decisions = match event {
                Event::Arrive(function) => {
                    calls += 1;
                    world.arrivals.insert(Ticket(calls), (now, function));
                    let size_bytes = trace.kinds[function as usize].size;
                    let settings = Settings { instances_max: 64, idle_max: None, size_bytes };
                    world.policy.arrive(now, FunctionId(function), settings, Ticket(calls), None)
                }
                Event::Ready(id) => {
                    let kind = trace.kinds[world.functions[&id] as usize];
                    world.policy.ready(now, id, kind.cost, Some(kind.size))
                }
                Event::Ended(id) => world.policy.ended(now, id, true),
                Event::Stopped(id) => world.policy.stopped(now, id),
                Event::Tick => world.policy.tick(now),
            };
            world.act(now, decisions);
        }
        world
    }
}

fn options() -> PolicyOptions {
    PolicyOptions {
        memory_bytes: BUDGET,
        idle_max: Duration::from_nanos(2 * HORIZON),
        processors: 4,
        ..PolicyOptions::default()
    }
}

#[test]
fn fewer_cold_starts_than_lru_and_a_fixed_time_to_live() {
    for seed in [1, 2, 3] {
        let trace = trace(seed);
        let (lru, ttl) = (reference(&trace, None), reference(&trace, Some(TTL)));
        let ours = World::run(&trace, options());
        let without = World::run(&trace, PolicyOptions { prewarm: false, ..options() });
        let short = PolicyOptions { idle_max: Duration::from_nanos(TTL), ..options() };
        let short = World::run(&trace, short);
        println!(
            "{} calls: lru {lru:?}, ttl {ttl:?}, ours {:?}, without prewarming {:?}, with ttl {:?}",
            trace.calls.len(),
            ours.score,
            without.score,
            short.score
        );
        assert!(ours.arrivals.is_empty(), "every call was answered");
        for peer in [&lru, &ttl] {
            assert!(ours.score.cold < peer.cold && without.score.cold < peer.cold);
            assert!(short.score.cold < peer.cold);
            assert!(ours.score.waited_ns < peer.waited_ns);
            assert!(ours.score.refused <= peer.refused);
        }
        assert!(ours.score.cold < without.score.cold, "prewarming helps");
    }
}

#[test]
fn the_same_events_give_the_same_decisions() {
    let trace = trace(9);
    let (one, other) = (World::run(&trace, options()), World::run(&trace, options()));
    assert_eq!(one.log, other.log);
}

#[test]
fn all_is_stopped_in_the_end() {
    let trace = trace(4);
    let mut world = World::run(&trace, options());
    let left = world.policy.drain(HORIZON * 2);
    world.act(HORIZON * 2, left);
    while let Some((now, _, event)) = world.events.pop_first() {
        let Event::Stopped(id) = event else { panic!("{event:?} after the end") };
        world.policy.stopped(now, id);
    }
    assert!(world.policy.is_empty());
    assert_eq!((world.policy.used_bytes, world.policy.stopping_bytes, world.policy.idle_bytes), (0, 0, 0));
}
