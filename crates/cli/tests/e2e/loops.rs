// SPDX-License-Identifier: Apache-2.0
//! A node with several event loops: connections, instances, and calls between
//! functions that meet on different ones.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::functions::is_root;
use super::{Node, home};

const CLIENTS: usize = 9;
const REQUESTS: usize = 40;

/// One request on a connection that stays open: what it says, with what comes in pieces put together.
fn ask(stream: &mut BufReader<TcpStream>, function: &str, body: &str) -> String {
    let length = body.len();
    write!(
        stream.get_mut(),
        "POST /function/{function} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_ascii_lowercase()
    };
    assert!(line().starts_with("http/1.1 200"), "{function} {body}");
    let mut length = None;
    loop {
        let header = line();
        if header.is_empty() {
            break;
        }
        if let Some(told) = header.strip_prefix("content-length: ") {
            length = Some(told.parse::<usize>().unwrap());
        }
    }
    let mut answer = Vec::new();
    match length {
        Some(length) => {
            answer.resize(length, 0);
            stream.read_exact(&mut answer).unwrap();
        }
        None => loop {
            let mut head = String::new();
            stream.read_line(&mut head).unwrap();
            let size = usize::from_str_radix(head.trim_end(), 16).unwrap();
            let mut piece = vec![0; size + 2];
            stream.read_exact(&mut piece).unwrap();
            answer.extend_from_slice(&piece[..size]);
            if size == 0 {
                break;
            }
        },
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn each_client_has_its_own_answers_whichever_loops_its_requests_need() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--event-loops", "3"]);
    let double = "def handler(event, context):\n    return {'twice': event['number'] * 2}\n";
    node.deploy(&node.python("double", "concurrency = 4\n", double));
    let asks = "import sinew\ndef handler(event, context):\n    answer = sinew.call('double', event)\n    \
                return {'number': event['number'], 'answer': answer}\n";
    node.deploy(&node.python("asks", "concurrency = 3\n", asks));
    let pieces = "import json\nasync def handler(scope, receive, send):\n    \
                  number = json.loads((await receive())['body'])['number']\n    \
                  await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                  for piece in range(3):\n        \
                  body = f'{number}:{piece} '.encode()\n        \
                  await send({'type': 'http.response.body', 'body': body, 'more_body': piece < 2})\n";
    node.deploy(&node.python("pieces", "concurrency = 2\n", pieces));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let address = &node.address;
            scope.spawn(move || {
                let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
                for number in (0..REQUESTS).map(|request| client * 1000 + request) {
                    let body = format!("{{\"number\":{number}}}");
                    let twice: Value = serde_json::from_str(&ask(&mut stream, "double", &body)).unwrap();
                    assert_eq!(twice["twice"], number * 2);
                    let asked: Value = serde_json::from_str(&ask(&mut stream, "asks", &body)).unwrap();
                    assert_eq!(
                        (&asked["number"], &asked["answer"]["twice"]),
                        (&number.into(), &(number * 2).into())
                    );
                    let told = ask(&mut stream, "pieces", &body);
                    assert_eq!(told, format!("{number}:0 {number}:1 {number}:2 "));
                }
            });
        }
    });
}
