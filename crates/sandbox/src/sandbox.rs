// SPDX-License-Identifier: Apache-2.0
//! The interface that every kind of sandbox implements.
//!
//! The life of a sandbox: `create` prepares it (compiles, forks, loads a
//! device), `start` lets it be invoked, `kill` ends what runs in it and
//! refuses further calls, `delete` forgets it. The first five take vectors,
//! because devices and templates prepare many at once much more cheaply; one
//! bad element never spoils its neighbours.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use objects::{FailureCode, Handle, Limits};
use store::Object;

use crate::followers::Followers;
use crate::line::Line;
use crate::nested::Callees;
use crate::printed::Printed;
use crate::printed::Printing;
use crate::spent::{Phases, Spent};
use crate::streamed::Audience;

/// The most bytes of a fault's text. A longer one is cut at a character.
pub const DETAIL_LEN_MAX: usize = 4096;

/// Names a sandbox of one implementation, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(pub u64);

/// Names one of a node's event loops: what waits for an instance is woken for least where the loop
/// that hears the instance is the one that serves who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Home(pub u16);

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a sandbox is to be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The procedure that it will run: a blob object.
    pub procedure: Handle,
    /// What its calls will typically grant. Nothing is reserved; a codelet is
    /// prepared with or without fuel counting after `limits.fuel`.
    pub limits: Limits,
}

/// Where in its life a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Prepared, not yet to be invoked.
    Created,
    /// May be invoked.
    Running,
    /// Killed; it can only be deleted.
    Stopped,
}

/// How what a sandbox runs in came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Made from nothing but the procedure.
    Cold,
    /// Forked from a template that had its language loaded already.
    Forked,
}

/// A sandbox, looked at from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Where in its life it stands.
    pub phase: Phase,
    /// Invocations that are under way now.
    pub running: u64,
    /// Invocations that ended with a result.
    pub succeeded: u64,
    /// Invocations that ended with a fault.
    pub failed: u64,
    /// Whether the next call finds something to run in. It does not after a
    /// call whose fault ended it: the next call would have to make it anew.
    pub is_alive: bool,
    /// How what it runs in came about.
    pub origin: Origin,
}

/// One application of a procedure. The caller vouches that the application
/// tree is well-formed and that its encodes have been replaced.
#[derive(Clone)]
pub struct Call {
    /// The bytes of the application tree.
    pub application: Object,
    /// The tree's own handle: what the codelet gets as its handle 0.
    pub handle: Handle,
    /// Entry 0 of the tree, decoded.
    pub limits: Limits,
    /// Entry 1 of the tree: the blob to run.
    pub procedure: Handle,
    /// When the call must have ended, if that is sooner than the sandbox's own
    /// limit. A codelet has none: whoever called it interrupts it.
    pub deadline: Option<Instant>,
    /// Who makes the calls of other functions that it asks for. `None`: there
    /// are none. A codelet asks for none.
    pub callees: Option<Arc<dyn Callees>>,
    /// Who may want to hear the result before it is whole. `None`: nobody. A
    /// codelet's comes at once.
    pub audience: Option<Arc<dyn Audience>>,
    /// It is no call, but an instance is to serve this line until that is over.
    pub line: Option<Arc<Line>>,
    /// What follows it in the instance that serves it, and whoever hears of the end of all of them. Then the outcome that is
    /// told without it says only that nothing follows any more. `None`: nothing does.
    pub followers: Option<Arc<dyn Followers>>,
}

impl Call {
    /// One without a deadline of its own, that calls nobody, and whose result is
    /// wanted when it is whole.
    pub fn new(application: Object, handle: Handle, limits: Limits, procedure: Handle) -> Self {
        let (deadline, callees, audience, line, followers) = (None, None, None, None, None);
        Self { application, handle, limits, procedure, deadline, callees, audience, line, followers }
    }
}

/// How far an invocation got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invoked {
    /// It is over. A codelet always gets here.
    Done(Outcome),
}

/// The end of an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The handle that the procedure returned, or why there is none.
    pub result: Result<Handle, Fault>,
    /// Instructions executed, as the engine counts them; 0 if uncounted.
    pub fuel: u64,
    /// What it printed, as far as the sandbox keeps that. A codelet cannot
    /// print.
    pub log: Printed,
    /// What it took in an instance. A codelet has none: it never waits, so that
    /// whoever called it knows.
    pub spent: Option<Box<Spent>>,
    /// What it says of itself, if it is a step of a workflow.
    pub phases: Option<Box<Phases>>,
}

impl Outcome {
    /// Of a call that nothing ran for.
    pub fn refused(fault: Fault) -> Self {
        Self { result: Err(fault), fuel: 0, log: Printed::default(), spent: None, phases: None }
    }
}

/// Why an invocation has no result; a value, to be stored as a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of failure.
    pub code: FailureCode,
    /// Text for people, at most [`DETAIL_LEN_MAX`] bytes. The same call gives
    /// the same text: it holds no address, time or path.
    pub detail: String,
}

impl Fault {
    /// A fault whose text is cut to [`DETAIL_LEN_MAX`].
    pub fn new(code: FailureCode, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        detail.truncate(detail.floor_char_boundary(DETAIL_LEN_MAX));
        Self { code, detail }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

/// What is wrong on our side of the wall, or with a request to a [`Sandbox`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No sandbox has this id, or it was deleted.
    #[error("there is no sandbox {0}")]
    Unknown(SandboxId),
    /// The request does not fit the sandbox's phase.
    #[error("sandbox {id} is {phase:?}, which does not allow to {request} it")]
    WrongPhase {
        /// The sandbox.
        id: SandboxId,
        /// Where it stands.
        phase: Phase,
        /// What was asked.
        request: &'static str,
    },
    /// The call names another procedure than the sandbox was made for.
    #[error("sandbox {id} was made for {expected}, not for {found}")]
    WrongProcedure {
        /// The sandbox.
        id: SandboxId,
        /// What it was made for.
        expected: Handle,
        /// What the call names.
        found: Handle,
    },
    /// What the sandbox runs in had ended before it came to the call, of which
    /// nothing was done: another sandbox may take it.
    #[error("sandbox {0} has ended before it came to the call; try again")]
    NotBegun(SandboxId),
    /// The call stood in line behind others in the sandbox, which goes on, and was taken back
    /// before it had begun: another sandbox may take it.
    #[error("sandbox {0} is busy with another call; try again")]
    Recalled(SandboxId),
    /// The procedure cannot be run.
    #[error("the procedure {procedure} cannot be run: {fault}")]
    Procedure {
        /// The procedure.
        procedure: Handle,
        /// Why not.
        fault: Fault,
    },
    /// The configured number of sandboxes exists already.
    #[error("there are {0} sandboxes already, the most that are allowed")]
    TooMany(usize),
    /// The process that functions are forked from cannot be started.
    #[error("the template of {language} functions, {}, cannot serve: {reason}", interpreter.display())]
    Template {
        /// What the functions are written in.
        language: &'static str,
        /// The interpreter, as configured.
        interpreter: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// What functions bring cannot be loaded before they are forked; they load it
    /// themselves where they are forked without.
    #[error("what functions bring is not loaded before they are forked: {0}")]
    NotBrought(String),
    /// The WebAssembly engine refuses its configuration.
    #[error("the WebAssembly engine cannot be set up: {0}")]
    Engine(String),
    /// The directory for compiled code cannot be used.
    #[error("cannot use {path} for compiled code: {reason}")]
    CacheDir {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// Whether nothing was done of a call, since its sandbox was gone, going, or busy with others.
    pub(crate) fn is_before_the_call(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::WrongPhase { .. } | Self::NotBegun(_) | Self::Recalled(_))
    }
}

/// Hears the outcome of a call that was begun, or why there is none.
pub type Then = Box<dyn FnOnce(Result<Outcome, Error>) + Send>;

/// Many sandboxes of one kind. Answers stand in the order of the questions.
pub trait Sandbox: Send + Sync {
    /// Prepares a sandbox for each spec. May take as long as compiling does.
    ///
    /// # Errors
    /// [`Error::Procedure`] if the procedure is missing or unfit,
    /// [`Error::TooMany`] at the configured bound.
    fn create(&self, specs: &[Spec]) -> Vec<Result<SandboxId, Error>>;

    /// Lets created sandboxes be invoked.
    ///
    /// # Errors
    /// [`Error::Unknown`], or [`Error::WrongPhase`] unless created.
    fn start(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>>;

    /// Looks at sandboxes.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn state(&self, ids: &[SandboxId]) -> Vec<Result<State, Error>>;

    /// Bytes of memory that sandboxes hold now, beyond what they share with
    /// others of their kind; `None` where that is not known. Zero is known.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn memory_bytes(&self, ids: &[SandboxId]) -> Vec<Result<Option<u64>, Error>>;

    /// Bytes of memory held besides, for all sandboxes of a kind together: what
    /// they are forked from. Asked for some times a second, and answers at once;
    /// what was not used for a long time may be given up then.
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// What calls that run have printed so far: of those of which it `is_wanted`, which is asked with what the
    /// call was told of its request. Nothing of it is kept ready: whoever asks pays for it.
    fn printing(&self, is_wanted: &mut dyn FnMut(&[u8], &Printed) -> bool) -> Vec<Printing> {
        _ = is_wanted;
        Vec::new()
    }

    /// Ends what runs in the sandboxes, with the failure `cancelled`, and
    /// refuses further calls. Returns before those invocations have ended.
    /// Killing a stopped sandbox changes nothing.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn kill(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>>;

    /// Forgets sandboxes that are created or stopped.
    ///
    /// # Errors
    /// [`Error::Unknown`], or [`Error::WrongPhase`] while running.
    fn delete(&self, ids: &[SandboxId]) -> Vec<Result<(), Error>>;

    /// Runs one call in a started sandbox, on the calling thread.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongPhase`] unless running,
    /// [`Error::WrongProcedure`]. What the guest does wrong is no error but
    /// an [`Outcome`].
    fn invoke(&self, id: SandboxId, call: Call) -> Result<Invoked, Error>;

    /// Which event loop hears what a sandbox says; none, if none does.
    fn home(&self, id: SandboxId) -> Option<Home> {
        _ = id;
        None
    }

    /// The event loop that this thread runs; none, if it runs none, or it does not matter which.
    fn here(&self) -> Option<Home> {
        None
    }

    /// Takes back the calls that stand in line in a sandbox and have not begun: each is told
    /// [`Error::Recalled`], maybe before this returns. Where that cannot be known, as by this default,
    /// none is.
    fn recall(&self, id: SandboxId) {
        _ = id;
    }

    /// Begins a call in a started sandbox; what [`Sandbox::invoke`] would return
    /// is told to `then`, once, by any thread, maybe before this returns. A
    /// sandbox that was made so may have several calls under way. One that can
    /// do without does not block here; what this default does is to wait.
    fn begin(&self, id: SandboxId, call: Call, then: Then) {
        then(self.invoke(id, call).map(|Invoked::Done(outcome)| outcome));
    }
}
