// SPDX-License-Identifier: Apache-2.0
//! One request to the program's server: HTTP/1.1, on a connection that the
//! next one may be sent on.

use std::io::{self, Read as _, Write as _};

use rustix::event::PollFlags;

use crate::answer::Reading;
use crate::connection::{Connection, Connections};
use crate::flow::{Flow, Taken};
use crate::frame::{STREAM_MAX, Turn};
use crate::head::Request;
use crate::poller::{Poller, Source, Wanted};
use crate::program::Failed;
use crate::wire::Channel;

/// What is read at once.
pub(crate) const PIECE: usize = 64 << 10;
/// Headers about the connection, which the node has ones of its own for.
pub(crate) const OURS: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];
/// What may be asked a second time where it is not known whether it was heard (RFC 9110, 9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

/// A request, and what has come of it.
pub(crate) struct Exchange {
    turn: Turn,
    /// None as long as the program takes no more of them.
    connection: Option<Connection>,
    wanted: Wanted,
    asking: Asking,
    answer: Reading,
    /// It may be asked again if nothing comes on a connection that was used before.
    is_repeatable: bool,
    /// Nothing was sent yet that an answer might have come to.
    is_new: bool,
    /// The connection was lost, and nothing more is done: it is to be found out why.
    pub(crate) is_lost: bool,
}

impl Exchange {
    /// `callers` is where the program calls other functions for this request.
    pub(crate) fn new(turn: Turn, request: &Request, body: &[u8], callers: &str, flow: &mut Flow) -> Self {
        let asking = Asking::new(request, body, callers, flow);
        let method = request.http.method.as_str();
        Self {
            turn,
            connection: None,
            wanted: Wanted::default(),
            is_repeatable: asking.body == Coming::No && IDEMPOTENT.contains(&method),
            asking,
            is_new: true,
            is_lost: false,
            answer: Reading::new(method == "HEAD", STREAM_MAX as usize),
        }
    }

    /// Whether there is no connection for it yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.connection.is_none()
    }

    /// Whether the program may have heard of it.
    pub(crate) fn is_told(&self) -> bool {
        self.asking.is_told
    }

    /// Begins anew, with another server.
    pub(crate) fn start_over(&mut self, poller: &Poller) -> io::Result<()> {
        self.asking.repeat();
        self.is_lost = false;
        self.close(poller)
    }

    /// Does what can be done without waiting: the result, or what is left of it, if that is all.
    pub(crate) fn go_on(
        &mut self,
        flow: &mut Flow,
        channel: &mut Channel,
        connections: &mut Connections,
        poller: &Poller,
        buffer: &mut [u8],
    ) -> Result<bool, Failed> {
        loop {
            if self.connection.is_none() {
                self.connection = connections.take().map_err(Failed::Lost)?;
                if self.connection.is_none() {
                    return Ok(false);
                }
            }
            match self.exchange(flow, channel, buffer) {
                Err(Failed::Lost(_)) if self.may_ask_again() => {
                    connections.close();
                    self.start_over(poller)?;
                }
                Ok(false) => {
                    self.wait(poller)?;
                    return Ok(false);
                }
                done => {
                    self.leave(connections, poller)?;
                    return done;
                }
            }
        }
    }

    /// One whose connection was closed before the program can have heard of it is asked again.
    fn may_ask_again(&self) -> bool {
        let is_used = self.connection.as_ref().is_some_and(|connection| connection.is_used);
        is_used && self.answer.is_untouched() && (self.is_repeatable || !self.asking.is_told)
    }

    /// Sends and takes what there is, in either direction, until one has to wait.
    fn exchange(
        &mut self,
        flow: &mut Flow,
        channel: &mut Channel,
        buffer: &mut [u8],
    ) -> Result<bool, Failed> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        loop {
            if !self.asking.fill(flow, channel)? {
                return Err(Failed::program("the client left before the end of the body"));
            }
            if self.asking.left().is_empty() || !self.asking.write_some(connection)? {
                break;
            }
        }
        if std::mem::take(&mut self.is_new) && self.asking.is_over() {
            return Ok(false);
        }
        read_some(connection, &mut self.answer, buffer)?;
        self.answer.send(flow, channel)?;
        Ok(self.answer.is_whole && (self.answer.is_all_sent() || !flow.is_in_pieces()))
    }

    /// What is not taken yet keeps the program waiting.
    fn wait(&mut self, poller: &Poller) -> io::Result<()> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.answer.is_full() && !self.answer.is_whole);
        flags.set(PollFlags::OUT, !self.asking.left().is_empty());
        let Some(connection) = &self.connection else { return Ok(()) };
        poller.want(connection, Source::Answer(self.turn), &mut self.wanted, flags)
    }

    fn close(&mut self, poller: &Poller) -> io::Result<()> {
        let Some(connection) = self.connection.take() else { return Ok(()) };
        poller.want(&connection, Source::Answer(self.turn), &mut self.wanted, PollFlags::empty())
    }

    /// The next request may have the connection, if this one has left nothing there.
    fn leave(&mut self, connections: &mut Connections, poller: &Poller) -> io::Result<()> {
        if self.asking.is_over() && self.answer.leaves_it_open() {
            let Some(connection) = self.connection.take() else { return Ok(()) };
            let source = Source::Answer(self.turn);
            poller.want(&connection, source, &mut self.wanted, PollFlags::empty())?;
            connections.keep(connection);
            return Ok(());
        }
        self.close(poller)
    }

    /// What is left of the result, for the end of the call.
    pub(crate) fn result(self, flow: &Flow, most: usize) -> Result<Vec<u8>, Failed> {
        self.answer.result(flow, most)
    }
}

/// A request on its way to the program.
struct Asking {
    bytes: Vec<u8>,
    written: usize,
    body: Coming,
    /// The program takes no more of it.
    is_refused: bool,
    /// Some of it was written, to whom else may be there to read it.
    is_told: bool,
}

/// What else of the request's body comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coming {
    /// Nothing.
    No,
    /// More of it, each piece a chunk.
    Chunks,
    /// More of it, of which the head tells the length.
    Counted,
}

impl Asking {
    fn new(request: &Request, body: &[u8], callers: &str, flow: &mut Flow) -> Self {
        let coming = match request.call.body == "stream" {
            true if request.header("content-length").is_some() => Coming::Counted,
            true => Coming::Chunks,
            false => Coming::No,
        };
        if coming != Coming::No {
            flow.begin_body();
        }
        let bytes = outgoing(request, body, coming, callers);
        Self { bytes, written: 0, body: coming, is_refused: false, is_told: false }
    }

    fn left(&self) -> &[u8] {
        if self.is_refused { &[] } else { &self.bytes[self.written..] }
    }

    /// Whether the program has taken all of it.
    fn is_over(&self) -> bool {
        !self.is_refused && self.body == Coming::No && self.left().is_empty()
    }

    /// From its beginning.
    fn repeat(&mut self) {
        (self.written, self.is_refused, self.is_told) = (0, false, false);
    }

    /// Takes more of the body, once all that was there is written. False if it breaks off.
    fn fill(&mut self, flow: &mut Flow, channel: &mut Channel) -> io::Result<bool> {
        if self.is_refused || self.body == Coming::No || !self.left().is_empty() {
            return Ok(true);
        }
        self.written = 0;
        self.bytes.clear();
        match flow.take_body(channel)? {
            Taken::None => {}
            Taken::Some(bytes) if self.body == Coming::Counted => self.bytes = bytes,
            Taken::Some(bytes) => {
                self.bytes.extend(format!("{:x}\r\n", bytes.len()).as_bytes());
                self.bytes.extend(bytes);
                self.bytes.extend(b"\r\n");
            }
            Taken::End { is_whole: false } => return Ok(false),
            Taken::End { .. } => {
                if self.body == Coming::Chunks {
                    self.bytes.extend(b"0\r\n\r\n");
                }
                self.body = Coming::No;
            }
        }
        Ok(true)
    }

    /// Writes what there is room for; false if there is none.
    fn write_some(&mut self, connection: &mut Connection) -> Result<bool, Failed> {
        match connection.write(self.left()) {
            Ok(written) => {
                self.written += written;
                self.is_told = true;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(Failed::Lost(error)),
            Err(_) => {
                // It may have answered without reading everything.
                self.is_refused = true;
                Ok(true)
            }
        }
    }
}

/// Takes what is there of an answer, until it has to be waited for or is enough for now.
fn read_some(connection: &mut Connection, answer: &mut Reading, buffer: &mut [u8]) -> Result<(), Failed> {
    while !answer.is_whole && !answer.is_full() {
        match connection.read(buffer) {
            Ok(0) if answer.is_untouched() => return Err(Failed::Lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(0) => answer.end().map_err(Failed::Result)?,
            Ok(len) => answer.take(&buffer[..len]).map_err(Failed::Result)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failed::Lost(error)),
        }
    }
    Ok(())
}

/// The request's bytes. What would end a line is no header.
fn outgoing(request: &Request, body: &[u8], coming: Coming, callers: &str) -> Vec<u8> {
    let query =
        if request.http.query.is_empty() { String::new() } else { format!("?{}", request.http.query) };
    let mut head = format!("{} {}{query} HTTP/1.1\r\n", request.http.method, request.http.path);
    let host = request.header("host").unwrap_or("localhost");
    let length = match coming {
        Coming::No => format!("content-length: {}", body.len()),
        Coming::Counted => {
            format!("content-length: {}", request.header("content-length").unwrap_or_default())
        }
        Coming::Chunks => "transfer-encoding: chunked".to_owned(),
    };
    head.push_str(&format!("host: {host}\r\n{length}\r\nsinew-url: {callers}\r\n"));
    let numbers = [("version", request.call.version), ("deadline-ms", request.call.deadline_ms)];
    head.push_str(&format!("sinew-function: {}\r\n", request.call.function));
    for (name, number) in numbers {
        head.push_str(&format!("sinew-{name}: {number}\r\n"));
    }
    if request.header("x-request-id").is_none() {
        head.push_str(&format!("x-request-id: {}\r\n", request.call.request_id));
    }
    // The node has found out whom to believe.
    let forwarded = [("x-forwarded-for", &request.http.client), ("x-forwarded-proto", &request.http.scheme)];
    for (name, value) in forwarded.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let is_told = |header: &str| forwarded.iter().any(|(name, value)| *name == header && value.is_some());
    for (name, value) in &request.http.headers {
        if !OURS.contains(&name.as_str())
            && !name.starts_with("sinew-")
            && !is_told(name)
            && !value.contains(['\r', '\n', '\0'])
        {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}
