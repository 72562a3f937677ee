// SPDX-License-Identifier: Apache-2.0
//! The node's own pair of keys, which its receipts are signed with.
//!
//! The secret is the file `node.key` in the home, mode 0600, made when the node starts
//! there for the first time; a node without a home has a pair as long as it runs. Whoever
//! takes the file away while the node is stopped has it make another one: receipts
//! name the key that signed them, so that those by the old one are worth what they were.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gateway::Signing;
use io::{Identity, SEED_LEN};
use objects::{SIGNATURE_LEN, Statement};

const FILE: &str = "node.key";
/// What the file begins with.
const MARK: &[u8] = b"sinew node key 1\n";

/// Why the node has no pair of keys.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("the node's key: {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not what a node wrote.
    #[error(
        "the node's key: {0} is damaged: bring it back from a copy, or remove it, and the node makes another one and is another node for whoever checks its receipts"
    )]
    Damaged(PathBuf),
    /// The system gives no random numbers.
    #[error("the node's key: the system has no random numbers to make one from")]
    NoRandomness,
}

/// Signs receipts, and nothing else.
#[derive(Debug)]
pub(crate) struct NodeIdentity(Identity);

impl NodeIdentity {
    /// That of a home, made if there is none; without a home, a new one.
    ///
    /// # Errors
    /// As [`IdentityError`] says.
    pub(crate) fn open(home: Option<&Path>) -> Result<Self, IdentityError> {
        let path = home.map(|home| home.join(FILE));
        let known = path.as_deref().map(read).transpose()?.flatten();
        let seed = match (known, &path) {
            (Some(seed), _) => seed,
            (None, path) => {
                let seed = Identity::seed().ok_or(IdentityError::NoRandomness)?;
                if let Some(path) = path {
                    write(path, &seed)?;
                }
                seed
            }
        };
        let damaged = || IdentityError::Damaged(path.unwrap_or_default());
        Identity::new(&seed).map(Self).ok_or_else(damaged)
    }
}

impl Signing for NodeIdentity {
    fn public_key(&self) -> [u8; 32] {
        self.0.public_key()
    }

    fn sign(&self, statement: &Statement) -> [u8; SIGNATURE_LEN] {
        self.0.sign(&statement.to_bytes())
    }
}

/// Whether a receipt's statement is signed by the node that it names.
pub fn is_signed(receipt: &objects::Receipt) -> bool {
    io::is_signed_by(&receipt.statement.node, &receipt.statement.to_bytes(), &receipt.signature)
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> IdentityError + '_ {
    |source| IdentityError::Io { path: path.to_owned(), source }
}

fn read(path: &Path) -> Result<Option<[u8; SEED_LEN]>, IdentityError> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => {
            let most = (MARK.len() + SEED_LEN + 1) as u64;
            file.take(most).read_to_end(&mut bytes).map_err(failed(path))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path)(error)),
    }
    let seed = bytes.strip_prefix(MARK).and_then(|seed| seed.try_into().ok());
    seed.map(Some).ok_or_else(|| IdentityError::Damaged(path.to_owned()))
}

/// Writes a file that only its owner can read, under another name first: it is whole
/// or not there, whatever happens.
fn write(path: &Path, seed: &[u8; SEED_LEN]) -> Result<(), IdentityError> {
    let draft = path.with_extension("key.new");
    let written = || {
        let _ = std::fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&[MARK, seed].concat())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    written().map_err(failed(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_home_has_one_key_which_only_its_owner_reads() {
        let home = tempfile::tempdir().unwrap();
        let first = NodeIdentity::open(Some(home.path())).unwrap().public_key();
        assert_eq!(NodeIdentity::open(Some(home.path())).unwrap().public_key(), first);
        let path = home.path().join(FILE);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        let next = NodeIdentity::open(Some(home.path())).unwrap().public_key();
        assert_ne!(next, first, "another one");
        assert_ne!(NodeIdentity::open(None).unwrap().public_key(), next);
    }

    /// The vectors were signed by another implementation of ed25519.
    #[test]
    fn signatures_are_those_of_the_vectors() {
        let text = include_str!("../../../docs/spec/vectors/receipts.json");
        let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
        let bytes = |value: &serde_json::Value| -> Vec<u8> {
            let digits = value.as_str().unwrap();
            (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
                .collect()
        };
        let identity = NodeIdentity(Identity::new(&bytes(&vectors["seed"]).try_into().unwrap()).unwrap());
        assert_eq!(identity.public_key()[..], bytes(&vectors["public_key"]));
        for vector in vectors["valid"].as_array().unwrap() {
            let receipt = objects::Receipt::from_bytes(&bytes(&vector["receipt"])).unwrap();
            assert!(is_signed(&receipt), "{}", vector["name"]);
            assert_eq!(identity.sign(&receipt.statement), receipt.signature, "{}", vector["name"]);
        }
    }

    #[test]
    fn a_key_that_is_none_is_told_and_left_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        NodeIdentity::open(Some(home.path())).unwrap();
        let path = home.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        for wrong in [&whole[..whole.len() - 1], &[&whole[..], b"\n"].concat(), b"", &[0; 32]] {
            std::fs::write(&path, wrong).unwrap();
            let error = NodeIdentity::open(Some(home.path())).unwrap_err();
            assert!(error.to_string().contains("damaged"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), wrong);
        }
    }
}
