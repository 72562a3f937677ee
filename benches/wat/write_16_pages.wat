;; SPDX-License-Identifier: Apache-2.0
;; Adds like add.wat and dirties each of the 16 pages of 4 KiB of its memory.
(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (memory 1 1)
  (func (export "apply") (param i32) (result i32)
    (local $sum i64) (local $at i32)
    (local.set $sum (i64.add (call $read_u64 (i32.const 3) (i64.const 0)) (call $read_u64 (i32.const 4) (i64.const 0))))
    (loop $pages
      (i64.store (local.get $at) (local.get $sum))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $pages (i32.lt_u (local.get $at) (i32.const 65536))))
    (call $blob_u64 (i64.load8_u (i32.const 61440)) (i32.const 1))))
