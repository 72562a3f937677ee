// SPDX-License-Identifier: Apache-2.0
//! Programs that were made for AWS Lambda, as they are: one in shell, and one with Amazon's own library for Go.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

const GO: &str = "/usr/local/go/bin/go";
const MODULE: &str = "github.com/aws/aws-lambda-go@v1.55.1";

const MANIFEST: &str = r#"
[functions.orders]
runtime = "executable"
mode = "lambda"
include = ["bootstrap"]
concurrency = 2

[functions.web]
runtime = "executable"
mode = "lambda"
event = "http"
include = ["bootstrap"]
environment = { KIND = "http" }
"#;

const PROGRAM: &str = r#"package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

type order struct {
	Number int    `json:"number"`
	How    string `json:"how"`
}

func handle(ctx context.Context, event order) (map[string]any, error) {
	fmt.Println("order", event.Number)
	switch event.How {
	case "fails":
		return nil, errors.New("no such order")
	case "panics":
		panic("out of orders")
	}
	told, _ := lambdacontext.FromContext(ctx)
	deadline, _ := ctx.Deadline()
	return map[string]any{
		"number": event.Number, "function": lambdacontext.FunctionName, "id": told.AwsRequestID,
		"memory": lambdacontext.MemoryLimitInMB, "left": time.Until(deadline) > 20*time.Second,
	}, nil
}

func serve(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	http := event.RequestContext.HTTP
	body := fmt.Sprintf("%s %s q=%s %s", http.Method, event.RawPath, event.QueryStringParameters["q"], event.Body)
	headers := map[string]string{"content-type": "text/plain", "x-agent": http.UserAgent}
	return events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: headers, Cookies: []string{"a=b"}, Body: body}, nil
}

func main() {
	if os.Getenv("KIND") == "http" {
		lambda.Start(serve)
	}
	lambda.Start(handle)
}
"#;

#[test]
fn a_function_for_lambda_in_go_runs_as_it_is() {
    if !is_root() {
        return;
    }
    if !Path::new(GO).exists() {
        eprintln!("skipped: no {GO}");
        return;
    }
    let home = home();
    let folder = home.path().join("lambda");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sinew.toml"), MANIFEST).unwrap();
    std::fs::write(folder.join("main.go"), PROGRAM).unwrap();
    std::fs::write(folder.join("go.mod"), "module lambda\n\ngo 1.24\n").unwrap();
    let go = |arguments: &[&str]| {
        let mut go = Command::new(GO);
        go.args(arguments).current_dir(&folder).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod");
        go.output().unwrap()
    };
    let fetched = go(&["get", MODULE]);
    if !fetched.status.success() {
        eprintln!("skipped: {MODULE} cannot be had: {}", String::from_utf8_lossy(&fetched.stderr));
        return;
    }
    let built = go(&["build", "-o", "bootstrap", "."]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let node = Node::start(home.path());
    node.deploy(&folder);
    for number in 0..5 {
        let (status, told) = node.call("orders", &json!({"number": number}));
        let id = told["id"].as_str().unwrap_or_default().to_owned();
        let expected = json!({"number": number, "function": "orders", "id": id, "memory": 256, "left": true});
        assert_eq!((status, told), (200, expected));
        assert!(node.ok(&["logs", "--request-id", &id]).contains(&format!("    order {number}")), "{id}");
    }
    let (status, problem) = node.call("orders", &json!({"number": 7, "how": "fails"}));
    assert_eq!(
        (status, problem["detail"].as_str().map(|why| why.contains("no such order"))),
        (500, Some(true))
    );
    // Its runtime ends the process after that; the next request has another one.
    assert_eq!(node.call("orders", &json!({"how": "panics"})).0, 500);
    let why = node.ok(&["logs", "orders", "-n", "1"]);
    assert!(why.contains("string: out of orders") && why.contains("at handle (lambda/main.go:"), "{why}");
    for number in 0..3 {
        assert_eq!(node.call("orders", &json!({"number": number})).0, 200);
    }
    // As Lambda's clients call it.
    let invoke = "POST /2015-03-31/functions/orders/invocations";
    let answer = http_with(&node.address, invoke, "", b"{\"number\": 9, \"how\": \"fails\"}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains("x-amz-function-error: unhandled"), "{head}");
    let told: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&told["errorMessage"], &told["errorType"]), (&json!("no such order"), &json!("errorString")));

    let headers = "Content-Type: text/plain\r\nUser-Agent: tests\r\n";
    let answer = http_with(&node.address, "PUT /function/web/a/b?q=x%20y", headers, "hé".as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "PUT /a/b q=x y hé", "{head}");
    for expected in ["HTTP/1.1 201", "x-agent: tests", "set-cookie: a=b", "content-type: text/plain"] {
        assert!(head.contains(expected), "{expected}: {head}");
    }
    assert_eq!(node.terminate(), 0);
}

const SHELL: &str = r#"#!/bin/bash
API="http://$AWS_LAMBDA_RUNTIME_API/2018-06-01/runtime"
while true; do
  HEADERS=$(mktemp)
  EVENT=$(curl -sS -D "$HEADERS" "$API/invocation/next") || exit 1
  ID=$(grep -Fi Lambda-Runtime-Aws-Request-Id "$HEADERS" | tr -d '[:space:]' | cut -d: -f2)
  rm "$HEADERS"
  echo "event $EVENT"
  sleep "$(echo "$EVENT" | tr -cd '0-9.')"
  curl -sS "$API/invocation/$ID/response" -d "$EVENT" > /dev/null
done
"#;

#[test]
fn a_function_for_lambda_in_shell_has_a_timeout_of_its_own() {
    if !is_root() {
        return;
    }
    if !Path::new("/usr/bin/curl").exists() {
        eprintln!("skipped: no curl");
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("shell");
    std::fs::create_dir_all(&folder).unwrap();
    let manifest = "[functions.shell]\nruntime = \"executable\"\nmode = \"lambda\"\ntimeout = \"2s\"\n";
    std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
    let program = folder.join("bootstrap");
    std::fs::write(&program, SHELL).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    node.deploy(&folder);
    assert_eq!(node.call("shell", &json!({"s": 0})), (200, json!({"s": 0})));
    let (status, problem) = node.call("shell", &json!({"s": 9}));
    assert_eq!(status, 504, "{problem}");
    assert!(node.ok(&["logs", "shell", "-n", "1"]).contains("    event {\"s\":9}"));
    assert_eq!(node.call("shell", &json!({"s": 0.1})), (200, json!({"s": 0.1})), "another instance serves");
    std::fs::write(&program, "#!/bin/sh\necho no library >&2\nexit 4\n").unwrap();
    let refused = node.run(&["deploy", folder.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{told}");
    for expected in ["ended with status 4 before it asked for an event", "no library"] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert_eq!(node.call("shell", &json!({"s": 0})), (200, json!({"s": 0})), "the old one serves");
    assert_eq!(node.terminate(), 0);
}
