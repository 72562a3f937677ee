// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/logs`: what became of requests, and what functions print meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::blocking;
use crate::invocation::micros_now;
use crate::journal::{Record, Shown, Wanted, is_of};
use crate::nested::Caller;
use crate::printed::{Log, Mark, Printing, lines};
use crate::problem::Problem;
use crate::router::Shared;

/// Records of an answer, at most and unless told otherwise.
const RECORDS_MAX: usize = 1000;
const RECORDS_DEFAULT: usize = 100;
/// Requests that run of which an answer tells, and what it tells of all of them, in bytes.
const RUNNING_MAX: usize = 1000;
const RUNNING_BYTES_MAX: usize = 16 << 20;

/// Which records of requests to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    function: Option<String>,
    request_id: Option<String>,
    #[serde(default)]
    after: u64,
    /// Only what ended since then, in milliseconds since 1970.
    #[serde(default)]
    since_ms: u64,
    #[serde(default)]
    failed: bool,
    text: Option<String>,
    limit: Option<usize>,
    /// Each record has its lines besides.
    #[serde(default)]
    lines: bool,
    /// Requests that run are told as well: `SPAN:LINES,…`, of each so many lines are known already.
    running: Option<String>,
}

pub(crate) async fn logs(
    State(shared): State<Arc<Shared>>,
    search: Result<Query<Search>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(search) =
        search.map_err(|rejection| Problem::bad_request("bad-query", rejection.body_text()))?;
    let known = search.running.as_deref().map(known).transpose()?;
    // A record's number is the time at which it was kept, or more.
    let since_us = search.since_ms.saturating_mul(1000);
    let wanted = Wanted {
        function: search.function,
        request_id: search.request_id,
        after: search.after.max(since_us.saturating_sub(1)),
        failed: search.failed,
        text: search.text,
        limit: search.limit.unwrap_or(RECORDS_DEFAULT).min(RECORDS_MAX),
    };
    blocking(move || answer(&shared, &wanted, search.lines, known.as_ref())).await?
}

fn answer(
    shared: &Shared,
    wanted: &Wanted,
    with_lines: bool,
    known: Option<&HashMap<String, usize>>,
) -> Result<Json<Value>, Problem> {
    // First: what ends meanwhile is told twice rather than never.
    let running = known.map(|known| running(shared, wanted, known));
    let (found, before, last) = {
        let journal = shared.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, before) = journal.find(wanted);
        (found, before, journal.last())
    };
    let older = match (&shared.archive, before) {
        (Some(archive), Some(before)) => archive.find(wanted, before).map_err(|error| {
            Problem::internal("gateway", format!("logs cannot be read from the disk: {error}"))
        })?,
        _ => Vec::new(),
    };
    let currency = shared.options.rates.currency.as_str();
    let shown = |record: &Arc<Record>| {
        let lines = with_lines.then(|| record.log.lines());
        serde_json::to_value(Shown { record, log: &record.log.text, lines, currency })
    };
    let records: Result<Vec<Value>, _> = found.iter().map(shown).collect();
    let mut records = records.map_err(|error| Problem::internal("gateway", error.to_string()))?;
    if !older.is_empty() {
        records.extend(older.into_iter().map(|record| with_its_lines(record, with_lines)));
        records.sort_by_key(|record| record["sequence"].as_u64());
        records.drain(..records.len().saturating_sub(wanted.limit));
    }
    let mut told = json!({ "records": records, "last": last });
    if let Some(running) = running {
        told["running"] = running.into();
    }
    Ok(Json(told))
}

/// A record as it was written, for readers.
fn with_its_lines(mut record: Value, with_lines: bool) -> Value {
    let Some(fields) = record.as_object_mut() else { return record };
    let marks: Vec<Mark> =
        fields.remove("marks").and_then(|marks| serde_json::from_value(marks).ok()).unwrap_or_default();
    if with_lines {
        let text = fields.get("log").and_then(Value::as_str).unwrap_or_default();
        let lines = json!(lines(text, &marks, true));
        fields.insert("lines".to_owned(), lines);
    }
    record
}

/// How many lines are known of which requests that run.
fn known(text: &str) -> Result<HashMap<String, usize>, Problem> {
    let pair = |pair: &str| {
        let (span, lines) = pair.split_once(':')?;
        Some((span.to_owned(), lines.parse().ok()?))
    };
    let pairs = text.split(',').filter(|pair| !pair.is_empty()).map(pair);
    pairs.collect::<Option<_>>().ok_or_else(|| {
        Problem::bad_request("bad-query", "running is SPAN:LINES,SPAN:LINES and so on, or nothing")
    })
}

/// What requests that run have printed since: those that are wanted, the oldest first.
fn running(shared: &Shared, wanted: &Wanted, known: &HashMap<String, usize>) -> Vec<Value> {
    let Some(functions) = shared.backend.functions().filter(|_| !wanted.failed) else { return Vec::new() };
    let now = (Instant::now(), micros_now());
    let mut bytes = 0;
    let mut told: Vec<(Instant, Value)> = Vec::new();
    for Printing { head, since, printed } in functions.printing() {
        let Ok(caller) = Caller::read(&head) else { continue };
        let is_wanted = wanted.function.as_deref().is_none_or(|function| is_of(&caller.function, function))
            && wanted.request_id.as_deref().is_none_or(|id| caller.request_id == id);
        let Some(span) = caller.span().filter(|_| is_wanted).map(|span| span.to_string()) else { continue };
        let log = Log::of(printed, now);
        let lines = log.whole_lines();
        let known = known.get(&span).copied().unwrap_or_default();
        let new = lines.get(known..).unwrap_or_default();
        bytes += new.iter().map(|line| line.text.len()).sum::<usize>();
        if new.is_empty() || bytes > RUNNING_BYTES_MAX || told.len() >= RUNNING_MAX {
            continue;
        }
        let ago = u64::try_from(now.0.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX);
        let (begun_us, known_lines) = (now.1.saturating_sub(ago), known);
        let Caller { request_id, function, version, .. } = &caller;
        told.push((
            since,
            json!({
                "span": span, "request_id": request_id, "function": function, "version": version,
                "begun_us": begun_us, "known_lines": known_lines, "lines": new,
            }),
        ));
    }
    told.sort_by_key(|(since, _)| *since);
    told.into_iter().map(|(_, told)| told).collect()
}
