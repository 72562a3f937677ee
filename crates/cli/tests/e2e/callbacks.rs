// SPDX-License-Identifier: Apache-2.0
//! Results that are sent to a server on this machine, by a node that is killed
//! while the server is away.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::later::{ECHO, echo_source};
use super::{Node, home, http_with};

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

/// A block of code of the documentation.
fn snippet(language: &str) -> String {
    let text = include_str!("../../../../docs/how-to/callbacks.md");
    let begin = format!("```{language}\n");
    text.split(&begin).nth(1).unwrap().split("```").next().unwrap().to_owned()
}

/// What a documented check says of a message.
fn checked(program: &str, code: &str, message: &serde_json::Value) -> Option<String> {
    let flag = if program == "python3" { "-c" } else { "-e" };
    let child = Command::new(program).args([flag, code]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: there is no {program}");
        return None;
    };
    child.stdin.take().unwrap().write_all(message.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap().trim().to_lowercase())
}

#[test]
fn a_result_is_signed_as_the_documentation_checks_it() {
    const SECRETS: [&str; 2] = [
        "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldyBuZXcgbmV3IG5ldw==",
        "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZA==",
    ];
    let home = home();
    let source = echo_source(home.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = home.path().join("settings.toml");
    std::fs::write(&settings, format!("callback_private = [\"{address}\"]\n")).unwrap();
    let node =
        Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--config", settings.to_str().unwrap()]);
    node.deploy(&source);
    let set = |value: &str| {
        let mut command = node.command(&["secret", "set", "SINEW_CALLBACKS"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_set, why) = set("too short");
    assert!(!is_set && why.contains("openssl rand") && !why.contains("too short"), "{why}");
    let headers = format!("X-Callback-Url: http://{address}/done\r\n");
    let posted = || {
        http_with(&node.address, "POST /async-function/echo", &headers, b"the input");
        served(&listener, "204 No Content")
    };
    assert!(!posted().contains("webhook-"), "without a secret nothing is signed");
    let (is_set, why) = set(&SECRETS.join(" "));
    assert!(is_set, "{why}");
    let seen = posted();
    let header = |name: &str| {
        let line = seen.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name}: {seen}")).to_owned()
    };
    assert_eq!(header("webhook-id"), header("ce-id"));
    let message = |secret: &str, body: &str, moment: &str| {
        let headers = serde_json::json!({
            "webhook-id": header("webhook-id"), "webhook-timestamp": moment,
            "webhook-signature": header("webhook-signature"),
        });
        serde_json::json!({ "secret": secret, "body": body, "headers": headers })
    };
    let (moment, later) = (header("webhook-timestamp"), format!("{}1", header("webhook-timestamp")));
    let python = snippet("python")
        + "\nimport json, sys\nm = json.load(sys.stdin)\nprint(is_from_node(m['secret'], m['headers'], m['body'].encode()))\n";
    let node_js = snippet("js")
        + "\nconst m = JSON.parse(require('fs').readFileSync(0));\nconsole.log(isFromNode(m.secret, m.headers, Buffer.from(m.body)));\n";
    for (program, code) in [("python3", &python), ("node", &node_js)] {
        for (secret, body, moment, expected) in [
            (SECRETS[0], "the input", &moment, "true"),
            (SECRETS[1], "the input", &moment, "true"),
            ("whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI=", "the input", &moment, "false"),
            (SECRETS[0], "the inputs", &moment, "false"),
            (SECRETS[0], "the input", &later, "false"),
        ] {
            let Some(said) = checked(program, code, &message(secret, body, moment)) else { break };
            assert_eq!(said, expected, "{program}: {secret} {body} {moment}");
        }
    }
    no_function_gets_the_secret(&node, &source);
}

fn no_function_gets_the_secret(node: &Node, source: &std::path::Path) {
    let manifest = "[functions.echo]\nruntime = \"python\"\nhandler = \"main.handler\"\nsecrets = [\"SINEW_CALLBACKS\"]\n";
    std::fs::write(source.join("sinew.toml"), manifest).unwrap();
    std::fs::write(source.join("main.py"), "def handler(event, context):\n    return event\n").unwrap();
    let refused = node.run(&["deploy", source.to_str().unwrap()]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no function gets it"), "{refused:?}");
}
