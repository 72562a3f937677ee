// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/logs`: what became of requests, and what functions print meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::body::blocking;
use crate::invocation::micros_now;
use crate::journal::{self, Archive, Record, Shown, Wanted, is_of};
use crate::nested::Caller;
use crate::printed::{Line, Log, Mark, Printing, lines};
use crate::problem::Problem;
use crate::router::Shared;

/// Records of an answer, at most and unless told otherwise.
const RECORDS_MAX: usize = 1000;
const RECORDS_DEFAULT: usize = 100;
/// What an answer may take: bytes of records, with their lines.
const BYTES_MAX: usize = 32 << 20;
/// Lines of one record that are told as such; of more, the last ones.
const LINES_MAX: usize = 20_000;
/// What a line takes besides its text.
const LINE_BYTES: usize = 64;
/// Requests that run of which an answer tells, and bytes of what they have printed.
const RUNNING_MAX: usize = 1000;
const RUNNING_BYTES_MAX: usize = 8 << 20;

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
) -> Result<Response, Problem> {
    let Query(search) =
        search.map_err(|rejection| Problem::bad_request("bad-query", rejection.body_text()))?;
    let known = search.running.as_deref().map(known).transpose()?;
    // A record's number is the time at which its request ended, or more.
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

/// What readers get.
#[derive(Serialize)]
struct Logs<'a> {
    records: Vec<Told<'a>>,
    last: u64,
    /// Older ones that were wanted were left out, for all of them would be too much.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<Vec<Value>>,
}

/// A record from memory, or from the disk.
#[derive(Serialize)]
#[serde(untagged)]
enum Told<'a> {
    Here(Shown<'a>),
    There(Value),
}

impl Told<'_> {
    fn sequence(&self) -> u64 {
        match self {
            Self::Here(shown) => shown.record.sequence,
            Self::There(record) => record["sequence"].as_u64().unwrap_or(0),
        }
    }
}

fn answer(
    shared: &Shared,
    wanted: &Wanted,
    with_lines: bool,
    known: Option<&HashMap<String, usize>>,
) -> Result<Response, Problem> {
    // First: what ends meanwhile is told twice rather than never.
    let running = known.map(|known| running(shared, wanted, known));
    let (found, last, before) = journal::find(&shared.journal, wanted);
    let older = match (&shared.archive, before) {
        (Some(archive), Some(before)) => older(archive, wanted, &found, before).map_err(|error| {
            Problem::internal("gateway", format!("logs cannot be read from the disk: {error}"))
        })?,
        _ => Vec::new(),
    };
    let currency = shared.options.rates.currency.as_str();
    let here = found.iter().map(|record| Told::Here(shown(record, with_lines, currency)));
    let there = older.into_iter().map(|record| Told::There(with_its_lines(record, with_lines)));
    let mut records: Vec<Told<'_>> = here.chain(there).collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.sequence()));
    let (mut bytes, mut is_cut) = (0, false);
    let mut count = 0;
    for record in records.iter().take(wanted.limit) {
        bytes += weight(record);
        // One is told, however long it is.
        is_cut = bytes > BYTES_MAX && count > 0;
        if is_cut {
            break;
        }
        count += 1;
    }
    records.truncate(count);
    records.reverse();
    let told = serde_json::to_vec(&Logs { records, last, is_cut, running });
    let told = told.map_err(|error| Problem::internal("gateway", error.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/json")], told).into_response())
}

/// What is on the disk and is wanted besides.
fn older(
    archive: &Archive,
    wanted: &Wanted,
    found: &[Arc<Record>],
    before: u64,
) -> std::io::Result<Vec<Value>> {
    let mut wanted = wanted.clone();
    // Where the request itself is known, nothing of it was kept before it began.
    let root = found.iter().find(|record| wanted.request_id.is_some() && record.parent.is_none());
    wanted.after = wanted.after.max(root.map_or(0, |root| root.begun_us.saturating_sub(1)));
    if wanted.after.saturating_add(1) >= before { Ok(Vec::new()) } else { archive.find(&wanted, before) }
}

fn shown<'a>(record: &'a Record, with_lines: bool, currency: &'a str) -> Shown<'a> {
    let log = &record.log;
    let mut lines_left_out = log.lines_left_out();
    let lines = with_lines.then(|| {
        let mut lines = log.lines();
        let more = lines.len().saturating_sub(LINES_MAX);
        lines.drain(..more);
        lines_left_out += more;
        lines
    });
    Shown { record, log: &log.text, lines, lines_left_out, currency }
}

/// About what a record takes in an answer.
fn weight(told: &Told<'_>) -> usize {
    match told {
        Told::Here(Shown { record, lines, .. }) => {
            let line = |line: &Line<'_>| LINE_BYTES + line.text.len();
            record.bytes() + lines.iter().flatten().map(line).sum::<usize>()
        }
        Told::There(record) => {
            let text = |record: &Value, name: &str| record[name].as_str().map_or(0, str::len);
            let line = |line: &Value| LINE_BYTES + text(line, "text");
            let lines = record["lines"].as_array().into_iter().flatten().map(line).sum::<usize>();
            1024 + text(record, "log") + text(record, "failure") + lines
        }
    }
}

/// A record as it was written, for readers.
fn with_its_lines(mut record: Value, with_lines: bool) -> Value {
    let Some(fields) = record.as_object_mut() else { return record };
    let marks: Vec<Mark> =
        fields.remove("marks").and_then(|marks| serde_json::from_value(marks).ok()).unwrap_or_default();
    if with_lines {
        let text = fields.get("log").and_then(Value::as_str).unwrap_or_default();
        let mut lines = lines(text, &marks, true);
        let more = lines.len().saturating_sub(LINES_MAX);
        lines.drain(..more);
        let lines = json!(lines);
        let left_out = fields.get("lines_left_out").and_then(Value::as_u64).unwrap_or(0) + more as u64;
        fields.insert("lines".to_owned(), lines);
        if left_out > 0 {
            fields.insert("lines_left_out".to_owned(), left_out.into());
        }
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
    let (mut bytes, mut callers) = (0, Vec::new());
    // Of those that are not wanted, or have printed nothing new, nothing is copied.
    let printing = functions.printing(&mut |head, so_far| {
        let Ok(caller) = Caller::read(head) else { return false };
        let is_wanted = wanted.function.as_deref().is_none_or(|function| is_of(&caller.function, function))
            && wanted.request_id.as_deref().is_none_or(|id| caller.request_id == id);
        let Some(span) = caller.span().filter(|_| is_wanted).map(|span| span.to_string()) else {
            return false;
        };
        let known = known.get(&span).copied().unwrap_or_default();
        let is_new = so_far.lines > known && bytes < RUNNING_BYTES_MAX && callers.len() < RUNNING_MAX;
        if is_new {
            bytes += so_far.bytes + (so_far.lines - known) * LINE_BYTES;
            callers.push((caller, span, known));
        }
        is_new
    });
    let now = (Instant::now(), micros_now());
    let mut told: Vec<(Instant, Value)> = Vec::with_capacity(callers.len());
    for (Printing { since, printed }, (caller, span, known)) in printing.into_iter().zip(callers) {
        let log = Log::of(printed, now);
        let lines = log.whole_lines();
        let new = lines.get(known..).unwrap_or_default();
        // The rest comes the next time.
        let new = &new[..new.len().min(LINES_MAX)];
        if new.is_empty() {
            continue;
        }
        let ago = u64::try_from(now.0.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX);
        let Caller { request_id, function, version, .. } = &caller;
        told.push((
            since,
            json!({
                "span": span, "request_id": request_id, "function": function, "version": version,
                "begun_us": now.1.saturating_sub(ago), "known_lines": known, "lines": new,
            }),
        ));
    }
    told.sort_by_key(|(since, _)| *since);
    told.into_iter().map(|(_, told)| told).collect()
}
