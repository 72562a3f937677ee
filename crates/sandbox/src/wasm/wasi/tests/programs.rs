// SPDX-License-Identifier: Apache-2.0
//! Programs as they are run: what they are told, what comes of them, what stays as it was.

use objects::FailureCode;

use super::*;

/// Writes `len` bytes at `from` to a descriptor.
fn print(fd: u8, from: u32, len: u32) -> String {
    format!(
        "(i32.store (i32.const 0) (i32.const {from})) (i32.store (i32.const 4) (i32.const {len}))
         (drop (call $fd_write (i32.const {fd}) (i32.const 0) (i32.const 1) (i32.const 8)))"
    )
}

fn data(at: u32, text: &str) -> String {
    format!("(data (i32.const {at}) {text:?})")
}

#[test]
fn streams_and_status_are_the_result() {
    let mut world = World::new();
    let module = program_with(
        &data(100, "out err"),
        &format!("{}{} (call $proc_exit (i32.const 300)) unreachable", print(1, 100, 3), print(2, 104, 3)),
    );
    let ended = world.run(&module, &[]).unwrap();
    let expected =
        Ended { status: 300, stdout: "out".to_owned(), stderr: "err".to_owned(), directories: Vec::new() };
    assert_eq!(ended, expected);
    // Who returns ends with 0; who raises a signal dies of it, with what was written.
    assert_eq!(world.run(&program("nop"), &[]).unwrap().status, 0);
    let module = program_with(
        &data(100, "x"),
        &format!("{} (drop (call $proc_raise (i32.const 6)))", print(1, 100, 1)),
    );
    let ended = world.run(&module, &[]).unwrap();
    assert_eq!((ended.status, &*ended.stdout), (134, "x"));
}

#[test]
fn arguments_environment_and_stdin_arrive() {
    let mut world = World::new();
    // Prints all arguments and variables with their zeros, and what is on stdin, one byte at a time.
    let body = format!(
        "(drop (call $args_get (i32.const 16) (i32.const 200)))
         (drop (call $args_sizes_get (i32.const 8) (i32.const 12)))
         (i32.store (i32.const 0) (i32.const 200)) (i32.store (i32.const 4) (i32.load (i32.const 12)))
         (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
         (drop (call $environ_get (i32.const 16) (i32.const 400)))
         (drop (call $environ_sizes_get (i32.const 8) (i32.const 12)))
         (i32.store (i32.const 0) (i32.const 400)) (i32.store (i32.const 4) (i32.load (i32.const 12)))
         (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
         (loop $more
           (i32.store (i32.const 0) (i32.const 300)) (i32.store (i32.const 4) (i32.const 1))
           (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
           (if (i32.load (i32.const 8)) (then {} (br $more))))",
        print(1, 300, 1)
    );
    let words: Vec<Handle> = ["arg", "ls", "env", "A=1", "arg", "-l", "stdin", "some\nlines"]
        .map(|word| world.blob(word.as_bytes()))
        .into();
    let ended = world.run(&program(&body), &words).unwrap();
    assert_eq!(ended.stdout, "ls\0-l\0A=1\0some\nlines");
}

/// Opens `a` and writes `new` into it; opens nothing else.
const WRITES: &str = r#"
  (if (call $path_open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 9)
        (i64.const 0x42) (i64.const 0) (i32.const 0) (i32.const 16))
    (then unreachable))
  (i32.store (i32.const 0) (i32.const 101)) (i32.store (i32.const 4) (i32.const 3))
  (if (call $fd_write (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))"#;

#[test]
fn what_is_not_written_keeps_its_handle_and_is_not_looked_at() {
    let mut world = World::new();
    // Two of the blobs are nowhere: nobody reads them.
    let absent = Handle::blob(&[1; 1000]);
    let absent_directory = Handle::u64(0);
    let inner = world.tree([world.blob(b"f big\n"), absent]);
    let names = world.blob(b"f a\nf big\nd inner\n");
    let old = world.blob(b"old and longer");
    let root = world.tree([names, old, absent, inner.lowered().unwrap()]);
    let lib = world.tree([world.blob(b"f big\n"), absent]);
    let mut words = vec![world.blob(b"dir"), world.blob(b"/"), root.lowered().unwrap()];
    words.extend([world.blob(b"lib"), world.blob(b"/lib"), lib.lowered().unwrap()]);
    let ended = world.run(&program_with(&data(100, "anew"), WRITES), &words).unwrap();
    let expected = world.tree([names, world.blob(b"new"), absent, inner.lowered().unwrap()]);
    assert_eq!(ended.directories, [expected], "and what is read-only is not in the result");
    // Nothing was done: the very handle that was given, the ref of a tree.
    let ended = world.run(&program("nop"), &words).unwrap();
    assert_eq!(ended.directories, [root.lowered().unwrap()]);
    // Who reads what is nowhere fails, in passing.
    let reads =
        WRITES.replace("(i32.const 9)\n", "(i32.const 0)\n").replace("(i32.const 101)", "(i32.const 200)");
    let reads = reads.replace("$fd_write", "$fd_read");
    let words = [world.blob(b"dir"), world.blob(b"/"), world.tree([world.blob(b"f a\n"), absent])];
    let fault = world.run(&program_with(&data(100, "a"), &reads), &words).unwrap_err();
    assert_eq!(fault.code, FailureCode::MissingData, "{fault}");
    _ = absent_directory;
}

#[test]
fn runs_leave_nothing_behind() {
    let mut world = World::new();
    // Fails unless its memory and a global are as they were declared, and then changes both.
    let module = program_with(
        "(global $g (mut i32) (i32.const 7))",
        "(if (i32.or (i32.load (i32.const 500)) (i32.ne (global.get $g) (i32.const 7))) (then unreachable))
         (i32.store (i32.const 500) (i32.const 1)) (global.set $g (i32.const 8))
         (if (i32.ne (memory.grow (i32.const 1)) (i32.const 1)) (then unreachable))",
    );
    for _ in 0..3 {
        assert_eq!(world.run(&module, &[]).unwrap().status, 0);
    }
}

#[test]
fn time_and_random_numbers_are_data() {
    let mut world = World::new();
    // Prints 16 random bytes, two looks at the clock, and one after a sleep of a second.
    let body = format!(
        "(drop (call $random_get (i32.const 200) (i32.const 16)))
         (drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 216)))
         (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 224)))
         (i32.store (i32.const 316) (i32.const 1)) (i64.store (i32.const 324) (i64.const 1000000000))
         (if (call $poll_oneoff (i32.const 300) (i32.const 400) (i32.const 1) (i32.const 8)) (then unreachable))
         (if (i32.ne (i32.load (i32.const 8)) (i32.const 1)) (then unreachable))
         (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 232))) {}",
        print(1, 200, 40)
    );
    let module = program(&body);
    let mut run = |words: &[Handle]| {
        let outcome = world.apply(&module, words, Limits::default()).result.unwrap();
        let object = world.store.get(outcome).unwrap().unwrap();
        let bytes = world.store.get(object.as_tree().get(1).unwrap()).unwrap().unwrap().to_vec();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        (bytes[..16].to_vec(), word(16), word(24), word(32))
    };
    let word = |text: &[u8]| Handle::literal(text).unwrap();
    let first = run(&[]);
    assert_eq!(first, run(&[]), "the same on every run");
    assert_eq!((first.1, first.2, first.3), (946_684_800_000_001_000, 2000, 1_000_003_000));
    let other = run(&[word(b"seed"), word(b"other"), word(b"time"), Handle::u64(5000)]);
    assert_ne!(first.0, other.0);
    assert_eq!(other.1, 6000);
}

#[test]
fn failures_repeat_the_last_words() {
    let mut world = World::new();
    let module =
        program_with(&data(100, "thread panicked: no"), &format!("{} unreachable", print(2, 100, 19)));
    let fault = world.run(&module, &[]).unwrap_err();
    assert_eq!(fault.code, FailureCode::Trap);
    assert!(fault.detail.ends_with("Its stderr ends with:\nthread panicked: no"), "{fault}");
    let endless = program("(loop $l (br $l))");
    let outcome = world.apply(&endless, &[], Limits { fuel: 10_000, ..Limits::default() });
    assert_eq!(outcome.result.unwrap_err().code, FailureCode::Fuel);
    assert!(outcome.fuel <= 10_000);
}

#[test]
fn what_a_program_imports_from_elsewhere_ends_it_when_called() {
    let mut world = World::new();
    let module = |body: &str| {
        let fields =
            "(import \"env\" \"f\" (func $f (param i32) (result f64))) (memory (export \"memory\") 1)";
        wat::parse_str(format!("(module {fields} (func (export \"_start\") {body}))")).unwrap()
    };
    assert_eq!(world.run(&module("nop"), &[]).unwrap().status, 0);
    let fault = world.run(&module("(drop (call $f (i32.const 1)))"), &[]).unwrap_err();
    assert_eq!(fault.code, FailureCode::Trap);
    assert!(fault.detail.contains("\"f\" of \"env\""), "{fault}");
}

#[test]
fn what_is_neither_program_nor_codelet_says_why() {
    let mut world = World::new();
    let cases = [
        ("(func (export \"_start\") (param i32))", "takes or returns something"),
        (
            "(import \"sinew_v1\" \"kind\" (func (param i32) (result i32))) (func (export \"_start\"))",
            "imports sinew_v1",
        ),
        (
            "(import \"wasi_snapshot_preview1\" \"fd_close\" (func (param i64) (result i32))) (func (export \"_start\"))",
            "another type",
        ),
        (
            "(import \"wasi_snapshot_preview1\" \"fd_open\" (func)) (func (export \"_start\"))",
            "no function of wasi",
        ),
        ("(import \"env\" \"memory\" (memory 1)) (func (export \"_start\"))", "which is no function"),
        (
            "(import \"wasi_snapshot_preview1\" \"sched_yield\" (func (result i32))) (func (export \"apply\") (param i32) (result i32) (i32.const 0))",
            "no function of sinew_v1",
        ),
        ("(func (export \"main\"))", "as programs do"),
    ];
    for (fields, text) in cases {
        let module = wat::parse_str(format!("(module {fields})")).unwrap();
        let fault = world.run(&module, &[]).unwrap_err();
        assert_eq!(fault.code, FailureCode::BadProcedure, "{fault}");
        assert!(fault.detail.contains(text), "{text:?} is not in {fault}");
    }
}

/// Throws, catches what it threw, and keeps it in a table, over and over.
const THROWS: &str = r#"(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (tag $t (param i32 i32)) (table $kept 4096 exnref)
  (func (export "_start") (local $i i32) (local $caught exnref)
    (loop $more
      (block $handler (result exnref)
        (try_table (catch_all_ref $handler) (throw $t (i32.const 1) (local.get $i)))
        unreachable)
      (local.set $caught)
      (table.set $kept (i32.and (local.get $i) (i32.const MASK)) (local.get $caught))
      (br_if $more (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 200000))))
    (call $exit (i32.const 5))))"#;

#[test]
fn exceptions_are_caught_collected_and_paid_for() {
    let mut world = World::new();
    let throws = |mask: &str| wat::parse_str(THROWS.replace("MASK", mask)).unwrap();
    // The last sixteen are kept, and the others' memory is had again.
    let limits = Limits { memory_bytes: 4 << 20, ..Limits::default() };
    assert!(world.apply(&throws("15"), &[], limits).result.is_ok());
    assert_eq!(world.run(&throws("15"), &[]).unwrap().status, 5);
    let counted = Limits { fuel: 100_000_000, ..Limits::default() };
    let first = world.apply(&throws("15"), &[], counted);
    assert_eq!(first, world.apply(&throws("15"), &[], counted));
    assert!(first.result.is_ok() && first.fuel > 200_000);
    // All of them, with less than they take.
    let limits = Limits { memory_bytes: 64 << 10, ..Limits::default() };
    let fault = world.apply(&throws("4095"), &[], limits).result.unwrap_err();
    assert_eq!(fault.code, FailureCode::Memory, "{fault}");
    // One that nobody catches ends the program.
    let module = "(module (tag $t) (func (export \"_start\") (throw $t)))";
    let fault = world.run(&wat::parse_str(module).unwrap(), &[]).unwrap_err();
    assert_eq!((fault.code, &*fault.detail), (FailureCode::Trap, "an exception that nobody caught"));
    // Codelets have none.
    let module = "(module (tag $t) (func (export \"apply\") (param i32) (result i32) (throw $t)))";
    let fault = world.run(&wat::parse_str(module).unwrap(), &[]).unwrap_err();
    assert_eq!(fault.code, FailureCode::BadProcedure);
    assert!(fault.detail.contains("exceptions proposal not enabled"), "{fault}");
}
