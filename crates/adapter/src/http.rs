// SPDX-License-Identifier: Apache-2.0
//! One request to the program's server: HTTP/1.1, on a connection of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::PollFlags;

use crate::frame::{PIECE_MAX, STREAM_MAX, STREAM_WINDOW};
use crate::head::{Request, result};
use crate::program::{Failed, Program, ending};
use crate::wire::{Channel, Taken};

/// Bytes of an answer's status line and headers.
const HEAD_MAX: usize = 64 << 10;
/// What is read at once.
const PIECE: usize = 64 << 10;
/// Bytes of the line with a chunk's length.
const CHUNK_LINE_MAX: usize = 4 << 10;
/// The answer is none, but the failure of the call: of this kind, with its text as the body.
const RAISED: &str = "sinew-raised";
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

/// Sends a request and gives the result, or what is left of it: what of an answer
/// has to be waited for is sent in pieces, at the pace at which they are taken.
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
    let mut asking = Asking::new(request, body, channel);
    let mut answer = Reading::new(request.http.method == "HEAD", STREAM_MAX as usize);
    loop {
        answer.send(channel)?;
        if !asking.fill(channel)? {
            return Err(program.failed("the client left before the end of the body".to_owned(), channel));
        }
        if answer.is_whole && (answer.body.is_empty() || !channel.is_in_pieces()) {
            return answer.result(channel);
        }
        // What is not taken yet keeps the program waiting.
        let reads = if answer.is_full() { PollFlags::empty() } else { PollFlags::IN };
        let writes = if asking.left().is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let wanted = reads | writes;
        let of_program = (!wanted.is_empty()).then(|| (connection.as_fd(), wanted));
        program.wait(channel, of_program.as_slice())?;
        if channel.has_left() {
            return Err(program.failed("nobody waits for the answer any more".to_owned(), channel));
        }
        asking.write_some(&mut connection);
        if reads.is_empty() {
            continue;
        }
        if let Err(error) = read_some(&mut connection, &mut answer).map_err(Failed::Result)? {
            return Err(lost(program, &error, channel));
        }
    }
}

/// A request on its way to the program.
struct Asking {
    bytes: Vec<u8>,
    written: usize,
    body: Coming,
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
    fn new(request: &Request, body: &[u8], channel: &mut Channel) -> Self {
        let coming = match request.call.body == "stream" {
            true if request.header("content-length").is_some() => Coming::Counted,
            true => Coming::Chunks,
            false => Coming::No,
        };
        if coming != Coming::No {
            channel.begin_body();
        }
        Self { bytes: outgoing(request, body, coming), written: 0, body: coming }
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Takes more of the body, once all that was there is written. False if it breaks off.
    fn fill(&mut self, channel: &mut Channel) -> io::Result<bool> {
        if self.body == Coming::No || !self.left().is_empty() {
            return Ok(true);
        }
        self.written = 0;
        self.bytes.clear();
        match channel.take_body()? {
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

    /// Writes what there is room for.
    fn write_some(&mut self, connection: &mut Connection) {
        match connection.write(self.left()) {
            Ok(written) => self.written += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It may have answered without reading everything.
            Err(_) => (self.written, self.body) = (self.bytes.len(), Coming::No),
        }
    }
}

/// Takes what is there of an answer, until it has to be waited for or is enough for
/// now. The inner error is the connection's.
fn read_some(connection: &mut Connection, answer: &mut Reading) -> Result<io::Result<()>, String> {
    let mut piece = [0; PIECE];
    while !answer.is_whole && !answer.is_full() {
        match connection.read(&mut piece) {
            Ok(0) if answer.is_untouched() => return Ok(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(0) => answer.end()?,
            Ok(len) => answer.take(&piece[..len])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
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
fn outgoing(request: &Request, body: &[u8], coming: Coming) -> Vec<u8> {
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
    head.push_str(&format!("host: {host}\r\nconnection: close\r\n{length}\r\n"));
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

/// Where in a chunk what comes next is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In the line with its length.
    Length,
    /// Before so many bytes of it.
    Data(usize),
    /// In the end of its last line.
    End,
}

/// An answer as it comes.
pub(crate) struct Reading {
    /// The head until it is whole, then what is not yet read of the body.
    bytes: Vec<u8>,
    is_head_only: bool,
    body_max: usize,
    head: Option<Head>,
    chunk: Chunk,
    /// What has come of the body, and was not sent.
    body: Vec<u8>,
    /// Bytes of the body that were sent.
    sent: usize,
    pub(crate) is_whole: bool,
}

impl Reading {
    pub(crate) fn new(is_head_only: bool, body_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            is_head_only,
            body_max,
            head: None,
            chunk: Chunk::Length,
            body: Vec::new(),
            sent: 0,
            is_whole: false,
        }
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
            self.is_whole = self.sent + self.body.len() >= len;
            self.body.truncate(len.saturating_sub(self.sent));
        }
        self.fits(self.sent + self.body.len())
    }

    fn take_chunks(&mut self) -> Result<(), String> {
        let mut at = 0;
        while !self.is_whole {
            let rest = &self.bytes[at..];
            match self.chunk {
                Chunk::Length => {
                    let Some(line) = rest.windows(2).position(|two| two == b"\r\n") else {
                        if rest.len() > CHUNK_LINE_MAX {
                            return Err("a chunk of the program's answer has no end".to_owned());
                        }
                        break;
                    };
                    let text = std::str::from_utf8(&rest[..line]).unwrap_or("?");
                    let size = text.split(';').next().unwrap_or_default().trim();
                    let size = usize::from_str_radix(size, 16)
                        .map_err(|_| "a chunk of the program's answer has no length")?;
                    self.fits((self.sent + self.body.len()).saturating_add(size))?;
                    at += line + 2;
                    self.chunk = Chunk::Data(size);
                    // Trailers say nothing that is passed on.
                    self.is_whole = size == 0;
                }
                Chunk::Data(0) => self.chunk = Chunk::End,
                Chunk::Data(_) if rest.is_empty() => break,
                Chunk::Data(size) => {
                    let len = size.min(rest.len());
                    self.body.extend(&rest[..len]);
                    at += len;
                    self.chunk = Chunk::Data(size - len);
                }
                Chunk::End if rest.len() < 2 => break,
                Chunk::End if rest.starts_with(b"\r\n") => {
                    at += 2;
                    self.chunk = Chunk::Length;
                }
                Chunk::End => return Err("a chunk of the program's answer has no end".to_owned()),
            }
        }
        self.bytes.drain(..at);
        Ok(())
    }

    fn fits(&self, len: usize) -> Result<(), String> {
        match len > self.body_max {
            true => Err(format!("the program's answer has more than {} bytes", self.body_max)),
            false => Ok(()),
        }
    }

    /// Whether nothing has come of it.
    fn is_untouched(&self) -> bool {
        self.head.is_none() && self.bytes.is_empty()
    }

    /// Whether what is there has to be sent before more is read.
    fn is_full(&self) -> bool {
        self.body.len() > STREAM_WINDOW
    }

    /// Whether it is sent in pieces: it is long, or nobody can say how much of it is to
    /// be waited for.
    fn is_in_pieces(&self) -> bool {
        match &self.head {
            Some(Head { length: Length::Counted(len), .. }) => *len > STREAM_WINDOW,
            Some(_) => !self.is_whole || self.is_full(),
            None => false,
        }
    }

    /// Sends what is there of it, if it is sent in pieces.
    fn send(&mut self, channel: &mut Channel) -> Result<(), Failed> {
        if !channel.is_in_pieces() {
            let Some(head) = self.head.as_ref().filter(|_| self.is_in_pieces()) else { return Ok(()) };
            let begins = result(head.status, &head.headers, &[]);
            if begins.len() > PIECE_MAX {
                let why =
                    format!("the headers have {} bytes; a stream's have at most {PIECE_MAX}", begins.len());
                return Err(Failed::Result(why));
            }
            channel.begin_pieces();
            channel.send_pieces(&begins)?;
        }
        let sent = channel.send_pieces(&self.body)?;
        self.body.drain(..sent);
        self.sent += sent;
        Ok(())
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

    /// What is left of the result, for the end of the call.
    fn result(self, channel: &Channel) -> Result<Vec<u8>, Failed> {
        if channel.is_in_pieces() {
            return Ok(Vec::new());
        }
        let raised = self.head.as_ref().and_then(|head| head.headers.iter().find(|(name, _)| name == RAISED));
        if let Some((_, kind)) = raised {
            return Err(Failed::raised(kind, &self.body));
        }
        let most = channel.result_max();
        if self.body.len() > most {
            return Err(Failed::Result(format!("the program's answer has more than {most} bytes")));
        }
        self.whole().map_err(Failed::Result)
    }

    /// All of it, of which nothing was sent.
    pub(crate) fn whole(self) -> Result<Vec<u8>, String> {
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
