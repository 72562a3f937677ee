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

use crate::body::{blocking, json};
use crate::problem::Problem;
use crate::router::Shared;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    kept_s: Option<u64>,
    #[serde(default)]
    dry_run: bool,
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
    let kept = wish.kept_s.map(Duration::from_secs);
    let collected = blocking(move || shared.backend.collect(kept, dry_run)).await?;
    let store::Collected { objects, bytes, relations, kept_objects, kept_bytes, freed_bytes } =
        collected.map_err(|error| Problem::store(&error))?;
    Ok(Json(Told { dry_run, objects, bytes, relations, kept_objects, kept_bytes, freed_bytes }))
}
