// SPDX-License-Identifier: Apache-2.0
//! `/v1/keys`: who may use the API. A key's text is told once, when it is made.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::path_text;
use crate::body::{self, blocking};
use crate::keys::{KeyError, KeyInfo, Keys, Scope};
use crate::problem::Problem;
use crate::router::Shared;
use crate::text::shortened;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    scope: String,
    #[serde(default = "default_tenant")]
    tenant: String,
    #[serde(default)]
    requests_per_second: u32,
    #[serde(default)]
    concurrency: u32,
}

fn default_tenant() -> String {
    "default".to_owned()
}

fn document(key: &KeyInfo) -> Value {
    json!({
        "id": key.id, "tenant": key.tenant, "scope": key.scope.name(), "created_ms": key.created_ms,
        "requests_per_second": key.requests_per_second, "concurrency": key.concurrency,
    })
}

/// Does something with the keys, off the event loop.
async fn with<T: Send + 'static>(
    shared: Arc<Shared>,
    act: impl FnOnce(&dyn Keys) -> Result<T, KeyError> + Send + 'static,
) -> Result<T, Problem> {
    let done = blocking(move || shared.backend.keys().map(act)).await?;
    let none = || {
        let (status, title) = (StatusCode::NOT_IMPLEMENTED, "The node has no keys");
        Problem::new(status, "no-keys", title, "gateway", "this node knows no keys")
    };
    done.ok_or_else(none)?.map_err(|error| match error {
        KeyError::Invalid(why) => Problem::bad_request("bad-key", why),
        KeyError::Failed(why) => Problem::internal("node", why),
    })
}

pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let keys = with(shared, |keys| Ok(keys.all())).await?;
    Ok(Json(json!({ "keys": keys.iter().map(|key| document(key)).collect::<Vec<_>>() })))
}

pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let wish: Wish = body::json(&shared, &headers, body).await?;
    let Some(scope) = Scope::from_name(&wish.scope) else {
        return Err(Problem::bad_request("bad-key", "a scope is invoke, deploy or admin"));
    };
    let limits = (wish.requests_per_second, wish.concurrency);
    let (key, text) = with(shared, move |keys| keys.create(&wish.tenant, scope, limits)).await?;
    let mut told = document(&key);
    told["key"] = text.into();
    Ok((StatusCode::CREATED, Json(told)))
}

pub(crate) async fn revoke(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let id = path_text(path)?;
    let told = shortened(&id).to_string();
    match with(shared, move |keys| keys.revoke(&id)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let detail = format!("there is no key {told:?}");
            let problem =
                Problem::new(StatusCode::NOT_FOUND, "key-not-found", "No such key", "gateway", detail);
            Err(problem.suggest("`sinew key list` names them"))
        }
    }
}
