// SPDX-License-Identifier: Apache-2.0
//! What tenants use. Their names are those of keys, which an operator made, so
//! that no client makes labels.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::tenants::{Evaluations, InUse, Resource, Tenants};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabels {
    tenant: String,
    quota: &'static str,
}

/// The tenants' numbers.
#[derive(Debug)]
pub(super) struct TenantNumbers(pub(super) Arc<Tenants>);

impl Collector for TenantNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.all_in_use();
        if all.is_empty() {
            return Ok(());
        }
        let labels = |name: &str| TenantLabels { tenant: name.to_owned() };
        let help = "Memory of the instances that a tenant's calls take up";
        let mut metric =
            encoder.encode_descriptor("tenant_memory", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        for (name, in_use) in &all {
            let bytes = i64::try_from(in_use.memory_bytes).unwrap_or(i64::MAX);
            ConstGauge::new(bytes).encode(metric.encode_family(&labels(name))?)?;
        }
        let help = "Calls of functions that a tenant's requests led to";
        let mut metric = encoder.encode_descriptor("tenant_calls", help, None, MetricType::Counter)?;
        for (name, in_use) in &all {
            ConstCounter::new(in_use.sums.calls).encode(metric.encode_family(&labels(name))?)?;
        }
        let help = "Processor time of a tenant's calls";
        let mut metric =
            encoder.encode_descriptor("tenant_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (name, in_use) in &all {
            ConstCounter::new(in_use.sums.cpu_s).encode(metric.encode_family(&labels(name))?)?;
        }
        encode_evaluations(&mut encoder, &all)?;
        let help = "What was refused because a tenant's quota was used up";
        let mut metric = encoder.encode_descriptor("tenant_refused", help, None, MetricType::Counter)?;
        for (name, in_use) in &all {
            for (resource, count) in Resource::ALL.into_iter().zip(in_use.sums.refused) {
                let labels = QuotaLabels { tenant: name.clone(), quota: resource.name() };
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// What the tenants' evaluations came to.
fn encode_evaluations(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[(String, InUse)],
) -> Result<(), fmt::Error> {
    type Number = fn(&Evaluations) -> f64;
    let numbers: [(&str, &str, Number); 6] = [
        ("evaluations", "Evaluations of a tenant that have ended", |of| of.ended as f64),
        ("evaluation_inputs_bytes", "Bytes of the inputs of what ran for them", |of| {
            of.cost.inputs_bytes as f64
        }),
        ("evaluation_reserved_bytes", "Bytes of memory that were reserved for it", |of| {
            of.cost.reserved_bytes as f64
        }),
        ("evaluation_fuel", "Fuel of it, where it is counted", |of| of.cost.fuel as f64),
        ("evaluation_cpu_seconds", "Processor time of what counts no fuel", |of| of.uncounted_s),
        ("evaluation_price", "Its price", |of| of.price),
    ];
    for (name, help, number) in numbers {
        let name = format!("tenant_{name}");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for (tenant, in_use) in all {
            let labels = TenantLabels { tenant: tenant.clone() };
            ConstCounter::new(number(&in_use.sums.evaluations)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
