// SPDX-License-Identifier: Apache-2.0
//! What one invocation costs, by class of module: `cargo run --release -p
//! sandbox --example invocation_cost`. Nanoseconds per call, the minimum and
//! the median of batches, beside the hash of 64 bytes on the same machine.
//! The application trees are made beforehand: only the sandbox is timed.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use objects::{Handle, Limits, TreeBuilder};
use sandbox::Call;
use sandbox::wasm::{Codelets, Invoker, Options};
use store::Store;

const BATCHES: usize = 400;
const BATCH: usize = 256;

const IMPORTS: &str = r#"
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))"#;
const ADD: &str = r#"(call $blob_u64 (i64.add (call $read_u64 (i32.const 3) (i64.const 0))
                                              (call $read_u64 (i32.const 4) (i64.const 0))) (i32.const 8))"#;

const FILL_4K: &str = "(memory.fill (i32.const 0) (i32.const 7) (i32.const 4096))";

/// A codelet that adds its arguments, after `work`.
fn codelet(declarations: &str, work: &str) -> Vec<u8> {
    let text = format!(
        "(module {IMPORTS} {declarations} (func (export \"apply\") (param i32) (result i32)
           (local $i i32) {work} {ADD}))"
    );
    wat::parse_str(text).unwrap()
}

/// Stores at every `stride`th byte of the first `bytes`.
fn stores(bytes: u32, stride: u32) -> String {
    format!(
        "(loop $l (i64.store (local.get $i) (i64.const -1))
           (local.set $i (i32.add (local.get $i) (i32.const {stride})))
           (br_if $l (i32.lt_u (local.get $i) (i32.const {bytes}))))"
    )
}

fn calls(store: &Store, module: &[u8], fuel: u64) -> Vec<Call> {
    let limits = Limits { fuel, ..Limits::default() };
    let procedure = store.keep_blob(module);
    let call = |n: u64| {
        let entries = [limits.handle().unwrap(), procedure, Handle::u64(n), Handle::u64(n * 3)];
        let tree: TreeBuilder = entries.into_iter().collect();
        let handle = store.keep_tree(tree.view());
        Call::new(store.local(handle).unwrap(), handle, limits, procedure)
    };
    (0..BATCH as u64).map(call).collect()
}

/// Minimum and median of nanoseconds per call.
fn time(mut work: impl FnMut(usize)) -> (f64, f64) {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let started = Instant::now();
            (0..BATCH).for_each(&mut work);
            started.elapsed().as_nanos() as f64 / BATCH as f64
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    (batches[0], batches[BATCHES / 2])
}

fn report(name: &str, (min, median): (f64, f64)) {
    println!("{name:<52} min {min:>9.1}  median {median:>9.1} ns");
}

fn main() {
    let options = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
    let store = Arc::new(Store::open(options).unwrap());
    let started = Instant::now();
    let codelets = Codelets::new(Options { workers: 2, ..Options::default() }, store.clone()).unwrap();
    println!("engines set up in {:?}", started.elapsed());

    let bytes = [7; 64];
    report("BLAKE3 of 64 bytes", time(|_| _ = black_box(blake3::hash(black_box(&bytes)))));

    let pages = "(memory (export \"memory\") 1)";
    let global = "(global $g (mut i32) (i32.const 0))";
    let cases = [
        ("add, no memory", codelet("", ""), 0),
        ("add, no memory, fuel", codelet("", ""), 1 << 40),
        ("add, one mutable global", codelet(global, "(global.set $g (i32.const 1))"), 0),
        ("4 KiB memory, untouched", codelet("(memory 4096 (pagesize 1))", ""), 0),
        ("4 KiB memory, 4 KiB written", codelet("(memory 4096 (pagesize 1))", &stores(4089, 8)), 0),
        ("4 KiB memory, 4 KiB filled", codelet("(memory 4096 (pagesize 1))", FILL_4K), 0),
        ("64 KiB memory, untouched", codelet(pages, ""), 0),
        ("64 KiB memory, 4 KiB written", codelet(pages, &stores(4096, 8)), 0),
        ("64 KiB memory, 16 pages dirtied", codelet(pages, &stores(65536, 4096)), 0),
        ("64 KiB memory, 64 KiB written", codelet(pages, &stores(65536, 8)), 0),
        ("128 KiB memory, untouched", codelet("(memory (export \"memory\") 2)", ""), 0),
        ("fresh: table", codelet("(table 1 funcref)", "(table.set (i32.const 0) (ref.null func))"), 0),
        ("fresh: 17 pages, untouched", codelet("(memory (export \"memory\") 17)", ""), 0),
        (
            "fresh: 17 pages, 16 x 4 KiB dirtied",
            codelet("(memory (export \"memory\") 17)", &stores(65536, 4096)),
            0,
        ),
        (
            "fresh: 17 pages, all written",
            codelet("(memory (export \"memory\") 17)", &stores(17 << 16, 64)),
            0,
        ),
    ];
    let mut invoker = Invoker::new(codelets.clone());
    for (name, module, fuel) in cases {
        let calls = calls(&store, &module, fuel);
        let expected = Handle::u64(5 * 4);
        assert_eq!(invoker.invoke(calls[5].clone()).result.as_ref(), Ok(&expected), "{name}");
        report(name, time(|i| drop(black_box(invoker.invoke(calls[i].clone())))));
    }
    let two = [codelet("", ""), codelet("", "(drop (i32.const 1))")].map(|module| calls(&store, &module, 0));
    report("add, two procedures in turn", time(|i| drop(black_box(invoker.invoke(two[i % 2][i].clone())))));
}
