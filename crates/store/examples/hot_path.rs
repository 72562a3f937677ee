// SPDX-License-Identifier: Apache-2.0
//! What the store's hot path costs, beside the BLAKE3 hash that it contains:
//! `cargo run --release -p store --example hot_path`.
//!
//! CPU time of batches of inputs that the store has not seen, medians; once
//! on an empty store and once on one that holds a million objects and
//! relations. `hash` is the reference measured in the same run.

use std::hint::black_box;
use std::ops::Range;

use objects::{Handle, Limits, TreeView};
use store::{Claim, Options, Record, Rule, Store};

const BATCHES: usize = 31;
const BATCH: u64 = 4096;
const PREFILL: u64 = 1 << 20;
const TREE_BYTES: usize = 4 * Handle::LEN;

/// Appends a tree of four entries that no other `number` has.
fn push_tree(number: u64, bytes: &mut Vec<u8>) {
    let limits = Limits::default().handle();
    let limits = limits.unwrap_or_else(|| unreachable!("the default limits fit"));
    for entry in [limits, Handle::u64(1), Handle::u64(number), Handle::u64(!number)] {
        bytes.extend_from_slice(entry.as_bytes());
    }
}

/// The trees of a range of numbers, one after the other.
fn tree_bytes(numbers: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    numbers.for_each(|number| push_tree(number, &mut bytes));
    bytes
}

fn trees(bytes: &[u8]) -> impl Iterator<Item = TreeView<'_>> {
    bytes.chunks_exact(TREE_BYTES).map(TreeView::from_checked)
}

/// Median nanoseconds per item over all batches.
fn measure(mut batch: impl FnMut(&[u8]), next: &mut u64) -> f64 {
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let bytes = tree_bytes(*next..*next + BATCH);
            *next += BATCH;
            let start = linux::thread_cpu_ns();
            batch(&bytes);
            (linux::thread_cpu_ns() - start) as f64 / BATCH as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[BATCHES / 2]
}

fn record(result: Handle) -> Record {
    Record { result, rule: Rule::Apply, nanos: 700, fuel: 0 }
}

fn report(store: &Store, name: &str, next: &mut u64) {
    let hash = measure(|bytes| trees(bytes).for_each(|tree| _ = black_box(tree.handle())), next);
    let keep = measure(|bytes| trees(bytes).for_each(|tree| _ = black_box(store.keep_tree(tree))), next);
    let again = tree_bytes(*next - BATCH..*next);
    let kept: Vec<_> = trees(&again).map(|tree| tree.handle()).collect();
    let local = measure(|_| kept.iter().for_each(|key| drop(black_box(store.local(*key)))), next);
    let keys = |bytes: &[u8]| -> Vec<Handle> {
        trees(bytes).filter_map(|tree| tree.handle().application()).collect()
    };
    let both = measure(
        |bytes| {
            for key in keys(bytes) {
                match store.relations().claim(key) {
                    Claim::Claimed => drop(store.relations().fulfil(key, record(key))),
                    claim => unreachable!("{claim:?}"),
                }
            }
        },
        next,
    );
    let bare = measure(|bytes| drop(black_box(keys(bytes))), next);
    let known: Vec<_> = kept.iter().filter_map(|tree| tree.application()).collect();
    known.iter().for_each(|key| store.relations().insert(*key, record(*key)));
    let hit = measure(|_| known.iter().for_each(|key| _ = black_box(store.relations().claim(*key))), next);
    println!(
        "{name}: hash {hash:.0} ns; keep_tree {keep:.0} (hash + {:.0}); local hit {local:.0}; \
         claim + fulfil {:.0}; claim of a known key {hit:.0}",
        keep - hash,
        both - bare,
    );
}

fn main() -> Result<(), store::Error> {
    let options = Options { home: None, memory_bytes: 4 << 30, relations_bytes: 1 << 30 };
    let rss_before = linux::peak_rss_bytes().unwrap_or_default();
    let store = Store::open(options.clone())?;
    let rss = linux::peak_rss_bytes().unwrap_or_default() - rss_before;
    println!("empty store: {} KiB resident", rss >> 10);
    let mut next = 0;
    report(&store, "empty store", &mut next);
    for tree in trees(&tree_bytes(1 << 40..(1 << 40) + PREFILL)) {
        let handle = store.keep_tree(tree);
        if let Some(key) = handle.application() {
            store.relations().insert(key, record(handle));
        }
    }
    report(&store, "1 M objects and relations", &mut next);
    drop(store);
    report(&Store::open(options)?, "empty store in used memory", &mut next);
    Ok(())
}
