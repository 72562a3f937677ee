// SPDX-License-Identifier: Apache-2.0
//! The index of a dense table: from a hash to positions.
//!
//! ```text
//!  63 ──────────── 32 31 ─────────── 0
//!  │ tag: of the hash │ position + 1 │   0: free
//! ```
//!
//! Open addressing with linear probing over words that are sorted by tag. A
//! tag's home is read off its top bits, so the order of the homes is the order
//! of the tags: a search ends at the first larger tag, and growing is one pass
//! from the old words to the new ones that looks at no key. What matters is
//! that a search touches one cache line of the index, where a table of groups
//! and values touches two.

/// Slots beyond the last home, at first.
const TAIL: usize = 8;
/// The fewest homes of an index that is not empty.
const HOMES_MIN: usize = 8;
/// From so many homes on the table is worth huge pages: a node that is filled
/// without anything being run there wants them too.
const HOMES_LARGE: usize = 4096;

/// One word per slot; the last one is always free.
#[derive(Default)]
pub(super) struct Slots {
    words: Vec<u64>,
    /// A tag without its lowest bits is its home.
    shift: u32,
    used: usize,
    /// Homes times the highest load.
    used_max: usize,
}

impl Slots {
    pub(super) fn with_capacity(entries: usize) -> Self {
        let mut slots = Self::default();
        if entries > 0 {
            slots.allocate((entries * 4).div_ceil(3).next_power_of_two());
        }
        slots
    }

    fn allocate(&mut self, homes: usize) {
        let homes = homes.max(HOMES_MIN);
        if homes >= HOMES_LARGE {
            linux::take_huge_pages();
        }
        self.words = vec![0; homes + TAIL];
        self.shift = 32 - homes.trailing_zeros();
        self.used_max = homes / 4 * 3;
    }

    /// Bytes allocated.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Where the words lie, and how homes are read off tags: what
    /// [`Place::prefetch`] needs to know.
    #[inline]
    pub(super) fn place(&self) -> (usize, u32) {
        (self.words.as_ptr().addr(), self.shift)
    }

    /// The slot whose position `is_wanted`; else the slot where a word with
    /// this hash belongs.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_wanted: impl Fn(usize) -> bool) -> Result<usize, usize> {
        let tag = tag_of(hash);
        let mut slot = home_of(tag, self.shift);
        while let Some(&word) = self.words.get(slot) {
            if word == 0 || word >> 32 > tag >> 32 {
                break;
            }
            if word >> 32 == tag >> 32 && is_wanted(position_of(word)) {
                return Ok(slot);
            }
            slot += 1;
        }
        Err(slot)
    }

    /// The position in a slot that was found.
    #[inline]
    pub(super) fn position(&self, slot: usize) -> usize {
        position_of(self.words[slot])
    }

    /// Changes the position in a slot that was found.
    pub(super) fn move_to(&mut self, slot: usize, position: usize) {
        self.words[slot] = (self.words[slot] >> 32 << 32) | word_of(position);
    }

    /// Adds a position at the slot that [`Slots::find`] gave for its hash.
    #[inline]
    pub(super) fn insert(&mut self, slot: usize, hash: u64, position: usize) {
        let slot = if self.used == self.used_max {
            self.grow();
            // Nothing equal is here, or the caller would not insert.
            self.find(hash, |_| false).unwrap_or_else(|slot| slot)
        } else {
            slot
        };
        self.used += 1;
        let word = tag_of(hash) | word_of(position);
        if slot + 1 < self.words.len() && self.words[slot] == 0 {
            self.words[slot] = word;
        } else {
            self.squeeze_in(slot, word);
        }
    }

    /// Moves those from `slot` up to the next free one, and puts `word` there.
    fn squeeze_in(&mut self, slot: usize, word: u64) {
        let behind = self.words[slot..].iter().position(|&word| word == 0).unwrap_or(0);
        let free = slot + behind;
        if free + 1 == self.words.len() {
            self.words.push(0);
        }
        self.words.copy_within(slot..free, slot + 1);
        self.words[slot] = word;
    }

    /// Empties a slot that was found: those behind it move closer to their homes.
    pub(super) fn remove(&mut self, slot: usize) {
        let is_at_home =
            |&(at, &word): &(usize, &u64)| word == 0 || (word >> 32 >> self.shift) as usize == at;
        let mut behind = self.words.iter().enumerate().skip(slot + 1);
        let end = behind.find(is_at_home).map_or(slot + 1, |(at, _)| at);
        self.words.copy_within(slot + 1..end, slot);
        self.words[end - 1] = 0;
        self.used -= 1;
    }

    #[cold]
    fn grow(&mut self) {
        let homes = if self.words.is_empty() { HOMES_MIN } else { 2 << (32 - self.shift) };
        let old = std::mem::take(&mut self.words);
        self.allocate(homes);
        let mut next = 0;
        for word in old.into_iter().filter(|&word| word != 0) {
            let slot = next.max((word >> 32 >> self.shift) as usize);
            if slot + 1 >= self.words.len() {
                self.words.resize(slot + 2, 0);
            }
            self.words[slot] = word;
            next = slot + 1;
        }
    }
}

/// Where a search for a tag begins.
#[inline]
pub(super) fn home_of(tag: u64, shift: u32) -> usize {
    (tag >> 32 >> shift) as usize
}

/// The tag, where a word has it.
#[inline]
pub(super) fn tag_of(hash: u64) -> u64 {
    hash << 32
}

#[inline]
fn word_of(position: usize) -> u64 {
    position as u64 + 1
}

#[inline]
fn position_of(word: u64) -> usize {
    (word as u32 - 1) as usize
}
