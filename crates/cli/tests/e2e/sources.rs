// SPDX-License-Identifier: Apache-2.0
//! Data that a node fetches from a server on this machine, as users ask for it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use super::{Duration, Node, home};

/// Says how many bytes its argument has.
const SIZE: &str = r#"(module
  (import "sinew_v1" "size" (func $size (param i32) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob (param i64 i32) (result i32)))
  (func (export "apply") (param i32) (result i32)
    (call $blob (call $size (i32.const 3)) (i32.const 8))))"#;

const LATE: Duration = Duration::from_secs(2);

/// A server with some data, which can be made to misbehave.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    /// What it has under every path, and its entity tag.
    has: Arc<Mutex<(Vec<u8>, &'static str)>>,
}

/// Who has asked for `/together`.
#[derive(Default)]
struct Together(Mutex<usize>, Condvar);

impl Together {
    /// Waits until so many have asked; whether they have.
    fn are(&self, number: usize) -> bool {
        let mut asked = self.0.lock().unwrap();
        *asked += 1;
        self.1.notify_all();
        let waited = self.1.wait_timeout_while(asked, Duration::from_secs(30), |asked| *asked < number);
        *waited.unwrap().0 >= number
    }
}

impl Server {
    fn start(data: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<AtomicUsize>::default();
        let has = Arc::new(Mutex::new((data, "\"1\"")));
        let (counted, shown) = (Arc::clone(&requests), Arc::clone(&has));
        let together = Arc::<Together>::default();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let (data, etag) = shown.lock().unwrap().clone();
                let together = Arc::clone(&together);
                std::thread::spawn(move || answer(stream.unwrap(), number, &data, etag, &together));
            }
        });
        Self { address, requests, has }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// `/busy` is busy at first, `/cut` breaks off once, `/circle` leads to itself, `/together` is
/// answered when twenty have asked for it, `/late` after two seconds, and everything else is as it should be.
fn answer(mut stream: TcpStream, number: usize, data: &[u8], etag: &str, together: &Together) {
    let lines: Vec<String> = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .map(|line| line.to_ascii_lowercase())
        .collect();
    let Some(first) = lines.first() else { return };
    let header = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if first.contains("/late") {
        std::thread::sleep(LATE);
    }
    let begin: usize = header("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
        .unwrap_or(0);
    let (head, body) = if first.contains("/busy") && number < 2 {
        ("503 Busy\r\ncontent-length: 0".to_owned(), &data[..0])
    } else if first.contains("/together") && !together.are(20) {
        ("404 They come one after another\r\ncontent-length: 0".to_owned(), &data[..0])
    } else if first.contains("/circle") {
        ("302 Found\r\nlocation: /circle\r\ncontent-length: 0".to_owned(), &data[..0])
    } else if header("if-none-match") == Some(etag) {
        (format!("304 Not Modified\r\netag: {etag}"), &data[..0])
    } else if begin > 0 {
        let range = format!("bytes {begin}-{}/{}", data.len() - 1, data.len());
        let length = data.len() - begin;
        let head = format!("206 Part\r\netag: {etag}\r\ncontent-range: {range}\r\ncontent-length: {length}");
        (head, &data[begin..])
    } else {
        let end = if first.contains("/cut") { data.len() / 2 } else { data.len() };
        (format!("200 OK\r\netag: {etag}\r\ncontent-length: {}", data.len()), &data[..end])
    };
    // Who has left does not read it.
    _ = stream.write_all(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes());
    _ = stream.write_all(body);
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

/// A node that may fetch from this machine.
fn node(home: &std::path::Path) -> Node {
    let settings = home.join("settings.toml");
    std::fs::write(&settings, "fetch_private = [\"127.0.0.1:*\"]\n").unwrap();
    Node::start_with(home, &["--listen", "127.0.0.1:0", "--config", settings.to_str().unwrap()])
}

/// Evaluates, and says what came: the result, and how often a procedure ran.
fn evaluated(node: &Node, expression: &str) -> (String, u64) {
    let answer: Value = serde_json::from_str(&node.ok(&["eval", expression, "-o", "json"])).unwrap();
    (answer["result"].as_str().unwrap().to_owned(), answer["applied"].as_u64().unwrap())
}

fn failure(node: &Node, thunk: &str) -> String {
    let output = node.run(&["eval", thunk]);
    assert_eq!(output.status.code(), Some(3), "{thunk}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn data_is_named_by_its_url_and_fetched_when_it_is_needed() {
    let home = home();
    let node = node(home.path());
    let data = body(3_000_000);
    let server = Server::start(data.clone());
    let stored = home.path().join("same");
    std::fs::write(&stored, &data).unwrap();
    let handle = objects::Handle::blob(&data).to_string();
    let lazy = node.ok(&["put", "--lazy", &server.url("cut"), "--digest", &handle, "--label", "far"]);
    assert!(lazy.starts_with("app-"), "{lazy}");
    assert_eq!(server.requests(), 0, "nobody needs it yet");
    let size = node.codelet("size.wasm", SIZE);
    let expression = format!("{size}(!#far)");
    assert_eq!(node.ok(&["eval", &expression, "--as", "u64"]), "3000000");
    assert_eq!(server.requests(), 2, "it broke off once, and went on");
    assert_eq!(evaluated(&node, &lazy), (handle.clone(), 0), "it is remembered");
    assert_eq!(node.command(&["get", &handle]).output().unwrap().stdout, data);
    assert_eq!(server.requests(), 2);
    let metrics = node.http("GET /metrics", b"");
    assert!(metrics.contains("sinew_sources_fetched_bytes_total 3000000"), "{metrics}");
}

#[test]
fn what_may_change_is_asked_for_by_each_request() {
    let home = home();
    let node = node(home.path());
    let server = Server::start(b"first, with more than thirty bytes".to_vec());
    let output = node.run(&["put", "--lazy", &server.url("busy")]);
    let hint = String::from_utf8(output.stderr).unwrap();
    assert!(hint.contains("may change") && hint.contains("--digest"), "{hint}");
    let lazy = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let expression = lazy.as_str();
    assert_eq!(node.ok(&["eval", expression]), "first, with more than thirty bytes");
    assert_eq!(server.requests(), 3, "it was busy twice");
    // It has not changed: nothing is sent again.
    assert_eq!(node.ok(&["eval", expression]), "first, with more than thirty bytes");
    let metrics = node.http("GET /metrics", b"");
    assert!(metrics.contains("sinew_sources_unchanged_total 1"), "{metrics}");
    *server.has.lock().unwrap() = (b"second, which is as long as the first".to_vec(), "\"2\"");
    assert_eq!(node.ok(&["eval", expression]), "second, which is as long as the first");
    assert_eq!(server.requests(), 5);
    // Who has named the first one is told that it is gone.
    let named = node.ok(&["put", "--lazy", &server.url("x"), "--etag", "1", "--size", "34"]);
    let why = failure(&node, &named);
    assert!(why.contains(&server.url("x")) && why.contains("changed"), "{why}");
}

#[test]
fn what_does_not_come_says_from_where_and_why() {
    let home = home();
    let node = node(home.path());
    let server = Server::start(body(1000));
    let lazy = |arguments: &[&str]| node.ok(&[&["put", "--lazy"], arguments].concat());
    let why =
        failure(&node, &lazy(&[&server.url("circle"), "--digest", &format!("sha256:{}", "0".repeat(64))]));
    assert!(why.contains("/circle") && why.contains("redirects more than 5 times"), "{why}");
    let why = failure(&node, &lazy(&[&server.url("x"), "--size", "999"]));
    assert!(why.contains("it has 1000 bytes, not 999"), "{why}");
    let why = failure(&node, &lazy(&[&server.url("x"), "--digest", &format!("sha256:{}", "0".repeat(64))]));
    assert!(why.contains("SHA-256"), "{why}");
    // Of two sources the second has it.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mirrored = lazy(&[&format!("http://{gone}/x"), "--lazy", &server.url("x"), "--size", "1000"]);
    assert_eq!(evaluated(&node, &mirrored).0, objects::Handle::blob(&body(1000)).to_string());
    // A node that was not told so fetches nothing from this machine.
    let other_home = super::home();
    let other = Node::start(other_home.path());
    let refused = other.ok(&["put", "--lazy", &server.url("x")]);
    let before = server.requests();
    let why = failure(&other, &refused);
    assert!(why.contains("private address") && why.contains("fetch_private"), "{why}");
    assert_eq!(server.requests(), before);
}

#[test]
fn many_who_need_the_same_have_it_fetched_once_and_many_sources_come_at_once() {
    let home = home();
    let node = node(home.path());
    let data = body(100_000);
    let digest = objects::Handle::blob(&data).to_string();
    let server = Server::start(data);
    let size = node.codelet("size.wasm", SIZE);
    let one = node.ok(&["put", "--lazy", &server.url("one"), "--digest", &digest]);
    let mut clients: Vec<_> = (0..4)
        .map(|_| {
            let mut command = node.command(&["eval", &format!("{size}(!{one})"), "--as", "u64"]);
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    assert!(clients.iter_mut().all(|client| client.wait().unwrap().success()));
    assert_eq!(server.requests(), 1);
    let lazy = |number: usize| {
        node.ok(&["put", "--lazy", &server.url(&format!("together/{number}")), "--digest", &digest])
    };
    let arguments: Vec<String> = (0..20).map(|number| format!("!{size}(!{})", lazy(number))).collect();
    let tree = format!("[{}]", arguments.join(", "));
    let (_, applied) = evaluated(&node, &tree);
    // What has this size is known by now.
    assert_eq!(applied, 20);
    assert_eq!(server.requests(), 21);
}

#[test]
fn data_comes_by_https_from_who_is_trusted() {
    let (home, server_home) = (home(), super::home());
    let server = Node::start_with(server_home.path(), &["--listen", "127.0.0.1:0", "--tls-self-signed"]);
    let file = server_home.path().join("data");
    std::fs::write(&file, body(300_000)).unwrap();
    let handle = server.ok(&["put", file.to_str().unwrap()]);
    let url = format!("https://{}/v1/objects/{handle}", server.address);
    let trusted = server_home.path().join("tls/certificate.pem");
    let node = |home: &std::path::Path, trusted: &std::path::Path| {
        std::fs::create_dir_all(home).unwrap();
        let settings = home.join("settings.toml");
        std::fs::write(&settings, "fetch_private = [\"127.0.0.1:*\"]\n").unwrap();
        let settings = settings.to_str().unwrap();
        let trusts = [("SSL_CERT_FILE", trusted.to_str().unwrap())];
        Node::start_in(home, &["--listen", "127.0.0.1:0", "--config", settings], &trusts)
    };
    let trusting = node(&home.path().join("trusting"), &trusted);
    let lazy = trusting.ok(&["put", "--lazy", &url, "--digest", &handle]);
    assert_eq!(evaluated(&trusting, &lazy).0, handle);
    // A node that trusts somebody else asks for nothing.
    let other = super::home();
    drop(Node::start_with(other.path(), &["--listen", "127.0.0.1:0", "--tls-self-signed"]));
    let wary = node(&home.path().join("wary"), &other.path().join("tls/certificate.pem"));
    let lazy = wary.ok(&["put", "--lazy", &url, "--digest", &handle]);
    let why = failure(&wary, &lazy);
    assert!(why.contains(&url) && why.contains("nobody that is trusted here vouches"), "{why}");
}

#[test]
fn nobody_pays_for_waiting_until_data_has_come() {
    let home = home();
    let settings = home.path().join("settings.toml");
    let rates = "fetch_private = [\"127.0.0.1:*\"]\n[rates]\ncurrency = \"EUR\"\nper_cpu_second = 1.0\n";
    std::fs::write(&settings, rates).unwrap();
    let settings = settings.to_str().unwrap();
    let node = Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--config", settings]);
    let server = Server::start(body(100_000));
    let digest = objects::Handle::blob(&body(100_000)).to_string();
    let lazy = node.ok(&["put", "--lazy", &server.url("late"), "--digest", &digest]);
    let size = node.codelet("size.wasm", SIZE);
    let begun = std::time::Instant::now();
    let told = node.ok(&["eval", &format!("{size}(!{lazy})"), "-o", "json"]);
    assert!(begun.elapsed() >= LATE);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["currency"], "EUR", "{told}");
    // It counts no fuel, and pays for the processor. What it needs of that is some microseconds.
    let (cpu_us, price) = (told["cost"]["cpu_us"].as_f64().unwrap(), told["price"].as_f64().unwrap());
    assert!(cpu_us > 0.0 && cpu_us < 500_000.0 && price < 0.5, "{told}");
}
