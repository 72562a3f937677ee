// SPDX-License-Identifier: Apache-2.0
//! The form of a pack: a header and records, one after another, without I/O.
//!
//! A record is an object's handle and its bytes, filled up to a multiple of
//! [`UNIT`]. The handle says how long the bytes are and what they hash to, so
//! that a record needs neither length nor checksum, and a pack whose end was
//! not written is told from one that was.

use objects::Handle;

use crate::disk::hashes_to;
use crate::files::{LARGE_BYTES, is_large, object_len};

/// Records begin at multiples of so many bytes.
pub(crate) const UNIT: u64 = 32;

/// How long a pack's header is: one unit.
pub(crate) const HEADER_LEN: u64 = UNIT;

/// What every pack begins with.
const MAGIC: &[u8; 24] = b"sinew-pack 1\n\0\0\0\0\0\0\0\0\0\0\0";

/// The header of a pack that is begun now, in seconds since 1970.
pub(crate) fn header(begun: u64) -> [u8; HEADER_LEN as usize] {
    let mut header = [0; HEADER_LEN as usize];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()..].copy_from_slice(&begun.to_le_bytes());
    header
}

/// When a pack was begun, from its header; `None` if that is none.
pub(crate) fn begun(header: &[u8]) -> Option<u64> {
    let begun = header.strip_prefix(MAGIC)?;
    Some(u64::from_le_bytes(*begun.first_chunk()?))
}

/// How many bytes the record of an object takes.
pub(crate) fn span(key: Handle) -> u64 {
    (Handle::LEN as u64 + object_len(key)).next_multiple_of(UNIT)
}

/// Writes an object's record behind others.
pub(crate) fn push(records: &mut Vec<u8>, key: Handle, bytes: &[u8]) {
    let end = records.len() + span(key) as usize;
    records.extend_from_slice(key.as_bytes());
    records.extend_from_slice(bytes);
    records.resize(end, 0);
}

/// A record in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// Where it begins, in units from the pack's beginning.
    pub(crate) unit: u32,
    /// The object.
    pub(crate) key: Handle,
    /// What is said to be its bytes.
    pub(crate) bytes: &'a [u8],
}

impl Found<'_> {
    /// Whether they are.
    pub(crate) fn is_sound(&self) -> bool {
        hashes_to(self.bytes, self.key)
    }
}

/// The records of a pack from some byte on, up to the first that is none. Their
/// bytes are not verified.
pub(crate) struct Records<'a> {
    pack: &'a [u8],
    at: u64,
}

impl<'a> Records<'a> {
    /// From a record's beginning, or the end of the last one.
    pub(crate) fn new(pack: &'a [u8], from: u64) -> Self {
        Self { pack, at: from.max(HEADER_LEN) }
    }

    /// Where the next record would begin, in bytes.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Goes on behind a damaged record that begins at `from`: at the next one that is
    /// sound. False if none begins where it may at the latest, as at a pack's end.
    pub(crate) fn resume(&mut self, from: u64) -> bool {
        let latest = from + Handle::LEN as u64 + LARGE_BYTES.next_multiple_of(UNIT);
        let mut starts = (from + UNIT..=latest).step_by(UNIT as usize);
        let next =
            starts.find(|at| Records { pack: self.pack, at: *at }.next().is_some_and(|next| next.is_sound()));
        self.at = next.unwrap_or(from);
        next.is_some()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        let rest = self.pack.get(usize::try_from(self.at).ok()?..)?;
        let key = Handle::from_bytes(*rest.first_chunk()?).ok()?;
        if key != key.plain_tree() || key.literal_bytes().is_some() || is_large(key) {
            return None;
        }
        let bytes = rest.get(Handle::LEN..)?.get(..object_len(key) as usize)?;
        let unit = u32::try_from(self.at / UNIT).ok()?;
        // The last record's filling may be cut off: nothing is lost with it.
        self.at += span(key);
        Some(Found { unit, key, bytes })
    }
}

/// The sound records of a pack from some byte on, also behind damaged ones.
pub(crate) struct Sound<'a>(Records<'a>);

impl<'a> Sound<'a> {
    pub(crate) fn new(pack: &'a [u8], from: u64) -> Self {
        Self(Records::new(pack, from))
    }

    /// Where the last one ends, in bytes.
    pub(crate) fn at(&self) -> u64 {
        self.0.at()
    }
}

impl<'a> Iterator for Sound<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        loop {
            let from = self.0.at();
            if let Some(record) = self.0.next().filter(Found::is_sound) {
                return Some(record);
            }
            if !self.0.resume(from) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
