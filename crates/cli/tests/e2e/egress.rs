// SPDX-License-Identifier: Apache-2.0
//! Functions that reach hosts by the node's egress, in every language. The
//! hosts are addresses of this machine's loopback, which a function reaches
//! only because its manifest names them: what it names no address of is
//! refused, and the same with the address named is reached.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const HERE: &str = "127.0.0.2";
const ELSEWHERE: &str = "127.0.0.3";

/// Answers `hello` on both addresses, and leads to the other one from /away.
fn origin() -> u16 {
    let first = TcpListener::bind((HERE, 0)).unwrap();
    let port = first.local_addr().unwrap().port();
    let second = TcpListener::bind((ELSEWHERE, port)).unwrap();
    for listener in [first, second] {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // Clients may connect and say nothing.
                std::thread::spawn(move || answer(stream.unwrap(), port));
            }
        });
    }
    port
}

fn answer(mut stream: TcpStream, port: u16) {
    let mut asked = [0; 8192];
    let read = stream.read(&mut asked).unwrap_or(0);
    let is_away = asked[..read].starts_with(b"GET /away");
    let (status, more) = match is_away {
        true => ("302 Found", format!("Location: http://{ELSEWHERE}:{port}/\r\n")),
        false => ("200 OK", String::new()),
    };
    let answer = format!("HTTP/1.1 {status}\r\n{more}Content-Length: 5\r\nConnection: close\r\n\r\nhello");
    _ = stream.write_all(answer.as_bytes());
}

impl Node {
    fn javascript(&self, name: &str, settings: &str, source: &str) -> PathBuf {
        let folder = self.home.join(format!("source-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        let manifest = format!("[functions.{name}]\nruntime = \"node\"\n{settings}");
        std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
        std::fs::write(folder.join("index.js"), source).unwrap();
        folder
    }
}

/// A function of each language that fetches the address that it is given, and
/// returns what came or what went wrong.
fn fetching(node: &Node, allowed: &str) -> Vec<&'static str> {
    let settings = format!("allow-hosts = [{allowed}]\n");
    let python = "import urllib.request, ssl\n\
        def handler(event, context):\n    try:\n\
        \x20       unchecked = ssl._create_unverified_context()\n\
        \x20       return urllib.request.urlopen(event['url'], timeout=10, context=unchecked).read().decode()[:5]\n\
        \x20   except Exception as error:\n        return str(error)\n";
    node.deploy(&node.python("py", &settings, python));
    let mut deployed = vec!["py", "js", "js-module"];
    // fetch, and the modules that most packages are built on.
    let fetch = "exports.handler = async ({ url }) => {\n  try { return (await (await fetch(url)).text()).slice(0, 5); }\n\
        \x20 catch (e) { return String(e.cause ?? e); }\n};\n";
    let module = "exports.handler = ({ url }) => new Promise((done) => require(url.split(':')[0])\n\
        \x20 .get(url, { rejectUnauthorized: false }, (r) => { let s = ''; r.on('data', (d) => (s += d)).on('end', () => done(s.slice(0, 5) + (r.headers.location ?? ''))); })\n\
        \x20 .on('error', (e) => done(String(e))));\n";
    node.deploy(&node.javascript("js", &settings, fetch));
    node.deploy(&node.javascript("js-module", &settings, module));
    let program = "#!/usr/bin/python3\nimport os, sys, json, urllib.request\n\
        try: print(json.dumps(urllib.request.urlopen(json.load(sys.stdin)['url'], timeout=10).read().decode()))\n\
        except Exception as error: print(json.dumps(str(error)))\n";
    if Path::new("/usr/bin/python3").exists() {
        node.deploy(&node.script("program", &format!("mode = \"stdin\"\n{settings}"), program));
        deployed.push("program");
    }
    deployed
}

fn fetched(node: &Node, function: &str, url: &str) -> String {
    let (status, said) = node.call(function, &json!({ "url": url }));
    assert_eq!(status, 200, "{function}: {said}");
    said.as_str().unwrap_or_default().to_owned()
}

#[test]
fn functions_reach_the_hosts_that_they_name_and_no_others() {
    if !is_root() {
        return;
    }
    let port = origin();
    let home = home();
    let node = Node::start(home.path());
    let (here, elsewhere) = (format!("{HERE}:{port}"), format!("{ELSEWHERE}:{port}"));
    for function in fetching(&node, &format!("\"{here}\", \"localhost.localdomain:*\"")) {
        assert_eq!(fetched(&node, function, &format!("http://{here}/")), "hello", "{function}");
        let refused = fetched(&node, function, &format!("http://{elsewhere}/"));
        assert!(refused.contains("not in allow-hosts"), "{function}: {refused}");
        let logs = node.ok(&["logs", function, "-n", "1", "-o", "json"]);
        let advice = format!("add \\\\\\\"{elsewhere}\\\\\\\" to allow-hosts");
        assert!(
            logs.contains(&advice) || logs.contains(&format!("{elsewhere} was not reached")),
            "{function}: {logs}"
        );
        // A redirect to a host that is not allowed is refused as the host is.
        let redirected = fetched(&node, function, &format!("http://{here}/away"));
        if function == "js-module" {
            assert!(redirected.contains(&elsewhere), "{redirected}");
        } else {
            assert!(!redirected.starts_with("hello"), "{function}: {redirected}");
        }
        // The node's own door is as far as any other private address.
        let door = fetched(&node, function, &format!("http://{}/", node.address));
        assert!(!door.contains("<html"), "{function}: {door}");
    }
    let metrics = node.http("GET /metrics", b"");
    for line in [
        "sinew_function_egress_total{function=\"py\",version=\"1\",what=\"connected\"} 2",
        "sinew_function_egress_total{function=\"py\",version=\"1\",what=\"refused\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // The control: with both named, both are reached, redirects included.
    for function in fetching(&node, &format!("\"{here}\", \"{elsewhere}\"")) {
        assert_eq!(fetched(&node, function, &format!("http://{elsewhere}/")), "hello", "{function}");
        assert!(fetched(&node, function, &format!("http://{here}/away")).starts_with("hello"), "{function}");
    }
}

#[test]
fn what_is_named_by_no_entry_is_no_network_at_all() {
    if !is_root() {
        return;
    }
    let port = origin();
    let home = home();
    let node = Node::start(home.path());
    let source = "import os, socket\n\
        def handler(event, context):\n    reached = []\n\
        \x20   for host in event['hosts']:\n\
        \x20       try: socket.create_connection((host, event['port']), 2); reached.append(host)\n\
        \x20       except OSError: pass\n\
        \x20   return [reached, os.environ.get('HTTP_PROXY')]\n";
    let hosts = json!({ "hosts": [HERE, ELSEWHERE, "127.0.0.1"], "port": port });
    node.deploy(&node.python("closed", "", source));
    assert_eq!(node.call("closed", &hosts), (200, json!([[], Value::Null])));
    // Also one that may reach hosts reaches them by the proxy only.
    node.deploy(&node.python("open", &format!("allow-hosts = [\"{HERE}:{port}\"]\n"), source));
    assert_eq!(node.call("open", &hosts), (200, json!([[], "http://127.0.0.1:3128"])));
    let folder = node.python("wrong", "allow-hosts = [\"https://example.com\"]\n", source);
    let refused = node.run(&["deploy", folder.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("`https://example.com` is no host that can be allowed"), "{errors}");
}

/// A server of TLS with a certificate of its own.
struct Secure(Child);

impl Secure {
    fn start(folder: &Path, address: SocketAddr) -> Option<Self> {
        let (key, certificate): (PathBuf, PathBuf) = (folder.join("key.pem"), folder.join("cert.pem"));
        let mut made = Command::new("openssl");
        made.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=sinew-test", "-days", "2"]);
        made.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        if !made.stderr(Stdio::null()).status().ok()?.success() {
            return None;
        }
        let mut server = Command::new("openssl");
        server.args(["s_server", "-quiet", "-www", "-accept", &address.to_string()]);
        server.arg("-key").arg(&key).arg("-cert").arg(&certificate);
        let child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Some(Self(child))
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn tls_goes_through_the_proxy_unseen() {
    if !is_root() {
        return;
    }
    let home = home();
    let port = TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
    let address = SocketAddr::new(HERE.parse().unwrap(), port);
    let Some(_server) = Secure::start(home.path(), address) else {
        return eprintln!("skipped: openssl cannot be run");
    };
    let node = Node::start(&home.path().join("node"));
    for function in fetching(&node, &format!("\"{address}\"")) {
        // fetch has no way to trust this server, and the program does not either.
        let said = fetched(&node, function, &format!("https://{address}/"));
        let is_reached = match function {
            "js" => said.to_lowercase().contains("self-signed certificate"),
            "program" => said.contains("CERTIFICATE_VERIFY_FAILED"),
            _ => said == "<HTML",
        };
        assert!(is_reached, "{function}: {said}");
    }
}
