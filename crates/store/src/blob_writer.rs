// SPDX-License-Identifier: Apache-2.0
//! Storing a blob while its bytes arrive.
//!
//! Up to 64 KiB stay in memory; beyond that, bytes are hashed and written to a
//! temporary file as they come. Without a disk, all stay in memory. A writer
//! that is dropped leaves nothing behind.

use std::sync::Arc;

use objects::{BLOB_SIZE_MAX, Handle};

use crate::disk::{Disk, Growing};
use crate::files::{LARGE_BYTES, TempFile};
use crate::memory::{DURABLE, Memory};
use crate::store::put_objects;
use crate::{Error, Object};

/// Bytes collected before they are hashed and written.
const BUFFER_BYTES: usize = LARGE_BYTES as usize;

/// One blob on its way in; made by [`crate::Store::blob_writer`].
pub struct BlobWriter {
    memory: Arc<Memory>,
    disk: Option<Arc<Disk>>,
    /// What was not hashed and written yet; everything, until `stream` is there.
    buffer: Vec<u8>,
    stream: Option<Stream>,
    len: u64,
}

struct Stream {
    growing: Growing,
    temp: TempFile,
}

impl BlobWriter {
    pub(crate) fn new(memory: Arc<Memory>, disk: Option<Arc<Disk>>) -> Self {
        Self { memory, disk, buffer: Vec::new(), stream: None, len: 0 }
    }

    /// Bytes written so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Nothing written so far.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes. May block on the disk.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::TooLarge`], and [`Error::Full`] without a disk.
    /// The writer is of no use afterwards.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let len = self.len.saturating_add(bytes.len() as u64);
        if len > BLOB_SIZE_MAX {
            return Err(Error::TooLarge);
        }
        let Some(disk) = &self.disk else {
            let needed_bytes = self.memory.lacking_bytes(len);
            if needed_bytes > 0 {
                return Err(Error::Full { needed_bytes, budget_bytes: self.memory.budget_bytes() });
            }
            self.buffer.extend_from_slice(bytes);
            self.len = len;
            return Ok(());
        };
        self.len = len;
        if self.buffer.len() + bytes.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = Stream { growing: Growing::new(false), temp: disk.temp_file()? };
                self.stream.insert(stream)
            }
        };
        stream.write(disk, &self.buffer)?;
        self.buffer.clear();
        stream.write(disk, bytes)
    }

    /// Ends the blob and returns its handle. With a disk, the blob is synced.
    ///
    /// # Errors
    /// As [`BlobWriter::write`].
    pub fn finish(mut self) -> Result<Handle, Error> {
        let (Some(mut stream), Some(disk)) = (self.stream.take(), &self.disk) else {
            if let Some(literal) = Handle::literal(&self.buffer) {
                return Ok(literal);
            }
            let handle = Handle::blob(&self.buffer);
            let object = Object::from_vec(std::mem::take(&mut self.buffer));
            put_objects(&self.memory, self.disk.as_deref(), vec![(handle, object)])?;
            return Ok(handle);
        };
        stream.write(disk, &self.buffer)?;
        let Stream { growing, temp } = stream;
        let (hash, grown) = growing.finish();
        let handle = Handle::blob_from_hash(hash.as_bytes(), self.len).ok_or(Error::TooLarge)?;
        let outboard = grown.complete(disk.files(), handle);
        let _stays = disk.stay();
        disk.promise(std::iter::once(handle))?;
        let adopted = disk.adopt(temp, handle, outboard)?;
        disk.note_put(std::iter::once(handle));
        if let Some(object) = adopted {
            self.memory.insert_with(handle, DURABLE, || object);
        }
        Ok(handle)
    }
}

impl Stream {
    fn write(&mut self, disk: &Disk, bytes: &[u8]) -> Result<(), Error> {
        disk.spare(bytes.len() as u64)?;
        self.growing.update(disk.files(), bytes);
        self.temp.write_all(bytes)
    }
}

#[cfg(test)]
mod tests;
