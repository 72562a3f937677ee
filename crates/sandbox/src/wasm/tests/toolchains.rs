// SPDX-License-Identifier: Apache-2.0
//! What today's compilers put into a module must validate: the overlong
//! encodings of `call_indirect`, several tables, multi-value, bulk memory.
//! The bytes are what linkers write, put together by hand, so that the test
//! needs no compiler.

use super::*;

#[test]
fn overlong_table_indices_are_accepted() {
    // `call_indirect` whose table index is a padded, relocatable LEB128.
    let mut codelet = module(
        "(type $t (func (result i32))) (table 1 funcref) (elem (i32.const 0) $f) (func $f (type $t) (i32.const 3))
         (func (export \"apply\") (param i32) (result i32) (call_indirect (type $t) (i32.const 0)))",
    );
    let at = codelet.windows(3).position(|bytes| bytes == [0x11, 0x00, 0x00]).unwrap();
    codelet.splice(at + 2..at + 3, [0x80, 0x80, 0x80, 0x80, 0x00]);
    // The function body and the code section are four bytes longer.
    let body = codelet[..at].iter().rposition(|&byte| byte == 0x07).unwrap();
    codelet[body] += 4;
    let section = codelet.windows(3).position(|bytes| bytes[0] == 0x0A && bytes[2] == 0x02).unwrap();
    codelet[section + 1] += 4;
    let mut world = World::new();
    assert_eq!(world.ok(&codelet, &[Handle::u64(77)]), Handle::u64(77));
}

#[test]
fn the_features_that_compilers_turn_on_are_on() {
    let bodies = [
        "(i32.extend8_s (i32.const 3))",
        "(i32.trunc_sat_f64_u (f64.const 3))",
        "(memory.copy (i32.const 0) (i32.const 8) (i32.const 8)) (memory.fill (i32.const 0) (i32.const 0) (i32.const 8)) (i32.const 3)",
        "(block (result i32 i32) (i32.const 1) (i32.const 2)) (i32.add)",
        "(i32x4.extract_lane 0 (i32x4.splat (i32.const 3)))",
        "(return_call $kindly (i32.const 3))",
        "(global.get $sum)",
    ];
    let mut world = World::new();
    for body in bodies {
        let codelet = with_memory_and(
            "(global $sum i32 (i32.add (i32.const 1) (i32.const 2))) (func $kindly (param i32) (result i32) (local.get 0))",
            body,
        );
        assert_eq!(world.ok(&codelet, &[Handle::u64(5)]), Handle::u64(5), "{body}");
    }
}
