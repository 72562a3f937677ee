// SPDX-License-Identifier: Apache-2.0
//! Messages of the Model Context Protocol as they come: what they are, by which revision, and
//! whether headers say the same.

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::text::shortened;

/// Without a handshake: each request says by which revision it is.
const MODERN: &str = "2026-07-28";
/// All revisions that are spoken, the newest first; all but the first begin with `initialize`.
pub(super) const SUPPORTED: [&str; 5] = [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const VERSION_HEADER: &str = "mcp-protocol-version";

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const HEADER_MISMATCH: i32 = -32020;
const UNSUPPORTED_VERSION: i32 = -32022;

/// Which of both kinds of revisions a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    Legacy,
}

/// Why a message is not answered with a result.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    pub(super) code: i32,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl Fault {
    fn of(status: StatusCode, code: i32, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// What is asked with is wrong.
    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::of(StatusCode::OK, INVALID_PARAMS, message)
    }

    /// Nothing is asked so. Older clients read messages of answers with 200 alone.
    pub(super) fn unknown(method: &str, era: Era) -> Self {
        let status = if era == Era::Modern { StatusCode::NOT_FOUND } else { StatusCode::OK };
        let known = "it has tools/list, tools/call and server/discover";
        Self::of(
            status,
            METHOD_NOT_FOUND,
            format!("this server has no method {:?}; {known}", shortened(method)),
        )
    }
}

/// A message.
#[derive(Debug)]
pub(super) enum Message {
    Request(Asked),
    Notification,
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Asked {
    /// A text or a whole number.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
    pub(super) era: Era,
}

impl Message {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong, and the id of the message as far as there is one; else `null`.
    pub(super) fn read(text: &[u8], headers: &HeaderMap) -> Result<Self, (Value, Fault)> {
        let bad = |code, why: String| (Value::Null, Fault::of(StatusCode::BAD_REQUEST, code, why));
        let message: Value = serde_json::from_slice(text)
            .map_err(|error| bad(PARSE_ERROR, format!("the body is no JSON: {error}")))?;
        let Value::Object(mut message) = message else {
            return Err(bad(INVALID_REQUEST, "a body has one message, an object".to_owned()));
        };
        let is_told = !message.contains_key("id");
        let id = message.remove("id").unwrap_or(Value::Null);
        let is_id = id.is_string() || id.is_i64() || id.is_u64();
        let id_told = if is_id { id.clone() } else { Value::Null };
        let fault = |fault| (id_told.clone(), fault);
        let invalid = |why: &str| fault(Fault::of(StatusCode::BAD_REQUEST, INVALID_REQUEST, why));
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(invalid("jsonrpc is \"2.0\""));
        }
        let Some(Value::String(method)) = message.remove("method") else {
            return Err(invalid("method is the name of one"));
        };
        if is_told {
            return Ok(Self::Notification);
        }
        if !is_id {
            return Err(invalid("id is a text or a whole number"));
        }
        let params = match message.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(invalid("params is an object")),
        };
        let asked = Asked::read(id, method, params, headers);
        asked.map(Self::Request).map_err(fault)
    }
}

impl Asked {
    fn read(
        id: Value,
        method: String,
        params: Map<String, Value>,
        headers: &HeaderMap,
    ) -> Result<Self, Fault> {
        let bad = |code, why: &str| Err(Fault::of(StatusCode::BAD_REQUEST, code, why));
        let header = headers.get(VERSION_HEADER).map(|value| value.to_str().unwrap_or(""));
        let meta = params.get("_meta");
        let said = meta.and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str);
        let is_legacy = |version: &str| SUPPORTED[1..].contains(&version);
        // Clients of older revisions say theirs in the header, after the handshake, and no other one.
        let era = match (said, header) {
            _ if method == "initialize" => Era::Legacy,
            (Some(version), _) | (None, Some(version)) if is_legacy(version) => Era::Legacy,
            (None, None) => Era::Legacy,
            _ => Era::Modern,
        };
        if era == Era::Modern {
            let Some(version) = said else {
                return bad(INVALID_PARAMS, &format!("params._meta has no {VERSION_KEY:?}"));
            };
            if version != MODERN {
                let data = json!({ "supported": SUPPORTED, "requested": version });
                let message = format!("no revision {:?} is spoken here", shortened(version));
                let fault = Fault::of(StatusCode::BAD_REQUEST, UNSUPPORTED_VERSION, message);
                return Err(Fault { data: Some(data), ..fault });
            }
            if !meta.and_then(|meta| meta.get(CAPABILITIES_KEY)).is_some_and(Value::is_object) {
                return bad(INVALID_PARAMS, &format!("params._meta has no {CAPABILITIES_KEY:?}"));
            }
            let name = params.get("name").and_then(Value::as_str).filter(|_| method == "tools/call");
            let wanted =
                [(VERSION_HEADER, Some(version)), ("mcp-method", Some(method.as_str())), ("mcp-name", name)];
            for (header, wanted) in wanted {
                let Some(wanted) = wanted else { continue };
                // What lies between goes by the headers, so that they may not say anything else.
                if mirrored(headers, header).as_deref() != Some(wanted) {
                    let why = format!(
                        "the header {header} does not say what the message does, {:?}",
                        shortened(wanted)
                    );
                    return bad(HEADER_MISMATCH, &why);
                }
            }
        }
        Ok(Self { id, method, params, era })
    }

    /// For who begins with a handshake: the revision that they want, or the newest one that has handshakes.
    pub(super) fn version_to_speak(&self) -> &'static str {
        let wanted = self.params.get("protocolVersion").and_then(Value::as_str);
        SUPPORTED[1..].iter().find(|version| Some(**version) == wanted).unwrap_or(&SUPPORTED[1])
    }
}

/// What a header says; what no header can have is in it as base64.
fn mirrored(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    // Of two, others may go by the other one.
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let text = value.to_str().ok()?.trim();
    let Some(encoded) = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(text.to_owned());
    };
    String::from_utf8(BASE64.decode(encoded).ok()?).ok()
}
