// SPDX-License-Identifier: Apache-2.0
//! Connections of HTTP/1.1, kept from one request to the next.
//!
//! A connection is moved on by whoever waits for something on it, and has no task of its
//! own. One that is *kept* is looked at by nobody: before it is used again it is moved on
//! once, and another one is used if the other side has ended it by then, or said what it
//! was not asked for. Servers end what rests when they like. So what goes wrong on a
//! connection that was kept, before any of an answer came, says nothing of the server:
//! whoever asks does so again, on a new one ([`Unanswered::Stale`]).

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::allow::Target;
use crate::dial::{Connection, Place};

/// Bytes of an answer's head, within a factor of two, and of what is read of its body at once.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How old a connection is at most when it is used again: whom a name leads to may change.
const AGE_MAX: Duration = Duration::from_secs(300);

/// Bounds of what is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkOptions {
    /// Connections.
    pub(crate) total_max: usize,
    /// To one host.
    pub(crate) per_host_max: usize,
    /// For how long one is kept without a request. Many servers end theirs after a minute or less.
    pub(crate) idle_max: Duration,
}

/// Why a request has no answer.
pub(crate) enum Unanswered {
    /// Its connection was kept, and is none any more.
    Stale,
    /// It has waited for long enough.
    Late,
    /// The connection, or what came on it, is no good.
    Broken(hyper::Error),
}

/// Whom connections lead to. Those that its owner's settings lead to may have addresses
/// that others may not name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    target: Target,
    is_tls: bool,
    is_owners: bool,
}

impl Peer {
    pub(crate) fn of(place: &Place) -> Self {
        Self { target: place.target.clone(), is_tls: place.is_tls, is_owners: place.bucket.is_some() }
    }
}

/// A connection on which requests are sent, one after another.
pub(crate) struct Link {
    peer: Peer,
    sender: http1::SendRequest<Full<Bytes>>,
    driven: Driven,
    made: Instant,
    was_kept: bool,
}

/// A connection that is moved on by whoever waits for something on it, and ends with it: a
/// task of its own would cost each of many short transfers more than its bytes do.
struct Driven(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Driven {
    async fn until<T>(&mut self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = pin!(awaited);
        poll_fn(|context| {
            if let Poll::Ready(came) = awaited.as_mut().poll(context) {
                return Poll::Ready(came);
            }
            if self.0.is_none() {
                return Poll::Pending;
            }
            self.moved(context);
            // It may have brought what is waited for.
            awaited.as_mut().poll(context)
        })
        .await
    }

    /// Moves it on. Whether it is still one.
    fn moved(&mut self, context: &mut std::task::Context<'_>) -> bool {
        let Some(connection) = &mut self.0 else { return false };
        if connection.as_mut().poll(context).is_ready() {
            self.0 = None;
        }
        self.0.is_some()
    }
}

impl Link {
    pub(crate) async fn begin(peer: Peer, stream: Box<dyn Connection>) -> hyper::Result<Self> {
        let http = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = http?;
        let driven = Driven(Some(Box::pin(async move {
            // What goes wrong is told by the answer.
            _ = connection.await;
        })));
        Ok(Self { peer, sender, driven, made: Instant::now(), was_kept: false })
    }

    /// Sends a request; the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, Unanswered> {
        let sent = self.driven.until(self.sender.send_request(request));
        let answered = timeout(limit, sent).await.map_err(|_| Unanswered::Late)?;
        answered.map_err(|error| if self.was_kept { Unanswered::Stale } else { Unanswered::Broken(error) })
    }

    /// What comes next of an answer.
    pub(crate) async fn frame(&mut self, body: &mut Incoming) -> Option<hyper::Result<Frame<Bytes>>> {
        self.driven.until(body.frame()).await
    }

    /// Whether another request can be sent on it now.
    async fn is_usable(&mut self) -> bool {
        let is_alive = poll_fn(|context| Poll::Ready(self.driven.moved(context))).await;
        is_alive && self.sender.is_ready()
    }
}

/// Connections that are kept.
pub(crate) struct Links(Arc<Shared>);

struct Shared {
    options: LinkOptions,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// In the order in which they were given back.
    of: HashMap<Peer, Vec<Idle>>,
    len: usize,
    /// Somebody ends those that nobody used for long.
    is_swept: bool,
    sweepers: JoinSet<()>,
}

struct Idle {
    since: Instant,
    link: Link,
}

impl Links {
    pub(crate) fn new(options: LinkOptions) -> Self {
        Self(Arc::new(Shared { options, kept: Mutex::default() }))
    }

    /// One that can be used, and that was used last.
    pub(crate) async fn take(&self, peer: &Peer) -> Option<Link> {
        loop {
            let Idle { since, mut link } = self.0.kept.lock().pop(peer)?;
            if since.elapsed() < self.0.options.idle_max && link.is_usable().await {
                link.was_kept = true;
                return Some(link);
            }
        }
    }

    /// Keeps one whose last answer has come whole, if it may be used again.
    pub(crate) fn keep(&self, link: Link) {
        if link.driven.0.is_none() || link.made.elapsed() >= AGE_MAX {
            return;
        }
        let mut kept = self.0.kept.lock();
        let LinkOptions { total_max, per_host_max, .. } = self.0.options;
        if kept.len >= total_max || kept.of.get(&link.peer).is_some_and(|of| of.len() >= per_host_max) {
            return;
        }
        kept.len += 1;
        kept.of.entry(link.peer.clone()).or_default().push(Idle { since: Instant::now(), link });
        while kept.sweepers.try_join_next().is_some() {}
        // One of a runtime that was shut down has ended too.
        if !kept.is_swept || kept.sweepers.is_empty() {
            kept.is_swept = true;
            kept.sweepers.spawn(sweep(Arc::downgrade(&self.0), self.0.options.idle_max));
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.kept.lock().len
    }
}

impl Kept {
    fn pop(&mut self, peer: &Peer) -> Option<Idle> {
        let of = self.of.get_mut(peer)?;
        let last = of.pop()?;
        if of.is_empty() {
            self.of.remove(peer);
        }
        self.len -= 1;
        Some(last)
    }

    /// Those that were kept for so long.
    fn over(&mut self, idle_max: Duration) -> Vec<Idle> {
        let mut over = Vec::new();
        self.of.retain(|_, of| {
            let begin = of.partition_point(|idle| idle.since.elapsed() >= idle_max);
            over.extend(of.drain(..begin));
            !of.is_empty()
        });
        self.len -= over.len();
        over
    }
}

/// Ends what is kept for too long, as long as there is any.
async fn sweep(shared: Weak<Shared>, idle_max: Duration) {
    loop {
        sleep(idle_max / 2).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut kept = shared.kept.lock();
        // They are closed when the lock is let go.
        let over = kept.over(idle_max);
        let is_empty = kept.len == 0;
        kept.is_swept = !is_empty;
        drop(kept);
        drop(over);
        if is_empty {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
