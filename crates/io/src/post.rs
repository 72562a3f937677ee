// SPDX-License-Identifier: Apache-2.0
//! One request to a URL that somebody else has named: `POST`, over HTTP/1.1,
//! with TLS or without.
//!
//! The node sends it from its own network, where whoever names the URL is not.
//! So the rules of [`egress`](crate::Egress) hold: a name is resolved once, the
//! address that was checked is the one that is connected to, and a private one
//! has to be in the node's list itself. No redirect is followed, and of the
//! answer only its status is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue};
use hyper::http::Uri;
use hyper::http::uri::Scheme;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::address::is_public;
use crate::allow::{AllowList, Host, Target};
use crate::net::{Internet, Net};
use crate::tls;

/// Bytes of a URL.
const URL_BYTES_MAX: usize = 2048;
/// Names that are looked up at once; each holds a thread.
const LOOKUPS_MAX: usize = 16;
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
pub struct Post {
    net: Box<dyn Net>,
    reach: Reach,
    lookups: Semaphore,
    tls: OnceLock<Result<tls::Client, String>>,
}

/// Which addresses may be named.
enum Reach {
    /// Public ones, and of private ones these.
    Named(AllowList),
    /// Any: the owner of the node names them.
    Any,
}

/// A URL that can be one.
struct Place {
    target: Target,
    is_tls: bool,
    authority: HeaderValue,
    path: Uri,
}

impl Post {
    /// From the node's network. Of private addresses those in `private` may be
    /// named; of public ones all.
    pub fn new(private: AllowList) -> Self {
        Self::with_net(private, Internet)
    }

    /// From another network.
    pub fn with_net(private: AllowList, net: impl Net + 'static) -> Self {
        Self::new_with(Reach::Named(private), net)
    }

    /// From the node's network to wherever its owner says.
    pub fn to_anywhere() -> Self {
        Self::new_with(Reach::Any, Internet)
    }

    fn new_with(reach: Reach, net: impl Net + 'static) -> Self {
        Self { net: Box::new(net), reach, lookups: Semaphore::new(LOOKUPS_MAX), tls: OnceLock::new() }
    }

    /// Whether a URL can be one, as far as can be told without asking anybody.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check(&self, url: &str) -> Result<(), String> {
        let place = Place::read(url)?;
        match place.target.host {
            Host::Address(address) => {
                self.may(SocketAddr::new(address, place.target.port)).map_err(|error| error.to_string())
            }
            Host::Name(_) => Ok(()),
        }
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
        let failed = |error: String| PostError::Failed(format!("{}: {error}", place.target));
        let stream = self.connect(&place.target).await?;
        let mut request = Request::post(place.path.clone()).body(Full::new(body));
        if let Ok(request) = &mut request {
            *request.headers_mut() = headers;
            request.headers_mut().insert(HOST, place.authority.clone());
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let request = request.map_err(|error| PostError::Refused(error.to_string()))?;
        if !place.is_tls {
            return exchange(stream, request).await.map_err(|error| failed(error.to_string()));
        }
        let host = match &place.target.host {
            Host::Address(address) => address.to_string(),
            Host::Name(name) => name.clone(),
        };
        let client = self.tls().await.map_err(failed)?;
        let stream = client.connect(&host, stream).await.map_err(|error| failed(error.to_string()))?;
        exchange(stream, request).await.map_err(|error| failed(error.to_string()))
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

    /// A connection to one of a host's addresses that may be named.
    async fn connect(&self, target: &Target) -> Result<TcpStream, PostError> {
        let found = match &target.host {
            Host::Address(address) => vec![SocketAddr::new(*address, target.port)],
            // Not every machine's resolver knows it.
            Host::Name(name) if name == "localhost" && matches!(self.reach, Reach::Any) => {
                let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
                loopback.map(|address| SocketAddr::new(address, target.port)).into()
            }
            Host::Name(name) => {
                let _turn = self.lookups.acquire().await;
                let found = self.net.resolve(name, target.port).await;
                found.map_err(|error| PostError::Failed(format!("{target} is not found: {error}")))?
            }
        };
        let mut last = PostError::Failed(format!("{target} has no address"));
        for address in found {
            // The port is the one that was asked for, whatever the resolver says.
            let address = SocketAddr::new(address.ip(), target.port);
            if let Err(refused) = self.may(address) {
                last = refused;
                continue;
            }
            match self.net.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = PostError::Failed(format!("{target} cannot be reached: {error}")),
            }
        }
        Err(last)
    }

    fn may(&self, address: SocketAddr) -> Result<(), PostError> {
        let is_named = match &self.reach {
            Reach::Named(private) => is_public(address.ip()) || private.names(address.ip(), address.port()),
            Reach::Any => true,
        };
        if is_named {
            return Ok(());
        }
        Err(PostError::Refused(format!(
            "{address} is a private address; the node's `callback_private` has to name it"
        )))
    }
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post").finish_non_exhaustive()
    }
}

impl Place {
    fn read(url: &str) -> Result<Self, String> {
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
        Ok(Self { target, is_tls, authority, path })
    }
}

/// Sends a request on a connection of its own; the status of the answer. It decides,
/// whatever becomes of the body: who has answered is not asked again.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> hyper::Result<u16>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
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
