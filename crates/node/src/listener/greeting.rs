// SPDX-License-Identifier: Apache-2.0
//! What a connection goes through before HTTP is spoken on it.

use std::future::Future;
use std::sync::Arc;

use io::tls::{Accepted, HANDSHAKE_BYTE, Server};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Answers, Talk, Version, converse};

/// HTTP/2, as a handshake names it.
pub(crate) const H2: &[u8] = b"h2";

/// Of a listener's places so many are for connections whose handshake is under
/// way: whoever connects and says nothing holds no more than these.
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
    handshakes: Arc<Semaphore>,
}

/// What came of the greeting.
enum Greeted {
    Tls(Box<Accepted>),
    Plain(TcpStream),
}

impl<F> Secured<F> {
    pub(crate) fn new(server: Server, front: F, plain: F, connections_max: usize) -> Self {
        let places = (connections_max / HANDSHAKES_SHARE).clamp(1, Semaphore::MAX_PERMITS);
        Self { server, front, plain, handshakes: Arc::new(Semaphore::new(places)) }
    }

    async fn recognise(&self, stream: TcpStream) -> std::io::Result<Greeted> {
        // Nobody closes the semaphore.
        let _place = self.handshakes.acquire().await;
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
    async fn greet(self, stream: TcpStream, talk: Talk) {
        let greeted = tokio::select! {
            greeted = timeout(talk.terms.patience.head, self.recognise(stream)) => greeted,
            // There is no request yet that would have to be answered.
            () = talk.stopped() => return,
        };
        match greeted {
            Ok(Ok(Greeted::Tls(stream))) => {
                let version = match stream.get_ref().1.alpn_protocol() {
                    Some(H2) => Version::Two,
                    _ => Version::One,
                };
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
