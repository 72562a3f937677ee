// SPDX-License-Identifier: Apache-2.0
//! What the program's server answers: HTTP/1.1, as it comes.

use crate::chunks::{Broken, Chunks};
use crate::flow::Flow;
use crate::frame::{PIECE_MAX, STREAM_WINDOW};
use crate::head::result;
use crate::http::OURS;
use crate::program::Failed;
use crate::wire::Channel;

/// Bytes of an answer's status line and headers.
const HEAD_MAX: usize = 64 << 10;
/// The answer is none, but the failure of the call: of this kind, with its text as the body.
const RAISED: &str = "sinew-raised";

/// Status and headers, without those about the connection.
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    length: Length,
    /// The connection ends with it.
    is_last: bool,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Counted(usize),
    Chunked,
    ToTheEnd,
    /// Nothing is said of it.
    None,
}

/// An answer as it comes.
pub(crate) struct Reading {
    /// The head until it is whole, then what is not yet read of the body.
    bytes: Vec<u8>,
    is_head_only: bool,
    body_max: usize,
    head: Option<Head>,
    chunks: Chunks,
    /// What has come of the body, and was not sent.
    body: Vec<u8>,
    /// Bytes of the body that were sent.
    sent: usize,
    /// More has come than belongs to it.
    has_more: bool,
    pub(crate) is_whole: bool,
}

impl Reading {
    pub(crate) fn new(is_head_only: bool, body_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            is_head_only,
            body_max,
            head: None,
            chunks: Chunks::default(),
            body: Vec::new(),
            sent: 0,
            has_more: false,
            is_whole: false,
        }
    }

    /// Some more of it.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), String> {
        self.bytes.extend(piece);
        while self.head.is_none() {
            let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                if self.bytes.len() > HEAD_MAX {
                    return Err(format!("the head of the program's answer has over {HEAD_MAX} bytes"));
                }
                return Ok(());
            };
            let mut head = parse(&self.bytes[..end])?;
            self.bytes.drain(..end + 4);
            // What is informational is not the answer.
            if head.status >= 200 {
                if self.is_head_only || matches!(head.status, 204 | 304) {
                    // Some servers send a body where there is to be none.
                    head.is_last |=
                        self.is_head_only || !matches!(head.length, Length::None | Length::Counted(0));
                    head.length = Length::Counted(0);
                } else if head.length == Length::None {
                    head.length = Length::ToTheEnd;
                }
                self.head = Some(head);
            }
        }
        self.take_body()
    }

    fn take_body(&mut self) -> Result<(), String> {
        let Some(Head { length, .. }) = self.head else { return Ok(()) };
        match length {
            Length::Chunked => self.take_chunks()?,
            Length::Counted(_) | Length::ToTheEnd | Length::None => self.body.append(&mut self.bytes),
        }
        if let Length::Counted(len) = length {
            self.fits(len)?;
            let come = self.sent + self.body.len();
            (self.is_whole, self.has_more) = (come >= len, come > len);
            self.body.truncate(len.saturating_sub(self.sent));
        }
        self.fits(self.sent + self.body.len())
    }

    fn take_chunks(&mut self) -> Result<(), String> {
        let room = self.body_max.saturating_sub(self.sent + self.body.len());
        let used = self.chunks.take(&self.bytes, &mut self.body, room).map_err(|broken| match broken {
            Broken::NoEnd => "a chunk of the program's answer has no end".to_owned(),
            Broken::NoLength => "a chunk of the program's answer has no length".to_owned(),
            Broken::TooLong => format!("the program's answer has more than {} bytes", self.body_max),
        })?;
        // Trailers say nothing that is passed on.
        self.is_whole = self.chunks == Chunks::Over;
        self.bytes.drain(..used);
        Ok(())
    }

    fn fits(&self, len: usize) -> Result<(), String> {
        match len > self.body_max {
            true => Err(format!("the program's answer has more than {} bytes", self.body_max)),
            false => Ok(()),
        }
    }

    /// Whether nothing has come of it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.head.is_none() && self.bytes.is_empty()
    }

    /// Whether the connection is as it was before the request: the next one may be sent on it.
    pub(crate) fn leaves_it_open(&self) -> bool {
        let Some(head) = &self.head else { return false };
        // A last chunk ends with an empty line, where no trailers come.
        let is_over = match head.length {
            Length::Counted(_) => !self.has_more && self.bytes.is_empty(),
            Length::Chunked => self.bytes == b"\r\n",
            Length::ToTheEnd | Length::None => false,
        };
        self.is_whole && is_over && !head.is_last
    }

    /// Whether nothing is left of what has come.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.body.is_empty()
    }

    /// Whether what is there has to be sent before more is read.
    pub(crate) fn is_full(&self) -> bool {
        self.body.len() > STREAM_WINDOW
    }

    /// Whether it is sent in pieces: it is long, or nobody can say how much of it is to
    /// be waited for.
    fn is_sent_in_pieces(&self) -> bool {
        match &self.head {
            Some(Head { length: Length::Counted(len), .. }) => *len > STREAM_WINDOW,
            Some(_) => !self.is_whole || self.is_full(),
            None => false,
        }
    }

    /// Sends what is there of it, if it is sent in pieces.
    pub(crate) fn send(&mut self, flow: &mut Flow, channel: &mut Channel) -> Result<(), Failed> {
        if !flow.is_in_pieces() {
            let Some(head) = self.head.as_ref().filter(|_| self.is_sent_in_pieces()) else { return Ok(()) };
            let begins = result(head.status, &head.headers, &[]);
            if begins.len() > PIECE_MAX {
                let why =
                    format!("the headers have {} bytes; a stream's have at most {PIECE_MAX}", begins.len());
                return Err(Failed::Result(why));
            }
            flow.begin_pieces();
            flow.send_pieces(&begins, channel)?;
        }
        let sent = flow.send_pieces(&self.body, channel)?;
        self.body.drain(..sent);
        self.sent += sent;
        Ok(())
    }

    /// The connection was closed.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        match &self.head {
            Some(Head { length: Length::ToTheEnd, .. }) => {
                self.is_whole = true;
                Ok(())
            }
            _ => Err("the program's answer ends before its end".to_owned()),
        }
    }

    /// What is left of the result, for the end of the call.
    pub(crate) fn result(self, flow: &Flow, most: usize) -> Result<Vec<u8>, Failed> {
        if flow.is_in_pieces() {
            return Ok(Vec::new());
        }
        let raised = self.head.as_ref().and_then(|head| head.headers.iter().find(|(name, _)| name == RAISED));
        if let Some((_, kind)) = raised {
            return Err(Failed::raised(kind, &self.body));
        }
        if self.body.len() > most {
            return Err(Failed::Result(format!("the program's answer has more than {most} bytes")));
        }
        self.whole().map_err(Failed::Result)
    }

    /// All of it, of which nothing was sent.
    pub(crate) fn whole(self) -> Result<Vec<u8>, String> {
        let head = self.head.ok_or("the program's answer has no head")?;
        Ok(result(head.status, &head.headers, &self.body))
    }
}

fn parse(head: &[u8]) -> Result<Head, String> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status =
        first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    let status =
        status.ok_or_else(|| format!("the program does not answer with HTTP/1.1 but {first:.80?}"))?;
    let mut length = Length::None;
    let mut is_last = !first.starts_with("HTTP/1.1");
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("{line:.80?} is no header of the program's answer"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "connection" => is_last |= !value.eq_ignore_ascii_case("keep-alive"),
            // Of who says both, nobody knows where an answer ends.
            "transfer-encoding" => {
                is_last |= length != Length::None;
                length = Length::Chunked;
            }
            "content-length" if length == Length::Chunked => is_last = true,
            "content-length" => {
                let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let counted = value.parse().ok().filter(|_| is_number);
                let counted = counted.ok_or_else(|| format!("{value:.80?} is no length of an answer"))?;
                is_last |= !matches!(length, Length::None) && length != Length::Counted(counted);
                length = Length::Counted(counted);
            }
            _ => {}
        }
        if !OURS.contains(&name.as_str()) {
            headers.push((name, value.to_owned()));
        }
    }
    Ok(Head { status, headers, length, is_last })
}
