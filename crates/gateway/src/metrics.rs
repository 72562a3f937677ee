// SPDX-License-Identifier: Apache-2.0
//! What `/metrics` shows: requests as the gateway sees them, and the node's
//! own numbers.
//!
//! Label values are route patterns, methods and classes of status codes,
//! never something that a client can invent: their number is bounded.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use foldhash::HashMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::backend::Backend;
use crate::behind::Behind;
use crate::connections::Connections;
use crate::counts::DURATION_BUCKETS_S;
use crate::deferred::now_ms;
use crate::options::Options;
use crate::tenants::Tenants;
use crate::traces::Tracer;

mod functions;
mod tenants;
use functions::{FunctionLabels, FunctionNumbers};
use tenants::TenantNumbers;

/// The media type of the exposition.
pub(crate) const METRICS_MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The route of a request that no pattern matches.
pub(crate) const UNMATCHED: &str = "unmatched";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: Cow<'static, str>,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: Cow<'static, str>,
}

/// Methods by their own names, and all others.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "other"];
/// What requests come to.
const STATUSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "gone"];
const GONE: usize = STATUSES.len() - 1;

/// What is counted of one route. Each counter is there once something was counted.
struct Route {
    name: Cow<'static, str>,
    duration: Histogram,
    requests: [[OnceLock<Counter>; STATUSES.len()]; METHODS.len()],
}

/// The registry and the handles to what changes.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram, fn() -> Histogram>,
    /// Those that requests came by: to find them so is all that a request's counting takes.
    routes: RwLock<HashMap<Cow<'static, str>, Arc<Route>>>,
    in_flight: Gauge,
    connections: Connections,
}

impl Metrics {
    /// Registers everything.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        options: &Options,
        tracer: Option<&Tracer>,
        tenants: &Arc<Tenants>,
        behind: &Behind,
    ) -> Self {
        let mut registry = Registry::with_prefix("sinew");
        let requests = Family::default();
        let new_histogram: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS_S);
        let durations = Family::new_with_constructor(new_histogram);
        let in_flight = Gauge::default();
        registry.register(
            "http_requests",
            "Requests answered, by route pattern and class of status; gone: the client left first",
            requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "From a request's head to its answer's head",
            Unit::Seconds,
            durations.clone(),
        );
        registry.register("http_requests_in_flight", "Requests that wait for an answer", in_flight.clone());
        let connections = Connections::default();
        connections.register(&mut registry);
        behind.register(&mut registry);
        if let Some(tracer) = tracer {
            tracer.register(&mut registry);
        }
        let build = [("version", options.version.clone()), ("commit", options.commit.clone())];
        registry.register("build", "The node's build", prometheus_client::metrics::info::Info::new(build));
        registry.register_collector(Box::new(FunctionNumbers::new(backend.clone(), &options.rates)));
        registry.register_collector(Box::new(TenantNumbers(tenants.clone())));
        registry.register_collector(Box::new(QueueNumbers(backend.clone())));
        registry.register_collector(Box::new(BackendNumbers(backend)));
        Self { registry, requests, durations, routes: RwLock::default(), in_flight, connections }
    }

    /// A request begins. The answer is counted when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, method: &str, route: Cow<'static, str>) -> Observed {
        self.in_flight.inc();
        let (route, method) = (self.route(route), known_method(method));
        Observed { metrics: self.clone(), route, method, status: GONE, began: Instant::now(), took: None }
    }

    fn route(&self, name: Cow<'static, str>) -> Arc<Route> {
        let known = self.routes.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        known.unwrap_or_else(|| {
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            let new = || {
                let duration = self.durations.get_or_create(&RouteLabels { route: name.clone() }).clone();
                let requests = std::array::from_fn(|_| std::array::from_fn(|_| OnceLock::new()));
                Arc::new(Route { name: name.clone(), duration, requests })
            };
            Arc::clone(routes.entry(name.clone()).or_insert_with(new))
        })
    }

    /// Where listeners count their connections.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// The exposition text.
    pub(crate) fn exposition(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// A request under way. Dropped without an answer, it counts as `gone`.
pub(crate) struct Observed {
    metrics: Arc<Metrics>,
    route: Arc<Route>,
    /// Of [`METHODS`] and [`STATUSES`].
    method: usize,
    status: usize,
    began: Instant,
    /// Until the answer's head was known.
    took: Option<Duration>,
}

impl Observed {
    /// The answer's head is known; how long it took.
    pub(crate) fn answered(&mut self, status: u16) -> Duration {
        self.status = usize::from(status / 100).clamp(1, 5) - 1;
        *self.took.insert(self.began.elapsed())
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        let took = self.took.unwrap_or_else(|| self.began.elapsed());
        self.route.duration.observe(took.as_secs_f64());
        let counter = self.route.requests[self.method][self.status].get_or_init(|| {
            let (method, status) = (METHODS[self.method], STATUSES[self.status]);
            let labels = RequestLabels { method, route: self.route.name.clone(), status };
            self.metrics.requests.get_or_create(&labels).clone()
        });
        counter.inc();
    }
}

/// A method's own place in [`METHODS`], or that of `other`: clients may invent methods.
fn known_method(method: &str) -> usize {
    METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len() - 1)
}

/// The node's own numbers, read when somebody looks.
struct BackendNumbers(Arc<dyn Backend>);

impl fmt::Debug for BackendNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackendNumbers")
    }
}

impl Collector for BackendNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for number in self.0.gauges() {
            if number.is_counter {
                let counter = ConstCounter::new(number.value);
                // The format adds the suffix itself.
                let name = number.name.strip_suffix("_total").unwrap_or(number.name);
                let metric = encoder.encode_descriptor(name, number.help, None, counter.metric_type())?;
                counter.encode(metric)?;
            } else {
                let gauge = ConstGauge::new(i64::try_from(number.value).unwrap_or(i64::MAX));
                let metric =
                    encoder.encode_descriptor(number.name, number.help, None, gauge.metric_type())?;
                gauge.encode(metric)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    function: String,
    state: &'static str,
}

/// What waits in the queue, read when somebody looks. Only functions that were
/// deployed when they were called have messages, so clients make no labels.
struct QueueNumbers(Arc<dyn Backend>);

impl fmt::Debug for QueueNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueNumbers")
    }
}

impl Collector for QueueNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(queue) = self.0.queue() else { return Ok(()) };
        let stats = queue.stats();
        let gauge = |number: usize| ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX));
        let help = "Calls that wait, run or are dead letters";
        let mut metric = encoder.encode_descriptor("queue_messages", help, None, MetricType::Gauge)?;
        for lane in &stats.lanes {
            for (state, number) in [("waiting", lane.waiting), ("running", lane.running), ("dead", lane.dead)]
            {
                let labels = QueueLabels { function: lane.lane.clone(), state };
                gauge(number).encode(metric.encode_family(&labels)?)?;
            }
        }
        let (help, unit) = ("Age of the call that is the next of those that wait", Unit::Seconds);
        let mut metric =
            encoder.encode_descriptor("queue_oldest_age", help, Some(&unit), MetricType::Gauge)?;
        for lane in &stats.lanes {
            let age_ms = lane.oldest_ms.map_or(0, |oldest| now_ms().saturating_sub(oldest));
            let labels = FunctionLabels { function: lane.lane.clone() };
            ConstGauge::new(age_ms as f64 / 1000.0).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Bytes of calls that wait, run or are dead letters";
        let mut metric = encoder.encode_descriptor("queue", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        gauge(usize::try_from(stats.bytes).unwrap_or(usize::MAX)).encode(metric)?;
        for (name, help, number) in [
            ("queue_taken", "Calls that were taken to be made later", stats.pushed),
            ("queue_duplicates", "Calls that were there already, with the same key", stats.duplicates),
            ("queue_retries", "Attempts after the first", stats.retries),
            ("queue_died", "Calls that became dead letters", stats.died),
            ("queue_expired", "Dead letters that were kept for too long", stats.expired),
        ] {
            metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(number).encode(metric)?;
        }
        Ok(())
    }
}
