// SPDX-License-Identifier: Apache-2.0
//! Connections to URLs that somebody else has named.
//!
//! The node makes them from its own network, where whoever names a URL is not.
//! So the rules of [`egress`](crate::Egress) hold: a name is resolved once, the
//! address that was checked is the one that is connected to, and a private one
//! has to be in the node's list itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::header::HeaderValue;
use hyper::http::Uri;
use hyper::http::uri::Scheme;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::address::is_public;
use crate::allow::{AllowList, Host, Target};
use crate::link::{Link, LinkOptions, Links, Peer, Unanswered};
use crate::net::{Lookup, Lookups, Net, Whose};
use crate::s3::Bucket;
use crate::tls;

/// Bytes of a URL.
pub(crate) const URL_BYTES_MAX: usize = 2048;
/// Names that are looked up at once; each holds a thread.
const LOOKUPS_MAX: usize = 16;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undialed {
    /// It is not made, today or tomorrow.
    Refused(String),
    /// It may be made another time.
    Failed(String),
}

/// Makes connections.
pub(crate) struct Dialer {
    net: Lookups,
    reach: Reach,
    tls: OnceLock<Result<tls::Client, String>>,
    links: Links,
}

/// How long a request waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For looking up a name, connecting, and TLS, without waiting for one's turn to look up.
    pub(crate) connect: Duration,
    /// From there to the head of the answer.
    pub(crate) head: Duration,
}

/// An answer whose body is to come.
pub(crate) struct Answered {
    pub(crate) response: Response<Incoming>,
    pub(crate) link: Link,
    /// The request was sent on a kept connection before, and may have arrived there.
    pub(crate) was_sent_before: bool,
    /// All of the body has come.
    is_whole: bool,
}

/// Which addresses may be named.
pub(crate) enum Reach {
    /// Public ones, and of private ones these, which the node's settings name under
    /// this word.
    Named(AllowList, &'static str),
    /// Any: the owner of the node names them.
    Any,
}

/// A URL that can be one.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) target: Target,
    pub(crate) is_tls: bool,
    pub(crate) authority: HeaderValue,
    pub(crate) path: Uri,
    /// Whose requests are signed. The node's owner has named where it is.
    pub(crate) bucket: Option<Arc<Bucket>>,
}

/// A connection, with TLS or without.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection for S {}

/// A connection without TLS. It is not shut down before it is
/// closed, for that says the same to the other side, and costs a tenth of a short request.
struct Bare(TcpStream);

impl AsyncRead for Bare {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buf)
    }
}

impl AsyncWrite for Bare {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Dialer {
    pub(crate) fn new(reach: Reach, net: impl Net + 'static) -> Self {
        // Nothing is kept unless somebody says so.
        let links = Links::new(LinkOptions { total_max: 0, per_host_max: 0, idle_max: Duration::ZERO });
        Self { net: Lookups::new(net, LOOKUPS_MAX), reach, tls: OnceLock::new(), links }
    }

    /// The same, which keeps connections from one request to the next.
    pub(crate) fn keeping(self, options: LinkOptions) -> Self {
        Self { links: Links::new(options), ..self }
    }

    /// Sends a request that may arrive twice, on a connection that was kept or on a new one.
    pub(crate) async fn ask(
        &self,
        place: &Place,
        request: Request<Full<Bytes>>,
        patience: Patience,
    ) -> Result<Answered, Undialed> {
        let peer = Peer::of(place);
        let mut was_sent_before = false;
        if let Some(mut link) = self.links.take(&peer).await {
            match link.send(request.clone(), patience.head).await {
                Ok(response) => return Ok(Answered::new(response, link, false)),
                Err(Unanswered::Stale) => was_sent_before = true,
                Err(other) => return Err(other.told(place, patience)),
            }
        }
        let lookup = self.may_look_up(place).await?;
        let limit = patience.connect;
        let late =
            |_| Undialed::Failed(format!("{} cannot be reached in {} s", place.target, limit.as_secs_f32()));
        let stream = timeout(limit, self.connect(place, lookup)).await.map_err(late)??;
        let broken = |error| Unanswered::Broken(error).told(place, patience);
        let mut link = Link::begin(peer, stream).await.map_err(broken)?;
        let response = link.send(request, patience.head).await.map_err(|why| why.told(place, patience))?;
        Ok(Answered::new(response, link, was_sent_before))
    }

    /// Keeps the connection on which an answer has come, if all of it has.
    pub(crate) fn keep(&self, answered: Answered) {
        if answered.is_whole {
            self.links.keep(answered.link);
        }
    }

    /// The same, which trusts whom this client does.
    #[cfg(test)]
    pub(crate) fn trusting(self, client: tls::Client) -> Self {
        Self { tls: OnceLock::from(Ok(client)), ..self }
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.links.len()
    }

    /// Whether a URL can be one, as far as can be told without asking anybody.
    ///
    /// # Errors
    /// Why not, for people.
    pub(crate) fn check(&self, url: &str) -> Result<(), String> {
        let place = Place::read(url)?;
        match place.target.host {
            Host::Address(address) => self.may(SocketAddr::new(address, place.target.port)),
            Host::Name(_) => Ok(()),
        }
    }

    /// Waits until the name may be looked up, if it is one that has to be. Whoever
    /// limits how long connecting takes does not count this: others make it long.
    pub(crate) async fn may_look_up(&self, place: &Place) -> Result<Option<Lookup>, Undialed> {
        let Host::Name(name) = &place.target.host else { return Ok(None) };
        let is_owners = matches!(self.reach, Reach::Any) || place.bucket.is_some();
        let whose = if is_owners { Whose::Owner } else { Whose::Anybody };
        let may = self.net.place(name, whose).await;
        may.map(Some).map_err(|error| Undialed::Failed(format!("{} is not looked up: {error}", place.target)))
    }

    /// A connection to one of a host's addresses that may be named.
    pub(crate) async fn connect(
        &self,
        place: &Place,
        lookup: Option<Lookup>,
    ) -> Result<Box<dyn Connection>, Undialed> {
        let is_free = matches!(self.reach, Reach::Any) || place.bucket.is_some();
        let stream = self.connect_to(&place.target, is_free, lookup).await?;
        if !place.is_tls {
            return Ok(Box::new(Bare(stream)));
        }
        let host = match &place.target.host {
            Host::Address(address) => address.to_string(),
            Host::Name(name) => name.clone(),
        };
        let failed = |error: String| Undialed::Failed(format!("{}: {error}", place.target));
        let client = self.tls().await.map_err(failed)?;
        let stream = client.connect(&host, stream).await.map_err(|error| failed(error.to_string()))?;
        Ok(Box::new(stream))
    }

    /// Whom the machine trusts; it is read once, when it is first needed.
    async fn tls(&self) -> Result<&tls::Client, String> {
        if self.tls.get().is_none() {
            let read = tokio::task::spawn_blocking(tls::Client::of_machine).await;
            let read = read.map_err(|error| error.to_string());
            let read = read.and_then(|client| client.map_err(|error| error.to_string()));
            // Somebody else may have been quicker, and has read the same.
            _ = self.tls.set(read);
        }
        match self.tls.get() {
            Some(Ok(client)) => Ok(client),
            Some(Err(error)) => Err(error.clone()),
            None => Err("TLS is not set up".to_owned()),
        }
    }

    /// `is_free`: the address may be any.
    async fn connect_to(
        &self,
        target: &Target,
        is_free: bool,
        lookup: Option<Lookup>,
    ) -> Result<TcpStream, Undialed> {
        let found = match &target.host {
            Host::Address(address) => vec![SocketAddr::new(*address, target.port)],
            // Not every machine's resolver knows it.
            Host::Name(name) if name == "localhost" && is_free => {
                let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
                loopback.map(|address| SocketAddr::new(address, target.port)).into()
            }
            Host::Name(name) => {
                let not_found = |error: &dyn std::fmt::Display| {
                    Undialed::Failed(format!("{target} is not found: {error}"))
                };
                let lookup = lookup.ok_or_else(|| not_found(&"it may not be looked up"))?;
                let found = self.net.resolve(lookup, name, target.port).await;
                found.map_err(|error| not_found(&error))?
            }
        };
        let mut last = Undialed::Failed(format!("{target} has no address"));
        for address in found {
            // The port is the one that was asked for, whatever the resolver says.
            let address = SocketAddr::new(address.ip(), target.port);
            if let (false, Err(refused)) = (is_free, self.may(address)) {
                last = Undialed::Refused(refused);
                continue;
            }
            match self.net.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Undialed::Failed(format!("{target} cannot be reached: {error}")),
            }
        }
        Err(last)
    }

    fn may(&self, address: SocketAddr) -> Result<(), String> {
        let Reach::Named(private, setting) = &self.reach else { return Ok(()) };
        if is_public(address.ip()) || private.names(address.ip(), address.port()) {
            return Ok(());
        }
        Err(format!("{address} is a private address; the node's `{setting}` has to name it"))
    }
}

impl Unanswered {
    fn told(self, place: &Place, patience: Patience) -> Undialed {
        Undialed::Failed(match self {
            Self::Late => format!("{} did not answer in {} s", place.target, patience.head.as_secs_f32()),
            Self::Broken(error) => format!("{}: {error}", place.target),
            Self::Stale => format!("{}: it was kept, and has ended", place.target),
        })
    }
}

impl Answered {
    fn new(response: Response<Incoming>, link: Link, was_sent_before: bool) -> Self {
        let is_whole = response.body().is_end_stream();
        Self { response, link, was_sent_before, is_whole }
    }

    /// What comes next of the body.
    pub(crate) async fn frame(&mut self) -> Option<hyper::Result<Frame<Bytes>>> {
        let frame = self.link.frame(self.response.body_mut()).await;
        self.is_whole = frame.is_none() || self.response.body().is_end_stream();
        frame
    }
}

impl Place {
    pub(crate) fn read(url: &str) -> Result<Self, String> {
        if url.len() > URL_BYTES_MAX {
            return Err(format!("a URL has at most {URL_BYTES_MAX} bytes"));
        }
        let wrong = || "it is no URL like https://example.com/path".to_owned();
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let parts = uri.into_parts();
        let is_tls = match parts.scheme {
            Some(scheme) if scheme == Scheme::HTTPS => true,
            Some(scheme) if scheme == Scheme::HTTP => false,
            _ => return Err("its scheme is neither https nor http".to_owned()),
        };
        let authority = parts.authority.ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err("it has a user or a password".to_owned());
        }
        let usual_port = if is_tls { 443 } else { 80 };
        let target = Target::read(authority.as_str(), Some(usual_port));
        let target = target.ok_or("its host is neither a name nor an address")?;
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
        let path = parts.path_and_query.map_or_else(Uri::default, Uri::from);
        Ok(Self { target, is_tls, authority, path, bucket: None })
    }
}
