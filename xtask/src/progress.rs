// SPDX-License-Identifier: Apache-2.0
//! Lines on stderr that say what happens and how long it took.

use std::time::{Duration, Instant};

/// Says what begins, does it, and says how long it took.
pub(crate) fn step<T>(what: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eprintln!("==> {what}");
    let begun = Instant::now();
    let result = work();
    let word = if result.is_ok() { "done" } else { "FAILED" };
    eprintln!("    {what}: {word} in {}", seconds(begun.elapsed()));
    result
}

/// A line below a step.
pub(crate) fn note(text: impl std::fmt::Display) {
    eprintln!("    {text}");
}

/// A duration with as many digits as one wants to read.
pub(crate) fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s >= 10.0 => format!("{s:.0} s"),
        s if s >= 0.1 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

/// Bytes in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
