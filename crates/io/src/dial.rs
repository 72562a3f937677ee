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

use hyper::header::HeaderValue;
use hyper::http::Uri;
use hyper::http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::address::is_public;
use crate::allow::{AllowList, Host, Target};
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

/// A connection without TLS that serves one request. It is not shut down before it is
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
        Self { net: Lookups::new(net, LOOKUPS_MAX), reach, tls: OnceLock::new() }
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
