// SPDX-License-Identifier: Apache-2.0
//! Collections of a node with a disk: when somebody asks for one, and every few
//! hours.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gateway::{CollectRequest, CollectedHere, Collections, LastCollection};
use objects::Handle;
use parking_lot::{Condvar, Mutex};
use serde::Deserialize;
use store::{Collected, Collection, Dropping, Store, TierCollected, TierCollection};

use crate::requests::Requests;

/// When collections happen by themselves, and what they leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schedule {
    /// Seconds between two of them; 0: never.
    pub every_s: u64,
    /// What nobody names is kept for so many seconds, 3,600 at least.
    pub kept_s: u64,
    /// Also drops what is needed and was computed, where making it again takes little.
    pub drop_derived: bool,
    /// Smaller objects are not dropped.
    pub drop_bytes_min: u64,
    /// What takes more nanoseconds for each of its KiB is not dropped.
    pub drop_nanos_per_kib: u64,
}

impl Default for Schedule {
    fn default() -> Self {
        let Dropping { bytes_min, nanos_per_kib } = Dropping::default();
        Self {
            every_s: 0,
            kept_s: 24 * 3600,
            drop_derived: false,
            drop_bytes_min: bytes_min,
            drop_nanos_per_kib: nanos_per_kib,
        }
    }
}

impl Schedule {
    /// What is wrong with it.
    pub(crate) fn check(self) -> Result<(), String> {
        let least = Collection::KEPT_MIN.as_secs();
        match self.kept_s >= least {
            true => Ok(()),
            false => Err(format!("kept_s is {}, and at least {least}: uploads take a while", self.kept_s)),
        }
    }

    /// What a request means by what it says, and does not say, of dropping.
    fn dropping(self, wish: &CollectRequest) -> Option<Dropping> {
        let is_wanted = wish.drop_derived.unwrap_or(self.drop_derived);
        is_wanted.then(|| Dropping {
            bytes_min: wish.drop_bytes_min.unwrap_or(self.drop_bytes_min),
            nanos_per_kib: wish.drop_nanos_per_kib.unwrap_or(self.drop_nanos_per_kib),
        })
    }

    /// The first comes sooner: a node may have been started for it.
    fn first(self) -> Duration {
        Duration::from_secs(self.every_s / 8)
    }
}

/// Who collects.
pub(crate) struct Collecting {
    store: Arc<Store>,
    requests: Arc<Requests>,
    schedule: Schedule,
    /// What the durable tier keeps that nobody names.
    tier_kept: Duration,
    is_closed: Mutex<bool>,
    closed: Condvar,
    told: Mutex<Told>,
}

/// What is told of collections.
#[derive(Default)]
struct Told {
    /// Since when, and whether it began by itself.
    under_way: Option<(Instant, bool)>,
    /// When the last one ended; how long ago that is, is not in it yet.
    last: Option<(Instant, LastCollection)>,
}

impl Collecting {
    /// `tier_kept`: what nobody names stays in the durable tier for so long.
    pub(crate) fn new(
        store: Arc<Store>,
        requests: Arc<Requests>,
        schedule: Schedule,
        tier_kept: Duration,
    ) -> Self {
        Self {
            store,
            requests,
            schedule,
            tier_kept,
            is_closed: Mutex::new(false),
            closed: Condvar::new(),
            told: Mutex::default(),
        }
    }

    /// Takes away what nobody needs and nobody put for the time that is said, here or by the schedule.
    pub(crate) fn collect(&self, wish: CollectRequest) -> Result<CollectedHere, store::Error> {
        self.noted(wish, false)
    }

    /// The same, told to whoever asks; it `is_own` if nobody has asked for it.
    fn noted(&self, wish: CollectRequest, is_own: bool) -> Result<CollectedHere, store::Error> {
        let begun = Instant::now();
        let is_first = {
            let mut told = self.told.lock();
            let is_first = told.under_way.is_none();
            told.under_way.get_or_insert((begun, is_own));
            is_first
        };
        let end = self.collect_now(wish);
        if is_first {
            let mut told = self.told.lock();
            told.under_way = None;
            if !wish.is_trial {
                let end = end.as_ref().map(|here| here.disk).map_err(ToString::to_string);
                let took = begun.elapsed();
                let last = LastCollection { ago: Duration::ZERO, took, is_own, end };
                told.last = Some((Instant::now(), last));
            }
        }
        end
    }

    /// What is under way, and what the last one did.
    pub(crate) fn collections(&self) -> Collections {
        let told = self.told.lock();
        let every = (self.schedule.every_s > 0).then(|| Duration::from_secs(self.schedule.every_s));
        let last =
            told.last.as_ref().map(|(ended, last)| LastCollection { ago: ended.elapsed(), ..last.clone() });
        Collections {
            under_way: told.under_way.map(|(since, is_own)| (since.elapsed(), is_own)),
            last,
            every,
        }
    }

    /// Has the one that is under way end, if there is one.
    pub(crate) fn stop(&self) -> bool {
        let is_any = self.told.lock().under_way.is_some() || self.is_at_the_tier();
        if is_any {
            self.store.stop_collecting();
        }
        is_any
    }

    /// Also one that is of the tier only.
    fn is_at_the_tier(&self) -> bool {
        let status = self.store.tier_status().ok().flatten();
        status.is_some_and(|status| status.collection.is_some())
    }

    fn collect_now(&self, wish: CollectRequest) -> Result<CollectedHere, store::Error> {
        let kept = wish.kept.unwrap_or_else(|| Duration::from_secs(self.schedule.kept_s));
        let dropping = self.schedule.dropping(&wish);
        let collection = Collection { kept, is_trial: wish.is_trial, dropping };
        let begun = Instant::now();
        let collected = self.store.collect(collection, &|| self.under_way())?;
        if !collection.is_trial {
            let Collected { objects, bytes, freed_bytes, kept_objects, dropped, dropped_bytes, .. } =
                collected;
            let ms = begun.elapsed().as_millis() as u64;
            tracing::info!(
                objects,
                bytes,
                freed_bytes,
                kept_objects,
                dropped,
                dropped_bytes,
                ms,
                "collected what nobody needs"
            );
        }
        // What went from the disk may go there too, when it is old enough.
        let tier = self.store.has_tier().then(|| self.collect_tier(None, wish.is_trial));
        if let Some(Err(error)) = &tier {
            tracing::warn!(%error, "nothing was collected in the durable tier; it is tried again");
        }
        let tier = tier.map(|told| told.map_err(|error| error.to_string()));
        Ok(CollectedHere { disk: collected, tier })
    }

    fn under_way(&self) -> Vec<Handle> {
        self.requests.under_way().iter().map(|request| request.goal()).collect()
    }

    /// Takes away in the durable tier what nobody needs.
    pub(crate) fn collect_tier(
        &self,
        kept: Option<Duration>,
        is_trial: bool,
    ) -> Result<TierCollected, store::Error> {
        let collection = TierCollection { kept: kept.unwrap_or(self.tier_kept), is_trial };
        let begun = Instant::now();
        let collected = self.store.collect_tier(collection, &|| self.under_way())?;
        if !is_trial {
            let TierCollected { objects, bytes, packs, moved_bytes, found, damaged, .. } = collected;
            let ms = begun.elapsed().as_millis() as u64;
            tracing::info!(
                objects,
                bytes,
                packs,
                moved_bytes,
                found,
                damaged,
                ms,
                "collected what nobody needs in the durable tier"
            );
        }
        Ok(collected)
    }

    /// The thread that does so every few hours, if any.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<Option<JoinHandle<()>>> {
        if self.schedule.every_s == 0 {
            return Ok(None);
        }
        let collecting = Arc::clone(self);
        crate::workers::spawn("sinew-collect".to_owned(), move || collecting.run()).map(Some)
    }

    fn run(&self) {
        let mut wait = self.schedule.first();
        loop {
            let mut is_closed = self.is_closed.lock();
            let due = Instant::now() + wait;
            while !*is_closed && !self.closed.wait_until(&mut is_closed, due).timed_out() {}
            if *is_closed {
                return;
            }
            drop(is_closed);
            match self.noted(CollectRequest::default(), true) {
                // Somebody has asked for one.
                Ok(_) | Err(store::Error::Collecting) => {}
                Err(store::Error::Stopped) => {
                    tracing::info!("a collection was stopped before it took anything")
                }
                Err(error) => tracing::warn!(%error, "nothing was collected; it is tried again"),
            }
            wait = Duration::from_secs(self.schedule.every_s);
        }
    }

    /// Nobody waits for one that looks for what is needed.
    pub(crate) fn close(&self) {
        self.stop();
        *self.is_closed.lock() = true;
        self.closed.notify_all();
    }
}
