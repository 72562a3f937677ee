// SPDX-License-Identifier: Apache-2.0
//! Compiled code on disk, so that a restart does not compile again.
//!
//! ```text
//!  ├ magic, 8 ┼ BLAKE3 of the rest, 32 ┼ facts, 24 ┼ compiled code ┤
//! ```
//!
//! A file's name is the BLAKE3 of everything that determines the code: the
//! module, the variant, and the engine with its version, target and settings.
//! Loading compiled code means running it, so the checksum is verified over
//! the very bytes that are loaded, and the directory is only ours to write.
//! Whatever is wrong with a file, it is as if it were not there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use objects::Handle;
use wasmtime::Engine;

use super::module::Class;
use crate::Error;

const MAGIC: &[u8; 8] = b"sinewAO1";
const DIGEST_AT: usize = 8;
const FACTS_AT: usize = 40;
const CODE_AT: usize = 64;
const SUFFIX: &str = "cwasm";
const TEMPORARY_PREFIX: &str = "tmp-";
/// Says, beside the class, that all state can be reached.
const CAPTURABLE: u64 = 1 << 8;
/// Says that there is no memory, in place of its size.
const NO_MEMORY: u64 = u64::MAX;

/// What the scan of the module found, kept beside the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) class: Class,
    pub(crate) initial_bytes: u64,
    pub(crate) memory_bytes: Option<u64>,
    /// Of a program: memory and numeric globals are all that changes, and are exported.
    pub(crate) is_capturable: bool,
}

/// The name of compiled code.
pub(crate) struct Key(blake3::Hash);

impl Key {
    /// What `procedure` compiles to on `engine`.
    pub(crate) fn new(procedure: Handle, engine: &Engine, counted: bool) -> Self {
        let mut hasher = KeyHasher(blake3::Hasher::new());
        // Anything about how modules are scanned and rewritten, too.
        hasher.write(concat!("sinew artefact 2, sandbox ", env!("CARGO_PKG_VERSION")).as_bytes());
        hasher.write(procedure.as_bytes());
        hasher.write(&[u8::from(counted)]);
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self(hasher.0.finalize())
    }
}

struct KeyHasher(blake3::Hasher);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let hash = self.0.finalize();
        hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The verified contents of a file.
pub(crate) struct Artefact {
    bytes: Vec<u8>,
    pub(crate) facts: Facts,
}

impl Artefact {
    /// What [`Artefacts::write`] was given.
    pub(crate) fn code(&self) -> &[u8] {
        &self.bytes[CODE_AT..]
    }

    fn verify(bytes: Vec<u8>) -> Option<Self> {
        let rest = bytes.get(FACTS_AT..)?;
        let digest = bytes.get(DIGEST_AT..FACTS_AT)?.first_chunk::<32>()?;
        if !bytes.starts_with(MAGIC) || blake3::hash(rest) != blake3::Hash::from_bytes(*digest) {
            return None;
        }
        let facts = Facts::decode(bytes.get(FACTS_AT..CODE_AT)?.first_chunk()?)?;
        Some(Self { bytes, facts })
    }
}

impl Facts {
    fn encode(&self) -> [u8; CODE_AT - FACTS_AT] {
        let class = match self.class {
            Class::Stateless => 0u64,
            Class::Restored => 1,
            Class::Fresh => 2,
            Class::Program => 3,
        };
        let class = class | if self.is_capturable { CAPTURABLE } else { 0 };
        let words = [class, self.initial_bytes, self.memory_bytes.unwrap_or(NO_MEMORY)];
        let mut bytes = [0; CODE_AT - FACTS_AT];
        for (target, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *target = word.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; CODE_AT - FACTS_AT]) -> Option<Self> {
        let (words, _) = bytes.as_chunks();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let class = words.next()?;
        let is_capturable = class & CAPTURABLE != 0;
        let class = match class & !CAPTURABLE {
            0 => Class::Stateless,
            1 => Class::Restored,
            2 => Class::Fresh,
            3 => Class::Program,
            _ => return None,
        };
        let initial_bytes = words.next()?;
        let memory_bytes = words.next().filter(|&bytes| bytes != NO_MEMORY);
        Some(Self { class, initial_bytes, memory_bytes, is_capturable })
    }
}

/// The directory of compiled code.
#[derive(Debug)]
pub(crate) struct Artefacts {
    dir: PathBuf,
    bytes_max: u64,
    serial: AtomicU64,
}

impl Artefacts {
    /// Opens, and if need be makes, the directory; removes what a crash left.
    pub(crate) fn open(dir: &Path, bytes_max: u64) -> Result<Self, Error> {
        let bad = |reason: String| Error::CacheDir { path: dir.to_owned(), reason };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| bad(error.to_string()))?;
        let metadata = fs::symlink_metadata(dir).map_err(|error| bad(error.to_string()))?;
        if !metadata.is_dir() {
            return Err(bad("it is not a directory".to_owned()));
        }
        if metadata.permissions().mode() & 0o022 != 0 {
            return Err(bad("others may write to it, and so run code as this user".to_owned()));
        }
        let artefacts = Self { dir: dir.to_owned(), bytes_max, serial: AtomicU64::new(0) };
        for entry in fs::read_dir(dir).map_err(|error| bad(error.to_string()))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
                // If another process is writing it, that one compiles again.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(artefacts)
    }

    /// The compiled code of that name, verified. A bad file is removed.
    pub(crate) fn read(&self, key: &Key) -> Option<Artefact> {
        let path = self.path(key);
        let artefact = Artefact::verify(fs::read(&path).ok()?);
        if artefact.is_none() {
            let _ = fs::remove_file(&path);
        }
        artefact
    }

    /// Keeps compiled code. The directory is only a cache: a failure to write
    /// costs the next start a compilation, nothing else.
    pub(crate) fn write(&self, key: &Key, facts: &Facts, code: &[u8]) {
        if code.len() as u64 > self.bytes_max {
            return;
        }
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let temporary = self.dir.join(format!("{TEMPORARY_PREFIX}{}-{serial}", std::process::id()));
        let written =
            write_file(&temporary, facts, code).and_then(|()| fs::rename(&temporary, self.path(key)));
        match written {
            Ok(()) => self.prune(),
            Err(_) => {
                let _ = fs::remove_file(&temporary);
            }
        }
    }

    /// Removes the oldest files until the rest fits.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        let mut total: u64 = files.iter().map(|(_, len, _)| len).sum();
        files.sort_unstable();
        for (_, len, path) in files {
            if total <= self.bytes_max {
                break;
            }
            let _ = fs::remove_file(path);
            total -= len;
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(format!("{}.{SUFFIX}", key.0.to_hex()))
    }
}

fn write_file(path: &Path, facts: &Facts, code: &[u8]) -> io::Result<()> {
    let facts = facts.encode();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&facts).update(code);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(MAGIC)?;
    file.write_all(hasher.finalize().as_bytes())?;
    file.write_all(&facts)?;
    file.write_all(code)
}
