// SPDX-License-Identifier: Apache-2.0
//! Calls that stand in line in an instance are taken back, or have begun, and never both.

use std::sync::mpsc::Receiver;

use super::*;

/// Serves `N name` for so many milliseconds, and answers with all that were begun there.
const PYTHON: &str = "import time\nbegun = []\n\
    def apply(x):\n    ms, name = x.split()\n    begun.append(name)\n    time.sleep(int(ms) / 1000)\n    return b' '.join(begun)\n";
const NODE: &str = "const begun = [];\n\
    exports.apply = async (x) => {\n  const [ms, name] = `${x}`.split(' ');\n  begun.push(name);\n\
    \x20 if (Number(ms) > 0) await new Promise((done) => setTimeout(done, Number(ms)));\n  return Buffer.from(begun.join(' '));\n};\n";
/// The same where nothing else can happen meanwhile.
const BUSY: &str = "const begun = [];\n\
    exports.apply = (x) => {\n  const [ms, name] = `${x}`.split(' ');\n  begun.push(name);\n\
    \x20 for (const end = Date.now() + Number(ms); Date.now() < end; );\n  return Buffer.from(begun.join(' '));\n};\n";
const ALL: [(Language, &str); 3] =
    [(Language::Python, PYTHON), (Language::Node, NODE), (Language::Node, BUSY)];
pub(super) const SOON: Duration = Duration::from_secs(20);

type Ended = Result<Outcome, Error>;

impl World {
    pub(super) fn sent(&self, id: SandboxId, source: &str, argument: &str) -> Receiver<Ended> {
        let (sender, receiver) = mpsc::channel();
        let call = self.call(source, &[self.store.keep_blob(argument.as_bytes())]);
        self.functions.begin(id, call, Box::new(move |ended| sender.send(ended).unwrap()));
        receiver
    }

    pub(super) fn says(&self, ended: &Receiver<Ended>) -> String {
        self.text(&ended.recv_timeout(SOON).unwrap().unwrap())
    }
}

fn is_recalled(ended: &Receiver<Ended>, from: SandboxId) -> bool {
    matches!(ended.recv_timeout(SOON).unwrap(), Err(Error::Recalled(id)) if id == from)
}

#[test]
fn what_has_not_begun_is_taken_back_and_never_runs_there() {
    for (language, source) in ALL {
        let world = World::watched(language);
        let id = world.created(source);
        // Alone it is nobody's matter, and has begun or will.
        let alone = world.sent(id, source, "0 alone");
        world.functions.recall(id);
        assert_eq!(world.says(&alone), "alone");
        // It takes long enough for that those behind it are taken back in any case.
        let first = world.sent(id, source, "400 first");
        let behind = ["0 second", "0 third"].map(|call| world.sent(id, source, call));
        world.functions.recall(id);
        assert!(behind.iter().all(|call| is_recalled(call, id)), "{language:?}");
        assert_eq!(world.says(&first), "alone first");
        // What comes now is served as ever, and what was taken back was not.
        let next = world.sent(id, source, "0 next");
        assert_eq!(world.says(&next), "alone first next");
        let state = world.functions.state(&[id]).pop().unwrap().unwrap();
        assert_eq!((state.running, state.is_alive), (0, true));
    }
}

#[test]
fn who_stands_behind_a_long_call_goes_elsewhere_though_nobody_asks() {
    for (language, source) in ALL {
        let world = World::watched(language);
        let (id, other) = (world.created(source), world.created(source));
        let begun = Instant::now();
        let long = world.sent(id, source, "1500 long");
        let behind = [world.sent(id, source, "0 one"), world.sent(id, source, "0 two")];
        assert!(behind.iter().all(|call| is_recalled(call, id)));
        assert!(begun.elapsed() < Duration::from_millis(1400), "{:?}", begun.elapsed());
        assert_eq!(world.says(&world.sent(other, source, "0 elsewhere")), "elsewhere");
        assert_eq!(world.says(&long), "long", "it goes on");
    }
}

#[test]
fn each_call_is_served_once_however_often_they_are_taken_back() {
    for (language, source) in [(Language::Python, PYTHON), (Language::Node, NODE)] {
        let world = World::watched(language);
        let id = world.created(source);
        let (mut waiting, mut served) = ((0..120).collect::<Vec<u32>>(), 0);
        let mut rounds = 0;
        while !waiting.is_empty() {
            let sent: Vec<_> = waiting.iter().take(8).copied().collect();
            let calls = sent.iter().map(|name| world.sent(id, source, &format!("0 {name}")));
            let calls: Vec<_> = calls.collect();
            // At some other moment each time.
            std::thread::sleep(Duration::from_micros(rounds * 37 % 700));
            world.functions.recall(id);
            rounds += 1;
            for (name, call) in sent.iter().zip(calls) {
                match call.recv_timeout(SOON).unwrap() {
                    Ok(outcome) => {
                        let begun = world.text(&outcome);
                        assert!(begun.split(' ').any(|other| other == name.to_string()));
                        waiting.retain(|other| other != name);
                        served += 1;
                    }
                    Err(error) => assert!(matches!(error, Error::Recalled(_)), "{error}"),
                }
            }
        }
        let all = world.says(&world.sent(id, source, "0 last"));
        let mut names: Vec<u32> = all.split(' ').filter_map(|name| name.parse().ok()).collect();
        assert_eq!((served, names.len()), (120, 120), "{all}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 120, "none was begun twice");
    }
}

#[test]
fn who_says_that_nothing_has_begun_is_ended() {
    let world = World::watched(Language::Python);
    // It finds the word among its mappings, and has begun a call of which it sends a part.
    let source = "import ctypes, time\n\
        def forget():\n    lines = [line for line in open('/proc/self/maps') if 'sinew-turns' in line]\n\
        \x20   place = int(lines[0].split('-')[0], 16)\n    ctypes.c_uint64.from_address(place).value = 0\n\
        def apply(x):\n    if x == b'first':\n        time.sleep(0.03)\n        return x\n    if x == b'third': return x\n\
        \x20   import function\n    function.exchange().stream(b'\\0\\0\\0\\0')\n    forget()\n    time.sleep(30)\n";
    let id = world.created(source);
    let first = world.begun(id, source, b"first");
    let (sender, receiver) = mpsc::channel();
    let heard = world.call(source, &[world.store.keep_blob(b"second")]);
    let audience: Arc<dyn crate::Audience> = Arc::new(Deaf);
    let heard = Call { audience: Some(audience), ..heard };
    world.functions.begin(id, heard, Box::new(move |ended| sender.send(ended).unwrap()));
    let third = world.sent(id, source, "third");
    assert!(first.recv_timeout(SOON).unwrap().result.is_ok());
    let ended = receiver.recv_timeout(SOON).unwrap().unwrap();
    let fault = ended.result.unwrap_err();
    assert!(fault.detail.contains("misused its channel"), "{fault}");
    assert!(matches!(third.recv_timeout(SOON).unwrap(), Err(Error::NotBegun(_))));
}

#[test]
fn what_waits_in_node_while_a_failure_settles_is_not_dropped_with_the_first_word() {
    let world = World::watched(Language::Node);
    let source = "exports.apply = async (x) => {\n  if (`${x}` !== 'fails') return x;\n\
        \x20 await new Promise((done) => setTimeout(done, 1));\n  throw new Error('late');\n};\n";
    for _ in 0..40 {
        let id = world.created(source);
        let fails = world.sent(id, source, "fails");
        assert!(fails.recv_timeout(SOON).unwrap().unwrap().result.is_err());
        // The first of them comes alone, and the second with the word.
        let [one, two] = ["one", "two"].map(|call| world.sent(id, source, call));
        assert_eq!((world.says(&one), world.says(&two)), ("one".to_owned(), "two".to_owned()));
        world.functions.kill(&[id]).pop().unwrap().unwrap();
        world.functions.delete(&[id]).pop().unwrap().unwrap();
    }
}

#[test]
fn who_prints_for_calls_in_line_does_not_have_them_forgotten() {
    let world = World::watched(Language::Python);
    // Frames of output of the call that comes next: more than is kept between two calls.
    let source = "import os, struct, time\n\
        def apply(x):\n    if x != b'long': return x\n    time.sleep(0.02)\n\
        \x20   for _ in range(4): os.write(3, struct.pack('<IBI', 30001, 8, 2) + b'\\1' + b'x' * 30000)\n\
        \x20   time.sleep(0.5)\n    return x\n";
    let id = world.created(source);
    let long = world.sent(id, source, "long");
    let behind = ["one", "two"].map(|call| world.sent(id, source, call));
    assert!(behind.iter().all(|call| is_recalled(call, id)));
    assert_eq!(world.says(&long), "long");
    let state = world.functions.state(&[id]).pop().unwrap().unwrap();
    assert_eq!((state.running, state.is_alive), (0, true));
}

/// Hears nothing of it.
struct Deaf;

impl crate::Audience for Deaf {
    fn begins(&self, _: Box<dyn crate::Source>) -> Option<Box<dyn crate::Listener>> {
        None
    }
}

#[test]
fn what_was_taken_back_leaves_no_descriptors() {
    let world = World::watched(Language::Python);
    let source = "import os, time\ndef apply(x):\n    if bytes(x[:1]) == b'L': time.sleep(0.15)\n\
        \x20   return str(len(os.listdir('/proc/self/fd'))).encode()\n";
    let id = world.created(source);
    // Each call is given a place for its result, as a step of a workflow is.
    world.functions.seat(id).unwrap().makes_values.store(true, std::sync::atomic::Ordering::Relaxed);
    let before: u32 = world.says(&world.sent(id, source, "0")).parse().unwrap();
    for _ in 0..20 {
        let long = world.sent(id, source, "L");
        let behind = [world.sent(id, source, "a"), world.sent(id, source, "b")];
        world.functions.recall(id);
        assert!(behind.iter().all(|call| is_recalled(call, id)));
        // It may be taken back too, if the instance had not yet woken for it.
        assert!(matches!(long.recv_timeout(SOON).unwrap(), Ok(_) | Err(Error::Recalled(_))));
    }
    let after: u32 = world.says(&world.sent(id, source, "0")).parse().unwrap();
    assert_eq!(after, before, "the word is mapped, and nothing else is left");
}
