// SPDX-License-Identifier: Apache-2.0
//! What a connection goes through before HTTP is spoken on it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use io::tls::{Accepted, HANDSHAKE_BYTE, Server};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{Answers, Talk, Version, converse};

/// HTTP/2, as a handshake names it.
pub(crate) const H2: &[u8] = b"h2";

/// Of a listener's places so many are for connections whose handshake is under
/// way. If they are taken, the oldest one gives way: whoever connects and says nothing
/// holds his place only until another needs it.
const HANDSHAKES_SHARE: usize = 2;

/// The way from a stream to HTTP.
pub(crate) trait Greeting<S>: Clone + Send + 'static {
    /// Attends to a connection until it ends.
    fn greet(self, stream: S, talk: Talk) -> impl Future<Output = ()> + Send + 'static;
}

/// HTTP at once.
#[derive(Debug, Clone)]
pub(crate) struct Plain<F>(pub(crate) F);

impl<S, F> Greeting<S> for Plain<F>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Answers,
{
    fn greet(self, stream: S, talk: Talk) -> impl Future<Output = ()> + Send + 'static {
        converse(stream, Version::Unsaid, self.0, talk)
    }
}

/// A handshake first. Clients that speak HTTP without one are told so.
#[derive(Debug, Clone)]
pub(crate) struct Secured<F> {
    server: Server,
    front: F,
    /// What answers those who do not speak TLS.
    plain: F,
    handshakes: Arc<Handshakes>,
}

/// Handshakes under way, the oldest first.
struct Handshakes {
    places: usize,
    under_way: Mutex<Begun>,
}

#[derive(Default)]
struct Begun {
    last: u64,
    by_age: BTreeMap<u64, Arc<Notify>>,
}

/// A handshake's place.
struct Place<'a> {
    handshakes: &'a Handshakes,
    number: u64,
    give_way: Arc<Notify>,
}

impl Handshakes {
    /// Takes a place, maybe the oldest one's.
    fn enter(&self) -> Place<'_> {
        let give_way = Arc::<Notify>::default();
        let mut under_way = self.under_way.lock();
        while under_way.by_age.len() >= self.places
            && let Some((_, oldest)) = under_way.by_age.pop_first()
        {
            oldest.notify_one();
        }
        under_way.last += 1;
        let number = under_way.last;
        under_way.by_age.insert(number, Arc::clone(&give_way));
        Place { handshakes: self, number, give_way }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.handshakes.under_way.lock().by_age.remove(&self.number);
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes").field("places", &self.places).finish_non_exhaustive()
    }
}

/// What came of the greeting.
enum Greeted {
    Tls(Box<Accepted>),
    Plain(TcpStream),
}

impl<F> Secured<F> {
    pub(crate) fn new(server: Server, front: F, plain: F, connections_max: usize) -> Self {
        let places = (connections_max / HANDSHAKES_SHARE).max(1);
        let handshakes = Arc::new(Handshakes { places, under_way: Mutex::default() });
        Self { server, front, plain, handshakes }
    }

    async fn recognise(&self, stream: TcpStream) -> std::io::Result<Greeted> {
        let mut first = [0];
        stream.peek(&mut first).await?;
        match first[0] {
            HANDSHAKE_BYTE => Ok(Greeted::Tls(Box::new(self.server.accept(stream).await?))),
            // Whatever it is: what is not HTTP is told so by what speaks HTTP.
            _ => Ok(Greeted::Plain(stream)),
        }
    }
}

impl<F: Answers + Sync> Greeting<TcpStream> for Secured<F> {
    async fn greet(self, stream: TcpStream, mut talk: Talk) {
        let handshakes = Arc::clone(&self.handshakes);
        let place = handshakes.enter();
        let greeted = tokio::select! {
            greeted = timeout(talk.terms.patience.head, self.recognise(stream)) => greeted,
            () = place.give_way.notified() => return talk.cut("handshake-gave-way"),
            // There is no request yet that would have to be answered.
            () = talk.stopped() => return,
        };
        drop(place);
        match greeted {
            Ok(Ok(Greeted::Tls(stream))) => {
                let version = match stream.get_ref().1.alpn_protocol() {
                    Some(H2) => Version::Two,
                    _ => Version::One,
                };
                talk.peer.is_secure = true;
                converse(stream, version, self.front, talk).await;
            }
            Ok(Ok(Greeted::Plain(stream))) => converse(stream, Version::Unsaid, self.plain, talk).await,
            Ok(Err(error)) => tracing::debug!(%error, "a client did not get through the handshake"),
            Err(_) => talk.cut("handshake-timeout"),
        }
    }
}

#[cfg(test)]
mod tests;
