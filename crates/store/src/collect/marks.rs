// SPDX-License-Identifier: Apache-2.0
//! Which of the old objects are still needed: a bit for each place in a pack
//! where one may begin, a word for each large one.

use std::collections::{BTreeMap, HashMap, HashSet};

use objects::Handle;
use parking_lot::Mutex;

use crate::files::is_large;
use crate::packs::{Spot, UNIT};

/// What may go unless it is marked.
#[derive(Default)]
pub(crate) struct Marks {
    packs: BTreeMap<u32, Vec<u64>>,
    large: HashMap<Handle, bool>,
}

impl Marks {
    /// With nothing marked: packs and their lengths, and large objects.
    pub(crate) fn new(packs: &[(u32, u64)], large: Vec<Handle>) -> Self {
        let words = |len: u64| vec![0; len.div_ceil(UNIT).div_ceil(64) as usize];
        Self {
            packs: packs.iter().map(|(number, len)| (*number, words(*len))).collect(),
            large: large.into_iter().map(|key| (key, false)).collect(),
        }
    }

    /// Whether an object may go for all that is known: its spot, if it is small.
    pub(crate) fn is_unmarked(&self, key: Handle, spot: Option<Spot>) -> bool {
        if is_large(key) {
            return self.large.get(&key) == Some(&false);
        }
        let Some(spot) = spot else { return false };
        self.packs.get(&spot.pack).is_some_and(|words| !is_set(words, spot.unit))
    }

    /// Marks an object. Whether it was not, and might have gone.
    pub(crate) fn mark(&mut self, key: Handle, spot: Option<Spot>) -> bool {
        if is_large(key) {
            return self.large.get_mut(&key).is_some_and(|is_marked| !std::mem::replace(is_marked, true));
        }
        let Some(spot) = spot else { return false };
        let word = self.packs.get_mut(&spot.pack).and_then(|words| words.get_mut(spot.unit as usize / 64));
        let bit = 1 << (spot.unit % 64);
        word.is_some_and(|word| {
            let was_set = *word & bit != 0;
            *word |= bit;
            !was_set
        })
    }

    /// Whether what is in this pack may go.
    pub(crate) fn covers(&self, pack: u32) -> bool {
        self.packs.contains_key(&pack)
    }

    /// Whether this large object may go, unless it is marked.
    pub(crate) fn covers_large(&self, key: Handle) -> bool {
        self.large.contains_key(&key)
    }

    /// What is not marked goes.
    pub(crate) fn sentence(self) -> Sentence {
        let unmarked = self.large.into_iter().filter(|(_, is_marked)| !is_marked);
        let large = Mutex::new(unmarked.map(|(key, _)| key).collect());
        Sentence { packs: self.packs, large }
    }
}

/// What goes.
pub(crate) struct Sentence {
    /// Bits of what stays, of the packs in which all else goes.
    packs: BTreeMap<u32, Vec<u64>>,
    large: Mutex<HashSet<Handle>>,
}

impl Sentence {
    /// Whether the object goes: a small one by its spot.
    pub(crate) fn takes(&self, key: Handle, spot: Option<Spot>) -> bool {
        match spot {
            Some(spot) => self.packs.get(&spot.pack).is_some_and(|words| !is_set(words, spot.unit)),
            None => is_large(key) && self.large.lock().contains(&key),
        }
    }

    /// A large object stays after all, for it was put again; or it is gone.
    pub(crate) fn spare(&self, key: Handle) {
        self.large.lock().remove(&key);
    }

    /// Up to `most` of the large objects that go.
    pub(crate) fn some_large(&self, most: usize) -> Vec<Handle> {
        self.large.lock().iter().take(most).copied().collect()
    }

    /// The packs of which something may go.
    pub(crate) fn packs(&self) -> Vec<u32> {
        self.packs.keys().copied().collect()
    }
}

fn is_set(words: &[u64], unit: u32) -> bool {
    words.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
}
