// SPDX-License-Identifier: Apache-2.0
//! What is known of the tier while it is in use: what waits to be sent, how far that is,
//! what went wrong, and how fast it answers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use objects::Handle;
use parking_lot::{Condvar, Mutex, RwLock};

use super::depot::Depot;
use super::evicting::Used;
use super::sentence::Sentence;
use super::waiting::{Ticket, Wanted};
use super::{Counts, TierOptions, TierProgress};
use crate::Error;
use crate::files::is_large;
use crate::packs::Spot;

/// Large objects that wait by name; of more it is found out by looking at all files.
const LARGE_MAX: usize = 64 << 10;
/// Outboards of which the last levels are kept.
const TAILS_MAX: usize = 64;
/// Who asks for something that is there waits so long at most until it is known whose the tier is.
const TRUST_WAIT: Duration = Duration::from_secs(10);
/// The shortest pause after something went wrong, and the longest.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// So often it is looked whether somebody still wants to be alone.
const POLLED: Duration = Duration::from_millis(20);

/// How many [`Lane`]s there are.
const LANES: usize = 5;
/// Large objects that are put aside; one more keeps others waiting.
const ASIDE_MAX: usize = 1 << 10;
/// What was put aside is tried again after so many of the longest pauses, at most.
const ASIDE_PAUSES: u32 = 20;

/// Which part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Small objects, in packs.
    Packs = 0,
    /// Large ones.
    Large = 1,
    /// Labels.
    Labels = 2,
    /// What leaves the disk.
    Room = 3,
    /// What somebody waits for, with all that it names.
    Wanted = 4,
}

/// Why nothing is sent now.
#[derive(Debug)]
pub(super) enum Halt {
    /// It may go better soon.
    Later(String),
    /// Somebody has to do something first.
    Refused(String),
    /// The tier does not take this object now; others may go. Whose it is, is told to nobody but who waits for it.
    Object(Handle, String),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Later(error.to_string())
    }
}

impl From<super::DepotError> for Halt {
    fn from(error: super::DepotError) -> Self {
        Self::Later(error.to_string())
    }
}

/// A large object that could not be sent when its turn had come.
pub(super) struct Aside {
    /// Its number among those that wait.
    number: u64,
    tries: u32,
    /// It is tried again from then on.
    from: Instant,
    /// From then on it may be tried sooner, if another one goes.
    hasten_from: Instant,
    why: String,
}

/// What waits, and how far it is.
pub(super) struct Progress {
    /// All small objects before this are in the tier.
    pub(super) packs: Spot,
    /// Large objects that wait, by their numbers.
    pub(super) large: VecDeque<(u64, Handle)>,
    waiting: HashSet<Handle>,
    /// There are others, up to this number: all files are to be looked at.
    pub(super) unlisted: Option<u64>,
    pub(super) large_next: u64,
    /// All up to this number are in the tier, or aside.
    pub(super) large_done: u64,
    pub(super) aside: HashMap<Handle, Aside>,
    is_asides_turn: bool,
    /// What somebody waits for.
    pub(super) wanted: VecDeque<Arc<Wanted>>,
    pub(super) labels_next: u64,
    pub(super) labels_done: u64,
    /// Who waits for something to be there.
    pub(super) hurried: usize,
    /// Up to where packs are wanted by them.
    pub(super) packs_wanted: Spot,
    /// Objects that were not in the tier as rows say, until these say so.
    pub(super) lost: HashSet<Handle>,
    /// Small objects before where packs were sent to may have to be sent again.
    pub(super) are_packs_doubtful: bool,
    /// Up to where packs were sent before they were looked at again: who put what is there is long gone.
    pub(super) packs_before: Spot,
    pub(super) is_closing: bool,
    /// What went wrong last in each lane.
    trouble: [Option<(String, bool)>; LANES],
    failures: [u32; LANES],
    /// When it was last made certain that the tier is this home's.
    pub(super) owned: Option<Instant>,
}

/// How fast the tier answers, as far as was seen: moving averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    pub(crate) latency_nanos: f64,
    pub(crate) bytes_per_s: f64,
}

/// A read that several wait for.
#[derive(Default)]
pub(super) struct Flight {
    is_over: Mutex<bool>,
    over: Condvar,
}

/// The tier of a store.
pub(crate) struct Far {
    pub(super) depot: Arc<dyn Depot>,
    pub(super) options: TierOptions,
    pub(super) progress: Mutex<Progress>,
    pub(super) changed: Condvar,
    flights: Mutex<HashMap<Handle, Arc<Flight>>>,
    pub(super) tails: Mutex<HashMap<Handle, Arc<Vec<u8>>>>,
    speed: Mutex<Speed>,
    pub(super) counts: Counts,
    pub(super) used: Used,
    /// Held by who changes rows.
    pub(super) rows: Mutex<()>,
    /// How often something was found damaged, and up to which of these rows say no more of trees than is true.
    pub(super) doubts: AtomicU64,
    pub(super) settled: AtomicU64,
    /// Names of what somebody writes or removes just now.
    claimed: Mutex<HashSet<String>>,
    freed: Condvar,
    /// Held by those who send what something names, and alone by who decides what goes and by who takes the tier.
    pub(super) publishing: RwLock<()>,
    /// Somebody wants to be alone there: others do not begin meanwhile.
    pub(super) is_alone_wanted: AtomicBool,
    /// Held by who collects, and by who takes the tier.
    pub(super) collecting: Mutex<()>,
    /// What is going.
    sentence: RwLock<Option<Arc<Sentence>>>,
    /// What somebody relies on since a collection began, if one has.
    pub(super) relied: Mutex<Option<Vec<Handle>>>,
    /// How far a collection is.
    pub(super) collection: Mutex<Option<TierProgress>>,
    /// Held by who changes whose tier it is.
    pub(super) taking: Mutex<()>,
    /// Held by who sends packs in their order, and by who takes the tier, before [`Far::taking`].
    pub(super) sending_packs: Mutex<()>,
    /// Somebody wants that for taking it.
    pub(super) is_taken: AtomicBool,
    /// This process has found the tier to be this home's, and its disk not to be set back, and nothing else since.
    pub(super) is_trusted: AtomicBool,
}

impl Far {
    pub(super) fn new(depot: Arc<dyn Depot>, options: TierOptions) -> Self {
        let progress = Progress {
            packs: Spot::from_u64(0),
            large: VecDeque::new(),
            waiting: HashSet::new(),
            // What waited when the process before this one ended.
            unlisted: Some(1),
            large_next: 1,
            large_done: 0,
            aside: HashMap::new(),
            is_asides_turn: false,
            wanted: VecDeque::new(),
            labels_next: 1,
            labels_done: 0,
            hurried: 0,
            packs_wanted: Spot::from_u64(0),
            lost: HashSet::new(),
            are_packs_doubtful: false,
            packs_before: Spot::from_u64(0),
            is_closing: false,
            trouble: [const { None }; LANES],
            failures: [0; LANES],
            owned: None,
        };
        let speed = Speed {
            latency_nanos: options.latency.as_nanos() as f64,
            bytes_per_s: options.bytes_per_second as f64,
        };
        Self {
            depot,
            options,
            progress: Mutex::new(progress),
            changed: Condvar::new(),
            flights: Mutex::default(),
            tails: Mutex::default(),
            speed: Mutex::new(speed),
            counts: Counts::default(),
            used: Used::default(),
            rows: Mutex::default(),
            doubts: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            claimed: Mutex::default(),
            freed: Condvar::new(),
            publishing: RwLock::default(),
            is_alone_wanted: AtomicBool::default(),
            collecting: Mutex::default(),
            sentence: RwLock::default(),
            relied: Mutex::default(),
            collection: Mutex::default(),
            taking: Mutex::default(),
            sending_packs: Mutex::default(),
            is_taken: AtomicBool::default(),
            is_trusted: AtomicBool::default(),
        }
    }

    /// These were put, and are on the disk. Small ones are found in the packs.
    pub(crate) fn note_put(&self, keys: impl Iterator<Item = Handle>) {
        let mut progress = self.progress.lock();
        let mut is_news = false;
        for key in keys.filter(|key| is_large(*key)) {
            if progress.waiting.contains(&key) {
                continue;
            }
            is_news = true;
            progress.large_next += 1;
            let number = progress.large_next;
            if progress.large.len() >= LARGE_MAX || progress.unlisted.is_some() {
                progress.unlisted = Some(number);
            } else {
                progress.large.push_back((number, key));
                progress.waiting.insert(key);
            }
        }
        drop(progress);
        if is_news {
            self.changed.notify_all();
        }
    }

    /// A label has changed.
    pub(crate) fn note_label(&self) {
        self.progress.lock().labels_next += 1;
        self.changed.notify_all();
    }

    /// Whether what rows say may be told to whoever relies on it.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Relaxed)
    }

    /// Waits while it is found out again whose the tier is, which takes an answer of it or two: until then nothing
    /// is trusted. For who may wait, and holds nothing.
    pub(crate) fn await_trust(&self) {
        if !self.is_trusted() {
            drop(self.taking.try_lock_for(TRUST_WAIT));
        }
    }

    /// Waits until a lane has something to do, or for `linger`. False: it is to end.
    pub(super) fn idle(&self, lane: Lane, linger: Duration) -> bool {
        let until = Instant::now() + linger;
        let mut progress = self.progress.lock();
        loop {
            if progress.is_closing {
                return false;
            }
            let is_due = match lane {
                Lane::Packs => {
                    progress.hurried > 0
                        && (progress.packs < progress.packs_wanted || progress.are_packs_doubtful)
                }
                Lane::Large => !progress.large.is_empty() || progress.unlisted.is_some(),
                Lane::Labels => progress.hurried > 0 && progress.labels_done < progress.labels_next,
                Lane::Room => false,
                Lane::Wanted => progress.wanted.iter().any(|wanted| wanted.is_due()),
            };
            if is_due || self.changed.wait_until(&mut progress, until).timed_out() {
                return !progress.is_closing;
            }
        }
    }

    /// Waits as long as somebody wants to be alone, before what may take long is begun.
    pub(super) fn let_alone(&self) {
        let mut progress = self.progress.lock();
        while self.is_alone_wanted.load(Ordering::Relaxed) && !progress.is_closing {
            _ = self.changed.wait_for(&mut progress, POLLED);
        }
    }

    /// Waits after something went wrong. False: it is to end.
    pub(super) fn rest(&self, lane: Lane) -> bool {
        let mut progress = self.progress.lock();
        let failures = progress.failures[lane as usize].min(16);
        let pause = PAUSE.saturating_mul(1 << failures.saturating_sub(1)).min(PAUSE_MAX);
        let until = Instant::now() + pause.min(self.options.pause_max);
        while !progress.is_closing && !self.changed.wait_until(&mut progress, until).timed_out() {}
        !progress.is_closing
    }

    /// How a lane fared.
    pub(super) fn fared(&self, lane: Lane, halt: Option<Halt>) {
        let mut progress = self.progress.lock();
        let (trouble, failures) = match halt {
            None => (None, 0),
            Some(halt) => {
                let told = match halt {
                    Halt::Later(why) | Halt::Object(_, why) => (why, false),
                    Halt::Refused(why) => (why, true),
                };
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                (Some(told), progress.failures[lane as usize].saturating_add(1))
            }
        };
        progress.trouble[lane as usize] = trouble;
        progress.failures[lane as usize] = failures;
        drop(progress);
        self.changed.notify_all();
    }

    /// What goes wrong now, if anything does.
    pub(super) fn trouble(&self) -> Option<(String, bool)> {
        self.progress.lock().told()
    }

    /// Somebody has put right what was refused.
    pub(super) fn is_well(&self) {
        let mut progress = self.progress.lock();
        progress.trouble = [const { None }; LANES];
        progress.failures = [0; LANES];
    }

    /// The tier has not what a row says. Who has read it writes that down ([`Far::note_damaged`]).
    pub(super) fn note_lost(&self, key: Handle) {
        self.progress.lock().lost.insert(key);
    }

    /// It was moved, and nothing is wrong.
    pub(super) fn is_there(&self, key: Handle) {
        self.progress.lock().lost.remove(&key);
    }

    /// The tier has labels that are as new as this.
    pub(super) fn published(&self, wanted: u64) {
        let mut progress = self.progress.lock();
        progress.labels_done = progress.labels_done.max(wanted);
        drop(progress);
        self.changed.notify_all();
    }

    pub(super) fn labels_wanted(&self) -> Option<u64> {
        let progress = self.progress.lock();
        (progress.labels_done < progress.labels_next).then_some(progress.labels_next)
    }

    pub(super) fn close(&self) {
        self.progress.lock().is_closing = true;
        self.depot.close();
        self.changed.notify_all();
    }

    /// Whoever is first reads an object, and gets a guard; who comes later waits until that
    /// is over, and gets none.
    pub(super) fn board(&self, key: Handle) -> Option<Boarded<'_>> {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&key).map(Arc::clone) {
            drop(flights);
            let mut is_over = flight.is_over.lock();
            while !*is_over {
                flight.over.wait(&mut is_over);
            }
            return None;
        }
        flights.insert(key, Arc::default());
        Some(Boarded { far: self, key })
    }

    /// Whoever writes or removes what has a name is alone with it until the guard is dropped.
    pub(super) fn claim(&self, name: String) -> Claimed<'_> {
        let mut claimed = self.claimed.lock();
        while !claimed.insert(name.clone()) {
            self.freed.wait(&mut claimed);
        }
        Claimed { far: self, name }
    }

    /// [`Far::claim`], unless somebody else is at it.
    pub(super) fn try_claim(&self, name: String) -> Option<Claimed<'_>> {
        self.claimed.lock().insert(name.clone()).then(|| Claimed { far: self, name })
    }

    /// What is going, if anything is.
    pub(crate) fn sentence(&self) -> Option<Arc<Sentence>> {
        self.sentence.read().clone()
    }

    pub(super) fn pass(&self, sentence: Option<Arc<Sentence>>) {
        *self.sentence.write() = sentence;
    }

    /// What was relied on since this was last asked.
    pub(super) fn take_relied(&self) -> Vec<Handle> {
        self.relied.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A read of so many bytes took so long.
    pub(super) fn note_read(&self, bytes: u64, took: Duration) {
        const SHARE: f64 = 0.2;
        const LONG_BYTES: u64 = 256 << 10;
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        let nanos = took.as_nanos() as f64;
        let mut speed = self.speed.lock();
        if bytes < LONG_BYTES {
            speed.latency_nanos += SHARE * (nanos - speed.latency_nanos);
        } else {
            let moving = (nanos - speed.latency_nanos).max(nanos / 10.0).max(1.0);
            speed.bytes_per_s += SHARE * (bytes as f64 * 1e9 / moving - speed.bytes_per_s);
        }
    }

    pub(crate) fn speed(&self) -> Speed {
        *self.speed.lock()
    }

    /// The last levels of an object's outboard, if they were read.
    pub(super) fn tail(&self, key: Handle) -> Option<Arc<Vec<u8>>> {
        self.tails.lock().get(&key).map(Arc::clone)
    }

    pub(super) fn keep_tail(&self, key: Handle, tail: Arc<Vec<u8>>) {
        let mut tails = self.tails.lock();
        if tails.len() >= TAILS_MAX {
            tails.clear();
        }
        tails.insert(key, tail);
    }
}

impl Progress {
    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.packs >= ticket.packs
            && (!self.are_packs_doubtful || ticket.packs == Spot::from_u64(0))
            && self.large_done >= ticket.large
            && self.labels_done >= ticket.labels
            && self.aside.values().all(|aside| aside.number > ticket.large)
    }

    /// What goes wrong, first what does not heal by itself.
    pub(super) fn told(&self) -> Option<(String, bool)> {
        let mut all = self.trouble.iter().flatten();
        let found = all.clone().find(|(_, is_refused)| *is_refused).or_else(|| all.next()).cloned();
        found.or_else(|| {
            let longest = self.aside.values().max_by_key(|aside| aside.tries)?;
            let count = self.aside.len();
            Some((format!("{count} large objects cannot be sent for now: {}", longest.why), false))
        })
    }

    /// An object that was put aside and is to be tried again now; one in two while others wait.
    pub(super) fn aside_due(&mut self) -> Option<Handle> {
        self.is_asides_turn = !self.is_asides_turn || self.large.is_empty();
        let now = Instant::now();
        self.aside
            .iter()
            .filter(|_| self.is_asides_turn)
            .find(|(_, aside)| aside.from <= now)
            .map(|(key, _)| *key)
    }

    /// The tier does not take this one now: those behind it go first, and it is tried again, after longer and
    /// longer pauses. False: there are too many of those, and it stays where it is.
    pub(super) fn put_aside(&mut self, number: u64, key: Handle, why: String, pause_max: Duration) -> bool {
        if self.aside.len() >= ASIDE_MAX && !self.aside.contains_key(&key) {
            return false;
        }
        if self.front().is_some_and(|front| front.1 == key) {
            self.pop();
        }
        let now = Instant::now();
        let new = || Aside { number, tries: 0, from: now, hasten_from: now, why: String::new() };
        let aside = self.aside.entry(key).or_insert_with(new);
        // Who put it again waits for it as for what was put before.
        aside.number = aside.number.min(number);
        let pause =
            PAUSE.saturating_mul(1 << aside.tries.min(16)).min(pause_max.saturating_mul(ASIDE_PAUSES));
        (aside.tries, aside.from, aside.why) = (aside.tries.saturating_add(1), now + pause, why);
        true
    }

    /// One that was put aside has been taken: the others are tried soon, for what was wrong may be over. Each once
    /// in the longest pause: some may be refused for what they are.
    pub(super) fn hasten(&mut self, pause_max: Duration) {
        let now = Instant::now();
        for aside in self.aside.values_mut().filter(|aside| aside.hasten_from <= now) {
            aside.from = aside.from.min(now + PAUSE);
            aside.hasten_from = now + pause_max.saturating_mul(ASIDE_PAUSES);
        }
    }

    /// The large object that comes next.
    pub(super) fn front(&self) -> Option<(u64, Handle)> {
        self.large.front().copied()
    }

    /// All that waits is to be found by looking at all files.
    pub(super) fn unlist(&mut self) {
        self.large.clear();
        self.waiting.clear();
        self.unlisted = Some(self.large_next);
    }

    /// It is being sent: who puts it from now on has it looked at again.
    pub(super) fn begins(&mut self, key: &Handle) {
        self.waiting.remove(key);
    }

    /// It is in the tier, or is no more.
    pub(super) fn pop(&mut self) {
        if let Some((number, _)) = self.large.pop_front() {
            self.large_done = self.large_done.max(number);
        }
    }
}

/// While it lives, those who may take long do not begin.
pub(super) struct AloneWanted<'a>(&'a Far);

impl<'a> AloneWanted<'a> {
    pub(super) fn by(far: &'a Far) -> Self {
        far.is_alone_wanted.store(true, Ordering::Relaxed);
        Self(far)
    }
}

impl Drop for AloneWanted<'_> {
    fn drop(&mut self) {
        self.0.is_alone_wanted.store(false, Ordering::Relaxed);
    }
}

/// Reads an object for all who want it.
pub(super) struct Boarded<'a> {
    far: &'a Far,
    key: Handle,
}

impl Drop for Boarded<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.far.flights.lock().remove(&self.key) {
            *flight.is_over.lock() = true;
            flight.over.notify_all();
        }
    }
}

/// Is alone with what has a name.
pub(super) struct Claimed<'a> {
    far: &'a Far,
    name: String,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.far.claimed.lock().remove(&self.name);
        self.far.freed.notify_all();
    }
}
