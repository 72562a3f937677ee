// SPDX-License-Identifier: Apache-2.0
//! Requests of programs to the runtime API, as they come: HTTP/1.1.

use crate::chunks::{Broken, Chunks};

/// Bytes of a request's line and headers, and of trailers.
const HEAD_MAX: usize = 64 << 10;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) method: String,
    /// Without a query.
    pub(super) path: String,
    /// With trailers; names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// The connection ends with it.
    pub(super) closes: bool,
}

/// What has come and is not yet a request.
#[derive(Debug, Default)]
pub(super) struct Reading {
    bytes: Vec<u8>,
    begun: Option<Begun>,
}

/// A request whose head is whole.
#[derive(Debug)]
struct Begun {
    asked: Asked,
    length: Length,
    /// It waits to be told to send its body.
    waits: bool,
}

#[derive(Debug)]
enum Length {
    Counted(usize),
    Chunked(Chunks),
}

/// A status, and why.
type Refused = (u16, &'static str);

impl Reading {
    /// More of it.
    pub(super) fn take(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Whether more has come than a head.
    pub(super) fn is_long(&self) -> bool {
        self.bytes.len() > HEAD_MAX
    }

    /// Whether the client waits to be told to go on; it is told once.
    pub(super) fn waits_to_go_on(&mut self) -> bool {
        self.begun.as_mut().is_some_and(|begun| std::mem::take(&mut begun.waits))
    }

    /// The next request, if it is there; its body may have so many bytes.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<Asked>, Refused> {
        if self.begun.is_none() {
            let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                return too_long(self.bytes.len());
            };
            let begun = head(&self.bytes[..end])?;
            self.bytes.drain(..end + 4);
            self.begun = Some(begun);
        }
        let is_whole = match self.begun.as_mut() {
            Some(begun) => begun.take(&mut self.bytes, most)?,
            None => false,
        };
        Ok(self.begun.take_if(|_| is_whole).map(|begun| begun.asked))
    }
}

impl Begun {
    /// Takes what is there of its body; whether that is all of it.
    fn take(&mut self, bytes: &mut Vec<u8>, most: usize) -> Result<bool, Refused> {
        const TOO_LONG: Refused = (413, "the response is longer than a result may be");
        self.waits &= bytes.is_empty();
        match &mut self.length {
            Length::Counted(len) if *len > most => Err(TOO_LONG),
            Length::Counted(len) if bytes.len() < *len => Ok(false),
            Length::Counted(len) => {
                let rest = bytes.split_off(*len);
                self.asked.body = std::mem::replace(bytes, rest);
                Ok(true)
            }
            Length::Chunked(chunks) => {
                let body = &mut self.asked.body;
                let room = most.saturating_sub(body.len());
                let used = chunks.take(bytes, body, room).map_err(|broken| match broken {
                    Broken::TooLong => TOO_LONG,
                    Broken::NoLength | Broken::NoEnd => (400, "a chunk is none"),
                })?;
                bytes.drain(..used);
                if *chunks != Chunks::Over {
                    return Ok(false);
                }
                if bytes.starts_with(b"\r\n") {
                    bytes.drain(..2);
                    return Ok(true);
                }
                let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return too_long(bytes.len()).map(|_| false);
                };
                let trailers = String::from_utf8_lossy(&bytes[..end]).into_owned();
                self.asked.headers.extend(trailers.split("\r\n").filter_map(field));
                bytes.drain(..end + 4);
                Ok(true)
            }
        }
    }
}

fn too_long(len: usize) -> Result<Option<Asked>, Refused> {
    if len > HEAD_MAX { Err((431, "the head is too long")) } else { Ok(None) }
}

fn field(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

fn head(bytes: &[u8]) -> Result<Begun, Refused> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = first[..] else {
        return Err((400, "this is no request by HTTP/1.1"));
    };
    let headers: Vec<(String, String)> = lines.filter_map(field).collect();
    let text = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map_or(String::new(), |(_, value)| value.to_ascii_lowercase())
    };
    let counted = text("content-length");
    let length = match (text("transfer-encoding").as_str(), counted.as_str()) {
        ("chunked", "") => Length::Chunked(Chunks::default()),
        ("", "") => Length::Counted(0),
        ("", counted) if counted.bytes().all(|byte| byte.is_ascii_digit()) => Length::Counted(
            counted.parse().map_err(|_| (413, "the response is longer than a result may be"))?,
        ),
        _ => return Err((400, "where the body ends is not said, or twice")),
    };
    let asked = Asked {
        method: method.to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        closes: text("connection") == "close" || version == "HTTP/1.0",
        body: Vec::new(),
        headers: headers.clone(),
    };
    Ok(Begun { asked, length, waits: text("expect") == "100-continue" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that come in pieces of so many bytes.
    fn read(whole: &[u8], step: usize) -> Result<Vec<Asked>, Refused> {
        let (mut reading, mut all) = (Reading::default(), Vec::new());
        for piece in whole.chunks(step) {
            reading.take(piece);
            while let Some(asked) = reading.next(100)? {
                all.push(asked);
            }
        }
        assert!(reading.bytes.is_empty(), "{:?}", String::from_utf8_lossy(&reading.bytes));
        Ok(all)
    }

    #[test]
    fn requests_follow_each_other_however_they_come() {
        let whole = b"GET /next?x HTTP/1.1\r\nHost: a\r\n\r\n\
            POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi\
            POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nho\r\n0\r\n\r\n\
            POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\nX-Late: yes\r\n\r\n";
        for step in 1..whole.len() {
            let all = read(whole, step).unwrap();
            let told: Vec<_> =
                all.iter().map(|asked| (asked.path.as_str(), asked.body.as_slice(), asked.closes)).collect();
            let bodies = [&b""[..], b"hi", b"ho", b"x"];
            let expected: Vec<_> = ["/next", "/a", "/b", "/c"].into_iter().zip(bodies).collect();
            let expected: Vec<_> =
                expected.into_iter().map(|(path, body)| (path, body, path == "/c")).collect();
            assert_eq!(told, expected, "{step}");
            assert!(all[3].headers.contains(&("x-late".to_owned(), "yes".to_owned())), "trailers count");
        }
    }

    #[test]
    fn who_waits_to_be_told_to_go_on_is_told_once() {
        let mut reading = Reading::default();
        reading.take(b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
        assert_eq!(reading.next(9), Ok(None));
        assert!(reading.waits_to_go_on() && !reading.waits_to_go_on());
        reading.take(b"hi");
        assert_eq!(reading.next(9).unwrap().unwrap().body, b"hi");
        reading.take(b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nh");
        assert_eq!(reading.next(9), Ok(None));
        assert!(!reading.waits_to_go_on(), "it did not wait");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD_MAX));
        let trailers =
            format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n{}", "x".repeat(HEAD_MAX + 1));
        for (text, status) in [
            ("GET /\r\n\r\n", 400),
            ("GET / HTTP/2\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\ncontent-length: 101\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", 400),
            ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n65\r\n", 413),
            (&long, 431),
            (&trailers, 431),
        ] {
            let mut reading = Reading::default();
            reading.take(text.as_bytes());
            assert_eq!(reading.next(100).unwrap_err().0, status, "{text:.80}");
        }
    }
}
