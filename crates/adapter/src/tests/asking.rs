// SPDX-License-Identifier: Apache-2.0
//! Programs that ask for their events, as runtimes for AWS Lambda do.

use super::*;

/// A runtime on one kept connection. What it does is the event's matter.
const RUNTIME: &str = r#"#!/usr/bin/env python3
import base64, http.client, json, os, sys, time
api = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
PATH = "/2018-06-01/runtime/"
def ask(method, path, body=None, headers={}):
    api.request(method, PATH + path, body, headers, encode_chunked="Transfer-Encoding" in headers)
    answer = api.getresponse()
    return answer.status, answer.headers, answer.read()
served = 0
while True:
    status, headers, event = ask("GET", "invocation/next")
    assert status == 200, (status, event)
    event, name = json.loads(event), headers["Lambda-Runtime-Aws-Request-Id"]
    served += 1
    what = event.get("what")
    if what == "fail":
        print("failing", flush=True)
        error = {"errorMessage": "no such thing", "errorType": "KeyError", "stackTrace": ["main.py line 3"]}
        told = ask("POST", f"invocation/{name}/error", json.dumps(error), {"Lambda-Runtime-Function-Error-Type": "X"})
    elif what == "exit":
        print("last words", flush=True)
        os._exit(7)
    elif what == "leave":
        told = ask("POST", f"invocation/{name}/response", "1")
        time.sleep(event["after"])
        os._exit(0)
    elif what == "other":
        told = ask("POST", "invocation/other/response", "{}")
        told = ask("POST", f"invocation/{name}/response", json.dumps(told[0]))
        assert ask("POST", f"invocation/{name}/response", "{}")[0] == 400, "it is over"
        assert ask("GET", "nothing")[0] == 404
    elif what == "stream":
        pieces = [b'{"statusCode": 203, "headers": {"x-a": "b"}}', bytes(8), b"streamed ", b"x" * event["bytes"]]
        kind = {"Content-Type": "application/vnd.awslambda.http-integration-response",
                "Lambda-Runtime-Function-Response-Mode": "streaming", "Transfer-Encoding": "chunked"}
        told = ask("POST", f"invocation/{name}/response", iter(pieces), kind)
    elif what == "long":
        # Over twice of what a result may be.
        try:
            told = ask("POST", f"invocation/{name}/response", b"x" * event["bytes"])
            assert told[0] == 413, told
        except OSError:
            pass
        api.close()
        told = 202,
    elif what == "forget":
        told = 202,
    elif what == "broken":
        api.putrequest("POST", PATH + f"invocation/{name}/response")
        api.putheader("Transfer-Encoding", "chunked")
        api.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
        api.endheaders()
        error = base64.b64encode(b'{"errorMessage": "half way"}').decode()
        api.send(b"4\r\nhalf\r\n0\r\nLambda-Runtime-Function-Error-Type: Broken\r\n")
        api.send(f"Lambda-Runtime-Function-Error-Body: {error}\r\n\r\n".encode())
        answer = api.getresponse()
        told = answer.status, None, answer.read()
    else:
        names = ("AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "_HANDLER", "WHO")
        value = {"event": event, "served": served, "env": [os.environ[name] for name in names],
                 "left": int(headers["Lambda-Runtime-Deadline-Ms"])}
        told = ask("POST", f"invocation/{name}/response", json.dumps(value))
    assert told[0] == 202, told
"#;

fn value(heard: Heard) -> serde_json::Value {
    match heard {
        Heard::Result(200, _, body) => serde_json::from_slice(&body).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn head(id: &str) -> String {
    format!("{{\"request_id\":\"{id}\",\"deadline_ms\":99}}\n{{}}")
}

#[test]
fn events_are_asked_for_one_after_the_other() {
    let mut node = Node::with(RUNTIME, Mode::Lambda, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    for served in 1..4 {
        let told = value(node.call(&head(&format!("r-{served}")), b"{\"n\": 1}"));
        let expected = serde_json::json!({
            "event": {"n": 1}, "served": served, "env": ["greet", "256", "main", "Ada"], "left": 99,
        });
        assert_eq!(told, expected);
    }
    assert_eq!(value(node.call(&head("r-4"), b"{\"what\": \"other\"}")), 400, "what is none is refused");
    let Heard::Raised(why) = node.call(&head("r-5"), b"{\"what\": \"fail\"}") else { panic!("it fails") };
    for part in ["KeyError", "no such thing", "main.py line 3"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(node.log.contains("failing"), "{}", node.log);
    let Heard::Raised(why) = node.call(&head("r-6"), b"{\"what\": \"broken\"}") else {
        panic!("it is broken off")
    };
    assert!(why.contains("Broken") && why.contains("half way"), "{why}");
    let Heard::Result(203, headers, body) =
        node.call(&head("r-7"), b"{\"what\": \"stream\", \"bytes\": 900000}")
    else {
        panic!("it streams")
    };
    assert_eq!((headers.as_str(), body.len()), ("[[\"x-a\",\"b\"]]", 900_009));
    assert!(
        matches!(node.call(&head("r-8"), b"\xff"), Heard::Raised(why) if why.contains("an event is JSON"))
    );
    // It has not been told of that one.
    assert_eq!(value(node.call(&head("r-9"), b"{}"))["served"], 8);
}

#[test]
fn a_program_that_ends_is_started_again_for_the_next_event() {
    let mut node = Node::with(RUNTIME, Mode::Lambda, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    let Heard::Raised(why) = node.call(&head("r-1"), b"{\"what\": \"exit\"}") else { panic!("it ends") };
    assert!(
        why.contains("the program ended with status 7 during the call") && why.contains("last words"),
        "{why}"
    );
    assert_eq!(value(node.call(&head("r-2"), b"{}"))["served"], 1);
    assert_eq!(value(node.call(&head("r-2"), b"{}"))["served"], 2, "of the same name, it is another one");
    for after in ["0", "0.001", "0.01", "0.05"] {
        let leave = format!("{{\"what\": \"leave\", \"after\": {after}}}");
        assert_eq!(value(node.call(&head("r-3"), leave.as_bytes())), 1);
        // It has not been given that one.
        assert_eq!(value(node.call(&head("r-4"), b"{}"))["served"], 1, "{after}");
    }
}

#[test]
fn a_program_that_does_not_ask_is_not_loaded() {
    for (script, why) in [
        (
            "#!/bin/sh\necho no bootstrap >&2\nexit 3\n",
            "the program ended with status 3 before it asked for an event",
        ),
        (
            "#!/usr/bin/env python3\nimport os, urllib.request\nurl = 'http://' + os.environ['AWS_LAMBDA_RUNTIME_API']\n\
             urllib.request.urlopen(url + '/2018-06-01/runtime/init/error', \
             b'{\"errorMessage\": \"no database\", \"errorType\": \"Init\"}')\n",
            "no database",
        ),
    ] {
        let mut node = Node::with(script, Mode::Lambda, 1 << 20);
        let Heard::Raised(told) = node.hear() else { panic!("it is not loaded") };
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn a_response_that_is_too_long_fails_alone() {
    let mut node = Node::with(RUNTIME, Mode::Lambda, 1000);
    assert_eq!(node.hear(), Heard::Loaded);
    let heard = node.call(&head("r-1"), b"{\"what\": \"stream\", \"bytes\": 1500}");
    assert!(matches!(&heard, Heard::BadResult(why) if why.contains("more than 1000 bytes")), "{heard:?}");
    assert_eq!(value(node.call(&head("r-2"), b"{}"))["served"], 2);
    for bytes in [2001, 5_000_000] {
        let heard = node.call(&head("r-3"), format!("{{\"what\": \"long\", \"bytes\": {bytes}}}").as_bytes());
        assert!(matches!(&heard, Heard::BadResult(why) if why.contains("longer than a result")), "{heard:?}");
    }
    assert_eq!(value(node.call(&head("r-4"), b"{}"))["served"], 5, "the same process goes on");
}

#[test]
fn a_program_that_forgets_an_event_fails_it_and_no_other() {
    let mut node = Node::with(RUNTIME, Mode::Lambda, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    let Heard::Raised(why) = node.call(&head("r-1"), b"{\"what\": \"forget\"}") else {
        panic!("it says nothing")
    };
    assert!(why.contains("had said nothing of this one"), "{why}");
    assert_eq!(value(node.call(&head("r-2"), b"{}"))["served"], 2);
}

/// One for each request, as programs in shell have it; and it waits to be told to go on.
#[test]
fn a_runtime_may_have_a_connection_for_each_request() {
    let script = r#"#!/bin/bash
API="http://$AWS_LAMBDA_RUNTIME_API/2018-06-01/runtime"
while true; do
  HEADERS=$(mktemp)
  EVENT=$(curl -sS -L -D "$HEADERS" "$API/invocation/next") || exit 1
  ID=$(grep -Fi Lambda-Runtime-Aws-Request-Id "$HEADERS" | tr -d '[:space:]' | cut -d: -f2)
  curl -sS -X POST -H 'Expect: 100-continue' "$API/invocation/$ID/response" -d "heard $EVENT" >/dev/null
done
"#;
    let mut node = Node::with(script, Mode::Lambda, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    for number in 0..3 {
        let heard = node.call(&head(&format!("r-{number}")), number.to_string().as_bytes());
        assert!(
            matches!(&heard, Heard::Result(200, _, body) if *body == format!("heard {number}").into_bytes()),
            "{heard:?}"
        );
    }
}
