// SPDX-License-Identifier: Apache-2.0
//! What a program's response is as an answer: as Lambda's proxy integration reads one, or what is
//! streamed with a prelude, or the value itself.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use super::event::Event;
use crate::head::{self, content_type};
use crate::http::OURS;
use crate::program::Failed;

/// Between status and headers of what is streamed, and its body.
const PRELUDE_END: [u8; 8] = [0; 8];
/// Of what begins with those.
const WITH_PRELUDE: &str = "application/vnd.awslambda.http-integration-response";
const STATUS: std::ops::RangeInclusive<u64> = 200..=599;
const JSON: &str = "application/json";

/// A result of what a program responds, of this type and in this mode.
pub(crate) fn result(
    body: &[u8],
    kind: &str,
    mode: &str,
    event: &Event,
    most: usize,
) -> Result<Vec<u8>, Failed> {
    let bytes = of_response(body, kind, mode, event).map_err(Failed::Result)?;
    match bytes.len() > most {
        true => Err(Failed::Result(format!("the program's answer has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

fn of_response(body: &[u8], kind: &str, mode: &str, event: &Event) -> Result<Vec<u8>, String> {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case(WITH_PRELUDE)
        && let Some(end) = body.windows(PRELUDE_END.len()).position(|eight| eight == PRELUDE_END)
    {
        let prelude: Map<String, Value> = serde_json::from_slice(&body[..end])
            .map_err(|error| format!("what comes before a streamed body is no JSON: {error}"))?;
        let (status, headers) = head_of(&prelude)?;
        return Ok(head::result(status, &headers, &body[end + PRELUDE_END.len()..]));
    }
    let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
    if mode.eq_ignore_ascii_case("streaming") && !kind.is_empty() && kind != JSON {
        return Ok(with_type(200, kind, body));
    }
    if event.is_invoked {
        let kind = if is_json() { JSON } else { content_type(body) };
        return Ok(with_type(200, kind, body));
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Null) => Ok(head::result(204, &[], b"")),
        Ok(Value::String(text)) => Ok(with_type(200, "text/plain; charset=utf-8", text.as_bytes())),
        Ok(Value::Object(answer)) if answer.contains_key("statusCode") => proxied(&answer),
        // As it was written, with its order and its numbers.
        Ok(_) => Ok(with_type(200, JSON, body)),
        Err(_) if body.is_empty() => Ok(head::result(204, &[], b"")),
        Err(_) => Ok(with_type(200, content_type(body), body)),
    }
}

fn with_type(status: u16, kind: &str, body: &[u8]) -> Vec<u8> {
    head::result(status, &[("content-type".to_owned(), kind.to_owned())], body)
}

/// An answer in the form of the proxy integration.
fn proxied(answer: &Map<String, Value>) -> Result<Vec<u8>, String> {
    let (status, mut headers) = head_of(answer)?;
    let is_encoded = answer.get("isBase64Encoded").and_then(Value::as_bool).unwrap_or(false);
    let (body, kind) = match answer.get("body") {
        None | Some(Value::Null) => (Vec::new(), None),
        Some(Value::String(text)) if is_encoded => {
            let bytes =
                from_base64(text).ok_or("the answer's body is no base64, though isBase64Encoded is set")?;
            (bytes, Some("application/octet-stream"))
        }
        Some(Value::String(text)) => (text.clone().into_bytes(), Some(JSON)),
        Some(other) => (other.to_string().into_bytes(), Some(JSON)),
    };
    if let Some(kind) = kind.filter(|_| !headers.iter().any(|(name, _)| name == "content-type")) {
        headers.push(("content-type".to_owned(), kind.to_owned()));
    }
    Ok(head::result(status, &headers, &body))
}

/// Status and headers.
fn head_of(answer: &Map<String, Value>) -> Result<(u16, Vec<(String, String)>), String> {
    let told = answer.get("statusCode").unwrap_or(&Value::Null);
    let number = match told {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().or_else(|| other.as_f64().map(|number| number as u64)),
    };
    let status =
        number.filter(|number| STATUS.contains(number)).and_then(|number| u16::try_from(number).ok());
    let status = match (status, told) {
        (Some(status), _) => status,
        // What is streamed may leave it out.
        (None, Value::Null) => 200,
        _ => return Err(format!("the answer's status is {told}; it must be a number from 200 to 599")),
    };
    let mut headers = Vec::new();
    let members = |name: &str| answer.get(name).and_then(Value::as_object);
    // What has several values goes before what has one.
    let has_several = |name: &String| members("multiValueHeaders").is_some_and(|all| all.contains_key(name));
    for member in ["headers", "multiValueHeaders"] {
        for (name, value) in members(member).into_iter().flatten() {
            if member == "headers" && has_several(name) {
                continue;
            }
            match value {
                Value::Array(values) => {
                    values.iter().try_for_each(|value| add(&mut headers, name, value))?;
                }
                value => add(&mut headers, name, value)?,
            }
        }
    }
    for cookie in answer.get("cookies").and_then(Value::as_array).into_iter().flatten() {
        add(&mut headers, "set-cookie", cookie)?;
    }
    Ok((status, headers))
}

fn add(headers: &mut Vec<(String, String)>, name: &str, value: &Value) -> Result<(), String> {
    let text = match value {
        Value::Null => return Ok(()),
        Value::String(text) => text.trim_matches([' ', '\t']).to_owned(),
        other => other.to_string(),
    };
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("{name:?} cannot be a header's name"));
    }
    if text.contains(['\r', '\n', '\0']) {
        return Err(format!("the header {name:?} has a line break or a NUL in its value"));
    }
    let name = name.to_ascii_lowercase();
    if !OURS.contains(&name.as_str()) {
        headers.push((name, text));
    }
    Ok(())
}

pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}
