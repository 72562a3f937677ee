// SPDX-License-Identifier: Apache-2.0
//! Programs that were made for AWS Lambda, and ask for their events: its runtime API of 2018-06-01, by
//! HTTP/1.1 in the container's own network (`AWS_LAMBDA_RUNTIME_API`).
//!
//! A program runs all the time and asks for the next event (`invocation/next`); it is answered when there is one. What
//! came of it the program posts, to `response` or `error`. It has one event at a time.

mod answer;
mod event;
mod reading;

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use rustix::event::PollFlags;
use serde::Deserialize;

use crate::frame::Turn;
use crate::head::Request;
use crate::http::PIECE;
use crate::poller::{Poller, Source, Wanted};
use crate::program::Failed;
pub(crate) use answer::result;
pub(crate) use event::Event;
use reading::{Asked, Reading};

/// Connections at a time: clients keep one, or make one for each request.
const CONVERSATIONS_MAX: usize = 16;
/// What a path begins with, and the paths behind it.
const VERSION: &str = "/2018-06-01/runtime/";
/// A response has base64 and escapes in it that the answer has not.
const RESPONSE_FACTOR: usize = 2;
/// The type of an error of which none is told.
const UNKNOWN: &str = "Runtime.UnknownReason";
/// How a mode of response is named, in lower case.
const MODE: &str = "lambda-runtime-function-response-mode";
const ERROR_TYPE: &str = "lambda-runtime-function-error-type";
const ERROR_BODY: &str = "lambda-runtime-function-error-body";

/// The node's side of the runtime API.
pub(crate) struct Runtime {
    listener: TcpListener,
    wanted: Wanted,
    conversations: HashMap<u32, Conversation>,
    last_conversation: u32,
    /// Who waits for an event.
    waiting: Option<u32>,
    event: Option<Current>,
    /// Bytes of a result.
    most: usize,
}

/// An event that has no response yet.
struct Current {
    turn: Turn,
    event: Event,
    /// The program has it.
    is_given: bool,
}

/// A client, and how far its request and the answer to it are.
struct Conversation {
    stream: TcpStream,
    wanted: Wanted,
    reading: Reading,
    /// What is left to write.
    writing: Vec<u8>,
    closes: bool,
    is_over: bool,
}

/// What the program says.
#[derive(Debug)]
pub(crate) enum Said {
    /// It waits for its first event.
    Ready,
    /// What came of an event.
    Ended(Turn, Result<Vec<u8>, Failed>),
    /// It cannot begin.
    Unready(Failed),
}

/// A failure, as programs describe theirs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Failure {
    error_message: String,
    error_type: String,
    stack_trace: Vec<serde_json::Value>,
}

impl Runtime {
    /// Listens on a free port of the container's own network.
    pub(crate) fn listen(most: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            wanted: Wanted::default(),
            conversations: HashMap::new(),
            last_conversation: 0,
            waiting: None,
            event: None,
            most: usize::try_from(most).unwrap_or(usize::MAX),
        })
    }

    /// Where it listens, as programs are told.
    pub(crate) fn address(&self) -> io::Result<String> {
        Ok(self.listener.local_addr()?.to_string())
    }

    /// The program is started: it has asked for nothing yet.
    pub(crate) fn starts(&mut self, poller: &Poller) -> io::Result<()> {
        self.conversations.clear();
        self.waiting = None;
        while self.listener.accept().is_ok() {}
        self.listen_if_there_is_room(poller)
    }

    /// There is an event for it.
    pub(crate) fn begin(&mut self, turn: Turn, event: Event, poller: &Poller) -> io::Result<()> {
        self.event = Some(Current { turn, event, is_given: false });
        self.give(poller)
    }

    /// The event is over, whatever came of it.
    pub(crate) fn end(&mut self, turn: Turn) {
        self.event.take_if(|current| current.turn == turn);
    }

    /// Whether there is an event that the program has not been given.
    pub(crate) fn is_untold(&self) -> bool {
        self.event.as_ref().is_some_and(|current| !current.is_given)
    }

    /// Takes those who have come.
    pub(crate) fn accept(&mut self, poller: &Poller) -> io::Result<()> {
        while self.conversations.len() < CONVERSATIONS_MAX
            && let Ok((stream, _)) = self.listener.accept()
        {
            stream.set_nonblocking(true)?;
            // Answers are small, and each is waited for.
            _ = stream.set_nodelay(true);
            self.last_conversation = self.last_conversation.wrapping_add(1);
            let number = self.last_conversation;
            let mut one = Conversation {
                stream,
                wanted: Wanted::default(),
                reading: Reading::default(),
                writing: Vec::new(),
                closes: false,
                is_over: false,
            };
            one.wait(number, poller)?;
            self.conversations.insert(number, one);
        }
        self.listen_if_there_is_room(poller)
    }

    /// Takes what has come of a conversation, and sends what can be sent; what the program has said by that.
    pub(crate) fn go_on(&mut self, number: u32, poller: &Poller) -> io::Result<Vec<Said>> {
        let mut said = Vec::new();
        let Some(one) = self.conversations.get_mut(&number) else { return Ok(said) };
        one.write();
        one.read(self.waiting != Some(number));
        let most = self.most.saturating_mul(RESPONSE_FACTOR);
        // Who waits for an event says nothing meanwhile.
        let goes_on = |one: &&mut Conversation| one.writing.is_empty() && !one.closes && !one.is_over;
        while self.waiting != Some(number)
            && let Some(one) = self.conversations.get_mut(&number).filter(goes_on)
        {
            match one.reading.next(most) {
                Ok(None) => break,
                Ok(Some(asked)) => said.extend(self.act(number, asked)),
                Err((status, why)) => {
                    one.closes = true;
                    one.tell(status, &[], format!("{{\"errorMessage\":\"{why}\"}}").as_bytes());
                    // What it was about to respond it cannot send again.
                    let given = self.event.take_if(|current| current.is_given);
                    said.extend(given.map(|Current { turn, .. }| {
                        Said::Ended(
                            turn,
                            Err(Failed::Result(format!("what the program responds is none: {why}"))),
                        )
                    }));
                }
            }
            self.give(poller)?;
            if let Some(one) = self.conversations.get_mut(&number) {
                one.write();
            }
        }
        self.settle(number, poller)?;
        Ok(said)
    }

    /// Waits for what comes next of a conversation, or forgets it.
    fn settle(&mut self, number: u32, poller: &Poller) -> io::Result<()> {
        let Some(one) = self.conversations.get_mut(&number) else { return Ok(()) };
        if one.reading.waits_to_go_on() && one.writing.is_empty() {
            one.writing.extend(b"HTTP/1.1 100 Continue\r\n\r\n");
            one.write();
        }
        one.wait(number, poller)?;
        if one.is_over {
            self.conversations.remove(&number);
            self.waiting.take_if(|waiting| *waiting == number);
        }
        self.listen_if_there_is_room(poller)
    }

    fn listen_if_there_is_room(&mut self, poller: &Poller) -> io::Result<()> {
        let has_room = self.conversations.len() < CONVERSATIONS_MAX;
        let flags = if has_room { PollFlags::IN } else { PollFlags::empty() };
        poller.want(&self.listener, Source::Runtime, &mut self.wanted, flags)
    }

    /// Gives the event to who waits for one.
    fn give(&mut self, poller: &Poller) -> io::Result<()> {
        let Some(current) = self.event.as_mut().filter(|current| !current.is_given) else { return Ok(()) };
        let Some(number) = self.waiting.take() else { return Ok(()) };
        let Some(one) = self.conversations.get_mut(&number) else { return Ok(()) };
        current.is_given = true;
        one.tell(200, &current.event.headers, &current.event.body);
        one.write();
        self.settle(number, poller)
    }

    /// Answers a request; what it says.
    fn act(&mut self, number: u32, asked: Asked) -> Option<Said> {
        let Asked { method, path, headers, body, closes } = asked;
        let one = self.conversations.get_mut(&number)?;
        one.closes = closes;
        let text = |name: &str| {
            let found = headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let what: Vec<&str> = path.strip_prefix(VERSION).unwrap_or_default().split('/').collect();
        match (method.as_str(), what.as_slice()) {
            ("GET", ["invocation", "next"]) => {
                if let Some(other) = self.waiting.replace(number) {
                    // It asks again: whoever asked before will not read.
                    self.conversations.remove(&other);
                }
                // Of the one that it has, nothing will come any more.
                let given = self.event.take_if(|current| current.is_given);
                Some(given.map_or(Said::Ready, |Current { turn, .. }| {
                    let why = "the program asked for the next event, and had said nothing of this one";
                    Said::Ended(turn, Err(Failed::program(why)))
                }))
            }
            ("POST", ["invocation", id, end @ ("response" | "error")]) => {
                let current = self.event.take_if(|current| current.is_given && current.event.id == *id);
                let Some(Current { turn, event, .. }) = current else {
                    one.refuse(400, "InvalidRequestID", "there is no such invocation, or it is over");
                    return None;
                };
                let failed = (*end == "error").then(|| failure(&body, text(ERROR_TYPE)));
                let failed = failed.or_else(|| broken_off(text(ERROR_BODY), text(ERROR_TYPE)));
                let ended = match failed {
                    Some(failed) => Err(failed),
                    None => result(&body, text("content-type"), text(MODE), &event, self.most),
                };
                one.accept();
                Some(Said::Ended(turn, ended))
            }
            ("POST", ["init", "error"]) => {
                let failed = failure(&body, text(ERROR_TYPE));
                one.accept();
                Some(Said::Unready(failed))
            }
            _ => {
                one.refuse(
                    404,
                    "NotFound",
                    "the runtime API is /2018-06-01/runtime/invocation and init/error",
                );
                None
            }
        }
    }
}

/// What a program says of its failure.
fn failure(body: &[u8], told_type: &str) -> Failed {
    let Failure { error_message, error_type, stack_trace } =
        serde_json::from_slice(body).unwrap_or_else(|_| Failure {
            error_message: String::from_utf8_lossy(body).into_owned(),
            ..Failure::default()
        });
    let kind = [error_type.as_str(), told_type, UNKNOWN].into_iter().find(|kind| !kind.is_empty());
    let trace: Vec<String> = stack_trace.iter().map(frame).collect();
    Failed::Raised {
        kind: kind.unwrap_or(UNKNOWN).to_owned(),
        message: error_message,
        trace: trace.join("\n"),
    }
}

/// A frame of a trace: a text, or what Go's runtime says of one.
fn frame(frame: &serde_json::Value) -> String {
    let text = |name: &str| frame[name].as_str();
    match (frame.as_str(), text("path"), text("label"), frame["line"].as_u64()) {
        (Some(text), ..) => text.trim_end().to_owned(),
        (None, Some(path), Some(label), Some(line)) => format!("  at {label} ({path}:{line})"),
        _ => frame.to_string(),
    }
}

/// The same, of a response that was broken off: its trailers say so.
fn broken_off(told: &str, told_type: &str) -> Option<Failed> {
    (!told_type.is_empty()).then(|| {
        let body = answer::from_base64(told).unwrap_or_default();
        failure(&body, told_type)
    })
}

/// The event that a request is, as programs get it.
pub(crate) fn event_of(request: &Request, body: Vec<u8>, takes_http: bool) -> Result<Event, Failed> {
    Event::of(request, body, takes_http).map_err(Failed::program)
}

impl Conversation {
    fn read(&mut self, may_speak: bool) {
        let mut piece = [0; PIECE];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                // It has been told that nothing more is heard.
                Ok(_) if self.closes && self.writing.is_empty() => {}
                // While it waits for an event, it has nothing to say.
                Ok(_) if !may_speak && self.reading.is_long() => break,
                Ok(len) => self.reading.take(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            }
            // The rest is read when this was looked at.
            return;
        }
        self.is_over = true;
    }

    fn accept(&mut self) {
        self.tell(202, &[], b"{\"status\":\"OK\"}");
    }

    fn refuse(&mut self, status: u16, kind: &str, why: &str) {
        let body = format!("{{\"errorType\":\"{kind}\",\"errorMessage\":\"{why}\"}}");
        self.tell(status, &[], body.as_bytes());
    }

    fn tell(&mut self, status: u16, headers: &[(String, String)], body: &[u8]) {
        let word = if status < 400 { "OK" } else { "Failed" };
        let mut head = format!(
            "HTTP/1.1 {status} {word}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str(if self.closes { "connection: close\r\n\r\n" } else { "\r\n" });
        self.writing.extend(head.as_bytes());
        self.writing.extend(body);
    }

    fn write(&mut self) {
        let mut written = 0;
        while written < self.writing.len() {
            match self.stream.write(&self.writing[written..]) {
                Ok(len) if len > 0 => written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    self.is_over = true;
                    return;
                }
            }
        }
        self.writing.drain(..written);
        if self.closes && self.writing.is_empty() && written > 0 {
            // Who is still sending reads the answer before it hears that nobody listens.
            _ = self.stream.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Waits for what comes next; one that is over is known to nobody.
    fn wait(&mut self, number: u32, poller: &Poller) -> io::Result<()> {
        let flags = match (self.is_over, self.writing.is_empty()) {
            (true, _) => PollFlags::empty(),
            (false, true) => PollFlags::IN,
            (false, false) => PollFlags::OUT,
        };
        poller.want(&self.stream, Source::RuntimeSays(number), &mut self.wanted, flags)
    }
}

#[cfg(test)]
mod tests;
