// SPDX-License-Identifier: Apache-2.0
//! Programs that mean harm: each call with addresses out of memory, lists without end,
//! all descriptors, all memory.

use objects::FailureCode;
use proptest::prelude::*;

use super::*;
use crate::wasm::wasi::calls::IMPORTS;
use crate::wasm::wasi::errno::Errno;

/// A program that calls everything once with these numbers, in turn, again and again.
fn calls_all(numbers: &[i64]) -> Vec<u8> {
    let mut numbers = numbers.iter().cycle();
    let mut body = String::new();
    for import in IMPORTS.iter().filter(|import| import.name != "proc_exit" && import.name != "proc_raise") {
        let arguments: String = import
            .params
            .iter()
            .map(|ty| format!("({ty}.const {}) ", numbers.next().map_or(0, |number| *number as i32)))
            .collect();
        body.push_str(&format!("(drop (call ${} {arguments}))\n", import.name));
    }
    program(&body)
}

#[test]
fn addresses_out_of_memory_are_told() {
    let mut world = World::new();
    let root = world.directory(&[("f", "text")]);
    // The last is where a result goes; each range ends one byte beyond the memory.
    let cases = [
        "(call $args_sizes_get (i32.const 65533) (i32.const 0))",
        "(call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 65529))",
        "(call $random_get (i32.const 65535) (i32.const 2))",
        "(call $random_get (i32.const 0) (i32.const -1))",
        "(call $fd_read (i32.const 0) (i32.const 65529) (i32.const 1) (i32.const 0))",
        "(call $fd_read (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 65533))",
        "(call $fd_fdstat_get (i32.const 0) (i32.const 65513))",
        "(call $fd_filestat_get (i32.const 3) (i32.const 65473))",
        "(call $fd_prestat_get (i32.const 3) (i32.const 65529))",
        "(call $fd_readdir (i32.const 3) (i32.const 65530) (i32.const 7) (i64.const 0) (i32.const 0))",
        "(call $path_create_directory (i32.const 3) (i32.const 65530) (i32.const 7))",
        "(call $path_open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 1) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 65533))",
        "(call $poll_oneoff (i32.const 65500) (i32.const 0) (i32.const 1) (i32.const 0))",
        "(call $poll_oneoff (i32.const 0) (i32.const 65505) (i32.const 1) (i32.const 0))",
    ];
    for call in cases {
        let module = program_with("(data (i32.const 100) \"n\")", &format!("(call $proc_exit {call})"));
        let words = [world.blob(b"dir"), world.blob(b"/"), root];
        let ended = world.run(&module, &words).unwrap();
        assert_eq!((ended.status, &ended.directories[..]), (Errno::Fault as u64, &[root][..]), "{call}");
    }
    // Also of a program that has no memory at all.
    let module =
        "(module (import \"wasi_snapshot_preview1\" \"random_get\" (func $r (param i32 i32) (result i32)))
        (import \"wasi_snapshot_preview1\" \"proc_exit\" (func $e (param i32)))
        (func (export \"_start\") (call $e (call $r (i32.const 0) (i32.const 1)))))";
    assert_eq!(world.run(&wat::parse_str(module).unwrap(), &[]).unwrap().status, Errno::Fault as u64);
}

#[test]
fn lists_and_paths_are_bounded() {
    let mut world = World::new();
    let root = world.directory(&[]);
    let cases = [
        ("(call $fd_write (i32.const 1) (i32.const 0) (i32.const 1025) (i32.const 0))", Errno::Invalid),
        ("(call $fd_write (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 0))", Errno::Invalid),
        ("(call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const -1) (i32.const 0))", Errno::Invalid),
        ("(call $path_create_directory (i32.const 3) (i32.const 0) (i32.const 4097))", Errno::NameTooLong),
        ("(call $path_create_directory (i32.const 3) (i32.const 256) (i32.const 256))", Errno::NameTooLong),
    ];
    let fill = "(memory.fill (i32.const 256) (i32.const 97) (i32.const 4200))";
    for (call, errno) in cases {
        let status = world.status(&program(&format!("{fill} (call $proc_exit {call})")), root);
        assert_eq!(status, errno as u64, "{call}");
    }
}

/// What a program opens until it cannot.
#[test]
fn descriptors_are_bounded() {
    let mut world = World::new();
    let root = world.directory(&[("f", "text")]);
    let module = program_with(
        "(data (i32.const 100) \"f\")",
        "(loop $more
           (local.set $i (call $path_open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 0)
             (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16)))
           (br_if $more (i32.eqz (local.get $i))))
         (if (i32.ne (i32.load (i32.const 16)) (i32.const 1023)) (then unreachable))
         ;; One that is closed can be had again, under its number.
         (if (call $fd_close (i32.const 500)) (then unreachable))
         (if (call $path_open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 0)
             (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16)) (then unreachable))
         (if (i32.ne (i32.load (i32.const 16)) (i32.const 500)) (then unreachable))
         (call $proc_exit (local.get $i))",
    );
    assert_eq!(world.status(&module, root), Errno::TooManyOpen as u64);
}

#[test]
fn what_is_written_counts_as_memory() {
    let mut world = World::new();
    // Writes 32 KiB to stdout without end; the same into a file; makes directories without end.
    let out = "(i32.store (i32.const 0) (i32.const 256)) (i32.store (i32.const 4) (i32.const 32768))";
    let name = "(i32.store (i32.const 100) (i32.add (i32.const 0x61616161) (local.get $i)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))";
    let file =
        "(drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 4) (i32.const 1)
        (i64.const 0x44) (i64.const 0) (i32.const 0) (i32.const 16)))
        (i32.store (i32.const 0) (i32.const 256)) (i32.store (i32.const 4) (i32.const 32768))";
    let write = |fd: &str| {
        format!("(loop $l (drop (call $fd_write {fd} (i32.const 0) (i32.const 1) (i32.const 8))) (br $l))")
    };
    let bodies = [
        format!("{out} {}", write("(i32.const 1)")),
        format!("(i32.store (i32.const 100) (i32.const 0x61616161)) {file} {}", write("(i32.load (i32.const 16))")),
        format!("(loop $l {name} (drop (call $path_create_directory (i32.const 3) (i32.const 100) (i32.const 4))) (br $l))"),
        // Far behind its end: the gap counts, too.
        format!("(i32.store (i32.const 100) (i32.const 0x61616161)) {file}
            (drop (call $fd_seek (i32.load (i32.const 16)) (i64.const 0x1000000000) (i32.const 0) (i32.const 8)))
            {}", write("(i32.load (i32.const 16))")),
    ];
    let words = [world.blob(b"dir"), world.blob(b"/"), world.directory(&[])];
    for body in bodies {
        let outcome =
            world.apply(&program(&body), &words, Limits { memory_bytes: 1 << 20, ..Limits::default() });
        let fault = outcome.result.unwrap_err();
        assert_eq!(fault.code, FailureCode::Memory, "{fault}");
    }
    // A file that is cut, or removed, gives back what it took: so much can be written again and again.
    let again = format!(
        "(i32.store (i32.const 100) (i32.const 0x61616161)) {file}
         (loop $l
           (drop (call $fd_pwrite (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i64.const 600000) (i32.const 8)))
           (drop (call $path_unlink_file (i32.const 3) (i32.const 100) (i32.const 4)))
           (drop (call $fd_close (i32.load (i32.const 16)))) {file}
           (br_if $l (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 100))))"
    );
    let outcome =
        world.apply(&program(&again), &words, Limits { memory_bytes: 1 << 20, ..Limits::default() });
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
}

#[test]
fn directories_are_read_through_any_buffer() {
    let mut world = World::new();
    let names: Vec<String> = (0..40).map(|n| format!("{n:03}{}", "x".repeat(n * 5))).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    let root = world.directory(&files);
    // Asks again from the last whole line on, as C libraries do, with a buffer that has room for one
    // line; removes what it has read. Prints the names.
    let module = program(
        "(local $cookie i64)
         (loop $more
           (if (call $fd_readdir (i32.const 3) (i32.const 1000) (i32.const 300) (local.get $cookie) (i32.const 16))
             (then unreachable))
           (if (i32.ge_u (i32.load (i32.const 16)) (i32.const 24)) (then
             (local.set $cookie (i64.load (i32.const 1000)))
             (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.load (i32.const 1016)))
             (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
             (drop (call $path_unlink_file (i32.const 3) (i32.const 1024) (i32.load (i32.const 1016))))
             (br $more))))
         ;; No room at all, and a cookie beyond the end, are no errors.
         (if (call $fd_readdir (i32.const 3) (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 16)) (then unreachable))
         (if (call $fd_readdir (i32.const 3) (i32.const 0) (i32.const 9) (i64.const -1) (i32.const 16)) (then unreachable))
         (if (i32.load (i32.const 16)) (then unreachable))",
    );
    let words = [world.blob(b"dir"), world.blob(b"/"), root];
    let ended = world.run(&module, &words).unwrap();
    assert_eq!(ended.stdout, format!("...{}", names.concat()));
    assert_eq!(world.read(ended.directories[0]), Tree::new());
}

#[test]
fn overlapping_ranges_do_no_harm() {
    let mut world = World::new();
    let words = [world.blob(b"stdin"), world.blob(&b"0123456789".repeat(10))];
    // Reads over the list of ranges itself, and over where the count goes.
    let module = program(
        "(i32.store (i32.const 0) (i32.const 0)) (i32.store (i32.const 4) (i32.const 20))
         (i32.store (i32.const 8) (i32.const 4)) (i32.store (i32.const 12) (i32.const 20))
         (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 6)) (then unreachable))
         (call $proc_exit (i32.load (i32.const 6)))",
    );
    assert_eq!(world.run(&module, &words).unwrap().status, 40);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever numbers a program brings, it ends as programs do, the same on every run.
    #[test]
    fn any_numbers_are_borne(
        numbers in prop::collection::vec(
            prop_oneof![0..8i64, Just(-1), Just(65535), any::<i32>().prop_map(i64::from), 0..70000i64],
            1..40,
        )
    ) {
        let mut world = World::new();
        let root = world.directory(&[("d/x", "1"), ("f", "2")]);
        let words = [world.blob(b"dir"), world.blob(b"/"), root];
        let module = calls_all(&numbers);
        let limits = Limits { memory_bytes: 1 << 21, ..Limits::default() };
        let first = world.apply(&module, &words, limits);
        prop_assert_eq!(&first, &world.apply(&module, &words, limits));
        if let Err(fault) = &first.result {
            prop_assert!(fault.code == FailureCode::Memory, "{}", fault);
        }
    }
}
