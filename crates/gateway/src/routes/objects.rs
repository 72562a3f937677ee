// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/objects/{handle}`: the data behind a handle.
//!
//! A blob is its bytes, a tree a JSON list of handles (or its bytes, if the
//! request accepts `application/octet-stream`). Objects never change, so
//! answers are cacheable for ever and the handle is the entity tag. Refs read
//! like objects: this node has one tenant, who owns everything on it; with
//! several, reading needs reachability, and a handle alone grants nothing.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{
    ACCEPT, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    IF_RANGE, RANGE, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use objects::Handle;
use serde::Deserialize;
use store::{Object, Store};

use super::path_text;
use crate::admission::Permit;
use crate::body::blocking;
use crate::problem::Problem;
use crate::range::{self, Wanted};
use crate::router::Shared;
use crate::text::parse_handle;

/// Bytes of an object that are handed to the connection at a time.
const CHUNK_BYTES: u64 = 256 << 10;
/// Entries of a tree that are written as JSON at a time.
const CHUNK_ENTRIES: usize = 1024;
/// An object is read so often: after it was made again, memory that is short may lose it once.
const READS: usize = 3;
const FOR_EVER: HeaderValue = HeaderValue::from_static("private, max-age=31536000, immutable");
const OCTETS: &str = "application/octet-stream";

/// Which entries of a tree to list.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(permit): Extension<Permit>,
    method: Method,
    path: Result<Path<String>, PathRejection>,
    page: Result<Query<Page>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let handle = parse_handle(&path_text(path)?)?;
    if !handle.is_value() {
        let definition = handle.definition();
        return Err(Problem::bad_request("not-data", format!("{handle} is a computation, not data"))
            .suggest(format!(
                "evaluate it with POST /v1/evaluate, or read its definition at /v1/objects/{definition}"
            )));
    }
    let Query(page) = page.map_err(|rejection| Problem::bad_request("bad-query", rejection.body_text()))?;
    if method == Method::HEAD {
        // Whoever asks whether it is here does so to rely on it.
        let shared = shared.clone();
        match blocking(move || shared.backend.renew(handle)).await? {
            Ok(true) => {}
            // Of a tree all that it names has to be here.
            Ok(false) => return Err(Problem::object_not_found(handle)),
            // It is here for as long as it was; whoever asks need not write.
            Err(error) => {
                tracing::warn!(%error, %handle, "an object that was asked for could not be renewed")
            }
        }
    }
    let is_head = method == Method::HEAD;
    if !handle.names_tree() {
        return octets(&shared, handle, &headers, is_head, permit).await;
    }
    let mut response = if accepts(&headers, OCTETS) {
        octets(&shared, handle, &headers, is_head, permit).await?
    } else {
        listing(&shared, handle, page, &headers, permit).await?
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// An object's bytes, whichever tier they are in, without copying them.
pub(crate) async fn load(shared: &Arc<Shared>, handle: Handle) -> Result<Option<Bytes>, Problem> {
    if let Some(literal) = handle.literal_bytes() {
        return Ok(Some(Bytes::copy_from_slice(literal)));
    }
    // What is in memory needs no thread that may wait for the disk.
    if let Some(object) = shared.backend.local(handle.plain_tree()) {
        return Ok(Some(Bytes::from_owner(ObjectBytes(object))));
    }
    for _ in 0..READS {
        let asked = shared.clone();
        let loaded = blocking(move || asked.backend.get(handle.plain_tree())).await?;
        if let Some(object) = loaded.map_err(|error| Problem::store(&error))? {
            return Ok(Some(Bytes::from_owner(ObjectBytes(object))));
        }
        if !is_made_again(shared, handle).await? {
            break;
        }
    }
    Ok(None)
}

/// Has the node make an object that it has dropped, for as long as the client waits. False
/// if it is not known how.
pub(super) async fn is_made_again(shared: &Arc<Shared>, handle: Handle) -> Result<bool, Problem> {
    let asked = shared.clone();
    let begun = blocking(move || asked.backend.make_again(handle.plain_tree())).await?;
    let Some(evaluation) = begun.map_err(|error| Problem::store(&error))? else { return Ok(false) };
    let mut evaluation = evaluation.map_err(|reason| Problem::busy("evaluator", reason))?;
    let end = evaluation.finished().await;
    match end.failure {
        None => Ok(true),
        Some(failure) => {
            // Its text was made just now: if it is gone by now, the code has to do.
            let text = shared.backend.local(failure.detail);
            let text = failure.detail.literal_bytes().map(<[u8]>::to_vec).or(text.map(|text| text.to_vec()));
            let detail = text.and_then(|text| String::from_utf8(text).ok());
            let detail = detail.unwrap_or_else(|| format!("{handle} could not be made again"));
            Err(Problem::failure(end.result, &failure, detail))
        }
    }
}

struct ObjectBytes(Object);

impl AsRef<[u8]> for ObjectBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Whether the request asks for this very media type.
pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(','));
    types.any(|part| part.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(media_type))
}

/// The headers that every form of an object has, and whether the client has it already.
fn cacheable(etag: &str, headers: &HeaderMap) -> (HeaderMap, bool) {
    let mut answer = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(etag) {
        answer.insert(ETAG, value);
    }
    answer.insert(CACHE_CONTROL, FOR_EVER);
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    (answer, known.is_some_and(|tags| range::none_match_names(tags, etag)))
}

/// Without a body the object's bytes are not read: that it is there is enough.
async fn octets(
    shared: &Arc<Shared>,
    handle: Handle,
    headers: &HeaderMap,
    is_head: bool,
    permit: Permit,
) -> Result<Response, Problem> {
    let etag = format!("\"{handle}\"");
    let (mut answer, known) = cacheable(&etag, headers);
    let len = bytes_len(handle);
    let wanted = requested_range(headers, &etag, len);
    let bytes = if is_head || known {
        expect(shared, handle).await?;
        Some(Bytes::new())
    } else if wanted != Wanted::Whole && lies_apart(shared, handle) {
        None
    } else {
        Some(whole(shared, handle).await?)
    };
    if known {
        return Ok((StatusCode::NOT_MODIFIED, answer).into_response());
    }
    answer.insert(CONTENT_TYPE, HeaderValue::from_static(OCTETS));
    answer.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let (status, part) = match wanted {
        Wanted::Whole => (StatusCode::OK, 0..len),
        Wanted::Part(part) => {
            let range = format!("bytes {}-{}/{len}", part.start, part.end - 1);
            answer.extend(HeaderValue::from_str(&range).ok().map(|value| (CONTENT_RANGE, value)));
            (StatusCode::PARTIAL_CONTENT, part)
        }
        Wanted::Unsatisfiable => {
            if bytes.is_none() {
                // Whether it is here at all.
                part_of(shared, handle, 0..0).await?;
            }
            return Err(unsatisfiable(len));
        }
    };
    answer.insert(CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
    let body = match bytes {
        _ if is_head => Body::empty(),
        Some(bytes) => chunked(bytes, part, permit),
        None => pieces(shared, handle, part, permit).await?,
    };
    Ok((status, answer, body).into_response())
}

/// Bytes of an object.
fn bytes_len(handle: Handle) -> u64 {
    if handle.names_tree() { handle.size() * Handle::LEN as u64 } else { handle.size() }
}

async fn whole(shared: &Arc<Shared>, handle: Handle) -> Result<Bytes, Problem> {
    load(shared, handle).await?.ok_or_else(|| Problem::object_not_found(handle))
}

/// That the object is here or in the tier, unread; or can be made again, which it is then.
async fn expect(shared: &Arc<Shared>, handle: Handle) -> Result<(), Problem> {
    if handle.literal_bytes().is_some() || shared.backend.local(handle.plain_tree()).is_some() {
        return Ok(());
    }
    let asked = shared.clone();
    let is_there = blocking(move || asked.backend.has(handle)).await?;
    match is_there.map_err(|error| Problem::store(&error))? {
        true => Ok(()),
        false => whole(shared, handle).await.map(drop),
    }
}

/// Whether parts of the object are read from the disk one by one.
fn lies_apart(shared: &Shared, handle: Handle) -> bool {
    Store::is_partial(handle) && shared.backend.local(handle.plain_tree()).is_none()
}

/// Bytes of an object that lies apart.
async fn part_of(shared: &Arc<Shared>, handle: Handle, part: Range<u64>) -> Result<Bytes, Problem> {
    for _ in 0..READS {
        let (asked, wanted) = (shared.clone(), part.clone());
        let read = blocking(move || asked.backend.get_range(handle.plain_tree(), wanted)).await?;
        if let Some(read) = read.map_err(|error| Problem::store(&error))? {
            return Ok(Bytes::from(read));
        }
        if !is_made_again(shared, handle).await? {
            break;
        }
    }
    Err(Problem::object_not_found(handle))
}

/// A part of an object that lies apart, each piece read and verified when the one
/// before it was sent. Damage behind the first piece cuts the answer off.
async fn pieces(
    shared: &Arc<Shared>,
    handle: Handle,
    part: Range<u64>,
    permit: Permit,
) -> Result<Body, Problem> {
    let until = |begin: u64| part.end.min(begin + CHUNK_BYTES);
    let first = part_of(shared, handle, part.start..until(part.start)).await?;
    if until(part.start) == part.end {
        return Ok(Body::from(first));
    }
    let begin = (shared.clone(), Some(first), until(part.start)..part.end, permit);
    let pieces = stream::try_unfold(begin, move |(shared, first, rest, permit)| async move {
        if let Some(first) = first {
            return Ok(Some((first, (shared, None, rest, permit))));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let end = rest.end.min(rest.start + CHUNK_BYTES);
        match part_of(&shared, handle, rest.start..end).await {
            Ok(piece) => Ok(Some((piece, (shared, None, end..rest.end, permit)))),
            Err(problem) => Err(std::io::Error::other(problem.detail().to_owned())),
        }
    });
    Ok(Body::from_stream(pieces))
}

fn requested_range(headers: &HeaderMap, etag: &str, len: u64) -> Wanted {
    let Some(header) = headers.get(RANGE).and_then(|value| value.to_str().ok()) else { return Wanted::Whole };
    // If-Range compares strongly; a date never matches, for objects have none.
    match headers.get(IF_RANGE) {
        Some(condition) if condition.as_bytes() != etag.as_bytes() => Wanted::Whole,
        _ => range::wanted(header, len),
    }
}

fn unsatisfiable(len: u64) -> Problem {
    let detail = format!("the object has {len} bytes; the range begins past its end");
    let problem = Problem::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "range-not-satisfiable",
        "The range is past the object's end",
        "gateway",
        detail,
    );
    match HeaderValue::from_str(&format!("bytes */{len}")) {
        Ok(value) => problem.header(CONTENT_RANGE, value),
        Err(_) => problem,
    }
}

/// A part of the bytes, in slices of one allocation or mapping.
fn chunked(bytes: Bytes, part: Range<u64>, permit: Permit) -> Body {
    // The part lies within the bytes, whose length is a usize.
    let slice = move |range: Range<u64>| bytes.slice(range.start as usize..range.end as usize);
    if part.end - part.start <= CHUNK_BYTES {
        return Body::from(slice(part));
    }
    let chunks = stream::unfold((part, permit), move |(rest, permit)| {
        let end = rest.end.min(rest.start + CHUNK_BYTES);
        let chunk = (!rest.is_empty()).then(|| slice(rest.start..end));
        async move { chunk.map(|chunk| (Ok::<_, Infallible>(chunk), (end..rest.end, permit))) }
    });
    Body::from_stream(chunks)
}

/// A tree as JSON, written while it is sent: a tree may have millions of entries.
async fn listing(
    shared: &Arc<Shared>,
    handle: Handle,
    page: Page,
    headers: &HeaderMap,
    permit: Permit,
) -> Result<Response, Problem> {
    let (mut answer, known) = cacheable(&format!("\"{handle}-json\""), headers);
    let size = handle.size();
    let begin = page.offset.min(size);
    let end = page.limit.unwrap_or(u64::MAX).saturating_add(page.offset).min(size);
    let entry_bytes = Handle::LEN as u64;
    let part = begin * entry_bytes..end * entry_bytes;
    let is_page = part.end - part.start <= CHUNK_BYTES && part.end - part.start < bytes_len(handle);
    if known {
        expect(shared, handle).await?;
        return Ok((StatusCode::NOT_MODIFIED, answer).into_response());
    }
    let bytes = if is_page && lies_apart(shared, handle) {
        part_of(shared, handle, part).await?
    } else {
        whole(shared, handle).await?.slice(part.start as usize..part.end as usize)
    };
    answer.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let head = format!(
        "{{\"handle\":\"{handle}\",\"kind\":\"{}\",\"size\":{size},\"offset\":{begin},\"entries\":[",
        handle.kind().name()
    );
    let count = bytes.len() / Handle::LEN;
    if count <= CHUNK_ENTRIES {
        let body = format!("{head}{}]}}", entries_json(&bytes, 0..count, true));
        return Ok((answer, body).into_response());
    }
    let pieces = stream::unfold((Some(head), 0, permit), move |(head, next, permit)| {
        let piece = match head {
            _ if next > count => None,
            Some(head) => Some((head, next)),
            None if next == count => Some(("]}".to_owned(), count + 1)),
            None => {
                let stop = count.min(next + CHUNK_ENTRIES);
                Some((entries_json(&bytes, next..stop, next == 0), stop))
            }
        };
        async move { piece.map(|(text, next)| (Ok::<_, Infallible>(text), (None, next, permit))) }
    });
    Ok((answer, Body::from_stream(pieces)).into_response())
}

fn entries_json(bytes: &[u8], range: Range<usize>, first: bool) -> String {
    const TYPICAL_LEN: usize = 64;
    let mut text = String::with_capacity(range.len() * TYPICAL_LEN);
    let tree = objects::TreeView::from_checked(bytes);
    for (at, entry) in range.filter_map(|index| tree.get(index)).enumerate() {
        if !(first && at == 0) {
            text.push(',');
        }
        // The text form has no character that JSON escapes.
        text.push_str(&format!("\"{entry}\""));
    }
    text
}
