// SPDX-License-Identifier: Apache-2.0
//! CloudEvents to handlers in Python and Node.

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

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
