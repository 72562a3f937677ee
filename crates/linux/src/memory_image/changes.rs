// SPDX-License-Identifier: Apache-2.0
//! Where an image differs from what it has in common with others: lines of 64 bytes,
//! since what differs between two states of one program is mostly a count or a pointer here and there.

use std::ptr::NonNull;

use super::{Common, PAGE};

/// Bytes that are looked at as one.
const LINE: usize = 64;

/// Lines that differ, in order.
#[derive(Debug, Default)]
pub(super) struct Changes {
    runs: Vec<Run>,
    /// Of all runs, one after the other.
    bytes: Vec<u8>,
    pages: usize,
}

/// Lines that follow one another.
#[derive(Debug, Clone, Copy)]
struct Run {
    line: u32,
    lines: u32,
}

impl Run {
    fn range(self) -> std::ops::Range<usize> {
        let (line, lines) = (self.line as usize, self.lines as usize);
        line * LINE..(line + lines) * LINE
    }
}

impl Changes {
    /// Notes where bytes at `at`, a multiple of a page, differ from those in common; they are whole lines, and end
    /// where those do or before, and before 256 GiB; what is not is not noted.
    pub(super) fn note(&mut self, at: usize, common: &Common, bytes: &[u8]) {
        let pages = (at..).step_by(PAGE).zip(bytes.chunks(PAGE));
        let pages = pages.filter_map(|(at, bytes)| Some((at, common.part(at, bytes.len())?, bytes)));
        for (page, common, bytes) in pages.filter(|(_, common, bytes)| common != bytes) {
            self.pages += 1;
            let lines = (page / LINE..).zip(common.chunks(LINE).zip(bytes.chunks(LINE)));
            for (line, (_, bytes)) in lines.filter(|(_, (common, bytes))| common != bytes) {
                let Ok(line) = u32::try_from(line) else { return };
                self.bytes.extend_from_slice(bytes);
                match self.runs.last_mut() {
                    Some(run) if run.line + run.lines == line => run.lines += 1,
                    _ => self.runs.push(Run { line, lines: 1 }),
                }
            }
        }
    }

    /// Without room for more.
    pub(super) fn shrunk(mut self) -> Self {
        self.runs.shrink_to_fit();
        self.bytes.shrink_to_fit();
        self
    }

    /// Pages in which something differs.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes that this takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.bytes.capacity() + self.runs.capacity() * size_of::<Run>()) as u64
    }

    /// Writes them to a copy of what is in common.
    ///
    /// # Safety
    /// At `start` there are, writable, as many bytes as the image has in common with others, and nobody else
    /// reads or writes them.
    pub(super) unsafe fn write(&self, start: NonNull<u8>) {
        let mut rest = &self.bytes[..];
        for run in &self.runs {
            let range = run.range();
            let (bytes, behind) = rest.split_at(range.len());
            // SAFETY: what was noted lies within what is in common, which is writable at `start`, and
            // nobody's but the caller's; `bytes` are this value's own.
            unsafe {
                start.add(range.start).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len())
            };
            rest = behind;
        }
    }

    /// Writes what is in common where they are.
    ///
    /// # Safety
    /// As of [`Self::write`].
    pub(super) unsafe fn undo(&self, start: NonNull<u8>, common: &Common) {
        let lines = self.runs.iter().flat_map(|run| run.range().step_by(LINE));
        for (at, bytes) in lines.filter_map(|at| Some((at, common.part(at, LINE)?))) {
            // SAFETY: as in `write`; the common bytes are a mapping that is only read, or a static.
            unsafe { start.add(at).copy_from_nonoverlapping(NonNull::from(bytes).cast(), LINE) };
        }
    }
}
