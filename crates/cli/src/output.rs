// SPDX-License-Identifier: Apache-2.0
//! What goes to stdout and stderr, for people or for programs.
//!
//! Data goes to stdout and only there; everything else goes to stderr. A
//! writer whose reader has gone ends the command quietly (see `exit.rs`).

use std::io::{self, IsTerminal, Write as _};

use anyhow::Context as _;
use objects::Handle;
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use crate::arguments::{Format, Global};
use crate::exit;

/// Where and how a command prints.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    format: Format,
    colour: bool,
    verbose: bool,
    terminal: bool,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let terminal = io::stderr().is_terminal();
        let unwanted = global.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { format: global.output, colour: terminal && !unwanted, verbose: global.verbose > 0, terminal }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether somebody watches stderr, or asked to be told.
    pub(crate) fn is_watched(&self) -> bool {
        self.terminal || self.verbose
    }

    /// Whether somebody asked for more.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Whether stderr is a terminal that may be redrawn.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> anyhow::Result<()> {
        io::stdout().lock().write_all(bytes)?;
        Ok(())
    }

    /// A line of data.
    pub(crate) fn line(&self, line: &str) -> anyhow::Result<()> {
        writeln!(io::stdout().lock(), "{line}")?;
        Ok(())
    }

    /// A JSON document of one line.
    pub(crate) fn json(&self, value: &Value) -> anyhow::Result<()> {
        self.line(&value.to_string())
    }

    /// Rows with aligned columns. Numbers in `right` columns stand on the right.
    pub(crate) fn table(&self, heads: &[&str], right: &[usize], rows: &[Vec<String>]) -> anyhow::Result<()> {
        self.bytes(table(heads, right, rows).as_bytes())
    }

    /// A message for people. Nothing depends on it.
    pub(crate) fn say(&self, message: &str) {
        // If stderr is gone, nobody misses the message.
        let _ = writeln!(io::stderr().lock(), "{message}");
    }

    /// The reason why the program ends.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        let text = if self.is_json() { exit::json(error) } else { exit::human(error, self.colour) };
        self.say(&text);
    }

    /// `ok` or `no`, in green or red.
    pub(crate) fn mark(&self, good: bool) -> &'static str {
        // The marks go to stdout, which may be a file while stderr is a terminal.
        match (good, self.colour && io::stdout().is_terminal()) {
            (true, false) => "ok",
            (false, false) => "no",
            (true, true) => "\x1b[32mok\x1b[0m",
            (false, true) => "\x1b[31mno\x1b[0m",
        }
    }
}

/// Sends log lines to stderr.
pub(crate) fn log_to_stderr(verbose: u8, format: Format) -> anyhow::Result<()> {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    log_from(level, format)
}

/// Sends log lines of a level and above to stderr.
pub(crate) fn log_from(level: &str, format: Format) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_env("SINEW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let set = match format {
        Format::Human => lines.with_ansi(io::stderr().is_terminal()).try_init(),
        Format::Json => lines.json().try_init(),
    };
    set.map_err(|error| anyhow::anyhow!(error)).context("the log cannot be set up")
}

fn table(heads: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    let head: Vec<String> = heads.iter().map(|&head| head.to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One line of a tree's listing.
pub(crate) fn entry_row(index: u64, entry: Handle) -> Vec<String> {
    vec![index.to_string(), entry.kind().name().to_owned(), entry.size().to_string(), entry.to_string()]
}

/// UTF-8 that a terminal shows as it is: no control characters but white
/// space, and not white space alone, which could as well be a number.
pub(crate) fn printable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let odd = |character: char| character.is_control() && !matches!(character, '\n' | '\t' | '\r');
    let shows = text.is_empty() || text.contains(|character: char| !character.is_whitespace());
    (shows && !text.contains(odd)).then_some(text)
}

/// `0x…`, as the expression language writes bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

/// The bytes behind hexadecimal digits.
pub(crate) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = pairs.iter().map(|&[high, low]| Some((digit(high)? * 16 + digit(low)?) as u8));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

#[cfg(test)]
mod tests;
