// SPDX-License-Identifier: Apache-2.0
//! Who waits until something is in the tier.
//!
//! Small objects are waited for by their place in the packs, which are sent in their order; labels by their
//! number. Large objects, and what trees name, are sent for those who wait for them, whatever else there
//! is to send: somebody else's large object, or one that cannot be sent, does not keep them waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::Handle;
use parking_lot::Mutex;

use super::far::{Far, Halt, PAUSE, Progress};
use super::publishing::Walk;
use crate::disk::Disk;
use crate::files::{is_large, object_len};
use crate::packs::Spot;
use crate::{Error, Store};

/// What somebody wants to be in the tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// All that is on the disk now, labels too if so said.
    All {
        /// All labels with what they name.
        labels: bool,
    },
    /// These, whether or not what they name is anywhere.
    Objects(Vec<Handle>),
    /// These, with all that they name.
    Whole(Vec<Handle>),
    /// All labels that are set now, with what they name; among that are these.
    Labels(Vec<Handle>),
}

/// A tier that takes less in a second takes too long.
const SLOWEST_BYTES: f64 = (1 << 20) as f64;
/// What is named may only claim to be so large.
const ALLOWANCE_MAX: Duration = Duration::from_secs(24 * 3600);

impl Awaited {
    /// How much longer this is waited for than what is small, by who does not say for how long: a second for each MiB of
    /// what is named here and large, and a day at most. What trees name is not looked at.
    pub fn allowance(&self) -> Duration {
        let roots = match self {
            Self::All { .. } => &[][..],
            Self::Objects(roots) | Self::Whole(roots) | Self::Labels(roots) => roots,
        };
        let large = roots.iter().filter(|root| is_large(root.plain_tree()));
        let bytes = large.fold(0_u64, |bytes, root| bytes.saturating_add(object_len(*root)));
        let allowance = Duration::try_from_secs_f64(bytes as f64 / SLOWEST_BYTES);
        allowance.map_or(ALLOWANCE_MAX, |allowance| allowance.min(ALLOWANCE_MAX))
    }
}

/// Up to where somebody wants the tier to have everything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticket {
    pub(super) packs: Spot,
    pub(super) large: u64,
    pub(super) labels: u64,
}

/// Objects that somebody waits for.
pub(super) struct Wanted {
    roots: Vec<Handle>,
    /// With all that they name.
    is_whole: bool,
    /// How it ended.
    outcome: Mutex<Option<Result<(), String>>>,
    /// Why it could not be sent the last time.
    pause: Mutex<Option<Pause>>,
}

/// It is tried again later.
struct Pause {
    until: Instant,
    tries: u32,
    why: String,
}

impl Wanted {
    pub(super) fn is_due(&self) -> bool {
        self.pause.lock().as_ref().is_none_or(|pause| pause.until <= Instant::now())
    }

    /// It is tried again after longer and longer pauses.
    fn put_off(&self, why: String, pause_max: Duration) {
        let mut pause = self.pause.lock();
        let tries = pause.as_ref().map_or(0, |pause| pause.tries);
        let until = Instant::now() + PAUSE.saturating_mul(1 << tries.min(16)).min(pause_max);
        *pause = Some(Pause { until, tries: tries + 1, why });
    }

    fn why(&self) -> Option<String> {
        self.pause.lock().as_ref().map(|pause| pause.why.clone())
    }
}

impl Store {
    /// Waits until the tier has what is awaited.
    ///
    /// # Errors
    /// [`Error::NoTier`]; [`Error::Unsent`] if that cannot be in this time, or some of it is nowhere or was
    /// damaged before it was sent. What was put is on the disk all the same, and is sent when it can be.
    pub fn tier_until(&self, awaited: Awaited, patience: Duration) -> Result<(), Error> {
        let (Some(disk), Some(far)) = (self.disk(), self.far()) else { return Err(Error::NoTier) };
        let until = Instant::now() + patience;
        match awaited {
            Awaited::All { labels } => {
                let ticket = far.ticket(disk.index().packs().end(), labels);
                far.wait(ticket, None, until, patience)?;
                // Nothing of it may have had to be sent: whose tier it is was not asked then.
                far.wait_for(disk, &[], false, until, patience)
            }
            Awaited::Labels(_) => {
                let labels = far.progress.lock().labels_next;
                far.wait(Ticket { labels, ..Ticket::default() }, None, until, patience)
            }
            Awaited::Objects(roots) => far.wait_for(disk, &roots, false, until, patience),
            Awaited::Whole(roots) => far.wait_for(disk, &roots, true, until, patience),
        }
    }
}

impl Far {
    fn wait_for(
        &self,
        disk: &Disk,
        roots: &[Handle],
        is_whole: bool,
        until: Instant,
        patience: Duration,
    ) -> Result<(), Error> {
        let keys = roots.iter().filter(|root| root.literal_bytes().is_none()).map(|root| root.plain_tree());
        let names_more = |key: &Handle| is_whole && key.names_tree();
        let roots: Vec<Handle> = keys.collect();
        // What trees name is small for the most part, and goes in the packs with all the rest.
        if roots.iter().any(|key| !is_large(*key) || names_more(key)) {
            let packs = disk.index().packs().end();
            self.wait(Ticket { packs, ..Ticket::default() }, None, until, patience)?;
        }
        // Also what is there by now: what was damaged on the disk before was passed over, and whoever reads it
        // finds that out; and whose tier it is may not have been asked.
        let wanted = Arc::new(Wanted { roots, is_whole, outcome: Mutex::default(), pause: Mutex::default() });
        self.progress.lock().wanted.push_back(Arc::clone(&wanted));
        self.changed.notify_all();
        let waited = self.wait(Ticket::default(), Some(&wanted), until, patience);
        self.progress.lock().wanted.retain(|other| !Arc::ptr_eq(other, &wanted));
        waited
    }

    /// What there is now, with `packs` as the end of the packs.
    pub(super) fn ticket(&self, packs: Spot, with_labels: bool) -> Ticket {
        let progress = self.progress.lock();
        let labels = if with_labels { progress.labels_next } else { 0 };
        Ticket { packs, large: progress.large_next, labels }
    }

    fn unsent(&self, why: String) -> Error {
        Error::Unsent { tier: self.depot.name(), why }
    }

    /// Waits until the tier has it.
    fn wait(
        &self,
        ticket: Ticket,
        wanted: Option<&Wanted>,
        until: Instant,
        patience: Duration,
    ) -> Result<(), Error> {
        let mut progress = self.progress.lock();
        progress.hurried += 1;
        progress.packs_wanted = progress.packs_wanted.max(ticket.packs);
        self.changed.notify_all();
        let outcome = |progress: &Progress| match wanted {
            Some(wanted) => wanted.outcome.lock().clone(),
            None => progress.has(ticket).then_some(Ok(())),
        };
        let ended = loop {
            if let Some(ended) = outcome(&progress) {
                break ended;
            }
            if let Some((why, true)) = progress.told() {
                break Err(why);
            }
            if progress.is_closing {
                break Err("the node stops".to_owned());
            }
            if self.changed.wait_until(&mut progress, until).timed_out() {
                let seconds = patience.as_secs_f32();
                break outcome(&progress).unwrap_or_else(|| {
                    let own = wanted.and_then(Wanted::why);
                    let why = own.or_else(|| progress.told().map(|(why, _)| why));
                    let why = why.unwrap_or_else(|| "it is being sent".to_owned());
                    Err(format!("it has not all of it after {seconds} s: {why}"))
                });
            }
        };
        progress.hurried -= 1;
        drop(progress);
        ended.map_err(|why| self.unsent(why))
    }
}

/// Sends what somebody waits for. What cannot be sent now keeps no other waiting.
pub(super) fn send_wanted(disk: &Disk, far: &Far) -> Result<(), Halt> {
    let mut halted = Ok(());
    loop {
        let mut progress = far.progress.lock();
        if progress.is_closing {
            return Err(Halt::Later("the node stops".to_owned()));
        }
        let due = progress.wanted.iter().position(|wanted| wanted.is_due());
        let Some(wanted) = due.and_then(|at| progress.wanted.remove(at)) else { return halted };
        drop(progress);
        match send_all(disk, far, &wanted) {
            Ok(outcome) => *wanted.outcome.lock() = Some(outcome),
            Err(halt) => {
                let why = match &halt {
                    Halt::Later(why) | Halt::Refused(why) => why.clone(),
                    Halt::Object(key, why) => format!("{key}: {why}"),
                };
                wanted.put_off(why, far.options.pause_max);
                // Nobody may wait for it any more, and then it goes when its turn comes.
                if is_awaited(&wanted) {
                    far.progress.lock().wanted.push_back(wanted);
                }
                if matches!(halt, Halt::Refused(_)) {
                    return Err(halt);
                }
                halted = Err(halt);
                continue;
            }
        }
        // Whoever looked before waits by now.
        drop(far.progress.lock());
        far.changed.notify_all();
    }
}

/// Whether somebody else has it.
fn is_awaited(wanted: &Arc<Wanted>) -> bool {
    Arc::strong_count(wanted) > 1
}

/// Sends these, with all that they name if so wanted. Inside: what is nowhere.
fn send_all(disk: &Disk, far: &Far, wanted: &Arc<Wanted>) -> Result<Result<(), String>, Halt> {
    far.let_alone();
    // What was found to be there does not go meanwhile.
    let _still = far.publishing.read();
    if !wanted.roots.is_empty() || disk.index().tiered_len()? > 0 {
        super::owning::ensure(disk, far)?;
    }
    let mut walk = Walk::new(disk, far, || is_awaited(wanted))?;
    for root in &wanted.roots {
        if wanted.is_whole {
            walk.walk(*root)?;
        } else {
            walk.send(*root)?;
        }
    }
    walk.finish()?;
    Ok(match walk.lacks() {
        0 => Ok(()),
        lacks => Err(format!(
            "{lacks} of the objects are not here: they were damaged before they were sent, dropped, or never put"
        )),
    })
}
