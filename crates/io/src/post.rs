// SPDX-License-Identifier: Apache-2.0
//! One request to a URL that somebody else has named: `POST`, over HTTP/1.1,
//! with TLS or without.
//!
//! Whom it may be sent to is said in [`dial`](crate::dial). No redirect is followed,
//! and of the answer only its status is told.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::allow::AllowList;
use crate::dial::{Connection, Dialer, Place, Reach, Undialed};
use crate::net::{Internet, Net};

/// Bytes of an answer that are read, so that the other end sees it taken.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// For one request, from looking up the name to the answer's status.
const REQUEST: Duration = Duration::from_secs(30);
/// For the rest of the answer, within that time or not: nothing depends on it.
const ANSWER: Duration = Duration::from_secs(1);

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// It is not sent, today or tomorrow.
    #[error("{0}")]
    Refused(String),
    /// It may be answered another time.
    #[error("{0}")]
    Failed(String),
}

/// Sends requests.
pub struct Post(Dialer);

impl Post {
    /// From the node's network. Of private addresses those in `private` may be
    /// named; of public ones all.
    pub fn new(private: AllowList) -> Self {
        Self::with_net(private, Internet)
    }

    /// From another network.
    pub fn with_net(private: AllowList, net: impl Net + 'static) -> Self {
        Self(Dialer::new(Reach::Named(private, "callback_private"), net))
    }

    /// From the node's network to wherever its owner says.
    pub fn to_anywhere() -> Self {
        Self(Dialer::new(Reach::Any, Internet))
    }

    /// Whether a URL can be one, as far as can be told without asking anybody.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check(&self, url: &str) -> Result<(), String> {
        self.0.check(url)
    }

    /// Sends `body` to a URL; the status of the answer.
    ///
    /// # Errors
    /// If there is none.
    pub async fn send(&self, url: &str, headers: HeaderMap, body: Bytes) -> Result<u16, PostError> {
        let place = Place::read(url).map_err(PostError::Refused)?;
        let sent = timeout(REQUEST, self.send_to(&place, headers, body)).await;
        let late =
            || PostError::Failed(format!("{} did not answer in {} s", place.target, REQUEST.as_secs()));
        sent.unwrap_or_else(|_| Err(late()))
    }

    async fn send_to(&self, place: &Place, headers: HeaderMap, body: Bytes) -> Result<u16, PostError> {
        let lookup = self.0.may_look_up(place).await?;
        let stream = self.0.connect(place, lookup).await?;
        let mut request = Request::post(place.path.clone()).body(Full::new(body));
        if let Ok(request) = &mut request {
            *request.headers_mut() = headers;
            request.headers_mut().insert(HOST, place.authority.clone());
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let request = request.map_err(|error| PostError::Refused(error.to_string()))?;
        let failed = |error| PostError::Failed(format!("{}: {error}", place.target));
        exchange(stream, request).await.map_err(failed)
    }
}

impl From<Undialed> for PostError {
    fn from(undialed: Undialed) -> Self {
        match undialed {
            Undialed::Refused(why) => Self::Refused(why),
            Undialed::Failed(why) => Self::Failed(why),
        }
    }
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post").finish_non_exhaustive()
    }
}

/// Sends a request on a connection of its own; the status of the answer. It decides,
/// whatever becomes of the body: who has answered is not asked again.
async fn exchange(stream: Box<dyn Connection>, request: Request<Full<Bytes>>) -> hyper::Result<u16> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answered = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        // So that the other end sees it taken, if it is quick about it.
        _ = timeout(ANSWER, taken(response.into_body())).await;
        Ok(status)
    };
    let mut connection = std::pin::pin!(connection);
    let mut answered = std::pin::pin!(answered);
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        // What has arrived is still to be read.
        _ = &mut connection => answered.await,
    }
}

/// Reads a body to its end, or a bounded part of it.
async fn taken(mut body: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
        if read > ANSWER_BYTES_MAX || body.is_end_stream() {
            break;
        }
    }
}

#[cfg(test)]
mod tests;
