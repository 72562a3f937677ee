// SPDX-License-Identifier: Apache-2.0
//! Guests that mean harm, or are broken: each gets a fault of the right kind,
//! and the next guest runs as if nothing had been.

use std::time::{Duration, Instant};

use objects::{FailureCode, Handle, Limits};

use super::*;
use crate::wasm::Ticket;

const LOOP: &str = "(loop $forever (br $forever)) (i32.const 0)";

/// Checks that `world` still works.
fn still_works(world: &mut World) {
    assert_eq!(world.number(&plain(&number("(i32.const 42)")), &[]), 42);
}

#[test]
fn forged_handles_name_nothing() {
    let mut world = World::new();
    let functions = [
        "(drop (call $kind (local.get $f)))",
        "(drop (call $size (local.get $f)))",
        "(drop (call $equal (i32.const 1) (local.get $f)))",
        "(drop (call $equal (local.get $f) (i32.const 1)))",
        "(drop (call $read (local.get $f) (i64.const 0) (i32.const 0) (i32.const 1)))",
        "(drop (call $read_u64 (local.get $f) (i64.const 0)))",
        "(drop (call $entry (local.get $f) (i64.const 0)))",
        "(i32.store (i32.const 4) (local.get $f)) (drop (call $tree (i32.const 0) (i32.const 2)))",
        "(drop (call $application (local.get $f)))",
        "(drop (call $identification (local.get $f)))",
        "(drop (call $selection (local.get $f) (i64.const 0)))",
        "(drop (call $selection_range (local.get $f) (i64.const 0) (i64.const 1)))",
        "(drop (call $strict (local.get $f)))",
        "(drop (call $shallow (local.get $f)))",
        "(drop (call $lower (local.get $f)))",
        "(call $fail (local.get $f))",
    ];
    for function in functions {
        let codelet = with_memory(&format!(
            "(local $f i32) (local.set $f (i32.wrap_i64 (call $read_u64 (i32.const 3) (i64.const 0))))
             {function} (i32.const 0)"
        ));
        // Entries: limits, procedure, one argument; so 4 is the first that is not there.
        for forged in [4, 5, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF] {
            let text = format!("there is no handle {forged}");
            world.fails(&codelet, &[Handle::u64(forged)], FailureCode::BadHandle, &text);
        }
    }
    still_works(&mut world);
}

#[test]
fn handles_of_one_call_are_unknown_to_the_next() {
    let mut world = World::new();
    let codelet = plain(
        "(if (i32.wrap_i64 (call $read_u64 (i32.const 3) (i64.const 0)))
            (then (return (call $lower (call $blob_u64 (i64.const 7) (i32.const 8))))))
         (call $lower (i32.const 5))",
    );
    assert_eq!(world.ok(&codelet, &[Handle::u64(1)]), Handle::u64(7));
    world.fails(&codelet, &[Handle::u64(0)], FailureCode::BadHandle, "there is no handle 5");
}

#[test]
fn pointers_and_lengths_stay_inside_the_memory() {
    let mut world = World::new();
    let argument = "(i32.wrap_i64 (call $read_u64 (i32.const 4) (i64.const 0)))";
    let length = "(i32.wrap_i64 (call $read_u64 (i32.const 5) (i64.const 0)))";
    let read = with_memory(&format!("(call $read (i32.const 3) (i64.const 0) {argument} {length})"));
    let blob = with_memory(&format!("(call $blob {argument} {length})"));
    let tree = with_memory(&format!("(call $tree {argument} {length})"));
    let data = world.store.keep_blob(&[1; 64]);
    let mut check = |codelet: &[u8], ptr: u64, len: u64| {
        let arguments = [data, Handle::u64(ptr), Handle::u64(len)];
        world.fails(codelet, &arguments, FailureCode::Trap, "of a memory of 65536");
    };
    let wrong =
        [(65536, 1), (65535, 2), (0, 65537), (1, 0xFFFF_FFFF), (0xFFFF_FFFF, 1), (0xFFFF_FFFF, 0xFFFF_FFFF)];
    for (ptr, len) in wrong {
        check(&read, ptr, len);
        check(&blob, ptr, len);
        check(&tree, ptr, len);
    }
    // 2^30 indices of four bytes wrap around in 32 bits.
    check(&tree, 0, 1 << 30);
    check(&tree, 0, 0x4000_0001);
    let edge = [data, Handle::u64(65536), Handle::u64(0)];
    assert_eq!(world.ok(&blob, &edge), Handle::literal(&[]).unwrap());
}

#[test]
fn a_loop_is_stopped_from_outside() {
    let mut world = World::new();
    for codelet in [plain(LOOP), with_memory(LOOP)] {
        let call = world.call(&codelet, &[], Limits::default());
        let interrupt = world.invoker.interrupt();
        let stopper = std::thread::spawn(move || {
            while interrupt.running().is_none() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(5));
            let raised = Instant::now();
            interrupt.raise(FailureCode::Deadline);
            raised
        });
        let fault = world.invoker.invoke(call).result.unwrap_err();
        let ended = Instant::now();
        let raised = stopper.join().unwrap();
        assert_eq!(fault.code, FailureCode::Deadline);
        // Milliseconds, with much room for a busy machine.
        assert!(ended.duration_since(raised) < Duration::from_millis(500));
    }
    still_works(&mut world);
}

#[test]
fn a_demand_at_any_moment_is_noticed() {
    let mut world = World::new();
    let interrupt = world.invoker.interrupt();
    for round in 0..200 {
        // A module that is compiled first, or an instance that is made first.
        let codelet = plain(&format!("(drop (i32.const {})) {LOOP}", round / 20));
        // Fuel ends the test if the demand is lost.
        let call = world.call(&codelet, &[], fuel(1 << 31));
        let ticket = world.invoker.next_ticket();
        let fault = std::thread::scope(|scope| {
            scope.spawn(|| {
                while interrupt.running() != Some(ticket) {
                    std::hint::spin_loop();
                }
                // Spread over what an invocation does before the guest runs.
                (0..round * 50).for_each(|_| std::hint::spin_loop());
                interrupt.raise(FailureCode::Cancelled);
            });
            world.invoker.invoke(call).result.unwrap_err()
        });
        assert_eq!(fault.code, FailureCode::Cancelled);
    }
    still_works(&mut world);
}

#[test]
fn an_interrupt_hits_only_the_application_it_is_meant_for() {
    let mut world = World::new();
    let interrupt = world.invoker.interrupt();
    interrupt.raise(FailureCode::Cancelled);
    still_works(&mut world);
    let Ticket(next) = world.invoker.next_ticket();
    interrupt.raise_for(Ticket(next - 1), FailureCode::Cancelled);
    still_works(&mut world);
    // Early, for the next one: it does not even begin.
    interrupt.raise_for(world.invoker.next_ticket(), FailureCode::Cancelled);
    interrupt.raise_for(Ticket(1), FailureCode::Deadline);
    world.fails(&plain(LOOP), &[], FailureCode::Cancelled, "cancelled");
    still_works(&mut world);
}

#[test]
fn fuel_runs_out() {
    let mut world = World::new();
    for codelet in [plain(LOOP), with_memory(LOOP)] {
        let outcome = world.run_limited(&codelet, &[], fuel(10_000));
        assert_eq!(outcome.result.unwrap_err().code, FailureCode::Fuel);
        assert_eq!(outcome.fuel, 10_000);
    }
    still_works(&mut world);
}

#[test]
fn deep_recursion_overflows_the_guests_stack_only() {
    let mut world = World::new();
    let recursion = module(
        "(func $f (param i64) (result i64) (i64.add (local.get 0) (call $f (i64.add (local.get 0) (i64.const 1)))))
         (func (export \"apply\") (param i32) (result i32) (i32.wrap_i64 (call $f (i64.const 0))))",
    );
    world.fails(&recursion, &[], FailureCode::Stack, "call stack exhausted");
    still_works(&mut world);
    // Host functions called from deep down have room left.
    let deep = module(&format!(
        "{IMPORTS} (func $f (drop (call $lower (i32.const 0))) (call $f))
         (func (export \"apply\") (param i32) (result i32) (call $f) (i32.const 0))"
    ));
    let limits = Limits { memory_bytes: 1 << 40, ..Limits::default() };
    world.fails_limited(&deep, &[], limits, FailureCode::Stack, "call stack exhausted");
}

#[test]
fn memory_growth_is_limited() {
    let mut world = World::new();
    // Grows page by page until refused; returns how many pages there are then.
    let grow = with_memory(&format!(
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) {}",
        number("(memory.size)")
    ));
    let result = world.run_limited(&grow, &[], memory_bytes((10 << 16) + 32)).result;
    assert_eq!(result, Ok(Handle::u64(10)));
    // Nothing is left for the handle of the result.
    world.fails_limited(&grow, &[], memory_bytes(10 << 16), FailureCode::Memory, "blob_u64: 32 more");
    let trap = with_memory("(drop (memory.grow (i32.const 5000))) (i32.load (i32.const 1000000000))");
    world.fails(&trap, &[], FailureCode::Memory, "after more memory was refused");
    world.fails_limited(&trap, &[], memory_bytes(1 << 30), FailureCode::Trap, "out of bounds");
    // What is there from the start counts.
    world.fails_limited(&grow, &[], memory_bytes(65535), FailureCode::Memory, "65536 bytes");
    let huge = module("(memory 65535) (func (export \"apply\") (param i32) (result i32) (i32.const 0))");
    world.fails(&huge, &[], FailureCode::Memory, "the module begins with");
    still_works(&mut world);
}

#[test]
fn table_growth_is_limited() {
    let mut world = World::new();
    let grow = module(&format!(
        "{IMPORTS} (table $t 1 funcref) (func (export \"apply\") (param i32) (result i32)
           (loop $more (br_if $more (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))) {})",
        number("(table.size $t)")
    ));
    let limited = world.run_limited(&grow, &[], memory_bytes(100_000)).result.unwrap();
    assert_eq!(limited, Handle::u64(12_001));
    // However much memory is granted, a table has a bound of its own.
    let most = world.run_limited(&grow, &[], memory_bytes(1 << 40)).result.unwrap();
    assert_eq!(most, Handle::u64(262_001));
    let unlimited = module(
        "(table $t 1 funcref) (func (export \"apply\") (param i32) (result i32)
           (drop (table.grow $t (ref.null func) (i32.const -1))) (unreachable))",
    );
    // The bound is the same everywhere, so this is not put down to the limit.
    world.fails(&unlimited, &[], FailureCode::Trap, "unreachable");
    still_works(&mut world);
}

#[test]
fn handles_and_objects_count_as_memory() {
    let mut world = World::new();
    let handles =
        plain("(loop $more (drop (call $blob_u64 (i64.const 1) (i32.const 1))) (br $more)) (i32.const 0)");
    world.fails(&handles, &[], FailureCode::Memory, "blob_u64: 32 more bytes exceed the limit of 67108864");
    let blobs = with_memory(
        "(loop $more (i32.store (i32.const 0) (local.tee $i (i32.add (local.get $i) (i32.const 1))))
           (drop (call $blob (i32.const 0) (i32.const 60000))) (br $more)) (i32.const 0)",
    );
    world.fails_limited(&blobs, &[], memory_bytes(1 << 20), FailureCode::Memory, "blob: 60032 more bytes");
    let trees = with_memory(
        "(loop $more (drop (call $tree (i32.const 0) (i32.const 1000))) (br $more)) (i32.const 0)",
    );
    world.fails_limited(&trees, &[], memory_bytes(1 << 20), FailureCode::Memory, "tree: 32032 more bytes");
    let selections =
        plain("(loop $more (drop (call $selection (i32.const 1) (i64.const 0))) (br $more)) (i32.const 0)");
    world.fails_limited(&selections, &[], memory_bytes(1 << 20), FailureCode::Memory, "selection: 96 more");
    still_works(&mut world);
}

#[test]
fn traps_carry_their_names() {
    let mut world = World::new();
    let cases = [
        ("(unreachable)", "unreachable"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "integer divide by zero"),
        ("(i32.load (i32.const -1))", "out of bounds memory access"),
        ("(i32.trunc_f32_s (f32.const nan))", "invalid conversion to integer"),
        ("(call_indirect $t (result i32) (i32.const 0))", "uninitialized element"),
        ("(call_indirect $t (result i32) (i32.const 9))", "out of bounds table access"),
    ];
    for (body, name) in cases {
        world.fails(&with_memory_and("(table $t 2 funcref)", body), &[], FailureCode::Trap, name);
    }
    still_works(&mut world);
}

#[test]
fn garbage_is_no_procedure() {
    let mut world = World::new();
    // A xorshift generator: bytes without meaning, the same on every run.
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let len = random() as usize % 200;
        let mut bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
        if round % 2 == 0 {
            bytes.splice(0..0, *b"\0asm\x01\0\0\0");
        }
        world.fails(&bytes, &[], FailureCode::BadProcedure, "it ");
    }
    let valid = with_memory("(i32.const 0)");
    // Without its custom section, the last one, it would still be valid. That
    // one begins with its id and a length of two bytes.
    let needed = valid.windows(5).position(|bytes| bytes == b"\x04name").unwrap() - 3;
    for len in 0..needed {
        world.fails(&valid[..len], &[], FailureCode::BadProcedure, "it ");
    }
    // Flipped bits may leave a valid module; they must not do harm.
    for at in 0..valid.len() {
        let mut flipped = valid.clone();
        flipped[at] ^= 1 << (random() % 8);
        let _ = world.run_limited(&flipped, &[], fuel(100_000));
    }
    still_works(&mut world);
}

#[test]
fn unfit_modules_are_refused_with_the_reason() {
    let mut world = World::new();
    let apply = "(func (export \"apply\") (param i32) (result i32) (i32.const 0))";
    let cases = [
        ("".to_owned(), "does not export a function \"apply\""),
        ("(memory (export \"apply\") 1)".to_owned(), "is no function"),
        ("(func (export \"apply\"))".to_owned(), "does not take and return one i32"),
        ("(func (export \"apply\") (param i32 i32) (result i32) (i32.const 0))".to_owned(), "one i32"),
        (
            format!("(import \"wasi_snapshot_preview1\" \"fd_write\" (func)) {apply}"),
            "no function of sinew_v1",
        ),
        (format!("(import \"sinew_v1\" \"clock\" (func)) {apply}"), "\"clock\""),
        (format!("(import \"sinew_v1\" \"kind\" (func)) {apply}"), "another type"),
        (format!("(import \"sinew_v1\" \"kind\" (memory 1)) {apply}"), "no function of sinew_v1"),
        (
            format!("(import \"sinew_v1\" \"blob\" (func (param i32 i32) (result i32))) {apply}"),
            "exports no \"memory\"",
        ),
        (format!("(global (export \"memory\") i32 (i32.const 0)) {apply}"), "is no memory"),
        (format!("(global (export \"sinew:x\") i32 (i32.const 0)) {apply}"), "reserved"),
        (format!("(memory 1) (memory 1) {apply}"), "multiple memories"),
        (format!("(memory 1 1 shared) {apply}"), "threads"),
        (format!("(memory i64 1) {apply}"), "memory64"),
        (format!("(table 300000 funcref) {apply}"), "more than 262144 elements"),
        (format!("{} {apply}", "(table 1 funcref)".repeat(5)), "more than 4 tables"),
        (
            format!(
                "(func (result v128) (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0))) {apply}"
            ),
            "relaxed SIMD",
        ),
    ];
    for (fields, reason) in cases {
        world.fails(&module(&fields), &[], FailureCode::BadProcedure, reason);
    }
    let tree = world.store.keep_tree(objects::TreeBuilder::new().view());
    let mut call = world.call(&plain("(i32.const 0)"), &[], Limits::default());
    call.procedure = tree;
    assert_eq!(world.invoker.invoke(call).result.unwrap_err().code, FailureCode::BadProcedure);
}

#[test]
fn a_missing_procedure_may_appear_later() {
    let mut world = World::new();
    let codelet = plain("(i32.const 3)");
    let mut call = world.call(&plain("(i32.const 0)"), &[Handle::u64(1)], Limits::default());
    call.procedure = Handle::blob(&codelet);
    let fault = world.invoker.invoke(call.clone()).result.unwrap_err();
    assert_eq!((fault.code, fault.detail), (FailureCode::MissingData, call.procedure.to_string()));
    world.store.keep_blob(&codelet);
    assert_eq!(world.invoker.invoke(call).result, Ok(Handle::u64(1)));
}

#[test]
fn start_functions_run_under_the_calls_limits() {
    let mut world = World::new();
    let start = |body: &str| {
        module(&format!(
            "{IMPORTS} {MEMORY} (global $g (mut i32) (i32.const 1)) (start $s) (func $s {body})
             (func (export \"apply\") (param i32) (result i32) (global.get $g))"
        ))
    };
    let uses_handles = start(
        "(drop (call $read (i32.const 3) (i64.const 0) (i32.const 0) (i32.const 8))) (global.set $g (call $blob (i32.const 0) (i32.const 2)))",
    );
    for _ in 0..2 {
        let result = world.ok(&uses_handles, &[Handle::u64(0x4142)]);
        assert_eq!(result.literal_bytes(), Some(&b"BA"[..]));
    }
    let endless = start("(loop $l (br $l))");
    let outcome = world.run_limited(&endless, &[], fuel(5000));
    assert_eq!((outcome.result.unwrap_err().code, outcome.fuel), (FailureCode::Fuel, 5000));
    world.fails(&start("(unreachable)"), &[], FailureCode::Trap, "unreachable");
    world.fails(&start("(call $fail (i32.const 3))"), &[Handle::u64(0)], FailureCode::Guest, "\0");
    let call = world.call(&endless, &[], Limits::default());
    world.invoker.interrupt().raise_for(world.invoker.next_ticket(), FailureCode::Deadline);
    assert_eq!(world.invoker.invoke(call).result.unwrap_err().code, FailureCode::Deadline);
    still_works(&mut world);
}
