// SPDX-License-Identifier: Apache-2.0
//! Traces across services, as W3C Trace Context names them.

use std::fmt;

use axum::http::{HeaderMap, HeaderName};
use serde::{Serialize, Serializer};

use uuid::fmt::Simple;

use crate::unique;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const LEN: usize = 55;

/// Set where whoever began a trace wants it told.
const SAMPLED: u8 = 1;

/// The `traceparent` for a function: the trace of its request, or a new one that
/// is told if it `samples` it, and a span of its own.
pub(super) fn parent(headers: &HeaderMap, samples: impl FnOnce(u128) -> bool) -> String {
    let brought = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let (mut new_trace, mut span) = ([0; Simple::LENGTH], [0; Simple::LENGTH]);
    let span = &unique::uuid().simple().encode_lower(&mut span)[16..];
    let (trace, flags) = brought.and_then(parts).unwrap_or_else(|| {
        let trace = unique::uuid();
        let flags = if samples(trace.as_u128()) { "01" } else { "00" };
        (trace.simple().encode_lower(&mut new_trace), flags)
    });
    ["00", trace, span, flags].join("-")
}

/// Where a request stands in a trace that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    trace: u128,
    span: u64,
    parent: Option<u64>,
    is_nested: bool,
}

impl Context {
    /// That of a call that was told afterwards. `None`: it is not to be told on.
    pub(super) fn told(trace: [u8; 16], span: u64, parent: u64, flags: u8) -> Option<Self> {
        let trace = u128::from_be_bytes(trace);
        (flags & SAMPLED != 0).then_some(Self { trace, span, parent: Some(parent), is_nested: true })
    }

    #[cfg(test)]
    pub(crate) fn new(trace: u128, span: u64, parent: Option<u64>, is_nested: bool) -> Self {
        Self { trace, span, parent, is_nested }
    }

    /// That of a function's own `traceparent`, below the one that was brought.
    /// `None`: it is not to be told.
    pub(super) fn of(own: &str, headers: &HeaderMap, is_nested: bool) -> Option<Self> {
        let (trace, flags) = parts(own)?;
        if u8::from_str_radix(flags, 16).ok()? & SAMPLED == 0 {
            return None;
        }
        let brought = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let parent = brought.and_then(Span::of).map(|span| span.0);
        let (trace, Span(span)) = (u128::from_str_radix(trace, 16).ok()?, Span::of(own)?);
        Some(Self { trace, span, parent, is_nested })
    }

    pub(crate) fn trace(&self) -> u128 {
        self.trace
    }

    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// Whose span it is below, if that was brought.
    pub(crate) fn parent(&self) -> Option<u64> {
        self.parent
    }

    /// A function has called it, not a client.
    pub(crate) fn is_nested(&self) -> bool {
        self.is_nested
    }
}

/// One request to a function, or one call of another one, within its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span(u64);

impl Span {
    /// The span of a number.
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The span that a `traceparent` ends with.
    pub(crate) fn of(traceparent: &str) -> Option<Self> {
        parts(traceparent)?;
        u64::from_str_radix(traceparent.get(36..52)?, 16).ok().map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Trace and flags of a header that is one, as numbers.
pub(super) fn of(text: &str) -> Option<(u128, u8)> {
    let (trace, flags) = parts(text)?;
    Some((u128::from_str_radix(trace, 16).ok()?, u8::from_str_radix(flags, 16).ok()?))
}

/// Trace and flags of a header that is one.
fn parts(text: &str) -> Option<(&str, &str)> {
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_some = |part: &str| part.bytes().any(|byte| byte != b'0');
    if !text.is_ascii() || text.len() < LEN {
        return None;
    }
    // Later versions may append.
    let (text, rest) = text.split_at(LEN);
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_version = version != "ff" && (rest.is_empty() || (version != "00" && rest.starts_with('-')));
    let lengths = [version, trace, span, flags].map(str::len);
    let is_whole = lengths == [2, 32, 16, 2] && [version, trace, span, flags].into_iter().all(is_hex);
    (is_version && is_whole && is_some(trace) && is_some(span)).then_some((trace, flags))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn told(brought: &str) -> String {
        parent(&HeaderMap::from_iter([(TRACEPARENT, brought.parse().unwrap())]), |_| false)
    }

    #[test]
    fn a_trace_goes_on_with_a_span_of_its_own() {
        let brought = format!("00-{TRACE}-b7ad6b7169203331-01");
        let ours = told(&brought);
        assert!(
            ours.starts_with(&format!("00-{TRACE}-")) && ours.ends_with("-01") && ours != brought,
            "{ours}"
        );
        assert_eq!(Span::of(&ours).unwrap().to_string(), ours[36..52]);
        assert!(parts(&ours).is_some() && told(&format!("cc-{TRACE}-b7ad6b7169203331-01-x")).contains(TRACE));
    }

    #[test]
    fn what_is_no_trace_begins_a_new_one() {
        for wrong in [
            "",
            "00",
            &format!("ff-{TRACE}-b7ad6b7169203331-01"),
            &format!("00-{TRACE}-b7ad6b7169203331-01-x"),
            &format!("00-{TRACE}-0000000000000000-01"),
            &format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            &format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
        ] {
            let ours = told(wrong);
            assert!(parts(&ours).is_some() && !ours.contains(TRACE), "{wrong}: {ours}");
        }
        let none = HeaderMap::new();
        assert_ne!(parent(&none, |_| false), parent(&none, |_| false));
        assert!(parent(&none, |_| false).ends_with("-00") && parent(&none, |_| true).ends_with("-01"));
    }

    #[test]
    fn who_began_a_trace_decides_whether_it_is_told() {
        let headers = |flags: &str| {
            let brought = format!("00-{TRACE}-b7ad6b7169203331-{flags}");
            HeaderMap::from_iter([(TRACEPARENT, brought.parse().unwrap())])
        };
        // Whatever this node would have sampled.
        assert_eq!(Context::of(&parent(&headers("00"), |_| true), &headers("00"), false), None);
        let own = parent(&headers("01"), |_| false);
        let context = Context::of(&own, &headers("01"), false).unwrap();
        assert_eq!(
            (context.trace(), context.parent()),
            (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, Some(0xb7ad_6b71_6920_3331))
        );
        assert_eq!(format!("{:016x}", context.span()), own[36..52]);
        assert_eq!(Context::of("", &HeaderMap::new(), false), None);
    }
}
