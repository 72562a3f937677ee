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
use crate::tenants::{Evaluations, InUse, Quota};
use crate::text::shortened;

/// Processors are kept in thousandths.
const MILLI: f64 = 1000.0;
const CPU_MILLI_MAX: f64 = 1e8;

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
    #[serde(default)]
    memory_bytes: u64,
    /// Processors.
    #[serde(default)]
    cpu: f64,
}

impl Wish {
    fn quota(&self) -> Result<Quota, Problem> {
        let cpu_milli = (self.cpu * MILLI).round();
        if !(0.0..=CPU_MILLI_MAX).contains(&cpu_milli) || (self.cpu > 0.0 && cpu_milli < 1.0) {
            let why = "cpu is a number of processors from 0.001 to 100000, or 0 for no limit";
            return Err(Problem::bad_request("bad-key", why));
        }
        let &Self { requests_per_second, concurrency, memory_bytes, .. } = self;
        Ok(Quota { requests_per_second, concurrency, memory_bytes, cpu_milli: cpu_milli as u32 })
    }
}

fn default_tenant() -> String {
    "default".to_owned()
}

/// What is told of a key, and of what its tenant uses.
fn document(key: &KeyInfo, in_use: Option<InUse>) -> Value {
    let quota = key.quota;
    let mut told = json!({
        "id": key.id, "tenant": key.tenant, "scope": key.scope.name(), "created_ms": key.created_ms,
        "requests_per_second": quota.requests_per_second, "concurrency": quota.concurrency,
        "memory_bytes": quota.memory_bytes, "cpu": f64::from(quota.cpu_milli) / MILLI,
    });
    if let Some(in_use) = in_use {
        told["in_use"] = json!({
            "requests": in_use.requests, "memory_bytes": in_use.memory_bytes,
            "calls": in_use.sums.calls, "cpu_seconds": in_use.sums.cpu_s,
            "evaluations": evaluations(&in_use.sums.evaluations),
        });
    }
    told
}

fn evaluations(sums: &Evaluations) -> Value {
    let Evaluations { ended, cost, uncounted_s, price } = *sums;
    json!({
        "ended": ended, "inputs_bytes": cost.inputs_bytes, "reserved_bytes": cost.reserved_bytes,
        "fuel": cost.fuel, "cpu_seconds": uncounted_s, "price": price,
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
    let tenants = shared.tenants.clone();
    let keys = with(shared, |keys| Ok(keys.all())).await?;
    let told: Vec<Value> = keys.iter().map(|key| document(key, tenants.in_use(&key.tenant))).collect();
    Ok(Json(json!({ "keys": told })))
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
    let quota = wish.quota()?;
    let (key, text) = with(shared, move |keys| keys.create(&wish.tenant, scope, quota)).await?;
    let mut told = document(&key, None);
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
