// SPDX-License-Identifier: Apache-2.0
//! The ends in C (`guests/template/line.c`) and those in Rust (`xpu::fifo`) speak to
//! each other, and neither believes a word of the other.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linux::SharedMemory;
use xpu::fifo::{Error, Reader, Writer};
use xpu::line::{Ends, Line as Memory};

use super::{AGE_MAX, Line, LineRecords, LineReport, LineTerms};
use crate::Spent;
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

struct Nobody;

impl LineRecords for Nobody {
    fn served(&self, _: Vec<(LineReport, Spent)>, _: Vec<u8>) {}
}

#[test]
fn a_line_in_use_is_shut_when_it_is_old_and_what_is_served_then_has_its_own_time() {
    let (caller, function) = ("caller".to_owned(), "function".to_owned());
    let terms = LineTerms { caller, function, version: 1, timeout: Duration::from_secs(3) };
    let line = Line::new(1, terms, std::sync::Arc::new(Nobody)).unwrap();
    line.bind();
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
