// SPDX-License-Identifier: Apache-2.0
//! Numbers about connections. Listeners are not the gateway's, but what
//! `/metrics` shows of them is: whoever accepts connections counts them here.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutLabels {
    reason: &'static str,
}

/// Counters that all listeners of a gateway share; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Connections {
    open: Gauge,
    full: Counter,
    cut: Family<CutLabels, Counter>,
}

impl Connections {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("http_connections", "Connections that are open", self.open.clone());
        registry.register(
            "http_connections_full",
            "How often a listener had as many connections as it may have",
            self.full.clone(),
        );
        registry.register(
            "http_connections_cut",
            "Connections that were ended because their client kept us waiting",
            self.cut.clone(),
        );
    }

    /// A connection is accepted; it is open until the guard is dropped.
    #[must_use]
    pub fn opened(&self) -> Open {
        self.open.inc();
        Open(self.open.clone())
    }

    /// A listener has no place for further connections.
    pub fn full(&self) {
        self.full.inc();
    }

    /// A connection is ended for a reason from a fixed set.
    pub fn cut(&self, reason: &'static str) {
        self.cut.get_or_create(&CutLabels { reason }).inc();
    }

    /// Connections that are open now.
    pub fn open(&self) -> i64 {
        self.open.get()
    }

    /// How often a listener was full.
    pub fn times_full(&self) -> u64 {
        self.full.get()
    }
}

/// One connection that is open.
#[derive(Debug)]
pub struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
