// SPDX-License-Identifier: Apache-2.0
//! One attempt to bring something: a request, after redirects, and its answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, HOST, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE,
    USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use ring::digest::{Context, SHA256};
use tokio::time::timeout;

use super::answer::{self, short};
use super::{Download, DownloadOptions, Downloaded, Downloads, Sink, Turn};
use crate::dial::{Answered, Patience, Place, Undialed};
use crate::s3::{self, Bucket};

/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;
/// Bytes of what a server says that refuses.
const REASON_BYTES_MAX: usize = 4 << 10;

/// Why an attempt has brought nothing, or not all.
pub(super) enum Trouble {
    /// It may go better another time; not before so long, if the server says so.
    Heals(String, Option<Duration>),
    /// There is no room for so many bytes, now.
    Room(u64),
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
    /// Kept for as long as something has come that the next attempt goes on with.
    pub(super) turn: Option<Turn>,
    /// Of the server that is asked. Kept over attempts: who breaks off slow transfers
    /// before they are looked at is slow too.
    pace: Pace,
}

impl State {
    pub(super) fn new(wanted: &Download) -> Self {
        let hasher = wanted.sha256.map(|_| Context::new(&SHA256));
        Self {
            received: 0,
            etag: None,
            hasher,
            is_pieced: false,
            whole: None,
            has_begun: false,
            turn: None,
            pace: Pace::default(),
        }
    }

    /// Nothing has come; whose turn it is does not change.
    pub(super) fn void(&mut self, wanted: &Download) {
        let (turn, pace) = (self.turn.take(), std::mem::take(&mut self.pace));
        *self = Self { turn, pace, ..Self::new(wanted) };
    }

    /// Nothing has come, and it is nobody's turn.
    pub(super) fn leave(&mut self, wanted: &Download) {
        self.void(wanted);
        self.turn = None;
    }

    /// Nothing is known of the server that is asked next.
    pub(super) fn asks_another(&mut self) {
        self.pace = Pace::default();
    }

    /// Whether enough came since it was asked last.
    pub(super) fn was_fast(&mut self, options: &DownloadOptions) -> bool {
        self.pace.was_fast(options)
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether a transfer can go on where the last one ended.
    pub(super) fn can_go_on(&self) -> bool {
        self.received > 0 && (self.etag.is_some() || self.hasher.is_some())
    }
}

/// How fast a server sends while it is waited for.
#[derive(Default)]
struct Pace {
    /// Since it was last looked.
    waited: Duration,
    came: u64,
    /// It was looked, and enough had come.
    was_fast: bool,
    /// It was looked, and too little had come.
    was_slow: bool,
}

impl Pace {
    /// How many bytes came since it was last looked, if too few.
    fn is_too_slow(&mut self, options: &DownloadOptions) -> Option<u64> {
        if self.waited < options.rate_window {
            return None;
        }
        let (came, is_enough) = (self.came, self.is_enough(options));
        let (was_fast, was_slow) = (self.was_fast || is_enough, !is_enough);
        *self = Self { was_fast, was_slow, ..Self::default() };
        (!is_enough).then_some(came)
    }

    fn is_enough(&self, options: &DownloadOptions) -> bool {
        self.came as f64 >= options.rate_min as f64 * self.waited.as_secs_f64()
    }

    /// Whether enough came since this was asked last; what was not looked at yet counts
    /// too, unless it was given up for being slow.
    fn was_fast(&mut self, options: &DownloadOptions) -> bool {
        let (was_fast, was_slow) = (std::mem::take(&mut self.was_fast), std::mem::take(&mut self.was_slow));
        was_fast || (!was_slow && self.is_enough(options))
    }
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
        if let Some(size) = wanted.size {
            self.may_be(size)?;
            if wanted.known_etag.is_none() && !sink.has_room(size) {
                return Err(Trouble::Room(size));
            }
        }
        let (mut answered, bucket) = self.answered(wanted, url, state, sink).await?;
        let taken = self.taken(wanted, &mut answered, bucket.as_deref(), state, sink).await;
        self.dialer.keep(answered);
        taken
    }

    /// What an answer brings.
    async fn taken(
        &self,
        wanted: &Download,
        answered: &mut Answered,
        bucket: Option<&Bucket>,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<Downloaded, Trouble> {
        let response = &answered.response;
        match response.status() {
            StatusCode::OK => self.begins(wanted, response, state, sink)?,
            StatusCode::PARTIAL_CONTENT => {
                goes_on(wanted, response, state)?;
                state.whole.map_or(Ok(()), |whole| self.may_be(whole))?;
            }
            StatusCode::NOT_MODIFIED if wanted.known_etag.is_some() && state.received == 0 => {
                return Ok(Downloaded::Known);
            }
            StatusCode::RANGE_NOT_SATISFIABLE if state.received > 0 => {
                state.void(wanted);
                return Err(heals("it has become shorter while it was fetched"));
            }
            StatusCode::PRECONDITION_FAILED if wanted.etag.is_none() && state.received > 0 => {
                state.void(wanted);
                return Err(heals("it has changed while it was fetched"));
            }
            StatusCode::PRECONDITION_FAILED => {
                let etag = wanted.etag.as_deref().unwrap_or_default();
                return Err(lasts(format!("it has changed: its ETag is no longer {etag}")));
            }
            status if is_passing(status) => {
                return Err(Trouble::Heals(said(status), answer::retry_after(response.headers())));
            }
            status => return Err(lasts(self.refusal(answered, bucket, status).await)),
        }
        let is_framed = answer::is_framed(response.headers());
        self.body(wanted, answered, state, sink).await?;
        finish(wanted, state, is_framed)
    }

    /// So many bytes may be fetched.
    fn may_be(&self, bytes: u64) -> Result<(), Trouble> {
        let bytes_max = self.options.bytes_max;
        if bytes <= bytes_max {
            return Ok(());
        }
        Err(lasts(format!("it has {bytes} bytes, and at most {bytes_max} are fetched")))
    }

    /// What a server says that refuses. Buckets give a reason.
    async fn refusal(&self, answered: &mut Answered, bucket: Option<&Bucket>, status: StatusCode) -> String {
        let mut said = said(status);
        let Some(bucket) = bucket else { return said };
        let mut body = Vec::new();
        let read = async {
            while let Some(Ok(frame)) = answered.frame().await {
                let room = REASON_BYTES_MAX - body.len();
                let bytes = frame.data_ref().map_or(&[][..], |data| &data[..data.len().min(room)]);
                body.extend_from_slice(bytes);
                if body.len() == REASON_BYTES_MAX {
                    break;
                }
            }
        };
        // What has come by then may say enough.
        _ = timeout(self.options.head_timeout, read).await;
        if let Some(reason) = s3::reason(&String::from_utf8_lossy(&body)) {
            said += &format!(" ({reason})");
        }
        if let Some(secret) = bucket.lacks_secret() {
            said += &format!("; it was asked without keys: there is no secret {secret}");
        }
        said
    }

    /// The answer to a request, after redirects, and whose bucket gave it.
    async fn answered(
        &self,
        wanted: &Download,
        url: &str,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<(Answered, Option<Arc<Bucket>>), Trouble> {
        let mut url = url.to_owned();
        for redirects in 0.. {
            let place = match redirects {
                0 => self.place(&url).map_err(lasts)?,
                // A server that is no bucket's leads to none.
                _ => Place::read(&url)
                    .map_err(|why| lasts(format!("it redirects to {:?}: {why}", short(&url))))?,
            };
            self.turn_to(place.target.to_string(), wanted, state, sink).await;
            let answered = self.ask(wanted, &place, state).await?;
            let status = answered.response.status();
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((answered, place.bucket));
            }
            if place.bucket.is_some() {
                return Err(lasts(format!(
                    "it answers {status}: the bucket is elsewhere, or in another region"
                )));
            }
            let to = answer::redirect(&url, answered.response.headers());
            let to = to.ok_or_else(|| lasts("it redirects to nowhere"))?;
            if redirects == REDIRECTS_MAX {
                return Err(lasts(format!(
                    "it redirects more than {REDIRECTS_MAX} times, last to {:?}",
                    short(&to)
                )));
            }
            if place.is_tls && !to.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
                return Err(lasts(format!("it redirects from https to {:?}", short(&to))));
            }
            self.dialer.keep(answered);
            url = to;
        }
        unreachable!("redirects are counted")
    }

    async fn ask(&self, wanted: &Download, place: &Place, state: &State) -> Result<Answered, Trouble> {
        let DownloadOptions { connect_timeout, head_timeout, .. } = self.options;
        let patience = Patience { connect: connect_timeout, head: head_timeout };
        Ok(self.dialer.ask(place, request(wanted, place, state)?, patience).await?)
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
            return Err(lasts(format!("it sends its data encoded as {:?}", short(encoding))));
        }
        let etag = answer::strong_etag(headers);
        if let Some(expected) = &wanted.etag
            && etag != Some(expected)
        {
            let has = etag.map_or_else(
                || "it has no strong ETag".to_owned(),
                |etag| format!("its ETag is {}", short(etag)),
            );
            return Err(lasts(format!("it has changed: {has}, not {expected}")));
        }
        let length = answer::content_length(headers);
        if let Some(length) = length {
            if let Some(size) = wanted.size.filter(|size| *size != length) {
                return Err(lasts(format!("it has {length} bytes, not {size}")));
            }
            self.may_be(length)?;
        }
        state.void(wanted);
        (state.etag, state.has_begun) = (etag.map(str::to_owned), true);
        sink.begin();
        match length.or(wanted.size) {
            Some(length) if !sink.has_room(length) => Err(Trouble::Room(length)),
            _ => Ok(()),
        }
    }

    async fn body(
        &self,
        wanted: &Download,
        answered: &mut Answered,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<(), Trouble> {
        let limit = self.options.stall_timeout;
        let bytes_max = wanted.size.unwrap_or(self.options.bytes_max);
        loop {
            let asked = Instant::now();
            let frame = timeout(limit, answered.frame()).await;
            let received = state.received;
            state.pace.waited += asked.elapsed();
            let frame = frame.map_err(|_| {
                heals(format!("after {received} bytes nothing came for {} s", limit.as_secs_f32()))
            })?;
            let Some(frame) = frame else { return Ok(()) };
            let frame =
                frame.map_err(|error| heals(format!("it broke off after {received} bytes: {error}")))?;
            // Trailers mean nothing here.
            let Ok(bytes) = frame.into_data() else { continue };
            if received + bytes.len() as u64 > bytes_max {
                state.void(wanted);
                return Err(lasts(format!("it sends more than {bytes_max} bytes")));
            }
            state.received += bytes.len() as u64;
            if let Some(hasher) = &mut state.hasher {
                hasher.update(&bytes);
            }
            state.pace.came += bytes.len() as u64;
            if !sink.has_room(state.received) {
                // Nobody has said how long it is.
                return Err(Trouble::Room(state.received.saturating_mul(2).min(bytes_max)));
            }
            sink.take(bytes).await.map_err(Trouble::Sink)?;
            if let Some(came) = state.pace.is_too_slow(&self.options)
                && !answered.response.body().is_end_stream()
            {
                let (least, received) = (self.options.rate_min, state.received);
                return Err(heals(format!(
                    "it is too slow: of late {came} bytes came, and {least} a second have to; in all {received} came"
                )));
            }
        }
    }
}

fn request(wanted: &Download, place: &Place, state: &State) -> Result<Request<Full<Bytes>>, Trouble> {
    let mut headers: Vec<(HeaderName, String)> = vec![
        (USER_AGENT, concat!("sinew/", env!("CARGO_PKG_VERSION")).to_owned()),
        (ACCEPT, "*/*".to_owned()),
        (ACCEPT_ENCODING, "identity".to_owned()),
    ];
    headers.extend(wanted.etag.clone().map(|etag| (IF_MATCH, etag)));
    if state.received > 0 {
        headers.push((RANGE, format!("bytes={}-", state.received)));
        // Of buckets only this condition is documented. Who names a tag has sent it already.
        let condition = match (&place.bucket, &wanted.etag) {
            (None, _) => Some(IF_RANGE),
            (Some(_), None) => Some(IF_MATCH),
            (Some(_), Some(_)) => None,
        };
        headers.extend(condition.zip(state.etag.clone()));
    } else {
        headers.extend(wanted.known_etag.clone().map(|etag| (IF_NONE_MATCH, etag)));
    }
    let mut request = Request::get(place.path.clone()).header(HOST, place.authority.clone());
    for (name, value) in headers {
        let value = HeaderValue::from_str(&value).map_err(|error| lasts(error.to_string()))?;
        request = request.header(name, value);
    }
    if let Some(bucket) = &place.bucket {
        let signed = bucket.signed("GET", place, &s3::hash_of_nothing(), &[], s3::now_s()).map_err(lasts)?;
        request = signed.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    }
    request.body(Full::default()).map_err(|error| lasts(error.to_string()))
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
    state.void(wanted);
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
            state.void(wanted);
            let why = format!("its SHA-256 is {}, not {}", s3::hex(found.as_ref()), s3::hex(&expected));
            // The pieces may be of different data.
            return Err(if is_pieced { heals(why) } else { lasts(why) });
        }
    }
    debug_assert!(state.has_begun, "the sink knows where it begins");
    Ok(Downloaded::Whole { etag: state.etag.take() })
}

/// Whether a server that answers so may answer otherwise another time.
pub(crate) fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504)
}

fn said(status: StatusCode) -> String {
    format!("it answers {status}")
}
