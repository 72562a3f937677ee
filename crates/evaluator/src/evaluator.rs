// SPDX-License-Identifier: Apache-2.0
//! The walk of one worker.
//!
//! ```text
//! goal ── thunk ──step──▶ thunk ──step──▶ value ──deepen──▶ complete value
//!            │                                    │
//!            └ needs other goals: frames above this one on the job's stack
//! ```
//!
//! Each turn of [`Evaluator::run`] looks at the top frame and does one of
//! four things: go on in it, return a value to the frame below, call another
//! goal, or wait. Memory is reserved and the step claimed only when all
//! inputs are local: right before the procedure runs.

use std::sync::Arc;

use objects::{Application, FailureCode, Handle, Kind, Selection, TreeView};

use crate::admission::Reservation;
use crate::host::{Applied, Claim, Fetch, Host, Outcome, Rule};
use crate::job::{FRAMES_MAX, Frame, Job, JobId, Partial, State};
use crate::rules::{self, Inputs, Lacks};
use crate::scheduler::{Event, Request, Scheduler};

/// Turns after which a job makes room for others of its priority.
const SLICE_TURNS: u32 = 4096;
/// Frames for which a finished job may keep room.
const SPARE_FRAMES_MAX: usize = 1024;
/// Entries of a tree that one turn looks at.
const ENTRIES_PER_TURN: usize = 4096;

/// How a run of a job ended.
#[derive(Debug)]
pub enum Progress {
    /// A request has its result: a value, perhaps a failure.
    Finished(Arc<Request>, Handle),
    /// A spark is done, or no longer wanted.
    Spent,
    /// The job waits for events, or for its turn.
    SetAside,
}

enum Turn {
    Continue,
    Return(Handle),
    Call(Handle),
    Wait(Wait),
}

enum Wait {
    Busy(Handle),
    Data(Vec<Handle>),
    Memory(u64),
    Pending,
}

/// One worker's evaluator.
#[derive(Debug)]
pub struct Evaluator {
    scheduler: Arc<Scheduler>,
    inputs: Inputs,
    /// A finished job whose allocations are used again.
    spare: Option<Job>,
}

impl Evaluator {
    /// An evaluator on top of the shared state.
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler, inputs: Inputs::default(), spare: None }
    }

    /// Walks `goal`, an encode, on the caller's worker, without a queue in
    /// between. If the answer is [`Progress::SetAside`], the job goes on as
    /// any other: by [`Scheduler::next_job`] and [`Evaluator::run`].
    #[inline]
    pub fn evaluate<H: Host>(&mut self, host: &mut H, request: &Arc<Request>, goal: Handle) -> Progress {
        let id = JobId(self.scheduler.new_id());
        let job = match self.spare.take() {
            Some(mut job) => {
                job.restart(id, Arc::clone(request), goal);
                job
            }
            None => Job::new(id, Arc::clone(request), goal, true),
        };
        self.run(host, job)
    }

    /// Runs a job until it ends or has to wait.
    pub fn run<H: Host>(&mut self, host: &mut H, mut job: Job) -> Progress {
        self.take_event(host, &mut job);
        let mut turns = 0;
        loop {
            // A claim is ended by the application's end, not by its request's:
            // others may wait for it.
            if let Some(code) = job.request.stopped()
                && !job.holds_claim()
            {
                return self.stop(host, job, code);
            }
            turns += 1;
            let slice_is_over = turns > SLICE_TURNS;
            if turns > 1 && self.scheduler.should_yield(job.request.priority(), slice_is_over) {
                self.scheduler.yield_job(job, slice_is_over);
                return Progress::SetAside;
            }
            match self.turn(host, &mut job) {
                Turn::Continue => {}
                Turn::Return(value) => {
                    if let Some(result) = self.give_back(host, &mut job, value) {
                        return self.finish(job, result);
                    }
                }
                Turn::Call(goal) => self.call(host, &mut job, goal),
                Turn::Wait(wait) => match self.set_aside(host, job, wait) {
                    Some(resumed) => {
                        job = resumed;
                        self.take_event(host, &mut job);
                    }
                    None => return Progress::SetAside,
                },
            }
        }
    }

    fn finish(&mut self, mut job: Job, result: Handle) -> Progress {
        debug_assert_eq!(job.reserved_bytes, 0);
        self.release(&mut job);
        if !job.is_root {
            return Progress::Spent;
        }
        let request = Arc::clone(&job.request);
        if job.frames.capacity() <= SPARE_FRAMES_MAX {
            self.spare = Some(job);
        }
        Progress::Finished(request, result)
    }

    fn stop<H: Host>(&mut self, host: &mut H, mut job: Job, code: FailureCode) -> Progress {
        self.release(&mut job);
        if !job.is_root {
            return Progress::Spent;
        }
        if let Some(frame) = job.frames.last()
            && frame.at.is_failure()
        {
            // The application that was interrupted has said so, with its name.
            let failure = frame.at;
            return self.finish(job, failure);
        }
        let why = if code == FailureCode::Deadline { "the deadline passed" } else { "nobody waits any more" };
        let failure = rules::fail(host, code, job.position(), why);
        self.finish(job, failure)
    }

    /// Acts on what came while the job was parked.
    fn take_event<H: Host>(&mut self, host: &mut H, job: &mut Job) {
        match job.event.take() {
            Some(Event::Applied(outcome)) if job.holds_claim() => {
                self.end_application(host, job, outcome);
            }
            Some(Event::Missing(object)) if !job.holds_claim() => {
                let position = job.position();
                let detail = format!("{object} is not on this node; store it with `sinew put` and ask again");
                let failure = rules::fail(host, FailureCode::MissingData, position, &detail);
                self.release(job);
                if let Some(frame) = job.frames.last_mut() {
                    frame.at = failure;
                    frame.state = State::Forcing;
                }
            }
            // Nothing that the job waits for now: it looks, and waits again.
            Some(_) | None => {}
        }
    }

    #[inline]
    fn turn<H: Host>(&mut self, host: &mut H, job: &mut Job) -> Turn {
        let Some(frame) = job.frames.last_mut() else {
            unreachable!("a job ends with its last frame");
        };
        match &mut frame.state {
            State::Forcing => match frame.at.kind() {
                Kind::Application => self.application(host, job),
                Kind::Selection => selection(host, frame),
                Kind::Identification => {
                    frame.at = frame.at.definition();
                    // The identity is no step of its own, but behind one the
                    // result does not follow from that one alone.
                    frame.steps = frame.steps.saturating_mul(2);
                    Turn::Continue
                }
                Kind::Strict | Kind::Shallow => forward(frame),
                _ => complete(host, frame),
            },
            State::Resolving(_) => resolve(host, frame),
            State::Deepening(partial) => deepen(host, partial, frame.at),
            State::Applying => Turn::Wait(Wait::Pending),
            State::Selecting | State::Forwarding => unreachable!("the frame above is the top one"),
        }
    }

    /// Hands a value to the frame below. `Some`: there is none, the job is done.
    #[inline]
    fn give_back<H: Host>(&mut self, host: &mut H, job: &mut Job, value: Handle) -> Option<Handle> {
        let frame = job.frames.pop()?;
        remember_goal(host, &frame, value);
        job.offered = job.offered.min(job.frames.len().saturating_sub(1));
        let Some(below) = job.frames.last_mut() else {
            return Some(value);
        };
        below.is_lasting &= frame.is_lasting;
        if value.is_failure() {
            // Whoever needed this cannot have a result either.
            below.at = value;
            below.state = State::Forcing;
            return None;
        }
        match &mut below.state {
            State::Resolving(partial) | State::Deepening(partial) => partial.replace(value),
            State::Selecting => {
                below.state = State::Forcing;
                below.selected = Some(value);
            }
            State::Forwarding => {
                below.state = State::Forcing;
                advance(below, value);
            }
            State::Forcing | State::Applying => unreachable!("such a frame calls nobody"),
        }
        None
    }

    fn call<H: Host>(&mut self, host: &mut H, job: &mut Job, goal: Handle) {
        if job.frames.len() >= FRAMES_MAX {
            let detail = "the evaluation nests deeper than 16,777,216 goals";
            let failure = rules::fail(host, FailureCode::Resources, job.position(), detail);
            if let Some(frame) = job.frames.last_mut() {
                frame.at = failure;
                frame.state = State::Forcing;
            }
            return;
        }
        job.frames.push(Frame::new(goal));
        if self.scheduler.wants_sparks(job.request.priority()) {
            self.offer_sparks(host, job);
        }
    }

    /// Offers goals of the oldest frames, last ones first: what this walk
    /// would come to at the very end.
    fn offer_sparks<H: Host>(&mut self, host: &mut H, job: &mut Job) {
        let priority = job.request.priority();
        while self.scheduler.wants_sparks(priority) && job.offered < job.frames.len() {
            let frame = &mut job.frames[job.offered];
            let spark = match &mut frame.state {
                State::Resolving(partial) => next_spark(host, partial, true),
                State::Deepening(partial) => next_spark(host, partial, false),
                _ => None,
            };
            match spark {
                Some(goal) => self.scheduler.offer(&job.request, goal),
                // The top frame may yet begin with another tree.
                None if job.offered + 1 == job.frames.len() => break,
                None => job.offered += 1,
            }
        }
    }

    /// One step of an application thunk.
    #[inline]
    fn application<H: Host>(&mut self, host: &mut H, job: &mut Job) -> Turn {
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
    fn unready<H: Host>(
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
    fn claim_and_apply<H: Host>(
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
    fn end_application<H: Host>(&mut self, host: &mut H, job: &mut Job, outcome: Outcome) {
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

    #[inline]
    fn release(&self, job: &mut Job) {
        if job.reserved_bytes != 0 {
            self.scheduler.release(std::mem::take(&mut job.reserved_bytes));
        }
    }

    /// Parks the job and asks for what it waits for. Gives the job back if
    /// all of it came at once.
    fn set_aside<H: Host>(&mut self, host: &mut H, mut job: Job, wait: Wait) -> Option<Job> {
        let id = job.id;
        match wait {
            Wait::Pending => {}
            Wait::Busy(thunk) => {
                self.offer_sparks(host, &mut job);
                self.scheduler.expect(id, 1);
                if !host.wait(thunk, id) {
                    self.scheduler.resume(id, Event::Look);
                }
            }
            Wait::Data(objects) => {
                self.scheduler.expect(id, objects.len());
                for object in objects {
                    match host.fetch(object, id) {
                        Fetch::Here => self.scheduler.resume(id, Event::Arrived),
                        Fetch::Missing => self.scheduler.resume(id, Event::Missing(object)),
                        Fetch::Coming => {}
                    }
                }
            }
            Wait::Memory(bytes) => {
                self.scheduler.expect(id, 1);
                match self.scheduler.reserve(id, bytes, job.request.priority()) {
                    Reservation::Granted(bytes) => self.scheduler.resume(id, Event::Admitted(bytes)),
                    Reservation::Queued => {}
                    Reservation::Impossible => {
                        let largest = self.scheduler.largest_bytes();
                        let detail = format!("{bytes} bytes of memory are wanted, this node has {largest}");
                        let failure = rules::fail(host, FailureCode::Resources, job.position(), &detail);
                        if let Some(frame) = job.frames.last_mut() {
                            frame.at = failure;
                        }
                        self.scheduler.resume(id, Event::Look);
                    }
                }
            }
        }
        self.scheduler.park(job)
    }
}

/// Goes on from the result of a step.
#[inline]
fn advance(frame: &mut Frame, next: Handle) -> Turn {
    frame.at = next;
    frame.steps = frame.steps.saturating_add(1);
    // Belongs to the selection that was taken, by this job or by another one.
    frame.selected = None;
    Turn::Continue
}

/// Looks for what the frame's next step is known to lead to, or else, before
/// the first step, for the goal's own result: either may have been forgotten
/// without the other.
fn recall_step<H: Host>(host: &mut H, frame: &mut Frame) -> Option<Turn> {
    if let Some(next) = host.recall(frame.at) {
        return Some(advance_known(host, frame, next));
    }
    if frame.steps > 0 {
        return None;
    }
    let value = host.recall(frame.goal)?;
    frame.is_recorded = true;
    Some(Turn::Return(value))
}

/// Goes on from the remembered result of a step. If it was the goal's first,
/// the goal's own result may be remembered too.
#[inline]
fn advance_known<H: Host>(host: &mut H, frame: &mut Frame, next: Handle) -> Turn {
    let is_first = frame.steps == 0;
    if is_first
        && !rules::is_final(next)
        && let Some(value) = host.recall(frame.goal)
    {
        frame.is_recorded = true;
        return Turn::Return(value);
    }
    advance(frame, next)
}

/// Records the result of a goal, unless it follows from a single step.
#[inline]
fn remember_goal<H: Host>(host: &mut H, frame: &Frame, value: Handle) {
    let follows = frame.is_recorded || value.is_failure() || (frame.steps <= 1 && rules::is_final(value));
    if !frame.is_lasting {
        return;
    }
    let is_identity = frame.steps == 0 && !(frame.goal.names_tree() && frame.goal.kind() == Kind::Strict);
    if !follows && !is_identity {
        let rule = if frame.goal.kind() == Kind::Strict { Rule::Strict } else { Rule::Shallow };
        host.remember(frame.goal, value, rule);
    }
}

/// An encode that a procedure or selection gave: its result is the frame's
/// value. Where the frame wants as much as the encode asks for, or more, the
/// chain simply goes on.
fn forward(frame: &mut Frame) -> Turn {
    let encode = frame.at;
    if encode.kind() == Kind::Strict && frame.goal.kind() == Kind::Shallow {
        frame.state = State::Forwarding;
        return Turn::Call(encode);
    }
    match encode.thunk() {
        Some(thunk) => advance(frame, thunk),
        None => unreachable!("an encode has a thunk"),
    }
}

/// The chain has arrived at a value: what the goal makes of it.
#[inline]
fn complete<H: Host>(host: &mut H, frame: &mut Frame) -> Turn {
    let value = frame.at;
    if rules::is_final(value) {
        return Turn::Return(value);
    }
    if frame.goal.kind() == Kind::Shallow {
        return Turn::Return(value.lowered().unwrap_or(value));
    }
    let object = value.definition();
    if !object.names_tree() {
        return match host.local(object) {
            Some(_) => Turn::Return(object),
            None => Turn::Wait(Wait::Data(vec![object])),
        };
    }
    let own = object.identification().and_then(Handle::strict);
    if let Some(known) = own.and_then(|goal| host.recall(goal)) {
        frame.is_recorded = own == Some(frame.goal);
        return Turn::Return(known);
    }
    match host.local(object) {
        Some(data) => {
            frame.at = object;
            frame.state = State::Deepening(Partial::new(TreeView::from_checked(&data)));
            Turn::Continue
        }
        None => Turn::Wait(Wait::Data(vec![object])),
    }
}

/// Evaluates the entries of a tree, from where the last turn stopped.
fn deepen<H: Host>(host: &mut H, partial: &mut Partial, tree: Handle) -> Turn {
    let turn_end = partial.index + ENTRIES_PER_TURN;
    while let Some(&entry) = partial.entries.get(partial.index) {
        if partial.index == turn_end {
            return Turn::Continue;
        }
        match rules::lacks(host, entry) {
            Lacks::Nothing(value) if value.is_failure() => return Turn::Return(value),
            Lacks::Nothing(value) => partial.replace(value),
            Lacks::Goal(goal) => return Turn::Call(goal),
            Lacks::Data => return Turn::Wait(Wait::Data(blobs_missing(host, partial))),
        }
    }
    if !partial.is_changed {
        return Turn::Return(tree);
    }
    let complete = host.keep_tree(partial.to_tree().view());
    if let Some(goal) = complete.identification().and_then(Handle::strict) {
        host.remember(goal, complete, Rule::Strict);
    }
    Turn::Return(complete)
}

/// Blobs from the current entry on that are not local, to be asked for at once.
fn blobs_missing<H: Host>(host: &mut H, partial: &Partial) -> Vec<Handle> {
    const AT_ONCE: usize = 256;
    let ahead = partial.entries[partial.index..].iter().take(ENTRIES_PER_TURN);
    // No further than the next goal: its failure would come before a loss
    // behind it.
    let blobs = ahead.take_while(|entry| entry.is_value() && !entry.names_tree());
    let blobs = blobs.map(|entry| entry.definition()).filter(|blob| blob.literal_bytes().is_none());
    blobs.filter(|&blob| host.local(blob).is_none()).take(AT_ONCE).collect()
}

/// Replaces the encodes of an application, from where the last turn stopped.
fn resolve<H: Host>(host: &mut H, frame: &mut Frame) -> Turn {
    let State::Resolving(partial) = &mut frame.state else {
        unreachable!("the caller saw the state");
    };
    while let Some(&entry) = partial.entries.get(partial.index) {
        if !entry.is_encode() {
            partial.index += 1;
            continue;
        }
        match rules::known(host, entry) {
            Some(value) if value.is_failure() => return Turn::Return(value),
            Some(value) => partial.replace(value),
            None => return Turn::Call(entry),
        }
    }
    let resolved = host.keep_tree(partial.to_tree().view());
    let next = resolved.application().unwrap_or_else(|| unreachable!("a tree can be applied"));
    if frame.is_lasting {
        host.remember(frame.at, next, Rule::Resolve);
    }
    frame.state = State::Forcing;
    advance(frame, next)
}

/// The last goal of a tree that was neither reached nor offered.
fn next_spark<H: Host>(host: &mut H, partial: &mut Partial, encodes_only: bool) -> Option<Handle> {
    while partial.offered_from > partial.index + 1 {
        partial.offered_from -= 1;
        let entry = partial.entries[partial.offered_from];
        if encodes_only && entry.is_encode() && rules::known(host, entry).is_none() {
            return Some(entry);
        }
        if !encodes_only && let Lacks::Goal(goal) = rules::lacks(host, entry) {
            return Some(goal);
        }
    }
    None
}

/// Moves the arguments of a curried procedure into the application.
fn uncurry<H: Host>(host: &mut H, frame: &mut Frame, application: &Application<'_>) -> Turn {
    let thunk = frame.at;
    if let Some(next) = host.recall(thunk) {
        return advance_known(host, frame, next);
    }
    let Some(procedure) = host.local(application.procedure) else {
        return Turn::Wait(Wait::Data(vec![application.procedure]));
    };
    let next = match application.uncurried(TreeView::from_checked(&procedure)) {
        Ok(tree) => host.keep_tree(tree.view()).application(),
        Err(error) => {
            let failure = rules::fail_lasting(host, FailureCode::BadThunk, thunk, &error.to_string());
            return advance(frame, failure);
        }
    };
    let next = next.unwrap_or_else(|| unreachable!("a tree can be applied"));
    host.remember(thunk, next, Rule::Uncurry);
    advance(frame, next)
}

/// One step of a selection thunk.
fn selection<H: Host>(host: &mut H, frame: &mut Frame) -> Turn {
    let thunk = frame.at;
    if let Some(turn) = recall_step(host, frame) {
        return turn;
    }
    let Some(data) = host.local(thunk.definition()) else {
        return Turn::Wait(Wait::Data(vec![thunk.definition()]));
    };
    let selection = match Selection::from_tree(TreeView::from_checked(&data)) {
        Ok(selection) => selection,
        Err(error) => {
            let failure = rules::fail_lasting(host, FailureCode::BadThunk, thunk, &error.to_string());
            return advance(frame, failure);
        }
    };
    let target = match frame.selected {
        Some(target) => target,
        None if selection.target.is_value() => selection.target,
        None => {
            let goal = if selection.target.is_encode() {
                Some(selection.target)
            } else {
                selection.target.shallow()
            };
            let goal = goal.unwrap_or_else(|| unreachable!("what is no value is a thunk or an encode"));
            match rules::known(host, goal) {
                Some(value) if value.is_failure() => return Turn::Return(value),
                Some(value) => value,
                None => {
                    frame.state = State::Selecting;
                    return Turn::Call(goal);
                }
            }
        }
    };
    let object = target.plain_tree();
    let taken = match object.literal_bytes() {
        Some(bytes) => rules::select(host, object, bytes, selection.part),
        None => match host.local(object) {
            Some(bytes) => rules::select(host, object, &bytes, selection.part),
            None => {
                frame.selected = Some(target);
                return Turn::Wait(Wait::Data(vec![object]));
            }
        },
    };
    let next = match taken {
        Ok(next) => {
            if frame.is_lasting {
                host.remember(thunk, next, Rule::Select);
            }
            next
        }
        Err(detail) if frame.is_lasting => rules::fail_lasting(host, FailureCode::OutOfRange, thunk, &detail),
        Err(detail) => rules::fail(host, FailureCode::OutOfRange, thunk, &detail),
    };
    advance(frame, next)
}
