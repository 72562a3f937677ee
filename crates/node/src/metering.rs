// SPDX-License-Identifier: Apache-2.0
//! What an application costs its request, told while it runs, on the worker's own thread.
//!
//! It is what a receipt says too (`gateway::receipts`), reckoned without writing anything down:
//! the bytes of its inputs and its reservation, and its fuel, or processor time where it counts none.

use std::collections::HashMap;
use std::convert::Infallible;

use evaluator::Charge;
use linux::Ticks;
use objects::{Handle, Limits, TreeView};
use store::Store;

/// Trees whose size a worker remembers, so that one that many applications are given is
/// looked through once.
const TREES_MAX: usize = 1 << 12;
/// Objects that are looked at to tell a tree's size: what is beyond them is nobody's cost.
/// A worker cannot hold more of an application either.
const OBJECTS_MAX: usize = 1 << 16;
/// The thread's clock is a system call, some hundred nanoseconds. It is asked no more often than
/// this; what is shorter has its time on the wall, in which nobody can have taken the processor
/// for longer than that.
const CLOCK_EVERY_NANOS: u64 = 100_000;

/// One worker's.
pub(crate) struct Meter {
    trees: HashMap<Handle, u64>,
    /// When the thread's clock was asked, and what it said.
    asked: Option<(Ticks, u64)>,
}

/// An application that runs.
pub(crate) struct Running {
    inputs_bytes: u64,
    limits: Limits,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { trees: HashMap::new(), asked: None }
    }

    /// An application is about to run, whose inputs are all here and are held.
    #[inline]
    pub(crate) fn begin(&mut self, store: &Store, application: TreeView<'_>, limits: &Limits) -> Running {
        let told = objects::inputs_bytes(application, |tree| Ok::<_, Infallible>(self.below(store, tree)));
        let Ok(inputs_bytes) = told;
        Running { inputs_bytes, limits: *limits }
    }

    fn below(&mut self, store: &Store, tree: Handle) -> u64 {
        if let Some(&known) = self.trees.get(&tree) {
            return known;
        }
        let mut looked = 0;
        let Ok(bytes) = objects::repository_bytes(tree, |object| {
            looked += 1;
            let goes_on = object.names_tree() && looked <= OBJECTS_MAX;
            Ok::<_, Infallible>(if goes_on { store.local(object) } else { None })
        });
        if self.trees.len() >= TREES_MAX {
            self.trees.clear();
        }
        self.trees.insert(tree, bytes);
        bytes
    }

    /// It begins now, after everything else was made ready.
    #[inline]
    pub(crate) fn start(&mut self, running: &Running, now: Ticks) {
        if running.limits.fuel == 0
            && self.asked.is_none_or(|(asked, _)| now.nanos_since(asked) > CLOCK_EVERY_NANOS)
        {
            self.asked = Some((now, linux::thread_cpu_ns()));
        }
    }

    /// It has ended, so many nanoseconds after it began.
    #[inline]
    pub(crate) fn end(&mut self, running: &Running, begun: Ticks, nanos: u64, fuel: u64) -> Charge {
        let Running { inputs_bytes, limits } = running;
        let charge = Charge {
            inputs_bytes: *inputs_bytes,
            reserved_bytes: limits.memory_bytes,
            fuel,
            uncounted_nanos: 0,
        };
        match limits.fuel {
            0 => Charge { fuel: 0, uncounted_nanos: self.processor_nanos(begun, nanos), ..charge },
            _ => charge,
        }
    }

    #[inline]
    fn processor_nanos(&mut self, begun: Ticks, nanos: u64) -> u64 {
        if nanos <= CLOCK_EVERY_NANOS {
            return nanos;
        }
        let (now, said) = (Ticks::now(), linux::thread_cpu_ns());
        let Some((asked, before)) = self.asked.replace((now, said)) else { return nanos };
        // Between the asking and the beginning lies little, and all of that counts as used by others.
        let elsewhere = begun.nanos_since(asked);
        said.saturating_sub(before).saturating_sub(elsewhere).min(nanos)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::{Duration, Instant};

    use super::*;

    fn charged(limits: Limits, run: impl FnOnce()) -> (Charge, u64) {
        let mut meter = Meter::new();
        let running = Running { inputs_bytes: 7, limits };
        let begun = Ticks::now();
        meter.start(&running, begun);
        run();
        let nanos = Ticks::now().nanos_since(begun);
        (meter.end(&running, begun, nanos, 30), nanos)
    }

    #[test]
    fn what_waits_for_a_processor_does_not_pay_for_that() {
        let limits = Limits { memory_bytes: 1 << 20, fuel: 0, ..Limits::default() };
        let (slept, wall) = charged(limits, || std::thread::sleep(Duration::from_millis(50)));
        assert!(wall >= 50_000_000 && slept.uncounted_nanos < 10_000_000, "{slept:?} of {wall}");
        assert_eq!((slept.inputs_bytes, slept.reserved_bytes, slept.fuel), (7, 1 << 20, 0));
        let (busy, _) = charged(limits, || {
            let begun = linux::thread_cpu_ns();
            while linux::thread_cpu_ns() - begun < 20_000_000 {}
        });
        assert!((19_000_000..40_000_000).contains(&busy.uncounted_nanos), "{busy:?}");
        let (brief, wall) = charged(limits, || {});
        assert!(brief.uncounted_nanos <= wall && brief.uncounted_nanos > 0, "{brief:?}");
    }

    #[test]
    fn what_counts_fuel_pays_for_that_alone() {
        let limits = Limits { memory_bytes: 1, fuel: 100, ..Limits::default() };
        let (counted, _) = charged(limits, || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {}
        });
        assert_eq!((counted.fuel, counted.uncounted_nanos), (30, 0));
    }
}
