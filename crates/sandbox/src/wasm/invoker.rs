// SPDX-License-Identifier: Apache-2.0
//! The hot path: one invoker per worker thread, which owns its instances.
//!
//! An invocation finds its instance by procedure and variant (the one used
//! last without any look-up), enters it, and restores it. Nothing on this
//! path is shared between threads but the interrupt's two words, and nothing
//! is allocated unless the guest makes objects.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use objects::{FailureCode, Handle};
use wasmtime::{ThrownException, Trap};

use super::call::CallState;
use super::codelets::Codelets;
use super::compiler::Key;
use super::interrupt::{Flags, Interrupt, Ticket};
use super::library::{Library, Loaded};
use super::live::Live;
use super::module::Class;
use super::wasi;
use crate::{Call, Fault, Outcome, Printed};

/// A module and, unless each application gets a new one, its instance.
struct Slot {
    key: Key,
    loaded: Arc<Loaded>,
    live: Option<Live>,
    last_used: u64,
}

/// Runs codelets on one thread. The thread's stack must exceed
/// [`Options::stack_bytes`](super::Options::stack_bytes) by 512 KiB.
pub struct Invoker {
    library: Arc<Library>,
    flags: Arc<Flags>,
    slots: Vec<Slot>,
    slot_by_key: HashMap<Key, usize, BuildHasherDefault<HandleHasher>>,
    /// The slot used last.
    last: usize,
    slots_max: usize,
    ticket: u64,
}

/// Handles are hashes already (and a table has few of them): eight of their
/// bytes do.
#[derive(Default)]
struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*word);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = self.0.rotate_left(1) ^ u64::from(byte);
    }

    fn write_usize(&mut self, _len: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Invoker {
    /// An invoker without instances.
    pub fn new(codelets: Arc<Codelets>) -> Self {
        Self::with_library(codelets.library().clone())
    }

    pub(crate) fn with_library(library: Arc<Library>) -> Self {
        let slots_max = library.options.instances_per_invoker();
        Self {
            library,
            flags: Arc::default(),
            slots: Vec::new(),
            slot_by_key: HashMap::default(),
            last: 0,
            slots_max,
            ticket: 1,
        }
    }

    /// What other threads use to stop the application that runs here.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt::new(self.flags.clone(), self.library.pacemaker.clone())
    }

    /// The ticket of the next invocation, for
    /// [`Interrupt::raise_for`](Interrupt::raise_for).
    pub fn next_ticket(&self) -> Ticket {
        Ticket(self.ticket)
    }

    /// Whether a procedure can be applied without waiting for its code.
    #[inline]
    pub fn is_ready(&self, procedure: Handle, counted: bool) -> bool {
        let key = (procedure, counted);
        self.slots.get(self.last).is_some_and(|slot| slot.key == key) || self.is_known(key)
    }

    #[inline(never)]
    fn is_known(&self, key: Key) -> bool {
        self.slot_by_key.contains_key(&key) || self.library.is_ready(key)
    }

    /// Applies a procedure, in an instance without a trace of earlier ones.
    pub fn invoke(&mut self, call: Call) -> Outcome {
        let ticket = Ticket(self.ticket);
        self.ticket += 1;
        self.flags.begin(ticket);
        let outcome = self.run(call, ticket);
        self.flags.end(ticket);
        outcome
    }

    #[inline]
    fn run(&mut self, call: Call, ticket: Ticket) -> Outcome {
        if let Some(fault) = self.flags.demand(ticket) {
            return refused(fault);
        }
        let key = (call.procedure, call.limits.fuel > 0);
        let slot = match self.slots.get(self.last) {
            Some(slot) if slot.key == key => self.last,
            _ => match self.find(key) {
                Ok(slot) => slot,
                Err(fault) => return refused(fault),
            },
        };
        self.last = slot;
        let slot = &mut self.slots[slot];
        slot.last_used = ticket.0;
        let initial = slot.loaded.facts.initial_bytes;
        if initial > call.limits.memory_bytes {
            let limit = call.limits.memory_bytes;
            let why = format!("the module begins with {initial} bytes of memory and tables, over {limit}");
            return refused(Fault::new(FailureCode::Memory, why));
        }
        let fuel = call.limits.fuel;
        if slot.loaded.facts.class == Class::Program {
            let loaded = Arc::clone(&slot.loaded);
            let mut state = CallState::new(self.library.store.clone(), self.flags.clone());
            state.begin(call, 0, ticket);
            return wasi::run(&loaded, &self.library.images, state, fuel);
        }
        if slot.live.is_none() {
            match self.instantiate(call, ticket) {
                Ok(()) => {}
                Err(outcome) => return outcome,
            }
        } else if let Some(live) = &mut slot.live {
            live.store.data_mut().begin(call, initial, ticket);
            if fuel > 0 && live.store.set_fuel(fuel).is_err() {
                unreachable!("the engine of this variant counts fuel");
            }
        }
        self.enter(fuel)
    }

    /// Runs the instance of the slot used last.
    #[inline]
    fn enter(&mut self, fuel: u64) -> Outcome {
        let live_slot = &mut self.slots[self.last].live;
        let Some(live) = live_slot else { unreachable!("the caller made an instance") };
        let returned = live.apply();
        let used = if fuel > 0 { fuel - live.store.get_fuel().unwrap_or(0) } else { 0 };
        let state = live.store.data_mut();
        let (result, intact) = match returned {
            Ok(index) => match state.table.get(index) {
                Some(handle) => (Ok(handle), true),
                None => (Err(no_such_result(index)), true),
            },
            Err(error) => {
                let fault = fault_of(state, &error);
                // Its own wish, at a call of the host: what it changed is what it could have
                // changed before it returned. After any other end nobody vouches for that.
                let intact = fault.code == FailureCode::Guest;
                (Err(fault), intact)
            }
        };
        state.end();
        if !(intact && live.reset()) {
            *live_slot = None;
        }
        Outcome { result, fuel: used, log: Printed::default(), spent: None, phases: None }
    }

    /// Makes an instance in the slot used last, for `call`.
    #[cold]
    fn instantiate(&mut self, call: Call, ticket: Ticket) -> Result<(), Outcome> {
        let mut state = CallState::new(self.library.store.clone(), self.flags.clone());
        let fuel = call.limits.fuel;
        state.begin(call, 0, ticket);
        let slot = &mut self.slots[self.last];
        match Live::new(&slot.loaded, state, fuel) {
            Ok(live) => {
                slot.live = Some(live);
                Ok(())
            }
            Err((mut store, error)) => {
                let used = if fuel > 0 { fuel - store.get_fuel().unwrap_or(0) } else { 0 };
                {
                    let fault = fault_of(store.data_mut(), &error);
                    Err(Outcome {
                        result: Err(fault),
                        fuel: used,
                        log: Printed::default(),
                        spent: None,
                        phases: None,
                    })
                }
            }
        }
    }

    /// The slot of a procedure; loads it if need be.
    #[inline(never)]
    fn find(&mut self, key: Key) -> Result<usize, Fault> {
        if let Some(&slot) = self.slot_by_key.get(&key) {
            return Ok(slot);
        }
        let loaded = self.library.load(key.0, key.1)?;
        let slot = Slot { key, loaded, live: None, last_used: self.ticket };
        if self.slots.len() < self.slots_max {
            self.slots.push(slot);
            self.slot_by_key.insert(key, self.slots.len() - 1);
            return Ok(self.slots.len() - 1);
        }
        let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.last_used);
        let Some((index, _)) = oldest else { unreachable!("an invoker has at least one slot") };
        self.slot_by_key.remove(&self.slots[index].key);
        self.slots[index] = slot;
        self.slot_by_key.insert(key, index);
        Ok(index)
    }
}

#[cold]
fn refused(fault: Fault) -> Outcome {
    Outcome::refused(fault)
}

#[cold]
fn no_such_result(index: i32) -> Fault {
    let index = index as u32;
    Fault::new(FailureCode::BadResult, format!("apply returned {index}, which is no handle"))
}

/// Why the guest was unwound. The text holds nothing that differs between runs.
#[cold]
pub(crate) fn fault_of(state: &mut CallState, error: &wasmtime::Error) -> Fault {
    if let Some(fault) = state.fault.take() {
        return fault;
    }
    if error.is::<ThrownException>() {
        return Fault::new(FailureCode::Trap, "an exception that nobody caught");
    }
    let Some(trap) = error.downcast_ref::<Trap>() else {
        if state.budget.denied {
            return Fault::new(FailureCode::Memory, "more memory was refused, for exceptions that it throws");
        }
        return Fault::new(FailureCode::Resources, format!("no instance can be made: {error:#}"));
    };
    let name = trap.to_string();
    let name = name.strip_prefix("wasm trap: ").unwrap_or(&name);
    match trap {
        Trap::StackOverflow => Fault::new(FailureCode::Stack, name),
        Trap::OutOfFuel => Fault::new(FailureCode::Fuel, "the fuel of the limits is used up"),
        _ if state.budget.denied => {
            Fault::new(FailureCode::Memory, format!("{name}, after more memory was refused"))
        }
        _ => Fault::new(FailureCode::Trap, name),
    }
}
