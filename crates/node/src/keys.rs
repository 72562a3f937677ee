// SPDX-License-Identifier: Apache-2.0
//! The keys of a node's API.
//!
//! A key is `sinew_ID_SECRET`. The file `keys` in the home (mode 0600) has a
//! line for each: what it is good for, and an Argon2id hash of the secret, so
//! that the file is of no use to whoever reads it. A change writes the whole
//! file anew and renames it. A key that was checked once is known by a hash of
//! its text as long as the process lives, so that a call does not pay for it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use argon2::{Config, Variant, Version};
use chacha20poly1305::aead::{OsRng, rand_core::RngCore as _};
use gateway::{KEY_PREFIX, KeyError, KeyInfo, Keys as GatewayKeys, Quota, Scope};
use parking_lot::{Mutex, RwLock};

pub(crate) const FILE: &str = "keys";
/// The first line of the file.
const MARK: &str = "sinew keys 2";
/// That of one from before there were quotas of memory and processors.
const MARK_OLD: &str = "sinew keys 1";
const KEYS_MAX: usize = 10_000;
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
const TENANT_LEN_MAX: usize = 63;

/// What keeps keys from being read.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file system.
    #[error("keys: {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not what this node wrote.
    #[error("keys: {path}: line {line} is no key: bring back the file, or remove it and make the keys again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
    },
}

#[derive(Debug, Clone)]
struct Key {
    info: Arc<KeyInfo>,
    /// As Argon2 writes it, with its salt and costs.
    hash: String,
}

/// All keys.
pub(crate) struct Keys {
    home: Option<PathBuf>,
    /// By their ids.
    keys: RwLock<HashMap<String, Key>>,
    /// Texts that were checked, by their hashes.
    known: RwLock<HashMap<Text, Arc<KeyInfo>>>,
    /// Held while the file is written.
    writing: Mutex<()>,
}

/// A hash of a key's text. Whoever could make two texts of one has no key by it.
type Text = objects::Handle;

fn text_of(text: &str) -> Text {
    // Longer than what a handle holds as it is.
    objects::Handle::blob(format!("a key of the node's API: {text}").as_bytes())
}

fn costs() -> Config<'static> {
    Config {
        variant: Variant::Argon2id,
        version: Version::Version13,
        mem_cost: 19 * 1024,
        time_cost: 2,
        lanes: 1,
        ..Config::default()
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    OsRng.fill_bytes(&mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Keys {
    /// Those in a home; without one they are as long as the process.
    pub(crate) fn open(home: Option<&Path>) -> Result<Self, KeysError> {
        let keys = match home {
            Some(home) => read(&home.join(FILE))?,
            None => HashMap::new(),
        };
        let home = home.map(Path::to_owned);
        Ok(Self { home, keys: RwLock::new(keys), known: RwLock::default(), writing: Mutex::default() })
    }

    fn keep(&self, keys: HashMap<String, Key>) -> Result<(), KeyError> {
        if let Some(home) = &self.home {
            write(home, &keys)
                .map_err(|error| KeyError::Failed(format!("keys: {}: {error}", home.display())))?;
        }
        *self.keys.write() = keys;
        Ok(())
    }
}

/// One line of the file: nine words.
fn line(key: &Key) -> String {
    let KeyInfo { id, tenant, scope, created_ms, quota } = &*key.info;
    let Quota { requests_per_second, concurrency, memory_bytes, cpu_milli } = quota;
    let limits = format!("{requests_per_second} {concurrency} {memory_bytes} {cpu_milli}");
    format!("{id} {tenant} {} {created_ms} {limits} {}\n", scope.name(), key.hash)
}

fn parsed(line: &str) -> Option<Key> {
    let words: Vec<&str> = line.split(' ').collect();
    let (id, tenant, scope, created_ms, limits, hash) = match *words.as_slice() {
        [id, tenant, scope, created_ms, a, b, c, d, hash] => {
            (id, tenant, scope, created_ms, [a, b, c, d], hash)
        }
        [id, tenant, scope, created_ms, a, b, hash] => {
            (id, tenant, scope, created_ms, [a, b, "0", "0"], hash)
        }
        _ => return None,
    };
    let [requests_per_second, concurrency, memory_bytes, cpu_milli] = limits;
    let info = KeyInfo {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        scope: Scope::from_name(scope)?,
        created_ms: created_ms.parse().ok()?,
        quota: Quota {
            requests_per_second: requests_per_second.parse().ok()?,
            concurrency: concurrency.parse().ok()?,
            memory_bytes: memory_bytes.parse().ok()?,
            cpu_milli: cpu_milli.parse().ok()?,
        },
    };
    hash.starts_with("$argon2id$").then(|| Key { info: Arc::new(info), hash: hash.to_owned() })
}

fn read(path: &Path) -> Result<HashMap<String, Key>, KeysError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(source) => return Err(KeysError::Io { path: path.to_owned(), source }),
    };
    let mut keys = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let damaged = || KeysError::Damaged { path: path.to_owned(), line: at + 1 };
        if at == 0 {
            if line != MARK && line != MARK_OLD {
                return Err(damaged());
            }
            continue;
        }
        let key = parsed(line).ok_or_else(damaged)?;
        keys.insert(key.info.id.clone(), key);
    }
    Ok(keys)
}

fn write(home: &Path, keys: &HashMap<String, Key>) -> std::io::Result<()> {
    let new = home.join("keys.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let mut text = format!("{MARK}\n");
    keys.values().for_each(|key| text.push_str(&line(key)));
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, home.join(FILE))?;
    File::open(home)?.sync_all()
}

/// Milliseconds since 1970, by the clock of this machine.
#[expect(clippy::disallowed_methods, reason = "people are told when something was made")]
pub(crate) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

impl GatewayKeys for Keys {
    fn is_any(&self) -> bool {
        !self.keys.read().is_empty()
    }

    fn known(&self, text: &str) -> Option<Arc<KeyInfo>> {
        self.known.read().get(&text_of(text)).cloned()
    }

    fn check(&self, text: &str) -> Option<Arc<KeyInfo>> {
        let (id, secret) = text.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let key = self.keys.read().get(id).cloned()?;
        // Compared in a time that does not depend on where they differ.
        let is_right = argon2::verify_encoded(&key.hash, secret.as_bytes()).unwrap_or(false);
        if !is_right {
            return None;
        }
        let keys = self.keys.read();
        // One that was revoked meanwhile is not remembered.
        if !keys.contains_key(id) {
            return None;
        }
        // A right text for each key, so this has as many entries as there are keys.
        self.known.write().insert(text_of(text), key.info.clone());
        Some(key.info)
    }

    fn all(&self) -> Vec<Arc<KeyInfo>> {
        let mut all: Vec<Arc<KeyInfo>> = self.keys.read().values().map(|key| key.info.clone()).collect();
        all.sort_by(|a, b| (&a.tenant, a.created_ms, &a.id).cmp(&(&b.tenant, b.created_ms, &b.id)));
        all
    }

    fn create(&self, tenant: &str, scope: Scope, quota: Quota) -> Result<(Arc<KeyInfo>, String), KeyError> {
        let is_name =
            tenant.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if tenant.is_empty() || tenant.len() > TENANT_LEN_MAX || !is_name {
            let why = format!("{tenant:?} is no name for a tenant: 1 to {TENANT_LEN_MAX} of a-z 0-9 -");
            return Err(KeyError::Invalid(why));
        }
        let (id, secret) = (hex(&random::<ID_BYTES>()), hex(&random::<SECRET_BYTES>()));
        let hash = argon2::hash_encoded(secret.as_bytes(), &random::<SALT_BYTES>(), &costs());
        let hash = hash.map_err(|error| KeyError::Failed(format!("keys: {error}")))?;
        let tenant = tenant.to_owned();
        let created_ms = now_ms();
        let info = KeyInfo { id: id.clone(), tenant, scope, created_ms, quota };
        let info = Arc::new(info);
        let _writing = self.writing.lock();
        let mut keys = self.keys.read().clone();
        if keys.len() >= KEYS_MAX {
            return Err(KeyError::Invalid(format!("a node has at most {KEYS_MAX} keys: revoke some")));
        }
        keys.insert(id.clone(), Key { info: info.clone(), hash });
        self.keep(keys)?;
        Ok((info, format!("{KEY_PREFIX}{id}_{secret}")))
    }

    fn revoke(&self, id: &str) -> Result<bool, KeyError> {
        let _writing = self.writing.lock();
        let mut keys = self.keys.read().clone();
        let was_there = keys.remove(id).is_some();
        if was_there {
            self.keep(keys)?;
            self.known.write().retain(|_, info| info.id != id);
        }
        Ok(was_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked_kept_and_revoked() {
        let home = tempfile::tempdir().unwrap();
        let keys = Keys::open(Some(home.path())).unwrap();
        assert!(!keys.is_any());
        let (info, text) = keys
            .create(
                "team",
                Scope::Deploy,
                Quota { requests_per_second: 5, memory_bytes: 1 << 40, ..Quota::default() },
            )
            .unwrap();
        assert!(text.starts_with(&format!("sinew_{}_", info.id)) && text.len() > 80);
        assert!(keys.known(&text).is_none() && keys.is_any());
        assert_eq!(keys.check(&text).unwrap(), info);
        assert_eq!(keys.known(&text).unwrap(), info);
        let wrong = format!("{}0", &text[..text.len() - 1]);
        let wrong = if wrong == text { format!("{}1", &text[..text.len() - 1]) } else { wrong };
        for wrong in [
            wrong.as_str(),
            "sinew_",
            "sinew_a_b",
            "",
            &text[..text.len() - 1],
            &format!("sinew_{}_", info.id),
        ] {
            assert!(keys.check(wrong).is_none() && keys.known(wrong).is_none(), "{wrong}");
        }
        let file = std::fs::read_to_string(home.path().join(FILE)).unwrap();
        assert!(!file.contains(text.rsplit('_').next().unwrap()), "the secret is not kept");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(home.path().join(FILE)).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let again = Keys::open(Some(home.path())).unwrap();
        assert_eq!((again.all(), again.check(&text)), (vec![info.clone()], Some(info.clone())));
        assert!(again.revoke(&info.id).unwrap() && !again.revoke(&info.id).unwrap());
        assert!(again.known(&text).is_none() && again.check(&text).is_none());
        assert!(Keys::open(Some(home.path())).unwrap().all().is_empty());
    }

    #[test]
    fn keys_from_before_quotas_of_memory_are_as_good() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FILE), "sinew keys 1\na1 team invoke 7 5 2 $argon2id$x\n").unwrap();
        let keys = Keys::open(Some(home.path())).unwrap();
        let old = Quota { requests_per_second: 5, concurrency: 2, ..Quota::default() };
        assert_eq!((keys.all()[0].quota, keys.all()[0].scope), (old, Scope::Invoke));
        keys.create("other", Scope::Invoke, Quota { cpu_milli: 1500, ..Quota::default() }).unwrap();
        let again = Keys::open(Some(home.path())).unwrap();
        let quotas: Vec<Quota> = again.all().iter().map(|key| key.quota).collect();
        assert_eq!(quotas, [Quota { cpu_milli: 1500, ..Quota::default() }, old]);
    }

    #[test]
    fn what_is_no_file_of_keys_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for wrong in ["nonsense", "sinew keys 1\nnonsense", "sinew keys 1\na b admin 1 2 3 plain"] {
            std::fs::write(home.path().join(FILE), wrong).unwrap();
            assert!(Keys::open(Some(home.path())).is_err(), "{wrong}");
        }
        let keys = Keys::open(None).unwrap();
        for wrong in ["", "A", "a b", "a\nb", &"a".repeat(64)] {
            assert!(matches!(keys.create(wrong, Scope::Admin, Quota::default()), Err(KeyError::Invalid(_))));
        }
    }
}
