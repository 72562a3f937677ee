// SPDX-License-Identifier: Apache-2.0
//! Tenants: whose requests are counted together, and against what quota.
//!
//! A request with a key is its tenant's, and so is all that it leads to: calls of
//! functions by functions, and those that are made later. A call holds its part
//! of the quota ([`Holding`]) for as long as it may run, and gives it back
//! however it ends.

mod account;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use objects::Cost;
use serde::Serialize;

pub use account::Quota;
use account::{Account, Need, Over};
pub(crate) use account::{Evaluations, InUse, Resource};

use crate::functions::Served;
use crate::invocation::Span;
use crate::problem::Problem;

/// Tenants whose requests are counted.
const TENANTS_MAX: usize = 10_000;

/// All tenants that were heard of.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    by_name: Mutex<HashMap<String, Arc<Tenant>>>,
    /// Of calls under way, by the spans that their functions were told: for whom
    /// these call others.
    under_way: Mutex<HashMap<Span, Arc<Tenancy>>>,
}

/// One tenant.
#[derive(Debug)]
struct Tenant(Mutex<Account>);

/// For whom something is done, and within what.
#[derive(Debug)]
pub(crate) struct Tenancy {
    name: String,
    quota: Quota,
    tenant: Arc<Tenant>,
}

/// A request of a tenant; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Counting(Arc<Tenancy>);

/// A call's part of its tenant's quota; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    tenancy: Arc<Tenancy>,
    need: Need,
    /// Processor time that it took, once that is known.
    cpu: Duration,
    /// What it may be named by when it calls others.
    named: Option<(Arc<Tenants>, Span)>,
}

/// Which quota is used up, for programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct QuotaMember {
    tenant: String,
    resource: &'static str,
    /// In requests, bytes, or seconds of processor time.
    used: f64,
    allowed: f64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tenants {
    /// A tenant, within what a key of it says.
    pub(crate) fn tenancy(&self, name: &str, quota: Quota) -> Arc<Tenancy> {
        let mut tenants = lock(&self.by_name);
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(name) {
            // Those that are idle are new again when they come back.
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1);
        }
        let tenant = match tenants.get(name) {
            Some(tenant) => tenant.clone(),
            None => {
                let new = Arc::new(Tenant(Mutex::new(Account::new(quota, Instant::now()))));
                tenants.entry(name.to_owned()).or_insert(new).clone()
            }
        };
        drop(tenants);
        Arc::new(Tenancy { name: name.to_owned(), quota, tenant })
    }

    /// For whom the function runs that was told this span.
    pub(crate) fn of_caller(&self, span: Span) -> Option<Arc<Tenancy>> {
        lock(&self.under_way).get(&span).cloned()
    }

    /// What a tenant uses; `None`: nothing was heard of it.
    pub(crate) fn in_use(&self, name: &str) -> Option<InUse> {
        let tenant = lock(&self.by_name).get(name).cloned();
        tenant.map(|tenant| lock(&tenant.0).in_use())
    }

    /// What all of them use, by name.
    pub(crate) fn all_in_use(&self) -> Vec<(String, InUse)> {
        let tenants =
            lock(&self.by_name).iter().map(|(name, tenant)| (name.clone(), tenant.clone())).collect();
        let tenants: Vec<(String, Arc<Tenant>)> = tenants;
        let mut all: Vec<_> =
            tenants.into_iter().map(|(name, tenant)| (name, lock(&tenant.0).in_use())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

impl Tenancy {
    /// Whose it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Within what.
    pub(crate) fn quota(&self) -> Quota {
        self.quota
    }

    /// One more request of the tenant; it `is_new` unless it was counted when it was
    /// taken, to be made later.
    ///
    /// # Errors
    /// 429 if there are too many.
    pub(crate) fn begin(self: &Arc<Self>, is_new: bool, now: Instant) -> Result<Counting, Problem> {
        let begun = lock(&self.tenant.0).begin(self.quota, is_new, now);
        begun.map(|()| Counting(self.clone())).map_err(|over| self.refused(over, None))
    }

    /// One more call of a function, for as long as the result lives.
    ///
    /// # Errors
    /// 429 if the quota has no room for it.
    pub(crate) fn hold(self: &Arc<Self>, served: &Served, now: Instant) -> Result<Holding, Problem> {
        let need = Need {
            procedure: served.procedure,
            memory_bytes: served.memory_bytes,
            calls_at_once: served.calls_at_once.max(1),
            cpu_s: served.version_counts.cpu_mean().as_secs_f64(),
        };
        let taken = lock(&self.tenant.0).take(self.quota, &need, now);
        taken.map_err(|over| self.refused(over, Some(served)))?;
        Ok(Holding { tenancy: self.clone(), need, cpu: Duration::ZERO, named: None })
    }

    /// An evaluation of the tenant has ended, which cost so much.
    pub(crate) fn evaluated(&self, cost: Cost, uncounted: Duration, price: Option<f64>) {
        lock(&self.tenant.0).evaluated(cost, uncounted, price);
    }

    fn refused(&self, over: Over, served: Option<&Served>) -> Problem {
        let Over { resource, used, allowed, retry_after } = over;
        let name = &self.name;
        let detail = match resource {
            Resource::Rate => format!("the tenant {name} has {allowed} requests a second"),
            Resource::Concurrency => {
                format!("the tenant {name} has {allowed} requests at a time, which are under way")
            }
            Resource::Memory => {
                let with =
                    served.map_or(String::new(), |served| format!(" with one more of {}", served.name));
                format!(
                    "the instances that serve the tenant {name} would have {} MiB of memory{with}; its quota is {} MiB",
                    mib(used),
                    mib(allowed)
                )
            }
            Resource::Cpu => format!(
                "the tenant {name} has used {used:.1} s of processor time that its quota of {:.3} processors does not \
                 cover yet; {allowed:.1} s may be",
                self.quota.cpus()
            ),
        };
        let never_fits = served.is_some_and(|served| {
            resource == Resource::Memory && served.memory_bytes > self.quota.memory_bytes
        });
        let suggestion = match never_fits {
            true => {
                "the function needs more than all of the quota: lower memory in sinew.toml, or make a key with more `--memory`"
            }
            false => "try again after the number of seconds in Retry-After",
        };
        let seconds = retry_after.as_secs_f64().ceil().min(f64::from(u32::MAX)) as u32;
        let title = "The tenant has used up its share";
        let member = QuotaMember { tenant: name.clone(), resource: resource.name(), used, allowed };
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "over-quota", title, "gateway", detail)
            .header(RETRY_AFTER, HeaderValue::from(seconds))
            .suggest(suggestion)
            .of_quota(member)
    }
}

fn mib(bytes: f64) -> f64 {
    const BYTES_PER_MIB: f64 = (1 << 20) as f64;
    (bytes / BYTES_PER_MIB).ceil()
}

impl Drop for Counting {
    fn drop(&mut self) {
        lock(&self.0.tenant.0).end();
    }
}

impl Holding {
    /// Whose it is.
    pub(crate) fn tenant(&self) -> &str {
        &self.tenancy.name
    }

    /// What its function calls is for the same tenant.
    pub(crate) fn is_named(&mut self, tenants: &Arc<Tenants>, span: Span) {
        lock(&tenants.under_way).insert(span, self.tenancy.clone());
        self.named = Some((tenants.clone(), span));
    }

    /// It took so much processor time.
    pub(crate) fn took(&mut self, cpu: Duration) {
        self.cpu = cpu;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Some((tenants, span)) = self.named.take() {
            lock(&tenants.under_way).remove(&span);
        }
        lock(&self.tenancy.tenant.0).give(&self.need, self.cpu);
    }
}
