// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn urls_and_paths() {
    let at = |is_tls, host: &str, port| Address::Tcp { is_tls, host: host.to_owned(), port };
    let tcp = |host: &str, port| at(false, host, port);
    let cases = [
        ("http://127.0.0.1:9000", tcp("127.0.0.1", 9000)),
        ("http://localhost/", tcp("localhost", 8080)),
        ("http://[::1]:81", tcp("::1", 81)),
        ("https://node.example/", at(true, "node.example", 443)),
        ("https://[::1]:8443", at(true, "::1", 8443)),
        ("unix:/a/b.sock", Address::Unix("/a/b.sock".into())),
        ("unix:///a/b.sock", Address::Unix("/a/b.sock".into())),
        ("/a/b.sock", Address::Unix("/a/b.sock".into())),
        ("./a://b.sock", Address::Unix("./a://b.sock".into())),
        ("./b.sock", Address::Unix("./b.sock".into())),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).unwrap(), expected, "{text}");
    }
    assert_eq!(tcp("::1", 81).to_string(), "http://[::1]:81");
    assert_eq!(at(true, "a.b", 443).to_string(), "https://a.b:443");
    for text in [
        "",
        "node",
        "https://",
        "http://",
        "http://a b",
        "http://user@host",
        "http://host/path",
        "ftp://x",
        "HTTP://x",
    ] {
        assert_eq!(parse(text).unwrap_err().code, Code::Usage, "{text}");
    }
}
