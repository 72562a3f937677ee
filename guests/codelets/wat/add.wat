;; SPDX-License-Identifier: Apache-2.0
;; add(a, b): the sum of two 8-bit numbers, modulo 256, as one byte.
;; Without memory there is nothing to reset between applications.
(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  ;; Handles: 0 the application, 1 limits, 2 procedure, 3 and 4 the arguments.
  (func (export "apply") (param i32) (result i32)
    (call $blob_u64
      (i64.add
        (call $read_u64 (i32.const 3) (i64.const 0))
        (call $read_u64 (i32.const 4) (i64.const 0)))
      (i32.const 1))))
