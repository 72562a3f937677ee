// SPDX-License-Identifier: Apache-2.0
//! A request to a function, by whatever door it came: it becomes an
//! application of the function, and its result an answer
//! (`docs/spec/functions.md`, sections 5 and 6).

mod answer;
mod head;
mod lines;
mod passing;
mod program;
mod recording;
mod step;
mod streamed;
mod trace;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::header::{CONNECTION, CONTENT_TYPE, TE, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use objects::{FailureCode, Handle, Named, TreeBuilder};

pub(crate) use answer::Answer;
pub(crate) use lines::Sealer;
pub use lines::{LineCall, LineEnd, LineOffer};
use passing::Passing;
use recording::{Place, Recording, Running, SERVER_TIMING};
pub(crate) use step::{Prepared, StepCall, StepEnd, StepTimes};
use trace::Traced;
pub(crate) use trace::{Context, Span, TRACEPARENT, TraceParent};

use crate::admission::Permit;
use crate::backend::{EvaluateRequest, Evaluated, Pieces, Priority};
use crate::body::{Arriving, Buffered, blocking};
use crate::client::Client;
use crate::functions::{Routed, Served};
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::routes::evaluate::failure_detail;
use crate::routes::objects::load;
use crate::tenants::{Holding, Tenancy};
use crate::unique;
use crate::workflows::{Beginning, Durable, Run, stands_for_memory};

/// How much longer the gateway waits than the function may take, so that it is
/// the function's own end that is told.
const GRACE: Duration = Duration::from_secs(2);
/// Bodies up to this are stored without leaving the event loop.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Headers that are about one connection, and no function's matter.
pub(crate) const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("trailer"),
];

/// What is asked of a function.
pub(crate) struct Invocation<'a> {
    pub(crate) served: Arc<Served>,
    pub(crate) id: &'a RequestId,
    pub(crate) method: &'a str,
    /// What follows the function's own path, or all of it by a route.
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) routed: Option<&'a Routed>,
    /// By whom.
    pub(crate) client: Client,
    /// How it came: `http`, `lambda`, `event` …
    pub(crate) source: &'static str,
    /// By which function, if it was one.
    pub(crate) nesting: Option<Nesting>,
    /// For whom, if that is counted.
    pub(crate) tenancy: Option<Arc<Tenancy>>,
    /// Of a workflow that the queue has: how far the run is.
    pub(crate) durable: Option<Durable>,
    /// Of a step of a declared workflow: memory that it maps. What it makes may be such, too.
    pub(crate) memory: Option<Vec<Handle>>,
}

/// What a function that calls another one hands down, besides the trace.
#[derive(Debug, Clone)]
pub(crate) struct Nesting {
    /// Its name.
    pub(crate) caller: String,
    /// Functions that wait for this call, one for another.
    pub(crate) depth: u32,
    /// When the caller must have ended.
    pub(crate) deadline: Instant,
}

/// How an invocation ended.
pub(crate) struct Ended {
    pub(crate) answer: Result<Answer, Problem>,
    /// What it took.
    pub(crate) timing: HeaderValue,
    /// What it printed, as far as that is known.
    pub(crate) log: Vec<u8>,
    /// Where its time went, if an instance came to it.
    pub(crate) times: Option<StepTimes>,
}

impl Ended {
    /// Of what was not begun: it is in no journal, which is for all tenants.
    fn refused(problem: Problem) -> Self {
        Self { answer: Err(problem), timing: HeaderValue::from_static("total"), log: Vec::new(), times: None }
    }
}

/// How far an invocation got.
enum Reached {
    /// It has ended.
    End(Evaluated),
    /// Its result begins to come.
    Beginning(Box<dyn Pieces>),
}

/// An answer, and where the rest of its body comes from if that is not all.
struct Given {
    answer: Answer,
    rest: Option<Box<dyn Pieces>>,
}

impl Invocation<'_> {
    /// Runs it, and waits for its end. Dropped before that, it counts as one whose
    /// client has left.
    pub(crate) async fn run(self, shared: &Arc<Shared>, permit: Permit, body: Buffered) -> Ended {
        let holding = match self.hold() {
            Ok(holding) => holding,
            Err(problem) => return Ended::refused(problem),
        };
        let (given, recording) = self.begin(shared, permit, holding, (body, None), false).await;
        ended(given.map(|given| given.answer), recording)
    }

    /// Runs it, and answers as soon as there is something of the answer; the rest
    /// of its body comes as the function makes it. The same goes for the body that
    /// is dropped before its end. A body that is `arriving` is passed on as it comes.
    pub(crate) async fn respond(
        self,
        shared: &Arc<Shared>,
        permit: Permit,
        body: Buffered,
        arriving: Option<Box<Arriving>>,
    ) -> Result<Response, Problem> {
        // A pure function's result is remembered, that of a codelet comes at once, and a workflow's has no pieces.
        let streams = !(self.served.is_pure || self.served.is_codelet || self.served.is_workflow);
        let at_home = self.routed.is_some_and(|routed| routed.at_home);
        let holding = self.hold()?;
        let (given, recording) = self.begin(shared, permit, holding, (body, arriving), streams).await;
        let answer = match given {
            Ok(Given { answer, rest: Some(rest) }) => {
                return Ok(streamed::response(answer, rest, recording, at_home));
            }
            Ok(given) => Ok(given.answer),
            Err(problem) => Err(problem),
        };
        let Ended { answer, timing, .. } = ended(answer, recording);
        match answer {
            Ok(answer) => {
                let mut response = if at_home { answer.into_page() } else { answer.into_response() };
                response.headers_mut().insert(SERVER_TIMING, timing);
                Ok(response)
            }
            Err(problem) => Err(problem.header(SERVER_TIMING, timing)),
        }
    }

    /// Has it run until there is an answer, or the beginning of one if it streams.
    async fn begin(
        mut self,
        shared: &Arc<Shared>,
        permit: Permit,
        holding: Option<Box<Holding>>,
        (body, arriving): (Buffered, Option<Box<Arriving>>),
        streams: bool,
    ) -> (Result<Given, Problem>, Recording) {
        // What gets no head can make no calls, and is in the trace as far as its caller.
        let has_head = !(self.served.is_pure || self.served.is_codelet);
        let tracer = shared.tracer.as_ref();
        let samples = |trace| tracer.is_some_and(|tracer| tracer.samples(trace));
        let is_traced = has_head || tracer.is_some();
        let traced = is_traced.then(|| Traced::begin(self.headers, samples));
        let place = self.place(traced.as_ref(), tracer.is_some());
        let mut recording = Recording::begin(shared, &self.served, self.id, place, body.bytes.len());
        if let Some(holding) = holding {
            recording.holds(holding);
        }
        let own = traced.map(|traced| traced.own);
        let sealer = Some(&shared.sealer).filter(|_| self.tenancy.is_none());
        let head = own.filter(|_| has_head).map(|own| self.head(own, arriving.is_some(), sealer));
        let head = head.unwrap_or_default();
        let latest = self.latest();
        let memory = self.memory.take();
        let asked = Asked { permit, brought: Arc::new((head, body)), arriving, latest, streams, memory };
        let given = match own.filter(|_| self.served.is_workflow).map(|own| self.beginning(own)) {
            Some(beginning) => Box::pin(self.in_run(shared, beginning, asked, &mut recording)).await,
            None => answer(shared, &self.served, asked, &mut recording).await,
        };
        let has_begun = given.as_ref().is_ok_and(|given| given.rest.is_some());
        match recording.body_problem().filter(|_| !has_begun) {
            Some(problem) => (Err(problem), recording),
            None => (given, recording),
        }
    }

    /// A request to a workflow: its instance answers, or nobody but the run itself.
    async fn in_run(
        &self,
        shared: &Arc<Shared>,
        beginning: Beginning,
        asked: Asked,
        recording: &mut Recording,
    ) -> Result<Given, Problem> {
        let Some(declaration) = &self.served.declaration else {
            let answered = |_| answer(shared, &self.served, asked, recording);
            return shared.workflows.run(shared, beginning, answered).await;
        };
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let event = (kind.unwrap_or_default(), Bytes::copy_from_slice(&asked.brought.1.bytes));
        let conducted = |run: Arc<Run>| run.conduct(shared, declaration, event);
        let answer = shared.workflows.run(shared, beginning, conducted).await;
        answer.map(|answer| Given { answer, rest: None })
    }

    /// The run that it is, if it is one of a workflow.
    fn beginning(&mut self, own: TraceParent) -> Beginning {
        Beginning {
            workflow: self.served.clone(),
            request_id: self.id.clone(),
            span: Some(own.span()),
            traceparent: HeaderValue::try_from(own.text()).ok(),
            deadline: self.latest(),
            tenancy: self.tenancy.clone(),
            depth: self.nesting.as_ref().map_or(0, |nesting| nesting.depth),
            durable: self.durable.take(),
        }
    }

    /// Its part of its tenant's quota.
    fn hold(&self) -> Result<Option<Box<Holding>>, Problem> {
        let Some(tenancy) = &self.tenancy else { return Ok(None) };
        tenancy.hold(&self.served, Instant::now()).map(|holding| Some(Box::new(holding)))
    }

    /// How long it may take.
    fn time(&self) -> Duration {
        let own = self.served.timeout;
        let left = |nesting: &Nesting| nesting.deadline.saturating_duration_since(Instant::now());
        self.nesting.as_ref().map_or(own, |nesting| own.min(left(nesting)))
    }

    /// When nobody waits for it any more.
    fn latest(&self) -> Instant {
        let own = Instant::now() + self.served.timeout.saturating_add(GRACE);
        self.nesting.as_ref().map_or(own, |nesting| own.min(nesting.deadline))
    }

    fn place(&self, traced: Option<&Traced>, is_told: bool) -> Place {
        let is_nested = self.nesting.is_some();
        // Also of what has no place of its own in the trace.
        let brought = || TraceParent::of(self.headers).map(|brought| brought.span());
        let parent = if is_nested { traced.map_or_else(brought, Traced::parent) } else { None };
        let context = traced.filter(|_| is_told).and_then(|traced| traced.context(is_nested));
        Place {
            span: traced.map(|traced| traced.own.span()),
            parent,
            is_nested,
            context,
            source: self.source,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "people and functions are told the time of day")]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Microseconds since 1970.
pub(crate) fn micros_now() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What is asked of a function, as its application has it.
struct Asked {
    permit: Permit,
    /// Head and body.
    brought: Arc<(Vec<u8>, Buffered)>,
    /// The body, if it is passed on while it comes.
    arriving: Option<Box<Arriving>>,
    latest: Instant,
    /// The result is wanted before it is whole.
    streams: bool,
    /// What it maps, if it may.
    memory: Option<Vec<Handle>>,
}

/// The end of an invocation, written down.
fn ended(answer: Result<Answer, Problem>, mut recording: Recording) -> Ended {
    let log = recording.log().to_vec();
    recording.sends(answer.as_ref().map_or(0, |answer| answer.body.len()));
    let (status, failure) = match &answer {
        Ok(answer) => (answer.status, None),
        Err(problem) => (problem.status(), Some(problem.detail().to_owned())),
    };
    let times = recording.step_times();
    Ended { answer, timing: recording.end(status, failure), log, times }
}

async fn answer(
    shared: &Arc<Shared>,
    served: &Arc<Served>,
    mut asked: Asked,
    recording: &mut Recording,
) -> Result<Given, Problem> {
    let mut reached = run(shared, served, &mut asked, recording).await?;
    // An instance that ended before it answered says nothing about the request,
    // which another one may be asked where the function allows it. Of an answer
    // that has begun a client has a part.
    if let Reached::End(end) = &reached
        && served.is_idempotent
        && end.failure.is_some_and(|failure| failure.code == FailureCode::Trap)
    {
        tracing::info!(function = served.name, "an instance ended before it answered; another one is asked");
        reached = run(shared, served, &mut asked, recording).await?;
    }
    let end = match reached {
        Reached::End(end) => end,
        Reached::Beginning(rest) => return begun(served, rest, recording).await,
    };
    if let Some(problem) = failure_of(shared, served, &end).await? {
        return Err(problem);
    }
    if served.is_program {
        let answer = program::answer(shared, served, end.result, recording).await?;
        return Ok(Given { answer, rest: None });
    }
    if end.result.names_tree() {
        return Err(not_an_answer(served, "is a tree"));
    }
    let result = end.result;
    if served.maps_values && is_memory(shared, result) {
        return match asked.memory {
            Some(_) => Ok(Given { answer: Answer::of_memory(result), rest: None }),
            None => {
                shared.backend.drop_passed(result);
                Err(not_an_answer(served, "is memory, which only steps of a declared workflow map"))
            }
        };
    }
    let bytes: Bytes = load(shared, result).await?.ok_or_else(|| Problem::object_not_found(result))?;
    // A codelet's may be one of its inputs.
    if !(served.is_pure || served.is_codelet) {
        shared.backend.drop_passed(result);
    }
    let answer = match served.is_codelet {
        true => Answer::of_codelet(bytes, served.content_type.clone()),
        false => answer::read(bytes).map_err(|why| not_an_answer(served, why))?,
    };
    Ok(Given { answer, rest: None })
}

/// Whether a result stands for memory, and is not one itself.
fn is_memory(shared: &Shared, result: Handle) -> bool {
    let object = shared.backend.local(result);
    object.is_some_and(|object| object.descriptor().is_some() && stands_for_memory(&object))
}

/// The answer whose beginning is here.
async fn begun(
    served: &Served,
    mut rest: Box<dyn Pieces>,
    recording: &mut Recording,
) -> Result<Given, Problem> {
    // Whoever begins to send sends the head first, whole.
    let first = poll_fn(|context| rest.poll_next(context)).await.unwrap_or_default();
    let answer = answer::read(first).map_err(|why| {
        recording.ran();
        not_an_answer(served, why)
    })?;
    Ok(Given { answer, rest: Some(rest) })
}

/// The problem that stands for a failed end.
async fn failure_of(
    shared: &Arc<Shared>,
    served: &Served,
    end: &Evaluated,
) -> Result<Option<Problem>, Problem> {
    let Some(failure) = end.failure else { return Ok(None) };
    let detail = failure_detail(shared, &failure).await?;
    Ok(Some(failed(served, Problem::failure(end.result, &failure, detail), failure.code)))
}

fn not_an_answer(served: &Served, why: &str) -> Problem {
    let detail = format!("function {}, version {}: its result {why}", served.name, served.version);
    Problem::new(StatusCode::BAD_GATEWAY, "bad-result", "The function gave no answer", "function", detail)
}

/// Evaluates the application of a function to a request, once: to its end, or to
/// the beginning of its result.
async fn run(
    shared: &Arc<Shared>,
    served: &Arc<Served>,
    asked: &mut Asked,
    recording: &mut Recording,
) -> Result<Reached, Problem> {
    let Asked { permit, brought, arriving, latest, streams, memory } = asked;
    let further = memory.as_deref().unwrap_or_default();
    let (goal, passed) = if brought.1.bytes.len() <= INLINE_BYTES_MAX {
        apply(shared, served, &brought.0, &brought.1.bytes, further)?
    } else {
        let (shared, served, brought, further) =
            (shared.clone(), served.clone(), brought.clone(), further.to_vec());
        blocking(move || apply(&shared, &served, &brought.0, &brought.1.bytes, &further)).await??
    };
    let deadline = Some(latest.saturating_duration_since(Instant::now()));
    let (priority, is_repeatable, streams) = (Priority::Normal, served.is_pure, *streams);
    let request = EvaluateRequest {
        goal,
        deadline,
        priority,
        is_repeatable,
        streams,
        by: None,
        recording: None,
        tenant: None,
    };
    // Before anybody can ask for it.
    let passing = arriving.take().and_then(|arriving| passing(shared, goal, *arriving));
    let evaluation = shared.backend.evaluate(request).map_err(|reason| Problem::busy("evaluator", reason))?;
    let running = Running { evaluation, goal, permit: permit.clone(), passing, _passed: passed };
    let evaluation = &mut recording.runs(running).evaluation;
    if streams && let Some(pieces) = evaluation.begins().await {
        return Ok(Reached::Beginning(pieces));
    }
    let end = evaluation.finished().await;
    recording.ended(&end);
    Ok(Reached::End(end))
}

/// Has a body passed on to the application of this goal.
fn passing(shared: &Shared, goal: Handle, arriving: Arriving) -> Option<Box<Passing>> {
    let intake = shared.backend.functions()?.intake(goal.thunk()?)?;
    Some(Box::new(Passing::begin(shared, arriving, intake)))
}

/// What a request consists of, held until it has ended.
struct Passed {
    shared: Arc<Shared>,
    handles: [Handle; 3],
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.handles.iter().for_each(|&handle| self.shared.backend.drop_passed(handle));
    }
}

/// Keeps what the application consists of, and names the application. What is here already is
/// among its arguments as it is.
fn apply(
    shared: &Arc<Shared>,
    served: &Served,
    head: &[u8],
    body: &[u8],
    further: &[Handle],
) -> Result<(Handle, Option<Passed>), Problem> {
    let (head, body) = (Named::blob(head), Named::blob(body));
    let mut tree: TreeBuilder = served.prefix.iter().copied().collect();
    if !served.is_codelet {
        // One of its own for each request, so that no two are one computation.
        let unique = if served.is_pure { None } else { Some(unique::random::<16>()) };
        tree.push(Handle::blob(unique.as_ref().map_or(&[], |id| id.as_slice())));
        tree.push(head.handle());
    }
    tree.push(body.handle());
    for handle in further {
        tree.push(*handle);
    }
    let objects = [head, body, Named::tree(tree.view())];
    // What is asked for once leaves no trace: it may hold secrets.
    let kept = if served.is_pure {
        shared.backend.keep_many(&objects.map(|object| object.record())).map(drop)
    } else {
        shared.backend.pass_many(&objects)
    };
    kept.map_err(|error| Problem::store(&error))?;
    let handles = objects.map(|object| object.handle());
    let application = handles[2].application().and_then(Handle::strict);
    let passed = (!served.is_pure).then(|| Passed { shared: shared.clone(), handles });
    let goal =
        application.ok_or_else(|| Problem::internal("gateway", "a request could not be made an application"));
    Ok((goal?, passed))
}

/// A function that ends without an answer is a server's error, unlike a
/// computation that somebody sent.
fn failed(served: &Served, problem: Problem, code: FailureCode) -> Problem {
    let status = match code {
        FailureCode::Deadline => StatusCode::GATEWAY_TIMEOUT,
        FailureCode::Resources | FailureCode::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let title = match code {
        FailureCode::Deadline => "The function took too long",
        FailureCode::Resources | FailureCode::Cancelled => "The function cannot be served now",
        _ => "The function failed",
    };
    let next = match code {
        FailureCode::Deadline => {
            "`sinew logs NAME --request-id ID` shows how far it came; have it do less, or raise timeout in sinew.toml"
        }
        FailureCode::Memory => "raise memory in sinew.toml",
        FailureCode::Resources | FailureCode::Cancelled => {
            "try again; if it lasts, raise concurrency in sinew.toml or give the node more memory"
        }
        _ => "the detail is what the function said; mend it and `sinew deploy` again",
    };
    problem.of_function(status, title, &served.name, served.version).suggest(next)
}
