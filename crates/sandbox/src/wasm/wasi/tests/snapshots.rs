// SPDX-License-Identifier: Apache-2.0
//! Programs that go on from a snapshot, and what tries to make one of what cannot be kept.

use objects::FailureCode;

use super::*;

/// A reactor with a counter in each place where state can be: its memory, a second page
/// of it, and a global. `count` raises all three and prints them, with a random byte and the clock.
const COUNTER: &str = r#"
  (global $g (mut i64) (i64.const 40))
  (func (export "_initialize") (i32.store (i32.const 1000) (i32.const 7)))
  (func (export "wide") (drop (memory.grow (i32.const 9))) (i32.store (i32.const 600000) (i32.const 50)))
  (func $put (param $at i32) (param $value i32)
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.div_u (local.get $value) (i32.const 10))))
    (i32.store8 (i32.add (local.get $at) (i32.const 1)) (i32.add (i32.const 48) (i32.rem_u (local.get $value) (i32.const 10)))))
  (func (export "run") (result i32)
    (i32.store (i32.const 1000) (i32.add (i32.load (i32.const 1000)) (i32.const 1)))
    (global.set $g (i64.add (global.get $g) (i64.const 1)))
    (call $put (i32.const 100) (i32.load (i32.const 1000)))
    (call $put (i32.const 102) (i32.wrap_i64 (global.get $g)))
    (call $put (i32.const 104) (memory.size))
    (i32.store (i32.const 0) (i32.const 100)) (i32.store (i32.const 4) (i32.const 6))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (drop (call $random_get (i32.const 200) (i32.const 4)))
    (drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 204)))
    (i32.store (i32.const 0) (i32.const 200)) (i32.store (i32.const 4) (i32.const 12))
    (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.load (i32.const 2000)))
  (func (export "fail") (result i32) (i32.const 9))
  (func (export "leave") (call $proc_exit (i32.const 0)))
  (func (export "open") (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 300) (i32.const 1)
     (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 400))))
  (func (export "shut") (drop (call $fd_close (i32.const 0))))
  (func (export "flag") (drop (call $fd_fdstat_set_flags (i32.const 1) (i32.const 4))))
  (func (export "takes") (param i32))
  (func (export "room") (param i32) (result i32) (i32.const 5000))
  (func (export "none") (param i32) (result i32) (i32.const -1))
  (func (export "print") (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (data (i32.const 300) "a")"#;

fn module(fields: &str) -> Vec<u8> {
    let text = format!("(module {} (memory (export \"memory\") 1) {fields})", imports());
    wat::parse_str(text).unwrap()
}

impl World {
    fn say(&self, words: &[&str]) -> Vec<Handle> {
        words.iter().map(|word| self.blob(word.as_bytes())).collect()
    }

    /// What a program leaves behind after these entries.
    fn snapshot(&mut self, module: &[u8], words: &[Handle]) -> Result<Handle, Fault> {
        let words: Vec<Handle> = words.iter().copied().chain([self.blob(b"snapshot")]).collect();
        self.apply(module, &words, Limits::default()).result
    }

    /// Both streams of a program that goes on: the second one as bytes.
    fn go_on(&mut self, module: &[u8], from: Handle, words: &[Handle]) -> Result<(String, Vec<u8>), Fault> {
        let words: Vec<Handle> = [self.blob(b"from"), from].iter().chain(words).copied().collect();
        let result = self.apply(module, &words, Limits::default()).result?;
        let entries: Vec<Handle> = self.store.get(result).unwrap().unwrap().as_tree().iter().collect();
        assert_eq!(entries[0], Handle::u64(0));
        let bytes = |handle| self.store.get(handle).unwrap().unwrap().to_vec();
        Ok((String::from_utf8(bytes(entries[1])).unwrap(), bytes(entries[2])))
    }
}

#[test]
fn what_has_started_goes_on_as_if_it_had_never_stopped() {
    let mut world = World::new();
    let module = module(COUNTER);
    let whole = world.say(&["entry", "wide", "entry", "run", "entry", "run", "entry", "run"]);
    let whole = world.apply(&module, &whole, Limits::default()).result.unwrap();
    let whole: Vec<Handle> = world.store.get(whole).unwrap().unwrap().as_tree().iter().collect();
    let bytes = |world: &World, handle| world.store.get(handle).unwrap().unwrap().to_vec();
    assert_eq!(bytes(&world, whole[1]), b"084110094210104310", "memory, global and pages");

    let words = world.say(&["entry", "wide", "entry", "run"]);
    let first = world.snapshot(&module, &words).unwrap();
    assert_eq!(world.snapshot(&module, &words).unwrap(), first, "the same again is the same snapshot");
    let parts: Vec<Handle> = world.store.get(first).unwrap().unwrap().as_tree().iter().collect();
    assert_eq!(bytes(&world, parts[4]), b"084110");
    // From a ref, and again and again: what one does, no other one sees.
    for from in [first, first.lowered().unwrap(), first] {
        let (stdout, stderr) = world.go_on(&module, from, &[]).unwrap();
        assert_eq!(stdout, "094210");
        // Random numbers and clocks go on too.
        assert_eq!(stderr, bytes(&world, whole[2])[12..24]);
    }
    // A snapshot of what went on from one.
    let words: Vec<Handle> = [world.blob(b"from"), first].into();
    let second = world.snapshot(&module, &words).unwrap();
    let (stdout, stderr) = world.go_on(&module, second, &[]).unwrap();
    assert_eq!((&*stdout, &stderr[..]), ("104310", &bytes(&world, whole[2])[24..]));
    // Without one everything begins anew.
    assert_eq!(world.run_text(&module), "084101");
    // Most of its memory is zeros, of which nothing is kept.
    let pieces: Vec<Handle> = world.store.get(parts[3]).unwrap().unwrap().as_tree().iter().collect();
    assert_eq!(pieces.iter().map(|piece| piece.size()).collect::<Vec<_>>(), [256 << 10, 0, 128 << 10]);
}

impl World {
    fn run_text(&mut self, module: &[u8]) -> String {
        let result = self.apply(module, &[], Limits::default()).result.unwrap();
        let entries: Vec<Handle> = self.store.get(result).unwrap().unwrap().as_tree().iter().collect();
        String::from_utf8(self.store.get(entries[1]).unwrap().unwrap().to_vec()).unwrap()
    }
}

#[test]
fn what_cannot_be_kept_is_told() {
    let mut world = World::new();
    let module = module(COUNTER);
    let directory = world.directory(&[("a", "1")]);
    let lib = [world.blob(b"lib"), world.blob(b"/d"), directory];
    for (entry, code, why) in [
        ("fail", FailureCode::Guest, "it ended with status 9"),
        ("leave", FailureCode::Guest, "not by returning"),
        ("open", FailureCode::Guest, "the descriptor 4 is open"),
        ("shut", FailureCode::Guest, "a stream is closed"),
        ("flag", FailureCode::Guest, "the descriptor 1 is open, or not as it was"),
        ("absent", FailureCode::BadThunk, "it exports no function \"absent\""),
        ("takes", FailureCode::BadThunk, "it exports no function \"takes\""),
        ("memory", FailureCode::BadThunk, "it exports no function \"memory\""),
    ] {
        let words = [&world.say(&["entry", entry])[..], &lib].concat();
        let fault = world.snapshot(&module, &words).unwrap_err();
        assert_eq!(fault.code, code, "{entry}: {fault}");
        assert!(fault.detail.contains(why), "{entry}: {fault}");
    }
    // Tables, segments, references: what is not looked at must not change.
    for fields in [
        "(table $t 1 funcref) (func (export \"run\") (table.set $t (i32.const 0) (ref.null func)))",
        "(data $d \"x\") (func (export \"run\") (data.drop $d))",
        "(global (mut funcref) (ref.null func)) (func (export \"run\"))",
        "(func (export \"run\")) (func $s) (start $s)",
    ] {
        let module = self::module(fields);
        let fault = world.snapshot(&module, &[]).unwrap_err();
        assert!(fault.detail.contains("no snapshots of it"), "{fields}: {fault}");
        assert!(world.apply(&module, &[], Limits::default()).result.is_ok(), "{fields}");
    }
}

#[test]
fn entries_are_given_bytes() {
    let mut world = World::new();
    let module = module(COUNTER);
    let started = world.say(&["entry", "run"]);
    let started = world.snapshot(&module, &started).unwrap();
    let words = world.say(&[
        "call",
        "print",
        "room",
        "what it is to do, ",
        "call",
        "print",
        "room",
        "",
        "entry",
        "run",
    ]);
    assert_eq!(world.go_on(&module, started, &words).unwrap().0, "what it is to do, 094201");
    for (words, code, why) in [
        (
            ["call", "print", "none", "x"],
            FailureCode::Trap,
            "\"none\" gave no place in its memory for 1 bytes",
        ),
        (["call", "print", "run", "x"], FailureCode::BadThunk, "\"run\" that takes an i32 and returns one"),
        (["call", "run", "room", "x"], FailureCode::BadThunk, "\"run\" that takes two i32"),
    ] {
        let words = world.say(&words);
        let fault = world.go_on(&module, started, &words).unwrap_err();
        assert_eq!(fault.code, code, "{fault}");
        assert!(fault.detail.contains(why), "{why:?} is not in {fault}");
    }
}

#[test]
fn what_goes_on_has_the_directories_that_it_had() {
    let mut world = World::new();
    let module = module(COUNTER);
    let (one, other) = (world.directory(&[("a", "1")]), world.directory(&[("b", "2")]));
    let lib = |world: &World, word: &[u8], path: &[u8], tree| [world.blob(word), world.blob(path), tree];
    let words = lib(&world, b"lib", b"/d", one);
    let snapshot = world.snapshot(&module, &words).unwrap();
    // Whatever is in them.
    let same = lib(&world, b"lib", b"/d", other);
    assert_eq!(world.go_on(&module, snapshot, &same).unwrap().0, "094201");
    let more = [same, lib(&world, b"lib", b"/e", other)].concat();
    for words in [&[][..], &lib(&world, b"dir", b"/d", one), &lib(&world, b"lib", b"/e", one), &more] {
        let fault = world.go_on(&module, snapshot, words).unwrap_err();
        assert_eq!(fault.code, FailureCode::BadThunk, "{fault}");
        assert!(fault.detail.contains("goes on with the directories [lib /d]"), "{fault}");
    }
}

#[test]
fn made_up_snapshots_do_no_harm() {
    let mut world = World::new();
    let module = module(COUNTER);
    let good = world.snapshot(&module, &[]).unwrap();
    let parts: Vec<Handle> = world.store.get(good).unwrap().unwrap().as_tree().iter().collect();
    let state = world.store.get(parts[2]).unwrap().unwrap().to_vec();
    let piece = world.blob(&[7; 64 << 10]);
    let none = Handle::blob(&[]);
    let with = |world: &World, at: usize, part: Handle| {
        let parts = parts.iter().enumerate().map(|(index, old)| if index == at { part } else { *old });
        world.tree(parts.collect::<Vec<_>>())
    };
    let changed = |world: &World, range: std::ops::Range<usize>, bytes: &[u8]| {
        let mut state = state.clone();
        state.splice(range, bytes.iter().copied());
        with(world, 2, world.blob(&state))
    };
    let huge = u64::MAX.to_le_bytes();
    let cases = [
        (world.tree([]), "too few entries"),
        (with(&world, 0, none), "does not begin like one"),
        (with(&world, 1, piece), "of another module"),
        (with(&world, 2, world.blob(b"short")), "its state means nothing"),
        (with(&world, 2, world.tree([])), "its state is no blob"),
        (changed(&world, 24..32, &huge), "its state means nothing"),
        (changed(&world, 0..8, &huge), "has a memory of"),
        (changed(&world, 0..8, &(3u64 << 32).to_le_bytes()), "has a memory of"),
        (changed(&world, 0..8, &7u64.to_le_bytes()), "has a memory of 7 bytes"),
        // The global is of another type, of none, or there are others.
        (changed(&world, 32..33, &[0]), "globals are not those"),
        (changed(&world, 32..33, &[9]), "globals are not those"),
        (changed(&world, 24..49, &[0; 8]), "globals are not those"),
        (with(&world, 3, world.tree([])), "as many pieces"),
        (with(&world, 3, world.tree([world.blob(b"7")])), "the length of one"),
        (with(&world, 3, world.tree([world.tree([])])), "the length of one"),
        (with(&world, 3, piece), "does not begin like one"),
    ];
    for (snapshot, why) in cases {
        let fault = world.go_on(&module, snapshot, &[]).unwrap_err();
        assert!(fault.detail.contains(why), "{why:?} is not in {fault}");
    }
    // One of which the memory is not here is a passing failure, and one that begins with a status ends with it.
    let absent = with(&world, 3, world.tree([Handle::blob(&[5; 64 << 10])]));
    assert_eq!(world.go_on(&module, absent, &[]).unwrap_err().code, FailureCode::MissingData);
    let made_up = with(&world, 3, world.tree([piece]));
    let words = [world.blob(b"from"), made_up];
    let result = world.apply(&module, &words, Limits::default()).result.unwrap();
    let entries: Vec<Handle> = world.store.get(result).unwrap().unwrap().as_tree().iter().collect();
    assert_eq!(entries[0], Handle::u64(0x0707_0707));
    // And the good one is still as it was.
    assert_eq!(world.go_on(&module, good, &[]).unwrap().0, "094201");
    // Its memory counts, although it is shared.
    let limits = Limits { memory_bytes: 512 << 10, ..Limits::default() };
    let wide = world.say(&["entry", "wide"]);
    let wide = world.snapshot(&module, &wide).unwrap();
    let words = [world.blob(b"from"), wide];
    assert_eq!(world.apply(&module, &words, limits).result.unwrap_err().code, FailureCode::Memory);
}

/// Tells the sum of all its memory's words, what `print` gets is only where it begins, and then
/// writes to every page, and to more of them than there were.
const LEAKY: &str = r#"
  (func (export "room") (param i32) (result i32) (i32.const 5000))
  (func (export "set") (i32.store (i32.const 9000) (i32.const 77)) (drop (memory.grow (i32.const 99))))
  (func (export "keep") (param $at i32) (param $len i32)
    (memory.copy (i32.const 400000) (local.get $at) (local.get $len))
    (memory.fill (local.get $at) (i32.const 0) (local.get $len)))
  (func (export "sum") (param $secret i32) (param $len i32) (local $at i32) (local $sum i64)
    (i64.store (i32.const 5000) (i64.const 0))
    (loop $next
      (local.set $sum (i64.add (local.get $sum) (i64.load (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
    (i64.store (i32.const 100) (local.get $sum))
    (i32.store (i32.const 0) (i32.const 100)) (i32.store (i32.const 4) (i32.const 8))
    (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
    (drop (memory.grow (i32.const 3)))
    (local.set $at (i32.const 0))
    (loop $next
      (i64.store (local.get $at) (i64.add (i64.load (i32.const 5000)) (i64.extend_i32_u (local.get $len))))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $next (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
    (if (i32.eq (local.get $len) (i32.const 3)) (then unreachable))
    (if (i32.eq (local.get $len) (i32.const 2)) (then (call $proc_exit (i32.const 0)))))"#;

#[test]
fn nothing_of_who_went_on_is_in_the_memory_of_the_next() {
    let mut world = World::new();
    let module = module(LEAKY);
    let (one, two) = (world.say(&["entry", "set"]), world.say(&["entry", "set", "seed", "other"]));
    let one = world.snapshot(&module, &one).unwrap();
    let two = world.snapshot(&module, &two).unwrap();
    let expected = 77u64.to_le_bytes().to_vec();
    let mut ended = [0; 2];
    for round in 0..40 {
        // Traps and exits, which keep nothing, stand between those that return.
        let text = format!("{:1$}", "", [1, 4, 2, 5, 3][round % 5]);
        let words = world.say(&["call", "sum", "room", &text]);
        let from = if round % 3 == 0 { two } else { one };
        match world.go_on(&module, from, &words) {
            Ok((_, sum)) => assert_eq!(sum, expected, "{round}"),
            Err(fault) => assert_eq!((fault.code, round % 5), (FailureCode::Trap, 4), "{fault}"),
        }
        ended[usize::from(round % 5 == 4)] += 1;
    }
    assert_eq!(ended, [32, 8]);
}

#[test]
fn snapshots_that_differ_share_what_they_can_and_nothing_else() {
    let mut world = World::new();
    let module = module(LEAKY);
    let set = world.say(&["entry", "set"]);
    let begun = world.snapshot(&module, &set).unwrap();
    // Each goes on from that one, and leaves another text in its memory; `sum` finds it.
    let several: Vec<(Handle, Vec<u8>)> = (0..20u64)
        .map(|number| {
            let text = format!("{number:>16}");
            let words =
                [&[world.blob(b"from"), begun][..], &world.say(&["call", "keep", "room", &text])].concat();
            let words_of: Vec<u64> =
                text.as_bytes().chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            let sum = words_of.iter().fold(77u64, |sum, word| sum.wrapping_add(*word));
            (world.snapshot(&module, &words).unwrap(), sum.to_le_bytes().to_vec())
        })
        .collect();
    for round in 0..100 {
        let (from, expected) = &several[round * 7 % several.len()];
        let text = format!("{:1$}", "", [1, 4, 2, 5, 3][round % 5]);
        let words = world.say(&["call", "sum", "room", &text]);
        match world.go_on(&module, *from, &words) {
            Ok((_, sum)) => assert_eq!(&sum, expected, "{round}"),
            Err(fault) => assert_eq!((fault.code, round % 5), (FailureCode::Trap, 4), "{fault}"),
        }
    }
}
