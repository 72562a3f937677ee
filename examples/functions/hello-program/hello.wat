;; SPDX-License-Identifier: Apache-2.0
;; A program for WASI preview 1, as compilers of C, Go, Rust and Zig make them: the request's body is its
;; stdin, what it prints the answer. This one greets whoever the body names, and ends with 3 if that is nobody.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "greeting.txt")
  (data (i32.const 96) "the body is empty: it should be a name\n")
  ;; The next piece of a descriptor into 1024 and on; its length, 0 at the end.
  (func $next (param $from i32) (result i32)
    (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 65536))
    (if (call $read (local.get $from) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
    (i32.load (i32.const 8)))
  (func $print (param $to i32) (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
    (if (call $write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable)))
  (func (export "_start") (local $len i32)
    ;; Descriptor 3 is the first directory.
    (if (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 12) (i32.const 0) (i64.const 2)
          (i64.const 0) (i32.const 0) (i32.const 16)) (then unreachable))
    (call $print (i32.const 1) (i32.const 1024) (call $next (i32.load (i32.const 16))))
    (local.set $len (call $next (i32.const 0)))
    (if (i32.eqz (local.get $len)) (then
      (call $print (i32.const 2) (i32.const 96) (i32.const 39))
      (call $exit (i32.const 3))))
    (loop $more
      (call $print (i32.const 1) (i32.const 1024) (local.get $len))
      (br_if $more (local.tee $len (call $next (i32.const 0)))))))
