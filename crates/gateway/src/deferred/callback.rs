// SPDX-License-Identifier: Apache-2.0
//! Results that are sent to where a caller wants them.
//!
//! When a call with a callback has ended, a message with its result is pushed
//! in the same step, so that neither is there without the other. It has a lane
//! of its own: who does not answer delays results of one function, and no call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use queue::{Claimed, End, Id, Message, Policy};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::verdict::Verdict;
use super::{Call, Outcome, header_map, now_ms, verdict};
use crate::problem::Problem;
use crate::router::Shared;
use crate::unique;

/// Where a caller wants a result.
pub(crate) const CALLBACK_URL: HeaderName = HeaderName::from_static("x-callback-url");
/// What the lanes of results begin with. No function has such a name.
const LANE: &str = "callback:";
/// Results of one function that are sent at one time.
pub(super) const EACH_MAX: usize = 8;
/// A server that is down for some hours still gets its results.
const POLICY: Policy = Policy {
    max_attempts: 12,
    max_age_ms: 24 * 60 * 60 * 1000,
    min_backoff_ms: 1000,
    max_backoff_ms: 60 * 60 * 1000,
};
/// Headers of a function's answer that are sent on; others are about an answer.
const SENT_ON: [&str; 3] = ["content-type", "content-encoding", "content-language"];

/// An answer's status, later.
pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<u16, Unsent>> + Send + 'a>>;

/// Why a result was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsent {
    /// It is not allowed, and no other attempt will be.
    Never(String),
    /// Nobody answered this time.
    Again(String),
}

/// Who sends results to URLs that callers name.
pub trait Callbacks: Send + Sync {
    /// Whether a URL may be named.
    ///
    /// # Errors
    /// Why not, for people.
    fn check(&self, url: &str) -> Result<(), String>;

    /// Posts a body; the status of the answer.
    fn send<'a>(&'a self, url: &'a str, headers: HeaderMap, body: Bytes) -> Sending<'a>;
}

/// A result that is on its way, as it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    /// Where it goes.
    pub(crate) callback_url: String,
    /// The call's id.
    pub(crate) call: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// Where a request wants its result.
///
/// # Errors
/// 400 if that is nowhere that this node sends anything.
pub(crate) fn wanted(shared: &Shared, headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(url) = headers.get(CALLBACK_URL) else { return Ok(None) };
    let bad = |detail: String| Problem::bad_request("bad-callback", format!("X-Callback-Url: {detail}"));
    let url = url.to_str().map_err(|_| bad("it is no text".to_owned()))?;
    let Some(callbacks) = shared.backend.callbacks() else {
        return Err(bad("this node calls nobody back".to_owned()).suggest("ask GET /v1/async/{id}"));
    };
    callbacks.check(url).map_err(bad)?;
    Ok(Some(url.to_owned()))
}

/// Whether a lane is one of results.
pub(super) fn is_lane(lane: &str) -> bool {
    lane.starts_with(LANE)
}

/// The message with the result of a call that has ended, if one is wanted.
pub(super) fn follow(call: &Call, id: Id, end: &End) -> Option<Message> {
    let callback_url = call.callback.clone()?;
    let (kind, headers, body) = match end {
        End::Retry { .. } => return None,
        End::Succeeded(outcome) => {
            let (outcome, body) = Outcome::decoded(outcome.clone())?;
            let mut headers = vec![("x-sinew-status".to_owned(), outcome.status.to_string())];
            if let Some(len) = outcome.omitted {
                headers.push(("x-sinew-omitted".to_owned(), len.to_string()));
            }
            headers.extend(outcome.headers.into_iter().filter(|(name, _)| SENT_ON.contains(&name.as_str())));
            ("succeeded", headers, body.to_vec())
        }
        End::Dead { reason } => {
            let told = json!({ "id": id.to_string(), "function": call.function(), "reason": reason });
            let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
            ("dead", headers, told.to_string().into_bytes())
        }
    };
    let own = Id(unique::uuid().as_u128());
    let event = [
        ("ce-specversion", "1.0".to_owned()),
        ("ce-id", own.to_string()),
        ("ce-source", format!("/async-function/{}", call.function())),
        ("ce-type", format!("sinew.call.{kind}")),
        ("ce-subject", id.to_string()),
        ("x-request-id", call.request_id.clone()),
        ("user-agent", "sinew".to_owned()),
    ];
    let trace =
        call.headers.iter().filter(|(name, _)| name == "traceparent" || name == "tracestate").cloned();
    let event = event.into_iter().map(|(name, value)| (name.to_owned(), value));
    let headers = event.chain(trace).chain(headers).collect();
    let parcel = Parcel { callback_url, call: id.to_string(), headers };
    Some(Message {
        id: own,
        lane: format!("{LANE}{}", call.function()),
        // Strings only: serialization has nothing to fail on.
        head: serde_json::to_vec(&parcel).unwrap_or_default(),
        body,
        due_ms: 0,
        dedup: None,
        mark: None,
    })
}

/// Sends a result; how the attempt ended.
pub(super) async fn deliver(shared: &Arc<Shared>, claimed: &Claimed, parcel: &Parcel, body: Vec<u8>) -> End {
    if let Some(reason) = verdict::overdue(claimed, &POLICY, now_ms()) {
        return End::Dead { reason };
    }
    let Some(callbacks) = shared.backend.callbacks() else {
        return End::Dead { reason: "this node calls nobody back".to_owned() };
    };
    let mut headers = header_map(&parcel.headers);
    headers.insert("x-sinew-attempt", HeaderValue::from(claimed.attempt));
    let sent = callbacks.send(&parcel.callback_url, headers, body.into()).await;
    verdict::end(judge(sent), claimed, &POLICY, (now_ms(), super::dispatcher::random()), Vec::new)
}

/// Whoever takes a result says so with 2xx. 410 says that he wants none; all
/// else may be a fault that is mended.
fn judge(sent: Result<u16, Unsent>) -> Verdict {
    match sent {
        Ok(200..300) => Verdict::Done,
        Ok(410) => Verdict::Never("the callback answered with 410: it wants no more".to_owned()),
        Ok(status) => Verdict::Again { reason: format!("the callback answered with {status}"), counts: true },
        Err(Unsent::Never(reason)) => Verdict::Never(reason),
        Err(Unsent::Again(reason)) => Verdict::Again { reason, counts: true },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Source;
    use super::*;

    #[test]
    fn answers_of_callbacks_are_judged() {
        for (sent, expected) in [
            (Ok(200), "done"),
            (Ok(204), "done"),
            (Ok(302), "again"),
            (Ok(404), "again"),
            (Ok(503), "again"),
            (Ok(410), "never"),
            (Err(Unsent::Again("down".to_owned())), "again"),
            (Err(Unsent::Never("private".to_owned())), "never"),
        ] {
            let word = match judge(sent.clone()) {
                Verdict::Done => "done",
                Verdict::Again { counts, .. } => {
                    assert!(counts);
                    "again"
                }
                Verdict::Never(_) => "never",
            };
            assert_eq!(word, expected, "{sent:?}");
        }
    }

    #[test]
    fn only_an_end_for_good_is_told_and_only_who_wants_it_is() {
        let call = |callback: Option<&str>| Call {
            target: "hello:live".to_owned(),
            method: "POST".to_owned(),
            path: "/".to_owned(),
            query: String::new(),
            headers: vec![("traceparent".to_owned(), "00-1-2-01".to_owned())],
            request_id: "mine".to_owned(),
            source: Source::Http,
            callback: callback.map(str::to_owned),
            tenant: None,
        };
        let wanting = call(Some("https://example.com/"));
        let dead = End::Dead { reason: "raised".to_owned() };
        let retry = End::Retry { due_ms: 1, reason: "raised".to_owned(), counts: true };
        assert!(follow(&call(None), Id(1), &dead).is_none());
        assert!(follow(&wanting, Id(1), &retry).is_none());
        let message = follow(&wanting, Id(1), &dead).unwrap();
        assert_eq!(message.lane, "callback:hello");
        assert!(String::from_utf8(message.body).unwrap().contains("raised"));
        let parcel: Parcel = serde_json::from_slice(&message.head).unwrap();
        let header = |name: &str| parcel.headers.iter().find(|(each, _)| each == name).unwrap().1.as_str();
        assert_eq!(
            (header("ce-type"), header("x-request-id"), header("traceparent")),
            ("sinew.call.dead", "mine", "00-1-2-01")
        );
        assert!(serde_json::from_slice::<Call>(&message.head).is_err(), "it is taken for no call");
    }
}
