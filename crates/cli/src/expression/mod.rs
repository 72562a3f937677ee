// SPDX-License-Identifier: Apache-2.0
//! The expression language of `sinew eval`: any computation, on one line.
//!
//! Text becomes tokens (`lexer.rs`), a syntax tree (`parser.rs`, `syntax.rs`)
//! and, with the files and labels that it names, handles and a bundle of
//! objects (`build.rs`). `print.rs` writes a syntax tree back. The language
//! is described in `docs/reference/expressions.md`. No function here panics
//! or overflows the stack, whatever the text.

mod build;
mod lexer;
mod parser;
mod print;
mod syntax;

pub(crate) use build::{External, ExternalKind, Externals, Objects, build, externals};
pub(crate) use objects::closest;
pub(crate) use parser::parse;

use syntax::Span;

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Error {
    /// What was found or expected.
    pub(crate) message: String,
    /// Where.
    pub(crate) span: Span,
    /// What to write instead.
    pub(crate) hint: Option<String>,
}

impl Error {
    fn new(span: Span, message: impl Into<String>) -> Self {
        Self { message: message.into(), span, hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The message, the line with a caret under the place, and the hint.
    pub(crate) fn render(&self, source: &str) -> String {
        const LINE_CHARS_MAX: usize = 120;
        let at = self.span.start.min(source.len());
        let begin = source[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = source[begin..].lines().next().unwrap_or("");
        let number = source[..begin].matches('\n').count() + 1;
        let column = source[begin..at].chars().count();
        // A long line is cut so that the place is on the screen.
        let skipped = column.saturating_sub(LINE_CHARS_MAX / 2);
        let shown: String = line.chars().skip(skipped).take(LINE_CHARS_MAX).collect();
        let shown = shown.replace(|character: char| character.is_control(), " ");
        let wanted = source.get(at..self.span.end.min(begin + line.len()).max(at)).unwrap_or("");
        let room = shown.chars().count().saturating_sub(column - skipped).max(1);
        let carets = "^".repeat(wanted.chars().count().clamp(1, room));
        let mut text = format!(
            "{} (line {number}, column {})\n  | {shown}\n  | {}{carets}",
            self.message,
            column + 1,
            " ".repeat(column - skipped)
        );
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n  = {hint}"));
        }
        text
    }
}

#[cfg(test)]
mod tests;
