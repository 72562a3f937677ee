// SPDX-License-Identifier: Apache-2.0
//! Results that are sent to a server on this machine, by a node that is killed
//! while the server is away.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Node, home, http_with};

const ECHO: &str = r#"(module (func (export "apply") (param i32) (result i32) (i32.const 3)))"#;
const GENEROUS: Duration = Duration::from_secs(60);

/// One request, answered with this status line.
fn served(listener: &TcpListener, answer: &str) -> String {
    listener.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    let mut stream: TcpStream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) => assert!(begun.elapsed() < GENEROUS, "no result is sent"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(GENEROUS)).unwrap();
    let mut seen = String::new();
    while !seen.ends_with("the input") {
        let mut piece = [0; 4096];
        let len = stream.read(&mut piece).unwrap();
        assert_ne!(len, 0, "{seen}");
        seen.push_str(std::str::from_utf8(&piece[..len]).unwrap());
    }
    stream.write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes()).unwrap();
    seen
}

#[test]
fn a_result_reaches_its_caller_also_after_a_kill() {
    let home = home();
    let source = home.path().join("echo");
    std::fs::create_dir_all(&source).unwrap();
    let manifest = "[functions.echo]\nruntime = \"wasm\"\nsource = \"echo.wat\"\n";
    std::fs::write(source.join("sinew.toml"), manifest).unwrap();
    std::fs::write(source.join("echo.wat"), ECHO).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = home.path().join("settings.toml");
    std::fs::write(&settings, format!("callback_private = [\"{address}\"]\n")).unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--config", settings.to_str().unwrap()];
    let node = Node::start_with(home.path(), &flags);
    node.deploy(&source);
    let call = |node: &Node, url: &str| {
        let header = format!("X-Callback-Url: {url}\r\n");
        http_with(&node.address, "POST /async-function/echo", &header, b"the input")
    };
    // Another port of the same machine is not in the list.
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = call(&node, &format!("http://{}/", elsewhere.local_addr().unwrap()));
    assert!(refused.contains(" 400 ") && refused.contains("callback_private"), "{refused}");
    let url = format!("http://{address}/done");
    assert!(call(&node, &url).contains(" 202 "));
    let first = served(&listener, "503 Later");
    assert!(first.starts_with("POST /done HTTP/1.1\r\n"), "{first}");
    assert!(first.contains("ce-type: sinew.call.succeeded\r\n"), "{first}");
    // The node is gone before it can try again, and comes back.
    node.kill();
    let node = Node::start_with(home.path(), &flags);
    let again = served(&listener, "204 No Content");
    let event = |seen: &str| seen.lines().find(|line| line.starts_with("ce-id: ")).unwrap().to_owned();
    assert_eq!(event(&again), event(&first), "it is known as the same event");
    assert_eq!(node.ok(&["dlq", "list", "-o", "json"]), "");
}
