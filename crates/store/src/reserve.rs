// SPDX-License-Identifier: Apache-2.0
//! Room that is kept back for taking things away: on a disk that is full, a collection could
//! not write down what it forgets, and nothing would ever be free again.
//!
//! It is a file in the home that nobody reads. Whoever takes something away has it removed
//! while the disk has less, and written anew afterwards; meanwhile others get nothing of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use parking_lot::Mutex;

use crate::Error;

/// The file's name.
const NAME: &str = "reserve";
/// What it has at least and at most, in bytes: a transaction that takes a few rows writes less.
const BYTES_MIN: u64 = 1 << 20;
const BYTES_MAX: u64 = 64 << 20;
/// In between, a share of the index, of which each transaction writes which pages are free.
const INDEX_SHARE: u64 = 32;
/// What the kernel says where a disk is full.
const ENOSPC: i32 = 28;
/// It is written in pieces, so that a disk with less room than that gives what it has.
const PIECE_BYTES: usize = 64 << 10;

/// The reserve of one home.
pub(crate) struct Reserve {
    home: PathBuf,
    lent: Mutex<Lending>,
}

#[derive(Default)]
struct Lending {
    /// To so many.
    to: usize,
    /// Who else writes leaves so many bytes free; 0: the disk was not full.
    bytes: u64,
}

/// It is not there, so that its room can be used, until this is dropped.
pub(crate) struct Lent<'a> {
    reserve: &'a Reserve,
    index_bytes: u64,
}

impl Reserve {
    pub(crate) fn of(home: PathBuf) -> Self {
        Self { home, lent: Mutex::default() }
    }

    fn path(&self) -> PathBuf {
        self.home.join(NAME)
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        linux::disk_free_bytes(&self.home).map_err(|source| Error::io(&self.home, source))
    }

    /// Makes it, if there is room for it and for as much again. Without one the home works
    /// as well as its disk has room.
    pub(crate) fn keep(&self, index_bytes: u64) {
        let bytes = wanted(index_bytes);
        if self.free_bytes().is_ok_and(|free| free / 2 > bytes) {
            self.fill(bytes);
        }
    }

    /// For who takes something away.
    pub(crate) fn lend(&self, index_bytes: u64) -> Lent<'_> {
        let mut lent = self.lent.lock();
        lent.to += 1;
        let bytes = wanted(index_bytes);
        if lent.bytes == 0 && self.free_bytes().is_ok_and(|free| free < bytes) {
            lent.bytes = bytes;
            // Where that fails there is less room, which whoever writes is told.
            _ = fs::remove_file(self.path());
        }
        Lent { reserve: self, index_bytes }
    }

    /// Removes it for those to whom it is lent, although the disk seemed to have room. Whether that makes any.
    pub(crate) fn lend_more(&self, index_bytes: u64) -> bool {
        let mut lent = self.lent.lock();
        if lent.to == 0 || lent.bytes > 0 {
            return false;
        }
        lent.bytes = wanted(index_bytes);
        fs::remove_file(self.path()).is_ok()
    }

    /// Before others write so much: whether that would be into what is lent.
    pub(crate) fn spare(&self, bytes: u64) -> Result<(), Error> {
        let kept = self.lent.lock().bytes;
        if kept > 0 && self.free_bytes()? < kept + bytes {
            return Err(Error::io(&self.home, io::Error::from_raw_os_error(ENOSPC)));
        }
        Ok(())
    }

    /// Writes it up to so many bytes, or what there is room for.
    fn fill(&self, bytes: u64) {
        let mut options = OpenOptions::new();
        let Ok(file) = options.append(true).create(true).mode(0o600).open(self.path()) else { return };
        let Ok(metadata) = file.metadata() else { return };
        // A loss of power may have left its length without its bytes.
        let is_hollow = metadata.blocks() * 512 < metadata.len();
        if is_hollow && file.set_len(0).is_err() {
            return;
        }
        // A full disk ends it, and what is there is kept.
        _ = append(file, if is_hollow { 0 } else { metadata.len() }, bytes);
    }
}

/// Appends what no file system can make shorter.
fn append(mut file: File, from: u64, to: u64) -> io::Result<()> {
    let mut noise = blake3::Hasher::new().update(NAME.as_bytes()).finalize_xof();
    noise.set_position(from);
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = from;
    while at < to {
        noise.read_exact(&mut piece)?;
        file.write_all(&piece)?;
        at += PIECE_BYTES as u64;
    }
    Ok(())
}

fn wanted(index_bytes: u64) -> u64 {
    (index_bytes / INDEX_SHARE).clamp(BYTES_MIN, BYTES_MAX)
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut lent = self.reserve.lent.lock();
        lent.to -= 1;
        if lent.to == 0 && std::mem::take(&mut lent.bytes) > 0 {
            self.reserve.fill(wanted(self.index_bytes));
        }
    }
}
