// SPDX-License-Identifier: Apache-2.0
//! Who may knock: checks of `Host` and `Origin` on TCP listeners.
//!
//! A web page can make a browser send requests to `localhost`, and with DNS
//! rebinding even read the answers under the page's own host name. So a TCP
//! listener answers only to names that are its own, and only to pages that it
//! served itself or that the operator named. A unix socket needs no check:
//! its permissions are one.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::http::header::{CONNECTION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};

use crate::problem::Problem;
use crate::text::shortened;

/// What a listener demands of a request before anything else is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// Nothing: the listener's own permissions decide (a unix socket).
    Private,
    /// What no request has: the listener speaks TLS, and this client does not.
    /// What it has sent could be read on the way; it is not acted upon.
    NeedsTls,
    /// A `Host` that is a loopback name or listed, and no `Origin` but the
    /// same host's or a listed one.
    Checked {
        /// Names without port, besides the loopback's, in lower case.
        hosts: Vec<String>,
        /// Origins like `https://example.org`, besides the listener's own.
        origins: Vec<String>,
    },
}

impl Door {
    /// For a TCP listener on the loopback interface.
    pub fn loopback() -> Self {
        Self::Checked { hosts: Vec::new(), origins: Vec::new() }
    }

    /// The same for what belongs to a function by its host name, behind which there is nothing of the node's own. One
    /// that is public says itself which pages may ask it; the others may be asked by their own.
    pub(crate) fn check_home(&self, uri: &Uri, headers: &HeaderMap, is_public: bool) -> Result<(), Problem> {
        match self {
            Self::NeedsTls => Err(needs_tls()),
            Self::Checked { origins, .. } if !is_public => {
                let (host, _) = requested_host(uri, headers)?;
                same_origin(headers, &host, origins)
            }
            Self::Private | Self::Checked { .. } => Ok(()),
        }
    }

    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let (hosts, origins) = match self {
            Self::Private => return Ok(()),
            Self::NeedsTls => return Err(needs_tls()),
            Self::Checked { hosts, origins } => (hosts, origins),
        };
        let (host, name) = requested_host(uri, headers)?;
        if !is_loopback(&name) && !hosts.iter().any(|known| *known == name) {
            let detail = format!("this node does not answer to the host name {:?}", shortened(&name));
            return Err(refuse("host-not-allowed", detail)
                .suggest("use localhost or 127.0.0.1, or add the name to the node's configuration"));
        }
        same_origin(headers, &host, origins)
    }
}

/// Whether a page that asks, if one does, is of this host, or of one of these origins.
fn same_origin(headers: &HeaderMap, host: &str, origins: &[String]) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or("");
    let same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    if same || origins.iter().any(|allowed| allowed == origin) {
        return Ok(());
    }
    let detail = format!("pages of the origin {:?} may not ask here", shortened(origin));
    Err(refuse("origin-not-allowed", detail)
        .suggest("a function with `public = true`, at a host of its own, may be asked by any page"))
}

fn needs_tls() -> Problem {
    let detail = "this port speaks TLS, and the request came without";
    Problem::new(StatusCode::BAD_REQUEST, "needs-tls", "The address begins with https", "gateway", detail)
        .suggest("use https:// in the address; if a key was sent, others may have read it: revoke it")
        .header(CONNECTION, HeaderValue::from_static("close"))
}

fn refuse(kind: &str, detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, kind, "The request may not come in by this door", "gateway", detail)
}

/// The host that the client believes to talk to, and its name without port in
/// lower case. The request line's has precedence over the header (RFC 9112,
/// 3.2.2).
pub(crate) fn requested_host<'a>(
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> Result<(Cow<'a, str>, Cow<'a, str>), Problem> {
    if let Some(authority) = uri.authority() {
        return Ok((authority.as_str().into(), in_lower_case(authority.host())));
    }
    let mut values = headers.get_all(HOST).iter();
    let (Some(host), None) = (values.next(), values.next()) else {
        return Err(Problem::bad_request("bad-host", "a request names one Host"));
    };
    let no_host = || Problem::bad_request("bad-host", "the Host header is no host name");
    let text = host.to_str().map_err(|_| no_host())?;
    // Nearly all of them; to parse one takes a copy.
    if let Some(name) = plain_name(text) {
        return Ok((text.into(), in_lower_case(name)));
    }
    let parsed: Authority = text.parse().map_err(|_| no_host())?;
    Ok((parsed.as_str().to_owned().into(), parsed.host().to_ascii_lowercase().into()))
}

/// The name in `name` or `name:port`, if neither has anything that must be
/// looked at more closely.
fn plain_name(host: &str) -> Option<&str> {
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    (is_name && port.parse::<u16>().is_ok() && !port.starts_with('+')).then_some(name)
}

fn in_lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    match address.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests;
