// SPDX-License-Identifier: Apache-2.0
//! What comes from outside, on its way into the store: little of it in memory, and
//! much of it on the disk.
//!
//! What all sources together have on the disk before they are whole is bounded
//! ([`Unfinished`]), and a part of the disk is left to what is put. Whoever goes over
//! either fails, gives its room back with that, and leaves the others to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::io::{Sink, Taking};
use axum::body::Bytes;
use objects::Handle;
use store::{BlobWriter, Store};
use tokio::runtime;

/// Bytes that are held before they are written; what is shorter stays in memory.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes on the disk of what is not whole yet, of all sources.
pub(super) struct Unfinished {
    bytes: AtomicU64,
    bytes_max: u64,
}

impl Unfinished {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, more: u64) -> Result<(), String> {
        let sum = |bytes: u64| bytes.checked_add(more).filter(|sum| *sum <= self.bytes_max);
        match self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum) {
            Ok(_) => Ok(()),
            Err(bytes) => Err(format!(
                "what is fetched just now has {bytes} bytes on the disk already, and all of it at most {}; try again later",
                self.bytes_max
            )),
        }
    }
}

/// One blob on its way.
pub(super) struct StoreSink {
    store: Arc<Store>,
    unfinished: Arc<Unfinished>,
    held: Vec<u8>,
    writer: Option<Writer>,
    len: u64,
    is_refused: bool,
}

/// What of it is on the disk.
struct Writer {
    /// Gone only while it is written to, finished, or being dropped.
    writer: Option<BlobWriter>,
    unfinished: Arc<Unfinished>,
    bytes: u64,
}

impl Writer {
    /// Blocks.
    fn write(&mut self, store: &Store, bytes: &[u8]) -> Result<(), String> {
        store.has_spare_room().map_err(|error| error.to_string())?;
        self.unfinished.add(bytes.len() as u64)?;
        self.bytes += bytes.len() as u64;
        let writer = self.writer.as_mut().ok_or("it was lost while it was written")?;
        writer.write(bytes).map_err(|error| error.to_string())
    }

    /// Blocks. Counts until it is whole.
    fn finish(mut self) -> Result<Handle, String> {
        let writer = self.writer.take().ok_or("it was lost while it was written")?;
        writer.finish().map_err(|error| error.to_string())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let (writer, bytes) = (self.writer.take(), self.bytes);
        let unfinished = Arc::clone(&self.unfinished);
        // To remove a file takes long if it is large; and it counts until it is gone.
        let remove = move || {
            drop(writer);
            unfinished.bytes.fetch_sub(bytes, Ordering::Relaxed);
        };
        match runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl StoreSink {
    pub(super) fn new(store: Arc<Store>, unfinished: Arc<Unfinished>) -> Self {
        Self { store, unfinished, held: Vec::new(), writer: None, len: 0, is_refused: false }
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
        let writer = self.writer.take().ok_or("it was lost while it was written")?;
        let finished = tokio::task::spawn_blocking(move || writer.finish());
        finished.await.map_err(|error| error.to_string())?
    }

    /// Writes what is held. The disk is waited for elsewhere.
    async fn flush(&mut self) -> Result<(), String> {
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer {
                writer: Some(self.store.blob_writer().map_err(|error| error.to_string())?),
                unfinished: Arc::clone(&self.unfinished),
                bytes: 0,
            },
        };
        let (store, held) = (Arc::clone(&self.store), std::mem::take(&mut self.held));
        let written = tokio::task::spawn_blocking(move || writer.write(&store, &held).map(|()| writer));
        self.writer = Some(written.await.map_err(|error| error.to_string())??);
        Ok(())
    }
}

impl Sink for StoreSink {
    fn begin(&mut self) {
        self.forget();
    }

    fn forget(&mut self) {
        (self.writer, self.len) = (None, 0);
        self.held = Vec::new();
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

#[cfg(test)]
mod tests;
