// SPDX-License-Identifier: Apache-2.0
//! What a program is given as its event (`docs/spec/functions.md`, sections 7 and 8): the body of its
//! request, or all of it as gateways and function URLs describe one (payload format 2.0). The twins of this are
//! `guests/python/http_event.py` and `guests/node/http_event.js`.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use crate::head::Request;

/// What is text besides `text/…` and what ends in +json or +xml, if it is in UTF-8; without a type it is taken for JSON.
const TEXT_TYPES: [&str; 5] =
    ["", "application/json", "application/xml", "application/javascript", "application/graphql"];
const FORM: &str = "application/x-www-form-urlencoded";

/// An event, as the runtime API tells it.
#[derive(Debug)]
pub(crate) struct Event {
    /// Names the invocation.
    pub(crate) id: String,
    pub(crate) headers: Vec<(String, String)>,
    /// JSON.
    pub(crate) body: Vec<u8>,
    /// It came by Lambda's own way to invoke, which answers with what the program says, whatever that is.
    pub(crate) is_invoked: bool,
}

impl Event {
    /// Of a request.
    ///
    /// # Errors
    /// If its body is none, for people.
    pub(crate) fn of(request: &Request, body: Vec<u8>, takes_http: bool) -> Result<Self, String> {
        let call = &request.call;
        let id = if call.request_id.is_empty() { "0".to_owned() } else { call.request_id.clone() };
        let mut headers = vec![
            ("Lambda-Runtime-Aws-Request-Id".to_owned(), id.clone()),
            ("Lambda-Runtime-Deadline-Ms".to_owned(), call.deadline_ms.to_string()),
            ("Lambda-Runtime-Invoked-Function-Arn".to_owned(), arn(&call.function)),
        ];
        let trace = request.header("traceparent").and_then(trace_id);
        headers.extend(trace.map(|trace| ("Lambda-Runtime-Trace-Id".to_owned(), trace)));
        let is_http = takes_http && call.source == "http";
        let body =
            if is_http { http(request, &body).to_string().into_bytes() } else { plain(request, body)? };
        Ok(Self { id, headers, body, is_invoked: call.source == "lambda" })
    }
}

/// A name as clients of Amazon's expect one; there is no account and no region.
fn arn(function: &str) -> String {
    format!("arn:aws:lambda:local:000000000000:function:{function}")
}

/// A trace as Amazon writes one, of what a `traceparent` says.
fn trace_id(traceparent: &str) -> Option<String> {
    let mut parts = traceparent.split('-');
    let (_, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (time, rest) = trace.split_at_checked(8)?;
    let is_sampled = flags.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']);
    Some(format!("Root=1-{time}-{rest};Parent={span};Sampled={}", u8::from(is_sampled)))
}

/// The body as JSON: as it is, or as a string.
fn plain(request: &Request, body: Vec<u8>) -> Result<Vec<u8>, String> {
    if body.is_empty() {
        return Ok(b"{}".to_vec());
    }
    let kind = media_type(request);
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    // As `curl -d` says of whatever it sends.
    let is_called_form = kind == FORM && matches!(first, Some(b'{' | b'['));
    let may_be_json =
        kind.is_empty() || kind == "application/json" || kind.ends_with("+json") || is_called_form;
    if may_be_json && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() {
        return Ok(body);
    }
    match String::from_utf8(body) {
        Ok(text) if is_text(&kind) || kind == FORM => Ok(Value::from(text).to_string().into_bytes()),
        _ => Err(format!(
            "the body is {}, and an event is JSON: with `event = \"http\"` in sinew.toml it may be anything",
            if kind.is_empty() { "neither JSON nor text" } else { &kind }
        )),
    }
}

fn media_type(request: &Request) -> String {
    let declared = request.header("content-type").unwrap_or(&request.call.content_type);
    declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || TEXT_TYPES.contains(&kind)
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
}

/// The request, as it was.
fn http(request: &Request, body: &[u8]) -> Value {
    let (http, call) = (&request.http, &request.call);
    let mut headers = Map::new();
    let mut cookies = Vec::new();
    for (name, value) in &http.headers {
        if name == "cookie" {
            let parts = value.split(';').map(|part| part.trim_matches([' ', '\t']));
            cookies.extend(parts.filter(|part| !part.is_empty()).map(Value::from));
        } else {
            join(&mut headers, name, value);
        }
    }
    let client = http.client.as_deref().unwrap_or_default();
    let scheme = http.scheme.as_deref().unwrap_or("http");
    let (domain, port) = host_of(headers.get("host").and_then(Value::as_str).unwrap_or_default());
    let (domain, port) = (domain.to_owned(), port.map(str::to_owned));
    // What a gateway says of who asks; a proxy that is believed has said so already.
    let usual = if scheme == "https" { "443" } else { "80" };
    let port = port.unwrap_or_else(|| usual.to_owned());
    for (name, value) in
        [("x-forwarded-for", client), ("x-forwarded-port", &port), ("x-forwarded-proto", scheme)]
    {
        headers.entry(name).or_insert_with(|| value.into());
    }
    let agent = headers.get("user-agent").cloned().unwrap_or_default();
    let agent = if agent.is_null() { "".into() } else { agent };
    let key = http.route.as_ref().map_or("$default".to_owned(), |route| format!("{} {route}", http.method));
    let (time, epoch_ms) = now();
    let mut event = json!({
        "version": "2.0", "routeKey": key, "rawPath": http.path, "rawQueryString": http.query, "headers": headers,
        "requestContext": {
            "accountId": "anonymous", "apiId": call.function, "domainName": domain,
            "domainPrefix": domain.split('.').next(),
            "http": {
                "method": http.method, "path": http.path, "protocol": "HTTP/1.1", "sourceIp": client, "userAgent": agent,
            },
            "requestId": call.request_id, "routeKey": key, "stage": "$default", "time": time, "timeEpoch": epoch_ms,
        },
        "isBase64Encoded": false,
    });
    if !cookies.is_empty() {
        event["cookies"] = cookies.into();
    }
    if !http.query.is_empty() {
        let mut texts = Map::new();
        for (name, value) in form_urlencoded::parse(http.query.as_bytes()) {
            join(&mut texts, &name, &value);
        }
        event["queryStringParameters"] = texts.into();
    }
    if !http.params.is_empty() {
        let params = http.params.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        event["pathParameters"] = params.collect::<Map<_, _>>().into();
    }
    if !body.is_empty() {
        let text = std::str::from_utf8(body).ok().filter(|_| is_text(&media_type(request)));
        event["isBase64Encoded"] = text.is_none().into();
        event["body"] = text.map_or_else(|| BASE64_STANDARD.encode(body), str::to_owned).into();
    }
    event
}

/// Those of one name are joined by commas.
fn join(texts: &mut Map<String, Value>, name: &str, value: &str) {
    let joined = match texts.get(name).and_then(Value::as_str) {
        Some(before) => format!("{before},{value}"),
        None => value.to_owned(),
    };
    texts.insert(name.to_owned(), joined.into());
}

/// A host's name and its port; an address of version 6 has colons of its own.
fn host_of(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port))
            if !port.is_empty() && !name.ends_with(':') && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            (name, Some(port))
        }
        _ => (host, None),
    }
}

/// The time of day, as gateways write it, and in milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "events have the time of day")]
fn now() -> (String, u64) {
    let now = SystemTime::now();
    let epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let date = httpdate::fmt_http_date(now);
    let words: Vec<&str> = date.split(' ').collect();
    let time = match words[..] {
        [_, day, month, year, clock, _] => format!("{day}/{month}/{year}:{clock} +0000"),
        _ => date,
    };
    (time, u64::try_from(epoch.as_millis()).unwrap_or(u64::MAX))
}
