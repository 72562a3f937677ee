// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/collect`: takes away what nobody needs. `GET` tells of it, `DELETE` stops it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Collected, Collection};

use crate::backend::{CollectRequest, Collections, LastCollection};
use crate::body::{self, blocking};
use crate::invocation::millis;
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::tier;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    kept_s: Option<u64>,
    #[serde(default)]
    dry_run: bool,
    drop_derived: Option<bool>,
    drop_bytes_min: Option<u64>,
    drop_nanos_per_kib: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Told {
    dry_run: bool,
    #[serde(flatten)]
    collected: Counts,
    /// What went in the durable tier, or why nothing did.
    tier: Option<Value>,
}

#[derive(Debug, Serialize)]
struct Counts {
    objects: u64,
    bytes: u64,
    relations: u64,
    kept_objects: u64,
    kept_bytes: u64,
    freed_bytes: u64,
    dropped: u64,
    dropped_bytes: u64,
    dropped_nanos: u64,
    dropped_nanos_max: u64,
}

pub(crate) async fn collect(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Told>, Problem> {
    let wish: Wish = body::json(&shared, &headers, body).await?;
    let least = Collection::KEPT_MIN.as_secs();
    if let Some(kept_s) = wish.kept_s.filter(|kept_s| *kept_s < least) {
        let detail = format!("kept_s is {kept_s}, and at least {least}: uploads take a while");
        return Err(Problem::bad_request("bad-collection", detail));
    }
    let dry_run = wish.dry_run;
    let request = CollectRequest {
        kept: wish.kept_s.map(Duration::from_secs),
        is_trial: dry_run,
        drop_derived: wish.drop_derived,
        drop_bytes_min: wish.drop_bytes_min,
        drop_nanos_per_kib: wish.drop_nanos_per_kib,
    };
    let collected = blocking(move || shared.backend.collect(request)).await?;
    let collected = collected.map_err(|error| Problem::store(&error))?;
    let tier = collected.tier.map(|told| match told {
        Ok(collected) => tier::told_collected(&collected, dry_run),
        Err(why) => json!({"error": why}),
    });
    Ok(Json(Told { dry_run, collected: counts(&collected.disk), tier }))
}

fn counts(collected: &Collected) -> Counts {
    Counts {
        objects: collected.objects,
        bytes: collected.bytes,
        relations: collected.relations,
        kept_objects: collected.kept_objects,
        kept_bytes: collected.kept_bytes,
        freed_bytes: collected.freed_bytes,
        dropped: collected.dropped,
        dropped_bytes: collected.dropped_bytes,
        dropped_nanos: collected.dropped_nanos,
        dropped_nanos_max: collected.dropped_nanos_max,
    }
}

/// What is under way, and what the last one did.
pub(crate) async fn status(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let Collections { under_way, last, every } = shared.backend.collections();
    let by = |is_own: bool| if is_own { "itself" } else { "request" };
    let under_way =
        under_way.map(|(since, is_own)| json!({"since_ms": millis(since), "begun_by": by(is_own)}));
    let last = last.map(|LastCollection { ago, took, is_own, end }| {
        let (collected, error) = match &end {
            Ok(collected) => (Some(counts(collected)), None),
            Err(why) => (None, Some(why)),
        };
        json!({
            "ago_ms": millis(ago), "took_ms": millis(took), "begun_by": by(is_own), "collected": collected, "error": error,
        })
    });
    Json(json!({"under_way": under_way, "last": last, "every_s": every.map(|every| every.as_secs())}))
}

/// Has the one that is under way end, as long as nothing was taken away.
pub(crate) async fn stop(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({"stopping": shared.backend.stop_collecting()}))
}
