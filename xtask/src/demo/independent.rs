// SPDX-License-Identifier: Apache-2.0
//! The same counts by programs that have nothing to do with us.
//!
//! All run in the C locale, where a byte is a character, and take any bytes
//! for text. Words are what `tr` leaves between white space; `wc -w` of Debian
//! 12 would leave out words without a printable ASCII character.

use std::path::Path;

use anyhow::Context as _;

use crate::process;

/// What `count-string` counts, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) occurrences: u64,
    pub(crate) words: u64,
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl Counts {
    /// Reads a result of `count-string`; `None` unless it has 32 bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks();
        match (numbers, rest) {
            (&[occurrences, words, lines, bytes], []) => Some(Self {
                occurrences: u64::from_le_bytes(occurrences),
                words: u64::from_le_bytes(words),
                lines: u64::from_le_bytes(lines),
                bytes: u64::from_le_bytes(bytes),
            }),
            _ => None,
        }
    }
}

/// Counts in a file. The needle is a fixed string of letters.
pub(crate) fn count(text: &Path, needle: &str) -> anyhow::Result<Counts> {
    Ok(Counts {
        occurrences: number(text, &format!("grep -aoF -- '{needle}' \"$TEXT\" | wc -l"))?,
        words: number(text, "tr -s '[:space:]' '\\n' < \"$TEXT\" | grep -ac .")?,
        lines: number(text, "wc -l < \"$TEXT\"")?,
        bytes: number(text, "wc -c < \"$TEXT\"")?,
    })
}

fn number(text: &Path, pipeline: &str) -> anyhow::Result<u64> {
    let mut shell = process::command("sh");
    shell.args(["-c", pipeline]).env("LC_ALL", "C").env("TEXT", text);
    let printed = process::output(&mut shell)?;
    printed.trim().parse().with_context(|| format!("`{pipeline}` printed {printed:?}"))
}
