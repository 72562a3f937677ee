// SPDX-License-Identifier: Apache-2.0
//! A listener: accepts connections, as many as it may have, and serves HTTP
//! on each until the client leaves, keeps us waiting, or the node stops.
//!
//! A connection costs memory and a file, so a listener has a limit of them.
//! When it is reached, nothing is accepted until one ends: the kernel's
//! backlog is the queue. `watch.rs` knows when a client has used up its
//! patience. A client that waits for us is never cut off. `greeting.rs` is what
//! comes before HTTP: nothing, or a handshake. HTTP/1.1 and HTTP/2 differ only
//! in `http2.rs` and `preface.rs`: what answers sees the same requests.

mod beside;
mod greeting;
mod http2;
mod preface;
mod watch;

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use gateway::{Connections, Open, Peer};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch as signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, timeout};

use crate::config::Patience;
use crate::loops::Loops;
use beside::{Ended, either};
pub(crate) use greeting::{Greeting, H2, Plain, Secured};
use preface::Rewound;
use watch::{Answer, Observed, Watch};

/// A pause after an accept that failed, for example because the process has
/// no file left: trying again at once would only burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A listener that is full says so no more often: clients must not be able to
/// fill the log.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Something that connections come from.
pub(crate) trait Listener {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// One that no event loop watches.
    type Loose: Send + 'static;

    /// Waits for the next connection: it, and the address at its other end.
    fn accept(&mut self) -> impl Future<Output = std::io::Result<(Self::Stream, Option<IpAddr>)>> + Send;

    /// Takes a connection from the event loop of this thread.
    ///
    /// # Errors
    /// As the system says.
    fn loosen(stream: Self::Stream) -> std::io::Result<Self::Loose>;

    /// Has the event loop of this thread watch a connection.
    ///
    /// # Errors
    /// As the system says.
    fn fasten(loose: Self::Loose) -> std::io::Result<Self::Stream>;
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;
    type Loose = std::net::TcpStream;

    async fn accept(&mut self) -> std::io::Result<(Self::Stream, Option<IpAddr>)> {
        let (stream, address) = TcpListener::accept(self).await?;
        // Answers are written whole: to wait for more would only delay them.
        // It fails where the client has gone already, which reading will tell.
        let _ = stream.set_nodelay(true);
        Ok((stream, Some(address.ip())))
    }

    fn loosen(stream: Self::Stream) -> std::io::Result<Self::Loose> {
        stream.into_std()
    }

    fn fasten(loose: Self::Loose) -> std::io::Result<Self::Stream> {
        Self::Stream::from_std(loose)
    }
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;
    type Loose = std::os::unix::net::UnixStream;

    async fn accept(&mut self) -> std::io::Result<(Self::Stream, Option<IpAddr>)> {
        Ok((UnixListener::accept(self).await?.0, None))
    }

    fn loosen(stream: Self::Stream) -> std::io::Result<Self::Loose> {
        stream.into_std()
    }

    fn fasten(loose: Self::Loose) -> std::io::Result<Self::Stream> {
        Self::Stream::from_std(loose)
    }
}

/// What answers the requests.
pub(crate) trait Answers:
    Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// What a listener grants.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Connections at the same time.
    pub(crate) connections_max: usize,
    /// How long clients may keep us waiting.
    pub(crate) patience: Patience,
    /// Where connections are counted.
    pub(crate) connections: Connections,
    /// What serves them.
    pub(crate) loops: Arc<Loops>,
}

/// Serves until `stopping` becomes true, then accepts no more, and returns
/// when the requests under way are answered. Dropping the future ends all.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    greeting: impl Greeting<L::Stream>,
    terms: Terms,
    stopping: signal::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(terms.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
    let mut attended = JoinSet::new();
    let mut stop = pin!(until(stopping.clone()));
    let mut warned = None;
    loop {
        let (stream, address, place) = tokio::select! {
            accepted = next(&mut listener, &places, &terms, &mut warned) => accepted,
            () = &mut stop => break,
            Some(ended) = attended.join_next() => {
                report(ended);
                continue;
            }
        };
        let guards = (place, terms.connections.opened());
        let peer = Peer { address, is_secure: false };
        let talk = Talk { peer, terms: terms.clone(), stopping: stopping.clone(), _guards: guards };
        begin::<L>(&mut attended, &terms.loops, stream, greeting.clone(), talk);
    }
    // Whoever connects from now on is refused, not left waiting.
    drop(listener);
    while let Some(ended) = attended.join_next().await {
        report(ended);
    }
}

/// Has the loop with the fewest connections attend to one more.
fn begin<L: Listener>(
    attended: &mut JoinSet<()>,
    loops: &Arc<Loops>,
    stream: L::Stream,
    greeting: impl Greeting<L::Stream>,
    talk: Talk,
) {
    let lost = |error| tracing::warn!(%error, "a connection could not be given to an event loop");
    let Some(lane) = loops.lane() else {
        attended.spawn(greeting.greet(stream, talk));
        return;
    };
    let loose = match L::loosen(stream) {
        Ok(loose) => loose,
        Err(error) => return lost(error),
    };
    let there = lane.handle().clone();
    let attending = async move {
        let _lane = lane;
        match L::fasten(loose) {
            Ok(stream) => greeting.greet(stream, talk).await,
            Err(error) => lost(error),
        }
    };
    attended.spawn_on(attending, &there);
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection did not end well");
    }
}

/// The next connection, once there is a place for it. Dropping the future
/// loses neither: a place that was taken is given back.
async fn next<L: Listener>(
    listener: &mut L,
    places: &Arc<Semaphore>,
    terms: &Terms,
    warned: &mut Option<Instant>,
) -> (L::Stream, Option<IpAddr>, OwnedSemaphorePermit) {
    if places.available_permits() == 0 {
        terms.connections.full();
        if warned.is_none_or(|then| then.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            let connections = terms.connections_max;
            tracing::warn!(connections, "no place for further connections; they wait until one ends");
        }
    }
    let Ok(place) = places.clone().acquire_owned().await else {
        // Nobody closes the semaphore.
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (stream, address, place),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What a connection may do, and until when. It has its place until this is dropped.
pub(crate) struct Talk {
    peer: Peer,
    terms: Terms,
    stopping: signal::Receiver<bool>,
    _guards: (OwnedSemaphorePermit, Open),
}

impl Talk {
    /// Waits until the node is told to stop.
    async fn stopped(&self) {
        until(self.stopping.clone()).await;
    }

    /// The connection is ended for a reason of the client's.
    fn cut(&self, reason: &'static str) {
        self.terms.connections.cut(reason);
        tracing::debug!(reason, "a connection is cut off");
    }
}

/// Which HTTP a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
    /// The client's first bytes tell.
    Unsaid,
}

/// Speaks HTTP on a connection to its end.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    version: Version,
    front: impl Answers,
    talk: Talk,
) {
    let watch = Arc::new(Watch::new());
    let observed = Observed::new(stream, Arc::clone(&watch));
    let (stream, version) = match version {
        Version::Unsaid => {
            let told = tokio::select! {
                told = timeout(talk.terms.patience.head, preface::told(observed)) => told,
                // There is no request yet that would have to be answered.
                () = talk.stopped() => return,
            };
            match told {
                Ok(Ok((stream, version))) => (stream, version),
                Ok(Err(_)) => return,
                Err(_) => return talk.cut("head-timeout"),
            }
        }
        version => (Rewound::new(observed), version),
    };
    let stream = TokioIo::new(stream);
    match version {
        Version::Two => {
            watch.is_multiplexed();
            let service = watched(front, Arc::clone(&watch), talk.peer, http2::as_of_one);
            let streams = http2::Streams::default();
            let _end = streams.end();
            attend(http2::connection(streams, stream, service), &watch, talk).await;
        }
        Version::One | Version::Unsaid => {
            let service = watched(front, Arc::clone(&watch), talk.peer, |request| request);
            let mut builder = http1::Builder::new();
            // The watch does this, and tells the head of a request from idling.
            builder.header_read_timeout(None);
            attend(builder.serve_connection(stream, service), &watch, talk).await;
        }
    }
}

/// What answers a connection's requests, tells who sends them, and has the watch know of each.
fn watched<F: Answers>(
    front: F,
    watch: Arc<Watch>,
    peer: Peer,
    before: impl Fn(Request<Incoming>) -> Request<Incoming> + Clone,
) -> impl Service<Request<Incoming>, Response = Response<Answer>, Error = Infallible, Future: Send + 'static> + Clone
{
    service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let busy = watch.begin();
        let answer = front.call(before(request));
        async move { answer.await.map(|response| response.map(|body| Answer::new(body, busy))) }
    })
}

/// A connection of either version.
trait Connection: Future<Output = hyper::Result<()>> {
    /// Takes no more requests, and ends when those under way are answered.
    fn wind_up(self: Pin<&mut Self>);
}

/// Serves a connection until it ends, the client has used up its patience, or
/// the node stops and all is answered.
async fn attend(connection: impl Connection, watch: &Watch, talk: Talk) {
    let mut connection = pin!(connection);
    let mut is_stopping = false;
    loop {
        let disturbed = pin!(disturbed(watch, &talk, is_stopping));
        match either(connection.as_mut(), disturbed).await {
            Ended::First(Ok(())) => return,
            Ended::First(Err(error)) => return tracing::debug!(%error, "a connection ended early"),
            Ended::Beside(Disturbance::Cut(reason)) => return talk.cut(reason),
            Ended::Beside(Disturbance::Stop) => {
                is_stopping = true;
                connection.as_mut().wind_up();
            }
        }
    }
}

/// What comes between a connection and its requests.
enum Disturbance {
    /// It is to be cut off, for this reason.
    Cut(&'static str),
    /// The node stops.
    Stop,
}

/// Waits for what disturbs a connection.
async fn disturbed(watch: &Watch, talk: &Talk, is_stopping: bool) -> Disturbance {
    let mut stop = pin!(talk.stopped());
    let pause = talk.terms.patience.look_every();
    let mut look = tokio::time::interval_at(Instant::now() + pause, pause);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {
                if let Some(reason) = watch.overdue(&talk.terms.patience) {
                    return Disturbance::Cut(reason);
                }
            }
            () = watch.misused() => return Disturbance::Cut("taken-back"),
            () = &mut stop, if !is_stopping => return Disturbance::Stop,
        }
    }
}

/// Waits until the node is told to stop.
pub(crate) async fn until(mut stopping: signal::Receiver<bool>) {
    // An error means that the sender is gone: stop as well.
    let _ = stopping.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests;
