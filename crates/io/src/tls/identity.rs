// SPDX-License-Identifier: Apache-2.0
//! What a listener shows its clients: a chain of certificates, and that it
//! has the key.
//!
//! The files may be replaced at any time, one after the other, as programs do
//! that renew certificates. [`Identity::refresh`] looks whether they have
//! changed; a pair that does not fit together changes nothing, and what was
//! read before stays in use. Connections that are open keep what they have.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::{Accepted, TlsError, provider};

/// No chain of certificates, and no key, is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate and its key, from two files in PEM.
pub struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    /// What the files looked like when they were read last, or tried.
    seen: Mutex<[Option<Stamp>; 2]>,
    current: RwLock<Arc<CertifiedKey>>,
}

/// Changes whenever a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// `None`: there is no such file, or it cannot be looked at.
    fn of(path: &Path) -> Option<Self> {
        path.metadata().ok().as_ref().map(Self::from)
    }

    fn from(found: &Metadata) -> Self {
        Self { inode: found.ino(), len: found.len(), changed: (found.ctime(), found.ctime_nsec()) }
    }
}

impl Identity {
    /// Reads both files.
    ///
    /// # Errors
    /// If one cannot be read, or the two do not fit together.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        // Before the files are: what changes meanwhile is read again.
        let seen = [Stamp::of(certificate), Stamp::of(key)];
        let current = pair(certificate, key)?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            seen: Mutex::new(seen),
            current: RwLock::new(Arc::new(current)),
        })
    }

    /// Reads the files again if they have changed, and says whether they had.
    /// It blocks for as long as the files' disk does.
    ///
    /// # Errors
    /// If what they hold now cannot be used, once for each change; what was
    /// read before stays in use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let now = [Stamp::of(&self.certificate), Stamp::of(&self.key)];
        let mut seen = self.seen.lock();
        if *seen == now {
            return Ok(false);
        }
        *seen = now;
        let new = pair(&self.certificate, &self.key)?;
        *self.current.write() = Arc::new(new);
        Ok(true)
    }

    /// The certificate's file.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of the key.
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

fn pair(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let unusable = |error: rustls::Error| TlsError::Unusable {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason: match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                "the key is another certificate's".to_owned()
            }
            error => error.to_string(),
        },
    };
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_slice(&contents(key)?);
    let secret = secret.map_err(|error| not_pem(key, "private key", &error))?;
    CertifiedKey::from_der(chain, secret, &provider()).map_err(unusable)
}

/// All certificates of a file; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = contents(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(|error| not_pem(path, "certificate", &error))?;
    match read.is_empty() {
        true => Err(TlsError::Missing { path: path.to_owned(), what: "certificate" }),
        false => Ok(read),
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        if path.metadata()?.len() > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 1 MiB"));
        }
        std::fs::read(path)
    };
    read().map_err(|source| TlsError::File { path: path.to_owned(), source })
}

fn not_pem(path: &Path, what: &'static str, error: &pem::Error) -> TlsError {
    match error {
        pem::Error::NoItemsFound => TlsError::Missing { path: path.to_owned(), what },
        error => TlsError::File {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        },
    }
}

/// What a listener greets its clients with. Cheap to clone.
#[derive(Clone)]
pub struct Server(TlsAcceptor);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

impl Server {
    /// One who shows `identity` and speaks these protocols, the best first.
    ///
    /// # Errors
    /// Never with the primitives that we build with.
    pub fn new(identity: Arc<Identity>, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError::Making(error.to_string()))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(identity);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands with a client. It waits for as long as the client does:
    /// the caller has a limit.
    ///
    /// # Errors
    /// If the client breaks off, or wants what we do not speak.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Accepted> {
        self.0.accept(stream).await
    }
}
