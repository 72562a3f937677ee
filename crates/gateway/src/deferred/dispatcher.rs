// SPDX-License-Identifier: Apache-2.0
//! Who makes the calls that wait: one loop that claims what is due, and a task
//! for each attempt.
//!
//! Attempts have places of their own, so that they take none from requests
//! that somebody waits for, and a function's attempts at one time are bounded
//! by its own concurrency and a part of these places.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use futures_util::FutureExt as _;
use queue::{Claimed, End, Policy, Queue};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::verdict::{self, Verdict};
use super::{Call, Parcel, callback, now_ms, request_id, scheduler};
use crate::admission::Permit;
use crate::body::{blocking, held};
use crate::client::Client;
use crate::invocation::Invocation;
use crate::router::Shared;
use crate::routes::call::served;
use crate::unique;
use crate::workflows::{CANCELLED, Durable, resume};

/// Attempts at one time.
const PLACES: usize = 512;
/// Those of one function.
const PLACES_EACH: usize = 128;
/// Messages claimed in one step.
const CLAIMED_MAX: usize = 32;
/// The queue is looked at again after this long, whatever happens.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After the queue failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells the dispatcher that something may be due.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wake(Arc<Notify>);

impl Wake {
    pub(crate) fn wake(&self) {
        self.0.notify_one();
    }
}

/// The loop.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    queue: Arc<dyn Queue>,
    places: Arc<Semaphore>,
    running: JoinSet<()>,
}

impl Dispatcher {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<dyn Queue>) -> Self {
        Self { shared, queue, places: Arc::new(Semaphore::new(PLACES)), running: JoinSet::new() }
    }

    /// Makes calls until `stop`, and returns when those under way have ended.
    /// Dropped before that, they are attempts that the node did not survive.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut schedules = JoinSet::new();
        schedules.spawn(scheduler::run(self.shared.clone(), self.queue.clone()));
        let mut swept = Instant::now();
        loop {
            let pause = self.begin_what_is_due().await;
            if swept.elapsed() >= LOOK_EVERY {
                swept = Instant::now();
                let queue = self.queue.clone();
                report(tokio::task::spawn_blocking(move || queue.sweep(now_ms())).await.map(drop));
            }
            tokio::select! {
                () = &mut stop => break,
                () = self.shared.wake.0.notified() => {}
                Some(ended) = self.running.join_next() => report(ended),
                () = tokio::time::sleep(pause) => {}
            }
            while let Some(ended) = self.running.try_join_next() {
                report(ended);
            }
        }
        drop(schedules);
        while let Some(ended) = self.running.join_next().await {
            report(ended);
        }
    }

    /// Begins all attempts for which there is a place; how long to wait then.
    async fn begin_what_is_due(&mut self) -> Duration {
        loop {
            let free = self.places.available_permits().min(CLAIMED_MAX);
            if free == 0 {
                // An end makes a place, and wakes us.
                return LOOK_EVERY;
            }
            let (shared, queue) = (self.shared.clone(), self.queue.clone());
            let claimed = tokio::task::spawn_blocking(move || claim(&shared, &*queue, free)).await;
            let (claimed, is_failed) = claimed.unwrap_or((Vec::new(), true));
            let number = claimed.len();
            for message in claimed {
                // As many as there are free places were claimed.
                let Ok(place) = self.places.clone().try_acquire_owned() else { break };
                self.running.spawn(attempt(self.shared.clone(), self.queue.clone(), message, place));
            }
            if is_failed {
                return PAUSE;
            }
            if number < free {
                let now = now_ms();
                // What is due and was not claimed waits for an end.
                let next = self.queue.next_due().filter(|due| *due > now);
                let next = next.map_or(LOOK_EVERY, |due| Duration::from_millis(due - now));
                return next.min(LOOK_EVERY);
            }
        }
    }
}

fn report<T>(ended: Result<T, tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a call that was made later did not end well");
    }
}

/// What is due and may run, and whether the queue failed.
fn claim(shared: &Shared, queue: &dyn Queue, most: usize) -> (Vec<Claimed>, bool) {
    let limit = |lane: &str| {
        if callback::is_lane(lane) {
            return callback::EACH_MAX;
        }
        let functions = shared.backend.functions();
        let served = functions.and_then(|functions| functions.served(lane, None, 0));
        // One of a function that is gone is buried by an attempt.
        served.map_or(1, |served| (served.concurrency as usize).min(PLACES_EACH))
    };
    let mut claimed = Vec::new();
    while claimed.len() < most {
        match queue.claim(now_ms(), &limit) {
            Ok(Some(message)) => claimed.push(message),
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, "a message could not be taken from the queue");
                return (claimed, true);
            }
        }
    }
    (claimed, false)
}

/// Makes one attempt, and writes down how it ended.
async fn attempt(
    shared: Arc<Shared>,
    queue: Arc<dyn Queue>,
    mut claimed: Claimed,
    place: OwnedSemaphorePermit,
) {
    let id = claimed.id;
    let body = std::mem::take(&mut claimed.body);
    let call = serde_json::from_slice::<Call>(&claimed.head).ok();
    let made = async {
        match &call {
            Some(call) => make(&shared, &claimed, call, body, place).await,
            None => send(&shared, &claimed, body, place).await,
        }
    };
    let made = AssertUnwindSafe(made).catch_unwind().await;
    let end = made.unwrap_or_else(|_| {
        // The panic hook has already written where and why.
        let verdict =
            Verdict::Again { reason: "the node failed during the attempt".to_owned(), counts: true };
        verdict::end(verdict, &claimed, &Policy::default(), (now_ms(), random()), Vec::new)
    });
    match &end {
        End::Succeeded(_) => tracing::debug!(%id, attempt = claimed.attempt, "a call has succeeded"),
        End::Retry { reason, .. } => {
            tracing::info!(%id, function = claimed.lane, attempt = claimed.attempt, reason, "a call is tried again");
        }
        End::Dead { reason } => {
            tracing::warn!(%id, function = claimed.lane, attempt = claimed.attempt, reason, "a call is a dead letter");
        }
    }
    let follow = call.and_then(|call| callback::follow(&call, id, &end));
    let ended = tokio::task::spawn_blocking(move || queue.end(id, end, follow, now_ms())).await;
    if let Ok(Err(error)) = ended {
        tracing::error!(%id, %error, "how a call ended could not be written; it is made again");
    }
    shared.wake.wake();
}

/// Sends a result on.
async fn send(shared: &Arc<Shared>, claimed: &Claimed, body: Vec<u8>, _place: OwnedSemaphorePermit) -> End {
    match serde_json::from_slice::<Parcel>(&claimed.head) {
        Ok(parcel) => callback::deliver(shared, claimed, &parcel, body).await,
        Err(_) => End::Dead { reason: "this node does not understand what the queue holds".to_owned() },
    }
}

/// Makes a call.
async fn make(
    shared: &Arc<Shared>,
    claimed: &Claimed,
    call: &Call,
    body: Vec<u8>,
    place: OwnedSemaphorePermit,
) -> End {
    let headers: HeaderMap = call.header_map();
    let served = match served(shared, &call.target, &headers) {
        Ok(served) => served,
        Err(problem) => return End::Dead { reason: problem.detail().to_owned() },
    };
    let policy = served.delivery;
    let is_workflow = served.is_workflow;
    if let Some(reason) = verdict::overdue(claimed, &policy, now_ms()) {
        return End::Dead { reason };
    }
    let version = served.version;
    let durable = match is_workflow {
        true => match resumed(shared, claimed, &policy).await {
            Ok(durable) => Some(durable),
            Err(end) => return end,
        },
        false => None,
    };
    let tenancy = call.tenant.as_ref().map(|payer| shared.tenants.tenancy(&payer.name, payer.quota));
    // It was one of so many in a second when it was taken.
    let counting =
        tenancy.as_ref().map(|tenancy| tenancy.begin(false, std::time::Instant::now())).transpose();
    let answer = match counting.and_then(|counting| Ok((counting, held(shared, body)?))) {
        Ok((_counting, body)) => {
            let invocation = Invocation {
                served,
                id: &request_id(call),
                method: &call.method,
                path: &call.path,
                query: &call.query,
                headers: &headers,
                routed: None,
                client: Client::default(),
                source: call.source.word(),
                nesting: None,
                tenancy,
                durable,
                memory: None,
            };
            invocation.run(shared, Permit::of(place), body).await.answer
        }
        Err(problem) => Err(problem),
    };
    let verdict = match is_workflow {
        true => verdict::judge_run(&answer),
        false => verdict::judge(&answer, call.source),
    };
    verdict::end(verdict, claimed, &policy, (now_ms(), random()), || verdict::outcome(&answer, version))
}

/// How far a run is that is attempted, or how that ends at once.
async fn resumed(shared: &Arc<Shared>, claimed: &Claimed, policy: &Policy) -> Result<Durable, End> {
    let (id, shared) = (claimed.id, shared.clone());
    match blocking(move || resume(&shared, id)).await.and_then(|resumed| resumed) {
        Ok(Some(durable)) => Ok(durable),
        Ok(None) => Err(End::Dead { reason: format!("it {CANCELLED}") }),
        Err(problem) => {
            let verdict = Verdict::Again { reason: problem.detail().to_owned(), counts: false };
            Err(verdict::end(verdict, claimed, policy, (now_ms(), random()), Vec::new))
        }
    }
}

pub(super) fn random() -> u64 {
    unique::uuid().as_u64_pair().1
}
