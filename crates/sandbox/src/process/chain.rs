// SPDX-License-Identifier: Apache-2.0
//! A call and what follows it in its instance, as those see it who wait for their ends: each end is told as it comes, and
//! whoever has brought the call hears once, when nothing follows any more (decision 0108). The instance is busy until then.

use std::sync::Arc;

use objects::Handle;
use parking_lot::Mutex;
use store::Store;

use super::functions::Functions;
use super::instance::{Begun, CallEnd, Done, Following};
use super::seat::Seat;
use crate::{Error, Fault, Followers, Outcome, Printed, SandboxId, Spent, Then};

/// A call and what follows it, under way in an instance.
pub(super) struct Chain {
    id: SandboxId,
    seat: Arc<Seat>,
    store: Arc<Store>,
    is_asked_once: bool,
    followers: Arc<dyn Followers>,
    progress: Mutex<Progress>,
}

struct Progress {
    /// `None`: it is over.
    then: Option<Then>,
    /// The place of the one that is under way, or is told of.
    at: usize,
    /// Ends that came before the one before them was told: each comes from whichever thread has seen it.
    early: Vec<(usize, CallEnd)>,
    /// What those took that have ended.
    spent: Option<Box<Spent>>,
}

/// Tells of a call that nothing has followed.
pub(super) fn tell_alone(followers: Option<&Arc<dyn Followers>>, outcome: Outcome, then: Then) {
    let Some(followers) = followers else { return then(Ok(outcome)) };
    let over = over(outcome.result.as_ref().err(), outcome.spent.clone());
    followers.ended(0, outcome, false);
    then(Ok(over));
}

/// What whoever brought the call hears when all have been told.
fn over(fault: Option<&Fault>, spent: Option<Box<Spent>>) -> Outcome {
    let result = fault.map_or(Ok(Handle::blob(&[])), |fault| Err(fault.clone()));
    Outcome { result, fuel: 0, log: Printed::default(), spent, phases: None }
}

impl Chain {
    pub(super) fn new(
        (id, seat): (SandboxId, Arc<Seat>),
        store: Arc<Store>,
        is_asked_once: bool,
        followers: Arc<dyn Followers>,
        then: Then,
    ) -> Arc<Self> {
        let progress = Mutex::new(Progress { then: Some(then), at: 0, early: Vec::new(), spent: None });
        Arc::new(Self { id, seat, store, is_asked_once, followers, progress })
    }

    /// What is done with the end of the call at this place.
    pub(super) fn done(self: &Arc<Self>, place: usize) -> Done {
        let chain = Arc::clone(self);
        Box::new(move |ended| chain.ended(place, ended))
    }

    /// What follows the first call.
    pub(super) fn following(self: &Arc<Self>) -> Vec<Following> {
        let calls = self.followers.calls().iter().cloned().zip(1..);
        calls.map(|(call, place)| Following { call, done: self.done(place) }).collect()
    }

    /// An end has come. Ends are told in the order of their places, one at a time.
    fn ended(&self, place: usize, ended: CallEnd) {
        let mut next = {
            let mut progress = self.progress.lock();
            if progress.then.is_none() {
                return;
            }
            if progress.at != place {
                progress.early.push((place, ended));
                return;
            }
            Some((place, ended))
        };
        while let Some((place, ended)) = next {
            next = match self.tell(place, ended) {
                true => self.goes_on(place + 1),
                false => None,
            };
        }
    }

    /// The one at this place is under way, and may have ended.
    fn goes_on(&self, place: usize) -> Option<(usize, CallEnd)> {
        let mut progress = self.progress.lock();
        progress.at = place;
        let found = progress.early.iter().position(|(early, _)| *early == place)?;
        Some(progress.early.swap_remove(found))
    }

    /// Tells of an end; whether something follows it.
    fn tell(&self, place: usize, ended: CallEnd) -> bool {
        if ended.begun != Begun::Yes {
            self.seat.goes_back();
            let (then, spent) = self.over();
            let Some(then) = then else { return false };
            if place == 0 {
                let is_recalled = ended.begun == Begun::Recalled;
                then(Err(if is_recalled { Error::Recalled(self.id) } else { Error::NotBegun(self.id) }));
            } else {
                self.followers.not_begun(place);
                then(Ok(over(None, spent)));
            }
            return false;
        }
        let is_followed = ended.is_followed;
        {
            let mut progress = self.progress.lock();
            progress.spent = sum(progress.spent.take(), ended.spent.as_deref());
        }
        if is_followed {
            self.seat.joins();
        }
        let outcome = Functions::concluded(&self.store, &self.seat, Ok(ended), self.is_asked_once);
        let fault = outcome.result.as_ref().err().cloned();
        self.followers.ended(place, outcome, is_followed);
        if !is_followed && let (Some(then), spent) = self.over() {
            then(Ok(over(fault.as_ref(), spent)));
        }
        is_followed
    }

    /// Nothing more is told: who is to hear that, and of what all have taken.
    fn over(&self) -> (Option<Then>, Option<Box<Spent>>) {
        let mut progress = self.progress.lock();
        progress.early.clear();
        (progress.then.take(), progress.spent.take())
    }
}

/// What several took together that ran one after the other.
fn sum(before: Option<Box<Spent>>, spent: Option<&Spent>) -> Option<Box<Spent>> {
    let Some(spent) = spent else { return before };
    let Some(mut before) = before else { return Some(Box::new(*spent)) };
    before.running += spent.running;
    before.waiting += spent.waiting;
    before.held += spent.held;
    before.cpu = before.cpu.zip(spent.cpu).map(|(before, cpu)| before + cpu);
    before.memory_peak_bytes = before.memory_peak_bytes.max(spent.memory_peak_bytes);
    Some(before)
}
