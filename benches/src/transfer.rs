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
//! hands the value over once, in an order that differs from round to round. Each value's figures are told when it has been
//! measured; what goes wrong with a value or a side is told in the end, and the rest is measured all the same. After all values
//! come the randomised transfers of `--differences`.

mod differences;
pub(crate) mod interpreter;
mod outcome;
mod sides;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::figures::Report;
use crate::options::Options;
use crate::python_peer::{Peer, Redis};
use crate::warm::servers::PEERS;
use outcome::Outcome;
use sides::{Side, Times};

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

/// Rounds of what is small: that takes a third of a millisecond, of which a tenth is noise in each round, and of all these values the
/// worst counts.
const SMALL: usize = 61;

const KINDS: [Kind; 26] = [
    value("int", SMALL, "a number"),
    value("dict_small", SMALL, "nested dicts of 12 trades"),
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
    value("photo", 7, "a photograph of 12 million pixels, opened from a JPEG"),
    value("lightgbm", 7, "a model of LightGBM, 200 trees"),
    value("forest", 7, "a forest of scikit-learn, 100 trees"),
    column("ints_1024", SMALL, "a list of numbers, 1 KiB in memory"),
    column("ints_4096", SMALL, "4 KiB"),
    column("ints_16384", SMALL, "16 KiB"),
    column("ints_65536", SMALL, "64 KiB"),
    column("ints_262144", SMALL, "256 KiB"),
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

/// What the bench can be asked for.
pub(crate) const OPTIONS: &[&str] =
    &["kinds", "rounds", "differences", "seed", "processes", "sanitize", "python"];

/// A kind takes no more rounds after this.
const KIND_WITHIN: Duration = Duration::from_secs(300);
const ROUNDS_MIN: usize = 3;
/// Of memory, what all sides together take for a value, for each byte of its pickle: lists of numbers are eight times as
/// long as their pickles, and there are four or five at a time.
const MEMORY_OF_A_BYTE: u64 = 50;

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let python = interpreter::python(&report.options)?;
    if report.options.has("differences") {
        return differences::run(report, &python);
    }
    let kinds = chosen(&report.options)?;
    let is_whole = kinds.len() == KINDS.len() && !report.options.has("rounds");
    compare(report, kinds, &python)?;
    if is_whole { differences::run(report, &python) } else { Ok(()) }
}

/// The values by all sides, each of which has ended afterwards.
fn compare(report: &mut Report, kinds: Vec<&Kind>, python: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut reference = Peer::start(&mut program("reference", python, folder.path()))?.0;
    let mut sides = sides::of_a_node(folder.path(), python)?;
    for kind in sides::PEERS {
        sides.extend(report.peer(kind, || Side::peer(kind, starting(kind, python, folder.path()))));
    }
    let mut outcome = Outcome::default();
    for kind in kinds {
        eprintln!("  {}", kind.name);
        if let Err(error) = measured(report, kind, &mut reference, &mut sides, &mut outcome) {
            report.failed(kind.name, &error);
        }
    }
    outcome.summarise(report);
    report.note(
        "handed: from the moment at which the producer's function returns to the consumer's function with the value in hand; read: the \
         same and the first full read. ours: steps that may follow one another in an instance, where a value that nobody else has is given away as it is; apart: the same node, from \
         one instance to another one; messages: the same node without maps, which pickles (protocol 5) and lays what is long into shared \
         memory; redis: the same pickles over its unix socket; shm: the same with buffers out of band, through a memfd and a unix socket \
         between two processes; arrow: IPC through such a memfd, in hand as a table and made a frame or list to be read; ray: two tasks. \
         In brackets the quartiles. A value counts by the length of its pickle",
    );
    Ok(())
}

/// All, or those that `--kinds` or `SINEW_BENCH_TRANSFER` names, for who looks into one of them.
fn chosen(options: &Options) -> anyhow::Result<Vec<&'static Kind>> {
    let variable = std::env::var("SINEW_BENCH_TRANSFER").unwrap_or_default();
    let mut named = options.words("kinds");
    if named.is_empty() {
        named.extend(variable.split(',').filter(|name| !name.is_empty()));
    }
    if named.is_empty() {
        return Ok(KINDS.iter().collect());
    }
    let of_name = |name: &&str| KINDS.iter().find(|kind| kind.name == *name);
    named.iter().map(|name| of_name(name).with_context(|| format!("no value is called {name}"))).collect()
}

/// What starts a peer, whenever it has to be.
fn starting(kind: &'static str, python: &Path, folder: &Path) -> sides::Start {
    let (python, folder) = (python.to_owned(), folder.to_owned());
    Box::new(move || {
        let database = (kind == "redis").then(|| Redis::start(&folder)).transpose()?;
        Ok((Peer::start(&mut program(kind, &python, &folder))?.0, database))
    })
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

/// Measures one value, and tells of it.
fn measured(
    report: &mut Report,
    kind: &Kind,
    reference: &mut Peer,
    sides: &mut [Side],
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let expected = reference.ask(&json!({"name": kind.name, "allowance_ns": 0}).to_string())?;
    let bytes = expected["bytes"].as_u64().context("the reference tells no length")?;
    let free = available_memory_bytes()?;
    ensure!(
        free > bytes * MEMORY_OF_A_BYTE,
        "{} MiB are free, and it may take {}",
        free >> 20,
        (bytes * MEMORY_OF_A_BYTE) >> 20
    );
    let (names, rounds) = measure(report, kind, &expected, sides)?;
    // Without ours there is nothing to compare.
    if names.first() == Some(&sides::OURS) {
        outcome.add(report, kind, bytes, &names, &rounds);
    }
    Ok(())
}

/// What the kernel could give without taking it from anybody.
fn available_memory_bytes() -> anyhow::Result<u64> {
    let told = std::fs::read_to_string("/proc/meminfo")?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).context("the kernel tells no free memory")?;
    Ok(kib.parse::<u64>()? << 10)
}

/// A side that takes part, and what it took.
struct Part {
    side: usize,
    allowance_ns: u64,
    times: Vec<Times>,
}

/// Who took part to the end, and what each took, by rounds. A side with which something goes wrong is out, is told of in the
/// end, and begins again with the next value.
fn measure(
    report: &mut Report,
    kind: &Kind,
    expected: &Value,
    sides: &mut [Side],
) -> anyhow::Result<(Vec<&'static str>, Vec<Vec<Times>>)> {
    let allowance_ns =
        expected["made_ns"].as_u64().context("the reference tells no time")? / 4 * 5 + SPARE_NS;
    let taking = (0..sides.len()).filter(|side| sides[*side].takes(kind));
    let mut parts: Vec<_> = taking.map(|side| Part { side, allowance_ns, times: Vec::new() }).collect();
    let rounds = report.options.number("rounds", kind.rounds as u64)? as usize;
    let warming = if kind.rounds < MANY_ROUNDS { 1 } else { WARMING };
    let begun = Instant::now();
    for round in 0..warming + rounds {
        for at in order(round, sides.len()) {
            let Some(part) = parts.iter_mut().find(|part| part.side == at) else { continue };
            match compared(kind, expected, &mut sides[at], &mut part.allowance_ns) {
                Ok(times) if round >= warming => part.times.push(times),
                Ok(_) => {}
                Err(error) => {
                    report.failed(&format!("{} by {}", kind.name, sides[at].name), &error);
                    parts.retain(|part| part.side != at);
                    if let Err(error) = sides[at].restart() {
                        report.failed(sides[at].name, &error);
                    }
                }
            }
        }
        if begun.elapsed() > KIND_WITHIN && round + 1 >= warming + ROUNDS_MIN {
            break;
        }
    }
    let names = parts.iter().map(|part| sides[part.side].name).collect();
    let done = parts.first().map_or(0, |part| part.times.len());
    Ok((names, (0..done).map(|round| parts.iter().map(|part| part.times[round]).collect()).collect()))
}

/// Hands a value over, and compares what came with what the reference has made.
fn compared(kind: &Kind, expected: &Value, side: &mut Side, allowance_ns: &mut u64) -> anyhow::Result<Times> {
    let told = handed(kind, side, allowance_ns)?;
    for field in ["total", "fingerprint"] {
        let is_same = told[field].is_string() && told[field] == expected[field];
        ensure!(is_same, "{field} is {}, not {}", told[field], expected[field]);
    }
    Times::of(&told)
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
