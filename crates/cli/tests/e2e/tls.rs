// SPDX-License-Identifier: Apache-2.0
//! A node that speaks TLS, with curl and with our own client.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use super::{Duration, Node, home};

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl").args(["-sS", "--max-time", "20"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The node's address by a name that is in its certificate.
fn url(node: &Node, scheme: &str, path: &str) -> String {
    format!("{scheme}://localhost:{}{path}", node.address.rsplit_once(':').unwrap().1)
}

/// What curl gets of `/healthz` when it trusts a certificate.
fn health(node: &Node, trusted: &Path) -> Output {
    curl(&["--cacert", trusted.to_str().unwrap(), &url(node, "https", "/healthz")])
}

#[test]
fn curl_and_our_own_client_come_in_by_tls() {
    let home = home();
    let node = Node::start_with(home.path(), &["--listen", "0.0.0.0:0", "--tls-self-signed"]);
    let trusted = home.path().join("tls/certificate.pem");
    let ca = trusted.to_str().unwrap();
    assert!(health(&node, &trusted).status.success());
    // Nobody else vouches for it; and what others can reach wants keys.
    let distrusting = curl(&[&url(&node, "https", "/healthz")]);
    assert!(text(&distrusting.stderr).contains("certificate"), "{}", text(&distrusting.stderr));
    let status = url(&node, "https", "/v1/status");
    assert!(text(&curl(&["-i", "--cacert", ca, &status]).stdout).contains(" 401 "));
    let key = node.ok(&["key", "create", "--scope", "deploy"]);
    let ours = |address: &str, ca: Option<&str>| {
        let mut command = node.command(&["--node", address, "list"]);
        command.env("SINEW_KEY", &key).env_remove("SINEW_CA").env_remove("SSL_CERT_FILE");
        ca.map(|ca| command.env("SINEW_CA", ca));
        let output = command.output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    assert_eq!(ours(&url(&node, "https", ""), Some(ca)).0, 0);
    let (code, stranger) = ours(&url(&node, "https", ""), None);
    assert!(code == 1 && stranger.contains("SINEW_CA=FILE"), "{stranger}");
    let port = node.address.rsplit_once(':').unwrap().1;
    let (code, no_name) = ours(&format!("https://127.0.0.2:{port}"), Some(ca));
    assert!(code == 1 && no_name.contains("127.0.0.2"), "{no_name}");
    // Without TLS the port says what is wrong, to both.
    let plain = curl(&["-i", &url(&node, "http", "/function/x")]);
    let plain = text(&plain.stdout);
    assert!(plain.contains(" 400 ") && plain.contains("needs-tls") && plain.contains("https://"), "{plain}");
    let (code, told) = ours(&url(&node, "http", ""), None);
    assert!(code == 1 && told.contains("https://"), "{told}");
    // And a node without TLS is told from one that has it.
    let other = super::home();
    let bare = Node::start(other.path());
    let (code, told) = ours(&format!("https://{}", bare.address), Some(ca));
    assert!(code == 1 && told.contains("does not speak TLS"), "{told}");
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let home = home();
    let (used, next) = (home.path().join("used"), home.path().join("next"));
    for directory in [&used, &next] {
        drop(Node::start_with(directory, &["--listen", "127.0.0.1:0", "--tls-self-signed"]));
    }
    let file = |home: &Path, name: &str| home.join("tls").join(name);
    let (certificate, key) = (file(&used, "certificate.pem"), file(&used, "key.pem"));
    let old = home.path().join("old.pem");
    std::fs::copy(&certificate, &old).unwrap();
    let paths = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let node = Node::start_with(
        &home.path().join("node"),
        &["--listen", "127.0.0.1:0", "--tls-cert", paths[0], "--tls-key", paths[1]],
    );
    assert!(health(&node, &old).status.success());
    std::fs::copy(file(&next, "certificate.pem"), &certificate).unwrap();
    std::fs::copy(file(&next, "key.pem"), &key).unwrap();
    let begun = Instant::now();
    while !health(&node, &file(&next, "certificate.pem")).status.success() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the new certificate is never used");
    }
    assert!(!health(&node, &old).status.success());
}
