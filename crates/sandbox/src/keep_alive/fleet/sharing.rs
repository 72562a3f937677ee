// SPDX-License-Identifier: Apache-2.0
//! Instances that serve several calls at once.
//!
//! For the policy such an instance is in use from its first call to the last
//! that is under way. Meanwhile calls join it, the least busy one of their
//! function, up to the number that the function allows; an instance that does
//! nothing goes before it. None joins an instance that is outdated. Where others wait for memory, none joins an instance
//! that has been in use for too long, so that it comes to rest and may give way.

use std::collections::HashMap;

use super::super::decision::{FunctionId, InstanceId, Ticket};
use super::{Start, StartKind, State};

/// After so many nanoseconds of use an instance takes no more calls while
/// other functions wait.
const STAY_MAX_NS: u64 = 1_000_000_000;

/// Instances in use whose function allows several calls at once.
#[derive(Default)]
pub(super) struct Sharing {
    allowed: HashMap<FunctionId, u32>,
    instances: HashMap<InstanceId, Used>,
    by_function: HashMap<FunctionId, Vec<InstanceId>>,
}

struct Used {
    function: FunctionId,
    since: u64,
    calls: u32,
    is_alive: bool,
}

impl Sharing {
    /// A function's instances serve so many calls at once.
    pub(super) fn allow(&mut self, function: FunctionId, calls: u32) {
        if calls > 1 {
            self.allowed.insert(function, calls);
        }
    }

    pub(super) fn forget(&mut self, function: FunctionId) {
        self.allowed.remove(&function);
    }

    /// An instance is in use by a first call.
    pub(super) fn begin(&mut self, now: u64, function: FunctionId, instance: InstanceId) {
        if self.allowed.contains_key(&function) {
            let used = Used { function, since: now, calls: 1, is_alive: true };
            self.instances.insert(instance, used);
            self.by_function.entry(function).or_default().push(instance);
        }
    }

    /// A call has ended. `Some`: it was the last one, and whether the instance
    /// lives.
    pub(super) fn leave(&mut self, instance: InstanceId, is_alive: bool) -> Option<bool> {
        let Some(used) = self.instances.get_mut(&instance) else { return Some(is_alive) };
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

    /// Whether other calls run in an instance.
    pub(super) fn has_others(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance).is_some_and(|used| used.calls > 1)
    }

    /// Whether one more call may run in an instance.
    fn has_place(&self, now: u64, instance: InstanceId, others_wait: bool) -> bool {
        self.instances.get(&instance).is_some_and(|used| {
            let most = self.allowed.get(&used.function).copied().unwrap_or(1);
            let is_long = now.saturating_sub(used.since) > STAY_MAX_NS;
            used.is_alive && used.calls < most && !(is_long && others_wait)
        })
    }
}

impl State {
    /// The instance in use that one more call may join.
    pub(super) fn joinable(&self, now: u64, function: FunctionId) -> Option<InstanceId> {
        let used = self.sharing.by_function.get(&function)?;
        if self.policy.has_idle(function) {
            return None;
        }
        let others_wait = self.policy.others_wait(function);
        let open = used
            .iter()
            .copied()
            .filter(|id| self.sharing.has_place(now, *id, others_wait) && self.policy.takes_more(*id));
        open.min_by_key(|id| self.sharing.instances.get(id).map(|used| used.calls))
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

    /// Lets calls that wait run in an instance that has places.
    pub(super) fn fill(&mut self, now: u64, instance: InstanceId) {
        let Some(function) = self.sharing.instances.get(&instance).map(|used| used.function) else { return };
        while self.sharing.has_place(now, instance, self.policy.others_wait(function))
            && self.policy.takes_more(instance)
            && let Some(ticket) = self.policy.take_waiting(function)
        {
            self.join(now, ticket, instance);
        }
    }
}

#[cfg(test)]
mod tests;
