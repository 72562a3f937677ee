// SPDX-License-Identifier: Apache-2.0
//! The node's calls, as many at a time as the function takes.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::callees::{self, Callees};
use crate::flow::Flow;
use crate::frame::{BODY, BODY_LOST, CALL, LEFT, ROOM, TOLD, Turn};
use crate::head::Request;
use crate::http::Exchange;
use crate::logs::Logs;
use crate::poller::{Poller, Source, Wanted};
use crate::program::{Failed, Program};
use crate::standard::Run;
use crate::wire::{Channel, Frame, arguments, told};
use crate::{KIND, Mode, Settings};

/// How soon it is tried again whether the program takes one more connection.
const RETRY: Duration = Duration::from_millis(2);

/// An adapter that serves.
pub(crate) struct Serving {
    channel: Channel,
    poller: Poller,
    program: Program,
    logs: Logs,
    callees: Callees,
    /// Where the program calls other functions.
    url: String,
    running: HashMap<Turn, Running>,
    /// Of those, the ones that have no connection yet.
    waiting: Vec<Turn>,
}

/// A call that runs.
struct Running {
    flow: Flow,
    asked: Asked,
}

enum Asked {
    Server(Box<Exchange>),
    Once(Box<Run>),
}

impl Serving {
    pub(crate) fn new(channel: Channel, settings: Settings, port: u16) -> io::Result<Self> {
        let (poller, callees) = (Poller::new()?, Callees::listen()?);
        let logs = Logs::new(channel.bounds().1)?;
        poller.want(&channel, Source::Node, &mut Wanted::default(), PollFlags::IN)?;
        poller.want(&logs, Source::Printed, &mut Wanted::default(), PollFlags::IN)?;
        let url = callees.url()?;
        let program = Program::new(settings, port, url.clone());
        let (running, waiting) = (HashMap::new(), Vec::new());
        Ok(Self { channel, poller, program, logs, callees, url, running, waiting })
    }

    /// Serves the node until it closes the channel.
    pub(crate) fn run(mut self) -> io::Result<()> {
        // Outside of calls.
        match self.load().map_err(|failed| self.explained(failed)) {
            Ok(()) => self.channel.loaded()?,
            Err(failed) => return tell(failed, crate::frame::OUTSIDE, &mut self.channel),
        }
        loop {
            let idle = self.program.connections.close_old();
            let patience = if self.waiting.is_empty() { idle } else { Some(RETRY) };
            for source in self.poller.wait(patience)? {
                match source {
                    Source::Node if !self.hear()? => return Ok(()),
                    Source::Node => {}
                    Source::Printed => self.logs.pass(&mut self.channel)?,
                    Source::Callers => self.callees.accept(&self.poller)?,
                    Source::Caller(number) => self.callees.go_on(number, &mut self.channel, &self.poller)?,
                    Source::Answer(turn) | Source::Input(turn) | Source::End(turn) => self.go_on(turn)?,
                }
            }
            for turn in std::mem::take(&mut self.waiting) {
                self.go_on(turn)?;
            }
        }
    }

    /// Looks whether the program can be run, and has a server run.
    fn load(&mut self) -> Result<(), Failed> {
        crate::program::look_at(&self.program.settings)?;
        match self.program.settings.mode {
            Mode::Http => self.program.serves(&mut self.logs, &mut self.channel),
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
            ROOM | LEFT | BODY | BODY_LOST => {
                // Otherwise the request that it was for is over.
                let is_its = self.running.get_mut(&turn).is_some_and(|call| call.flow.hear(frame));
                if is_its { self.go_on(turn) } else { Ok(()) }
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
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
            Ok(call) => {
                self.running.insert(turn, call);
                self.go_on(turn)
            }
            Err(failed) => self.end(turn, Err(failed)),
        }
    }

    /// Has the program begin with a request.
    fn ask(&mut self, turn: Turn, request: &Request, body: Vec<u8>) -> Result<Running, Failed> {
        let mut flow = Flow::new(turn);
        let asked = match self.program.settings.mode {
            Mode::Standard => {
                let run = Run::start(turn, &self.program, request, body, &self.logs, &self.poller)?;
                Asked::Once(Box::new(run))
            }
            // Of a native one there is no adapter.
            Mode::Http | Mode::Native => {
                self.program.serves(&mut self.logs, &mut self.channel)?;
                let callers = callees::address(&self.url, turn);
                Asked::Server(Box::new(Exchange::new(turn, request, &body, &callers, &mut flow)))
            }
        };
        Ok(Running { flow, asked })
    }

    /// Does what can be done of a call without waiting.
    fn go_on(&mut self, turn: Turn) -> io::Result<()> {
        let Some(Running { flow, asked }) = self.running.get_mut(&turn) else { return Ok(()) };
        let most = self.channel.result_max();
        let done = match asked {
            Asked::Once(run) => run.go_on(turn, most, &self.poller),
            Asked::Server(exchange) => {
                let connections = &mut self.program.connections;
                let done = exchange.go_on(flow, &mut self.channel, connections, &self.poller);
                if exchange.is_waiting() && matches!(done, Ok(false)) && !self.waiting.contains(&turn) {
                    self.waiting.push(turn);
                }
                done
            }
        };
        match done {
            Ok(false) => Ok(()),
            Err(failed) => self.end(turn, Err(failed)),
            Ok(true) => {
                let Some(Running { flow, asked }) = self.running.remove(&turn) else { return Ok(()) };
                let result = match asked {
                    Asked::Once(run) => Ok(run.result()),
                    Asked::Server(exchange) => exchange.result(&flow, most),
                };
                self.end(turn, result)
            }
        }
    }

    /// A call is over.
    fn end(&mut self, turn: Turn, result: Result<Vec<u8>, Failed>) -> io::Result<()> {
        self.running.remove(&turn);
        let result = result.map_err(|failed| self.explained(failed));
        // What was printed for it is told with it.
        self.logs.end(turn, &mut self.channel)?;
        self.callees.end(turn, &self.poller)?;
        match result {
            Ok(result) => self.channel.result(turn, &result),
            Err(failed) => tell(failed, turn, &mut self.channel),
        }
    }

    /// A failure with what is to be known of it: how the program ended, and the end of what was printed.
    fn explained(&mut self, failed: Failed) -> Failed {
        let failed = match failed {
            Failed::Lost(error) => self.program.lost(&error),
            failed => failed,
        };
        match failed {
            Failed::Program { what, trace } if trace.is_empty() => match self.logs.pass(&mut self.channel) {
                Ok(()) => Failed::Program { what, trace: self.logs.last() },
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
        Failed::Lost(error) => {
            channel.raise(turn, KIND, &format!("the program broke the connection: {error}"), "")
        }
    }
}
