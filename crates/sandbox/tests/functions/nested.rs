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
    ("a_flood_of_calls", a_flood_of_calls),
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
            answered(NestedAnswer { status, content_type, body: &nested.body });
        }
        Box::new(Stop(self.stopped.clone()))
    }
}

/// A function that writes these words to its channel, and waits.
fn writing(language: Language, words: &str) -> String {
    match language {
        Language::Python => format!(
            "import os, time, struct\ndef ask(turn, number, name, body):\n    \
             head = struct.pack('<IH', number, len(name)) + name + b'\\0\\0' + body\n    \
             return struct.pack('<IBI', len(head), 10, turn) + head\n\
             def apply(x):\n    os.write(3, {words})\n    time.sleep(100)\n"
        ),
        _ => format!(
            "const fs = require('fs');\nconst ask = (turn, number, name, body) => {{\n\
             const head = Buffer.alloc(6); head.writeUInt32LE(number); head.writeUInt16LE(name.length, 4);\n\
             const rest = Buffer.concat([head, Buffer.from(name), Buffer.from([0, 0]), Buffer.from(body)]);\n\
             const frame = Buffer.alloc(9); frame.writeUInt32LE(rest.length); frame[4] = 10; frame.writeUInt32LE(turn, 5);\n\
             return Buffer.concat([frame, rest]); }};\n\
             exports.apply = () => {{ fs.writeSync(3, {words}); return new Promise(() => {{}}); }};\n"
        ),
    }
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
    answered(NestedAnswer { status: 200, content_type: "", body: b"late" });
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
