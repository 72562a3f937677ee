// SPDX-License-Identifier: Apache-2.0
//! Whether the TCP listener speaks TLS, with which certificate, and that one
//! which is renewed is used without a restart.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use io::tls::{Identity, Server, TlsError, self_signed};

use crate::Error;
use crate::config::Options;
use crate::listener::H2;

/// Protocols that clients may choose from, the best first.
const PROTOCOLS: [&[u8]; 2] = [H2, b"http/1.1"];

/// How often the certificate's files are looked at: two calls of the system.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// TLS of the TCP listener.
#[derive(Debug)]
pub(crate) struct Security {
    identity: Arc<Identity>,
    is_own: bool,
}

impl Security {
    /// What the settings ask for; `None`: no TLS.
    ///
    /// # Errors
    /// If they do not go together, an address that others can reach has none,
    /// or the certificate is no good.
    pub(crate) fn of(options: &Options) -> Result<Option<Self>, Error> {
        let wrong = |what| Err(Error::TlsSettings(what));
        let identity = match (&options.tls_cert, &options.tls_key, options.tls_self_signed) {
            (Some(_), _, true) | (_, Some(_), true) => {
                return wrong(
                    "a certificate is given, and one that is self-signed is asked for: give one of both",
                );
            }
            (Some(_), None, _) => return wrong("a certificate needs its key: --tls-key FILE"),
            (None, Some(_), _) => return wrong("a key needs its certificate: --tls-cert FILE"),
            (Some(certificate), Some(key), false) => Some(Identity::read(certificate, key)?),
            (None, None, true) => Some(own(options)?),
            (None, None, false) => None,
        };
        match (identity, options.listen) {
            (Some(_), None) => {
                wrong("there is a certificate, and no TCP address for it: --listen ADDRESS, or no --tls-…")
            }
            (None, Some(address)) if !address.ip().is_loopback() && !options.insecure_http => {
                Err(Error::Exposed { address })
            }
            (identity, _) => {
                let is_own = options.tls_self_signed;
                Ok(identity.map(|identity| Self { identity: Arc::new(identity), is_own }))
            }
        }
    }

    /// The certificate that the node has made for itself, if that is what it shows.
    pub(crate) fn own_certificate(&self) -> Option<PathBuf> {
        self.is_own.then(|| self.identity.certificate().to_owned())
    }

    /// What greets clients.
    pub(crate) fn server(&self) -> Result<Server, TlsError> {
        Server::new(Arc::clone(&self.identity), &PROTOCOLS)
    }

    /// Uses what is in the files, as it changes, until `stop` ends.
    pub(crate) async fn keep_fresh(self, stop: impl Future<Output = ()>) {
        let looking = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                self.look().await;
            }
        };
        tokio::select! {
            () = looking => {}
            () = stop => {}
        }
    }

    async fn look(&self) {
        let identity = Arc::clone(&self.identity);
        // Files may be on a disk that is slow, or far away.
        let Ok(looked) = tokio::task::spawn_blocking(move || identity.refresh()).await else { return };
        let certificate = self.identity.certificate().display();
        match looked {
            Ok(false) => {}
            Ok(true) => tracing::info!(%certificate, "the certificate has changed; new connections get it"),
            Err(error) => {
                tracing::warn!(%error, "the certificate's files have changed, and are no good: the one before is still used");
            }
        }
    }
}

/// The identity that the node has made for itself, in its home.
fn own(options: &Options) -> Result<Identity, Error> {
    let Some(home) = &options.home else {
        return Err(Error::TlsSettings(
            "a certificate that is self-signed is kept in the node's home: --home DIR",
        ));
    };
    let names = names(options.listen, &options.tls_names, linux::host_name());
    let files = self_signed(&home.join("tls"), &names)?;
    Ok(Identity::read(&files.certificate, &files.key)?)
}

/// Names by which clients may call the node.
fn names(listen: Option<SocketAddr>, more: &[String], host: String) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let address =
        listen.filter(|address| !address.ip().is_unspecified()).map(|address| address.ip().to_string());
    let is_name = |host: &String| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    for name in address.into_iter().chain(Some(host).filter(is_name)).chain(more.iter().cloned()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests;
