// SPDX-License-Identifier: Apache-2.0
//! `/v1/tier`: how the durable tier fares, waiting for it, and taking it over; and what
//! puts and labels say of how far they are to be kept before they are answered.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Awaited, Collection, Taken, TierCollected, TierStatus};
use tokio::sync::Semaphore;

use crate::body::{blocking, json};
use crate::problem::Problem;
use crate::router::Shared;
use crate::text::parse_handle;

/// Objects that one request waits for with all that they name.
const HANDLES_MAX: usize = 1024;
/// Who waits for it waits for so many seconds at most.
const PATIENCE_S_MAX: u64 = 3600;

/// Requests that wait for the tier: each holds a thread, of which there are some hundred.
static WAITING: Semaphore = Semaphore::const_new(64);

/// How far something is to be kept before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// It is in memory, and written to the disk soon.
    Memory,
    /// It is on the disk.
    Disk,
    /// It is in the durable tier too.
    Tier,
}

/// What a request says of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Until {
    until: Option<Level>,
}

pub(crate) type UntilQuery = Result<Query<Until>, QueryRejection>;

/// The level that a request asks for, or that of the node.
pub(crate) fn level(shared: &Shared, query: UntilQuery) -> Result<Level, Problem> {
    let Query(Until { until }) =
        query.map_err(|rejection| Problem::bad_request("bad-query", rejection.body_text()))?;
    let usual = if shared.backend.acknowledges_tier() { Level::Tier } else { Level::Disk };
    Ok(until.unwrap_or(usual))
}

/// Returns when what was put on the disk is kept as far as that.
pub(crate) async fn kept(shared: &Arc<Shared>, level: Level, awaited: Awaited) -> Result<(), Problem> {
    if level != Level::Tier {
        return Ok(());
    }
    waited(shared, awaited, None).await
}

async fn waited(shared: &Arc<Shared>, awaited: Awaited, patience: Option<Duration>) -> Result<(), Problem> {
    let busy =
        || Problem::busy("tier", "too many wait for it already; what was put is on the disk, and is sent");
    let waiting = WAITING.try_acquire().map_err(|_| busy())?;
    let shared = shared.clone();
    let kept = blocking(move || {
        let _waiting = waiting;
        shared.backend.tier_until(awaited, patience)
    });
    kept.await?.map_err(|error| Problem::store(&error))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flush {
    #[serde(default)]
    labels: bool,
    /// These with all that they name, instead of everything.
    handles: Option<Vec<String>>,
    patience_s: Option<u64>,
}

pub(crate) async fn status(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let told = blocking(move || shared.backend.tier()).await?.map_err(|error| Problem::store(&error))?;
    told.map(|status| Json(told_status(&status))).ok_or_else(|| Problem::store(&store::Error::NoTier))
}

pub(crate) async fn flush(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let wish: Flush = json(&shared, &headers, body).await?;
    if let Some(patience_s) = wish.patience_s.filter(|patience_s| *patience_s > PATIENCE_S_MAX) {
        let detail = format!("patience_s is {patience_s}, and {PATIENCE_S_MAX} at most");
        return Err(Problem::bad_request("bad-flush", detail));
    }
    let patience = wish.patience_s.map(Duration::from_secs);
    let Some(handles) = wish.handles else {
        waited(&shared, Awaited::All { labels: wish.labels }, patience).await?;
        return status(State(shared)).await;
    };
    if handles.len() > HANDLES_MAX {
        let detail =
            format!("handles are {}, and at most {HANDLES_MAX}: put them into a tree", handles.len());
        return Err(Problem::bad_request("bad-flush", detail));
    }
    let handles: Vec<_> = handles.iter().map(|handle| parse_handle(handle)).collect::<Result<_, _>>()?;
    waited(&shared, Awaited::Whole(handles.clone()), patience).await?;
    if wish.labels {
        waited(&shared, Awaited::Labels(handles), patience).await?;
    }
    status(State(shared)).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Collect {
    kept_s: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn collect(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let Collect { kept_s, dry_run } = json(&shared, &headers, body).await?;
    let least = Collection::KEPT_MIN.as_secs();
    if let Some(kept_s) = kept_s.filter(|kept_s| *kept_s < least) {
        let detail = format!("kept_s is {kept_s}, and at least {least}: uploads take a while");
        return Err(Problem::bad_request("bad-collection", detail));
    }
    let kept = kept_s.map(Duration::from_secs);
    let collected = blocking(move || shared.backend.collect_tier(kept, dry_run)).await?;
    Ok(Json(told_collected(&collected.map_err(|error| Problem::store(&error))?, dry_run)))
}

/// What a collection did in the tier, as others are told.
pub(crate) fn told_collected(collected: &TierCollected, dry_run: bool) -> Value {
    json!({
        "dry_run": dry_run,
        "objects": collected.objects,
        "bytes": collected.bytes,
        "kept_objects": collected.kept_objects,
        "idle_objects": collected.idle_objects,
        "packs": collected.packs,
        "moved_bytes": collected.moved_bytes,
        "found": collected.found,
        "damaged_packs": collected.damaged,
    })
}

pub(crate) async fn take(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let taken = blocking(move || shared.backend.take_tier()).await?;
    let Taken { labels, replaced, objects, absent, damaged } =
        taken.map_err(|error| Problem::store(&error))?;
    Ok(Json(json!({
        "labels": labels,
        "replaced_labels": replaced,
        "objects": objects,
        "absent_objects": absent,
        "damaged_packs": damaged,
    })))
}

fn told_status(status: &TierStatus) -> Value {
    json!({
        "url": status.name,
        "objects": status.objects,
        "waiting_bytes": status.waiting_bytes,
        "waiting_large": status.waiting_large,
        "aside": status.aside,
        "labels_wait": status.labels_wait,
        "labels": status.labels,
        "gaps": status.gaps,
        "sent": status.sent,
        "sent_bytes": status.sent_bytes,
        "reads": status.reads,
        "read_bytes": status.read_bytes,
        "brought": status.brought,
        "parts": status.parts,
        "corrupt": status.corrupt,
        "failures": status.failures,
        "evicted": status.evicted,
        "evicted_bytes": status.evicted_bytes,
        "collected": status.collected,
        "collected_bytes": status.collected_bytes,
        "moved_bytes": status.moved_bytes,
        "collection": status.collection.map(|progress| {
            json!({"sweeping": progress.is_sweeping, "done": progress.done, "all": progress.all})
        }),
        "trouble": status.trouble,
        "refused": status.is_refused,
        "latency_nanos": status.latency_nanos,
        "bytes_per_second": status.bytes_per_second,
    })
}
