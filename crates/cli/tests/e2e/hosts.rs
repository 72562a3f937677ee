// SPDX-License-Identifier: Apache-2.0
//! Functions as websites: by a host name of their own, where pages are a function's alone, without a key where
//! others need one, and told who asks, by TLS and behind a proxy.

use std::process::Command;

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

/// A site that keeps its visitors apart by a cookie, and takes a form only with what it gave them.
const SITE_PY: &str = r#"
import json
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

def app(environ, start_response):
    cookies = SimpleCookie(environ.get("HTTP_COOKIE", ""))
    path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
    if method == "POST":
        form = parse_qs(environ["wsgi.input"].read().decode())
        given, kept = form.get("token", [""])[0], cookies["token"].value if "token" in cookies else None
        status = "200 OK" if given == kept else "403 Forbidden"
        start_response(status, [("Content-Type", "text/plain")])
        return [b"taken" if given == kept else b"forged"]
    told = {"path": path, "script": environ["SCRIPT_NAME"], "client": environ["REMOTE_ADDR"], "scheme": environ["wsgi.url_scheme"],
            "host": environ["HTTP_HOST"], "forwarded": environ.get("HTTP_X_FORWARDED_FOR")}
    start_response("200 OK", [("Content-Type", "application/json"), ("Set-Cookie", "token=secret; SameSite=Lax; HttpOnly")])
    return [json.dumps(told).encode()]
"#;

const PROGRAM: &str = r#"#!/usr/bin/python3
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({name: self.headers.get_all(name) for name in ("x-forwarded-for", "x-forwarded-proto")}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

const NODE_JS: &str = r#"
exports.handler = (req, res) => res.end(JSON.stringify([req.socket.remoteAddress, req.socket.encrypted, req.url]));
"#;

const MANIFEST: &str = r#"
[functions.site]
runtime = "python"
handler = "site_one.app"
hosts = ["shop.example"]
public = true

[functions.own]
runtime = "python"
handler = "site_one.app"

[functions.program]
runtime = "executable"
handler = "program"
public = true

[functions.listener]
runtime = "node"
handler = "listener.handler"
public = true
"#;

fn deployed(node: &Node) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = node.home.join("source-site");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in
        [("sinew.toml", MANIFEST), ("site_one.py", SITE_PY), ("program", PROGRAM), ("listener.js", NODE_JS)]
    {
        std::fs::write(folder.join(name), text).unwrap();
    }
    std::fs::set_permissions(folder.join("program"), std::fs::Permissions::from_mode(0o755)).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
}

/// Status, head in lower case and body.
fn asked(node: &Node, request: &str, host: &str, headers: &str, body: &str) -> (u16, String, String) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(&node.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_owned())
}

#[test]
fn a_website_is_served_at_its_own_host() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let port = node.address.rsplit_once(':').unwrap().1;
    for host in ["shop.example".to_owned(), format!("site.localhost:{port}")] {
        for path in ["/", "/v1/status", "/function/own"] {
            let (status, head, body) = asked(&node, &format!("GET {path}"), &host, "", "");
            assert_eq!(status, 200, "{head} {body}");
            assert!(!head.contains("content-security-policy"), "{head}");
            let told: Value = serde_json::from_str(&body).unwrap();
            let expected = json!({"path": path, "script": "", "client": "127.0.0.1", "scheme": "http", "host": host, "forwarded": null});
            assert_eq!(told, expected);
        }
        // What a browser sends of a form on that page.
        let page = format!(
            "Origin: http://{host}\r\nCookie: token=secret\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        );
        assert_eq!(asked(&node, "POST /form", &host, &page, "token=secret").2, "taken");
        assert_eq!(asked(&node, "POST /form", &host, &page, "token=other").0, 403);
    }
    // A proxy on this machine is believed.
    let proxied = "X-Forwarded-For: 1.1.1.1, 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    let (_, _, body) = asked(&node, "GET /", "shop.example", proxied, "");
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&told["client"], &told["scheme"]), (&json!("203.0.113.9"), &json!("https")));
    // By its name it is where it was, on a page without an origin; and the node is at no function's host.
    let (_, head, body) = asked(&node, "GET /function/site/x", "localhost", "", "");
    assert!(head.contains("content-security-policy: sandbox"), "{head}");
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&told["script"], &told["path"]), (&json!("/function/site"), &json!("/x")));
    assert_eq!(asked(&node, "GET /v1/status", "nobody.localhost", "", "").0, 404);
    assert_eq!(asked(&node, "GET /v1/status", "other.example", "", "").0, 403);
    // What it is told says so, and curl finds it.
    let described = node.ok(&["describe", "site"]);
    assert!(described.contains("shop.example") && described.contains("public"), "{described}");
    let found =
        Command::new("curl").args(["-s", &format!("http://site.localhost:{port}/a")]).output().unwrap();
    assert!(String::from_utf8_lossy(&found.stdout).contains("\"path\": \"/a\""), "{found:?}");
    node.ok(&["delete", "site", "--yes"]);
    assert_eq!(asked(&node, "GET /v1/status", &format!("site.localhost:{port}"), "", "").0, 404);
    assert_eq!(asked(&node, "GET /v1/status", "shop.example", "", "").0, 403);
}

#[test]
fn what_is_public_answers_where_others_need_a_key() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start_with(home.path(), &["--listen", "0.0.0.0:0", "--insecure-http"]);
    deployed(&node);
    let status = |request: &str, host: &str| asked(&node, request, host, "", "").0;
    assert_eq!((status("GET /function/site", "x"), status("GET /", "shop.example")), (200, 200));
    assert_eq!((status("GET /function/own", "x"), status("GET /v1/status", "x")), (401, 401));
    assert_eq!(status("GET /", "own.localhost"), 401);
    assert_eq!(status("POST /async-function/site", "x"), 401);
    assert_eq!(status("GET /v1/status", "shop.example"), 200, "it is the site's");
    // Functions of every kind are told who asks.
    let said = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    let answer = http_with(&node.address, "GET /function/program", said, b"");
    let told: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(told, json!({"x-forwarded-for": ["203.0.113.9"], "x-forwarded-proto": ["https"]}));
    let answer = http_with(&node.address, "GET /function/listener/x", said, b"");
    assert!(answer.ends_with("[\"203.0.113.9\",true,\"/x\"]"), "{answer}");
}

#[test]
fn who_asks_by_tls_is_told_so() {
    if !is_root() {
        return;
    }
    let home = home();
    let arguments = ["--listen", "127.0.0.1:0", "--tls-self-signed", "--tls-name", "shop.example"];
    let node = Node::start_with(home.path(), &arguments);
    deployed(&node);
    let ca = home.path().join("tls/certificate.pem");
    let port = node.address.rsplit_once(':').unwrap().1;
    for version in ["--http1.1", "--http2"] {
        let address = format!("shop.example:{port}:127.0.0.1");
        let url = format!("https://shop.example:{port}/v1/status");
        let mut command = Command::new("curl");
        command.args(["-s", version, "--cacert", ca.to_str().unwrap(), "--resolve", &address, &url]);
        let output = command.output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!((&told["scheme"], &told["client"]), (&json!("https"), &json!("127.0.0.1")), "{version}");
        assert_eq!(told["path"], "/v1/status", "{version}");
    }
}
