// SPDX-License-Identifier: Apache-2.0
//! What comes from outside, on its way into the store: little of it in memory, and
//! much of it on the disk.

use std::sync::Arc;

use ::io::{Sink, Taking};
use axum::body::Bytes;
use objects::Handle;
use store::{BlobWriter, Store};

/// Bytes that are held before they are written; what is shorter stays in memory.
const PIECE_BYTES: usize = 256 << 10;

/// One blob on its way.
pub(super) struct StoreSink {
    store: Arc<Store>,
    held: Vec<u8>,
    writer: Option<BlobWriter>,
    len: u64,
    is_refused: bool,
}

impl StoreSink {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, held: Vec::new(), writer: None, len: 0, is_refused: false }
    }

    /// Bytes that have come, of those that count.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the store did not take it.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The blob. What was long is synced.
    pub(super) async fn finish(mut self) -> Result<Handle, String> {
        if self.writer.is_none() {
            self.store.has_room().map_err(|error| error.to_string())?;
            return Ok(self.store.keep_blob_vec(self.held));
        }
        self.flush().await?;
        let Some(writer) = self.writer else { return Err("it was lost while it was written".to_owned()) };
        let finished = tokio::task::spawn_blocking(move || writer.finish()).await;
        finished.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Writes what is held. The disk is waited for elsewhere.
    async fn flush(&mut self) -> Result<(), String> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.store.blob_writer().map_err(|error| error.to_string())?,
        };
        let held = std::mem::take(&mut self.held);
        let written = tokio::task::spawn_blocking(move || {
            let mut writer = writer;
            writer.write(&held).map(|()| writer)
        });
        let written = written.await.map_err(|error| error.to_string())?;
        self.writer = Some(written.map_err(|error| error.to_string())?);
        Ok(())
    }
}

impl Sink for StoreSink {
    fn begin(&mut self) {
        (self.writer, self.len) = (None, 0);
        self.held.clear();
    }

    fn take(&mut self, bytes: Bytes) -> Taking<'_> {
        Box::pin(async move {
            self.len += bytes.len() as u64;
            self.held.extend_from_slice(&bytes);
            let taken = if self.held.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) };
            self.is_refused |= taken.is_err();
            taken
        })
    }
}
