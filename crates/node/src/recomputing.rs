// SPDX-License-Identifier: Apache-2.0
//! Objects that are not here: the one place that decides, for all who read, whether they are
//! made again or come from the durable tier ([`way`]).
//!
//! It is not made here: a walk that waits for it is told its recipe
//! ([`evaluator::Event::Dropped`]), and whoever reads from outside begins such a walk
//! ([`make_again`]). Reading from the disk comes first, since an object that is there never
//! has to be made; what is fetched from outside is kept, so that nothing else competes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway::{Backend as _, Begun, ComesBy, Derivation, EvaluateRequest, Priority, Transfer};
use objects::Handle;
use store::{Error, Object, Recipe, Store};

use crate::backend::NodeBackend;

/// Whoever reads waits for so long at most: what goes takes a minute, if nothing else runs.
const MADE_WITHIN: Duration = Duration::from_secs(600);

/// Objects that are looked at to find out what a recipe needs and is not here. With more than these the tier is
/// taken, if it has the object.
const LOOKED_MAX: usize = 256;

/// All bytes of an object.
pub(crate) const WHOLE: u64 = u64::MAX;

/// How an object comes to who wants it. How long that takes is an estimate, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is in memory or on the disk.
    Here,
    /// The tier sends it.
    Tier { nanos: u64 },
    /// It is made again; with all that has to be brought for that, if the tier has it too.
    Recipe { recipe: Recipe, nanos: u64, is_far: bool },
    /// Nobody is known to have it.
    Nowhere,
}

impl Way {
    /// Whoever reads it, wherever it lies, has it.
    pub(crate) fn is_to_read(self) -> bool {
        matches!(self, Self::Here | Self::Tier { .. })
    }
}

/// How an object comes of which so many bytes are wanted. Where it was dropped and the tier has it, what
/// takes less: to bring these bytes, or to bring what its recipe needs and is not here, and to follow that.
/// Nobody waits for the tier to find that out.
pub(crate) fn way(store: &Store, object: Handle, bytes: u64) -> Result<Way, Error> {
    Survey { store, seen: HashSet::new(), looked: 0 }.way(object.plain_tree(), bytes)
}

struct Survey<'a> {
    store: &'a Store,
    /// What is brought or made once, for whatever needs it.
    seen: HashSet<Handle>,
    /// Objects that were looked at.
    looked: usize,
}

impl Survey<'_> {
    fn way(&mut self, key: Handle, bytes: u64) -> Result<Way, Error> {
        if self.store.is_here(key)? {
            return Ok(Way::Here);
        }
        self.seen.insert(key);
        let far_nanos = self.store.far_nanos(key, bytes)?;
        Ok(match (self.store.recipe(key)?, far_nanos) {
            (None, None) => Way::Nowhere,
            (None, Some(nanos)) => Way::Tier { nanos },
            (Some(recipe), None) => Way::Recipe { recipe, nanos: recipe.nanos, is_far: false },
            (Some(recipe), Some(nanos)) => {
                let before = self.seen.clone();
                match self.made_nanos(&recipe, nanos)? {
                    Some(nanos) => Way::Recipe { recipe, nanos, is_far: true },
                    None => {
                        // What it would have needed is not brought for it.
                        self.seen = before;
                        Way::Tier { nanos }
                    }
                }
            }
        })
    }

    /// What a recipe takes with all that has to be brought or made for it; `None`: not less than `most`, or
    /// nobody can tell.
    fn made_nanos(&mut self, recipe: &Recipe, most: u64) -> Result<Option<u64>, Error> {
        let mut nanos = recipe.own_nanos;
        let mut pending = vec![recipe.application.definition()];
        while nanos < most {
            let Some(entry) = pending.pop() else { return Ok(Some(nanos)) };
            let key = entry.plain_tree();
            // What is behind refs and thunks is not read.
            if !entry.is_object() || entry.literal_bytes().is_some() || !self.seen.insert(key) {
                continue;
            }
            self.looked += 1;
            if self.looked > LOOKED_MAX {
                return Ok(None);
            }
            let more = if key.names_tree() {
                self.tree(key)?.map(|tree| pending.extend(tree.as_tree().iter())).map(|()| 0)
            } else {
                match self.way(key, WHOLE)? {
                    Way::Here => Some(0),
                    Way::Tier { nanos } | Way::Recipe { nanos, is_far: true, .. } => Some(nanos),
                    Way::Recipe { recipe, .. } => self.made_nanos(&recipe, most - nanos)?,
                    Way::Nowhere => None,
                }
            };
            let Some(more) = more else { return Ok(None) };
            nanos = nanos.saturating_add(more);
        }
        Ok(None)
    }

    /// A tree that a recipe needs. `None`: what it names cannot be told here, or is too much.
    fn tree(&self, key: Handle) -> Result<Option<Object>, Error> {
        if key.size() > LOOKED_MAX as u64 {
            return Ok(None);
        }
        match self.store.get_here(key) {
            Err(Error::Corrupt { .. }) => Ok(None),
            read => read,
        }
    }
}

/// An object, wherever it lies. `None`: nobody has it, or it is to be made again ([`make_again`]).
pub(crate) fn get(store: &Store, object: Handle) -> Result<Option<Object>, Error> {
    read(store, object, WHOLE, || store.get_here(object), || store.get(object))
}

/// The same for a part of it.
pub(crate) fn get_range(store: &Store, object: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
    let here = || store.read_range_here(object, range.clone());
    read(store, object, range.end.saturating_sub(range.start), here, || {
        store.read_range(object, range.clone())
    })
}

fn read<T>(
    store: &Store,
    object: Handle,
    bytes: u64,
    here: impl FnOnce() -> Result<Option<T>, Error>,
    anywhere: impl FnOnce() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let mut read = here();
    if is_missing(&read) && store.has_tier() && way(store, object, bytes)?.is_to_read() {
        read = anywhere();
    }
    Ok(match found(store, object, read)? {
        Found::Here(it) => Some(it),
        Found::Dropped(_) | Found::Absent => None,
    })
}

/// What became of reading an object.
pub(crate) enum Found<T> {
    /// It, or what was wanted of it.
    Here(T),
    /// It is made again by this.
    Dropped(Recipe),
    /// Nobody has it.
    Absent,
}

/// What reading gave, or the recipe of what it did not give. A damaged object is one that
/// was dropped, if its recipe is known.
pub(crate) fn found<T>(
    store: &Store,
    object: Handle,
    read: Result<Option<T>, Error>,
) -> Result<Found<T>, Error> {
    match read {
        Ok(Some(it)) => Ok(Found::Here(it)),
        Ok(None) => Ok(store.recipe(object)?.map_or(Found::Absent, Found::Dropped)),
        // The tier was cheaper, or so it seemed.
        Err(error @ Error::Far { .. }) => match store.recipe(object)? {
            Some(recipe) => {
                tracing::warn!(%object, %error, "it is made again instead");
                Ok(Found::Dropped(recipe))
            }
            None => Err(error),
        },
        Err(error @ Error::Corrupt { .. }) => match store.find_recipe(object)? {
            Some(recipe) => {
                let recipe_text = recipe.application.to_string();
                tracing::warn!(%object, %error, recipe = recipe_text, "a damaged object is made again");
                Ok(Found::Dropped(recipe))
            }
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Whether something that was read here is to be looked for elsewhere: it is absent, or was damaged.
pub(crate) fn is_missing<T>(read: &Result<Option<T>, Error>) -> bool {
    matches!(read, Ok(None) | Err(Error::Corrupt { .. }))
}

/// How often objects were made again.
#[derive(Debug, Default)]
pub(crate) struct Remakes {
    asked: AtomicU64,
    wrong: AtomicU64,
}

impl Remakes {
    /// A walk makes one.
    pub(crate) fn note(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// A recipe gave something else. That must not happen: its computation is not what its
    /// application says, or the module's host has changed.
    pub(crate) fn note_wrong(&self, object: Handle, recipe: Handle, result: Handle) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%object, %recipe, %result, "an object was dropped, and its recipe gives something else");
    }

    /// Times that a walk was told a recipe.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Times that one did not give its object.
    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }
}

/// A walk towards an object that is made again, for a reader outside; `None` if nobody has it or can make it.
/// The inner error: the node takes no more requests now.
pub(crate) fn make_again(backend: &NodeBackend, object: Handle) -> Result<Option<Begun>, Error> {
    let store = &backend.0.store;
    let object = object.plain_tree();
    let Some(goal) = object.identification().and_then(Handle::strict) else { return Ok(None) };
    // It may have been made by now.
    if store.recipe(object)?.is_none() && !store.contains(object)? {
        return Ok(None);
    }
    // That a tree is its own complete result says nothing of where it is.
    store.relations().forget_unless(goal, || false);
    let deadline = Some(MADE_WITHIN);
    let request = EvaluateRequest {
        goal,
        deadline,
        priority: Priority::Normal,
        is_repeatable: true,
        streams: false,
        by: None,
        recording: None,
        tenant: None,
    };
    Ok(Some(backend.evaluate(request)))
}

/// What bringing an object from the tier takes, if it is there, and how it comes to who reads it.
pub(crate) fn transfer(store: &Store, object: Handle) -> Result<Option<Transfer>, Error> {
    let Some(nanos) = store.far_nanos(object, WHOLE)? else { return Ok(None) };
    let comes_by = match way(store, object, WHOLE)? {
        Way::Recipe { nanos, .. } => ComesBy::Recipe { nanos },
        Way::Tier { .. } | Way::Nowhere => ComesBy::Tier,
        Way::Here => ComesBy::Nothing,
    };
    Ok(Some(Transfer { nanos, comes_by }))
}

/// How an object came about, and whether it could be dropped.
pub(crate) fn derivation(store: &Store, object: Handle) -> Result<Option<Derivation>, Error> {
    let key = object.plain_tree();
    if !object.is_value() || key.literal_bytes().is_some() {
        return Ok(None);
    }
    if let Some(recipe) = store.recipe(key)? {
        let Recipe { application, nanos, depth, .. } = recipe;
        let is_dropped = !store.is_here(key)?;
        return Ok(Some(Derivation { recipe: application, is_dropped, nanos, depth, stays: None }));
    }
    let Some((recipe, nanos, is_own)) = store.likely_recipe(key) else { return Ok(None) };
    let stays = if store.is_promised(key)? {
        Some("it was put, or counts as put: nobody knows otherwise")
    } else if key.names_tree() {
        Some("what a tree names must be known without it")
    } else if !is_own {
        Some("it was fetched, and its server need not have it again")
    } else {
        None
    };
    Ok(Some(Derivation { recipe, is_dropped: false, nanos, depth: 1, stays }))
}
