// SPDX-License-Identifier: Apache-2.0
//! Answers that are not a success: RFC 9457 problem details.
//!
//! A handler returns a [`Problem`]; it travels as an extension of an empty
//! response and is written out by `envelope.rs`, which knows the request's id.
//! Words a newcomer lacks: *component* is the room of the node that failed,
//! *suggestion* is what the caller can do next.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, Response as HttpResponse, StatusCode};
use axum::response::{IntoResponse, Response};
use objects::{Failure, FailureCode, Handle};
use serde::Serialize;

use crate::tenants::QuotaMember;

/// The media type of a problem.
pub(crate) const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
/// "Client closed request": has no name in the registry, but tools know it.
pub(crate) const CLIENT_CLOSED: u16 = 499;
/// Seconds after which a refused client may try again.
const RETRY_AFTER_S: u32 = 1;

/// A computation's failure, for programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FailureMember {
    code: &'static str,
    application: String,
    detail: String,
    handle: String,
    deterministic: bool,
}

/// What went wrong, where, why, and what to do next. Boxed: it is the `Err` of
/// functions that nearly always succeed.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Document>);

#[derive(Debug, Clone, Serialize)]
struct Document {
    #[serde(rename = "type")]
    type_uri: String,
    title: &'static str,
    status: u16,
    detail: String,
    component: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureMember>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<QuotaMember>,
    #[serde(skip)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem of a kind that programs can match on: the last part of `type`.
    pub(crate) fn new(
        status: StatusCode,
        kind: &str,
        title: &'static str,
        component: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self(Box::new(Document {
            type_uri: format!("urn:sinew:problem:{kind}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            component,
            request_id: None,
            suggestion: None,
            function: None,
            failure: None,
            receipt: None,
            quota: None,
            headers: Vec::new(),
        }))
    }

    /// 400: the request itself is wrong.
    pub(crate) fn bad_request(kind: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, kind, "The request is not understood", "gateway", detail)
    }

    /// 404 for an object that is not on this node.
    pub(crate) fn object_not_found(handle: Handle) -> Self {
        let detail = format!("{handle} is not on this node");
        Self::new(StatusCode::NOT_FOUND, "object-not-found", "No such object", "store", detail)
            .suggest("put the data with POST /v1/blobs, /v1/trees or /v1/bundles, or evaluate what makes it")
    }

    /// 413: more bytes than this endpoint takes.
    pub(crate) fn too_large(limit_bytes: u64) -> Self {
        let detail = format!("the body is longer than the {limit_bytes} bytes that this endpoint takes");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body-too-large",
            "The request's body is too long",
            "gateway",
            detail,
        )
        .suggest("stream large data to POST /v1/blobs in several blobs; nothing of this request was stored")
    }

    /// 503: not now, but soon.
    pub(crate) fn busy(component: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "The node is busy", component, detail)
            .header(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S))
            .suggest("try again after the number of seconds in Retry-After")
    }

    /// 500: our fault.
    pub(crate) fn internal(component: &'static str, detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The node failed to answer",
            component,
            detail,
        )
        .suggest("the node's log has more under this request_id; `sinew doctor` checks the installation")
    }

    /// The store refuses (the request's fault) or cannot do its work (ours).
    pub(crate) fn store(error: &store::Error) -> Self {
        use store::Error;
        let new = |status, kind, title| Self::new(status, kind, title, "store", error.to_string());
        match error {
            Error::BadLabel { .. } => Self::bad_request("bad-label", error.to_string()),
            Error::TooLarge => new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The blob is too long"),
            Error::TooManyLabels => new(StatusCode::CONFLICT, "too-many-labels", "There are too many labels")
                .suggest("remove some with DELETE /v1/labels/{name}"),
            Error::Full { .. } => new(StatusCode::INSUFFICIENT_STORAGE, "store-full", "The store is full")
                .suggest("give the node more memory, or a home on disk"),
            Error::Scarce { .. } => {
                new(StatusCode::INSUFFICIENT_STORAGE, "disk-full", "The store's disk is nearly full")
                    .suggest("remove files, or what nobody needs with `sinew gc`")
            }
            Error::Collecting => {
                let title = "A collection, a check or a backup is under way";
                new(StatusCode::CONFLICT, "collecting", title)
                    .suggest("wait for its end; the node's log tells it")
            }
            Error::NoDisk => new(StatusCode::CONFLICT, "no-disk", "The node keeps nothing on a disk")
                .suggest("start it with a home: sinew up --home DIR"),
            Error::NoTier => new(StatusCode::CONFLICT, "no-tier", "The node has no durable tier")
                .suggest("name one in the node's file: [tier], url = \"s3://BUCKET/PREFIX\""),
            Error::Tier { .. } => {
                new(StatusCode::CONFLICT, "tier-refused", "The durable tier cannot be used")
                    .suggest("`sinew tier` tells how it fares")
            }
            Error::Unsent { .. } => {
                let title = "The durable tier has it not yet";
                new(StatusCode::GATEWAY_TIMEOUT, "tier-behind", title)
                    .suggest("`sinew tier --flush` waits for it; nothing has to be put again")
            }
            Error::Far { .. } => {
                tracing::error!(%error, "an object does not come from the durable tier");
                new(StatusCode::BAD_GATEWAY, "tier-failed", "An object does not come from the durable tier")
                    .suggest("try again; if its bytes are damaged there, put it again")
            }
            Error::Point { .. } => new(StatusCode::CONFLICT, "bad-point", "The point in time cannot be used"),
            Error::NoSuch { .. } => new(StatusCode::NOT_FOUND, "no-such-point", "The backup has none such")
                .suggest("`sinew backup DIR --list` tells which points there are"),
            Error::NotEmpty { .. }
            | Error::InHome { .. }
            | Error::NoHome { .. }
            | Error::NoBackup { .. }
            | Error::IsBackup { .. }
            | Error::Unfinished { .. }
            | Error::Locked { .. } => new(StatusCode::CONFLICT, "bad-backup", "The folder cannot be used"),
            Error::Stopped => Self::busy("store", error.to_string()),
            Error::Closed => Self::busy("store", error.to_string()),
            Error::Corrupt { .. } => {
                tracing::error!(%error, "stored bytes are damaged");
                Self::internal("store", error.to_string())
                    .suggest("put the object again, or evaluate again what made it")
            }
            _ => {
                tracing::error!(%error, "the store failed");
                Self::internal("store", error.to_string())
            }
        }
    }

    /// A computation that ended in a failure. `detail` is its text.
    pub(crate) fn failure(handle: Handle, failure: &Failure, detail: String) -> Self {
        let code = failure.code;
        let (status, title, suggestion) = failure_answer(code);
        let member = FailureMember {
            code: code.as_str(),
            application: failure.application.to_string(),
            detail: detail.clone(),
            handle: handle.to_string(),
            deterministic: code.is_deterministic(),
        };
        let component = match code {
            FailureCode::Deadline | FailureCode::Cancelled => "request",
            FailureCode::Resources => "node",
            FailureCode::MissingData => "store",
            _ => "application",
        };
        let problem = Self::new(status, &format!("failure-{code}"), title, component, detail);
        let mut problem = problem.suggest(suggestion);
        problem.0.failure = Some(member);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return problem.header(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        problem
    }

    /// The same, with the receipt of the evaluation that failed.
    pub(crate) fn with_receipt(mut self, receipt: Option<Handle>) -> Self {
        self.0.receipt = receipt.map(|receipt| receipt.to_string());
        self
    }

    /// The failure of a function that was called, rather than of a computation
    /// that the client sent.
    pub(crate) fn of_function(
        mut self,
        status: StatusCode,
        title: &'static str,
        name: &str,
        version: u64,
    ) -> Self {
        self.0.status = status.as_u16();
        self.0.title = title;
        self.0.component = "function";
        self.0.detail = format!("function {name}, version {version}: {}", self.0.detail);
        self.0.headers.retain(|(name, _)| name != RETRY_AFTER);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            self.0.headers.push((RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S)));
        }
        self
    }

    /// Which quota is used up.
    pub(crate) fn of_quota(mut self, member: QuotaMember) -> Self {
        self.0.quota = Some(member);
        self
    }

    /// What the caller can do next.
    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.0.suggestion = Some(suggestion.into());
        self
    }

    /// Which one of several functions it is about.
    pub(crate) fn about(mut self, function: String) -> Self {
        self.0.function = Some(function);
        self
    }

    /// A header that the status calls for.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// The status code.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// What went wrong, for people.
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Whether it is a function that failed.
    pub(crate) fn is_functions(&self) -> bool {
        self.0.component == "function"
    }

    /// What a failure itself says, without who said it.
    pub(crate) fn failure_detail(&self) -> Option<&str> {
        self.0.failure.as_ref().map(|failure| failure.detail.as_str())
    }

    /// The document for a request with this id.
    pub(crate) fn to_json(&self, request_id: &str) -> Vec<u8> {
        let named = Document { request_id: Some(request_id.to_owned()), ..self.0.as_ref().clone() };
        // Strings and numbers only: serialization has nothing to fail on.
        serde_json::to_vec(&named).unwrap_or_default()
    }

    /// Writes the document into the response that carried this problem here.
    pub(crate) fn write_out(&self, response: Response, request_id: &str) -> Response {
        let (mut parts, _) = response.into_parts();
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        HttpResponse::from_parts(parts, self.to_json(request_id).into())
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let mut response = self.status().into_response();
        for (name, value) in std::mem::take(&mut self.0.headers) {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Status, title and advice for each way a computation can fail.
fn failure_answer(code: FailureCode) -> (StatusCode, &'static str, &'static str) {
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    match code {
        FailureCode::Trap => {
            (unprocessable, "The codelet trapped", "GET /v1/explain/{application} tells its arguments")
        }
        FailureCode::Fuel => {
            (unprocessable, "The codelet used up its fuel", "raise the fuel in the application's limits")
        }
        FailureCode::Memory => (
            unprocessable,
            "The codelet ran out of memory",
            "raise the memory in the application's limits, or split its input",
        ),
        FailureCode::Stack => (unprocessable, "The codelet's calls nested too deep", "recurse less deeply"),
        FailureCode::BadHandle => (
            unprocessable,
            "The codelet misused a handle",
            "read the guest ABI: indices come from the application's tree only",
        ),
        FailureCode::BadResult => {
            (unprocessable, "The codelet returned no handle", "return a handle index from apply")
        }
        FailureCode::BadProcedure => (
            unprocessable,
            "The procedure is no codelet",
            "a procedure is a Wasm module that exports apply and imports only from sinew_v1",
        ),
        FailureCode::BadThunk => (
            unprocessable,
            "A thunk has the wrong shape",
            "an application is [limits, procedure, argument…]; a selection [target, index] or [target, begin, end]",
        ),
        FailureCode::OutOfRange => {
            (unprocessable, "A selection past the end", "check the size of the selection's target")
        }
        FailureCode::Guest => {
            (unprocessable, "The codelet said that it failed", "the detail is the codelet's own text")
        }
        FailureCode::MissingData => (
            StatusCode::NOT_FOUND,
            "Data is missing",
            "put the missing object, or send everything in one bundle",
        ),
        FailureCode::Deadline => {
            (StatusCode::GATEWAY_TIMEOUT, "The deadline passed", "ask again with a longer deadline_ms")
        }
        FailureCode::Cancelled => (
            StatusCode::from_u16(CLIENT_CLOSED).unwrap_or(StatusCode::REQUEST_TIMEOUT),
            "The evaluation was cancelled",
            "ask again: finished steps are remembered",
        ),
        FailureCode::Resources => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The node lacks the resources",
            "lower the limits of the application, or give the node more memory",
        ),
    }
}

#[cfg(test)]
mod tests;
