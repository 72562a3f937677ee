// SPDX-License-Identifier: Apache-2.0
//! Functions as tools of an agent: by `sinew mcp`, line by line, and by HTTP with a key.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

const MANIFEST: &str = r#"
[functions.add]
runtime = "python"
handler = "main.add"

[functions.add.tool]
description = "Adds two numbers"
read-only = true
input = { properties = { a = { type = "number" }, b = { type = "number" } }, required = ["a", "b"] }

[functions.waits]
runtime = "python"
handler = "main.waits"
tool = "Waits for so many seconds"

[functions.hidden]
runtime = "python"
handler = "main.add"
"#;
const SOURCE: &str = "import time\n\ndef add(event, context):\n    return {'sum': event['a'] + event['b']}\n\n\
                      def waits(event, context):\n    time.sleep(event['seconds'])\n    return 'waited'\n";

/// An agent's side of `sinew mcp`.
struct Agent {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Agent {
    fn start(node: &Node) -> Self {
        let mut child = node
            .command(&["mcp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn sends(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn reads(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn asks(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.sends(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.reads()
    }
}

fn call(id: u64, name: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": arguments } })
}

#[test]
fn agents_find_and_call_functions() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("app");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("sinew.toml"), MANIFEST).unwrap();
    std::fs::write(folder.join("main.py"), SOURCE).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
    let listed = node.ok(&["mcp", "--list"]);
    assert!(listed.contains("Adds two numbers") && !listed.contains("hidden"), "{listed}");

    an_agent_asks_line_by_line(&node);
    others_ask_by_http(&node);
    // A node that has gone is told as an error, and the agent goes on.
    let mut agent = Agent::start(&node);
    assert!(agent.asks(1, "ping", &json!({}))["result"].is_object());
    node.kill();
    let answer = agent.asks(2, "ping", &json!({}));
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-32603)));
}

fn an_agent_asks_line_by_line(node: &Node) {
    let mut agent = Agent::start(node);
    let begun = agent.asks(0, "initialize", &json!({ "protocolVersion": "2025-06-18", "capabilities": {} }));
    assert_eq!(begun["result"]["protocolVersion"], "2025-06-18");
    agent.sends(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let tools = agent.asks(1, "tools/list", &json!({}))["result"]["tools"].clone();
    assert_eq!(
        (&tools[0]["name"], &tools[1]["name"], &tools[2]),
        (&json!("add"), &json!("waits"), &Value::Null)
    );
    assert_eq!(tools[0]["inputSchema"]["type"], "object");
    let modern = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                                    "io.modelcontextprotocol/clientCapabilities": {} } });
    assert_eq!(agent.asks(2, "server/discover", &modern)["result"]["resultType"], "complete");

    // One that takes long keeps no other waiting, and one that is given up ends on the node.
    agent.sends(&call(3, "waits", &json!({ "seconds": 600 })));
    agent.sends(&call(4, "add", &json!({ "a": 1, "b": 2 })));
    let answer = agent.reads();
    assert_eq!((&answer["id"], &answer["result"]["structuredContent"]), (&json!(4), &json!({ "sum": 3 })));
    let busy = || {
        let described: Value = serde_json::from_str(&node.ok(&["describe", "waits", "-o", "json"])).unwrap();
        described["instances"]["busy"].as_u64().unwrap()
    };
    super::draining::wait_for("it is called", || busy() == 1);
    agent.sends(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 3 } }),
    );
    super::draining::wait_for("it is given up", || busy() == 0);
    // What is wrong is told, with its id, and the next message is answered.
    let wrong = agent.asks(5, "tools/call", &json!({ "name": "add", "arguments": { "a": "x", "b": 1 } }));
    let text = wrong["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        wrong["result"]["isError"] == true && text.contains("TypeError") && text.contains("line 4"),
        "{text}"
    );
    agent.sends(&json!("no message"));
    assert_eq!(agent.reads()["error"]["code"], -32600);
    drop(agent.child.stdin.take());
    let begun = Instant::now();
    while agent.child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not end with its agent");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn others_ask_by_http(node: &Node) {
    // By HTTP, with a key that is good for calls and for nothing else.
    let key: Value =
        serde_json::from_str(&node.ok(&["key", "create", "--scope", "invoke", "-o", "json"])).unwrap();
    let bearer = format!(
        "Authorization: Bearer {}\r\nContent-Type: application/json\r\n",
        key["key"].as_str().unwrap()
    );
    let answer = http_with(
        &node.address,
        "POST /v1/mcp",
        &bearer,
        call(9, "add", &json!({ "a": 2, "b": 2 })).to_string().as_bytes(),
    );
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(r#""structuredContent":{"sum":4}"#),
        "{answer}"
    );
    // Pages of others are kept out, as the protocol asks for.
    let page = format!("{bearer}Origin: https://evil.example\r\n");
    let answer = http_with(&node.address, "POST /v1/mcp", &page, b"{}");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
