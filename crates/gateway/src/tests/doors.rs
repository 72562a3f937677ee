// SPDX-License-Identifier: Apache-2.0
//! Who may knock, and under which name requests go.

use super::House;
use crate::{Door, Options};

type Headers<'a> = &'a [(&'a str, &'a str)];

#[tokio::test]
async fn only_names_of_this_node_are_answered() {
    let hosts = vec!["node.example".to_owned()];
    let origins = vec!["https://app.example".to_owned()];
    let house = House::with(Options { door: Door::Checked { hosts, origins }, ..Options::default() });
    let allowed: &[&[(&str, &str)]] = &[
        &[("host", "localhost:8080")],
        &[("host", "LOCALHOST")],
        &[("host", "127.0.0.1:8080")],
        &[("host", "127.9.9.9")],
        &[("host", "[::1]:8080")],
        &[("host", "node.example:443")],
        &[("host", "localhost:8080"), ("origin", "http://localhost:8080")],
        &[("host", "localhost:8080"), ("origin", "https://app.example")],
    ];
    for headers in allowed {
        assert_eq!(house.get_with("/v1/status", headers).await.status, 200, "{headers:?}");
    }
    let refused: &[(Headers<'_>, u16, &str)] = &[
        (&[("host", "evil.example")], 403, "host-not-allowed"),
        (&[("host", "localhost.evil.example")], 403, "host-not-allowed"),
        (&[("host", "192.168.0.1:8080")], 403, "host-not-allowed"),
        (&[("host", "127.0.0.1.evil.example")], 403, "host-not-allowed"),
        (&[("host", "localhost:8080"), ("origin", "http://localhost:3000")], 403, "origin-not-allowed"),
        (&[("host", "localhost:8080"), ("origin", "http://evil.example")], 403, "origin-not-allowed"),
        (&[("host", "localhost:8080"), ("origin", "null")], 403, "origin-not-allowed"),
        (&[], 400, "bad-host"),
        (&[("host", "localhost"), ("host", "evil.example")], 400, "bad-host"),
        (&[("host", "a b")], 400, "bad-host"),
    ];
    for (headers, status, kind) in refused {
        let answer = house.get_with("/v1/status", headers).await;
        assert_eq!(answer.problem(*status), *kind, "{headers:?}");
        // Not even whether a path exists is told.
        for path in ["/nowhere", "/function/nobody", "/function/nobody/x"] {
            assert_eq!(house.get_with(path, headers).await.problem(*status), *kind, "{path}");
        }
    }
}

#[tokio::test]
async fn a_private_door_asks_nothing() {
    let house = House::new();
    assert_eq!(house.get_with("/v1/status", &[("host", "evil.example")]).await.status, 200);
}

#[tokio::test]
async fn request_ids_are_echoed_if_sane_and_made_if_not() {
    let house = House::new();
    for path in ["/healthz", "/nowhere", "/v1/labels/none", "/function/nobody"] {
        let answer = house.get_with(path, &[("x-request-id", "Abc-1.2_3")]).await;
        assert_eq!(answer.header("x-request-id"), "Abc-1.2_3", "{path}");
        let long = "x".repeat(65);
        for insane in ["", "a b", "a\tb", "<script>", &long] {
            let answer = house.get_with(path, &[("x-request-id", insane)]).await;
            let id: uuid::Uuid = answer.header("x-request-id").parse().unwrap();
            assert_eq!(id.get_version_num(), 7, "{path} {insane:?}");
        }
    }
}
