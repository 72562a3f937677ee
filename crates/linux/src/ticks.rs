// SPDX-License-Identifier: Apache-2.0
//! A clock cheap enough to time what takes a hundred nanoseconds.
//!
//! Where the processor has a counter that runs at a constant rate, a reading
//! is one instruction; elsewhere it is the kernel's monotonic clock. The rate
//! is measured once, over a millisecond: good to about a ten-thousandth, which
//! is plenty for telling people what a step took, and not for anything else.
#![allow(unsafe_code)]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How long the rate is measured.
const CALIBRATION: Duration = Duration::from_millis(1);
/// Nanoseconds per tick are kept in 2^-32 parts.
const FRACTION_BITS: u32 = 32;

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);

struct Clock {
    has_counter: bool,
    /// Nanoseconds per tick, in 2^-32 parts.
    rate: u64,
    start: Instant,
}

/// A point in time, to be subtracted from a later one of the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(u64);

impl Ticks {
    /// Now. The first call of a process takes a millisecond.
    #[inline]
    pub fn now() -> Self {
        let clock = &*CLOCK;
        Self(if clock.has_counter { counter() } else { clock.start.elapsed().as_nanos() as u64 })
    }

    /// Nanoseconds since `earlier`; 0 if it was later.
    #[inline]
    pub fn nanos_since(self, earlier: Self) -> u64 {
        let ticks = self.0.saturating_sub(earlier.0);
        ((u128::from(ticks) * u128::from(CLOCK.rate)) >> FRACTION_BITS) as u64
    }
}

/// Nanoseconds of the kernel's monotonic clock, which is one for all
/// processes: for times that begin in one and end in another.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

impl Clock {
    fn new() -> Self {
        let start = Instant::now();
        if !has_constant_counter() {
            return Self { has_counter: false, rate: 1 << FRACTION_BITS, start };
        }
        let (first, first_nanos) = both_clocks(start);
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (last, last_nanos) = both_clocks(start);
        let ticks = last.saturating_sub(first).max(1);
        let rate = (u128::from(last_nanos - first_nanos) << FRACTION_BITS) / u128::from(ticks);
        Self { has_counter: true, rate: rate as u64, start }
    }
}

/// The counter and the kernel's clock at one moment. Of several readings the
/// one with the least time in between: the others may have been interrupted.
fn both_clocks(start: Instant) -> (u64, u64) {
    let reading = || {
        let before = counter();
        let nanos = start.elapsed().as_nanos() as u64;
        let between = counter().saturating_sub(before);
        (between, (before + between / 2, nanos))
    };
    let readings: [_; 16] = std::array::from_fn(|_| reading());
    let [first, ..] = readings;
    readings.into_iter().min_by_key(|(between, _)| *between).unwrap_or(first).1
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: RDTSC reads a counter and touches no memory. The kernel may
    // forbid it to user programs (CR4.TSD), which would kill this process with
    // a signal and break nothing else; Linux does so only for processes that
    // asked for it by prctl(PR_SET_TSC), and ours does not.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Whether the counter runs at one rate in all power states, on all cores.
#[cfg(target_arch = "x86_64")]
fn has_constant_counter() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| {
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        ["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.split(' ').any(|word| word == *flag))
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_constant_counter() -> bool {
    false
}

#[cfg(test)]
mod tests;
