// SPDX-License-Identifier: Apache-2.0
//! Instances that lie about calls of other functions.

use std::sync::{Arc, Mutex};

use objects::FailureCode;
use sandbox::process::Language;
use sandbox::{Answered, Callees, Fault, NestedAnswer, NestedCall};

use crate::Case;
use crate::control::{control, look_alike};
use crate::world::World;

pub(crate) const HOSTILE: &[Case] = &[
    ("lies_about_calls", lies_about_calls),
    ("lies_about_lines", lies_about_lines),
    ("a_flood_of_calls", a_flood_of_calls),
    ("a_flood_of_bytes", a_flood_of_bytes),
    ("answers_that_nobody_reads", answers_that_nobody_reads),
    ("calls_where_there_are_none", calls_where_there_are_none),
    ("an_answer_that_comes_after_the_call", an_answer_that_comes_after_the_call),
];

/// Answers at once with what it was sent, or keeps silent.
#[derive(Default)]
struct Others {
    are_silent: bool,
    waiting: Mutex<Vec<(NestedCall, Answered)>>,
    stopped: Arc<Mutex<usize>>,
}

/// Notes that nobody waits any more.
struct Stop(Arc<Mutex<usize>>);

impl Drop for Stop {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl Callees for Others {
    fn call(&self, nested: NestedCall, answered: Answered) -> Box<dyn Send> {
        if self.are_silent {
            self.waiting.lock().unwrap().push((nested, answered));
        } else {
            let (status, content_type) = (200, nested.content_type.as_str());
            answered(NestedAnswer { status, content_type, body: &nested.body }, None);
        }
        Box::new(Stop(self.stopped.clone()))
    }
}

/// A function that writes these words to its channel, and waits.
fn writing(language: Language, words: &str) -> String {
    doing(language, &format!("write({words})"))
}

/// A function that does this, and waits.
fn doing(language: Language, statement: &str) -> String {
    match language {
        Language::Python => format!(
            "import os, time, struct\ndef ask(turn, number, name, body):\n    \
             head = struct.pack('<IH', number, len(name)) + name + b'\\0\\0' + body\n    \
             return struct.pack('<IBI', len(head), 10, turn) + head\n\
             def write(words):\n    os.write(3, words)\n\
             def flood(number, size):\n    write(ask(1, number, b'g', bytes(size)))\n    \
             if number % 32 == 0: time.sleep(0.01)\n\
             def apply(x):\n    {statement}\n    time.sleep(100)\n"
        ),
        _ => format!(
            "const fs = require('fs');\nconst ask = (turn, number, name, body) => {{\n\
             const head = Buffer.alloc(6); head.writeUInt32LE(number); head.writeUInt16LE(name.length, 4);\n\
             const rest = Buffer.concat([head, Buffer.from(name), Buffer.from([0, 0]), Buffer.from(body)]);\n\
             const frame = Buffer.alloc(9); frame.writeUInt32LE(rest.length); frame[4] = 10; frame.writeUInt32LE(turn, 5);\n\
             return Buffer.concat([frame, rest]); }};\n\
             const write = (words) => {{ for (let at = 0; at < words.length;)\n\
             try {{ at += fs.writeSync(3, words, at); }} catch (error) {{ if (error.code !== 'EAGAIN') throw error; }} }};\n\
             const zeros = Buffer.alloc(1 << 20);\n\
             const flood = (number, size) => {{ const whole = ask(1, number, 'g', '');\n\
             whole.writeUInt32LE(whole.length - 9 + size); write(whole);\n\
             for (; size > 0; size -= zeros.length) write(zeros.subarray(0, size));\n\
             if (number % 32 === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10); }};\n\
             exports.apply = () => {{ {statement}; return new Promise(() => {{}}); }};\n"
        ),
    }
}

/// A function that makes calls with bodies of these sizes, so many each, and reads no answer. It gives
/// the node time, so that never too many are without one.
fn asking(language: Language, sizes: &[(usize, usize)]) -> String {
    let statement = match language {
        Language::Python => format!(
            "for number, size in enumerate(size for size, count in {sizes:?} for _ in range(count)): \
             flood(number, size)"
        ),
        _ => {
            let sizes: Vec<String> =
                sizes.iter().map(|(size, count)| format!("...Array({count}).fill({size})")).collect();
            let sizes = sizes.join(", ");
            format!("[{sizes}].forEach((size, number) => flood(number, size))")
        }
    };
    doing(language, &statement)
}

/// One function in each language.
fn source(language: Language, python: &str, node: &str) -> String {
    if language == Language::Python { python.to_owned() } else { node.to_owned() }
}

fn ran(world: &World, source: &str, others: &Arc<Others>) -> Result<Vec<u8>, Fault> {
    let id = world.created(source);
    let result = world.invoke_with(id, source, b"", Some(others.clone()));
    world.end(id);
    result
}

fn lies_about_calls(language: Language) {
    let world = World::new(language);
    let (bytes, join) = if language == Language::Python { ("b", " + ") } else { ("", ", ") };
    let ask = |turn: u32, number: u32| format!("ask({turn}, {number}, {bytes}'g', {bytes}'x')");
    let both = |words: [String; 2]| {
        let joined = words.join(join);
        if language == Language::Python { joined } else { format!("Buffer.concat([{joined}])") }
    };
    let silent = || Arc::new(Others { are_silent: true, ..Others::default() });
    for (words, why) in [
        (ask(9, 1), "outside of any call"),
        (ask(0, 1), "outside of any call"),
        (both([ask(1, 7), ask(1, 7)]), "two calls of other functions with one id"),
    ] {
        let fault = ran(&world, &writing(language, &words), &silent()).unwrap_err();
        assert!(fault.code == FailureCode::Trap && fault.detail.contains(why), "{words}: {fault}");
        world.assert_others_are_served();
    }
    // The controls: two ids are two calls, which end with the one that made
    // them; and an id may come again after its answer.
    let others = silent();
    let fault = ran(&world, &writing(language, &both([ask(1, 7), ask(1, 8)])), &others).unwrap_err();
    look_alike(fault.code == FailureCode::Deadline, &fault);
    assert_eq!((others.waiting.lock().unwrap().len(), *others.stopped.lock().unwrap()), (2, 2));
    let others = Arc::new(Others::default());
    let fault = ran(&world, &writing(language, &both([ask(1, 7), ask(1, 8)])), &others).unwrap_err();
    look_alike(fault.code == FailureCode::Deadline, &fault);
}

fn lies_about_lines(language: Language) {
    let world = World::new(language);
    let frame = |kind: u8, turn: u8, len: u8| match language {
        Language::Python => format!("struct.pack('<IBI', {len}, {kind}, {turn}) + bytes({len})"),
        _ => {
            format!(
                "Buffer.concat([Buffer.from([{len}, 0, 0, 0, {kind}, {turn}, 0, 0, 0]), Buffer.alloc({len})])"
            )
        }
    };
    let report = match language {
        Language::Python => "struct.pack('<IBI', 72, 20, 1) + bytes(20) + b'\\xc8\\0' + bytes(50)".to_owned(),
        _ => "Buffer.concat([Buffer.from([72, 0, 0, 0, 20, 1, 0, 0, 0]), Buffer.alloc(20), Buffer.from([200, 0]), \
              Buffer.alloc(50)])"
            .to_owned(),
    };
    for (words, why) in [
        (report, "a report of a line that it does not serve"),
        (frame(20, 1, 72), "half a report"),
        (frame(20, 1, 71), "half a report"),
        (frame(21, 1, 5), "a request on a line that it does not serve"),
        (frame(22, 9, 8), "a wait of no call"),
        (frame(23, 1, 12), "a call on a line that it does not have"),
        (frame(24, 0, 4), "the end of a line that it does not have"),
    ] {
        let fault = ran(&world, &writing(language, &words), &Arc::default()).unwrap_err();
        assert!(fault.code == FailureCode::Trap && fault.detail.contains(why), "{words}: {fault}");
        world.assert_others_are_served();
    }
    // The control: that a call has waited may be said of one that runs.
    let fault = ran(&world, &writing(language, &frame(22, 1, 8)), &Arc::default()).unwrap_err();
    look_alike(fault.code == FailureCode::Deadline, &fault);
}

fn a_flood_of_calls(language: Language) {
    let world = World::new(language);
    let flood = |count: u32| match language {
        Language::Python => format!("b''.join(ask(1, n, b'g', b'x') for n in range({count}))"),
        _ => format!("Buffer.concat([...Array({count}).keys()].map((n) => ask(1, n, 'g', 'x')))"),
    };
    let silent = || Arc::new(Others { are_silent: true, ..Others::default() });
    let fault = ran(&world, &writing(language, &flood(65)), &silent()).unwrap_err();
    assert!(fault.detail.contains("more calls of other functions at once"), "{fault}");
    world.assert_others_are_served();
    // One less is allowed.
    let fault = ran(&world, &writing(language, &flood(64)), &silent()).unwrap_err();
    look_alike(fault.code == FailureCode::Deadline, &fault);
}

fn a_flood_of_bytes(language: Language) {
    let world = World::new(language);
    let silent = || Arc::new(Others { are_silent: true, ..Others::default() });
    let fault = ran(&world, &asking(language, &[(16 << 20, 2), (1, 1)]), &silent()).unwrap_err();
    assert!(fault.detail.contains("more bytes in calls of other functions at once"), "{fault}");
    world.assert_others_are_served();
    // One less is allowed.
    let fault = ran(&world, &asking(language, &[(16 << 20, 2)]), &silent()).unwrap_err();
    control(fault.code == FailureCode::Deadline, &fault);
}

fn answers_that_nobody_reads(language: Language) {
    let world = World::new(language);
    let fault = ran(&world, &asking(language, &[(1 << 20, 81), (1000, 1500)]), &Arc::default()).unwrap_err();
    assert!(fault.detail.contains("whose answers it does not read"), "{fault}");
    world.assert_others_are_served();
    // As long as not too many bytes wait, they do.
    let fault = ran(&world, &asking(language, &[(1 << 20, 60), (1000, 1500)]), &Arc::default()).unwrap_err();
    control(fault.code == FailureCode::Deadline, &fault);
}

fn calls_where_there_are_none(language: Language) {
    let world = World::new(language);
    let bytes = if language == Language::Python { "b" } else { "" };
    let source = writing(language, &format!("ask(1, 1, {bytes}'g', {bytes}'x')"));
    let fault = world.run(&source).unwrap_err();
    assert!(fault.detail.contains("where there are none"), "{fault}");
    world.assert_others_are_served();
    // Where there are some, the same words are a call.
    let others = Arc::new(Others { are_silent: true, ..Others::default() });
    let fault = ran(&world, &source, &others).unwrap_err();
    assert_eq!(fault.code, FailureCode::Deadline, "{fault}");
    control(others.waiting.lock().unwrap().len() == 1, "a call was made");
}

fn an_answer_that_comes_after_the_call(language: Language) {
    let world = World::new(language);
    // It does not wait for its call.
    let source = source(
        language,
        "import threading\ndef apply(x):\n    if x == b'':\n        threading.Thread(target=ask, args=('g', '', b'x'), daemon=True).start()\n        import time; time.sleep(0.3)\n    return b'ok'\n",
        "exports.apply = async (x) => { if (x.length === 0) module.ask('g', '', Buffer.from('x')); return Buffer.from('ok'); };\n",
    );
    let id = world.created(&source);
    let others = Arc::new(Others { are_silent: true, ..Others::default() });
    assert_eq!(world.invoke_with(id, &source, b"", Some(others.clone())).unwrap(), b"ok");
    let (nested, answered) = others.waiting.lock().unwrap().pop().expect("it asked");
    assert_eq!((nested.function.as_str(), nested.body.as_slice()), ("g", &b"x"[..]));
    assert_eq!(*others.stopped.lock().unwrap(), 1, "it is stopped with its caller");
    answered(NestedAnswer { status: 200, content_type: "", body: b"late" }, None);
    // Nobody hears it, and the next calls go well.
    for _ in 0..3 {
        assert_eq!(world.invoke_with(id, &source, b"again", Some(others.clone())).unwrap(), b"ok");
    }
    world.end(id);
    // What comes in time is heard.
    let source = source_of_a_caller(language);
    let id = world.created(source);
    let heard = world.invoke_with(id, source, b"x", Some(Arc::new(Others::default())));
    look_alike(heard.as_deref() == Ok(b"x"), "an answer in time");
    world.end(id);
}

fn source_of_a_caller(language: Language) -> &'static str {
    match language {
        Language::Python => "def apply(x):\n    return ask('g', '', x)[2]\n",
        _ => "exports.apply = async (x) => (await module.ask('g', '', x))[2];\n",
    }
}
