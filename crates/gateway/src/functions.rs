// SPDX-License-Identifier: Apache-2.0
//! What the gateway needs of a node that serves functions.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::HeaderValue;
use objects::Handle;
use serde_json::{Map, Value};

use crate::counts::Counts;
use crate::journal::Record;
use crate::printed::{Printed, Printing, SoFar};
use crate::usage::Spent;
use crate::workflows::Declaration;

/// Requests of which most of a mean consists.
const MEAN_OF: u64 = 8;

/// A function's version that serves, as requests need it. What it is as data
/// is in `docs/spec/functions.md`.
#[derive(Debug)]
pub struct Served {
    /// Its name.
    pub name: String,
    /// Of the version; only grows.
    pub version: u64,
    /// The deployment.
    pub deployment: Handle,
    /// `python`, `node`, `wasm` …
    pub runtime: String,
    /// What it runs.
    pub procedure: Handle,
    /// The entries of an application of it, before those of the request.
    pub prefix: Vec<Handle>,
    /// It is a Wasm module, which is applied to the body alone. Of a codelet the result is the body of the answer.
    pub is_codelet: bool,
    /// Of a module: it is a whole program, whose stdin is the body and whose stdout that of the answer.
    pub is_program: bool,
    /// It is a workflow: its calls of other functions are steps.
    pub is_workflow: bool,
    /// As a step of a declared workflow it maps what other steps made in memory, and may make such.
    pub maps_values: bool,
    /// Of a workflow that is declared: its steps. Then it has no instance.
    pub declaration: Option<Arc<Declaration>>,
    /// Of a module: what its answers are; `None`: as they look.
    pub content_type: Option<HeaderValue>,
    /// Its result depends on the body alone, and is remembered.
    pub is_pure: bool,
    /// Bodies of requests are passed to it while they come.
    pub streams_body: bool,
    /// Of one call, from the request's arrival on.
    pub timeout: Duration,
    /// Of one instance.
    pub memory_bytes: u64,
    /// Requests that one instance serves at the same time.
    pub calls_at_once: u32,
    /// Instances at most.
    pub concurrency: u32,
    /// A request may be run again if its instance ended before it answered.
    pub is_idempotent: bool,
    /// How often and for how long a call that is made later is tried.
    pub delivery: queue::Policy,
    /// When it is called without anybody asking.
    pub schedules: Vec<queue::Schedule>,
    /// `METHOD /path` of each route.
    pub routes: Vec<String>,
    /// Host names that are its own.
    pub hosts: Vec<String>,
    /// It answers without a key.
    pub is_public: bool,
    /// What it is as a tool of agents, if it is one.
    pub tool: Option<Arc<Tool>>,
    /// When the version came, and why; of those that older nodes made nothing is known.
    pub origin: Option<Origin>,
    /// Of all versions of the function since the node started.
    pub counts: Arc<Counts>,
    /// Of this version.
    pub version_counts: VersionCounts,
}

impl Served {
    /// Counts a request that has ended, `now` after the node's start.
    pub(crate) fn ended(&self, now: Duration, record: &Record, cpu_between: Duration) {
        self.version_counts.ended(record.failure.is_some(), record.usage.cpu_us);
        self.counts.ended(now, record, cpu_between);
    }
}

/// What agents are told of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// What it does, for whoever chooses among tools.
    pub description: String,
    /// What its event is: a JSON schema of an object.
    pub input: Value,
    /// It changes nothing.
    pub is_read_only: bool,
}

impl Tool {
    /// The first member that its event has to have, and has not.
    pub(crate) fn missing(&self, arguments: &Map<String, Value>) -> Option<&str> {
        let required = self.input.get("required").and_then(Value::as_array);
        let mut names = required.into_iter().flatten().filter_map(Value::as_str);
        names.find(|name| !arguments.contains_key(*name))
    }
}

/// When a version came, and what was said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Milliseconds since 1970, by the node's clock.
    pub at_ms: u64,
    /// What whoever deployed it has said of it: a line, or nothing.
    pub note: String,
}

/// What a workflow says of one of its functions. What it does not say is the workflow's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StepSettings {
    /// `module.name`.
    pub handler: String,
    /// Of one instance.
    pub memory_bytes: Option<u64>,
    /// Of one attempt.
    pub timeout: Option<Duration>,
    /// Of one processor.
    pub cpu_percent: Option<u32>,
    /// Instances at most.
    pub concurrency: u32,
    /// Its result depends on its arguments alone, and is remembered.
    pub is_pure: bool,
    /// Its result is of use only while the run lasts, so that it may be one that is mapped.
    pub may_map: bool,
}

/// The function that a path belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// Its name.
    pub function: String,
    /// The route's path, with its names in braces.
    pub pattern: String,
    /// What stands in the names' places, in their order.
    pub params: Vec<(String, String)>,
    /// It was asked for by a host name of its own, so that its pages have an origin that is theirs alone.
    pub at_home: bool,
}

/// Why a path belongs to no function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteError {
    /// There is no such route.
    None,
    /// There is one, for these methods.
    Method(Vec<&'static str>),
    /// A part of the path that has a name is no UTF-8.
    Encoding,
}

/// What became of one version's requests since the node started.
#[derive(Debug, Default)]
pub struct VersionCounts {
    requests: AtomicU64,
    failures: AtomicU64,
    /// Of the processor time of a request, over the last ones.
    cpu_mean_us: AtomicU64,
}

impl VersionCounts {
    fn ended(&self, has_failed: bool, cpu_us: Option<u64>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(has_failed), Ordering::Relaxed);
        if let Some(cpu_us) = cpu_us {
            // An update that is lost to another one changes little of a mean.
            let mean = self.cpu_mean_us.load(Ordering::Relaxed);
            let next = if mean == 0 { cpu_us } else { (mean.saturating_mul(MEAN_OF - 1) + cpu_us) / MEAN_OF };
            self.cpu_mean_us.store(next, Ordering::Relaxed);
        }
    }

    /// What a request takes of a processor, by the last ones.
    pub(crate) fn cpu_mean(&self) -> Duration {
        Duration::from_micros(self.cpu_mean_us.load(Ordering::Relaxed))
    }

    /// Requests, and how many of them failed.
    pub fn so_far(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }
}

/// Instances of a function now, and how they came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Instances {
    /// Wait for a request.
    pub idle: u64,
    /// Serve one.
    pub busy: u64,
    /// Are being made.
    pub starting: u64,
    /// Requests for which an instance had to be made.
    pub cold_starts: u64,
}

/// What instances of a version did outside since the node started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EgressCounts {
    /// Connections to hosts that were made.
    pub connected: u64,
    /// Those that were not allowed.
    pub refused: u64,
    /// Those that were allowed and could not be made.
    pub failed: u64,
    /// Bytes that it sent.
    pub sent_bytes: u64,
    /// Bytes that it was sent.
    pub received_bytes: u64,
}

/// All that is known of one function.
#[derive(Debug)]
pub struct Details {
    /// The version that most requests get.
    pub served: Arc<Served>,
    /// All versions that are kept, the newest first.
    pub versions: Vec<Arc<Served>>,
    /// Names of versions, with the percent of requests that each gets; `live`
    /// is what serves under the function's own name.
    pub aliases: Vec<(String, Vec<(u64, u32)>)>,
    /// Settings of its process, as names and values.
    pub settings: Vec<(String, String)>,
    /// How requests reach it, as names and values.
    pub serving: Vec<(String, String)>,
}

/// How a request came to run, and what it printed.
#[derive(Debug, Clone, Default)]
pub struct CallReport {
    /// In what: `warm`, `prewarmed`, `forked` or `cold`.
    pub start: &'static str,
    /// Waited for its turn.
    pub queued: Duration,
    /// Waited for an instance to be made.
    pub starting: Duration,
    /// From the evaluator's decision to the end, waiting included.
    pub whole: Duration,
    /// What it printed.
    pub log: Printed,
    /// What it took; `None` if no instance came to it.
    pub spent: Option<Spent>,
    /// How a step of a workflow says that its time went.
    pub phases: Option<Box<Phases>>,
}

/// What a step of a workflow says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Phases {
    /// Until its arguments were there.
    pub taking: Duration,
    /// Of the function itself.
    pub running: Duration,
    /// Until its result could be handed over.
    pub giving: Duration,
    /// Types of objects of its result that were pickled, and how many of each.
    pub pickled: Vec<(String, u32)>,
}

/// What a deployment led to.
#[derive(Debug)]
pub struct Deployed {
    /// What serves now.
    pub served: Arc<Served>,
    /// It did not serve before.
    pub is_changed: bool,
    /// How long it took to be loaded, before it served; nothing, if it was not.
    pub loading: Duration,
}

/// Why a function cannot be deployed, or is not there.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// No function of this name, or no such version.
    #[error("{0}")]
    NotFound(String),
    /// The name or the deployment breaks the specification.
    #[error("{0}")]
    Invalid(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Something else of the node failed.
    #[error("{0}")]
    Failed(String),
}

/// Which of some functions was not deployed, and why; and so none was.
#[derive(Debug)]
pub struct NotDeployed {
    /// Its name.
    pub name: String,
    /// Why not.
    pub error: FunctionError,
}

impl NotDeployed {
    /// What could not be written down.
    pub fn of(name: &str, error: store::Error) -> Self {
        Self { name: name.to_owned(), error: error.into() }
    }
}

/// The way of a request's body to the function that serves it. Dropping it before
/// the end says that no more will come.
pub trait Intake: Send {
    /// So many bytes may be brought now; pending until the function has begun, and
    /// while it has room for none.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize>;
    /// The next bytes, for which there is room.
    fn bring(&mut self, piece: &[u8]);
    /// That was all.
    fn end(&mut self);
}

/// A step that may follow another one at once, in the same instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    /// Its function, of the same workflow, as `module.name`.
    pub handler: String,
    /// What it is told of its request.
    pub head: Vec<u8>,
    /// Its arguments, as the runtime writes them; what is missing is the result of the one before it.
    pub arguments: Vec<u8>,
    /// It may begin after a result that is sent, and is copied for it.
    pub is_brief: bool,
    /// If it may be given that result itself, for nobody else will ever ask for it: what it needs of memory, in bytes.
    pub given_within: Option<NonZeroU64>,
}

/// Steps that may follow one another. Dropping it has those stopped that are not claimed.
pub trait Following: Send + Sync {
    /// Whether the one at this place (from 1 on) may have begun, once the one before it has ended.
    fn may_have_begun(&self, place: usize) -> bool;
    /// This application, which is asked for next, is the one at this place. If it was begun it is not begun again,
    /// and ends as that does.
    fn claim(&self, place: usize, application: Handle);
}

/// What runs functions of a language, for whoever installs their packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Its file on the node's machine, absolute.
    pub program: String,
    /// As `3.14.2`.
    pub version: String,
    /// What compiled modules for it have in their names, as `cpython-314-x86_64-linux-gnu`.
    pub abi: String,
}

/// The functions of a node. Methods that change something block; the gateway
/// calls them off its event loop.
pub trait Functions: Send + Sync {
    /// How the steps of a workflow are run that are this function of it: as a version of
    /// its own, which is no function's of the node. Blocks if it is new.
    ///
    /// # Errors
    /// [`FunctionError::Invalid`], [`FunctionError::Store`].
    fn step(&self, workflow: &Served, settings: &StepSettings) -> Result<Arc<Served>, FunctionError>;

    /// What serves under a name, or under an alias or a version's number of
    /// it. `lot`, 0 to 9999, decides among versions that share the requests.
    /// Never blocks.
    fn served(&self, name: &str, qualifier: Option<&str>, lot: u32) -> Option<Arc<Served>>;

    /// Whether a request to it would begin at once, as far as its concurrency
    /// goes. Never blocks.
    fn has_place(&self, served: &Served) -> bool;

    /// The main version of each function, by name.
    fn all(&self) -> Vec<Arc<Served>>;

    /// All versions that are kept, by name and number.
    fn versions(&self) -> Vec<Arc<Served>>;

    /// The function that a path belongs to by its routes. Never blocks.
    ///
    /// # Errors
    /// Why it belongs to none.
    fn route(&self, method: &str, path: &str) -> Result<Routed, RouteError>;

    /// Whether every version that a request for a function may get, by its name, an alias or a version's number, needs no
    /// key. Never blocks.
    fn is_public(&self, name: &str, qualifier: Option<&str>) -> bool;

    /// The function that a host name belongs to, in lower case and without a port. Never blocks.
    fn hosted(&self, host: &str) -> Option<String>;

    /// Instances of one.
    fn instances(&self, served: &Served) -> Instances;

    /// What instances of one did outside; `None` if it may reach nothing, or
    /// has had no instance.
    fn egress(&self, served: &Served) -> Option<EgressCounts>;

    /// Where the body goes of an application that will be asked for, and has none in
    /// it. `None`: nowhere.
    fn intake(&self, _application: Handle) -> Option<Box<dyn Intake>> {
        None
    }

    /// Has steps follow one another in one instance, from the one on that this application is, which has not been asked for:
    /// each is given what the one before it returns. `None`: none follows.
    fn follow(&self, _application: Handle, _followers: Vec<Follower>) -> Option<Arc<dyn Following>> {
        None
    }

    /// The interpreter that runs functions of a runtime, as `python`. Blocks the first time.
    ///
    /// # Errors
    /// [`FunctionError::NotFound`] if there is none for that, [`FunctionError::Failed`] if it cannot be started.
    fn interpreter(&self, runtime: &str) -> Result<Interpreter, FunctionError> {
        Err(FunctionError::NotFound(format!("there is no interpreter for {runtime:?}")))
    }

    /// What calls that run have printed so far: of those of which it `is_wanted`, which is asked with what a call was
    /// told of its request. Blocks, but not for long.
    fn printing(&self, _is_wanted: &mut dyn FnMut(&[u8], SoFar) -> bool) -> Vec<Printing> {
        Vec::new()
    }

    /// How an application of a function ran, once; none where it did not run
    /// in a process, or its result was remembered.
    fn take_report(&self, application: Handle) -> Option<CallReport>;

    /// More about one.
    ///
    /// # Errors
    /// [`FunctionError::NotFound`], [`FunctionError::Store`].
    fn details(&self, name: &str) -> Result<Details, FunctionError>;

    /// Keeps deployments under names, durably, each as a new version unless it is
    /// the newest one, and has all of them serve all requests, at once, if they `serve`. Where
    /// one is refused, nothing changes. `note` is kept with those that are new.
    ///
    /// # Errors
    /// Which one, with [`FunctionError::Invalid`] or [`FunctionError::Store`].
    fn deploy_all(
        &self,
        wanted: &[(String, Handle)],
        serve: bool,
        note: &str,
    ) -> Result<Vec<Deployed>, NotDeployed>;

    /// The same of one, of which nothing is said.
    ///
    /// # Errors
    /// [`FunctionError::Invalid`], [`FunctionError::Store`].
    fn deploy(&self, name: &str, deployment: Handle, serves: bool) -> Result<Deployed, FunctionError> {
        let wanted = [(name.to_owned(), deployment)];
        let mut deployed = self.deploy_all(&wanted, serves, "").map_err(|not| not.error)?;
        deployed.pop().ok_or_else(|| FunctionError::Failed("what was deployed is not told".to_owned()))
    }

    /// Host names of a deployment that no version of the function has had.
    ///
    /// # Errors
    /// [`FunctionError::Invalid`].
    fn claims(&self, name: &str, deployment: Handle) -> Result<Vec<String>, FunctionError>;

    /// Has an older version serve again: this one, or the one before.
    ///
    /// # Errors
    /// [`FunctionError::NotFound`], [`FunctionError::Store`].
    fn roll_back(&self, name: &str, version: Option<u64>) -> Result<Deployed, FunctionError>;

    /// Has an alias stand for versions, each with its percent of requests.
    ///
    /// # Errors
    /// [`FunctionError::NotFound`], [`FunctionError::Invalid`],
    /// [`FunctionError::Store`].
    fn set_alias(&self, name: &str, alias: &str, shares: &[(u64, u32)]) -> Result<(), FunctionError>;

    /// Removes an alias.
    ///
    /// # Errors
    /// [`FunctionError::NotFound`], [`FunctionError::Invalid`],
    /// [`FunctionError::Store`].
    fn remove_alias(&self, name: &str, alias: &str) -> Result<(), FunctionError>;

    /// Names of the secrets, with the functions that need each.
    fn secrets(&self) -> Vec<(String, Vec<String>)>;

    /// Sets a secret, durably; functions that need it get the new value with
    /// their next instance. Whether that changed it.
    ///
    /// # Errors
    /// [`FunctionError::Invalid`], [`FunctionError::Failed`].
    fn set_secret(&self, name: &str, value: &str) -> Result<bool, FunctionError>;

    /// Removes a secret that no function needs.
    ///
    /// # Errors
    /// [`FunctionError::NotFound`], [`FunctionError::Invalid`],
    /// [`FunctionError::Failed`].
    fn remove_secret(&self, name: &str) -> Result<(), FunctionError>;

    /// Removes a function with all its versions.
    ///
    /// # Errors
    /// [`FunctionError::NotFound`], [`FunctionError::Store`].
    fn remove(&self, name: &str) -> Result<(), FunctionError>;
}
