// SPDX-License-Identifier: Apache-2.0
//! Load for a function: connections that send one request after the other.
//!
//! Without a rate each connection asks again as soon as it has its answer.
//! With one, requests are planned at constant intervals whatever the node
//! does; one that finds all connections in use waits, and its latency counts
//! from the moment for which it was planned. So a node that stalls is charged
//! for all that it kept waiting.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::BodyExt as _;
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::{Client, whole};

/// How long answers are waited for when nothing more is asked.
const LAST_ANSWERS: Duration = Duration::from_secs(30);
/// How long a connection that broke is left alone.
const AFTER_BREAK: Duration = Duration::from_millis(20);
/// The longest latency that is told apart.
const LATENCY_MAX_US: u64 = 3_600_000_000;
/// Digits of latencies.
const DIGITS: u8 = 3;
/// Kinds of starts that are told apart; a node has fewer.
const STARTS_MAX: usize = 16;
/// Of a failure's text.
const TOLD_CHARS: usize = 300;
/// Of a failure's body.
const FAILURE_BYTES: usize = 16 << 10;
const SERVER_TIMING: &str = "server-timing";

/// How much is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) connections: usize,
    /// Requests a second, if they are planned.
    pub(super) rate: Option<f64>,
    pub(super) duration: Duration,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// From the first request to the last answer.
    pub(super) took: Duration,
    /// As the client has them, in microseconds.
    pub(super) latencies: Histogram<u64>,
    /// The node's own times for the same.
    pub(super) in_node: Histogram<u64>,
    /// Answers by status.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Answers by how their instance came to be.
    pub(super) starts: BTreeMap<String, u64>,
    /// Of the answers' bodies.
    pub(super) bytes: u64,
    pub(super) sent: u64,
    /// Connections that broke before an answer had come.
    pub(super) broken: u64,
    /// What the first request said that failed.
    pub(super) failure: Option<String>,
    /// The part of the time in which the load generator itself was busy.
    pub(super) busy: f64,
}

impl Seen {
    fn new() -> anyhow::Result<Self> {
        let histogram = || Histogram::new_with_max(LATENCY_MAX_US, DIGITS);
        Ok(Self {
            took: Duration::ZERO,
            latencies: histogram()?,
            in_node: histogram()?,
            statuses: BTreeMap::new(),
            starts: BTreeMap::new(),
            bytes: 0,
            sent: 0,
            broken: 0,
            failure: None,
            busy: 0.0,
        })
    }

    /// Answers of any status.
    pub(super) fn answers(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Requests that had no answer in time.
    pub(super) fn unanswered(&self) -> u64 {
        self.sent.saturating_sub(self.answers() + self.broken)
    }

    /// Whether each request was answered, and with success.
    pub(super) fn is_clean(&self) -> bool {
        let is_fine = |status: &u16| StatusCode::from_u16(*status).is_ok_and(|status| !is_failure(status));
        self.answers() == self.sent && self.statuses.keys().all(is_fine)
    }

    pub(super) fn per_second(&self) -> f64 {
        self.answers() as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn take(&mut self, answer: Result<Answer, String>, latency: Duration) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                self.broken += 1;
                self.failure.get_or_insert(why);
                return;
            }
        };
        *self.statuses.entry(answer.status).or_default() += 1;
        self.bytes += answer.bytes;
        self.latencies.saturating_record(micros(latency));
        if let Some(timing) = answer.timing {
            self.in_node.saturating_record(micros(timing.total));
            if self.starts.len() < STARTS_MAX || self.starts.contains_key(&timing.start) {
                *self.starts.entry(timing.start).or_default() += 1;
            }
        }
        if let Some(failure) = answer.failure {
            self.failure.get_or_insert(failure);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn is_failure(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// What is sent, and when.
struct Shared {
    head: Parts,
    body: Bytes,
    pace: Pace,
    begun: Instant,
    planned: AtomicU64,
    seen: Mutex<Seen>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next request's turn. From when it counts; `None`: there are no more.
    async fn next(&self) -> Option<Instant> {
        let end = self.begun + self.pace.duration;
        let now = Instant::now();
        let Some(rate) = self.pace.rate else { return (now < end).then_some(now) };
        let number = self.planned.fetch_add(1, Ordering::Relaxed);
        let moment = self.begun + Duration::try_from_secs_f64(number as f64 / rate).ok()?;
        if moment >= end {
            return None;
        }
        if moment <= now {
            return Some(moment);
        }
        tokio::time::sleep_until(moment.into()).await;
        // What a timer is late is not the node's doing.
        Some(Instant::now())
    }
}

/// One answer.
struct Answer {
    status: u16,
    bytes: u64,
    timing: Option<Timing>,
    /// What it said, if it is none that was hoped for.
    failure: Option<String>,
}

/// What the node says that it took.
#[derive(Debug, PartialEq, Eq)]
struct Timing {
    total: Duration,
    start: String,
}

impl Timing {
    /// Reads the node's `Server-Timing`.
    fn read(text: &str) -> Option<Self> {
        let (mut total, mut start) = (None, None);
        for metric in text.split(',') {
            let mut parts = metric.split(';').map(str::trim);
            let name = parts.next()?;
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match (name, key) {
                    ("total", "dur") => total = value.parse::<f64>().ok(),
                    ("start", "desc") => start = Some(value.trim_matches('"').to_owned()),
                    _ => {}
                }
            }
        }
        let total = Duration::try_from_secs_f64(total? / 1e3).ok()?;
        Some(Self { total, start: start? })
    }
}

async fn exchange(client: &mut Client, shared: &Shared) -> Result<Answer, String> {
    let request = Request::from_parts(shared.head.clone(), whole(shared.body.clone()));
    let response = client.send(request).await.map_err(|error| format!("{error:#}"))?;
    let status = response.status();
    let timing = response.headers().get(SERVER_TIMING);
    let timing = timing.and_then(|value| value.to_str().ok()).and_then(Timing::read);
    let (mut body, mut bytes, mut text) = (response.into_body(), 0, Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("an answer broke off: {error}"))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        if is_failure(status) && text.len() < FAILURE_BYTES {
            text.extend_from_slice(data);
        }
    }
    let failure = is_failure(status).then(|| told(status, &text));
    Ok(Answer { status: status.as_u16(), bytes, timing, failure })
}

/// What a failure says, in a line.
fn told(status: StatusCode, body: &[u8]) -> String {
    let problem: Option<Value> = serde_json::from_slice(body).ok();
    let of = |key: &str| problem.as_ref().and_then(|problem| problem[key].as_str());
    let text = match (of("title"), of("detail")) {
        (Some(title), Some(detail)) => format!("{title}: {detail}"),
        (Some(title), None) => title.to_owned(),
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{status}: {}", line.chars().take(TOLD_CHARS).collect::<String>())
}

async fn drive(mut client: Client, shared: Arc<Shared>) {
    while let Some(due) = shared.next().await {
        shared.seen().sent += 1;
        let answer = exchange(&mut client, &shared).await;
        let is_broken = answer.is_err();
        shared.seen().take(answer, due.elapsed());
        if is_broken {
            tokio::time::sleep(AFTER_BREAK).await;
        }
    }
}

/// Sends requests; `watch` is told how many were answered, now and then.
pub(super) async fn run(
    clients: Vec<Client>,
    (head, body): (Parts, Bytes),
    pace: Pace,
    watch: impl Fn(Duration, u64),
) -> anyhow::Result<Seen> {
    let (begun, seen) = (Instant::now(), Mutex::new(Seen::new()?));
    let shared = Arc::new(Shared { head, body, pace, begun, planned: AtomicU64::new(0), seen });
    let metrics = tokio::runtime::Handle::current().metrics();
    let busy_before = metrics.worker_total_busy_duration(0);
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(drive(client, Arc::clone(&shared)));
    }
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let last = tokio::time::sleep_until((begun + pace.duration + LAST_ANSWERS).into());
    tokio::pin!(last);
    loop {
        tokio::select! {
            ended = tasks.join_next() => if ended.is_none() { break },
            _ = tick.tick() => watch(begun.elapsed(), shared.seen().answers()),
            () = &mut last => break,
        }
    }
    let took = begun.elapsed();
    tasks.shutdown().await;
    let busy = metrics.worker_total_busy_duration(0).saturating_sub(busy_before);
    let mut seen = std::mem::replace(&mut *shared.seen(), Seen::new()?);
    (seen.took, seen.busy) = (took, busy.as_secs_f64() / took.as_secs_f64().max(f64::MIN_POSITIVE));
    Ok(seen)
}

#[cfg(test)]
mod tests;
