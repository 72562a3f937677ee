// SPDX-License-Identifier: Apache-2.0
//! Calls that follow one another in an instance: each end is told in its turn, and once that nothing follows any more.

use std::sync::mpsc::{Receiver, Sender};

use super::recalling::SOON;
use super::*;
use crate::keep_alive::Start;
use crate::process::chain::Chain;
use crate::process::instance::{Begun, CallEnd, Made};
use crate::{FOLLOWERS_MAX, Follower, Followers};

/// What is told of a place, or that all is over.
#[derive(Debug, PartialEq)]
enum Told {
    Ended(usize, Result<String, String>),
    NotBegun(usize),
    Over(bool),
    Elsewhere,
}

/// Tells of ends as texts.
struct Telling {
    calls: Vec<Follower>,
    store: Arc<Store>,
    told: Mutex<Sender<Told>>,
}

impl Followers for Telling {
    fn calls(&self) -> &[Follower] {
        &self.calls
    }

    fn start(&self, _: Start) {}

    fn ended(&self, place: usize, outcome: Outcome, is_followed: bool) {
        let result = outcome.result.map_err(|fault| fault.detail);
        let told = Told::Ended(place, result.map(|handle| text_of(&self.store, handle)));
        let sender = self.told.lock();
        sender.send(told).unwrap();
        if !is_followed && place < self.calls.len() {
            sender.send(Told::NotBegun(place + 1)).unwrap();
        }
    }

    fn not_begun(&self, place: usize) {
        self.told.lock().send(Told::NotBegun(place)).unwrap();
    }
}

fn text_of(store: &Store, handle: Handle) -> String {
    let bytes = handle.literal_bytes().map(<[u8]>::to_vec);
    let bytes = bytes.unwrap_or_else(|| store.local(handle).unwrap().bytes().to_vec());
    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()
}

/// `apply` is the first call; the others are functions of their names, which are given arguments and the result before.
const STEPS: &str = "import os, time\nrun = []\n\
    def apply(x):\n    run.append('apply')\n    print('apply')\n    return x\n\
    def add(_, head, argument, before):\n    run.append('add')\n    print('add')\n    return before + argument\n\
    def fail(_, head, argument, before):\n    raise ValueError(f'no {before}')\n\
    def end(_, head, argument, before):\n    os._exit(3)\n\
    def large(_, head, argument, before):\n    return b'x' * (1 << 20)\n\
    def wait(_, head, argument, before):\n    time.sleep(float(argument))\n    return before\n\
    def says(_, head, argument, before):\n    return ' '.join(run).encode()\n\
    def step_of(name):\n    return globals()[name]\n";

fn follower(handler: &str, arguments: &[u8]) -> Follower {
    Follower {
        handler: handler.to_owned(),
        head: b"{}".to_vec(),
        arguments: arguments.to_vec(),
        is_brief: true,
        given_within: None,
        callees: None,
    }
}

impl World {
    /// Begins a call of `apply` that these follow.
    fn followed(&self, id: SandboxId, source: &str, first: &[u8], calls: Vec<Follower>) -> Receiver<Told> {
        let (sender, receiver) = mpsc::channel();
        let told = Mutex::new(sender.clone());
        let followers: Arc<dyn Followers> = Arc::new(Telling { calls, store: self.store.clone(), told });
        let call = self.call(source, &[self.store.keep_blob(first)]);
        let call = Call { followers: Some(followers), ..call };
        let then = Box::new(move |ended: Result<Outcome, Error>| {
            let told = ended.map_or(Told::Elsewhere, |outcome| Told::Over(outcome.result.is_ok()));
            sender.send(told).unwrap();
        });
        self.functions.begin(id, call, then);
        receiver
    }

    fn is_idle(&self, id: SandboxId) -> bool {
        let state = self.functions.state(&[id]).pop().unwrap().unwrap();
        (state.running, state.is_alive) == (0, true)
    }
}

fn all(told: &Receiver<Told>) -> Vec<Told> {
    let mut all = Vec::new();
    while !matches!(all.last(), Some(Told::Over(_) | Told::Elsewhere)) {
        all.push(told.recv_timeout(SOON).unwrap());
    }
    all
}

fn ended(place: usize, text: &str) -> Told {
    Told::Ended(place, Ok(text.to_owned()))
}

#[test]
fn calls_are_given_what_the_one_before_returned() {
    let world = World::watched(Language::Python);
    let id = world.created(STEPS);
    let told = world.followed(id, STEPS, b"a", vec![follower("add", b"b"), follower("add", b"c")]);
    assert_eq!(all(&told), [ended(0, "a"), ended(1, "ab"), ended(2, "abc"), Told::Over(true)]);
    assert!(world.is_idle(id));
    // As many as there may be, again and again, and what is alone in between.
    for _ in 0..3 {
        let calls = (0..FOLLOWERS_MAX).map(|_| follower("add", b"+")).collect();
        let told = all(&world.followed(id, STEPS, b"", calls));
        assert_eq!(told.len(), FOLLOWERS_MAX + 2);
        assert_eq!(told[FOLLOWERS_MAX], ended(FOLLOWERS_MAX, &"+".repeat(FOLLOWERS_MAX)));
        let alone = world.begun(id, STEPS, b"alone").recv_timeout(SOON).unwrap();
        assert_eq!((world.text(&alone).as_str(), alone.log.bytes()), ("alone", b"apply\n".as_slice()));
    }
}

#[test]
fn after_a_failure_nothing_follows() {
    let world = World::watched(Language::Python);
    let id = world.created(STEPS);
    let calls =
        || vec![follower("add", b"b"), follower("fail", b""), follower("add", b"c"), follower("add", b"d")];
    for _ in 0..2 {
        let mut told = all(&world.followed(id, STEPS, b"a", calls()));
        let Told::Ended(2, Err(why)) = told.remove(2) else { panic!("{told:?}") };
        assert!(why.contains("ValueError: no b'ab'"), "{why}");
        assert_eq!(told, [ended(0, "a"), ended(1, "ab"), Told::NotBegun(3), Told::Over(false)]);
        assert!(world.is_idle(id));
    }
    let unknown = all(&world.followed(id, STEPS, b"a", vec![follower("no_such", b"")]));
    assert!(matches!(&unknown[1], Told::Ended(1, Err(why)) if why.contains("KeyError")), "{unknown:?}");
}

#[test]
fn what_is_long_is_not_taken_on() {
    let world = World::watched(Language::Python);
    let id = world.created(STEPS);
    let told = all(&world.followed(id, STEPS, b"a", vec![follower("large", b""), follower("says", b"")]));
    assert_eq!(told, [ended(0, "a"), ended(1, &"x".repeat(100)), Told::NotBegun(2), Told::Over(true)]);
    let told = all(&world.followed(id, STEPS, &vec![b'x'; 300 << 10], vec![follower("says", b"")]));
    assert_eq!(told[1..], [Told::NotBegun(1), Told::Over(true)]);
    assert!(world.is_idle(id));
}

#[test]
fn an_instance_that_ends_has_begun_only_one() {
    let world = World::watched(Language::Python);
    let id = world.created(STEPS);
    let told = all(&world.followed(id, STEPS, b"a", vec![follower("end", b""), follower("add", b"b")]));
    assert_eq!(told[0], ended(0, "a"));
    assert!(matches!(&told[1], Told::Ended(1, Err(why)) if why.contains("status 3")), "{told:?}");
    assert_eq!(told[2..], [Told::NotBegun(2), Told::Over(false)]);
    // A call that it never came to is another one's, with all that follows it.
    let told = world.followed(id, STEPS, b"a", vec![follower("add", b"b")]);
    assert_eq!(all(&told), [Told::Elsewhere]);
    assert!(told.try_recv().is_err());
}

#[test]
fn each_has_a_time_of_its_own() {
    let options = FunctionsOptions {
        reactor: Some(Arc::new(Watchers)),
        call_timeout: Duration::from_millis(700),
        ..FunctionsOptions::new(Language::Python)
    };
    let world = World::uncontained(options);
    let id = world.created(STEPS);
    let calls = vec![follower("wait", b"0.4"), follower("wait", b"0.4"), follower("wait", b"0.4")];
    let told = all(&world.followed(id, STEPS, b"a", calls));
    assert_eq!(told, [ended(0, "a"), ended(1, "a"), ended(2, "a"), ended(3, "a"), Told::Over(true)]);
    let told = all(&world.followed(id, STEPS, b"a", vec![follower("wait", b"9"), follower("add", b"")]));
    assert!(matches!(&told[1], Told::Ended(1, Err(why)) if why.contains("took too long")), "{told:?}");
    assert_eq!(told[2..], [Told::NotBegun(2), Told::Over(false)]);
}

#[test]
fn calls_behind_a_chain_are_served_when_it_is_over_or_taken_back() {
    let world = World::watched(Language::Python);
    let id = world.created(STEPS);
    for round in 0..40 {
        let calls = vec![
            follower("wait", b"0.002"),
            follower("add", b"b"),
            follower("wait", b"0.002"),
            follower("add", b"c"),
        ];
        let chain = world.followed(id, STEPS, b"a", calls);
        let behind = world.sent(id, STEPS, "behind");
        if round % 2 == 1 {
            std::thread::sleep(Duration::from_micros(round * 150));
            world.functions.recall(id);
        }
        let told = all(&chain);
        // On a busy machine all of it may be taken back, before the instance has come to it.
        let is_elsewhere = told == [Told::Elsewhere] && round % 2 == 1;
        // Whatever else was taken back was at its end.
        let begun = told.iter().take_while(|told| matches!(told, Told::Ended(..))).count();
        let right = [ended(0, "a"), ended(1, "a"), ended(2, "ab"), ended(3, "ab"), ended(4, "abc")];
        assert_eq!(told[..begun], right[..begun], "{told:?}");
        assert!(is_elsewhere || told.len() == begun + if begun == 5 { 1 } else { 2 }, "{told:?}");
        assert!(
            is_elsewhere || begun == 5 || (told[begun] == Told::NotBegun(begun) && round % 2 == 1),
            "{told:?}"
        );
        match behind.recv_timeout(SOON).unwrap() {
            Ok(outcome) => assert_eq!(world.text(&outcome), "behind"),
            Err(error) => assert!(round % 2 == 1 && matches!(error, Error::Recalled(_)), "{error}"),
        }
        assert!(world.is_idle(id));
    }
}

#[test]
fn ends_are_told_in_their_order_whoever_brings_them() {
    let world = World::watched(Language::Python);
    let id = world.created(STEPS);
    let seat = world.functions.seat(id).unwrap();
    let end = |text: &str, is_followed| CallEnd {
        result: Ok(Made::Bytes(text.as_bytes().to_vec())),
        log: crate::Printed::default(),
        begun: Begun::Yes,
        spent: None,
        phases: None,
        is_followed,
    };
    let recalled = || {
        let fault = Fault::new(FailureCode::Resources, "its instance is busy");
        CallEnd { begun: Begun::Recalled, ..CallEnd::fault(fault, false) }
    };
    let chain = || {
        let (sender, receiver) = mpsc::channel();
        let calls = vec![follower("add", b""); 3];
        let told = Mutex::new(sender.clone());
        let followers: Arc<dyn Followers> = Arc::new(Telling { calls, store: world.store.clone(), told });
        let then = Box::new(move |ended: Result<Outcome, Error>| {
            let told = ended.map_or(Told::Elsewhere, |outcome| Told::Over(outcome.result.is_ok()));
            sender.send(told).unwrap();
        });
        seat.joins();
        (Chain::new((id, seat.clone()), world.store.clone(), true, followers, then), receiver)
    };
    // The last is seen first, and so on.
    let (first, told) = chain();
    let texts = ["a", "b", "c", "d"];
    for place in (0..4).rev() {
        assert!(told.try_recv().is_err(), "{place}");
        first.done(place)(end(texts[place], place < 3));
    }
    assert_eq!(all(&told), [ended(0, "a"), ended(1, "b"), ended(2, "c"), ended(3, "d"), Told::Over(true)]);
    // One is taken back before it is known that the one before it has ended.
    let (second, told) = chain();
    second.done(1)(recalled());
    second.done(2)(recalled());
    second.done(0)(end("a", true));
    assert_eq!(all(&told), [ended(0, "a"), Told::NotBegun(1), Told::Over(true)]);
    // Or has to do with nobody, since it was not followed.
    let (third, told) = chain();
    third.done(1)(recalled());
    third.done(0)(end("a", false));
    assert_eq!(all(&told), [ended(0, "a"), Told::NotBegun(1), Told::Over(true)]);
    third.done(2)(end("c", false));
    assert!(told.try_recv().is_err());
    // All of it is another one's.
    let (fourth, told) = chain();
    fourth.done(1)(recalled());
    fourth.done(0)(recalled());
    assert_eq!(all(&told), [Told::Elsewhere]);
    assert!(world.is_idle(id), "each that has begun has left");
}

#[test]
fn who_answers_out_of_turn_is_ended() {
    let world = World::watched(Language::Python);
    // The turn of the call that follows is its own and one more.
    let lies = [("RESULT = 5", "the_next"), ("ALONE = 36", "alone")];
    for (kind, name) in lies {
        let (number, payload) = if name == "the_next" { (5, "b'lie'") } else { (36, "b''") };
        let source = format!(
            "import os, struct\n{kind}\ndef apply(x):\n    import __main__, gc\n\
             \x20   instance = next(one for one in gc.get_objects() if type(one).__name__ == 'Instance')\n\
             \x20   instance.channel.send({number}, instance.turn + 1, {payload})\n    return x\ndef step_of(name):\n    return lambda *_: b'honest'\n"
        );
        let id = world.created(&source);
        let told = all(&world.followed(id, &source, b"a", vec![follower("f", b"")]));
        assert!(
            matches!(&told[0], Told::Ended(0, Err(why)) if why.contains("misused its channel")),
            "{name} {told:?}"
        );
        assert_eq!(told[1..], [Told::NotBegun(1), Told::Over(false)]);
    }
}
