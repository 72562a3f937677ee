// SPDX-License-Identifier: Apache-2.0
//! One request to a bucket, signed, tried again where that may help.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, RANGE, USER_AGENT};
use hyper::http::Uri;
use hyper::{Method, Request, StatusCode};
use ring::digest::{SHA256, digest};
use tokio::time::{sleep, timeout};

use super::{Inner, MARK, Target};
use crate::dial::{Answered, Patience, Place, Undialed};
use crate::download::{is_passing, retry_after};
use crate::s3;

/// Bytes of an answer's text.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may go better another time; not before so long, if the server says so.
    Heals(String, Option<Duration>),
    /// It does not help to ask again.
    Lasts(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Lasts(why)
    }
}

impl From<Undialed> for Trouble {
    fn from(undialed: Undialed) -> Self {
        match undialed {
            Undialed::Refused(why) => Self::Lasts(why),
            Undialed::Failed(why) => Self::Heals(why, None),
        }
    }
}

/// A request.
#[derive(Clone)]
pub(super) struct Asked {
    method: Method,
    place: Place,
    /// Headers that are signed; their names begin with `x-amz-`.
    signed: Vec<(&'static str, String)>,
    content_type: Option<String>,
    body: Bytes,
    /// The SHA-256 of the body, in hexadecimal digits.
    hash: String,
    /// Which bytes are wanted.
    range: Option<Range<u64>>,
    /// How many of the answer's bytes are wanted, of which none may be missing.
    taken_max: u64,
}

impl Asked {
    pub(super) fn new(method: Method, place: &Place) -> Self {
        let (signed, content_type, body, hash) = (Vec::new(), None, Bytes::new(), s3::hash_of_nothing());
        let (range, taken_max) = (None, 0);
        Self { method, place: place.clone(), signed, content_type, body, hash, range, taken_max }
    }

    /// The same with these parameters, whose names are sorted.
    pub(super) fn at(mut self, query: &str) -> Result<Self, Trouble> {
        let path = format!("{}?{query}", self.place.path.path());
        self.place.path = path.parse::<Uri>().map_err(|_| Trouble::Lasts("it is too long".to_owned()))?;
        Ok(self)
    }

    /// The same, for these bytes.
    pub(super) fn ranged(mut self, range: Range<u64>) -> Self {
        self.taken_max = range.end - range.start;
        self.range = Some(range);
        self
    }

    /// The same, for an answer of so many bytes at most.
    pub(super) fn taking(self, taken_max: u64) -> Self {
        Self { taken_max, ..self }
    }

    /// The same, for it to begin the object.
    pub(super) fn of(mut self, target: &Target) -> Self {
        self.signed.push((MARK, target.mark.clone()));
        self.content_type = Some(target.content_type.clone());
        self
    }

    /// The same with a body. It is hashed where that keeps nobody waiting.
    pub(super) async fn with(mut self, body: Bytes) -> Result<Self, Trouble> {
        let hashed = body.clone();
        let hash = tokio::task::spawn_blocking(move || s3::hex(digest(&SHA256, &hashed).as_ref())).await;
        self.hash = hash.map_err(|error| Trouble::Lasts(error.to_string()))?;
        self.body = body;
        Ok(self)
    }
}

/// What a server says.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) etag: Option<String>,
    pub(super) mark: Option<String>,
    pub(super) len: Option<u64>,
    /// The beginning of its text.
    pub(super) text: String,
    /// What was wanted of its bytes.
    pub(super) bytes: Bytes,
    /// Requests before this one that may have arrived.
    pub(super) tried_before: u32,
}

impl Inner {
    /// The answer to a request, whatever it says, unless it may be another one later.
    pub(super) async fn ask(&self, asked: &Asked) -> Result<Answer, Trouble> {
        let mut tried_before = 0;
        loop {
            let trouble = match self.exchange(asked).await {
                Ok(answer) if !is_passing(answer.status) && !is_error_of_passing_kind(&answer) => {
                    return Ok(Answer { tried_before: tried_before + answer.tried_before, ..answer });
                }
                Ok(answer) => {
                    let why = format!("it answers {}", answer.status);
                    Trouble::Heals(
                        s3::reason(&answer.text).map_or(why, |reason| format!("it answers {reason}")),
                        None,
                    )
                }
                Err(trouble) => trouble,
            };
            let Trouble::Heals(why, pause) = trouble else { return Err(trouble) };
            tried_before += 1;
            if tried_before == self.options.attempts_max {
                return Err(Trouble::Heals(format!("{why}; given up after {tried_before} attempts"), None));
            }
            let doubled = self.options.pause.saturating_mul(1 << tried_before.saturating_sub(1).min(16));
            sleep(pause.unwrap_or(doubled).min(self.options.pause_max)).await;
        }
    }

    async fn exchange(&self, asked: &Asked) -> Result<Answer, Trouble> {
        let _turn = self.turns.acquire().await.map_err(|error| Trouble::Lasts(error.to_string()))?;
        let (options, place) = (&self.options, &asked.place);
        let moved = asked.body.len() as u64 + asked.taken_max;
        let sending = Duration::from_secs(moved / options.rate_min.max(1));
        let limit = options.answer_timeout + sending;
        let patience = Patience { connect: options.connect_timeout, head: limit };
        let mut answered = self.dialer.ask(place, request(asked)?, patience).await?;
        let late =
            |_| Trouble::Heals(format!("{} did not answer in {} s", place.target, limit.as_secs_f32()), None);
        let mut answer = timeout(limit, read(&mut answered, asked.taken_max)).await.map_err(late)?;
        answer.tried_before = u32::from(answered.was_sent_before);
        let pause = retry_after(answered.response.headers());
        self.dialer.keep(answered);
        if pause.is_some() && is_passing(answer.status) {
            return Err(Trouble::Heals(format!("it answers {}", answer.status), pause));
        }
        if asked.range.is_some() && answer.status.is_success() {
            // These are somebody's data, and say nothing.
            answer.text.clear();
        }
        let wanted = answer.len.map_or(0, |len| len.min(asked.taken_max));
        if answer.status.is_success() && (answer.bytes.len() as u64) < wanted {
            return Err(Trouble::Heals(format!("{} broke off", place.target), None));
        }
        Ok(answer)
    }
}

fn request(asked: &Asked) -> Result<Request<Full<Bytes>>, Trouble> {
    let lasts = |why: String| Trouble::Lasts(why);
    let place = &asked.place;
    let bucket = place.bucket.as_ref().ok_or_else(|| lasts("it is in no bucket".to_owned()))?;
    if let Some(secret) = bucket.lacks_secret() {
        return Err(lasts(format!("nothing is written without keys: there is no secret {secret}")));
    }
    let mut request = Request::builder()
        .method(asked.method.clone())
        .uri(place.path.clone())
        .header(HOST, place.authority.clone())
        .header(USER_AGENT, concat!("sinew/", env!("CARGO_PKG_VERSION")));
    if let Some(content_type) = &asked.content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    if let Some(Range { start, end }) = asked.range {
        request = request.header(RANGE, format!("bytes={start}-{}", end - 1));
    }
    let extra: Vec<_> = asked.signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let signed =
        bucket.signed(asked.method.as_str(), place, &asked.hash, &extra, s3::now_s()).map_err(lasts)?;
    request = signed.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    request.body(Full::new(asked.body.clone())).map_err(|error| lasts(error.to_string()))
}

/// An answer, with the beginning of its text.
async fn read(answered: &mut Answered, taken_max: u64) -> Answer {
    let room_max = TEXT_BYTES_MAX.max(usize::try_from(taken_max).unwrap_or(usize::MAX));
    let mut text = Vec::new();
    // What has come by then may say enough.
    while text.len() < room_max
        && let Some(Ok(frame)) = answered.frame().await
    {
        let room = room_max - text.len();
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..data.len().min(room)]));
    }
    let headers = answered.response.headers();
    let text_of = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Answer {
        status: answered.response.status(),
        etag: text_of(ETAG.as_str()),
        mark: text_of(MARK),
        len: text_of(CONTENT_LENGTH.as_str()).and_then(|len| len.parse().ok()),
        text: String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]).into_owned(),
        bytes: Bytes::from(text),
        tried_before: 0,
    }
}

/// Buckets may say 200 and go wrong while they put parts together; and some refusals
/// pass that have the status of those which do not.
fn is_error_of_passing_kind(answer: &Answer) -> bool {
    let reason = answer.text.contains("<Error>").then(|| s3::reason(&answer.text)).flatten();
    reason.is_some_and(|reason| {
        matches!(reason, "InternalError" | "SlowDown" | "RequestTimeout" | "ServiceUnavailable")
    })
}
