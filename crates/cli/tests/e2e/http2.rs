// SPDX-License-Identifier: Apache-2.0
//! The same requests by both versions of HTTP, with TLS and without.

use std::process::Command;

use super::functions::is_root;
use super::{Node, home};

/// The answer's body, and the version and the status that it came with.
fn curl(version: &str, more: &[&str], url: &str) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "30", version, "-w", "\n%{http_version} %{http_code}"]);
    let output = command.args(more).arg(url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, told) = text.rsplit_once('\n').unwrap();
    (body.to_owned(), told.to_owned())
}

#[test]
fn a_function_answers_by_both_versions_alike() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--tls-self-signed"]);
    let code = "async def handler(scope, receive, send):\n    \
                body = b''\n    \
                more = True\n    \
                while more:\n        \
                message = await receive()\n        \
                body += message.get('body', b'')\n        \
                more = message.get('more_body', False)\n    \
                headers = dict(scope['headers'])\n    \
                said = headers[b'host'] + b' ' + headers[b'cookie'] + b' ' + str(len(body)).encode()\n    \
                await send({'type': 'http.response.start', 'status': 201, 'headers': []})\n    \
                await send({'type': 'http.response.body', 'body': said})\n";
    node.deploy(&node.python("hello", "", code));
    let ca = home.path().join("tls/certificate.pem");
    let port = node.address.rsplit_once(':').unwrap().1;
    let sent = "x".repeat(300_000);
    let path = home.path().join("sent");
    std::fs::write(&path, &sent).unwrap();
    let data = format!("@{}", path.display());
    let more = ["--cacert", ca.to_str().unwrap(), "-b", "a=1; b=2", "--data-binary", &data];
    let url = format!("https://localhost:{port}/function/hello/");
    let body = format!("localhost:{port} a=1; b=2 300000");
    assert_eq!(curl("--http2", &more, &url), (body.clone(), "2 201".to_owned()));
    assert_eq!(curl("--http1.1", &more, &url), (body, "1.1 201".to_owned()));
    // What is wrong is told in the same words.
    let none = format!("https://localhost:{port}/function/none");
    for (version, number) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let (problem, told) = curl(version, &more[..4], &none);
        assert!(problem.contains("function-not-found"), "{problem}");
        assert_eq!(told, format!("{number} 404"));
    }
    // A web page that has the name of this machine resolved to us is refused by either.
    let evil = format!("https://evil.example:{port}/v1/status");
    let resolved = format!("evil.example:{port}:127.0.0.1");
    for version in ["--http2", "--http1.1"] {
        let (problem, _) = curl(version, &["-k", "--resolve", &resolved], &evil);
        assert!(problem.contains("host-not-allowed"), "{problem}");
    }
}

#[test]
fn clients_that_know_may_speak_it_without_tls() {
    let home = home();
    let node = Node::start(home.path());
    let url = format!("http://{}/healthz", node.address);
    assert_eq!(curl("--http2-prior-knowledge", &[], &url).1, "2 200");
    assert_eq!(curl("--http1.1", &[], &url).1, "1.1 200");
    let socket = home.path().join("node.sock");
    let by_socket = ["--unix-socket", socket.to_str().unwrap()];
    assert_eq!(curl("--http2-prior-knowledge", &by_socket, "http://localhost/healthz").1, "2 200");
    // A node with TLS tells those who come without, in their version.
    let home = super::home();
    let node = Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--tls-self-signed"]);
    let (problem, told) = curl("--http2-prior-knowledge", &[], &format!("http://{}/healthz", node.address));
    assert!(problem.contains("needs-tls") && told == "2 400", "{told} {problem}");
}
