// SPDX-License-Identifier: Apache-2.0
//! What one tenant uses, against what it may use. No clock is read here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use objects::{Cost, Handle};
use serde::{Deserialize, Serialize};

/// Processor time may be used in advance, for so many seconds of the quota.
const CPU_BURST_S: f64 = 10.0;
const MILLI: f64 = 1000.0;

/// What a tenant may use; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Requests in a second.
    pub requests_per_second: u32,
    /// Requests at one time.
    pub concurrency: u32,
    /// Memory of the instances that its calls take up, in bytes.
    pub memory_bytes: u64,
    /// Processors, in thousandths: processor time in the long run.
    pub cpu_milli: u32,
}

impl Quota {
    /// Seconds of processor time in a second.
    pub(super) fn cpus(self) -> f64 {
        f64::from(self.cpu_milli) / MILLI
    }
}

/// What there is a quota of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Rate,
    Concurrency,
    Memory,
    Cpu,
}

impl Resource {
    pub(crate) const ALL: [Self; 4] = [Self::Rate, Self::Concurrency, Self::Memory, Self::Cpu];

    /// For programs, as keys have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rate => "requests_per_second",
            Self::Concurrency => "concurrency",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// That a quota is used up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Over {
    pub(super) resource: Resource,
    /// What would be used, in requests, bytes or seconds of processor time.
    pub(super) used: f64,
    pub(super) allowed: f64,
    /// When there may be room.
    pub(super) retry_after: Duration,
}

impl Over {
    fn of(resource: Resource, used: f64, allowed: f64) -> Self {
        Self { resource, used, allowed, retry_after: Duration::from_secs(1) }
    }
}

/// What a call needs of its tenant's quota.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Calls of one procedure share instances.
    pub(super) procedure: Handle,
    /// Of one instance.
    pub(super) memory_bytes: u64,
    /// Calls that one instance serves at once.
    pub(super) calls_at_once: u32,
    /// Processor time that such calls take on the average: charged at once, so that
    /// many that begin together do not all count as nothing.
    pub(super) cpu_s: f64,
}

impl Need {
    /// Calls of one kind share instances.
    fn kind(&self) -> (Handle, u64, u32) {
        (self.procedure, self.memory_bytes, self.calls_at_once)
    }
}

/// What a tenant uses now, and has used.
#[derive(Debug)]
pub(super) struct Account {
    /// Requests that may be made now, at the time `since`.
    requests_left: f64,
    since: Instant,
    running: u32,
    /// Calls under way, by procedure.
    /// By what is the same for all of them: versions of one code may have more memory.
    calls: HashMap<(Handle, u64, u32), u64>,
    memory_bytes: u64,
    /// Processor time that was used and is not covered by the quota yet.
    cpu_s: f64,
    /// Up to when the quota has covered it.
    covered: Instant,
    sums: Sums,
}

/// What a tenant did since the node started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sums {
    pub(crate) calls: u64,
    pub(crate) cpu_s: f64,
    pub(crate) evaluations: Evaluations,
    /// In the order of [`Resource::ALL`].
    pub(crate) refused: [u64; 4],
}

/// What a tenant's evaluations came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Evaluations {
    pub(crate) ended: u64,
    pub(crate) cost: Cost,
    /// Processor time of what counts no fuel.
    pub(crate) uncounted_s: f64,
    /// In units of the currency; 0 without rates.
    pub(crate) price: f64,
}

/// What a tenant uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct InUse {
    pub(crate) requests: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) sums: Sums,
}

impl Account {
    pub(super) fn new(quota: Quota, now: Instant) -> Self {
        Self {
            requests_left: f64::from(quota.requests_per_second),
            since: now,
            running: 0,
            calls: HashMap::new(),
            memory_bytes: 0,
            cpu_s: 0.0,
            covered: now,
            sums: Sums::default(),
        }
    }

    /// One more request; it `is_new` unless it was counted when it was taken.
    pub(super) fn begin(&mut self, quota: Quota, is_new: bool, now: Instant) -> Result<(), Over> {
        if quota.concurrency > 0 && self.running >= quota.concurrency {
            let (used, allowed) = (f64::from(self.running), f64::from(quota.concurrency));
            return self.refuse(Over::of(Resource::Concurrency, used, allowed));
        }
        if quota.requests_per_second > 0 && is_new {
            let rate = f64::from(quota.requests_per_second);
            let fresh = now.saturating_duration_since(self.since).as_secs_f64() * rate;
            self.requests_left = (self.requests_left + fresh).min(rate);
            self.since = now;
            if self.requests_left < 1.0 {
                return self.refuse(Over::of(Resource::Rate, rate - self.requests_left, rate));
            }
            self.requests_left -= 1.0;
        }
        self.running += 1;
        Ok(())
    }

    pub(super) fn end(&mut self) {
        self.running -= 1;
    }

    /// One more call of a function, whoever makes it for the tenant.
    pub(super) fn take(&mut self, quota: Quota, need: &Need, now: Instant) -> Result<(), Over> {
        if quota.cpu_milli > 0 {
            let cpus = quota.cpus();
            let covered = now.saturating_duration_since(self.covered).as_secs_f64() * cpus;
            self.cpu_s = (self.cpu_s - covered).max(0.0);
            self.covered = now;
            let allowed = cpus * CPU_BURST_S;
            if self.cpu_s >= allowed {
                let retry_after = Duration::from_secs_f64((self.cpu_s - allowed) / cpus);
                let over = Over::of(Resource::Cpu, self.cpu_s, allowed);
                return self.refuse(Over { retry_after: retry_after.max(over.retry_after), ..over });
            }
        }
        let calls = self.calls.get(&need.kind()).copied().unwrap_or(0);
        // The calls of one function fill its instances one after the other.
        let more = if calls.is_multiple_of(u64::from(need.calls_at_once)) { need.memory_bytes } else { 0 };
        let used = self.memory_bytes.saturating_add(more);
        if quota.memory_bytes > 0 && used > quota.memory_bytes {
            return self.refuse(Over::of(Resource::Memory, used as f64, quota.memory_bytes as f64));
        }
        self.memory_bytes = used;
        self.calls.insert(need.kind(), calls + 1);
        self.cpu_s += need.cpu_s;
        self.sums.calls += 1;
        Ok(())
    }

    /// A call has ended, which took so much processor time.
    pub(super) fn give(&mut self, need: &Need, cpu: Duration) {
        let left = self.calls.get(&need.kind()).map_or(0, |calls| calls - 1);
        if left.is_multiple_of(u64::from(need.calls_at_once)) {
            self.memory_bytes = self.memory_bytes.saturating_sub(need.memory_bytes);
        }
        match left {
            0 => _ = self.calls.remove(&need.kind()),
            left => _ = self.calls.insert(need.kind(), left),
        }
        let cpu_s = cpu.as_secs_f64();
        self.cpu_s = (self.cpu_s + cpu_s - need.cpu_s).max(0.0);
        self.sums.cpu_s += cpu_s;
    }

    /// An evaluation has ended.
    pub(super) fn evaluated(&mut self, cost: Cost, uncounted: Duration, price: Option<f64>) {
        let sums = &mut self.sums.evaluations;
        sums.ended += 1;
        sums.cost = sums.cost.plus(cost);
        sums.uncounted_s += uncounted.as_secs_f64();
        sums.price += price.unwrap_or_default();
    }

    fn refuse(&mut self, over: Over) -> Result<(), Over> {
        self.sums.refused[over.resource as usize] += 1;
        Err(over)
    }

    pub(super) fn in_use(&self) -> InUse {
        InUse { requests: self.running, memory_bytes: self.memory_bytes, sums: self.sums }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn need(name: &str, calls_at_once: u32) -> Need {
        Need { procedure: Handle::blob(name.as_bytes()), memory_bytes: 100, calls_at_once, cpu_s: 0.0 }
    }

    #[test]
    fn versions_of_one_code_with_other_memory_are_counted_apart() {
        let now = Instant::now();
        let mut account = Account::new(Quota::default(), now);
        let (small, large) = (need("f", 2), Need { memory_bytes: 1000, ..need("f", 2) });
        for need in [&large, &small, &small] {
            account.take(Quota::default(), need, now).unwrap();
        }
        assert_eq!(account.in_use().memory_bytes, 1100);
        for need in [&large, &small, &small] {
            account.give(need, Duration::ZERO);
        }
        assert_eq!((account.in_use().memory_bytes, account.calls.len()), (0, 0));
    }

    #[test]
    fn a_tenant_has_so_many_requests_at_a_time_and_a_second() {
        let now = Instant::now();
        let two = Quota { concurrency: 2, ..Quota::default() };
        let mut account = Account::new(two, now);
        assert!(account.begin(two, true, now).is_ok() && account.begin(two, true, now).is_ok());
        let over = account.begin(two, true, now).unwrap_err();
        assert_eq!((over.resource, over.used, over.allowed), (Resource::Concurrency, 2.0, 2.0));
        account.end();
        assert!(account.begin(two, false, now).is_ok());
        let quick = Quota { requests_per_second: 3, ..Quota::default() };
        let mut account = Account::new(quick, now);
        let mut begun = |later: u64| {
            let now = now + Duration::from_millis(later);
            (0..9).filter(|_| account.begin(quick, true, now).is_ok()).count()
        };
        assert_eq!((begun(0), begun(0), begun(1100), begun(1500), begun(9000)), (3, 0, 3, 1, 3));
        assert!(account.begin(quick, false, now).is_ok(), "it was counted when it was taken");
    }

    #[test]
    fn memory_is_that_of_the_instances_which_calls_take_up_and_all_of_it_is_given_back() {
        let now = Instant::now();
        let quota = Quota { memory_bytes: 300, ..Quota::default() };
        let mut account = Account::new(quota, now);
        let (alone, shared) = (need("alone", 1), need("shared", 4));
        for _ in 0..2 {
            account.take(quota, &alone, now).unwrap();
        }
        for _ in 0..4 {
            account.take(quota, &shared, now).unwrap();
        }
        assert_eq!(account.in_use().memory_bytes, 300, "four calls have one instance");
        let over = account.take(quota, &shared, now).unwrap_err();
        assert_eq!((over.resource, over.used, over.allowed), (Resource::Memory, 400.0, 300.0));
        account.give(&alone, Duration::ZERO);
        account.take(quota, &shared, now).unwrap();
        assert!(account.take(quota, &alone, now).is_err());
        for _ in 0..5 {
            account.give(&shared, Duration::ZERO);
        }
        account.give(&alone, Duration::ZERO);
        assert_eq!((account.in_use().memory_bytes, account.calls.len()), (0, 0));
        let sums = account.in_use().sums;
        assert_eq!((sums.calls, sums.refused), (7, [0, 0, 2, 0]));
    }

    #[test]
    fn processor_time_is_covered_by_the_quota_as_time_goes_by() {
        let begun = Instant::now();
        let at = |s: f64| begun + Duration::from_secs_f64(s);
        let quota = Quota { cpu_milli: 500, ..Quota::default() };
        let mut account = Account::new(quota, begun);
        let each = need("a", 1);
        account.take(quota, &each, at(0.0)).unwrap();
        account.give(&each, Duration::from_secs(8));
        let over = account.take(quota, &each, at(2.0)).unwrap_err();
        assert_eq!((over.resource, over.used, over.allowed), (Resource::Cpu, 7.0, 5.0));
        assert_eq!(over.retry_after, Duration::from_secs(4));
        assert!(account.take(quota, &each, at(5.9)).is_err());
        account.take(quota, &each, at(6.1)).unwrap();
        account.give(&each, Duration::ZERO);
        // Who was away has no more than the burst.
        account.take(quota, &each, at(1e6)).unwrap();
        account.give(&each, Duration::from_millis(5100));
        assert!(account.take(quota, &each, at(1e6)).is_err());
        assert_eq!(account.in_use().sums.cpu_s, 13.1);
    }

    #[test]
    fn calls_that_begin_together_are_charged_what_such_calls_take() {
        let now = Instant::now();
        let quota = Quota { cpu_milli: 1000, ..Quota::default() };
        let mut account = Account::new(quota, now);
        let long = Need { cpu_s: 4.0, ..need("a", 1) };
        let begun = (0..100).filter(|_| account.take(quota, &long, now).is_ok()).count();
        assert_eq!(begun, 3);
        for _ in 0..3 {
            account.give(&long, Duration::from_secs(1));
        }
        assert!((account.cpu_s - 3.0).abs() < 1e-9, "what it took is what counts in the end");
    }
}
