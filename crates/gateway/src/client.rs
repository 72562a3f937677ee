// SPDX-License-Identifier: Apache-2.0
//! Who asks, as functions are told: an address, and whether TLS was spoken.
//!
//! Whoever is at the other end of a connection may be a proxy, which says in
//! `X-Forwarded-For` and `X-Forwarded-Proto` for whom it asks. Anybody can say
//! so; it counts, and functions see it, only where the proxy's address is one
//! of those that the node trusts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// What says for whom a proxy asks. Whose word does not count is not passed on either: frameworks can be told to believe it.
const SAID_BY_PROXIES: [HeaderName; 6] = [
    FORWARDED_FOR,
    FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("forwarded"),
];
/// Proxies that one request may have passed.
const HOPS_MAX: usize = 32;

/// Who is at the other end of a connection; listeners put it into the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address; `None` on a socket of the machine's own, whose clients are trusted.
    pub address: Option<IpAddr>,
    /// Whether TLS is spoken.
    pub is_secure: bool,
}

/// Whose word for whom they ask counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl Default for TrustedProxies {
    /// Those on the node's own machine.
    fn default() -> Self {
        Self(vec![
            Network { base: Ipv4Addr::new(127, 0, 0, 0).into(), bits: 8 },
            Network { base: Ipv6Addr::LOCALHOST.into(), bits: 128 },
        ])
    }
}

impl TrustedProxies {
    /// Those of the node's own machine, and these.
    pub fn and(networks: impl IntoIterator<Item = Network>) -> Self {
        let mut all = Self::default();
        all.0.extend(networks);
        all
    }

    fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(address))
    }
}

/// Addresses that begin alike: `10.0.0.0/8`, `fd00::/8`, or one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u32,
}

impl Network {
    fn has(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let differing = u32::from(base) ^ u32::from(address);
                differing.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let differing = u128::from(base) ^ u128::from(address);
                differing.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no network; write 10.0.0.0/8, fd00::/8, or an address");
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| bad()))?;
        match (base, base.to_canonical()) {
            _ if bits > most => Err(bad()),
            // A part of the older addresses, as they are written among the newer ones.
            (IpAddr::V6(_), older @ IpAddr::V4(_)) if bits >= 96 => Ok(Self { base: older, bits: bits - 96 }),
            (IpAddr::V6(_), IpAddr::V4(_)) => Err(bad()),
            _ => Ok(Self { base, bits }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

/// Whether a request has come by a proxy, as far as it says so itself: its client is not on this machine, or need not be.
pub(crate) fn is_passed_on(headers: &HeaderMap) -> bool {
    SAID_BY_PROXIES.iter().any(|name| headers.contains_key(name))
}

/// Who asks; nobody by a network, unless something is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) address: Option<IpAddr>,
    pub(crate) is_secure: bool,
}

impl Client {
    /// Who asks by this peer. Takes from the headers what does not count.
    pub(crate) fn of(peer: Option<Peer>, headers: &mut HeaderMap, trusted: &TrustedProxies) -> Self {
        let Some(Peer { address, is_secure }) = peer else { return Self::default() };
        let address = address.map(|address| address.to_canonical());
        if address.is_some_and(|address| !trusted.trust(address)) {
            SAID_BY_PROXIES.iter().for_each(|name| _ = headers.remove(name));
            return Self { address, is_secure };
        }
        Self {
            address: forwarded_for(address, headers, trusted),
            is_secure: is_secure || words(headers, &FORWARDED_PROTO).next() == Some(b"https"),
        }
    }
}

/// The first address, from the node's side, of whom nobody knows whether to trust it; if all are trusted, the last one.
/// `None` where the nearest proxy names nobody that can be read: then it is not the proxy itself.
fn forwarded_for(peer: Option<IpAddr>, headers: &HeaderMap, trusted: &TrustedProxies) -> Option<IpAddr> {
    let mut client = peer;
    for (at, word) in words(headers, &FORWARDED_FOR).take(HOPS_MAX).enumerate() {
        // What is no address says nothing of those before it.
        let Some(address) = std::str::from_utf8(word).ok().and_then(address_of) else {
            return if at == 0 { None } else { client };
        };
        client = Some(address);
        if !trusted.trust(address) {
            break;
        }
    }
    client
}

/// What proxies have said, the nearest first. Each adds its own to what it was sent, which may be any bytes.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
    let words = values.into_iter().rev().flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

/// An address as proxies write it: some with a port, and with brackets then.
fn address_of(word: &str) -> Option<IpAddr> {
    let plain = || word.parse::<IpAddr>().ok();
    let with_port = || word.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || word.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    plain().or_else(with_port).or_else(in_brackets).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests;
