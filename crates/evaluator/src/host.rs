// SPDX-License-Identifier: Apache-2.0
//! What the evaluator asks of the world.
//!
//! Everything is answered at once or not at all: a method that would have to
//! wait says so, and the host later sends an [`crate::Event`] to the job. The
//! trait is generic, not dynamic: between the decision to apply and the
//! codelet's first instruction there is no virtual call.

use std::ops::Deref;
use std::sync::Arc;

use objects::{Application, Handle, Limits, Part, TreeView};

use crate::job::JobId;
use crate::request::Request;

/// Which rule of evaluation led from a handle to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A procedure ran.
    Apply,
    /// The encodes of an application were replaced by their results.
    Resolve,
    /// A curried procedure's arguments moved into the application.
    Uncurry,
    /// A part of some data was taken.
    Select,
    /// The complete result of a strict encode.
    Strict,
    /// The first value of a shallow encode.
    Shallow,
}

/// What a step took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Wall time in nanoseconds.
    pub nanos: u64,
    /// Instructions as the engine counts them; 0 where they are not counted.
    pub fuel: u64,
    /// What the request pays for; nothing where it pays in another way, or not at all.
    pub charge: Charge,
}

/// What a request pays for, of one application or of all that ran for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charge {
    /// Bytes of inputs.
    pub inputs_bytes: u64,
    /// Bytes of memory that were reserved.
    pub reserved_bytes: u64,
    /// Instructions, where they are counted.
    pub fuel: u64,
    /// Processor time of what counts none, in nanoseconds.
    pub uncounted_nanos: u64,
}

impl Charge {
    /// One application more.
    #[inline]
    pub fn add(&mut self, more: Self) {
        let Self { inputs_bytes, reserved_bytes, fuel, uncounted_nanos } = more;
        self.inputs_bytes = self.inputs_bytes.saturating_add(inputs_bytes);
        self.reserved_bytes = self.reserved_bytes.saturating_add(reserved_bytes);
        self.fuel = self.fuel.saturating_add(fuel);
        self.uncounted_nanos = self.uncounted_nanos.saturating_add(uncounted_nanos);
    }
}

/// What became of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Any handle that the procedure returned, or a failure.
    pub result: Handle,
    /// What it took.
    pub cost: Cost,
    /// Whether every later run must end the same way; only then is it remembered.
    pub is_lasting: bool,
}

/// The answer to an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It ran.
    Done(Outcome),
    /// It runs elsewhere; [`crate::Event::Applied`] will tell.
    Pending,
    /// As [`Applied::Pending`]; and it only waits for something from outside, so that
    /// whatever else has to be waited for had better be asked for now.
    Coming,
}

/// The answer to a claim on a thunk's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Somebody did it before.
    Known(Handle),
    /// The caller has to do it, and then to fulfil or abandon the claim.
    Claimed,
    /// Somebody does it now.
    Busy,
}

/// The answer to a wish for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// It is local now.
    Here,
    /// [`crate::Event::Arrived`] or [`crate::Event::Missing`] will tell.
    Coming,
    /// It is nowhere.
    Missing,
}

/// The world of one worker.
pub trait Host {
    /// Bytes of a local object. Clones share them. As long as one of them is
    /// held, the object MUST stay local: whoever has found an input keeps its
    /// data instead of looking again.
    type Data: Deref<Target = [u8]> + Clone + Send + 'static;

    /// The bytes of an object that is neither literal nor remote. Never blocks.
    fn local(&mut self, object: Handle) -> Option<Self::Data>;

    /// Asks for an object that is not local. `waiter` gets exactly one event
    /// if the answer is [`Fetch::Coming`]: [`crate::Event::Arrived`],
    /// [`crate::Event::Missing`], [`crate::Event::Unreadable`], or
    /// [`crate::Event::Dropped`], after which the job makes it again itself.
    fn fetch(&mut self, object: Handle, waiter: JobId) -> Fetch;

    /// Asks for an object, or for a part of one, that the job could not make again although it was
    /// told to ([`crate::Event::Dropped`]), and that may come in another way. Events are those of [`Host::fetch`]
    /// and [`Host::fetch_part`], but for that one: each way is tried once.
    fn fetch_unmade(&mut self, object: Handle, part: Option<Part>, waiter: JobId) -> Fetch {
        let _ = (object, part, waiter);
        Fetch::Missing
    }

    /// Asks for what a selection of a part of an object leads to, where the object
    /// is not local and the part lies within it. The rest of it need not become
    /// local. `waiter` gets exactly one event if the answer is [`Fetch::Coming`]:
    /// [`crate::Event::Taken`], or one that [`Host::fetch`] could send, after which
    /// it looks again.
    fn fetch_part(&mut self, object: Handle, part: Part, waiter: JobId) -> Fetch {
        let _ = part;
        self.fetch(object, waiter)
    }

    /// Stores a derived tree.
    fn keep_tree(&mut self, tree: TreeView<'_>) -> Handle;

    /// Stores a derived blob.
    fn keep_blob(&mut self, bytes: &[u8]) -> Handle;

    /// What `key`, a thunk or encode, is known to lead to.
    fn recall(&mut self, key: Handle) -> Option<Handle>;

    /// Remembers that `key` leads to `result`.
    fn remember(&mut self, key: Handle, result: Handle, rule: Rule);

    /// Like [`Host::recall`], and otherwise reserves the step for the caller.
    fn claim(&mut self, thunk: Handle) -> Claim;

    /// Sends `waiter` an [`crate::Event::Look`] when the claim on `thunk` ends.
    /// `false`: it ended already, and no event will come.
    fn wait(&mut self, thunk: Handle, waiter: JobId) -> bool;

    /// Ends the caller's claim with what the thunk leads to.
    fn fulfil(&mut self, thunk: Handle, result: Handle, cost: Cost);

    /// Ends the caller's claim without an answer; others may try.
    fn abandon(&mut self, thunk: Handle);

    /// Whether what follows makes an object again that was dropped: it is no part of the
    /// computation that was asked for. Said before each turn of a walk.
    #[inline]
    fn remaking(&mut self, is: bool) {
        let _ = is;
    }

    /// `recipe`, an application, is to run once more for an object that it has made before:
    /// forgets what it led to, unless somebody runs it, or the object is local by now.
    fn forget(&mut self, recipe: Handle, object: Handle) {
        let _ = (recipe, object);
    }

    /// Whether the object is nowhere, although `recipe` was to make it again and led to `result`.
    /// Asked where it is not local.
    fn is_unmade(&mut self, object: Handle, recipe: Handle, result: Handle) -> bool {
        let _ = (object, recipe, result);
        true
    }

    /// Bytes of memory to be reserved for an application before it runs. What
    /// is counted elsewhere, as an instance that outlives its calls is, needs
    /// none here.
    #[inline]
    fn reservation_bytes(&self, application: &Application<'_>) -> u64 {
        application.limits.memory_bytes
    }

    /// Whether an application, whose arguments are there, only brings something from
    /// outside, and the same whenever it does: walks ask for it ahead.
    fn is_brought(&self, application: &Application<'_>) -> bool {
        let _ = application;
        false
    }

    /// Whether the procedure can begin at once: its code is compiled. On every
    /// application's way, so it must be cheap.
    #[inline]
    fn is_prepared(&mut self, limits: &Limits, procedure: Handle) -> bool {
        let _ = (limits, procedure);
        true
    }

    /// Has a procedure prepared, whose bytes are local. `waiter` gets exactly
    /// one event if the answer is [`Fetch::Coming`]. Should `request` be
    /// stopped, nobody waits for that event; what has begun is still finished.
    fn prepare(
        &mut self,
        limits: &Limits,
        procedure: Handle,
        waiter: JobId,
        request: &Arc<Request>,
    ) -> Fetch {
        let _ = (limits, procedure, waiter, request);
        Fetch::Here
    }

    /// Runs `procedure`: `thunk` is the application of `data`, the bytes of the
    /// definition, from which limits and procedure were read. Memory is
    /// reserved, and all inputs are local. They stay so until the application
    /// has ended, since their data is held: the definition's by the callee,
    /// the inputs' by the worker or by the job.
    fn apply(
        &mut self,
        thunk: Handle,
        limits: Limits,
        procedure: Handle,
        data: Self::Data,
        job: JobId,
    ) -> Applied;
}
