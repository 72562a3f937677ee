;; SPDX-License-Identifier: Apache-2.0
;; The sum of a blob's bytes, eight at a time, plus a number: all of the blob is read.
(module
  (import "sinew_v1" "size" (func $size (param i32) (result i64)))
  (import "sinew_v1" "read" (func $read (param i32 i64 i32 i32) (result i32)))
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "apply") (param i32) (result i32)
    (local $sum i64) (local $offset i64) (local $got i32) (local $at i32)
    (local.set $sum (call $read_u64 (i32.const 4) (i64.const 0)))
    (loop $pieces
      (local.set $got (call $read (i32.const 3) (local.get $offset) (i32.const 0) (i32.const 65536)))
      (local.set $at (i32.const 0))
      (loop $words
        (local.set $sum (i64.add (local.get $sum) (i64.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br_if $words (i32.lt_u (local.get $at) (local.get $got))))
      (local.set $offset (i64.add (local.get $offset) (i64.extend_i32_u (local.get $got))))
      (br_if $pieces (i64.lt_u (local.get $offset) (call $size (i32.const 3)))))
    (call $blob_u64 (local.get $sum) (i32.const 8))))
