// SPDX-License-Identifier: Apache-2.0
//! What the policy knows of one function.

use std::collections::VecDeque;

use super::arrivals::Pauses;
use super::decision::{InstanceId, Settings, Ticket};

/// A part of the next value goes into an estimate: one in so many.
const SHARE: u64 = 4;
/// Instances are made a few at a time, or none, until a call has waited for so long: then what is in use is
/// not enough after all, or to be made takes more than a processor.
const HELD_BACK_NS: u64 = 100_000_000;

/// A moving average; none before the first value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Estimate(Option<u64>);

impl Estimate {
    pub(super) fn add(&mut self, value: u64) {
        self.0 = Some(self.0.map_or(value, |old| old - old / SHARE + value / SHARE));
    }

    /// Follows up at once and down slowly: for what must not be too small.
    pub(super) fn add_cautiously(&mut self, value: u64) {
        self.add(value);
        self.0 = self.0.max(Some(value));
    }

    pub(super) fn get(self) -> Option<u64> {
        self.0
    }
}

/// What became of the calls and instances of one function since it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls that came.
    pub arrivals: u64,
    /// Calls that found an instance which had served before.
    pub warm: u64,
    /// Calls that found an instance which was made ahead and not yet used.
    pub prewarmed: u64,
    /// Calls that an instance had to be made for.
    pub cold: u64,
    /// Calls that were refused, at once or after they had waited.
    pub refused: u64,
    /// Calls that gave up while they waited.
    pub cancelled: u64,
    /// Instances that could not be made.
    pub failed_starts: u64,
    /// Idle instances that had to make room for others.
    pub evictions: u64,
    /// Instances that gave way to a function that had waited, with calls of
    /// their own function still waiting.
    pub yields: u64,
    /// Instances that were idle for too long.
    pub expired: u64,
    /// Instances that were made before a call came.
    pub prewarms: u64,
    /// Of which no call came while they were there.
    pub prewarms_wasted: u64,
}

/// A call without an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) since: u64,
    /// It stood in line in an instance before: it is not refused.
    pub(super) was_in: bool,
}

#[derive(Debug)]
pub(super) struct Function {
    pub(super) settings: Settings,
    pub(super) waiting: VecDeque<Waiting>,
    /// Since when some call or other waits, or an instance more was made for those.
    pub(super) pressed_since: u64,
    /// The one that was used last stands last.
    pub(super) idle: Vec<InstanceId>,
    pub(super) busy: u32,
    pub(super) starting: u32,
    /// Instances that it is to have also when nobody calls it.
    pub(super) least: u32,
    /// Of those, how many in a row ended before they served anybody, and from when on the next one may be made.
    pub(super) failures: u32,
    pub(super) provided_from: u64,
    /// Charged for all three.
    pub(super) held_bytes: u64,
    /// Calls since it last had no instance.
    pub(super) frequency: u64,
    pub(super) cost_ns: Estimate,
    pub(super) duration_ns: Estimate,
    size_bytes: Estimate,
    pub(super) pauses: Pauses,
    /// As many instances are in use as are of use; more would take turns with them.
    pub(super) has_enough: bool,
    /// The pause in which an instance was made ahead, by the call before it.
    pub(super) prewarmed_after: Option<u64>,
    pub(super) counts: Counts,
}

impl Function {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            waiting: VecDeque::new(),
            pressed_since: 0,
            idle: Vec::new(),
            busy: 0,
            starting: 0,
            least: 0,
            failures: 0,
            provided_from: 0,
            held_bytes: 0,
            frequency: 0,
            cost_ns: Estimate::default(),
            duration_ns: Estimate::default(),
            size_bytes: Estimate::default(),
            pauses: Pauses::default(),
            has_enough: false,
            prewarmed_after: None,
            counts: Counts::default(),
        }
    }

    /// What a new instance is charged.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes.get().unwrap_or(self.settings.size_bytes)
    }

    pub(super) fn is_measured(&self) -> bool {
        self.size_bytes.get().is_some()
    }

    pub(super) fn measured(&mut self, bytes: u64) {
        self.size_bytes.add_cautiously(bytes);
    }

    pub(super) fn instances(&self) -> u32 {
        self.busy + self.starting + self.idle.len() as u32
    }

    /// Nobody would notice if it were forgotten.
    pub(super) fn is_unused(&self) -> bool {
        self.instances() == 0 && self.waiting.is_empty()
    }

    /// Whether one more instance is worth while: none if those that there are
    /// will get to the last waiting call sooner than a new one would be made.
    /// But where calls have waited without a pause for as long as it takes to make
    /// one, more will come: then it is, up to one for each processor, and beyond that as long as
    /// processors have time to spare.
    ///
    /// As many are made at once as there are processors, for to be made takes one: the first ones are ready
    /// sooner, and by the time that others are it may be known that they are not needed.
    /// For a call that has waited for long that does not hold.
    pub(super) fn wants_one(&self, now: u64, processors: u32, are_full: bool) -> bool {
        let Some(head) = self.waiting.front() else { return false };
        let waited = now.saturating_sub(head.since);
        if self.waiting.len() <= self.starting as usize
            || self.instances() >= self.settings.instances_max.max(1)
            || (waited < HELD_BACK_NS && self.is_held_back(processors.max(1)))
        {
            return false;
        }
        let serving = u64::from(self.busy + self.starting);
        let (Some(cost), Some(duration)) = (self.cost_ns.get(), self.duration_ns.get()) else { return true };
        if serving == 0 {
            return true;
        }
        let drained = duration.saturating_mul(self.waiting.len() as u64) / serving;
        // A call that takes longer than others did is not in the estimate.
        let is_stuck = self.starting == 0 && waited > cost;
        let is_pressed = self.starting == 0 && now.saturating_sub(self.pressed_since) > cost;
        drained > cost || is_stuck || (is_pressed && (self.instances() < processors || !are_full))
    }

    /// Whether no instance is made for now, though calls wait.
    fn is_held_back(&self, processors: u32) -> bool {
        self.starting >= processors || (self.has_enough && self.busy >= processors)
    }
}
