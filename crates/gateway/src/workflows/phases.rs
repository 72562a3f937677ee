// SPDX-License-Identifier: Apache-2.0
//! Where the time of steps went, and of which types objects were pickled that could not
//! be mapped. Part of it is what the steps' instances say: it is shown, and nothing
//! depends on it. No I/O and no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::graph::{Number, Step};
use super::run::Run;
use crate::counts::{OTHER_TYPES, TYPES_MAX};
use crate::invocation::StepTimes;
use crate::usage::micros;

impl Run {
    /// An attempt at a step has ended in an instance.
    pub(super) fn note(&self, number: Number, times: &StepTimes) {
        self.inner().graph.note(number, times, self.elapsed());
        if let Some(phases) = &times.phases {
            self.workflow().counts.pickled(&phases.pickled);
        }
    }
}

/// Names of types, as the steps of one run know them by their places.
#[derive(Debug, Default)]
pub(super) struct TypeNames {
    names: Vec<Arc<str>>,
}

impl TypeNames {
    fn place(&mut self, name: &str) -> u8 {
        let known = self.names.iter().position(|known| &**known == name);
        let place = known.unwrap_or_else(|| {
            if self.names.len() < TYPES_MAX && name != OTHER_TYPES {
                self.names.push(name.into());
                return self.names.len() - 1;
            }
            TYPES_MAX
        });
        u8::try_from(place).unwrap_or(u8::MAX)
    }

    pub(super) fn name(&self, place: u8) -> &str {
        self.names.get(usize::from(place)).map_or(OTHER_TYPES, |name| name)
    }
}

/// Where the time of the last attempt at a step went, from when it was begun on.
#[derive(Debug, Clone, Default)]
pub(super) struct Took {
    /// Until an instance came to it.
    queued: Duration,
    /// Taking its arguments, and giving its result; `None` if nobody said.
    transfer: Option<(Duration, Duration)>,
    /// The function itself; the whole of its time in the instance if nobody said.
    ran: Duration,
    /// Places of types among their names, and objects of each.
    pickled: Box<[(u8, u32)]>,
}

impl Took {
    pub(super) fn of(times: &StepTimes, names: &mut TypeNames) -> Self {
        let (queued, running) = (times.queued, times.running);
        let Some(phases) = &times.phases else {
            return Self { queued, transfer: None, ran: running, pickled: Box::default() };
        };
        let mut pickled: BTreeMap<u8, u32> = BTreeMap::new();
        for (name, count) in &phases.pickled {
            let sum = pickled.entry(names.place(name)).or_default();
            *sum = sum.saturating_add(*count);
        }
        Self {
            queued,
            // What an instance says is no longer than it was there.
            transfer: Some((phases.taking.min(running), phases.giving.min(running))),
            ran: phases.running.min(running),
            pickled: pickled.into_iter().collect(),
        }
    }
}

/// Adds up where the time of steps went.
#[derive(Debug, Default)]
pub(super) struct Sums {
    waited: Duration,
    queued: Duration,
    transfer_in: Duration,
    transfer_out: Duration,
    ran: Duration,
    pickled: BTreeMap<u8, u64>,
}

impl Sums {
    pub(super) fn add(&mut self, step: &Step) {
        self.waited += waited(step).unwrap_or_default();
        self.queued += queued(step).unwrap_or_default();
        let Some(took) = &step.took else { return };
        let (taking, giving) = took.transfer.unwrap_or_default();
        self.transfer_in += taking;
        self.transfer_out += giving;
        self.ran += took.ran;
        for (place, count) in &took.pickled {
            *self.pickled.entry(*place).or_default() += u64::from(*count);
        }
    }

    /// Adds itself to what is told of a function.
    pub(super) fn tell(&self, names: &TypeNames, document: &mut Value) {
        let times = [
            ("waited_us", self.waited),
            ("queued_us", self.queued),
            ("transfer_in_us", self.transfer_in),
            ("transfer_out_us", self.transfer_out),
            ("ran_us", self.ran),
        ];
        for (name, time) in times {
            document[name] = micros(time).into();
        }
        let pickled = self.pickled.iter().map(|(place, count)| (names.name(*place), *count));
        tell_pickled(pickled.collect(), document);
    }
}

/// Adds to what is told of a step where its time went.
pub(super) fn tell(step: &Step, names: &TypeNames, document: &mut Value) {
    let took = step.took.as_deref();
    let (taking, giving) = took.and_then(|took| took.transfer).unzip();
    let times = [
        ("waited_us", waited(step)),
        ("queued_us", queued(step)),
        ("transfer_in_us", taking),
        ("ran_us", took.map(|took| took.ran)),
        ("transfer_out_us", giving),
    ];
    for (name, time) in times.into_iter().filter_map(|(name, time)| Some((name, time?))) {
        document[name] = micros(time).into();
    }
    let pickled = took.map(|took| &*took.pickled).unwrap_or_default();
    let pickled = pickled.iter().map(|(place, count)| (names.name(*place), u64::from(*count)));
    tell_pickled(pickled.collect(), document);
}

/// The most frequent types first.
fn tell_pickled(mut pickled: Vec<(&str, u64)>, document: &mut Value) {
    if pickled.is_empty() {
        return;
    }
    pickled.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told = pickled.into_iter().map(|(name, count)| json!({ "type": name, "count": count }));
    document["pickled"] = told.collect();
}

/// For what it needs.
fn waited(step: &Step) -> Option<Duration> {
    Some(step.ready?.saturating_sub(step.made))
}

/// From when all that it needs was there until an instance came to its last attempt.
fn queued(step: &Step) -> Option<Duration> {
    let until_begun = step.begun?.saturating_sub(step.ready?);
    Some(until_begun + step.took.as_ref()?.queued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phases;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn times(pickled: &[(&str, u32)]) -> StepTimes {
        let pickled = pickled.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let phases = Phases { taking: ms(2), running: ms(30), giving: ms(5), pickled };
        StepTimes {
            queued: ms(4),
            running: ms(40),
            memory_peak_bytes: None,
            phases: Some(Box::new(phases)),
            has_followed: false,
        }
    }

    #[test]
    fn what_an_instance_says_is_no_longer_than_it_was_there() {
        let mut names = TypeNames::default();
        let took = Took::of(&StepTimes { running: ms(3), ..times(&[]) }, &mut names);
        assert_eq!((took.transfer, took.ran), (Some((ms(2), ms(3))), ms(3)));
        let silent = Took::of(&StepTimes { phases: None, ..times(&[]) }, &mut names);
        assert_eq!((silent.transfer, silent.ran, silent.queued), (None, ms(40), ms(4)));
    }

    #[test]
    fn types_beyond_the_bound_are_one() {
        let mut names = TypeNames::default();
        let many: Vec<String> = (0..100).map(|number| format!("type{number}")).collect();
        let many: Vec<(&str, u32)> = many.iter().map(|name| (&**name, 2)).collect();
        let took = Took::of(&times(&many), &mut names);
        assert_eq!(took.pickled.len(), TYPES_MAX + 1);
        let (place, count) = took.pickled[TYPES_MAX];
        assert_eq!((names.name(place), count), (OTHER_TYPES, 72));
        let again = Took::of(&times(&[("type63", 1), ("type64", u32::MAX), ("other", 7)]), &mut names);
        let told: Vec<_> = again.pickled.iter().map(|(place, count)| (names.name(*place), *count)).collect();
        assert_eq!(told, [("type63", 1), (OTHER_TYPES, u32::MAX)]);
    }
}
