// SPDX-License-Identifier: Apache-2.0
//! Transfers over TLS, from who is trusted and who is not.

use std::path::Path;

use super::*;

/// An identity for these names; what is in `at` vouches for it.
fn identity(at: &Path, names: &[&str]) -> (tls::Server, tls::Client) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let files = tls::self_signed(at, &names).unwrap();
    let identity = Arc::new(tls::Identity::read(&files.certificate, &files.key).unwrap());
    (tls::Server::new(identity, &[b"http/1.1"]).unwrap(), tls::Client::trusting(&files.certificate).unwrap())
}

fn downloads_trusting(client: tls::Client, server: &Server) -> Downloads {
    let mut downloads = downloads(server);
    downloads.dialer = downloads.dialer.trusting(client);
    downloads
}

fn at(url: &str) -> Download {
    Download { urls: vec![url.to_owned()], ..wanted() }
}

#[tokio::test]
async fn who_is_trusted_is_heard_on_one_connection_and_nobody_else_is() {
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (tls, trusting) = identity(ours.path(), &["data.example"]);
    let server =
        Server::start_with(Some(tls), |_, head| Act::Keep(good(&body(300_000), "\"a\"", head))).await;
    let downloads = downloads_trusting(trusting, &server);
    for _ in 0..3 {
        assert_eq!(bring(&downloads, &at("https://data.example/x")).await.unwrap().0, body(300_000));
    }
    assert_eq!((server.requests().len(), server.connections()), (3, 1), "one handshake for all");
    // It has no certificate for this name; and nobody who is trusted vouches for it.
    let why = bring(&downloads, &at("https://other.example/x")).await.unwrap_err();
    assert!(why.contains("https://other.example/x") && why.contains("certificate"), "{why}");
    let (_, stranger) = identity(others.path(), &["data.example"]);
    let why = bring(&downloads_trusting(stranger, &server), &at("https://data.example/x")).await.unwrap_err();
    assert!(why.contains("nobody that is trusted here vouches"), "{why}");
    assert_eq!(server.requests().len(), 3, "nobody was asked for anything");
}

#[tokio::test]
async fn no_redirect_leads_from_https_to_http() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, trusting) = identity(folder.path(), &["data.example", "other.example"]);
    let server = Server::start_with(Some(tls), |_, head| {
        let to = |url: &str| answer("302 Found", &[&format!("location: {url}"), "content-length: 0"], b"");
        Act::Keep(match head.split(' ').nth(1).unwrap() {
            "/down" => to("http://data.example/x"),
            "/aside" => to("https://other.example/x"),
            _ => good(b"data", "\"a\"", head),
        })
    })
    .await;
    let downloads = downloads_trusting(trusting, &server);
    let why = bring(&downloads, &at("https://data.example/down")).await.unwrap_err();
    assert!(why.contains("redirects from https to \"http://data.example/x\""), "{why}");
    assert_eq!(server.requests().len(), 1);
    assert_eq!(bring(&downloads, &at("https://data.example/aside")).await.unwrap().0, b"data", "the control");
}
