// SPDX-License-Identifier: Apache-2.0
//! What a function answered, as the result of a tool.

use axum::http::header::CONTENT_TYPE;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::invocation::Answer;
use crate::problem::Problem;
use crate::request_id::RequestId;

/// Of an answer: more than this no model reads.
const CONTENT_BYTES_MAX: usize = 8 << 20;

/// Of an answer that is given as a value, too.
const VALUE_BYTES_MAX: usize = 1 << 20;

fn of(content: Vec<Value>, is_error: bool) -> Map<String, Value> {
    let mut result = Map::new();
    result.insert("content".to_owned(), content.into());
    result.insert("isError".to_owned(), is_error.into());
    result
}

/// The tool has failed, or was not begun.
pub(super) fn failed(why: &str) -> Map<String, Value> {
    of(vec![text(why)], true)
}

pub(super) fn of_problem(problem: &Problem, id: &RequestId) -> Map<String, Value> {
    let said = problem.failure_detail().unwrap_or(problem.detail());
    failed(&format!("{said}\n(request {})", id.0))
}

/// Text is text, JSON is a value too, pictures and sounds are what they are, and all else is a resource.
pub(super) fn of_answer(answer: &Answer, name: &str) -> Map<String, Value> {
    let is_error = answer.status.is_client_error() || answer.status.is_server_error();
    if answer.body.len() > CONTENT_BYTES_MAX {
        let (bytes, most) = (answer.body.len(), CONTENT_BYTES_MAX);
        return failed(&format!("the answer has {bytes} bytes, and a tool's result at most {most}"));
    }
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let is_json = essence.is_empty() || essence == "application/json" || essence.ends_with("+json");
    let readable = std::str::from_utf8(&answer.body).ok();
    if answer.body.is_empty() {
        // Some models refuse a text without anything in it.
        return of(Vec::new(), is_error);
    }
    match (essence.split('/').next().unwrap_or(""), readable) {
        ("image", _) => of(vec![bytes("image", &answer.body, &essence)], is_error),
        ("audio", _) => of(vec![bytes("audio", &answer.body, &essence)], is_error),
        (_, Some(said)) if is_json || essence.starts_with("text/") || is_text(&essence) => {
            let mut result = of(vec![text(said)], is_error);
            // Clients of older revisions take objects alone.
            let is_value = is_json && said.len() <= VALUE_BYTES_MAX;
            if let Some(value @ Value::Object(_)) =
                is_value.then(|| serde_json::from_str(said).ok()).flatten()
            {
                result.insert("structuredContent".to_owned(), value);
            }
            result
        }
        _ => {
            let blob = BASE64.encode(&answer.body);
            let kind = if essence.is_empty() { "application/octet-stream" } else { &essence };
            let resource = json!({ "uri": format!("sinew://{name}"), "mimeType": kind, "blob": blob });
            of(vec![json!({ "type": "resource", "resource": resource })], is_error)
        }
    }
}

fn text(said: &str) -> Value {
    json!({ "type": "text", "text": said })
}

fn bytes(kind: &str, data: &[u8], essence: &str) -> Value {
    json!({ "type": kind, "data": BASE64.encode(data), "mimeType": essence })
}

/// Types that are read as text, whatever they begin with.
fn is_text(essence: &str) -> bool {
    let known = [
        "application/xml",
        "application/javascript",
        "application/yaml",
        "application/x-ndjson",
        "application/sql",
    ];
    known.contains(&essence) || essence.ends_with("+xml")
}
