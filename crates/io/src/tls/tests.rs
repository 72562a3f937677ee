// SPDX-License-Identifier: Apache-2.0
//! Both ends over a socket, with certificates of our own.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|&name| name.to_owned()).collect()
}

fn made(directory: &Path, of: &[&str]) -> SelfSigned {
    self_signed(directory, &names(of)).unwrap()
}

/// What a client that trusts `authority` gets from one who shows `identity`.
async fn said(identity: &Arc<Identity>, authority: &Path, host: &str) -> Result<String, Distrust> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(Arc::clone(identity), &[b"http/1.1"]).unwrap();
    let serving = async move {
        let (stream, _) = listener.accept().await.unwrap();
        if let Ok(mut stream) = server.accept(stream).await {
            stream.write_all(b"hello").await.unwrap();
            stream.shutdown().await.unwrap();
        }
    };
    let asking = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = Client::trusting(authority).unwrap().connect(host, stream).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        Ok(text)
    };
    tokio::join!(serving, asking).1
}

fn identity(files: &SelfSigned) -> Arc<Identity> {
    Arc::new(Identity::read(&files.certificate, &files.key).unwrap())
}

#[tokio::test]
async fn who_is_trusted_is_heard_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let ours = made(&directory.path().join("ours"), &["localhost", "127.0.0.1"]);
    let other = made(&directory.path().join("other"), &["localhost", "127.0.0.1"]);
    let server = identity(&ours);
    assert_eq!(said(&server, &ours.certificate, "localhost").await.unwrap(), "hello");
    assert_eq!(said(&server, &ours.certificate, "127.0.0.1").await.unwrap(), "hello");
    let stranger = said(&server, &other.certificate, "localhost").await;
    assert!(matches!(stranger, Err(Distrust::Stranger)), "{stranger:?}");
    let another = said(&server, &ours.certificate, "example.com").await.unwrap_err().to_string();
    assert!(another.contains("not valid for name"), "{another}");
    assert!(matches!(said(&server, &ours.certificate, "no name").await, Err(Distrust::Name(_))));
}

#[tokio::test]
async fn an_expired_certificate_is_not_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let files = made(directory.path(), &["localhost"]);
    let mut parameters = CertificateParams::new(names(&["localhost"])).unwrap();
    parameters.not_after = date_time_ymd(2020, 1, 1);
    let key = KeyPair::generate().unwrap();
    std::fs::write(&files.certificate, parameters.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    let refused = said(&identity(&files), &files.certificate, "localhost").await.unwrap_err().to_string();
    assert!(refused.contains("expired"), "{refused}");
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let files = made(directory.path(), &["localhost"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    };
    let asking = async {
        let stream = TcpStream::connect(address).await.unwrap();
        Client::trusting(&files.certificate).unwrap().connect("localhost", stream).await
    };
    let (_open, answer) = tokio::join!(serving, asking);
    assert!(matches!(answer, Err(Distrust::Plain)), "{answer:?}");
}

#[tokio::test]
async fn files_that_change_are_read_again_and_a_bad_pair_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let first = made(&directory.path().join("used"), &["localhost"]);
    let second = made(&directory.path().join("next"), &["localhost"]);
    let old = directory.path().join("old.pem");
    std::fs::copy(&first.certificate, &old).unwrap();
    let server = identity(&first);
    assert!(!server.refresh().unwrap());
    // One file after the other, as who renews them does.
    std::fs::copy(&second.certificate, &first.certificate).unwrap();
    let refused = server.refresh().unwrap_err().to_string();
    assert!(refused.contains("the key is another certificate's"), "{refused}");
    assert!(!server.refresh().unwrap(), "each change is told once");
    assert_eq!(said(&server, &old, "localhost").await.unwrap(), "hello");
    std::fs::copy(&second.key, &first.key).unwrap();
    assert!(server.refresh().unwrap());
    assert!(matches!(said(&server, &old, "localhost").await, Err(Distrust::Stranger)));
    assert_eq!(said(&server, &second.certificate, "localhost").await.unwrap(), "hello");
    std::fs::remove_file(&first.key).unwrap();
    assert!(server.refresh().is_err());
    assert!(!server.refresh().unwrap());
    assert_eq!(said(&server, &second.certificate, "localhost").await.unwrap(), "hello");
}

#[test]
fn what_is_no_identity_is_told_with_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let files = made(directory.path(), &["localhost"]);
    let reason = |certificate: &Path, key: &Path| Identity::read(certificate, key).unwrap_err().to_string();
    assert!(reason(&files.key, &files.key).ends_with("key.pem has no certificate in PEM"));
    let no_key = reason(&files.certificate, &files.certificate);
    assert!(no_key.ends_with("certificate.pem has no private key in PEM"), "{no_key}");
    assert!(reason(&directory.path().join("none"), &files.key).contains("none: No such file"));
    std::fs::write(&files.key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    assert!(reason(&files.certificate, &files.key).contains("cannot be used"));
    std::fs::write(&files.key, vec![b'x'; 2 << 20]).unwrap();
    assert!(reason(&files.certificate, &files.key).contains("longer than 1 MiB"));
}

#[test]
fn a_self_signed_certificate_is_made_once_for_its_names() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("tls");
    let files = made(&home, &["localhost"]);
    let bytes = std::fs::read(&files.certificate).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home), mode(&files.key)), (0o700, 0o600));
    made(&home, &["localhost"]);
    assert_eq!(std::fs::read(&files.certificate).unwrap(), bytes);
    made(&home, &["localhost", "10.0.0.7"]);
    assert_ne!(std::fs::read(&files.certificate).unwrap(), bytes);
    assert!(self_signed(&home, &names(&["\u{e9}"])).is_err());
}
