// SPDX-License-Identifier: Apache-2.0
//! What a function learns of a request besides its body
//! (`docs/spec/functions.md`, section 5): two lines of JSON. Every request to
//! a function has one, so it is written as it stands here, without a detour by
//! a serializer: most texts in it are put in quotes and are done.

use std::io::Write as _;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use uuid::fmt::Simple;

use super::lines::Sealer;
use super::trace::TraceParent;
use super::{HOP_BY_HOP, Invocation, TRACEPARENT, millis, since_1970};

/// What most heads take at most.
const HEAD_BYTES: usize = 1 << 10;

impl Invocation<'_> {
    /// Of one that stands there in its trace; with a seal its calls may take lines.
    pub(super) fn head(&self, own: TraceParent, is_arriving: bool, sealer: Option<&Sealer>) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        self.write_call(&mut out, own, is_arriving, sealer);
        out.push(b'\n');
        self.write_http(&mut out, own);
        out
    }

    /// The first line, which every handler needs.
    fn write_call(&self, out: &mut Vec<u8>, own: TraceParent, is_arriving: bool, sealer: Option<&Sealer>) {
        let now = since_1970();
        write_member(out, "{\"request_id\":", &self.id.0);
        write_member(out, ",\"function\":", &self.served.name);
        write_number(out, ",\"version\":", self.served.version);
        write_number(out, ",\"deadline_ms\":", millis(now + self.time()));
        write_member(out, ",\"source\":", self.source);
        if let Some(nesting) = &self.nesting {
            write_member(out, ",\"caller\":", &nesting.caller);
            write_number(out, ",\"depth\":", nesting.depth.into());
        }
        if let Some(sealer) = sealer {
            let mut text = [0; Simple::LENGTH];
            let seal = sealer.text(&self.id.0, own, now);
            write_member(out, ",\"seal\":", seal.encode_lower(&mut text));
        }
        if is_arriving {
            // It comes while the function runs.
            write_member(out, ",\"body\":", "stream");
        }
        if let Some(kind) = self.headers.get(CONTENT_TYPE) {
            out.extend_from_slice(b",\"content_type\":");
            write_value(out, kind);
        }
        out.push(b'}');
    }

    /// The second line, which few handlers look at.
    fn write_http(&self, out: &mut Vec<u8>, own: TraceParent) {
        write_member(out, "{\"method\":", self.method);
        write_member(out, ",\"path\":", self.path);
        write_member(out, ",\"query\":", self.query);
        out.extend_from_slice(b",\"headers\":[");
        for (name, value) in self.headers {
            if !HOP_BY_HOP.contains(name) && *name != TRACEPARENT {
                write_name(out, name);
                write_value(out, value);
                out.extend_from_slice(b"],");
            }
        }
        write_name(out, &TRACEPARENT);
        write_plain(out, &own.bytes());
        out.extend_from_slice(b"]]");
        if let Some(address) = self.client.address {
            // An address needs no escapes, and a vector takes all that is written.
            _ = write!(out, ",\"client\":\"{address}\"");
        }
        if self.client.is_secure {
            write_member(out, ",\"scheme\":", "https");
        }
        if let Some(routed) = self.routed {
            write_member(out, ",\"route\":", &routed.pattern);
            out.extend_from_slice(b",\"params\":");
            // Strings only: serialization has nothing to fail on.
            _ = serde_json::to_writer(&mut *out, &routed.params);
        }
        out.push(b'}');
    }
}

/// The beginning of a pair: a header's name needs no escapes.
fn write_name(out: &mut Vec<u8>, name: &HeaderName) {
    out.extend_from_slice(b"[\"");
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b"\",");
}

/// A header's value. What is no UTF-8 in it is replaced.
fn write_value(out: &mut Vec<u8>, value: &HeaderValue) {
    match is_plain(value.as_bytes()) {
        true => write_plain(out, value.as_bytes()),
        false => write_text(out, &String::from_utf8_lossy(value.as_bytes())),
    }
}

fn write_number(out: &mut Vec<u8>, key: &'static str, number: u64) {
    out.extend_from_slice(key.as_bytes());
    // A vector takes all that is written.
    _ = write!(out, "{number}");
}

fn write_member(out: &mut Vec<u8>, key: &'static str, text: &str) {
    out.extend_from_slice(key.as_bytes());
    write_text(out, text);
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    match is_plain(text.as_bytes()) {
        true => write_plain(out, text.as_bytes()),
        false => _ = serde_json::to_writer(out, text),
    }
}

fn write_plain(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

/// Whether JSON has these bytes as they are. No branch is in it, so that many are looked at in one step.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |is_plain, byte| {
        is_plain & (*byte >= b' ') & (*byte != b'"') & (*byte != b'\\') & byte.is_ascii()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_written_as_json_has_it(text: String, ascii in "[ -~]{0,80}") {
            for text in [text, ascii] {
                let mut out = Vec::new();
                write_text(&mut out, &text);
                prop_assert_eq!(&out, &serde_json::to_vec(&text).unwrap());
            }
        }

        #[test]
        fn a_value_of_any_bytes_is_text_of_one_line(bytes: Vec<u8>) {
            let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
            let mut out = Vec::new();
            write_value(&mut out, &value);
            prop_assert!(!out.contains(&b'\n'));
            let read: String = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(read, String::from_utf8_lossy(&bytes));
        }
    }
}
