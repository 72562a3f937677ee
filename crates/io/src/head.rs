// SPDX-License-Identifier: Apache-2.0
//! The first lines of what a function asks of its proxy: `CONNECT host:port`,
//! or a request of HTTP/1.1 with the whole address in its first line.

use crate::allow::Target;

/// The first lines have so many bytes at most.
pub(crate) const HEAD_BYTES_MAX: usize = 32 << 10;
/// Headers that are meant for the proxy, or for one connection only.
const NOT_PASSED: [&str; 8] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A connection whose bytes are nobody's business.
    Tunnel(Target),
    /// One request; what is told the server instead of what was read.
    Forward { target: Target, head: Vec<u8> },
}

impl Ask {
    pub(crate) fn target(&self) -> &Target {
        match self {
            Self::Tunnel(target) | Self::Forward { target, .. } => target,
        }
    }
}

/// The length of the head that these bytes begin with, if it is whole.
pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a whole head.
///
/// # Errors
/// Why it is none, for people.
pub(crate) fn read(head: &[u8]) -> Result<Ask, &'static str> {
    let text = std::str::from_utf8(head).map_err(|_| "its head is not UTF-8")?;
    let text = text.strip_suffix("\r\n\r\n").ok_or("its head has no end")?;
    let is_plain = |character: char| character == '\t' || !character.is_control();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut words = first.split(' ');
    let (Some(method), Some(asked), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("its first line is not `METHOD address HTTP/1.1`");
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !is_token(method) || !first.chars().all(is_plain) {
        return Err("its first line is not `METHOD address HTTP/1.1`");
    }
    if method == "CONNECT" {
        return Target::read(asked, None).map(Ask::Tunnel).ok_or("CONNECT is followed by host:port");
    }
    let whole = "a proxy is asked for a whole address, like `GET http://example.com/ HTTP/1.1`";
    let rest = strip_scheme(asked).ok_or(whole)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let target = Target::read(authority, Some(80)).ok_or(whole)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut passed = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {}\r\n", host_header(&target));
    for line in lines {
        let (name, _) = line.split_once(':').ok_or("a line of its head is no header")?;
        if !is_token(name) || !line.chars().all(is_plain) {
            return Err("a line of its head is no header");
        }
        if !NOT_PASSED.contains(&name.to_ascii_lowercase().as_str()) {
            passed.push_str(line);
            passed.push_str("\r\n");
        }
    }
    // The server ends the connection, and what follows in it is no second
    // request.
    passed.push_str("Connection: close\r\n\r\n");
    Ok(Ask::Forward { target, head: passed.into_bytes() })
}

fn strip_scheme(address: &str) -> Option<&str> {
    const SCHEME: &str = "http://";
    let (scheme, rest) = address.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(rest)
}

fn host_header(target: &Target) -> String {
    if target.port == 80 { target.host.to_string() } else { target.to_string() }
}

fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn forwarded(head: &str) -> (String, String) {
        match read(head.as_bytes()).unwrap() {
            Ask::Forward { target, head } => (target.to_string(), String::from_utf8(head).unwrap()),
            Ask::Tunnel(_) => unreachable!("it is no tunnel"),
        }
    }

    #[test]
    fn tunnels() {
        let ask = read(b"CONNECT example.com:443 HTTP/1.1\r\nHost: other:1\r\n\r\n").unwrap();
        assert_eq!(ask, Ask::Tunnel(Target::read("example.com:443", None).unwrap()));
    }

    #[test]
    fn requests_are_passed_without_what_is_the_proxys() {
        let (target, head) = forwarded(
            "POST HTTP://Example.com:81/a?b=c HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\n\
             Connection: upgrade\r\nContent-Length: 3\r\nX-Own: 1\r\n\r\n",
        );
        assert_eq!(target, "example.com:81");
        assert_eq!(
            head,
            "POST /a?b=c HTTP/1.1\r\nHost: example.com:81\r\nContent-Length: 3\r\nX-Own: 1\r\n\
             Connection: close\r\n\r\n"
        );
        assert!(
            forwarded("GET http://a.b HTTP/1.0\r\n\r\n").1.starts_with("GET / HTTP/1.1\r\nHost: a.b\r\n")
        );
        assert!(forwarded("GET http://a.b?x HTTP/1.1\r\n\r\n").1.starts_with("GET /?x HTTP/1.1\r\n"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for head in [
            "\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.b/ HTTP/1.1\r\n\r\n",
            "GET ftp://a.b/ HTTP/1.1\r\n\r\n",
            "GET http://user@a.b/ HTTP/1.1\r\n\r\n",
            "GET http://a.b/ HTTP/2\r\n\r\n",
            "GET  http://a.b/ HTTP/1.1\r\n\r\n",
            "GET http://a.b/\0 HTTP/1.1\r\n\r\n",
            "GET http://a.b/\nX HTTP/1.1\r\n\r\n",
            "G(T http://a.b/ HTTP/1.1\r\n\r\n",
            "CONNECT a.b HTTP/1.1\r\n\r\n",
            "CONNECT http://a.b:80 HTTP/1.1\r\n\r\n",
            "GET http://a.b/ HTTP/1.1\r\nno header\r\n\r\n",
            "GET http://a.b/ HTTP/1.1\r\n folded: x\r\n\r\n",
            "GET http://a.b/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
            "GET http://a.b/ HTTP/1.1\r\nA: b\rHost: c\r\n\r\n",
            "GET http://a.b/ HTTP/1.1\r\nA : b\r\n\r\n",
            "GET http://a.b/ HTTP/1.1\r\n",
        ] {
            assert!(read(head.as_bytes()).is_err(), "{head:?}");
        }
        assert!(read(b"GET http://a.b/\xff HTTP/1.1\r\n\r\n").is_err());
    }
}
