// SPDX-License-Identifier: Apache-2.0
//! What the tests of codelets share: a node in miniature, and WAT with the
//! imports written out.

// A test's threads end with it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod abi;
mod cache;
mod compiling;
mod determinism;
mod hostile;
mod isolation;
mod lifecycle;
mod toolchains;

use std::sync::Arc;

use objects::{FailureCode, Handle, Limits, TreeBuilder};
use store::Store;

use super::{Codelets, Invoker, Options};
use crate::{Call, Outcome};

/// Every import that needs no memory.
const IMPORTS: &str = r#"
  (import "sinew_v1" "kind" (func $kind (param i32) (result i32)))
  (import "sinew_v1" "size" (func $size (param i32) (result i64)))
  (import "sinew_v1" "equal" (func $equal (param i32 i32) (result i32)))
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "entry" (func $entry (param i32 i64) (result i32)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (import "sinew_v1" "application" (func $application (param i32) (result i32)))
  (import "sinew_v1" "identification" (func $identification (param i32) (result i32)))
  (import "sinew_v1" "selection" (func $selection (param i32 i64) (result i32)))
  (import "sinew_v1" "selection_range" (func $selection_range (param i32 i64 i64) (result i32)))
  (import "sinew_v1" "strict" (func $strict (param i32) (result i32)))
  (import "sinew_v1" "shallow" (func $shallow (param i32) (result i32)))
  (import "sinew_v1" "lower" (func $lower (param i32) (result i32)))
  (import "sinew_v1" "fail" (func $fail (param i32)))"#;

/// The others, and the memory that they need.
const MEMORY: &str = r#"
  (import "sinew_v1" "read" (func $read (param i32 i64 i32 i32) (result i32)))
  (import "sinew_v1" "blob" (func $blob (param i32 i32) (result i32)))
  (import "sinew_v1" "tree" (func $tree (param i32 i32) (result i32)))
  (memory (export "memory") 1)"#;

/// A codelet without memory whose `apply` is `body`.
fn plain(body: &str) -> Vec<u8> {
    module(&format!("{IMPORTS} (func (export \"apply\") (param $h i32) (result i32) {body})"))
}

/// A codelet with one page of memory whose `apply` is `body`.
fn with_memory(body: &str) -> Vec<u8> {
    with_memory_and("", body)
}

/// The same, with further declarations.
fn with_memory_and(declarations: &str, body: &str) -> Vec<u8> {
    module(&format!(
        "{IMPORTS} {MEMORY} {declarations}
         (func (export \"apply\") (param $h i32) (result i32) (local $i i32) {body})"
    ))
}

fn module(fields: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {fields})")).unwrap()
}

/// A node in miniature.
struct World {
    store: Arc<Store>,
    codelets: Arc<Codelets>,
    invoker: Invoker,
}

impl World {
    fn new() -> Self {
        Self::with_options(Options { workers: 2, ..Options::default() })
    }

    fn with_options(options: Options) -> Self {
        let store = Arc::new(new_store());
        Self::with_store(store, options)
    }

    fn with_store(store: Arc<Store>, options: Options) -> Self {
        let codelets = Codelets::new(options, store.clone()).unwrap();
        let invoker = Invoker::new(codelets.clone());
        Self { store, codelets, invoker }
    }

    /// An application of `module`, all of which is in the store.
    fn call(&self, module: &[u8], arguments: &[Handle], limits: Limits) -> Call {
        let procedure = self.store.keep_blob(module);
        let mut entries = vec![limits.handle().unwrap(), procedure];
        entries.extend(arguments);
        let tree: TreeBuilder = entries.into_iter().collect();
        let handle = self.store.keep_tree(tree.view());
        Call::new(self.store.local(handle).unwrap(), handle, limits, procedure)
    }

    fn run(&mut self, module: &[u8], arguments: &[Handle]) -> Outcome {
        self.run_limited(module, arguments, Limits::default())
    }

    fn run_limited(&mut self, module: &[u8], arguments: &[Handle], limits: Limits) -> Outcome {
        let call = self.call(module, arguments, limits);
        self.invoker.invoke(call)
    }

    /// The handle that the codelet returned.
    fn ok(&mut self, module: &[u8], arguments: &[Handle]) -> Handle {
        self.run(module, arguments).result.unwrap()
    }

    /// The number in the blob that the codelet returned.
    fn number(&mut self, module: &[u8], arguments: &[Handle]) -> u64 {
        let handle = self.ok(module, arguments);
        u64::from_le_bytes(handle.literal_bytes().unwrap().try_into().unwrap())
    }

    /// Checks that the codelet fails with `code` and a text that has `text` in it.
    fn fails(&mut self, module: &[u8], arguments: &[Handle], code: FailureCode, text: &str) {
        self.fails_limited(module, arguments, Limits::default(), code, text);
    }

    fn fails_limited(
        &mut self,
        module: &[u8],
        arguments: &[Handle],
        limits: Limits,
        code: FailureCode,
        text: &str,
    ) {
        let fault = self.run_limited(module, arguments, limits).result.unwrap_err();
        assert_eq!(fault.code, code, "{fault}");
        assert!(fault.detail.contains(text), "{text:?} is not in {:?}", fault.detail);
    }
}

fn new_store() -> Store {
    let options = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
    Store::open(options).unwrap()
}

fn fuel(fuel: u64) -> Limits {
    Limits { fuel, ..Limits::default() }
}

fn memory_bytes(memory_bytes: u64) -> Limits {
    Limits { memory_bytes, ..Limits::default() }
}

/// An `i32` as the number that a guest returns.
const fn word(value: i32) -> u64 {
    value as u32 as u64
}

/// A body that returns the value of an `i32` expression as a number.
fn number(expression: &str) -> String {
    format!("(call $blob_u64 (i64.extend_i32_u {expression}) (i32.const 8))")
}
