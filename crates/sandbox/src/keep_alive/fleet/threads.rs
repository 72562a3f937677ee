// SPDX-License-Identifier: Apache-2.0
//! What happens beside the calls: instances are made and ended, time passes.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;

use super::{Bringer, Decision, Error, FunctionId, InstanceId, Live, Said, Shared, State, Ticket};
use crate::{Origin, SandboxId, Spec};

/// Instances whose memory is measured in one look.
const MEASURED_AT_ONCE: usize = 64;

impl Shared {
    /// Makes and ends instances until all is over.
    pub(super) fn make_and_end(self: &Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            // What is ended may free the memory for what is made.
            if !state.stops.is_empty() {
                let some = state.stops.len().min(self.options.vector_max.max(1));
                let stops: Vec<_> = state.stops.drain(..some).collect();
                self.apart(&mut state, |shared, state| shared.end(state, &stops));
            } else if !state.starts.is_empty() {
                let some = state.starts.len().min(self.options.vector_max.max(1));
                let starts: Vec<_> = state.starts.drain(..some).collect();
                self.apart(&mut state, |shared, state| shared.make(state, &starts));
            } else if state.is_over && state.under_way == 0 {
                return;
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    /// Does something that others must know to be under way.
    fn apart(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        act: impl FnOnce(&Arc<Self>, &mut MutexGuard<'_, State>),
    ) {
        state.under_way += 1;
        act(self, state);
        state.under_way -= 1;
        self.progress.notify_all();
        if state.is_over {
            self.work.notify_all();
        }
    }

    fn end(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, stops: &[InstanceId]) {
        let live = stops.iter().filter_map(|id| state.live.remove(id));
        let sandboxes: Vec<SandboxId> = live.map(|live| live.sandbox).collect();
        for id in stops {
            state.unmeasured.remove(id);
        }
        MutexGuard::unlocked(state, || self.remove(&sandboxes));
        for id in stops {
            let decisions = state.policy.stopped(self.now(), *id);
            self.act(state, decisions);
        }
    }

    fn remove(&self, sandboxes: &[SandboxId]) {
        // Both fail only for what is gone already.
        _ = self.sandbox.kill(sandboxes);
        _ = self.sandbox.delete(sandboxes);
    }

    fn make(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, starts: &[(FunctionId, InstanceId)]) {
        let specs = starts.iter().map(|(function, _)| state.specs.get(function).copied());
        // A function with an instance is not forgotten.
        let specs: Vec<Spec> = specs.flatten().collect();
        let made = MutexGuard::unlocked(state, || self.made(&specs));
        for ((function, instance), made) in starts.iter().zip(made) {
            let now = self.now();
            let decisions = match made {
                Ok((live, bytes)) => {
                    state.live.insert(*instance, live);
                    state.policy.settles(*instance, live.home);
                    state.policy.ready(now, *instance, live.start_ns, bytes)
                }
                Err(error) => {
                    let decisions = state.policy.failed(now, *instance);
                    let (decisions, unheard) = tell_failure(state, decisions, error);
                    let spec = state.specs.get(function).filter(|_| state.policy.is_provided(*function));
                    if let (Some(error), Some(&spec)) = (unheard, spec) {
                        MutexGuard::unlocked(state, || (self.options.unheard.0)(&spec, &error));
                    }
                    decisions
                }
            };
            self.act(state, decisions);
        }
    }

    /// Instances that can be called, with the memory that they hold.
    fn made(&self, specs: &[Spec]) -> Vec<Result<(Live, Option<u64>), crate::Error>> {
        let began = Instant::now();
        let mut created = self.sandbox.create(specs);
        let ids: Vec<SandboxId> = created.iter().filter_map(|made| made.as_ref().ok()).copied().collect();
        let mut started = self.sandbox.start(&ids).into_iter();
        for made in created.iter_mut().filter(|made| made.is_ok()) {
            if let (Ok(id), Some(Err(error))) = (&*made, started.next()) {
                self.remove(&[*id]);
                *made = Err(error);
            }
        }
        let start_ns = began.elapsed().as_nanos() as u64;
        let ids: Vec<SandboxId> = created.iter().filter_map(|made| made.as_ref().ok()).copied().collect();
        let mut facts = self.sandbox.state(&ids).into_iter().zip(self.sandbox.memory_bytes(&ids));
        let made = created.into_iter().map(|made| {
            let sandbox = made?;
            let (state, bytes) = facts.next().map_or((None, None), |(state, bytes)| (state.ok(), bytes.ok()));
            let origin = state.map_or(Origin::Cold, |state| state.origin);
            let home = self.sandbox.home(sandbox);
            Ok((Live { sandbox, origin, start_ns, home }, bytes.flatten()))
        });
        made.collect()
    }

    /// Looks at the instances every now and then until all is over.
    pub(super) fn pass_time(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.is_over {
            let next = Instant::now() + self.options.tick;
            while !state.is_over && !self.progress.wait_until(&mut state, next).timed_out() {}
            // It takes locks of its own.
            let is_served = state.sharing.take_served();
            let (kept, time) = MutexGuard::unlocked(&mut state, || {
                let time = is_served.then(self.options.processor_time).flatten();
                (self.sandbox.kept_bytes(), time)
            });
            state.policy.keep(kept);
            let are_full = state.sharing.processors_did(time);
            state.policy.note_full(are_full);
            self.look(&mut state);
            self.refuse_late(&mut state);
            let now = self.now();
            for function in state.policy.waiting().collect::<Vec<_>>() {
                state.count_enough(now, function);
            }
            let decisions = state.policy.tick(now);
            self.act(&mut state, decisions);
        }
    }

    /// Calls that were begun, and have waited beyond their deadline.
    fn refuse_late(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        let now = Instant::now();
        let late = state.turns.iter().filter(|(_, turn)| {
            matches!(turn.said, Said::Nothing)
                && matches!(turn.bringer, Bringer::Nobody(_, deadline) if deadline <= now)
        });
        let late: Vec<Ticket> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            self.give_up(state, ticket, Error::Late);
        }
    }

    /// Measures what ran, and finds out what died while it was idle.
    fn look(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        let mut ran = Vec::new();
        while let Some(id) = state.unmeasured.pop_first() {
            ran.extend(state.live.get(&id).map(|live| (id, live.sandbox)));
            if ran.len() == MEASURED_AT_ONCE {
                break;
            }
        }
        let idle = state.policy.idle();
        let idle = idle.filter_map(|id| Some((id, state.live.get(&id)?.sandbox)));
        let idle: Vec<(InstanceId, SandboxId)> = idle.collect();
        let (bytes, states) = MutexGuard::unlocked(state, || {
            let sandboxes = |of: &[(InstanceId, SandboxId)]| of.iter().map(|it| it.1).collect::<Vec<_>>();
            (self.sandbox.memory_bytes(&sandboxes(&ran)), self.sandbox.state(&sandboxes(&idle)))
        });
        for ((id, _), bytes) in ran.into_iter().zip(bytes) {
            if let Ok(Some(bytes)) = bytes {
                state.policy.measured(id, bytes);
            }
        }
        for ((id, _), seen) in idle.into_iter().zip(states) {
            // What ran in the meantime is looked at when its call ends.
            if matches!(seen, Ok(seen) if !seen.is_alive) {
                let decisions = state.policy.died(self.now(), id);
                self.act(state, decisions);
            }
        }
    }
}

/// Who waited for an instance that failed hears why. What else is to be done, and the error if nobody waited.
fn tell_failure(
    state: &mut State,
    decisions: Vec<Decision>,
    error: crate::Error,
) -> (Vec<Decision>, Option<crate::Error>) {
    let mut error = Some(error);
    let mut others = Vec::new();
    for decision in decisions {
        match decision {
            Decision::Refuse { ticket, reason } => state.refuse(ticket, Error::refused(reason, error.take())),
            other => others.push(other),
        }
    }
    (others, error)
}
