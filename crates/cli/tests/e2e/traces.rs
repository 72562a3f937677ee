// SPDX-License-Identifier: Apache-2.0
//! Spans that reach a collector: one trace from the client to the function that
//! a function calls, and nothing of what nobody wants told.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const ASK_PY: &str =
    "import sinew\ndef handler(event, context):\n    return sinew.call('echo', event['call'])\n";

/// Takes what is posted, and answers 503 to the first.
fn collector() -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let posted = read(&mut stream);
            let status = if number == 0 { "503 Service Unavailable" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
            stream.write_all(answer.as_bytes()).unwrap();
            if number > 0 && sender.send(posted).is_err() {
                return;
            }
        }
    });
    (format!("http://{address}/v1/traces"), receiver)
}

fn read(stream: &mut TcpStream) -> (String, Value) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let len = stream.read(&mut piece).unwrap();
        assert!(len > 0, "a message breaks off");
        bytes.extend_from_slice(&piece[..len]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
        if body.len() >= length.unwrap().trim().parse::<usize>().unwrap() {
            return (head.to_owned(), serde_json::from_str(body).unwrap());
        }
    }
}

#[test]
fn a_trace_goes_from_the_client_to_the_function_that_a_function_calls() {
    if !is_root() {
        return;
    }
    let (url, messages) = collector();
    let home = home();
    let config = home.path().join("node.toml");
    let settings = format!(
        "[traces]\nurl = \"{url}\"\nheaders = {{ x-key = \"k1\" }}\nresource = {{ \"service.name\" = \"shop\" }}\n"
    );
    std::fs::write(&config, settings).unwrap();
    let node =
        Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
    node.deploy(&node.python("echo", "", "def handler(event, context):\n    return event\n"));
    node.deploy(&node.python("ask", "", ASK_PY));
    let call = |flags: &str| {
        let headers = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-{flags}\r\n");
        let body = json!({"call": {"n": 1}}).to_string();
        http_with(&node.address, "POST /function/ask", &headers, body.as_bytes())
    };
    // Who began it does not want it told.
    assert!(call("00").starts_with("HTTP/1.1 200"));
    assert!(call("01").starts_with("HTTP/1.1 200"));

    let (head, message) = messages.recv_timeout(Duration::from_secs(30)).unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1") && head.contains("x-key: k1"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let resource = &message["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "shop", "{message}");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    assert!(spans.iter().all(|span| span["traceId"] == TRACE), "{message}");
    let named = |name: &str| -> Vec<&Value> { spans.iter().filter(|span| span["name"] == name).collect() };
    assert_eq!((named("ask").len(), named("echo").len()), (1, 1), "{message}");
    let (ask, echo) = (named("ask")[0], named("echo")[0]);
    assert_eq!((&ask["parentSpanId"], &ask["kind"]), (&json!("b7ad6b7169203331"), &json!(2)));
    assert_eq!((&echo["parentSpanId"], &echo["kind"]), (&ask["spanId"], &json!(1)), "{message}");
    let runs: Vec<&Value> = named("run").into_iter().map(|span| &span["parentSpanId"]).collect();
    assert!(runs.contains(&&ask["spanId"]) && runs.contains(&&echo["spanId"]), "{message}");
    let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time(ask, "startTimeUnixNano") <= time(echo, "startTimeUnixNano"));
    assert!(time(echo, "endTimeUnixNano") <= time(ask, "endTimeUnixNano") + 1_000_000, "{message}");

    let metrics = node.http("GET /metrics", b"");
    for line in ["sinew_traces_failed_attempts_total 1", "sinew_traces_dropped_total 0"] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    // A request that ends just before the node does is told too.
    assert!(call("01").starts_with("HTTP/1.1 200"));
    assert_eq!(node.terminate(), 0);
    let (_, message) = messages.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(message.to_string().contains("\"name\":\"echo\""), "{message}");
}
