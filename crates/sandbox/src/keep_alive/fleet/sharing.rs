// SPDX-License-Identifier: Apache-2.0
//! Instances that serve several calls at once, and calls that stand in line in
//! an instance which serves them one by one.
//!
//! For the policy such an instance is in use from its first call to the last
//! that is under way. Meanwhile calls join it, the least busy one of their
//! function, up to the number that the function allows; an instance that does
//! nothing goes before it. None joins an instance that is outdated. Where others wait for memory, none joins an instance
//! that has been in use for too long, so that it comes to rest and may give way.
//!
//! Where all instances of a function that serve one call at a time are in use, none
//! is being made, and calls wait, the next ones are sent to them ahead: an instance that has ended a call finds
//! its next one without the node's doing. Behind a long call they would wait while another instance
//! comes free, so this is done only as long as calls are short.
//!
//! Where they compute besides, the processors are busy, and as many instances are in use as there are
//! processors, it is done although others do nothing: one more in use would only be one more to be woken
//! and to share the processors.

use std::time::Duration;

use foldhash::HashMap;
use linux::ProcessorTime;

use super::super::decision::{Decision, FunctionId, InstanceId, Ticket};
use super::{Start, StartKind, State};
use crate::{Home, Spent};

/// After so many nanoseconds of use an instance takes no more calls while
/// other functions wait.
const STAY_MAX_NS: u64 = 1_000_000_000;
/// A call is long that takes so many times what is brief.
const LONG_BRIEFS: u64 = 10;
/// For so many nanoseconds after a long one nobody stands in line where an instance does nothing.
const LONG_AGO_NS: u64 = 10_000_000_000;
/// Calls compute that would use so much of a processor, had each instance in use one for itself.
const COMPUTES: f64 = 0.25;
/// Where nobody counts processor time, calls that take no longer are thought to compute.
const THOUGHT_TO_COMPUTE: Duration = Duration::from_millis(1);
/// Processors are busy that do nothing for no more than this part of the time. Where they have time to
/// spare an instance more has its use, also where calls compute: they may wait besides.
const IDLE_OF_BUSY: f64 = 0.3;
/// The same of processors that would do nothing more for anybody.
const IDLE_OF_FULL: f64 = 0.05;
/// The weight of one call in what is known of its function.
const ONE_CALL: f64 = 1.0 / 32.0;
/// Of calls that are brief, an instance that another event loop hears is taken for one only if it has so many less.
const FAR_CALLS: u32 = 3;
/// A call counts for no longer than so many times what calls hold an instance for: one that had to wait
/// for a processor, or for a collector of garbage, would say more than a hundred others.
const OUTLIER: f64 = 8.0;

/// Instances in use whose function allows several calls at once.
pub(super) struct Sharing {
    brief_ns: u64,
    processors: u32,
    /// What the processors had done when that was last looked at.
    processor_time: Option<ProcessorTime>,
    are_busy: bool,
    are_full: bool,
    /// Something was served since it was last asked.
    has_served: bool,
    allowed: HashMap<FunctionId, Allowed>,
    instances: HashMap<InstanceId, Used>,
    by_function: HashMap<FunctionId, Vec<InstanceId>>,
}

/// What instances of a function may serve.
#[derive(Default)]
struct Allowed {
    /// At once.
    calls: u32,
    /// In line besides, at most.
    ahead: u32,
    took: Option<u64>,
    /// When a call ended that was long.
    long: Option<u64>,
    /// What its last calls used of processors that they had for themselves, and how long they held an
    /// instance, in nanoseconds; the later the more they count.
    computed_ns: f64,
    held_ns: f64,
}

impl Allowed {
    /// A call took so long. A long one counts at once, short ones bit by bit.
    fn took(&mut self, ns: u64) {
        let before = self.took.unwrap_or(ns);
        self.took = Some(ns.max(before - before.saturating_sub(ns) / 8));
    }

    /// A call was served while so many instances were in use for each processor.
    fn used(&mut self, spent: &Spent, crowd: f64) {
        let held = spent.held.as_nanos() as f64;
        let thought = if spent.held <= THOUGHT_TO_COMPUTE { held } else { 0.0 };
        // Those that compute wait for one another, and hold their instances for longer by that.
        let computed = spent.cpu.map_or(thought, |cpu| cpu.as_nanos() as f64 * crowd);
        let most = (self.held_ns * OUTLIER).max(THOUGHT_TO_COMPUTE.as_nanos() as f64);
        let part = if held > most { most / held } else { 1.0 };
        self.computed_ns += (computed * part - self.computed_ns) * ONE_CALL;
        self.held_ns += (held * part - self.held_ns) * ONE_CALL;
    }

    /// Whether its calls compute, as far as is known, and none was long of late.
    fn computes(&self, now: u64) -> bool {
        let was_long = self.long.is_some_and(|long| now.saturating_sub(long) < LONG_AGO_NS);
        !was_long && self.held_ns > 0.0 && self.computed_ns >= self.held_ns * COMPUTES
    }

    /// Calls that may stand in line: as many as take so long together.
    fn in_line(&self, ns: u64) -> u32 {
        let fit = self.took.map_or(0, |took| ns.saturating_sub(1) / took.max(1));
        u32::try_from(fit).unwrap_or(u32::MAX).min(self.ahead)
    }
}

struct Used {
    function: FunctionId,
    /// The event loop that hears it.
    home: Option<Home>,
    since: u64,
    /// When a call last began while there was no other, or ended.
    changed: u64,
    /// Those in line included.
    calls: u32,
    is_alive: bool,
    /// It serves a line: nobody joins it.
    is_alone: bool,
    /// What stood in line was taken back: nobody joins it before a call has ended there.
    is_closed: bool,
    /// The client of this call, which may be the one that is served, has left while others were there.
    left: Option<Ticket>,
}

impl Sharing {
    /// Who stands in line waits no longer than `brief` there, as far as is known.
    pub(super) fn new(brief: Duration, processors: u32) -> Self {
        Self {
            brief_ns: brief.as_nanos() as u64,
            processors: processors.max(1),
            processor_time: None,
            are_busy: true,
            are_full: true,
            has_served: false,
            allowed: HashMap::default(),
            instances: HashMap::default(),
            by_function: HashMap::default(),
        }
    }

    /// A function's instances serve so many calls at once, and may have so many
    /// more in line.
    pub(super) fn allow(&mut self, function: FunctionId, calls: u32, ahead: u32) {
        if calls > 1 || ahead > 0 || self.allowed.contains_key(&function) {
            let allowed = self.allowed.entry(function).or_default();
            (allowed.calls, allowed.ahead) = (calls, ahead);
        }
    }

    pub(super) fn forget(&mut self, function: FunctionId) {
        self.allowed.remove(&function);
    }

    /// An instance is in use by a first call.
    pub(super) fn begin(&mut self, now: u64, function: FunctionId, instance: InstanceId, home: Option<Home>) {
        self.has_served = true;
        if self.allowed.contains_key(&function) {
            let used = Used {
                function,
                home,
                since: now,
                changed: now,
                calls: 1,
                is_alive: true,
                is_alone: false,
                is_closed: false,
                left: None,
            };
            self.instances.insert(instance, used);
            self.by_function.entry(function).or_default().push(instance);
        }
    }

    /// A call has ended. `Some`: it was the last one, and whether the instance
    /// lives.
    pub(super) fn leave(&mut self, now: u64, instance: InstanceId, is_alive: bool) -> Option<bool> {
        let Some(used) = self.instances.get_mut(&instance) else { return Some(is_alive) };
        let took = now.saturating_sub(std::mem::replace(&mut used.changed, now));
        used.is_closed = false;
        let (function, is_alone) = (used.function, used.is_alone);
        let is_long = self.is_long(function, took);
        if let Some(allowed) = self.allowed.get_mut(&function).filter(|_| !is_alone) {
            allowed.took(took);
            if is_long {
                allowed.long = Some(now);
            }
        }
        self.count_out(instance, is_alive)
    }

    /// A call was taken back that had not begun: it tells nothing of what calls take. As for
    /// [`Sharing::leave`].
    pub(super) fn recalled(&mut self, instance: InstanceId) -> Option<bool> {
        if !self.instances.contains_key(&instance) {
            return Some(true);
        }
        self.close(instance);
        self.count_out(instance, true)
    }

    fn count_out(&mut self, instance: InstanceId, is_alive: bool) -> Option<bool> {
        let used = self.instances.get_mut(&instance)?;
        used.calls -= 1;
        used.is_alive &= is_alive;
        if used.calls > 0 {
            return None;
        }
        let used = self.instances.remove(&instance)?;
        if let Some(others) = self.by_function.get_mut(&used.function) {
            others.retain(|other| *other != instance);
            if others.is_empty() {
                self.by_function.remove(&used.function);
            }
        }
        Some(used.is_alive)
    }

    /// What a call took, whose instance is in use.
    pub(super) fn used(&mut self, instance: InstanceId, spent: &Spent) {
        let Some(used) = self.instances.get(&instance).filter(|used| !used.is_alone) else { return };
        let (function, crowd) = (used.function, self.crowd(used.function));
        if let Some(allowed) = self.allowed.get_mut(&function) {
            allowed.used(spent, crowd);
        }
    }

    /// Instances of a function that are in use, for each processor; 1 at least.
    fn crowd(&self, function: FunctionId) -> f64 {
        let in_use = self.by_function.get(&function).map_or(0, Vec::len);
        (in_use as f64 / f64::from(self.processors)).max(1.0)
    }

    /// Whether as many instances of a function are in use as there are processors, and compute: none of
    /// them has been at one call for long.
    fn is_enough(&self, now: u64, function: FunctionId) -> bool {
        let Some(in_use) = self.by_function.get(&function) else { return false };
        let mut serving = in_use.iter().filter_map(|id| self.instances.get(id)).filter(|used| !used.is_alone);
        self.are_busy
            && self.allowed.get(&function).is_some_and(|allowed| allowed.ahead > 0 && allowed.computes(now))
            && serving.clone().count() >= self.processors as usize
            && serving.all(|used| {
                let is_open = used.is_alive && !used.is_closed;
                is_open && !self.is_long(function, now.saturating_sub(used.changed))
            })
    }

    /// Whether one more instance in use would only take from the others what it has of the processors.
    fn is_full(&self, now: u64, function: FunctionId) -> bool {
        self.are_full && self.is_enough(now, function)
    }

    /// How many calls of a function may stand in line in each instance.
    fn ahead(&self, now: u64, function: FunctionId) -> Ahead {
        if self.is_enough(now, function) { Ahead::Full } else { Ahead::Brief }
    }

    /// Whether an instance is in use, or was since the last time that this was asked.
    pub(super) fn take_served(&mut self) -> bool {
        std::mem::take(&mut self.has_served) || !self.instances.is_empty()
    }

    /// What the processors have done so far, if it is known. Whether they had no time to spare since the
    /// last look.
    pub(super) fn processors_did(&mut self, time: Option<ProcessorTime>) -> bool {
        let before = std::mem::replace(&mut self.processor_time, time);
        let (Some(before), Some(now)) = (before, time) else {
            // What they did when something was last served says nothing of what comes.
            (self.are_busy, self.are_full) = (true, true);
            return true;
        };
        let (idle, all) = (now.idle.saturating_sub(before.idle), now.all.saturating_sub(before.all));
        // Too little has passed to say.
        if all > 0 {
            let part = idle as f64 / all as f64;
            (self.are_busy, self.are_full) = (part <= IDLE_OF_BUSY, part <= IDLE_OF_FULL);
        }
        self.are_full
    }

    /// Whether calls of a function are brief, as far as is known.
    fn is_brief(&self, function: FunctionId) -> bool {
        self.allowed.get(&function).is_some_and(|allowed| allowed.held_ns < self.brief_ns as f64)
    }

    /// Whether a call is long that takes so many nanoseconds. Where many share the processors, all take longer.
    fn is_long(&self, function: FunctionId, ns: u64) -> bool {
        ns as f64 >= self.brief_ns.saturating_mul(LONG_BRIEFS) as f64 * self.crowd(function)
    }

    /// An instance was killed; its call has not left it yet.
    pub(super) fn killed(&mut self, instance: InstanceId) {
        if let Some(used) = self.instances.get_mut(&instance) {
            used.is_alive = false;
        }
    }

    /// Nobody joins an instance until it is at rest.
    pub(super) fn is_alone(&mut self, instance: InstanceId) {
        if let Some(used) = self.instances.get_mut(&instance) {
            used.is_alone = true;
        }
    }

    /// Nobody joins an instance before a call has ended there.
    pub(super) fn close(&mut self, instance: InstanceId) {
        if let Some(used) = self.instances.get_mut(&instance) {
            used.is_closed = true;
        }
    }

    /// The client of a call in it has left; others are there.
    pub(super) fn leaves(&mut self, instance: InstanceId, ticket: Ticket) {
        if let Some(used) = self.instances.get_mut(&instance) {
            used.left = Some(ticket);
        }
    }

    /// The call of a client that has left, if no other one is in the instance.
    pub(super) fn left_alone(&self, instance: InstanceId) -> Option<Ticket> {
        self.instances.get(&instance).filter(|used| used.calls == 1).and_then(|used| used.left)
    }

    /// Whether calls stand in line in an instance.
    pub(super) fn has_line(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance).is_some_and(|used| {
            self.allowed.get(&used.function).is_some_and(|allowed| used.calls > allowed.calls)
        })
    }

    /// Whether other calls run in an instance.
    pub(super) fn has_others(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance).is_some_and(|used| used.calls > 1)
    }

    /// Whether one more call may run in an instance, or stand in line there.
    fn has_place(&self, now: u64, instance: InstanceId, others_wait: bool, ahead: Ahead) -> bool {
        self.instances.get(&instance).is_some_and(|used| {
            let Some(allowed) = self.allowed.get(&used.function) else { return false };
            let age = now.saturating_sub(used.changed) as f64 / self.brief_ns as f64;
            let ahead = match ahead {
                // Those that take turns are at their calls for longer by that.
                Ahead::Full if age < self.crowd(used.function) => allowed.ahead,
                Ahead::Brief if age < 1.0 => allowed.in_line(self.brief_ns),
                _ => 0,
            };
            let most = allowed.calls.saturating_add(ahead);
            let is_long = now.saturating_sub(used.since) > STAY_MAX_NS;
            let is_open = used.is_alive && !used.is_alone && !used.is_closed;
            is_open && used.calls < most && !(is_long && others_wait)
        })
    }
}

/// How many calls may stand in line in an instance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    None,
    /// As many as are over soon.
    Brief,
    /// As many as may be at all, unless the call that is served is none of the brief ones: elsewhere they
    /// would take turns with those before them, and be over no sooner.
    Full,
}

impl State {
    /// The instance in use that one more call may join, or stand in line in.
    pub(super) fn joinable(&self, now: u64, function: FunctionId, here: Option<Home>) -> Option<InstanceId> {
        match self.policy.has_idle(function) {
            false => self.least_busy(now, function, here),
            true if self.sharing.is_enough(now, function) => self.in_line(now, function, Ahead::Full, here),
            true => None,
        }
    }

    /// Sends calls that wait ahead, to instances in use.
    pub(super) fn line_up(&mut self, now: u64, function: FunctionId, here: Option<Home>) {
        while self.policy.has_waiting(function)
            && self.policy.is_settled(function)
            && !self.policy.has_idle(function)
            && let Some(instance) = self.in_line(now, function, self.sharing.ahead(now, function), here)
            && let Some(ticket) = self.policy.take_waiting(function)
        {
            self.join(now, ticket, instance);
        }
    }

    /// The instance in use that serves the fewest calls, and may serve one more at once.
    fn least_busy(&self, now: u64, function: FunctionId, here: Option<Home>) -> Option<InstanceId> {
        self.open(now, function, Ahead::None).min_by_key(|id| self.distance(*id, here))
    }

    /// The instance in whose line one more call may stand: the shortest one; or the longest, where more
    /// instances than are enough come to nothing but taking turns. Then those with short lines come to
    /// their ends, and sleep. Of the longest ones those that this event loop hears go first.
    fn in_line(
        &self,
        now: u64,
        function: FunctionId,
        ahead: Ahead,
        here: Option<Home>,
    ) -> Option<InstanceId> {
        let open = self.open(now, function, ahead);
        match ahead {
            Ahead::Full => open.max_by_key(|id| (!self.is_far(*id, here), self.calls_in(*id))),
            Ahead::Brief | Ahead::None => open.min_by_key(|id| self.distance(*id, here)),
        }
    }

    fn calls_in(&self, instance: InstanceId) -> u32 {
        self.sharing.instances.get(&instance).map_or(0, |used| used.calls)
    }

    /// Whether another event loop than this one hears an instance.
    fn is_far(&self, instance: InstanceId, here: Option<Home>) -> bool {
        here.is_some() && self.sharing.instances.get(&instance).is_some_and(|used| used.home != here)
    }

    /// The calls in an instance, and some more if it is far: who waits elsewhere is woken elsewhere. That takes
    /// microseconds, for which nobody is to wait behind calls that take longer.
    fn distance(&self, instance: InstanceId, here: Option<Home>) -> u32 {
        let Some(used) = self.sharing.instances.get(&instance) else { return 0 };
        let counts = self.is_far(instance, here) && self.sharing.is_brief(used.function);
        used.calls + if counts { FAR_CALLS } else { 0 }
    }

    fn open(&self, now: u64, function: FunctionId, ahead: Ahead) -> impl Iterator<Item = InstanceId> + '_ {
        let used = self.sharing.by_function.get(&function).map(Vec::as_slice).unwrap_or_default();
        let others_wait = self.policy.others_wait(function);
        used.iter().copied().filter(move |id| {
            self.sharing.has_place(now, *id, others_wait, ahead) && self.policy.takes_more(*id)
        })
    }

    /// Lets a call run in an instance that is in use.
    pub(super) fn join(&mut self, now: u64, ticket: Ticket, instance: InstanceId) {
        let (Some(turn), Some(&live)) = (self.turns.get(&ticket), self.live.get(&instance)) else { return };
        let queued_ns = now.saturating_sub(turn.arrived);
        if let Some(used) = self.sharing.instances.get_mut(&instance) {
            used.calls += 1;
        }
        self.grant(ticket, instance, live, Start { kind: StartKind::Warm, queued_ns, start_ns: 0 });
    }

    /// A call has left its instance: it is at rest, or others take the place.
    pub(super) fn leave(&mut self, now: u64, instance: InstanceId, is_alive: bool) -> Vec<Decision> {
        // With this instance, which is about to serve the next one.
        if let Some(function) = self.policy.function_of(instance).filter(|id| self.policy.has_waiting(*id)) {
            self.count_enough(now, function);
        }
        match self.sharing.leave(now, instance, is_alive) {
            Some(is_alive) => self.policy.ended(now, instance, is_alive),
            None => {
                self.fill(now, instance);
                Vec::new()
            }
        }
    }

    /// A call was taken back that stood in line in an instance, which goes on: others behind it have been,
    /// too, and nobody takes its place.
    pub(super) fn recalled(&mut self, now: u64, instance: InstanceId) -> Vec<Decision> {
        match self.sharing.recalled(instance) {
            Some(is_alive) => self.policy.ended(now, instance, is_alive),
            None => Vec::new(),
        }
    }

    /// Tells the policy whether more instances of a function would be of use.
    pub(super) fn count_enough(&mut self, now: u64, function: FunctionId) {
        self.policy.note_enough(function, self.sharing.is_full(now, function));
    }

    /// Lets calls that wait run in an instance that has places.
    pub(super) fn fill(&mut self, now: u64, instance: InstanceId) {
        let Some(function) = self.sharing.instances.get(&instance).map(|used| used.function) else { return };
        let ahead =
            if self.policy.is_settled(function) { self.sharing.ahead(now, function) } else { Ahead::None };
        while self.sharing.has_place(now, instance, self.policy.others_wait(function), ahead)
            && self.policy.takes_more(instance)
            && let Some(ticket) = self.policy.take_waiting(function)
        {
            self.join(now, ticket, instance);
        }
    }
}

#[cfg(test)]
mod tests;
