// SPDX-License-Identifier: Apache-2.0
//! Calls of other functions: a local address in the container, for a program
//! of any language. What comes there as `POST /function/NAME`, while a request
//! is handled, goes to the node as an ask, and its answer back.
//!
//! It is the program's own address, so that nothing needs protection here; the
//! bounds are those that the node ends an instance for.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::PollFlags;

use crate::frame::{ASK_BODY_MAX, ASK_NAME_MAX, ASK_TYPE_MAX, ASKS_BYTES_MAX, ASKS_MAX, AskId};
use crate::wire::{Channel, Told};

/// Bytes of a request line and headers.
const HEAD_MAX: usize = 16 << 10;
const PIECE: usize = 64 << 10;
const PREFIX: &str = "/function/";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The address, and who calls there.
pub(crate) struct Callees {
    listener: TcpListener,
    conversations: Vec<Conversation>,
    last: AskId,
}

/// One connection, for one call.
struct Conversation {
    stream: TcpStream,
    state: State,
    is_continued: bool,
}

enum State {
    /// What has come of the request.
    Reading(Vec<u8>),
    /// The node has it, and so many bytes of its body.
    Asked(AskId, usize),
    /// What is left of the answer.
    Writing(Vec<u8>),
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
        Ok(Self { listener, conversations: Vec::new(), last: 0 })
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}", self.listener.local_addr()?))
    }

    /// A request begins: what the one before had called is over, and nobody calls
    /// between two of them.
    pub(crate) fn begin(&mut self) {
        self.conversations.clear();
        while self.listener.accept().is_ok() {}
    }

    /// Whether the node is to answer something.
    pub(crate) fn is_asking(&self) -> bool {
        self.conversations.iter().any(|one| matches!(one.state, State::Asked(..)))
    }

    /// What is to be waited for.
    pub(crate) fn waited_for(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let has_room = self.conversations.len() < ASKS_MAX;
        let listener = has_room.then_some((self.listener.as_fd(), PollFlags::IN));
        let conversations = self.conversations.iter().filter_map(|one| match one.state {
            State::Reading(_) => Some((one.stream.as_fd(), PollFlags::IN)),
            State::Writing(_) => Some((one.stream.as_fd(), PollFlags::OUT)),
            State::Asked(..) | State::Over => None,
        });
        listener.into_iter().chain(conversations).collect()
    }

    /// Takes what has come, and sends what can be sent.
    pub(crate) fn act(&mut self, channel: &mut Channel) -> io::Result<()> {
        while self.conversations.len() < ASKS_MAX
            && let Ok((stream, _)) = self.listener.accept()
        {
            stream.set_nonblocking(true)?;
            let state = State::Reading(Vec::new());
            self.conversations.push(Conversation { stream, state, is_continued: false });
        }
        let mut bytes: usize = self.conversations.iter().map(Conversation::asked_bytes).sum();
        for one in &mut self.conversations {
            if matches!(one.state, State::Reading(_)) {
                one.read(&mut self.last, ASKS_BYTES_MAX.saturating_sub(bytes), channel)?;
                bytes += one.asked_bytes();
            }
            one.write();
        }
        self.close_those_over();
        Ok(())
    }

    fn close_those_over(&mut self) {
        self.conversations.retain(|one| !matches!(one.state, State::Over));
    }

    /// An answer of the node.
    pub(crate) fn told(&mut self, told: Told) {
        let its = |one: &&mut Conversation| matches!(one.state, State::Asked(id, _) if id == told.id);
        if let Some(one) = self.conversations.iter_mut().find(its) {
            one.answer(told.status, &told.content_type, &told.body);
            one.write();
        }
        // Who reads to the end of the connection waits for that.
        self.close_those_over();
    }
}

impl Conversation {
    /// What the node has of it.
    fn asked_bytes(&self) -> usize {
        if let State::Asked(_, bytes) = self.state { bytes } else { 0 }
    }

    /// Takes what has come, and asks if that is all; the node takes `room` bytes.
    fn read(&mut self, last: &mut AskId, room: usize, channel: &mut Channel) -> io::Result<()> {
        let State::Reading(bytes) = &mut self.state else { return Ok(()) };
        let mut piece = [0; PIECE];
        match self.stream.read(&mut piece) {
            Ok(len) if len > 0 => bytes.extend(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            _ => {
                self.state = State::Over;
                return Ok(());
            }
        }
        match parse(bytes) {
            Read::Part { waits } => {
                if waits && !self.is_continued {
                    self.is_continued = true;
                    // A client that does not read it goes on without.
                    _ = self.stream.write(CONTINUE);
                }
            }
            Read::Refused(status, why) => self.answer(status, "text/plain", why.as_bytes()),
            Read::Ask { body_at, .. } if bytes.len() - body_at > room => {
                self.answer(
                    503,
                    "text/plain",
                    b"calls with 32 MiB have no answer yet; wait for some of them",
                );
            }
            Read::Ask { name, content_type, body_at } => {
                *last = last.wrapping_add(1);
                let body = &bytes[body_at..];
                channel.ask(*last, &name, &content_type, body)?;
                self.state = State::Asked(*last, body.len());
            }
        }
        Ok(())
    }

    fn answer(&mut self, status: u16, content_type: &str, body: &[u8]) {
        let kind =
            if content_type.is_empty() { String::new() } else { format!("content-type: {content_type}\r\n") };
        let head = format!(
            "HTTP/1.1 {status} {}\r\n{kind}content-length: {}\r\nconnection: close\r\n\r\n",
            if status < 400 { "OK" } else { "Failed" },
            body.len()
        );
        self.state = State::Writing([head.as_bytes(), body].concat());
    }

    fn write(&mut self) {
        let State::Writing(left) = &mut self.state else { return };
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(written) => _ = left.drain(..written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.state = State::Over;
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
    let Some(name) = path.split('?').next().and_then(|path| path.strip_prefix(PREFIX)) else {
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
        std::cmp::Ordering::Equal => Read::Ask { name, content_type, body_at: end + 4 },
        std::cmp::Ordering::Greater => Read::Refused(400, "more came than content-length says"),
    }
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
        assert_eq!(parse(whole), Read::Ask { name: "g:2".into(), content_type: "a/b".into(), body_at });
        let none = b"POST /function/g HTTP/1.1\r\n\r\n";
        assert_eq!(
            parse(none),
            Read::Ask { name: "g".into(), content_type: String::new(), body_at: none.len() }
        );
        let waits = b"POST /function/g HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
        assert_eq!(parse(waits), Read::Part { waits: true });
    }

    #[test]
    fn what_is_no_call_is_refused() {
        let long = format!("POST /function/{} HTTP/1.1\r\n\r\n", "g".repeat(129));
        for (bytes, status) in [
            ("GET /function/g HTTP/1.1\r\n\r\n", 405),
            ("POST /functions HTTP/1.1\r\n\r\n", 404),
            ("POST\r\n\r\n", 404),
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
