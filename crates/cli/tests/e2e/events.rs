// SPDX-License-Identifier: Apache-2.0
//! CloudEvents to handlers in Python and Node, and what functions print, followed while they are asked.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

const PATIENCE: Duration = Duration::from_secs(60);
const PYTHON: &str = "def handler(event, context):\n    print('heard', event)\n    \
                      return {'data': event, 'attributes': context.cloud_event}\n";
const NODE: &str = "exports.handler = async (event, context) => {\n  console.log('heard', JSON.stringify(event));\n  \
                    return { data: event, attributes: context.cloudEvent };\n};\n";

#[test]
fn a_cloud_event_is_the_same_to_a_handler_in_either_form() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    node.deploy(&node.python("inpython", "", PYTHON));
    node.deploy(&node.nodejs("innode", "", NODE));
    let ask = |name: &str, headers: &str, body: &str| -> (String, Value) {
        let answer = http_with(&node.address, &format!("POST /function/{name}"), headers, body.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        (head.to_ascii_lowercase(), serde_json::from_str(body).unwrap())
    };
    let attributes = json!({
        "specversion": "1.0", "id": "7", "type": "org.example.made", "source": "/orders", "subject": "größe",
    });
    let binary = "ce-specversion: 1.0\r\nce-id: 7\r\nce-type: org.example.made\r\nce-source: /orders\r\n\
                  ce-subject: gr%C3%B6%C3%9Fe\r\nContent-Type: application/json\r\n";
    let mut structured = attributes.clone();
    structured["datacontenttype"] = json!("application/json");
    structured["data"] = json!({"order": 1});
    let is_event = "Content-Type: application/cloudevents+json\r\n";
    for name in ["inpython", "innode"] {
        let (_, told) = ask(name, binary, "{\"order\": 1}");
        assert_eq!(told, json!({"data": {"order": 1}, "attributes": attributes}), "{name}");
        let (_, told) = ask(name, is_event, &structured.to_string());
        assert_eq!(told, json!({"data": {"order": 1}, "attributes": attributes}), "{name}");
        let (_, told) = ask(name, "Content-Type: application/json\r\n", "{\"order\": 1}");
        assert_eq!(told, json!({"data": {"order": 1}, "attributes": null}), "{name}");
    }
    assert_eq!(node.terminate(), 0);
}

#[test]
fn logs_are_followed_as_requests_end() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    node.deploy(&node.python("inpython", "", PYTHON));
    node.call("inpython", &json!("before"));
    let mut follow = node.command(&["logs", "inpython", "-f", "-n", "1", "-o", "json"]);
    let mut following = follow.stdout(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = channel();
    let printed = BufReader::new(following.stdout.take().unwrap());
    std::thread::spawn(move || {
        printed.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).unwrap_or_default();
    });
    let next = || -> Value { serde_json::from_str(&lines.recv_timeout(PATIENCE).unwrap()).unwrap() };
    assert_eq!(next()["log"], "heard before\n");
    for word in ["one", "two", "three"] {
        node.call("inpython", &json!(word));
        let record = next();
        assert_eq!((&record["log"], &record["status"]), (&json!(format!("heard {word}\n")), &json!(200)));
    }
    following.kill().unwrap();
    following.wait().unwrap();
    assert_eq!(node.terminate(), 0);
}
