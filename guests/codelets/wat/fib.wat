;; SPDX-License-Identifier: Apache-2.0
;; fib(add, n): Fibonacci's number n, by way of the procedure add; n below 256.
;; Its memory holds four handle indices and no byte more: a page of one byte
;; each (custom page sizes) is quick to clear.
(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (import "sinew_v1" "tree" (func $tree (param i32 i32) (result i32)))
  (import "sinew_v1" "application" (func $application (param i32) (result i32)))
  (import "sinew_v1" "strict" (func $strict (param i32) (result i32)))
  (memory (export "memory") 16 16 (pagesize 1))

  ;; application [limits, procedure, a, b]
  (func $call (param $procedure i32) (param $a i32) (param $b i32) (result i32)
    (i32.store (i32.const 0) (i32.const 1))
    (i32.store (i32.const 4) (local.get $procedure))
    (i32.store (i32.const 8) (local.get $a))
    (i32.store (i32.const 12) (local.get $b))
    (call $application (call $tree (i32.const 0) (i32.const 4))))

  ;; strict application [limits, fib, add, n]
  (func $fib_of (param $n i64) (result i32)
    (call $strict
      (call $call (i32.const 2) (i32.const 3)
        (call $blob_u64 (local.get $n) (i32.const 1)))))

  (func (export "apply") (param i32) (result i32)
    (local $n i64)
    (local.set $n (call $read_u64 (i32.const 4) (i64.const 0)))
    (if (i64.lt_u (local.get $n) (i64.const 2))
      (then (return (call $blob_u64 (local.get $n) (i32.const 1)))))
    (call $call (i32.const 3)
      (call $fib_of (i64.sub (local.get $n) (i64.const 1)))
      (call $fib_of (i64.sub (local.get $n) (i64.const 2))))))
