// SPDX-License-Identifier: Apache-2.0
//! One HTTP/1.1 connection to a node, with TLS or without, reused for all
//! requests of a command.
//!
//! Closing it (by dropping the client, or by dying) is how evaluations are
//! cancelled: the node drops what it did for a client that left.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use node::tls::{self, Distrust};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::address::Address;
use crate::exit::{Code, Stop};

/// The body of a request.
pub(crate) type Outgoing = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

/// Bytes that are in memory, as a body.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Outgoing {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What a reader gives, as a body. `len` is promised to the node if known.
pub(crate) fn streamed(
    reader: impl AsyncRead + Send + 'static,
    len: Option<u64>,
    on_bytes: impl FnMut(u64) + Send + 'static,
) -> Outgoing {
    let body = ReaderBody { reader: Box::pin(reader), left: len, on_bytes: Box::new(on_bytes) };
    body.boxed_unsync()
}

/// For a handshake with a node.
const HANDSHAKE: Duration = Duration::from_secs(10);

const CHUNK_BYTES: usize = 256 << 10;

struct ReaderBody {
    reader: Pin<Box<dyn AsyncRead + Send>>,
    left: Option<u64>,
    on_bytes: Box<dyn FnMut(u64) + Send>,
}

impl Body for ReaderBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == Some(0) {
            return Poll::Ready(None);
        }
        let room = self
            .left
            .map_or(CHUNK_BYTES, |left| CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES)));
        let mut chunk = BytesMut::zeroed(room);
        let mut buffer = ReadBuf::new(&mut chunk);
        ready!(self.reader.as_mut().poll_read(cx, &mut buffer))?;
        let filled = buffer.filled().len();
        chunk.truncate(filled);
        if filled == 0 {
            let early = |left| {
                let message = format!("the file became {left} bytes shorter while it was read");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
            };
            return Poll::Ready(self.left.map(early));
        }
        self.left = self.left.map(|left| left - filled as u64);
        (self.on_bytes)(filled as u64);
        Poll::Ready(Some(Ok(Frame::data(chunk.freeze()))))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A connection that is made when first needed.
pub(crate) struct Client {
    address: Address,
    sender: Option<SendRequest<Outgoing>>,
    driver: JoinSet<()>,
}

impl Client {
    pub(crate) fn new(address: Address) -> Self {
        Self { address, sender: None, driver: JoinSet::new() }
    }

    /// Where the node is.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a request; the answer's body is still to be read.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Outgoing>,
    ) -> anyhow::Result<Response<Incoming>> {
        request.headers_mut().insert(HOST, HeaderValue::from_str(&self.address.authority())?);
        let agent = concat!("sinew/", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        if let Ok(key) = std::env::var("SINEW_KEY") {
            // Nothing of it is in a message: it is a secret.
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
                .map_err(|_| Stop::new(Code::Usage, "SINEW_KEY is no key"))?;
            value.set_sensitive(true);
            request.headers_mut().entry(AUTHORIZATION).or_insert(value);
        }
        tracing::debug!(method = %request.method(), uri = %request.uri(), "request");
        let mut refused = match self.sender().await?.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(refused) => refused,
        };
        // The node may have closed an idle connection in the meantime: then
        // hyper gives the request back, unsent.
        let Some(request) = refused.take_message() else {
            return Err(anyhow::Error::new(refused.into_error()).context(self.lost()));
        };
        self.sender = None;
        let sent = self.sender().await?.send_request(request).await;
        sent.map_err(|error| anyhow::Error::new(error).context(self.lost()))
    }

    fn lost(&self) -> Stop {
        Stop::new(Code::Failed, format!("the connection to the node at {} broke", self.address))
            .suggest("is it still running? `sinew doctor` tells; otherwise repeat the command")
    }

    async fn sender(&mut self) -> anyhow::Result<&mut SendRequest<Outgoing>> {
        let usable = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.sender = Some(self.connect().await?);
        }
        self.sender.as_mut().context("there is no connection")
    }

    async fn connect(&mut self) -> anyhow::Result<SendRequest<Outgoing>> {
        match &self.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| not_running(&self.address, &error))?;
                self.shake_hands(stream).await
            }
            Address::Tcp { is_tls, host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| not_running(&self.address, &error))?;
                stream.set_nodelay(true)?;
                if !is_tls {
                    return self.shake_hands(stream).await;
                }
                let stream = self.secured(host, stream).await?;
                self.shake_hands(stream).await
            }
        }
    }

    /// Makes sure that the node is the one that it should be.
    async fn secured(&self, host: &str, stream: TcpStream) -> anyhow::Result<tls::Connected> {
        let client = match std::env::var_os("SINEW_CA") {
            Some(authorities) => tls::Client::trusting(Path::new(&authorities)),
            None => tls::Client::of_machine(),
        };
        let client = client.map_err(|error| Stop::new(Code::Usage, format!("SINEW_CA: {error}")))?;
        match tokio::time::timeout(HANDSHAKE, client.connect(host, stream)).await {
            Ok(secured) => secured.map_err(|error| untrusted(&self.address, &error).into()),
            Err(_) => {
                let message = format!("the handshake with the node at {} took too long", self.address);
                Err(Stop::new(Code::NotRunning, message)
                    .suggest("is it a node, and does it speak TLS?")
                    .into())
            }
        }
    }

    async fn shake_hands<S>(&mut self, stream: S) -> anyhow::Result<SendRequest<Outgoing>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        self.driver.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection ended");
            }
        });
        Ok(sender)
    }
}

fn untrusted(address: &Address, error: &Distrust) -> Stop {
    let message = format!("no connection to the node at {address}: {error}");
    let stop = Stop::new(Code::Failed, message);
    match error {
        Distrust::Stranger => stop.suggest(
            "SINEW_CA=FILE names the certificate to trust: of a node with --tls-self-signed, tls/certificate.pem in its home",
        ),
        Distrust::Certificate(_) => stop.suggest("call the node by a name that is in its certificate, or renew it"),
        Distrust::Plain => stop.suggest("if the node has no TLS, its address begins with http://"),
        Distrust::Name(_) | Distrust::Io(_) => stop,
    }
}

fn not_running(address: &Address, error: &io::Error) -> Stop {
    let message = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let message = format!("the node at {address} belongs to somebody else: {error}");
            return Stop::new(Code::Unauthorised, message)
                .suggest("run the command as the user who ran `sinew up`");
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no node is running at {address}")
        }
        _ => format!("no node can be reached at {address}: {error}"),
    };
    Stop::new(Code::NotRunning, message).suggest("start one with `sinew up`, or name another with --node")
}
