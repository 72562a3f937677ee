// SPDX-License-Identifier: Apache-2.0
//! Lists of hosts that a function may reach: `example.com`, `*.example.com`,
//! `10.0.0.5` and `[2001:db8::1]`, each with `:443`, `:*` for all ports, or
//! nothing for 80 and 443.

use std::fmt;
use std::net::IpAddr;

/// Entries of one list, at most.
const ENTRIES_MAX: usize = 64;
/// No name in the domain name system is longer.
const NAME_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;
/// Where no port is said.
const PORTS_USUAL: [u16; 2] = [80, 443];

/// What a function may reach; by default nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowList(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    host: Pattern,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// One name.
    Name(String),
    /// All names that end with a point and this.
    Below(String),
    /// One address, be it private.
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    Usual,
    One(u16),
    All,
}

impl Ports {
    fn has(self, port: u16) -> bool {
        match self {
            Self::Usual => PORTS_USUAL.contains(&port),
            Self::One(one) => one == port,
            Self::All => true,
        }
    }
}

/// An entry that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` is no host that can be allowed: {why}")]
pub struct Unreadable {
    /// As it was written.
    pub entry: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl AllowList {
    /// Reads entries.
    ///
    /// # Errors
    /// The first that is none.
    pub fn read<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Unreadable> {
        let mut list = Vec::new();
        for entry in entries {
            let wrong = |why| Unreadable { entry: entry.chars().take(80).collect(), why };
            list.push(Entry::read(entry).map_err(wrong)?);
            if list.len() > ENTRIES_MAX {
                return Err(wrong("a function has at most 64 of them"));
            }
        }
        Ok(Self(list))
    }

    /// Reads entries that are addresses: a name can come to stand for any.
    ///
    /// # Errors
    /// The first that is none.
    pub fn of_addresses<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Unreadable> {
        let entries: Vec<&str> = entries.into_iter().collect();
        let list = Self::read(entries.iter().copied())?;
        let names = |(entry, _): &(&Entry, &&str)| !matches!(entry.host, Pattern::Address(_));
        match list.0.iter().zip(&entries).find(names) {
            Some((_, entry)) => {
                Err(Unreadable { entry: (*entry).to_owned(), why: "write the address, not a name" })
            }
            None => Ok(list),
        }
    }

    /// Whether nothing may be reached.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a host may be asked for.
    pub(crate) fn has(&self, target: &Target) -> bool {
        self.0.iter().any(|entry| entry.ports.has(target.port) && entry.host.is(&target.host))
    }

    /// Whether this very address is in the list; it may be a private one then.
    pub(crate) fn names(&self, address: IpAddr, port: u16) -> bool {
        self.0.iter().any(|entry| entry.ports.has(port) && entry.host == Pattern::Address(address))
    }
}

impl Entry {
    fn read(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse() {
            return Ok(Self { host: Pattern::Address(address), ports: Ports::Usual });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let ports = match port {
            None => Ports::Usual,
            Some("*") => Ports::All,
            Some(port) => Ports::One(read_port(port).ok_or("its port is no number from 1 to 65535, nor *")?),
        };
        let host = match host.strip_prefix("*.") {
            Some(suffix) => Pattern::Below(read_name(suffix)?),
            None => match read_address(host) {
                Some(address) => Pattern::Address(address),
                None => Pattern::Name(read_name(host)?),
            },
        };
        Ok(Self { host, ports })
    }
}

impl Pattern {
    fn is(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Name(name), Host::Name(asked)) => name == asked,
            (Self::Below(suffix), Host::Name(asked)) => {
                asked.strip_suffix(suffix).is_some_and(|before| before.len() > 1 && before.ends_with('.'))
            }
            (Self::Address(address), Host::Address(asked)) => address == asked,
            _ => false,
        }
    }
}

/// Whom a function asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// In small letters, without a point at its end.
    Name(String),
    Address(IpAddr),
}

impl Target {
    /// Reads `host:port`, or `host` where a port is understood.
    pub(crate) fn read(authority: &str, usual_port: Option<u16>) -> Option<Self> {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, read_port(port)?),
            _ => (authority, usual_port?),
        };
        let host = match read_address(host) {
            Some(address) => Host::Address(address),
            None => Host::Name(read_name(host).ok()?),
        };
        Some(Self { host, port })
    }

    /// What would have to be in the list.
    pub(crate) fn entry(&self) -> String {
        if PORTS_USUAL.contains(&self.port) { self.host.to_string() } else { self.to_string() }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

fn read_port(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

/// An address as an authority has it: of version 6 in brackets.
fn read_address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// A name of the domain name system. One whose last part is a number is none:
/// resolvers take it for an address in a form of old.
fn read_name(host: &str) -> Result<String, &'static str> {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=LABEL_CHARS_MAX).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > NAME_CHARS_MAX || !name.split('.').all(is_label) {
        return Err(
            "write a name like example.com or *.example.com, or an address; without a scheme or path",
        );
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
        return Err("it looks like an address, but is not written as one");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn may(entries: &[&str], target: &str) -> bool {
        let list = AllowList::read(entries.iter().copied()).unwrap();
        list.has(&Target::read(target, None).unwrap())
    }

    #[test]
    fn names_match_whole_and_with_their_ports() {
        assert!(may(&["example.com"], "example.com:443"));
        assert!(may(&["example.com"], "EXAMPLE.com.:80"));
        assert!(!may(&["example.com"], "example.com:8080"));
        assert!(!may(&["example.com"], "example.com:22"));
        assert!(may(&["example.com:8080"], "example.com:8080"));
        assert!(!may(&["example.com:8080"], "example.com:443"));
        assert!(may(&["example.com:*"], "example.com:25"));
        for other in ["www.example.com", "example.com.evil.net", "notexample.com", "example.co", "com"] {
            assert!(!may(&["example.com"], &format!("{other}:443")), "{other}");
        }
        assert!(!may(&[], "example.com:443"));
    }

    #[test]
    fn a_star_stands_for_what_is_below() {
        assert!(may(&["*.example.com"], "a.example.com:443"));
        assert!(may(&["*.example.com:9"], "a.b.example.com:9"));
        for other in ["example.com", "aexample.com", "a.example.com.evil.net", "example.com.a"] {
            assert!(!may(&["*.example.com"], &format!("{other}:443")), "{other}");
        }
    }

    #[test]
    fn addresses_match_addresses_only() {
        assert!(may(&["10.0.0.5:5432"], "10.0.0.5:5432"));
        assert!(!may(&["10.0.0.5:5432"], "10.0.0.5:5433"));
        assert!(may(&["[2001:db8::1]:80"], "[2001:DB8:0::1]:80"));
        assert!(may(&["2001:db8::1"], "[2001:db8::1]:443"));
        assert!(!may(&["10.0.0.5"], "10.0.0.6:80"));
        let list = AllowList::read(["10.0.0.5", "internal.example"]).unwrap();
        assert!(list.names("10.0.0.5".parse().unwrap(), 443));
        assert!(!list.names("10.0.0.5".parse().unwrap(), 22));
        assert!(!list.names("10.0.0.6".parse().unwrap(), 443));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        let long = format!("{}.com", "a".repeat(64));
        for entry in [
            "",
            "*",
            "*.",
            "https://example.com",
            "example.com/path",
            "a b",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:+80",
            "example.com:http",
            "user@example.com",
            "-a.com",
            "a..b",
            "*.*.com",
            "a.*.com",
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "[::1",
            "::1]",
            "[127.0.0.1]",
            "exa\0mple.com",
            "exämple.com",
            &long,
        ] {
            let read = AllowList::read([entry]);
            assert!(read.is_err(), "{entry}: {read:?}");
        }
        assert!(AllowList::read(vec!["a.example"; 65]).is_err());
    }

    #[test]
    fn targets_are_read_strictly() {
        for target in
            ["", ":80", "a.b", "a.b:", "a.b:x", "a b:80", "u@a.b:80", "a.b:80:90", "[::1]", "127.1:80"]
        {
            assert_eq!(Target::read(target, None), None, "{target}");
        }
        assert_eq!(Target::read("a.b", Some(80)).unwrap().to_string(), "a.b:80");
        assert_eq!(Target::read("[::1]", Some(80)).unwrap().to_string(), "[::1]:80");
        assert_eq!(Target::read("a.b:443", None).unwrap().entry(), "a.b");
        assert_eq!(Target::read("a.b:5432", None).unwrap().entry(), "a.b:5432");
    }
}
