// SPDX-License-Identifier: Apache-2.0
//! Who gets an instance more, and who gives one up for it.

use super::{Decision, Function, FunctionId, Instance, InstanceId, Policy, State};
use super::{PREWARM_LEAD, PREWARMS_FORGIVEN};

/// A function that wants an instance more.
pub(super) struct Claim {
    function: FunctionId,
    /// Its oldest call has waited beyond patience.
    is_beyond_patience: bool,
    has_none: bool,
    since: u64,
    held_bytes: u64,
}

impl Policy {
    /// Starts instances for functions that want them, in their order, as far
    /// as there is memory. Evicts idle instances for it.
    pub(super) fn grow(&mut self, now: u64, out: &mut Vec<Decision>) {
        if self.is_draining {
            return;
        }
        let mut passed = Vec::new();
        // Memory that is about to be free for those before.
        let mut promised = 0;
        while let Some(claim) = self.first_claim(now, &passed) {
            let bytes = self.size_of(claim.function);
            let wanted = promised + bytes;
            // Who has waited for long, and has none, goes before what only stands ready.
            let takes_all = claim.is_beyond_patience && claim.has_none;
            let withheld = if takes_all { self.withheld_bytes() } else { 0 };
            if self.free_bytes() + self.stopping_bytes < wanted
                && self.reclaimable_bytes() + withheld < wanted
            {
                if claim.is_beyond_patience {
                    return;
                }
                passed.push(claim.function);
                continue;
            }
            self.make_room(wanted, None, out);
            if takes_all {
                self.make_room_of_all(wanted, out);
            }
            if self.free_bytes() >= wanted {
                self.start(claim.function, bytes, false, out);
                if let Some(function) = self.functions.get_mut(&claim.function) {
                    function.pressed_since = now;
                }
            } else {
                promised = wanted;
                passed.push(claim.function);
            }
        }
    }

    /// What is free, is about to be, or can be made so.
    pub(super) fn reclaimable_bytes(&self) -> u64 {
        self.free_bytes() + self.stopping_bytes + self.idle_bytes - self.withheld_bytes()
    }

    /// Whether calls of a function wait for an instance more, which it may have, and for which no
    /// room can be made now.
    pub fn lacks_memory(&self, id: FunctionId) -> bool {
        let Some(function) = self.functions.get(&id) else { return false };
        let may_have_more = function.instances() < function.settings.instances_max.max(1);
        let wants_more = function.waiting.len() > function.starting as usize;
        may_have_more && wants_more && self.reclaimable_bytes() < self.size_of(id)
    }

    /// The first in the order among functions that want an instance more.
    pub(super) fn first_claim(&self, now: u64, passed: &[FunctionId]) -> Option<Claim> {
        let patience = self.options.patience.as_nanos() as u64;
        let claims = self.wanting.iter().filter_map(|&id| {
            let function = self.functions.get(&id)?;
            if passed.contains(&id) || !function.wants_one(now, self.options.processors, self.are_full) {
                return None;
            }
            let since = function.waiting.front()?.since;
            let is_beyond_patience = now.saturating_sub(since) > patience;
            let (has_none, held_bytes) = (function.instances() == 0, function.held_bytes);
            Some(Claim { function: id, is_beyond_patience, has_none, since, held_bytes })
        });
        claims.min_by_key(|claim| {
            let held = if claim.is_beyond_patience { 0 } else { claim.held_bytes };
            // Who has some goes on, if slowly.
            let waits_for_more = claim.is_beyond_patience && !claim.has_none;
            (!claim.is_beyond_patience, waits_for_more, held, claim.since, claim.function)
        })
    }

    /// Whether an instance that has just ended a call gives way, although
    /// another call of its function waits.
    pub(super) fn yields(&self, now: u64, id: InstanceId) -> bool {
        let Some(instance) = self.instances.get(&id) else { return false };
        let Some(own) = self.functions.get(&instance.function) else { return false };
        let Some(claim) = self.first_claim(now, &[]) else { return false };
        // What is new serves once at least, so that some call ends for every
        // start; and to give way to oneself would be a start for nothing.
        if instance.is_new || claim.function == instance.function {
            return false;
        }
        let bytes = self.size_of(claim.function);
        if self.free_bytes() + self.stopping_bytes >= bytes {
            // It gets its instance anyway.
            return false;
        }
        // What it is to have is given up only for who has waited for long.
        let is_to_spare = own.instances() >= own.least;
        if is_to_spare && own.held_bytes.saturating_sub(instance.bytes) >= claim.held_bytes + bytes {
            return true;
        }
        let patience = self.options.patience.as_nanos() as u64;
        let is_older = own.waiting.front().is_none_or(|head| claim.since < head.since);
        claim.is_beyond_patience && is_older && now.saturating_sub(instance.ready_at) >= patience
    }

    /// Makes an instance. There is memory for it.
    pub(super) fn start(
        &mut self,
        id: FunctionId,
        bytes: u64,
        is_ahead: bool,
        out: &mut Vec<Decision>,
    ) -> Option<&mut Instance> {
        let function = self.functions.get_mut(&id)?;
        function.starting += 1;
        function.held_bytes += bytes;
        self.used_bytes += bytes;
        self.last_instance += 1;
        let instance = InstanceId(self.last_instance);
        let made = Instance {
            function: id,
            home: None,
            state: State::Starting,
            bytes,
            ready_at: 0,
            is_ahead,
            is_provided: false,
            is_new: true,
            is_outdated: false,
            succeeded_until: None,
            kept_until: None,
        };
        out.push(Decision::Start { function: id, instance });
        Some(self.instances.entry(instance).insert_entry(made).into_mut())
    }

    /// The last instance of a function has ended by itself, which would have been kept until then: another one is made in
    /// its place, so that the next call need not wait for it. Nobody gives way for that.
    pub(super) fn replace(&mut self, now: u64, id: FunctionId, until: u64, out: &mut Vec<Decision>) {
        let bytes = self.size_of(id);
        if self.is_draining || !self.options.prewarm || self.free_bytes() < bytes {
            return;
        }
        let Some(function) = self.functions.get(&id).filter(|function| function.is_unused()) else { return };
        // One that is ready when its time is over is of no use.
        let ready = now.saturating_add(function.cost_ns.get().unwrap_or(0));
        if self.idle_ns(id) > 0
            && until > ready
            && let Some(made) = self.start(id, bytes, false, out)
        {
            made.kept_until = Some(until);
        }
    }

    /// Starts instances of functions that are expected to be called soon.
    pub(super) fn prewarm(&mut self, now: u64, out: &mut Vec<Decision>) {
        if self.is_draining || !self.options.prewarm {
            return;
        }
        let due = self.functions.iter().filter(|(_, function)| is_due(function, now));
        let due: Vec<FunctionId> = due.map(|(id, _)| *id).collect();
        for id in due {
            let bytes = self.size_of(id);
            let Some(function) = self.functions.get(&id) else { continue };
            let cost = function.cost_ns.get().unwrap_or(1);
            let worth = self.clock.priority(function.frequency.max(1), cost, bytes);
            self.make_room(bytes, Some(worth), out);
            if self.free_bytes() < bytes {
                continue;
            }
            self.start(id, bytes, true, out);
            if let Some(function) = self.functions.get_mut(&id) {
                function.counts.prewarms += 1;
                function.prewarmed_after = function.pauses.last();
            }
        }
    }
}

/// Whether the next call of a function without an instance is expected soon.
fn is_due(function: &Function, now: u64) -> bool {
    let Some(last) = function.pauses.last() else { return false };
    let counts = &function.counts;
    if !function.is_unused()
        || function.prewarmed_after == Some(last)
        || counts.prewarms_wasted > counts.prewarmed + PREWARMS_FORGIVEN
    {
        return false;
    }
    let Some(window) = function.pauses.window() else { return false };
    let lead = function.cost_ns.get().unwrap_or(0).saturating_mul(PREWARM_LEAD);
    let since = now.saturating_sub(last);
    since.saturating_add(lead) >= window.early_ns && since <= window.late_ns
}

/// When an instance that was made ahead is no longer expected to be used.
pub(super) fn expected_until(function: &Function, now: u64) -> Option<u64> {
    let (last, window) = (function.pauses.last()?, function.pauses.window()?);
    // A quarter more: the histogram is coarse.
    Some((last + window.late_ns + window.late_ns / 4).max(now))
}
