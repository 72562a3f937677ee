// SPDX-License-Identifier: Apache-2.0
//! The node's calls, as many at a time as the function takes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::callees::{self, Callees};
use crate::flow::Flow;
use crate::frame::{BODY, BODY_LOST, CALL, LEFT, OUTSIDE, ROOM, TOLD, Turn};
use crate::head::Request;
use crate::http::{Exchange, PIECE};
use crate::lambda::{self, Runtime};
use crate::logs::Logs;
use crate::poller::{Poller, Source, Wanted};
use crate::program::{ENDS_WITHIN, Failed, Program, Server, ending, look_at};
use crate::standard::Run;
use crate::wire::{Channel, Frame, arguments, told};
use crate::{KIND, Mode, Settings};

mod asking;

/// How soon it is tried again whether the program takes one more connection.
const RETRY: Duration = Duration::from_millis(2);

/// An adapter that serves.
pub(crate) struct Serving {
    channel: Channel,
    poller: Poller,
    program: Program,
    logs: Logs,
    callees: Callees,
    /// Where a program asks for its events, if it does.
    runtime: Option<Runtime>,
    /// Where the program calls other functions.
    url: String,
    running: HashMap<Turn, Running>,
    /// Of those, the ones that have no connection yet, in the order in which they came.
    waiting: VecDeque<Turn>,
    /// Those that were given none, or lost it: since when, and how.
    lost: VecDeque<(Turn, Instant, io::Error)>,
    buffer: Vec<u8>,
}

/// A call that runs.
struct Running {
    flow: Flow,
    asked: Asked,
}

enum Asked {
    /// It is the event that the program has, or is to have.
    Event,
    Server(Box<Exchange>),
    Once(Box<Run>),
}

impl Serving {
    pub(crate) fn new(channel: Channel, settings: Settings, port: u16) -> io::Result<Self> {
        let (poller, callees) = (Poller::new()?, Callees::listen()?);
        let logs = Logs::new(channel.bounds().1, settings.mode)?;
        poller.want(&channel, Source::Node, &mut Wanted::default(), PollFlags::IN)?;
        poller.want(&logs, Source::Printed, &mut Wanted::default(), PollFlags::IN)?;
        let url = callees.url()?;
        let asks = settings.mode == Mode::Lambda;
        let runtime = if asks { Some(Runtime::listen(channel.result_max() as u64)?) } else { None };
        let mut program = Program::new(settings, port, url.clone());
        program.runtime_api = runtime.as_ref().map(Runtime::address).transpose()?;
        let (running, waiting, lost) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        let buffer = vec![0; PIECE];
        Ok(Self { channel, poller, program, logs, callees, runtime, url, running, waiting, lost, buffer })
    }

    /// Serves the node until it closes the channel.
    pub(crate) fn run(mut self) -> io::Result<()> {
        match self.load() {
            Ok(()) => self.channel.loaded()?,
            Err(failed) => {
                let failed = self.explained(OUTSIDE, failed);
                tell(failed, OUTSIDE, &mut self.channel)?;
                return self.channel.flush();
            }
        }
        self.logs.loaded();
        loop {
            self.channel.flush()?;
            let idle = self.program.connections.close_old();
            for source in self.poller.wait(self.patience(idle))? {
                match source {
                    Source::Node if !self.hear()? => return Ok(()),
                    Source::Node => {}
                    Source::Printed => self.logs.pass(&mut self.channel)?,
                    Source::Callers => self.callees.accept(&self.poller)?,
                    Source::Caller(number) => self.callees.go_on(number, &mut self.channel, &self.poller)?,
                    Source::Server => self.server_ends()?,
                    Source::Runtime | Source::RuntimeSays(_) => self.runtime_says(source)?,
                    Source::Answer(turn) | Source::Input(turn) | Source::End(turn) => self.go_on(turn)?,
                }
            }
            self.give_up_lost()?;
            self.connect_waiting()?;
        }
    }

    /// How long nothing is to be done by itself.
    fn patience(&self, idle: Option<Duration>) -> Option<Duration> {
        let starts = matches!(self.program.state, Server::Starting(_)).then(|| self.program.patience());
        let retries = (!self.waiting.is_empty()).then(|| starts.unwrap_or(RETRY));
        let left = |since: &Instant| ENDS_WITHIN.saturating_sub(since.elapsed());
        let lost = self.lost.front().map(|(_, since, _)| left(since));
        [idle, retries, lost].into_iter().flatten().min()
    }

    /// Looks whether the program can be run, and has a server run.
    fn load(&mut self) -> Result<(), Failed> {
        look_at(&self.program.settings)?;
        match self.program.settings.mode {
            Mode::Http => self.program.load(&mut self.logs, &mut self.channel, &self.poller),
            Mode::Lambda => self.load_asking(),
            Mode::Standard | Mode::Native => Ok(()),
        }
    }

    /// Acts on what the node says; false if it has closed the channel.
    fn hear(&mut self) -> io::Result<bool> {
        let is_open = self.channel.receive()?;
        while let Some(frame) = self.channel.next() {
            self.heard(frame)?;
        }
        Ok(is_open)
    }

    fn heard(&mut self, frame: Frame) -> io::Result<()> {
        let turn = frame.turn;
        match frame.kind {
            CALL => {
                let arguments = arguments(&frame.payload).ok_or(io::ErrorKind::InvalidData)?;
                self.begin(turn, arguments)
            }
            TOLD => {
                let told = told(&frame.payload).ok_or(io::ErrorKind::InvalidData)?;
                self.callees.told(told, &self.poller)
            }
            LEFT => self.leave(turn),
            ROOM | BODY | BODY_LOST => {
                // Otherwise the request that it was for is over.
                let is_its = self.running.get_mut(&turn).is_some_and(|call| call.flow.hear(frame));
                if is_its { self.go_on(turn) } else { Ok(()) }
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Nobody waits for a call any more: the program hears of it as of any client that has left.
    fn leave(&mut self, turn: Turn) -> io::Result<()> {
        self.waiting.retain(|waiting| *waiting != turn);
        self.lost.retain(|(lost, ..)| *lost != turn);
        if self.channel.serves_several() {
            self.callees.leave();
        }
        self.end(turn, Err(Failed::program("nobody waits for the answer any more")))
    }

    fn begin(&mut self, turn: Turn, mut arguments: Vec<Vec<u8>>) -> io::Result<()> {
        let [_, head, body] = arguments.as_mut_slice() else {
            let why = "an executable is called with request, head and body";
            return self.channel.raise(turn, KIND, why, "");
        };
        let request = Request::read(head);
        self.logs.begin(turn, &request.call.request_id);
        self.callees.begin(turn, &self.poller)?;
        match self.ask(turn, &request, std::mem::take(body)) {
            Ok(asked) => {
                // Who came before is first to get a connection.
                let waits = matches!(asked.asked, Asked::Server(_)) && !self.takes_more();
                self.running.insert(turn, asked);
                if waits || self.connect(turn)? {
                    self.waiting.push_back(turn);
                }
                Ok(())
            }
            Err(failed) => self.tell_end(turn, Err(failed)),
        }
    }

    fn takes_more(&self) -> bool {
        self.program.state == Server::Listening && self.waiting.is_empty()
    }

    /// Has the program begin with a request.
    fn ask(&mut self, turn: Turn, request: &Request, body: Vec<u8>) -> Result<Running, Failed> {
        let mut flow = Flow::new(turn);
        let asked = match self.program.settings.mode {
            Mode::Standard => {
                let run = Run::start(turn, &self.program, request, body, &self.logs, &self.poller)?;
                Asked::Once(Box::new(run))
            }
            Mode::Lambda => {
                let event = lambda::event_of(request, body, self.program.settings.takes_http_event)?;
                if self.program.state == Server::Stopped {
                    self.logs.starts();
                    self.start_asking()?;
                }
                if let Some(runtime) = &mut self.runtime {
                    runtime.begin(turn, event, &self.poller)?;
                }
                Asked::Event
            }
            // Of a native one there is no adapter.
            Mode::Http | Mode::Native => {
                let callers = callees::address(&self.url, turn);
                Asked::Server(Box::new(Exchange::new(turn, request, &body, &callers, &mut flow)))
            }
        };
        Ok(Running { flow, asked })
    }

    /// Does what can be done of a call without waiting. One that has no connection is given one in its turn.
    fn go_on(&mut self, turn: Turn) -> io::Result<()> {
        if self.is_waiting(turn) {
            return Ok(());
        }
        if self.connect(turn)? {
            // What it had was closed, and it is asked again: before those who come later.
            self.waiting.push_front(turn);
        }
        Ok(())
    }

    /// The same, with a connection if it needs one: whether it still does.
    fn connect(&mut self, turn: Turn) -> io::Result<bool> {
        self.act_on(turn)?;
        Ok(self.is_waiting(turn))
    }

    fn act_on(&mut self, turn: Turn) -> io::Result<()> {
        let Some(Running { flow, asked }) = self.running.get_mut(&turn) else { return Ok(()) };
        let most = self.channel.result_max();
        let done = match asked {
            // It goes on where the program says something.
            Asked::Event => return Ok(()),
            Asked::Once(run) => run.go_on(turn, most, &self.poller),
            // One that has lost its connection is told so soon, and not sent again.
            Asked::Server(exchange) if exchange.is_lost => return Ok(()),
            Asked::Server(exchange) => {
                let connections = &mut self.program.connections;
                exchange.go_on(flow, &mut self.channel, connections, &self.poller, &mut self.buffer)
            }
        };
        match done {
            Ok(false) => Ok(()),
            Err(Failed::Lost(error)) => {
                if let Asked::Server(exchange) = asked {
                    exchange.is_lost = true;
                }
                self.lost.push_back((turn, Instant::now(), error));
                Ok(())
            }
            Err(failed) => self.end(turn, Err(failed)),
            Ok(true) => {
                let Some(Running { flow, asked }) = self.running.remove(&turn) else { return Ok(()) };
                let result = match asked {
                    Asked::Event => return Ok(()),
                    Asked::Once(run) => Ok(run.result()),
                    Asked::Server(exchange) => exchange.result(&flow, most),
                };
                self.tell_end(turn, result)
            }
        }
    }

    /// Gives connections to those that wait for one, as far as the program takes more; starts it if it does not run.
    fn connect_waiting(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let started = match self.program.state {
            Server::Stopped => {
                self.logs.starts();
                self.program.start(&self.logs, &self.poller)
            }
            Server::Starting(_) | Server::Listening => Ok(()),
        };
        match started.and_then(|()| self.program.listens()) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(failed) => return self.fail_waiting(failed),
        }
        while let Some(&turn) = self.waiting.front() {
            if self.connect(turn)? {
                break;
            }
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Whether a call that runs has no connection.
    fn is_waiting(&self, turn: Turn) -> bool {
        let asked = self.running.get(&turn).map(|running| &running.asked);
        matches!(asked, Some(Asked::Server(exchange)) if exchange.is_waiting() && !exchange.is_lost)
    }

    fn fail_waiting(&mut self, failed: Failed) -> io::Result<()> {
        let failed = self.explained(OUTSIDE, failed);
        let Failed::Program { what, trace } = failed else { return Err(io::ErrorKind::Other.into()) };
        for turn in std::mem::take(&mut self.waiting) {
            self.end(turn, Err(Failed::Program { what: what.clone(), trace: trace.clone() }))?;
        }
        Ok(())
    }

    /// The server has ended: what it has answered is taken, and all else has failed, or is for the next one.
    fn server_ends(&mut self) -> io::Result<()> {
        let was_starting = matches!(self.program.state, Server::Starting(_));
        let Some(status) = self.program.ended(&self.poller)? else { return Ok(()) };
        if let Some(runtime) = &self.runtime {
            if runtime.is_untold() && !was_starting {
                // It has ended between two events, as some do after a failure: the next one is for another process.
                return self.start_for_event();
            }
            let when = if was_starting { "before it asked for an event" } else { "during the call" };
            return self.fail_event(Failed::program(format!("the program {} {when}", ending(status))));
        }
        if was_starting {
            let what = format!("the program {} before it listened", ending(status));
            return self.fail_waiting(Failed::program(what));
        }
        self.program.connections.close();
        self.lost.clear();
        let mut untold = Vec::new();
        for turn in self.running.keys().copied().collect::<Vec<Turn>>() {
            if self.is_waiting(turn) {
                continue;
            }
            self.act_on(turn)?;
            let Some(Running { asked: Asked::Server(exchange), .. }) = self.running.get_mut(&turn) else {
                continue;
            };
            if exchange.is_told() {
                let what = format!("the program {} during the call", ending(status));
                self.end(turn, Err(Failed::program(what)))?;
            } else {
                exchange.start_over(&self.poller)?;
                untold.push(turn);
            }
        }
        self.lost.clear();
        untold.sort_unstable();
        untold.into_iter().rev().for_each(|turn| self.waiting.push_front(turn));
        Ok(())
    }

    /// Of a connection that was lost it is known by now whether the program has ended.
    fn give_up_lost(&mut self) -> io::Result<()> {
        while let Some((turn, _, error)) =
            self.lost.pop_front_if(|(_, since, _)| since.elapsed() >= ENDS_WITHIN)
        {
            self.end(turn, Err(Failed::unanswered(&error)))?;
        }
        Ok(())
    }

    /// A call is over, if it runs.
    fn end(&mut self, turn: Turn, result: Result<Vec<u8>, Failed>) -> io::Result<()> {
        match self.running.remove(&turn) {
            Some(_) => self.tell_end(turn, result),
            None => Ok(()),
        }
    }

    /// Says what came of a call.
    fn tell_end(&mut self, turn: Turn, result: Result<Vec<u8>, Failed>) -> io::Result<()> {
        let result = result.map_err(|failed| self.explained(turn, failed));
        if let Some(runtime) = &mut self.runtime {
            runtime.end(turn);
        }
        // What was printed for it is told with it.
        self.logs.end(turn, &mut self.channel)?;
        self.callees.end(turn, &self.poller)?;
        match result {
            Ok(result) => self.channel.result(turn, &result),
            Err(failed) => tell(failed, turn, &mut self.channel),
        }
    }

    /// A failure with the end of what was printed for a call.
    fn explained(&mut self, turn: Turn, failed: Failed) -> Failed {
        match failed {
            Failed::Program { what, trace } if trace.is_empty() => match self.logs.pass(&mut self.channel) {
                Ok(()) => Failed::Program { what, trace: self.logs.last(turn) },
                Err(error) => Failed::Channel(error),
            },
            failed => failed,
        }
    }
}

/// Says why a call, or loading, has failed.
pub(crate) fn tell(failed: Failed, turn: Turn, channel: &mut Channel) -> io::Result<()> {
    match failed {
        Failed::Channel(error) => Err(error),
        Failed::Program { what, trace } => channel.raise(turn, KIND, &what, &trace),
        Failed::Raised { kind, message, trace } => channel.raise(turn, &kind, &message, &trace),
        Failed::Result(why) => channel.bad_result(turn, &why),
        Failed::Lost(error) => tell(Failed::unanswered(&error), turn, channel),
    }
}
