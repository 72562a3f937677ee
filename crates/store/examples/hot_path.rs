// SPDX-License-Identifier: Apache-2.0
//! What the store's hot path costs, beside the BLAKE3 hash that it contains:
//! `cargo run --release -p store --example hot_path`.
//!
//! CPU time of batches of inputs that the store has not seen, medians; once
//! on an empty store and once on one that holds a million objects and
//! relations. `hash` is the reference measured in the same run.

use std::hint::black_box;

use objects::{Handle, Limits, TreeBuilder};
use store::{Claim, Options, Record, Rule, Store};

const BATCHES: usize = 31;
const BATCH: u64 = 4096;
const PREFILL: u64 = 1 << 20;

/// A tree of four entries that no other `number` has.
fn tree(number: u64) -> TreeBuilder {
    let limits = Limits::default().handle();
    let limits = limits.unwrap_or_else(|| unreachable!("the default limits fit"));
    [limits, Handle::u64(1), Handle::u64(number), Handle::u64(!number)].into_iter().collect()
}

/// Median nanoseconds per item over all batches.
fn measure(mut batch: impl FnMut(&[TreeBuilder]), next: &mut u64) -> f64 {
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let trees: Vec<_> = (*next..*next + BATCH).map(tree).collect();
            *next += BATCH;
            let start = linux::thread_cpu_ns();
            batch(&trees);
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
    let hash = measure(|trees| trees.iter().for_each(|tree| _ = black_box(tree.view().handle())), next);
    let keep = measure(
        |trees| {
            for tree in trees {
                black_box(store.keep_tree(tree.view()));
            }
        },
        next,
    );
    let again = *next - BATCH;
    let kept: Vec<_> = (again..again + BATCH).map(|number| tree(number).view().handle()).collect();
    let local = measure(|_| kept.iter().for_each(|key| drop(black_box(store.local(*key)))), next);
    let keys = |trees: &[TreeBuilder]| -> Vec<Handle> {
        trees.iter().filter_map(|tree| tree.view().handle().application()).collect()
    };
    let both = measure(
        |trees| {
            for key in keys(trees) {
                match store.relations().claim(key) {
                    Claim::Claimed => drop(store.relations().fulfil(key, record(key))),
                    claim => unreachable!("{claim:?}"),
                }
            }
        },
        next,
    );
    let bare = measure(|trees| drop(black_box(keys(trees))), next);
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
    for number in 0..PREFILL {
        let handle = store.keep_tree(tree((1 << 40) | number).view());
        if let Some(key) = handle.application() {
            store.relations().insert(key, record(handle));
        }
    }
    report(&store, "1 M objects and relations", &mut next);
    drop(store);
    let store = Store::open(options.clone())?;
    report(&store, "empty store again", &mut next);
    println!("{:?}", store.stats());
    Ok(())
}
