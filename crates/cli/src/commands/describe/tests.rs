// SPDX-License-Identifier: Apache-2.0

use serde_json::json;

use super::*;

#[test]
fn a_function_in_lines() {
    let function = json!({
        "name": "hello", "version": 7, "runtime": "python", "deployment": "tree-2",
        "versions": [{"version": 7, "deployment": "tree-2"}, {"version": 6, "deployment": "tree-1"}],
        "settings": {"handler": "main.handler", "env.A": "b\nc"}, "serving": {"runtime": "python", "concurrency": "4"},
        "limits": {"memory_bytes": 268_435_456}, "instances": {"idle": 1, "busy": 0},
        "requests": 12345, "failures": 0, "cold_starts": 2,
    });
    let expected = "\
name         hello
version      7
runtime      python
deployment   tree-2
memory       256.0 MiB
env.A        b\\nc
handler      main.handler
concurrency  4
requests     12,345
failures     0
cold starts  2
instances    1 idle, 0 busy
version 7    tree-2  serves
version 6    tree-1
";
    assert_eq!(described(&function), expected);
    // An older or newer node may leave things out.
    assert_eq!(described(&json!({"name": "x"})), "name  x\n");
}
