// SPDX-License-Identifier: Apache-2.0
//! Spans in words of OTLP: `ExportTraceServiceRequest`, in its JSON form.

use serde_json::{Map, Value, json};

use super::Ended;
use crate::unique;

/// Kinds of spans, and of ends, as OTLP numbers them.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const ERROR: u8 = 2;
const SCOPE: &str = "sinew";

/// The message that brings these requests.
pub(super) fn message(resource: &[(String, String)], ended: &[Ended]) -> Vec<u8> {
    let resource: Map<String, Value> =
        resource.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let spans: Vec<Value> = ended.iter().flat_map(spans).collect();
    let message = json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(resource) },
        "scopeSpans": [{ "scope": { "name": SCOPE, "version": env!("CARGO_PKG_VERSION") }, "spans": spans }],
    }]});
    // Texts and numbers only: serialization has nothing to fail on.
    serde_json::to_vec(&message).unwrap_or_default()
}

/// A request's own span, and below it where its time went.
fn spans(ended: &Ended) -> Vec<Value> {
    let end_us = ended.begun_us.saturating_add(ended.total_us);
    let context = &ended.context;
    let mut own = span(ended, context.span(), &ended.function, ended.begun_us, end_us);
    own["kind"] = if context.is_nested() { INTERNAL } else { SERVER }.into();
    if let Some(parent) = context.parent() {
        own["parentSpanId"] = id(parent).into();
    }
    own["attributes"] = attributes(own_attributes(ended));
    if let Some(why) = &ended.failure {
        own["status"] = json!({ "code": ERROR, "message": why });
    } else if ended.status >= 500 {
        own["status"] = json!({ "code": ERROR });
    }
    let mut spans = vec![own];
    let mut at_us = ended.begun_us;
    for (name, us) in
        [("queue", ended.queued_us), ("start", ended.starting_us), ("run", ended.usage.running_us)]
    {
        if us > 0 {
            let until_us = at_us.saturating_add(us).min(end_us);
            let number = unique::uuid().as_u64_pair().1;
            let mut child = span(ended, number, name, at_us.min(until_us), until_us);
            child["kind"] = INTERNAL.into();
            child["parentSpanId"] = id(context.span()).into();
            if name == "start" {
                child["attributes"] =
                    attributes(Map::from_iter([("sinew.start".to_owned(), ended.start.into())]));
            }
            spans.push(child);
            at_us = until_us;
        }
    }
    spans
}

fn span(ended: &Ended, number: u64, name: &str, begin_us: u64, end_us: u64) -> Value {
    // Numbers of 64 bits are texts in JSON, and ids are in hexadecimal there.
    let nanos = |us: u64| u128::from(us) * 1000;
    json!({
        "traceId": format!("{:032x}", ended.context.trace()),
        "spanId": id(number),
        "name": name,
        "startTimeUnixNano": nanos(begin_us).to_string(),
        "endTimeUnixNano": nanos(end_us).to_string(),
    })
}

fn id(number: u64) -> String {
    format!("{number:016x}")
}

fn own_attributes(ended: &Ended) -> Map<String, Value> {
    let usage = &ended.usage;
    let known = [
        ("faas.name", Some(ended.function.as_str().into())),
        ("faas.version", Some(ended.version.to_string().into())),
        ("faas.invocation_id", Some(ended.request_id.as_str().into())),
        ("faas.trigger", Some(if ended.context.is_nested() { "other" } else { "http" }.into())),
        ("faas.coldstart", Some(matches!(ended.start, "cold" | "forked").into())),
        ("http.response.status_code", Some(ended.status.into())),
        ("sinew.source", Some(ended.source.into())),
        ("sinew.start", Some(ended.start.into())),
        ("sinew.cpu_us", usage.cpu_us.map(Value::from)),
        ("sinew.held_us", Some(usage.held_us.into())),
        ("sinew.memory_peak_bytes", usage.memory_peak_bytes.map(Value::from)),
        ("sinew.received_bytes", Some(usage.received_bytes.into())),
        ("sinew.sent_bytes", Some(usage.sent_bytes.into())),
        ("sinew.price", usage.price.map(Value::from)),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Attributes as OTLP has them: each value says of which kind it is.
fn attributes(members: Map<String, Value>) -> Value {
    let typed = members.into_iter().map(|(key, value)| {
        let value = match value {
            Value::Bool(flag) => json!({ "boolValue": flag }),
            Value::Number(number) => match number.as_u64() {
                Some(whole) => json!({ "intValue": whole.to_string() }),
                None => json!({ "doubleValue": number }),
            },
            Value::String(text) => json!({ "stringValue": text }),
            other => json!({ "stringValue": other.to_string() }),
        };
        json!({ "key": key, "value": value })
    });
    typed.collect()
}
