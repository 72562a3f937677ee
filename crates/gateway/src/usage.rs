// SPDX-License-Identifier: Apache-2.0
//! What a request took, and what that costs by the rates of the node.
//!
//! The price follows what the node measured itself, never what a guest says, and
//! has no time in it in which the platform waits: for a turn, for an instance,
//! for the functions that are called, for code or data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const BYTES_PER_GIB: f64 = (1_u64 << 30) as f64;
const BYTES_PER_GB: f64 = 1e9;
/// Prices are told to this part of the currency.
const PARTS: f64 = 1e12;

/// What things cost, in units of `currency`. A rate of 0 is none; where all are,
/// no price is told.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// As people write it; only shown.
    pub currency: String,
    /// Of a request, a nested one too.
    pub per_request: f64,
    /// Of a second of a processor.
    pub per_cpu_second: f64,
    /// Of a GiB of memory that an instance may have, for a second in which it is held.
    pub per_gib_second: f64,
    /// Of 10⁹ bytes of answers.
    pub per_gb_sent: f64,
}

impl Rates {
    /// Whether anything costs anything.
    pub(crate) fn is_any(&self) -> bool {
        self.all().into_iter().any(|rate| rate > 0.0)
    }

    fn all(&self) -> [f64; 4] {
        [self.per_request, self.per_cpu_second, self.per_gib_second, self.per_gb_sent]
    }

    /// Whether they can be reckoned with.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check(&self) -> Result<(), String> {
        const RATE_MAX: f64 = 1e9;
        const CURRENCY_LEN_MAX: usize = 16;
        if !self.all().into_iter().all(|rate| (0.0..=RATE_MAX).contains(&rate)) {
            return Err(format!("a rate is a number from 0 to {RATE_MAX}"));
        }
        if self.currency.len() > CURRENCY_LEN_MAX || self.currency.chars().any(char::is_control) {
            return Err(format!("a currency is a word of at most {CURRENCY_LEN_MAX} bytes, like EUR"));
        }
        Ok(())
    }
}

/// What a call in an instance, or an evaluation, took of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// From when an instance came to it until its answer.
    pub running: Duration,
    /// Of that, the time in which calls of other functions by it were under way.
    pub waiting: Duration,
    /// Its share of the instance's time, without waiting.
    pub held: Duration,
    /// Processor time, or its share of the instance's; `None` where nobody counts.
    pub cpu: Option<Duration>,
    /// The processor time is its own, and no share.
    pub is_cpu_own: bool,
    /// Processor time of the instance between calls, of no call's.
    pub cpu_between: Duration,
    /// The most memory that the instance had so far; `None` where nobody counts.
    pub memory_peak_bytes: Option<u64>,
    /// Instructions of codelets, where they are counted.
    pub fuel: u64,
}

/// What a request took, as its record tells it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Usage {
    pub(crate) running_us: u64,
    pub(crate) waiting_us: u64,
    /// What memory is paid for.
    pub(crate) held_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us: Option<u64>,
    /// `own`, or a `share` of what the instance used meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_is: Option<&'static str>,
    /// What an instance may have at most.
    pub(crate) memory_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fuel: Option<u64>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) price: Option<f64>,
}

impl Usage {
    /// Of a request that an instance came to, or that had an answer without one.
    pub(crate) fn of(spent: &Spent, memory_bytes: u64, bodies: (u64, u64), rates: &Rates) -> Self {
        let (received_bytes, sent_bytes) = bodies;
        let cpu_is = if spent.is_cpu_own { "own" } else { "share" };
        Self {
            running_us: micros(spent.running),
            waiting_us: micros(spent.waiting),
            held_us: micros(spent.held),
            cpu_us: spent.cpu.map(micros),
            cpu_is: spent.cpu.map(|_| cpu_is),
            memory_bytes,
            memory_peak_bytes: spent.memory_peak_bytes,
            fuel: Some(spent.fuel).filter(|fuel| *fuel > 0),
            received_bytes,
            sent_bytes,
            price: rates.is_any().then(|| price(spent, memory_bytes, sent_bytes, rates)),
        }
    }

    /// Of one that nothing ran for, through no fault of its own.
    pub(crate) fn none(memory_bytes: u64, received_bytes: u64, rates: &Rates) -> Self {
        Self { memory_bytes, received_bytes, price: rates.is_any().then_some(0.0), ..Self::default() }
    }
}

fn price(spent: &Spent, memory_bytes: u64, sent_bytes: u64, rates: &Rates) -> f64 {
    let memory_gib = memory_bytes as f64 / BYTES_PER_GIB;
    let price = rates.per_request
        + rates.per_cpu_second * spent.cpu.unwrap_or_default().as_secs_f64()
        + rates.per_gib_second * memory_gib * spent.held.as_secs_f64()
        + rates.per_gb_sent * sent_bytes as f64 / BYTES_PER_GB;
    (price * PARTS).round() / PARTS
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> Rates {
        Rates {
            currency: "EUR".to_owned(),
            per_request: 1e-6,
            per_cpu_second: 0.02,
            per_gib_second: 0.01,
            per_gb_sent: 0.1,
        }
    }

    #[test]
    fn waiting_costs_nothing_and_each_rate_counts_once() {
        let spent = Spent {
            running: Duration::from_secs(9),
            waiting: Duration::from_secs(7),
            held: Duration::from_secs(2),
            cpu: Some(Duration::from_millis(500)),
            ..Spent::default()
        };
        let usage = Usage::of(&spent, 512 << 20, (1, 2_000_000), &rates());
        assert_eq!(usage.price, Some(0.020_201));
        assert_eq!((usage.cpu_is, usage.held_us, usage.sent_bytes), (Some("share"), 2_000_000, 2_000_000));
        assert_eq!(Usage::of(&spent, 512 << 20, (1, 2), &Rates::default()).price, None, "none is told");
        assert_eq!(Usage::none(1, 2, &rates()).price, Some(0.0));
    }

    #[test]
    fn a_brief_call_has_a_price_too() {
        let spent = Spent {
            held: Duration::from_micros(40),
            cpu: Some(Duration::from_micros(30)),
            ..Spent::default()
        };
        let rates = Rates { per_request: 0.0, ..rates() };
        assert_eq!(Usage::of(&spent, 256 << 20, (0, 0), &rates).price, Some(7e-7));
    }

    #[test]
    fn rates_that_are_none_are_refused() {
        assert_eq!(rates().check(), Ok(()));
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e10] {
            assert!(Rates { per_gb_sent: wrong, ..rates() }.check().is_err(), "{wrong}");
        }
        assert!(Rates { currency: "a\nb".to_owned(), ..rates() }.check().is_err());
    }
}
