// SPDX-License-Identifier: Apache-2.0
//! What may happen, and what follows from it.

use std::time::Duration;

use super::growth::expected_until;
use super::{
    Decision, Found, FunctionId, InstanceId, Policy, RefuseReason, Settings, State, StopReason, Ticket,
    Waiting,
};
use crate::Home;

/// Idle instances that are looked at for one that is at home where a call comes from.
const LOOKED_AT_MAX: usize = 64;

impl Policy {
    /// An instance that is about to be ready is heard by this event loop.
    pub fn settles(&mut self, id: InstanceId, home: Option<Home>) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.home = home;
        }
    }

    /// A call of a function came. It runs, is refused, or waits until another
    /// event says more of its ticket.
    /// Of the idle instances that were used last one that is at home `here` is taken, if there is any.
    pub fn arrive(
        &mut self,
        now: u64,
        id: FunctionId,
        settings: Settings,
        ticket: Ticket,
        here: Option<Home>,
    ) -> Vec<Decision> {
        let mut out = Vec::new();
        if let Err(reason) = self.admit(now, id, settings, &mut out) {
            out.push(Decision::Refuse { ticket, reason });
            return out;
        }
        if self.employs_idle(now, id, ticket, here, &mut out) {
            return out;
        }
        if let Err(reason) = self.queue(now, id, ticket, &mut out) {
            if let Some(function) = self.functions.get_mut(&id) {
                function.counts.refused += 1;
            }
            out.push(Decision::Refuse { ticket, reason });
        } else {
            self.grow(now, &mut out);
        }
        out
    }

    /// A call that was let in before has to be served by another instance. It goes before all that came
    /// later, and is refused only where all come to their end: that it waited is nobody's doing.
    pub fn again(
        &mut self,
        now: u64,
        id: FunctionId,
        settings: Settings,
        ticket: Ticket,
        since: u64,
    ) -> Vec<Decision> {
        let mut out = Vec::new();
        if self.is_draining || !self.remember(id, settings, &mut out) {
            out.push(Decision::Refuse { ticket, reason: RefuseReason::Draining });
            return out;
        }
        let Some(function) = self.functions.get_mut(&id) else { return out };
        // It is counted by the instance that it begins in.
        function.counts.warm = function.counts.warm.saturating_sub(1);
        if !self.employs_idle(now, id, ticket, None, &mut out) {
            self.wait(now, id, Waiting { ticket, since, was_in: true });
            self.grow(now, &mut out);
        }
        out
    }

    /// Gives a call the idle instance that was used last, unless others wait; one that is at home here
    /// goes before others.
    fn employs_idle(
        &mut self,
        now: u64,
        id: FunctionId,
        ticket: Ticket,
        here: Option<Home>,
        out: &mut Vec<Decision>,
    ) -> bool {
        let Some(function) = self.functions.get(&id).filter(|function| function.waiting.is_empty()) else {
            return false;
        };
        let is_near = |id: &&InstanceId| self.instances.get(*id).is_some_and(|it| it.home == here);
        let near = here.and_then(|_| function.idle.iter().rev().take(LOOKED_AT_MAX).find(is_near));
        let Some(&instance) = near.or(function.idle.last()) else { return false };
        self.wake(instance);
        self.grant(now, instance, ticket, out);
        true
    }

    /// Has a call wait, before all that came later.
    fn wait(&mut self, now: u64, id: FunctionId, waiting: Waiting) {
        let Some(function) = self.functions.get_mut(&id) else { return };
        if function.waiting.is_empty() {
            function.pressed_since = now;
        }
        // Most have come last.
        let earlier = function.waiting.iter().rposition(|other| other.ticket < waiting.ticket);
        function.waiting.insert(earlier.map_or(0, |place| place + 1), waiting);
        self.wanting.insert(id);
        self.tickets.insert(waiting.ticket, id);
    }

    /// Notes whether processors have no time to spare. Where nobody knows, it is thought that they have none.
    pub fn note_full(&mut self, are_full: bool) {
        self.are_full = are_full;
    }

    /// Notes whether as many instances of a function are in use as are of use: its calls compute, so that more
    /// instances would only share the processors with them. None is made until a call has waited for long.
    pub fn note_enough(&mut self, id: FunctionId, has_enough: bool) {
        if let Some(function) = self.functions.get_mut(&id) {
            function.has_enough = has_enough;
        }
    }

    /// A call came, and runs in an instance of its function that is in use.
    pub fn joined(&mut self, now: u64, id: FunctionId) {
        if let Some(function) = self.functions.get_mut(&id) {
            function.counts.arrivals += 1;
            function.counts.warm += 1;
            function.pauses.arrived(now);
        }
    }

    /// The oldest waiting call of a function, which waits no more: it runs in an
    /// instance that is in use.
    pub fn take_waiting(&mut self, id: FunctionId) -> Option<Ticket> {
        let ticket = self.next_waiting(id)?.ticket;
        if let Some(function) = self.functions.get_mut(&id) {
            function.counts.warm += 1;
        }
        Some(ticket)
    }

    fn admit(
        &mut self,
        now: u64,
        id: FunctionId,
        settings: Settings,
        out: &mut Vec<Decision>,
    ) -> Result<(), RefuseReason> {
        if self.is_draining {
            return Err(RefuseReason::Draining);
        }
        if !self.remember(id, settings, out) {
            return Err(RefuseReason::TooManyFunctions(self.options.functions_max));
        }
        let Some(function) = self.functions.get_mut(&id) else { return Ok(()) };
        function.counts.arrivals += 1;
        function.pauses.arrived(now);
        let (size_bytes, memory_bytes) = (settings.size_bytes, self.options.memory_bytes);
        if size_bytes > memory_bytes && !function.is_measured() {
            function.counts.refused += 1;
            return Err(RefuseReason::TooBig { size_bytes, memory_bytes });
        }
        Ok(())
    }

    /// Lets a call wait. Where all places are taken, the function with the
    /// most waiting calls gives up its newest.
    fn queue(
        &mut self,
        now: u64,
        id: FunctionId,
        ticket: Ticket,
        out: &mut Vec<Decision>,
    ) -> Result<(), RefuseReason> {
        let own = self.functions.get(&id).map_or(0, |function| function.waiting.len());
        if own >= self.options.waiting_max {
            return Err(RefuseReason::FunctionFull(self.options.waiting_max));
        }
        if self.tickets.len() >= self.options.waiting_all_max {
            let reason = RefuseReason::AllFull(self.options.waiting_all_max);
            let lengths = self.wanting.iter().filter_map(|other| {
                Some((self.functions.get(other)?.waiting.len(), std::cmp::Reverse(*other)))
            });
            let Some((longest, std::cmp::Reverse(other))) = lengths.max() else { return Err(reason) };
            if longest <= own + 1 {
                return Err(reason);
            }
            if !self.push_out(other, reason, out) {
                return Err(reason);
            }
        }
        self.wait(now, id, Waiting { ticket, since: now, was_in: false });
        Ok(())
    }

    /// Refuses the newest call of a function that may be refused; whether there is one.
    fn push_out(&mut self, id: FunctionId, reason: RefuseReason, out: &mut Vec<Decision>) -> bool {
        let Some(function) = self.functions.get_mut(&id) else { return false };
        let newest = function.waiting.iter().rposition(|waiting| !waiting.was_in);
        let Some(newest) = newest.and_then(|place| function.waiting.remove(place)) else { return false };
        function.counts.refused += 1;
        self.tickets.remove(&newest.ticket);
        out.push(Decision::Refuse { ticket: newest.ticket, reason });
        true
    }

    /// A waiting call gave up. Nothing happens if it does not wait any more.
    pub fn cancel(&mut self, now: u64, ticket: Ticket) -> Vec<Decision> {
        let mut out = Vec::new();
        let Some(id) = self.tickets.remove(&ticket) else { return out };
        if let Some(function) = self.functions.get_mut(&id) {
            function.waiting.retain(|waiting| waiting.ticket != ticket);
            function.counts.cancelled += 1;
            if function.waiting.is_empty() {
                self.wanting.remove(&id);
            }
        }
        self.grow(now, &mut out);
        out
    }

    /// An instance was made, in `cost_ns`; it holds `bytes`, if that is known.
    pub fn ready(&mut self, now: u64, id: InstanceId, cost_ns: u64, bytes: Option<u64>) -> Vec<Decision> {
        let mut out = Vec::new();
        self.charge_measured(id, bytes);
        let Some(instance) = self.instances.get_mut(&id) else { return out };
        let Some(function) = self.functions.get_mut(&instance.function) else { return out };
        if !matches!(instance.state, State::Starting) {
            return out;
        }
        instance.ready_at = now;
        function.starting -= 1;
        self.providing -= u32::from(instance.is_provided);
        function.cost_ns.add(cost_ns);
        self.employ(now, id, &mut out);
        self.grow(now, &mut out);
        out
    }

    /// An instance could not be made, and nothing of it is left.
    pub fn failed(&mut self, now: u64, id: InstanceId) -> Vec<Decision> {
        let mut out = Vec::new();
        if !self.instances.get(&id).is_some_and(|it| matches!(it.state, State::Starting)) {
            return out;
        }
        let Some(instance) = self.instances.remove(&id) else { return out };
        self.used_bytes -= instance.bytes;
        self.providing -= u32::from(instance.is_provided);
        let mut is_waited_for = true;
        if let Some(function) = self.functions.get_mut(&instance.function) {
            function.starting -= 1;
            // Others come to those who wait.
            let come = function.busy > 0 || function.waiting.len() <= function.starting as usize;
            is_waited_for = !(instance.is_provided && come);
            function.held_bytes -= instance.bytes;
            function.counts.failed_starts += 1;
            function.backs_off(now);
            if instance.is_ahead {
                function.counts.prewarms_wasted += 1;
            }
        }
        // Whoever waits longest hears of it; the others have starts of their own.
        if is_waited_for && let Some(ticket) = self.without_start(instance.function) {
            out.push(Decision::Refuse { ticket, reason: RefuseReason::StartFailed(id) });
        }
        self.grow(now, &mut out);
        out
    }

    /// Takes the call that has waited longest, since there is no instance for it. One that stood in line
    /// before goes on to wait for those in use, if there are any.
    fn without_start(&mut self, id: FunctionId) -> Option<Ticket> {
        let function = self.functions.get_mut(&id)?;
        let place = match function.busy {
            0 => 0,
            _ => function.waiting.iter().position(|waiting| !waiting.was_in)?,
        };
        let waiting = function.waiting.remove(place)?;
        function.counts.refused += 1;
        if function.waiting.is_empty() {
            self.wanting.remove(&id);
        }
        self.tickets.remove(&waiting.ticket);
        Some(waiting.ticket)
    }

    /// A call has ended; `is_alive` says whether its instance can serve again.
    pub fn ended(&mut self, now: u64, id: InstanceId, is_alive: bool) -> Vec<Decision> {
        let mut out = Vec::new();
        let Some(instance) = self.instances.get(&id) else { return out };
        let State::Busy { since } = instance.state else { return out };
        if let Some(function) = self.functions.get_mut(&instance.function) {
            function.busy -= 1;
            (function.failures, function.provided_from) = (0, now);
            function.duration_ns.add(now.saturating_sub(since));
        }
        if is_alive {
            self.employ(now, id, &mut out);
        } else {
            let until = now.saturating_add(self.idle_ns(instance.function));
            self.stop(id, StopReason::Died, &mut out);
            self.leaves_place(id, until);
        }
        self.grow(now, &mut out);
        out
    }

    /// A call gave its instance back without having run in it: it was only to
    /// be made. It is as new as it was.
    pub fn unused(&mut self, now: u64, id: InstanceId, found: Found) -> Vec<Decision> {
        let mut out = Vec::new();
        let Some(instance) = self.instances.get_mut(&id) else { return out };
        if !matches!(instance.state, State::Busy { .. }) {
            return out;
        }
        instance.is_new = found != Found::Warm;
        if let Some(function) = self.functions.get_mut(&instance.function) {
            function.busy -= 1;
            function.frequency = function.frequency.saturating_sub(1);
            let counts = &mut function.counts;
            counts.arrivals -= 1;
            match found {
                Found::Warm => counts.warm -= 1,
                Found::Prewarmed => counts.prewarmed -= 1,
                Found::New => counts.cold -= 1,
            }
        }
        self.employ(now, id, &mut out);
        self.grow(now, &mut out);
        out
    }

    /// No further calls of a function are expected: its idle instances end
    /// now, the others when no call waits for them. A later call says anew how
    /// long they are kept.
    pub fn retire(&mut self, now: u64, id: FunctionId) -> Vec<Decision> {
        let mut out = Vec::new();
        let Some(function) = self.functions.get_mut(&id) else { return out };
        function.settings.idle_max = Some(Duration::ZERO);
        let idle = function.idle.clone();
        self.provide_no_more(id);
        for instance in idle {
            self.stop(instance, StopReason::Expired, &mut out);
        }
        self.grow(now, &mut out);
        out
    }

    /// What the instances of a function were made with has changed: those that
    /// there are serve nobody any more but the calls that they run.
    pub fn renew(&mut self, now: u64, id: FunctionId) -> Vec<Decision> {
        let mut out = Vec::new();
        for instance in self.instances.values_mut().filter(|instance| instance.function == id) {
            instance.is_outdated = true;
        }
        let Some(function) = self.functions.get_mut(&id) else { return out };
        // It may be what kept them from being made.
        (function.failures, function.provided_from) = (0, now);
        for instance in function.idle.clone() {
            self.stop(instance, StopReason::Expired, &mut out);
        }
        self.grow(now, &mut out);
        out
    }

    /// An idle instance turned out to be dead.
    pub fn died(&mut self, now: u64, id: InstanceId) -> Vec<Decision> {
        let mut out = Vec::new();
        let idle = self.instances.get(&id).filter(|it| matches!(it.state, State::Idle { .. }));
        let Some((state, is_new, function)) = idle.map(|it| (it.state, it.is_new, it.function)) else {
            return out;
        };
        self.stop(id, StopReason::Died, &mut out);
        // Those that end before they serve anybody would be made for ever.
        match state {
            State::Idle { until, .. } if !is_new => self.leaves_place(id, until),
            _ => _ = self.functions.entry(function).and_modify(|function| function.backs_off(now)),
        }
        self.grow(now, &mut out);
        out
    }

    /// As soon as its memory is free, another one takes its place, and is kept until then.
    fn leaves_place(&mut self, id: InstanceId, until: u64) {
        self.instances.entry(id).and_modify(|instance| instance.succeeded_until = Some(until));
    }

    /// For how long an instance is kept without a call.
    pub(super) fn idle_ns(&self, id: FunctionId) -> u64 {
        let own = self.functions.get(&id).and_then(|function| function.settings.idle_max);
        u64::try_from(own.unwrap_or(self.options.idle_max).as_nanos()).unwrap_or(u64::MAX)
    }

    /// An instance that can serve gets the next call, rests, or gives way.
    fn employ(&mut self, now: u64, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(instance) = self.instances.get(&id) else { return };
        let (function, is_ahead, kept_until) = (instance.function, instance.is_ahead, instance.kept_until);
        if self.is_draining {
            self.stop(id, StopReason::Drained, out);
        } else if instance.is_outdated {
            self.stop(id, StopReason::Expired, out);
        } else if !self.wanting.contains(&function) {
            let known = self.functions.get(&function);
            let idle_ns = self.idle_ns(function);
            // What has served is not used again where nothing is kept, also if there are to be some.
            let is_to_stay = instance.is_new && known.is_some_and(|it| it.instances() < it.least);
            if idle_ns == 0 && !is_ahead && !is_to_stay {
                return self.stop(id, StopReason::Expired, out);
            }
            let expected = known.and_then(|it| expected_until(it, now)).filter(|_| is_ahead);
            let until = expected.or(kept_until).unwrap_or(now.saturating_add(idle_ns));
            self.rest(id, until);
        } else if self.yields(now, id) {
            self.stop(id, StopReason::Yielded, out);
        } else if let Some(waiting) = self.next_waiting(function) {
            self.grant(now, id, waiting.ticket, out);
        }
    }

    /// An instance has ended, and its memory is free.
    pub fn stopped(&mut self, now: u64, id: InstanceId) -> Vec<Decision> {
        let mut out = Vec::new();
        let is_stopping = self.instances.get(&id).is_some_and(|it| matches!(it.state, State::Stopping));
        if !is_stopping {
            return out;
        }
        let Some(instance) = self.instances.remove(&id) else { return out };
        self.used_bytes -= instance.bytes;
        self.stopping_bytes -= instance.bytes;
        self.grow(now, &mut out);
        if let Some(until) = instance.succeeded_until {
            self.replace(now, instance.function, until, &mut out);
        }
        out
    }

    /// So much memory does an instance hold, as was measured. Where that is
    /// more than there is for all, the next `tick` evicts.
    pub fn measured(&mut self, id: InstanceId, bytes: u64) {
        self.charge_measured(id, Some(bytes));
    }

    fn charge_measured(&mut self, id: InstanceId, bytes: Option<u64>) {
        let Some(bytes) = bytes else { return };
        let charged = self.charge(bytes);
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(function) = self.functions.get_mut(&instance.function) else { return };
        if matches!(instance.state, State::Stopping) {
            return;
        }
        self.used_bytes = self.used_bytes - instance.bytes + charged;
        function.held_bytes = function.held_bytes - instance.bytes + charged;
        if matches!(instance.state, State::Idle { .. }) {
            self.idle_bytes = self.idle_bytes - instance.bytes + charged;
        }
        function.measured(bytes);
        instance.bytes = charged;
    }

    /// Time has passed. To be called some times a second.
    pub fn tick(&mut self, now: u64) -> Vec<Decision> {
        let mut out = Vec::new();
        let over = self.idle.iter().filter_map(|&(_, id)| {
            let instance = self.instances.get(&id)?;
            let State::Idle { until, .. } = instance.state else { return None };
            let reason = if instance.is_ahead { StopReason::Wasted } else { StopReason::Expired };
            (until <= now).then_some((id, reason))
        });
        let over: Vec<_> = over.collect();
        for (id, reason) in over {
            if !self.is_to_stay(id) {
                self.stop(id, reason, &mut out);
            }
        }
        // Instances grow while they run, and so does what they are forked from.
        while self.used_bytes - self.stopping_bytes > self.budget() {
            let Some((_, id)) = self.first_to_go().or(self.idle.first().copied()) else { break };
            self.stop(id, StopReason::Evicted, &mut out);
        }
        self.grow(now, &mut out);
        self.provision(now, &mut out);
        self.prewarm(now, &mut out);
        out
    }

    /// All is to end: who waits is refused, idle instances are stopped now and
    /// the others when their call or start ends.
    pub fn drain(&mut self, now: u64) -> Vec<Decision> {
        let mut out = Vec::new();
        self.is_draining = true;
        let wanting: Vec<FunctionId> = self.wanting.iter().copied().collect();
        for id in wanting {
            while let Some(waiting) = self.next_waiting(id) {
                if let Some(function) = self.functions.get_mut(&id) {
                    function.counts.refused += 1;
                }
                let reason = RefuseReason::Draining;
                out.push(Decision::Refuse { ticket: waiting.ticket, reason });
            }
        }
        while let Some(&(_, id)) = self.idle.first() {
            self.stop(id, StopReason::Drained, &mut out);
        }
        self.grow(now, &mut out);
        out
    }
}
