// SPDX-License-Identifier: Apache-2.0
//! Handlers that were written for Amazon's gateways (`event = "http"`), by themselves and behind the adapters that
//! people use: Mangum, Powertools, serverless-http. Where no registry can be reached, those tests skip.

use std::process::Command;

use serde_json::{Value, json};

use super::frameworks::written;
use super::functions::is_root;
use super::requirements::reaches;
use super::{Node, home};

const SETTINGS: &str = "event = \"http\"\nroutes = [\"GET /NAME/{kind}/{*rest}\"]\n";
const COOKIES: &str = "Cookie: a=1; b=2\r\nCookie: c=3\r\nX-Two: 1\r\nX-Two: 2\r\nUser-Agent: tests\r\n";
const PYTHON: &str = "def handler(event, context):\n    return {'statusCode': 203, 'body': event}\n";
const NODE: &str = "exports.handler = async (event) => ({ statusCode: 203, body: event });\n";

/// A node that has the same function in Python and in Node.
fn in_both(home: &std::path::Path) -> Node {
    let node = Node::start(home);
    node.deploy(&node.python("apy", &SETTINGS.replace("NAME", "apy"), PYTHON));
    node.deploy(&node.nodejs("ajs", &SETTINGS.replace("NAME", "ajs"), NODE));
    node
}

#[test]
fn the_event_is_the_whole_request_and_the_same_in_python_and_node() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = in_both(home.path());
    let json_type = "Content-Type: application/json\r\n";
    let cases: [(&str, &str, &[u8]); 11] = [
        ("GET /function/NAME?__proto__=1&a;b=2&%ff=%zz&+=+&&=x", "__proto__: 2\r\nCookie: ;a=1;\r\n", b""),
        ("GET /function/NAME??a=1&b==", "", b""),
        ("POST /function/NAME", "Content-Type: text/plain\r\n", b"\xef\xbb\xbfx"),
        ("GET /function/NAME", "", b""),
        ("GET /function/NAME/a%20b/c?x=1&x=2&y=a%20b&z", COOKIES, b""),
        ("PUT /function/NAME/o", json_type, "{\"größe\": 1}".as_bytes()),
        ("POST /function/NAME", "Content-Type: application/x-www-form-urlencoded\r\n", b"a=1&b=%20"),
        ("POST /function/NAME", "Content-Type: text/plain\r\n", b"\xff\xfe"),
        ("POST /function/NAME", "Content-Type: image/png\r\n", b"\x89PNG"),
        ("POST /function/NAME", "", b"{}"),
        ("GET /NAME/book/a/b?q=%C3%B6", "", b""),
    ];
    for (request, headers, body) in cases {
        let mut told = ["apy", "ajs"].map(|name| {
            let (status, _, answer) = node.asks(&request.replace("NAME", name), headers, body);
            assert_eq!(status, 203, "{answer}");
            serde_json::from_str::<Value>(&answer.replace(name, "NAME")).unwrap()
        });
        for event in &mut told {
            let context = event["requestContext"].as_object_mut().unwrap();
            assert!(context["requestId"].as_str().unwrap().len() > 10);
            assert!(context["timeEpoch"].as_u64().unwrap() > 1_700_000_000_000);
            assert!(context["time"].as_str().unwrap().ends_with(" +0000"), "{context:?}");
            assert_eq!(context["time"].as_str().unwrap().len(), "29/Nov/2026:23:05:07 +0000".len());
            for name in ["requestId", "timeEpoch", "time"] {
                context.remove(name).unwrap();
            }
            event["headers"].as_object_mut().unwrap().remove("traceparent").unwrap();
        }
        let [python, node] = told;
        assert_eq!(python, node, "{request}");
    }
    assert_eq!(node.terminate(), 0);
}

#[test]
fn the_event_is_what_a_gateway_would_say_and_who_calls_in_another_way_says_it() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = in_both(home.path());
    let ask = |request: &str, headers: &str, body: &[u8]| -> Value {
        serde_json::from_str(&node.asks(request, headers, body).2).unwrap()
    };
    let event = ask("GET /function/ajs/a%20b/c?x=1&x=2&y=a%20b&z", COOKIES, b"");
    assert_eq!(event["rawPath"], "/a%20b/c");
    assert_eq!(event["rawQueryString"], "x=1&x=2&y=a%20b&z");
    assert_eq!(event["queryStringParameters"], json!({"x": "1,2", "y": "a b", "z": ""}));
    assert_eq!(event["cookies"], json!(["a=1", "b=2", "c=3"]));
    assert_eq!((&event["headers"]["x-two"], &event["headers"]["cookie"]), (&json!("1,2"), &Value::Null));
    assert_eq!(event["requestContext"]["http"]["sourceIp"], "127.0.0.1");
    assert_eq!(
        (&event["headers"]["x-forwarded-proto"], &event["headers"]["x-forwarded-for"]),
        (&json!("http"), &json!("127.0.0.1"))
    );
    let event = ask("GET /function/ajs?__proto__=1", "__proto__: 2\r\n", b"");
    assert_eq!(
        (&event["queryStringParameters"]["__proto__"], &event["headers"]["__proto__"]),
        (&json!("1"), &json!("2"))
    );
    assert_eq!((&event["routeKey"], &event["isBase64Encoded"]), (&json!("$default"), &json!(false)));
    assert_eq!((&event["body"], &event["pathParameters"]), (&Value::Null, &Value::Null));
    let event = ask("GET /apy/book/a/b?q=%C3%B6", "", b"");
    assert_eq!(event["routeKey"], "GET /apy/{kind}/{*rest}");
    assert_eq!(event["pathParameters"], json!({"kind": "book", "rest": "a/b"}));
    let event = ask("POST /function/apy", "Content-Type: image/png\r\n", b"\x89PNG");
    assert_eq!((&event["body"], &event["isBase64Encoded"]), (&json!("iVBORw=="), &json!(true)));

    // Whoever calls it in another way gives the event itself.
    let own = json!({"detail": 7});
    let path = "POST /2015-03-31/functions/apy/invocations";
    let told: Value = serde_json::from_str(&node.asks(path, "", own.to_string().as_bytes()).2).unwrap();
    assert_eq!(told, json!({"statusCode": 203, "body": own}));
    node.deploy(&node.python(
        "asks",
        "",
        "import sinew\ndef handler(event, context):\n    return sinew.call('ajs', event)\n",
    ));
    assert_eq!(node.call("asks", &own), (200, own));

    let folder =
        node.python("app", "event = \"http\"\n", "async def handler(scope, receive, send):\n    pass\n");
    let refused = node.run(&["deploy", folder.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("remove event = \"http\""), "{told}");
    assert_eq!(node.terminate(), 0);
}

const MANGUM: &str = r#"
import hashlib
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from fastapi import FastAPI, Request, Response
from mangum import Mangum
from pydantic import BaseModel

app = FastAPI()

class Order(BaseModel):
    name: str

@app.get("/items/{number}")
def item(number: int, request: Request, q: str = "none"):
    return {"number": number, "q": q, "cookie": request.cookies.get("a"), "client": request.client.host}

@app.post("/orders", status_code=201)
def order(order: Order, response: Response):
    response.set_cookie("seen", order.name)
    return order

@app.get("/slash/")
def slash():
    return {}

@app.post("/raw")
async def raw(request: Request):
    return {"sha": hashlib.sha256(await request.body()).hexdigest()}

served = Mangum(app)

tools = APIGatewayHttpResolver()

@tools.get("/hello/<name>")
def hello(name):
    return {"hello": name, "q": tools.current_event.query_string_parameters.get("q")}

@tools.post("/sum")
def sums():
    return {"sum": sum(tools.current_event.json_body)}

def powered(event, context):
    return tools.resolve(event, context)
"#;

const EXPRESS: &str = r#"
const crypto = require("node:crypto");
const express = require("express");
const serverless = require("serverless-http");
const app = express();
app.get("/items/:number", (req, res) => res.json({ number: Number(req.params.number), q: req.query.q ?? "none", cookie: req.headers.cookie }));
app.post("/orders", express.json(), (req, res) => res.status(201).cookie("seen", req.body.name).json(req.body));
app.get("/slash/", (req, res) => res.json({}));
app.post("/raw", express.raw({ type: "*/*" }), (req, res) => res.json({ sha: crypto.createHash("sha256").update(req.body).digest("hex") }));
exports.served = serverless(app);
"#;

fn asked(node: &Node, name: &str) {
    let get = |path: &str, headers: &str| {
        let (status, _, body) = node.asks(&format!("GET /function/{name}{path}"), headers, b"");
        (status, serde_json::from_str::<Value>(&body).unwrap_or(json!(body)))
    };
    let (status, told) = get("/items/7?q=a%20b", "Cookie: a=1\r\n");
    assert_eq!((status, &told["number"], &told["q"]), (200, &json!(7), &json!("a b")), "{told}");
    assert!(told["cookie"] == "1" || told["cookie"] == "a=1", "{told}");
    assert_eq!(get("/nowhere", "").0, 404);
    // What an application makes of the address that it was asked at.
    let (status, head, _) = node.asks(&format!("GET /function/{name}/slash"), "", b"");
    assert!(matches!(status, 200 | 307) && !head.contains("https://"), "{head}");
    let json_type = "Content-Type: application/json\r\n";
    let (status, head, body) =
        node.asks(&format!("POST /function/{name}/orders"), json_type, "{\"name\": \"größe\"}".as_bytes());
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (201, json!({"name": "größe"})));
    assert!(head.contains("set-cookie: seen="), "{head}");
    let bytes: Vec<u8> = (0..=255).collect();
    let octets = "Content-Type: application/octet-stream\r\n";
    let (_, _, body) = node.asks(&format!("POST /function/{name}/raw"), octets, &bytes);
    let sha = "40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880";
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), json!({"sha": sha}), "all bytes from 0 to 255");
}

#[test]
fn applications_behind_mangum_and_powertools_answer_as_they_do_on_lambda() {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "mangum"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("source-shop");
    let manifest = "[functions.shop]\nruntime = \"python\"\nhandler = \"main.served\"\nevent = \"http\"\n\n\
                    [functions.tools]\nruntime = \"python\"\nhandler = \"main.powered\"\nevent = \"http\"\n";
    let packages = "fastapi==0.121.0\nmangum==0.22.0\naws-lambda-powertools==3.37.0\n";
    written(&folder, &[("sinew.toml", manifest), ("main.py", MANGUM), ("requirements.txt", packages)]);
    node.install(&folder).unwrap();
    asked(&node, "shop");
    let (status, _, body) = node.asks("GET /function/tools/hello/Ada?q=1", "", b"");
    assert_eq!(
        (status, serde_json::from_str::<Value>(&body).unwrap()),
        (200, json!({"hello": "Ada", "q": "1"}))
    );
    let (status, _, body) =
        node.asks("POST /function/tools/sum", "Content-Type: application/json\r\n", b"[1, 2]");
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, json!({"sum": 3})));
    assert_eq!(node.asks("GET /function/tools/other", "", b"").0, 404);
    assert_eq!(node.terminate(), 0);
}

#[test]
fn an_application_behind_serverless_http_answers_as_it_does_on_lambda() {
    if !is_root() || !reaches("npm", &["view", "serverless-http@4.0.0", "version"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("source-shop");
    let manifest = "[functions.shop]\nruntime = \"node\"\nhandler = \"index.served\"\nevent = \"http\"\n";
    let package = "{\"name\": \"shop\", \"version\": \"1.0.0\", \
                   \"dependencies\": {\"express\": \"5.3.0\", \"serverless-http\": \"4.0.0\"}}";
    written(&folder, &[("sinew.toml", manifest), ("package.json", package), ("index.js", EXPRESS)]);
    let mut lock = Command::new("npm");
    let locked =
        lock.args(["install", "--package-lock-only", "--silent"]).current_dir(&folder).output().unwrap();
    assert!(locked.status.success(), "{locked:?}");
    node.install(&folder).unwrap();
    asked(&node, "shop");
    assert_eq!(node.terminate(), 0);
}
