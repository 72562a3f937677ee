// SPDX-License-Identifier: Apache-2.0
//! The same call gives the same outcome: result, fault text and fuel, on a
//! used instance as on a new one.

use objects::{FailureCode, Handle, Limits};

use super::*;

/// Codelets of every class that compute, trap and run out of fuel.
fn codelets() -> Vec<Vec<u8>> {
    let work = "(loop $l (local.set $i (i32.add (local.get $i) (i32.const 1)))
                  (i32.store (i32.shl (local.get $i) (i32.const 2)) (i32.mul (local.get $i) (i32.const 0x9E3779B1)))
                  (br_if $l (i32.lt_u (local.get $i) (i32.const 500))))";
    vec![
        plain("(call $selection (call $blob_u64 (i64.const 9) (i32.const 2)) (i64.const 1))"),
        with_memory(&format!("{work} (call $blob (i32.const 0) (i32.const 2000))")),
        with_memory_and("(global $g (mut i32) (i32.const 0))", &format!("{work} (global.set $g (i32.const 1)) (unreachable)")),
        with_memory("(drop (memory.grow (i32.const 3))) (call $blob (i32.const 70000) (i32.const 2000))"),
        module(&format!(
            "{IMPORTS} (table 1 funcref) (memory 20) (func (export \"apply\") (param i32) (result i32) (local $i i32) {work}
               (table.set (i32.const 0) (ref.null func)) (call $lower (i32.const 9)))"
        )),
        plain("(loop $l (br $l)) (i32.const 0)"),
    ]
}

#[test]
fn outcomes_repeat_on_used_and_on_new_instances() {
    let limits = fuel(100_000);
    let mut used = World::new();
    for codelet in codelets() {
        let first = used.run_limited(&codelet, &[Handle::u64(1)], limits);
        assert!(first.fuel > 0);
        for _ in 0..3 {
            assert_eq!(used.run_limited(&codelet, &[Handle::u64(1)], limits), first);
        }
        let mut new = World::new();
        assert_eq!(new.run_limited(&codelet, &[Handle::u64(1)], limits), first);
        assert_eq!(new.run_limited(&codelet, &[Handle::u64(2)], limits).fuel, first.fuel);
    }
}

#[test]
fn the_variant_without_counting_agrees() {
    let mut world = World::new();
    // All but the last, which would not end.
    for codelet in codelets().iter().rev().skip(1) {
        let counted = world.run_limited(codelet, &[Handle::u64(1)], fuel(1 << 40));
        let uncounted = world.run_limited(codelet, &[Handle::u64(1)], Limits::default());
        assert_eq!((counted.result, 0), (uncounted.result, uncounted.fuel));
    }
}

#[test]
fn enough_fuel_is_enough_and_less_is_not() {
    let mut world = World::new();
    let codelet = plain(
        "(local $i i32) (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $l (i32.lt_u (local.get $i) (i32.const 100)))) (i32.const 0)",
    );
    let needed = world.run_limited(&codelet, &[], fuel(1 << 40)).fuel;
    for enough in [needed, needed + 1, u64::MAX] {
        let outcome = world.run_limited(&codelet, &[], fuel(enough));
        assert_eq!((outcome.result.is_ok(), outcome.fuel), (true, needed));
    }
    // Fuel is looked at once in each round, so some is needed for one more.
    let outcome = world.run_limited(&codelet, &[], fuel(needed - needed / 100 - 1));
    assert_eq!(outcome.result.unwrap_err().code, FailureCode::Fuel);
}

#[test]
fn nans_have_one_bit_pattern() {
    let mut world = World::new();
    let sources = [
        "(i64.reinterpret_f64 (f64.div (f64.const 0) (f64.const 0)))",
        "(i64.reinterpret_f64 (f64.add (f64.const -nan:0xfff) (f64.const 1)))",
        "(i64.reinterpret_f64 (f64.sqrt (f64.const -1)))",
        "(i64.reinterpret_f64 (f64.promote_f32 (f32.const -nan:0x1)))",
        "(i64x2.extract_lane 0 (f64x2.mul (v128.const f64x2 -nan:0x5 1) (v128.const f64x2 1 1)))",
    ];
    for source in sources {
        let codelet = plain(&format!("(call $blob_u64 {source} (i32.const 8))"));
        assert_eq!(world.number(&codelet, &[]), 0x7FF8_0000_0000_0000, "{source}");
    }
    let single = plain(&number("(i32.reinterpret_f32 (f32.min (f32.const -nan:0x7) (f32.const 1)))"));
    assert_eq!(world.number(&single, &[]), 0x7FC0_0000);
}

#[test]
fn fault_texts_hold_nothing_of_the_machine() {
    let mut world = World::new();
    for codelet in codelets() {
        if let Err(fault) = world.run_limited(&codelet, &[Handle::u64(1)], fuel(10_000)).result {
            assert!(!fault.detail.contains("0x") && !fault.detail.contains('/'), "{fault}");
        }
    }
}
