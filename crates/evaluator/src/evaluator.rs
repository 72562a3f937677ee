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

use std::ops::{Deref, Range};
use std::sync::Arc;

use objects::{FailureCode, Handle, Kind, Limits, Part};

use crate::admission::Reservation;
use crate::host::{Fetch, Host};
use crate::inputs::Inputs;
use crate::job::{FRAMES_MAX, Frame, Job, JobId, State, is_counted};
use crate::request::Request;
use crate::rules;
use crate::scheduler::{Event, Scheduler};
use crate::steps::{advance, complete, deepen, forward, next_spark, remember_goal, resolve, selection, take};

/// Turns after which a job makes room for others of its priority.
const SLICE_TURNS: u32 = 4096;
/// Names for jobs that an evaluator takes at once: all workers draw from one
/// number, whose cache line would go back and forth for each.
const IDS_AT_ONCE: u64 = 1024;
/// Frames for which a finished job may keep room.
const SPARE_FRAMES_MAX: usize = 1024;

/// How a run of a job ended.
#[derive(Debug)]
pub enum Progress {
    /// The job's request has its result: a value, perhaps a failure.
    Finished(Handle),
    /// A spark is done, or no longer wanted.
    Spent,
    /// The job waits for events, or for its turn.
    SetAside,
}

/// What the walk does next.
pub(crate) enum Turn {
    /// Look at the top frame again.
    Continue,
    /// The top frame has its value.
    Return(Handle),
    /// The top frame needs this goal first.
    Call(Handle),
    /// The job cannot go on now.
    Wait(Wait),
    /// The walk wants more memory than the node has for walks.
    Exceed,
}

/// What a job waits for.
pub(crate) enum Wait {
    /// The end of somebody else's claim.
    Busy(Handle),
    /// Objects that are not local.
    Data(Vec<Handle>),
    /// A part of an object that is not local.
    Part(Handle, Part),
    /// A procedure's code, which is being made.
    Code(Limits, Handle),
    /// Room for so many bytes of inputs, held by nobody so far; the largest of
    /// them, if it is large.
    Room(u64, Option<Handle>),
    /// So many bytes, all together, for the next application.
    Memory(u64),
    /// The end of its own application, which runs elsewhere.
    Pending,
}

/// One worker's evaluator. `D` is the host's [`Host::Data`].
#[derive(Debug)]
pub struct Evaluator<D> {
    pub(crate) scheduler: Arc<Scheduler<D>>,
    pub(crate) inputs: Inputs<D>,
    /// A finished job whose allocations are used again.
    spare: Option<Box<Job<D>>>,
    /// Names for jobs, taken from the scheduler in one go.
    ids: Range<u64>,
}

impl<D: Deref<Target = [u8]> + Clone> Evaluator<D> {
    /// An evaluator on top of the shared state.
    pub fn new(scheduler: Arc<Scheduler<D>>) -> Self {
        let inputs = Inputs::new(scheduler.worker_held_max_bytes());
        Self { scheduler, inputs, spare: None, ids: 0..0 }
    }

    /// Blocks until there is a job. An idle worker holds no data. `None` once
    /// the scheduler is closed.
    pub fn wait_for_job(&mut self) -> Option<Box<Job<D>>> {
        self.scheduler.next_job().or_else(|| {
            self.inputs.forget();
            self.scheduler.wait_for_job()
        })
    }

    /// Walks `goal`, an encode, on the caller's worker, without a queue in
    /// between. If the answer is [`Progress::SetAside`], the job goes on as
    /// any other: by [`Scheduler::next_job`] and [`Evaluator::run`].
    #[inline]
    pub fn evaluate<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        request: &Arc<Request>,
        goal: Handle,
    ) -> Progress {
        let id = self.new_id();
        let job = match self.spare.take() {
            Some(mut job) => {
                job.restart(id, request, goal);
                job
            }
            None => Box::new(Job::new(id, Arc::clone(request), goal, true)),
        };
        self.run(host, job)
    }

    #[inline]
    fn new_id(&mut self) -> JobId {
        let id = self.ids.next().unwrap_or_else(|| {
            self.ids = self.scheduler.new_ids(IDS_AT_ONCE);
            self.ids.next().unwrap_or_else(|| unreachable!("some were taken"))
        });
        JobId(id)
    }

    /// Runs a job until it ends or has to wait.
    pub fn run<H: Host<Data = D>>(&mut self, host: &mut H, mut job: Box<Job<D>>) -> Progress {
        host.remaking(!job.remakes.is_empty());
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
            job.report_many();
            let slice_is_over = turns > SLICE_TURNS;
            if turns > 1 && self.scheduler.should_yield(job.request.priority(), slice_is_over) {
                job.report();
                job.walk.trim(self.scheduler.walks());
                self.scheduler.yield_job(job, slice_is_over);
                return Progress::SetAside;
            }
            host.remaking(!job.remakes.is_empty());
            match self.turn(host, &mut job) {
                Turn::Continue => {}
                Turn::Return(value) => {
                    if let Some(result) = self.give_back(host, &mut job, value) {
                        return self.finish(job, result);
                    }
                }
                Turn::Call(goal) => self.call(host, &mut job, goal),
                Turn::Exceed => self.fail_for_walk(host, &mut job),
                Turn::Wait(wait) => match self.set_aside(host, job, wait) {
                    Some(resumed) => {
                        job = resumed;
                        host.remaking(!job.remakes.is_empty());
                        self.take_event(host, &mut job);
                    }
                    None => return Progress::SetAside,
                },
            }
        }
    }

    fn finish(&mut self, mut job: Box<Job<D>>, result: Handle) -> Progress {
        debug_assert_eq!((job.reserved_bytes, job.room_bytes), (0, 0));
        self.release(&mut job);
        job.report();
        job.end_walk(self.scheduler.walks());
        if !job.is_root {
            job.request.discount_spark();
            return Progress::Spent;
        }
        if job.frames.capacity() <= SPARE_FRAMES_MAX {
            self.spare = Some(job);
        }
        Progress::Finished(result)
    }

    fn stop<H: Host<Data = D>>(&mut self, host: &mut H, mut job: Box<Job<D>>, code: FailureCode) -> Progress {
        self.release(&mut job);
        if !job.is_root {
            // Nobody looks at the result of a spark.
            let position = job.position();
            return self.finish(job, position);
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
    fn take_event<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) {
        match job.event.take() {
            Some(Event::Applied(outcome)) if job.holds_claim() => {
                self.end_application(host, job, outcome);
            }
            Some(Event::Taken(part)) if !job.holds_claim() => {
                if let Some(frame) = job.frames.last_mut()
                    && matches!(frame.state, State::Forcing)
                    && frame.at.kind() == Kind::Selection
                {
                    take(host, frame, part);
                }
            }
            Some(Event::Missing(object)) if !job.holds_claim() => {
                let detail = format!("{object} is not on this node; store it with `sinew put` and ask again");
                self.fail_without(host, job, object, |host| host.keep_blob(detail.as_bytes()));
            }
            Some(Event::Unreadable { object, detail }) if !job.holds_claim() => {
                self.fail_without(host, job, object, |_| detail);
            }
            // Nothing that the job waits for now: it looks, and waits again.
            Some(_) | None => self.make_again(host, job),
        }
    }

    /// An object that the job waits for cannot be had.
    #[cold]
    fn fail_without<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        object: Handle,
        detail: impl FnOnce(&mut H) -> Handle,
    ) {
        // What kept it from being made says more than that nobody has it.
        let failure = job.unmade(object).map_or_else(
            || {
                let detail = detail(host);
                rules::fail_by(host, FailureCode::MissingData, job.position(), detail)
            },
            |unmade| unmade.failure,
        );
        self.release(job);
        // Without this one there is no use for those.
        job.dropped.clear();
        job.fail(failure);
    }

    #[inline]
    fn turn<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) -> Turn {
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
                _ => complete(host, frame, &mut job.notes, &mut job.walk, self.scheduler.walks()),
            },
            State::Resolving(_) => resolve(host, frame, &mut job.notes, &mut job.walk),
            State::Deepening(partial) => deepen(host, partial, &mut job.notes, frame.at),
            State::Applying => Turn::Wait(Wait::Pending),
            State::Selecting | State::Forwarding => unreachable!("the frame above is the top one"),
        }
    }

    /// Hands a value to the frame below. `Some`: there is none, the job is done.
    #[inline]
    fn give_back<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        value: Handle,
    ) -> Option<Handle> {
        let frame = job.frames.pop()?;
        if job.remakes.last().is_some_and(|remake| remake.depth == job.frames.len()) {
            self.made_again(host, job, &frame, value);
            return None;
        }
        remember_goal(host, &frame, value);
        job.walk.shrink(frame.state.bytes());
        job.offered = job.offered.min(job.frames.len().saturating_sub(1));
        let Some(below) = job.frames.last_mut() else {
            if job.is_root && !frame.is_lasting {
                job.request.note_passing();
            }
            return Some(value);
        };
        below.is_lasting &= frame.is_lasting;
        if value.is_failure() {
            // Whoever needed this cannot have a result either.
            below.at = value;
            job.walk.shrink(below.state.bytes());
            below.state = State::Forcing;
            return None;
        }
        match &mut below.state {
            State::Resolving(partial) | State::Deepening(partial) => {
                job.notes.settled += u32::from(is_counted(frame.goal));
                partial.replace(value);
            }
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

    fn call<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>, goal: Handle) {
        if job.frames.len() >= FRAMES_MAX {
            let detail = "the evaluation nests deeper than 16,777,216 goals";
            let failure = rules::fail(host, FailureCode::Resources, job.position(), detail);
            job.fail(failure);
            return;
        }
        if !job.grow(self.scheduler.walks()) {
            return self.fail_for_walk(host, job);
        }
        job.frames.push(Frame::new(goal));
        if self.scheduler.wants_sparks(&job.request) {
            self.offer_sparks(host, job);
        }
    }

    #[cold]
    pub(crate) fn fail_for_walk<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) {
        let max_bytes = self.scheduler.walks().max_bytes();
        let detail = format!("all evaluations together nest deeper than {max_bytes} bytes allow");
        let failure = rules::fail(host, FailureCode::Resources, job.position(), &detail);
        job.fail(failure);
    }

    /// Offers goals of the oldest frames, last ones first: what this walk
    /// would come to at the very end.
    pub(crate) fn offer_sparks<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) {
        while self.scheduler.wants_sparks(&job.request) && job.offered < job.frames.len() {
            let frame = &mut job.frames[job.offered];
            let spark = match &mut frame.state {
                State::Resolving(partial) => next_spark(host, partial, true),
                State::Deepening(partial) => next_spark(host, partial, false),
                _ => None,
            };
            match spark {
                Some(goal) => self.scheduler.offer(&job.request, [goal]),
                // The top frame may yet begin with another tree.
                None if job.offered + 1 == job.frames.len() => break,
                None => job.offered += 1,
            }
        }
    }

    /// Gives back what the job has for its next application: memory, and the
    /// inputs that it or this worker holds for it.
    #[inline]
    pub(crate) fn release(&mut self, job: &mut Job<D>) {
        self.release_memory(job);
        self.inputs.let_go();
        if job.held.is_some() || job.room_bytes != 0 {
            let used = job.held.take().and_then(|held| held.largest());
            self.scheduler.pass_room_on(std::mem::take(&mut job.room_bytes), used);
        }
    }

    #[inline]
    pub(crate) fn release_memory(&self, job: &mut Job<D>) {
        if job.reserved_bytes != 0 {
            self.scheduler.release(std::mem::take(&mut job.reserved_bytes));
        }
    }

    /// Parks the job and asks for what it waits for. Gives the job back if
    /// all of it came at once.
    fn set_aside<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        mut job: Box<Job<D>>,
        wait: Wait,
    ) -> Option<Box<Job<D>>> {
        let id = job.id;
        job.walk.trim(self.scheduler.walks());
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
                    self.ask(host, &job, object, None);
                }
            }
            Wait::Part(object, part) => {
                self.scheduler.expect(id, 1);
                self.ask(host, &job, object, Some(part));
            }
            Wait::Code(limits, procedure) => {
                self.scheduler.expect(id, 1);
                self.asked(id, procedure, host.prepare(&limits, procedure, id, &job.request));
            }
            Wait::Room(bytes, shares) => {
                self.scheduler.expect(id, 1);
                match self.scheduler.reserve_room(id, &job.request, bytes, shares) {
                    Reservation::Granted(bytes) => self.scheduler.resume(id, Event::Room(bytes)),
                    Reservation::Queued => {}
                    // It looks again, and fails.
                    Reservation::Impossible => self.scheduler.resume(id, Event::Look),
                }
            }
            Wait::Memory(bytes) => {
                self.scheduler.expect(id, 1);
                match self.scheduler.reserve(id, &job.request, bytes) {
                    Reservation::Granted(bytes) => self.scheduler.resume(id, Event::Admitted(bytes)),
                    Reservation::Queued => {}
                    Reservation::Impossible => {
                        let largest = self.scheduler.largest_bytes();
                        let detail = format!("{bytes} bytes of memory are wanted, this node has {largest}");
                        let failure = rules::fail(host, FailureCode::Resources, job.position(), &detail);
                        self.release(&mut job);
                        job.fail(failure);
                        self.scheduler.resume(id, Event::Look);
                    }
                }
            }
        }
        job.report();
        self.scheduler.park(job)
    }

    /// Asks for an object, or a part of one, that a job waits for.
    fn ask<H: Host<Data = D>>(&self, host: &mut H, job: &Job<D>, object: Handle, part: Option<Part>) {
        let fetch = match part {
            part if job.unmade(object).is_some() => host.fetch_unmade(object, part, job.id),
            Some(part) => host.fetch_part(object, part, job.id),
            None => host.fetch(object, job.id),
        };
        self.asked(job.id, object, fetch);
    }

    /// An object was asked for, for a job; tells it what came of that at once.
    fn asked(&self, id: JobId, object: Handle, fetch: Fetch) {
        match fetch {
            Fetch::Here => self.scheduler.resume(id, Event::Arrived),
            Fetch::Missing => self.scheduler.resume(id, Event::Missing(object)),
            Fetch::Coming => {}
        }
    }
}
