// SPDX-License-Identifier: Apache-2.0
//! One sandbox of a function: its instance, the calls in it, and their time.
//!
//! The instance is locked only for as long as it takes to write or read what
//! is there; a call that runs holds no lock. What takes a while, as finding
//! out how a process ended and taking its container down, happens in a thread
//! of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use objects::{FailureCode, Handle, Limits};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::channel::Argument;
use super::channel::{Broken, Turn};
use super::instance::{Acted, Asked, CallEnd, Done, Following, Instance, Life, Others, Reported};
use super::reactor::{Next, Reactor, Ready};
use crate::fed::Intake;
use crate::line::{Line, LineOffer};
use crate::nested::NestedAnswer;
use crate::streamed::Source;
use crate::{Error, Fault, Home, Origin, Phase, Printed, Printing, SandboxId, Spec, State};

/// How often the time of calls is looked at, while there are any.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// After so many looks without a call a sandbox is not looked at any more.
const LOOKS_IDLE: u32 = 100;

/// One sandbox.
pub(super) struct Seat {
    pub(super) procedure: Handle,
    pub(super) limits: Limits,
    pub(super) control: Mutex<Control>,
    instance: Mutex<Option<Held>>,
    /// Held while an instance is made in place of one that has ended.
    pub(super) making: Mutex<()>,
    /// Held by the one call that its thread waits for.
    pub(super) turns: Mutex<()>,
    pub(super) log: Mutex<Vec<u8>>,
    /// Who tells when something has come; `None`: threads wait.
    reactor: Option<Arc<dyn Reactor>>,
    /// The loop that watches its instances.
    pub(super) home: Home,
    is_watched: AtomicBool,
    /// It is a step of a workflow, whose results others are given.
    pub(super) makes_values: AtomicBool,
    /// These are mapped, if they can be.
    pub(super) maps_values: AtomicBool,
}

/// An instance, and which one it is of those that the seat had.
struct Held {
    instance: Instance,
    number: u64,
    /// Somebody waits until more can be written: one at a time is enough.
    is_writing: bool,
    /// What is queued is sent at the end of a turn of the event loop that queued first.
    is_corked: bool,
}

pub(super) struct Control {
    pub(super) state: State,
    /// The instance, to be ended by a kill while a call holds it.
    pub(super) life: Option<Arc<Life>>,
    /// Instances so far.
    instances: u64,
}

impl Control {
    pub(super) fn wrong_phase(&self, id: SandboxId, request: &'static str) -> Error {
        Error::WrongPhase { id, phase: self.state.phase, request }
    }
}

impl Seat {
    pub(super) fn new(spec: &Spec, origin: Origin, reactor: Option<Arc<dyn Reactor>>) -> Self {
        let phase = Phase::Created;
        let state = State { phase, running: 0, succeeded: 0, failed: 0, is_alive: false, origin };
        let home = reactor.as_ref().map(|reactor| reactor.home()).unwrap_or_default();
        Self {
            procedure: spec.procedure,
            limits: spec.limits,
            control: Mutex::new(Control { state, life: None, instances: 0 }),
            instance: Mutex::default(),
            making: Mutex::default(),
            turns: Mutex::default(),
            log: Mutex::default(),
            reactor,
            home,
            is_watched: AtomicBool::new(false),
            makes_values: AtomicBool::new(false),
            maps_values: AtomicBool::new(false),
        }
    }

    /// Has this instance from now on.
    pub(super) fn take(self: &Arc<Self>, instance: Instance) {
        let number = {
            let mut control = self.control.lock();
            control.instances += 1;
            control.instances
        };
        let watched = self
            .reactor
            .as_ref()
            .and_then(|reactor| Some((reactor, instance.fd().try_clone_to_owned().ok()?)));
        let before =
            self.instance.lock().replace(Held { instance, number, is_writing: false, is_corked: false });
        drop(before);
        if let Some((reactor, fd)) = watched {
            reactor.watch(self.home, fd, Box::new(Watched { seat: Arc::downgrade(self), number }));
        }
    }

    /// What its instance did not reach, and why: lines for its log.
    pub(super) fn take_notes(&self) -> Vec<String> {
        let life = self.control.lock().life.clone();
        life.map_or_else(Vec::new, |life| life.take_notes())
    }

    pub(super) fn has_instance(&self) -> bool {
        self.instance.lock().as_ref().is_some_and(|held| !held.instance.is_over())
    }

    pub(super) fn is_killed(&self) -> bool {
        self.control.lock().state.phase != Phase::Running
    }

    /// Why there is no instance.
    pub(super) fn gone(&self) -> Fault {
        if self.is_killed() {
            return Fault::new(FailureCode::Cancelled, "the sandbox was killed");
        }
        Fault::new(FailureCode::Resources, "its instance has ended; try again")
    }

    /// Begins a call in the instance that is there.
    pub(super) fn begin(
        self: &Arc<Self>,
        arguments: &[Argument<'_>],
        deadline: Option<Instant>,
        others: Others,
        done: Done,
        following: Vec<Following>,
    ) -> Result<(), (CallEnd, Done)> {
        let mut held = self.instance.lock();
        let Some(Held { instance, number, is_corked, .. }) = &mut *held else {
            return Err((CallEnd::fault(self.gone(), false), done));
        };
        let was_busy = instance.is_busy();
        instance.begin(arguments, deadline, others, done, following)?;
        instance.feed(|turn| Box::new(Spring { seat: Arc::downgrade(self), number: *number, turn }));
        match &self.reactor {
            // It has something to do. What else comes in this turn of the loop
            // is sent with it: each write is a system call, and wakes the instance.
            Some(reactor) if was_busy => {
                if !std::mem::replace(is_corked, true) {
                    let watched = Watched { seat: Arc::downgrade(self), number: *number };
                    drop(held);
                    reactor.after_this_turn(self.home, Box::new(Corked(watched)));
                }
            }
            _ => {
                instance.flush();
                self.send_rest(held);
                if let Some(reactor) = &self.reactor {
                    reactor.began();
                }
            }
        }
        Ok(())
    }

    /// Has sent what could not be sent at once.
    fn send_rest(self: &Arc<Self>, mut held: MutexGuard<'_, Option<Held>>) {
        if let Some(Held { instance, number, is_writing, .. }) = &mut *held
            && instance.is_sending()
            && !*is_writing
            && let Some(reactor) = &self.reactor
            && let Ok(fd) = instance.fd().try_clone_to_owned()
        {
            *is_writing = true;
            let ready = Writing(Watched { seat: Arc::downgrade(self), number: *number });
            drop(held);
            reactor.when_writable(self.home, fd, Box::new(ready));
        }
    }

    /// Begins the calls of other functions that an instance asks for.
    fn ask(self: &Arc<Self>, number: u64, asked: Vec<Asked>) {
        for Asked { turn, id, nested, callees } in asked {
            if let Some(within) = callees.within(&nested) {
                let mut held = self.instance.lock();
                let now = held.as_mut().filter(|held| held.number == number);
                let is_told = now.is_none_or(|now| now.instance.tell_within(turn, id, &within));
                self.send_rest(held);
                if is_told {
                    continue;
                }
            }
            let seat = Arc::downgrade(self);
            let function = nested.function.clone();
            let answered = Box::new(move |answer: NestedAnswer<'_>, offer: Option<Box<dyn LineOffer>>| {
                let Some(seat) = seat.upgrade() else { return };
                if let Some(offer) = offer {
                    seat.offered(number, &function, offer);
                }
                let mut held = seat.instance.lock();
                let Some(held_now) = held.as_mut().filter(|held| held.number == number) else { return };
                match held_now.instance.tell(turn, id, answer) {
                    Ok(()) => seat.send_rest(held),
                    Err(broken) => {
                        drop(held);
                        seat.give_up(number, broken);
                    }
                }
            });
            let stop = callees.call(nested, answered);
            let mut held = self.instance.lock();
            if let Some(held) = held.as_mut().filter(|held| held.number == number) {
                held.instance.hold(turn, id, stop);
            }
        }
    }

    /// There may be a line to a function that has answered. It comes before the answer:
    /// the next call would wait for the instance at its end, and take it back.
    fn offered(self: &Arc<Self>, number: u64, function: &str, offer: Box<dyn LineOffer>) {
        let is_wanted = {
            let mut held = self.instance.lock();
            let held = held.as_mut().filter(|held| held.number == number);
            held.is_some_and(|held| held.instance.wants_line(function))
        };
        if is_wanted {
            let seat = Arc::clone(self);
            offer.open(Box::new(move |line| seat.open_line(number, line)));
        }
    }

    /// Has this instance call a function over a line.
    fn open_line(self: &Arc<Self>, number: u64, line: Arc<Line>) {
        let mut held = self.instance.lock();
        match held.as_mut().filter(|held| held.number == number) {
            Some(now) => now.instance.open_line(line),
            None => line.shut(),
        }
        self.send_rest(held);
    }

    /// Where a result comes from, for whoever hears it.
    fn source(self: &Arc<Self>, number: u64, turn: Turn) -> Box<dyn Source> {
        Box::new(Spring { seat: Arc::downgrade(self), number, turn })
    }

    /// Waits until the calls that are under way have ended. Calls of other
    /// functions are waited for where they are begun.
    pub(super) fn drive(self: &Arc<Self>) {
        loop {
            let mut acted = Acted::default();
            let mut held = self.instance.lock();
            let Some(Held { instance, number, .. }) = &mut *held else { return };
            let number = *number;
            let outcome = instance.act(&mut acted, &|turn| self.source(number, turn));
            let Acted { mut ended, asked, served } = acted;
            let is_idle = ended.is_empty() && asked.is_empty() && served.is_empty();
            let waited = outcome.and_then(|()| if is_idle { instance.wait() } else { Ok(()) });
            if let Err(broken) = waited {
                ended.extend(instance.give_up(&broken));
                let over = held.take();
                drop(held);
                self.end_life(over);
            } else {
                drop(held);
                self.ask(number, asked);
            }
            served.into_iter().for_each(Reported::tell);
            let is_over = !ended.is_empty();
            tell(ended);
            if is_over {
                return;
            }
        }
    }

    /// Acts on what has come for this instance, unless it is over.
    fn act(self: &Arc<Self>, number: u64) -> Next {
        let mut acted = Acted::default();
        let outcome = {
            let mut held = self.instance.lock();
            let outcome = match &mut *held {
                Some(Held { instance, number: same, .. }) if *same == number => {
                    instance.act(&mut acted, &|turn| self.source(number, turn)).map(|()| instance.has_more())
                }
                _ => return Next::Over,
            };
            self.send_rest(held);
            outcome
        };
        acted.served.into_iter().for_each(Reported::tell);
        tell(acted.ended);
        match outcome {
            Ok(has_more) => {
                self.ask(number, acted.asked);
                if has_more { Next::Again } else { Next::Wait }
            }
            Err(broken) => {
                self.give_up(number, broken);
                Next::Over
            }
        }
    }

    /// Ends this instance and the calls in it, in a thread of its own.
    fn give_up(self: &Arc<Self>, number: u64, broken: Broken) {
        let mut held = self.instance.lock();
        if held.as_ref().is_none_or(|held| held.number != number) {
            return;
        }
        let Some(mut over) = held.take() else { return };
        drop(held);
        let seat = self.clone();
        let end = move || {
            if broken == Broken::Late {
                let mut acted = Acted::default();
                over.instance.ask_where(&mut acted, &|turn| seat.source(number, turn));
                acted.served.into_iter().for_each(Reported::tell);
                tell(acted.ended);
            }
            tell(over.instance.give_up(&broken));
            seat.end_life(Some(over));
        };
        // Without a thread it would have been done here; the closure is gone then,
        // and with it the instance and its calls.
        _ = std::thread::Builder::new().name("sinew-ending".to_owned()).spawn(end);
    }

    /// Lets go of an instance that has ended. Taking its container down takes a
    /// while.
    fn end_life(&self, over: Option<Held>) {
        let mut control = self.control.lock();
        let is_its =
            |life: &mut Arc<Life>| over.as_ref().is_some_and(|over| Arc::ptr_eq(life, over.instance.life()));
        let life = control.life.take_if(is_its);
        drop(control);
        drop((life, over));
    }

    /// A call has ended.
    pub(super) fn leave(&self, has_succeeded: bool, log: &[u8]) {
        if !log.is_empty() || !self.log.lock().is_empty() {
            log.clone_into(&mut self.log.lock());
        }
        let state = &mut self.control.lock().state;
        state.running -= 1;
        if has_succeeded {
            state.succeeded += 1;
        } else {
            state.failed += 1;
        }
    }

    /// Takes back what stands in line and has not begun.
    pub(super) fn recall(self: &Arc<Self>) {
        let mut held = self.instance.lock();
        let Some(Held { instance, number, .. }) = &mut *held else { return };
        let (recalled, number) = (instance.recall(), *number);
        drop(held);
        match recalled {
            Ok(recalled) => tell(recalled),
            Err(broken) => self.give_up(number, broken),
        }
    }

    /// What calls that run here have printed so far.
    pub(super) fn printing(&self, is_wanted: &mut dyn FnMut(&[u8], &Printed) -> bool) -> Vec<Printing> {
        self.instance.lock().as_ref().map_or_else(Vec::new, |held| held.instance.printing(is_wanted))
    }

    /// A call has begun that followed another one.
    pub(super) fn joins(&self) {
        self.control.lock().state.running += 1;
    }

    /// A call has left that had not begun: it has neither succeeded nor failed.
    pub(super) fn goes_back(&self) {
        self.control.lock().state.running -= 1;
    }

    /// Ends the instance if a call in it is late, or that call alone, and takes back what stands in line behind one that
    /// takes long; whether calls are under way.
    fn look(self: &Arc<Self>, now: Instant) -> bool {
        let Seen { number, is_late, is_overdue, is_held_up, is_busy } = self.seen(now, true);
        if is_held_up {
            // What it has said meanwhile is for its own thread to act on; which calls have begun
            // is known without.
            self.recall();
        }
        if !is_late && !is_overdue {
            return is_busy;
        }
        // An answer that lies there unread is not late, nor is the call behind it unbegun.
        if self.act(number) == Next::Over {
            return false;
        }
        let seen = self.seen(now, false);
        if seen.is_late && seen.number == number {
            self.give_up(number, Broken::Late);
            return false;
        }
        if seen.is_overdue && seen.number == number {
            let mut held = self.instance.lock();
            held.iter_mut()
                .filter(|held| held.number == number)
                .for_each(|held| held.instance.end_overdue(now));
            self.send_rest(held);
        }
        seen.is_busy
    }

    fn seen(&self, now: Instant, with_prints: bool) -> Seen {
        let mut held = self.instance.lock();
        if let Some(held) = held.as_mut().filter(|_| with_prints) {
            held.instance.look_at_spooled(now);
        }
        held.as_ref().map_or(Seen::default(), |Held { instance, number, .. }| Seen {
            number: *number,
            is_late: instance.is_late(now),
            is_overdue: instance.is_overdue(now),
            is_held_up: instance.is_held_up(now),
            is_busy: instance.is_busy(),
        })
    }
}

/// A look at an instance.
#[derive(Default)]
struct Seen {
    /// Which one of those that the seat had.
    number: u64,
    /// A call in it is late, and the instance ends with it.
    is_late: bool,
    /// A call in it is late, and ends alone.
    is_overdue: bool,
    /// Calls stand behind one that takes long.
    is_held_up: bool,
    is_busy: bool,
}

fn tell(ended: Vec<(Done, CallEnd)>) {
    ended.into_iter().for_each(|(done, ended)| done(ended));
}

/// A call of one instance whose result somebody hears, or whose body comes later.
struct Spring {
    seat: Weak<Seat>,
    number: u64,
    turn: Turn,
}

impl Spring {
    fn tell(&self, what: impl FnOnce(&mut Instance)) {
        let Some(seat) = self.seat.upgrade() else { return };
        let mut held = seat.instance.lock();
        if let Some(held_now) = held.as_mut().filter(|held| held.number == self.number) {
            what(&mut held_now.instance);
            seat.send_rest(held);
        }
    }
}

impl Source for Spring {
    fn wants(&self, bytes: u32) {
        self.tell(|instance| instance.make_room(self.turn, bytes));
    }

    fn leaves(&self) {
        self.tell(|instance| instance.leave(self.turn));
    }
}

impl Intake for Spring {
    fn brings(&self, bytes: &[u8]) {
        self.tell(|instance| instance.bring(self.turn, bytes));
    }

    fn ends(&self) {
        self.tell(|instance| instance.end_body(self.turn, true));
    }

    fn breaks(&self) {
        self.tell(|instance| instance.end_body(self.turn, false));
    }
}

/// An instance that a reactor watches, for as long as its seat has it.
struct Watched {
    seat: Weak<Seat>,
    number: u64,
}

impl Ready for Watched {
    fn act(&self) -> Next {
        self.seat.upgrade().map_or(Next::Over, |seat| seat.act(self.number))
    }
}

/// The same, once: sends what was queued meanwhile.
struct Corked(Watched);

impl Ready for Corked {
    fn act(&self) -> Next {
        let Some(seat) = self.0.seat.upgrade() else { return Next::Over };
        let mut held = seat.instance.lock();
        if let Some(now) = held.as_mut().filter(|held| held.number == self.0.number) {
            now.is_corked = false;
            now.instance.flush();
            seat.send_rest(held);
        }
        Next::Over
    }
}

/// The same, until all that waits is written.
struct Writing(Watched);

impl Ready for Writing {
    fn act(&self) -> Next {
        let Some(seat) = self.0.seat.upgrade() else { return Next::Over };
        let next = seat.act(self.0.number);
        let mut held = seat.instance.lock();
        let Some(held) = held.as_mut().filter(|held| held.number == self.0.number) else { return Next::Over };
        held.is_writing = next != Next::Over && held.instance.is_sending();
        if held.is_writing { next } else { Next::Over }
    }
}

/// Ends calls whose time is over: a thread that looks at the sandboxes with
/// calls, and sleeps while there are none.
pub(super) struct Deadlines {
    /// With how often nothing was found there.
    looked_at: Mutex<Vec<(Weak<Seat>, u32)>>,
    changed: Condvar,
}

impl Deadlines {
    pub(super) fn new() -> Result<Arc<Self>, String> {
        let deadlines = Arc::new(Self { looked_at: Mutex::default(), changed: Condvar::new() });
        let weak = Arc::downgrade(&deadlines);
        let thread = std::thread::Builder::new().name("sinew-deadlines".to_owned());
        let spawned = thread.spawn(move || {
            while let Some(deadlines) = weak.upgrade() {
                deadlines.look();
            }
        });
        spawned.map_err(|error| format!("no thread for deadlines: {error}"))?;
        Ok(deadlines)
    }

    /// A call has begun in this sandbox.
    pub(super) fn watch(&self, seat: &Arc<Seat>) {
        if !seat.is_watched.swap(true, Ordering::AcqRel) {
            self.looked_at.lock().push((Arc::downgrade(seat), 0));
            self.changed.notify_one();
        }
    }

    fn look(&self) {
        let mut looked_at = self.looked_at.lock();
        if looked_at.is_empty() {
            // Not for ever: whoever owns this may have gone.
            self.changed.wait_for(&mut looked_at, Duration::from_secs(1));
            return;
        }
        let mut seats = std::mem::take(&mut *looked_at);
        drop(looked_at);
        std::thread::sleep(LOOK_EVERY);
        let now = Instant::now();
        seats.retain_mut(|(seat, idle)| {
            let Some(seat) = seat.upgrade() else { return false };
            *idle = if seat.look(now) { 0 } else { *idle + 1 };
            if *idle < LOOKS_IDLE {
                return true;
            }
            // A call that began just now finds it unwatched, or is seen here.
            seat.is_watched.store(false, Ordering::Release);
            seat.look(now) && !seat.is_watched.swap(true, Ordering::AcqRel)
        });
        self.looked_at.lock().append(&mut seats);
    }
}
