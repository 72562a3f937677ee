// SPDX-License-Identifier: Apache-2.0
//! What of a home is in a backup besides its store, and how it comes back.
//!
//! Keys are in it as they are, for their file is of no use to whoever reads it.
//! Secrets are in it sealed, as their file is; what opens it, `secrets.key`, is in no
//! backup, so that whoever has one has no secret. The queue is not in it, nor is what
//! a node makes anew: compiled codelets, layers, its own certificate.

use std::path::Path;

use store::{Backed, Backup, BackupFolder, Restore, Restored, Store};

use crate::{keys, secrets};

/// Files of a home that backups have.
const FILES: [&str; 2] = [keys::FILE, secrets::FILE];
/// Where sealed secrets are put whose key is not at hand: a node that finds `secrets` without it
/// does not start.
const SEALED: &str = "secrets.sealed";
/// A file of a home that is longer is none of ours.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// What of secrets came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretsRestored {
    /// There were none.
    None,
    /// All of them.
    All,
    /// They are there, sealed: their key was not given.
    Sealed,
}

/// Why a home was not restored.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// The store's reason.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The key is another one.
    #[error(
        "the key does not open the secrets of this point: give the secrets.key of the home that was backed up, or none and set them again"
    )]
    WrongKey,
}

/// Writes a point in time of a store and of the files beside it.
pub(crate) fn back_up(
    store: &Store,
    home: &Path,
    to: &Path,
    point: &str,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Backed, store::Error> {
    refuse_inside(home, to)?;
    let mut files = Vec::new();
    for name in FILES {
        let path = home.join(name);
        // They are written under other names and renamed, so that this is one of them, whole.
        match std::fs::metadata(&path).and_then(|metadata| match metadata.len() <= FILE_BYTES_MAX {
            true => std::fs::read(&path),
            false => Err(std::io::Error::other("it is longer than any that a node writes")),
        }) {
            Ok(bytes) => files.push((name.to_owned(), bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(store::Error::Io { path, source }),
        }
    }
    store.backup(to, &Backup { point: point.to_owned(), files }, progress)
}

/// A folder below the home goes with the home, and a collection would find files there that are none
/// of its own.
fn refuse_inside(home: &Path, to: &Path) -> Result<(), store::Error> {
    let Ok(real_home) = home.canonicalize() else { return Ok(()) };
    // What is not there yet will lie in the nearest folder that is.
    let there = to.ancestors().find_map(|folder| folder.canonicalize().ok());
    match there.is_some_and(|there| there.starts_with(real_home)) {
        true => Err(store::Error::InHome { path: to.to_owned(), home: home.to_owned() }),
        false => Ok(()),
    }
}

/// Writes a point in time of a home that no node uses.
///
/// # Errors
/// [`store::Error::Locked`] while one does; [`store::Error::NoHome`]; those of [`Store::backup`].
pub fn back_up_home(
    home: &Path,
    to: &Path,
    point: &str,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Backed, store::Error> {
    if !home.join("FORMAT").exists() {
        return Err(store::Error::NoHome { path: home.to_owned() });
    }
    let options =
        store::Options { home: Some(home.to_owned()), memory_bytes: 64 << 20, relations_bytes: 1 << 20 };
    back_up(&Store::open(options)?, home, to, point, progress)
}

/// Makes a home of a point; see [`BackupFolder::restore`]. With the key, of the node's secrets too.
///
/// # Errors
/// [`UpkeepError::WrongKey`] before anything is written; those of [`BackupFolder::restore`].
pub fn restore_home(
    from: &BackupFolder,
    point: &str,
    to: &Path,
    secrets_key: Option<Vec<u8>>,
    partial: bool,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(Restored, SecretsRestored), UpkeepError> {
    let mut files = Vec::new();
    if let Some(keys) = from.file(point, keys::FILE)? {
        files.push((keys::FILE.to_owned(), keys));
    }
    let told = match (from.file(point, secrets::FILE)?, secrets_key) {
        (None, _) => SecretsRestored::None,
        (Some(sealed), None) => {
            files.push((SEALED.to_owned(), sealed));
            SecretsRestored::Sealed
        }
        (Some(sealed), Some(key)) => {
            if !secrets::opens(&sealed, &key) {
                return Err(UpkeepError::WrongKey);
            }
            // First, for without it the other one keeps a node from starting.
            files.push((secrets::KEY_FILE.to_owned(), key));
            files.push((secrets::FILE.to_owned(), sealed));
            SecretsRestored::All
        }
    };
    let restored = from.restore(point, to, &Restore { partial, files }, progress)?;
    Ok((restored, told))
}

/// Puts labels of a point back into a store in use.
pub(crate) fn restore_labels(
    store: &Store,
    from: &Path,
    point: Option<&str>,
    labels: &[String],
    replaces: bool,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(String, Restored), store::Error> {
    let folder = BackupFolder::open(from)?;
    let point = point_of(&folder, point)?;
    let restored = folder.restore_labels(&point, labels, replaces, store, progress)?;
    Ok((point, restored))
}

/// The point of this name, or the newest.
///
/// # Errors
/// [`store::Error::NoSuch`] if there is none; those of reading.
pub fn point_of(folder: &BackupFolder, point: Option<&str>) -> Result<String, store::Error> {
    if let Some(point) = point {
        return Ok(point.to_owned());
    }
    let newest = folder.points()?.into_iter().next();
    newest.map(|point| point.name).ok_or_else(|| store::Error::NoSuch {
        point: "the newest".to_owned(),
        reason: "the backup has none: it was broken off before its first was whole".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use crate::secrets::Secrets;

    use super::*;

    #[test]
    fn secrets_come_back_with_their_key_only_and_are_nowhere_in_the_clear() {
        let folder = tempfile::tempdir().unwrap();
        let (home, backup) = (folder.path().join("home"), folder.path().join("backup"));
        let options = |home: &Path| store::Options {
            home: Some(home.to_owned()),
            memory_bytes: 1 << 20,
            relations_bytes: 1 << 16,
        };
        let store = Store::open(options(&home)).unwrap();
        Secrets::open(Some(&home)).unwrap().set("TOKEN", "a value that nobody may read").unwrap();
        fs::write(home.join("keys"), "sinew keys 2\n").unwrap();
        back_up(&store, &home, &backup, "p", &mut |_, _| true).unwrap();
        let mut pending = vec![backup.clone()];
        while let Some(path) = pending.pop() {
            if path.is_dir() {
                pending.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let key = fs::read(home.join("secrets.key")).unwrap();
            let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
            assert!(!has(b"nobody may read") && !has(&key), "{}", path.display());
        }
        let from = BackupFolder::open(&backup).unwrap();
        let restore = |to: &str, key: Option<Vec<u8>>| {
            restore_home(&from, "p", &folder.path().join(to), key, false, &mut |_, _| true)
        };
        assert_eq!(restore("without", None).unwrap().1, SecretsRestored::Sealed);
        let without = Secrets::open(Some(&folder.path().join("without"))).unwrap();
        assert!(without.names().is_empty() && folder.path().join("without/secrets.sealed").exists());
        assert!(matches!(restore("wrong", Some(vec![7; 32])), Err(UpkeepError::WrongKey)));
        assert!(matches!(restore("short", Some(vec![7; 5])), Err(UpkeepError::WrongKey)));
        assert!(!folder.path().join("wrong").exists());
        let key = fs::read(home.join("secrets.key")).unwrap();
        assert_eq!(restore("with", Some(key)).unwrap().1, SecretsRestored::All);
        assert_eq!(Secrets::open(Some(&folder.path().join("with"))).unwrap().names(), ["TOKEN"]);
        assert_eq!(fs::read(folder.path().join("with/keys")).unwrap(), b"sinew keys 2\n");
    }
}
