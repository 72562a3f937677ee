// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn request(call: Value, http: Value) -> Request {
    Request::read(format!("{call}\n{http}").as_bytes())
}

fn event(call: Value, http: Value, body: &[u8], takes_http: bool) -> Result<Event, String> {
    Event::of(&request(call, http), body.to_vec(), takes_http)
}

fn body_of(kind: &str, body: &[u8]) -> Result<String, String> {
    let headers = json!({"headers": [["content-type", kind]]});
    event(json!({"request_id": "r"}), headers, body, false)
        .map(|event| String::from_utf8(event.body).unwrap())
}

#[test]
fn a_body_is_an_event_by_its_type() {
    for (kind, body, told) in [
        ("", "", "{}"),
        ("", "[1, 2]", "[1, 2]"),
        ("application/json; charset=utf-8", "{\"a\": 1.0}", "{\"a\": 1.0}"),
        ("application/x-www-form-urlencoded", "{\"a\": 1}", "{\"a\": 1}"),
        ("application/x-www-form-urlencoded", "a=1", "\"a=1\""),
        ("text/plain", "[1]", "\"[1]\""),
        ("", "plain \"text\"", "\"plain \\\"text\\\"\""),
        ("application/cloudevents+json", "{}", "{}"),
    ] {
        assert_eq!(body_of(kind, body.as_bytes()).unwrap(), told, "{kind} {body}");
    }
    for (kind, body) in [("image/png", &b"x"[..]), ("", b"\xff"), ("text/plain", b"\xff")] {
        let why = body_of(kind, body).unwrap_err();
        assert!(why.contains("event = \"http\""), "{why}");
    }
}

#[test]
fn an_event_has_a_name_a_deadline_and_a_trace() {
    let call = json!({"request_id": "r-1", "function": "greet", "deadline_ms": 7, "source": "lambda"});
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let told = event(call, json!({"headers": [["traceparent", trace]]}), b"{}", true).unwrap();
    assert_eq!((told.id.as_str(), told.is_invoked), ("r-1", true));
    let headers: Vec<(&str, &str)> =
        told.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        headers,
        [
            ("Lambda-Runtime-Aws-Request-Id", "r-1"),
            ("Lambda-Runtime-Deadline-Ms", "7"),
            ("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:local:000000000000:function:greet"),
            (
                "Lambda-Runtime-Trace-Id",
                "Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1"
            ),
        ]
    );
    let none = event(json!({}), json!({"headers": [["traceparent", "é"]]}), b"{}", true).unwrap();
    assert_eq!((none.id.as_str(), none.headers.len()), ("0", 3), "of what has none, nothing is made up");
}

#[test]
fn a_request_by_http_is_an_event_as_gateways_describe_it() {
    let call = json!({"request_id": "r-1", "function": "shop", "source": "http"});
    let http = json!({
        "method": "POST", "path": "/items/7", "query": "a=1&b=x+y%21&a=2", "client": "10.0.0.9", "scheme": "https",
        "route": "/items/{id}", "params": [["id", "7"]],
        "headers": [
            ["host", "shop.example.com:8443"], ["cookie", "a=b; c=d"], ["x-a", "1"], ["x-a", "2"],
            ["content-type", "application/json"], ["user-agent", "curl"], ["x-forwarded-for", "1.2.3.4"],
        ],
    });
    let told: Value = serde_json::from_slice(&event(call, http, b"{\"n\": 1}", true).unwrap().body).unwrap();
    let context = &told["requestContext"];
    let (time, epoch) = (context["time"].as_str().unwrap(), context["timeEpoch"].as_u64().unwrap());
    assert!(time.len() == "12/Mar/2020:19:03:58 +0000".len() && epoch > 1_700_000_000_000, "{time} {epoch}");
    assert_eq!(
        told,
        json!({
            "version": "2.0", "routeKey": "POST /items/{id}", "rawPath": "/items/7", "rawQueryString": "a=1&b=x+y%21&a=2",
            "cookies": ["a=b", "c=d"],
            "headers": {
                "host": "shop.example.com:8443", "x-a": "1,2", "content-type": "application/json", "user-agent": "curl",
                "x-forwarded-for": "1.2.3.4", "x-forwarded-port": "8443", "x-forwarded-proto": "https",
            },
            "queryStringParameters": {"a": "1,2", "b": "x y!"}, "pathParameters": {"id": "7"},
            "requestContext": {
                "accountId": "anonymous", "apiId": "shop", "domainName": "shop.example.com", "domainPrefix": "shop",
                "http": {"method": "POST", "path": "/items/7", "protocol": "HTTP/1.1", "sourceIp": "10.0.0.9", "userAgent": "curl"},
                "requestId": "r-1", "routeKey": "POST /items/{id}", "stage": "$default", "time": time, "timeEpoch": epoch,
            },
            "body": "{\"n\": 1}", "isBase64Encoded": false,
        })
    );
    let call = json!({"source": "http"});
    let http = json!({"headers": [["host", "[::1]"], ["content-type", "image/png"]]});
    let told: Value = serde_json::from_slice(&event(call, http, b"\xff\x00", true).unwrap().body).unwrap();
    assert_eq!((&told["body"], &told["isBase64Encoded"]), (&json!("/wA="), &json!(true)));
    assert_eq!(
        (&told["requestContext"]["domainName"], &told["routeKey"]),
        (&json!("[::1]"), &json!("$default"))
    );
    assert_eq!((told.get("cookies"), told.get("queryStringParameters")), (None, None));
    // Whoever calls it otherwise says what the event is.
    let called = event(json!({"source": "call"}), json!({}), b"[1]", true).unwrap();
    assert_eq!(called.body, b"[1]");
}

/// Status, headers and body of an answer; or why it is none.
fn answered(body: &[u8], kind: &str, mode: &str, source: &str) -> Result<(u64, Value, String), String> {
    let event = event(json!({"source": source}), json!({}), b"{}", false).unwrap();
    let result = result(body, kind, mode, &event, 1000).map_err(|failed| match failed {
        Failed::Result(why) => why,
        other => format!("{other:?}"),
    })?;
    let len = u32::from_le_bytes(result[..4].try_into().unwrap()) as usize;
    let head: Value = serde_json::from_slice(&result[4..4 + len]).unwrap();
    let body = String::from_utf8_lossy(&result[4 + len..]).into_owned();
    Ok((head["status"].as_u64().unwrap(), head["headers"].clone(), body))
}

#[test]
fn a_response_is_an_answer_by_what_it_is() {
    let kind = |kind: &str| json!([["content-type", kind]]);
    let proxied = r#"{"statusCode": "201", "headers": {"X-A": "1", "Content-Length": "9", "X-N": 7}, "cookies": ["a=b"],
        "multiValueHeaders": {"X-M": ["1", "2"], "X-A": ["3"]}, "body": "aGk=", "isBase64Encoded": true}"#;
    let headers = json!([
        ["x-n", "7"],
        ["x-a", "3"],
        ["x-m", "1"],
        ["x-m", "2"],
        ["set-cookie", "a=b"],
        ["content-type", "application/octet-stream"],
    ]);
    for (body, status, headers, told) in [
        (r#"{"a":1.10}"#, 200, kind("application/json"), r#"{"a":1.10}"#),
        ("null", 204, json!([]), ""),
        ("", 204, json!([]), ""),
        ("\"hi\"", 200, kind("text/plain; charset=utf-8"), "hi"),
        ("hello", 200, kind("text/plain; charset=utf-8"), "hello"),
        (r#"{"statusCode": 404}"#, 404, json!([]), ""),
        (r#"{"statusCode": 200.0, "body": {"a": 1}}"#, 200, kind("application/json"), r#"{"a":1}"#),
        (proxied, 201, headers, "hi"),
    ] {
        let expected = (status, headers, told.to_owned());
        assert_eq!(answered(body.as_bytes(), "", "", "http").unwrap(), expected, "{body}");
    }
    let value = r#"{"statusCode": 404}"#;
    let invoked = answered(value.as_bytes(), "", "", "lambda").unwrap();
    assert_eq!(invoked, (200, kind("application/json"), value.to_owned()), "who invokes it gets the value");
    let streamed = b"{\"statusCode\": 418, \"headers\": {\"x-a\": \"b\"}}\0\0\0\0\0\0\0\0the body";
    let told = answered(streamed, "application/vnd.awslambda.http-integration-response", "streaming", "http");
    assert_eq!(told.unwrap(), (418, json!([["x-a", "b"]]), "the body".to_owned()));
    let told = answered(b"<p>", "text/html", "streaming", "http").unwrap();
    assert_eq!(told, (200, kind("text/html"), "<p>".to_owned()));
}

#[test]
fn what_is_no_answer_says_why() {
    for (body, why) in [
        (r#"{"statusCode": 99}"#, "the answer's status is 99"),
        (r#"{"statusCode": "many"}"#, "from 200 to 599"),
        (r#"{"statusCode": 200, "headers": {"a b": "c"}}"#, "cannot be a header's name"),
        (r#"{"statusCode": 200, "headers": {"a": "b\nc"}}"#, "line break"),
        (r#"{"statusCode": 200, "body": "?", "isBase64Encoded": true}"#, "is no base64"),
        (&format!("\"{}\"", "x".repeat(2000)), "more than 1000 bytes"),
    ] {
        let told = answered(body.as_bytes(), "", "", "http").unwrap_err();
        assert!(told.contains(why), "{body:.60}: {told}");
    }
}

#[test]
fn a_failure_is_told_as_far_as_it_says_itself() {
    let told = |body: &[u8], kind: &str| match failure(body, kind) {
        Failed::Raised { kind, message, trace } => (kind, message, trace),
        other => panic!("{other:?}"),
    };
    let whole = br#"{"errorMessage": "no", "errorType": "Bad", "stackTrace": ["at a", {"line": 7}, {"path": "a.go", "line": 7, "label": "f"}]}"#;
    assert_eq!(
        told(whole, "Other"),
        ("Bad".into(), "no".into(), "at a\n{\"line\":7}\n  at f (a.go:7)".into())
    );
    assert_eq!(told(b"{}", "Runtime.Other"), ("Runtime.Other".into(), String::new(), String::new()));
    assert_eq!(told(b"it broke", ""), (UNKNOWN.into(), "it broke".into(), String::new()));
    assert!(broken_off("", "").is_none());
    assert!(
        matches!(broken_off("eyJlcnJvck1lc3NhZ2UiOiJubyJ9", "Late"), Some(Failed::Raised { message, .. }) if message == "no")
    );
}
