// SPDX-License-Identifier: Apache-2.0
//! `POST /2015-03-31/functions/{name}/invocations`: a function as Lambda's
//! clients call it. A handler gets the payload as its event, and what it
//! returns is the answer as it is; what it raises is an answer too.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::served;
use crate::admission::Permit;
use crate::body::buffered;
use crate::client::Client;
use crate::deferred::{Call, Payer, Source, take, texts};
use crate::invocation::{Ended, Invocation};
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::tenants::Tenancy;

const INVOCATION_TYPE: HeaderName = HeaderName::from_static("x-amz-invocation-type");
const LOG_TYPE: HeaderName = HeaderName::from_static("x-amz-log-type");
const LOG_RESULT: HeaderName = HeaderName::from_static("x-amz-log-result");
const FUNCTION_ERROR: HeaderName = HeaderName::from_static("x-amz-function-error");
const EXECUTED_VERSION: HeaderName = HeaderName::from_static("x-amz-executed-version");
const AMAZON_REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
/// What a function is told of the client's headers: the others are about the
/// call, or hold its signature.
const TOLD: [HeaderName; 3] = [
    HeaderName::from_static("x-amz-client-context"),
    HeaderName::from_static("x-amzn-trace-id"),
    HeaderName::from_static("traceparent"),
];
/// Bytes of the log that are told, from its end.
const LOG_TOLD: usize = 4096;
/// What Lambda calls the version that is not numbered.
const LATEST: &str = "$LATEST";

#[derive(Debug, Deserialize)]
pub(crate) struct Parameters {
    #[serde(rename = "Qualifier")]
    qualifier: Option<String>,
}

pub(crate) async fn invoke(
    State(shared): State<Arc<Shared>>,
    (Extension(permit), Extension(id)): (Extension<Permit>, Extension<RequestId>),
    tenancy: Option<Extension<Arc<Tenancy>>>,
    path: Result<Path<String>, PathRejection>,
    parameters: Result<Query<Parameters>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let mut response =
        match call(&shared, (permit, tenancy.as_deref()), &id, path, parameters, &headers, body).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        };
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(AMAZON_REQUEST_ID, value);
    }
    response
}

/// Why no function ran, by the names that clients know.
struct Refusal {
    status: StatusCode,
    kind: &'static str,
    /// Whose fault it is.
    whose: &'static str,
    message: String,
}

impl Refusal {
    fn of_user(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, whose: "User", message: message.into() }
    }

    fn of(problem: &Problem) -> Self {
        let message = problem.detail().to_owned();
        match problem.status() {
            StatusCode::NOT_FOUND => {
                Self::of_user(StatusCode::NOT_FOUND, "ResourceNotFoundException", message)
            }
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self::of_user(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLargeException", message)
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                Self::of_user(StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsException", message)
            }
            status if status.is_client_error() => invalid(message),
            _ => {
                let (status, kind) = (StatusCode::INTERNAL_SERVER_ERROR, "ServiceException");
                Self { status, kind, whose: "Service", message }
            }
        }
    }
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::of_user(StatusCode::BAD_REQUEST, "InvalidParameterValueException", message)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "Type": self.whose, "Message": self.message, "message": self.message });
        let kind = HeaderValue::from_static(self.kind);
        (self.status, [(ERROR_TYPE, kind)], axum::Json(body)).into_response()
    }
}

async fn call(
    shared: &Arc<Shared>,
    (permit, tenancy): (Permit, Option<&Arc<Tenancy>>),
    id: &RequestId,
    path: Result<Path<String>, PathRejection>,
    parameters: Result<Query<Parameters>, QueryRejection>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let Path(name) = path.map_err(|rejection| invalid(rejection.body_text()))?;
    let Query(parameters) = parameters.map_err(|rejection| invalid(rejection.body_text()))?;
    let target = target(&name, parameters.qualifier.as_deref());
    let served = served(shared, &target, headers).map_err(|problem| Refusal::of(&problem))?;
    let word =
        |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match word(&INVOCATION_TYPE) {
        "" | "RequestResponse" => {}
        "DryRun" => return Ok(StatusCode::NO_CONTENT.into_response()),
        "Event" => return later(shared, (id, tenancy), target, headers, body).await,
        other => return Err(invalid(format!("the invocation type {other:?} is none"))),
    }
    let body = buffered(shared, headers, body, shared.options.call_max_bytes).await;
    let body = body.map_err(|problem| Refusal::of(&problem))?;
    let told = told(headers);
    let version = HeaderValue::from(served.version);
    let invocation = Invocation {
        served,
        id,
        method: "POST",
        path: "/",
        query: "",
        headers: &told,
        routed: None,
        client: Client::default(),
        source: "lambda",
        nesting: None,
        tenancy: tenancy.cloned(),
        durable: None,
        memory: None,
    };
    let Ended { answer, log, .. } = invocation.run(shared, permit, body).await;
    let mut response = match answer {
        Ok(answer) => {
            let mut response = (StatusCode::OK, answer.body).into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(problem) => raised(&problem)?,
    };
    let answered = response.headers_mut();
    answered.insert(EXECUTED_VERSION, version);
    if word(&LOG_TYPE) == "Tail" {
        let tail = BASE64.encode(&log[log.len().saturating_sub(LOG_TOLD)..]);
        answered.extend(HeaderValue::from_str(&tail).ok().map(|tail| (LOG_RESULT, tail)));
    }
    Ok(response)
}

/// What a function is told of a client's headers.
fn told(headers: &HeaderMap) -> HeaderMap {
    let mut told = HeaderMap::new();
    told.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in &TOLD {
        headers.get(name).into_iter().for_each(|value| _ = told.insert(name, value.clone()));
    }
    told
}

/// Takes an event, for which nobody waits.
async fn later(
    shared: &Arc<Shared>,
    (id, tenancy): (&RequestId, Option<&Arc<Tenancy>>),
    target: String,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let refused = |problem: Problem| Refusal::of(&problem);
    let body = buffered(shared, headers, body, shared.options.deferred_max_bytes).await;
    let mut body = body.map_err(refused)?;
    let call = Call {
        target,
        method: "POST".to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: texts(&told(headers)),
        request_id: id.0.to_string(),
        source: Source::Lambda,
        callback: None,
        tenant: tenancy.map(|tenancy| Payer::of(tenancy)),
    };
    take(shared, call, headers, std::mem::take(&mut body.bytes)).await.map_err(refused)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// `name`, `name:qualifier`, or the end of an ARN, as this node names it.
fn target(name: &str, qualifier: Option<&str>) -> String {
    let name = name.rsplit_once("function:").map_or(name, |(_, name)| name);
    let (name, inner) = name.split_once(':').map_or((name, None), |(name, inner)| (name, Some(inner)));
    match qualifier.or(inner).filter(|qualifier| *qualifier != LATEST) {
        Some(qualifier) => format!("{name}:{qualifier}"),
        None => name.to_owned(),
    }
}

/// What a function said when it failed: an answer of its own. A refusal if it
/// did not run.
fn raised(problem: &Problem) -> Result<Response, Refusal> {
    if !matches!(
        problem.status(),
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::GATEWAY_TIMEOUT | StatusCode::BAD_GATEWAY
    ) || !problem.is_functions()
    {
        return Err(Refusal::of(problem));
    }
    let said = problem.failure_detail().unwrap_or(problem.detail());
    let body = document(said, problem.status() == StatusCode::GATEWAY_TIMEOUT);
    let error = HeaderValue::from_static("Unhandled");
    Ok((StatusCode::OK, [(FUNCTION_ERROR, error)], axum::Json(body)).into_response())
}

/// What was raised, in Lambda's members.
fn document(said: &str, is_late: bool) -> Value {
    let (first, rest) = said.split_once('\n').unwrap_or((said, ""));
    let is_kind = |kind: &str| {
        !kind.is_empty()
            && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
    };
    let named = first.split_once(": ").filter(|(kind, _)| is_kind(kind));
    let (kind, message) = match named {
        _ if is_late => ("Sandbox.Timedout", first),
        Some((kind, message)) => (kind, message),
        // An exception without a message; a word that begins small is one.
        None if is_kind(first) && first.starts_with(char::is_uppercase) => (first, ""),
        None => ("Runtime.ExitError", first),
    };
    let trace: Vec<&str> = rest.lines().filter(|line| !line.trim().is_empty()).collect();
    json!({ "errorMessage": message, "errorType": kind, "stackTrace": trace })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_in_many_ways() {
        for (name, qualifier, expected) in [
            ("hello", None, "hello"),
            ("hello:7", None, "hello:7"),
            ("hello", Some("stable"), "hello:stable"),
            ("hello:7", Some("stable"), "hello:stable"),
            ("hello", Some("$LATEST"), "hello"),
            ("arn:aws:lambda:eu-west-1:123456789012:function:hello", None, "hello"),
            ("arn:aws:lambda:eu-west-1:123456789012:function:hello:7", None, "hello:7"),
            ("123456789012:function:hello", None, "hello"),
        ] {
            assert_eq!(target(name, qualifier), expected);
        }
    }

    #[test]
    fn what_is_raised_has_a_kind_a_message_and_a_trace() {
        let raised = document("ValueError: not today\nTraceback:\n  main.py, line 3\n", false);
        assert_eq!(
            (&raised["errorType"], &raised["errorMessage"]),
            (&"ValueError".into(), &"not today".into())
        );
        assert_eq!(raised["stackTrace"], json!(["Traceback:", "  main.py, line 3"]));
        assert_eq!(document("KeyError", false)["errorType"], "KeyError");
        let ended = document("the function ended its process with status 3 during the call", false);
        assert_eq!(ended["errorType"], "Runtime.ExitError");
        assert_eq!(document("the call took too long", true)["errorType"], "Sandbox.Timedout");
    }
}
