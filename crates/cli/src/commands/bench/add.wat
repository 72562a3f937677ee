;; SPDX-License-Identifier: Apache-2.0
;; Adds the first two arguments, little-endian numbers of up to eight bytes,
;; and gives an eight-byte number. Further arguments are ignored.
;; bench/add.wasm is this file, assembled: UPDATE_EXPECT=1 cargo test -p cli
(module
  (import "sinew_v1" "entry" (func $entry (param i32 i64) (result i32)))
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (func (export "apply") (param $application i32) (result i32)
    (call $blob_u64
      (i64.add
        (call $read_u64 (call $entry (local.get $application) (i64.const 2)) (i64.const 0))
        (call $read_u64 (call $entry (local.get $application) (i64.const 3)) (i64.const 0)))
      (i32.const 8))))
