// SPDX-License-Identifier: Apache-2.0
//! The node's end of a channel, and ends of lines, by hand.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linux::SharedMemory;
use xpu::fifo::{Reader, Writer};
use xpu::line::Line;

/// Those of `crates/sandbox/src/process/channel.rs` that native functions know.
pub(crate) mod frame {
    pub(crate) const VERSION: u16 = 9;
    pub(crate) const LOADED: u8 = 3;
    pub(crate) const CALL: u8 = 4;
    pub(crate) const RESULT: u8 = 5;
    pub(crate) const RAISED: u8 = 6;
    pub(crate) const LOG: u8 = 8;
    pub(crate) const ASK: u8 = 10;
    pub(crate) const TOLD: u8 = 11;
    pub(crate) const SERVE: u8 = 18;
    pub(crate) const LINE: u8 = 19;
    pub(crate) const SERVED: u8 = 20;
    pub(crate) const SERVING: u8 = 21;
    pub(crate) const WAITED: u8 = 22;
    pub(crate) const ASK_AGAIN: u8 = 23;
    pub(crate) const DROPPED: u8 = 24;
    pub(crate) const MAPPED: u8 = 26;
    pub(crate) const LEAVING: u8 = 27;
}

use frame::{CALL, LINE, LOADED, LOG, RESULT, SERVE, TOLD, VERSION, WAITED};

const CAPACITY: usize = 64 << 10;
const RESULT_MAX: u32 = 1 << 20;
const LOG_MAX: u32 = 1000;
const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const SEALED: &[u8] =
    b"{\"request_id\": \"a-request\", \"deadline_ms\": 99999999999999, \"depth\": 2, \
    \"seal\": \"07070707070707070707070707070707\"}\n{\"headers\": [[\"traceparent\", \
    \"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\"]]}";

/// The head of a step's request.
pub(crate) const STEP: &[u8] = b"{\"request_id\": \"a-run\", \"source\": \"step\"}";

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The texts of what was raised.
pub(crate) fn texts(mut rest: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let (one, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        all.push(text(one));
        rest = after;
    }
    all
}

/// A request of this number, whose id and type are so long, with a body.
pub(crate) fn request(number: u32, id_len: u8, type_len: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(number.to_le_bytes());
    message.extend(u64::MAX.to_le_bytes());
    message.extend(3_u32.to_le_bytes());
    message.extend([7; 16 + 16 + 8]);
    message.push(1);
    message.push(id_len);
    message.extend(type_len.to_le_bytes());
    message.extend(body);
    message
}

pub(crate) fn asked(number: u32) -> Vec<u8> {
    request(number, 9, 0, b"a-requestbody")
}

/// The program, compiled once.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native-function");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let guests = root.join("../../guests/native");
        let mut compiler = Command::new("cc");
        compiler.args([
            "-std=c11",
            "-D_DEFAULT_SOURCE",
            "-g",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ]);
        compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-pthread", "-I"]);
        compiler.arg(&guests).arg(guests.join("sinew.c")).arg(root.join("tests/native/function.c"));
        assert!(
            compiler.arg("-o").arg(&path).status().unwrap().success(),
            "guests/native cannot be compiled"
        );
        path
    })
}

/// A native function, and the node's end of its channel.
pub(crate) struct Node {
    stream: UnixStream,
    child: Child,
    pub(crate) printed: String,
    turn: u32,
    lines: Vec<Line>,
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Node {
    pub(crate) fn new() -> Self {
        let mut node = Self::of_version(VERSION);
        assert_eq!(node.frame().0, LOADED);
        node
    }

    /// One whose function may have so many open files.
    pub(crate) fn with_files_max(files: usize) -> Self {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {files}; exec \"$0\"")]).arg(program());
        let mut node = Self::of(limited, VERSION);
        assert_eq!(node.frame().0, LOADED);
        node
    }

    /// A node that says so.
    pub(crate) fn of_version(version: u16) -> Self {
        Self::of(Command::new(program()), version)
    }

    fn of(mut command: Command, version: u16) -> Self {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        // What it reads of its own printing is in the place of its standard error.
        command.env("SINEW_CHANNEL", format!("{version} 0 2 {RESULT_MAX} {LOG_MAX}"));
        // What the node wants ends it, and so no memory is freed at its end.
        command.env("ASAN_OPTIONS", "detect_leaks=0:handle_abort=0:handle_segv=0");
        command.stdin(OwnedFd::from(theirs)).stdout(writer).stderr(reader);
        let child = command.spawn().unwrap();
        Self { stream, child, printed: String::new(), turn: 0, lines: Vec::new() }
    }

    pub(crate) fn send(&mut self, kind: u8, turn: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend(turn.to_le_bytes());
        frame.extend(payload);
        match fds {
            [] => self.stream.write_all(&frame).unwrap(),
            _ => assert_eq!(linux::send_part(&self.stream, &frame, fds).unwrap(), frame.len()),
        }
    }

    /// The next frame; what was printed before it is kept.
    pub(crate) fn frame(&mut self) -> (u8, u32, Vec<u8>) {
        self.frame_or_end().expect("it goes on")
    }

    /// `None` if the other end is closed.
    pub(crate) fn frame_or_end(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            let mut head = [0; 9];
            match self.stream.read_exact(&mut head) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
                read => read.unwrap(),
            }
            let [a, b, c, d, kind, turn @ ..] = head;
            let mut payload = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
            self.stream.read_exact(&mut payload).unwrap();
            match kind {
                LOG => self.printed.push_str(&text(&payload[1..])),
                _ => return Some((kind, u32::from_le_bytes(turn), payload)),
            }
        }
    }

    pub(crate) fn send_call(&mut self, head: &[u8], body: &[u8]) {
        let mut payload = 3_u32.to_le_bytes().to_vec();
        let arguments = [&[1; 16][..], head, body];
        arguments.iter().for_each(|argument| payload.extend((argument.len() as u32).to_le_bytes()));
        arguments.iter().for_each(|argument| payload.extend(*argument));
        self.turn += 1;
        self.send(CALL, self.turn, &payload, &[]);
    }

    /// The same with values that others made, and memory that is lent at an address.
    pub(crate) fn send_step(
        &mut self,
        head: &[u8],
        body: &[u8],
        values: &[BorrowedFd<'_>],
        lent: Option<(BorrowedFd<'_>, u64)>,
    ) {
        let arguments = [&[1; 16][..], head, body];
        let count = (arguments.len() + values.len()) as u32 | if lent.is_some() { 1 << 31 } else { 0 };
        let mut payload = count.to_le_bytes().to_vec();
        arguments.iter().for_each(|argument| payload.extend((argument.len() as u32).to_le_bytes()));
        values.iter().for_each(|_| payload.extend(u32::MAX.to_le_bytes()));
        payload.extend(lent.iter().flat_map(|(_, base)| base.to_le_bytes()));
        arguments.iter().for_each(|argument| payload.extend(*argument));
        let fds: Vec<BorrowedFd<'_>> = values.iter().copied().chain(lent.map(|(fd, _)| fd)).collect();
        self.turn += 1;
        self.send(CALL, self.turn, &payload, &fds);
    }

    /// Calls it: kind and payload of the answer.
    pub(crate) fn call(&mut self, head: &[u8], body: &[u8]) -> (u8, Vec<u8>) {
        self.send_call(head, body);
        let (kind, turn, payload) = self.frame();
        assert_eq!(turn, self.turn);
        (kind, payload)
    }

    /// The result of the call that runs, whatever it says of its waiting.
    pub(crate) fn result(&mut self) -> Vec<u8> {
        loop {
            let (kind, turn, payload) = self.frame();
            assert_eq!(turn, self.turn);
            match kind {
                WAITED => {}
                _ => assert_eq!(kind, RESULT),
            }
            if kind == RESULT {
                return payload;
            }
        }
    }

    /// Answers an ask of this id.
    pub(crate) fn tell(&mut self, turn: u32, id: &[u8], body: &[u8]) {
        let payload = [id, &200_u16.to_le_bytes(), &0_u16.to_le_bytes(), body].concat();
        self.send(TOLD, turn, &payload, &[]);
    }

    /// Has it serve a line: turn, line and the caller's end.
    pub(crate) fn serve(&mut self) -> (u32, Line, End) {
        let (line, ends) = Line::create(CAPACITY).unwrap();
        self.turn += 1;
        let mut payload = 20_000_u64.to_le_bytes().to_vec();
        payload.extend(1_u64.to_le_bytes());
        payload.extend(b"\x01\0\x06\0gcaller");
        let own = [ends.requests.as_fd(), ends.answers.as_fd(), ends.callee.as_fd()];
        self.send(SERVE, self.turn, &payload, &own);
        (self.turn, line, End::new(&ends.answers, &ends.requests, ends.caller))
    }

    /// Gives it a line to a function: its number, and the callee's end.
    pub(crate) fn line(&mut self, name: &str) -> (u32, End) {
        let (line, ends) = Line::create(CAPACITY).unwrap();
        let id = 1 + self.lines.len() as u32;
        self.lines.push(line);
        let own = [ends.answers.as_fd(), ends.requests.as_fd(), ends.caller.as_fd()];
        self.send(LINE, 0, &[&id.to_le_bytes(), name.as_bytes()].concat(), &own);
        (id, End::new(&ends.requests, &ends.answers, ends.callee))
    }
}

/// The end of a line that is the test's.
pub(crate) struct End {
    hears: Reader,
    asks: Writer,
    /// The memory of what it reads and of what it writes.
    pub(crate) read: SharedMemory,
    written: SharedMemory,
    bell: OwnedFd,
}

impl End {
    fn new(hears: &OwnedFd, asks: &OwnedFd, bell: OwnedFd) -> Self {
        Self {
            hears: Reader::open(hears).unwrap(),
            asks: Writer::open(asks).unwrap(),
            read: SharedMemory::open(hears).unwrap(),
            written: SharedMemory::open(asks).unwrap(),
            bell,
        }
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        self.asks.send(message, Instant::now() + PATIENCE).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        self.hears.receive(&mut message, Instant::now() + PATIENCE).unwrap();
        message
    }

    /// Says that so much was written, the first of it a length.
    pub(crate) fn claim(&self, tail: u64, length: u32) {
        self.written.write(4096, &length.to_le_bytes());
        self.written.word64(0).store(tail, Ordering::SeqCst);
        let sleeps = self.written.word32(128);
        sleeps.store(0, Ordering::SeqCst);
        linux::wake_one(sleeps);
        linux::ring(&self.bell);
    }

    /// Whether the other side has left.
    pub(crate) fn is_closed(&self) -> bool {
        self.read.word32(256).load(Ordering::SeqCst) != 0
    }
}
