// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/check`, `/v1/backup` and `/v1/restore`: work on all of the store, which
//! takes as long as the store is large. The answer is lines of JSON: how far it is,
//! what was found, and at the end what came of it. When the client leaves, it stops.
//!
//! Backups lie on the node's machine, and whoever names a folder there could have
//! anything written with the node's rights. So only the owner's socket takes paths.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Finding, Watch};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::admission::Permit;
use crate::body::json;
use crate::keys::Access;
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::upkeep;

const NDJSON: &str = "application/x-ndjson";
/// Lines that wait for a slow client; then what there is to tell waits too.
const LINES_MAX: usize = 64;
/// Labels of one wish.
const NAMES_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckWish {
    bytes_per_second: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupWish {
    to: PathBuf,
    point: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreWish {
    from: PathBuf,
    point: Option<String>,
    labels: Vec<String>,
    #[serde(default)]
    replace: bool,
}

/// What the work has to say.
enum Said {
    News(Value),
    End(Result<Value, Problem>),
}

/// Where it says it.
struct Teller(Sender<Said>);

impl Teller {
    /// How far it is; whether anybody still waits. Who is slow misses some of it.
    fn progress(&self, done: u64, all: Option<u64>) -> bool {
        _ = self.0.try_send(Said::News(json!({"event": "progress", "done": done, "all": all})));
        !self.0.is_closed()
    }

    fn found(&self, finding: &Finding) {
        let mut line = upkeep::finding(finding);
        line["event"] = "finding".into();
        // If the client is gone, the next progress ends it.
        _ = self.0.blocking_send(Said::News(line));
    }
}

pub(crate) async fn check(
    State(shared): State<Arc<Shared>>,
    Extension(permit): Extension<Permit>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let wish: CheckWish = json(&shared, &headers, body).await?;
    let backend = shared.backend.clone();
    answer(permit, id, move |teller| {
        let mut progress = |done, all| teller.progress(done, Some(all));
        let mut found = |finding| teller.found(&finding);
        let mut watch = Watch { progress: &mut progress, found: &mut found };
        let checked = backend.check(wish.bytes_per_second, &mut watch);
        checked.map(|checked| upkeep::checked(&checked))
    })
    .await
}

pub(crate) async fn back_up(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Extension(permit): Extension<Permit>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    owners(access)?;
    let wish: BackupWish = json(&shared, &headers, body).await?;
    absolute(&wish.to)?;
    let backend = shared.backend.clone();
    answer(permit, id, move |teller| {
        let backed = backend.back_up(&wish.to, &wish.point, &mut |_, bytes| teller.progress(bytes, None));
        backed.map(|backed| upkeep::backed(&wish.point, &backed))
    })
    .await
}

pub(crate) async fn restore(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Extension(permit): Extension<Permit>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    owners(access)?;
    let wish: RestoreWish = json(&shared, &headers, body).await?;
    absolute(&wish.from)?;
    if wish.labels.is_empty() || wish.labels.len() > NAMES_MAX {
        let detail =
            format!("labels has {} names, and one at least and {NAMES_MAX} at most", wish.labels.len());
        return Err(Problem::bad_request("bad-restore", detail));
    }
    let backend = shared.backend.clone();
    answer(permit, id, move |teller| {
        let RestoreWish { from, point, labels, replace } = &wish;
        let mut progress = |_, bytes| teller.progress(bytes, None);
        let restored = backend.restore_labels(from, point.as_deref(), labels, *replace, &mut progress);
        restored.map(|(point, restored)| upkeep::restored(&point, &restored))
    })
    .await
}

fn owners(access: Access) -> Result<(), Problem> {
    if access == Access::Owner {
        return Ok(());
    }
    let detail = "a folder of the node's machine is named only over the node's socket, by its owner";
    let title = "The request may not come in by this door";
    Err(Problem::new(StatusCode::FORBIDDEN, "owner-only", title, "gateway", detail)
        .suggest("run the command on the node's machine, without --node"))
}

fn absolute(path: &std::path::Path) -> Result<(), Problem> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(Problem::bad_request(
        "bad-path",
        format!("{} does not begin at the root: the node is elsewhere", path.display()),
    ))
}

/// Has the work done on a thread of its own, and answers with what it says.
async fn answer(
    permit: Permit,
    id: RequestId,
    work: impl FnOnce(&Teller) -> Result<Value, store::Error> + Send + 'static,
) -> Result<Response, Problem> {
    let (sender, mut said) = channel(LINES_MAX);
    let span = tracing::Span::current();
    let working = move || {
        let teller = Teller(sender);
        let end = span.in_scope(|| work(&teller)).map_err(|error| Problem::store(&error));
        _ = teller.0.blocking_send(Said::End(end));
    };
    // It ends by itself: at its end, or with the next progress when nobody hears it.
    drop(tokio::task::spawn_blocking(working));
    let first = match said.recv().await {
        Some(Said::End(Err(problem))) => return Err(problem),
        Some(first) => first,
        None => return Err(gone()),
    };
    let lines = stream::unfold(Some((Some(first), said, (permit, id))), next);
    let mut response = Body::from_stream(lines).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    Ok(response)
}

/// The thread has ended without a last word.
fn gone() -> Problem {
    tracing::error!("a check, a backup or a restore did not end well");
    Problem::internal("gateway", "the work did not end well")
}

type Rest = Option<(Option<Said>, Receiver<Said>, (Permit, RequestId))>;

async fn next(rest: Rest) -> Option<(Result<Vec<u8>, Infallible>, Rest)> {
    let (first, mut said, context) = rest?;
    let said_now = match first {
        Some(first) => first,
        None => said.recv().await.unwrap_or_else(|| Said::End(Err(gone()))),
    };
    let (line, rest) = match said_now {
        Said::News(line) => (line, Some((None, said, context))),
        Said::End(Ok(mut value)) => {
            value["event"] = "result".into();
            (value, None)
        }
        Said::End(Err(problem)) => {
            let mut line: Value = serde_json::from_slice(&problem.to_json(&context.1.0)).unwrap_or_default();
            line["event"] = "failure".into();
            (line, None)
        }
    };
    Some((Ok(format!("{line}\n").into_bytes()), rest))
}
