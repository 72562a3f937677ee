// SPDX-License-Identifier: Apache-2.0
//! Rows of the database: a version, the content, a checksum, so that a
//! flipped bit on the disk never becomes a call.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::message::{Payload, State};

const VERSION: u8 = 1;
const CHECK_LEN: usize = 8;

/// What the disk knows of a message besides what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) lane: String,
    /// [`State::Running`] says that an attempt was begun.
    pub(crate) state: State,
    pub(crate) pushed_ms: u64,
    /// The same, or when it was last redriven: its age counts from here.
    pub(crate) created_ms: u64,
    pub(crate) due_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) attempts: u32,
    pub(crate) reason: String,
    /// Of head and body, later of the outcome.
    pub(crate) bytes: u64,
}

/// A key against duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) id: crate::Id,
    pub(crate) until_ms: u64,
}

/// A row of one of the above.
pub(crate) fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    // Numbers and texts: nothing can fail.
    checked(&postcard::to_allocvec(value).unwrap_or_default())
}

/// `None` for what is no row of one.
pub(crate) fn decoded<T: DeserializeOwned>(row: &[u8]) -> Option<T> {
    postcard::from_bytes(content(row)?).ok()
}

/// A row of these bytes.
pub(crate) fn checked(content: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(1 + content.len() + CHECK_LEN);
    row.push(VERSION);
    row.extend_from_slice(content);
    let check = blake3::hash(&row);
    row.extend_from_slice(&check.as_bytes()[..CHECK_LEN]);
    row
}

/// The bytes of a row; `None` if it is damaged.
pub(crate) fn content(row: &[u8]) -> Option<&[u8]> {
    let (rest, check) = row.split_at_checked(row.len().checked_sub(CHECK_LEN)?)?;
    let is_whole = blake3::hash(rest).as_bytes()[..CHECK_LEN] == *check;
    rest.split_first().filter(|(version, _)| is_whole && **version == VERSION).map(|(_, content)| content)
}

/// Head and body, one after the other.
pub(crate) fn joined(head: &[u8], body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes();
    checked(&[&len, head, body].concat())
}

/// What [`joined`] joined.
pub(crate) fn parted(row: &[u8]) -> Option<Payload> {
    let (len, rest) = content(row)?.split_first_chunk()?;
    let (head, body) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((head.to_vec(), body.to_vec()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rows_come_back_and_damaged_ones_do_not() {
        let row = joined(b"head", b"and body");
        assert_eq!(parted(&row).unwrap(), (b"head".to_vec(), b"and body".to_vec()));
        for at in 0..row.len() {
            let mut bad = row.clone();
            bad[at] ^= 1;
            assert_eq!(parted(&bad), None, "byte {at}");
        }
        assert!((0..row.len()).all(|len| parted(&row[..len]).is_none()));
        let key = Key { id: crate::Id(7), until_ms: 9 };
        assert_eq!(decoded::<Key>(&encoded(&key)), Some(key));
        assert_eq!(decoded::<Entry>(&encoded(&key)), None);
    }
}
