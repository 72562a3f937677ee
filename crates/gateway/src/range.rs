// SPDX-License-Identifier: Apache-2.0
//! `Range` requests of RFC 9110: one range of bytes, or one suffix.
//!
//! Several ranges, other units and malformed headers are ignored, as the RFC
//! allows: the answer is then the whole object. Pure functions only.

use std::ops::Range;

/// What part of an object a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it.
    Whole,
    /// These bytes; never empty, never past the end.
    Part(Range<u64>),
    /// A range that the object does not reach.
    Unsatisfiable,
}

/// Reads a `Range` header against an object of `len` bytes.
pub(crate) fn wanted(header: &str, len: u64) -> Wanted {
    let Some((unit, spec)) = header.split_once('=') else { return Wanted::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return Wanted::Whole;
    }
    let Some((first, last)) = spec.trim().split_once('-') else { return Wanted::Whole };
    match (first.trim(), last.trim()) {
        ("", suffix) => match decimal(suffix) {
            None => Wanted::Whole,
            Some(0) => Wanted::Unsatisfiable,
            Some(_) if len == 0 => Wanted::Unsatisfiable,
            Some(suffix) => Wanted::Part(len.saturating_sub(suffix)..len),
        },
        (first, last) => {
            let last = if last.is_empty() { Some(u64::MAX) } else { decimal(last) };
            match (decimal(first), last) {
                (Some(first), Some(last)) if first > last => Wanted::Whole,
                (Some(first), Some(_)) if first >= len => Wanted::Unsatisfiable,
                (Some(first), Some(last)) => Wanted::Part(first..last.saturating_add(1).min(len)),
                _ => Wanted::Whole,
            }
        }
    }
}

/// Digits only (`u64::from_str` also takes a sign); what overflows is past
/// every end.
fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether an `If-None-Match` header names this entity tag (weak comparison).
pub(crate) fn none_match_names(header: &str, etag: &str) -> bool {
    header.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

#[cfg(test)]
mod tests;
