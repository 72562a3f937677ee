;; SPDX-License-Identifier: Apache-2.0
;; inc(n): one more than a number of up to 64 bits, as eight bytes.
(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (func (export "apply") (param i32) (result i32)
    (call $blob_u64
      (i64.add (call $read_u64 (i32.const 3) (i64.const 0)) (i64.const 1))
      (i32.const 8))))
