// SPDX-License-Identifier: Apache-2.0
//! The secrets of a node: names with values that functions get and nobody else.
//!
//! All of them are one file in the home, `secrets`, sealed with
//! XChaCha20-Poly1305 under the key in `secrets.key` (mode 0600). A change
//! writes the whole file anew and renames it, so that it is the old one or the
//! new one whatever happens. Values are in no object, no handle and no log; a
//! copy of the home without the key tells nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, KeyInit as _, OsRng, Payload, rand_core::RngCore as _};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use parking_lot::{Mutex, RwLock};

use crate::buckets::SECRET as BUCKETS;

/// What results that are sent to others are signed with. No function gets it.
pub(crate) const SIGNING: &str = "SINEW_CALLBACKS";
pub(crate) const FILE: &str = "secrets";
pub(crate) const KEY_FILE: &str = "secrets.key";
/// What a file begins with; it is sealed too, so that no file of another kind
/// is taken for one.
const MARK: &[u8] = b"sinew secrets 1\n";
const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 24;
/// Secrets of one node.
const SECRETS_MAX: usize = 1000;
const NAME_LEN_MAX: usize = 64;
/// Bytes of one value: those of a variable of an environment.
pub(crate) const VALUE_LEN_MAX: usize = 64 << 10;
/// Bytes of a file: all that could be in one.
const FILE_LEN_MAX: u64 = (SECRETS_MAX * (VALUE_LEN_MAX + NAME_LEN_MAX + 8) + 256) as u64;

/// What is wrong with a secret, or with where they are kept.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The name or the value cannot be one.
    #[error("{0}")]
    Invalid(String),
    /// The file cannot be read or written.
    #[error("secrets: {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not what this node wrote, or the key is another one.
    #[error(
        "secrets: {0} does not open with the key beside it: bring back both files, or remove both and set the secrets again"
    )]
    Damaged(PathBuf),
}

/// Whether the node alone uses it.
pub(crate) fn is_ours(name: &str) -> bool {
    name == SIGNING || name.starts_with(BUCKETS)
}

/// Names and values.
pub(crate) struct Secrets {
    home: Option<PathBuf>,
    values: RwLock<BTreeMap<String, String>>,
    /// Held while the file is written.
    writing: Mutex<()>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("home", &self.home).finish_non_exhaustive()
    }
}

impl sandbox::process::SecretSource for Secrets {
    fn secret(&self, name: &str) -> Option<String> {
        if is_ours(name) { None } else { self.values.read().get(name).cloned() }
    }
}

impl Secrets {
    /// Those in a home; without one they are as long as the process.
    ///
    /// # Errors
    /// [`SecretError::Io`], [`SecretError::Damaged`].
    pub(crate) fn open(home: Option<&Path>) -> Result<Self, SecretError> {
        let values = match home {
            Some(home) => read(home)?,
            None => BTreeMap::new(),
        };
        let home = home.map(Path::to_owned);
        Ok(Self { home, values: RwLock::new(values), writing: Mutex::default() })
    }

    /// The names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.values.read().keys().cloned().collect()
    }

    /// Keys for buckets, if that is what it is.
    pub(crate) fn for_buckets(&self, name: &str) -> Option<String> {
        self.values.read().get(name).filter(|_| name.starts_with(BUCKETS)).cloned()
    }

    /// What results are signed with, if they are.
    pub(crate) fn for_signing(&self) -> Option<String> {
        self.values.read().get(SIGNING).cloned()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.read().contains_key(name)
    }

    /// Sets one, durably. Whether that changed its value.
    ///
    /// # Errors
    /// [`SecretError::Invalid`], [`SecretError::Io`]; nothing has changed then.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<bool, SecretError> {
        if !is_name(name) {
            let why = format!(
                "{name:?} is no name for a secret: 1 to {NAME_LEN_MAX} of A-Z a-z 0-9 _, without a digit first"
            );
            return Err(SecretError::Invalid(why));
        }
        if value.len() > VALUE_LEN_MAX || value.contains('\0') {
            let why = format!("a secret has at most {VALUE_LEN_MAX} bytes, and none is zero");
            return Err(SecretError::Invalid(why));
        }
        if name == SIGNING {
            io::Signer::read(value).map_err(SecretError::Invalid)?;
        }
        let _writing = self.writing.lock();
        let mut values = self.values.read().clone();
        if values.len() >= SECRETS_MAX && !values.contains_key(name) {
            return Err(SecretError::Invalid(format!("a node has at most {SECRETS_MAX} secrets")));
        }
        let before = values.insert(name.to_owned(), value.to_owned());
        if before.as_deref() == Some(value) {
            return Ok(false);
        }
        self.keep(values)?;
        Ok(true)
    }

    /// Removes one, durably. Whether it was there.
    ///
    /// # Errors
    /// [`SecretError::Io`]; nothing has changed then.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, SecretError> {
        let _writing = self.writing.lock();
        let mut values = self.values.read().clone();
        let was_there = values.remove(name).is_some();
        if was_there {
            self.keep(values)?;
        }
        Ok(was_there)
    }

    fn keep(&self, values: BTreeMap<String, String>) -> Result<(), SecretError> {
        if let Some(home) = &self.home {
            write(home, &values)?;
        }
        *self.values.write() = values;
        Ok(())
    }
}

/// Whether something can be a secret's name, which is a variable's too.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.as_bytes()[0].is_ascii_digit()
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> SecretError + '_ {
    |source| SecretError::Io { path: path.to_owned(), source }
}

fn cipher(key: &[u8; KEY_LEN]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.into())
}

fn read(home: &Path) -> Result<BTreeMap<String, String>, SecretError> {
    let path = home.join(FILE);
    let mut sealed = Vec::new();
    match File::open(&path) {
        Ok(file) => _ = file.take(FILE_LEN_MAX + 1).read_to_end(&mut sealed).map_err(failed(&path))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(failed(&path)(error)),
    }
    let damaged = || SecretError::Damaged(path.clone());
    let key = existing_key(home)?.ok_or_else(damaged)?;
    opened(&sealed, &key).ok_or_else(damaged)
}

/// What is in a file, if it is one and this is its key.
fn opened(sealed: &[u8], key: &[u8; KEY_LEN]) -> Option<BTreeMap<String, String>> {
    let (nonce, text) = sealed.strip_prefix(MARK)?.split_at_checked(NONCE_LEN)?;
    let payload = Payload { msg: text, aad: MARK };
    let open = cipher(key).decrypt(XNonce::from_slice(nonce), payload).ok()?;
    decoded(&open)
}

/// Whether this is the key of a file with these bytes.
pub(crate) fn opens(sealed: &[u8], key: &[u8]) -> bool {
    key.try_into().is_ok_and(|key| opened(sealed, key).is_some())
}

fn write(home: &Path, values: &BTreeMap<String, String>) -> Result<(), SecretError> {
    let key = match existing_key(home)? {
        Some(key) => key,
        None => new_key(home)?,
    };
    let mut nonce = [0; NONCE_LEN];
    OsRng.fill_bytes(&mut nonce);
    let payload = Payload { msg: &encoded(values), aad: MARK };
    let sealed = cipher(&key).encrypt(XNonce::from_slice(&nonce), payload);
    let path = home.join(FILE);
    let sealed =
        sealed.map_err(|_| failed(&path)(std::io::Error::other("the values could not be sealed")))?;
    write_whole(&path, &[MARK, &nonce, &sealed].concat())
}

fn existing_key(home: &Path) -> Result<Option<[u8; KEY_LEN]>, SecretError> {
    let path = home.join(KEY_FILE);
    match std::fs::read(&path) {
        Ok(bytes) => bytes.try_into().map(Some).map_err(|_| SecretError::Damaged(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&path)(error)),
    }
}

fn new_key(home: &Path) -> Result<[u8; KEY_LEN], SecretError> {
    let mut key = [0; KEY_LEN];
    OsRng.fill_bytes(&mut key);
    write_whole(&home.join(KEY_FILE), &key)?;
    Ok(key)
}

/// Writes a file that only its owner can read, under another name first.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), SecretError> {
    let draft = path.with_extension("new");
    let written = || {
        let _ = std::fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        // The name is durable when its directory is.
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    written().map_err(failed(path))
}

/// For each its lengths, its name and its value.
fn encoded(values: &BTreeMap<String, String>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in values {
        for text in [name, value] {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

fn decoded(mut bytes: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut text = || {
        let (len, rest) = bytes.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        bytes = rest;
        Some((String::from_utf8(text.to_vec()).ok()?, rest.is_empty()))
    };
    let mut values = BTreeMap::new();
    loop {
        let Some((name, false)) = text() else { return values.is_empty().then_some(values) };
        let (value, is_last) = text()?;
        values.insert(name, value);
        if is_last {
            return Some(values);
        }
    }
}

#[cfg(test)]
mod tests;
