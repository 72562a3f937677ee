// SPDX-License-Identifier: Apache-2.0
//! Lines (`docs/spec/lines.md`) whose other end is in the test: it serves or asks as it
//! should, or lies.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linux::SharedMemory;
use sandbox::process::{FunctionsOptions, Language, Weakness};
use sandbox::{
    Answered, Call, Callees, Invoked, Line, LineEnd, LineOffer, LineRecords, LineReport, LineTerms, LineTold,
    NestedAnswer, NestedCall, Outcome, Sandbox as _, SandboxId, Spent,
};
use xpu::fifo::{Error, Reader, Writer};

use crate::Case;
use crate::control::control;
use crate::world::{World, options};

pub(crate) const CASES: &[Case] = &[
    ("serves_a_line_until_it_is_shut", serves_a_line_until_it_is_shut),
    ("calls_by_a_line_and_asks_again_what_had_no_answer", calls_by_a_line),
    ("what_a_request_on_a_line_leaves_is_stopped_with_it", what_a_request_leaves_is_stopped),
    ("what_was_taken_from_a_line_is_served", what_was_taken_is_served),
];
pub(crate) const HOSTILE: &[Case] = &[
    ("callers_that_lie_on_a_line", callers_that_lie),
    ("callees_that_lie_on_a_line", callees_that_lie),
    ("bells_that_ring_without_end", bells_that_ring_without_end),
    ("pieces_on_a_line_without_end", pieces_without_end),
    ("answers_on_a_line_before_they_are_asked_for", answers_that_are_there_before),
];

const REQUESTS: u32 = 200;
const SEALED: &[u8] = b"{\"request_id\": \"a-request\", \"deadline_ms\": 99999999999999, \"depth\": 2, \
    \"seal\": \"07070707070707070707070707070707\"}\n{\"headers\": [[\"traceparent\", \
    \"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\"]]}";
/// An answer without anything in its head.
const ANSWER: &[u8] = b"\0\0\0\0answer";

/// What was reported.
#[derive(Default)]
struct Records(Mutex<Vec<LineReport>>);

impl LineRecords for Records {
    fn served(&self, calls: Vec<(LineReport, Spent)>, _: sandbox::Printed) {
        self.0.lock().unwrap().extend(calls.into_iter().map(|(report, _)| report));
    }

    fn counted(&self, _: Vec<(LineReport, Spent)>) {}
    fn left(&self, _: Option<Vec<u8>>, _: LineEnd) {}
}

fn line() -> (Arc<Line>, Arc<Records>) {
    let (caller, function) = ("caller".to_owned(), "g".to_owned());
    let terms = LineTerms { caller, function, version: 1, timeout: Duration::from_secs(20) };
    let records = Arc::new(Records::default());
    (Line::new(1, terms, records.clone()).unwrap(), records)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// The end of a line that is the test's.
struct End {
    asks: Writer,
    hears: Reader,
    /// The memory of what it reads and of what it writes.
    read: SharedMemory,
    written: SharedMemory,
    bell: OwnedFd,
}

impl End {
    fn of(line: &Line, serves: bool) -> Self {
        let mut fds = line.descriptors(serves).unwrap();
        let bell = fds.pop().unwrap();
        let (hears, asks) = (Reader::open(&fds[0]).unwrap(), Writer::open(&fds[1]).unwrap());
        let (read, written) = (SharedMemory::open(&fds[0]).unwrap(), SharedMemory::open(&fds[1]).unwrap());
        Self { asks, hears, read, written, bell }
    }

    /// Sends what is right, and wakes the other side.
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let sent = self.asks.send(message, soon());
        linux::ring(&self.bell);
        sent
    }

    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        let mut message = Vec::new();
        self.hears.receive(&mut message, soon()).map(|()| message)
    }

    /// Says that so much was written, the first of it a length.
    fn claim(&self, tail: u64, length: u32) {
        self.written.write(4096, &length.to_le_bytes());
        self.written.word64(0).store(tail, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let sleeps = self.written.word32(128);
        sleeps.store(0, Ordering::SeqCst);
        linux::wake_one(sleeps);
        linux::ring(&self.bell);
    }
}

impl End {
    /// Whether the other side has closed what it writes to, within this time.
    fn has_left(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while self.read.word32(256).load(Ordering::SeqCst) == 0 {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Rings until the other side has left, for two seconds at most; whether it has.
    fn rings_until_it_leaves(&self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) && !self.has_left(Duration::ZERO) {
            linux::ring(&self.bell);
        }
        self.has_left(Duration::ZERO)
    }
}

/// A request of this number, whose id and type are so long, with a body.
fn request(number: u32, id_len: u8, type_len: u16, body: &[u8]) -> Vec<u8> {
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

fn asked(number: u32) -> Vec<u8> {
    request(number, 9, 0, b"a-requestbody")
}

/// Answers with the body of the request, and the number of those before it.
fn serving(language: Language) -> &'static str {
    match language {
        Language::Python => "def apply(request, head, body):\n    return bytes(4) + body\n",
        _ => "exports.apply = (request, head, body) => Buffer.concat([Buffer.alloc(4), body]);\n",
    }
}

/// Calls another function so often, one call after the other; its answers.
fn calling(language: Language) -> &'static str {
    match language {
        Language::Python => {
            "def apply(request, head, body):\n    return b','.join(ask('g', '', body)[2] for _ in range(10))\n"
        }
        _ => {
            "exports.apply = async (request, head, body) => { const all = [];\n\
             for (let at = 0; at < 10; at++) all.push((await module.ask('g', '', body))[2].toString());\n\
             return Buffer.from(all.join(',')); };\n"
        }
    }
}

/// Has an instance serve a line, while the test uses the other end; how the line ended there. What the
/// test gives back is kept until then.
fn served<T>(
    world: &World,
    id: SandboxId,
    line: &Arc<Line>,
    source: &str,
    test: impl FnOnce(End) -> T,
) -> Outcome {
    served_with(world, id, line, source, None, test)
}

/// The same of an instance that may call others meanwhile.
fn served_with<T>(
    world: &World,
    id: SandboxId,
    line: &Arc<Line>,
    source: &str,
    callees: Option<Arc<dyn Callees>>,
    test: impl FnOnce(End) -> T,
) -> Outcome {
    let end = End::of(line, false);
    let call = Call { line: Some(line.clone()), callees, ..world.call(source, &[]) };
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| world.functions.invoke(id, call));
        let _kept = test(end);
        let Invoked::Done(outcome) = serves.join().unwrap().unwrap();
        outcome
    })
}

fn serves_a_line_until_it_is_shut(language: Language) {
    let world = World::new(language);
    let source = serving(language);
    let id = world.created(source);
    for _ in 0..2 {
        let (line, records) = line();
        let outcome = served(&world, id, &line, source, |mut end| {
            for number in 1..=REQUESTS {
                end.send(&asked(number)).unwrap();
                assert_eq!(end.receive().unwrap(), b"\0\0\0\0body");
            }
            line.shut();
        });
        assert_eq!(outcome.result.unwrap().literal_bytes(), Some(&b""[..]));
        let reports = records.0.lock().unwrap();
        assert_eq!(reports.len(), REQUESTS as usize);
        let is_right = |report: &LineReport| {
            (report.request_id.as_str(), report.status, report.received_bytes, report.sent_bytes)
                == ("a-request", 200, 4, 4)
                && (report.seal, report.trace, report.flags) == ([7; 16], [7; 16], 1)
        };
        assert!(reports.iter().all(is_right), "{:?}", reports[0]);
    }
    assert_eq!(called(&world, id, source, &Others::default()).as_deref(), Ok("\0\0\0\0body"));
    world.end(id);
}

fn callers_that_lie(language: Language) {
    let world = World::new(language);
    let source = serving(language);
    let id = world.created(source);
    let lies: [&dyn Fn(&mut End); 8] = [
        &|end| end.claim((64 << 10) + 1, 0),
        &|end| end.claim(3, 0),
        &|end| end.claim(8, 5),
        &|end| end.claim(64 << 10, u32::MAX),
        &|end| end.send(b"short").unwrap(),
        &|end| end.send(&asked(0)).unwrap(),
        &|end| end.send(&request(1, 0, 3000, &[b'a'; 4000])).unwrap(),
        &|end| end.send(&request(1, 3, 0, "grü".as_bytes())).unwrap(),
    ];
    for (number, lie) in lies.iter().enumerate() {
        let (line, records) = line();
        let outcome = served(&world, id, &line, source, |mut end| {
            end.send(&asked(1)).unwrap();
            end.receive().unwrap();
            lie(&mut end);
        });
        assert_eq!(outcome.result.unwrap().literal_bytes(), Some(&b""[..]), "lie {number}");
        assert_eq!(records.0.lock().unwrap().len(), 1, "lie {number}");
    }
    // The line is over, and the instance serves.
    control(called(&world, id, source, &Others::default()).is_ok(), "it serves after all of them");
    world.end(id);
    world.assert_others_are_served();
}

fn bells_that_ring_without_end(language: Language) {
    let world = World::new(language);
    let source = serving(language);
    let id = world.created(source);
    let (line, _) = line();
    served(&world, id, &line, source, |mut end| {
        end.send(&asked(1)).unwrap();
        end.receive().unwrap();
        // Who sleeps by it has left; others do not hear it.
        assert_eq!(end.rings_until_it_leaves(), language == Language::Node);
        line.shut();
        end
    });
    let (line, _) = self::line();
    served(&world, id, &line, source, |mut end| {
        end.send(&asked(1)).unwrap();
        end.receive().unwrap();
        linux::end_messages(&end.bell);
        assert_eq!(end.has_left(Duration::from_secs(2)), language == Language::Node);
        line.shut();
        end
    });
    control(called(&world, id, source, &Others::default()).is_ok(), "it serves after all of them");
    world.end(id);
}

/// Answers by the node, and offers a line after that.
#[derive(Default)]
struct Others {
    line: Option<Arc<Line>>,
    /// Those that were begun on the line, and asked again.
    again: Arc<Mutex<usize>>,
}

struct Offer(Arc<Line>);

impl LineOffer for Offer {
    fn open(self: Box<Self>, told: LineTold) {
        told(self.0);
    }
}

impl Callees for Others {
    fn call(&self, nested: NestedCall, answered: Answered) -> Box<dyn Send> {
        *self.again.lock().unwrap() += usize::from(nested.line.again.is_some());
        let offer = self.line.clone().map(|line| Box::new(Offer(line)) as Box<dyn LineOffer>);
        answered(NestedAnswer { status: 200, content_type: "", body: b"node" }, offer);
        Box::new(())
    }
}

fn called(world: &World, id: SandboxId, source: &str, others: &Others) -> Result<String, String> {
    let arguments = [&[1; 16], SEALED, b"body"].map(|bytes| world.store.keep_blob(bytes));
    let others = Others { line: others.line.clone(), again: others.again.clone() };
    let call = Call { callees: Some(Arc::new(others)), ..world.call(source, &arguments) };
    let Invoked::Done(outcome) = world.functions.invoke(id, call).unwrap();
    let handle = outcome.result.map_err(|fault| fault.to_string())?;
    let bytes = match handle.literal_bytes() {
        Some(bytes) => bytes.to_vec(),
        None => world.store.local(handle).unwrap().bytes().to_vec(),
    };
    Ok(String::from_utf8(bytes).unwrap())
}

/// Has a function call by a line, whose other end is the test's; what it says, and how many calls it
/// asked the node for once more.
fn by_line<T>(language: Language, test: impl FnOnce(End) -> T) -> (Result<String, String>, usize) {
    by_line_of(language, calling(language), test)
}

fn by_line_of<T>(
    language: Language,
    source: &str,
    test: impl FnOnce(End) -> T,
) -> (Result<String, String>, usize) {
    let world = World::new(language);
    let id = world.created(source);
    let (line, _) = line();
    line.open_for_tests();
    let end = End::of(&line, true);
    let others = Others { line: Some(line), ..Others::default() };
    let said = std::thread::scope(|scope| {
        let calls = scope.spawn(|| called(&world, id, source, &others));
        let _kept = test(end);
        calls.join().unwrap()
    });
    // Whatever it was, the instance serves, or another one does.
    assert!(called(&world, id, source, &Others::default()).is_ok());
    world.end(id);
    world.assert_others_are_served();
    let again = *others.again.lock().unwrap();
    (said, again)
}

fn calls_by_a_line(language: Language) {
    let (said, again) = by_line(language, |mut end| {
        for number in 1..=5_u32 {
            let message = end.receive().unwrap();
            assert_eq!(message[..4], number.to_le_bytes());
            assert_eq!((message[12], message[57]), (3, 9), "the depth, and the id's length");
            assert_eq!((&message[16..32], &message[60..]), (&[7; 16][..], &b"a-requestbody"[..]));
            end.send(ANSWER).unwrap();
        }
        // What it takes, and does not answer, is asked once more.
        end.receive().unwrap();
        drop(end.asks);
        linux::ring(&end.bell);
    });
    let answers = "node,node,node,answer,answer,answer,answer,answer,node,node";
    assert_eq!((said.as_deref(), again), (Ok(answers), 1));
}

fn callees_that_lie(language: Language) {
    let lies: [&dyn Fn(&mut End); 7] = [
        &|end| end.claim((64 << 10) + 1, 0),
        &|end| end.claim(3, 0),
        &|end| end.claim(8, 5),
        &|end| end.send(b"x").unwrap(),
        &|end| end.send(b"\xff\xff\xff\x0fx").unwrap(),
        &|end| end.send(b"\x02\0\0\0[]x").unwrap(),
        // It takes the request back.
        &|end| {
            end.read.word64(64).store(0, Ordering::SeqCst);
            end.claim(1, 0);
        },
    ];
    for (number, lie) in lies.iter().enumerate() {
        let (said, again) = by_line(language, |mut end| {
            end.receive().unwrap();
            lie(&mut end);
        });
        let all = "node,".repeat(10);
        assert_eq!(said.as_deref(), Ok(&all[..all.len() - 1]), "lie {number}");
        assert_eq!(again, usize::from(number != 6), "lie {number}: what was taken is asked again");
    }
    // Who does not answer ends its caller's call by the deadline, as by the node.
    let (said, again) = by_line(language, |mut end| {
        end.receive().unwrap();
        assert_eq!(end.rings_until_it_leaves(), language == Language::Node);
        // Python does not sleep by a bell.
        let End { asks, hears, read, written, bell } = end;
        (language == Language::Node).then_some((asks, hears, read, written, bell))
    });
    control(said.is_ok(), "a bell that rings for nothing ends the line, and the node is asked");
    assert_eq!(again, 1);
}

/// Nobody answers, until nobody waits any more.
#[derive(Default)]
struct Nobody {
    begun: AtomicUsize,
    stopped: Arc<AtomicUsize>,
}

struct Stopped(Arc<AtomicUsize>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Callees for Nobody {
    fn call(&self, _: NestedCall, _: Answered) -> Box<dyn Send> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Box::new(Stopped(Arc::clone(&self.stopped)))
    }
}

/// Answers, and leaves a call of another function behind.
fn leaving(language: Language) -> &'static str {
    match language {
        Language::Python => {
            "import threading, time\ndef apply(request, head, body):\n    \
             threading.Thread(target=ask, args=('g', '', body), daemon=True).start()\n    \
             time.sleep(0.01)\n    return bytes(4) + body\n"
        }
        _ => {
            "exports.apply = (request, head, body) => { module.ask('g', '', body).catch(() => {});\n\
             return Buffer.concat([Buffer.alloc(4), body]); };\n"
        }
    }
}

fn what_a_request_leaves_is_stopped(language: Language) {
    let world = World::new(language);
    let source = leaving(language);
    let id = world.created(source);
    let (line, _) = line();
    let nobody = Arc::new(Nobody::default());
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
    let outcome = served_with(&world, id, &line, source, Some(nobody.clone()), |mut end| {
        for number in 1..=REQUESTS {
            end.send(&asked(number)).unwrap();
            assert_eq!(end.receive().unwrap(), b"\0\0\0\0body", "request {number}");
        }
        // With its request, and not with the line.
        let deadline = soon();
        while count(&nobody.stopped) < count(&nobody.begun) {
            assert!(Instant::now() < deadline, "{} of {}", count(&nobody.stopped), count(&nobody.begun));
            std::thread::sleep(Duration::from_millis(1));
        }
        line.shut();
    });
    assert_eq!(outcome.result.unwrap().literal_bytes(), Some(&b""[..]));
    assert!(count(&nobody.begun) > REQUESTS as usize / 2, "{} were begun", count(&nobody.begun));
    world.end(id);
}

/// What was taken already when the line is shut is served.
fn what_was_taken_is_served(language: Language) {
    let (Language::Node, world) = (language, World::new(language)) else { return };
    // It is shut before the loop comes to the second request, which is taken with the first answer.
    let source = "exports.apply = async (request, head, body) => {\n\
        await new Promise((resolve) => setTimeout(resolve, 10));\n\
        setImmediate(() => { for (const end = Date.now() + 500; Date.now() < end; ); });\n\
        return Buffer.concat([Buffer.alloc(4), body]); };\n";
    let id = world.created(source);
    let (line, records) = line();
    let outcome = served(&world, id, &line, source, |mut end| {
        end.send(&asked(1)).unwrap();
        end.send(&asked(2)).unwrap();
        std::thread::sleep(Duration::from_millis(250));
        line.shut();
        assert_eq!(end.receive().unwrap(), b"\0\0\0\0body");
        assert_eq!(end.receive().unwrap(), b"\0\0\0\0body", "it had been taken");
        end
    });
    assert_eq!(outcome.result.unwrap().literal_bytes(), Some(&b""[..]));
    assert_eq!(records.0.lock().unwrap().len(), 2);
    world.end(id);
}

/// An answer in pieces that is longer than any may be is counted, and not kept.
fn pieces_without_end(language: Language) {
    // All pieces are more than its memory.
    let options = FunctionsOptions { result_bytes_max: 1 << 20, ..options(language) };
    let world = World::with(options, Weakness::NONE);
    let source = match language {
        Language::Python => {
            "def apply(request, head, body):\n    for _ in range(2000):\n        exchange().stream(b'x' * 65536)\n    \
             return b''\n"
        }
        _ => {
            "exports.apply = async () => { const out = module.outgoing(), x = Buffer.alloc(65536, 'x');\n\
             for (let at = 0; at < 2000; at++) await out.send(x);\n\
             return Buffer.alloc(0); };\n"
        }
    };
    let id = world.created(source);
    let (line, _) = line();
    let outcome = served(&world, id, &line, source, |mut end| {
        end.send(&asked(1)).unwrap();
        assert!(end.receive().is_err(), "it is no answer that fits");
        end
    });
    let fault = outcome.result.unwrap_err();
    control(fault.detail.contains("returned 131072000 bytes"), &fault.detail);
    world.end(id);
    world.assert_others_are_served();
}

/// A callee whose answers are all there before they are asked for keeps nobody from its event loop.
fn answers_that_are_there_before(language: Language) {
    if language != Language::Node {
        // It has none.
        let (said, _) = by_line(language, |mut end| {
            (0..7).for_each(|_| end.send(ANSWER).unwrap());
            (0..7).for_each(|_| drop(end.receive().unwrap()));
            end
        });
        return control(said.is_ok_and(|said| said.ends_with("answer")), "answers are answers");
    }
    let source = "exports.apply = async (request, head, body) => {\n\
        for (let at = 0; at < 10; at++) await module.ask('g', '', body);\n\
        let turns = 0, is_over = false; const turn = () => { turns += 1; is_over || setImmediate(turn); }; turn();\n\
        for (let at = 0; at < 500; at++) await module.ask('g', '', body);\n\
        is_over = true; return Buffer.from(turns > 400 ? 'often' : `${turns} turns`); };\n";
    let (said, again) = by_line_of(language, source, |mut end| {
        // As many as are asked on the line: three are by the node.
        (0..507).for_each(|_| end.send(ANSWER).unwrap());
        (0..507).for_each(|_| drop(end.receive().unwrap()));
        end
    });
    control(said.as_deref() == Ok("often"), format!("{said:?}"));
    assert_eq!(again, 0);
}
