// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/blobs`: a body of any length becomes a blob.
//!
//! The body streams into a `BlobWriter` in batches. A writer that is dropped
//! leaves nothing behind, so a body that ends early, is too long, or whose
//! client vanishes (then this future is dropped) stores nothing.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use objects::{BundleRecord, Handle};
use store::{Awaited, BlobWriter};

use super::stored;
use super::tier::{Level, UntilQuery, kept, level};
use crate::behind::{Objects, Place};
use crate::body::{Arriving, blocking};
use crate::problem::Problem;
use crate::router::Shared;

/// Bytes that are collected before they are handed to a blocking thread: a
/// hand-off costs about 10 µs, hashing a batch ten times that.
const BATCH_BYTES: usize = 256 << 10;

/// Pieces of the body that wait for the writer.
#[derive(Default)]
struct Batch {
    pieces: Vec<Bytes>,
    len: usize,
}

impl Batch {
    fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        self.pieces.push(piece);
    }
}

pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    until: UntilQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let until = level(&shared, until)?;
    let options = &shared.options;
    let mut arriving = Arriving::new(&headers, body, options.body_max_bytes, options.body_idle_timeout)?;
    let mut writer = None;
    let mut batch = Batch::default();
    while let Some(piece) = arriving.next().await? {
        batch.push(piece);
        if batch.len >= BATCH_BYTES {
            writer = Some(write(&shared, writer, std::mem::take(&mut batch)).await?);
        }
    }
    let is_short = until == Level::Memory && writer.is_none();
    let handle = match is_short.then(|| shared.behind.place(batch.len)).flatten() {
        Some(place) => keep(&shared, batch, place)?,
        None => finish(&shared, writer, batch).await?,
    };
    kept(&shared, until, Awaited::Objects(vec![handle])).await?;
    Ok(stored(handle))
}

async fn write(
    shared: &Arc<Shared>,
    writer: Option<BlobWriter>,
    batch: Batch,
) -> Result<BlobWriter, Problem> {
    let shared = shared.clone();
    let written = blocking(move || write_blocking(&shared, writer, batch)).await?;
    written.map_err(|error| Problem::store(&error))
}

/// Keeps a short blob in memory, and has it written behind.
fn keep(shared: &Shared, batch: Batch, place: Place) -> Result<Handle, Problem> {
    let bytes: Vec<u8> = batch.pieces.iter().flatten().copied().collect();
    let handle = Handle::blob(&bytes);
    let held = shared.backend.keep_many(&[BundleRecord::Blob(&bytes)]);
    held.map_err(|error| Problem::store(&error))?;
    shared.behind.write(&shared.backend, place, Objects::Blob(bytes));
    Ok(handle)
}

async fn finish(shared: &Arc<Shared>, writer: Option<BlobWriter>, batch: Batch) -> Result<Handle, Problem> {
    let shared = shared.clone();
    let finished = blocking(move || write_blocking(&shared, writer, batch)?.finish()).await?;
    finished.map_err(|error| Problem::store(&error))
}

fn write_blocking(
    shared: &Shared,
    writer: Option<BlobWriter>,
    batch: Batch,
) -> Result<BlobWriter, store::Error> {
    let mut writer = match writer {
        Some(writer) => writer,
        None => shared.backend.blob_writer()?,
    };
    for piece in &batch.pieces {
        writer.write(piece)?;
    }
    Ok(writer)
}
