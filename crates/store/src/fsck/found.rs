// SPDX-License-Identifier: Apache-2.0
//! What a check says: one sentence for each thing, and numbers for all.

use std::path::Path;

use objects::Handle;

use crate::Error;
use crate::files::Files;
use crate::packs::Spot;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Nobody misses anything.
    None,
    /// It can be made anew, or taken away, without loss.
    Slight,
    /// Bytes that somebody stored are lost, unless a backup has them.
    Loss,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing, in one word.
    pub kind: &'static str,
    /// How bad it is.
    pub harm: Harm,
    /// The file, label or relation.
    pub place: String,
    /// The object that is concerned.
    pub object: Option<Handle>,
    /// What is wrong.
    pub what: String,
}

/// What a check found, and what was done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Sound objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records in packs that nothing leads to: what was collected, or written anew.
    pub unnamed: u64,
    /// Labels, and those of them of which something is missing.
    pub labels: u64,
    /// See `labels`.
    pub hurt_labels: u64,
    /// Remembered results.
    pub relations: u64,
    /// Things found that do no harm.
    pub notes: u64,
    /// Things found that can be put right without loss.
    pub slight: u64,
    /// Things found by which something is lost.
    pub losses: u64,
    /// Objects that were put back, from a pack or a backup.
    pub restored: u64,
    /// Objects that are lost after all.
    pub lost: u64,
    /// Rows, relations, labels, outboards and headers that were taken away or made anew.
    pub mended: u64,
    /// Unfinished files of a process that ended.
    pub temporary: u64,
    /// Their bytes.
    pub temporary_bytes: u64,
    /// Damaged files that were moved aside.
    pub quarantined: u64,
    /// Their bytes.
    pub quarantined_bytes: u64,
    /// There is more than could be remembered: another repair is needed.
    pub is_cut: bool,
}

impl Checked {
    pub(super) fn count(&mut self, finding: &Finding) {
        match finding.harm {
            Harm::None => self.notes += 1,
            Harm::Slight => self.slight += 1,
            Harm::Loss => self.losses += 1,
        }
    }

    /// Whether all was as it should be.
    pub fn is_clean(&self) -> bool {
        self.slight == 0 && self.losses == 0
    }

    /// Whether all is as it should be, now that it was repaired.
    pub fn is_whole(&self) -> bool {
        self.lost == 0 && self.hurt_labels == 0 && !self.is_cut
    }
}

impl Finding {
    fn new(
        kind: &'static str,
        harm: Harm,
        place: impl Into<String>,
        object: Option<Handle>,
        what: String,
    ) -> Self {
        Self { kind, harm, place: place.into(), object, what }
    }

    pub(super) fn format(files: &Files, found: &str) -> Self {
        let place = files.home().join("FORMAT").display().to_string();
        let what = format!("it says {found:?}, which no version writes; packs and index are there");
        Self::new("format", Harm::Slight, place, None, what)
    }

    pub(super) fn index(error: &Error) -> Self {
        let what = format!("{error}; where objects are can be found in the packs, labels only in a backup");
        Self::new("index", Harm::Loss, "index.redb", None, what)
    }

    pub(super) fn header(pack: u32) -> Self {
        let what = "its header is damaged; its objects are not".to_owned();
        Self::new("pack", Harm::Slight, pack_name(pack), None, what)
    }

    pub(super) fn stretch(pack: u32, from: u64, bytes: u64) -> Self {
        let what = format!(
            "{bytes} bytes from {from} on are no object; whose they were the index tells, if anybody's"
        );
        Self::new("pack", Harm::None, pack_name(pack), None, what)
    }

    pub(super) fn unreadable(place: impl Into<String>, from: u64, source: &std::io::Error) -> Self {
        let what = format!("the disk does not read it at {from}: {source}");
        Self::new("unreadable", Harm::Slight, place, None, what)
    }

    pub(super) fn damaged(place: impl Into<String>, key: Handle) -> Self {
        Self::new("damaged", Harm::Loss, place, Some(key), format!("the bytes of {key} are not its own"))
    }

    pub(super) fn nowhere(key: Handle, spot: Spot) -> Self {
        let at = u64::from(spot.unit) * crate::packs::UNIT;
        let what = format!("{key} is not where the index has it, at {at}");
        Self::new("nowhere", Harm::Loss, pack_name(spot.pack), Some(key), what)
    }

    pub(super) fn no_row(key: &[u8]) -> Self {
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::new(
            "row",
            Harm::Slight,
            "index.redb",
            None,
            format!("a row is for {key}, which is no small object"),
        )
    }

    pub(super) fn stray(path: &Path) -> Self {
        let what = "it is no object's, or not in its folder; nobody reads it".to_owned();
        Self::new("stray", Harm::None, path.display().to_string(), None, what)
    }

    pub(super) fn outboard(path: &Path, key: Handle) -> Self {
        let what = "it is not its object's; it is made anew when it is needed".to_owned();
        Self::new("outboard", Harm::Slight, path.display().to_string(), Some(key), what)
    }

    pub(super) fn label(name: &str) -> Self {
        Self::new("label", Harm::Loss, name, None, "what it named cannot be read: set it again".to_owned())
    }

    pub(super) fn hurt(name: &str, missing: Handle, tree: Option<Handle>) -> Self {
        let named = tree.map_or_else(|| "which it names".to_owned(), |tree| format!("which {tree} names"));
        Self::new("hurt", Harm::Loss, name, Some(missing), format!("{missing} is not there, {named}"))
    }

    pub(super) fn relation(key: &[u8], missing: Option<Handle>) -> Self {
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let what = match missing {
            Some(missing) => format!(
                "its result needs {missing}, which is not there; it is computed again when it is asked for"
            ),
            None => "what it says is damaged; it is computed again when it is asked for".to_owned(),
        };
        Self::new("relation", Harm::Slight, key, missing, what)
    }

    pub(super) fn incomplete(trees: u64, missing: Handle, tree: Handle) -> Self {
        let what = format!(
            "{trees} objects are named and not there, by trees without a label; the first is {missing}, which {tree} names"
        );
        Self::new("incomplete", Harm::None, "", Some(missing), what)
    }
}

pub(super) fn pack_name(pack: u32) -> String {
    format!("packs/{pack:010}.pack")
}
