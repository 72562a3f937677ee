// SPDX-License-Identifier: Apache-2.0
//! TLS: who the node is to its clients, and whom the platform trusts.
//!
//! rustls lives here and nowhere else. Versions 1.3 and 1.2, with the
//! primitives of `ring`; nothing is negotiated below them, and no data is
//! taken before the handshake has ended (no 0-RTT).

mod client;
mod identity;
mod self_signed;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use tokio::net::TcpStream;

pub use client::{Client, Distrust};
pub use identity::{Identity, Server};
pub use self_signed::{SelfSigned, self_signed};

/// A connection that a client has made to us.
pub type Accepted = tokio_rustls::server::TlsStream<TcpStream>;
/// A connection that we have made.
pub type Connected = tokio_rustls::client::TlsStream<TcpStream>;

/// The first byte that a client of TLS sends: a record with a handshake.
pub const HANDSHAKE_BYTE: u8 = 0x16;

/// What keeps TLS from being set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or written.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file without what it should hold.
    #[error("{path} has no {what} in PEM")]
    Missing {
        /// Which one.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// A certificate and a key that cannot be used.
    #[error("the certificate in {certificate} and the key in {key} cannot be used: {reason}")]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's.
        key: PathBuf,
        /// Why.
        reason: String,
    },
    /// Authorities that cannot be used.
    #[error("{path} has a certificate that is no authority's: {reason}")]
    Authority {
        /// Their file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A certificate that could not be made.
    #[error("no certificate can be made for these names: {0}")]
    Making(String),
}

/// The primitives. They are named wherever they are used, and never by way of
/// the process, where whoever comes first decides.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests;
