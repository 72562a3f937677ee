// SPDX-License-Identifier: Apache-2.0
//! Functions as tools: both kinds of revisions of the protocol, what is refused, and what answers become.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use objects::FailureCode;
use serde_json::{Value, json};

use super::fake::Script;
use super::{Answer, House};
use crate::Tool;

const PATH: &str = "/v1/mcp";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn house() -> House {
    let house = House::new();
    let tool = |description: &str, is_read_only| {
        let input = json!({ "type": "object", "properties": { "place": { "type": "string" } }, "required": ["place"] });
        Some(Arc::new(Tool { description: description.to_owned(), input, is_read_only }))
    };
    house.fake.functions.add("weather", 1, |served| served.tool = tool("Tells the weather", true));
    house.fake.functions.add("alarm", 1, |served| served.tool = tool("Rings", false));
    house.fake.functions.add("private", 1, |_| {});
    house
        .fake
        .gives(r#"{"status":200,"headers":[["content-type","application/json"]]}"#, br#"{"degrees":7}"#);
    house
}

/// As clients of the revisions with a handshake ask.
async fn ask(house: &House, method: &str, params: Value) -> Answer {
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    house.post_json(PATH, &message.to_string()).await
}

async fn calls(house: &House, name: &str, arguments: Value) -> Value {
    let answer = ask(house, "tools/call", json!({ "name": name, "arguments": arguments })).await;
    assert_eq!((answer.status.as_u16(), answer.json()["id"].clone()), (200, json!(7)));
    answer.json()
}

/// As those of the newest revision do, with these headers in the place of what they should be.
async fn asks(house: &House, method: &str, mut params: Value, changed: &[(&str, Option<&str>)]) -> Answer {
    params["_meta"] = json!({ VERSION: "2026-07-28", CAPABILITIES: {} });
    let name = params["name"].as_str().unwrap_or("").to_owned();
    let mut request = Request::post(PATH).header("content-type", "application/json");
    let usual = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name.as_str())];
    for (header, value) in usual {
        let value = changed.iter().find(|(name, _)| *name == header).map_or(Some(value), |(_, value)| *value);
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            request = request.header(header, value);
        }
    }
    let message = json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params });
    house.send(request.body(Body::from(message.to_string())).unwrap()).await
}

#[tokio::test]
async fn whoever_begins_with_a_handshake_is_served() {
    let house = house();
    for (wanted, spoken) in [
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("1999", "2025-11-25"),
    ] {
        let begun =
            ask(&house, "initialize", json!({ "protocolVersion": wanted, "capabilities": {} })).await.json();
        assert_eq!(begun["result"]["protocolVersion"], spoken);
        assert!(
            begun["result"]["capabilities"]["tools"].is_object()
                && begun["result"]["serverInfo"]["name"] == "sinew"
        );
    }
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    let told = house.post_json(PATH, &told).await;
    assert_eq!((told.status.as_u16(), told.body.len()), (202, 0));
    assert_eq!(ask(&house, "ping", json!({})).await.json()["result"], json!({}));
    let tools = ask(&house, "tools/list", json!({})).await.json()["result"]["tools"].clone();
    let names: Vec<&Value> = tools.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["alarm", "weather"], "in order, and no function that is none");
    assert_eq!(tools[1]["annotations"], json!({ "readOnlyHint": true }));
    assert_eq!(
        (&tools[0]["annotations"], &tools[0]["inputSchema"]["required"]),
        (&Value::Null, &json!(["place"]))
    );

    let called = calls(&house, "weather", json!({ "place": "Bern" })).await;
    let result = &called["result"];
    assert_eq!(result["content"], json!([{ "type": "text", "text": "{\"degrees\":7}" }]));
    assert_eq!((&result["structuredContent"], &result["isError"]), (&json!({ "degrees": 7 }), &json!(false)));
    assert_eq!(result["resultType"], Value::Null);
    let (head, body) = house.fake.last_call();
    assert_eq!(
        (&head["source"], &head["function"], body.as_slice()),
        (&json!("mcp"), &json!("weather"), &br#"{"place":"Bern"}"#[..])
    );
    // Streams and sessions, which older clients ask for, are not there.
    for request in [Request::get(PATH), Request::delete(PATH)] {
        let answer = house.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!((answer.header("allow"), answer.problem(405).as_str()), ("POST", "method-not-allowed"));
    }
}

#[tokio::test]
async fn whoever_needs_no_handshake_is_served() {
    let house = house();
    let found = asks(&house, "server/discover", json!({}), &[]).await.json();
    let result = &found["result"];
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "sinew");
    assert_eq!(
        (&found["id"], &result["resultType"], &result["supportedVersions"][0]),
        (&json!("a"), &json!("complete"), &json!("2026-07-28"))
    );
    let listed = asks(&house, "tools/list", json!({}), &[]).await.json();
    assert!(listed["result"]["ttlMs"].is_u64() && listed["result"]["cacheScope"] == "private");
    assert_eq!(listed["result"]["tools"][1]["name"], "weather");
    let call = json!({ "name": "weather", "arguments": { "place": "Bern" } });
    let called = asks(&house, "tools/call", call.clone(), &[]).await;
    assert_eq!((called.status.as_u16(), &called.json()["result"]["resultType"]), (200, &json!("complete")));
    let encoded =
        asks(&house, "tools/call", call.clone(), &[("mcp-name", Some("=?base64?d2VhdGhlcg==?="))]).await;
    assert_eq!(encoded.status, 200);

    let code = |answer: &Answer| {
        (
            answer.status.as_u16(),
            answer.json()["error"]["code"].as_i64().unwrap(),
            answer.json()["id"].clone(),
        )
    };
    let id = json!("a");
    for wrong in [
        ("mcp-method", None),
        ("mcp-method", Some("tools/list")),
        ("mcp-name", None),
        ("mcp-name", Some("alarm")),
        ("mcp-name", Some("=?base64?!?=")),
        ("mcp-protocol-version", None),
        ("mcp-protocol-version", Some("2027-01-01")),
    ] {
        let answer = asks(&house, "tools/call", call.clone(), &[wrong]).await;
        assert_eq!(code(&answer), (400, -32020, id.clone()), "{wrong:?}");
    }
    let twice = json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": { "_meta": { VERSION: "2026-07-28", CAPABILITIES: {} } } });
    let request = Request::post(PATH)
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28");
    let request = request.header("mcp-method", "tools/list").header("mcp-method", "tools/call");
    assert_eq!(
        code(&house.send(request.body(Body::from(twice.to_string())).unwrap()).await),
        (400, -32020, id.clone())
    );
}

#[tokio::test]
async fn what_the_newest_revision_has_not_is_refused() {
    let house = house();
    let code = |answer: &Answer| {
        (
            answer.status.as_u16(),
            answer.json()["error"]["code"].as_i64().unwrap(),
            answer.json()["id"].clone(),
        )
    };
    let id = json!("a");
    let found = asks(&house, "server/discover", json!({}), &[]).await.json();
    let result = &found["result"];
    // What has gone with that revision, and what never was.
    for method in ["ping", "logging/setLevel", "resources/list"] {
        assert_eq!(code(&asks(&house, method, json!({}), &[]).await), (404, -32601, id.clone()));
    }
    let message = |meta: Value| {
        let message =
            json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": { "_meta": meta } });
        let request =
            Request::post(PATH).header("content-type", "application/json").header("mcp-method", "tools/list");
        house.send(
            request
                .header("mcp-protocol-version", "2030-01-01")
                .body(Body::from(message.to_string()))
                .unwrap(),
        )
    };
    let later = message(json!({ VERSION: "2030-01-01", CAPABILITIES: {} })).await;
    assert_eq!(code(&later), (400, -32022, id.clone()));
    assert_eq!(later.json()["error"]["data"]["supported"], result["supportedVersions"]);
    assert_eq!(code(&message(json!({ CAPABILITIES: {} })).await), (400, -32602, id.clone()));
    let without = json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": { "_meta": { VERSION: "2026-07-28" } } });
    assert_eq!(code(&house.post_json(PATH, &without.to_string()).await), (400, -32602, id));
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    let house = house();
    for (text, code) in [
        ("", -32700),
        ("{", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, -32600),
    ] {
        let answer = house.post_json(PATH, text).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["error"]["code"].as_i64()),
            (400, Some(code)),
            "{text}"
        );
    }
    assert_eq!(house.post(PATH, "text/plain", "{}").await.problem(415), "unsupported-media-type");
    assert_eq!(house.post_json(PATH, &" ".repeat((1 << 20) + 1)).await.problem(413), "body-too-large");
    for (name, arguments) in [
        ("private", json!({})),
        ("nobody", json!({})),
        ("weather:1", json!({})),
        ("weather", json!([1])),
        ("weather", json!(1)),
    ] {
        let answer = calls(&house, name, arguments.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{name} {arguments}");
    }
    assert_eq!(ask(&house, "tools/list", json!({ "cursor": "x" })).await.json()["error"]["code"], -32602);
    assert_eq!(ask(&house, "resources/list", json!({})).await.json()["error"]["code"], -32601);
    assert!(house.fake.requests.lock().unwrap().is_empty(), "nothing ran");
}

#[tokio::test]
async fn answers_become_what_models_read() {
    let house = house();
    let place = || json!({ "place": "Bern" });
    for (kind, body, expected) in [
        ("text/plain; charset=utf-8", &b"warm"[..], json!({ "type": "text", "text": "warm" })),
        ("application/json", b"[1]", json!({ "type": "text", "text": "[1]" })),
        ("image/png", b"\x89PNG", json!({ "type": "image", "data": "iVBORw==", "mimeType": "image/png" })),
        ("audio/wav", b"RIFF", json!({ "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" })),
        (
            "image/svg+xml",
            b"<svg/>",
            json!({ "type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml" }),
        ),
        ("application/xml", b"<a/>", json!({ "type": "text", "text": "<a/>" })),
        (
            "application/zip",
            b"PK",
            json!({ "type": "resource", "resource": { "uri": "sinew://weather", "mimeType": "application/zip", "blob": "UEs=" } }),
        ),
        // Whatever it says that it is.
        (
            "application/json",
            b"\xff",
            json!({ "type": "resource", "resource": { "uri": "sinew://weather", "mimeType": "application/json", "blob": "/w==" } }),
        ),
    ] {
        house.fake.gives(&format!(r#"{{"status":200,"headers":[["content-type","{kind}"]]}}"#), body);
        let result = calls(&house, "weather", place()).await["result"].clone();
        assert_eq!((&result["content"][0], &result["isError"]), (&expected, &json!(false)), "{kind}");
        assert_eq!(result["structuredContent"], Value::Null);
    }
    house.fake.gives(r#"{"status":204,"headers":[]}"#, b"");
    assert_eq!(calls(&house, "weather", place()).await["result"]["content"], json!([]));
    house.fake.gives(r#"{"status":404,"headers":[["content-type","text/plain"]]}"#, b"no such place");
    let result = calls(&house, "weather", place()).await["result"].clone();
    assert_eq!((&result["content"][0]["text"], &result["isError"]), (&json!("no such place"), &json!(true)));
    house
        .fake
        .gives(r#"{"status":200,"headers":[["content-type","text/plain"]]}"#, &vec![b'x'; (8 << 20) + 1]);
    let result = calls(&house, "weather", place()).await["result"].clone();
    assert!(
        result["isError"] == true && result["content"][0]["text"].as_str().unwrap().contains("8388609 bytes")
    );
    // What fails, or finds no room, is told to whoever called it.
    for (code, told) in [(FailureCode::Trap, "why"), (FailureCode::Resources, "")] {
        *house.fake.otherwise.lock().unwrap() = Some(Script::Fails(code));
        let result = calls(&house, "weather", place()).await["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(result["isError"] == true && text.contains(told) && text.contains("(request "), "{text}");
    }
    let missing = calls(&house, "weather", json!({ "pace": 1 })).await["result"].clone();
    assert_eq!(missing["content"][0]["text"], "the argument \"place\" is missing");
}
