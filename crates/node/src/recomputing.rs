// SPDX-License-Identifier: Apache-2.0
//! Objects that are not here and can be made again: the one place that decides, for all
//! who read, that an object is made again instead of being missing.
//!
//! It is not made here: a walk that waits for it is told its recipe
//! ([`evaluator::Event::Dropped`]), and whoever reads from outside begins such a walk
//! ([`make_again`]). Reading from the disk comes first, since an object that is there never
//! has to be made; what is fetched from outside is kept, so that nothing else competes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway::{Backend as _, Begun, Derivation, EvaluateRequest, Priority};
use objects::Handle;
use store::{Error, Recipe, Store};

use crate::backend::NodeBackend;

/// Whoever reads waits for so long at most: what goes takes a minute, if nothing else runs.
const MADE_WITHIN: Duration = Duration::from_secs(600);

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

/// The recipe of an object that is not here, if following it takes less than bringing the object from
/// the tier, or the tier has not got it. How long both take is an estimate.
pub(crate) fn cheaper(store: &Store, object: Handle) -> Result<Option<Recipe>, Error> {
    let Some(recipe) = store.recipe(object)? else { return Ok(None) };
    let is_cheaper = store.far_nanos(object)?.is_none_or(|nanos| recipe.nanos < nanos);
    Ok(is_cheaper.then_some(recipe))
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

/// A walk towards an object that is made again, for a reader outside; `None` if it was not dropped.
/// The inner error: the node takes no more requests now.
pub(crate) fn make_again(backend: &NodeBackend, object: Handle) -> Result<Option<Begun>, Error> {
    let store = &backend.0.store;
    let object = object.plain_tree();
    let Some(goal) = object.identification().and_then(Handle::strict) else { return Ok(None) };
    if store.recipe(object)?.is_none() {
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

/// How an object came about, and whether it could be dropped.
pub(crate) fn derivation(store: &Store, object: Handle) -> Result<Option<Derivation>, Error> {
    let key = object.plain_tree();
    if !object.is_value() || key.literal_bytes().is_some() {
        return Ok(None);
    }
    if let Some(recipe) = store.recipe(key)? {
        let Recipe { application, nanos, depth, .. } = recipe;
        let is_dropped = !store.contains(key)?;
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
