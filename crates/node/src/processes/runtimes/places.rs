// SPDX-License-Identifier: Apache-2.0
//! Which runtimes there are, and which of them has to go for another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use objects::Handle;
use parking_lot::Mutex;
use sandbox::Fault;
use sandbox::process::{Functions, Language};
use tracing::warn;

/// Runtimes with imports of their own at once: each has a template, and
/// instances that wait. A function for which there is no room is forked from
/// the template without imports, and imports what it needs itself.
pub(super) const DEDICATED_MAX: usize = 4;
/// A runtime with imports that nothing was forked from for so long is ended.
pub(super) const DEDICATED_IDLE: Duration = Duration::from_secs(15 * 60);
/// Bits of a sandbox's id that are the number of its runtime.
pub(super) const NUMBER_BITS: u32 = 16;

/// The runtimes by their numbers; the first are those without imports, in the
/// order of [`Language::ALL`].
pub(super) struct Places {
    pub(super) by_number: BTreeMap<u64, Arc<Place>>,
    next: u64,
    uses: u64,
    pub(super) is_over: bool,
    /// What all templates with imports may have together.
    bytes_max: u64,
}

/// What a template has loaded, so that its functions need not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Wanted {
    /// Modules; those of the node's own interpreter if functions bring none.
    pub(super) imports: Vec<String>,
    /// The layers that a function brings and the modules are looked for in first.
    /// None without imports: what a plain template is, is the same for all.
    pub(super) layers: Vec<Handle>,
    /// The function, or the workflow, where there are layers: what it brings could tell one function
    /// of the requests of another one that brings the same.
    pub(super) function: String,
}

impl Wanted {
    pub(super) fn new(imports: Vec<String>, layers: Vec<Handle>, function: &str) -> Self {
        let layers = if imports.is_empty() { Vec::new() } else { layers };
        let function = if layers.is_empty() { String::new() } else { function.to_owned() };
        Self { imports, layers, function }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.imports.is_empty()
    }
}

/// A place for a runtime.
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) language: Language,
    pub(super) wanted: Wanted,
    pub(super) begun: Mutex<Begun>,
    last_use: AtomicU64,
    /// When an instance was last asked for.
    used_at: Mutex<Instant>,
    /// What its template has, if that has imports and is ready.
    pub(super) bytes: AtomicU64,
    /// It was told already that its instances are laid out differently.
    is_told: AtomicBool,
}

/// A runtime. Its lock is held while it is begun, so that others, who would
/// only do the same, wait.
#[derive(Default)]
pub(super) enum Begun {
    #[default]
    No,
    Yes(Arc<Functions>),
    Failed(Instant, Fault),
    /// What functions bring is loaded by themselves.
    NotBrought,
    Over,
}

impl Place {
    fn new(number: u64, language: Language, wanted: Wanted) -> Arc<Self> {
        Arc::new(Self {
            number,
            language,
            wanted,
            begun: Mutex::default(),
            last_use: AtomicU64::new(0),
            used_at: Mutex::new(Instant::now()),
            bytes: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
        })
    }

    /// Counts the memory of its template, which has just been started.
    pub(super) fn measure(&self, functions: &Functions) {
        if self.wanted.is_nothing() {
            return;
        }
        if functions.is_over() {
            self.bytes.store(0, Ordering::Relaxed);
            return;
        }
        match functions.template_bytes() {
            Ok(bytes) => self.bytes.store(bytes, Ordering::Relaxed),
            Err(error) => {
                let imports = self.wanted.imports.join(", ");
                warn!(
                    "the memory of the template with {imports} cannot be read, and is not counted: {error}"
                );
            }
        }
    }

    /// Tells once that its template came back with another layout.
    pub(super) fn tell_layout(&self, functions: &Functions) {
        if functions.why_cold().is_none()
            && let Err(why) = functions.layout()
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            warn!("{why}");
        }
    }

    /// Whether nothing would be missed if it were not there.
    fn is_idle(self: &Arc<Self>) -> bool {
        // Whoever is about to make an instance holds it; nobody else can take
        // hold of it now.
        let is_held = Arc::strong_count(self) > 1;
        !is_held
            && self.begun.try_lock().is_some_and(|begun| match &*begun {
                Begun::Yes(functions) => functions.sandboxes() == 0,
                Begun::No | Begun::Failed(..) | Begun::NotBrought | Begun::Over => true,
            })
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Places {
    pub(super) fn new(bytes_max: u64) -> Self {
        let all = Language::ALL.into_iter().zip(0..);
        let by_number: BTreeMap<_, _> =
            all.map(|(language, number)| (number, Place::new(number, language, Wanted::default()))).collect();
        let next = by_number.len() as u64;
        Self { by_number, next, uses: 0, is_over: false, bytes_max }
    }

    /// The runtime that has loaded this, and others that had to go for it; the
    /// plain one if there is no room.
    pub(super) fn get(
        &mut self,
        language: Language,
        wanted: &Wanted,
    ) -> (Option<Arc<Place>>, Vec<Arc<Place>>) {
        self.uses += 1;
        let mut gone = Vec::new();
        let found = self.find(language, wanted).or_else(|| {
            gone = self.make_room()?;
            let place = Place::new(self.next, language, wanted.clone());
            self.next += 1;
            self.by_number.insert(place.number, Arc::clone(&place));
            Some(place)
        });
        let found = found.or_else(|| self.plain(language));
        if let Some(place) = &found {
            place.last_use.store(self.uses, Ordering::Relaxed);
            *place.used_at.lock() = Instant::now();
        }
        (found, gone)
    }

    /// The runtime of a language that has loaded nothing.
    pub(super) fn plain(&self, language: Language) -> Option<Arc<Place>> {
        self.find(language, &Wanted::default())
    }

    fn find(&self, language: Language, wanted: &Wanted) -> Option<Arc<Place>> {
        let mut places = self.by_number.values();
        places.find(|place| place.language == language && place.wanted == *wanted).cloned()
    }

    /// Room for one more with imports, and those that were taken out for it; none
    /// if too many have instances, and then all stay.
    fn make_room(&mut self) -> Option<Vec<Arc<Place>>> {
        if self.is_over || self.next >> NUMBER_BITS != 0 {
            return None;
        }
        let (mut count, mut bytes) = (self.dedicated().count(), self.bytes());
        let mut idle = self.idle().into_iter();
        let mut going = Vec::new();
        while count >= DEDICATED_MAX || bytes >= self.bytes_max {
            let number = idle.next()?;
            count -= 1;
            bytes -= self.by_number.get(&number)?.bytes();
            going.push(number);
        }
        Some(going.iter().filter_map(|number| self.by_number.remove(number)).collect())
    }

    /// Those with imports.
    fn dedicated(&self) -> impl Iterator<Item = &Arc<Place>> {
        self.by_number.values().filter(|place| !place.wanted.is_nothing())
    }

    /// Of these, the ones that nobody would miss, beginning with the one that
    /// was not used for the longest time.
    fn idle(&self) -> Vec<u64> {
        let mut idle: Vec<&Arc<Place>> = self.dedicated().filter(|place| place.is_idle()).collect();
        idle.sort_by_key(|place| place.last_use.load(Ordering::Relaxed));
        idle.into_iter().map(|place| place.number).collect()
    }

    /// Those whose templates nobody trusts.
    pub(super) fn brought(&self) -> Vec<Arc<Place>> {
        self.dedicated().filter(|place| !place.wanted.layers.is_empty()).cloned().collect()
    }

    /// Memory of all templates with imports.
    pub(super) fn bytes(&self) -> u64 {
        self.dedicated().map(|place| place.bytes()).sum()
    }

    /// Takes out those with imports that nothing was forked from for a long time,
    /// and others while all have too much. The last one stays, however large it
    /// is: it would only have to be made anew for the next instance.
    pub(super) fn take_unneeded(&mut self, now: Instant) -> Vec<Arc<Place>> {
        let mut gone = Vec::new();
        for number in self.idle() {
            let Some(place) = self.by_number.get(&number) else { continue };
            let unused = now.saturating_duration_since(*place.used_at.lock());
            let is_too_much = self.bytes() > self.bytes_max && self.dedicated().count() > 1;
            if unused >= DEDICATED_IDLE || is_too_much {
                gone.extend(self.by_number.remove(&number));
            }
        }
        gone
    }
}
