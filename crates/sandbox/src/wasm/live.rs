// SPDX-License-Identifier: Apache-2.0
//! An instance of a codelet, and its return to the initial state.
//!
//! A wasmtime store holds exactly one instance. What a guest may have changed
//! is restored after the call, not before the next one, so that nothing of it
//! lies about in the meantime: after a return, and after a failure that the
//! guest asks for itself. Whoever cannot vouch for the state (after a
//! trap, after growth) drops the whole [`Live`].

use wasmtime::{Engine, Extern, Global, Memory, Store, TypedFunc, UpdateDeadline, Val};

use super::call::CallState;
use super::image::Image;
use super::library::Loaded;
use super::module::Class;
use super::rewrite;

/// An instance that has never run, or has been restored.
pub(crate) struct Live {
    pub(crate) store: Store<CallState>,
    apply: TypedFunc<i32, i32>,
    reset: Reset,
}

/// How an instance gets back to its initial state.
enum Reset {
    /// It never leaves it.
    Nothing,
    State {
        memory: Option<(Memory, Image)>,
        globals: Vec<(Global, Val)>,
    },
    /// It does not: it is used once.
    Impossible,
}

impl Live {
    /// Makes an instance for the call that `state` has taken up. Runs the
    /// module's start function, under the call's limits: `fuel`, if counted.
    ///
    /// # Errors
    /// With the store, whose data says what went wrong in a start function.
    pub(crate) fn new(
        loaded: &Loaded,
        state: CallState,
        fuel: u64,
    ) -> Result<Self, (Store<CallState>, wasmtime::Error)> {
        let engine: &Engine = loaded.instance.module().engine();
        let mut store = Store::new(engine, state);
        match Self::instantiate(loaded, &mut store, fuel) {
            Ok((apply, reset)) => Ok(Self { store, apply, reset }),
            Err(error) => Err((store, error)),
        }
    }

    fn instantiate(
        loaded: &Loaded,
        store: &mut Store<CallState>,
        fuel: u64,
    ) -> wasmtime::Result<(TypedFunc<i32, i32>, Reset)> {
        prepare(loaded, store, fuel)?;
        let instance = loaded.instance.instantiate(&mut *store)?;
        let entry = loaded.entry.as_ref();
        let entry = entry.and_then(|entry| instance.get_module_export(&mut *store, entry));
        let Some(Extern::Func(apply)) = entry else {
            unreachable!("the scan found a function of that name");
        };
        let apply = apply.typed(&*store)?;
        let memory = loaded.memory.and_then(|export| instance.get_module_export(&mut *store, &export));
        store.data_mut().memory = memory.and_then(Extern::into_memory);
        let reset = match loaded.facts.class {
            Class::Stateless => Reset::Nothing,
            Class::Fresh | Class::Program => Reset::Impossible,
            Class::Restored => {
                let memory = instance.get_memory(&mut *store, rewrite::MEMORY_NAME);
                let memory = memory.map(|memory| (memory, Image::of(memory.data(&*store))));
                let globals: Vec<Global> = rewrite::globals(&instance, store);
                let globals = globals.into_iter().map(|global| (global, global.get(&mut *store))).collect();
                Reset::State { memory, globals }
            }
        };
        Ok((apply, reset))
    }

    /// Runs the codelet.
    #[inline]
    pub(crate) fn apply(&mut self) -> wasmtime::Result<i32> {
        self.apply.call(&mut self.store, 0)
    }

    /// Restores the initial state; `false`: drop the instance.
    #[inline]
    #[must_use]
    pub(crate) fn reset(&mut self) -> bool {
        match &self.reset {
            Reset::Nothing => true,
            Reset::Impossible => false,
            Reset::State { memory, globals } => {
                if let Some((memory, image)) = memory
                    && !image.restore(memory.data_mut(&mut self.store))
                {
                    return false;
                }
                globals.iter().all(|(global, value)| global.set(&mut self.store, *value).is_ok())
            }
        }
    }
}

/// Sets limits: memory, time, and `fuel` if it is counted.
pub(crate) fn prepare(loaded: &Loaded, store: &mut Store<CallState>, fuel: u64) -> wasmtime::Result<()> {
    store.limiter(|state| state);
    // Set once: each increment of the epoch, by whoever wants to stop some
    // application, makes every guest look once whether it is meant.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut context| {
        let state = context.data_mut();
        match state.flags.demand(state.ticket) {
            Some(fault) => Err(state.stop(fault)),
            None => Ok(UpdateDeadline::Continue(1)),
        }
    });
    if loaded.compilation.counted {
        store.set_fuel(fuel)?;
    }
    Ok(())
}
