// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/export`: writes an object to a bucket.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use objects::Handle;
use serde::{Deserialize, Serialize};

use crate::body::json;
use crate::exports::{Export, ExportError, Exported};
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::objects::is_made_again;
use crate::text::parse_handle;

/// The type of what nobody has named one for.
const TYPE_USUAL: &str = "application/octet-stream";

/// Rounds of one export: after what was dropped was made again, memory that is short may lose it.
const ROUNDS_MAX: usize = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    object: String,
    url: String,
    content_type: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Told {
    object: String,
    url: String,
    written: u64,
    written_bytes: u64,
    known: u64,
    known_bytes: u64,
}

pub(crate) async fn export(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Told>, Problem> {
    let wish: Wish = json(&shared, &headers, body).await?;
    let object = parse_handle(&wish.object)?;
    if !object.is_value() || object.is_failure() {
        let detail = format!("{object} is a computation or a failure, and no data");
        return Err(Problem::bad_request("bad-export", detail).suggest("evaluate it, and export the result"));
    }
    let object = object.lifted().unwrap_or(object);
    let Some(exporter) = shared.backend.exporter() else {
        return Err(Problem::bad_request("bad-export", "this node writes to no buckets"));
    };
    let content_type = wish.content_type.unwrap_or_else(|| TYPE_USUAL.to_owned());
    let mut export = Export { object, url: wish.url, content_type, only: Vec::new() };
    let (mut rounds, mut before) = (0, Exported::default());
    let exported = loop {
        match exporter.export(&export).await {
            // What was dropped is made again, and then only that is written.
            Err(ExportError::Missing { missing, exported }) if rounds < ROUNDS_MAX => {
                rounds += 1;
                before = before.and(exported);
                for handle in &missing {
                    if !is_made_again(&shared, *handle).await? {
                        return Err(Problem::object_not_found(*handle));
                    }
                }
                export.only = missing;
            }
            ended => break before.and(ended.map_err(|error| problem(&error))?),
        }
    };
    Ok(Json(Told {
        object: object.to_string(),
        url: export.url,
        written: exported.written,
        written_bytes: exported.written_bytes,
        known: exported.known,
        known_bytes: exported.known_bytes,
    }))
}

fn problem(error: &ExportError) -> Problem {
    match error {
        ExportError::Missing { missing, .. } => {
            Problem::object_not_found(missing.first().copied().unwrap_or_else(|| Handle::u64(0)))
        }
        ExportError::Store(error) => Problem::store(error),
        ExportError::Refused(why) => Problem::bad_request("bad-export", why).suggest(
            "buckets are named by the node's file, with `write = true`; their keys are a secret, SINEW_S3 if nothing else is said",
        ),
        ExportError::Failed(why) => {
            let title = "The bucket does not take it";
            Problem::new(StatusCode::BAD_GATEWAY, "export-failed", title, "io", why)
                .suggest("try again: what was written is not sent a second time")
        }
    }
}
