// SPDX-License-Identifier: Apache-2.0
//! Events in, decisions out.
//!
//! Eviction is FaasCache's (see [`eviction`](super::eviction)); instances are
//! made ahead of calls after *Serverless in the Wild* (see
//! [`arrivals`](super::arrivals)). What is ours: calls may wait instead of
//! having an instance made, and so there is an order among those that wait.
//!
//! That order: of the functions with too few instances the one that holds the
//! least memory goes first, and among those that have waited beyond patience
//! the one that has waited longest, of those that have no instance before others;
//! nobody passes it. When a call ends and
//! another of its function waits, the instance gives way all the same if the
//! first function in that order has much less, or is beyond patience while
//! the instance was kept for as long. So a burst slows others down, and does
//! not shut them out.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;

use super::decision::{
    Decision, Found, FunctionId, FunctionStats, InstanceId, PolicyOptions, RefuseReason, Settings, Stats,
    StopReason, Ticket,
};
use super::eviction::{Clock, Priority};
use super::function::{Function, Waiting};
use crate::Home;

mod events;
mod growth;
mod provision;

/// Of the functions known, so many are forgotten at once when there are too many.
const FORGET_SHARE: usize = 16;
/// An instance is made ahead of its window by so many times its usual start.
const PREWARM_LEAD: u64 = 3;
/// Wasted pre-warms that are forgiven.
const PREWARMS_FORGIVEN: u64 = 3;

/// Which instances there are to be, and who runs where.
///
/// Times are nanoseconds after any moment, the same for all events, and must
/// not go back.
#[derive(Debug)]
pub struct Policy {
    options: PolicyOptions,
    clock: Clock,
    functions: BTreeMap<FunctionId, Function>,
    instances: BTreeMap<InstanceId, Instance>,
    /// All idle instances, the least worth first.
    idle: BTreeSet<(Priority, InstanceId)>,
    /// Charged for them.
    idle_bytes: u64,
    /// Functions with calls that wait.
    wanting: BTreeSet<FunctionId>,
    /// Functions that are to have instances also when nobody calls them.
    provided: BTreeSet<FunctionId>,
    /// What these hold is more than is kept from others, as of the last look.
    holds_too_much: bool,
    /// Instances that are being made for no call.
    providing: u32,
    /// The functions of calls that wait.
    tickets: HashMap<Ticket, FunctionId>,
    /// Charged for all instances.
    used_bytes: u64,
    /// Of which for those that are being ended.
    stopping_bytes: u64,
    /// Of the budget, what is held for no instance.
    kept_bytes: u64,
    last_instance: u64,
    /// Processors have no time to spare, as far as is known.
    are_full: bool,
    is_draining: bool,
}

#[derive(Debug)]
struct Instance {
    function: FunctionId,
    /// The event loop that hears it.
    home: Option<Home>,
    state: State,
    bytes: u64,
    /// When it was ready.
    ready_at: u64,
    /// It was made ahead, and no call has come yet.
    is_ahead: bool,
    /// It was made for no call: its function is to have it.
    is_provided: bool,
    is_new: bool,
    /// It was made with what has changed since.
    is_outdated: bool,
    /// It has ended by itself: until when it would have been kept, and so is the one in its place.
    succeeded_until: Option<u64>,
    /// It took the place of such a one, and is kept as long without a call.
    kept_until: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Starting,
    Idle {
        priority: Priority,
        /// When it ends unless it is used.
        until: u64,
    },
    Busy {
        since: u64,
    },
    Stopping,
}

impl Policy {
    /// Knows nothing yet.
    pub fn new(options: PolicyOptions) -> Self {
        Self {
            options,
            clock: Clock::default(),
            functions: BTreeMap::new(),
            instances: BTreeMap::new(),
            idle: BTreeSet::new(),
            idle_bytes: 0,
            wanting: BTreeSet::new(),
            provided: BTreeSet::new(),
            holds_too_much: false,
            providing: 0,
            tickets: HashMap::default(),
            used_bytes: 0,
            stopping_bytes: 0,
            kept_bytes: 0,
            last_instance: 0,
            are_full: true,
            is_draining: false,
        }
    }

    /// How things stand.
    pub fn stats(&self) -> Stats {
        let functions = self.functions.iter().map(|(&id, function)| FunctionStats {
            function: id,
            idle: function.idle.len() as u32,
            busy: function.busy,
            starting: function.starting,
            waiting: function.waiting.len(),
            held_bytes: function.held_bytes,
            size_bytes: function.size_bytes(),
            start_ns: function.cost_ns.get().unwrap_or(0),
            counts: function.counts,
        });
        Stats {
            memory_bytes: self.used_bytes,
            stopping_bytes: self.stopping_bytes,
            memory_max_bytes: self.options.memory_bytes,
            kept_bytes: self.kept_bytes,
            instances: self.instances.len(),
            waiting: self.tickets.len(),
            functions: functions.collect(),
        }
    }

    /// How a function is served.
    pub fn settings(&self, function: FunctionId) -> Option<Settings> {
        self.functions.get(&function).map(|function| function.settings)
    }

    /// Whether a function has all the instances that it is to have now: none is
    /// being made for those that wait.
    pub fn is_settled(&self, id: FunctionId) -> bool {
        self.functions.get(&id).is_some_and(|function| function.starting == 0)
    }

    /// Whether calls of a function wait.
    pub fn has_waiting(&self, function: FunctionId) -> bool {
        self.wanting.contains(&function)
    }

    /// Functions of which calls wait.
    pub fn waiting(&self) -> impl Iterator<Item = FunctionId> {
        self.wanting.iter().copied()
    }

    /// Whether there is no instance left and nobody waits.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.tickets.is_empty()
    }

    /// Whether a function is remembered.
    pub fn knows(&self, function: FunctionId) -> bool {
        self.functions.contains_key(&function)
    }

    /// Whose instance this is.
    pub fn function_of(&self, instance: InstanceId) -> Option<FunctionId> {
        self.instances.get(&instance).map(|instance| instance.function)
    }

    /// Whether a function has an instance that does nothing.
    pub fn has_idle(&self, function: FunctionId) -> bool {
        self.functions.get(&function).is_some_and(|function| !function.idle.is_empty())
    }

    /// Whether an instance in use may serve further calls, as far as the policy
    /// goes: not one that is outdated, and none when all come to their end.
    pub fn takes_more(&self, instance: InstanceId) -> bool {
        let is_outdated = self.instances.get(&instance).is_none_or(|instance| instance.is_outdated);
        !self.is_draining && !is_outdated
    }

    /// Whether calls of other functions wait.
    pub fn others_wait(&self, function: FunctionId) -> bool {
        self.wanting.iter().any(|other| *other != function)
    }

    /// The idle instances, the least worth first.
    pub fn idle(&self) -> impl Iterator<Item = InstanceId> {
        self.idle.iter().map(|(_, id)| *id)
    }

    /// What an instance of this size is charged: so much at least that their
    /// number has a bound.
    fn charge(&self, bytes: u64) -> u64 {
        bytes.max(self.options.memory_bytes / u64::from(self.options.instances_max.max(1))).max(1)
    }

    /// What is held of the budget for no instance: what instances are forked
    /// from. At least half of the budget is theirs.
    pub fn keep(&mut self, bytes: u64) {
        self.kept_bytes = bytes.min(self.options.memory_bytes / 2);
    }

    /// What all instances may have together.
    fn budget(&self) -> u64 {
        self.options.memory_bytes - self.kept_bytes
    }

    /// What a new instance is charged. One that grew beyond the budget is
    /// made when it can have all of it.
    fn size_of(&self, function: FunctionId) -> u64 {
        let bytes = self.functions.get(&function).map_or(0, Function::size_bytes);
        self.charge(bytes).min(self.budget())
    }

    fn free_bytes(&self) -> u64 {
        self.budget().saturating_sub(self.used_bytes)
    }

    /// Makes room for one more function, if there is any to be forgotten.
    fn remember(&mut self, id: FunctionId, settings: Settings, out: &mut Vec<Decision>) -> bool {
        if let Some(function) = self.functions.get_mut(&id) {
            function.settings = settings;
            return true;
        }
        let functions_max = self.options.functions_max.max(1);
        if self.functions.len() >= functions_max {
            let is_unused = |function: &Function| function.is_unused() && function.least == 0;
            let unused = self.functions.iter().filter(|(_, function)| is_unused(function));
            let mut unused: Vec<_> = unused.map(|(&id, function)| (function.pauses.last(), id)).collect();
            unused.sort_unstable();
            for (_, old) in unused.into_iter().take((functions_max / FORGET_SHARE).max(1)) {
                self.functions.remove(&old);
                out.push(Decision::Forget(old));
            }
        }
        if self.functions.len() >= functions_max {
            return false;
        }
        self.functions.insert(id, Function::new(settings));
        true
    }

    /// Gives an instance that is not in use to a call.
    fn grant(&mut self, now: u64, id: InstanceId, ticket: Ticket, out: &mut Vec<Decision>) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(function) = self.functions.get_mut(&instance.function) else { return };
        let was_there = instance.is_ahead || matches!(instance.state, State::Idle { .. });
        let found = match (instance.is_new, was_there) {
            (false, _) => Found::Warm,
            (true, true) => Found::Prewarmed,
            (true, false) => Found::New,
        };
        match found {
            Found::Warm => function.counts.warm += 1,
            Found::Prewarmed => function.counts.prewarmed += 1,
            Found::New => function.counts.cold += 1,
        }
        (instance.is_new, instance.is_ahead, instance.kept_until) = (false, false, None);
        instance.state = State::Busy { since: now };
        function.busy += 1;
        function.frequency += 1;
        out.push(Decision::Use { ticket, instance: id, found });
    }

    /// Takes the oldest waiting call of a function.
    fn next_waiting(&mut self, id: FunctionId) -> Option<Waiting> {
        let function = self.functions.get_mut(&id)?;
        let waiting = function.waiting.pop_front();
        if function.waiting.is_empty() {
            self.wanting.remove(&id);
        }
        if let Some(waiting) = &waiting {
            self.tickets.remove(&waiting.ticket);
        }
        waiting
    }

    /// Takes an instance from among the idle ones, if it is there.
    fn wake(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get(&id) else { return };
        let State::Idle { priority, .. } = instance.state else { return };
        self.idle.remove(&(priority, id));
        self.idle_bytes -= instance.bytes;
        if let Some(function) = self.functions.get_mut(&instance.function) {
            function.idle.retain(|other| *other != id);
        }
    }

    /// Puts an instance that nobody wants now among the idle ones.
    fn rest(&mut self, id: InstanceId, until: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(function) = self.functions.get_mut(&instance.function) else { return };
        let cost = function.cost_ns.get().unwrap_or(1);
        let priority = self.clock.priority(function.frequency.max(1), cost, instance.bytes);
        instance.state = State::Idle { priority, until };
        function.idle.push(id);
        self.idle_bytes += instance.bytes;
        self.idle.insert((priority, id));
    }

    /// Ends an instance that is idle, or was busy or starting until now.
    fn stop(&mut self, id: InstanceId, reason: StopReason, out: &mut Vec<Decision>) {
        self.wake(id);
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(function) = self.functions.get_mut(&instance.function) else { return };
        if let (State::Idle { priority, .. }, StopReason::Evicted) = (instance.state, reason) {
            self.clock.evicted(priority);
        }
        instance.state = State::Stopping;
        self.stopping_bytes += instance.bytes;
        function.held_bytes -= instance.bytes;
        if instance.is_ahead {
            function.counts.prewarms_wasted += 1;
        }
        match reason {
            StopReason::Evicted => function.counts.evictions += 1,
            StopReason::Yielded => function.counts.yields += 1,
            StopReason::Expired => function.counts.expired += 1,
            StopReason::Wasted | StopReason::Died | StopReason::Drained => {}
        }
        if function.instances() == 0 {
            function.frequency = 0;
        }
        out.push(Decision::Stop { instance: id, reason });
    }

    /// The idle instance that is worth least, of those that may go.
    fn first_to_go(&self) -> Option<(Priority, InstanceId)> {
        self.idle.iter().copied().find(|&(_, id)| !self.is_withheld(id))
    }

    /// Evicts idle instances, the least worth first and none that is worth
    /// `below` or more, until as much is free or about to be.
    fn make_room(&mut self, bytes: u64, below: Option<Priority>, out: &mut Vec<Decision>) {
        while self.free_bytes() + self.stopping_bytes < bytes {
            let Some((priority, id)) = self.first_to_go() else { return };
            if below.is_some_and(|below| priority >= below) {
                return;
            }
            self.stop(id, StopReason::Evicted, out);
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
