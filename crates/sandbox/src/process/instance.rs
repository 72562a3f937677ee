// SPDX-License-Identifier: Apache-2.0
//! One instance: a process in a place of its own, with one function loaded. It
//! is forked from the template, or else an interpreter that was started there.
//!
//! It serves one call at a time, or as many as the function says, and keeps the
//! function's globals from one to the next. After anything but an answer it is
//! ended, with all calls that are under way in it; nobody else ever gets the
//! place in which it was.
//!
//! Whoever holds it hands calls over ([`Instance::begin`]) and looks at what
//! has come ([`Instance::act`]); nothing of this waits.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use linux::Sealed;
use objects::{FailureCode, Handle};
use parking_lot::Mutex;
use rmmap::Value;
use xpu::turns::Turns;

use super::channel::{Answer, Argument, AskId, Bounds, Broken, Channel, Frame, OUTSIDE, Raised, Turn};
use super::cold::Cold;
use super::language::Language;
use super::layers::Layer;
use super::outbound::{Outbound, PROXY_PORT};
use super::place::Place;
use super::rootfs::Bind;
use super::target::{Target, TargetTerms};
use super::template::{Ended, NotForked, Nursery, Template, Watch};
use crate::line::{Line, LineRecords, LineReport};
use crate::nested::Callees;
use crate::streamed::{Audience, Source};
use crate::{Call, Fault, Phases, Printed, Printing, Spent};
use faults::{beside_a_late_one, late, shown, unavailable};
use fed::Fed;
pub(crate) use followers::Following;
pub(crate) use life::Life;
use lines::Lines;
pub(crate) use meter::Counted;
use meter::Meter;
pub(crate) use nested::Asked;
use nested::Pending;
use spooled::Spooled;
use streamed::Streamed;
use within::Withins;

mod faults;
mod fed;
mod followers;
mod life;
mod lines;
mod meter;
mod nested;
mod overdue;
mod recall;
mod spooled;
mod streamed;
mod within;

/// What the fault of a function that does not load tells of its output.
const LOG_TOLD: usize = 1024;
/// How a function's module and its file are called.
const NAME: &str = "function";
/// How long a process whose channel is closed may take to be seen ending. Its
/// template, which sees it, may have to wait for a processor first.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// What an instance may do, and how long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) language: Language,
    pub(crate) bounds: Bounds,
    pub(crate) memory_bytes: u64,
    /// From the fork to the loaded function.
    pub(crate) load_timeout: Duration,
    pub(crate) call_timeout: Duration,
}

/// What is to be done with the end of a call.
pub(crate) type Done = Box<dyn FnOnce(CallEnd) + Send>;

/// Whether an instance came to a call. Otherwise another one may serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Yes,
    /// It ended before that.
    No,
    /// It goes on; the call was taken back from it.
    Recalled,
}

/// The end of a call.
pub(crate) struct CallEnd {
    pub(crate) result: Result<Made, Fault>,
    /// What it printed.
    pub(crate) log: Printed,
    pub(crate) begun: Begun,
    /// What it took; `None` if the instance never came to it.
    pub(crate) spent: Option<Box<Spent>>,
    /// What it says of itself, if it is a step.
    pub(crate) phases: Option<Box<Phases>>,
    /// The instance goes on with what follows it.
    pub(crate) is_followed: bool,
}

/// The exception of an instance that could not map what it was handed (`heap.py`).
const UNMAPPABLE: &str = "__main__.Unmappable";

/// What a call made.
#[derive(Debug)]
pub(crate) enum Made {
    Bytes(Vec<u8>),
    /// In memory that others can be handed.
    Sealed(Sealed),
    /// Where others can map it.
    Mapped(Box<Value>),
}

impl CallEnd {
    /// Of a call that nothing was made of.
    pub(crate) fn fault(fault: Fault, has_begun: bool) -> Self {
        let begun = if has_begun { Begun::Yes } else { Begun::No };
        Self {
            result: Err(fault),
            log: Printed::default(),
            begun,
            spent: None,
            phases: None,
            is_followed: false,
        }
    }
}

/// Whom a call has to do with besides whoever waits for its end.
#[derive(Clone, Default)]
pub(crate) struct Others {
    pub(crate) callees: Option<Arc<dyn Callees>>,
    pub(crate) audience: Option<Arc<dyn Audience>>,
    /// It is no call, but a line that is to be served.
    pub(crate) line: Option<Arc<Line>>,
    /// Where a long result may be put.
    pub(crate) target: Option<TargetTerms>,
}

impl Others {
    pub(crate) fn of(call: &Call, target: Option<TargetTerms>) -> Self {
        let (callees, audience, line) = (call.callees.clone(), call.audience.clone(), call.line.clone());
        Self { callees, audience, line, target }
    }
}

/// Makes the source of a call's result, for whoever hears it.
pub(crate) type Sources<'a> = &'a dyn Fn(Turn) -> Box<dyn Source>;

/// A call that has no answer yet.
struct UnderWay {
    turn: Turn,
    /// When it was sent, and then: when the instance came to it.
    came: Instant,
    /// For so long it stood in line.
    in_line: Duration,
    deadline: Instant,
    log: Printed,
    /// Bytes of that which the instance has said are its own.
    own_log: u64,
    /// Since when it is to end, which is late where others are not.
    told_to_end: Option<Instant>,
    done: Done,
    others: Others,
    /// Where its result may be put, and whether the instance has said that nothing was.
    target: Option<Target>,
    keeps_target: bool,
    /// From when the instance came to it.
    served: Option<meter::Served>,
    /// Calls of other functions.
    pending: Vec<Pending>,
    /// What has come of its result, if that comes in pieces.
    streamed: Option<Streamed>,
    /// Where its body comes from, if that comes while it runs.
    fed: Option<Box<Fed>>,
    /// What the request was told that is served on its line.
    line_head: Option<Vec<u8>>,
    phases: Option<Box<Phases>>,
    /// It follows the one before it, and is begun with that one's result.
    follows: bool,
    /// What follows it is not begun: the instance has said so.
    is_alone: bool,
}

impl UnderWay {
    fn new(
        turn: Turn,
        (came, deadline): (Instant, Instant),
        log: Printed,
        others: Others,
        done: Done,
    ) -> Self {
        Self {
            turn,
            came,
            in_line: Duration::ZERO,
            deadline,
            log,
            own_log: 0,
            told_to_end: None,
            done,
            others,
            target: None,
            keeps_target: false,
            served: None,
            pending: Vec::new(),
            streamed: None,
            fed: None,
            line_head: None,
            phases: None,
            follows: false,
            is_alone: false,
        }
    }
}

/// What came of looking at an instance.
#[derive(Default)]
pub(crate) struct Acted {
    /// Calls that have ended.
    pub(crate) ended: Vec<(Done, CallEnd)>,
    /// Calls of other functions that are to be begun.
    pub(crate) asked: Vec<Asked>,
    /// Requests that came over a line and were served, with what the last one printed.
    pub(crate) served: Vec<Reported>,
}

/// Requests that were served without the node.
pub(crate) struct Reported {
    records: Arc<dyn LineRecords>,
    calls: Vec<(LineReport, Spent)>,
    /// Those of which only the number counts.
    counted: Vec<(LineReport, Spent)>,
    log: Printed,
}

impl Reported {
    /// Has them written down.
    pub(crate) fn tell(self) {
        if !self.calls.is_empty() {
            self.records.served(self.calls, self.log);
        }
        if !self.counted.is_empty() {
            self.records.counted(self.counted);
        }
    }
}

/// A loaded function that can be called.
pub(crate) struct Instance {
    life: Arc<Life>,
    channel: Channel,
    /// Its process, as it is numbered in its place.
    pid: u32,
    terms: Terms,
    /// In the order in which they were sent.
    under_way: Vec<UnderWay>,
    /// It serves one call after the other.
    is_serial: bool,
    /// Where a call that is late is ended alone, if others are not.
    overdue: Option<overdue::Overdue>,
    /// When it last answered a call in time.
    last_in_time: Option<Instant>,
    /// Bytes of a request's body that may be brought before it has taken any.
    body_window: usize,
    last_turn: Turn,
    /// What the next call is lent, which the last one has left as it was.
    kept: Option<Target>,
    /// What is written past the language's own streams.
    spooled: Option<Spooled>,
    /// By which calls in line are recalled.
    turns: Option<Turns>,
    meter: Meter,
    /// Nothing more can be done with it.
    is_over: bool,
    /// It has said that it ends, and that it has begun nothing of what it has not answered.
    is_leaving: bool,
    /// It has said where it is.
    has_said: bool,
    oom_kills: u64,
    /// Replaced in texts, for they differ from node to node.
    prefixes: Vec<String>,
    /// What it sees of the functions' files.
    layers: Vec<Arc<Layer>>,
    /// To functions that it calls.
    lines: Lines,
    /// Functions that it calls within itself.
    withins: Withins,
}

impl Instance {
    /// Forks into a place. No code of any function has run in it then.
    pub(crate) fn fork(nursery: &Nursery, place: Box<dyn Place>, terms: Terms) -> Result<Self, Fault> {
        let deadline = Instant::now() + terms.load_timeout;
        let no_socket = |error: std::io::Error| unavailable("a socket", &error.to_string());
        let (own, other) = UnixStream::pair().map_err(no_socket)?;
        // As far as the kernel can: from 6.16 on.
        _ = linux::refuse_descriptors(&own);
        let watch = Watch::new(own.try_clone().map_err(no_socket)?);
        let mut has_tried = false;
        let template = loop {
            let template = nursery.template().map_err(|reason| unavailable("the template", &reason))?;
            // It may have ended without anybody having heard of it.
            match template.fork(other.as_fd(), &*place, &watch) {
                Ok(()) => break template,
                Err(NotForked::Ended) if !has_tried => has_tried = true,
                Err(why) => return Err(unavailable("the template", &why.to_string())),
            }
        };
        drop(other);
        let prefixes = template.hello.prefixes.clone();
        let instance = Self::greeted(place, watch, Some(template), own, &prefixes, terms, deadline)?;
        instance.life.place.admit().map_err(|reason| unavailable("its control groups", &reason))?;
        Ok(instance)
    }

    /// Starts an interpreter in a place. No code of any function has run in
    /// it then.
    pub(crate) fn start(cold: &Cold, place: Box<dyn Place>, terms: Terms) -> Result<Self, Fault> {
        let deadline = Instant::now() + terms.load_timeout;
        let no_socket = |error: std::io::Error| unavailable("a socket", &error.to_string());
        let (own, other) = UnixStream::pair().map_err(no_socket)?;
        // As far as the kernel can: from 6.16 on.
        _ = linux::refuse_descriptors(&own);
        let watch = Watch::new(own.try_clone().map_err(no_socket)?);
        cold.start(&*place, other, &watch).map_err(|reason| unavailable("the interpreter", &reason))?;
        Self::greeted(place, watch, None, own, cold.prefixes(), terms, deadline)
    }

    /// An instance of a process that has just been made, once it has said
    /// that it is there.
    fn greeted(
        place: Box<dyn Place>,
        watch: Arc<Watch>,
        template: Option<Arc<Template>>,
        own: UnixStream,
        prefixes: &[PathBuf],
        terms: Terms,
        deadline: Instant,
    ) -> Result<Self, Fault> {
        let prefixes = prefixes.iter().map(|path| shown(path)).collect();
        let life = Arc::new(Life {
            place,
            watch,
            killed: AtomicBool::new(false),
            template,
            outlet: Mutex::default(),
        });
        let oom_kills = life.place.oom_kills();
        let channel = Channel::new(own, terms.bounds);
        let channel = channel.map_err(|error| unavailable("its socket", &error.to_string()))?;
        let mut instance = Self {
            life,
            channel,
            pid: 0,
            terms,
            under_way: Vec::new(),
            is_serial: false,
            overdue: None,
            last_in_time: None,
            body_window: fed::window(1),
            last_turn: OUTSIDE,
            kept: None,
            spooled: None,
            turns: None,
            meter: Meter::new(Instant::now()),
            is_over: false,
            is_leaving: false,
            has_said: false,
            oom_kills,
            prefixes,
            layers: Vec::new(),
            lines: Lines::default(),
            withins: Withins::default(),
        };
        let greeted = instance.channel.greet(deadline);
        instance.pid = greeted.map_err(|broken| instance.unconfined(&broken))?;
        Ok(instance)
    }

    /// What others need to end it.
    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }

    /// Has it see these folders, before a function is loaded.
    pub(crate) fn attach(&self, binds: &[Bind]) -> Result<(), Fault> {
        self.life.place.attach(binds).map_err(|reason| Self::without_files(&reason))
    }

    /// What is said where its folders cannot be had.
    pub(crate) fn without_files(reason: &str) -> Fault {
        unavailable("its files", reason)
    }

    /// Keeps what it sees of folders until it has ended.
    pub(crate) fn keep(&mut self, layers: Vec<Arc<Layer>>) {
        self.layers = layers;
    }

    /// Has it reach these hosts, before a function is loaded.
    pub(crate) fn connect(
        &self,
        outbound: Option<&dyn Outbound>,
        procedure: Handle,
        allowed: &[String],
    ) -> Result<(), Fault> {
        if allowed.is_empty() {
            return Ok(());
        }
        let none = || unavailable("its network", "this node carries no connections of functions");
        let outbound = outbound.ok_or_else(none)?;
        let listener = self.life.place.listen(PROXY_PORT);
        let opened = listener.and_then(|listener| outbound.open(procedure, allowed, listener));
        *self.life.outlet.lock() = Some(opened.map_err(|reason| unavailable("its network", &reason))?);
        Ok(())
    }

    /// Gives calls no more time than this.
    pub(crate) fn limit_calls(&mut self, timeout: Duration) {
        self.terms.call_timeout = self.terms.call_timeout.min(timeout);
    }

    /// Loads the function, to be called so many times at once; once.
    pub(crate) fn load(&mut self, source: &[u8], calls_at_once: u16) -> Result<(), Fault> {
        self.body_window = fed::window(calls_at_once);
        self.is_serial = calls_at_once == 1 && self.terms.language.calls_ahead() > 0;
        self.overdue = (calls_at_once > 1).then(|| overdue::Overdue::new(calls_at_once));
        let deadline = Instant::now() + self.terms.load_timeout;
        self.spools();
        let spool = self.spooled.as_mut().map(Spooled::spool);
        match self.channel.load(NAME, source, calls_at_once, spool, deadline) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(raised)) => Err(self.with_log(self.raised(&raised, FailureCode::BadProcedure))),
            Err(broken) => Err(self.with_log(self.broken(&broken, "loading the function"))),
        }
    }

    /// A fault of loading, with the end of what was printed: nobody else will
    /// tell it.
    fn with_log(&self, fault: Fault) -> Fault {
        let log = self.channel.log().bytes();
        let end = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TOLD)..]).into_owned();
        if end.is_empty() {
            return fault;
        }
        Fault::new(fault.code, format!("{}\nIt had printed:\n{end}", fault.detail.trim_end()))
    }

    /// Begins a call; [`Instance::flush`] sends it. What was to be done is given
    /// back if it cannot be told.
    pub(crate) fn begin(
        &mut self,
        arguments: &[Argument<'_>],
        deadline: Option<Instant>,
        others: Others,
        done: Done,
        following: Vec<Following>,
    ) -> Result<(), (CallEnd, Done)> {
        let now = Instant::now();
        let own = now + others.line.as_ref().map_or(self.terms.call_timeout, |line| line.held_max());
        let deadline = deadline.map_or(own, |deadline| deadline.min(own));
        self.shares_turns();
        self.refresh_withins();
        let turn = self.next_turn();
        let lend = |terms: &TargetTerms| self.kept.take().or_else(|| terms.target());
        let target = others.target.as_ref().and_then(lend);
        if let Some(line) = &others.line {
            let taken = self.serve(turn, line, now);
            if taken.is_err() {
                return Err((
                    CallEnd::fault(Fault::new(FailureCode::Resources, "no descriptors"), true),
                    done,
                ));
            }
        } else if self.call(turn, arguments, target.as_ref(), &following).is_err() {
            let fault = Fault::new(FailureCode::Memory, "the arguments are too long");
            return Err((CallEnd::fault(fault, true), done));
        }
        let log = self.channel.take_log();
        let body = others.audience.as_ref().and_then(|audience| audience.body());
        let fed = body.map(|feed| Fed::new(feed, self.body_window));
        let call = UnderWay::new(turn, (now, deadline), log, others, done);
        self.under_way.push(UnderWay { target, fed, ..call });
        self.comes_to(self.under_way.len() - 1, now);
        self.is_followed_by(following, now);
        Ok(())
    }

    fn next_turn(&mut self) -> Turn {
        // Turn 0 is nobody's, also after four thousand million calls.
        self.last_turn = self.last_turn.checked_add(1).unwrap_or(OUTSIDE + 1);
        self.last_turn
    }

    /// It serves this call from now on, unless that stands behind another one.
    fn comes_to(&mut self, place: usize, now: Instant) {
        if place == 0 || !self.is_serial {
            let Self { under_way, meter, life, terms, .. } = self;
            let is_new = |call: &&mut UnderWay| call.others.line.is_none() && call.served.is_none();
            if let Some(call) = under_way.get_mut(place).filter(is_new) {
                call.served = Some(meter.begin(now, &*life.place));
                call.in_line = now.saturating_duration_since(std::mem::replace(&mut call.came, now));
                if call.follows {
                    call.deadline = now + terms.call_timeout;
                }
            }
        }
    }

    /// What a call took that was answered.
    fn spent_by(&mut self, call: &UnderWay, answer: &Answer, now: Instant) -> Option<Box<Spent>> {
        let mut spent = match &call.others.line {
            Some(line) => {
                let has_answered = matches!(answer, Answer::Result(bytes) if bytes.is_empty());
                self.spent_on(line, has_answered, now)
            }
            None => self.spent(call.served, now),
        }?;
        spent.in_line = call.in_line;
        Some(spent)
    }

    /// What a call took that has ended.
    fn spent(&mut self, served: Option<meter::Served>, now: Instant) -> Option<Box<Spent>> {
        Some(Box::new(self.meter.end(served?, now, &*self.life.place)))
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn flush(&mut self) {
        // If nothing can be sent any more, whoever reads will find out why.
        _ = self.channel.flush();
    }

    /// Sends what waits, and takes what has come; adds what came of it. `Err`:
    /// nothing more will come, and [`Instance::give_up`] tells those that are left.
    pub(crate) fn act(&mut self, acted: &mut Acted, sources: Sources<'_>) -> Result<(), Broken> {
        self.channel.may_read();
        loop {
            // It may have said why before it closed: what it said comes first.
            let sent = self.channel.flush();
            match self.channel.read()? {
                Some(Frame::Answer(turn, answer)) => self.answered(turn, answer, &mut acted.ended)?,
                Some(Frame::Piece(turn, piece)) => self.piece(turn, &piece, sources)?,
                Some(Frame::Wants(turn, bytes)) => self.wanted(turn, bytes)?,
                Some(Frame::Log(turn, is_error, bytes)) => self.logged(turn, is_error, &bytes)?,
                Some(Frame::Ask(turn, id, nested)) => acted.asked.push(self.asked(turn, id, nested)?),
                Some(Frame::AskAgain(turn, line, id, nested)) => {
                    acted.asked.extend(self.asked_again(turn, line, id, nested)?);
                }
                Some(Frame::AskWithin(turn, ask)) => acted.asked.extend(self.asked_within(turn, *ask)?),
                Some(Frame::ServedWithin(number, reports)) => {
                    acted.served.extend(self.reported_within(number, reports)?);
                }
                Some(Frame::Served(turn, reports)) => acted.served.push(self.reported(turn, reports)?),
                Some(Frame::Serving(turn, head)) => self.serving(turn, head)?,
                Some(Frame::Waited(turn, time)) => self.waited(turn, time)?,
                Some(Frame::Phases(turn, phases)) => self.phased(turn, phases)?,
                Some(Frame::Keeps(turn)) => self.keeps(turn)?,
                Some(Frame::Alone(turn)) => self.alone(turn)?,
                Some(Frame::Dropped(turn, line)) => self.dropped(turn, line)?,
                Some(Frame::Leaving) => self.is_leaving = true,
                Some(Frame::Said) => self.has_said = true,
                Some(_) => return Err(Broken::Lie("an answer that is none to a call")),
                None => return sent.map(drop),
            }
        }
    }

    fn answered(
        &mut self,
        turn: Turn,
        answer: Answer,
        ended: &mut Vec<(Done, CallEnd)>,
    ) -> Result<(), Broken> {
        let place = self.under_way.iter().position(|call| call.turn == turn);
        let place = place.ok_or(Broken::Lie("an answer to no call"))?;
        if place > 0 && self.is_serial {
            return Err(Broken::Lie("an answer to a call whose turn has not come"));
        }
        let now = Instant::now();
        self.take_spooled(place, now);
        let mut call = self.under_way.remove(place);
        let is_followed = self.goes_on_with(place, &mut call, &answer);
        let spent = self.spent_by(&call, &answer, now);
        if self.is_serial {
            self.comes_to(0, now);
        }
        if self.under_way.is_empty() {
            self.lines.forget_ended();
        }
        let mut target = call.target;
        // What its adapter says itself is no sign of the function's.
        if call.deadline > now && matches!(answer, Answer::Result(_)) {
            self.last_in_time = Some(now);
        }
        let result = match answer {
            Answer::Raised(_) if call.told_to_end.is_some() => Err(late("the call")),
            Answer::Result(bytes) => match call.streamed {
                Some(streamed) => streamed.end(&bytes)?.map(Made::Bytes),
                None => Ok(Made::Bytes(bytes)),
            },
            Answer::Outbox(len) => {
                let lie = Broken::Lie("a result in an outbox that it was not given");
                target.take().ok_or(lie)?.sealed(len)
            }
            Answer::Mapped(len) => {
                let lie = Broken::Lie("a result at addresses that it was not given");
                target.take().and_then(|target| target.mapped(len)).ok_or(lie)?
            }
            Answer::BadResult(why) => Err(Fault::new(FailureCode::BadResult, why)),
            Answer::Raised(raised) => Err(self.exception(&raised)),
        };
        // Calls that stand in line were lent something else, and it lets go of this when it comes to one.
        if call.keeps_target && self.under_way.is_empty() {
            self.kept = target.zip(call.others.target).and_then(|(target, terms)| terms.kept(target));
        }
        let (log, phases) = (call.log, call.phases);
        ended.push((call.done, CallEnd { result, log, begun: Begun::Yes, spent, phases, is_followed }));
        Ok(())
    }

    /// What a call was lent is as it was.
    fn keeps(&mut self, turn: Turn) -> Result<(), Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn && call.target.is_some());
        call.ok_or(Broken::Lie("something kept that it was not given"))?.keeps_target = true;
        Ok(())
    }

    /// A step says how its time went; what it says last counts.
    fn phased(&mut self, turn: Turn, phases: Phases) -> Result<(), Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn);
        call.ok_or(Broken::Lie("phases of no call"))?.phases = Some(Box::new(phases));
        Ok(())
    }

    /// What was printed belongs to its call; what is of no call that runs, to
    /// the oldest one that does, or else to the next one.
    fn logged(&mut self, turn: Turn, is_error: bool, bytes: &[u8]) -> Result<(), Broken> {
        let place = self.under_way.iter().position(|call| call.turn == turn).unwrap_or(0);
        let Some(call) = self.under_way.get_mut(place) else {
            return self.channel.keep_idle_log(is_error, bytes);
        };
        let most = self.terms.bounds.log_let_in();
        if call.turn == turn {
            call.own_log += bytes.len() as u64;
            if call.own_log > most {
                return Err(Broken::Lie("more log than it is allowed to send"));
            }
        } else if (call.log.len() + bytes.len()) as u64 > most {
            // What is printed between the calls that an instance serves at once may be much beside one that takes long,
            // although each has kept to what is allowed: it is not this one's, and no reason to end it.
            return Ok(());
        }
        call.log.add(is_error, bytes, Instant::now());
        Ok(())
    }

    /// What calls that run have printed so far, if it is wanted.
    pub(crate) fn printing(&self, is_wanted: &mut dyn FnMut(&[u8], &Printed) -> bool) -> Vec<Printing> {
        let wanted = |call: &&UnderWay| {
            !call.log.is_empty() && lines::told(call).is_some_and(|head| is_wanted(&head, &call.log))
        };
        let told = |call: &UnderWay| Printing { since: call.came, printed: call.log.clone() };
        self.served().filter(wanted).map(told).collect()
    }

    /// Ends the instance, and all calls in it. It may wait until the process has
    /// been seen to end.
    pub(crate) fn give_up(&mut self, broken: &Broken) -> Vec<(Done, CallEnd)> {
        self.is_over = true;
        let head = self.told_alone();
        self.lines.abandon(head.as_ref());
        let now = Instant::now();
        let fault = self.broken(broken, "the call");
        // What it printed when it broke says best why.
        self.take_last_spooled();
        let calls = std::mem::take(&mut self.under_way).into_iter().enumerate();
        let calls = calls.map(|(place, call)| {
            let is_innocent = *broken == Broken::Late && !Self::is_to_blame(&call, now);
            let fault = if is_innocent { beside_a_late_one() } else { fault.clone() };
            // What was brought of a body that is sent while it comes cannot be brought again.
            let is_known_not_begun = self.is_leaving && call.fed.is_none();
            let has_begun = !is_known_not_begun && (place == 0 || !self.is_serial);
            let begun = if has_begun { Begun::Yes } else { Begun::No };
            let mut spent = match &call.others.line {
                Some(line) => self.spent_on(&Arc::clone(line), false, now),
                None => self.spent(call.served, now),
            };
            spent.iter_mut().for_each(|spent| spent.in_line = call.in_line);
            let (log, phases) = (call.log, call.phases);
            (call.done, CallEnd { result: Err(fault), log, begun, spent, phases, is_followed: false })
        });
        calls.collect()
    }

    /// The calls that have begun there: of those that it serves one by one, the
    /// oldest.
    fn served(&self) -> impl Iterator<Item = &UnderWay> {
        self.under_way.iter().take(if self.is_serial { 1 } else { usize::MAX })
    }

    /// Waits until there is something to act on, or a call has used up its time.
    pub(crate) fn wait(&mut self) -> Result<(), Broken> {
        let Some(deadline) = self.served().map(|call| call.deadline).min() else { return Ok(()) };
        self.look_at_spooled(Instant::now());
        match self.looks_within().map(|soon| Instant::now() + soon).filter(|soon| *soon < deadline) {
            // That it is time to look again makes nobody late.
            Some(soon) => match self.channel.wait(soon) {
                Err(Broken::Late) => Ok(()),
                waited => waited,
            },
            None => self.channel.wait(deadline),
        }
    }

    /// Whether a part of what was to be sent still waits.
    pub(crate) fn is_sending(&self) -> bool {
        self.channel.is_sending()
    }

    /// Whether more may have come than [`Instance::act`] took at once.
    pub(crate) fn has_more(&self) -> bool {
        self.channel.has_more()
    }

    /// Whether calls are under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Nothing more can be done with it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over || self.is_leaving || !self.is_alive()
    }

    /// The descriptor of its channel.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// Whether its process is there, as far as is known.
    pub(crate) fn is_alive(&self) -> bool {
        self.life.is_alive()
    }
}

#[cfg(test)]
mod tests;
