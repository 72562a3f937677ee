;; SPDX-License-Identifier: Apache-2.0
;; Adds like add.wat and writes 4 KiB of its memory on the way.
(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (memory 4096 4096 (pagesize 1))
  (func (export "apply") (param i32) (result i32)
    (local $sum i64)
    (local.set $sum (i64.add (call $read_u64 (i32.const 3) (i64.const 0)) (call $read_u64 (i32.const 4) (i64.const 0))))
    (memory.fill (i32.const 0) (i32.wrap_i64 (local.get $sum)) (i32.const 4096))
    (call $blob_u64 (i64.load8_u (i32.const 4095)) (i32.const 1))))
