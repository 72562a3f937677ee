// SPDX-License-Identifier: Apache-2.0
//! What the functions that serve now have served and used, read when somebody
//! looks. A removed one is shown no more, so that only deployments make labels.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::backend::Backend;
use crate::counts::{DURATION_BUCKETS_S, Times, Total};
use crate::functions::{Functions, Served};
use crate::usage::Rates;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FunctionLabels {
    pub(super) function: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    function: String,
    start: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    function: String,
    r#type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    function: String,
    version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EgressLabels {
    function: String,
    version: u64,
    what: &'static str,
}

/// The functions' numbers.
pub(super) struct FunctionNumbers {
    backend: Arc<dyn Backend>,
    has_prices: bool,
}

impl FunctionNumbers {
    pub(super) fn new(backend: Arc<dyn Backend>, rates: &Rates) -> Self {
        Self { backend, has_prices: rates.is_any() }
    }
}

impl fmt::Debug for FunctionNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FunctionNumbers")
    }
}

impl Collector for FunctionNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(functions) = self.backend.functions() else { return Ok(()) };
        let all = functions.all();
        if all.is_empty() {
            return Ok(());
        }
        let totals: Totals = all
            .iter()
            .map(|served| (FunctionLabels { function: served.name.clone() }, served.counts.total()))
            .collect();
        encode_times(&totals, &mut encoder)?;
        encode_starts(&totals, &mut encoder)?;
        encode_sums(&totals, self.has_prices, &mut encoder)?;
        encode_pickled(&totals, &mut encoder)?;
        encode_versions(functions, &mut encoder)?;
        encode_egress(functions, &mut encoder)
    }
}

type Totals = Vec<(FunctionLabels, Total)>;

/// Histograms of times.
fn encode_times(totals: &Totals, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    type Pick = fn(&Total) -> &Times;
    let histograms: [(&str, &str, Pick); 4] = [
        ("function_duration", "From a request's arrival at a function to its answer", |total| {
            &total.durations
        }),
        ("function_queue_duration", "Waits of requests for their turn", |total| &total.queued),
        ("function_start_duration", "Waits of requests for an instance to be made", |total| &total.starting),
        ("function_cpu", "Processor time of requests", |total| &total.cpu),
    ];
    for (name, help, pick) in histograms {
        let mut metric =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, total) in totals {
            let times = pick(total);
            let ends = DURATION_BUCKETS_S.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = ends.zip(times.buckets).collect();
            let mut one = metric.encode_family(labels)?;
            one.encode_histogram::<FunctionLabels>(times.seconds, times.count, &buckets, None)?;
        }
    }
    Ok(())
}

fn encode_starts(totals: &Totals, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let help = "Requests to a function, by how they came to run";
    let mut metric = encoder.encode_descriptor("function_starts", help, None, MetricType::Counter)?;
    for (FunctionLabels { function }, total) in totals {
        for (start, count) in &total.starts {
            let labels = StartLabels { function: function.clone(), start };
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Of workflows, what could not be mapped. Each of them has a bounded number of types.
fn encode_pickled(totals: &Totals, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let help = "Objects of results of a workflow's steps that could not be mapped and were pickled, by type";
    let mut metric =
        encoder.encode_descriptor("function_pickled_objects", help, None, MetricType::Counter)?;
    for (FunctionLabels { function }, total) in totals {
        for (name, count) in &total.pickled {
            let labels = TypeLabels { function: function.clone(), r#type: name.clone() };
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// What requests used together, and what that costs.
fn encode_sums(
    totals: &Totals,
    has_prices: bool,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    type Sum = fn(&Total) -> f64;
    let byte_seconds = Unit::Other("byte_seconds".to_owned());
    let sums: [(&str, &str, Option<&Unit>, Sum); 8] = [
        (
            "function_failures",
            "Requests to a function that had no answer of its own, or an error",
            None,
            |total| total.failures as f64,
        ),
        (
            "function_cpu_between",
            "Processor time of a function's instances that belongs to no request",
            Some(&Unit::Seconds),
            |total| total.cpu_between_s,
        ),
        (
            "function_held",
            "Time in which requests held instances, without waiting for other functions",
            Some(&Unit::Seconds),
            |total| total.held_s,
        ),
        (
            "function_memory",
            "Memory that instances may have, for as long as requests held them",
            Some(&byte_seconds),
            |total| total.memory_byte_s,
        ),
        ("function_fuel", "Instructions of codelets, where they are counted", None, |total| {
            total.fuel as f64
        }),
        ("function_received", "Bodies of requests", Some(&Unit::Bytes), |total| total.received_bytes as f64),
        ("function_sent", "Bodies of answers", Some(&Unit::Bytes), |total| total.sent_bytes as f64),
        ("function_price", "Price of requests, by the node's rates", None, |total| total.price),
    ];
    let shown = sums.into_iter().filter(|(name, ..)| has_prices || *name != "function_price");
    for (name, help, unit, sum) in shown {
        let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (labels, total) in totals {
            ConstCounter::new(sum(total)).encode(metric.encode_family(labels)?)?;
        }
    }
    let help = "The most memory that an instance of a function had";
    let mut metric =
        encoder.encode_descriptor("function_memory_peak", help, Some(&Unit::Bytes), MetricType::Gauge)?;
    for (labels, total) in totals {
        let peak = i64::try_from(total.memory_peak_bytes).unwrap_or(i64::MAX);
        ConstGauge::new(peak).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

/// Requests by version, of those that had any: a canary is told from the rest.
fn encode_versions(functions: &dyn Functions, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let versions = functions.versions();
    let counted = versions.iter().map(|served| {
        let labels = VersionLabels { function: served.name.clone(), version: served.version };
        (labels, served.version_counts.so_far())
    });
    let counted: Vec<(VersionLabels, (u64, u64))> =
        counted.filter(|(_, (requests, _))| *requests > 0).collect();
    let help = "Requests to a version of a function";
    let mut metric =
        encoder.encode_descriptor("function_version_requests", help, None, MetricType::Counter)?;
    for (labels, (requests, _)) in &counted {
        ConstCounter::new(*requests).encode(metric.encode_family(labels)?)?;
    }
    let help = "Requests to a version of a function that had no answer of its own, or an error";
    let mut metric =
        encoder.encode_descriptor("function_version_failures", help, None, MetricType::Counter)?;
    for (labels, (_, failures)) in &counted {
        ConstCounter::new(*failures).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

/// What versions did outside, of those that may reach hosts.
fn encode_egress(functions: &dyn Functions, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let versions = functions.versions();
    let counted = versions.iter().filter_map(|served| Some((served, functions.egress(served)?)));
    let counted: Vec<_> = counted.collect();
    let labels =
        |served: &Served, what| EgressLabels { function: served.name.clone(), version: served.version, what };
    let help = "Connections of functions to hosts";
    let mut metric = encoder.encode_descriptor("function_egress", help, None, MetricType::Counter)?;
    for (served, counts) in &counted {
        let outcomes =
            [("connected", counts.connected), ("refused", counts.refused), ("failed", counts.failed)];
        for (what, count) in outcomes {
            ConstCounter::new(count).encode(metric.encode_family(&labels(served, what))?)?;
        }
    }
    let help = "What functions sent to hosts, and were sent";
    let mut metric =
        encoder.encode_descriptor("function_egress", help, Some(&Unit::Bytes), MetricType::Counter)?;
    for (served, counts) in &counted {
        for (what, count) in [("sent", counts.sent_bytes), ("received", counts.received_bytes)] {
            ConstCounter::new(count).encode(metric.encode_family(&labels(served, what))?)?;
        }
    }
    Ok(())
}
