// SPDX-License-Identifier: Apache-2.0
//! The step of an application: late binding, the claim, the effect.

use std::ops::Deref;

use objects::{Application, FailureCode, Handle, Kind, Limits, TreeView};

use crate::evaluator::{Evaluator, Turn, Wait};
use crate::host::{Applied, Claim, Host, Outcome};
use crate::inputs::Held;
use crate::job::{Job, Partial, State};
use crate::rules;
use crate::steps::{advance, advance_known, recall_goal, uncurry};

impl<D: Deref<Target = [u8]> + Clone> Evaluator<D> {
    /// One step of an application thunk.
    #[inline]
    pub(crate) fn application<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) -> Turn {
        let Some(frame) = job.frames.last_mut() else {
            unreachable!("the caller holds the top frame");
        };
        let thunk = frame.at;
        // What is known needs no more than the relation, and touches nothing else.
        if let Some(next) = host.recall(thunk) {
            job.notes.remembered += u32::from(frame.steps == 0);
            let turn = advance_known(host, frame, next);
            self.release(job);
            return turn;
        }
        let Some(data) = host.local(thunk.definition()) else {
            let turn = recall_goal(host, frame);
            self.release(job);
            return turn.unwrap_or_else(|| Turn::Wait(Wait::Data(vec![thunk.definition()])));
        };
        let tree = TreeView::from_checked(&data);
        if tree.iter().any(|entry| entry.is_encode()) {
            if let Some(turn) = recall_goal(host, frame) {
                return turn;
            }
            if !job.walk.grow(Partial::bytes_of(tree.len()), self.scheduler.walks()) {
                return Turn::Exceed;
            }
            frame.state = State::Resolving(Partial::new(tree, &mut job.notes));
            return Turn::Continue;
        }
        let application = match Application::from_tree(tree) {
            Ok(application) => application,
            Err(error) => {
                let failure = rules::fail_lasting(host, FailureCode::BadThunk, thunk, &error.to_string());
                return advance(frame, failure);
            }
        };
        if application.procedure.kind() == Kind::Tree {
            return uncurry(host, frame, &application);
        }
        if let Some(turn) = self.unready(host, job, &application, &data) {
            return turn;
        }
        let Application { limits, procedure, .. } = application;
        self.claim_and_apply(host, job, thunk, limits, procedure, data)
    }

    /// What must happen before an application may be claimed; `None`: nothing.
    #[inline]
    fn unready<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        application: &Application<'_>,
        data: &D,
    ) -> Option<Turn> {
        let fits = host.reservation_bytes(application)
            <= self.scheduler.allowance_bytes().saturating_add(job.reserved_bytes);
        if fits
            && self.inputs.are_obviously_local(application.tree)
            && host.is_prepared(&application.limits, application.procedure)
        {
            return None;
        }
        self.bind(host, job, application, data)
    }

    /// Late binding: first the inputs, then the procedure's code, then the memory.
    fn bind<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        application: &Application<'_>,
        data: &D,
    ) -> Option<Turn> {
        if let Some(turn) = recall_goal(host, job.frames.last_mut()?) {
            self.release(job);
            return Some(turn);
        }
        // A job that waited for something goes on gathering; else the worker
        // can mostly hold everything itself, which nobody has to count.
        let has_waited = job.held.is_some() || job.room_bytes > 0;
        if (has_waited || !self.inputs.hold(host, application))
            && let Some(turn) = self.gather(host, job, data)
        {
            return Some(turn);
        }
        if !host.is_prepared(&application.limits, application.procedure) {
            // Compiling takes long. Other jobs use this worker and the memory.
            self.release_memory(job);
            let turn = self.gather(host, job, data);
            self.inputs.let_go();
            return Some(turn.unwrap_or(Turn::Wait(Wait::Code(application.limits, application.procedure))));
        }
        let wanted_bytes = host.reservation_bytes(application);
        let had_bytes = self.scheduler.allowance_bytes().saturating_add(job.reserved_bytes);
        if wanted_bytes <= had_bytes {
            return None;
        }
        self.release_memory(job);
        if let Some(bytes) = self.scheduler.try_reserve(wanted_bytes, job.request.priority()) {
            job.reserved_bytes = bytes;
            return None;
        }
        // While it stands in line, other jobs use this worker.
        let turn = self.gather(host, job, data);
        self.inputs.let_go();
        Some(turn.unwrap_or(Turn::Wait(Wait::Memory(wanted_bytes))))
    }

    /// Has the job hold all of the inputs itself, counted. Otherwise, what it
    /// waits for: what is not local, while it keeps what it has; or room, for
    /// which it waits with empty hands, so that no two jobs can each hold what
    /// the other one needs.
    fn gather<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>, data: &D) -> Option<Turn> {
        let definition = job.frames.last()?.at.definition();
        let max_bytes = self.scheduler.held_max_bytes();
        let held = match &mut job.held {
            Some(held) if held.are_of(definition) => held,
            held => held.insert(Box::new(Held::new(definition, data))),
        };
        let missing = held.gather(host, max_bytes);
        let wanted_bytes = held.bytes();
        if wanted_bytes > max_bytes {
            return Some(self.fail_for_size(host, job, wanted_bytes));
        }
        let lacking_bytes = wanted_bytes.saturating_sub(job.room_bytes);
        if lacking_bytes > 0 && !self.scheduler.try_take_room(lacking_bytes, job.request.priority()) {
            // Twice what was too little, so that a deep tree is not begun anew
            // for each of its levels.
            let bytes = wanted_bytes.max(job.room_bytes.saturating_mul(2).min(max_bytes));
            let shares = held.largest();
            self.release(job);
            return Some(Turn::Wait(Wait::Room(bytes, shares)));
        }
        job.room_bytes += lacking_bytes;
        if !missing.is_empty() {
            self.release_memory(job);
            return Some(Turn::Wait(Wait::Data(missing)));
        }
        let excess_bytes = job.room_bytes - wanted_bytes;
        job.room_bytes = wanted_bytes;
        self.scheduler.give_room_back(excess_bytes);
        None
    }

    fn fail_for_size<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        wanted_bytes: u64,
    ) -> Turn {
        self.release(job);
        let max_bytes = self.scheduler.held_max_bytes();
        let detail =
            format!("its inputs take {wanted_bytes} bytes or more, this node holds up to {max_bytes}");
        let failure = rules::fail(host, FailureCode::Resources, job.position(), &detail);
        job.fail(failure);
        Turn::Continue
    }

    /// The application runs elsewhere: what this worker holds for it becomes
    /// the job's. It cannot be refused any more, so this is counted as far as
    /// there is room.
    fn hand_over<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) {
        if job.held.is_none()
            && let Some(frame) = job.frames.last()
            && let definition = frame.at.definition()
            // Whoever runs it holds the definition; if it is not here, it has
            // ended already.
            && let Some(data) = host.local(definition)
        {
            let mut held = Box::new(Held::new(definition, &data));
            while !held.are_complete() && held.gather(host, u64::MAX).is_empty() {}
            let bytes = held.bytes();
            if self.scheduler.try_take_room(bytes, job.request.priority()) {
                job.room_bytes += bytes;
            }
            job.held = Some(held);
        }
        self.inputs.let_go();
    }

    #[inline]
    fn claim_and_apply<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        thunk: Handle,
        limits: Limits,
        procedure: Handle,
        data: D,
    ) -> Turn {
        match host.claim(thunk) {
            Claim::Claimed => {}
            Claim::Known(next) => {
                self.release(job);
                return match job.frames.last_mut() {
                    Some(frame) => advance_known(host, frame, next),
                    None => unreachable!("the caller holds the top frame"),
                };
            }
            Claim::Busy => {
                self.release(job);
                return Turn::Wait(Wait::Busy(thunk));
            }
        }
        if job.frames.len() > 1 && self.scheduler.wants_sparks(&job.request) {
            self.offer_sparks(host, job);
        }
        job.notes.applied += 1;
        match host.apply(thunk, limits, procedure, data, job.id) {
            Applied::Done(outcome) => {
                self.end_application(host, job, outcome);
                Turn::Continue
            }
            pending @ (Applied::Pending | Applied::Coming) => {
                if pending == Applied::Coming {
                    self.ask_ahead(host, job);
                }
                self.hand_over(host, job);
                if let Some(frame) = job.frames.last_mut() {
                    frame.state = State::Applying;
                }
                Turn::Wait(Wait::Pending)
            }
        }
    }

    #[inline]
    pub(crate) fn end_application<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        outcome: Outcome,
    ) {
        self.release(job);
        job.notes.nanos += outcome.cost.nanos;
        job.notes.fuel += outcome.cost.fuel;
        job.notes.charge.add(outcome.cost.charge);
        if !job.is_root {
            // The request may end as soon as others see the result.
            job.report();
        }
        let Some(frame) = job.frames.last_mut() else {
            unreachable!("an application runs for a frame");
        };
        if outcome.is_lasting {
            host.fulfil(frame.at, outcome.result, outcome.cost);
        } else {
            frame.is_lasting = false;
            host.abandon(frame.at);
        }
        frame.state = State::Forcing;
        advance(frame, outcome.result);
    }
}
