// SPDX-License-Identifier: Apache-2.0
//! The words and handles that stand in paths and JSON.
//!
//! Handles have one text form (`objects`); kinds, rules and places are one
//! lower-case word each. Programs match on them: they are part of the API.

use objects::Handle;
use store::Rule;

use crate::backend::{Place, Priority};
use crate::problem::Problem;

/// Longest label name, in characters.
const LABEL_LEN_MAX: usize = 128;

/// Reads a handle from a path or a JSON string.
pub(crate) fn parse_handle(text: &str) -> Result<Handle, Problem> {
    text.parse::<Handle>().map_err(|error| {
        Problem::bad_request("bad-handle", format!("{:?}: {error}", shortened(text))).suggest(
            "a handle reads like lit-68656c6c6f, blob-<48 hexadecimal digits>-<size>, tree-…, app-… or strict-app-…",
        )
    })
}

/// Text from outside, cut to a length that is safe to repeat.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 160;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Checks a label's name.
pub(crate) fn check_label(name: &str) -> Result<(), Problem> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    let why = if name.is_empty() || name.len() > LABEL_LEN_MAX {
        format!("a label's name has 1 to {LABEL_LEN_MAX} characters")
    } else if !name.bytes().all(allowed) {
        format!("the label's name {:?} has characters other than A–Z a–z 0–9 . _ / -", shortened(name))
    } else if name.parse::<Handle>().is_ok() {
        format!("the label's name {name:?} is the text form of a handle")
    } else {
        return Ok(());
    };
    Err(Problem::bad_request("bad-label", why).suggest("choose a name like build/latest"))
}

/// The word for what an evaluation step did.
pub(crate) const fn rule_word(rule: Rule) -> &'static str {
    match rule {
        Rule::Apply => "apply",
        Rule::Resolve => "resolve",
        Rule::Uncurry => "uncurry",
        Rule::Select => "select",
        Rule::Strict => "strict",
        Rule::Shallow => "shallow",
        Rule::Compile => "compile",
    }
}

/// The word for where an object lies.
pub(crate) const fn place_word(place: Place) -> &'static str {
    match place {
        Place::Literal => "literal",
        Place::Memory => "memory",
        Place::Disk => "disk",
        Place::Tier => "tier",
        Place::Dropped => "dropped",
        Place::Absent => "absent",
    }
}

/// Reads a priority.
pub(crate) fn parse_priority(word: &str) -> Result<Priority, Problem> {
    match word {
        "low" => Ok(Priority::Low),
        "normal" => Ok(Priority::Normal),
        "high" => Ok(Priority::High),
        _ => Err(Problem::bad_request("bad-priority", format!("{:?} is no priority", shortened(word)))
            .suggest("use high, normal or low")),
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests;
