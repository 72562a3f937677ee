// SPDX-License-Identifier: Apache-2.0
//! Connections that we make: to a node, to whom a function's result is sent.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::identity::certificates;
use super::{Connected, TlsError, provider};

/// Whom we trust. Cheap to clone.
#[derive(Clone)]
pub struct Client(TlsConnector);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// Why a connection that speaks TLS was not made.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// The name cannot be in a certificate.
    #[error("{0:?} is no name that a certificate can have")]
    Name(String),
    /// Nobody that we trust vouches for the certificate.
    #[error("nobody that is trusted here vouches for its certificate")]
    Stranger,
    /// The certificate is another's, or expired, or otherwise no good.
    #[error("its certificate is not accepted: {0}")]
    Certificate(String),
    /// What answers speaks something else.
    #[error("it does not speak TLS")]
    Plain,
    /// The connection broke.
    #[error(transparent)]
    Io(io::Error),
}

impl Client {
    /// One that trusts the authorities in a file, and nobody else.
    ///
    /// # Errors
    /// If there is none in it.
    pub fn trusting(authorities: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|error| TlsError::Authority {
                path: authorities.to_owned(),
                reason: error.to_string(),
            })?;
        }
        Self::of(roots)
    }

    /// One that trusts whom this machine does (`SSL_CERT_FILE`, or where
    /// systems keep them). Where a machine trusts nobody, no connection is made.
    ///
    /// # Errors
    /// Never with the primitives that we build with.
    pub fn of_machine() -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::of(roots)
    }

    fn of(roots: RootCertStore) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError::Making(error.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with `host`, a name or an address, which has to show a
    /// certificate for it. It waits for as long as the other does.
    ///
    /// # Errors
    /// If the other is not trusted, or breaks off.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<Connected, Distrust> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Distrust::Name(host.to_owned()))?;
        self.0.connect(name, stream).await.map_err(Distrust::from)
    }
}

impl From<io::Error> for Distrust {
    fn from(error: io::Error) -> Self {
        let told = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match told {
            // The second: of somebody who calls himself by a name that we trust.
            Some(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => Self::Stranger,
            Some(rustls::Error::InvalidCertificate(reason)) => Self::Certificate(reason.to_string()),
            Some(rustls::Error::InvalidMessage(_)) => Self::Plain,
            _ => Self::Io(error),
        }
    }
}
