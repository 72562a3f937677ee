// SPDX-License-Identifier: Apache-2.0
//! What an instance keeps of memory that its calls have freed is there for the next call, and is everybody's when it is needed.

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

/// `frees` takes so many MiB in blocks and lets them go; `needs` takes so many in one piece. Both tell the process and, of
/// it, the faults of the call and MiB that the kernel may have at its beginning.
const MAIN: &str = r#"
import os, re, resource

# Processes of containers all have one number.
who = os.urandom(8).hex()

def handler(event):
    with open("/proc/self/smaps_rollup") as told:
        lazily = int(re.search(r"LazyFree: +(\d+)", told.read())[1]) >> 10
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(b"x") * (1 << 20) for _ in range(event.get("frees", 0))]
    piece = bytearray(b"x") * (event.get("needs", 0) << 20)
    del blocks, piece
    return {"process": who, "lazily": lazily, "faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before}
"#;

fn call(node: &Node, event: &Value) -> Value {
    serde_json::from_str(&node.ok(&["invoke", "kept", "-d", &event.to_string()])).unwrap()
}

#[test]
fn blocks_that_a_call_has_freed_are_the_next_ones_or_the_kernels() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    node.install(&node.python("kept", "memory = \"512MiB\"\nconcurrency = 1\n", MAIN)).unwrap();
    let first = call(&node, &json!({"frees": 60}));
    let second = call(&node, &json!({"frees": 60}));
    assert!(
        first["faults"].as_u64().unwrap() > 14_000 && second["faults"].as_u64().unwrap() < 2_000,
        "{first} {second}"
    );
    // All but what is kept as ever.
    assert!(second["lazily"].as_u64().unwrap() > 40, "{second}");
    // With what was freed it would be more than there is.
    for _ in 0..2 {
        let third = call(&node, &json!({"needs": 450}));
        assert_eq!(third["process"], first["process"], "it was ended for what it had freed: {third}");
        call(&node, &json!({"frees": 60}));
    }
    // Who has had nothing to do for ten seconds has given it back.
    std::thread::sleep(std::time::Duration::from_secs(12));
    let last = call(&node, &json!({"frees": 60}));
    assert_eq!(last["process"], first["process"]);
    assert!(last["lazily"].as_u64().unwrap() < 10 && last["faults"].as_u64().unwrap() > 14_000, "{last}");
}
