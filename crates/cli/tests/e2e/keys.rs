// SPDX-License-Identifier: Apache-2.0
//! A node that other machines can reach, and the keys that it asks for.

use std::process::Command;

use serde_json::Value;

use super::{Node, home, http, http_with};

/// An answer's status, with these headers.
fn status(node: &Node, request: &str, headers: &str) -> u16 {
    let answer = http_with(&node.address, request, headers, b"");
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn who_comes_from_elsewhere_needs_a_key_and_a_revoked_one_is_none() {
    let home = home();
    let output = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(["up", "--listen", "0.0.0.0:0", "--home"])
        .arg(home.path())
        .output()
        .unwrap();
    let refused = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && refused.contains("--insecure-http"), "{refused}");
    let node = Node::start_with(home.path(), &["--listen", "0.0.0.0:0", "--insecure-http"]);
    assert_eq!((status(&node, "GET /healthz", ""), status(&node, "GET /v1/status", "")), (200, 401));
    // The owner's socket asks for none.
    let key = node.ok(&["key", "create", "--scope", "deploy", "--tenant", "team"]);
    let bearer = format!("Authorization: Bearer {key}\r\n");
    assert_eq!(status(&node, "GET /v1/status", &bearer), 200);
    assert_eq!(status(&node, "GET /v1/status", &format!("X-Api-Key: {key}\r\n")), 200);
    assert_eq!(status(&node, "GET /v1/secrets", &bearer), 403);
    // One key in a few ends in any one letter.
    let last = if key.ends_with('0') { '1' } else { '0' };
    let other = format!("Authorization: Bearer {}{last}\r\n", &key[..key.len() - 1]);
    assert_eq!(status(&node, "GET /v1/status", &other), 401);
    let remote = |key: &str| {
        let mut command =
            node.command(&["--node", &format!("http://{}", node.address), "list", "-o", "json"]);
        command.env("SINEW_KEY", key).output().unwrap().status.code()
    };
    assert_eq!((remote(&key), remote("sinew_no_key")), (Some(0), Some(6)));
    let listed: Value = serde_json::from_str(&node.ok(&["key", "list", "-o", "json"])).unwrap();
    assert_eq!((&listed["tenant"], &listed["scope"]), (&"team".into(), &"deploy".into()));
    let file = std::fs::read_to_string(home.path().join("keys")).unwrap();
    assert!(file.contains("$argon2id$") && !file.contains(key.rsplit('_').next().unwrap()));
    // It is as good after a restart, until it is revoked.
    node.kill();
    let node = Node::start_with(home.path(), &["--listen", "0.0.0.0:0", "--insecure-http"]);
    assert_eq!(status(&node, "GET /v1/status", &bearer), 200);
    node.ok(&["key", "revoke", listed["id"].as_str().unwrap()]);
    assert_eq!(status(&node, "GET /v1/status", &bearer), 401);
    assert!(http(&node.address, "GET /healthz", b"").starts_with("HTTP/1.1 200"));
}
