// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/objects`: what is stored, page by page.
//!
//! Whoever knows a handle reads what it names; this names all of them, so it is for
//! the node's operator.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use objects::Kind;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Kept, Sought, Stored};

use crate::backend::Place;
use crate::body::blocking;
use crate::problem::Problem;
use crate::router::Shared;
use crate::text::{parse_handle, place_word};

const LIMIT_DEFAULT: usize = 1000;
const LIMIT_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    after: Option<String>,
    limit: Option<usize>,
    kind: Option<String>,
    #[serde(default)]
    min_bytes: u64,
}

pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    search: Result<Query<Search>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let sought = sought(search)?;
    let page = blocking(move || shared.backend.inventory(&sought)).await?;
    let page = page.map_err(|error| Problem::store(&error))?;
    let objects: Vec<Value> = page.objects.iter().map(told).collect();
    Ok(Json(json!({"objects": objects, "next": page.next.map(|next| next.to_string())})))
}

fn sought(search: Result<Query<Search>, QueryRejection>) -> Result<Sought, Problem> {
    let bad = |detail: String| Problem::bad_request("bad-query", detail);
    let Query(search) = search.map_err(|rejection| bad(rejection.body_text()))?;
    let limit = search.limit.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    if limit == 0 {
        return Err(bad("limit is 0, and 1 at least".to_owned()));
    }
    let kind = match search.kind.as_deref() {
        None => None,
        Some("blob") => Some(Kind::Blob),
        Some("tree") => Some(Kind::Tree),
        Some(_) => return Err(bad("kind is blob or tree: nothing else is stored".to_owned())),
    };
    let after = search.after.as_deref().map(parse_handle).transpose()?;
    Ok(Sought { after, limit, kind, bytes_min: search.min_bytes })
}

fn told(stored: &Stored) -> Value {
    let place = match stored.kept {
        Kept::Memory => Place::Memory,
        Kept::Disk => Place::Disk,
        Kept::Tier => Place::Tier,
        Kept::Dropped => Place::Dropped,
    };
    json!({
        "handle": stored.handle.to_string(),
        "kind": stored.handle.kind().name(),
        "size": stored.handle.size(),
        "bytes": stored.bytes,
        "place": place_word(place),
        "tiered": stored.is_tiered,
        "promised": stored.is_promised,
    })
}
