// SPDX-License-Identifier: Apache-2.0
//! One request to the program's server: HTTP/1.1, on a connection of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::PollFlags;

use crate::head::{Request, result};
use crate::program::{Failed, Program, ending};
use crate::wire::Channel;

/// Bytes of an answer's status line and headers.
const HEAD_MAX: usize = 64 << 10;
/// What is read at once.
const PIECE: usize = 64 << 10;
/// Headers about the connection, which the node has ones of its own for.
const OURS: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// A connection to the program.
pub(crate) enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To wherever the program listens.
pub(crate) fn connect(socket: &Path, port: u16) -> io::Result<Connection> {
    match UnixStream::connect(socket) {
        Ok(stream) => Ok(Connection::Unix(stream)),
        Err(_) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(Connection::Tcp),
    }
}

/// Sends a request and gives the result.
pub(crate) fn exchange(
    program: &mut Program,
    request: &Request,
    body: &[u8],
    channel: &mut Channel,
) -> Result<Vec<u8>, Failed> {
    program.logs.begin();
    let connected = connect(&program.socket(), program.port());
    let mut connection =
        match connected.and_then(|connection| connection.set_nonblocking().map(|()| connection)) {
            Ok(connection) => connection,
            Err(error) => return Err(lost(program, &error, channel)),
        };
    let mut left = outgoing(request, body);
    let mut answer = Reading::new(request.http.method == "HEAD", channel.result_max());
    while !answer.is_whole {
        let wanted = if left.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        program.wait(channel, &[(connection.as_fd(), wanted)])?;
        if !left.is_empty() {
            match connection.write(&left) {
                Ok(written) => _ = left.drain(..written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It may have answered without reading everything.
                Err(_) => left.clear(),
            }
        }
        let mut piece = [0; PIECE];
        match connection.read(&mut piece) {
            Ok(0) => match answer.end() {
                Ok(()) => break,
                Err(_) if answer.bytes.is_empty() => {
                    return Err(lost(program, &io::ErrorKind::UnexpectedEof.into(), channel));
                }
                Err(why) => return Err(Failed::Result(why)),
            },
            Ok(len) => answer.take(&piece[..len]).map_err(Failed::Result)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(lost(program, &error, channel)),
        }
    }
    answer.result().map_err(Failed::Result)
}

/// The program gave no answer; it may have ended.
fn lost(program: &mut Program, error: &io::Error, channel: &mut Channel) -> Failed {
    // Its end is seen a moment later than that of its connections.
    for _ in 0..20 {
        match program.ended() {
            Ok(None) => std::thread::sleep(std::time::Duration::from_millis(1)),
            Ok(Some(status)) => {
                let what = format!("the program {} during the call", ending(status));
                return program.failed(what, channel);
            }
            Err(error) => return Failed::Channel(error),
        }
    }
    let what = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the program closed the connection without an answer".to_owned(),
        _ => format!("the program broke the connection: {error}"),
    };
    program.failed(what, channel)
}

/// The request's bytes. What would end a line is no header.
fn outgoing(request: &Request, body: &[u8]) -> Vec<u8> {
    let query =
        if request.http.query.is_empty() { String::new() } else { format!("?{}", request.http.query) };
    let mut head = format!("{} {}{query} HTTP/1.1\r\n", request.http.method, request.http.path);
    let host = request.header("host").unwrap_or("localhost");
    head.push_str(&format!("host: {host}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len()));
    let numbers = [("version", request.call.version), ("deadline-ms", request.call.deadline_ms)];
    head.push_str(&format!("sinew-function: {}\r\n", request.call.function));
    for (name, number) in numbers {
        head.push_str(&format!("sinew-{name}: {number}\r\n"));
    }
    if request.header("x-request-id").is_none() {
        head.push_str(&format!("x-request-id: {}\r\n", request.call.request_id));
    }
    for (name, value) in &request.http.headers {
        if !OURS.contains(&name.as_str())
            && !name.starts_with("sinew-")
            && !value.contains(['\r', '\n', '\0'])
        {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// Status and headers, without those about the connection.
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    length: Length,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Counted(usize),
    Chunked,
    ToTheEnd,
}

/// An answer as it comes.
pub(crate) struct Reading {
    /// The head until it is whole, then what is left of the body.
    bytes: Vec<u8>,
    is_head_only: bool,
    body_max: usize,
    head: Option<Head>,
    body: Vec<u8>,
    pub(crate) is_whole: bool,
}

impl Reading {
    pub(crate) fn new(is_head_only: bool, body_max: usize) -> Self {
        Self { bytes: Vec::new(), is_head_only, body_max, head: None, body: Vec::new(), is_whole: false }
    }

    /// Some more of it.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), String> {
        self.bytes.extend(piece);
        while self.head.is_none() {
            let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                if self.bytes.len() > HEAD_MAX {
                    return Err(format!("the head of the program's answer has over {HEAD_MAX} bytes"));
                }
                return Ok(());
            };
            let mut head = parse(&self.bytes[..end])?;
            self.bytes.drain(..end + 4);
            // What is informational is not the answer.
            if head.status >= 200 {
                if self.is_head_only || matches!(head.status, 204 | 304) {
                    head.length = Length::Counted(0);
                }
                self.head = Some(head);
            }
        }
        self.take_body()
    }

    fn take_body(&mut self) -> Result<(), String> {
        let Some(Head { length, .. }) = self.head else { return Ok(()) };
        match length {
            Length::Chunked => self.take_chunks()?,
            Length::Counted(_) | Length::ToTheEnd => self.body.append(&mut self.bytes),
        }
        if let Length::Counted(len) = length {
            self.fits(len)?;
            self.is_whole = self.body.len() >= len;
            self.body.truncate(len);
        }
        self.fits(self.body.len())
    }

    fn take_chunks(&mut self) -> Result<(), String> {
        let mut at = 0;
        while let Some(line) = self.bytes[at..].windows(2).position(|two| two == b"\r\n") {
            let text = std::str::from_utf8(&self.bytes[at..at + line]).unwrap_or("?");
            let size = text.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16)
                .map_err(|_| "a chunk of the program's answer has no length")?;
            self.fits(self.body.len().saturating_add(size))?;
            if size == 0 {
                // Trailers say nothing that is passed on.
                self.is_whole = true;
                return Ok(());
            }
            let start = at + line + 2;
            if self.bytes.len() < start + size + 2 {
                break;
            }
            self.body.extend(&self.bytes[start..start + size]);
            at = start + size + 2;
        }
        self.bytes.drain(..at);
        // A line with a length is short.
        match self.bytes.len() > self.body_max.saturating_add(PIECE) {
            true => Err("a chunk of the program's answer has no end".to_owned()),
            false => Ok(()),
        }
    }

    fn fits(&self, len: usize) -> Result<(), String> {
        match len > self.body_max {
            true => Err(format!("the program's answer has more than {} bytes", self.body_max)),
            false => Ok(()),
        }
    }

    /// The connection was closed.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        match &self.head {
            Some(Head { length: Length::ToTheEnd, .. }) => {
                self.is_whole = true;
                Ok(())
            }
            _ => Err("the program's answer ends before its end".to_owned()),
        }
    }

    pub(crate) fn result(self) -> Result<Vec<u8>, String> {
        let head = self.head.ok_or("the program's answer has no head")?;
        Ok(result(head.status, &head.headers, &self.body))
    }
}

fn parse(head: &[u8]) -> Result<Head, String> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status =
        first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    let status =
        status.ok_or_else(|| format!("the program does not answer with HTTP/1.1 but {first:.80?}"))?;
    let mut length = Length::ToTheEnd;
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("{line:.80?} is no header of the program's answer"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "transfer-encoding" => length = Length::Chunked,
            "content-length" if length != Length::Chunked => {
                let counted = value.parse().map_err(|_| format!("{value:.80?} is no length of an answer"))?;
                length = Length::Counted(counted);
            }
            _ => {}
        }
        if !OURS.contains(&name.as_str()) {
            headers.push((name, value.to_owned()));
        }
    }
    Ok(Head { status, headers, length })
}
