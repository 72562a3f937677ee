// SPDX-License-Identifier: Apache-2.0
//! Executables as functions, through a node: servers and programs that are run
//! for each request, well-behaved and hostile.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::functions::is_root;
use super::{Node, home};

impl Node {
    /// A script as a function.
    pub(super) fn script(&self, name: &str, settings: &str, script: &str) -> PathBuf {
        let folder = self.home.join(format!("source-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        let manifest = format!("[functions.{name}]\nruntime = \"executable\"\n{settings}");
        std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
        let program = folder.join("main");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    /// Why it is not deployed.
    fn refused(&self, folder: &Path) -> String {
        let refused = self.run(&["deploy", folder.to_str().unwrap()]);
        assert!(!refused.status.success());
        String::from_utf8_lossy(&refused.stderr).into_owned()
    }
}

/// A server in Python, which stands for any: on the port, and a path for each way to misbehave.
const SERVER: &str = r#"#!/usr/bin/python3
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/exit": os._exit(5)
        if self.path == "/sleep": time.sleep(60)
        if self.path == "/eat": bytearray(1 << 30)
        Handler.count += 1
        print("asked", self.headers["x-request-id"] is not None, flush=True)
        self.send_response(201)
        told = b"%d %s %s" % (Handler.count, self.path.encode(), body)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

#[test]
fn a_server_stays_warm_and_its_misdeeds_hurt_nobody() {
    if !is_root() {
        return;
    }
    if !Path::new("/usr/bin/python3").exists() {
        return eprintln!("skipped: there is no /usr/bin/python3");
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = node.script("server", "timeout = \"3s\"\nconcurrency = 1\nmemory = \"128MiB\"\n", SERVER);
    assert_eq!(node.deploy(&folder)["version"], 1);
    let call = |path: &str| {
        let answer = node.http(&format!("POST /function/server{path}"), b"body");
        let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    };
    assert_eq!(call("/a?b=c"), (201, "1 /a?b=c body".to_owned()));
    assert_eq!(call("/"), (201, "2 / body".to_owned()), "the same instance");
    let logs = node.ok(&["logs", "server", "-n", "1", "-o", "json"]);
    assert!(logs.contains("asked True") && logs.contains("\"warm\""), "{logs}");
    for (path, status, said) in [
        ("/exit", 500, "ended with status 5"),
        ("/sleep", 504, "took too long"),
        ("/eat", 500, "function server"),
    ] {
        let (found, problem) = call(path);
        assert!(found == status && problem.contains(said), "{path}: {found} {problem}");
        assert_eq!(call("/").0, 201, "after {path}");
    }
}

/// A server with a thread for each connection. `/meet` answers when as many are there as its barrier takes, and has
/// called another function.
const THREADS: &str = r#"#!/usr/bin/python3
import http.client, http.server, os, threading, time
barrier = threading.Barrier(8)
born = time.time_ns()
asleep = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/exit": os._exit(5)
        if self.path == "/sleep":
            asleep.append(self)
            time.sleep(60)
        if self.path == "/asleep": body = b"%d" % len(asleep)
        if self.path == "/slow": time.sleep(9)
        if self.path == "/loud": os.write(1, b"y" * 16383 + b"\n")
        if self.path == "/quiet":
            time.sleep(1)
            os.write(1, b"own %s %s\n" % (self.headers["x-request-id"].encode(), b"z" * 8000))
        if self.path == "/meet":
            print("meets", body.decode(), self.headers["x-request-id"], flush=True)
            barrier.wait(20)
            host, _, path = self.headers["sinew-url"].removeprefix("http://").partition("/")
            peer = http.client.HTTPConnection(host)
            peer.request("POST", f"/{path}/function/twice", body)
            body = peer.getresponse().read()
        self.send_response(200)
        told = b"%d %s" % (born, body)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 4
Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

/// Status and body of what it answers.
fn asked(node: &Node, path: &str, body: &str) -> (u16, String) {
    let answer = node.http(&format!("POST /function/threads{path}"), body.as_bytes());
    let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[test]
fn a_server_takes_several_requests_at_once() {
    if !is_root() || !Path::new("/usr/bin/python3").exists() {
        return eprintln!("skipped: needs root, and /usr/bin/python3");
    }
    let home = home();
    let node = Node::start(home.path());
    node.deploy(&node.script(
        "twice",
        "mode = \"stdin\"\n",
        "#!/bin/sh\nread word; printf '%s%s' $word $word\n",
    ));
    let settings = "timeout = \"30s\"\nconcurrency = 1\nrequests-per-instance = 8\n";
    node.deploy(&node.script("threads", settings, THREADS));
    let ask = |path: &str, body: &str| asked(&node, path, body);
    let at_once = |asked: &[(&str, String)]| -> Vec<(u16, String)> {
        std::thread::scope(|scope| {
            let all: Vec<_> = asked.iter().map(|(path, body)| scope.spawn(move || ask(path, body))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        })
    };
    let meeting: Vec<(&str, String)> = (0..8).map(|n| ("/meet", format!("n{n}"))).collect();
    let answers = at_once(&meeting);
    let born = answers[0].1.split(' ').next().unwrap().to_owned();
    for (n, (status, body)) in answers.iter().enumerate() {
        assert_eq!((*status, body), (200, &format!("{born} n{n}n{n}")), "of one instance, each its own");
    }
    // What a request has printed is found by its id.
    let logs = node.ok(&["logs", "threads", "-n", "8", "-o", "json"]);
    for record in logs.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
        let id = record["request_id"].as_str().unwrap();
        let own = logs.lines().filter(|line| line.contains(&format!(" {id}\\n"))).count();
        assert!(own == 1 && record.to_string().contains(&format!(" {id}\\n")), "{id}: {record}");
    }
    // What nobody's lines are is told with the oldest one, and is no fault of that one.
    std::thread::scope(|scope| {
        let quiet = scope.spawn(|| ask("/quiet", "q"));
        while !quiet.is_finished() {
            assert_eq!(ask("/loud", "l").0, 200);
        }
        assert_eq!(quiet.join().unwrap(), (200, format!("{born} q")));
    });
    assert!(node.ok(&["logs", "threads", "-n", "200"]).contains("own "));
    // The program's end is that of all that it serves, and it is started again.
    std::thread::scope(|scope| {
        let asleep = scope.spawn(|| ask("/sleep", ""));
        while !ask("/asleep", "").1.ends_with(" 1") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for (status, body) in [ask("/exit", ""), asleep.join().unwrap()] {
            assert!(status == 500 && body.contains("ended with status 5"), "{status} {body}");
        }
    });
    assert_eq!(ask("/", "x").0, 200);
}

#[test]
fn a_request_that_takes_too_long_ends_alone_where_others_are_answered() {
    if !is_root() || !Path::new("/usr/bin/python3").exists() {
        return eprintln!("skipped: needs root, and /usr/bin/python3");
    }
    let home = home();
    let node = Node::start(home.path());
    let settings = "timeout = \"4s\"\nconcurrency = 1\nrequests-per-instance = 8\n";
    node.deploy(&node.script("threads", settings, THREADS));
    let ask = |path: &str, body: &str| asked(&node, path, body);
    let instance = || ask("/", "x").1.split(' ').next().unwrap().to_owned();
    let born = instance();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| ask("/slow", ""));
        while !slow.is_finished() {
            assert_eq!(instance(), born);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (status, body) = slow.join().unwrap();
        assert!(status == 504 && body.contains("took too long"), "{status} {body}");
    });
    assert_eq!(instance(), born, "it serves on");
    // Where nobody is, the program may be stuck: it is ended, and another one made.
    assert_eq!(ask("/slow", "").0, 504);
    assert_ne!(instance(), born);
}

#[test]
fn programs_that_are_run_each_time_answer() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    for (language, compiler) in [("shell", "sh"), ("c", "cc"), ("rust", "cargo")] {
        if compiler != "sh" && Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {compiler}");
            continue;
        }
        let folder = home.path().join(language);
        node.ok(&["new", "hello", "-l", language, "--to", folder.to_str().unwrap()]);
        node.deploy(&folder);
        for _ in 0..2 {
            assert_eq!(node.ok(&["invoke", "hello", "-d", "Ada"]), "Hello, Ada!");
        }
    }
    let loud = "#!/bin/sh\ncat >/dev/null\necho 'what it says' >&2\nexit 3\n";
    node.deploy(&node.script("loud", "mode = \"stdin\"\n", loud));
    let (status, problem) = node.call("loud", &json!({}));
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 500 && detail.contains("status 3") && detail.contains("what it says"), "{problem}");
    // No network, no files but its own, nobody else's processes.
    let nosy = "#!/bin/sh\nls /root /home /etc/shadow 2>&1 | grep -vc 'No such file'\n\
        ls /proc | grep -c '^[0-9]'\necho x > /app/main; echo $?\nid -u\n";
    node.deploy(&node.script("nosy", "mode = \"stdin\"\n", nosy));
    let (status, seen) = node.call("nosy", &json!({}));
    let seen = seen.as_str().unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert!(status == 200 && lines[0] == "0" && lines.last() != Some(&"0"), "{seen}");
    assert!(lines.iter().rev().nth(1) != Some(&"0"), "the code was written to: {seen}");
}

#[test]
fn what_cannot_be_run_is_not_deployed() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let told = node.refused(&node.script("a", "", "#!/bin/sh\necho oh no >&2\nexit 4\n"));
    assert!(told.contains("ended with status 4 before it listened") && told.contains("oh no"), "{told}");
    let told = node.refused(&node.script("a", "handler = \"other\"\n", "#!/bin/sh\n"));
    assert!(told.contains("has no file other"), "{told}");
    let folder = node.script("a", "", "#!/bin/sh\n");
    std::fs::set_permissions(folder.join("main"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(node.refused(&folder).contains("chmod +x"));
    let told = node.refused(&node.script("b", "", "no program"));
    assert!(told.contains("is no program for this machine"), "{told}");
}

#[test]
fn a_go_server_is_built_and_answers() {
    if !is_root() {
        return;
    }
    if Command::new("go").arg("version").output().is_err() {
        return eprintln!("skipped: there is no Go");
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("go");
    node.ok(&["new", "hello", "-l", "go", "--to", folder.to_str().unwrap()]);
    node.deploy(&folder);
    for _ in 0..2 {
        assert_eq!(node.call("hello", &json!({"name": "Ada"})), (200, json!({"message": "Hello, Ada!"})));
    }
    assert!(node.ok(&["logs", "hello"]).contains("greeting Ada for request"));
}
