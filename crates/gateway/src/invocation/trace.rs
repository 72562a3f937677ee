// SPDX-License-Identifier: Apache-2.0
//! Traces across services, as W3C Trace Context names them.

use std::fmt;

use axum::http::{HeaderMap, HeaderName};
use serde::{Serialize, Serializer};

use crate::unique;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const LEN: usize = 55;

/// Set where whoever began a trace wants it told.
const SAMPLED: u8 = 1;

/// What a `traceparent` says: a trace, a span in it, and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace: u128,
    span: u64,
    pub(super) flags: u8,
}

impl TraceParent {
    /// The one that a text is.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (own, rest) = text.split_first_chunk::<LEN>()?;
        let version = number(&own[..2])? as u8;
        // Later versions may append.
        let is_version =
            version != 0xff && (rest.is_empty() || (version != 0 && rest[0] == b'-' && rest.is_ascii()));
        let are_parts = own[2] == b'-' && own[35] == b'-' && own[52] == b'-';
        let (trace, span) = (number(&own[3..35])?, number(&own[36..52])? as u64);
        let flags = number(&own[53..])? as u8;
        (is_version && are_parts && trace != 0 && span != 0).then_some(Self { trace, span, flags })
    }

    /// The one that is brought with a request.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::read(headers.get(TRACEPARENT)?.as_bytes())
    }

    /// A function's own below what is brought: the same trace, or a new one that is told if it `samples` it,
    /// and a span of its own.
    pub(super) fn below(brought: Option<Self>, samples: impl FnOnce(u128) -> bool) -> Self {
        let Span(span) = Span::random();
        match brought {
            Some(brought) => Self { span, ..brought },
            None => {
                let trace = u128::from_ne_bytes(unique::random()) | 1;
                Self { trace, span, flags: u8::from(samples(trace)) }
            }
        }
    }

    pub(crate) fn span(&self) -> Span {
        Span(self.span)
    }

    /// As a header has it.
    pub(super) fn text(&self) -> String {
        self.bytes().into_iter().map(char::from).collect()
    }

    /// Its text, of ASCII alone.
    pub(super) fn bytes(&self) -> [u8; LEN] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_digits(&mut text[3..35], self.trace);
        write_digits(&mut text[36..52], self.span.into());
        write_digits(&mut text[53..], self.flags.into());
        text
    }
}

const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// A number of so many digits.
fn write_digits(place: &mut [u8], number: u128) {
    let mut left = number;
    for digit in place.iter_mut().rev() {
        *digit = DIGITS[(left & 0xf) as usize];
        left >>= 4;
    }
}

/// What digits say; `None` if one is none, as those in upper case are here. Of 32 at most.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// A request's own place in its trace, and the one that it was brought with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traced {
    pub(super) own: TraceParent,
    brought: Option<TraceParent>,
}

impl Traced {
    /// Of a request with these headers; see [`TraceParent::below`].
    pub(super) fn begin(headers: &HeaderMap, samples: impl FnOnce(u128) -> bool) -> Self {
        let brought = TraceParent::of(headers);
        Self { own: TraceParent::below(brought, samples), brought }
    }

    /// Whose span it is below, if that was brought.
    pub(super) fn parent(&self) -> Option<Span> {
        self.brought.map(|brought| brought.span())
    }

    /// Where it stands. `None`: it is not to be told.
    pub(super) fn context(&self, is_nested: bool) -> Option<Context> {
        let TraceParent { trace, span, flags } = self.own;
        let parent = self.brought.map(|brought| brought.span);
        (flags & SAMPLED != 0).then_some(Context { trace, span, parent, is_nested })
    }
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
    /// One that nobody else has; 0 is none.
    pub(super) fn random() -> Self {
        Self(u64::from_ne_bytes(unique::random()) | 1)
    }

    /// The span of a number.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn brought(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(TRACEPARENT, text.parse().unwrap())])
    }

    fn told(text: &str) -> String {
        Traced::begin(&brought(text), |_| false).own.text()
    }

    #[test]
    fn a_trace_goes_on_with_a_span_of_its_own() {
        let brought = format!("00-{TRACE}-b7ad6b7169203331-01");
        let ours = told(&brought);
        assert!(
            ours.starts_with(&format!("00-{TRACE}-")) && ours.ends_with("-01") && ours != brought,
            "{ours}"
        );
        assert_eq!(TraceParent::read(ours.as_bytes()).unwrap().span().to_string(), ours[36..52]);
        assert!(told(&format!("cc-{TRACE}-b7ad6b7169203331-01-x")).contains(TRACE));
    }

    #[test]
    fn what_is_no_trace_begins_a_new_one() {
        for wrong in [
            "",
            "00",
            &format!("ff-{TRACE}-b7ad6b7169203331-01"),
            &format!("00-{TRACE}-b7ad6b7169203331-01-x"),
            &format!("cc-{TRACE}-b7ad6b7169203331-01x"),
            &format!("00-{TRACE}-0000000000000000-01"),
            &format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            &format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
            &format!("00-{TRACE}_b7ad6b7169203331-01"),
            &format!("00-{TRACE}-b7ad6b716920333-101"),
        ] {
            let ours = told(wrong);
            assert!(TraceParent::read(ours.as_bytes()).is_some() && !ours.contains(TRACE), "{wrong}: {ours}");
        }
        let new = |samples: bool| Traced::begin(&HeaderMap::new(), |_| samples).own.text();
        assert_ne!(new(false), new(false));
        assert!(new(false).ends_with("-00") && new(true).ends_with("-01"));
    }

    #[test]
    fn who_began_a_trace_decides_whether_it_is_told() {
        let of = |flags: &str, samples: bool| {
            Traced::begin(&brought(&format!("00-{TRACE}-b7ad6b7169203331-{flags}")), |_| samples)
        };
        // Whatever this node would have sampled.
        assert_eq!(of("00", true).context(false), None);
        let traced = of("01", false);
        let context = traced.context(false).unwrap();
        assert_eq!(
            (context.trace(), context.parent()),
            (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, Some(0xb7ad_6b71_6920_3331))
        );
        assert_eq!(format!("{:016x}", context.span()), traced.own.text()[36..52]);
        assert_eq!(traced.parent().unwrap().to_string(), "b7ad6b7169203331");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_what_is_read_is_written_so(
            trace in 1_u128.., span in 1_u64.., flags: u8, place in 0..LEN, byte: u8,
        ) {
            let parent = TraceParent { trace, span, flags };
            let mut text = parent.text().into_bytes();
            prop_assert_eq!(TraceParent::read(&text), Some(parent));
            text[place] = byte;
            if let Some(read) = TraceParent::read(&text) {
                prop_assert_eq!(&read.bytes()[2..], &text[2..]);
            }
        }
    }
}
