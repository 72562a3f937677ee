// SPDX-License-Identifier: Apache-2.0
//! What a call is lent to put a long result there is the next one's, if nothing was.

use rmmap::Plan;

use super::recalling::SOON;
use super::*;

/// Answers with the file that it was lent, and does before as it is told.
const LENT: &str = "import os, struct, time\n\
    def apply(told):\n    told = bytes(told).decode()\n    instance = hand_over.__self__\n    file = b'%d' % os.fstat(instance.outbox).st_ino\n\
    \x20   if told == 'fill':\n        return share([file])\n\
    \x20   if told == 'fork':\n        os.waitpid(os.fork() or os._exit(0), 0)\n\
    \x20   if told == 'make':\n        apply.made = ['x' * 900 + str(number) for number in range(1000)]\n\
    \x20   if told == 'raise':\n        raise ValueError(file)\n\
    \x20   if told.isdecimal():\n        time.sleep(int(told) / 1000)\n\
    \x20   if told == 'lie':\n        os.write(3, struct.pack('<IBI', 0, 30, instance.turn + 7))\n\
    \x20   return file\n";

fn watched() -> FunctionsOptions {
    FunctionsOptions { reactor: Some(Arc::new(Watchers)), ..options() }
}

impl World {
    /// Whose calls are steps, whose values are mapped or sent.
    fn lending(maps_values: bool) -> (Self, SandboxId) {
        Self::lending_to(LENT, maps_values)
    }

    fn lending_to(source: &str, maps_values: bool) -> (Self, SandboxId) {
        let values = maps_values.then(|| Plan::new(1 << 30));
        let world = Self::uncontained(FunctionsOptions { values, ..watched() });
        let id = world.created(source);
        let seat = world.functions.seat(id).unwrap();
        seat.makes_values.store(true, Ordering::Relaxed);
        seat.maps_values.store(maps_values, Ordering::Relaxed);
        (world, id)
    }

    fn lent(&self, id: SandboxId, told: &str) -> String {
        String::from_utf8(self.invoke(id, LENT, &[told.as_bytes()]).unwrap()).unwrap()
    }
}

#[test]
fn what_was_not_used_is_lent_again() {
    for maps_values in [false, true] {
        let (world, id) = World::lending(maps_values);
        let first = world.lent(id, "");
        assert!((0..5).all(|_| world.lent(id, "") == first), "maps values: {maps_values}");
        let fault = world.invoke(id, LENT, &[b"raise"]).unwrap_err();
        assert!(fault.detail.contains(&first), "{fault}");
        assert_eq!(world.lent(id, ""), first, "one that fails has not used it either");
    }
}

#[test]
fn what_was_used_is_not() {
    // Sent values fill it, and those that are mapped are made there; who has forked may have it still.
    for (maps_values, told) in [(false, "fill"), (true, "make"), (false, "fork"), (true, "fork")] {
        let (world, id) = World::lending(maps_values);
        let first = world.lent(id, "");
        assert_eq!(world.lent(id, told), first, "{told}");
        let next = world.lent(id, "");
        assert_ne!(next, first, "{told}");
        assert_eq!(world.lent(id, ""), next, "and that one is kept again");
    }
}

#[test]
fn calls_in_line_have_each_their_own() {
    for maps_values in [false, true] {
        let (world, id) = World::lending(maps_values);
        // Where this thread is not quick enough, they have not stood in line, or were taken back.
        let stood = (0..50).any(|_| {
            let first = world.lent(id, "");
            let calls: Vec<_> = ["20", "0", "0"].map(|told| world.sent(id, LENT, told)).into();
            let ended = calls.iter().map(|call| call.recv_timeout(SOON).unwrap().ok());
            let files: Vec<_> = ended.map(|ended| ended.map(|outcome| world.text(&outcome))).collect();
            let Some(files) = files.into_iter().collect::<Option<Vec<_>>>() else { return false };
            assert_eq!(files[0], first);
            assert_eq!(files[2], world.lent(id, ""), "nobody stood behind it");
            files[0] != files[1] && files[1] != files[2] && files[0] != files[2]
        });
        assert!(stood, "maps values: {maps_values}");
    }
}

#[test]
fn nothing_is_written_to_or_closed_that_has_got_the_number_of_what_was_lent() {
    let source = LENT.replace("return share([file])", "return share([file * 100]) or b'sent'").replace(
        "    return file\n",
        "    if told == 'close':\n        os.closerange(4, 64)\n        apply.own = [os.memfd_create('own') for _ in range(16)]\n\
         \x20       [os.ftruncate(one, 1 << 30) for one in apply.own]\n\
         \x20       apply.were = [os.fstat(one) for one in apply.own]\n\
         \x20   if told == 'own':\n        return b'%d' % sum(os.fstat(one).st_blocks == 0 and os.path.samestat(os.fstat(one), was) for one, was in zip(apply.own, apply.were))\n\
         \x20   return file\n",
    );
    for (maps_values, told) in [(false, "fill"), (true, "make")] {
        let (world, id) = World::lending_to(&source, maps_values);
        let says = |told: &str| {
            let result = world.invoke(id, &source, &[told.as_bytes()]);
            String::from_utf8(result.unwrap()).unwrap()
        };
        let first = says("");
        assert_eq!(says("close"), first, "it had that, and has files of its own in its place now");
        // Which it is said to have still, and would be used.
        says(told);
        assert_eq!(says("own"), "16", "{told}");
        // A call that forks lets go of what it was lent.
        says("fork");
        assert_eq!(says("own"), "16", "{told}");
    }
}

#[test]
fn who_waits_for_a_value_comes_before_what_its_maker_has_still_to_do() {
    let source = LENT.replace(
        "    return file\n",
        "    if told == 'told':\n        return repr([*apply.seen, instance.heap.is_held, apply.box() is None, gc.isenabled(), len(signal.pthread_sigmask(0, []))]).encode()\n\
         \x20   class Box(list):\n        pass\n\
         \x20   box, yields = Box([['x' * 900 + str(number) for number in range(1000)]]), os.sched_yield\n\
         \x20   apply.box, apply.seen = weakref.ref(box), []\n\
         \x20   def yielding():\n        apply.seen.append((instance.heap.is_held, apply.box() is not None))\n        os.sched_yield = yields\n\
         \x20   os.sched_yield = yielding\n\
         \x20   if told == 'threads':\n        threading.Thread(target=time.sleep, args=(0.2,), daemon=True).start()\n\
         \x20   if told == 'closes':\n        os.closerange(4, 64)\n\
         \x20   return hand_over(box) or b'sent'\n",
    );
    let source = source.replacen("import os", "import gc, signal, threading, weakref, os", 1);
    let (world, id) = World::lending_to(&source, true);
    let says =
        |told: &str| String::from_utf8(world.invoke(id, &source, &[told.as_bytes()]).unwrap()).unwrap();
    let hands = || world.sent(id, &source, "hand").recv_timeout(SOON).unwrap().unwrap();
    assert!(hands().result.is_ok());
    assert_eq!(
        says("told"),
        "[(True, True), False, True, True, 0]",
        "it is as it is, and has ended, only when others had the processor"
    );
    // Whoever may still write to it must not, before anybody has it.
    let mapped = world.sent(id, &source, "threads").recv_timeout(SOON).unwrap().unwrap();
    assert!(mapped.result.is_ok());
    assert_eq!(says("told"), "[(False, True), False, True, True, 0]");
    // What cannot be made its own is sent, and nothing ends for it.
    assert_eq!(says("closes"), "sent");
    assert_eq!(says("told"), "[(False, False), False, True, True, 0]");
}

#[test]
fn few_addresses_are_not_for_those_who_wait() {
    let plan = Plan::new(1 << 30);
    let world = World::uncontained(FunctionsOptions { values: Some(plan.clone()), ..watched() });
    let id = world.created(LENT);
    let seat = world.functions.seat(id).unwrap();
    seat.makes_values.store(true, Ordering::Relaxed);
    seat.maps_values.store(true, Ordering::Relaxed);
    let first = world.lent(id, "");
    let others: Vec<_> = (0..2048).map_while(|_| plan.lease(1)).collect();
    assert_eq!(world.lent(id, ""), first, "it was kept before they were few");
    assert_ne!(world.lent(id, ""), first);
    drop(others);
    let again = world.lent(id, "");
    assert_eq!(world.lent(id, ""), again);
}

#[test]
fn who_keeps_what_it_was_not_lent_is_ended() {
    let (world, id) = World::lending(false);
    let fault = world.invoke(id, LENT, &[b"lie"]).unwrap_err();
    assert!(fault.detail.contains("misused its channel: something kept that it was not given"), "{fault}");
    let begun = Instant::now();
    // The negative control: it goes on without it.
    let (world, id) = World::lending(false);
    assert!(!world.lent(id, "").is_empty() && begun.elapsed() < SOON);
}
