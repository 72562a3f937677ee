// SPDX-License-Identifier: Apache-2.0
//! `transfer`: values handed from one step to another, by a node and by peers, with the first full read and without.
//!
//! The producer is told, when it is called, at which moment it returns, and the consumer knows that moment too
//! (`benches/peers/transfer/values.py`). Nothing but the value goes from one to the other, nobody writes a time down in
//! between, and it is the same for all: both processes read the machine's monotonic clock. A producer that is not done by
//! then says so, and is called again with more time. What came is read, and then compared by a digest of all that
//! it is with what a process of its own has made.
//!
//! Processes have been started, their modules imported and each value handed over once before. In a round each side
//! hands the value over once, in an order that differs from round to round.

mod outcome;
mod sides;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::coldstart::installed;
use crate::figures::Report;
use crate::python_peer::Peer;
use crate::warm::servers::PEERS;
use outcome::Outcome;
use sides::{Side, Times};

const PACKAGES: [&str; 9] = [
    "numpy==2.2.6",
    "pandas==2.3.3",
    "pyarrow==26.0.1",
    "pillow==13.0.0",
    "lightgbm==4.7.0",
    "scikit-learn==1.9.1",
    "redis==7.1.0",
    "hiredis==3.5.0",
    "ray==2.60.0",
];
/// LightGBM needs a library of the system: libgomp.
const CHECK: &str =
    "import numpy, pandas, pyarrow, PIL.Image, lightgbm, sklearn.ensemble, redis, hiredis, ray";

/// One value that is handed over.
struct Kind {
    name: &'static str,
    rounds: usize,
    meaning: &'static str,
    /// Whether Arrow has it: frames and lists.
    is_for_arrow: bool,
}

const fn value(name: &'static str, rounds: usize, meaning: &'static str) -> Kind {
    Kind { name, rounds, meaning, is_for_arrow: false }
}

const fn column(name: &'static str, rounds: usize, meaning: &'static str) -> Kind {
    Kind { name, rounds, meaning, is_for_arrow: true }
}

const KINDS: [Kind; 25] = [
    value("int", 25, "a number"),
    value("dict_small", 25, "nested dicts of 12 trades"),
    value("str_13mb", 11, "a text of 13 MB"),
    column("list_str", 7, "its words"),
    column("list_int_5m", 11, "a list of 5 million numbers"),
    value("dict_nested", 15, "nested dicts of 30,000 trades"),
    value("dict_str_int", 15, "a dict of 100,000 strings to numbers"),
    value("dataclasses", 11, "a list of 100,000 instances of a dataclass"),
    value("ndarray", 15, "an array (7000, 785) of float64"),
    column("frame_3mb", 15, "a frame of 3.5 MB, two of its six columns strings"),
    column("frame_500mb", 5, "the same of 500 MB"),
    value("image", 15, "an image of PIL, 1024 by 1024, RGB"),
    value("lightgbm", 7, "a model of LightGBM, 200 trees"),
    value("forest", 7, "a forest of scikit-learn, 100 trees"),
    column("ints_1024", 25, "a list of numbers, 1 KiB in memory"),
    column("ints_4096", 25, "4 KiB"),
    column("ints_16384", 25, "16 KiB"),
    column("ints_65536", 25, "64 KiB"),
    column("ints_262144", 25, "256 KiB"),
    column("ints_1048576", 15, "1 MiB"),
    column("ints_4194304", 15, "4 MiB"),
    column("ints_16777216", 15, "16 MiB"),
    column("ints_67108864", 11, "64 MiB"),
    column("ints_268435456", 5, "256 MiB"),
    column("ints_1073741824", 3, "1 GiB"),
];

/// The first hand-overs take longer than those that follow, and are not counted: so many, and one of what takes seconds.
const WARMING: usize = 2;
const MANY_ROUNDS: usize = 10;
/// How often a producer gets more time.
const ATTEMPTS: u32 = 6;
/// What a producer gets besides a little more than the time that it took the reference.
const SPARE_NS: u64 = 60_000_000;

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let python = installed("bench-transfer", &PACKAGES, CHECK)?;
    let folder = tempfile::tempdir()?;
    let mut reference = Peer::start(&mut program("reference", &python, folder.path()))?.0;
    let mut sides = sides::of_a_node(folder.path(), &python)?;
    for kind in sides::PEERS {
        let start = || Side::peer(kind, &mut program(kind, &python, folder.path()), folder.path());
        sides.extend(report.peer(kind, start));
    }
    let mut outcome = Outcome::default();
    for kind in chosen() {
        eprintln!("  {}", kind.name);
        let expected = reference.ask(&json!({"name": kind.name, "allowance_ns": 0}).to_string())?;
        let rounds = measure(kind, &expected, &mut sides)?;
        let names: Vec<_> = sides.iter().filter(|side| side.takes(kind)).map(|side| side.name).collect();
        let bytes = expected["bytes"].as_u64().context("the reference tells no length")?;
        outcome.add(report, kind, bytes, &names, &rounds);
    }
    outcome.summarise(report);
    report.note(
        "handed: from the moment at which the producer's function returns to the consumer's function with the value in hand; read: the \
         same and the first full read. messages: the same node without maps, which pickles (protocol 5) and lays what is long into shared \
         memory; redis: the same pickles over its unix socket; shm: the same with buffers out of band, through a memfd and a unix socket \
         between two processes; arrow: IPC through such a memfd, in hand as a table and made a frame or list to be read; ray: two tasks. \
         In brackets the quartiles. A value counts by the length of its pickle",
    );
    Ok(())
}

/// All, or those that `SINEW_BENCH_TRANSFER` names, for who looks into one of them.
fn chosen() -> Vec<&'static Kind> {
    let named = std::env::var("SINEW_BENCH_TRANSFER").unwrap_or_default();
    let is_chosen = |kind: &&Kind| named.is_empty() || named.split(',').any(|name| name == kind.name);
    KINDS.iter().filter(is_chosen).collect()
}

#[expect(clippy::disallowed_methods, reason = "a peer is a program of its own")]
fn program(kind: &str, python: &Path, folder: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(format!("{PEERS}/transfer/peer.py")).arg(kind).arg(folder);
    // As in a node's containers; Ray's workers import `values` from there.
    command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1");
    command.env("PYTHONPATH", format!("{PEERS}/transfer"));
    command
}

/// What each side took, by rounds; sides that do not take such values are left out.
fn measure(kind: &Kind, expected: &Value, sides: &mut [Side]) -> anyhow::Result<Vec<Vec<Times>>> {
    let made_ns = expected["made_ns"].as_u64().context("the reference tells no time")?;
    let mut sides: Vec<_> = sides.iter_mut().filter(|side| side.takes(kind)).collect();
    let mut allowances = vec![made_ns / 4 * 5 + SPARE_NS; sides.len()];
    let mut rounds = Vec::new();
    let warming = if kind.rounds < MANY_ROUNDS { 1 } else { WARMING };
    for round in 0..warming + kind.rounds {
        let mut times = vec![Times::default(); sides.len()];
        for at in order(round, sides.len()) {
            let told = handed(kind, sides[at], &mut allowances[at])?;
            for field in ["total", "fingerprint"] {
                let is_same = told[field].is_string() && told[field] == expected[field];
                let name = sides[at].name;
                ensure!(
                    is_same,
                    "{} by {name}: {field} is {}, not {}",
                    kind.name,
                    told[field],
                    expected[field]
                );
            }
            times[at] = Times::of(&told)?;
        }
        if round >= warming {
            rounds.push(times);
        }
    }
    Ok(rounds)
}

/// Sides by their turns in a round: each may follow each, for what one leaves behind (memory that is freed, say) is the
/// next one's burden.
fn order(round: usize, sides: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..sides).collect();
    order.sort_by_key(|side| *blake3::hash(&[round as u8, *side as u8]).as_bytes());
    order
}

/// Hands a value over, with more time for its producer until that is enough.
fn handed(kind: &Kind, side: &mut Side, allowance_ns: &mut u64) -> anyhow::Result<Value> {
    for _ in 0..ATTEMPTS {
        let told = side.hand(&json!({"name": kind.name, "allowance_ns": *allowance_ns}))?;
        if told.get("late").is_none() {
            return Ok(told);
        }
        *allowance_ns += *allowance_ns / 2;
    }
    anyhow::bail!("{} by {}: the value is not made in {} ms", kind.name, side.name, *allowance_ns / 1_500_000)
}

#[cfg(test)]
mod tests;
