// SPDX-License-Identifier: Apache-2.0
//! Which objects a walk has met: a bit for each place in a pack where one may
//! begin, which is 4 MiB for each GiB of packs, and names of all others.

use std::collections::{BTreeMap, HashSet};

use objects::Handle;

use crate::packs::Spot;

#[derive(Default)]
pub(crate) struct Visited {
    packs: BTreeMap<u32, Vec<u64>>,
    others: HashSet<Handle>,
}

impl Visited {
    /// Whether it is met for the first time: a small object by its spot, if it has one.
    pub(crate) fn is_new(&mut self, key: Handle, spot: Option<Spot>) -> bool {
        let Some(spot) = spot else { return self.others.insert(key) };
        let words = self.packs.entry(spot.pack).or_default();
        let (word, bit) = (spot.unit as usize / 64, 1 << (spot.unit % 64));
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words.get_mut(word).is_some_and(|word| std::mem::replace(word, *word | bit) & bit == 0)
    }
}
