// SPDX-License-Identifier: Apache-2.0
//! CloudEvents 1.0 over HTTP: an event in either form reaches a function in
//! the binary one, its attributes as `ce-…` headers and its data as the body.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Map, Value};

use crate::problem::Problem;

const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";
const SPEC_VERSION: HeaderName = HeaderName::from_static("ce-specversion");
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];
const ATTRIBUTES_MAX: usize = 64;
const ATTRIBUTE_LEN_MAX: usize = 8 << 10;

/// The media type of the body, without parameters.
fn kind_of(headers: &HeaderMap) -> &str {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

/// Whether a request says that it is an event, or several.
pub(crate) fn is_any(headers: &HeaderMap) -> bool {
    // Most kinds are too short to be one.
    let is_long = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.len() >= STRUCTURED.len());
    let is_structured = is_long && {
        let kind = kind_of(headers);
        [STRUCTURED, BATCH].iter().any(|event| event.eq_ignore_ascii_case(kind))
    };
    is_structured || headers.contains_key(SPEC_VERSION)
}

/// Puts a structured event into the binary form, and checks one that is in it
/// already.
///
/// # Errors
/// 400 for an event that breaks the specification, 415 for a batch.
pub(crate) fn unpack(headers: &mut HeaderMap, body: &mut Vec<u8>) -> Result<(), Problem> {
    match &*kind_of(headers).to_ascii_lowercase() {
        STRUCTURED => structured(headers, body),
        BATCH => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "Events come one by one",
            "gateway",
            "a batch of CloudEvents is not taken",
        )
        .suggest("send each event in a request of its own")),
        _ => binary(headers),
    }
}

fn bad(why: impl Into<String>) -> Problem {
    Problem::bad_request("bad-event", why)
        .suggest("an event has specversion 1.0, id, source and type, each a text")
}

/// Checks the attributes of an event in the binary form.
fn binary(headers: &HeaderMap) -> Result<(), Problem> {
    for name in REQUIRED {
        let value = headers.get(format!("ce-{name}")).map(HeaderValue::as_bytes).unwrap_or_default();
        if value.is_empty() {
            return Err(bad(format!("the event has no ce-{name}")));
        }
        if name == "specversion" && value != b"1.0" {
            return Err(bad("the event's ce-specversion is not 1.0"));
        }
    }
    Ok(())
}

fn structured(headers: &mut HeaderMap, body: &mut Vec<u8>) -> Result<(), Problem> {
    let mut event: Map<String, Value> =
        serde_json::from_slice(body).map_err(|error| bad(format!("the event is no JSON object: {error}")))?;
    let data = data(&mut event)?;
    if event.len() > ATTRIBUTES_MAX {
        return Err(bad(format!("the event has more than {ATTRIBUTES_MAX} attributes")));
    }
    let foreign: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("ce-")).cloned().collect();
    for name in foreign {
        headers.remove(name);
    }
    headers.remove(CONTENT_TYPE);
    if let Some((kind, bytes)) = data {
        let kind = HeaderValue::from_str(&kind).map_err(|_| bad("the event's datacontenttype is none"))?;
        headers.insert(CONTENT_TYPE, kind);
        *body = bytes;
    } else {
        body.clear();
    }
    for (name, value) in &event {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            return Err(bad(format!("{name:?} cannot be an attribute: a-z and 0-9 are allowed")));
        }
        let text = match value {
            Value::Null => continue,
            Value::String(text) => escaped(text),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Array(_) | Value::Object(_) => {
                return Err(bad(format!("the attribute {name} is no text")));
            }
        };
        let header = HeaderName::from_bytes(format!("ce-{name}").as_bytes()).ok();
        let value = HeaderValue::from_str(&text).ok().filter(|_| text.len() <= ATTRIBUTE_LEN_MAX);
        match (header, value) {
            (Some(header), Some(value)) => _ = headers.insert(header, value),
            _ => return Err(bad(format!("the attribute {name} is too long"))),
        }
    }
    binary(headers)
}

/// The data of an event, with its content type; both are taken out.
fn data(event: &mut Map<String, Value>) -> Result<Option<(String, Vec<u8>)>, Problem> {
    let kind = match event.remove("datacontenttype") {
        None | Some(Value::Null) => "application/json".to_owned(),
        Some(Value::String(kind)) => kind,
        Some(_) => return Err(bad("the event's datacontenttype is no text")),
    };
    let media = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = media == "application/json" || media.ends_with("+json");
    match (event.remove("data"), event.remove("data_base64")) {
        (Some(_), Some(_)) => Err(bad("the event has data and data_base64")),
        (Some(Value::String(text)), None) if !is_json => Ok(Some((kind, text.into_bytes()))),
        (Some(value), None) => Ok(Some((kind, value.to_string().into_bytes()))),
        (None, Some(Value::String(text))) => {
            let bytes = BASE64.decode(&text).map_err(|_| bad("the event's data_base64 is no base64"))?;
            Ok(Some((kind, bytes)))
        }
        (None, Some(_)) => Err(bad("the event's data_base64 is no text")),
        (None, None) => Ok(None),
    }
}

/// An attribute's text as a header has it: what is no printable character of
/// ASCII, and `"` and `%`, by percent signs.
fn escaped(text: &str) -> String {
    let mut header = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'%') {
            header.push(char::from(byte));
        } else {
            header.push_str(&format!("%{byte:02X}"));
        }
    }
    header
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn event(text: &str) -> Result<(HeaderMap, Vec<u8>), Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "application/cloudevents+json; charset=utf-8".parse().unwrap());
        headers.insert("ce-smuggled", "x".parse().unwrap());
        let mut body = text.as_bytes().to_vec();
        assert!(is_any(&headers));
        unpack(&mut headers, &mut body).map(|()| (headers, body))
    }

    const ATTRIBUTES: &str = r#""specversion":"1.0","id":"a 1","source":"/s","type":"t""#;

    #[test]
    fn a_structured_event_becomes_a_binary_one() {
        let (headers, body) = event(&format!(r#"{{{ATTRIBUTES},"number":7,"data":{{"x":1}}}}"#)).unwrap();
        assert_eq!(body, br#"{"x":1}"#);
        let told: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        for header in
            [("content-type", "application/json"), ("ce-id", "a%201"), ("ce-number", "7"), ("ce-type", "t")]
        {
            assert!(told.contains(&header), "{header:?}: {told:?}");
        }
        assert!(!headers.contains_key("ce-smuggled") && !headers.contains_key("ce-data"));
        let text = event(&format!(r#"{{{ATTRIBUTES},"datacontenttype":"text/plain","data":"hi"}}"#)).unwrap();
        assert_eq!((text.0[CONTENT_TYPE].as_bytes(), text.1.as_slice()), (&b"text/plain"[..], &b"hi"[..]));
        let bytes =
            event(&format!(r#"{{{ATTRIBUTES},"datacontenttype":"a/b","data_base64":"AP8="}}"#)).unwrap();
        assert_eq!(bytes.1, [0, 255]);
        let none = event(&format!("{{{ATTRIBUTES}}}")).unwrap();
        assert!(none.1.is_empty() && !none.0.contains_key(CONTENT_TYPE));
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for wrong in [
            "",
            "[]",
            r#"{"id":"1"}"#,
            r#"{"specversion":"0.3","id":"1","source":"s","type":"t"}"#,
            r#"{"specversion":"1.0","id":"","source":"s","type":"t"}"#,
            &format!(r#"{{{ATTRIBUTES},"Bad":"x"}}"#),
            &format!(r#"{{{ATTRIBUTES},"list":[1]}}"#),
            &format!(r#"{{{ATTRIBUTES},"data":1,"data_base64":""}}"#),
            &format!(r#"{{{ATTRIBUTES},"data_base64":"!"}}"#),
            &format!(r#"{{{ATTRIBUTES},"datacontenttype":"a\r\nb","data":1}}"#),
            &format!(r#"{{{ATTRIBUTES},"long":"{}"}}"#, "x".repeat(9000)),
        ] {
            assert_eq!(event(wrong).unwrap_err().status(), 400, "{wrong}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(SPEC_VERSION, "1.0".parse().unwrap());
        assert!(is_any(&headers) && unpack(&mut headers, &mut Vec::new()).is_err(), "attributes are missing");
        assert!(!is_any(&HeaderMap::new()), "the control");
    }
}
