// SPDX-License-Identifier: Apache-2.0
//! The lines of a file, the last one first, with little of it in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// What is read at once.
const BLOCK: u64 = 64 << 10;

/// Reads a file from its end. It is open only while some of it is read.
pub(super) struct Backwards {
    path: PathBuf,
    /// Where what was read begins.
    place: u64,
    /// What was read and not given away.
    held: Vec<u8>,
}

impl Backwards {
    /// From the end that the file has now.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let place = path.metadata()?.len();
        Ok(Self { path, place, held: Vec::new() })
    }

    /// The line before, without its end; of one that is longer than `most`, nothing is known that is before it.
    pub(super) fn next(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.held.iter().rposition(|byte| *byte == b'\n') {
                let line = self.held.split_off(end + 1);
                self.held.truncate(end);
                return Ok(Some(line));
            }
            if self.place == 0 {
                return Ok(Some(std::mem::take(&mut self.held)).filter(|line| !line.is_empty()));
            }
            if self.held.len() > most {
                (self.place, self.held) = (0, Vec::new());
                return Ok(None);
            }
            let start = self.place.saturating_sub(BLOCK);
            let mut block = vec![0; (self.place - start) as usize];
            File::open(&self.path)?.read_exact_at(&mut block, start)?;
            self.place = start;
            block.append(&mut self.held);
            self.held = block;
        }
    }
}
