// SPDX-License-Identifier: Apache-2.0
//! One attempt to bring something: a request, after redirects, and its answer.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE,
    RANGE, USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ring::digest::{Context, SHA256};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer;
use super::{Download, Downloaded, Downloads, Sink, Turn};
use crate::dial::{Place, Undialed};

/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;

/// Why an attempt has brought nothing, or not all.
pub(super) enum Trouble {
    /// It may go better another time; not before so long, if the server says so.
    Heals(String, Option<Duration>),
    /// It does not help to ask again.
    Lasts(String),
    /// Who takes the data cannot.
    Sink(String),
}

fn heals(why: impl Into<String>) -> Trouble {
    Trouble::Heals(why.into(), None)
}

fn lasts(why: impl Into<String>) -> Trouble {
    Trouble::Lasts(why.into())
}

impl From<Undialed> for Trouble {
    fn from(undialed: Undialed) -> Self {
        match undialed {
            Undialed::Refused(why) => Self::Lasts(why),
            Undialed::Failed(why) => heals(why),
        }
    }
}

/// What has come so far, over several attempts.
pub(super) struct State {
    received: u64,
    /// The strong entity tag of what comes.
    etag: Option<String>,
    hasher: Option<Context>,
    /// It came in more than one transfer.
    is_pieced: bool,
    /// Bytes of all, as whoever sends parts says.
    whole: Option<u64>,
    /// The sink was told to begin, since the state was new.
    has_begun: bool,
}

impl State {
    pub(super) fn new(wanted: &Download) -> Self {
        let hasher = wanted.sha256.map(|_| Context::new(&SHA256));
        Self { received: 0, etag: None, hasher, is_pieced: false, whole: None, has_begun: false }
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether a transfer can go on where the last one ended.
    fn can_go_on(&self) -> bool {
        self.received > 0 && (self.etag.is_some() || self.hasher.is_some())
    }
}

/// An answer whose body is to come.
struct Answered {
    response: Response<Incoming>,
    /// Carries the connection, which ends when nobody needs it any more.
    _driven: JoinSet<()>,
    _turn: Turn,
}

impl Downloads {
    /// One attempt.
    pub(super) async fn transfer(
        &self,
        wanted: &Download,
        url: &str,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<Downloaded, Trouble> {
        if !state.can_go_on() {
            *state = State::new(wanted);
        }
        let answered = self.answered(wanted, url, state).await?;
        let response = &answered.response;
        match response.status() {
            StatusCode::OK => self.begins(wanted, response, state, sink)?,
            StatusCode::PARTIAL_CONTENT => goes_on(wanted, response, state)?,
            StatusCode::NOT_MODIFIED if wanted.known_etag.is_some() && state.received == 0 => {
                return Ok(Downloaded::Known);
            }
            StatusCode::RANGE_NOT_SATISFIABLE if state.received > 0 => {
                *state = State::new(wanted);
                return Err(heals("it has become shorter while it was fetched"));
            }
            StatusCode::PRECONDITION_FAILED => {
                let etag = wanted.etag.as_deref().unwrap_or_default();
                return Err(lasts(format!("it has changed: its ETag is no longer {etag}")));
            }
            status if is_passing(status) => {
                return Err(Trouble::Heals(said(status), answer::retry_after(response.headers())));
            }
            status => return Err(lasts(said(status))),
        }
        let is_framed = answer::is_framed(response.headers());
        self.body(wanted, answered, state, sink).await?;
        finish(wanted, state, is_framed)
    }

    /// The answer to a request, after redirects.
    async fn answered(&self, wanted: &Download, url: &str, state: &State) -> Result<Answered, Trouble> {
        let mut url = url.to_owned();
        for redirects in 0.. {
            let place = Place::read(&url).map_err(|why| match redirects {
                0 => lasts(why),
                _ => lasts(format!("it redirects to {url:?}: {why}")),
            })?;
            let answered = self.ask(wanted, &place, state).await?;
            let status = answered.response.status();
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answered);
            }
            let to = answer::redirect(&url, answered.response.headers());
            let to = to.ok_or_else(|| lasts("it redirects to nowhere"))?;
            if redirects == REDIRECTS_MAX {
                return Err(lasts(format!("it redirects more than {REDIRECTS_MAX} times, last to {to:?}")));
            }
            if place.is_tls && !to.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
                return Err(lasts(format!("it redirects from https to {to:?}")));
            }
            url = to;
        }
        unreachable!("redirects are counted")
    }

    async fn ask(&self, wanted: &Download, place: &Place, state: &State) -> Result<Answered, Trouble> {
        let turn = self.turn(place).await?;
        let options = &self.options;
        let stream = timeout(options.connect_timeout, self.dialer.connect(place)).await;
        let late = |what: &str, limit: Duration| {
            heals(format!("{} {what} in {} s", place.target, limit.as_secs_f32()))
        };
        let stream = stream.map_err(|_| late("cannot be reached", options.connect_timeout))??;
        let broken = |error: hyper::Error| heals(format!("{}: {error}", place.target));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let mut driven = JoinSet::new();
        driven.spawn(async move {
            // What goes wrong is told by the answer.
            _ = connection.await;
        });
        let sent = timeout(options.head_timeout, sender.send_request(request(wanted, place, state)?)).await;
        let response = sent.map_err(|_| late("did not answer", options.head_timeout))?.map_err(broken)?;
        Ok(Answered { response, _driven: driven, _turn: turn })
    }

    /// All of it is to come, whatever has come before.
    fn begins(
        &self,
        wanted: &Download,
        response: &Response<Incoming>,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<(), Trouble> {
        let headers = response.headers();
        if let Some(encoding) = answer::encoding(headers) {
            return Err(lasts(format!("it sends its data encoded as {encoding:?}")));
        }
        let etag = answer::strong_etag(headers);
        if let Some(expected) = &wanted.etag
            && etag != Some(expected)
        {
            let has =
                etag.map_or_else(|| "it has no strong ETag".to_owned(), |etag| format!("its ETag is {etag}"));
            return Err(lasts(format!("it has changed: {has}, not {expected}")));
        }
        if let Some(length) = answer::content_length(headers) {
            if let Some(size) = wanted.size.filter(|size| *size != length) {
                return Err(lasts(format!("it has {length} bytes, not {size}")));
            }
            if length > self.options.bytes_max && wanted.size.is_none() {
                return Err(lasts(format!(
                    "it has {length} bytes, and at most {} are fetched",
                    self.options.bytes_max
                )));
            }
        }
        *state = State { etag: etag.map(str::to_owned), has_begun: true, ..State::new(wanted) };
        sink.begin();
        Ok(())
    }

    async fn body(
        &self,
        wanted: &Download,
        mut answered: Answered,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<(), Trouble> {
        let limit = self.options.stall_timeout;
        let bytes_max = wanted.size.unwrap_or(self.options.bytes_max);
        loop {
            let frame = timeout(limit, answered.response.body_mut().frame()).await;
            let received = state.received;
            let frame = frame.map_err(|_| {
                heals(format!("after {received} bytes nothing came for {} s", limit.as_secs_f32()))
            })?;
            let Some(frame) = frame else { return Ok(()) };
            let frame =
                frame.map_err(|error| heals(format!("it broke off after {received} bytes: {error}")))?;
            // Trailers mean nothing here.
            let Ok(bytes) = frame.into_data() else { continue };
            if received + bytes.len() as u64 > bytes_max {
                *state = State::new(wanted);
                return Err(lasts(format!("it sends more than {bytes_max} bytes")));
            }
            state.received += bytes.len() as u64;
            if let Some(hasher) = &mut state.hasher {
                hasher.update(&bytes);
            }
            sink.take(bytes).await.map_err(Trouble::Sink)?;
        }
    }
}

fn request(wanted: &Download, place: &Place, state: &State) -> Result<Request<Empty<Bytes>>, Trouble> {
    let mut headers: Vec<(HeaderName, String)> = vec![
        (USER_AGENT, concat!("sinew/", env!("CARGO_PKG_VERSION")).to_owned()),
        (ACCEPT, "*/*".to_owned()),
        (ACCEPT_ENCODING, "identity".to_owned()),
        (CONNECTION, "close".to_owned()),
    ];
    headers.extend(wanted.etag.clone().map(|etag| (IF_MATCH, etag)));
    if state.received > 0 {
        headers.push((RANGE, format!("bytes={}-", state.received)));
        headers.extend(state.etag.clone().map(|etag| (IF_RANGE, etag)));
    } else {
        headers.extend(wanted.known_etag.clone().map(|etag| (IF_NONE_MATCH, etag)));
    }
    let mut request = Request::get(place.path.clone()).header(HOST, place.authority.clone());
    for (name, value) in headers {
        let value = HeaderValue::from_str(&value).map_err(|error| lasts(error.to_string()))?;
        request = request.header(name, value);
    }
    request.body(Empty::new()).map_err(|error| lasts(error.to_string()))
}

/// The rest is to come.
fn goes_on(wanted: &Download, response: &Response<Incoming>, state: &mut State) -> Result<(), Trouble> {
    if state.received == 0 {
        return Err(lasts("it sends a part where all was asked for"));
    }
    let headers = response.headers();
    let changed = state.etag.is_some() && answer::strong_etag(headers) != state.etag.as_deref();
    let part = answer::part(headers).filter(|part| part.begin == state.received);
    if let (false, None, Some(part)) = (changed, answer::encoding(headers), part) {
        if let (Some(whole), Some(size)) = (part.whole, wanted.size)
            && whole != size
        {
            return Err(lasts(format!("it has {whole} bytes, not {size}")));
        }
        state.is_pieced = true;
        state.whole = part.whole;
        return Ok(());
    }
    *state = State::new(wanted);
    Err(heals("it has changed while it was fetched"))
}

/// All has come that will come.
fn finish(wanted: &Download, state: &mut State, is_framed: bool) -> Result<Downloaded, Trouble> {
    let received = state.received;
    if let Some(size) = wanted.size.or(state.whole).filter(|size| *size != received) {
        let why = format!("it has {received} bytes, not {size}");
        // Where only the connection's end tells the end, it may have broken off; and of
        // what is asked for less may be sent, as a part.
        return Err(if is_framed && !state.is_pieced { lasts(why) } else { heals(why) });
    }
    if let (Some(expected), Some(hasher)) = (wanted.sha256, state.hasher.take()) {
        let found = hasher.finish();
        if found.as_ref() != expected {
            let is_pieced = state.is_pieced;
            *state = State::new(wanted);
            let why = format!("its SHA-256 is {}, not {}", hex(found.as_ref()), hex(&expected));
            // The pieces may be of different data.
            return Err(if is_pieced { heals(why) } else { lasts(why) });
        }
    }
    debug_assert!(state.has_begun, "the sink knows where it begins");
    Ok(Downloaded::Whole { etag: state.etag.take() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a server that answers so may answer otherwise another time.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504)
}

fn said(status: StatusCode) -> String {
    format!("it answers {status}")
}
