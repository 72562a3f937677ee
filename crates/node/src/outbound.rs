// SPDX-License-Identifier: Apache-2.0
//! Functions' connections to the outside: `io` carries them, and here is
//! counted whose they are.

use std::collections::HashMap;
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gateway::EgressCounts;
use io::{AllowList, Egress, EgressOptions, Traffic};
use objects::Handle;
use parking_lot::Mutex;
use sandbox::process;

/// Procedures whose traffic is counted, at most; of more, nothing is counted.
const COUNTED_MAX: usize = 4096;

/// The egress of a node. It is begun when the first function needs it.
#[derive(Default)]
pub(crate) struct Outbound {
    egress: Mutex<Option<Arc<Egress>>>,
    traffic: Mutex<HashMap<Handle, Arc<Traffic>>>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbound")
    }
}

/// What carries the connections of one instance.
struct Outlet {
    outlet: io::Outlet,
    // After the outlet: the thread ends with the last of its proxies.
    _egress: Arc<Egress>,
}

impl Outbound {
    /// What functions of this procedure did outside; `None` if nothing could
    /// have been done.
    pub(crate) fn counts(&self, procedure: Handle) -> Option<EgressCounts> {
        let traffic = self.traffic.lock().get(&procedure).cloned()?;
        let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Some(EgressCounts {
            connected: number(&traffic.connected),
            refused: number(&traffic.refused),
            failed: number(&traffic.failed),
            sent_bytes: number(&traffic.sent_bytes),
            received_bytes: number(&traffic.received_bytes),
        })
    }

    fn egress(&self) -> Result<Arc<Egress>, String> {
        let mut egress = self.egress.lock();
        if let Some(egress) = &*egress {
            return Ok(Arc::clone(egress));
        }
        let begun = Egress::new(EgressOptions::default()).map_err(|error| format!("no thread: {error}"))?;
        Ok(Arc::clone(egress.insert(Arc::new(begun))))
    }

    fn traffic(&self, procedure: Handle) -> Arc<Traffic> {
        let mut all = self.traffic.lock();
        if all.len() >= COUNTED_MAX && !all.contains_key(&procedure) {
            return Arc::default();
        }
        Arc::clone(all.entry(procedure).or_default())
    }
}

/// Reads the hosts that a function may reach.
pub(crate) fn allow_list(hosts: &[String]) -> Result<AllowList, String> {
    AllowList::read(hosts.iter().map(String::as_str)).map_err(|error| error.to_string())
}

/// Whether a function may name this as a host that it reaches.
///
/// # Errors
/// Why not, for people.
pub fn check_host(host: &str) -> Result<(), String> {
    // A space separates them where they are kept.
    if host.contains(' ') {
        return Err(format!("`{}` is more than one host", host.escape_debug()));
    }
    AllowList::read([host]).map(drop).map_err(|error| error.to_string())
}

impl process::Outbound for Outbound {
    fn open(
        &self,
        procedure: Handle,
        allowed: &[String],
        listener: TcpListener,
    ) -> Result<Box<dyn process::Outlet>, String> {
        let allowed = allow_list(allowed)?;
        let egress = self.egress()?;
        let outlet = egress.open(listener, allowed, self.traffic(procedure));
        let outlet = outlet.map_err(|error| format!("its listener: {error}"))?;
        Ok(Box::new(Outlet { outlet, _egress: egress }))
    }
}

impl process::Outlet for Outlet {
    fn take_notes(&self) -> Vec<String> {
        self.outlet.take_notes()
    }
}
