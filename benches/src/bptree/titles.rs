// SPDX-License-Identifier: Apache-2.0
//! Keys like the titles of an encyclopedia: a few words each, 22 bytes on average, sorted.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

const SYLLABLES: [&str; 32] = [
    "ba", "cor", "den", "el", "fi", "gra", "hu", "in", "jo", "kar", "lem", "ma", "nor", "o", "pel", "qua",
    "ri", "san", "ter", "u", "ver", "wil", "xa", "yo", "zen", "ash", "bur", "ton", "ham", "la", "mi", "rus",
];

/// Sorted, each once.
pub(super) struct Titles {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
}

/// Numbers that look like chance, always the same (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    fn word(&mut self, title: &mut Vec<u8>) {
        let begin = title.len();
        for _ in 0..2 + self.below(3) {
            title.extend_from_slice(SYLLABLES[self.below(32) as usize].as_bytes());
        }
        title[begin].make_ascii_uppercase();
    }

    fn title(&mut self) -> Vec<u8> {
        let mut title = Vec::new();
        for word in 0..2 + self.below(3) {
            if word > 0 {
                title.push(b'_');
            }
            self.word(&mut title);
        }
        title
    }
}

impl Titles {
    pub(super) fn make(count: usize) -> Self {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mut all: Vec<Vec<u8>> = Vec::with_capacity(count);
        while all.len() < count {
            all.extend((all.len()..count).map(|_| numbers.title()));
            all.sort_unstable();
            all.dedup();
        }
        let mut titles = Self { bytes: Vec::new(), ends: Vec::with_capacity(count) };
        for title in all {
            titles.bytes.extend_from_slice(&title);
            titles.ends.push(titles.bytes.len() as u32);
        }
        titles
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn average_len(&self) -> f64 {
        self.bytes.len() as f64 / self.len() as f64
    }

    pub(super) fn get(&self, index: usize) -> &[u8] {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[begin as usize..self.ends[index] as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// As `sinew put --keys` reads them.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for (index, title) in self.iter().enumerate() {
            file.write_all(title)?;
            file.write_all(b"\t")?;
            file.write_all(&value(index))?;
            file.write_all(b"\n")?;
        }
        file.flush()?;
        Ok(())
    }

    /// Some of them by chance.
    pub(super) fn choose(&self, count: usize, seed: u64) -> Vec<usize> {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..count).map(|_| numbers.below(self.len() as u64) as usize).collect()
    }
}

/// What a key leads to.
pub(super) fn value(index: usize) -> Vec<u8> {
    format!("article {index}").into_bytes()
}
