// SPDX-License-Identifier: Apache-2.0
//! What comes from outside, on its way into the store: little of it in memory, and
//! much of it on the disk.
//!
//! What all sources together have on the disk before they are whole is bounded
//! ([`Unfinished`]): who has no room waits for it before it begins, with nothing. And a
//! part of the disk is left to what is put. Whoever goes over that fails, gives its room
//! back, and leaves the others to go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::io::{Sink, Taking};
use axum::body::Bytes;
use objects::Handle;
use parking_lot::Mutex;
use store::{BlobWriter, Store};
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are held before they are written; what is shorter stays in memory.
const PIECE_BYTES: usize = 256 << 10;
/// Parts of the whole that are shared by sources up to a length; and that length, as a
/// part of the whole too. Who is long so keeps nobody waiting who is shorter.
const SHARES: [Share; 3] =
    [Share { parts: 4, of_one: 2048 }, Share { parts: 8, of_one: 128 }, Share { parts: 20, of_one: 2 }];
/// Of what the parts of [`SHARES`] are.
const PARTS: u64 = 32;

/// For so long it is believed that the disk has room to spare, by who keeps up to
/// [`PIECE_BYTES`]: to ask for each of many small sources would take longer than they do.
const SPARE_FOR: Duration = Duration::from_millis(100);

struct Share {
    /// How many of the parts.
    parts: u64,
    /// Which part of the whole one source may have at most.
    of_one: u64,
}

/// Room on the disk for what is not whole yet, of all sources.
pub(super) struct Unfinished {
    bytes_max: u64,
    unit_bytes: u64,
    shares: [Arc<Semaphore>; SHARES.len()],
    /// When the disk had room to spare.
    spare: Mutex<Option<Instant>>,
}

/// Some of it.
struct Room {
    bytes: u64,
    units: OwnedSemaphorePermit,
}

impl Unfinished {
    pub(super) fn new(bytes_max: u64) -> Self {
        let unit_bytes = (bytes_max >> 17).max(1);
        let shares = SHARES
            .map(|share| Arc::new(Semaphore::new((bytes_max / PARTS * share.parts / unit_bytes) as usize)));
        Self { bytes_max, unit_bytes, shares, spare: Mutex::default() }
    }

    /// Whether the disk had room to spare a moment ago.
    fn had_spare_room(&self) -> bool {
        self.spare.lock().is_some_and(|asked| asked.elapsed() < SPARE_FOR)
    }

    /// Asks whether it has. Blocks.
    fn has_spare_room(&self, store: &Store) -> Result<(), String> {
        store.has_spare_room().map_err(|error| error.to_string())?;
        *self.spare.lock() = Some(Instant::now());
        Ok(())
    }

    /// Bytes that somebody has room for.
    pub(super) fn bytes(&self) -> u64 {
        let all: u64 =
            SHARES.iter().map(|share| self.bytes_max / PARTS * share.parts / self.unit_bytes).sum();
        let free: u64 = self.shares.iter().map(|units| units.available_permits() as u64).sum();
        all.saturating_sub(free) * self.unit_bytes
    }

    /// Whose share it is, and how many units. None: so much nobody gets.
    fn share(&self, bytes: u64) -> Option<(Arc<Semaphore>, u32)> {
        let at = SHARES.iter().position(|share| bytes <= self.bytes_max / share.of_one)?;
        Some((Arc::clone(&self.shares[at]), u32::try_from(bytes.div_ceil(self.unit_bytes)).ok()?))
    }

    /// Some room, if it is there.
    fn take(&self, bytes: u64) -> Option<Room> {
        let (share, units) = self.share(bytes)?;
        Some(Room { bytes, units: share.try_acquire_many_owned(units).ok()? })
    }

    /// More room, if it is there; otherwise it stays as it is.
    fn grow(&self, room: &mut Room, bytes: u64) -> bool {
        let Some((share, units)) = self.share(bytes) else { return false };
        let has_units = u32::try_from(room.units.num_permits()).unwrap_or(u32::MAX);
        let is_same = Arc::ptr_eq(&share, room.units.semaphore());
        let wanted = if is_same { units.saturating_sub(has_units) } else { units };
        let Ok(more) = share.try_acquire_many_owned(wanted) else { return false };
        match is_same {
            true => room.units.merge(more),
            false => room.units = more,
        }
        room.bytes = bytes;
        true
    }

    /// Some room, when it is there.
    async fn wait(&self, bytes: u64) -> Result<Room, String> {
        let Some((share, units)) = self.share(bytes) else {
            let most = self.bytes_max / 2;
            return Err(format!("it has {bytes} bytes, and of what is fetched one has {most} at most"));
        };
        let units = share.acquire_many_owned(units).await.map_err(|error| error.to_string())?;
        Ok(Room { bytes, units })
    }
}

/// One blob on its way.
pub(super) struct StoreSink {
    store: Arc<Store>,
    unfinished: Arc<Unfinished>,
    held: Vec<u8>,
    /// Its own until something is written, and then the writer's.
    room: Option<Room>,
    writer: Option<Writer>,
    len: u64,
    is_refused: bool,
    kept: Option<Handle>,
}

/// What of it is on the disk.
struct Writer {
    /// Gone only while it is written to, finished, or being dropped.
    writer: Option<BlobWriter>,
    room: Option<Room>,
}

impl Writer {
    /// Blocks.
    fn write(&mut self, store: &Store, bytes: &[u8]) -> Result<(), String> {
        store.has_spare_room().map_err(|error| error.to_string())?;
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
        let (writer, room) = (self.writer.take(), self.room.take());
        // To remove a file takes long if it is large; and it has its room until it is gone.
        let remove = move || {
            drop(writer);
            drop(room);
        };
        match runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl StoreSink {
    pub(super) fn new(store: Arc<Store>, unfinished: Arc<Unfinished>) -> Self {
        Self {
            store,
            unfinished,
            held: Vec::new(),
            room: None,
            writer: None,
            len: 0,
            is_refused: false,
            kept: None,
        }
    }

    /// Bytes that have come, of those that count.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the store did not take it.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The blob, if it has come. What was long is synced.
    pub(super) fn kept(&self) -> Option<Handle> {
        self.kept
    }

    async fn finish(&mut self) -> Result<Handle, String> {
        if self.writer.is_some() {
            self.flush().await?;
        }
        let (writer, store, held) =
            (self.writer.take(), Arc::clone(&self.store), std::mem::take(&mut self.held));
        if writer.is_none() && store.keeps_at_once(held.len() as u64) && self.unfinished.had_spare_room() {
            return Ok(store.keep_blob_vec(held));
        }
        // Also where it is kept in memory: that waits for room there.
        let unfinished = Arc::clone(&self.unfinished);
        let finished = tokio::task::spawn_blocking(move || match writer {
            Some(writer) => writer.finish(),
            None => {
                unfinished.has_spare_room(&store)?;
                Ok(store.keep_blob_vec(held))
            }
        });
        finished.await.map_err(|error| error.to_string())?
    }

    /// What has come is void. A file that is there keeps its room until it is gone.
    fn reset(&mut self) {
        (self.writer, self.len) = (None, 0);
        self.held = Vec::new();
    }

    /// Writes what is held. The disk is waited for elsewhere.
    async fn flush(&mut self) -> Result<(), String> {
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer {
                writer: Some(self.store.blob_writer().map_err(|error| error.to_string())?),
                room: self.room.take(),
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
        self.reset();
    }

    fn forget(&mut self) {
        self.reset();
        self.room = None;
    }

    fn has_room(&mut self, bytes: u64) -> bool {
        let room = match &mut self.writer {
            Some(writer) => &mut writer.room,
            None => &mut self.room,
        };
        match room {
            Some(room) if bytes <= room.bytes => true,
            // More at once than is asked for, where it comes to be more and more.
            Some(room) => {
                let more = bytes.max(2 * room.bytes);
                self.unfinished.grow(room, more) || self.unfinished.grow(room, bytes)
            }
            None if bytes <= PIECE_BYTES as u64 => true,
            None => {
                *room = self.unfinished.take(bytes);
                room.is_some()
            }
        }
    }

    fn room(&mut self, bytes: u64) -> Taking<'_> {
        Box::pin(async move {
            let room = self.unfinished.wait(bytes).await;
            self.is_refused |= room.is_err();
            self.room = Some(room?);
            Ok(())
        })
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

    fn end(&mut self) -> Taking<'_> {
        Box::pin(async move {
            let finished = self.finish().await;
            self.is_refused |= finished.is_err();
            self.kept = Some(finished?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
