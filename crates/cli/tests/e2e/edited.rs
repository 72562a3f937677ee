// SPDX-License-Identifier: Apache-2.0
//! After an edit of a workflow's code those of its pure steps are made again whose result may be another one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::workflows::{last, result};
use super::{Node, home};

const MANIFEST: &str =
    "[functions.edited]\nruntime = \"python\"\nsource = \".\"\nhandler = \"main.handler\"\nworkflow = true\n";
const MAIN: &str = r#"
import helpers
from sinew import function, workflow

LABEL = "area"

class Shape:
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side

@function(pure=True)
def squared(number):
    return helpers.power(number)

@function(pure=True)
def named(number):
    return f"{LABEL} {number}"

@function(pure=True)
def measured(shape):
    return shape.area()

@workflow
def handler(event):
    return [named(squared(number)) for number in event["numbers"]] + [measured(Shape(3))]
"#;
const HELPERS: &str = "def power(number):\n    return number * number\n";

/// A folder that is edited and deployed again.
struct Edited {
    folder: std::path::PathBuf,
    files: [(&'static str, String); 3],
}

impl Edited {
    fn new(home: &std::path::Path) -> Self {
        let folder = home.join("edited");
        std::fs::create_dir_all(&folder).unwrap();
        let files = [("sinew.toml", MANIFEST), ("main.py", MAIN), ("helpers.py", HELPERS)];
        Self { folder, files: files.map(|(name, text)| (name, text.to_owned())) }
    }

    /// What a run returns with all edits so far, and which functions it had to run.
    fn run(&self, node: &Node) -> (Value, BTreeSet<String>) {
        for (name, text) in &self.files {
            std::fs::write(self.folder.join(name), text).unwrap();
        }
        node.deploy(&self.folder);
        let result = result(node, "edited", &json!({ "numbers": [2, 3] }));
        let run = last(node, "edited");
        let steps = run["graph"].as_array().unwrap();
        assert!(steps.iter().all(|step| ["done", "remembered"].contains(&step["state"].as_str().unwrap())));
        let ran = steps.iter().filter(|step| step["state"] == "done");
        (result, ran.map(|step| step["function"].as_str().unwrap().replace("main.", "")).collect())
    }

    /// The same after one edit more.
    fn edit(&mut self, node: &Node, file: usize, before: &str, after: &str) -> (Value, BTreeSet<String>) {
        let text = &mut self.files[file].1;
        assert_eq!(text.matches(before).count(), 1, "{before}");
        *text = text.replace(before, after);
        self.run(node)
    }
}

#[test]
fn after_an_edit_only_that_runs_again_which_it_changes() {
    let home = home();
    let node = Node::start(home.path());
    let mut edited = Edited::new(home.path());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let all = names(&["squared", "named", "measured"]);
    let first = json!(["area 4", "area 9", 9]);
    assert_eq!(edited.run(&node), (first.clone(), all.clone()));
    // What says nothing else.
    let commented = edited.edit(&node, 1, "LABEL = ", "# What it is called.\nLABEL = ");
    assert_eq!(commented, (first.clone(), names(&[])));
    // A value that one function uses.
    let second = json!(["Area 4", "Area 9", 9]);
    assert_eq!(edited.edit(&node, 1, "\"area\"", "\"Area\""), (second.clone(), names(&["named"])));
    // Another module: who has the same argument as before has the same result.
    let (told, ran) = edited.edit(&node, 2, "number * number", "number ** 2");
    assert_eq!((told, ran), (second, names(&["squared"])));
    let third = json!(["Area 5", "Area 10", 9]);
    assert_eq!(
        edited.edit(&node, 2, "number ** 2", "number ** 2 + 1"),
        (third.clone(), names(&["squared", "named"]))
    );
    // It is known after a restart as well, and what was before is known again.
    assert_eq!(node.terminate(), 0);
    let node = Node::start(home.path());
    assert_eq!(edited.edit(&node, 1, "# What it is called.\n", ""), (third, names(&[])));
    // A class, of which anybody may be given an instance.
    let fourth = json!(["Area 5", "Area 10", 18]);
    assert_eq!(
        edited.edit(&node, 1, "return self.side * self.side", "return 2 * self.side * self.side"),
        (fourth.clone(), all.clone())
    );
    // Where it cannot be told what code reaches, all of it counts.
    assert_eq!(edited.edit(&node, 2, "def power", "eval('1')\ndef power"), (fourth.clone(), all.clone()));
    assert_eq!(edited.edit(&node, 2, "def power", "# A word.\ndef power"), (fourth.clone(), all));
    assert_eq!(edited.run(&node), (fourth, names(&[])));
    // And people are told.
    let log = node.ok(&["logs", "edited"]);
    assert!(log.contains("run again after every edit: in helpers.py it uses eval"), "{log}");
}
