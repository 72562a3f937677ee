// SPDX-License-Identifier: Apache-2.0

use serde_json::json;

use super::*;

#[test]
fn a_function_in_lines() {
    let function = json!({
        "name": "hello", "version": 7, "runtime": "python", "deployment": "tree-2",
        "versions": [{"version": 7, "deployment": "tree-2", "requests": 0, "failures": 0},
            {"version": 6, "deployment": "tree-1", "requests": 1200, "failures": 3,
                "deployed_ms": 1_795_442_719_000_u64, "note": "prices\u{1b} in euros"}],
        "aliases": {"live": [{"version": 7, "percent": 90}, {"version": 6, "percent": 10}],
            "stable": [{"version": 6, "percent": 100}]},
        "routes": ["GET /hello/{name}"],
        "settings": {"handler": "main.handler", "env.A": "b\nc"}, "serving": {"runtime": "python", "concurrency": "4"},
        "limits": {"memory_bytes": 268_435_456}, "instances": {"idle": 1, "busy": 0},
        "requests": 12345, "failures": 0, "cold_starts": 2,
    });
    let expected = "\
name          hello
version       7
runtime       python
deployment    tree-2
memory        256.0 MiB
env.A         b\\nc
handler       main.handler
concurrency   4
route         GET /hello/{name}
requests      12,345
failures      0
cold starts   2
instances     1 idle, 0 busy
alias live    7@90 6@10
alias stable  6
version 7     tree-2  serves 90 %
version 6     tree-1  serves 10 %  1,200 requests, 3 failures  2026-11-23 14:05:19 UTC  prices\u{fffd} in euros
";
    assert_eq!(described(&function), expected);
    // An older or newer node may leave things out.
    assert_eq!(described(&json!({"name": "x"})), "name  x\n");
}
