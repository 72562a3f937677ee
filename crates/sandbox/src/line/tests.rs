// SPDX-License-Identifier: Apache-2.0
//! The ends in C (`guests/template/line.c`) and those in Rust (`xpu::fifo`) speak to
//! each other, and neither believes a word of the other.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linux::SharedMemory;
use xpu::fifo::{Error, Reader, Writer};
use xpu::line::{Ends, Line as Memory};

use super::{AGE_MAX, Line, LineTerms, Nowhere, PARTING_MAX};
use crate::process::Language;

/// With the native core in C: serves what comes, backwards, until the line is closed;
/// or asks, and checks that it gets back what it sent. Prints how it ended.
const OTHER: &str = r#"
import ctypes, errno, os, sys
core = ctypes.CDLL(sys.argv[1])
core.line_take.restype = core.line_ask.restype = ctypes.c_int64
core.line_take.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
core.line_ask.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
core.line_answer.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
buffer = ctypes.create_string_buffer(65536)
line, served = core.line_open(os.dup(0), os.dup(1), os.dup(1)), 0
if sys.argv[2] == "serve":
    while (got := core.line_take(line, buffer, 65536, 20_000_000)) >= 0:
        served += 1
        core.line_answer(line, buffer.raw[:got][::-1], got)
else:
    for size in range(2000):
        sent = bytes(at * size % 251 for at in range(size))
        got = core.line_ask(line, sent, size, buffer, 65536)
        if got != size or buffer.raw[:size] != sent[::-1] or core.line_is_taken(line) != 1:
            sys.exit(f"size {size}: {got}")
        served += 1
    got = core.line_ask(line, b"x" * 5000, 5000, buffer, 65536)
core.line_close(line)
print(errno.errorcode[-got], served, file=sys.stderr)
"#;

/// A process with one end of a line.
struct Other {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Other {
    fn start(ends: &Ends, role: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let core = folder.path().join("core.so");
        std::fs::write(&core, Language::Python.core()).unwrap();
        let (requests, answers) = (ends.requests.try_clone().unwrap(), ends.answers.try_clone().unwrap());
        let (first, second) = if role == "serve" { (requests, answers) } else { (answers, requests) };
        let child = Command::new("python3")
            .args(["-c", OTHER, core.to_str().unwrap(), role])
            .stdin(Stdio::from(first))
            .stdout(Stdio::from(second))
            .stderr(Stdio::piped())
            .spawn();
        Self { child: child.unwrap(), _folder: folder }
    }

    /// How it ended.
    fn said(self) -> String {
        let output = self.child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stderr).trim().to_owned()
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn requests_and_answers_come_whole_in_both_directions() {
    let (line, ends) = Memory::create(4096).unwrap();
    let other = Other::start(&ends, "serve");
    let mut asks = Writer::open(&ends.requests).unwrap();
    let mut hears = Reader::open(&ends.answers).unwrap();
    let (mut sent, mut heard) = (Vec::new(), Vec::new());
    for size in 0..2000_usize {
        sent.clear();
        sent.extend((0..size).map(|at| (at * size % 251) as u8));
        asks.send(&sent, soon()).unwrap();
        hears.receive(&mut heard, soon()).unwrap();
        sent.reverse();
        assert_eq!(heard, sent, "{size} bytes");
    }
    line.shut();
    assert_eq!(other.said(), "EPIPE 2000");
    assert!(matches!(hears.receive(&mut heard, soon()), Err(Error::Closed)));

    let (_line, ends) = Memory::create(4096).unwrap();
    let other = Other::start(&ends, "ask");
    let mut takes = Reader::open(&ends.requests).unwrap();
    let mut answers = Writer::open(&ends.answers).unwrap();
    for _ in 0..2000 {
        takes.receive(&mut heard, soon()).unwrap();
        heard.reverse();
        answers.send(&heard, soon()).unwrap();
    }
    // What does not fit was not sent.
    assert_eq!(other.said(), "ESHUTDOWN 2000");
}

#[test]
fn a_caller_that_lies_ends_its_line_and_nothing_else() {
    // Positions and lengths that cannot be.
    for (tail, length) in [(4097_u64, 0_u32), (3, 0), (8, 5), (4096, u32::MAX), (u64::MAX, 0)] {
        let (_line, ends) = Memory::create(4096).unwrap();
        let other = Other::start(&ends, "serve");
        let requests = SharedMemory::open(&ends.requests).unwrap();
        requests.write(4096, &length.to_le_bytes());
        requests.word64(0).store(tail, std::sync::atomic::Ordering::SeqCst);
        let sleeps = requests.word32(128);
        sleeps.store(0, std::sync::atomic::Ordering::SeqCst);
        // Until it looks: it may be about to sleep.
        let deadline = soon();
        let mut other = other;
        while other.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            linux::wake_one(sleeps);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(other.said(), "EPROTO 0", "{tail} {length}");
    }
}

fn line(timeout: Duration) -> std::sync::Arc<Line> {
    let (caller, function) = ("caller".to_owned(), "function".to_owned());
    let terms = LineTerms { caller, function, version: 1, timeout };
    let line = Line::new(1, terms, std::sync::Arc::new(Nowhere)).unwrap();
    line.bind();
    line
}

/// The memory of requests, and that of answers.
fn memory(line: &Line) -> (SharedMemory, SharedMemory) {
    let fds = line.descriptors(true).unwrap();
    (SharedMemory::open(&fds[0]).unwrap(), SharedMemory::open(&fds[1]).unwrap())
}

const LOOK: Duration = Duration::from_millis(10);

/// After how many looks it is late, while both sides write such words.
fn late_after(line: &Line, write: impl Fn(u32, &SharedMemory, &SharedMemory)) -> Option<Duration> {
    let (requests, answers) = memory(line);
    let begun = Instant::now();
    let looks = (0..3000_u32).find(|at| {
        write(*at, &requests, &answers);
        line.is_late(begun + LOOK * *at)
    });
    looks.map(|looks| LOOK * looks)
}

const SERVED: usize = 320;
const TIMEOUT: Duration = Duration::from_secs(3);

fn set(memory: &SharedMemory, at: usize, value: u32) {
    memory.word32(at).store(value, std::sync::atomic::Ordering::SeqCst);
}

#[test]
fn a_caller_that_writes_without_end_gives_nobody_more_time() {
    // One request is served all the time, and the caller says that it asks for others.
    let late = late_after(&line(TIMEOUT), |at, requests, answers| {
        set(answers, SERVED, 1);
        set(requests, 0, at + 1);
    });
    assert_eq!(late, Some(TIMEOUT));
    // The control: as long as one request follows the other, nobody is late before the line is old.
    let short = line(TIMEOUT);
    let late = late_after(&short, |at, requests, answers| {
        if at < 900 {
            set(answers, SERVED, at / 100 + 1);
            set(requests, 0, at + 1);
            assert!(short.is_open());
        } else {
            set(answers, SERVED, 0);
        }
    });
    // Then it is shut after a second, or because it is old, and not given back.
    let late = late.unwrap();
    assert!(late <= AGE_MAX + PARTING_MAX && late > AGE_MAX, "{late:?}");
}

#[test]
fn a_line_that_is_shut_is_given_back_whatever_its_words_say() {
    let shut = line(TIMEOUT);
    shut.shut();
    let late = late_after(&shut, |at, requests, answers| {
        set(answers, SERVED, at % 7);
        set(requests, 0, at);
    });
    assert_eq!(late, Some(TIMEOUT + 2 * PARTING_MAX));
    let shut = line(TIMEOUT);
    shut.shut();
    assert_eq!(late_after(&shut, |_, _, _| ()), Some(PARTING_MAX), "nothing is served");
    // What was there already when it was shut has its time, and what it is parted with too.
    let shut = line(TIMEOUT);
    shut.shut();
    let late = late_after(&shut, |at, _, answers| set(answers, SERVED, u32::from((10..200).contains(&at))));
    assert_eq!(late, Some(Duration::from_secs(2) + PARTING_MAX));
}

#[test]
fn no_more_is_reported_than_there_can_have_been() {
    let line = line(TIMEOUT);
    let begun = Instant::now();
    assert!(line.may_report(32, begun) && !line.may_report(2000, begun));
    assert!(line.may_report(1000, begun + Duration::from_secs(1)));
    assert!(!line.may_report(1_100_000, begun + Duration::from_secs(1)));
}

#[test]
fn a_line_in_use_is_shut_when_it_is_old_and_what_is_served_then_has_its_own_time() {
    let line = line(TIMEOUT);
    let requests = line.descriptors(false).unwrap().remove(1);
    let mut writer = Writer::open(&requests).unwrap();
    let begun = Instant::now();
    // Something is asked every half second.
    let shut = (0..40).find(|at| {
        writer.send(b"x", soon()).unwrap();
        assert!(!line.is_late(begun + Duration::from_millis(500) * *at));
        !line.is_open()
    });
    let shut = Duration::from_millis(500) * shut.unwrap();
    assert!(shut >= AGE_MAX && shut <= AGE_MAX + Duration::from_secs(1), "{shut:?}");
    assert!(line.held_max() > AGE_MAX + Duration::from_secs(3));
}
