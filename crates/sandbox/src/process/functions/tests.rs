// SPDX-License-Identifier: Apache-2.0
//! Functions keep the contract of sandboxes, and fail as values.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use objects::{Limits, TreeBuilder};

use super::*;
use crate::contract::Fixture;
use crate::process::language::Language;
use crate::process::reactor::{Next, Reactor, Ready};

struct World {
    store: Arc<Store>,
    functions: Functions,
}

fn options() -> FunctionsOptions {
    FunctionsOptions { call_timeout: Duration::from_secs(20), ..FunctionsOptions::new(Language::Python) }
}

fn new_store() -> Arc<Store> {
    let options = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
    Arc::new(Store::open(options).unwrap())
}

impl World {
    fn uncontained(options: FunctionsOptions) -> Self {
        let store = new_store();
        let functions = Functions::uncontained(options, store.clone()).unwrap();
        Self { store, functions }
    }

    fn spec(&self, source: &str) -> Spec {
        Spec { procedure: self.store.keep_blob(source.as_bytes()), limits: Limits::default() }
    }

    fn call(&self, source: &str, arguments: &[Handle]) -> Call {
        let Spec { procedure, limits } = self.spec(source);
        let mut entries = vec![limits.handle().unwrap(), procedure];
        entries.extend(arguments);
        let tree: TreeBuilder = entries.into_iter().collect();
        let handle = self.store.keep_tree(tree.view());
        Call::new(self.store.local(handle).unwrap(), handle, limits, procedure)
    }

    fn created(&self, source: &str) -> SandboxId {
        let id = self.functions.create(&[self.spec(source)]).pop().unwrap().unwrap();
        self.functions.start(&[id]).pop().unwrap().unwrap();
        id
    }

    fn invoke(&self, id: SandboxId, source: &str, arguments: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let arguments: Vec<Handle> = arguments.iter().map(|bytes| self.store.keep_blob(bytes)).collect();
        let Invoked::Done(outcome) = self.functions.invoke(id, self.call(source, &arguments)).unwrap();
        outcome.result.map(|handle| self.functions.bytes(handle).unwrap().as_slice().to_vec())
    }

    /// Creates, calls once, deletes.
    fn run(&self, source: &str, arguments: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let id = self.created(source);
        let result = self.invoke(id, source, arguments);
        self.functions.kill(&[id]).pop().unwrap().unwrap();
        self.functions.delete(&[id]).pop().unwrap().unwrap();
        result
    }
}

const ECHO: &str = "def apply(x):\n    return x\n";
const RAISING: &str = "def apply(*x):\n    raise ValueError('no good')\n";
const ENDLESS: &str = "def apply(*x):\n    while True: pass\n";

impl Fixture for World {
    fn sandbox(&self) -> &dyn Sandbox {
        &self.functions
    }

    fn good(&self) -> Spec {
        self.spec(ECHO)
    }

    fn bad(&self) -> Spec {
        self.spec("def apply(:")
    }

    fn echo(&self, argument: Handle) -> (Call, Handle) {
        (self.call(ECHO, &[argument]), argument)
    }

    fn failing(&self) -> (Spec, Call, FailureCode) {
        (self.spec(RAISING), self.call(RAISING, &[]), FailureCode::Trap)
    }

    fn endless(&self) -> (Spec, Call) {
        (self.spec(ENDLESS), self.call(ENDLESS, &[]))
    }
}

#[test]
fn uncontained_functions_keep_the_contract_but_for_killing() {
    let world = World::uncontained(options());
    assert_eq!(world.run(ECHO, &[b"hello"]).unwrap(), b"hello");
    let spec = world.good();
    let created = world.functions.create(&[spec, world.bad(), spec]);
    assert!(matches!(created[..], [Ok(_), Err(Error::Procedure { .. }), Ok(_)]));
}

#[test]
fn what_goes_wrong_is_a_fault() {
    let world = World::uncontained(options());
    let cases = [
        ("raise ValueError('no good')", FailureCode::Trap, "ValueError: no good"),
        ("import os; os._exit(3)", FailureCode::Trap, "with status 3"),
        ("raise SystemExit(4)", FailureCode::Trap, "SystemExit: 4"),
        ("import os; os.abort()", FailureCode::Trap, "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", FailureCode::Trap, "SIGSEGV"),
        ("raise MemoryError", FailureCode::Memory, "MemoryError"),
        ("return 7", FailureCode::BadResult, "int"),
        ("return bytes((64 << 20) + 1)", FailureCode::BadResult, "67108865"),
        ("import os; os.write(3, b'nonsense' * 100)", FailureCode::Trap, "misused its channel"),
        ("import os; os.close(3)", FailureCode::Trap, ""),
        ("def f(): f()\n    f()", FailureCode::Trap, "RecursionError"),
    ];
    for (body, code, text) in cases {
        let fault = world.run(&format!("def apply(*x):\n    {body}\n"), &[]).unwrap_err();
        assert_eq!(fault.code, code, "{body}: {fault}");
        assert!(fault.detail.contains(text), "{body}: {fault}");
        assert!(!fault.detail.contains("/root") && !fault.detail.contains("python3.11"), "{fault}");
    }
    assert_eq!(world.run(ECHO, &[b"still"]).unwrap(), b"still");
}

#[test]
fn a_traceback_names_the_functions_own_lines() {
    let world = World::uncontained(options());
    let fault = world.run("import json\ndef apply(x):\n    return json.loads(x)\n", &[b"{"]).unwrap_err();
    assert!(
        fault.detail.contains("File \"function.py\", line 3, in apply\n    return json.loads(x)"),
        "{fault}"
    );
    assert!(fault.detail.contains("<python>/lib"), "{fault}");
}

mod following;
mod lending;
mod recalling;

#[test]
fn an_instance_keeps_its_globals_and_is_replaced_when_it_dies() {
    let world = World::uncontained(options());
    let source = "import os\nn = 0\ndef apply(x):\n    global n\n    n += 1\n    if x == b'die': os._exit(1)\n    print('call', n)\n    return str(n).encode()\n";
    let id = world.created(source);
    let call = |x: &[u8]| world.invoke(id, source, &[x]);
    assert_eq!((call(b"").unwrap(), call(b"").unwrap()), (b"1".to_vec(), b"2".to_vec()));
    assert_eq!(world.functions.log(id).unwrap(), "call 2\n");
    assert!(call(b"die").is_err());
    assert_eq!(call(b"").unwrap(), b"1");
    // A dead template is replaced, and instances outlive it.
    let Starter::Template(nursery) = &world.functions.maker.starter else { panic!("cold") };
    nursery.template().unwrap().give_up();
    assert_eq!(call(b"").unwrap(), b"2");
    assert_eq!(world.run(ECHO, &[b"new"]).unwrap(), b"new");
}

#[test]
fn output_is_bounded_and_children_have_none() {
    let world = World::uncontained(FunctionsOptions { log_bytes_max: 1000, ..options() });
    let source = "import os\ndef apply():\n    pid = os.fork()\n    if pid == 0:\n        print('child')\n        os._exit(0)\n    os.waitpid(pid, 0)\n    for i in range(10000): print('line', i)\n    return b''\n";
    let id = world.created(source);
    assert_eq!(world.invoke(id, source, &[]).unwrap(), b"");
    let log = world.functions.log(id).unwrap();
    assert!(log.starts_with("line 0\n") && log.len() < 1100 && log.contains("dropped"), "{log}");
}

#[test]
fn bounds_of_requests() {
    let world = World::uncontained(FunctionsOptions { sandboxes_max: 2, ..options() });
    let results = world.functions.create(&[world.good(); 3]);
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2);
    assert!(results.iter().any(|result| matches!(result, Err(Error::TooMany(2)))));
    let metered = Spec { limits: Limits { fuel: 5, ..Limits::default() }, ..world.good() };
    let world = World::uncontained(options());
    let refused = world.functions.create(&[metered]).pop().unwrap().unwrap_err();
    assert!(refused.to_string().contains("not counted"), "{refused}");
    let id = world.created(ECHO);
    let tree = world.store.keep_tree(TreeBuilder::new().view());
    let Invoked::Done(outcome) = world.functions.invoke(id, world.call(ECHO, &[tree])).unwrap();
    assert_eq!(outcome.result.unwrap_err().code, FailureCode::BadHandle);
}

/// Watches each instance with a thread.
#[derive(Debug)]
struct Watchers;

impl Reactor for Watchers {
    fn watch(&self, _: Home, fd: OwnedFd, ready: Box<dyn Ready>) {
        std::thread::spawn(move || {
            while linux::wait_readable(&fd, Duration::from_secs(1)).is_ok() && ready.act() != Next::Over {}
        });
    }

    fn when_writable(&self, _: Home, _: OwnedFd, ready: Box<dyn Ready>) {
        std::thread::spawn(move || while ready.act() != Next::Over {});
    }

    fn after_this_turn(&self, _: Home, ready: Box<dyn Ready>) {
        std::thread::spawn(move || ready.act());
    }
}

impl World {
    fn watched(language: Language) -> Self {
        Self::uncontained(FunctionsOptions {
            reactor: Some(Arc::new(Watchers)),
            call_timeout: Duration::from_secs(20),
            ..FunctionsOptions::new(language)
        })
    }

    /// Begins a call; its end comes through the channel.
    fn begin(&self, id: SandboxId, call: Call) -> mpsc::Receiver<Outcome> {
        let (sender, receiver) = mpsc::channel();
        self.functions.begin(id, call, Box::new(move |ended| sender.send(ended.unwrap()).unwrap()));
        receiver
    }

    /// The same of a call that the sandbox cannot come to.
    fn not_begun(&self, id: SandboxId, call: Call) -> Error {
        let (sender, receiver) = mpsc::channel();
        self.functions.begin(id, call, Box::new(move |ended| sender.send(ended.unwrap_err()).unwrap()));
        receiver.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn begun(&self, id: SandboxId, source: &str, argument: &[u8]) -> mpsc::Receiver<Outcome> {
        self.begin(id, self.call(source, &[self.store.keep_blob(argument)]))
    }

    fn text(&self, outcome: &Outcome) -> String {
        let handle = outcome.result.clone().unwrap();
        String::from_utf8(self.functions.bytes(handle).unwrap().as_slice().to_vec()).unwrap()
    }
}

/// Answers in a turn of the loop of its own, with how many there are then.
const IN_TURN: &str = "let all = 0, calls = 0;\nexports.apply = async (x) => {\n\
    \x20 const number = ++calls;\n  all++;\n  await new Promise((done) => setTimeout(done, 5));\n\
    \x20 return Buffer.from(`${x} is ${number}, of ${all--}`);\n};\n";

#[test]
fn calls_that_are_begun_are_served_one_after_the_other() {
    let world = World::watched(Language::Node);
    let id = world.created(IN_TURN);
    let begun = [b"a", b"b", b"c"].map(|name| world.begun(id, IN_TURN, name));
    let texts = begun.map(|begun| world.text(&begun.recv_timeout(Duration::from_secs(20)).unwrap()));
    assert_eq!(texts, ["a is 1, of 1", "b is 2, of 1", "c is 3, of 1"]);
    // Whoever waits in a thread is served by the same watchers.
    assert_eq!(world.run("exports.apply = (x) => x;\n", &[b"alone"]).unwrap(), b"alone");
    let python = World::watched(Language::Python);
    let source = "n = 0\ndef apply(x):\n    global n\n    n += 1\n    print(n)\n    return b'%d of %d' % (n, len(x))\n";
    let id = python.created(source);
    let big = vec![b'x'; 3 << 20];
    let begun: Vec<_> = (0..3).map(|_| python.begun(id, source, &big)).collect();
    for (number, begun) in begun.into_iter().enumerate() {
        let outcome = begun.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(python.text(&outcome), format!("{} of {}", number + 1, 3 << 20));
        assert_eq!(outcome.log.bytes(), format!("{}\n", number + 1).as_bytes());
    }
}

/// Fails at once, and has something fail later that nobody handles; what it is then is known only after it.
#[test]
fn what_a_failed_call_leaves_is_not_put_to_the_next_one() {
    let world = World::watched(Language::Node);
    let source = "exports.apply = (x) => {\n  if (`${x}` === 'fine') return Buffer.from('served');\n\
        \x20 Promise.reject(new Error('left'));\n  throw new Error('at once');\n};\n";
    let id = world.created(source);
    let failing = world.begun(id, source, b"");
    let call = world.call(source, &[world.store.keep_blob(b"fine")]);
    let (sender, receiver) = mpsc::channel();
    world.functions.begin(id, call, Box::new(move |ended| sender.send(ended).unwrap()));
    let fault = failing.recv_timeout(Duration::from_secs(20)).unwrap().result.unwrap_err();
    assert!(fault.detail.contains("at once"), "{fault}");
    // What nobody handled ends the instance: then it has not come to the next call.
    match receiver.recv_timeout(Duration::from_secs(20)).unwrap() {
        Ok(outcome) => assert_eq!(world.text(&outcome), "served"),
        Err(error) => assert!(matches!(error, Error::NotBegun(ended) if ended == id), "{error}"),
    }
}

#[test]
fn who_stands_in_line_behind_a_late_call_is_not_begun() {
    let world = World::watched(Language::Node);
    let source = "exports.apply = () => new Promise(() => {});\n";
    let id = world.created(source);
    let soon = Instant::now() + Duration::from_millis(50);
    let late = world.begin(id, Call { deadline: Some(soon), ..world.call(source, &[]) });
    let behind = world.not_begun(id, world.call(source, &[world.store.keep_blob(b"")]));
    // By then it may have been taken back.
    assert!(matches!(behind, Error::NotBegun(from) | Error::Recalled(from) if from == id), "{behind}");
    let fault = late.recv_timeout(Duration::from_secs(20)).unwrap().result.unwrap_err();
    assert_eq!(fault.code, FailureCode::Deadline);
    // It is not made anew for a call that was begun: another one may serve that.
    assert!(!world.functions.state(&[id]).pop().unwrap().unwrap().is_alive);
    assert!(matches!(world.not_begun(id, world.call(source, &[])), Error::NotBegun(gone) if gone == id));
    world.functions.kill(&[id]).pop().unwrap().unwrap();
    assert!(matches!(world.functions.delete(&[id])[..], [Ok(())]));
}

#[test]
fn calls_in_line_are_not_begun_when_the_one_before_them_ends_all() {
    let python = |ends: &str| (Language::Python, format!("def apply(x):\n    {ends}\n"));
    let node = |ends: &str| (Language::Node, format!("exports.apply = async () => {{ {ends} }};\n"));
    for ((language, source), code) in [
        (python("import os; os._exit(3)"), FailureCode::Trap),
        (python("import time; time.sleep(3)"), FailureCode::Deadline),
        (node("await 0; process.exit(3)"), FailureCode::Trap),
        // What has no container is not killed: it has to end by itself.
        (node("for (const end = Date.now() + 3000; Date.now() < end; );"), FailureCode::Deadline),
        (node("await new Promise(() => {})"), FailureCode::Deadline),
    ] {
        let world = World::watched(language);
        let id = world.created(&source);
        let soon = Instant::now() + Duration::from_millis(500);
        let call = world.call(&source, &[world.store.keep_blob(b"")]);
        let first = world.begin(id, Call { deadline: Some(soon), ..call.clone() });
        let error = world.not_begun(id, call);
        // Behind one that takes long it was taken back before that.
        let is_long = code == FailureCode::Deadline;
        assert!(
            matches!((&error, is_long), (Error::NotBegun(its), false) | (Error::Recalled(its), true) if *its == id),
            "{error}"
        );
        let fault = first.recv_timeout(Duration::from_secs(20)).unwrap().result.unwrap_err();
        assert_eq!(fault.code, code, "{fault}");
    }
}

/// What the next call does at once is done after the answer is on its way.
#[test]
fn an_answer_is_not_lost_when_the_next_call_ends_all() {
    let python = "import os\ndef apply(x):\n    if x == b'end': os._exit(3)\n    return x\n";
    let node = "exports.apply = async (x) => {\n  if (`${x}` === 'end') process.exit(3);\n  return x;\n};\n";
    for (language, source) in [(Language::Python, python), (Language::Node, node)] {
        let world = World::watched(language);
        for _ in 0..10 {
            let id = world.created(source);
            let answered = world.begun(id, source, b"answered");
            let (sender, receiver) = mpsc::channel();
            let end = world.call(source, &[world.store.keep_blob(b"end")]);
            world.functions.begin(id, end, Box::new(move |ended| sender.send(ended).unwrap()));
            let outcome = answered.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(world.text(&outcome), "answered");
            let ended = receiver.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
            assert_eq!(ended.result.unwrap_err().code, FailureCode::Trap);
        }
    }
}

#[test]
fn what_came_to_an_instance_that_leaves_is_not_begun() {
    let world = World::watched(Language::Python);
    // The first call is answered, and the word that none will be begun comes after the second one was sent.
    let source = "import os, threading, time\n\
        def leave():\n    time.sleep(0.3)\n    os.write(3, b'\\0\\0\\0\\0\\x1b\\0\\0\\0\\0')\n    os._exit(0)\n\
        def apply(x):\n    if x == b'last':\n        threading.Thread(target=leave).start()\n        return b'answered'\n    time.sleep(20)\n";
    let id = world.created(source);
    let last = world.begun(id, source, b"last").recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(last.result.is_ok());
    let error = world.not_begun(id, world.call(source, &[world.store.keep_blob(b"next")]));
    assert!(matches!(error, Error::NotBegun(ended) if ended == id), "{error}");
}

#[test]
fn a_call_ends_with_the_instance_that_it_runs_in() {
    let world = World::watched(Language::Python);
    let source = "import os\ndef apply(x): os._exit(3)\n";
    let id = world.created(source);
    let outcome = world.begun(id, source, b"").recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(outcome.result.unwrap_err().detail.contains("with status 3"));
    let source = "import time\ndef apply(x):\n    time.sleep(2)\n";
    let id = world.created(source);
    let begun = world.begun(id, source, b"");
    world.functions.kill(&[id]).pop().unwrap().unwrap();
    let fault = begun.recv_timeout(Duration::from_secs(20)).unwrap().result.unwrap_err();
    assert_eq!(fault.code, FailureCode::Cancelled, "{fault}");
}
