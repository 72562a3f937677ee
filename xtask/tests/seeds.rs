// SPDX-License-Identifier: Apache-2.0
//! The fuzz targets without a fuzzer: every seed, and variants of it that are
//! the same in each run. Fuzzing needs a nightly compiler; this does not.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[path = "../../fuzz/src/evaluator_steps.rs"]
mod evaluator_steps;
#[path = "../../fuzz/src/line_reports.rs"]
mod line_reports;
#[path = "../../fuzz/src/object_decode.rs"]
mod object_decode;
#[path = "../../fuzz/src/program_words.rs"]
mod program_words;
#[path = "../../fuzz/src/receipts.rs"]
mod receipts;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 5] = [
    ("object_decode", object_decode::run),
    ("evaluator_steps", evaluator_steps::run),
    ("line_reports", line_reports::run),
    ("program_words", program_words::run),
    ("receipts", receipts::run),
];
/// Variants of one seed.
const VARIANTS: u64 = 400;
const LEN_MAX: usize = 4096;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fuzz().join("seeds").join(target);
    let files = folder.read_dir().unwrap().map(|file| file.unwrap().path());
    let read = |file: PathBuf| (file.display().to_string(), std::fs::read(&file).unwrap());
    let mut seeds: Vec<_> = files.map(read).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

/// Numbers that look random, of xorshift: always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Changes an input as fuzzers do: bits, bytes, parts left out, doubled, or
/// taken from another input.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
    for _ in 0..1 + numbers.below(4) {
        let at = numbers.below(bytes.len());
        let end = (at + 1 + numbers.below(32)).min(bytes.len());
        match numbers.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < bytes.len() => bytes[at] = numbers.next() as u8,
            2 if at < bytes.len() => bytes[at] = EDGES[numbers.below(EDGES.len())],
            3 => drop(bytes.drain(at..end)),
            4 if at < end => bytes.extend_from_within(at..end),
            5 => bytes.truncate(at),
            _ => {
                let from = numbers.below(other.len());
                let to = (from + 32).min(other.len());
                drop(bytes.splice(at..at, other[from..to].iter().copied()));
            }
        }
    }
    bytes.truncate(LEN_MAX);
}

/// Runs one input; a failure names it, so that it can be made a test.
fn try_out(run: fn(&[u8]), name: &str, bytes: &[u8]) {
    if let Err(cause) = std::panic::catch_unwind(|| run(bytes)) {
        eprintln!("{name} failed with the input {bytes:02x?}");
        std::panic::resume_unwind(cause);
    }
}

fn replay(target: &str) {
    let (_, run) = TARGETS.into_iter().find(|(name, _)| *name == target).unwrap();
    let seeds = seeds(target);
    let mut numbers = Numbers(0x5eed_5eed_5eed_5eed);
    for (name, seed) in &seeds {
        try_out(run, name, seed);
        for variant in 0..VARIANTS {
            let mut bytes = seed.clone();
            let (_, other) = &seeds[numbers.below(seeds.len())];
            mutate(&mut bytes, other, &mut numbers);
            try_out(run, &format!("variant {variant} of {name}"), &bytes);
        }
    }
}

#[test]
fn seeds_of_object_decode() {
    replay("object_decode");
}

#[test]
fn seeds_of_evaluator_steps() {
    replay("evaluator_steps");
}

#[test]
fn seeds_of_line_reports() {
    replay("line_reports");
}

#[test]
fn seeds_of_program_words() {
    replay("program_words");
    let refused = ["missing", "refused", "snapshot-other", "trees"];
    for (name, seed) in seeds("program_words") {
        let is_refused = refused.iter().any(|refused| name.ends_with(&format!("/{refused}")));
        assert_eq!(program_words::accepts(&seed), !is_refused, "{name}");
    }
}

#[test]
fn every_target_is_replayed_and_has_seeds() {
    let manifest: toml::Table = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap().parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap().iter();
    let bins: BTreeSet<_> = bins.map(|bin| bin["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(bins, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
    let folders = fuzz().join("seeds").read_dir().unwrap();
    assert_eq!(bins, folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect());
}
