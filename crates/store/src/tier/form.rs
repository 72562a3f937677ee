// SPDX-License-Identifier: Apache-2.0
//! The form of what lies in the durable tier, without I/O.
//!
//! ```text
//! FORMAT                     "sinew-tier 1", which tier it is, and who owns it
//! packs/ab/NAME              objects under 64 KiB, many in one
//! objects/ab/HANDLE          objects from 64 KiB
//! objects/ab/HANDLE.outboard of those from 1 MiB: hashes over parts
//! labels/NUMBER              all labels; the greatest number is the newest
//! collecting/HOME            is there while that home takes things away
//! collected/HOME             how often it has, in decimal digits
//! ```
//!
//! A pack is a header (`sinew-tier-pack 1`, how many objects), their handles, and their
//! bytes one after another: handles say how long they are, so that where each begins
//! follows. Its name is a hash of header and handles, which stands for all of it.

use std::fmt::Write as _;

use objects::Handle;

use crate::files::{is_large, object_len};
use crate::index::PACK_NAME_LEN;
use crate::labels::check_name;
use crate::{LABELS_MAX, Object, Recipe};

/// The name of what says whose tier it is.
pub(super) const FORMAT: &str = "FORMAT";
const FORMAT_LINE: &str = "sinew-tier 1";
/// More of it is not read.
pub(super) const FORMAT_BYTES_MAX: u64 = 4096;

/// Of each home that may be removing things.
pub(super) const COLLECTING: &str = "collecting/";
/// Of each home, how often it has removed things.
const COLLECTED: &str = "collected/";
/// More of such a number is not read.
pub(super) const COUNT_BYTES_MAX: u64 = 64;
pub(super) const PACKS: &str = "packs/";
pub(super) const OBJECTS: &str = "objects/";
pub(super) const LABELS: &str = "labels/";
const OUTBOARD: &str = ".outboard";

const PACK_MAGIC: &[u8; 24] = b"sinew-tier-pack 1\n\0\0\0\0\0\0";
pub(super) const HEADER_LEN: u64 = 32;
/// A pack takes no further object beyond so many bytes, or objects.
pub(super) const PACK_BYTES: usize = 4 << 20;
pub(super) const PACK_OBJECTS: usize = 16 << 10;
/// No pack is longer, with what came with the object that filled it.
pub(super) const PACK_BYTES_MAX: u64 = 32 << 20;

const LABELS_MAGIC: &[u8] = b"sinew-tier-labels 1\n";
const CHECK_LEN: usize = 16;
/// Key, application, nanoseconds of its own and in all, depth.
const RECIPE_LEN: usize = 2 * Handle::LEN + 8 + 8 + 4;
/// Recipes that labels carry with them.
pub(super) const RECIPES_MAX: usize = 1 << 20;

/// Which tier it is, and which home owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) tier: [u8; 16],
    pub(super) home: [u8; 16],
}

/// What `FORMAT` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Ours(Owner),
    /// Another version's, or nobody's: its first line.
    Unknown(String),
}

pub(super) fn format_text(owner: &Owner) -> String {
    format!("{FORMAT_LINE}\ntier {}\nowner {}\n", hex(&owner.tier), hex(&owner.home))
}

pub(super) fn parse_format(text: &[u8]) -> Format {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let mut id = |what: &str| lines.next().and_then(|line| unhex(line.strip_prefix(what)?));
    match (first == FORMAT_LINE, id("tier "), id("owner ")) {
        (true, Some(tier), Some(home)) => Format::Ours(Owner { tier, home }),
        _ => Format::Unknown(first.chars().take(80).collect()),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn unhex(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes().as_chunks::<2>().0;
    if text.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(bytes)
}

pub(super) fn object_name(key: Handle) -> String {
    format!("{OBJECTS}{:02x}/{key}", key.hash_bytes()[0])
}

pub(super) fn outboard_name(key: Handle) -> String {
    object_name(key) + OUTBOARD
}

/// Whose object has this name.
pub(super) fn named(name: &str) -> Option<Handle> {
    let key: Handle = name.strip_prefix(OBJECTS)?.get(3..)?.parse().ok()?;
    (key == key.plain_tree() && is_large(key) && object_name(key) == name).then_some(key)
}

pub(super) fn collecting_name(home: &[u8; 16]) -> String {
    format!("{COLLECTING}{}", hex(home))
}

pub(super) fn collected_name(home: &[u8; 16]) -> String {
    format!("{COLLECTED}{}", hex(home))
}

/// How often a home has taken things away; nothing is never. `None`: it is no number.
pub(super) fn count(text: Option<&[u8]>) -> Option<u64> {
    let Some(text) = text else { return Some(0) };
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// Whose outboard has this name.
pub(super) fn named_outboard(name: &str) -> Option<Handle> {
    named(name.strip_suffix(OUTBOARD)?)
}

pub(super) fn pack_name(pack: &[u8; PACK_NAME_LEN]) -> String {
    format!("{PACKS}{:02x}/{}", pack[0], hex(pack))
}

/// Which pack has this name.
pub(super) fn named_pack(name: &str) -> Option<[u8; PACK_NAME_LEN]> {
    let pack = unhex(name.strip_prefix(PACKS)?.get(3..)?)?;
    (pack_name(&pack) == name).then_some(pack)
}

/// A pack of these objects: what it is called, and its bytes.
pub(super) fn pack(objects: &[(Handle, Object)]) -> ([u8; PACK_NAME_LEN], Vec<u8>) {
    let len: usize = objects.iter().map(|(_, object)| Handle::LEN + object.len()).sum();
    let mut bytes = Vec::with_capacity(HEADER_LEN as usize + len);
    bytes.extend_from_slice(PACK_MAGIC);
    bytes.extend_from_slice(&(objects.len() as u64).to_le_bytes());
    for (key, _) in objects {
        bytes.extend_from_slice(key.as_bytes());
    }
    let name = called(&bytes);
    for (key, object) in objects {
        debug_assert_eq!(object.len() as u64, object_len(*key));
        bytes.extend_from_slice(object);
    }
    (name, bytes)
}

fn called(table: &[u8]) -> [u8; PACK_NAME_LEN] {
    let mut name = [0; PACK_NAME_LEN];
    name.copy_from_slice(&blake3::hash(table).as_bytes()[..PACK_NAME_LEN]);
    name
}

/// How many bytes header and handles of a pack are, from its header; `None` if that is none.
pub(super) fn table_len(header: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(*header.strip_prefix(PACK_MAGIC)?.first_chunk()?);
    (count <= PACK_OBJECTS as u64).then(|| HEADER_LEN + count * Handle::LEN as u64)
}

/// The objects of a pack, and where each begins, from its header and handles. `None`: they are not what
/// its name says.
pub(super) fn contents(pack: &[u8; PACK_NAME_LEN], table: &[u8]) -> Option<Vec<(Handle, u32)>> {
    if table_len(table)? != table.len() as u64 || called(table) != *pack {
        return None;
    }
    let mut offset = table.len() as u64;
    let handles = table.get(HEADER_LEN as usize..)?.as_chunks::<{ Handle::LEN }>().0;
    let mut contents = Vec::with_capacity(handles.len());
    for bytes in handles {
        let key = Handle::from_bytes(*bytes).ok()?;
        if key != key.plain_tree() || is_large(key) || key.literal_bytes().is_some() {
            return None;
        }
        contents.push((key, u32::try_from(offset).ok()?));
        offset += object_len(key);
    }
    Some(contents)
}

/// All labels of one moment, and how what they name and was dropped is made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) labels: Vec<(String, Handle)>,
    pub(super) recipes: Vec<(Handle, Recipe)>,
}

pub(super) fn labels_name(number: u64) -> String {
    format!("{LABELS}{number:020}")
}

pub(super) fn labels_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(LABELS)?.parse().ok()?;
    (labels_name(number) == name).then_some(number)
}

impl Names {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = LABELS_MAGIC.to_vec();
        bytes.extend_from_slice(&(self.labels.len() as u64).to_le_bytes());
        for (name, handle) in &self.labels {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(handle.as_bytes());
        }
        bytes.extend_from_slice(&(self.recipes.len() as u64).to_le_bytes());
        for (key, recipe) in &self.recipes {
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(recipe.application.as_bytes());
            bytes.extend_from_slice(&recipe.own_nanos.to_le_bytes());
            bytes.extend_from_slice(&recipe.nanos.to_le_bytes());
            bytes.extend_from_slice(&recipe.depth.to_le_bytes());
        }
        let check = blake3::hash(&bytes);
        bytes.extend_from_slice(&check.as_bytes()[..CHECK_LEN]);
        bytes
    }

    /// `None`: they are damaged, or of another version.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (told, check) = bytes.split_at_checked(bytes.len().checked_sub(CHECK_LEN)?)?;
        if blake3::hash(told).as_bytes().get(..CHECK_LEN)? != check {
            return None;
        }
        let mut rest = told.strip_prefix(LABELS_MAGIC)?;
        let mut take = |len: usize| {
            let (taken, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(taken)
        };
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.first_chunk()?));
        let mut names = Self::default();
        for _ in 0..number(take(8)?).filter(|count| *count <= LABELS_MAX)? {
            let len = usize::from(*take(1)?.first()?);
            let name = String::from_utf8(take(len)?.to_vec()).ok()?;
            check_name(&name).ok()?;
            names.labels.push((name, Handle::from_bytes(*take(Handle::LEN)?.first_chunk()?).ok()?));
        }
        for _ in 0..number(take(8)?).filter(|count| *count <= RECIPES_MAX as u64)? {
            names.recipes.push(recipe(take(RECIPE_LEN)?)?);
        }
        rest.is_empty().then_some(names)
    }
}

fn recipe(bytes: &[u8]) -> Option<(Handle, Recipe)> {
    let handle = |at: usize| Handle::from_bytes(*bytes.get(at..)?.first_chunk()?).ok();
    let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let depth = u32::from_le_bytes(*bytes.get(80..)?.first_chunk()?);
    Some((handle(0)?, Recipe::new(handle(32)?, number(64)?, number(72)?, depth)))
}
