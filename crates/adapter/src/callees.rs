// SPDX-License-Identifier: Apache-2.0
//! Calls of other functions: a local address in the container, for a program
//! of any language. What comes there as `POST /function/NAME`, while a request
//! is handled, goes to the node as an ask, and its answer back.
//!
//! It is the program's own address, so that nothing needs protection here; the
//! bounds are those that the node ends an instance for.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::frame::{ASK_BODY_MAX, ASK_NAME_MAX, ASK_TYPE_MAX, ASKS_BYTES_MAX, ASKS_MAX, AskId, Turn};
use crate::poller::{Poller, Source, Wanted};
use crate::wire::{Channel, Told};

/// Bytes of a request line and headers.
const HEAD_MAX: usize = 16 << 10;
const PIECE: usize = 64 << 10;
/// A call that has not come whole by then may be closed.
const SAYS_WITHIN: Duration = Duration::from_secs(10);
const PREFIX: &str = "/function/";
/// Before that, the request that a call is for.
const FOR: &str = "/for/";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The address, who calls there, and for which requests one may.
pub(crate) struct Callees {
    listener: TcpListener,
    wanted: Wanted,
    conversations: HashMap<u32, Conversation>,
    last_conversation: u32,
    last: AskId,
    running: Vec<Turn>,
    /// Of several, a request was given up while the program may still work for it.
    has_left: bool,
}

/// One connection, for one call.
struct Conversation {
    stream: TcpStream,
    wanted: Wanted,
    state: State,
    /// When it came.
    since: Instant,
    is_continued: bool,
}

enum State {
    /// What has come of the request.
    Reading(Vec<u8>),
    /// The node has it, for a request that runs, and so many bytes of its body.
    Asked(Turn, AskId, usize),
    /// What is left of the answer, to a request that runs, or to none.
    Writing(Option<Turn>, Vec<u8>),
    Over,
}

/// What has come so far, as a request.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// Not whole; whether it waits to be told to go on.
    Part {
        waits: bool,
    },
    Ask {
        /// The request that it is for, if it says so.
        turn: Option<Turn>,
        name: String,
        content_type: String,
        body_at: usize,
    },
    Refused(u16, &'static str),
}

impl Callees {
    /// Listens on a free port of the container's own network.
    pub(crate) fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            wanted: Wanted::default(),
            conversations: HashMap::new(),
            last_conversation: 0,
            last: 0,
            running: Vec::new(),
            has_left: false,
        })
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}", self.listener.local_addr()?))
    }

    /// A request begins. Nobody calls between two of them.
    pub(crate) fn begin(&mut self, turn: Turn, poller: &Poller) -> io::Result<()> {
        if self.running.is_empty() {
            while self.listener.accept().is_ok() {}
        }
        self.running.push(turn);
        // Clients that keep connections ready, or have forgotten them, keep nobody else out.
        let is_idle =
            |one: &Conversation| matches!(one.state, State::Reading(_)) && one.since.elapsed() > SAYS_WITHIN;
        self.conversations.retain(|_, one| !is_idle(one));
        self.listen_if_there_is_room(poller)
    }

    /// A request has ended: what it has called is over.
    pub(crate) fn end(&mut self, turn: Turn, poller: &Poller) -> io::Result<()> {
        self.running.retain(|running| *running != turn);
        let is_over = self.running.is_empty();
        let its = |state: &State| match state {
            State::Asked(of, ..) | State::Writing(Some(of), _) => *of == turn || is_over,
            _ => is_over,
        };
        self.conversations.retain(|_, one| !its(&one.state));
        self.listen_if_there_is_room(poller)
    }

    /// A request is given up, and the program may go on with it: who calls and does not say for which one may call for
    /// that from now on, also where only one is handled.
    pub(crate) fn leave(&mut self) {
        self.has_left = true;
    }

    fn listen_if_there_is_room(&mut self, poller: &Poller) -> io::Result<()> {
        let has_room = !self.running.is_empty() && self.conversations.len() < ASKS_MAX;
        let flags = if has_room { PollFlags::IN } else { PollFlags::empty() };
        poller.want(&self.listener, Source::Callers, &mut self.wanted, flags)
    }

    /// Takes those who have come.
    pub(crate) fn accept(&mut self, poller: &Poller) -> io::Result<()> {
        while self.conversations.len() < ASKS_MAX
            && let Ok((stream, _)) = self.listener.accept()
        {
            stream.set_nonblocking(true)?;
            self.last_conversation = self.last_conversation.wrapping_add(1);
            let (number, state) = (self.last_conversation, State::Reading(Vec::new()));
            let (wanted, since) = (Wanted::default(), Instant::now());
            let mut one = Conversation { stream, wanted, state, since, is_continued: false };
            one.wait(number, poller)?;
            self.conversations.insert(number, one);
        }
        self.listen_if_there_is_room(poller)
    }

    /// Takes what has come of a call, and sends what can be sent.
    pub(crate) fn go_on(&mut self, number: u32, channel: &mut Channel, poller: &Poller) -> io::Result<()> {
        let bytes: usize = self.conversations.values().map(Conversation::asked_bytes).sum();
        let Some(one) = self.conversations.get_mut(&number) else { return Ok(()) };
        if one.read()
            && let State::Reading(come) = &one.state
        {
            match parse(come) {
                Read::Part { waits } => one.lets_go_on(waits),
                Read::Refused(status, why) => one.refuse(status, why),
                Read::Ask { body_at, .. } if bytes + come.len() - body_at > ASKS_BYTES_MAX => {
                    one.refuse(503, "calls with 32 MiB have no answer yet; wait for some of them");
                }
                Read::Ask { turn, name, content_type, body_at } => {
                    match whose(&self.running, turn, self.has_left) {
                        Err(why) => one.refuse(409, why),
                        Ok(turn) => {
                            self.last = self.last.wrapping_add(1);
                            let body = &come[body_at..];
                            channel.ask(turn, self.last, &name, &content_type, body)?;
                            one.state = State::Asked(turn, self.last, body.len());
                        }
                    }
                }
            }
        }
        self.write(number, poller)
    }

    /// An answer of the node.
    pub(crate) fn told(&mut self, told: Told, poller: &Poller) -> io::Result<()> {
        let asked = self.conversations.iter_mut().find_map(|(number, one)| match one.state {
            State::Asked(of, id, _) if id == told.id => Some((*number, of, one)),
            _ => None,
        });
        let Some((number, of, one)) = asked else { return Ok(()) };
        one.answer(Some(of), told.status, &told.content_type, &told.body);
        self.write(number, poller)
    }

    /// Sends what can be sent. Who reads to the end of the connection waits for that.
    fn write(&mut self, number: u32, poller: &Poller) -> io::Result<()> {
        let Some(one) = self.conversations.get_mut(&number) else { return Ok(()) };
        one.write();
        one.wait(number, poller)?;
        if matches!(one.state, State::Over) {
            self.conversations.remove(&number);
        }
        self.listen_if_there_is_room(poller)
    }
}

/// The request that a call is for.
fn whose(running: &[Turn], turn: Option<Turn>, has_left: bool) -> Result<Turn, &'static str> {
    match (turn, running) {
        (Some(turn), _) if running.contains(&turn) => Ok(turn),
        (Some(_), _) => Err("the request that this call is for is over"),
        (None, &[only]) if !has_left => Ok(only),
        (None, _) => Err("several requests may be handled, and this call does not say for which one: \
                          send it to the address in that request's header sinew-url"),
    }
}

impl Conversation {
    /// What the node has of it.
    fn asked_bytes(&self) -> usize {
        if let State::Asked(_, _, bytes) = self.state { bytes } else { 0 }
    }

    /// Takes what has come of the request; false if there is nothing new.
    fn read(&mut self) -> bool {
        let State::Reading(bytes) = &mut self.state else { return false };
        let mut piece = [0; PIECE];
        match self.stream.read(&mut piece) {
            Ok(len) if len > 0 => bytes.extend(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            _ => {
                self.state = State::Over;
                return false;
            }
        }
        true
    }

    /// Tells one that waits for it to send the body. A client that does not read that goes on without.
    fn lets_go_on(&mut self, waits: bool) {
        if waits && !self.is_continued {
            self.is_continued = true;
            _ = self.stream.write(CONTINUE);
        }
    }

    fn refuse(&mut self, status: u16, why: &str) {
        self.answer(None, status, "text/plain", why.as_bytes());
    }

    fn answer(&mut self, of: Option<Turn>, status: u16, content_type: &str, body: &[u8]) {
        let kind =
            if content_type.is_empty() { String::new() } else { format!("content-type: {content_type}\r\n") };
        let head = format!(
            "HTTP/1.1 {status} {}\r\n{kind}content-length: {}\r\nconnection: close\r\n\r\n",
            if status < 400 { "OK" } else { "Failed" },
            body.len()
        );
        self.state = State::Writing(of, [head.as_bytes(), body].concat());
    }

    fn write(&mut self) {
        let State::Writing(_, left) = &mut self.state else { return };
        let mut written = 0;
        while written < left.len() {
            match self.stream.write(&left[written..]) {
                Ok(len) => written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    left.drain(..written);
                    return;
                }
                Err(_) => break,
            }
        }
        self.state = State::Over;
    }

    /// Waits for what comes next.
    fn wait(&mut self, number: u32, poller: &Poller) -> io::Result<()> {
        let flags = match self.state {
            State::Reading(_) => PollFlags::IN,
            State::Writing(..) => PollFlags::OUT,
            State::Asked(..) | State::Over => PollFlags::empty(),
        };
        poller.want(&self.stream, Source::Caller(number), &mut self.wanted, flags)
    }
}

/// What these bytes are of a request. The body is all that follows its head.
fn parse(bytes: &[u8]) -> Read {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        let is_long = bytes.len() > HEAD_MAX;
        return if is_long {
            Read::Refused(431, "the head is too long")
        } else {
            Read::Part { waits: false }
        };
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let Some((turn, name)) = path.split('?').next().and_then(called) else {
        return Read::Refused(404, "functions are called here with POST /function/NAME");
    };
    if method != "POST" {
        return Read::Refused(405, "functions are called here with POST");
    }
    let (mut len, mut content_type, mut waits) = (0, String::new(), false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => match value.parse::<usize>() {
                Ok(told) => len = told,
                Err(_) => return Read::Refused(400, "content-length is no number"),
            },
            "transfer-encoding" => return Read::Refused(411, "send content-length instead of chunks"),
            "content-type" => content_type = value.to_owned(),
            "expect" => waits = true,
            _ => {}
        }
    }
    if len > ASK_BODY_MAX {
        return Read::Refused(413, "the body of a call of a function has at most 16 MiB");
    }
    if name.len() > ASK_NAME_MAX || content_type.len() > ASK_TYPE_MAX {
        return Read::Refused(400, "a function's name has at most 128 bytes, a content type 256");
    }
    let name = name.trim_end_matches('/').to_owned();
    match (bytes.len() - end - 4).cmp(&len) {
        std::cmp::Ordering::Less => Read::Part { waits },
        std::cmp::Ordering::Equal => Read::Ask { turn, name, content_type, body_at: end + 4 },
        std::cmp::Ordering::Greater => Read::Refused(400, "more came than content-length says"),
    }
}

/// The request and the function that a path names.
fn called(path: &str) -> Option<(Option<Turn>, &str)> {
    match path.strip_prefix(FOR) {
        None => Some((None, path.strip_prefix(PREFIX)?)),
        Some(rest) => {
            let (turn, rest) = rest.split_at(rest.find('/')?);
            Some((Some(turn.parse().ok()?), rest.strip_prefix(PREFIX)?))
        }
    }
}

/// Where functions are called for a request.
pub(crate) fn address(url: &str, turn: Turn) -> String {
    format!("{url}{FOR}{turn}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_however_they_come() {
        let whole = b"POST /function/g:2/?x HTTP/1.1\r\nContent-Type: a/b\r\ncontent-length: 2\r\n\r\nhi";
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), Read::Part { waits: false }, "{len}");
        }
        let body_at = whole.len() - 2;
        assert_eq!(
            parse(whole),
            Read::Ask { turn: None, name: "g:2".into(), content_type: "a/b".into(), body_at }
        );
        let none = b"POST /function/g HTTP/1.1\r\n\r\n";
        assert_eq!(
            parse(none),
            Read::Ask { turn: None, name: "g".into(), content_type: String::new(), body_at: none.len() }
        );
        let its = b"POST /for/7/function/g HTTP/1.1\r\n\r\n";
        assert!(matches!(parse(its), Read::Ask { turn: Some(7), name, .. } if name == "g"));
        let waits = b"POST /function/g HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
        assert_eq!(parse(waits), Read::Part { waits: true });
    }

    #[test]
    fn a_call_is_of_the_request_that_it_names_or_of_the_only_one() {
        assert_eq!(whose(&[3], None, false), Ok(3));
        assert_eq!(whose(&[3, 4], Some(4), true), Ok(4));
        assert!(whose(&[3], None, true).is_err(), "it may be for one that was given up");
        for (running, turn, why) in
            [(&[3, 4][..], None, "sinew-url"), (&[3], Some(4), "is over"), (&[], None, "does not say")]
        {
            assert!(whose(running, turn, false).unwrap_err().contains(why));
        }
    }

    #[test]
    fn what_is_no_call_is_refused() {
        let long = format!("POST /function/{} HTTP/1.1\r\n\r\n", "g".repeat(129));
        for (bytes, status) in [
            ("GET /function/g HTTP/1.1\r\n\r\n", 405),
            ("POST /functions HTTP/1.1\r\n\r\n", 404),
            ("POST\r\n\r\n", 404),
            ("POST /for/7 HTTP/1.1\r\n\r\n", 404),
            ("POST /for/me/function/g HTTP/1.1\r\n\r\n", 404),
            ("POST /function/g HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
            ("POST /function/g HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
            ("POST /function/g HTTP/1.1\r\ncontent-length: 16777217\r\n\r\n", 413),
            ("POST /function/g HTTP/1.1\r\ncontent-length: 1\r\n\r\nhi", 400),
            (long.as_str(), 400),
            ("x".repeat(HEAD_MAX + 1).as_str(), 431),
        ] {
            assert!(
                matches!(parse(bytes.as_bytes()), Read::Refused(told, _) if told == status),
                "{bytes:.60}"
            );
        }
    }
}
