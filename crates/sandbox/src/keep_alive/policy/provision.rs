// SPDX-License-Identifier: Apache-2.0
//! Instances that a function is to have whether it is called or not.
//!
//! They are made as soon as there is memory for them that no call waits for, and do
//! not expire as long as the function would have fewer than it is to have; nor are
//! they evicted, but for a function that has none and waits beyond patience. They
//! are made while they hold less than half of the budget together, and kept from
//! others as long as they hold no more: else functions that nobody calls would slow
//! all others down.

use super::{Decision, Function, FunctionId, InstanceId, Policy, Settings, StopReason};

/// Of the functions that may be known, so many may be provided for: one in so many.
const KNOWN_SHARE: usize = 2;
/// Of the budget, what is held so: one in so many.
const BUDGET_SHARE: u64 = 2;
/// Of that, what must be left for the first instance of a function of which nothing is known but its limit.
const FIRST_SHARE: u64 = 8;
/// How long the first failure in a row puts off the next instance; each further one twice as long.
const FIRST_PAUSE_NS: u64 = 1_000_000_000;
/// Failures in a row that make the pause longer.
const FAILURES_MAX: u32 = 6;
/// Instances that are made at once without a call: whoever makes them is there for calls, too.
const AT_ONCE_MAX: u32 = 2;

impl Policy {
    /// From now on a function is to have at least so many instances, as far as it may have them.
    /// Where there is no place for one more such function it has none.
    pub fn provide(&mut self, now: u64, id: FunctionId, settings: Settings, least: u32) -> Vec<Decision> {
        let mut out = Vec::new();
        let is_over = self.is_draining || least == 0;
        let is_one_more = !self.provided.contains(&id);
        if is_over || (is_one_more && self.provided.len() >= self.options.functions_max / KNOWN_SHARE) {
            self.provide_no_more(id);
            return out;
        }
        if !self.remember(id, settings, &mut out) {
            return out;
        }
        if let Some(function) = self.functions.get_mut(&id) {
            function.least = least.min(settings.instances_max.max(1));
            function.failures = 0;
            function.provided_from = now;
            self.provided.insert(id);
        }
        self.provision(now, &mut out);
        out
    }

    pub(super) fn provide_no_more(&mut self, id: FunctionId) {
        self.provided.remove(&id);
        if let Some(function) = self.functions.get_mut(&id) {
            function.least = 0;
        }
    }

    /// Makes what functions lack of the instances that they are to have. Where a call waits for memory, that is not theirs.
    pub(super) fn provision(&mut self, now: u64, out: &mut Vec<Decision>) {
        let mut provided_bytes = self.provided_bytes();
        self.holds_too_much = provided_bytes > self.budget() / BUDGET_SHARE;
        if self.is_draining || self.first_claim(now, &[]).is_some() {
            return;
        }
        let lacking = |id: &FunctionId| {
            let function = self.functions.get(id)?;
            let is_due = function.instances() < function.least && function.provided_from <= now;
            is_due.then_some(*id)
        };
        let mut lacking: Vec<FunctionId> = self.provided.iter().filter_map(lacking).collect();
        // Those that fail are not in the way of others.
        lacking.sort_by_key(|id| {
            self.functions.get(id).map(|function| (function.failures, function.provided_from))
        });
        for id in lacking {
            while let Some(bytes) = self.provides_one(id, provided_bytes, out) {
                provided_bytes += bytes;
            }
        }
    }

    /// Makes one instance more that a function lacks, if all together hold so much; what it is charged.
    fn provides_one(&mut self, id: FunctionId, provided_bytes: u64, out: &mut Vec<Decision>) -> Option<u64> {
        let function = self.functions.get(&id)?;
        // To be made takes a processor.
        let at_once_max = self.options.processors.clamp(1, AT_ONCE_MAX);
        let is_enough = function.instances() >= function.least || self.providing >= at_once_max;
        let half = self.budget() / BUDGET_SHARE;
        let (size, left) = (self.size_of(id), half.saturating_sub(provided_bytes));
        let is_first = !function.is_measured() && function.starting == 0;
        let bytes = match size <= left {
            true => size,
            // Most take far less than they may, which is known as soon as there is one.
            false if is_first && left >= half / FIRST_SHARE => half / FIRST_SHARE,
            false => return None,
        };
        if is_enough || self.reclaimable_bytes() < bytes {
            return None;
        }
        self.make_room(bytes, None, out);
        if self.free_bytes() < bytes {
            return None;
        }
        self.start(id, bytes, false, out)?.is_provided = true;
        self.providing += 1;
        Some(bytes)
    }

    /// What is held for instances that functions are to have.
    fn provided_bytes(&self) -> u64 {
        let functions = self.provided.iter().filter_map(|id| self.functions.get(id));
        let held = functions.map(|function| {
            let instances = function.instances();
            let each = function.held_bytes / u64::from(instances.max(1));
            each * u64::from(instances.min(function.least))
        });
        held.sum()
    }

    /// Of what idle instances hold, what nobody can be given: the larger ones of a function that has no more
    /// than it is to have, for which of them go is not known before.
    pub(super) fn withheld_bytes(&self) -> u64 {
        if self.holds_too_much {
            return 0;
        }
        let functions = self.provided.iter().filter_map(|id| self.functions.get(id));
        let withheld = functions.map(|function| {
            let mut bytes: Vec<u64> = function
                .idle
                .iter()
                .filter_map(|id| self.instances.get(id))
                .map(|instance| instance.bytes)
                .collect();
            bytes.sort_unstable();
            let spare = function.instances().saturating_sub(function.least) as usize;
            bytes.iter().skip(spare).sum::<u64>()
        });
        withheld.sum()
    }

    /// Evicts idle instances until as much is free or about to be, also those that functions are to have.
    pub(super) fn make_room_of_all(&mut self, bytes: u64, out: &mut Vec<Decision>) {
        while self.free_bytes() + self.stopping_bytes < bytes {
            let Some(&(_, id)) = self.idle.first() else { return };
            self.stop(id, StopReason::Evicted, out);
        }
    }

    /// Whether an idle instance is kept from others, since its function is to have it.
    pub(super) fn is_withheld(&self, id: InstanceId) -> bool {
        !self.holds_too_much && self.is_to_stay(id)
    }

    /// Whether an idle instance is one that its function is to have. One that has served is none where nothing is kept.
    pub(super) fn is_to_stay(&self, id: InstanceId) -> bool {
        let Some(instance) = self.instances.get(&id) else { return false };
        let Some(function) = self.functions.get(&instance.function) else { return false };
        let is_kept = instance.is_new || self.idle_ns(instance.function) > 0;
        is_kept && function.instances() <= function.least
    }

    /// Instances of a function that can serve, and those that are being made.
    pub fn ready_of(&self, id: FunctionId) -> (u32, u32) {
        self.functions
            .get(&id)
            .map_or((0, 0), |function| (function.idle.len() as u32 + function.busy, function.starting))
    }

    /// Whether a function is to have instances also when nobody calls it.
    pub fn is_provided(&self, id: FunctionId) -> bool {
        self.provided.contains(&id)
    }
}

impl Function {
    /// An instance has ended before it served anybody: what is to take its place is put off.
    pub(super) fn backs_off(&mut self, now: u64) {
        // Several that were made at once have failed of one thing.
        if now < self.provided_from {
            return;
        }
        self.provided_from = now.saturating_add(FIRST_PAUSE_NS << self.failures);
        self.failures = (self.failures + 1).min(FAILURES_MAX);
    }
}
