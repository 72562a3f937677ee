// SPDX-License-Identifier: Apache-2.0
//! What a request took, and what that costs by the rates of the node.
//!
//! The price follows what the node measured itself, never what a guest says, and
//! has no time in it in which the platform waits: for a turn, for an instance,
//! for the functions that are called, for code or data.
//!
//! An evaluation pays for results: for its inputs and its reservation up front and its
//! fuel at run time ([`objects::Cost`]), which are the same on every node, and nothing
//! for what was remembered. Processor time is only in the price of what counts no fuel.
//! Who gives the node time for it pays less ([`Term`]).

use std::time::Duration;

use objects::Cost;
use serde::{Deserialize, Serialize};

const BYTES_PER_GIB: f64 = (1_u64 << 30) as f64;
const BYTES_PER_GB: f64 = 1e9;
const FUEL_PER_GFUEL: f64 = 1e9;
const PPM: f64 = 1e6;
/// The time that gets all of the discount, unless the node's file says another.
const PATIENT_S: f64 = 3600.0;
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
    /// Of 10⁹ bytes of inputs of applications that are evaluated.
    pub per_gb_inputs: f64,
    /// Of a GiB of memory that an application reserves.
    pub per_gib_reserved: f64,
    /// Of 10⁹ units of fuel.
    pub per_gfuel: f64,
    /// The part of an evaluation's price that is taken off where it may wait for
    /// [`Self::patient_s`] or longer; for less time, less in proportion. Below 1.
    pub patient_discount: f64,
    /// Seconds; 0 counts as 3600.
    pub patient_s: f64,
}

/// When the result of an evaluation is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// As soon as may be.
    Now,
    /// Within so long; others may go first.
    By(Duration),
}

impl Term {
    pub(crate) fn by(self) -> Option<Duration> {
        match self {
            Self::Now => None,
            Self::By(by) => Some(by),
        }
    }
}

impl Rates {
    /// Whether anything costs anything.
    pub(crate) fn is_any(&self) -> bool {
        self.all().into_iter().any(|rate| rate > 0.0)
    }

    fn all(&self) -> [f64; 7] {
        [
            self.per_request,
            self.per_cpu_second,
            self.per_gib_second,
            self.per_gb_sent,
            self.per_gb_inputs,
            self.per_gib_reserved,
            self.per_gfuel,
        ]
    }

    /// What an evaluation costs whose new part is `now`, in 10⁻¹² of the currency; `None`
    /// without rates. Time in which the platform waits is not in it.
    pub(crate) fn of_evaluation(&self, now: &Cost, uncounted_nanos: u64, term: Term) -> Option<u64> {
        let whole = self.per_request
            + self.per_gb_inputs * now.inputs_bytes as f64 / BYTES_PER_GB
            + self.per_gib_reserved * now.reserved_bytes as f64 / BYTES_PER_GIB
            + self.per_gfuel * now.fuel as f64 / FUEL_PER_GFUEL
            + self.per_cpu_second * Duration::from_nanos(uncounted_nanos).as_secs_f64();
        let factor = self.factor_ppm(term) as f64 / PPM;
        // A cast of what is too much gives the most there is, which stands for no price.
        self.is_any().then(|| ((whole * factor * PARTS).round() as u64).min(u64::MAX - 1))
    }

    /// What is left of the price of an evaluation that may wait, in millionths.
    pub(crate) fn factor_ppm(&self, term: Term) -> u64 {
        let full_s = if self.patient_s > 0.0 { self.patient_s } else { PATIENT_S };
        let part = term.by().map_or(0.0, |by| (by.as_secs_f64() / full_s).min(1.0));
        ((1.0 - self.patient_discount * part) * PPM).round() as u64
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
        if !(0.0..1.0).contains(&self.patient_discount) || !(0.0..=RATE_MAX).contains(&self.patient_s) {
            return Err("patient_discount is a part, from 0 to less than 1, and patient_s a time".to_owned());
        }
        if self.currency.len() > CURRENCY_LEN_MAX || self.currency.chars().any(char::is_control) {
            return Err(format!("a currency is a word of at most {CURRENCY_LEN_MAX} bytes, like EUR"));
        }
        Ok(())
    }
}

/// A price of parts in units of the currency.
pub(crate) fn whole(parts: u64) -> f64 {
    parts as f64 / PARTS
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
            per_gb_inputs: 0.5,
            per_gib_reserved: 0.25,
            per_gfuel: 2.0,
            patient_discount: 0.5,
            patient_s: 100.0,
        }
    }

    #[test]
    fn an_evaluation_pays_for_inputs_reservation_and_fuel_and_less_if_it_can_wait() {
        let cost =
            Cost { inputs_bytes: 2_000_000_000, reserved_bytes: 1 << 30, fuel: 500_000_000, uncounted: 0 };
        let price = |cost: &Cost, nanos, term| rates().of_evaluation(cost, nanos, term);
        assert_eq!(price(&cost, 0, Term::Now), Some(2_250_001_000_000), "1 + 0.25 + 1, and the request");
        assert_eq!(price(&cost, 1_000_000_000, Term::Now), Some(2_270_001_000_000), "no fuel, but time");
        assert_eq!(price(&Cost::default(), 0, Term::Now), Some(1_000_000), "what was remembered");
        let half = Term::By(Duration::from_secs(50));
        assert_eq!((rates().factor_ppm(half), rates().factor_ppm(Term::Now)), (750_000, 1_000_000));
        assert_eq!(rates().factor_ppm(Term::By(Duration::from_secs(1_000_000))), 500_000, "no less");
        assert_eq!(price(&Cost::default(), 0, half), Some(750_000));
        assert_eq!(Rates::default().of_evaluation(&cost, 0, half), None, "none is told");
        let most = Cost { inputs_bytes: u64::MAX, fuel: u64::MAX, ..cost };
        let dear = Rates { per_gfuel: 1e9, ..rates() };
        assert_eq!(dear.of_evaluation(&most, u64::MAX, Term::Now), Some(u64::MAX - 1));
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
        assert!(Rates { patient_discount: 1.0, ..rates() }.check().is_err(), "nothing is for nothing");
        assert!(Rates { patient_s: f64::NAN, ..rates() }.check().is_err());
        assert!(Rates { currency: "a\nb".to_owned(), ..rates() }.check().is_err());
    }
}
