// SPDX-License-Identifier: Apache-2.0
//! What the head of a server's answer says. Pure functions only.

use std::time::Duration;

use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, LOCATION, RETRY_AFTER,
    TRANSFER_ENCODING,
};

/// Bytes of an entity tag; longer ones cannot be named (`docs/spec/external.md`).
const ETAG_BYTES_MAX: usize = 1024;
/// Of what a server says, in what people read.
const SAID_CHARS_MAX: usize = 256;

/// The answer's part of some data: from where on, and how long all is, if it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) begin: u64,
    pub(super) whole: Option<u64>,
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The entity tag, if it is a strong one. One that is too long to be named is none.
pub(super) fn strong_etag(headers: &HeaderMap) -> Option<&str> {
    let is_len = |etag: &str| (2..=ETAG_BYTES_MAX).contains(&etag.len());
    text(headers, ETAG).filter(|etag| is_len(etag) && etag.starts_with('"') && etag.ends_with('"'))
}

/// The beginning of what a server says, for people.
pub(super) fn short(said: &str) -> String {
    match said.char_indices().nth(SAID_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &said[..at]),
        None => said.to_owned(),
    }
}

/// How long the body is, if that is said.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    decimal(text(headers, CONTENT_LENGTH)?)
}

/// Whether the answer itself says where its body ends.
pub(super) fn is_framed(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
}

/// How the body is encoded, if it is.
pub(super) fn encoding(headers: &HeaderMap) -> Option<&str> {
    text(headers, CONTENT_ENCODING).filter(|encoding| !encoding.eq_ignore_ascii_case("identity"))
}

/// Which part the body is: `bytes 5-9/10`, `bytes 5-9/*`.
pub(super) fn part(headers: &HeaderMap) -> Option<Part> {
    let (range, whole) = text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let (begin, last) = range.split_once('-')?;
    let (begin, last) = (decimal(begin)?, decimal(last)?);
    let whole = if whole == "*" { None } else { Some(decimal(whole)?) };
    (begin <= last && whole.is_none_or(|whole| last < whole)).then_some(Part { begin, whole })
}

/// For how long the server wants to be left alone, if it says so in seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    decimal(text(headers, RETRY_AFTER)?).map(Duration::from_secs)
}

/// Where a redirect from `url` leads to.
pub(super) fn redirect(url: &str, headers: &HeaderMap) -> Option<String> {
    let location = text(headers, LOCATION)?;
    let location = location.split('#').next().filter(|location| !location.is_empty())?;
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if is_absolute(location) {
        return Some(location.to_owned());
    }
    Some(match location.as_bytes() {
        [b'/', b'/', ..] => format!("{scheme}:{location}"),
        [b'/', ..] => format!("{scheme}://{authority}{location}"),
        [b'?', ..] => format!("{scheme}://{authority}{path}{location}"),
        _ => {
            let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
            format!("{scheme}://{authority}{folder}{location}")
        }
    })
}

/// Whether it begins with a scheme.
fn is_absolute(location: &str) -> bool {
    let scheme = location.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        let is_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        scheme.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && scheme.bytes().all(is_char)
    })
}

/// Digits only (`u64::from_str` also takes a sign).
fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use hyper::header::HeaderValue;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        [(name, HeaderValue::from_str(value).unwrap())].into_iter().collect()
    }

    #[test]
    fn redirects_lead_to_where_browsers_would_go() {
        let from = "http://a.example:81/b/c?d=/e#f";
        for (location, to) in [
            ("https://x.example/y", Some("https://x.example/y")),
            ("HTTPS://x.example/y#z", Some("HTTPS://x.example/y")),
            ("//x.example/y", Some("http://x.example/y")),
            ("/y?z", Some("http://a.example:81/y?z")),
            ("y", Some("http://a.example:81/b/y")),
            ("y/z:1", Some("http://a.example:81/b/y/z:1")),
            ("?y", Some("http://a.example:81/b/c?y")),
            ("file:///etc/passwd", Some("file:///etc/passwd")),
            ("", None),
            ("#f", None),
        ] {
            assert_eq!(redirect(from, &with(LOCATION, location)).as_deref(), to, "{location}");
        }
        assert_eq!(redirect("http://a.example", &with(LOCATION, "y")).unwrap(), "http://a.example/y");
        assert_eq!(redirect(from, &HeaderMap::new()), None);
    }

    #[test]
    fn parts_are_read_strictly() {
        let read = |text: &str| part(&with(CONTENT_RANGE, text)).map(|part| (part.begin, part.whole));
        assert_eq!(read("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(read("bytes 5-9/*"), Some((5, None)));
        for wrong in [
            "",
            "bytes",
            "bytes */10",
            "bytes 9-5/10",
            "bytes 5-9/9",
            "bytes 5-/10",
            "lines 5-9/10",
            "bytes +5-9/10",
            "bytes 5-99999999999999999999/*",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_strong_tags_name_bytes() {
        assert_eq!(strong_etag(&with(ETAG, "\"a\"")), Some("\"a\""));
        let of_len = |len: usize| format!("\"{}\"", "a".repeat(len - 2));
        assert!(strong_etag(&with(ETAG, &of_len(1024))).is_some());
        for other in ["W/\"a\"", "a", "\"", "", &of_len(1025)] {
            assert_eq!(strong_etag(&with(ETAG, other)), None, "{other}");
        }
        assert_eq!(short("said"), "said");
        assert_eq!(short(&"é".repeat(300)), format!("{}…", "é".repeat(256)));
        assert_eq!(encoding(&with(CONTENT_ENCODING, "Identity")), None);
        assert_eq!(encoding(&with(CONTENT_ENCODING, "gzip")), Some("gzip"));
        assert_eq!(retry_after(&with(RETRY_AFTER, "7")), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(&with(RETRY_AFTER, "Sat, 21 Nov 2026 00:00:00 GMT")), None);
    }
}
