;; SPDX-License-Identifier: Apache-2.0
;; if(predicate, a, b): a if the predicate holds a number other than 0, else b.
;; Neither is looked at: of two thunks, one is never evaluated.
(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (func (export "apply") (param i32) (result i32)
    (select
      (i32.const 4)
      (i32.const 5)
      (i64.ne (call $read_u64 (i32.const 3) (i64.const 0)) (i64.const 0)))))
