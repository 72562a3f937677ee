// SPDX-License-Identifier: Apache-2.0
//! The table of endpoints, and the layers around them.
//!
//! [`endpoints`] is the one list of what the gateway answers; the router is
//! built from it, and a test holds the OpenAPI document against it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ahead::Ahead;
use crate::backend::Backend;
use crate::behind::Behind;
use crate::body::{BUDGET_UNIT_BYTES, blocking};
use crate::connections::Connections;
use crate::deferred::{Dispatcher, Wake};
use crate::door::Door;
use crate::front::{Checks, Front};
use crate::invocation::{Sealer, micros_now};
use crate::journal::{Archive, Journal};
use crate::keys::Access;
use crate::metrics::Metrics;
use crate::nested::{CallGraph, NestedCalls};
use crate::options::Options;
use crate::problem::Problem;
use crate::tenants::Tenants;
use crate::text::shortened;
use crate::traces::Tracer;
use crate::workflows::Workflows;
use crate::{admission, envelope, front, keys, openapi, routes};

/// How long the end of a node waits for logs of requests to be written.
const ARCHIVE_SETTLE_MAX: Duration = Duration::from_secs(5);

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) options: Options,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) openapi: Bytes,
    pub(crate) journal: Mutex<Journal>,
    /// Records on disk, if they are kept there.
    pub(crate) archive: Option<Arc<Archive>>,
    pub(crate) started: Instant,
    /// Where clients of other listeners reach this node, once that is known.
    pub(crate) url: OnceLock<String>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) buffered: Arc<Semaphore>,
    /// What is in memory and waits for the disk.
    pub(crate) behind: Behind,
    /// Of what clients send ahead.
    pub(crate) ahead: Ahead,
    /// Calls whose clients have all of their answers.
    pub(crate) going_on: Mutex<JoinSet<()>>,
    /// Calls whose clients have left, and which end soon; and bodies on their way to calls.
    pub(crate) departed: Mutex<JoinSet<()>>,
    /// Drawn by requests to aliases so far.
    pub(crate) lots: AtomicU64,
    /// Whoever makes calls that wait.
    pub(crate) wake: Wake,
    /// Which functions have called which.
    pub(crate) calls: CallGraph,
    /// What is told of requests whose calls may take lines.
    pub(crate) sealer: Sealer,
    /// How many keys are checked at a time.
    pub(crate) guard: keys::Guard,
    /// Whose requests are counted together.
    pub(crate) tenants: Arc<Tenants>,
    /// Where sampled requests leave their spans.
    pub(crate) tracer: Option<Tracer>,
    /// The runs of workflows.
    pub(crate) workflows: Workflows,
}

/// How long an endpoint's answer may take, and whether it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// For operators: always let in.
    Vital,
    /// Counted, and answers within `answer_timeout`.
    Quick,
    /// Counted; the endpoint limits its own time.
    Long,
}

/// The methods that endpoints take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
    /// Whatever the function makes of it.
    Any,
}

impl Verb {
    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
            Self::Any => MethodFilter::GET
                .or(MethodFilter::POST)
                .or(MethodFilter::PUT)
                .or(MethodFilter::DELETE)
                .or(MethodFilter::PATCH)
                .or(MethodFilter::OPTIONS),
        }
    }
}

/// One method of one path.
pub(crate) struct Endpoint {
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of the OpenAPI document reads it"))]
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    pace: Pace,
    handler: MethodRouter<Arc<Shared>>,
}

impl Endpoint {
    fn new<H, T>(verb: Verb, path: &'static str, pace: Pace, handler: H) -> Self
    where
        H: Handler<T, Arc<Shared>>,
        T: 'static,
    {
        Self { verb, path, pace, handler: on(verb.filter(), handler) }
    }
}

/// Everything that the gateway answers. `GET` answers `HEAD` too.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    use Pace::{Long, Quick, Vital};
    use Verb::{Any, Delete, Get, Post, Put};
    use routes::{
        call, dashboard, dead_letters, deferred, explain, functions, identity, keys, lambda, logs, mcp,
        operations, runs, secrets,
    };
    let mut endpoints = storage();
    endpoints.extend([
        Endpoint::new(Get, "/v1/queue", Quick, deferred::overview),
        Endpoint::new(Get, "/v1/functions", Quick, functions::list),
        Endpoint::new(Post, "/v1/functions", Long, functions::put_all),
        Endpoint::new(Get, "/v1/functions/{name}", Quick, functions::get),
        Endpoint::new(Put, "/v1/functions/{name}", Long, functions::put),
        Endpoint::new(Delete, "/v1/functions/{name}", Quick, functions::remove),
        Endpoint::new(Post, "/v1/functions/{name}/rollback", Long, functions::roll_back),
        Endpoint::new(Put, "/v1/functions/{name}/aliases/{alias}", Quick, functions::set_alias),
        Endpoint::new(Delete, "/v1/functions/{name}/aliases/{alias}", Quick, functions::remove_alias),
        Endpoint::new(Get, "/v1/secrets", Quick, secrets::list),
        Endpoint::new(Put, "/v1/secrets/{name}", Quick, secrets::put),
        Endpoint::new(Delete, "/v1/secrets/{name}", Quick, secrets::remove),
        Endpoint::new(Get, "/v1/keys", Quick, keys::list),
        Endpoint::new(Post, "/v1/keys", Quick, keys::create),
        Endpoint::new(Delete, "/v1/keys/{id}", Quick, keys::revoke),
        Endpoint::new(Get, "/v1/logs", Quick, logs::logs),
        Endpoint::new(Any, "/function/{name}", Long, call::matched),
        Endpoint::new(Any, "/function/{name}/", Long, call::matched),
        Endpoint::new(Any, "/function/{name}/{*path}", Long, call::matched),
        Endpoint::new(Post, "/async-function/{name}", Long, deferred::call),
        Endpoint::new(Post, "/async-function/{name}/", Long, deferred::call),
        Endpoint::new(Post, "/async-function/{name}/{*path}", Long, deferred::call),
        Endpoint::new(Get, "/v1/async/{id}", Quick, deferred::status),
        Endpoint::new(Get, "/v1/async/{id}/result", Quick, deferred::result),
        Endpoint::new(Get, "/v1/runs", Quick, runs::all),
        Endpoint::new(Get, "/v1/runs/{id}", Quick, runs::one),
        Endpoint::new(Delete, "/v1/runs/{id}", Quick, runs::stop),
        Endpoint::new(Get, "/v1/dlq", Quick, dead_letters::list),
        Endpoint::new(Delete, "/v1/dlq", Long, dead_letters::purge_all),
        Endpoint::new(Post, "/v1/dlq/redrive", Long, dead_letters::redrive_all),
        Endpoint::new(Get, "/v1/dlq/{id}", Quick, dead_letters::get),
        Endpoint::new(Delete, "/v1/dlq/{id}", Quick, dead_letters::purge),
        Endpoint::new(Post, "/v1/dlq/{id}/redrive", Quick, dead_letters::redrive),
        Endpoint::new(Post, "/2015-03-31/functions/{name}/invocations", Long, lambda::invoke),
        Endpoint::new(Post, "/v1/mcp", Long, mcp::answer),
        Endpoint::new(Get, "/v1/mcp", Quick, mcp::post_alone),
        Endpoint::new(Delete, "/v1/mcp", Quick, mcp::post_alone),
        Endpoint::new(Get, "/v1/explain/{handle}", Quick, explain::explain),
        Endpoint::new(Get, "/v1/status", Quick, operations::status),
        Endpoint::new(Get, "/v1/interpreters/{runtime}", Quick, functions::interpreter),
        Endpoint::new(Get, "/v1/identity", Quick, identity::identity),
        Endpoint::new(Get, "/dashboard/", Quick, dashboard::index),
        Endpoint::new(Get, "/dashboard/{file}", Quick, dashboard::file),
        Endpoint::new(Get, "/healthz", Vital, operations::healthz),
        Endpoint::new(Get, "/readyz", Vital, operations::readyz),
        Endpoint::new(Get, "/metrics", Vital, operations::metrics),
        Endpoint::new(Get, "/openapi.json", Quick, operations::openapi),
    ]);
    endpoints
}

/// Those of the store, and of what is computed from it.
fn storage() -> Vec<Endpoint> {
    use Pace::{Long, Quick};
    use Verb::{Delete, Get, Post, Put};
    use routes::{
        blobs, bundles, collection, evaluate, export, inventory, labels, objects, tier, trees, upkeep,
    };
    vec![
        Endpoint::new(Post, "/v1/blobs", Long, blobs::put),
        Endpoint::new(Post, "/v1/trees", Long, trees::put),
        Endpoint::new(Post, "/v1/bundles", Long, bundles::put),
        Endpoint::new(Get, "/v1/objects", Quick, inventory::list),
        Endpoint::new(Get, "/v1/objects/{handle}", Long, objects::get),
        Endpoint::new(Post, "/v1/evaluate", Long, evaluate::evaluate),
        Endpoint::new(Get, "/v1/labels", Quick, labels::list),
        Endpoint::new(Get, "/v1/labels/{*name}", Quick, labels::get),
        Endpoint::new(Put, "/v1/labels/{*name}", Long, labels::put),
        Endpoint::new(Delete, "/v1/labels/{*name}", Quick, labels::remove),
        Endpoint::new(Post, "/v1/collect", Long, collection::collect),
        Endpoint::new(Get, "/v1/collect", Quick, collection::status),
        Endpoint::new(Delete, "/v1/collect", Quick, collection::stop),
        Endpoint::new(Post, "/v1/export", Long, export::export),
        Endpoint::new(Post, "/v1/check", Long, upkeep::check),
        Endpoint::new(Post, "/v1/backup", Long, upkeep::back_up),
        Endpoint::new(Post, "/v1/restore", Long, upkeep::restore),
        Endpoint::new(Get, "/v1/tier", Quick, tier::status),
        Endpoint::new(Post, "/v1/tier/flush", Long, tier::flush),
        Endpoint::new(Post, "/v1/tier/collect", Long, tier::collect),
        Endpoint::new(Post, "/v1/tier/take", Long, tier::take),
    ]
}

/// Where records of requests are kept, if they are; a node without them is better than none.
fn archive(options: &Options) -> Option<Arc<Archive>> {
    let begun = Archive::begin(options.archive.clone()?, options.rates.currency.clone());
    let told = |error| tracing::warn!(%error, "logs of requests are kept in memory alone");
    begun.map_err(told).ok().map(Arc::new)
}

/// A gateway for several listeners that share limits and metrics.
pub struct Gateway {
    shared: Arc<Shared>,
}

impl Gateway {
    /// A gateway before `backend`.
    pub fn new(backend: Arc<dyn Backend>, options: Options) -> Self {
        let tracer = options.traces.as_ref().map(Tracer::new);
        let tenants = Arc::<Tenants>::default();
        let behind = Behind::new(options.behind_max_bytes);
        let archive = archive(&options);
        let metrics = Metrics::new(backend.clone(), &options, tracer.as_ref(), &tenants, &behind);
        let units = options.buffered_max_bytes.div_ceil(BUDGET_UNIT_BYTES);
        let units = usize::try_from(units).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            backend,
            metrics: Arc::new(metrics),
            openapi: openapi::document(&options.version),
            // The clock may have been ahead.
            journal: Mutex::new(Journal::new(
                archive.as_ref().map_or(0, |archive| archive.highest()).max(micros_now()),
            )),
            archive,
            started: Instant::now(),
            url: OnceLock::new(),
            requests: Arc::new(Semaphore::new(options.requests_max.min(Semaphore::MAX_PERMITS))),
            buffered: Arc::new(Semaphore::new(units)),
            behind,
            ahead: Ahead::new(options.ahead_max_bytes),
            going_on: Mutex::default(),
            departed: Mutex::default(),
            lots: AtomicU64::new(0),
            wake: Wake::default(),
            calls: CallGraph::default(),
            sealer: Sealer::new(),
            guard: keys::Guard::default(),
            tenants,
            tracer,
            workflows: Workflows::default(),
            options,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Requests are also answered at this URL, which has no path. Clients of the
    /// socket are told: `/v1/status` has it from now on. The first one stays.
    pub fn answers_at(&self, url: String) {
        _ = self.shared.url.set(url);
    }

    /// Where the listeners count their connections, for `/metrics`.
    pub fn connections(&self) -> Connections {
        self.shared.metrics.connections().clone()
    }

    /// What makes the calls of functions by functions.
    pub fn nested_calls(&self) -> NestedCalls {
        NestedCalls::new(&self.shared)
    }

    /// Makes the calls that wait in the backend's queue, until `stop`; returns
    /// when those under way have ended.
    pub fn make_calls(
        &self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        async move {
            if let Some(queue) = shared.backend.queue() {
                Dispatcher::new(shared, queue).run(stop).await;
            }
        }
    }

    /// Waits for the calls that go on after their answers, and until what was acknowledged in memory, and the
    /// logs of requests, are written.
    pub async fn settled(&self) {
        loop {
            let going_on = &self.shared.going_on;
            let mut calls = std::mem::take(&mut *going_on.lock().unwrap_or_else(PoisonError::into_inner));
            if calls.is_empty() {
                self.shared.behind.settled().await;
                if let Some(archive) = self.shared.archive.clone() {
                    // If that cannot be waited for, they are written later, or not.
                    _ = blocking(move || archive.settle(ARCHIVE_SETTLE_MAX)).await;
                }
                return;
            }
            while calls.join_next().await.is_some() {}
        }
    }

    /// Sends spans to the backend's collector, until `stop`; returns when those
    /// that are left have been sent, or cannot be.
    pub fn send_traces(
        &self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        async move {
            if let (Some(tracer), Some(collector)) = (&shared.tracer, shared.backend.collector()) {
                tracer.send(collector, stop).await;
            }
        }
    }

    /// The service for one listener, which answers only to what `door` lets in,
    /// and does for whom `access` says.
    pub fn router(&self, door: Door, access: Access) -> Front {
        let shared = &self.shared;
        let checks = Arc::new(Checks::new(door, access));
        let mut router = Router::new();
        for Endpoint { path, pace, handler, .. } in endpoints() {
            let counted = || from_fn_with_state(shared.clone(), admission::counted);
            let timed = || from_fn_with_state(shared.clone(), admission::timed);
            let handler = match pace {
                Pace::Vital => handler,
                Pace::Quick => handler.layer(timed()).layer(counted()),
                Pace::Long => handler.layer(counted()),
            };
            router = router.route(path, handler);
        }
        // No further layers here: requests for functions do not pass the router,
        // so that what all must satisfy is in `front::Checks`.
        let router = router
            .fallback(routes::call::routed)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(from_fn_with_state((shared.clone(), checks.clone()), front::checked))
            .layer(from_fn_with_state(shared.clone(), envelope::envelope))
            .with_state(shared.clone());
        Front::new(shared.clone(), checks, router)
    }
}

/// A gateway with one listener, whose door is `options.door`.
pub fn router(backend: Arc<dyn Backend>, options: Options) -> Front {
    let door = options.door.clone();
    Gateway::new(backend, options).router(door, Access::Owner)
}

async fn method_not_allowed(request: Request) -> Problem {
    let path = shortened(request.uri().path());
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        "The path does not take this method",
        "gateway",
        format!("{} {path}", shortened(request.method().as_str())),
    )
    .suggest("the Allow header lists the methods; GET /openapi.json describes them")
}
