// SPDX-License-Identifier: Apache-2.0
//! What a step returns is with the next one as it was returned, whatever its process does then.

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

/// Returns numbers that code of the function's own changes when the step ends: at the end of what it was given, and when its
/// output is flushed. `seen` tells their sum, and whether it has them where they were made.
const MAIN: &str = r#"
import io, sys
from sinew import function, workflow

def numbers():
    return list(range(1_000_000, 1_200_000))

class Document:
    items = ()

    def __del__(self):
        if self.items:
            self.items[:] = [7] * len(self.items)

class Stream(io.StringIO):
    def flush(self):
        if kept:
            kept[:] = [8] * len(kept)

kept = []

@function
def document():
    return Document()

@function
def of_argument(given):
    given.items = numbers()
    return given.items

@function
def of_stream():
    global kept
    kept = numbers()
    sys.stdout = Stream()
    return kept

@function
def seen(items):
    return [sum(items), 0x100000000000 <= id(items) < 0x500000000000]

@workflow
def handler(event):
    return [seen(of_argument(document())).result(), seen(of_stream()).result()]
"#;

#[test]
fn what_runs_at_the_end_of_a_step_changes_nothing_of_what_it_returned() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = node.python("values", "workflow = true\n", MAIN);
    node.install(&folder).unwrap();
    let sum: u64 = (1_000_000..1_200_000).sum();
    for _ in 0..3 {
        let told = node.ok(&["invoke", "values"]);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told, json!([[sum, true], [sum, true]]));
    }
}
