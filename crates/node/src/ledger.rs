// SPDX-License-Identifier: Apache-2.0
//! What is written down of a request whose result comes with a receipt: each
//! application that its computation comes to, with its result and what it took.
//!
//! Such a request walks the whole computation. What was remembered of *goals* would hide
//! what is below them, so it has relations of its own for all but applications. Those are
//! taken from the node's relations where they are known there, with their first cost, and
//! run and remembered as ever where they are not. A *fresh* request takes nothing from
//! the node's relations and leaves nothing there: it is what an audit is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evaluator::Context;
use gateway::{NotedStep, Recording};
use objects::{Handle, Kind, RECEIPT_STEPS_MAX};
use parking_lot::Mutex;
use store::{Claim, Record, Relations, Rule, Store};

/// Requests with ledgers at one time; patient ones keep theirs while they wait. A tenant may
/// have as many as it leaves to others, so that one that asks for all has half, the next one
/// half of the rest, and whoever comes then finds one still. The node's owner has what there is.
const LEDGERS_MAX: usize = 16;
/// Relations of one ledger, in bytes; and the part of the node's that they may be, so that
/// all ledgers together have no more than the node.
const OWN_BYTES_MAX: u64 = 16 << 20;
const OWN_SHARE: u64 = LEDGERS_MAX as u64;
/// Steps that are noted in all ledgers together, about 100 bytes each.
const NOTED_MAX: usize = 4 * RECEIPT_STEPS_MAX;

/// How many ledgers there are, and steps in all of them.
#[derive(Debug, Default)]
pub(crate) struct Ledgers(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    ledgers: AtomicUsize,
    noted: AtomicUsize,
    /// Of those who have any.
    tenants: Mutex<HashMap<String, Arc<Share>>>,
}

/// What one tenant has of both.
#[derive(Debug, Default)]
struct Share {
    ledgers: AtomicUsize,
    noted: AtomicUsize,
}

impl Ledgers {
    /// One more, for a node whose relations take so many bytes. `None`: there are as
    /// many as there may be, or as the tenant may have.
    pub(crate) fn open(
        &self,
        recording: Recording,
        relations_bytes: u64,
        tenant: Option<&str>,
    ) -> Option<Arc<Ledger>> {
        let counts = self.place(tenant)?;
        Some(Arc::new(Ledger {
            is_fresh: recording == Recording::Fresh,
            own: Relations::apart((relations_bytes / OWN_SHARE).min(OWN_BYTES_MAX)),
            steps: Mutex::default(),
            counts,
        }))
    }
}

impl Ledgers {
    fn place(&self, tenant: Option<&str>) -> Option<Place> {
        let all = &self.0;
        // Whoever comes at the same time waits here: both numbers are looked at together.
        let mut tenants = all.tenants.lock();
        let taken = all.ledgers.load(Ordering::Acquire);
        let share = tenant.and_then(|name| tenants.get(name).cloned()).unwrap_or_default();
        let own = share.ledgers.load(Ordering::Acquire);
        if taken >= LEDGERS_MAX || tenant.is_some() && own >= LEDGERS_MAX - taken {
            return None;
        }
        all.ledgers.fetch_add(1, Ordering::AcqRel);
        share.ledgers.fetch_add(1, Ordering::AcqRel);
        let tenant = tenant.map(str::to_owned);
        if let Some(name) = &tenant {
            tenants.insert(name.clone(), Arc::clone(&share));
        }
        Some(Place { all: Arc::clone(all), share, tenant })
    }
}

/// Counts as a ledger until it is dropped.
#[derive(Debug)]
struct Place {
    all: Arc<Counts>,
    share: Arc<Share>,
    tenant: Option<String>,
}

impl Place {
    /// One more step may be noted; by a tenant, if it leaves as many to others.
    fn take_step(&self) -> bool {
        let before = self.all.noted.fetch_add(1, Ordering::AcqRel);
        let own = self.share.noted.fetch_add(1, Ordering::AcqRel);
        let may = before < NOTED_MAX && (self.tenant.is_none() || own < NOTED_MAX - before);
        if !may {
            self.give_steps_back(1);
        }
        may
    }

    fn give_steps_back(&self, steps: usize) {
        self.all.noted.fetch_sub(steps, Ordering::AcqRel);
        self.share.noted.fetch_sub(steps, Ordering::AcqRel);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut tenants = self.all.tenants.lock();
        self.all.ledgers.fetch_sub(1, Ordering::AcqRel);
        if self.share.ledgers.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(name) = &self.tenant
        {
            tenants.remove(name);
        }
    }
}

/// What is written down of one request.
pub(crate) struct Ledger {
    is_fresh: bool,
    own: Relations,
    steps: Mutex<Steps>,
    counts: Place,
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let noted = self.steps.get_mut().noted.len();
        self.counts.give_steps_back(noted);
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("is_fresh", &self.is_fresh).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Steps {
    noted: HashMap<Handle, NotedStep>,
    /// There were more than a receipt can have, or all ledgers together.
    are_too_many: bool,
}

impl Ledger {
    /// That of a request, if it has one.
    pub(crate) fn of(context: Option<&Context>) -> Option<Arc<Self>> {
        context.and_then(|context| Arc::clone(context).downcast().ok())
    }

    /// Nothing is taken from what the node remembers, and nothing left there.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// All that was noted so far; `None` if there was more than a receipt can have, or than
    /// the node can note.
    pub(crate) fn steps(&self) -> Option<Vec<NotedStep>> {
        let steps = self.steps.lock();
        (!steps.are_too_many).then(|| steps.noted.values().copied().collect())
    }

    /// What is run only to make an object again that was dropped is no part of the computation:
    /// on another node, which has that object, nothing would run.
    fn note(&self, application: Handle, record: Record, ran_now: bool, is_part: bool) {
        if !is_part || record.rule != Rule::Apply || application.kind() != Kind::Application {
            return;
        }
        let Record { result, nanos, fuel, .. } = record;
        let mut steps = self.steps.lock();
        // What ran for this request, and is looked up by it again, has run now.
        if steps.noted.contains_key(&application) {
            return;
        }
        if steps.noted.len() >= RECEIPT_STEPS_MAX || !self.counts.take_step() {
            steps.are_too_many = true;
            return;
        }
        steps.noted.insert(application, NotedStep { application, result, nanos, fuel, ran_now });
    }

    /// `is_part`: what is looked up is a part of the computation, and noted.
    pub(crate) fn recall(&self, store: &Store, key: Handle, is_part: bool) -> Option<Handle> {
        if let Some(record) = self.own.get(key) {
            // It may have run to make something again, and is needed for itself now.
            self.note(key, record, true, is_part);
            return Some(record.result);
        }
        if self.is_fresh {
            return None;
        }
        match key.kind() {
            Kind::Application => {
                let record = store.relations().get(key).filter(|record| record.rule == Rule::Apply)?;
                self.note(key, record, false, is_part);
                Some(record.result)
            }
            // Data that is its own complete value has nothing to compute in it.
            Kind::Strict | Kind::Shallow => {
                let value = key.thunk().filter(|thunk| thunk.kind() == Kind::Identification)?.definition();
                let record = store.relations().get(key)?;
                (record.result == value).then_some(value)
            }
            _ => None,
        }
    }

    pub(crate) fn remember(&self, store: &Store, key: Handle, record: Record, is_part: bool) {
        self.note(key, record, true, is_part);
        self.own.insert(key, record);
        if !self.is_fresh {
            store.relations().insert(key, record);
        }
    }

    /// Whose claims count: an application runs once for all who ask the node, and once
    /// more for each who wants it run anew.
    pub(crate) fn claims<'a>(&'a self, store: &'a Store) -> &'a Relations {
        if self.is_fresh { &self.own } else { store.relations() }
    }

    pub(crate) fn claim(&self, store: &Store, thunk: Handle, is_part: bool) -> Claim {
        let claim = self.claims(store).claim(thunk);
        if let Claim::Known(record) = claim {
            self.note(thunk, record, false, is_part);
        }
        claim
    }

    pub(crate) fn wait(&self, store: &Store, thunk: Handle, waiter: u64) -> bool {
        self.claims(store).wait(thunk, waiter)
    }

    /// `record`, and the processor time that is paid for where no fuel is counted.
    pub(crate) fn fulfil(
        &self,
        store: &Store,
        thunk: Handle,
        (record, uncounted_nanos): (Record, u64),
        is_part: bool,
    ) -> Vec<u64> {
        // Before anybody can see the result, and with it the end of the request.
        self.note(thunk, Record { nanos: uncounted_nanos, ..record }, true, is_part);
        self.claims(store).fulfil(thunk, record)
    }

    pub(crate) fn abandon(&self, store: &Store, thunk: Handle) -> Vec<u64> {
        self.claims(store).abandon(thunk)
    }
}
