// SPDX-License-Identifier: Apache-2.0
//! What goes from the tier: for everybody but who takes it away it is gone already.

use std::collections::{HashMap, HashSet};

use objects::Handle;
use parking_lot::Mutex;

use super::reach::Marks;
use crate::index::{PACK_NAME_LEN, Place, Tiered};

pub(super) type PackName = [u8; PACK_NAME_LEN];

/// Packs of which all that is not marked goes, and large objects that go.
pub(crate) struct Sentence {
    packs: Mutex<HashSet<PackName>>,
    lone: Mutex<HashSet<Handle>>,
    marks: Marks,
    /// Nothing goes that somebody has relied on since then, or that was sent: it may have come when
    /// what is needed had been looked at.
    before_s: u32,
}

impl Sentence {
    /// What is not marked of these goes.
    pub(super) fn new(
        packs: HashSet<PackName>,
        mut lone: HashSet<Handle>,
        marks: Marks,
        before_s: u32,
    ) -> Self {
        lone.retain(|key| !marks.has(*key, Place::Lone));
        Self { packs: Mutex::new(packs), lone: Mutex::new(lone), marks, before_s }
    }

    /// Whether the object goes from where its row says that it is.
    pub(crate) fn takes(&self, key: Handle, row: &Tiered) -> bool {
        if row.since_s >= self.before_s {
            return false;
        }
        match row.place {
            Place::Lone => self.lone.lock().contains(&key),
            Place::Packed { pack, .. } => {
                self.packs.lock().contains(&pack) && !self.marks.has(key, row.place)
            }
        }
    }

    /// A large object stays after all, for it is being sent again; or it is gone.
    pub(super) fn spare(&self, key: Handle) {
        self.lone.lock().remove(&key);
    }

    /// The same of a pack.
    pub(super) fn spare_pack(&self, pack: &PackName) {
        self.packs.lock().remove(pack);
    }

    pub(super) fn has_lone(&self, key: Handle) -> bool {
        self.lone.lock().contains(&key)
    }

    pub(super) fn packs(&self) -> Vec<PackName> {
        self.packs.lock().iter().copied().collect()
    }

    pub(super) fn lone(&self) -> Vec<Handle> {
        self.lone.lock().iter().copied().collect()
    }
}

/// How many bytes of a pack are needed.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    /// Where the last of its objects ends.
    pub(super) len: u64,
    pub(super) live: u64,
    pub(super) live_bytes: u64,
    pub(super) dead: u64,
    pub(super) dead_bytes: u64,
}

impl Tally {
    /// Whether it is worth writing anew, or nothing of it is needed.
    pub(super) fn is_doomed(&self) -> bool {
        self.dead > 0 && self.live_bytes * 2 < self.len
    }
}

/// What is needed of all packs that have rows.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) packs: HashMap<PackName, Tally>,
    /// Large objects that are not needed.
    pub(super) lone: HashSet<Handle>,
    /// How many are.
    pub(super) kept_lone: u64,
}
