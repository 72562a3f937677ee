// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/identity`: the public key that the node signs receipts with.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::problem::Problem;
use crate::router::Shared;
use crate::text::hex;

pub(crate) async fn identity(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let Some(signing) = shared.backend.signing() else {
        let detail = "this node signs nothing";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-identity", "No identity", "node", detail));
    };
    Ok(Json(json!({"algorithm": "ed25519", "public_key": hex(&signing.public_key())})))
}
