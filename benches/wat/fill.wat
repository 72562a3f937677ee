;; SPDX-License-Identifier: Apache-2.0
;; Makes a blob: of so many bytes as its second argument says (a multiple of 8), told by the first one and by
;; the first bytes of the third. It goes over them so often as the fourth says. With a fifth, it gives a tree
;; of two entries that both name it.
(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "size" (func $size (param i32) (result i64)))
  (import "sinew_v1" "blob" (func $blob (param i32 i32) (result i32)))
  (import "sinew_v1" "tree" (func $tree (param i32 i32) (result i32)))
  (memory (export "memory") 3)
  (func (export "apply") (param i32) (result i32)
    (local $x i64) (local $at i32) (local $round i32) (local $end i32) (local $rounds i32) (local $made i32)
    (local.set $x (i64.add
      (i64.mul (call $read_u64 (i32.const 3) (i64.const 0)) (i64.const 3))
      (call $read_u64 (i32.const 5) (i64.const 0))))
    (local.set $end (i32.wrap_i64 (call $read_u64 (i32.const 4) (i64.const 0))))
    (local.set $rounds (i32.wrap_i64 (call $read_u64 (i32.const 6) (i64.const 0))))
    (loop $again
      (local.set $at (i32.const 0))
      (loop $next
        (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
        (i64.store (local.get $at) (local.get $x))
        (br_if $next (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (local.get $end))))
      (br_if $again (i32.lt_u (local.tee $round (i32.add (local.get $round) (i32.const 1))) (local.get $rounds))))
    (local.set $made (call $blob (i32.const 0) (local.get $end)))
    (if (i64.lt_u (call $size (i32.const 0)) (i64.const 7)) (then (return (local.get $made))))
    (i32.store (i32.const 0) (local.get $made))
    (i32.store (i32.const 4) (local.get $made))
    (call $tree (i32.const 0) (i32.const 2))))
