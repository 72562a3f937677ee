// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a manifest, and where.

use std::ops::Range;

/// A fault, with its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What was found or expected.
    pub(crate) message: String,
    /// Bytes of the text.
    pub(crate) place: Range<usize>,
    /// What to write instead.
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(place: Range<usize>, message: impl Into<String>) -> Self {
        Self { message: message.into(), place, hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `file:line:column: message`, the line with carets under the place, and the hint.
    pub(crate) fn render(&self, file: &str, text: &str) -> String {
        const LINE_CHARS_MAX: usize = 120;
        let mut at = self.place.start.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[begin..].lines().next().unwrap_or("");
        let number = text[..begin].matches('\n').count() + 1;
        let column = text[begin..at].chars().count();
        // A long line is cut so that the place is on the screen.
        let skipped = column.saturating_sub(LINE_CHARS_MAX / 2);
        let shown: String = line.chars().skip(skipped).take(LINE_CHARS_MAX).collect();
        let shown = shown.replace(|character: char| character.is_control(), " ");
        let marked = text.get(at..self.place.end.min(begin + line.len()).max(at)).unwrap_or("");
        let room = shown.chars().count().saturating_sub(column - skipped).max(1);
        let carets = "^".repeat(marked.chars().count().clamp(1, room));
        let margin = " ".repeat(number.to_string().len());
        let mut rendered = format!(
            "{file}:{number}:{}: {}\n{margin} |\n{number} | {shown}\n{margin} | {}{carets}",
            column + 1,
            self.message,
            " ".repeat(column - skipped)
        );
        if let Some(hint) = &self.hint {
            rendered.push_str(&format!("\n{margin} = {hint}"));
        }
        rendered
    }
}
