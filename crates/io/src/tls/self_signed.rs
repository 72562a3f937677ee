// SPDX-License-Identifier: Apache-2.0
//! A certificate that nobody vouches for but its holder: for a machine that
//! has no name in public, and clients that are given the certificate.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use super::TlsError;

/// Files of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfSigned {
    /// What clients are given, to trust it.
    pub certificate: PathBuf,
    /// Nobody's but the node's.
    pub key: PathBuf,
}

/// The certificate in `directory`, for these names and addresses. It is made
/// where there is none, or one for other names. It does not expire: who trusts
/// it has it, and nobody is told when it is to be trusted no more.
///
/// # Errors
/// If a name is none, or a file cannot be written.
pub fn self_signed(directory: &Path, names: &[String]) -> Result<SelfSigned, TlsError> {
    let files = SelfSigned { certificate: directory.join("certificate.pem"), key: directory.join("key.pem") };
    let listed = directory.join("names");
    let list = names.join("\n") + "\n";
    if fs::read_to_string(&listed).is_ok_and(|made_for| made_for == list) {
        return Ok(files);
    }
    let made = |error: rcgen::Error| TlsError::Making(error.to_string());
    let mut parameters = CertificateParams::new(names).map_err(made)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "sinew node");
    let key = KeyPair::generate().map_err(made)?;
    let certificate = parameters.self_signed(&key).map_err(made)?;
    let write = |path: &Path, mode, text: &str| {
        written(path, mode, text).map_err(|source| TlsError::File { path: path.to_owned(), source })
    };
    let mut builder = DirBuilder::new();
    let directory_made = builder.recursive(true).mode(0o700).create(directory);
    directory_made.map_err(|source| TlsError::File { path: directory.to_owned(), source })?;
    // The list is last: whoever is interrupted begins anew.
    absent(&listed)?;
    write(&files.key, 0o600, &key.serialize_pem())?;
    write(&files.certificate, 0o644, &certificate.pem())?;
    write(&listed, 0o644, &list)?;
    Ok(files)
}

/// A new file, so that one that was there does not keep its mode.
fn written(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn absent(path: &Path) -> Result<(), TlsError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(TlsError::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}
