// SPDX-License-Identifier: Apache-2.0
//! Spans of requests to functions, sent to a collector as OTLP says.
//!
//! A request that is sampled leaves its spans in a bounded queue when it has
//! ended; whether there is room for them is all that it waits for. One loop sends
//! them in batches, again after a while where the collector is away, and counts
//! what is lost: traces are worth less than memory.

mod otlp;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::deferred::{Sending, Unsent};
use crate::invocation::Context;
use crate::journal::Record;
use crate::usage::Usage;

/// Requests whose spans wait to be sent.
const WAITING_MAX: usize = 2048;
/// Requests in one message.
const BATCH_MAX: usize = 512;
/// Attempts for one batch.
const ATTEMPTS_MAX: u32 = 5;
/// How fast spans are sent.
const PACE: Pace = Pace { delay: Duration::from_secs(1), backoff: Duration::from_secs(1) };
/// How long requests that still end are waited for when the node stops.
const LAST: Duration = Duration::from_millis(300);
/// Bytes of a failure that are told.
const FAILURE_MAX: usize = 1024;

/// Which requests leave spans, and who they say that they are of.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceOptions {
    /// What is said of the node: `service.name` and whatever else.
    pub resource: Vec<(String, String)>,
    /// Of the requests that bring no trace, the part that begins one: 0 to 1. Of
    /// those that do, whoever began it has decided.
    pub ratio: f64,
}

/// Takes messages with spans.
pub trait Collector: Send + Sync {
    /// Sends one message, of JSON; the status of the answer.
    fn send(&self, body: Bytes) -> Sending<'_>;
}

/// Times between messages.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// How long the first of a batch waits for others.
    delay: Duration,
    /// From the first attempt to the second; it doubles.
    backoff: Duration,
}

/// What became of spans, in requests.
#[derive(Debug, Clone, Default)]
struct Counts {
    sent: Counter,
    dropped: Counter,
    failed_attempts: Counter,
}

/// Where requests leave their spans.
pub(crate) struct Tracer {
    options: TraceOptions,
    sender: mpsc::Sender<Ended>,
    /// Until there is somebody who sends them.
    receiver: Mutex<Option<mpsc::Receiver<Ended>>>,
    counts: Counts,
    pace: Pace,
}

/// A request that has ended, as its spans tell it.
#[derive(Debug)]
struct Ended {
    context: Context,
    request_id: String,
    function: String,
    version: u64,
    source: &'static str,
    status: u16,
    start: &'static str,
    begun_us: u64,
    total_us: u64,
    queued_us: u64,
    starting_us: u64,
    usage: Usage,
    failure: Option<String>,
}

impl Tracer {
    pub(crate) fn new(options: &TraceOptions) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let receiver = Mutex::new(Some(receiver));
        Self { options: options.clone(), sender, receiver, counts: Counts::default(), pace: PACE }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let Counts { sent, dropped, failed_attempts } = self.counts.clone();
        registry.register("traces_sent", "Requests whose spans the collector took", sent);
        registry.register("traces_dropped", "Requests whose spans are lost", dropped);
        registry.register(
            "traces_failed_attempts",
            "Messages with spans that the collector did not take",
            failed_attempts,
        );
    }

    /// Whether a trace that begins here is to be told. `trace` is random.
    pub(crate) fn samples(&self, trace: u128) -> bool {
        /// Of the bits of a trace's name that are random as W3C has it, those that a float holds.
        const RANDOM: u32 = f64::MANTISSA_DIGITS;
        let place = (trace & ((1 << RANDOM) - 1)) as f64 / (1_u64 << RANDOM) as f64;
        place < self.options.ratio
    }

    /// A request has ended. Never waits.
    pub(crate) fn ended(&self, context: Context, source: &'static str, record: &Record) {
        let failure = record.failure.as_deref().map(|why| {
            let line = why.lines().next().unwrap_or_default();
            line[..line.floor_char_boundary(FAILURE_MAX)].to_owned()
        });
        let ended = Ended {
            context,
            request_id: record.request_id.clone(),
            function: record.function.clone(),
            version: record.version,
            source,
            status: record.status,
            start: record.start,
            begun_us: record.begun_us,
            total_us: record.total_us,
            queued_us: record.queued_us,
            starting_us: record.starting_us,
            usage: record.usage.clone(),
            failure,
        };
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = self.sender.try_send(ended) {
            self.counts.dropped.inc();
        }
    }

    /// Sends what comes until `stop`, and what is left then.
    pub(crate) async fn send(&self, collector: &dyn Collector, stop: impl Future<Output = ()>) {
        let taken = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut receiver) = taken else { return };
        let mut stop = std::pin::pin!(stop);
        let mut outage = Outage::default();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                _ = receiver.recv_many(&mut batch, BATCH_MAX) => {}
            }
            let is_over = tokio::select! {
                biased;
                () = &mut stop => true,
                () = tokio::time::sleep(self.pace.delay), if batch.len() < BATCH_MAX => false,
                else => false,
            };
            fill(&mut receiver, &mut batch);
            if is_over {
                break;
            }
            let sent = self.send_batch(collector, &mut batch, &mut outage, ATTEMPTS_MAX);
            tokio::select! {
                biased;
                () = sent => {}
                () = &mut stop => break,
            }
        }
        while let Ok(Some(ended)) = tokio::time::timeout(LAST, receiver.recv()).await {
            batch.push(ended);
            fill(&mut receiver, &mut batch);
            if batch.len() >= BATCH_MAX {
                break;
            }
        }
        if !batch.is_empty() {
            self.send_batch(collector, &mut batch, &mut outage, 1).await;
        }
        self.counts.dropped.inc_by(receiver.len() as u64);
    }

    /// Sends a batch, or drops it; it is empty then.
    async fn send_batch(
        &self,
        collector: &dyn Collector,
        batch: &mut Vec<Ended>,
        outage: &mut Outage,
        attempts_max: u32,
    ) {
        let body = Bytes::from(otlp::message(&self.options.resource, batch));
        let requests = batch.len() as u64;
        for attempt in 1..=attempts_max {
            let (why, is_final) = match collector.send(body.clone()).await {
                Ok(200..=299) => {
                    batch.clear();
                    self.counts.sent.inc_by(requests);
                    return outage.ends();
                }
                Ok(status) => (format!("it answered {status}"), !matches!(status, 408 | 429 | 502..=504)),
                Err(Unsent::Again(why)) => (why, false),
                Err(Unsent::Never(why)) => (why, true),
            };
            self.counts.failed_attempts.inc();
            outage.begins(&why);
            if is_final {
                break;
            }
            if attempt < attempts_max {
                tokio::time::sleep(self.pace.backoff * 2_u32.pow(attempt - 1)).await;
            }
        }
        batch.clear();
        self.counts.dropped.inc_by(requests);
    }
}

/// What has come meanwhile, as far as a batch goes.
fn fill(receiver: &mut mpsc::Receiver<Ended>, batch: &mut Vec<Ended>) {
    while batch.len() < BATCH_MAX
        && let Ok(ended) = receiver.try_recv()
    {
        batch.push(ended);
    }
}

/// A time in which the collector takes nothing; it is told once.
#[derive(Debug, Default)]
struct Outage(bool);

impl Outage {
    fn begins(&mut self, why: &str) {
        if !std::mem::replace(&mut self.0, true) {
            tracing::warn!(
                why,
                "traces: the collector takes no spans; those that have no room are dropped. \
                 Is OTEL_EXPORTER_OTLP_ENDPOINT right, and does it take OTLP over HTTP?"
            );
        }
    }

    fn ends(&mut self) {
        if std::mem::take(&mut self.0) {
            tracing::info!("traces: the collector takes spans again");
        }
    }
}

#[cfg(test)]
mod tests;
