// SPDX-License-Identifier: Apache-2.0
//! A database's file with what is written to it kept in memory.
//!
//! To open a database that was not closed is to repair it, which writes. Who only
//! looks at a home must not change it, so that what it writes lies over the file.
//! It is as much as the packs have more than the index, which is bounded.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::file::Hurry;

/// What is copied when a part of it is written.
const PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// Behind it the file's bytes are gone: it was cut here.
    file_len: u64,
    pages: HashMap<u64, Vec<u8>>,
}

impl Overlay {
    pub(super) fn over(path: &Path) -> io::Result<Self> {
        // To open a pipe, which another's folder may have, is to wait for whoever writes to it.
        if !path.symlink_metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
        }
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Self { file, state: Mutex::new(State { len, file_len: len, pages: HashMap::new() }) })
    }

    /// One page of the file, with zeros where it has none.
    fn page(&self, number: u64, file_len: u64) -> io::Result<Vec<u8>> {
        let mut page = vec![0; PAGE_BYTES as usize];
        let begin = number * PAGE_BYTES;
        let there = file_len.saturating_sub(begin).min(PAGE_BYTES) as usize;
        self.file.read_exact_at(page.get_mut(..there).unwrap_or_default(), begin)?;
        Ok(page)
    }
}

/// The pages of a range: their numbers, where in them it is, and where in the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES) as usize;
        let piece = (len - done).min(PAGE_BYTES as usize - within);
        let range = done..done + piece;
        done = range.end;
        (!range.is_empty()).then_some((at / PAGE_BYTES, within, range))
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Hurry::or_leave();
        let state = self.state.lock();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > state.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (number, within, range) in pieces(offset, out.len()) {
            let part = within..within + range.len();
            let Some(out) = out.get_mut(range) else { continue };
            match state.pages.get(&number) {
                Some(page) => out.copy_from_slice(page.get(part).unwrap_or_default()),
                None => out.copy_from_slice(self.page(number, state.file_len)?.get(part).unwrap_or_default()),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if len < state.len {
            state.file_len = state.file_len.min(len);
            let kept = len.div_ceil(PAGE_BYTES);
            state.pages.retain(|number, _| *number < kept);
            let within = (len % PAGE_BYTES) as usize;
            if let Some(last) = state.pages.get_mut(&(len / PAGE_BYTES)) {
                last.get_mut(within..).unwrap_or_default().fill(0);
            }
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        for (number, within, range) in pieces(offset, data.len()) {
            if !state.pages.contains_key(&number) {
                let page = self.page(number, state.file_len)?;
                state.pages.insert(number, page);
            }
            let page =
                state.pages.get_mut(&number).and_then(|page| page.get_mut(within..within + range.len()));
            if let (Some(page), Some(data)) = (page, data.get(range)) {
                page.copy_from_slice(data);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Act {
        Write(u64, Vec<u8>),
        Len(u64),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let write = (0..20_000_u64, prop::collection::vec(any::<u8>(), 1..6000))
            .prop_map(|(at, bytes)| Act::Write(at, bytes));
        prop::collection::vec(prop_oneof![write, (0..26_000_u64).prop_map(Act::Len)], 0..12)
    }

    proptest! {
        #[test]
        fn it_is_as_a_file_would_be_and_the_file_stays_as_it_is(acts in acts(), len in 0..20_000_usize) {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let before: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            io::Write::write_all(&mut file, &before).unwrap();
            let overlay = Overlay::over(file.path()).unwrap();
            let mut model = before.clone();
            for act in acts {
                match act {
                    Act::Len(len) => {
                        overlay.set_len(len).unwrap();
                        model.resize(len as usize, 0);
                    }
                    Act::Write(at, bytes) => {
                        let end = at as usize + bytes.len();
                        if end > model.len() {
                            // A database grows its file before it writes to it.
                            overlay.set_len(end as u64).unwrap();
                            model.resize(end, 0);
                        }
                        overlay.write(at, &bytes).unwrap();
                        model[at as usize..end].copy_from_slice(&bytes);
                    }
                }
                let mut all = vec![0; model.len()];
                overlay.read(0, &mut all).unwrap();
                prop_assert_eq!(&all, &model);
                prop_assert!(overlay.read(1, &mut all).is_err() || all.is_empty());
            }
            prop_assert_eq!(std::fs::read(file.path()).unwrap(), before);
        }
    }
}
