// SPDX-License-Identifier: Apache-2.0
//! Hashes large objects piece by piece, and their outboards.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use objects::{HASH_LEN, Handle};

use super::{Finding, Inspector};
use crate::Error;
use crate::files::object_len;
use crate::outboard::{GROUP_BYTES, group_values, hasher, outboard_len};

/// What is read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Groups whose values are verified at once: 64 KiB of them.
const GROUPS: u64 = 2048;

/// Anything may have a name in another's folder, and to open a pipe is to wait for whoever writes to it.
fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

impl Inspector<'_, '_> {
    pub(super) fn scan_large(&mut self) -> Result<(), Error> {
        let files = self.place.files;
        files.visit_all(|path, key, is_outboard| match (key.filter(|_| is_file(path)), is_outboard) {
            (None, is_outboard) => {
                if let Some(key) = key.filter(|_| !is_outboard) {
                    self.lose(key);
                }
                self.found(Finding::stray(path));
                Ok(())
            }
            (Some(key), true) => self.outboard(path, key),
            (Some(key), false) => self.large(path, key),
        })
    }

    fn large(&mut self, path: &Path, key: Handle) -> Result<(), Error> {
        let Some((file, len)) = self.place.files.open_object(key)? else { return Ok(()) };
        let named = if len == object_len(key) { self.hash(&file, len, key, path)? } else { None };
        let Some(absent) = named else {
            self.found(Finding::damaged(path.display().to_string(), key));
            self.lose(key);
            return Ok(());
        };
        self.checked.objects += 1;
        self.checked.bytes += len;
        absent.into_iter().for_each(|missing| self.miss(missing, key));
        Ok(())
    }

    /// `None`: it does not hash to its name, or cannot be read. Else what it names and is not
    /// there, up to some.
    fn hash(
        &mut self,
        file: &File,
        len: u64,
        key: Handle,
        path: &Path,
    ) -> Result<Option<Vec<Handle>>, Error> {
        let mut hasher = hasher(key.names_tree());
        let mut piece = vec![0; PIECE_BYTES];
        let mut absent = Vec::new();
        let mut at = 0;
        while at < len {
            let bytes = piece.get_mut(..(len - at).min(PIECE_BYTES as u64) as usize).unwrap_or_default();
            if let Err(source) = file.read_exact_at(bytes, at) {
                self.found(Finding::unreadable(path.display().to_string(), at, &source));
                return Ok(None);
            }
            hasher.update(bytes);
            if key.names_tree() && absent.len() < super::KNOWN_MAX {
                let entries = bytes.as_chunks::<{ Handle::LEN }>().0.iter();
                absent
                    .extend(self.place.absent(entries.filter_map(|entry| Handle::from_bytes(*entry).ok()))?);
            }
            at += bytes.len() as u64;
            self.advance(bytes.len() as u64)?;
        }
        let is_sound = hasher.finalize().as_bytes().get(..HASH_LEN) == Some(key.hash_bytes());
        Ok(is_sound.then_some(absent))
    }

    /// An outboard is right if all that it says follows from its object's name.
    fn outboard(&mut self, path: &Path, key: Handle) -> Result<(), Error> {
        let Some((file, len)) = self.place.files.open_outboard(key)? else { return Ok(()) };
        let groups = object_len(key).div_ceil(GROUP_BYTES);
        let read = |offset: u64, bytes: &mut [u8]| -> io::Result<()> { file.read_exact_at(bytes, offset) };
        let is_right = len == outboard_len(object_len(key))
            && (0..groups)
                .step_by(GROUPS as usize)
                .all(|from| group_values(key, from..groups.min(from + GROUPS), read).is_ok());
        if !is_right {
            self.found(Finding::outboard(path, key));
            self.outboards.push(key);
        }
        Ok(())
    }
}
