// SPDX-License-Identifier: Apache-2.0
//! The step of an application: late binding, the claim, the effect.

use objects::{Application, FailureCode, Handle, Kind, TreeView};

use crate::evaluator::{Evaluator, Turn, Wait};
use crate::host::{Applied, Claim, Host, Outcome};
use crate::job::{Job, Partial, State};
use crate::rules;
use crate::steps::{advance, advance_known, recall_step, uncurry};

impl Evaluator {
    /// One step of an application thunk.
    #[inline]
    pub(crate) fn application<H: Host>(&mut self, host: &mut H, job: &mut Job) -> Turn {
        let Some(frame) = job.frames.last_mut() else {
            unreachable!("the caller holds the top frame");
        };
        let thunk = frame.at;
        let Some(data) = host.local(thunk.definition()) else {
            let turn = match recall_step(host, frame) {
                Some(turn) => turn,
                None => Turn::Wait(Wait::Data(vec![thunk.definition()])),
            };
            self.release(job);
            return turn;
        };
        let tree = TreeView::from_checked(&data);
        if tree.iter().any(|entry| entry.is_encode()) {
            if let Some(turn) = recall_step(host, frame) {
                return turn;
            }
            frame.state = State::Resolving(Partial::new(tree));
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
        if let Some(turn) = self.unready(host, job, &application) {
            return turn;
        }
        self.claim_and_apply(host, job, thunk, &application, &data)
    }

    /// What must happen before an application may be claimed; `None`: nothing.
    #[inline]
    pub(crate) fn unready<H: Host>(
        &mut self,
        host: &mut H,
        job: &mut Job,
        application: &Application<'_>,
    ) -> Option<Turn> {
        let fits = application.limits.memory_bytes
            <= self.scheduler.allowance_bytes().saturating_add(job.reserved_bytes);
        if fits && self.inputs.are_obviously_local(application.tree) {
            return None;
        }
        if let Some(turn) = recall_step(host, job.frames.last_mut()?) {
            self.release(job);
            return Some(turn);
        }
        let missing = self.inputs.missing(host, application.tree);
        if !missing.is_empty() {
            self.release(job);
            return Some(Turn::Wait(Wait::Data(missing)));
        }
        self.inputs.note_procedure(application.procedure);
        (!fits).then_some(Turn::Wait(Wait::Memory(application.limits.memory_bytes)))
    }

    #[inline]
    pub(crate) fn claim_and_apply<H: Host>(
        &mut self,
        host: &mut H,
        job: &mut Job,
        thunk: Handle,
        application: &Application<'_>,
        data: &H::Data,
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
        if job.frames.len() > 1 && self.scheduler.wants_sparks(job.request.priority()) {
            self.offer_sparks(host, job);
        }
        match host.apply(thunk, application, data, job.id) {
            Applied::Done(outcome) => {
                self.end_application(host, job, outcome);
                Turn::Continue
            }
            Applied::Pending => {
                if let Some(frame) = job.frames.last_mut() {
                    frame.state = State::Applying;
                }
                Turn::Wait(Wait::Pending)
            }
        }
    }

    #[inline]
    pub(crate) fn end_application<H: Host>(&mut self, host: &mut H, job: &mut Job, outcome: Outcome) {
        self.release(job);
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
