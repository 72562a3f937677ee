// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/collect`: takes away what nobody needs.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use store::Collection;

use crate::backend::CollectRequest;
use crate::body::{blocking, json};
use crate::problem::Problem;
use crate::router::Shared;

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
    let wish: Wish = json(&shared, &headers, body).await?;
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
    Ok(Json(Told {
        dry_run,
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
    }))
}
