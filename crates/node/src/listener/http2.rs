// SPDX-License-Identifier: Apache-2.0
//! Connections of HTTP/2, and what is different about their requests.
//!
//! Limits are for one connection, of which a listener has many: streams at the
//! same time, bytes of a request's head, bytes of one body that were sent to us and are
//! not read yet, bytes of answers that wait to be taken. A connection has room for what
//! all its streams may send, so that none waits for another's reader; how much that is
//! for all connections together is the gateway's to bound (`gateway::ahead`). Streams that are reset
//! before they are looked at, and heads in endless pieces, end the connection;
//! the library does that. Requests that are begun and taken back are counted
//! by the watch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::header::{COOKIE, HOST};
use axum::http::{HeaderValue, Uri};
use gateway::BODY_AHEAD_BYTES;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::Connection;

/// Requests of one connection at the same time.
const STREAMS_MAX: u32 = 100;
/// Bytes of a request's head, as the protocol counts them.
const HEAD_BYTES_MAX: u32 = 32 << 10;
/// Bytes of all bodies of a connection that are not read yet: of each as many as it may send.
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * BODY_AHEAD_BYTES;
/// Bytes of one answer that wait to be taken.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Streams that may be reset before anybody has looked at them.
const EARLY_RESETS_MAX: usize = 20;
/// Streams that we reset because of what the client did wrong in them.
const FAULTS_MAX: usize = 128;

/// The tasks of a connection's streams.
#[derive(Clone, Default)]
pub(super) struct Streams(Arc<Mutex<JoinSet<()>>>);

/// Ends them when it is dropped. They know each other, so nothing else would.
pub(super) struct EndOfStreams(Streams);

impl Streams {
    pub(super) fn end(&self) -> EndOfStreams {
        EndOfStreams(self.clone())
    }
}

impl Drop for EndOfStreams {
    fn drop(&mut self) {
        // Outside of the lock: what a task ends with may look for its place.
        let streams = std::mem::take(&mut *self.0.0.lock());
        drop(streams);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let mut streams = self.0.lock();
        while streams.try_join_next().is_some() {}
        streams.spawn(stream);
    }
}

/// A connection of HTTP/2, whose streams are tasks of `streams`.
pub(super) fn connection<I, S>(streams: Streams, stream: I, service: S) -> http2::Connection<I, S, Streams>
where
    S: HttpService<Incoming>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    Streams: hyper::rt::bounds::Http2ServerConnExec<S::Future, S::ResBody>,
{
    let mut builder = http2::Builder::new(streams);
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .initial_stream_window_size(BODY_AHEAD_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
        .max_local_error_reset_streams(FAULTS_MAX);
    builder.serve_connection(stream, service)
}

/// A request as HTTP/1.1 would have brought it: its authority is the `Host`,
/// and its cookies are one header. So functions, and checks, see no difference.
pub(super) fn as_of_one<B>(mut request: Request<B>) -> Request<B> {
    let uri = std::mem::take(request.uri_mut()).into_parts();
    if let Some(host) = uri.authority.and_then(|it| HeaderValue::from_str(it.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = uri.path_and_query.map_or_else(Uri::default, Uri::from);
    let cookies: Vec<&[u8]> = request.headers().get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1 {
        let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]));
        // Each was the value of a header, and so are they together.
        joined.into_iter().for_each(|joined| _ = request.headers_mut().insert(COOKIE, joined));
    }
    request
}

impl<I, S> Connection for http2::Connection<I, S, Streams>
where
    S: HttpService<Incoming>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    Streams: hyper::rt::bounds::Http2ServerConnExec<S::Future, S::ResBody>,
{
    fn wind_up(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S> Connection for http1::Connection<I, S>
where
    S: HttpService<Incoming>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    fn wind_up(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

#[cfg(test)]
mod tests;
